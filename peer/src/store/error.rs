//! What can go wrong with a store.

use std::io;

use super::format::Format;
use crate::version::PROGRAM;

/// Why a store did not open, or stopped.
///
/// A store that once returned an error returns errors for ever: after a failed write or sync nobody knows what the disk
/// holds, and asking again may get a wrong "yes" (the kernel drops the pages it could not write).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// What was once durable is no longer there or no longer readable. Never to be taken for "empty": move the store
    /// aside ([`set_aside`](super::set_aside)) and come back as a new incarnation.
    #[error("the store is damaged: {what}")]
    Damaged {
        /// What was found.
        what: String,
    },
    /// The operating system refused.
    #[error("{doing}: {cause}")]
    Io {
        /// What was being done, with the file's name.
        doing: String,
        /// The system's words.
        cause: String,
        /// For those who must tell a full disk from a broken one.
        kind: io::ErrorKind,
    },
    /// Another process has this store open.
    #[error("the store is open in another process")]
    InUse,
    /// Written by another version of this program. Nothing of it was touched.
    #[error(
        "this store was written in format {found} by {}; this program, {PROGRAM}, reads and writes format {}, and has \
         changed nothing: run the program that wrote it, or take its data over with the `scatter export` of that program",
        .by.as_deref().unwrap_or("an older program, which did not say which"),
        Format::OURS
    )]
    Version {
        /// As the manifest says.
        found: Format,
        /// The program that wrote it, where it said so.
        by: Option<String>,
    },
}

impl StoreError {
    /// Damage, with its description.
    pub(crate) fn damaged(what: impl Into<String>) -> StoreError {
        StoreError::Damaged { what: what.into() }
    }

    /// Whether the store must be moved aside before a peer can start here again.
    pub fn is_damage(&self) -> bool {
        matches!(self, StoreError::Damaged { .. })
    }

    /// Whether there was no room.
    pub fn is_full(&self) -> bool {
        matches!(self, StoreError::Io { kind, .. } if is_full(*kind))
    }
}

/// Whether the operating system refused because there was no room.
pub fn is_full(kind: io::ErrorKind) -> bool {
    [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded].contains(&kind)
}

/// Says what was being done when the operating system refused.
pub(crate) trait Doing<T> {
    /// Turns an I/O error into a [`StoreError`].
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, StoreError>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, StoreError> {
        self.map_err(|error| StoreError::Io { doing: what(), cause: error.to_string(), kind: error.kind() })
    }
}
