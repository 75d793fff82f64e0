//! Commands on values: `GET`, `SET` and their kin, counters, several keys at once.

use group::op::{Condition, Expiry, Op, Read};

use super::expiry::Notation;
use crate::resp::arguments::parse_integer;
use crate::resp::call::{Call, Handled, Reaction};
use crate::resp::errors;
use crate::resp::join::{Join, Shape};
use crate::resp::reply::Reply;

/// `GET key`
pub fn get(call: &mut Call<'_>) -> Handled {
    call.read(Read::Value, Shape::Value)
}

/// `STRLEN key`
pub(crate) fn strlen(call: &mut Call<'_>) -> Handled {
    call.read(Read::Length, Shape::Count)
}

/// `MGET key [key …]`
pub(crate) fn mget(call: &mut Call<'_>) -> Handled {
    call.keys_at_most(call.arguments.len() - 1)?;
    for name in call.arguments.from(1).iter() {
        call.ask(name, Op::Read(Read::Value))?;
    }
    Ok(Reaction::Ask(Join::read(Shape::Values)))
}

/// `MSET key value [key value …]`
pub fn mset(call: &mut Call<'_>) -> Handled {
    if call.arguments.len().is_multiple_of(2) {
        return Err(errors::arity(call.name()));
    }
    call.keys_at_most(call.arguments.len() / 2)?;
    for index in (1..call.arguments.len()).step_by(2) {
        let value = call.value(index + 1)?;
        let op = Op::Set { value, condition: Condition::Always, expiry: Expiry::Clear, get: false };
        call.ask(call.arguments.at(index), op)?;
    }
    Ok(Reaction::Ask(Join::write(Shape::AllOk)))
}

/// `SET key value [NX | XX | IFEQ v | IFNE v] [GET] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]`
pub fn set(call: &mut Call<'_>) -> Handled {
    let mut condition = Condition::Always;
    let mut deadline: Option<(Notation, usize)> = None;
    let mut keep = false;
    let mut get = false;
    let mut index = 3;
    while let Some(word) = call.arguments.get(index) {
        let operand = index + 1;
        let has_operand = operand < call.arguments.len();
        let wanted = match word.to_ascii_uppercase().as_slice() {
            b"NX" => Some(Condition::Absent),
            b"XX" => Some(Condition::Present),
            b"IFEQ" if has_operand => Some(Condition::Equals(call.value(operand)?)),
            b"IFNE" if has_operand => Some(Condition::Differs(call.value(operand)?)),
            b"GET" => {
                get = true;
                None
            }
            b"KEEPTTL" if deadline.is_none() => {
                keep = true;
                None
            }
            _ => {
                let notation = Notation::of(word).filter(|_| has_operand && !keep).ok_or_else(syntax)?;
                if deadline.is_some_and(|(other, _)| other != notation) {
                    return Err(syntax());
                }
                deadline = Some((notation, operand));
                index += 1;
                None
            }
        };
        if let Some(wanted) = wanted {
            if condition != Condition::Always && condition != wanted {
                return Err(syntax());
            }
            if matches!(wanted, Condition::Equals(_) | Condition::Differs(_)) {
                index += 1;
            }
            condition = wanted;
        }
        index += 1;
    }
    let expiry = match deadline {
        Some((notation, operand)) => notation.with_value(call.integer(operand)?, call.name())?,
        None if keep => Expiry::Keep,
        None => Expiry::Clear,
    };
    let value = call.value(2)?;
    call.write(Op::Set { value, condition, expiry, get }, if get { Shape::Value } else { Shape::OkOrNil })
}

/// `SETNX key value`
pub(crate) fn setnx(call: &mut Call<'_>) -> Handled {
    let value = call.value(2)?;
    call.write(Op::Set { value, condition: Condition::Absent, expiry: Expiry::Clear, get: false }, Shape::Count)
}

/// `SETEX key seconds value`
pub fn setex(call: &mut Call<'_>) -> Handled {
    set_with_deadline(call, Notation::Seconds)
}

/// `PSETEX key milliseconds value`
pub(crate) fn psetex(call: &mut Call<'_>) -> Handled {
    set_with_deadline(call, Notation::Millis)
}

fn set_with_deadline(call: &mut Call<'_>, notation: Notation) -> Handled {
    let expiry = notation.with_value(call.integer(2)?, call.name())?;
    let value = call.value(3)?;
    call.write(Op::Set { value, condition: Condition::Always, expiry, get: false }, Shape::OkOrNil)
}

/// `GETSET key value`
pub(crate) fn getset(call: &mut Call<'_>) -> Handled {
    let value = call.value(2)?;
    call.write(Op::Set { value, condition: Condition::Always, expiry: Expiry::Clear, get: true }, Shape::Value)
}

/// `GETDEL key`
pub(crate) fn getdel(call: &mut Call<'_>) -> Handled {
    call.write(Op::Delete { condition: Condition::Always, get: true }, Shape::Value)
}

/// `GETEX key [EX s | PX ms | EXAT s | PXAT ms | PERSIST]`; a repeated option is accepted, the last one counts.
pub(crate) fn getex(call: &mut Call<'_>) -> Handled {
    let mut deadline: Option<(Notation, usize)> = None;
    let mut persist = false;
    let mut index = 2;
    while let Some(word) = call.arguments.get(index) {
        if word.eq_ignore_ascii_case(b"PERSIST") && deadline.is_none() {
            persist = true;
            index += 1;
            continue;
        }
        let operand = index + 1;
        let has_operand = operand < call.arguments.len();
        let notation = Notation::of(word).filter(|_| has_operand && !persist).ok_or_else(syntax)?;
        if deadline.is_some_and(|(other, _)| other != notation) {
            return Err(syntax());
        }
        deadline = Some((notation, operand));
        index += 2;
    }
    let expiry = match deadline {
        Some((notation, operand)) => notation.with_value(call.integer(operand)?, call.name())?,
        None if persist => Expiry::Clear,
        None => return get(call),
    };
    call.write(Op::ReadExpire(expiry), Shape::Value)
}

/// `APPEND key value`
pub fn append(call: &mut Call<'_>) -> Handled {
    let value = call.value(2)?;
    call.write(Op::Append { value, max: None }, Shape::Count)
}

/// `INCR key`
pub fn incr(call: &mut Call<'_>) -> Handled {
    call.write(Op::Add(1), Shape::Count)
}

/// `DECR key`
pub(crate) fn decr(call: &mut Call<'_>) -> Handled {
    call.write(Op::Add(-1), Shape::Count)
}

/// `INCRBY key increment`
pub fn incrby(call: &mut Call<'_>) -> Handled {
    let number = call.integer(2)?;
    call.write(Op::Add(number), Shape::Count)
}

/// `DECRBY key decrement`
pub(crate) fn decrby(call: &mut Call<'_>) -> Handled {
    let number = parse_integer(call.arguments.at(2)).ok_or(Reply::error(errors::NOT_AN_INTEGER))?;
    let negated = number.checked_neg().ok_or(Reply::error("ERR decrement would overflow"))?;
    call.write(Op::Add(negated), Shape::Count)
}

fn syntax() -> Reply {
    Reply::error(errors::SYNTAX)
}
