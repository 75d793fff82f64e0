//! Sweep: records that no group here owns any more are dropped, little by little.

use alloc::vec::Vec;
use core::ops::Bound;
use core::time::Duration;

use bytes::Bytes;
use group::data::table::Table;
use overlay::time::Time;
use overlay::{Key, KeyRange};

use crate::api::Change;
use crate::replicas::keyspace::Walk;
use crate::replicas::storage::Space;
use crate::replicas::{LocalReplicas, Scan};

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

impl LocalReplicas {
    /// Returns the time at which there are records to drop.
    pub(crate) fn sweep_due(&self, now: Time) -> Time {
        let waits = self.sweep.waits || (self.sweep.part.is_none() && self.keyspace.leftover().is_none());
        let page = if waits { Time::NEVER } else { self.sweep.rests_until };
        if self.sweep.remains.is_empty() { page } else { page.min(now + SHED_EVERY) }
    }

    /// Drops some records in memory. Returns the next page to read, unless one is on its way; a node that is over reads none.
    pub(crate) fn go_on_sweeping(&mut self, now: Time, is_over: bool) -> Option<Scan> {
        if let Some(remains) = self.sweep.remains.last_mut() {
            remains.shed(SHED);
            if remains.is_empty() {
                self.sweep.remains.pop();
            }
        }
        if self.sweep.waits || is_over || now < self.sweep.rests_until {
            return None;
        }
        if self.sweep.part.is_none() {
            self.sweep.part = self.keyspace.leftover().map(|part| (part, Bound::Unbounded));
        }
        let (part, from) = self.sweep.part.clone()?;
        self.sweep.waits = true;
        let walk = Walk::new([part].into(), from, PAGE_BYTES);
        Some(Scan { of: None, walk })
    }

    /// Returns the changes that drop all records of a page.
    pub(crate) fn drop_leftovers(
        &mut self,
        now: Time,
        space: Space,
        records: Vec<(Key, Bytes)>,
        done: bool,
    ) -> Vec<Change> {
        self.sweep.waits = false;
        let Some((part, from)) = &mut self.sweep.part else { return Vec::new() };
        let part @ (generation, _) = *part;
        if let Some((last, _)) = records.last() {
            *from = Bound::Excluded(last.clone());
        }
        let mut changes: Vec<Change> =
            records.iter().map(|(key, _)| Change::DropRecord(space.record_key(generation, key))).collect();
        if !done {
            self.sweep.rests_until = now + PAGE_EVERY;
        } else {
            self.sweep.part = None;
            self.keyspace.swept(part);
            changes.push(space.keyspace(&self.keyspace));
        }
        changes
    }
}
