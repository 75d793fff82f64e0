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
//! | the files that a start trusts | `journal::replay`, `opening` |
//! | detection of a table that lies | `table::ledger` |
//! | order of writes | `behind` |
//! | the schedule of writes | `behind::turns` |
//! | the rebuild of its table | `table::rebuild` |
//! | large values in it | `table::pieces` |
//! | a disk for tests that crashes and fails | [`sim`] |
//!
//! # Examples
//!
//! ```
//! use node::{Change, Tail};
//! use store::{Engine, StoreConfig};
//!
//! let dir = tempfile::tempdir()?;
//! let config = StoreConfig::default();
//! let (mut engine, restored) = Engine::open_dir(dir.path(), &config)?;
//! assert_eq!(restored.tail, Tail::Empty);
//!
//! // One batch: both changes take effect or none, and they are durable when `append` returns.
//! let promise = Change::PutMeta("promise".into(), "7".into());
//! engine.append([vec![promise, Change::PutRecord("key".into(), "value".into())]])?;
//! engine.seal()?;
//!
//! // The next start gets the small entries back, and looks records up.
//! let (engine, restored) = Engine::open_dir(dir.path(), &config)?;
//! assert_eq!(restored.tail, Tail::Sealed);
//! assert_eq!(restored.meta[b"promise".as_slice()], "7");
//! assert_eq!(engine.load(b"key")?, Some("value".into()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod aside;
mod behind;
mod change;
mod codec;
mod config;
mod disk;
mod engine;
mod error;
mod format;
#[doc(hidden)]
pub mod fuzz;
#[cfg(test)]
mod golden_test;
mod health;
mod journal;
mod manifest;
mod meters;
mod opening;
mod precedence;
mod reads;
mod room;
pub mod sim;
mod table;
mod thread;

pub use aside::{Aside, set_aside};
pub use behind::pending::Batch;
pub use config::StoreConfig;
pub use disk::{Disk, DiskFile, DiskLock, RealDisk, Space};
pub use engine::{Engine, Staged};
pub use error::{StoreError, is_full};
pub use format::{CONTAINER_VERSION, StoreFormat};
pub use meters::StoreStats;
pub use room::{Room, Shortage};
pub use table::sled_table::SledTables;
pub use table::{Table, TableError, Tables};
pub use thread::{COMMIT_BYTES_MAX, StoreEvent, StoreThread, To};
