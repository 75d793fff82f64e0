//! The real world around a node: network, store, clients, command line.

pub mod resp;
pub mod status;
