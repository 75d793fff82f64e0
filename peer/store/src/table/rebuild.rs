//! The rebuild of a table: its content is copied into a new table, which replaces it.
//!
//! sled's files hardly shrink: deleted records leave room that only sled can use. Records of some kilobytes make the files
//! grow to several times their content. Copied in the order of keys, a table takes less than twice its records.
//!
//! Sweeps go on meanwhile. They write changes of already copied keys to both tables. So up to its cursor the new table has
//! the content of the old table at every moment. Once all is copied, the next checkpoint makes the new table durable and
//! names it in the manifest. Then readers get it, and the old table is removed as soon as the last reader has released it.
//! A start uses the table that the manifest names, and removes any other table.
//!
//! No state depends on the new table before the manifest names it. After any failure of the new table, or without room for
//! it, the store gives it up and goes on with the old table.

use std::sync::{Arc, RwLock};

use bytes::Bytes;

use crate::behind::index::Portion;
use crate::error::StoreError;
use crate::room::Room;
use crate::table::Tables;
use crate::table::ledger::Ledger;
use crate::table::sum::Sum;

/// Thresholds for a rebuild: halves of the content, and bytes beyond that, which a table's files take. `USUAL` applies
/// where there is plenty of room, `TIGHT` where there is little. A new sled takes 1.3 to 1.9 times its content.
const USUAL: (u64, u64) = (8, 64 << 20);
const TIGHT: (u64, u64) = (5, 4 << 20);
/// Upper limit of the bytes that an empty table takes.
const EMPTY_BYTES: u64 = 2 << 20;

/// Size of a table in bytes: its files, and the content that it holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Size {
    pub(crate) files: u64,
    pub(crate) held: u64,
}

/// Returns the expected upper limit of a new table's bytes, for the content of an old table.
fn needed(held: u64) -> u64 {
    held.saturating_mul(2).saturating_add(EMPTY_BYTES)
}

/// Returns whether a rebuild of a table with `held` bytes pays, where `fresh` is the result of the last rebuild. It does
/// not pay where the new table might take more than half of the free bytes, or make room low; or, where room is low, more
/// than three quarters.
pub(crate) fn pays(room: &Room, held: u64, fresh: Option<Size>) -> bool {
    let needed = needed(held);
    let is_tight = room.is_tight || room.free / 4 < needed;
    let (halves, more) = if is_tight { TIGHT } else { USUAL };
    let is_large = room.table > (held / 2).saturating_mul(halves).saturating_add(more);
    let fits = match room.low {
        Some(_) => needed <= room.free / 4 * 3,
        None => needed <= (room.free / 2).min(room.above_low),
    };
    is_large && fits && fresh.is_none_or(|fresh| has_grown(room.table, held, fresh))
}

/// Returns whether the files are larger by half than a rebuild would leave them, judged by the last one. sled may need much
/// room for its content in any case, and then another rebuild gains nothing.
fn has_grown(files: u64, held: u64, fresh: Size) -> bool {
    let expected = u128::from(held) * u128::from(fresh.files) / u128::from(fresh.held.max(EMPTY_BYTES));
    u128::from(files) > expected + expected / 2
}

/// Returns the reason to give up a new table, whose files take `new` bytes: `free` bytes were free when it was begun.
pub(crate) fn is_in_vain(room: &Room, new: u64, free: u64) -> Option<&'static str> {
    if new > room.table {
        Some("the new table takes more space than the old one")
    } else if room.free < free / 8 {
        Some("there is too little room on the disk")
    } else {
        None
    }
}

/// The table that the manifest names, for all readers.
pub(crate) struct Current(RwLock<Arc<Ledger>>);

impl Current {
    pub(crate) fn new(ledger: Ledger) -> Current {
        Current(RwLock::new(Arc::new(ledger)))
    }

    /// Returns the current table. Callers must release it soon: only then a former table can be removed.
    pub(crate) fn get(&self) -> Arc<Ledger> {
        self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Replaces the table, and returns the former one.
    pub(crate) fn replace(&self, ledger: Arc<Ledger>) -> Arc<Ledger> {
        std::mem::replace(&mut *self.0.write().unwrap_or_else(|poisoned| poisoned.into_inner()), ledger)
    }
}

/// Progress of a rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copied {
    /// More records have to be copied.
    More,
    /// The next checkpoint puts the new table in place of the old one.
    All,
    /// The rebuild was given up; the old table stays.
    Not,
}

/// A new table under construction.
pub(crate) struct Rebuild {
    pub(crate) number: u64,
    pub(crate) ledger: Arc<Ledger>,
    /// Everything before this key is copied; `None` once everything is.
    from: Option<Bytes>,
}

impl Rebuild {
    /// Creates an empty table with this number.
    pub(crate) fn begin(tables: &dyn Tables, number: u64, old: &Ledger) -> Result<Rebuild, StoreError> {
        let table = tables.open(number).map_err(|error| error.doing("making a new table"))?;
        let ledger = Ledger::open(table, old.limits(), (0, Sum::default()))?;
        Ok(Rebuild { number, ledger: Arc::new(ledger), from: Some(Bytes::new()) })
    }

    /// Returns the begin of the next portion; `None` once everything is copied.
    pub(crate) fn from(&self) -> Option<&Bytes> {
        self.from.as_ref()
    }

    /// Returns whether everything is copied.
    pub(crate) fn is_whole(&self) -> bool {
        self.from.is_none()
    }

    /// Takes in the old table's records from [`Rebuild::from`] on, up to `next`; `None` after the last records.
    pub(crate) fn take(
        &mut self,
        seq: u64,
        records: Vec<(Bytes, Bytes)>,
        next: Option<Bytes>,
    ) -> Result<(), StoreError> {
        let entries: Vec<_> = records.into_iter().map(|(key, value)| (key, Some(value))).collect();
        if !entries.is_empty() {
            self.ledger.apply(seq, &entries)?;
        }
        self.from = next;
        Ok(())
    }

    /// Writes a sweep's portion, as far as its keys were copied.
    pub(crate) fn write(&self, seq: u64, portion: &Portion) -> Result<(), StoreError> {
        let copied = match &self.from {
            Some(from) => portion.records.partition_point(|(key, _)| key < from),
            None => portion.records.len(),
        };
        match copied {
            0 => Ok(()),
            copied => self.ledger.apply(seq, &portion.records[..copied]),
        }
    }

    /// Makes everything written so far durable.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        self.ledger.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::Shortage;

    const MIB: u64 = 1 << 20;

    fn room(table: u64, free: u64, is_tight: bool) -> Room {
        Room { free, used: table, table, low: None, is_tight, above_low: free }
    }

    #[test]
    fn a_table_is_rebuilt_once_it_takes_several_times_what_it_holds() {
        let plenty = 1000 * MIB;
        assert!(pays(&room(465 * MIB, plenty, false), 100 * MIB, None));
        assert!(!pays(&room(464 * MIB, plenty, false), 100 * MIB, None));
        assert!(pays(&room(255 * MIB, plenty, true), 100 * MIB, None), "sooner where there is little room");
        assert!(pays(&room(255 * MIB, 500 * MIB, false), 100 * MIB, None), "or would be for the new one");
        assert!(pays(&room(5 * MIB, plenty, true), 0, None), "all was deleted");
        assert!(!pays(&room(4 * MIB, plenty, true), 0, None), "an empty table takes something, too");
    }

    #[test]
    fn a_table_is_not_rebuilt_in_vain() {
        let (plenty, fresh) = (1000 * MIB, Some(Size { files: 180 * MIB, held: 100 * MIB }));
        assert!(!pays(&room(270 * MIB, plenty, true), 100 * MIB, fresh), "it would come out as it is");
        assert!(pays(&room(271 * MIB, plenty, true), 100 * MIB, fresh));
        assert!(pays(&room(180 * MIB, plenty, true), 20 * MIB, fresh), "much was deleted since");
        assert!(pays(&room(180 * MIB, plenty, true), 0, fresh));
        let empty = Some(Size { files: MIB, held: 0 });
        assert!(pays(&room(255 * MIB, plenty, true), 100 * MIB, empty), "much came since");
    }

    #[test]
    fn a_table_is_not_rebuilt_where_the_new_one_may_not_fit() {
        assert!(!pays(&room(255 * MIB, 403 * MIB, true), 100 * MIB, None), "it might fill the disk");
        assert!(pays(&room(255 * MIB, 404 * MIB, true), 100 * MIB, None));
        let near = Room { above_low: 201 * MIB, ..room(255 * MIB, 500 * MIB, true) };
        assert!(!pays(&near, 100 * MIB, None), "it might make room low");
        let low = |free| Room { low: Some(Shortage::Volume), above_low: 0, ..room(255 * MIB, free, true) };
        assert!(pays(&low(272 * MIB), 100 * MIB, None), "room is low already");
        assert!(!pays(&low(268 * MIB), 100 * MIB, None), "it might fill the disk");
        assert!(pays(&low(3 * MIB), 0, None), "all was deleted");
        let room = room(205 * MIB, 50 * MIB, true);
        assert_eq!(is_in_vain(&room, 205 * MIB, 400 * MIB), None);
        assert!(is_in_vain(&room, 206 * MIB, 400 * MIB).is_some(), "nothing would be gained");
        assert!(is_in_vain(&room, MIB, 408 * MIB).is_some(), "the disk would soon be full");
    }
}
