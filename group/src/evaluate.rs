//! What an operation does to a key's value: a pure function, evaluated once, at the primary.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;

use crate::op::{Answer, Condition, ExpireOnly, Expiry, Op, Read, Unfit, Version};
use crate::time::WallMillis;

/// What a client sees of a key that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    /// Its value.
    pub value: Bytes,
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
    /// This value with this deadline.
    Put(Bytes, Option<WallMillis>),
    /// A tombstone.
    Delete,
}

/// Evaluates `op` on a key's state (`None`: absent, or expired) at group time `now`.
///
/// A value longer than `value_bytes_max` is not made: [`Unfit::TooLong`]. `made` is the version that a change would have.
pub fn evaluate(op: &Op, state: Option<&Live>, now: WallMillis, value_bytes_max: usize) -> (Change, Answer) {
    match op {
        Op::Read(what) => (Change::None, read(*what, state, now)),
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
        Op::Add(delta) => add(*delta, state),
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
    }
}

fn read(what: Read, state: Option<&Live>, now: WallMillis) -> Answer {
    match what {
        Read::Value => Answer::Value(state.map(|live| live.value.clone())),
        Read::Versioned => Answer::Versioned(state.map(|live| (live.value.clone(), live.version))),
        Read::Exists => Answer::Integer(i64::from(state.is_some())),
        Read::Length => Answer::Integer(state.map_or(0, |live| live.value.len() as i64)),
        Read::TimeToLive => Answer::Integer(match state {
            None => -2,
            Some(Live { deadline: None, .. }) => -1,
            Some(Live { deadline: Some(deadline), .. }) => {
                i64::try_from(deadline.0.saturating_sub(now.0)).unwrap_or(i64::MAX)
            }
        }),
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

fn add(delta: i64, state: Option<&Live>) -> (Change, Answer) {
    let before = match state {
        None => 0,
        Some(live) => match integer(&live.value) {
            Some(number) => number,
            None => return (Change::None, Answer::Unfit(Unfit::NotAnInteger)),
        },
    };
    let Some(sum) = before.checked_add(delta) else {
        return (Change::None, Answer::Unfit(Unfit::Overflow));
    };
    (Change::Put(sum.to_string().into(), state.and_then(|live| live.deadline)), Answer::Integer(sum))
}

/// A decimal integer exactly as Redis writes one: no sign but `-`, no leading zeros, no spaces.
fn integer(value: &[u8]) -> Option<i64> {
    let digits = value.strip_prefix(b"-").unwrap_or(value);
    let canonical = match digits {
        [] => false,
        [b'0'] => value.len() == 1,
        [first, ..] => *first != b'0' && digits.iter().all(u8::is_ascii_digit),
    };
    if !canonical {
        return None;
    }
    core::str::from_utf8(value).ok()?.parse().ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: WallMillis = WallMillis(1_000_000);

    fn live(value: &'static str, deadline: Option<u64>) -> Live {
        Live {
            value: Bytes::from_static(value.as_bytes()),
            version: Version { generation: 1, timestamp: 4 },
            deadline: deadline.map(WallMillis),
        }
    }

    fn run(op: Op, state: Option<&Live>) -> (Change, Answer) {
        evaluate(&op, state, NOW, 100)
    }

    fn put(value: &'static str, deadline: Option<u64>) -> Change {
        Change::Put(Bytes::from_static(value.as_bytes()), deadline.map(WallMillis))
    }

    fn set(condition: Condition, expiry: Expiry, get: bool) -> Op {
        Op::Set { value: Bytes::from_static(b"new"), condition, expiry, get }
    }

    #[test]
    fn set_obeys_its_condition() {
        let old = live("old", None);
        let same = || Bytes::from_static(b"old");
        let other = || Bytes::from_static(b"x");
        let cases = [
            (Condition::Always, true, true),
            (Condition::Absent, true, false),
            (Condition::Present, false, true),
            (Condition::Equals(same()), false, true),
            (Condition::Equals(other()), false, false),
            (Condition::Differs(same()), true, false),
            (Condition::Differs(other()), true, true),
            (Condition::Version(old.version), false, true),
            (Condition::Version(Version { generation: 1, timestamp: 3 }), false, false),
        ];
        for (condition, on_absent, on_present) in cases {
            for (state, expected) in [(None, on_absent), (Some(&old), on_present)] {
                let (change, answer) = run(set(condition.clone(), Expiry::Clear, false), state);
                assert_eq!(change != Change::None, expected, "{condition:?} on {state:?}");
                assert_eq!(answer, if expected { Answer::Done } else { Answer::NotMet });
                let (_, answer) = run(set(condition.clone(), Expiry::Clear, true), state);
                assert_eq!(answer, Answer::Value(state.map(|live| live.value.clone())));
            }
        }
    }

    #[test]
    fn deadlines_are_set_kept_and_cleared() {
        let old = live("old", Some(NOW.0 + 5));
        assert_eq!(run(set(Condition::Always, Expiry::Clear, false), Some(&old)).0, put("new", None));
        assert_eq!(run(set(Condition::Always, Expiry::Keep, false), Some(&old)).0, put("new", Some(NOW.0 + 5)));
        let in_7 = Expiry::In(Duration::from_millis(7));
        assert_eq!(run(set(Condition::Always, in_7, false), None).0, put("new", Some(NOW.0 + 7)));
        assert_eq!(run(set(Condition::Always, Expiry::At(NOW), false), None).0, Change::Delete);
        let (change, answer) = run(Op::Expire { expiry: Expiry::Clear, only: ExpireOnly::Always }, Some(&old));
        assert_eq!((change, answer), (put("old", None), Answer::Done));
        let without = live("old", None);
        let (change, answer) = run(Op::Expire { expiry: Expiry::Clear, only: ExpireOnly::Always }, Some(&without));
        assert_eq!((change, answer), (Change::None, Answer::NotMet));
        assert_eq!(run(Op::Read(Read::TimeToLive), Some(&old)).1, Answer::Integer(5));
        assert_eq!(run(Op::Read(Read::TimeToLive), Some(&without)).1, Answer::Integer(-1));
        assert_eq!(run(Op::Read(Read::TimeToLive), None).1, Answer::Integer(-2));
    }

    #[test]
    fn expire_obeys_its_flags() {
        let cases = [
            (ExpireOnly::Without, None, true),
            (ExpireOnly::Without, Some(50), false),
            (ExpireOnly::With, None, false),
            (ExpireOnly::With, Some(50), true),
            (ExpireOnly::Later, None, false),
            (ExpireOnly::Later, Some(5), true),
            (ExpireOnly::Later, Some(50), false),
            (ExpireOnly::Earlier, None, true),
            (ExpireOnly::Earlier, Some(5), false),
            (ExpireOnly::Earlier, Some(50), true),
            (ExpireOnly::WithEarlier, None, false),
            (ExpireOnly::WithEarlier, Some(5), false),
            (ExpireOnly::WithEarlier, Some(50), true),
        ];
        for (only, before, expected) in cases {
            let state = live("v", before.map(|ms: u64| NOW.0 + ms));
            let expiry = Expiry::In(Duration::from_millis(10));
            let (change, answer) = run(Op::Expire { expiry, only }, Some(&state));
            assert_eq!(answer == Answer::Done, expected, "{only:?} {before:?}");
            assert_eq!(change != Change::None, expected);
        }
    }

    #[test]
    fn append_has_two_limits() {
        let old = live("abc", None);
        let append = |value: &'static str, max| Op::Append { value: Bytes::from_static(value.as_bytes()), max };
        assert_eq!(run(append("de", None), Some(&old)), (put("abcde", None), Answer::Integer(5)));
        assert_eq!(run(append("de", Some(4)), Some(&old)), (Change::None, Answer::NotMet));
        assert_eq!(run(append("", None), None), (put("", None), Answer::Integer(0)));
        let long = Op::Append { value: alloc::vec![0; 98].into(), max: None };
        assert_eq!(run(long, Some(&old)), (Change::None, Answer::Unfit(Unfit::TooLong)));
    }

    #[test]
    fn add_takes_only_what_redis_writes() {
        assert_eq!(run(Op::Add(-3), None), (put("-3", None), Answer::Integer(-3)));
        assert_eq!(run(Op::Add(1), Some(&live("-10", None))).1, Answer::Integer(-9));
        for bad in ["", "-", "+1", "01", "-0", " 1", "1 ", "9223372036854775808", "a"] {
            let (change, answer) = run(Op::Add(1), Some(&live(bad, None)));
            assert_eq!((change, answer), (Change::None, Answer::Unfit(Unfit::NotAnInteger)), "{bad:?}");
        }
        let most = live("9223372036854775807", None);
        assert_eq!(run(Op::Add(1), Some(&most)).1, Answer::Unfit(Unfit::Overflow));
    }
}
