//! One whole peer as a value: its groups, its clients' sessions, the wire format.
//!
//! The driver hands inputs in with the time, and pulls outputs ([`Node::handle`], [`Node::poll_output`]). The same
//! compiled node runs on a real network and in simulation.
#![no_std]

extern crate alloc;

pub mod admin;
mod api;
mod capacity;
#[cfg(test)]
mod capacity_test;
mod config;
pub mod copying;
#[cfg(test)]
mod division_test;
#[cfg(test)]
mod ended_test;
mod frames;
mod harmonia;
mod held;
#[cfg(test)]
mod history_test;
pub mod join;
mod judging;
mod key_use;
pub mod keyspace;
mod leading;
mod leaving;
pub mod lifetimes;
mod lineage;
#[cfg(test)]
mod names_test;
mod networks;
mod node;
pub mod policies;
mod preparing;
mod probing;
mod questions;
mod refresh;
mod refused;
#[cfg(test)]
mod repair_test;
mod repartitioning;
mod replicas;
mod retire;
mod ring_walk;
mod risk;
#[cfg(test)]
mod room_test;
pub mod routing;
mod sessions;
mod sizing;
#[cfg(test)]
mod small_net;
mod starts;
mod status;
pub mod storage;
mod successor_search;
mod successors;
mod sweep;
mod views;
mod window;
pub mod wire;

pub use admin::{AdminOutcome, AdminRequest, PolicyChange};
pub use api::{Change, Class, ConnectionId, Event, Input, Output, Request, RequestId};
pub use config::{Durability, NodeConfig, Restored, SwitchConfig, Tail, Timing};
pub use harmonia::ReadSchedulerCounts;
pub use leaving::{LeaveRefusal, LeaveStatus, LeaveStep};
pub use lineage::Lineage;
pub use node::Node;
pub use policies::Policies;
pub use policy::lifetimes::Lifetimes;
pub use policy::risk::NINES_TARGET;
pub use policy::size::can_flap;
pub use ring_walk::{RingWalk, Silent};
pub use risk::{LifetimesStatus, RiskStatus};
pub use starts::{Contested, Refused, Start};
pub use status::{
    GroupStatus, MemberStatus, NodeStatus, PrimaryStatus, SwitchStatus, TransactionStatus, TransactionStep,
};
pub use storage::doubt;
