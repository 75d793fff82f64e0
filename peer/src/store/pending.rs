//! What the table does not hold yet: batches on their way to the journal and behind it.
//!
//! A batch is visible to loads and scans from the moment it is handed out ([`Pending::stage`]), waits in a queue once the
//! journal holds it durably, and leaves when it is in the table. Staging costs the loop one short lock; sorting the
//! records into the index is left to whoever looks something up, or to the write-behind.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use node::Change;

use super::change::{Meta, apply};
use super::codec::batch_bytes;
use super::segment::SegmentName;

/// Index entries changed or visited under one hold of its lock, so that a load does not wait long.
const HOLD_MAX: usize = 256;
/// Bytes left for a load to sort into the index: more are sorted in by the write-behind.
const UNSORTED_MAX: usize = 1 << 20;

/// What a change takes in memory beside its own bytes: two handles, their counts, a place in the index.
pub(crate) const CHANGE_WEIGHT: usize = 128;

/// A batch that was handed out.
#[derive(Debug)]
pub struct Batch {
    /// Batches are numbered as they are handed out, from 1.
    pub(crate) number: u64,
    pub(crate) changes: Vec<Change>,
    /// An upper bound of its length in the journal.
    pub(crate) bytes: usize,
}

impl Batch {
    /// What it counts for while it is kept in memory.
    fn weight(&self) -> usize {
        self.bytes + CHANGE_WEIGHT * self.changes.len()
    }
}

/// A frame that the journal holds durably.
pub(crate) struct Durable {
    pub(crate) seq: u64,
    pub(crate) segment: SegmentName,
    /// In the journal.
    pub(crate) bytes: u64,
    pub(crate) batches: Vec<Arc<Batch>>,
}

/// Shared by the loop, the journal, the readers and the write-behind.
pub(crate) struct Pending {
    inbox: Mutex<Inbox>,
    index: Mutex<Index>,
    queue: Mutex<Queue>,
    /// The queue grew past its mark, or something ended.
    work: Condvar,
    /// The queue shrank, or something ended.
    room: Condvar,
}

/// Staged, not yet in the index.
#[derive(Default)]
struct Inbox {
    last: u64,
    batches: Vec<Arc<Batch>>,
}

/// Everything staged, sorted.
struct Index {
    /// The small entries as of the last batch in here: a promotion makes records of them.
    meta: Meta,
    records: BTreeMap<Bytes, Slot>,
}

/// The newest state of a record; `None` is dropped.
struct Slot {
    batch: u64,
    value: Option<Bytes>,
}

/// Durable, not yet in the table.
#[derive(Default)]
struct Queue {
    frames: VecDeque<Durable>,
    /// Of their batches, and of the records that the write-behind has gathered from others and not yet written.
    bytes: usize,
    /// Bytes of the journal behind the last checkpoint.
    backlog: u64,
    /// Of both, what may be there even if it is more than the store is given: see [`Pending::begin`].
    allowed: (usize, u64),
    room: (usize, u64),
    /// The newest segment; when it changes, the one after it should be made.
    segment: u64,
    /// Something is to be done at once.
    called: bool,
    /// Bytes since the write-behind was last asked to sort them into the index.
    unsorted: usize,
    /// No more waiting.
    ended: bool,
}

impl Queue {
    /// Whether commits must wait.
    fn is_full(&self, bytes_max: usize, backlog_max: u64) -> bool {
        self.bytes >= bytes_max.max(self.allowed.0) || self.backlog >= backlog_max.max(self.allowed.1)
    }

    fn shrink_allowed(&mut self) {
        self.allowed.0 = self.allowed.0.min(self.bytes + self.room.0);
        self.allowed.1 = self.allowed.1.min(self.backlog + self.room.1);
    }
}

impl Pending {
    /// Nothing pending, on top of these small entries.
    pub(crate) fn new(meta: Meta) -> Pending {
        Pending {
            inbox: Mutex::default(),
            index: Mutex::new(Index { meta, records: BTreeMap::new() }),
            queue: Mutex::default(),
            work: Condvar::new(),
            room: Condvar::new(),
        }
    }

    /// Hands out a batch: from now on every load and scan sees it.
    pub(crate) fn stage(&self, changes: Vec<Change>) -> Arc<Batch> {
        let bytes = batch_bytes(&changes);
        let mut inbox = lock(&self.inbox);
        inbox.last += 1;
        let batch = Arc::new(Batch { number: inbox.last, changes, bytes });
        inbox.batches.push(batch.clone());
        batch
    }

    /// The newest state of a record: `None` if nothing pending changes it, `Some(None)` if it is dropped.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<Bytes>> {
        self.settled().records.get(key).map(|slot| slot.value.clone())
    }

    /// Pending records from `from` on until they have about `bytes_max` bytes, and whether these are all.
    pub(crate) fn page(&self, from: &[u8], bytes_max: usize) -> (Vec<(Bytes, Option<Bytes>)>, bool) {
        let index = self.settled();
        let (mut page, mut bytes) = (Vec::new(), 0);
        for (key, slot) in index.records.range::<[u8], _>((Bound::Included(from), Bound::Unbounded)) {
            if bytes >= bytes_max && !page.is_empty() {
                return (page, false);
            }
            bytes += key.len() + slot.value.as_ref().map_or(0, Bytes::len) + 16;
            page.push((key.clone(), slot.value.clone()));
        }
        (page, true)
    }

    /// Takes in a frame that is now durable. The write-behind is woken when `mark` bytes wait, and at each new segment.
    pub(crate) fn push(&self, frame: Durable, mark: usize) {
        let mut queue = lock(&self.queue);
        let before = queue.bytes;
        let bytes = frame.batches.iter().map(|batch| batch.weight()).sum::<usize>();
        queue.bytes += bytes;
        queue.unsorted += bytes;
        queue.backlog += frame.bytes;
        let rolled = std::mem::replace(&mut queue.segment, frame.segment.id) != frame.segment.id;
        queue.frames.push_back(frame);
        if rolled || queue.unsorted >= UNSORTED_MAX || (before < mark && queue.bytes >= mark) {
            queue.unsorted = 0;
            queue.called = true;
            self.work.notify_all();
        }
    }

    /// The oldest frame.
    pub(crate) fn pop(&self) -> Option<Durable> {
        lock(&self.queue).frames.pop_front()
    }

    /// The write-behind has taken in a frame: for its batches it now keeps `more` bytes of records, and `less` of earlier
    /// ones.
    pub(crate) fn taken_in(&self, frame: &Durable, more: usize, less: usize) {
        let mut queue = lock(&self.queue);
        queue.bytes = queue.bytes + more - less - frame.batches.iter().map(|batch| batch.weight()).sum::<usize>();
        queue.shrink_allowed();
        self.room.notify_all();
    }

    /// These records are in the table, as these batches made them: what nothing newer has changed since leaves the index.
    /// `bytes` are no longer kept for the table.
    pub(crate) fn applied<'a>(&self, bytes: usize, records: impl Iterator<Item = (&'a Bytes, u64)>) {
        // Batches not yet in the index must not enter it after they have left.
        self.settle();
        let records = records.collect::<Vec<_>>();
        for some in records.chunks(HOLD_MAX) {
            let mut index = lock(&self.index);
            for (key, batch) in some {
                if index.records.get(*key).is_some_and(|slot| slot.batch <= *batch) {
                    index.records.remove(*key);
                }
            }
        }
        let mut queue = lock(&self.queue);
        queue.bytes -= bytes;
        queue.shrink_allowed();
        self.room.notify_all();
    }

    /// Sorts what was staged into the index.
    pub(crate) fn settle(&self) {
        drop(self.settled());
    }

    /// The small entries as of everything staged.
    pub(crate) fn meta(&self) -> Meta {
        self.settled().meta.clone()
    }

    /// A checkpoint was made; so many bytes of the journal are behind it.
    pub(crate) fn checkpointed(&self, bytes: u64) {
        let mut queue = lock(&self.queue);
        queue.backlog -= bytes;
        queue.shrink_allowed();
        self.room.notify_all();
    }

    /// Bytes that wait to be written behind, and bytes of the journal behind the last checkpoint.
    pub(crate) fn sizes(&self) -> (usize, u64) {
        let queue = lock(&self.queue);
        (queue.bytes, queue.backlog)
    }

    /// What is here was read at a start, and may be more than usual, for what a sweep had written is gathered once more.
    /// Commits need not wait until that is brought over: they have a half of the usual room beside it. But not more than
    /// half as much again as usual in all, or it would grow with each start that comes to no checkpoint.
    pub(crate) fn begin(&self, bytes_max: usize, backlog_max: u64) {
        let mut queue = lock(&self.queue);
        queue.room = (bytes_max / 2, backlog_max / 2);
        let bytes = (queue.bytes + queue.room.0).min(bytes_max + queue.room.0);
        let backlog = (queue.backlog + queue.room.1).min(backlog_max + queue.room.1);
        queue.allowed = (bytes, backlog);
    }

    /// Waits until less than this is waiting, or something ended.
    pub(crate) fn wait_for_room(&self, bytes_max: usize, backlog_max: u64) {
        let full = |queue: &mut Queue| !queue.ended && queue.is_full(bytes_max, backlog_max);
        let mut queue = lock(&self.queue);
        if full(&mut queue) {
            queue.called = true;
            self.work.notify_all();
            drop(self.room.wait_while(queue, full));
        }
    }

    /// Waits until something is to be done at once, or so many bytes wait to be written behind, or so many of the journal
    /// lie behind the last checkpoint; for at most `most`. `false` when something ended.
    pub(crate) fn wait_for_work(&self, bytes: usize, backlog: u64, most: Duration) -> bool {
        let idle = |queue: &mut Queue| !queue.ended && !queue.called && queue.bytes < bytes && queue.backlog < backlog;
        match self.work.wait_timeout_while(lock(&self.queue), most, idle) {
            Ok((mut queue, _)) => {
                queue.called = false;
                !queue.ended
            }
            Err(_) => false,
        }
    }

    /// Wakes everybody who waits, for ever.
    pub(crate) fn end(&self) {
        lock(&self.queue).ended = true;
        self.work.notify_all();
        self.room.notify_all();
    }

    /// The index with everything that was staged.
    fn settled(&self) -> MutexGuard<'_, Index> {
        let mut index = lock(&self.index);
        // Under the index's lock, so that two do not sort in their shares out of order.
        let batches = std::mem::take(&mut lock(&self.inbox).batches);
        let Index { meta, records } = &mut *index;
        for batch in &batches {
            for change in &batch.changes {
                apply(meta, change, |key, value| drop(records.insert(key, Slot { batch: batch.number, value })));
            }
        }
        index
    }
}

/// Locks it, whatever became of whoever held it last.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing here panics in between, apart from running out of memory, which ends the process.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn durable(pending: &Pending, seq: u64, bytes: u64) -> Durable {
        let value = Bytes::from(vec![0; bytes as usize]);
        let batches = vec![pending.stage(vec![Change::PutRecord(Bytes::from_static(b"key"), value)])];
        Durable { seq, segment: SegmentName { id: 1, bytes: 4096 }, bytes, batches }
    }

    /// A start that found more than the store is given: commits go on beside it, up to a mark that sinks as it is written.
    #[test]
    fn what_a_start_found_does_not_hold_up_commits() {
        let pending = Pending::new(Meta::default());
        (1..=4).for_each(|seq| pending.push(durable(&pending, seq, 1000), usize::MAX));
        pending.begin(3000, 3000);
        let is_full = || lock(&pending.queue).is_full(usize::MAX, 3000);
        assert_eq!(pending.sizes().1, 4000);
        assert!(!is_full());
        pending.push(durable(&pending, 5, 600), usize::MAX);
        assert!(is_full(), "4600 of 4500");
        pending.checkpointed(4000);
        assert!(!is_full());
        pending.push(durable(&pending, 6, 2400), usize::MAX);
        assert!(is_full(), "3000 of 3000, as usual");
    }

    /// Each of these would wait for an hour if it were not seen.
    #[test]
    fn a_rest_ends_early_for_each_thing_that_cannot_wait() {
        let pending = Pending::new(Meta::default());
        pending.push(durable(&pending, 1, 1000), usize::MAX); // The first segment: said at once.
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
