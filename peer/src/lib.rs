//! The real world around a node: network, store, clients, command line.

pub mod config;
pub mod http;
pub mod resp;
pub mod status;
