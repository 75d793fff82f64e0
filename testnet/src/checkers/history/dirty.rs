//! No answer returns the value of an operation that was reported as not applied, nor a value that no client wrote (I7). A condition
//! that did not hold is such a report.
//!
//! Holds for relaxed reads too: they may be old, but rest on a chosen state. Seen where values are unique and set whole.

use std::collections::BTreeMap;

use bytes::Bytes;
use group::op::{Answer, Op};

use crate::history::Operation;

/// Checks one key's operations.
pub fn check(operations: &[&Operation]) -> Result<(), String> {
    // For each value: the first request to set it with effect, if any.
    let mut written: BTreeMap<&Bytes, Option<u64>> = BTreeMap::new();
    for operation in operations {
        match &operation.op {
            Op::Set { value, .. } => {
                let entry = written.entry(value).or_default();
                let refused = matches!(operation.outcome.answer(), Some(Answer::NotMet | Answer::Unfit(_)));
                if operation.outcome.may_have_effect() && !refused {
                    *entry = Some(entry.map_or(operation.invoked.order, |first| first.min(operation.invoked.order)));
                }
            }
            // The search judges values that are made of several writes.
            Op::Append { .. } | Op::Add(_) => return Ok(()),
            _ => {}
        }
    }
    for operation in operations {
        let (value, completed) = match (operation.outcome.answer(), operation.completed) {
            (Some(Answer::Value(Some(value)) | Answer::Versioned(Some((value, _)))), Some(completed)) => {
                (value, completed)
            }
            _ => continue,
        };
        match written.get(value) {
            Some(Some(asked)) if *asked < completed.order => {}
            Some(Some(_)) => return Err(format!("{:?} reads {value:?} before it was written", operation.key)),
            Some(None) => {
                return Err(format!(
                    "{:?} reads {value:?}, whose writer was told that nothing was done",
                    operation.key
                ));
            }
            None => return Err(format!("{:?} reads {value:?}, which nobody wrote", operation.key)),
        }
    }
    Ok(())
}
