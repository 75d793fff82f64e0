//! The environment of a node: the loop, clients, administrators, settings and the daemon.
//!
//! - [`machine`]: the loop of each lane, which connects a node with store, network and clients; the supervisor above; the data directory.
//! - [`resp`]: the Redis protocol; `http`: health, metrics, status and administrators' requests ([`admin`]); [`status`] and `offload`: the
//!   shapes of their answers; `event_log`: recent events.
//! - `accept`, `places`: connections of endpoints, bounded in number; `descriptors`: the division of the limit of open files.
//! - [`daemon`]: start, endpoints, signals and the end; [`config`]: settings; `log`: log lines; `unready`: when a peer says why it does not
//!   serve.
//! - [`names`], [`exit`]: names of peers, and exit codes, as commands show them.

mod accept;
pub mod admin;
pub mod config;
pub mod daemon;
mod descriptors;
mod event_log;
pub mod exit;
mod http;
mod log;
pub mod machine;
pub mod names;
mod offload;
mod places;
pub mod resp;
pub mod status;
mod unready;
