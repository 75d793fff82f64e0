//! Leases: locks with a holder and an end (RECODE §VI-C).
//!
//! The value is the holder's name, and the deadline is the lease's. RECODE's Algorithm 5, as printed, compares the expiry the wrong way
//! round. Here an expired lease is an absent key, like any other: its deletion is chosen before another holder can have it.
//!
//! A lease ends by group time. Group time reaches the end only after the granted time has passed, as long as the clocks of a majority are
//! right. The holder does not know when its question was delivered. So it counts from its question, and then gives the lease up sooner than
//! the group does, never later.

use super::{Change, Delivery, Live, Service, after, put_or_expire};
use crate::op::{Answer, Kind, LeaseOp, Unfit};

/// Leases, one for each key.
#[derive(Clone, Copy, Debug)]
pub struct Leases;

impl Service for Leases {
    const KIND: Kind = Kind::Lease;

    type Message = LeaseOp;

    fn deliver(ask: &LeaseOp, state: Option<&Live>, at: &Delivery) -> (Change, Answer) {
        match ask {
            LeaseOp::Acquire { holder, term } => match state {
                Some(live) if live.value != *holder => {
                    let end = live.deadline.unwrap_or(at.now);
                    let left_ms = end.0.saturating_sub(at.now.0);
                    (Change::None, Answer::Held { holder: live.value.clone(), left_ms })
                }
                _ if holder.len() > at.value_bytes_max => (Change::None, Answer::Unfit(Unfit::TooLong)),
                _ => {
                    let left = state.and_then(|live| live.deadline).unwrap_or(at.now);
                    let end = after(at.now, *term).max(left);
                    let answer = Answer::Held { holder: holder.clone(), left_ms: end.0 - at.now.0 };
                    (put_or_expire(holder.clone(), Some(end), at.now), answer)
                }
            },
            LeaseOp::Release { holder } => match state {
                Some(live) if live.value == *holder => (Change::Delete, Answer::Done),
                _ => (Change::None, Answer::NotMet),
            },
        }
    }
}
