//! One whole peer as a value: its groups, its clients' sessions, the wire format.
//!
//! Inputs are handed in with the time, outputs are pulled ([`Node::handle`], [`Node::poll_output`]); the same compiled
//! node runs on a real network and in simulation.
#![no_std]

extern crate alloc;

mod api;
pub mod bays;
mod births;
mod config;
mod frames;
mod hosting;
mod key_use;
mod leaving;
mod node;
mod sessions;
mod status;
pub mod storage;
mod sweep;
pub mod whereabouts;
mod window;
pub mod wire;

pub use api::{Change, Class, ConnectionId, Event, Input, Output, Request, RequestId};
pub use config::{Durability, NodeConfig, Restored, Tail, Timing};
pub use leaving::{LeaveRefusal, LeaveStatus, LeaveStep};
pub use node::Node;
pub use status::{GroupStatus, MemberStatus, NodeStatus, PrimaryStatus};
