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
use crate::context::{Context, Facts};
use crate::control::leader::LeaderState;
use crate::control::log::Log;
use crate::control::state::{Entry, GroupState, Purge, Purged};
use crate::data::table::Table;
use crate::outbox::{Durable, GroupOutput, ScanToken};
use crate::record::Record;
use overlay::time::Time;

/// Token of the scans that look for tombstones in the store.
pub(crate) const PURGE: ScanToken = ScanToken(u64::MAX);
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

    /// Returns when [`Purging::tick`] has something to do.
    pub(crate) fn next_timeout(&self, now: Time) -> Time {
        if self.search.is_some() && !self.reading { now } else { self.due.max(now) }
    }

    fn begin(&mut self, search: Search) {
        (self.search, self.after, self.reading) = (Some(search), None, false);
    }

    /// Searches some more records, or begins to. Returns the entry that the leader is to propose.
    pub(crate) fn tick(
        &mut self,
        ctx: &mut Context<'_>,
        table: &mut Table,
        log: &Log,
        leader: &LeaderState,
    ) -> Option<Entry> {
        let purged = ctx.state.purged.bounds.pieces(ctx.state.range);
        let last =
            purged.into_iter().filter_map(|(_, purge)| purge).map(|purge| purge.slot).max().unwrap_or(LogSlot(0));
        if last > self.done {
            self.done = last;
            self.begin_dropping(table);
        } else if self.search.is_none() && ctx.now.time >= self.due {
            self.due = ctx.now.time + ctx.config.timing.purge_every;
            self.begin_search(ctx, table, log, leader);
            if self.search.is_none() && last > LogSlot(0) && table.has_deleted() {
                // A newcomer copies from members that have not dropped everything yet.
                self.begin_dropping(table);
            }
        }
        if self.search.is_none() || self.reading {
            return None;
        }
        if table.is_whole() {
            let after = self.after.clone();
            let records = table.scan(KeyRange::FULL, after.as_ref()).take(RECORDS + 1);
            let mut records: Vec<(Key, Arc<Record>)> =
                records.map(|(key, record)| (key.clone(), record.clone())).collect();
            let done = records.len() <= RECORDS;
            records.truncate(RECORDS);
            self.look_through(ctx, table, log, records, done)
        } else {
            self.reading = true;
            table.watch_page();
            let from = self.after.clone().map_or(Bound::Unbounded, Bound::Excluded);
            ctx.out.push_behind(GroupOutput::Scan(PURGE, from, BYTES));
            None
        }
    }

    fn begin_dropping(&mut self, table: &mut Table) {
        table.set_deleted(false);
        self.begin(Search::Drop { kept: 0 });
    }

    /// Begins the leader's search, where all members have reported their progress.
    fn begin_search(&mut self, ctx: &Context<'_>, table: &mut Table, log: &Log, leader: &LeaderState) {
        if !log.leads() || !table.has_deleted() || !ctx.state.is_settled() {
            return;
        }
        if let Some(bounds) = held_by_all(ctx.facts(), leader) {
            table.set_deleted(false);
            self.begin(Search::Floor { bounds, floor: 0, found: 0, kept: 0 });
        }
    }

    /// Takes a page of the store. Returns the entry that the leader is to propose.
    pub(crate) fn on_page(
        &mut self,
        ctx: &mut Context<'_>,
        table: &mut Table,
        log: &Log,
        records: Vec<(Key, Arc<Record>)>,
        done: bool,
    ) -> Option<Entry> {
        let touched = table.take_touched();
        if !core::mem::take(&mut self.reading) {
            return None;
        }
        let last = records.last().map(|(key, _)| key.clone());
        let records = records.into_iter().filter(|(key, _)| !touched.contains(key)).collect();
        let entry = self.look_through(ctx, table, log, records, done || last.is_none());
        if last.is_some() {
            self.after = last;
        }
        entry
    }

    fn look_through(
        &mut self,
        ctx: &mut Context<'_>,
        table: &mut Table,
        log: &Log,
        records: Vec<(Key, Arc<Record>)>,
        done: bool,
    ) -> Option<Entry> {
        self.after = records.last().map(|(key, _)| key.clone()).or(self.after.take());
        match self.search.take() {
            Some(Search::Floor { bounds, mut floor, mut found, mut kept }) => {
                for (key, record) in records.iter().filter(|(_, record)| record.value.is_none()) {
                    let held =
                        |(piece, bound): &(KeyRange, Number)| piece.contains(key.point()) && record.number <= *bound;
                    if bounds.iter().any(held) {
                        floor = floor.max(record.version.generation);
                        found += u64::from(may_go(ctx.state, key, record));
                    }
                    kept += 1;
                }
                let search = Search::Floor { bounds, floor, found, kept };
                if done {
                    return self.end_search(ctx, table, log, search);
                }
                self.search = Some(search);
            }
            Some(Search::Drop { mut kept }) => {
                for (key, record) in records.into_iter().filter(|(_, record)| record.value.is_none()) {
                    if ctx.state.purged.covers(&key, &record) && table.purge(&key, &record) {
                        self.dropped += 1;
                        ctx.out.persist(Durable::Purge(key));
                    } else {
                        kept += 1;
                    }
                }
                match done {
                    true if kept > 0 => table.set_deleted(true),
                    true => {}
                    false => self.search = Some(Search::Drop { kept }),
                }
            }
            None => {}
        }
        None
    }

    /// Ends the leader's search. Returns the purge that it is to propose.
    fn end_search(&mut self, ctx: &mut Context<'_>, table: &mut Table, log: &Log, search: Search) -> Option<Entry> {
        let Search::Floor { bounds, floor, found, kept } = search else { return None };
        if kept > 0 {
            table.set_deleted(true);
        }
        if found > 0 && log.is_busy() {
            // The other entries of such times may be on their way each time.
            self.due = ctx.now.time + ctx.rng.duration_below(ctx.config.timing.purge_every);
        } else if found > 0 && log.leads() && ctx.state.is_settled() {
            let entry = Entry::Purge { epoch: ctx.state.epoch, bounds, floor };
            // Otherwise its tombstones stay: no member would accept the entry.
            return entry.is_sound().then_some(entry);
        }
        None
    }
}

/// Returns, for each sub-range, the number up to which every member holds everything; `None` where a member lacks something.
fn held_by_all(facts: Facts<'_>, leader: &LeaderState) -> Option<Vec<(KeyRange, Number)>> {
    let nodes = facts.state.nodes();
    let early = facts.config.defects.has(Defect::PurgeEarly);
    let asked = || nodes.iter().filter(|node| !early || **node == facts.me);
    let bound = |(range, ballot): (KeyRange, crate::ballot::TermBallot)| {
        let marks = asked().map(|node| leader.mark(*node, ballot.term)).collect::<Option<Vec<u64>>>()?;
        Some((range, Number { term: ballot.term, n: marks.into_iter().min()? }))
    };
    facts.state.parts().map(bound).collect()
}

/// Returns whether a purge now would drop this tombstone.
fn may_go(state: &GroupState, key: &Key, record: &Record) -> bool {
    let mut purged = Purged { horizon: state.horizon, ..Purged::nothing() };
    let GroupState { applied: slot, epoch, .. } = *state;
    purged.bounds.set(KeyRange::FULL, Some(Purge { slot, epoch, up_to: record.number }));
    purged.covers(key, record)
}
