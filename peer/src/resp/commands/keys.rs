//! Commands on keys with any kind of value: deletion, existence, time to live.

use group::op::{Condition, Op, Read};

use crate::resp::call::{Call, Handled, Reaction};
use crate::resp::errors;
use crate::resp::join::{Join, Shape};
use crate::resp::reply::Reply;

/// `DEL key [key …]`, `UNLINK key [key …]`
pub fn del(call: &mut Call<'_>) -> Handled {
    call.keys_at_most(call.arguments.len() - 1)?;
    for name in call.arguments.from(1).iter() {
        call.ask(name, Op::Delete { condition: Condition::Always, get: false })?;
    }
    Ok(Reaction::Ask(Join::write(Shape::Count)))
}

/// `EXISTS key [key …]`: a key counts as often as it is named.
pub fn exists(call: &mut Call<'_>) -> Handled {
    call.keys_at_most(call.arguments.len() - 1)?;
    for name in call.arguments.from(1).iter() {
        call.ask(name, Op::Read(Read::Exists))?;
    }
    Ok(Reaction::Ask(Join::read(Shape::Count)))
}

/// `DELEX key [IFEQ value | IFNE value]`
pub(crate) fn delex(call: &mut Call<'_>) -> Handled {
    let condition = match call.arguments.len() {
        2 => Condition::Always,
        4 if call.is(2, "IFEQ") => Condition::Equals(call.value(3)?),
        4 if call.is(2, "IFNE") => Condition::Differs(call.value(3)?),
        _ => return Err(Reply::error(errors::SYNTAX)),
    };
    call.write(Op::Delete { condition, get: false }, Shape::Count)
}

/// `DELIFEQ key value`
pub(crate) fn delifeq(call: &mut Call<'_>) -> Handled {
    let condition = Condition::Equals(call.value(2)?);
    call.write(Op::Delete { condition, get: false }, Shape::Count)
}

/// `TYPE key`
pub(crate) fn type_of(call: &mut Call<'_>) -> Handled {
    call.read(Read::Kind, Shape::Type)
}

/// `TTL key`
pub(crate) fn ttl(call: &mut Call<'_>) -> Handled {
    call.read(Read::TimeToLive, Shape::Seconds)
}

/// `PTTL key`
pub(crate) fn pttl(call: &mut Call<'_>) -> Handled {
    call.read(Read::TimeToLive, Shape::Count)
}
