//! Real daemons on loopback, and the history of their clients.
//!
//! A [`Cluster`] starts daemons, kills, stops and restarts them, and takes all of them down with itself. [`Wires`] give each of
//! them a network of its own, with links that can be cut. [`LiveLoad`] starts clients on them and records requests and answers as a
//! [`History`](crate::history::History), which the checkers then judge.

mod cluster;
mod daemon;
mod gate;
mod load;
mod lossy;
mod measure;
mod namespace;
mod programs;
mod proxy;
mod resp;
mod switch;
mod translate;
mod view;
mod wires;

use std::time::Duration;

pub(crate) use daemon::{ReadyLine, ask_over, free_port};

pub use cluster::{Cluster, ClusterOptions};
pub use daemon::{Daemon, Leave, Signal};
pub use load::{Habits, Keys, LiveLoad, Recorder};
pub use lossy::LossyProxy;
pub use measure::{FILL_VALUE_BYTES, Spread, fill, is_ok};
pub use namespace::{Endpoint, Namespace, Site};
pub use programs::{chirp_program, fast_program, program};
pub use proxy::Proxy;
pub use resp::{Connection, Reply};
pub use switch::{Control, SoftSwitch, fast_switch_program, switch_program};
pub use view::GroupView;
pub use wires::{Wires, between, one_way};

/// Factor of time limits: a limit for a machine without other load is multiplied by it here, as tests run on few shared cores.
pub const SLACK: u32 = 3;

/// Returns whether tests must run for their full times, as `SCATTER_LONG` asks for.
pub fn is_long() -> bool {
    std::env::var_os("SCATTER_LONG").is_some()
}

/// Returns a short time, or the full one if `SCATTER_LONG` is set; in seconds.
pub fn short_or(seconds: u64, full: u64) -> Duration {
    Duration::from_secs(if is_long() { full } else { seconds })
}
