//! Tests of the answers of each service to each message.

use super::*;
use crate::op::{ExpireOnly, Expiry, LeaseOp};

const NOW: WallMillis = WallMillis(1_000_000);

fn live(value: &'static str, deadline: Option<u64>) -> Live {
    Live {
        value: Bytes::from_static(value.as_bytes()),
        kind: Kind::Value,
        version: Version { generation: 1, timestamp: 4 },
        deadline: deadline.map(WallMillis),
    }
}

fn run(op: Op, state: Option<&Live>) -> (Change, Answer) {
    deliver(&op, state, &Delivery { now: NOW, value_bytes_max: 100 })
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

fn acquire(holder: &'static str, millis: u64) -> Op {
    Op::Lease(LeaseOp::Acquire { holder: holder.into(), term: Duration::from_millis(millis) })
}

fn release(holder: &'static str) -> Op {
    Op::Lease(LeaseOp::Release { holder: holder.into() })
}

fn held(holder: &'static str, left_ms: u64) -> Answer {
    Answer::Held { holder: holder.into(), left_ms }
}

#[test]
fn a_lease_has_one_holder() {
    assert_eq!(run(acquire("me", 30), None), (put("me", Some(NOW.0 + 30)), held("me", 30)));
    let mine = Live { kind: Kind::Lease, ..live("me", Some(NOW.0 + 5)) };
    assert_eq!(run(acquire("me", 30), Some(&mine)), (put("me", Some(NOW.0 + 30)), held("me", 30)), "renewed");
    assert_eq!(run(acquire("me", 3), Some(&mine)), (put("me", Some(NOW.0 + 5)), held("me", 5)), "not shortened");
    assert_eq!(run(acquire("you", 30), Some(&mine)), (Change::None, held("me", 5)));
    assert_eq!(run(release("you"), Some(&mine)), (Change::None, Answer::NotMet));
    assert_eq!(run(release("me"), Some(&mine)), (Change::Delete, Answer::Done));
    assert_eq!(run(release("me"), None), (Change::None, Answer::NotMet));
    let long = Op::Lease(LeaseOp::Acquire { holder: alloc::vec![0; 101].into(), term: Duration::from_secs(1) });
    assert_eq!(run(long, None), (Change::None, Answer::Unfit(Unfit::TooLong)));
    let for_ever = Op::Lease(LeaseOp::Acquire { holder: "me".into(), term: Duration::MAX });
    assert_eq!(run(for_ever, None).1, held("me", u64::MAX - NOW.0));
}

#[test]
fn services_keep_their_hands_off_what_is_not_theirs() {
    let lease = Live { kind: Kind::Lease, ..live("me", Some(NOW.0 + 5)) };
    let text = live("me", None);
    let others = [
        Op::Read(Read::Value),
        Op::Read(Read::Versioned),
        Op::Read(Read::Length),
        set(Condition::Always, Expiry::Clear, false),
        set(Condition::Absent, Expiry::Clear, false),
        Op::Delete { condition: Condition::Always, get: true },
        Op::Delete { condition: Condition::Equals("me".into()), get: false },
        Op::Append { value: "x".into(), max: None },
        Op::Add(1),
        Op::Expire { expiry: Expiry::Clear, only: ExpireOnly::Always },
        Op::ReadExpire(Expiry::Clear),
    ];
    let refused = (Change::None, Answer::Unfit(Unfit::OtherKind));
    for op in others {
        assert_eq!(run(op, Some(&lease)), refused);
    }
    for op in [acquire("me", 30), release("me")] {
        assert_eq!(run(op, Some(&text)), refused);
    }
    for (state, kind, left) in [(&lease, Kind::Lease, 5), (&text, Kind::Value, -1)] {
        assert_eq!(run(Op::Read(Read::Exists), Some(state)).1, Answer::Integer(1));
        assert_eq!(run(Op::Read(Read::TimeToLive), Some(state)).1, Answer::Integer(left));
        assert_eq!(run(Op::Read(Read::Kind), Some(state)).1, Answer::Kind(Some(kind)));
        let delete = Op::Delete { condition: Condition::Always, get: false };
        assert_eq!(run(delete, Some(state)), (Change::Delete, Answer::Done));
    }
    assert_eq!(run(Op::Read(Read::Kind), None).1, Answer::Kind(None));
}
