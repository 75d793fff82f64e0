//! The environment of a node: the loop, clients, administrators, settings and the daemon.

mod accept;
pub mod admin;
pub mod config;
pub mod daemon;
mod descriptors;
pub mod event_log;
pub mod exit;
pub mod http;
mod log;
pub mod machine;
pub mod names;
pub mod offload;
mod places;
pub mod resp;
pub mod status;
mod unready;
