//! Controllers and a switch that speak P4Runtime, over loopback.
#![cfg(feature = "p4runtime")]

mod common;
mod controller;
mod server;
mod shell;
