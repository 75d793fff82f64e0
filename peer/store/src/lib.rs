//! The durable store of a peer.
//!
//! Acknowledgements rest on a *journal*: batches of changes, with one write and one sync for all waiting ones. A *table*
//! on disk holds the records, written behind; small entries are kept in memory and in the *manifest* of each checkpoint.
//! A damaged part is reported as damaged: never as empty, and never as an older state.
//!
//! | to learn about | see |
//! | --- | --- |
//! | opening a store, loading, committing | [`Engine`] |
//! | the threads that a running peer uses | [`StoreThread`] |
//! | the files that a start trusts | `replay`, `opening` |
//! | detection of a table that lies | `ledger` |
//! | order of writes | `behind` |
//! | the schedule of writes | `turns` |
//! | the rebuild of its table | `rebuild` |
//! | large values in it | `pieces` |
//! | a disk for tests that crashes and fails | [`sim`] |

mod aside;
mod behind;
mod blocks;
mod change;
mod codec;
mod config;
mod disk;
#[cfg(target_os = "linux")]
mod durable_range;
mod engine;
mod error;
mod format;
mod frame;
#[doc(hidden)]
pub mod fuzz;
#[cfg(test)]
mod golden_test;
mod health;
mod index;
mod journal;
mod ledger;
mod manifest;
mod mark;
mod meters;
mod opening;
mod pending;
mod pieces;
mod precedence;
mod reads;
mod rebuild;
mod replay;
mod room;
mod segment;
pub mod sim;
mod sum;
mod table;
mod table_sled;
mod thread;
mod turns;

pub use aside::{Aside, set_aside};
pub use config::StoreConfig;
pub use disk::{Disk, DiskFile, DiskLock, RealDisk, Space};
pub use engine::{Engine, Staged};
pub use error::{StoreError, is_full};
pub use format::{CONTAINER_VERSION, StoreFormat};
pub use meters::StoreStats;
pub use pending::Batch;
pub use room::{Room, Shortage};
pub use table::{Table, TableError, Tables};
pub use table_sled::SledTables;
pub use thread::{COMMIT_BYTES_MAX, StoreEvent, StoreThread, To};
