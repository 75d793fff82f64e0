//! Services: evaluation of the messages that routecast delivers (RECODE §III-B, §VI).
//!
//! Routecast brings a message for a key to the key's group, in one total order for each key, at most once, also while ranges split, merge
//! and move. A service adds one pure function of a key's value: [`Service::deliver`], RECODE's *rc-deliver*. It runs once, at the key's
//! primary. Its result is replicated (fRSM §3.2), so it may depend on the time. Order, retries, moves and expiry are not its concern, so
//! each service is small: the [`Store`] of values, [`Counters`], and [`Leases`]. A new service needs one more file here, a message in
//! [`Op`], and a [`Kind`] if its values are its own.

mod counters;
mod leases;
mod store;

use core::time::Duration;

use bytes::Bytes;

pub use counters::Counters;
pub use leases::Leases;
pub use store::Store;

use crate::op::{Answer, Condition, Kind, Op, Read, Unfit, Version};
use overlay::time::WallMillis;

/// Value of an existing key, as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    /// Value of the key.
    pub value: Bytes,
    /// Kind of the value.
    pub kind: Kind,
    /// Version of the key.
    pub version: Version,
    /// Deadline of the key, in group time.
    pub deadline: Option<WallMillis>,
}

/// Change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// No change: the answer is a read.
    None,
    /// The new value, with its deadline; [`Op::kind`] returns its kind.
    Put(Bytes, Option<WallMillis>),
    /// A tombstone.
    Delete,
}

/// Circumstances of a delivery.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    /// Group time.
    pub now: WallMillis,
    /// Upper limit of a new value, in bytes.
    pub value_bytes_max: usize,
}

/// State of one kind for each key, and the effect of messages on it.
pub trait Service {
    /// Kind of the service's values. The service never gets values of another kind.
    const KIND: Kind;

    /// Message to the service.
    type Message;

    /// Returns the change of a key's state by a message (`None`: absent, or expired), and the answer. A pure function.
    fn deliver(message: &Self::Message, state: Option<&Live>, at: &Delivery) -> (Change, Answer);
}

/// Delivers a message to its service. Where the key has a value of another kind, nothing changes, and the answer is [`Unfit::OtherKind`].
/// Questions whether a key exists, for how long and of which kind, and its plain deletion, apply to keys of every kind.
pub fn deliver(op: &Op, state: Option<&Live>, at: &Delivery) -> (Change, Answer) {
    let Some(kind) = op.kind() else { return deliver_any(op, state, at) };
    if state.is_some_and(|live| live.kind != kind) {
        return (Change::None, Answer::Unfit(Unfit::OtherKind));
    }
    match op {
        Op::Add(delta) => Counters::deliver(delta, state, at),
        Op::Lease(ask) => Leases::deliver(ask, state, at),
        other => Store::deliver(other, state, at),
    }
}

/// Delivers a message that keys of every kind understand.
fn deliver_any(op: &Op, state: Option<&Live>, at: &Delivery) -> (Change, Answer) {
    match op {
        Op::Delete { .. } if state.is_some() => (Change::Delete, Answer::Done),
        Op::Read(Read::Exists) => (Change::None, Answer::Integer(i64::from(state.is_some()))),
        Op::Read(Read::TimeToLive) => (Change::None, Answer::Integer(time_to_live(state, at.now))),
        Op::Read(Read::Kind) => (Change::None, Answer::Kind(state.map(|live| live.kind))),
        _ => (Change::None, Answer::NotMet),
    }
}

impl Op {
    /// Returns the kind of the values that the operation is about; `None` for operations that keys of every kind understand.
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Op::Read(Read::Exists | Read::TimeToLive | Read::Kind)
            | Op::Delete { condition: Condition::Always, get: false } => None,
            Op::Add(_) => Some(Counters::KIND),
            Op::Lease(_) => Some(Leases::KIND),
            _ => Some(Store::KIND),
        }
    }
}

/// Returns the time until the deadline, in milliseconds; -1 without a deadline, -2 without a key.
fn time_to_live(state: Option<&Live>, now: WallMillis) -> i64 {
    match state {
        None => -2,
        Some(Live { deadline: None, .. }) => -1,
        Some(Live { deadline: Some(deadline), .. }) => {
            i64::try_from(deadline.0.saturating_sub(now.0)).unwrap_or(i64::MAX)
        }
    }
}

fn after(now: WallMillis, duration: Duration) -> WallMillis {
    WallMillis(now.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
}

/// Returns the change to a value with a deadline. A deadline that has passed already makes a tombstone, as in Redis.
fn put_or_expire(value: Bytes, deadline: Option<WallMillis>, now: WallMillis) -> Change {
    match deadline {
        Some(at) if at <= now => Change::Delete,
        deadline => Change::Put(value, deadline),
    }
}

#[cfg(test)]
#[path = "service_test.rs"]
mod tests;
