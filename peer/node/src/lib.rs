//! One whole peer as a value: its group, its clients' sessions, the wire format.
//!
//! Inputs are handed in with the time, outputs are pulled ([`Node::handle`], [`Node::poll_output`]); the same compiled
//! node runs on a real network and in simulation.
#![no_std]

extern crate alloc;

mod api;
mod config;
mod frames;
mod key_use;
mod leaving;
mod node;
mod sessions;
mod status;
pub mod storage;
mod window;
pub mod wire;

pub use api::{Change, Class, ConnectionId, Event, Input, Output, Request, RequestId};
pub use config::{Durability, NodeConfig, Restored, Tail, Timing};
pub use leaving::{LeaveRefusal, LeaveStatus, LeaveStep};
pub use node::Node;
pub use status::{GroupStatus, MemberStatus, NodeStatus, PrimaryStatus};
