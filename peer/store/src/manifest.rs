//! The manifest: the part of a checkpoint outside the table, replaced as a whole.
//!
//! ```text
//! the store's format, see `format`
//! salt u64 | seq u64 | segment u64 | first seq u64 | table u64 | portions u64 | blocks u64 | bytes u64 | set hash u128
//! entries u64 | (key length u32, key, value length u32, value)...
//! crc32 of everything before u32
//! ```
//! The format keeps its form in every version, so that another version is told from damage.

use environment::version::PROGRAM;

use crate::change::Meta;
use crate::codec::{Reader, put_bytes};
use crate::disk::Disk;
use crate::error::{Doing, StoreError};
use crate::format::StoreFormat;
use crate::journal::replay::From;
use crate::table::sum::Sum;

/// Name of the manifest's file.
pub(crate) const MANIFEST: &str = "manifest";
/// Name of its file while it is written.
pub(crate) const MANIFEST_TEMPORARY: &str = "manifest.tmp";

/// Upper limit of the manifest, in bytes. The small entries are kept in memory anyway; a longer manifest is damage.
const BYTES_MAX: u64 = 4 << 30;

/// A checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// Part of every checksum in the journal; drawn when the store is made.
    pub(crate) salt: u64,
    /// The position where the journal goes on.
    pub(crate) from: From,
    /// The number of the table.
    pub(crate) table: u64,
    /// Number of portions that had been written to the table by then. The table must not be older.
    pub(crate) portions: u64,
    /// Sum of all blocks as of then.
    pub(crate) sum: Sum,
    /// The small entries as of `from.seq`.
    pub(crate) meta: Meta,
}

impl Manifest {
    /// Replaces the manifest; durable when this returns.
    pub(crate) fn write(&self, disk: &dyn Disk) -> Result<(), StoreError> {
        let bytes = self.encode();
        let mut file = disk.create(MANIFEST_TEMPORARY).doing(|| "creating the manifest".into())?;
        file.write_at(0, &bytes).doing(|| "writing the manifest".into())?;
        file.sync().doing(|| "syncing the manifest".into())?;
        drop(file);
        disk.rename(MANIFEST_TEMPORARY, MANIFEST).doing(|| "renaming the manifest".into())?;
        disk.sync_dir().doing(|| "syncing the store's directory".into())
    }

    /// Reads the manifest of this store.
    pub(crate) fn read(disk: &dyn Disk) -> Result<Manifest, StoreError> {
        let mut file = disk.open(MANIFEST).doing(|| "opening the manifest".into())?;
        Manifest::decode(&file.read_all(BYTES_MAX).doing(|| "reading the manifest".into())?)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128 + self.meta.iter().map(|(k, v)| 8 + k.len() + v.len()).sum::<usize>());
        StoreFormat::OURS.begin(&mut out, PROGRAM);
        let From { seq, segment, first_seq } = self.from;
        for number in [self.salt, seq, segment, first_seq, self.table, self.portions] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        self.sum.put(&mut out);
        out.extend_from_slice(&(self.meta.len() as u64).to_le_bytes());
        for (key, value) in &self.meta {
            put_bytes(&mut out, key);
            put_bytes(&mut out, value);
        }
        out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Manifest, StoreError> {
        let damaged = || StoreError::damaged("the manifest is unreadable");
        let rest = StoreFormat::skip(bytes)?;
        let (content, crc) = bytes.split_last_chunk::<4>().ok_or_else(damaged)?;
        if u32::from_le_bytes(*crc) != crc32fast::hash(content) {
            return Err(damaged());
        }
        let body = rest.split_last_chunk::<4>().ok_or_else(damaged)?.0;
        Manifest::decode_body(body).ok_or_else(damaged)
    }

    pub(crate) fn decode_body(bytes: &[u8]) -> Option<Manifest> {
        let mut reader = Reader::new(bytes);
        let salt = reader.u64()?;
        let from = From { seq: reader.u64()?, segment: reader.u64()?, first_seq: reader.u64()? };
        let (table, portions) = (reader.u64()?, reader.u64()?);
        let sum = Sum::read(&mut reader)?;
        let entries = reader.u64()?;
        let mut meta = Meta::new();
        for _ in 0..entries {
            meta.insert(reader.bytes()?, reader.bytes()?);
        }
        let whole = reader.is_empty() && from.first_seq >= 1 && from.seq >= from.first_seq;
        whole.then_some(Manifest { salt, from, table, portions, sum, meta })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn example() -> Manifest {
        Manifest {
            salt: 5,
            from: From { seq: 9, segment: 2, first_seq: 7 },
            table: 4,
            portions: 8,
            sum: Sum { entries: 3, bytes: 40, hash: 1 << 100 },
            meta: Meta::from([(Bytes::from("a"), Bytes::from("1")), (Bytes::from("b"), Bytes::new())]),
        }
    }

    #[test]
    fn reads_back_as_written() {
        assert_eq!(Manifest::decode(&example().encode()), Ok(example()));
    }

    #[test]
    fn every_flip_and_every_cut_is_damage() {
        let bytes = example().encode();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Manifest::decode(&flipped).is_err_and(|error| error.is_damage()), "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert!(Manifest::decode(&bytes[..cut]).is_err_and(|error| error.is_damage()), "cut at {cut}");
        }
    }
}
