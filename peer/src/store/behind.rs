//! The write-behind: brings what the journal holds durably into the table, makes checkpoints, cuts the journal.
//!
//! What changed is gathered by record, the newest state of each. A *sweep* goes through all that was gathered up to some
//! frame of the journal, in the order of keys, and ends with a checkpoint as of that frame. A record that has changed
//! again since the sweep began is passed over: what it became stands in a later frame, which the checkpoint leaves in the
//! journal, and the next sweep brings it over. So a record that is changed all the time is written once for each sweep, at most.
//!
//! The order is everything. Journal durable, then table; table durable, then manifest; manifest durable, then the cut.
//! Until the next checkpoint the table may be newer than the manifest, in some records: all frames after the manifest's
//! are gone through again at a start, and bring every record that they changed to its last state.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use super::change::{Meta, apply};
use super::disk::Disk;
use super::error::StoreError;
use super::health::Health;
use super::ledger::Ledger;
use super::manifest::Manifest;
use super::pending::{CHANGE_WEIGHT, Pending};
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
    /// The small entries as of frame `seq`.
    pub(crate) meta: Meta,
    /// Records changed by frames that were taken in and are not part of the sweep.
    pub(crate) dirty: Dirty,
    /// The segments in use, each with the number of its first frame. Never empty.
    pub(crate) chain: VecDeque<(SegmentName, u64)>,
    /// Bytes of these frames in the journal.
    pub(crate) taken: u64,
    pub(crate) sweep: Option<Sweep>,
    /// Portions since the table was last flushed.
    pub(crate) unflushed: u32,
}

/// Changed records by their keys.
pub(crate) type Dirty = BTreeMap<Bytes, State>;

/// The newest durable state of a record; `None` is dropped.
pub(crate) struct State {
    /// The batch that made it so.
    batch: u64,
    value: Option<Bytes>,
}

/// On its way into the table.
pub(crate) struct Sweep {
    /// All that was changed up to this frame is.
    seq: u64,
    /// The small entries as of then.
    meta: Meta,
    /// Bytes of the journal that the checkpoint will put behind itself.
    taken: u64,
    /// What is not yet in the table.
    rest: Dirty,
}

impl Behind {
    /// Takes in the frames that have become durable.
    pub(crate) fn take_in(&mut self) {
        while let Some(frame) = self.pending.pop() {
            assert_eq!(frame.seq, self.seq + 1, "frames come in order");
            self.seq = frame.seq;
            self.taken += frame.bytes;
            if self.chain.back().is_none_or(|(newest, _)| newest.id < frame.segment.id) {
                self.chain.push_back((frame.segment, frame.seq));
            }
            let (mut more, mut less) = (0, 0);
            for batch in &frame.batches {
                for change in &batch.changes {
                    apply(&mut self.meta, change, |key, value| {
                        let key_bytes = key.len();
                        more += weight(key_bytes, &value);
                        let before = self.dirty.insert(key, State { batch: batch.number, value });
                        less += before.map_or(0, |before| weight(key_bytes, &before.value));
                    });
                }
            }
            self.pending.taken_in(&frame, more, less);
        }
    }

    /// Writes about `bytes_max` bytes of records, and begins a sweep if none is under way; at its end makes a checkpoint
    /// and says `false`, as it does when there is nothing to write down.
    pub(crate) fn step(&mut self, bytes_max: usize) -> Result<bool, StoreError> {
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

    fn work(&mut self, bytes_max: usize) -> Result<bool, StoreError> {
        self.take_in();
        if self.is_level() {
            return Ok(false);
        }
        let sweep = self.sweep.get_or_insert_with(|| Sweep {
            seq: self.seq,
            meta: self.meta.clone(),
            taken: std::mem::take(&mut self.taken),
            rest: std::mem::take(&mut self.dirty),
        });
        let (mut portion, mut batches, mut bytes, mut passed) = (Vec::new(), Vec::new(), 0, 0);
        while bytes < bytes_max
            && let Some((key, State { batch, value })) = sweep.rest.pop_first()
        {
            let weight = weight(key.len(), &value);
            if self.dirty.contains_key(&key) {
                passed += weight;
                continue;
            }
            bytes += weight;
            portion.push((key, value));
            batches.push(batch);
        }
        let goes_on = !sweep.rest.is_empty();
        if !portion.is_empty() {
            self.ledger.apply(self.seq, &portion)?;
            self.unflushed += 1;
            if self.unflushed >= UNFLUSHED_MAX {
                self.flush()?;
            }
        }
        self.pending.applied(bytes + passed, portion.iter().map(|(key, _)| key).zip(batches));
        if !goes_on {
            self.checkpoint()?;
        }
        Ok(goes_on)
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        if std::mem::take(&mut self.unflushed) > 0 {
            self.ledger.flush()?;
        }
        Ok(())
    }

    /// Ends the sweep, of which all is in the table, and cuts the journal.
    fn checkpoint(&mut self) -> Result<(), StoreError> {
        let Some(Sweep { seq, meta, taken, rest }) = self.sweep.take() else { return Ok(()) };
        assert!(rest.is_empty(), "{} records of the sweep are not in the table", rest.len());
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
        Ok(())
    }
}

fn weight(key_bytes: usize, value: &Option<Bytes>) -> usize {
    CHANGE_WEIGHT + key_bytes + value.as_ref().map_or(0, Bytes::len)
}
