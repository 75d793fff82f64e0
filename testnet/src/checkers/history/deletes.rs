//! Deletes stay deleted unless a client creates the key again (I14).
//!
//! A value whose write was over before an acknowledged delete began is never read after the delete was over.

use std::collections::BTreeMap;

use bytes::Bytes;
use group::op::{Answer, Op, ReadMode};

use crate::history::Operation;

/// Checks one key's operations.
pub fn check(operations: &[&Operation]) -> Result<(), String> {
    // For each value: the end of the last attempt to write it.
    let mut written: BTreeMap<&Bytes, u64> = BTreeMap::new();
    let mut deletes: Vec<(u64, u64)> = Vec::new();
    for operation in operations {
        let over = match operation.outcome.answer() {
            Some(_) => operation.completed.map_or(u64::MAX, |moment| moment.order),
            None => u64::MAX,
        };
        match (&operation.op, operation.outcome.answer()) {
            (Op::Set { value, .. }, _) => {
                let last = written.entry(value).or_default();
                *last = (*last).max(over);
            }
            (Op::Delete { .. }, Some(Answer::Done)) if operation.once.is_none() => {
                deletes.push((operation.invoked.order, over));
            }
            _ => {}
        }
    }
    for read in operations {
        let Some(Answer::Value(Some(value)) | Answer::Versioned(Some((value, _)))) = read.outcome.answer() else {
            continue;
        };
        if read.mode == ReadMode::Relaxed || !matches!(read.op, Op::Read(_)) {
            continue;
        }
        let Some(written) = written.get(value) else { continue };
        if deletes.iter().any(|(began, over)| written < began && *over < read.invoked.order) {
            return Err(format!("{:?} reads {value:?}, which was deleted before", read.key));
        }
    }
    Ok(())
}
