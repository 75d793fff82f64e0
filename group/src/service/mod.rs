//! Services: what answers the messages that routecast delivers (RECODE §III-B, §VI).
//!
//! Routecast brings a message for a key to the key's group, in one total order per key, at most once, also while ranges
//! split, merge and move. What a service adds is one pure function of a key's value: [`Service::deliver`], RECODE's
//! *rc-deliver*. It runs once, at the key's primary; its result is replicated (fRSM §3.2), so it may look at the time. All
//! else (order, retries, moves, expiry) is not its affair, and so each is small: the [`Store`] of values, [`Counters`],
//! and [`Leases`]. One more is one more file here, a message in [`Op`], and its [`Kind`] where its values are its own.

mod counters;
mod leases;
mod store;

use core::time::Duration;

use bytes::Bytes;

pub use counters::Counters;
pub use leases::Leases;
pub use store::Store;

use crate::op::{Answer, Condition, Kind, Op, Read, Unfit, Version};
use crate::time::WallMillis;

/// What a client sees of a key that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    /// Its value.
    pub value: Bytes,
    /// Whose value it is.
    pub kind: Kind,
    /// Its version.
    pub version: Version,
    /// Its deadline, in group time.
    pub deadline: Option<WallMillis>,
}

/// What is to become of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing: the answer is a read.
    None,
    /// This value with this deadline; it is of the kind that [`Op::kind`] tells.
    Put(Bytes, Option<WallMillis>),
    /// A tombstone.
    Delete,
}

/// Where and when a message is delivered.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    /// Group time.
    pub now: WallMillis,
    /// The longest value that may be made, in bytes.
    pub value_bytes_max: usize,
}

/// A kind of state per key, and what messages do to it.
pub trait Service {
    /// The kind of its values. It is never shown those of another.
    const KIND: Kind;

    /// What may be sent to it.
    type Message;

    /// What a message does to a key's state (`None`: absent, or expired), and what is answered. A pure function.
    fn deliver(message: &Self::Message, state: Option<&Live>, at: &Delivery) -> (Change, Answer);
}

/// Delivers a message to the service that it is for. Where the key has a value of another kind, nothing is changed:
/// [`Unfit::OtherKind`]; but whether a key is there, for how long and as what, and its plain deletion, are every key's.
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

/// What every key understands.
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
    /// Whose values this one is about; `None` for what every key understands.
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

/// Milliseconds until the deadline; -1 without one, -2 without a key.
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

/// A deadline that has passed already makes a tombstone, as in Redis.
fn put_or_expire(value: Bytes, deadline: Option<WallMillis>, now: WallMillis) -> Change {
    match deadline {
        Some(at) if at <= now => Change::Delete,
        deadline => Change::Put(value, deadline),
    }
}

#[cfg(test)]
#[path = "service_test.rs"]
mod tests;
