//! Errors of a store.

use std::io;

use environment::version::PROGRAM;

use crate::format::StoreFormat;

/// Reason for which a store did not open, or stopped.
///
/// A store that once returned an error returns errors for ever. After a failed write or sync the content of the disk is
/// unknown. A repeated call may get a wrong "yes", because the kernel drops the pages that it could not write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Durable data is gone or unreadable. Never to be taken for "empty": move the store aside
    /// ([`set_aside`](crate::set_aside)) and come back as a new incarnation.
    #[error("the store is damaged: {what}")]
    Damaged {
        /// Description of the damage.
        what: String,
    },
    /// The operating system refused.
    #[error("{doing}: {cause}")]
    Io {
        /// The operation that failed, with the file's name.
        doing: String,
        /// The system's message.
        cause: String,
        /// For callers that must tell a full disk from a broken one.
        kind: io::ErrorKind,
    },
    /// Another process has this store open.
    #[error("the store is open in another process")]
    InUse,
    /// Another version of this program wrote the store. No file of it was touched.
    #[error(
        "this store was written in format {found} by {}; this program, {PROGRAM}, reads and writes format {}, and has \
         changed nothing: run the program that wrote it, or take its data over with the `scatter export` of that program",
        .by.as_deref().unwrap_or("an older program of unknown version"),
        StoreFormat::OURS
    )]
    Version {
        /// The format in the manifest.
        found: StoreFormat,
        /// The program that wrote it, where the manifest names it.
        by: Option<String>,
    },
}

impl StoreError {
    /// Creates a damage error with its description.
    pub(crate) fn damaged(what: impl Into<String>) -> StoreError {
        StoreError::Damaged { what: what.into() }
    }

    /// Returns whether the store must be moved aside before a peer can start here again.
    pub fn is_damage(&self) -> bool {
        matches!(self, StoreError::Damaged { .. })
    }

    /// Returns whether there was no room.
    pub fn is_full(&self) -> bool {
        matches!(self, StoreError::Io { kind, .. } if is_full(*kind))
    }
}

/// Returns whether the operating system refused because there was no room.
pub fn is_full(kind: io::ErrorKind) -> bool {
    [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded].contains(&kind)
}

/// Adds the failed operation to an error of the operating system.
pub(crate) trait Doing<T> {
    /// Turns an I/O error into a [`StoreError`].
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, StoreError>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, StoreError> {
        self.map_err(|error| StoreError::Io { doing: what(), cause: error.to_string(), kind: error.kind() })
    }
}
