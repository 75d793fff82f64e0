//! Controllers and a switch that speak P4Runtime, over loopback.
#![cfg(feature = "p4runtime")]

mod client;
mod common;
mod replay;
mod server;
mod shell;
#[cfg(feature = "soft")]
mod soft;
#[path = "../stories/mod.rs"]
mod stories;
