//! One running peer: a node, driven by a thread of its own, between store, network and clients.
//!
//! Start at [`launch()`]; the loop is in `drive`, and the state beside the store in `peer_state`. A peer with several lanes has
//! a node and a loop for each lane; `supervisor` supervises all of them.

mod anew;
mod busy;
mod clocks;
mod data_dir;
mod drive;
#[doc(hidden)]
pub mod fuzz;
#[cfg(test)]
mod golden_test;
mod key_hash;
mod launch;
mod mailbox;
mod memory;
mod metrics;
mod packets;
mod peer_state;
mod remembered;
mod sealed;
mod sessions;
mod status_board;
mod store_port;
mod supervisor;
mod surroundings;

pub use data_dir::{DirectoryLock, check_formats, keep_to_owner};
pub use key_hash::{Cost, KeyHash};
pub use launch::launch;
pub use launch::store_dir;
pub use peer_state::PeerState;
pub use remembered::recall;
