//! Batches that the table does not hold yet: on their way to the journal, and behind it.
//!
//! Loads and scans see a batch from the moment it is handed out ([`PendingWrites::stage`]). A batch waits in a queue once the
//! journal holds it durably, and leaves when it is in the table. Staging costs the loop one short lock; the next lookup or
//! the write-behind sorts the records into the index.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use environment::lock;
use node::Change;

use crate::behind::index::{Index, Portion};
use crate::change::Meta;
use crate::codec::batch_bytes;
use crate::journal::segment::SegmentName;
use crate::meters::{Meters, StoreStats};

/// Index entries that are changed or visited under one hold of the index's lock, so that a load does not wait long.
const HOLD_MAX: usize = 256;
/// Bytes that may be left for a load to sort into the index: the write-behind sorts in more than that.
const UNSORTED_MAX: usize = 1 << 20;

/// Memory that a change takes beside its own bytes, in bytes: two handles, their counts, a place in the index.
pub(crate) const CHANGE_WEIGHT: usize = 128;

/// A batch that was handed out.
#[derive(Debug)]
pub struct Batch {
    /// Number of the batch: batches are numbered from 1 as they are handed out.
    pub(crate) number: u64,
    pub(crate) changes: Vec<Change>,
    /// Upper bound of the batch's length in the journal, in bytes.
    pub(crate) bytes: usize,
}

impl Batch {
    /// Returns the bytes that the batch counts for while it is kept in memory.
    fn weight(&self) -> usize {
        self.bytes + CHANGE_WEIGHT * self.changes.len()
    }
}

/// A frame that the journal holds durably.
pub(crate) struct Durable {
    pub(crate) seq: u64,
    pub(crate) segment: SegmentName,
    /// Bytes in the journal.
    pub(crate) bytes: u64,
    pub(crate) batches: Vec<Arc<Batch>>,
}

impl Durable {
    /// Returns the bytes that its batches count for in memory.
    pub(crate) fn weight(&self) -> usize {
        self.batches.iter().map(|batch| batch.weight()).sum()
    }
}

/// Batches that the table does not hold yet, shared by the loop, the journal, the readers and the write-behind.
pub(crate) struct PendingWrites {
    inbox: Mutex<StagedBatches>,
    index: Mutex<Index>,
    queue: Mutex<DurableFrames>,
    /// Bytes of records in the index that could be written to the table by now.
    gathered: AtomicUsize,
    /// Counters of past events.
    pub(crate) meters: Meters,
    /// Signals that the queue grew past its mark, or that a thread of the store ended.
    work: Condvar,
    /// Signals that the queue shrank, or that a thread of the store ended.
    room: Condvar,
}

/// Batches that are staged, but not yet in the index.
#[derive(Default)]
struct StagedBatches {
    last: u64,
    batches: Vec<Arc<Batch>>,
}

/// Frames that are durable, but not yet taken in by the write-behind.
#[derive(Default)]
struct DurableFrames {
    frames: VecDeque<Durable>,
    /// Bytes of the frames' batches.
    bytes: usize,
    /// Bytes of the journal behind the last checkpoint.
    backlog: u64,
    /// Amounts of `bytes` and `backlog` that are allowed even beyond the store's limits: see [`PendingWrites::begin`].
    allowed: (usize, u64),
    room: (usize, u64),
    /// Id of the newest segment; when it changes, the write-behind should make the segment after it.
    segment: u64,
    /// Whether the write-behind has to act at once.
    called: bool,
    /// Bytes since the last request to the write-behind to sort them into the index.
    unsorted: usize,
    /// Number of the last durable batch.
    durable: u64,
    /// A checkpoint waits until this batch is durable. Commits up to it do not wait for room, because the checkpoint makes
    /// room.
    awaited: u64,
    /// No caller waits any more.
    ended: bool,
}

impl DurableFrames {
    /// Returns whether commits must wait, where `gathered` bytes are in the index.
    fn is_full(&self, gathered: usize, bytes_max: usize, backlog_max: u64) -> bool {
        let much = self.bytes + gathered >= bytes_max.max(self.allowed.0);
        self.durable >= self.awaited && (much || self.backlog >= backlog_max.max(self.allowed.1))
    }

    fn shrink_allowed(&mut self, gathered: usize) {
        self.allowed.0 = self.allowed.0.min(self.bytes + gathered + self.room.0);
        self.allowed.1 = self.allowed.1.min(self.backlog + self.room.1);
    }
}

impl PendingWrites {
    /// Creates an empty set of pending batches, on top of these small entries.
    pub(crate) fn new(meta: Meta) -> PendingWrites {
        PendingWrites {
            inbox: Mutex::default(),
            index: Mutex::new(Index::new(meta)),
            queue: Mutex::default(),
            gathered: AtomicUsize::new(0),
            meters: Meters::default(),
            work: Condvar::new(),
            room: Condvar::new(),
        }
    }

    /// Hands out a batch: every load and scan sees it from now on.
    pub(crate) fn stage(&self, changes: Vec<Change>) -> Arc<Batch> {
        let bytes = batch_bytes(&changes);
        let mut inbox = lock(&self.inbox);
        inbox.last += 1;
        let batch = Arc::new(Batch { number: inbox.last, changes, bytes });
        inbox.batches.push(batch.clone());
        batch
    }

    /// Returns the newest state of a record: `None` if no pending batch changes it, `Some(None)` if one drops it.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<Bytes>> {
        self.settled().get(key)
    }

    /// Returns pending records from `from` on, up to about `bytes_max` bytes, and whether no record follows.
    pub(crate) fn page(&self, from: &[u8], bytes_max: usize) -> (Vec<(Bytes, Option<Bytes>)>, bool) {
        self.settled().page(from, bytes_max)
    }

    /// Takes in a frame that is now durable. Wakes the write-behind when `mark` bytes wait, at each new segment, when
    /// `UNSORTED_MAX` bytes are unsorted, and when the awaited batch is durable.
    pub(crate) fn push(&self, frame: Durable, mark: usize) {
        let mut queue = lock(&self.queue);
        let before = queue.bytes;
        let bytes = frame.weight();
        queue.bytes += bytes;
        queue.unsorted += bytes;
        queue.backlog += frame.bytes;
        let awaited = queue.durable < queue.awaited;
        queue.durable = frame.batches.last().map_or(queue.durable, |batch| batch.number);
        let came = awaited && queue.durable >= queue.awaited;
        let rolled = std::mem::replace(&mut queue.segment, frame.segment.id) != frame.segment.id;
        queue.frames.push_back(frame);
        if rolled || came || queue.unsorted >= UNSORTED_MAX || (before < mark && queue.bytes >= mark) {
            queue.unsorted = 0;
            queue.called = true;
            self.work.notify_all();
        }
    }

    /// Removes and returns the oldest frame.
    pub(crate) fn pop(&self) -> Option<Durable> {
        lock(&self.queue).frames.pop_front()
    }

    /// Notes that the write-behind has taken in the frames up to batch `last`, which had `bytes` bytes.
    pub(crate) fn taken_in(&self, last: u64, bytes: usize) {
        let mut index = self.settled();
        index.durable(last);
        self.gathered.store(index.bytes(), Ordering::Release);
        drop(index);
        self.make_room(|queue| queue.bytes -= bytes);
    }

    /// Returns about `bytes_max` bytes of records behind `after` that the table lacks, as batches up to `upto` made them.
    pub(crate) fn portion(&self, after: Option<&Bytes>, upto: u64, bytes_max: usize) -> Portion {
        self.settled().portion(after, upto, bytes_max)
    }

    /// Notes that the table has this portion: its records leave the index, unless a newer batch has changed them since.
    pub(crate) fn written(&self, portion: &Portion) {
        let written = portion.records.iter().map(|(key, _)| key).zip(&portion.batches).collect::<Vec<_>>();
        for some in written.chunks(HOLD_MAX) {
            let mut index = lock(&self.index);
            some.iter().for_each(|(key, batch)| index.written(key, **batch));
            self.gathered.store(index.bytes(), Ordering::Release);
        }
        self.make_room(|_| ());
    }

    /// Applies a change that reduces the pending bytes, and wakes the callers that wait for room.
    fn make_room(&self, change: impl FnOnce(&mut DurableFrames)) {
        let mut queue = lock(&self.queue);
        change(&mut queue);
        queue.shrink_allowed(self.gathered());
        self.room.notify_all();
    }

    fn gathered(&self) -> usize {
        self.gathered.load(Ordering::Acquire)
    }

    /// Returns the small entries as of everything staged.
    pub(crate) fn meta(&self) -> Meta {
        self.settled().meta().clone()
    }

    /// Returns the small entries as of the last batch that was taken in.
    pub(crate) fn meta_taken_in(&self) -> Meta {
        lock(&self.index).durable_meta()
    }

    /// Notes a checkpoint with `bytes` bytes of the journal behind it.
    pub(crate) fn checkpointed(&self, bytes: u64) {
        self.make_room(|queue| queue.backlog -= bytes);
    }

    /// Returns the bytes that wait to be written behind, and the bytes of the journal behind the last checkpoint.
    pub(crate) fn sizes(&self) -> (usize, u64) {
        let queue = lock(&self.queue);
        (queue.bytes + self.gathered(), queue.backlog)
    }

    /// Returns the bytes that wait to be written behind, without those that a start gathered beyond the usual and that are
    /// still allowed. This value shows whether the write-behind keeps up.
    pub(crate) fn load(&self, bytes_max: usize) -> usize {
        let queue = lock(&self.queue);
        (queue.bytes + self.gathered()).saturating_sub(queue.allowed.0.saturating_sub(bytes_max))
    }

    /// Returns the counters, and the bytes that wait now.
    pub(crate) fn stats(&self) -> StoreStats {
        self.meters.stats(self.sizes())
    }

    /// Sets the allowances after a start. The batches read at a start may exceed the usual limits, because the records of
    /// an unfinished sweep are gathered once more. Commits need not wait until these are written: they get half of the
    /// usual room beside them. But the journal may exceed its usual limit by half at most. Otherwise the journal, and with
    /// it the gathered records, would grow with each start that reaches no checkpoint.
    pub(crate) fn begin(&self, bytes_max: usize, backlog_max: u64) {
        let mut queue = lock(&self.queue);
        queue.room = (bytes_max / 2, backlog_max / 2);
        let bytes = queue.bytes + self.gathered() + queue.room.0;
        let backlog = (queue.backlog + queue.room.1).min(backlog_max + queue.room.1);
        queue.allowed = (bytes, backlog);
    }

    /// Waits until fewer bytes than these limits wait, or until the store ends.
    pub(crate) fn wait_for_room(&self, bytes_max: usize, backlog_max: u64) {
        let full = |queue: &mut DurableFrames| !queue.ended && queue.is_full(self.gathered(), bytes_max, backlog_max);
        let mut queue = lock(&self.queue);
        if full(&mut queue) {
            queue.called = true;
            self.work.notify_all();
            let since = Instant::now();
            drop(self.room.wait_while(queue, full));
            self.meters.waited(since);
        }
    }

    /// Waits until there is urgent work, or `bytes` bytes wait to be written behind, or `backlog` bytes of the journal lie
    /// behind the last checkpoint; for at most `most`. Returns `false` when the store ended.
    pub(crate) fn wait_for_work(&self, bytes: usize, backlog: u64, most: Duration) -> bool {
        self.wait(lock(&self.queue), most, |queue| queue.bytes + self.gathered() < bytes && queue.backlog < backlog)
    }

    /// Waits until this batch is durable, or there is urgent work, for at most `most`; the batch is committed even without
    /// room. Returns `false` when the store ended.
    pub(crate) fn wait_for_durable(&self, batch: u64, most: Duration) -> bool {
        let mut queue = lock(&self.queue);
        queue.awaited = batch;
        self.room.notify_all();
        self.wait(queue, most, |queue| queue.durable < batch)
    }

    fn wait(
        &self,
        queue: MutexGuard<'_, DurableFrames>,
        most: Duration,
        idle: impl Fn(&DurableFrames) -> bool,
    ) -> bool {
        let waits = |queue: &mut DurableFrames| !queue.ended && !queue.called && idle(queue);
        match self.work.wait_timeout_while(queue, most, waits) {
            Ok((mut queue, _)) => {
                queue.called = false;
                !queue.ended
            }
            Err(_) => false,
        }
    }

    /// Returns whether the store ended.
    pub(crate) fn is_ended(&self) -> bool {
        lock(&self.queue).ended
    }

    /// Wakes all waiting callers, for ever.
    pub(crate) fn end(&self) {
        lock(&self.queue).ended = true;
        self.work.notify_all();
        self.room.notify_all();
    }

    /// Returns the index with all staged batches sorted in.
    fn settled(&self) -> MutexGuard<'_, Index> {
        let mut index = lock(&self.index);
        // Under the index's lock, so that two callers do not sort in their shares out of order.
        let batches = std::mem::take(&mut lock(&self.inbox).batches);
        index.sort_in(&batches);
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn durable(pending: &PendingWrites, seq: u64, bytes: u64) -> Durable {
        let value = Bytes::from(vec![0; bytes as usize]);
        let batches = vec![pending.stage(vec![Change::PutRecord(Bytes::from_static(b"key"), value)])];
        Durable { seq, segment: SegmentName { id: 1, bytes: 4096 }, bytes, batches }
    }

    /// A start that found more than the store's limits: commits continue beside it, up to a mark that sinks as it is
    /// written.
    #[test]
    fn what_a_start_found_does_not_hold_up_commits() {
        let pending = PendingWrites::new(Meta::default());
        (1..=4).for_each(|seq| pending.push(durable(&pending, seq, 1000), usize::MAX));
        pending.begin(3000, 3000);
        let is_full = || lock(&pending.queue).is_full(0, usize::MAX, 3000);
        assert_eq!(pending.sizes().1, 4000);
        assert!(!is_full());
        pending.push(durable(&pending, 5, 600), usize::MAX);
        assert!(is_full(), "4600 of 4500");
        pending.checkpointed(4000);
        assert!(!is_full());
        pending.push(durable(&pending, 6, 2400), usize::MAX);
        assert!(is_full(), "3000 of 3000, as usual");
    }

    #[test]
    fn what_a_start_gathered_is_not_waited_for() {
        let pending = PendingWrites::new(Meta::default());
        (1..=4).for_each(|seq| pending.push(durable(&pending, seq, 1), usize::MAX));
        let found = pending.sizes().0;
        pending.begin(found / 4, u64::MAX / 4);
        let is_full = |bytes| lock(&pending.queue).is_full(bytes, found / 4, u64::MAX);
        assert!(pending.load(found / 4) <= found / 4);
        assert!(!is_full(found / 8 - 1));
        assert!(is_full(found / 8));
    }

    /// Each of these waits would last an hour if its event were missed.
    #[test]
    fn a_rest_ends_early_for_each_thing_that_cannot_wait() {
        let pending = PendingWrites::new(Meta::default());
        pending.push(durable(&pending, 1, 1000), usize::MAX); // The first segment: reported at once.
        assert!(pending.wait_for_work(usize::MAX, u64::MAX, HOUR));
        assert!(pending.wait_for_work(1000, u64::MAX, HOUR), "so much waits");
        assert!(pending.wait_for_work(usize::MAX, 1000, HOUR), "the journal has grown so far");
        assert!(pending.wait_for_work(usize::MAX, u64::MAX, Duration::from_millis(1)), "nothing was left to do");
        std::thread::scope(|scope| {
            let rests = scope.spawn(|| pending.wait_for_work(usize::MAX, u64::MAX, HOUR));
            pending.push(durable(&pending, 2, UNSORTED_MAX as u64), usize::MAX);
            assert!(rests.join().expect("rests"), "much is to be sorted");
            let rests = scope.spawn(|| pending.wait_for_work(usize::MAX, u64::MAX, HOUR));
            pending.end();
            assert!(!rests.join().expect("rests"), "something ended");
        });
    }
}
