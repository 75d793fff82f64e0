//! Large values of the table, in pieces.
//!
//! sled keeps a page over 128 KiB in a file of its own, which it never syncs. After a power cut its log may then refer to
//! pages that are gone, and batches are no longer atomic. A page has up to some 20 entries, so no entry may be longer than
//! [`PIECE_BYTES`]. A longer value is divided; its entry names the pieces.
//!
//! ```text
//! an entry: 0 u8 | value                                               a value as it is
//!           1 u8 | id u64 | pieces u32                                 one in pieces
//! piece:    key `x` | id u64, big-endian | number u32, big-endian      each but the last of the same length
//! ```
//! Each write of a value has an id of its own, so a piece never changes. A reader that finds some pieces missing has read
//! an entry that was replaced since, and repeats its whole lookup. To read the entry alone again is not enough: its newer
//! value may be another block.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use environment::lock;

use crate::codec::Reader;
use crate::table::blocks::BlockEntry;
use crate::table::ledger::behind;
use crate::table::{Table, TableError};

/// Length beyond which values are divided, in bytes. Twenty of them, with keys of up to 1 KiB, make no page of 128 KiB.
pub(crate) const PIECE_BYTES: usize = 5_000;

/// Bytes of entries that one step of a scan reads, about.
const STEP_BYTES: usize = 16 << 10;

const WHOLE: u8 = 0;
const DIVIDED: u8 = 1;
/// Prefix of the keys of pieces. Behind all other keys.
const PIECES: u8 = b'x';

/// A table with values of any length, on top of a table with values of limited length.
pub(crate) struct Pieces {
    table: Box<dyn Table>,
    piece_bytes: usize,
    /// Id of the next divided value.
    id: AtomicU64,
    /// Whether some values are in pieces.
    any: AtomicBool,
    /// Whether a batch failed. Held while a batch is written.
    failed: Mutex<bool>,
}

/// Reference to the pieces of a value.
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
        Ok(Pieces { table, piece_bytes, id, any: AtomicBool::new(last.is_some()), failed: Mutex::default() })
    }

    /// Does the same as [`Table::get`].
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TableError> {
        let mut before = None;
        loop {
            let Some(stored) = self.table.get(key)? else { return Ok(None) };
            if let Some(value) = self.value(key, &stored)? {
                return Ok(Some(value));
            }
            self.look_again(&mut before, key, stored)?;
        }
    }

    /// Does the same as [`Table::scan`].
    pub(crate) fn scan(&self, from: &[u8], to: &[u8], bytes_max: usize) -> Result<Vec<(Bytes, Bytes)>, TableError> {
        let (mut found, mut bytes, mut before) = (Vec::new(), 0, None);
        let mut from = Bytes::copy_from_slice(from);
        while found.is_empty() || bytes < bytes_max {
            // An entry in pieces is short itself: small steps keep a page from having many more entries than are wanted.
            let page = self.table.scan(&from, to, bytes_max.min(STEP_BYTES))?;
            if page.is_empty() {
                break;
            }
            for (key, stored) in page {
                let Some(value) = self.value(&key, &stored)? else {
                    // The lookup goes on from here, for the entry that replaced it or follows it.
                    self.look_again(&mut before, &key, stored)?;
                    break;
                };
                from = behind(&key);
                bytes += key.len() + value.len();
                found.push((key, value));
                if bytes >= bytes_max {
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Does the same as [`Table::last`].
    pub(crate) fn last(&self, from: &[u8], upto: &[u8]) -> Result<Option<(Bytes, Bytes)>, TableError> {
        let mut before = None;
        loop {
            let Some((key, stored)) = self.table.last(from, upto)? else { return Ok(None) };
            if let Some(value) = self.value(&key, &stored)? {
                return Ok(Some((key, value)));
            }
            self.look_again(&mut before, &key, stored)?;
        }
    }

    /// Does the same as [`Table::apply`]. One caller at a time.
    pub(crate) fn apply(&self, changes: &[BlockEntry]) -> Result<(), TableError> {
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
        let mut failed = lock(&self.failed);
        self.table.apply(&batch).inspect_err(|_| *failed = true)
    }

    fn divide(&self, key: &Bytes, value: &Bytes, batch: &mut Vec<BlockEntry>) {
        let id = self.id.fetch_add(1, Ordering::Relaxed);
        self.any.store(true, Ordering::Relaxed);
        let mut pieces = 0u32;
        for piece in value.chunks(self.piece_bytes) {
            batch.push((piece_key(id, pieces), Some(value.slice_ref(piece))));
            pieces += 1;
        }
        batch.push((key.clone(), Some(encode(Divided { id, pieces }))));
    }

    /// Returns the value of an entry; `None` where pieces of it are missing. Then the entry was replaced, and the present
    /// entry may hold other content.
    fn value(&self, key: &[u8], stored: &Bytes) -> Result<Option<Bytes>, TableError> {
        match divided(key, stored)? {
            Some(divided) => self.assemble(divided),
            None => Ok(Some(stored.slice(1..))),
        }
    }

    /// Notes that pieces of this entry were missing. `before` is the entry that was last found so, in the same lookup.
    ///
    /// # Errors
    /// Damage where it is the same entry once more; an I/O error where a write to the table has failed.
    fn look_again(&self, before: &mut Option<(Bytes, Bytes)>, key: &[u8], stored: Bytes) -> Result<(), TableError> {
        // A batch that failed may have been written in part: that is no damage, and the caller that wrote it reports it.
        if *lock(&self.failed) {
            return Err(TableError::Io(std::io::Error::other("a write to the table has failed")));
        }
        let this = (Bytes::copy_from_slice(key), stored);
        match before.replace(this.clone()) {
            Some(same) if same == this => {
                Err(TableError::Damaged(format!("the table has lost pieces of its entry {}", key.escape_ascii())))
            }
            _ => Ok(()),
        }
    }

    /// Joins all pieces; returns `None` where some are missing.
    fn assemble(&self, Divided { id, pieces }: Divided) -> Result<Option<Bytes>, TableError> {
        let found = self.table.scan(&piece_key(id, 0), &piece_key(id, pieces), usize::MAX)?;
        let all = found.iter().map(|(_, piece)| piece.len()).sum();
        let value = found.iter().fold(Vec::with_capacity(all), |mut value, (_, piece)| {
            value.extend_from_slice(piece);
            value
        });
        Ok((found.len() as u64 == u64::from(pieces)).then(|| value.into()))
    }

    /// Does the same as [`Table::flush`].
    pub(crate) fn flush(&self) -> Result<(), TableError> {
        self.table.flush()
    }

    /// Does the same as [`Table::disk_bytes`].
    pub(crate) fn disk_bytes(&self) -> Result<u64, TableError> {
        self.table.disk_bytes()
    }
}

/// Returns the reference to the pieces of a stored value, if it is in pieces.
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

/// Access for the golden files.
#[cfg(test)]
pub(crate) mod golden {
    use super::*;

    pub(crate) fn entries() -> Vec<(&'static str, Bytes)> {
        vec![
            ("entry in pieces", encode(Divided { id: 0x0102_0304, pieces: 0x0506 })),
            ("key of a piece", piece_key(0x0102_0304, 0x0506)),
        ]
    }

    pub(crate) fn reads_back(entry: &Bytes, key: &[u8]) {
        assert_eq!(divided(b"a", entry).ok().flatten(), Some(Divided { id: 0x0102_0304, pieces: 0x0506 }));
        assert_eq!(id_of(key), Some(0x0102_0304));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{Fault, SimDisk, Site};
    use crate::table::Tables;

    fn pieces(disk: &SimDisk) -> Pieces {
        Pieces::new(disk.tables().open(1).expect("opens"), 10).expect("reads")
    }

    fn put(key: &'static str, bytes: usize, fill: u8) -> BlockEntry {
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
        // Opened anew, the table continues with unused ids.
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

    /// A table that shows once an entry that was replaced since, as a reader may have seen it.
    struct Ghost {
        table: Box<dyn Table>,
        seen: Mutex<Option<(Bytes, Bytes)>>,
    }

    impl Ghost {
        /// Creates a table in which `a` was one block, seen in pieces that are gone, and is two blocks by now.
        fn pieces() -> Pieces {
            let table = SimDisk::new().tables().open(1).expect("opens");
            let pieces = Pieces::new(Box::new(Ghost { table, seen: Mutex::default() }), 10).expect("reads");
            pieces.apply(&[put("a", 3, 1), put("b", 35, 2)]).expect("writes");
            let Pieces { table, .. } = pieces;
            let seen = Mutex::new(Some((Bytes::from("a"), encode(Divided { id: 7, pieces: 4 }))));
            Pieces::new(Box::new(Ghost { table, seen }), 10).expect("reads")
        }
    }

    impl Table for Ghost {
        fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TableError> {
            self.table.get(key)
        }

        fn scan(&self, from: &[u8], to: &[u8], bytes_max: usize) -> Result<Vec<(Bytes, Bytes)>, TableError> {
            let seen = lock(&self.seen).take_if(|(key, _)| (from..to).contains(&&**key));
            seen.map_or_else(|| self.table.scan(from, to, bytes_max), |seen| Ok(vec![seen]))
        }

        fn last(&self, from: &[u8], upto: &[u8]) -> Result<Option<(Bytes, Bytes)>, TableError> {
            let seen = lock(&self.seen).take_if(|(key, _)| (from..=upto).contains(&&**key));
            seen.map_or_else(|| self.table.last(from, upto), |seen| Ok(Some(seen)))
        }

        fn apply(&self, changes: &[BlockEntry]) -> Result<(), TableError> {
            self.table.apply(changes)
        }

        fn flush(&self) -> Result<(), TableError> {
            self.table.flush()
        }

        fn disk_bytes(&self) -> Result<u64, TableError> {
            self.table.disk_bytes()
        }
    }

    /// Records of the old block may be in a block behind it by now.
    #[test]
    fn who_saw_a_block_that_was_replaced_looks_anew() {
        let key = |found: Option<(Bytes, Bytes)>| found.map(|(key, _)| key);
        assert_eq!(key(Ghost::pieces().last(b"a", b"c").expect("reads")), Some("b".into()));
        let found = Ghost::pieces().scan(b"a", b"x", 1).expect("reads");
        assert_eq!(found, [("a".into(), vec![1; 3].into())]);
        let found = Ghost::pieces().scan(b"a", b"x", 1000).expect("reads");
        assert_eq!(found.iter().map(|(_, value)| value.len()).collect::<Vec<_>>(), [3, 35]);
    }

    /// Some pieces of a batch that a full disk cut short may exist.
    #[test]
    fn a_failed_batch_is_no_damage() {
        let disk = SimDisk::new();
        let table = pieces(&disk);
        table.apply(&[put("a", 35, 1)]).expect("writes");
        disk.plan_at(Site::Apply, Fault::Error(std::io::ErrorKind::StorageFull));
        assert!(table.apply(&[put("a", 15, 2)]).is_err());
        disk.tables().tamper(piece_key(0, 2), None);
        assert!(matches!(table.get(b"a"), Err(TableError::Io(_))));
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
