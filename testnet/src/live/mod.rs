//! Real daemons on loopback, and what clients see of them.
//!
//! A [`Cluster`] starts daemons, kills, stops and restarts them, and takes all of them down with itself. [`Load`] sets
//! clients on it and records what they see as a [`History`](crate::history::History), which the checkers then judge.

mod cluster;
mod daemon;
mod load;
mod resp;
mod translate;

pub use cluster::{Cluster, Options};
pub use daemon::{Daemon, Signal, program};
pub use load::{Keys, Load, Recorder};
pub use resp::{Connection, Reply};
