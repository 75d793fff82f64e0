//! Sweep: records that no group here owns any more are dropped, little by little.

use alloc::vec::Vec;
use core::ops::Bound;
use core::time::Duration;

use bytes::Bytes;
use group::data::table::Table;
use overlay::time::Time;
use overlay::{Key, KeyRange};

use crate::api::Change;
use crate::node::Node;
use crate::replicas::Scan;
use crate::replicas::keyspace::Walk;

/// Size of a page, in bytes.
const PAGE_BYTES: usize = 256 << 10;
/// Time between two pages, so that clients hardly notice.
const PAGE_EVERY: Duration = Duration::from_millis(50);
/// Number of records in memory that are dropped at a time, and the time that the loop has for other work then.
const SHED: usize = 1_000;
const SHED_EVERY: Duration = Duration::from_millis(2);

/// Progress of the sweep.
#[derive(Default)]
pub(crate) struct Sweep {
    /// Part that is being dropped, and the start of the next page.
    part: Option<((u8, KeyRange), Bound<Key>)>,
    /// Whether the store has not answered yet.
    waits: bool,
    /// Time before which no page is read.
    rests_until: Time,
    /// Tables of groups that this node has let go of.
    pub(crate) remains: Vec<Table>,
}

impl Node {
    /// Returns the time at which there are records to drop.
    pub(crate) fn sweep_due(&self) -> Time {
        let waits = self.sweep.waits || (self.sweep.part.is_none() && self.replicas.keyspace.leftover().is_none());
        let page = if waits { Time::NEVER } else { self.sweep.rests_until };
        if self.sweep.remains.is_empty() { page } else { page.min(self.now.time + SHED_EVERY) }
    }

    /// Drops some records in memory, and reads the next page, unless one is on its way.
    pub(crate) fn go_on_sweeping(&mut self) {
        if let Some(remains) = self.sweep.remains.last_mut() {
            remains.shed(SHED);
            if remains.is_empty() {
                self.sweep.remains.pop();
            }
        }
        if self.sweep.waits || self.stage.over || self.now.time < self.sweep.rests_until {
            return;
        }
        if self.sweep.part.is_none() {
            self.sweep.part = self.replicas.keyspace.leftover().map(|part| (part, Bound::Unbounded));
        }
        let Some((part, from)) = self.sweep.part.clone() else { return };
        self.sweep.waits = true;
        let walk = Walk::new([part].into(), from, PAGE_BYTES);
        self.scan(Scan { serial: 0, token: 0, walk });
    }

    /// Drops all records of a page.
    pub(crate) fn drop_leftovers(&mut self, records: Vec<(Key, Bytes)>, done: bool) {
        self.sweep.waits = false;
        let Some((part, from)) = &mut self.sweep.part else { return };
        let part @ (generation, _) = *part;
        if let Some((last, _)) = records.last() {
            *from = Bound::Excluded(last.clone());
        }
        let space = self.space();
        let mut changes: Vec<Change> =
            records.iter().map(|(key, _)| Change::DropRecord(space.record_key(generation, key))).collect();
        if !done {
            self.sweep.rests_until = self.now.time + PAGE_EVERY;
        } else {
            self.sweep.part = None;
            self.replicas.keyspace.swept(part);
            changes.push(space.keyspace(&self.replicas.keyspace));
        }
        if changes.is_empty() {
            return;
        }
        self.cx().persist_own(changes);
    }
}
