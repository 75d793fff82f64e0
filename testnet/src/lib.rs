//! Whole networks under test: in simulation, and on this machine.
//!
//! - [`sim`]: nodes in a world of virtual time, made by one seed.
//! - [`checkers`]: the properties that must always hold; a table of them.
//! - [`live`]: real daemons on loopback.
//! - [`lab`]: network namespaces with emulated wide-area paths and NATs, for real daemons.
//! - [`study`]: simulated networks whose peers die and are replaced, at any size.
//! - `baseline`: a DHT without agreement, as another host of the simulator, to compare with.
//! - [`churn`]: real daemons that die and are replaced, while clients watch.
//! - [`fleet`]: networks of real daemons on any hosts.
//! - [`mod@bench`]: benchmarks beside other stores.
//! - [`experiment`]: the papers' figures, by name; `picture` draws them, [`parallel`] runs them on several cores.
//! - [`tool`]: external programs that produce files.
//! - [`history`]: requests and answers of clients; [`mod@file`] reads and writes it.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//!
//! use node::Node;
//! use testnet::sim::{Scenario, harness};
//!
//! // Three machines and some clients, for two seconds of virtual time.
//! let scenario = Scenario { fault_time: Duration::from_secs(2), ..Scenario::calm(7) };
//! let report = harness::run::<Node>(&scenario, false);
//! assert_eq!(report.failure, None);
//! assert!(report.history.operations.iter().any(|operation| operation.outcome.answer().is_some()));
//!
//! // The seed determines the whole run.
//! assert_eq!(harness::run::<Node>(&scenario, false).hash, report.hash);
//! ```

/// A simulated network allocates for every frame and every observation of it. The daemon has the same allocator, without large
/// pages; the simulator has large pages where it is built alone (`cargo build --release -p testnet`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod baseline;
pub mod bench;
mod call;
pub mod checkers;
pub mod churn;
pub mod experiment;
pub mod file;
pub mod fleet;
pub mod history;
pub mod lab;
pub mod live;
pub mod marks;
pub mod parallel;
mod picture;
pub mod rng;
pub mod sim;
pub mod study;
pub mod tool;
