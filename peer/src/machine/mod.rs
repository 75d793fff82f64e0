//! One running peer: a node, driven by a thread of its own, between store, network and clients.
//!
//! Start at [`launch()`]; the loop is in `drive`, what is remembered beside the store in `memo`.

mod clocks;
mod drive;
#[doc(hidden)]
pub mod fuzz;
mod launch;
mod mailbox;
mod memo;
mod metrics;
mod show;

pub use launch::launch;
