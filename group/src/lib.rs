//! One replica of one group: agreement on the group's affairs, and on every key of its range.
//!
//! Sans-IO: inputs in, outputs out, with the time as an argument; no sockets, clocks, encodings or policy. Start at
//! [`Group`]; the group's own log is in [`log`], the replication of keys in [`committee`].
#![no_std]

extern crate alloc;

pub mod agreed;
mod apply;
pub mod ballot;
pub mod capacity;
pub mod committee;
pub mod config;
mod contents;
mod context;
mod contradiction;
mod crash_recovery;
mod distances;
mod doubt;
mod failure_detector;
mod group;
mod group_clock;
pub mod handover;
pub mod health;
pub mod history;
mod leader;
pub mod learners;
pub mod load;
pub mod log;
pub mod membership;
pub mod message;
pub mod number_set;
pub mod op;
pub mod operations;
mod opinions;
pub mod outbox;
mod purge;
pub mod read_scheduler;
pub mod record;
mod release;
mod removals;
pub mod rng;
pub mod round_trip;
pub mod service;
mod start;
pub mod state;
mod successor;
pub mod switch;
pub mod table;
pub mod throttle;
pub mod time;
pub mod transaction;
pub mod transactions;
pub mod validate;
mod waiting;
pub mod watched;

pub use context::Context;
pub use doubt::{Doubt, InDoubt};
pub use group::Group;
pub use start::Stored;
