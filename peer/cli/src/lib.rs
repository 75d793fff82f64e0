//! The program `scatter`: the command line, the demo and the dashboard around a peer.

mod commands;
mod demo;
mod http_client;
pub mod top;

pub use commands::main;
