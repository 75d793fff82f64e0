//! A group's own affairs: its log, the state that the log defines, its members and their health (Scatter §5, Harmony §7).
//!
//! - [`log`]: Multi-Paxos over the group's affairs; [`state`]: the state that it defines; `apply`: the application of its entries;
//!   `state_exchange`: the whole state for members that lack entries; `seal`: the end of an epoch that a member sealed.
//! - `leader`: the leader's notes; `division`: the primaries; [`membership`]: joins, removals and releases; `room`: members without room.
//! - [`liveness`]: failure detection, group time and round trips.
//! - `recovery`: checks of a store after a start.
//! - [`health`], [`capacity`], [`load`], [`history`], [`agreed`]: the facts that policies decide by, and the policies themselves.

pub mod agreed;
mod apply;
pub mod capacity;
pub(crate) mod contents;
pub(crate) mod division;
pub mod health;
pub mod history;
pub(crate) mod leader;
pub mod liveness;
pub mod load;
pub mod log;
pub mod membership;
pub(crate) mod purge;
pub(crate) mod recovery;
pub(crate) mod room;
pub(crate) mod seal;
pub mod state;
pub(crate) mod state_exchange;
