//! Commands beyond Redis: versions, relaxed reads, appends with a limit, repeatable commands, leases.

use bytes::Bytes;
use group::op::{Condition, Expiry, LeaseOp, Op, Read, ReadMode, Version};
use overlay::Key;

use crate::resp::arguments::parse_integer;
use crate::resp::call::{Call, Handled, Reaction, reply};
use crate::resp::commands::expiry::Notation;
use crate::resp::errors;
use crate::resp::join::{ABSENT_VERSION, Join, Shape};
use crate::resp::reply::Reply;
use crate::resp::table;

/// Upper limit of the id of `SCATTER.ONCE`, in bytes: each is kept in a record of its own beside the key.
const ONCE_BYTES_MAX: usize = 64;
/// Upper limit of a lease holder's name, in bytes: every answer about the lease carries it.
const HOLDER_BYTES_MAX: usize = 1024;

/// `SCATTER.GETV key` → `[value, version]`
pub(crate) fn getv(call: &mut Call<'_>) -> Handled {
    call.read(Read::Versioned, Shape::Versioned)
}

/// `SCATTER.CAS key version value` → 1, or 0 where the key has another version by now
pub fn cas(call: &mut Call<'_>) -> Handled {
    let condition = match call.arguments.at(2) {
        version if version == ABSENT_VERSION.as_bytes() => Condition::Absent,
        version => Condition::Version(
            parse_version(version).ok_or(Reply::error("ERR version is not one that SCATTER.GETV gave"))?,
        ),
    };
    let value = call.value(3)?;
    call.write(Op::Set { value, condition, expiry: Expiry::Clear, get: false }, Shape::Count)
}

/// Parses `generation-timestamp`.
fn parse_version(text: &[u8]) -> Option<Version> {
    let dash = text.iter().position(|&byte| byte == b'-')?;
    let generation = u32::try_from(parse_integer(&text[..dash])?).ok()?;
    let timestamp = std::str::from_utf8(&text[dash + 1..]).ok()?;
    if timestamp.is_empty() || !timestamp.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(Version { generation, timestamp: timestamp.parse().ok()? })
}

/// `SCATTER.RGET key`: read from any member, perhaps old
pub(crate) fn rget(call: &mut Call<'_>) -> Handled {
    call.ask_in(call.arguments.at(1), Op::Read(Read::Value), ReadMode::Relaxed)?;
    Ok(Reaction::Ask(Join::read(Shape::Value)))
}

/// `SCATTER.APPEND key max value` → the new length, or nil and no change where it would exceed `max`
pub fn append(call: &mut Call<'_>) -> Handled {
    let max = u32::try_from(call.integer(2)?).map_err(|_| Reply::error(errors::NOT_AN_INTEGER))?;
    let value = call.value(3)?;
    call.write(Op::Append { value, max: Some(max) }, Shape::IntegerOrNil)
}

/// `SCATTER.WHERE key`
pub fn locate(call: &mut Call<'_>) -> Handled {
    let name = call.arguments.at(1);
    let key = Key::new(name).map_err(|_| Reply::error(errors::KEY_TOO_LONG))?;
    let location = call.shared.status.locate(&key);
    let or_nil = |text: Option<String>| text.map_or(Reply::Nil, Reply::text);
    reply(Reply::Map(vec![
        (Reply::text("key"), Reply::Bulk(Bytes::copy_from_slice(name))),
        (Reply::text("point"), Reply::text(location.point)),
        (Reply::text("group"), or_nil(location.group)),
        (
            Reply::text("epoch"),
            location.epoch.map_or(Reply::Nil, |epoch| Reply::Integer(i64::try_from(epoch).unwrap_or(i64::MAX))),
        ),
        (Reply::text("primary"), or_nil(location.primary)),
        (Reply::text("members"), Reply::Array(location.members.into_iter().map(Reply::text).collect())),
    ]))
}

/// `SCATTER.ONCE id COMMAND …`: repeated with the same id, the command takes effect once
pub fn once(call: &mut Call<'_>) -> Handled {
    let id = call.arguments.at(1);
    if id.is_empty() || id.len() > ONCE_BYTES_MAX {
        return Err(Reply::error(format!("ERR the id has to have 1 to {ONCE_BYTES_MAX} bytes")));
    }
    let inner = call.arguments.from(2);
    let Some((_, command)) = table::find(inner.at(0)) else {
        return Err(errors::unknown_command(inner));
    };
    if !command.takes(inner.len()) {
        return Err(errors::arity(command.name));
    }
    let not_one_key = || Reply::error("ERR SCATTER.ONCE takes a command on one key");
    // The keys are checked before the command runs: a command without keys may change the connection.
    if command.keys.first == 0 || call.once.is_some() {
        return Err(not_one_key());
    }
    call.once = Some(Bytes::copy_from_slice(id));
    call.command = command;
    call.arguments = inner;
    match (command.run)(call)? {
        Reaction::Ask(join) if call.asked.len() == 1 => Ok(Reaction::Ask(join)),
        _ => Err(not_one_key()),
    }
}

/// `SCATTER.LEASE key holder ms`: takes the lease, or renews it → `[holder, remaining ms]` of the present
/// holder
pub fn lease(call: &mut Call<'_>) -> Handled {
    if call.once.is_some() {
        // A repetition of the first answer would be about a lease that is long over.
        return Err(Reply::error("ERR SCATTER.LEASE may be repeated as it is, and not under SCATTER.ONCE"));
    }
    let holder = holder(call)?;
    let Expiry::In(term) = Notation::Millis.with_value(call.integer(3)?, call.name())? else {
        return Err(errors::expire_time(call.name()));
    };
    call.write(Op::Lease(LeaseOp::Acquire { holder, term }), Shape::Held)
}

/// `SCATTER.UNLEASE key holder` → 1, or 0 where another holder has the lease, or none
pub(crate) fn unlease(call: &mut Call<'_>) -> Handled {
    let holder = holder(call)?;
    call.write(Op::Lease(LeaseOp::Release { holder }), Shape::Count)
}

fn holder(call: &Call<'_>) -> Result<Bytes, Reply> {
    let holder = call.arguments.at(2);
    if holder.is_empty() || holder.len() > HOLDER_BYTES_MAX {
        return Err(Reply::error(format!(
            "ERR the holder has to have 1 to {HOLDER_BYTES_MAX} bytes; nothing was done"
        )));
    }
    Ok(Bytes::copy_from_slice(holder))
}
