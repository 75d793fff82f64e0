//! Committees: all members of the group, seen from one sub-range (Scatter §5, fRSM §3, Harmony §7.6).
//!
//! Every key is a state machine of its own: a primary proposes its writes, and the committee's acceptors accept them, in any order in which
//! the network delivers them. The next write of a key waits for the key's last write, and for nothing else. Steps that would cost too much
//! for each key are done for whole sub-ranges: promises, and the settling of the writes that an earlier primary left behind.
//!
//! # How a record is chosen
//! A primary of ballot `b` numbers its writes 1, 2, 3 …. An acceptor holds a write as *unsettled* until it learns that the write is chosen.
//! Then the write becomes its key's record in the table. So tables hold chosen records only, and an answer never rests on anything else
//! (hazard 10).
//!
//! # How a primary takes over
//! 1. The primary sends *Prepare* for the whole sub-range. A quorum promises, and reports its unsettled writes and its knowledge of terms.
//! 2. The newest *base* among the answers states how far each older term got. The primary proposes again, as numbers 1 to `k`, the
//!    unsettled writes that may have been chosen.
//! 3. An acceptor accepts the new base (how far every older term got) if it has all `k` writes. A quorum of acceptances settles the past: a
//!    write that was not proposed again is void, for ever and at every member. Then the primary serves.
//!
//! Where the last primaries of a group that ended hand their knowledge over, the first primaries of a group that is born of it need not
//! wait for promises: see [`crate::transaction::successor::handover`].
//!
//! Once its own acceptor has the base, a primary evaluates operations. It proposes writes, and asks for confirmation of reads, right behind
//! the base (Multi-Paxos with several slots in flight). From then on an answer costs one round. Evaluation rests on chosen records only,
//! and never on a re-proposed write. If the base is never chosen, the next primary may find a write behind it, like any other write, or the
//! write is void with all of that term. No write is chosen, and no answer leaves, before the base is chosen and older leases are over.
//!
//! # Departure from the papers
//! fRSM compares `(epoch, timestamp)` and then ballots, for each key. Here an acceptor compares `(ballot, number)`. A ballot's writes of
//! one key are numbered in order. A higher ballot derives its proposals from a quorum that had promised it, so they supersede all writes of
//! lower ballots, regardless of timestamps. Promises are compared first and separately (hazard 7).

pub(crate) mod acceptor;
pub mod catch_up;
pub mod operations;
pub(crate) mod own_reads;
pub(crate) mod preload;
pub(crate) mod primary;
pub mod service;
pub mod table;
pub(crate) mod waiting;

pub use acceptor::Acceptor;
pub use acceptor::chain::CHAIN_LENGTH_MAX;
pub(crate) use acceptor::standing::seal_of;
pub use acceptor::window::Committee;
pub use catch_up::job::CatchUpStatus;

pub use primary::seen::{Arrival, Name, Seen};
pub use primary::{Local, Pending, Primary, PrimaryCounts};
