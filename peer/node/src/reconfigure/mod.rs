//! Changes of groups and members that a leader decides by its policies, or that a peer asks for (Scatter §4, §6).
//!
//! - `sizing`: splits, merges and migrations; `repartition`: boundaries; `leading`: another leader.
//! - `preparing` and [`copying`]: the copies of data before a transaction begins.
//! - `leaving`: a peer that leaves for good.

pub mod copying;
pub(crate) mod leading;
pub(crate) mod leaving;
pub(crate) mod preparing;
pub(crate) mod repartition;
pub(crate) mod sizing;
