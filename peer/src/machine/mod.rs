//! One running peer: a node, driven by a thread of its own, between store, network and clients.
//!
//! Start at [`launch()`]; the loop is in `drive`, and the state beside the store in `data_dir`. A peer with several lanes
//! has a node and a loop for each lane; `supervisor` supervises all of them.

mod anew;
mod busy;
mod clocks;
mod data_dir;
mod drive;
#[doc(hidden)]
pub mod fuzz;
#[cfg(test)]
mod golden_test;
mod launch;
mod mailbox;
mod memory;
mod metrics;
mod packets;
mod status_board;
mod store_port;
mod supervisor;
mod surroundings;

pub use data_dir::key_hash::{Cost, KeyHash};
pub use data_dir::peer_state::PeerState;
pub use data_dir::remembered::recall;
pub use data_dir::{DirectoryLock, check_formats, keep_to_owner};
pub use launch::{launch, store_dir};
