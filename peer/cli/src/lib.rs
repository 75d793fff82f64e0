//! The program `scatter`: the command line, the demo and the dashboard around a peer.
//!
//! - `commands`: the command line, a file for each group of commands; [`main`] runs it.
//! - `demo`: a whole network in one process, with simulated users.
//! - [`top`]: the dashboard.
//! - `http_client`: one HTTP request to a peer, for commands and dashboard.

mod commands;
mod demo;
mod http_client;
pub mod top;

pub use commands::main;
