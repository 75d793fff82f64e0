//! The write-behind: brings what the journal holds durably into the table, makes checkpoints, cuts the journal.
//!
//! The order is everything. Journal durable, then table; table durable, then manifest; manifest durable, then the cut.
//! A power cut between any two of them leaves the older of both states and the journal to bring it forward.

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

/// One portion goes through so many times its own bytes of changes, where later ones overwrite earlier ones.
const OVERWRITTEN_MAX: usize = 8;
/// The table is flushed after so many portions, before a checkpoint, and when nothing is left to write: its syncs hold up
/// those of the journal.
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
    /// The small entries as of frame `seq`.
    pub(crate) meta: Meta,
    /// All frames up to this one are in the table and in `meta`.
    pub(crate) seq: u64,
    /// The segments in use, each with the number of its first frame. Never empty.
    pub(crate) chain: VecDeque<(SegmentName, u64)>,
    /// Bytes of the frames behind the last checkpoint that were taken from the queue.
    pub(crate) taken: u64,
    /// Portions since the table was last flushed.
    pub(crate) unflushed: u32,
}

impl Behind {
    /// Writes about `bytes_max` bytes of waiting changes, each record once; `false` if there were none.
    pub(crate) fn step(&mut self, bytes_max: usize) -> Result<bool, StoreError> {
        self.health.check()?;
        let worked = self.work(bytes_max);
        self.health.clone().note(worked)
    }

    /// Makes a checkpoint of everything that [`Behind::step`] has brought over, and cuts the journal.
    pub(crate) fn checkpoint(&mut self) -> Result<(), StoreError> {
        self.health.check()?;
        let made = self.make_checkpoint();
        self.health.clone().note(made)
    }

    /// Makes the journal's next segment, if it is not there.
    pub(crate) fn prepare(&self) -> Result<(), StoreError> {
        self.health.check()?;
        self.health.note(self.segments.prepare())
    }

    fn work(&mut self, bytes_max: usize) -> Result<bool, StoreError> {
        let (mut frames, mut records, mut bytes, mut seen) = (Vec::new(), BTreeMap::new(), 0, 0);
        while bytes < bytes_max
            && seen < bytes_max * OVERWRITTEN_MAX
            && let Some(frame) = self.pending.pop()
        {
            assert_eq!(frame.seq, self.seq + 1, "frames come in order");
            self.seq = frame.seq;
            self.taken += frame.bytes;
            if self.chain.back().is_none_or(|(newest, _)| newest.id < frame.segment.id) {
                self.chain.push_back((frame.segment, frame.seq));
            }
            for batch in &frame.batches {
                for change in &batch.changes {
                    apply(&mut self.meta, change, |key, value| {
                        let weight = CHANGE_WEIGHT + key.len();
                        let length = |value: &Option<Bytes>| value.as_ref().map_or(0, Bytes::len);
                        bytes += weight + length(&value);
                        seen += weight + length(&value);
                        if let Some(overwritten) = records.insert(key, value) {
                            bytes -= weight + length(&overwritten);
                        }
                    });
                }
            }
            frames.push(frame);
        }
        if frames.is_empty() {
            self.flush()?;
            return Ok(false);
        }
        if !records.is_empty() {
            self.ledger.apply(self.seq, &records)?;
            self.unflushed += 1;
            // Not as late as the next checkpoint: the less of sled's file is unwritten, the less a power cut can tear.
            if self.unflushed >= UNFLUSHED_MAX {
                self.flush()?;
            }
        }
        self.pending.applied(&frames, records.keys());
        Ok(true)
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        if std::mem::take(&mut self.unflushed) > 0 {
            self.ledger.flush()?;
        }
        Ok(())
    }

    fn make_checkpoint(&mut self) -> Result<(), StoreError> {
        if self.seq == self.manifest.from.seq {
            return Ok(());
        }
        self.flush()?;
        let keep = self.chain.iter().rposition(|(_, first_seq)| *first_seq <= self.seq).unwrap_or(0);
        let (segment, first_seq) = self.chain[keep];
        let (table_seq, sum) = self.ledger.stands();
        self.manifest.from = From { seq: self.seq, segment: segment.id, first_seq };
        self.manifest.table_seq = table_seq;
        self.manifest.sum = sum;
        // Lent for the writing, so that several megabytes are not copied.
        self.manifest.meta = std::mem::take(&mut self.meta);
        let written = self.manifest.write(&*self.disk);
        self.meta = std::mem::take(&mut self.manifest.meta);
        written?;
        for (name, _) in self.chain.drain(..keep) {
            self.segments.retire(name)?;
        }
        self.pending.checkpointed(std::mem::take(&mut self.taken));
        Ok(())
    }
}
