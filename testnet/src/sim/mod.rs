//! Whole networks in one process, in virtual time: a run is a function of its [`Scenario`].
//!
//! Read [`World`] for the loop, [`Scenario`] for the settings that a seed makes, [`fault`] for the faults, and [`harness`] for the
//! judgement, repetition and reduction of runs. Where there are switches ([`SwitchRules`]), packets pass them in `switch.rs`, and
//! `controller.rs` sets their tables.

mod clock;
mod connections;
mod controller;
pub mod fault;
mod faults;
mod hardware;
pub mod harness;
mod host;
mod machine;
mod network;
mod observe;
mod observe_log;
pub mod planet;
mod queue;
mod scenario;
pub mod script;
mod service;
mod store;
mod switch;
mod switches;
mod trace;
mod verdict;
mod workload;
mod world;

pub use clock::Clocks;
pub use hardware::ProcessState;
pub use host::Host;
pub use network::{Flight, Latency, Noise};
pub use scenario::Scenario;
pub use store::{Contents, Persist, SimStore};
pub use switches::{SwitchDefect, SwitchRules};
pub use trace::{Trace, hash_bytes};
pub use workload::Load;
pub use world::{Fate, Tap, World};
