//! The environment of a node: the loop, clients, administrators, settings and the daemon.

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
