//! Whole networks in one process, in virtual time: a run is a function of its [`Scenario`].
//!
//! Read [`World`] for the loop, [`Scenario`] for the settings that a seed makes, and [`harness`] for the judgement, repetition and
//! reduction of runs.
//!
//! - `machine`: processes with their clocks and stores; `observe`: observations of a node for the checkers.
//! - `network`: wires, connections, and latencies of a planet.
//! - `switch`: switches ([`SwitchRules`]), the packets through them, and the controller that sets their tables.
//! - [`fault`]: faults; `workload`: clients; [`script`]: steps of a test.

pub mod fault;
pub mod harness;
mod host;
mod machine;
pub(crate) mod network;
mod observe;
mod queue;
mod scenario;
pub mod script;
mod switch;
mod trace;
mod verdict;
mod workload;
mod world;

pub use host::Host;
pub use machine::ProcessState;
pub use machine::clock::Clocks;
pub use machine::store::{Contents, Persist, SimStore};
pub use network::{Flight, Latency, Noise};
pub use scenario::Scenario;
pub use script::{Fate, Tap};
pub use switch::{SwitchDefect, SwitchRules};
pub use trace::{Trace, hash_bytes};
pub use workload::Load;
pub use world::World;
