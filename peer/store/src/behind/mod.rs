//! The write-behind: writes the journal's durable changes to the table, makes checkpoints, cuts the journal.
//!
//! Changes are gathered by record, the newest state of each ([`Index`](crate::behind::index::Index)). A *sweep* goes through all changes that
//! were gathered up to some frame of the journal, in the order of keys. It ends with a checkpoint as of that frame. The sweep passes
//! over a record that has changed again since the sweep began: the new state stands in a later frame. The checkpoint leaves that frame
//! in the journal, and the next sweep writes the record. So a record that changes all the time is written once for each sweep, at most.
//! Its earlier state stands in the journal only: no checkpoint is made before the new state is durable.
//!
//! The order is essential. Journal durable, then table; table durable, then manifest; manifest durable, then the cut. Until the next
//! checkpoint some records of the table may be newer than the manifest. A start replays all frames after the manifest's frame, and so
//! brings every record that they changed to its last state.
//!
//! The table itself may be rebuilt meanwhile: see [`rebuild`](crate::table::rebuild).

pub(crate) mod index;
pub(crate) mod pending;
pub(crate) mod turns;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use crate::behind::index::Portion;
use crate::behind::pending::PendingWrites;
use crate::change::Meta;
use crate::disk::Disk;
use crate::error::StoreError;
use crate::health::Health;
use crate::journal::replay::From;
use crate::journal::segment::{SegmentName, Segments};
use crate::manifest::Manifest;
use crate::table::Tables;
use crate::table::ledger::Ledger;
use crate::table::rebuild::{Copied, Current, Rebuild};

/// Portions after which the table is flushed, with its files for large pages; a checkpoint also flushes it. sled's own file is already
/// synced with each portion ([`durable_range`](crate::table::durable_range)).
const UNFLUSHED_MAX: u32 = 32;

/// State of the write-behind. It works in one thread at a time, while the journal and the readers continue.
pub(crate) struct Behind {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) health: Arc<Health>,
    pub(crate) pending: Arc<PendingWrites>,
    pub(crate) tables: Arc<dyn Tables>,
    /// The table that the manifest names.
    pub(crate) current: Arc<Current>,
    /// The table that shall replace the current table.
    pub(crate) rebuild: Option<Rebuild>,
    /// The table before the current table, with its number, until no reader uses it any more.
    pub(crate) former: Option<(u64, Arc<Ledger>)>,
    /// The highest number of a table.
    pub(crate) newest: u64,
    pub(crate) segments: Arc<Segments>,
    /// The manifest as it is on disk, apart from its small entries.
    pub(crate) manifest: Manifest,
    /// The last frame that was taken in, with all frames before it.
    pub(crate) seq: u64,
    /// Number of the last batch in these frames.
    pub(crate) last: u64,
    /// The segments in use, each with the number of its first frame. Never empty.
    pub(crate) chain: VecDeque<(SegmentName, u64)>,
    /// Bytes of these frames in the journal.
    pub(crate) taken: u64,
    pub(crate) sweep: Option<Sweep>,
    /// Portions since the table was last flushed.
    pub(crate) unflushed: u32,
}

/// A sweep on its way into the table.
pub(crate) struct Sweep {
    /// The sweep covers all changes up to this frame.
    seq: u64,
    /// The small entries as of that frame.
    meta: Meta,
    /// Number of the last batch up to that frame.
    upto: u64,
    /// Bytes of the journal that the checkpoint will put behind itself.
    taken: u64,
    /// The sweep continues behind this key.
    after: Option<Bytes>,
    /// Everything is in the table, except the records that were passed over.
    ended: bool,
    /// The newest of the batches that changed passed-over records again.
    passed: u64,
}

/// Progress of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More records have to be written.
    More,
    /// All records are written, but the checkpoint waits until this batch is durable.
    Waits(u64),
    /// A checkpoint was made, or there was nothing to write.
    Done,
}

impl Behind {
    /// Takes in the frames that have become durable.
    pub(crate) fn take_in(&mut self) {
        let mut bytes = 0;
        while let Some(frame) = self.pending.pop() {
            assert_eq!(frame.seq, self.seq + 1, "frames come in order");
            self.seq = frame.seq;
            self.taken += frame.bytes;
            if self.chain.back().is_none_or(|(newest, _)| newest.id < frame.segment.id) {
                self.chain.push_back((frame.segment, frame.seq));
            }
            self.last = frame.batches.last().map_or(self.last, |batch| batch.number);
            bytes += frame.weight();
        }
        if bytes > 0 {
            self.pending.taken_in(self.last, bytes);
        }
    }

    /// Writes about `bytes_max` bytes of records, and begins a sweep if none is under way; makes a checkpoint at its end.
    pub(crate) fn step(&mut self, bytes_max: usize) -> Result<Progress, StoreError> {
        self.health.check()?;
        let worked = self.work(bytes_max);
        self.health.clone().note(worked)
    }

    /// Returns whether everything that was taken in is in the table and behind a checkpoint.
    pub(crate) fn is_level(&self) -> bool {
        let waits = self.rebuild.as_ref().is_some_and(Rebuild::is_whole);
        self.sweep.is_none() && self.seq == self.manifest.from.seq && !waits
    }

    /// Copies about `bytes_max` bytes of the table into a new table, which is begun if there is none.
    pub(crate) fn rebuild(&mut self, bytes_max: usize) -> Result<Copied, StoreError> {
        self.health.check()?;
        let copied = self.copy(bytes_max);
        self.health.clone().note(copied)
    }

    /// Returns the bytes on disk of the tables beside the table that is read.
    pub(crate) fn beside(&self) -> Result<u64, StoreError> {
        let new = self.rebuild.as_ref().map(|rebuild| &rebuild.ledger);
        let former = self.former.as_ref().map(|(_, ledger)| ledger);
        new.into_iter().chain(former).map(|ledger| ledger.disk_bytes()).sum()
    }

    /// Ends the write-behind, and leaves no unused table behind.
    pub(crate) fn end(mut self) {
        if self.health.check().is_ok() {
            if self.rebuild.take().is_some() {
                self.remove(self.newest);
            }
            self.remove_former();
        }
    }

    /// Returns the bytes that the new table takes, where a rebuild is under way.
    pub(crate) fn new_bytes(&self) -> Result<Option<u64>, StoreError> {
        self.rebuild.as_ref().map(|rebuild| rebuild.ledger.disk_bytes()).transpose()
    }

    /// Gives up a rebuild, or the beginning of one: the old table stays.
    pub(crate) fn give_up(&mut self, why: &str) {
        tracing::warn!(why, "the store's table could not be rebuilt: it stays unchanged for now");
        self.pending.meters.give_up();
        self.rebuild = None;
        self.remove(self.newest);
    }

    /// Makes the journal's next segments, if they do not exist and there is room, and removes a table that no reader uses any more.
    pub(crate) fn prepare(&mut self) -> Result<(), StoreError> {
        self.health.check()?;
        self.remove_former();
        if !self.health.note(self.segments.prepare())? {
            self.pending.meters.unprepared();
        }
        Ok(())
    }

    fn work(&mut self, bytes_max: usize) -> Result<Progress, StoreError> {
        self.take_in();
        if self.is_level() {
            return Ok(Progress::Done);
        }
        let sweep = self.sweep.get_or_insert_with(|| Sweep {
            seq: self.seq,
            meta: self.pending.meta_taken_in(),
            upto: self.last,
            taken: std::mem::take(&mut self.taken),
            after: None,
            ended: false,
            passed: 0,
        });
        if !sweep.ended {
            let portion = self.pending.portion(sweep.after.as_ref(), sweep.upto, bytes_max);
            sweep.passed = sweep.passed.max(portion.passed);
            sweep.ended = portion.last.is_none();
            sweep.after.clone_from(&portion.last);
            self.write(&portion)?;
        }
        match &self.sweep {
            Some(Sweep { ended: false, .. }) => Ok(Progress::More),
            Some(Sweep { passed, .. }) if *passed > self.last => Ok(Progress::Waits(*passed)),
            _ => self.checkpoint().map(|()| Progress::Done),
        }
    }

    fn write(&mut self, portion: &Portion) -> Result<(), StoreError> {
        if portion.records.is_empty() {
            return Ok(());
        }
        self.current.get().apply(self.seq, &portion.records)?;
        if let Some(rebuild) = &self.rebuild {
            let written = rebuild.write(self.seq, portion);
            self.or_give_up(written);
        }
        self.wrote()?;
        self.pending.written(portion);
        self.pending.meters.records(portion.records.len());
        Ok(())
    }

    fn copy(&mut self, bytes_max: usize) -> Result<Copied, StoreError> {
        self.remove_former();
        let old = self.current.get();
        if self.rebuild.is_none() {
            self.newest += 1;
            let begun = Rebuild::begin(&*self.tables, self.newest, &old);
            self.rebuild = self.or_give_up(begun);
        }
        if let Some(from) = self.rebuild.as_ref().and_then(Rebuild::from) {
            let (records, next) = old.copy(from, bytes_max)?;
            let taken = self.rebuild.as_mut().map_or(Ok(()), |rebuild| rebuild.take(self.seq, records, next));
            self.or_give_up(taken);
            self.wrote()?;
        }
        Ok(match &self.rebuild {
            None => Copied::Not,
            Some(rebuild) if rebuild.is_whole() => Copied::All,
            Some(_) => Copied::More,
        })
    }

    /// Returns the result of work on the new table; gives the new table up where that work failed. No state depends on it yet.
    fn or_give_up<T>(&mut self, result: Result<T, StoreError>) -> Option<T> {
        result.inspect_err(|error| self.give_up(&error.to_string())).ok()
    }

    /// Removes the former table, if no reader uses it any more.
    pub(crate) fn remove_former(&mut self) {
        if let Some((number, ledger)) = self.former.take_if(|(_, ledger)| Arc::strong_count(ledger) == 1) {
            drop(ledger);
            self.remove(number);
        }
    }

    /// Removes a table that is not in use. If that fails, the next start removes it.
    fn remove(&self, number: u64) {
        if let Err(error) = self.tables.remove(number) {
            tracing::warn!(%error, number, "a table of the store that is not used any more cannot be removed");
            self.pending.meters.not_removed();
        }
    }

    /// Counts one more written portion, and flushes the table where that is due.
    fn wrote(&mut self) -> Result<(), StoreError> {
        self.unflushed += 1;
        if self.unflushed >= UNFLUSHED_MAX { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        if std::mem::take(&mut self.unflushed) > 0 {
            self.current.get().flush()?;
            if let Some(rebuild) = &self.rebuild {
                let flushed = rebuild.flush();
                self.or_give_up(flushed);
            }
        }
        Ok(())
    }

    /// Ends the sweep, whose records are all in the table, and cuts the journal.
    fn checkpoint(&mut self) -> Result<(), StoreError> {
        let Some(Sweep { seq, meta, taken, ended, .. }) = self.sweep.take() else { return Ok(()) };
        assert!(ended, "records up to frame {seq} are not in the table");
        self.flush()?;
        let keep = self.chain.iter().rposition(|(_, first_seq)| *first_seq <= seq).unwrap_or(0);
        let (segment, first_seq) = self.chain[keep];
        // From here on the new table is the store's table: it durably has everything that the old table has.
        let rebuilt = self.rebuild.take_if(|rebuild| rebuild.is_whole());
        let before = self.manifest.table;
        if let Some(rebuild) = &rebuilt {
            self.manifest.table = rebuild.number;
        }
        let (portions, sum) = rebuilt.as_ref().map_or_else(|| self.current.get().stands(), |new| new.ledger.stands());
        self.manifest.from = From { seq, segment: segment.id, first_seq };
        self.manifest.portions = portions;
        self.manifest.sum = sum;
        self.manifest.meta = meta;
        let written = self.manifest.write(&*self.disk);
        self.manifest.meta = Meta::new();
        written?;
        if let Some(Rebuild { ledger, .. }) = rebuilt {
            self.former = Some((before, self.current.replace(ledger)));
            self.pending.meters.rebuild();
        }
        for (name, _) in self.chain.drain(..keep) {
            self.segments.retire(name)?;
        }
        self.pending.checkpointed(taken);
        self.pending.meters.checkpoint();
        Ok(())
    }
}
