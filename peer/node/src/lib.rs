//! One whole peer as a value: its groups, its clients' sessions, the wire format.
//!
//! The driver hands inputs in with the time, and pulls outputs ([`Node::handle`], [`Node::poll_output`]). The same
//! compiled node runs on a real network and in simulation.
//!
//! # Examples
//!
//! ```
//! use core::time::Duration;
//!
//! use group::op::{Answer, Op, ReadMode};
//! use node::{ConnectionId, Durability, Input, Node, NodeConfig, Output, Request, RequestId, Restored};
//! use overlay::time::{Now, Time, WallMillis};
//! use overlay::{Incarnation, Key, PeerKey};
//!
//! // A peer founds a network, and keeps its data in memory.
//! let defaults = NodeConfig::new(PeerKey([1; 32]), Incarnation(1));
//! let config = NodeConfig { found: true, durability: Durability::Memory, ..defaults };
//! let mut now = Now { time: Time(1), awake: Time(1), wall: WallMillis(1) };
//! let mut node = Node::new(config, 7, now, Restored::empty());
//!
//! // A client asks before the peer is ready: the operation waits for a primary.
//! node.handle(now, Input::Routecast(Request {
//!     id: RequestId(1),
//!     connection: ConnectionId(1),
//!     key: Key::new(b"visits").expect("a short name"),
//!     op: Op::Add(1),
//!     mode: ReadMode::Linearizable,
//!     patience: Duration::from_secs(3),
//!     once: None,
//! }));
//!
//! // The driver takes outputs, and hands in a tick at the time that the node asked for.
//! let mut wake_at = now.time;
//! let answer = 'answered: loop {
//!     while let Some(output) = node.poll_output() {
//!         match output {
//!             Output::Reply { result, .. } => break 'answered result,
//!             Output::WakeAt(time) => wake_at = time,
//!             _ => {}
//!         }
//!     }
//!     now.time = now.time.max(wake_at);
//!     now.awake = now.time;
//!     node.handle(now, Input::Tick);
//! };
//! assert_eq!(answer, Ok(Answer::Integer(1)));
//! ```
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
pub use reconfigure::leaving::{LeaveMode, LeaveRefusal, LeaveStatus, LeaveStep};
pub use replicas::storage::doubt;
pub use routing::ring_walk::{RingWalk, Silent};
pub use sessions::harmonia::ReadSchedulerCounts;
pub use starts::lineage::Lineage;
pub use starts::{Contested, Refused, Start};
pub use status::{
    GroupStatus, MemberStatus, NodeStatus, PrimaryStatus, SwitchStatus, TransactionStatus, TransactionStep,
};
