//! The write-behind: brings what the journal holds durably into the table, makes checkpoints, cuts the journal.
//!
//! What changed is gathered by record, the newest state of each ([`Index`](super::index::Index)). A *sweep* goes through
//! all that was gathered up to some frame of the journal, in the order of keys, and ends with a checkpoint as of that
//! frame. A record that has changed again since the sweep began is passed over: what it became stands in a later frame,
//! which the checkpoint leaves in the journal, and the next sweep brings it over. So a record that is changed all the time
//! is written once for each sweep, at most. What it was before stands in the journal only: no checkpoint is made before
//! what it became is durable.
//!
//! The order is everything. Journal durable, then table; table durable, then manifest; manifest durable, then the cut.
//! Until the next checkpoint the table may be newer than the manifest, in some records: all frames after the manifest's
//! are gone through again at a start, and bring every record that they changed to its last state.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::change::Meta;
use super::disk::Disk;
use super::error::StoreError;
use super::health::Health;
use super::index::Portion;
use super::ledger::Ledger;
use super::manifest::Manifest;
use super::pending::Pending;
use super::replay::From;
use super::segment::{SegmentName, Segments};

/// The table is flushed after so many portions, and before a checkpoint: its syncs hold up those of the journal. Not only
/// then: the less of sled's file is unwritten, the less a power cut can tear.
const UNFLUSHED_MAX: u32 = 32;

/// Works in one thread at a time; the journal and the readers go on meanwhile.
pub(crate) struct Behind {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) health: Arc<Health>,
    pub(crate) pending: Arc<Pending>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) segments: Arc<Segments>,
    /// The manifest as it is on disk, apart from its small entries.
    pub(crate) manifest: Manifest,
    /// All frames up to this one were taken in.
    pub(crate) seq: u64,
    /// The last batch in these frames.
    pub(crate) last: u64,
    /// The segments in use, each with the number of its first frame. Never empty.
    pub(crate) chain: VecDeque<(SegmentName, u64)>,
    /// Bytes of these frames in the journal.
    pub(crate) taken: u64,
    pub(crate) sweep: Option<Sweep>,
    /// Portions since the table was last flushed.
    pub(crate) unflushed: u32,
}

/// On its way into the table.
pub(crate) struct Sweep {
    /// All that was changed up to this frame is.
    seq: u64,
    /// The small entries as of then.
    meta: Meta,
    /// The last batch up to then.
    upto: u64,
    /// Bytes of the journal that the checkpoint will put behind itself.
    taken: u64,
    /// Goes on behind this key.
    after: Option<Bytes>,
    /// All is in the table, but for what was passed over.
    ended: bool,
    /// The newest of the batches that changed again what was passed over.
    passed: u64,
}

/// How far a sweep is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There is more to write.
    More,
    /// All is written, but the checkpoint waits until this batch is durable.
    Waits(u64),
    /// A checkpoint was made, or nothing is to be written down.
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

    /// Writes about `bytes_max` bytes of records, and begins a sweep if none is under way; at its end makes a checkpoint.
    pub(crate) fn step(&mut self, bytes_max: usize) -> Result<Progress, StoreError> {
        self.health.check()?;
        let worked = self.work(bytes_max);
        self.health.clone().note(worked)
    }

    /// Whether everything that was taken in is in the table and behind a checkpoint.
    pub(crate) fn is_level(&self) -> bool {
        self.sweep.is_none() && self.seq == self.manifest.from.seq
    }

    /// Makes the journal's next segment, if it is not there.
    pub(crate) fn prepare(&self) -> Result<(), StoreError> {
        self.health.check()?;
        self.health.note(self.segments.prepare())
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
        self.ledger.apply(self.seq, &portion.records)?;
        self.unflushed += 1;
        if self.unflushed >= UNFLUSHED_MAX {
            self.flush()?;
        }
        self.pending.written(portion);
        self.pending.meters.records(portion.records.len());
        Ok(())
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        if std::mem::take(&mut self.unflushed) > 0 {
            self.ledger.flush()?;
        }
        Ok(())
    }

    /// Ends the sweep, of which all is in the table, and cuts the journal.
    fn checkpoint(&mut self) -> Result<(), StoreError> {
        let Some(Sweep { seq, meta, taken, ended, .. }) = self.sweep.take() else { return Ok(()) };
        assert!(ended, "records up to frame {seq} are not in the table");
        self.flush()?;
        let keep = self.chain.iter().rposition(|(_, first_seq)| *first_seq <= seq).unwrap_or(0);
        let (segment, first_seq) = self.chain[keep];
        let (portions, sum) = self.ledger.stands();
        self.manifest.from = From { seq, segment: segment.id, first_seq };
        self.manifest.portions = portions;
        self.manifest.sum = sum;
        self.manifest.meta = meta;
        let written = self.manifest.write(&*self.disk);
        self.manifest.meta = Meta::new();
        written?;
        for (name, _) in self.chain.drain(..keep) {
            self.segments.retire(name)?;
        }
        self.pending.checkpointed(taken);
        self.pending.meters.checkpoint();
        Ok(())
    }
}
