//! The laboratory: network namespaces with emulated wide-area paths and NATs, in which real daemons run on one machine.
//!
//! A [`LabPlan`] names hosts, their access to the network, and the delays between them. [`Lab::build`] makes a namespace for each host,
//! routers where the plan has NATs, and a path that carries the packets between them. `docs/design/laboratory.md` explains how.
//!
//! # Examples
//! ```no_run
//! use testnet::lab::{Lab, LabPlan, PathMode};
//!
//! let plan = LabPlan::read("three-sites.toml".as_ref())?;
//! let lab = Lab::build(plan, &PathMode::Thread)?;
//! let status = lab.command("ann", "ping")?.args(["-c", "1", "5.0.2.1"]).status();
//! lab.cut("ann", "ben")?;
//! # Ok::<(), String>(())
//! ```

mod build;
mod handle;
mod latency;
mod layout;
mod measure;
mod nat;
mod path;
mod plan;
mod running;
mod state;
#[cfg(test)]
mod tests;

pub use build::missing;
pub use handle::{Lab, PathMode, serve_path};
pub use latency::{Jitter, JitterKind, LatencyModel, SiteMatrix};
pub use layout::{HostPlace, Layout, PathWire};
pub use measure::{MeasuredTrips, TripFigures, measure};
pub use path::run_path;
pub use plan::{HOSTS_MAX, LabHost, LabPlan, LinkKind, NatKind, QueueLimits};
