//! A store's format and its writer: the beginning of the manifest, which has one form for good.
//!
//! ```text
//! magic 8 | container version u32 | crc32 of these 12 bytes u32
//! stored version u32 | program: length u32, text | crc32 of everything before u32      (since container version 9)
//! ```
//! A store of another format is refused by its name before any file is touched, and never taken for a damaged one.

use std::fmt;

use node::replicas::storage::STORED_VERSION;

use crate::codec::{Reader, put_bytes};
use crate::disk::Disk;
use crate::error::{Doing, StoreError};
use crate::manifest::MANIFEST;

/// Version of the container: of manifest, journal and table, but not of the node's data in them.
pub const CONTAINER_VERSION: u32 = 11;

const MAGIC: &[u8; 8] = b"SCATSTOR";
/// The first container version that names the stored version.
const NAMES_STORED: u32 = 9;
/// Upper limit of a program's name, in bytes.
const PROGRAM_BYTES_MAX: usize = 256;
/// Upper limit of a manifest's beginning, in bytes.
const HEAD_BYTES: usize = 512;

/// A store's format: the container's, and that of the node's entries and records in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreFormat {
    /// See [`CONTAINER_VERSION`].
    pub container: u32,
    /// See [`STORED_VERSION`]; 1 where the store is from a time when it was not recorded.
    pub stored: u32,
}

impl StoreFormat {
    /// The only format that this program reads and writes.
    pub const OURS: StoreFormat = StoreFormat { container: CONTAINER_VERSION, stored: STORED_VERSION };

    /// Appends the beginning of a manifest that this program writes.
    pub(crate) fn begin(self, out: &mut Vec<u8>, program: &str) {
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.container.to_le_bytes());
        out.extend_from_slice(&crc32fast::hash(out).to_le_bytes());
        out.extend_from_slice(&self.stored.to_le_bytes());
        put_bytes(out, program.as_bytes());
        out.extend_from_slice(&crc32fast::hash(out).to_le_bytes());
    }

    /// Returns the bytes behind the beginning of a manifest in our format; an error where it is in another format, or
    /// none.
    pub(crate) fn skip(bytes: &[u8]) -> Result<&[u8], StoreError> {
        let (found, by, rest) = read(bytes).ok_or_else(|| StoreError::damaged("the manifest is unreadable"))?;
        if found == StoreFormat::OURS { Ok(rest) } else { Err(StoreError::Version { found, by }) }
    }

    /// Refuses a store of another format. Reads one file and changes nothing; a damaged manifest passes here, and fails
    /// when opened.
    ///
    /// # Errors
    /// [`StoreError::Version`], and [`StoreError::Io`] where the manifest exists and cannot be read.
    pub(crate) fn check(disk: &dyn Disk) -> Result<(), StoreError> {
        let head = disk.head(MANIFEST, HEAD_BYTES).doing(|| "reading the manifest".into())?;
        let Some(bytes) = head else { return Ok(()) };
        match StoreFormat::skip(&bytes) {
            Err(error @ StoreError::Version { .. }) => Err(error),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for StoreFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.container, self.stored)
    }
}

/// Returns the format, its writer, and the remaining bytes; `None` for bytes that no version wrote.
fn read(bytes: &[u8]) -> Option<(StoreFormat, Option<String>, &[u8])> {
    let mut reader = Reader::new(bytes);
    let magic = reader.take(8)?;
    let container = reader.u32()?;
    if magic != MAGIC || reader.u32()? != crc32fast::hash(&bytes[..12]) {
        return None;
    }
    if container < NAMES_STORED {
        return Some((StoreFormat { container, stored: 1 }, None, reader.rest()));
    }
    let stored = reader.u32()?;
    let program = reader.slice().filter(|text| text.len() <= PROGRAM_BYTES_MAX)?;
    let said = bytes.len() - reader.rest().len();
    if reader.u32()? != crc32fast::hash(&bytes[..said]) {
        return None;
    }
    // The name is shown to administrators.
    let program = String::from_utf8_lossy(program).chars().filter(|char| !char.is_control()).collect();
    Some((StoreFormat { container, stored }, Some(program), reader.rest()))
}

#[cfg(test)]
mod tests {
    use environment::version::PROGRAM;

    use super::*;

    #[test]
    fn ours_is_read_and_others_are_named() {
        let mut ours = Vec::new();
        StoreFormat::OURS.begin(&mut ours, PROGRAM);
        ours.extend_from_slice(b"rest");
        assert_eq!(StoreFormat::skip(&ours), Ok(&b"rest"[..]));
        for found in [
            StoreFormat { container: CONTAINER_VERSION + 1, stored: STORED_VERSION },
            StoreFormat { container: CONTAINER_VERSION, stored: STORED_VERSION + 1 },
            StoreFormat { container: CONTAINER_VERSION, stored: STORED_VERSION - 1 },
        ] {
            let mut other = Vec::new();
            found.begin(&mut other, PROGRAM);
            other.extend_from_slice(b"anything");
            let error = StoreFormat::skip(&other).unwrap_err();
            assert_eq!(error, StoreError::Version { found, by: Some(PROGRAM.into()) });
            let words = error.to_string();
            assert!(words.contains(&found.to_string()) && words.contains(&StoreFormat::OURS.to_string()), "{words}");
            assert!(words.contains(PROGRAM) && !error.is_damage(), "{words}");
        }
    }

    /// The manifests of programs that did not name the types they stored: 16 bytes, then another body.
    #[test]
    fn an_older_one_is_named_without_its_program() {
        let mut old = MAGIC.to_vec();
        old.extend_from_slice(&8u32.to_le_bytes());
        old.extend_from_slice(&crc32fast::hash(&old).to_le_bytes());
        old.extend_from_slice(&[7; 200]);
        let error = StoreFormat::skip(&old).unwrap_err();
        assert_eq!(error, StoreError::Version { found: StoreFormat { container: 8, stored: 1 }, by: None });
        assert!(error.to_string().contains("format 8.1"), "{error}");
    }
}
