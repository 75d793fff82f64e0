//! One replica of one group: agreement on the group's affairs, and on every key of its range.
//!
//! Sans-IO: inputs in, outputs out, with the time as an argument; no sockets, clocks, encodings or policy. Start at
//! [`Group`]. The group's own log and members are in [`control`], the replication of keys in [`data`], transactions with other groups in
//! [`transaction`], and reads that a switch schedules in [`harmonia`].
//!
//! # Examples
//!
//! ```
//! use core::time::Duration;
//!
//! use group::config::{Defects, GroupConfig, Timing};
//! use group::control::state::{GroupState, Member, Settings};
//! use overlay::time::{Now, Time, WallMillis};
//! use group::Group;
//! use overlay::{GroupId, Incarnation, Key, NodeId, PeerKey, RingId};
//!
//! // The founder of a network is alone in its first group.
//! let me = NodeId { peer: PeerKey([1; 32]), incarnation: Incarnation(1) };
//! let member = Member {
//!     node: me,
//!     addresses: vec![],
//!     name: None,
//!     cluster: String::new(),
//!     joined: WallMillis(0),
//!     since: group::ballot::LogSlot(0),
//! };
//! let settings = Settings {
//!     coarse: false,
//!     leases: false,
//!     lease_ms: 1000,
//!     drift_per_mille: 10,
//!     value_bytes_max: 1000,
//!     policies: Default::default(),
//!     horizon_ms: 60_000,
//! };
//! let config = GroupConfig {
//!     name: None,
//!     timing: Timing::default(),
//!     durable: false,
//!     memory_bytes_max: 1 << 20,
//!     window_bytes_max: 1 << 20,
//!     in_flight_max: 100,
//!     waiting_max: 100,
//!     transfer_bytes_per_s: 1 << 20,
//!     message_bytes_max: 1 << 18,
//!     divide: |_| None,
//!     fatal_contradictions: true,
//!     defects: Defects::NONE,
//! };
//! let mut now = Now { time: Time(1), awake: Time(1), wall: WallMillis(1) };
//! let state = GroupState::founded(RingId(1), GroupId(1), member, settings);
//! let mut replica = Group::found(config, me, state, now, 7);
//!
//! // The driver hands in the time, and polls outputs: here for five seconds.
//! let key = Key::new(b"greeting").expect("a short name");
//! for _ in 0..50 {
//!     now.time = now.time + Duration::from_millis(100);
//!     now.awake = now.time;
//!     replica.set_now(now);
//!     replica.tick();
//!     while replica.poll_output().is_some() {}
//! }
//! // The founder leads its group, and is the primary of the whole ring.
//! assert_eq!(replica.leader(), Some(me));
//! assert_eq!(replica.primary_of(key.point()).map(|ballot| ballot.node), Some(me));
//! ```
#![forbid(unsafe_code)]
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
mod interface;
mod leading;
mod lend;
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
