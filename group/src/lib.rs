//! One replica of one group: agreement on the group's affairs, and on every key of its range.
//!
//! Sans-IO: inputs in, outputs out, with the time as an argument; no sockets, clocks, encodings of frames or policy.
#![no_std]

extern crate alloc;

pub mod op;
pub mod time;
