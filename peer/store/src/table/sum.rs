//! The sum of a set of entries, which tells a table that lost entries from one that never had them.

use crate::codec::Reader;

/// Number of a set's entries, their total length in bytes, and the sum of their hashes modulo 2^128.
///
/// The hash of an entry is cut from a cryptographic one, so sets that differ by accident have different sums. This is a
/// guard against damage, not against an attacker that can write to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
    pub(crate) hash: u128,
}

impl Sum {
    /// Returns the sum of one entry.
    pub(crate) fn of(key: &[u8], value: &[u8]) -> Sum {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(key.len() as u64).to_le_bytes());
        hasher.update(key);
        hasher.update(value);
        let mut hash = [0; 16];
        hasher.finalize_xof().fill(&mut hash);
        Sum { entries: 1, bytes: (key.len() + value.len()) as u64, hash: u128::from_le_bytes(hash) }
    }

    // All sums wrap: while a set is not yet verified, its sum may be any number, and is compared, not trusted.

    pub(crate) fn add(&mut self, other: Sum) {
        self.entries = self.entries.wrapping_add(other.entries);
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.hash = self.hash.wrapping_add(other.hash);
    }

    pub(crate) fn remove(&mut self, other: Sum) {
        self.entries = self.entries.wrapping_sub(other.entries);
        self.bytes = self.bytes.wrapping_sub(other.bytes);
        self.hash = self.hash.wrapping_sub(other.hash);
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.entries.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.extend_from_slice(&self.hash.to_le_bytes());
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Option<Sum> {
        Some(Sum { entries: reader.u64()?, bytes: reader.u64()?, hash: reader.u128()? })
    }
}
