//! Liveness of members: which of them are heard, how far away they are, and what time it is for the group.

pub(crate) mod distances;
pub(crate) mod failure_detector;
pub(crate) mod group_clock;
pub mod round_trip;
