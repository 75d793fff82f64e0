//! The real world around a node: network, store, clients, command line.

pub mod net;
pub mod store;
