//! One operation id changes the key at most once, and exactly once if it was acknowledged (I6).
//!
//! Seen on lists, keys that are only ever appended to, where every addition is unique and ends with a semicolon; and on counters,
//! which are only ever added to.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use group::op::{Answer, Op, Read, ReadMode};

use crate::history::{Operation, Outcome};

/// Checks one key's operations.
pub fn check(operations: &[&Operation]) -> Result<(), String> {
    let in_list = |operation: &&Operation| match &operation.op {
        Op::Append { value, max: None } => {
            value.iter().position(|byte| *byte == b';') == Some(value.len().wrapping_sub(1))
        }
        Op::Read(_) => true,
        _ => false,
    };
    if operations.iter().all(in_list) {
        return check_list(operations);
    }
    if operations.iter().all(|operation| matches!(operation.op, Op::Add(_) | Op::Read(_))) {
        return check_counter(operations);
    }
    Ok(())
}

fn check_list(operations: &[&Operation]) -> Result<(), String> {
    let mut acknowledged: BTreeMap<&Bytes, u64> = BTreeMap::new();
    let mut refused: BTreeMap<&[u8], bool> = BTreeMap::new();
    for operation in operations {
        let Op::Append { value, .. } = &operation.op else { continue };
        if let (Outcome::Answered(_), Some(completed)) = (&operation.outcome, operation.completed) {
            let first = acknowledged.entry(value).or_insert(completed.order);
            *first = (*first).min(completed.order);
        }
        // A value is refused if each of its attempts was.
        *refused.entry(&value[..]).or_insert(true) &= !operation.outcome.may_have_effect();
    }
    for read in operations.iter().filter(|operation| matches!(operation.op, Op::Read(Read::Value))) {
        let Some(Answer::Value(value)) = read.outcome.answer() else { continue };
        let list = value.clone().unwrap_or_default();
        let mut present = BTreeSet::new();
        for item in list.split_inclusive(|byte| *byte == b';') {
            if !present.insert(item) {
                return Err(format!("{:?} has {} twice: {list:?}", read.key, item.escape_ascii()));
            }
            match refused.get(item) {
                Some(false) => {}
                Some(true) => {
                    return Err(format!(
                        "{:?} has {}, whose client was told that nothing was done",
                        read.key,
                        item.escape_ascii()
                    ));
                }
                None => return Err(format!("{:?} has {}, which nobody added", read.key, item.escape_ascii())),
            }
        }
        if read.mode == ReadMode::Relaxed {
            continue;
        }
        let missing =
            acknowledged.iter().find(|(item, order)| **order < read.invoked.order && !present.contains(&item[..]));
        if let Some((item, _)) = missing {
            return Err(format!(
                "{:?} lacks {item:?}, which was acknowledged before it was read as {list:?}",
                read.key
            ));
        }
    }
    Ok(())
}

/// All attempts of one addition.
struct Addition {
    delta: i64,
    asked: u64,
    acknowledged: Option<u64>,
}

fn check_counter(operations: &[&Operation]) -> Result<(), String> {
    // Additions that can have taken effect, and those that must have, by the time of a read.
    let mut additions: BTreeMap<(Option<&Bytes>, u64), Addition> = BTreeMap::new();
    for operation in operations {
        let Op::Add(delta) = operation.op else { continue };
        if delta < 0 {
            return Ok(());
        }
        if !operation.outcome.may_have_effect() {
            continue;
        }
        let apart = if operation.once.is_some() { 0 } else { operation.invoked.order };
        let answered = operation.outcome.answer().and(operation.completed).map(|moment| moment.order);
        let fresh = || Addition { delta, asked: operation.invoked.order, acknowledged: answered };
        let addition = additions.entry((operation.once.as_ref(), apart)).or_insert_with(fresh);
        addition.acknowledged = addition.acknowledged.into_iter().chain(answered).min();
    }
    for read in operations.iter().filter(|operation| operation.mode == ReadMode::Linearizable) {
        let (Op::Read(Read::Value), Some(Answer::Value(value))) = (&read.op, read.outcome.answer()) else { continue };
        let Some(completed) = read.completed else { continue };
        let text = value.clone().unwrap_or_else(|| Bytes::from_static(b"0"));
        let sum: i64 = std::str::from_utf8(&text)
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| format!("the counter {:?} reads {text:?}", read.key))?;
        let sum_of = |which: &dyn Fn(&Addition) -> bool| -> i64 {
            additions.values().filter(|addition| which(addition)).map(|addition| addition.delta).sum()
        };
        let least = sum_of(&|addition| addition.acknowledged.is_some_and(|order| order < read.invoked.order));
        let most = sum_of(&|addition| addition.asked < completed.order);
        if sum < least || sum > most {
            return Err(format!("{:?} reads {sum}, but {least} was acknowledged and {most} was ever asked", read.key));
        }
    }
    Ok(())
}
