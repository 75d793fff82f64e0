//! The store: values that are set, compared, appended to, and that expire.

use alloc::vec::Vec;

use bytes::Bytes;

use super::{Change, Delivery, Live, Service, after, put_or_expire};
use crate::op::{Answer, Condition, ExpireOnly, Expiry, Kind, Op, Read, Unfit};
use overlay::time::WallMillis;

/// Values of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Store;

impl Service for Store {
    const KIND: Kind = Kind::Value;

    /// Any operation but those of the other services.
    type Message = Op;

    fn deliver(op: &Op, state: Option<&Live>, at: &Delivery) -> (Change, Answer) {
        let Delivery { now, value_bytes_max } = *at;
        match op {
            Op::Read(Read::Value) => (Change::None, Answer::Value(state.map(|live| live.value.clone()))),
            Op::Read(Read::Versioned) => {
                (Change::None, Answer::Versioned(state.map(|live| (live.value.clone(), live.version))))
            }
            Op::Read(Read::Length) => (Change::None, Answer::Integer(state.map_or(0, |live| live.value.len() as i64))),

            Op::Set { value, condition, expiry, get } => {
                let before = || Answer::Value(state.map(|live| live.value.clone()));
                if !holds(condition, state) {
                    return (Change::None, if *get { before() } else { Answer::NotMet });
                }
                if value.len() > value_bytes_max {
                    return (Change::None, Answer::Unfit(Unfit::TooLong));
                }
                let answer = if *get { before() } else { Answer::Done };
                let deadline = deadline(*expiry, state.and_then(|live| live.deadline), now);
                (put_or_expire(value.clone(), deadline, now), answer)
            }
            Op::Delete { condition, get } => {
                let before = || Answer::Value(state.map(|live| live.value.clone()));
                if state.is_none() || !holds(condition, state) {
                    return (Change::None, if *get { before() } else { Answer::NotMet });
                }
                (Change::Delete, if *get { before() } else { Answer::Done })
            }
            Op::Append { value, max } => append(value, *max, state, value_bytes_max),
            Op::Expire { expiry, only } => expire(*expiry, *only, state, now),
            Op::ReadExpire(expiry) => {
                let Some(live) = state else { return (Change::None, Answer::Value(None)) };
                let answer = Answer::Value(Some(live.value.clone()));
                let deadline = deadline(*expiry, live.deadline, now);
                if deadline == live.deadline {
                    return (Change::None, answer);
                }
                (put_or_expire(live.value.clone(), deadline, now), answer)
            }
            Op::Read(Read::Exists | Read::TimeToLive | Read::Kind) | Op::Add(_) | Op::Lease(_) => {
                unreachable!("{op:?} is delivered elsewhere")
            }
        }
    }
}

fn holds(condition: &Condition, state: Option<&Live>) -> bool {
    match condition {
        Condition::Always => true,
        Condition::Absent => state.is_none(),
        Condition::Present => state.is_some(),
        Condition::Equals(value) => state.is_some_and(|live| live.value == *value),
        Condition::Differs(value) => state.is_none_or(|live| live.value != *value),
        Condition::Version(version) => state.is_some_and(|live| live.version == *version),
    }
}

fn deadline(expiry: Expiry, before: Option<WallMillis>, now: WallMillis) -> Option<WallMillis> {
    match expiry {
        Expiry::Clear => None,
        Expiry::Keep => before,
        Expiry::In(duration) => Some(after(now, duration)),
        Expiry::At(at) => Some(at),
    }
}

fn append(value: &Bytes, max: Option<u32>, state: Option<&Live>, value_bytes_max: usize) -> (Change, Answer) {
    let before = state.map_or(&[][..], |live| &live.value);
    let length = before.len() + value.len();
    if max.is_some_and(|max| length > max as usize) {
        return (Change::None, Answer::NotMet);
    }
    if length > value_bytes_max {
        return (Change::None, Answer::Unfit(Unfit::TooLong));
    }
    let answer = Answer::Integer(length as i64);
    if value.is_empty() && state.is_some() {
        return (Change::None, answer);
    }
    let mut joined = Vec::with_capacity(length);
    joined.extend_from_slice(before);
    joined.extend_from_slice(value);
    (Change::Put(joined.into(), state.and_then(|live| live.deadline)), answer)
}

fn expire(expiry: Expiry, only: ExpireOnly, state: Option<&Live>, now: WallMillis) -> (Change, Answer) {
    let Some(live) = state else { return (Change::None, Answer::NotMet) };
    let new = deadline(expiry, live.deadline, now);
    if new.is_none() && live.deadline.is_none() {
        return (Change::None, Answer::NotMet);
    }
    let (old, new_or_never) = (live.deadline, new.unwrap_or(WallMillis(u64::MAX)));
    let allowed = match only {
        ExpireOnly::Always => true,
        ExpireOnly::Without => old.is_none(),
        ExpireOnly::With => old.is_some(),
        ExpireOnly::Later => old.is_some_and(|old| new_or_never > old),
        ExpireOnly::Earlier => old.is_none_or(|old| new_or_never < old),
        ExpireOnly::WithEarlier => old.is_some_and(|old| new_or_never < old),
    };
    if !allowed {
        return (Change::None, Answer::NotMet);
    }
    (put_or_expire(live.value.clone(), new, now), Answer::Done)
}
