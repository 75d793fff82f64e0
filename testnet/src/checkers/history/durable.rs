//! Acknowledged writes survive (I5).
//!
//! Seen on keys that no client can have deleted and that cannot have expired: once a write of one is acknowledged, the key is never
//! absent again.

use group::op::{Answer, Condition, Expiry, Op, Read, ReadMode};

use crate::history::Operation;

/// Checks one key's operations.
pub fn check(operations: &[&Operation]) -> Result<(), String> {
    let may_vanish = |op: &Op| match op {
        Op::Delete { .. } | Op::Expire { .. } | Op::ReadExpire(_) | Op::Lease(_) => true,
        Op::Set { expiry, .. } => !matches!(expiry, Expiry::Clear | Expiry::Keep),
        Op::Read(_) | Op::Append { .. } | Op::Add(_) => false,
    };
    if operations.iter().any(|operation| operation.outcome.may_have_effect() && may_vanish(&operation.op)) {
        return Ok(());
    }
    let created = |operation: &Operation| match (&operation.op, operation.outcome.answer()) {
        (Op::Set { condition, .. }, Some(Answer::Done)) => *condition != Condition::Present,
        (Op::Append { .. } | Op::Add(_), Some(Answer::Integer(_))) => true,
        _ => false,
    };
    let since = operations.iter().filter(|o| created(o)).filter_map(|o| o.completed).map(|moment| moment.order).min();
    let Some(since) = since else { return Ok(()) };
    for read in operations.iter().filter(|o| o.invoked.order > since && o.mode == ReadMode::Linearizable) {
        let absent = matches!(
            (&read.op, read.outcome.answer()),
            (Op::Read(Read::Value), Some(Answer::Value(None)))
                | (Op::Read(Read::Versioned), Some(Answer::Versioned(None)))
                | (Op::Read(Read::Exists), Some(Answer::Integer(0)))
        );
        if absent {
            return Err(format!(
                "{:?} is absent at {:?}, though a write was acknowledged",
                read.key, read.invoked.time
            ));
        }
    }
    Ok(())
}
