//! Committees: all members of the group, seen from one sub-range (Scatter §5, fRSM §3, Harmony §7.6).
//!
//! Every key is a state machine of its own: a primary proposes, the committee's acceptors accept, in whatever order the
//! network likes; a key's next write waits for its last one, and for nothing else. What costs too much per key is done
//! for whole sub-ranges: promises, and the settling of what an earlier primary left behind.
//!
//! # How a record comes to be
//! A primary of ballot `b` numbers its writes 1, 2, 3 …. An acceptor holds a write as *unsettled* until it learns that it
//! is chosen: then it becomes its key's record in the table. So tables hold chosen records only, and an answer never
//! rests on anything else (hazard 10).
//!
//! # How a primary takes over
//! 1. *Prepare* for the whole sub-range; a quorum promises, and tells its unsettled writes and what it knows of terms.
//! 2. The newest *base* among the answers says how far each older term got. Unsettled writes that may have been chosen
//!    are proposed again, as numbers 1 to `k`.
//! 3. The new base (how far every older term got) is accepted by who has all `k`. A quorum of that settles the past:
//!    what was not proposed again is void, for ever and at every member. Then the primary serves.
//!
//! Where the last primaries of a group that ended say what they knew, the first of what is born need not wait for promises:
//! see [`crate::handover`].
//!
//! Once its own acceptor has the base, a primary evaluates operations, and proposes and asks for confirmation right behind it
//! (Multi-Paxos with several slots under way): an answer costs one round from then on. What it evaluates rests on chosen records
//! and on nothing that is proposed again; a write behind a base that comes to nothing may be found by the next primary, like any,
//! or be void with all of that term. Nothing is chosen, and nothing is answered, before the base is chosen and older leases are
//! over.
//!
//! # Departure from the papers
//! fRSM compares `(epoch, timestamp)` and then ballots, per key. Here an acceptor compares `(ballot, number)`: a ballot's
//! writes of one key are numbered in order, and whatever a higher ballot proposes was derived from a quorum that had
//! promised it, so it supersedes everything of lower ballots whatever their timestamps. Promises are compared first and
//! apart (hazard 7).

mod acceptor;
mod all;
mod bases;
mod catch_up;
mod chain;
mod completions;
mod copying;
mod expiry;
mod heritage;
mod job;
mod leases;
mod numbered;
mod offload;
mod passing;
mod primary;
mod reads;
mod replica;
mod seen;
mod source;
mod standing;
mod takeover;
mod window;
mod writes;

pub use acceptor::Acceptor;
pub use chain::CHAIN_LENGTH_MAX;
pub use job::CatchUpStatus;
pub use offload::{Pass, Passed, TRIAL};
pub use primary::{Local, Pending, Primary, PrimaryCounts};
pub use replica::Answers;
pub use seen::{Arrival, Name, Seen};
pub(crate) use standing::seal_of;
pub use window::Committee;
