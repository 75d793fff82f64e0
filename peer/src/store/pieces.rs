//! Large values of the table, in pieces.
//!
//! sled keeps a page over 128 KiB in a file of its own, which it never syncs: after a power cut its log may speak of pages
//! that are gone, and no longer holds batches as a whole. A page has up to some 20 entries, so none of them may be longer
//! than [`PIECE_BYTES`]. What is longer is divided; its entry says where the pieces are.
//!
//! ```text
//! an entry: 0 u8 | value                                               a value as it is
//!           1 u8 | id u64 | pieces u32                                 one in pieces
//! piece:    key `x` | id u64, big-endian | number u32, big-endian      each but the last of the same length
//! ```
//! Each writing of a value has an id of its own, so a piece never changes: whoever finds some missing has read an entry
//! that is being replaced, and reads it anew.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;

use super::blocks::Entry;
use super::codec::Reader;
use super::table::{Table, TableError};

/// Longer values are divided. With their keys of up to 1 KiB twenty of them make no page of 128 KiB.
pub(crate) const PIECE_BYTES: usize = 5_000;

const WHOLE: u8 = 0;
const DIVIDED: u8 = 1;
/// What the keys of pieces begin with. Behind all other keys.
const PIECES: u8 = b'x';

/// A table whose values may be of any length, on one whose values may not.
pub(crate) struct Pieces {
    table: Box<dyn Table>,
    piece_bytes: usize,
    /// The next value's.
    id: AtomicU64,
    /// Some values are in pieces.
    any: AtomicBool,
}

/// Where the pieces of a value are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Divided {
    id: u64,
    pieces: u32,
}

impl Pieces {
    pub(crate) fn new(table: Box<dyn Table>, piece_bytes: usize) -> Result<Pieces, TableError> {
        let last = table.last(&[PIECES], &[PIECES, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff])?;
        let last = last.map(|(key, _)| id_of(&key).ok_or_else(|| nonsense(&key))).transpose()?;
        let id = AtomicU64::new(last.map_or(0, |last| last + 1));
        Ok(Pieces { table, piece_bytes, id, any: AtomicBool::new(last.is_some()) })
    }

    /// As [`Table::get`].
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TableError> {
        match self.table.get(key)? {
            Some(stored) => self.value(key, stored),
            None => Ok(None),
        }
    }

    /// As [`Table::scan`].
    pub(crate) fn scan(&self, from: &[u8], to: &[u8], bytes_max: usize) -> Result<Vec<(Bytes, Bytes)>, TableError> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        for (key, stored) in self.table.scan(from, to, bytes_max)? {
            // One that is gone by now was dropped.
            let Some(value) = self.value(&key, stored)? else { continue };
            bytes += key.len() + value.len();
            found.push((key, value));
            if bytes >= bytes_max {
                break;
            }
        }
        Ok(found)
    }

    /// As [`Table::last`].
    pub(crate) fn last(&self, from: &[u8], upto: &[u8]) -> Result<Option<(Bytes, Bytes)>, TableError> {
        loop {
            let Some((key, stored)) = self.table.last(from, upto)? else { return Ok(None) };
            if let Some(value) = self.value(&key, stored)? {
                return Ok(Some((key, value)));
            }
        }
    }

    /// As [`Table::apply`]. One caller at a time.
    pub(crate) fn apply(&self, changes: &[Entry]) -> Result<(), TableError> {
        let mut batch = Vec::with_capacity(changes.len());
        for (key, value) in changes {
            if self.any.load(Ordering::Relaxed)
                && let Some(stored) = self.table.get(key)?
                && let Some(divided) = divided(key, &stored)?
            {
                batch.extend((0..divided.pieces).map(|number| (piece_key(divided.id, number), None)));
            }
            match value {
                Some(value) if value.len() > self.piece_bytes => self.divide(key, value, &mut batch),
                Some(value) => batch.push((key.clone(), Some([&[WHOLE][..], value].concat().into()))),
                None => batch.push((key.clone(), None)),
            }
        }
        self.table.apply(&batch)
    }

    fn divide(&self, key: &Bytes, value: &Bytes, batch: &mut Vec<Entry>) {
        let id = self.id.fetch_add(1, Ordering::Relaxed);
        self.any.store(true, Ordering::Relaxed);
        let mut pieces = 0u32;
        for piece in value.chunks(self.piece_bytes) {
            batch.push((piece_key(id, pieces), Some(value.slice_ref(piece))));
            pieces += 1;
        }
        batch.push((key.clone(), Some(encode(Divided { id, pieces }))));
    }

    /// The value of an entry; `None` where it is gone by now.
    fn value(&self, key: &[u8], mut stored: Bytes) -> Result<Option<Bytes>, TableError> {
        loop {
            let Some(divided) = divided(key, &stored)? else { return Ok(Some(stored.slice(1..))) };
            if let Some(value) = self.assemble(divided)? {
                return Ok(Some(value));
            }
            match self.table.get(key)? {
                None => return Ok(None),
                Some(same) if same == stored => {
                    let what = format!("the table has lost pieces of its entry {}", key.escape_ascii());
                    return Err(TableError::Damaged(what));
                }
                Some(newer) => stored = newer,
            }
        }
    }

    /// All pieces together; `None` where some are missing.
    fn assemble(&self, Divided { id, pieces }: Divided) -> Result<Option<Bytes>, TableError> {
        let found = self.table.scan(&piece_key(id, 0), &piece_key(id, pieces), usize::MAX)?;
        let all = found.iter().map(|(_, piece)| piece.len()).sum();
        let value = found.iter().fold(Vec::with_capacity(all), |mut value, (_, piece)| {
            value.extend_from_slice(piece);
            value
        });
        Ok((found.len() as u64 == u64::from(pieces)).then(|| value.into()))
    }

    /// As [`Table::flush`].
    pub(crate) fn flush(&self) -> Result<(), TableError> {
        self.table.flush()
    }

    /// As [`Table::disk_bytes`].
    pub(crate) fn disk_bytes(&self) -> Result<u64, TableError> {
        self.table.disk_bytes()
    }
}

/// Where the pieces of a stored value are, if it is in pieces.
fn divided(key: &[u8], stored: &Bytes) -> Result<Option<Divided>, TableError> {
    let mut reader = Reader::new(stored.get(1..).unwrap_or_default());
    match stored.first() {
        Some(&WHOLE) => Ok(None),
        Some(&DIVIDED) => match (reader.u64(), reader.u32(), reader.is_empty()) {
            (Some(id), Some(pieces), true) => Ok(Some(Divided { id, pieces })),
            _ => Err(nonsense(key)),
        },
        _ => Err(nonsense(key)),
    }
}

fn encode(Divided { id, pieces }: Divided) -> Bytes {
    let mut out = vec![DIVIDED];
    out.extend_from_slice(&id.to_le_bytes());
    out.extend_from_slice(&pieces.to_le_bytes());
    out.into()
}

fn piece_key(id: u64, number: u32) -> Bytes {
    let mut key = vec![PIECES];
    key.extend_from_slice(&id.to_be_bytes());
    key.extend_from_slice(&number.to_be_bytes());
    key.into()
}

fn id_of(key: &[u8]) -> Option<u64> {
    key.get(1..9).and_then(|id| id.try_into().ok()).map(u64::from_be_bytes)
}

fn nonsense(key: &[u8]) -> TableError {
    TableError::Damaged(format!("the table's entry {} cannot be read", key.escape_ascii()))
}

/// What the golden files may see of it.
#[cfg(test)]
pub(super) mod golden {
    use super::*;

    pub(in super::super) fn entries() -> Vec<(&'static str, Bytes)> {
        vec![
            ("entry in pieces", encode(Divided { id: 0x0102_0304, pieces: 0x0506 })),
            ("key of a piece", piece_key(0x0102_0304, 0x0506)),
        ]
    }

    pub(in super::super) fn reads_back(entry: &Bytes, key: &[u8]) {
        assert_eq!(divided(b"a", entry).ok().flatten(), Some(Divided { id: 0x0102_0304, pieces: 0x0506 }));
        assert_eq!(id_of(key), Some(0x0102_0304));
    }
}

#[cfg(test)]
mod tests {
    use super::super::sim::SimDisk;
    use super::super::table::Tables;
    use super::*;

    fn pieces(disk: &SimDisk) -> Pieces {
        Pieces::new(disk.tables().open(1).expect("opens"), 10).expect("reads")
    }

    fn put(key: &'static str, bytes: usize, fill: u8) -> Entry {
        (key.into(), Some(vec![fill; bytes].into()))
    }

    #[test]
    fn values_of_any_length_come_back() {
        let disk = SimDisk::new();
        let table = pieces(&disk);
        table.apply(&[put("a", 0, 1), put("b", 10, 2), put("c", 11, 3), put("d", 105, 4)]).expect("writes");
        let lengths = |found: Vec<(Bytes, Bytes)>| found.iter().map(|(_, value)| value.len()).collect::<Vec<_>>();
        assert_eq!(lengths(table.scan(b"a", b"x", usize::MAX).expect("reads")), [0, 10, 11, 105]);
        assert_eq!(lengths(table.scan(b"a", b"x", 12).expect("reads")), [0, 10], "the page ends with what fills it");
        assert_eq!(table.last(b"a", b"w").expect("reads").map(|(_, value)| value.len()), Some(105));
        assert_eq!(table.get(b"c").expect("reads"), Some(vec![3; 11].into()));
        assert!(disk.tables().entries().iter().all(|(_, value)| value.len() <= 13), "none is longer");
        // Opened anew, its ids go on.
        let table = pieces(&disk);
        table.apply(&[put("c", 25, 5)]).expect("writes");
        assert_eq!(table.get(b"c").expect("reads"), Some(vec![5; 25].into()));
        assert_eq!(table.get(b"d").expect("reads"), Some(vec![4; 105].into()));
    }

    #[test]
    fn pieces_go_with_their_value() {
        let disk = SimDisk::new();
        let table = pieces(&disk);
        let count = || disk.tables().entries().len();
        table.apply(&[put("a", 35, 1), put("b", 35, 1)]).expect("writes");
        assert_eq!(count(), 2 * 5);
        table.apply(&[put("a", 15, 2), ("b".into(), None)]).expect("writes");
        assert_eq!(count(), 3);
        table.apply(&[put("a", 5, 3)]).expect("writes");
        assert_eq!(count(), 1);
    }

    #[test]
    fn a_lost_piece_is_damage() {
        let disk = SimDisk::new();
        let table = pieces(&disk);
        table.apply(&[put("a", 35, 1)]).expect("writes");
        disk.tables().tamper(piece_key(0, 2), None);
        assert!(matches!(table.get(b"a"), Err(TableError::Damaged(_))));
        assert!(matches!(table.scan(b"a", b"b", 1), Err(TableError::Damaged(_))));
    }
}
