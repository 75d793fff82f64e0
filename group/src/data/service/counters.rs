//! Counters: numbers to which many clients add at once (RECODE §VI-B).

use alloc::string::ToString;

use super::{Change, Delivery, Live, Service, Store};
use crate::op::{Answer, Kind, Unfit};

/// Numbers, written as text: they are values of the store as well, as in Redis.
#[derive(Clone, Copy, Debug)]
pub struct Counters;

impl Service for Counters {
    const KIND: Kind = Store::KIND;

    /// Number to add; an absent key counts as 0.
    type Message = i64;

    fn deliver(delta: &i64, state: Option<&Live>, _: &Delivery) -> (Change, Answer) {
        let before = match state {
            None => 0,
            Some(live) => match integer(&live.value) {
                Some(number) => number,
                None => return (Change::None, Answer::Unfit(Unfit::NotAnInteger)),
            },
        };
        let Some(sum) = before.checked_add(*delta) else {
            return (Change::None, Answer::Unfit(Unfit::Overflow));
        };
        (Change::Put(sum.to_string().into(), state.and_then(|live| live.deadline)), Answer::Integer(sum))
    }
}

/// Parses a decimal integer exactly as Redis writes one: no sign but `-`, no leading zeros, no spaces.
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
