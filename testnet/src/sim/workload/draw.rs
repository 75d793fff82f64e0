//! Random operations of clients, by the family of their key.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use group::op::{Answer, Condition, ExpireOnly, Expiry, LeaseOp, Op, Read, Version};
use overlay::Key;

use crate::history::{Operation, Outcome};
use crate::rng::Rng;

/// State of a key that a client remembers, to make conditions that may hold.
#[derive(Clone, Debug)]
pub(super) struct RememberedKey {
    value: Option<Bytes>,
    version: Option<Version>,
}

/// Remembers the value and the version that an answer shows.
pub(super) fn remember(seen: &mut BTreeMap<Key, RememberedKey>, operation: &Operation, outcome: &Outcome) {
    let (value, version) = match (&operation.op, outcome) {
        (_, Outcome::Answered(Answer::Versioned(Some((value, version))))) => (Some(value.clone()), Some(*version)),
        (Op::Read(Read::Value), Outcome::Answered(Answer::Value(value))) => (value.clone(), None),
        (Op::Set { value, .. }, Outcome::Answered(Answer::Done)) => (Some(value.clone()), None),
        _ => return,
    };
    let entry = seen.entry(operation.key.clone()).or_insert(RememberedKey { value: None, version: None });
    entry.value = value;
    entry.version = version.or(entry.version);
    if seen.len() > 64 {
        seen.pop_first();
    }
}

pub(super) fn draw_read(rng: &mut Rng, family: usize) -> Op {
    Op::Read(match (family, rng.below(10)) {
        (4 | 5, 0..=2) => Read::TimeToLive,
        (5, 3) => Read::Kind,
        (0 | 3, 0..=3) => Read::Versioned,
        (_, 4) => Read::Exists,
        (_, 5) => Read::Length,
        _ => Read::Value,
    })
}

fn set(value: Bytes, condition: Condition) -> Op {
    Op::Set { value, condition, expiry: Expiry::Clear, get: false }
}

pub(super) fn draw_register(rng: &mut Rng, value: Bytes, seen: Option<RememberedKey>) -> Op {
    let known = seen.as_ref().and_then(|seen| seen.value.clone());
    let version = seen.as_ref().and_then(|seen| seen.version);
    match (rng.below(16), known, version) {
        (0..=3, _, Some(version)) => set(value, Condition::Version(version)),
        (4..=6, Some(known), _) => set(value, Condition::Equals(known)),
        (7, Some(known), _) => set(value, Condition::Differs(known)),
        (8, _, _) => set(value, Condition::Absent),
        (9, _, _) => set(value, Condition::Present),
        (10, _, _) => Op::Delete { condition: Condition::Always, get: false },
        (11, _, _) => Op::Delete { condition: Condition::Always, get: true },
        (12, Some(known), _) => Op::Delete { condition: Condition::Equals(known), get: false },
        (13, _, _) => Op::Set { value, condition: Condition::Always, expiry: Expiry::Keep, get: true },
        _ => set(value, Condition::Always),
    }
}

pub(super) fn draw_mixed(rng: &mut Rng, value: Bytes, seen: Option<RememberedKey>) -> Op {
    match rng.below(6) {
        0 => Op::Append { value, max: Some(60) },
        1 => Op::Add(rng.below(2_000_000) as i64 - 1_000_000),
        // A number, so that the next addition fits.
        2 => set(Bytes::from(rng.below(1 << 60).to_string()), Condition::Always),
        _ => draw_register(rng, value, seen),
    }
}

/// Draws an operation on a lease, with the client itself as the holder; now and then the key gets a value that is no lease.
pub(super) fn draw_lease(rng: &mut Rng, client: usize, value: Bytes) -> Op {
    let holder = Bytes::from(format!("holder {client}"));
    match rng.below(12) {
        0..=6 => Op::Lease(LeaseOp::Acquire { holder, term: Duration::from_millis(rng.between(50, 30_000)) }),
        7..=9 => Op::Lease(LeaseOp::Release { holder }),
        10 => Op::Delete { condition: Condition::Always, get: false },
        _ => set(value, Condition::Always),
    }
}

pub(super) fn draw_with_deadline(rng: &mut Rng, value: Bytes) -> Op {
    let soon = Expiry::In(Duration::from_millis(rng.between(50, 8_000)));
    match rng.below(8) {
        0..=2 => Op::Set { value, condition: Condition::Always, expiry: soon, get: false },
        3 => Op::Expire { expiry: soon, only: ExpireOnly::Always },
        4 => Op::Expire { expiry: Expiry::Clear, only: ExpireOnly::Always },
        5 => Op::ReadExpire(soon),
        6 => Op::Append { value, max: None },
        _ => set(value, rng.pick(&[Condition::Always, Condition::Absent, Condition::Present]).clone()),
    }
}
