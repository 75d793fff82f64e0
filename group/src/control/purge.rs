//! Purges of tombstones (hazard 14): first every member holds the tombstones, then the log has an entry, then each member drops its own.
//!
//! The leader searches its records for the highest generation among tombstones up to the numbers up to which all members have reported,
//! durably, to hold everything; it then proposes [`Entry::Purge`]. Each member that applies the entry searches its own records and drops
//! those that [`Purged::covers`]. A key that is created afterwards gets a generation above all of those. A member at that time then
//! installs no record below those numbers for a key that it does not hold. A later newcomer reads no window from before: it compares the
//! records that exist.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

use overlay::{Key, KeyRange};

use crate::ballot::{LogSlot, Number};
use crate::config::Defect;
use crate::control::state::{Entry, GroupState, Purge, Purged};
use crate::group::Group;
use crate::outbox::{Durable, GroupOutput};
use crate::record::Record;
use overlay::time::Time;

/// Token of the scans that look for tombstones in the store.
pub(crate) const PURGE: u64 = u64::MAX;
/// Records searched in one go.
const RECORDS: usize = 4_096;
/// Size of a page of the store, in bytes.
const BYTES: usize = 1 << 20;

/// Purpose of a search through the records.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Search {
    /// Proposes a purge up to these numbers.
    Floor { bounds: Vec<(KeyRange, Number)>, floor: u32, found: u64, kept: u64 },
    /// Drops the tombstones that a purge covers.
    Drop { kept: u64 },
}

/// Part of one member in purges.
#[derive(Clone, Debug)]
pub struct Purging {
    search: Option<Search>,
    /// Last key that was searched.
    after: Option<Key>,
    /// Whether a page of the store is on its way.
    reading: bool,
    /// Slot of the last purge of which this node has begun to drop all tombstones.
    done: LogSlot,
    /// Time when the leader searches again.
    due: Time,
    /// Number of tombstones dropped since the start.
    pub(crate) dropped: u64,
}

impl Purging {
    pub(crate) fn new(due: Time) -> Purging {
        Purging { search: None, after: None, reading: false, done: LogSlot(0), due, dropped: 0 }
    }

    /// Returns when [`Group::tick_purging`] has something to do.
    pub(crate) fn next_timeout(&self, now: Time) -> Time {
        if self.search.is_some() && !self.reading { now } else { self.due.max(now) }
    }

    fn begin(&mut self, search: Search) {
        (self.search, self.after, self.reading) = (Some(search), None, false);
    }
}

impl Group {
    /// Searches some more records, or begins to.
    pub(crate) fn tick_purging(&mut self) {
        let purged = self.state.purged.bounds.pieces(self.state.range);
        let last =
            purged.into_iter().filter_map(|(_, purge)| purge).map(|purge| purge.slot).max().unwrap_or(LogSlot(0));
        if last > self.purging.done {
            self.purging.done = last;
            self.begin_dropping();
        } else if self.purging.search.is_none() && self.now.time >= self.purging.due {
            self.purging.due = self.now.time + self.config.timing.purge_every;
            self.begin_search();
            if self.purging.search.is_none() && last > LogSlot(0) && self.table.has_deleted() {
                // A newcomer copies from members that have not dropped everything yet.
                self.begin_dropping();
            }
        }
        if self.purging.search.is_none() || self.purging.reading {
            return;
        }
        if self.table.is_whole() {
            let after = self.purging.after.clone();
            let records = self.table.scan(KeyRange::FULL, after.as_ref()).take(RECORDS + 1);
            let mut records: Vec<(Key, Arc<Record>)> =
                records.map(|(key, record)| (key.clone(), record.clone())).collect();
            let done = records.len() <= RECORDS;
            records.truncate(RECORDS);
            self.look_through(records, done);
        } else {
            self.purging.reading = true;
            self.table.watch_page();
            let from = self.purging.after.clone().map_or(Bound::Unbounded, Bound::Excluded);
            self.out.push_behind(GroupOutput::Scan(PURGE, from, BYTES));
        }
    }

    fn begin_dropping(&mut self) {
        self.table.set_deleted(false);
        self.purging.begin(Search::Drop { kept: 0 });
    }

    /// Begins the leader's search, where all members have reported their progress.
    fn begin_search(&mut self) {
        if !self.log.leads() || !self.table.has_deleted() || !self.state.is_settled() {
            return;
        }
        if let Some(bounds) = self.held_by_all() {
            self.table.set_deleted(false);
            self.purging.begin(Search::Floor { bounds, floor: 0, found: 0, kept: 0 });
        }
    }

    /// Returns, for each sub-range, the number up to which every member holds everything; `None` where a member lacks something.
    fn held_by_all(&self) -> Option<Vec<(KeyRange, Number)>> {
        let nodes = self.state.nodes();
        let early = self.config.defects.has(Defect::PurgeEarly);
        let asked = || nodes.iter().filter(|node| !early || **node == self.me);
        let bound = |(range, ballot): (KeyRange, crate::ballot::TermBallot)| {
            let marks = asked().map(|node| self.leader.mark(*node, ballot.term)).collect::<Option<Vec<u64>>>()?;
            Some((range, Number { term: ballot.term, n: marks.into_iter().min()? }))
        };
        self.state.parts().map(bound).collect()
    }

    /// Takes a page of the store.
    pub(crate) fn on_purge_page(&mut self, records: Vec<(Key, Arc<Record>)>, done: bool) {
        let touched = self.table.take_touched();
        if !core::mem::take(&mut self.purging.reading) {
            return;
        }
        let last = records.last().map(|(key, _)| key.clone());
        let records = records.into_iter().filter(|(key, _)| !touched.contains(key)).collect();
        self.look_through(records, done || last.is_none());
        if last.is_some() {
            self.purging.after = last;
        }
    }

    fn look_through(&mut self, records: Vec<(Key, Arc<Record>)>, done: bool) {
        self.purging.after = records.last().map(|(key, _)| key.clone()).or(self.purging.after.take());
        match self.purging.search.take() {
            Some(Search::Floor { bounds, mut floor, mut found, mut kept }) => {
                for (key, record) in records.iter().filter(|(_, record)| record.value.is_none()) {
                    let held =
                        |(piece, bound): &(KeyRange, Number)| piece.contains(key.point()) && record.number <= *bound;
                    if bounds.iter().any(held) {
                        floor = floor.max(record.version.generation);
                        found += u64::from(self.may_go(key, record));
                    }
                    kept += 1;
                }
                let search = Search::Floor { bounds, floor, found, kept };
                if done { self.end_search(search) } else { self.purging.search = Some(search) }
            }
            Some(Search::Drop { mut kept }) => {
                for (key, record) in records.into_iter().filter(|(_, record)| record.value.is_none()) {
                    if self.state.purged.covers(&key, &record) && self.table.purge(&key, &record) {
                        self.purging.dropped += 1;
                        self.out.persist(Durable::Purge(key));
                    } else {
                        kept += 1;
                    }
                }
                match done {
                    true if kept > 0 => self.table.set_deleted(true),
                    true => {}
                    false => self.purging.search = Some(Search::Drop { kept }),
                }
            }
            None => {}
        }
    }

    /// Returns whether a purge now would drop this tombstone.
    fn may_go(&self, key: &Key, record: &Record) -> bool {
        let mut purged = Purged { horizon: self.state.horizon, ..Purged::nothing() };
        let GroupState { applied: slot, epoch, .. } = self.state;
        purged.bounds.set(KeyRange::FULL, Some(Purge { slot, epoch, up_to: record.number }));
        purged.covers(key, record)
    }

    fn end_search(&mut self, search: Search) {
        let Search::Floor { bounds, floor, found, kept } = search else { return };
        if kept > 0 {
            self.table.set_deleted(true);
        }
        if found > 0 && self.log.is_busy() {
            // The other entries of such times may be on their way each time.
            self.purging.due = self.now.time + self.rng.duration_below(self.config.timing.purge_every);
        } else if found > 0 && self.log.leads() && self.state.is_settled() {
            let entry = Entry::Purge { epoch: self.state.epoch, bounds, floor };
            if entry.is_sound() {
                self.propose(entry); // Otherwise its tombstones stay: no member would accept the entry.
            }
        }
    }
}
