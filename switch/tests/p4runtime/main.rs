//! Controllers and a switch that speak P4Runtime, over loopback.
#![cfg(feature = "p4runtime")]

mod common;
mod controller;
mod replay;
mod server;
mod shell;
#[cfg(feature = "soft")]
mod soft;
#[path = "../stories/mod.rs"]
mod stories;
