//! The table behind the journal: an ordered map on disk that need not be durable by itself, nor reliable.
//!
//! A table may lose unflushed changes, and a damaged one may open with records missing or old. So every value in it
//! carries a checksum, and sums over ranges of records ([`ledger`]) tell which records should exist.

pub(crate) mod blocks;
#[cfg(target_os = "linux")]
pub(crate) mod durable_range;
pub(crate) mod ledger;
pub(crate) mod pieces;
pub(crate) mod rebuild;
pub(crate) mod sled_table;
pub(crate) mod sum;

use std::io;

use bytes::Bytes;

use crate::error::StoreError;

/// An ordered map from bytes to bytes.
pub trait Table: Send + Sync {
    /// Returns the value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TableError>;
    /// Returns entries from `from` on and before `to`, in order, until their bytes reach `bytes_max` (at least one, if
    /// there is one).
    fn scan(&self, from: &[u8], to: &[u8], bytes_max: usize) -> Result<Vec<(Bytes, Bytes)>, TableError>;
    /// Returns the last entry from `from` on up to `upto` itself.
    fn last(&self, from: &[u8], upto: &[u8]) -> Result<Option<(Bytes, Bytes)>, TableError>;
    /// Sets (`Some`) and drops (`None`) entries: all or nothing, also over a power cut.
    fn apply(&self, changes: &[(Bytes, Option<Bytes>)]) -> Result<(), TableError>;
    /// Makes everything applied so far durable. An error of the kind `StorageFull` means only that some bytes could not
    /// be written. After any other error applied entries may be readable and never become durable.
    fn flush(&self) -> Result<(), TableError>;
    /// Returns the bytes on disk.
    fn disk_bytes(&self) -> Result<u64, TableError>;
}

/// The tables of a store, each under a number. A store has one table, and a second one during a rebuild.
pub trait Tables: Send + Sync {
    /// Begins to open an existing table, on a thread of its own where that saves time; [`Tables::open`] returns it.
    fn open_ahead(&self, _number: u64) {}
    /// Opens a table, and creates it where it is missing: then its name is durable.
    fn open(&self, number: u64) -> Result<Box<dyn Table>, TableError>;
    /// Removes a table, if it exists. A power cut may bring some of it back.
    fn remove(&self, number: u64) -> io::Result<()>;
    /// Returns the numbers of the existing tables.
    fn list(&self) -> io::Result<Vec<u64>>;
}

/// Reason for which a table fails a call.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The operating system refused.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The table cannot read its own files.
    #[error("{0}")]
    Damaged(String),
}

impl TableError {
    pub(crate) fn doing(self, doing: &str) -> StoreError {
        match self {
            TableError::Io(error) => {
                StoreError::Io { doing: doing.into(), cause: error.to_string(), kind: error.kind() }
            }
            TableError::Damaged(what) => StoreError::damaged(format!("{doing}: {what}")),
        }
    }
}

/// Puts a checksum over key and value before the value.
pub(crate) fn seal(key: &[u8], value: &[u8]) -> Bytes {
    let mut sealed = Vec::with_capacity(4 + value.len());
    sealed.extend_from_slice(&checksum(key, value).to_le_bytes());
    sealed.extend_from_slice(value);
    sealed.into()
}

/// Returns the value, if the checksum fits.
pub(crate) fn unseal(key: &[u8], sealed: &Bytes) -> Result<Bytes, StoreError> {
    match sealed.split_first_chunk::<4>() {
        Some((crc, value)) if u32::from_le_bytes(*crc) == checksum(key, value) => Ok(sealed.slice(4..)),
        _ => Err(StoreError::damaged(format!("the table's entry {} fails its checksum", key.escape_ascii()))),
    }
}

fn checksum(key: &[u8], value: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&(key.len() as u64).to_le_bytes());
    hasher.update(key);
    hasher.update(value);
    hasher.finalize()
}
