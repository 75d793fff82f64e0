//! One replica of one group: agreement on the group's affairs, and on every key of its range.
//!
//! Sans-IO: inputs in, outputs out, with the time as an argument; no sockets, clocks, encodings or policy. Start at
//! [`Group`]. The group's own log and members are in [`control`], the replication of keys in [`data`], transactions with other groups in
//! [`transaction`], and reads that a switch schedules in [`harmonia`].
#![no_std]

extern crate alloc;

pub mod ballot;
pub mod config;
mod context;
mod contradiction;
pub mod control;
pub mod data;
mod group;
pub mod harmonia;
pub mod message;
pub mod number_set;
pub mod op;
pub mod outbox;
pub mod record;
mod start;
pub mod transaction;
pub mod validate;
pub mod watched;

pub use context::Context;
pub use control::recovery::doubt::{Doubt, InDoubt};
pub use group::Group;
pub use start::Stored;
