//! One whole peer as a value: its groups, its clients' sessions, the wire format.
//!
//! The driver hands inputs in with the time, and pulls outputs ([`Node::handle`], [`Node::poll_output`]). The same
//! compiled node runs on a real network and in simulation.
#![forbid(unsafe_code)]
#![no_std]

extern crate alloc;

pub mod admin;
mod api;
mod config;
mod context;
mod dispatch;
mod frames;
mod life;
mod node;
mod outbox;
pub mod policies;
mod readiness;
pub mod reconfigure;
pub mod replicas;
pub mod routing;
mod sessions;
mod starts;
mod status;
#[cfg(test)]
mod tests;
pub mod wire;

pub use admin::{AdminOutcome, AdminRequest, PolicyChange};
pub use api::{Change, Class, ConnectionId, Event, Input, Output, Request, RequestId};
pub use config::{Durability, NodeConfig, Restored, SwitchConfig, Tail, Timing};
pub use node::Node;
pub use policies::Policies;
pub use policies::risk::{LifetimesStatus, RiskStatus};
pub use policy::lifetimes::Lifetimes;
pub use policy::risk::NINES_TARGET;
pub use policy::size::can_flap;
pub use reconfigure::leaving::{LeaveRefusal, LeaveStatus, LeaveStep};
pub use replicas::storage::doubt;
pub use routing::ring_walk::{RingWalk, Silent};
pub use sessions::harmonia::ReadSchedulerCounts;
pub use starts::lineage::Lineage;
pub use starts::{Contested, Refused, Start};
pub use status::{
    GroupStatus, MemberStatus, NodeStatus, PrimaryStatus, SwitchStatus, TransactionStatus, TransactionStep,
};
