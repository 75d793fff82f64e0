//! Chosen records in memory: all of them where they fit, and the recently used ones where the store holds the rest.
//!
//! # Invariants
//! - Holds chosen records only. An accepted write that is not yet known to be chosen waits in its committee.
//! - A key that is not here is absent if the table is *whole*, and else unknown until it is loaded.
//! - Records that the store does not have yet, and keys that are being loaded, are never evicted.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

use overlay::{Key, KeyRange, Point, PointMap};

use crate::outbox::{GroupOutput, Outbox};
use crate::record::Record;

/// Result of a lookup of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The chosen record, or `None` if there certainly is none.
    Known(Option<Arc<Record>>),
    /// The record has to be loaded: ask again after [`Table::on_loaded`].
    Loading,
}

#[derive(Clone, Debug)]
struct Held {
    /// Size of the entry, in bytes, as the table counts it.
    bytes: u32,
    /// The record; `None`: the store was asked and has none.
    record: Option<Arc<Record>>,
    /// Whether it was used since the last look for victims.
    used: bool,
    /// Whether the store does not have it yet.
    pinned: bool,
}

/// Answers of the store that are still to come for a key.
#[derive(Clone, Copy, Debug)]
struct Loads {
    count: u8,
    urgent: bool,
}

/// Chosen records in memory.
#[derive(Clone, Debug)]
pub struct Table {
    held: PointMap<Key, Held>,
    loading: BTreeMap<Key, Loads>,
    bytes: usize,
    /// The part of `bytes` that completion records take.
    completion_bytes: usize,
    bytes_max: usize,
    whole: bool,
    /// Whether there is no store, so nothing may be evicted.
    alone: bool,
    /// Key behind which the next look for victims begins.
    hand: Option<Key>,
    /// Keys with new records since a read of a page of the store began; `None` if no page is read.
    touched: Option<BTreeSet<Key>>,
    /// Whether tombstones may be here, or in the store.
    deleted: bool,
    /// Number of records with a deadline that have come into memory so far.
    expiring: u64,
    /// Records chosen since the last call of [`Table::watch`]; `None` before the first.
    watched: Option<Vec<(Key, Arc<Record>)>>,
}

impl Table {
    /// Creates an empty table. `whole`: the store behind it is empty too, or there is none (`alone`).
    pub fn new(bytes_max: usize, whole: bool, alone: bool) -> Table {
        Table {
            held: PointMap::new(),
            loading: BTreeMap::new(),
            bytes: 0,
            completion_bytes: 0,
            bytes_max,
            whole,
            alone,
            hand: None,
            touched: None,
            deleted: !whole,
            expiring: 0,
            watched: None,
        }
    }

    /// Returns whether every record is in memory.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Returns whether the records exceed the limit of bytes. Only where nothing can be evicted.
    pub fn is_full(&self) -> bool {
        self.alone && self.bytes > self.bytes_max
    }

    /// Returns whether the records exceed seven eighths of the limit. Only where nothing can be evicted. A full member counts as full down
    /// to that mark, so its sub-ranges do not move back and forth.
    pub fn is_nearly_full(&self) -> bool {
        self.alone && self.bytes > self.bytes_max / 8 * 7
    }

    /// Returns whether ids of operations take more than the quarter of memory that they may. Only where nothing can be evicted.
    pub fn is_full_of_completions(&self) -> bool {
        self.alone && self.completion_bytes > self.bytes_max / 4
    }

    /// Returns the number of records in memory, tombstones included.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns whether no record is in memory.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns the approximate size of the records in memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns a key's chosen record. Asks the store where it has to, `urgent` if an operation waits for the record.
    pub fn get(&mut self, key: &Key, urgent: bool, out: &mut Outbox) -> Lookup {
        match self.peek(key) {
            Some(known) => Lookup::Known(known),
            None => {
                let loads = self.loading.entry(key.clone()).or_insert(Loads { count: 0, urgent: false });
                // A request that was not urgent may wait behind many others: the store is asked once more.
                if loads.count == 0 || (urgent && !loads.urgent) {
                    *loads = Loads { count: loads.count + 1, urgent };
                    out.push(GroupOutput::Load { key: key.clone(), urgent });
                }
                Lookup::Loading
            }
        }
    }

    /// Returns a key's chosen record if it is known without the store.
    pub fn peek(&mut self, key: &Key) -> Option<Option<Arc<Record>>> {
        match self.held.get_mut(key) {
            Some(held) => {
                held.used = true;
                Some(held.record.clone())
            }
            None if self.whole => Some(None),
            None => None,
        }
    }

    /// Puts a newly chosen record that the store does not know to be chosen: it stays in memory until [`Table::put_stored`] reports that
    /// the store knows. Older records are ignored.
    pub fn put(&mut self, key: &Key, record: Arc<Record>) {
        self.put_chosen(key, record, true);
    }

    /// Puts a chosen record that the store has, or was told to take. Older records are ignored.
    pub fn put_stored(&mut self, key: &Key, record: Arc<Record>) {
        self.put_chosen(key, record, false);
    }

    fn put_chosen(&mut self, key: &Key, record: Arc<Record>, pinned: bool) {
        if let Some(watched) = &mut self.watched {
            watched.push((key.clone(), record.clone()));
        }
        if let Some(touched) = &mut self.touched {
            touched.insert(key.clone());
        }
        self.insert(key, Some(record), pinned);
    }

    /// Notes records chosen from now on, for checks; returns those noted so far.
    pub fn watch(&mut self) -> Vec<(Key, Arc<Record>)> {
        self.watched.replace(Vec::new()).unwrap_or_default()
    }

    /// Returns all records in memory, for checks.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Arc<Record>)> {
        self.held.iter().filter_map(|(key, held)| held.record.as_ref().map(|record| (key, record)))
    }

    /// Takes the store's answer to a load. A record that was chosen meanwhile wins, and stays here until the last answer came, which may be
    /// older.
    pub fn on_loaded(&mut self, key: &Key, record: Option<Arc<Record>>) {
        if let Some(loads) = self.loading.get_mut(key) {
            loads.count -= 1;
            if loads.count == 0 {
                self.loading.remove(key);
            }
        }
        if !self.held.contains_key(key) {
            self.insert(key, record, false);
        }
    }

    /// Fills free memory with a page of the store's records that was read since no record was evicted. Returns whether there is still room.
    pub fn preload(&mut self, records: Vec<(Key, Arc<Record>)>) -> bool {
        for (key, record) in records {
            if self.bytes + record.bytes() > self.bytes_max {
                return false;
            }
            if !self.held.contains_key(&key) {
                self.insert(&key, Some(record), false);
            }
        }
        true
    }

    /// Begins to note the keys that get new records: a page of the store that is being read lacks these.
    pub fn watch_page(&mut self) {
        self.touched = Some(BTreeSet::new());
    }

    /// Returns the keys that got new records since [`Table::watch_page`].
    pub fn take_touched(&mut self) -> BTreeSet<Key> {
        self.touched.take().unwrap_or_default()
    }

    /// Returns whether there may be tombstones.
    pub fn has_deleted(&self) -> bool {
        self.deleted
    }

    /// Returns how many records with a deadline have come into memory so far: where this number rises, a value has come that may expire.
    pub fn expiring(&self) -> u64 {
        self.expiring
    }

    /// Notes that a search through all records begins (`false`), or that it found tombstones that stay (`true`). A tombstone that is put
    /// sets this, too.
    pub fn set_deleted(&mut self, deleted: bool) {
        self.deleted = deleted;
    }

    /// Drops exactly this record; the key may also be out of memory. Afterwards the key is known to have no record. Returns `false`, and
    /// changes nothing, where a newer record is there.
    pub fn purge(&mut self, key: &Key, record: &Record) -> bool {
        match self.held.get(key) {
            Some(held) if held.record.as_ref().is_some_and(|known| known.number != record.number) => return false,
            Some(_) => {
                let held = self.held.remove(key).expect("just seen");
                self.count_out(key, held.bytes);
            }
            None => {}
        }
        if !self.whole {
            // The store may still be asked, and has the record until this change is written.
            self.insert(key, None, false);
        }
        true
    }

    /// Takes out the records of a range, with the loads that are still to be answered there: the table of a group that is born of this one.
    pub fn take(&mut self, range: KeyRange) -> Table {
        let [start, end] = [range.start(), range.end()].map(Key::first_at);
        let mut held = self.held.split_off(&start);
        if range.is_full() {
            held = core::mem::take(&mut self.held).then(held);
        } else if start < end {
            self.held.append(held.split_off(&end));
        } else {
            let rest = self.held.split_off(&end);
            let first = core::mem::replace(&mut self.held, rest);
            held = first.then(held);
        }
        let loading = core::mem::take(&mut self.loading);
        let (loading, rest) = loading.into_iter().partition(|(key, _)| range.contains(key.point()));
        self.loading = rest;
        let (mut bytes, mut completion_bytes) = (0, 0);
        for (key, held) in held.iter() {
            bytes += held.bytes as usize;
            completion_bytes += if key.is_companion() { held.bytes as usize } else { 0 };
        }
        self.bytes -= bytes;
        self.completion_bytes -= completion_bytes;
        Table { held, loading, bytes, completion_bytes, hand: None, touched: None, watched: None, ..*self }
    }

    /// Adds records that were copied for a part of the range in which this table has none: the opposite of [`Table::take`]. Its keys lie on
    /// one side of point zero.
    pub fn add(&mut self, copied: Table) {
        self.bytes += copied.bytes;
        self.completion_bytes += copied.completion_bytes;
        self.whole &= copied.whole;
        self.deleted |= copied.deleted;
        self.expiring += copied.expiring;
        let first = copied.held.iter().next().map(|(first, _)| first.clone());
        if let Some(first) = first {
            let rest = self.held.split_off(&first);
            self.held.append(copied.held);
            self.held.append(rest);
        }
    }

    /// Removes the remembered operations from all records, to test the checks.
    pub(crate) fn forget_operations(&mut self) {
        let keys: Vec<Key> = self.held.iter().map(|(key, _)| key.clone()).collect();
        for key in keys {
            if let Some(record) = self.held.get_mut(&key).and_then(|held| held.record.as_mut()) {
                Arc::make_mut(record).done.clear();
            }
        }
    }

    /// Drops at least this many records, if there are as many: part by part, of a table that is not needed any more.
    pub fn shed(&mut self, count: usize) {
        self.held.shed(count);
    }

    /// Sets the limit of records in memory, in bytes; the next [`Table::evict`] drops the excess.
    pub fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Notes that every record of the store is in memory now.
    pub fn set_whole(&mut self) {
        self.whole = true;
    }

    /// Drops records that were not used lately until the rest fits. Returns whether a record was dropped.
    pub fn evict(&mut self) -> bool {
        if self.alone || self.bytes <= self.bytes_max {
            return false;
        }
        let mut evicted = false;
        // Twice round: the first look only clears the marks of use.
        let mut looks = self.held.len() * 2;
        while self.bytes > self.bytes_max && looks > 0 {
            looks -= 1;
            let behind = self.hand.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let Some((key, held)) = self.held.first_mut_from(behind) else {
                self.hand = None;
                continue;
            };
            let key = key.clone();
            self.hand = Some(key.clone());
            if held.pinned || self.loading.contains_key(&key) {
                continue;
            }
            if core::mem::take(&mut held.used) {
                continue;
            }
            let held = self.held.remove(&key).expect("just seen");
            self.count_out(&key, held.bytes);
            self.whole = false;
            evicted = true;
        }
        evicted
    }

    /// Returns point and size, in bytes, of the records in memory within an arc that does not cross point zero, in ring order.
    pub fn sizes(&self, arc: KeyRange) -> impl Iterator<Item = (Point, u32)> {
        let held = self.held.range_from(Bound::Included(&Key::first_at(arc.start())));
        held.take_while(move |(key, _)| arc.contains(key.point()))
            .filter(|(_, held)| held.record.is_some())
            .map(|(key, held)| (key.point(), held.bytes))
    }

    /// Returns records in memory within a range, in ring order, behind `after`; only complete where the table is whole.
    pub fn scan(&self, range: KeyRange, after: Option<&Key>) -> impl Iterator<Item = (&Key, &Arc<Record>)> {
        let first = Key::first_at(range.start());
        // A piece of an interval map never crosses point zero, so ring order is key order.
        self.held
            .range_from(after.map_or(Bound::Included(&first), Bound::Excluded))
            .take_while(move |(key, _)| range.contains(key.point()))
            .filter_map(|(key, held)| held.record.as_ref().map(|record| (key, record)))
    }

    /// Counts a record that leaves memory.
    fn count_out(&mut self, key: &Key, bytes: u32) {
        self.bytes -= bytes as usize;
        self.completion_bytes -= if key.is_companion() { bytes as usize } else { 0 };
    }

    fn insert(&mut self, key: &Key, record: Option<Arc<Record>>, pinned: bool) {
        self.deleted |= record.as_ref().is_some_and(|record| record.value.is_none());
        self.expiring += u64::from(record.as_ref().is_some_and(|record| record.deadline.is_some()));
        let bytes = size(key, record.as_deref()) as u32;
        match self.held.get_mut(key) {
            Some(held) => {
                if let (Some(known), Some(new)) = (&held.record, &record)
                    && known.number >= new.number
                {
                    held.pinned &= pinned || known.number > new.number;
                    return;
                }
                let before = core::mem::replace(&mut held.bytes, bytes);
                self.bytes = self.bytes - before as usize + bytes as usize;
                if key.is_companion() {
                    self.completion_bytes = self.completion_bytes - before as usize + bytes as usize;
                }
                *held = Held { bytes, record, used: true, pinned };
            }
            None => {
                self.bytes += bytes as usize;
                self.completion_bytes += if key.is_companion() { bytes as usize } else { 0 };
                self.held.insert(key.clone(), Held { bytes, record, used: false, pinned });
            }
        }
    }
}

fn size(key: &Key, record: Option<&Record>) -> usize {
    key.encoded().len() + 112 + record.map_or(0, Record::bytes)
}
