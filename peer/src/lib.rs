//! The environment of a node: network, store, clients, command line.

mod accept;
pub mod admin;
pub mod cli;
pub mod config;
pub mod daemon;
mod demo;
mod descriptors;
pub mod event_log;
pub mod exit;
pub mod http;
mod http_client;
mod log;
pub mod machine;
mod names;
pub mod offload;
mod places;
pub mod resp;
pub mod status;
pub mod top;
mod unready;
