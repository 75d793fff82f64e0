//! Frames of one peer and class that wait to be written. Bounded in number, bytes and time, with counts of dropped
//! frames.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use environment::lock;
use tokio::sync::Notify;

use crate::config::ClassLimits;
use crate::event::SendError;
use crate::stream::frame::FRAME_BYTES_MAX;

/// Upper limit of frames that a writer takes at a time and flushes once; flushing each of them costs seven times as
/// much.
pub(crate) const BATCH_FRAMES_MAX: usize = 256;
/// Upper limit of bytes that a writer takes at a time, or one frame: a stalled peer holds no more than that beside the
/// queue.
const BATCH_BYTES_MAX: usize = 64 * 1024;

/// The frames that are kept where there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// The newest frame of a member supersedes its earlier ones: drop the oldest.
    Newest,
    /// The oldest frame is closest to being useful, and the sender learns at once that there is no room.
    Oldest,
}

/// The memory that all queues share.
#[derive(Clone)]
pub(crate) struct Memory {
    used: Arc<AtomicUsize>,
    max: usize,
}

/// Counts since the queue began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueCounts {
    pub(crate) sent_frames: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) dropped_full: u64,
    pub(crate) dropped_late: u64,
    pub(crate) lost: u64,
}

/// The queue of one peer and class; see the module.
pub(crate) struct Queue {
    limits: ClassLimits,
    keep: Keep,
    memory: Memory,
    inner: Mutex<QueueState>,
    ready: Notify,
}

struct QueueState {
    entries: VecDeque<QueueEntry>,
    bytes: usize,
    /// Frames that the writer took and did not yet account for.
    in_hand: usize,
    /// Whether the writer found no frame and sleeps: the next push wakes it. While it works no push pays for a wake-up.
    sleeping: bool,
    counts: QueueCounts,
}

struct QueueEntry {
    frame: Bytes,
    until: Instant,
}

impl Memory {
    pub(crate) fn new(max: usize) -> Memory {
        Memory { used: Arc::default(), max }
    }

    /// Takes `bytes`, or nothing where they would exceed the limit.
    fn take(&self, bytes: usize) -> bool {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if used > self.max {
            self.give(bytes);
        }
        used <= self.max
    }

    fn give(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

impl Queue {
    pub(crate) fn new(limits: ClassLimits, keep: Keep, memory: Memory) -> Queue {
        let inner = QueueState {
            entries: VecDeque::new(),
            bytes: 0,
            in_hand: 0,
            sleeping: false,
            counts: QueueCounts::default(),
        };
        Queue { limits, keep, memory, inner: Mutex::new(inner), ready: Notify::new() }
    }

    /// Queues a frame, and returns whether the writer sleeps and has to be [woken](Queue::wake).
    pub(crate) fn push(&self, frame: Bytes, now: Instant) -> Result<bool, SendError> {
        let mut inner = lock(&self.inner);
        if frame.len() > FRAME_BYTES_MAX {
            inner.counts.dropped_full += 1;
            return Err(SendError::TooLong(frame.len()));
        }
        while inner.entries.len() >= self.limits.frames_max || inner.bytes + frame.len() > self.limits.bytes_max {
            // An empty queue has room for any frame, for any limits: otherwise that frame would never be queued.
            if self.keep == Keep::Oldest && !inner.entries.is_empty() {
                inner.counts.dropped_full += 1;
                return Err(SendError::Full);
            }
            let Some(oldest) = inner.pop() else { break };
            self.memory.give(oldest.frame.len());
            inner.counts.dropped_full += 1;
        }
        if !self.memory.take(frame.len()) {
            inner.counts.dropped_full += 1;
            return Err(SendError::Full);
        }
        inner.bytes += frame.len();
        inner.entries.push_back(QueueEntry { frame, until: now + self.limits.patience });
        Ok(std::mem::take(&mut inner.sleeping))
    }

    /// Wakes the writer.
    pub(crate) fn wake(&self) {
        self.ready.notify_one();
    }

    /// Waits until there are frames, then fills the empty `batch`. No frame is lost where the wait is given up.
    pub(crate) async fn take(&self, batch: &mut Vec<Bytes>) {
        loop {
            if self.try_take(batch, Instant::now()) {
                return;
            }
            self.ready.notified().await;
        }
    }

    fn try_take(&self, batch: &mut Vec<Bytes>, now: Instant) -> bool {
        let bytes_max = BATCH_BYTES_MAX.min(self.limits.window_bytes / 4);
        let mut inner = lock(&self.inner);
        let mut bytes = 0;
        while batch.len() < BATCH_FRAMES_MAX {
            match inner.entries.front() {
                Some(entry) if batch.is_empty() || bytes + entry.frame.len() <= bytes_max => {}
                _ => break,
            }
            let Some(entry) = inner.pop() else { break };
            self.memory.give(entry.frame.len());
            if entry.until < now {
                inner.counts.dropped_late += 1;
            } else {
                bytes += entry.frame.len();
                batch.push(entry.frame);
            }
        }
        inner.in_hand += batch.len();
        inner.sleeping = batch.is_empty();
        !batch.is_empty()
    }

    /// Drops frames that have waited too long. For peers without a connection, whose queues no writer reads.
    pub(crate) fn expire(&self, now: Instant) {
        let mut inner = lock(&self.inner);
        while inner.entries.front().is_some_and(|entry| entry.until < now) {
            let Some(entry) = inner.pop() else { break };
            self.memory.give(entry.frame.len());
            inner.counts.dropped_late += 1;
        }
    }

    /// Notes that frames were written and flushed.
    pub(crate) fn sent(&self, frames: usize, bytes: usize) {
        let mut inner = lock(&self.inner);
        inner.in_hand -= frames;
        inner.counts.sent_frames += frames as u64;
        inner.counts.sent_bytes += bytes as u64;
    }

    /// Notes that frames were taken, and that the stream broke before they were flushed.
    pub(crate) fn lost(&self, frames: usize) {
        let mut inner = lock(&self.inner);
        inner.in_hand -= frames;
        inner.counts.lost += frames as u64;
    }

    /// Returns the waiting frames and bytes.
    pub(crate) fn depth(&self) -> (usize, usize) {
        let inner = lock(&self.inner);
        (inner.entries.len(), inner.bytes)
    }

    /// Returns whether no frame waits, neither here nor with the writer.
    pub(crate) fn is_drained(&self) -> bool {
        let inner = lock(&self.inner);
        inner.entries.is_empty() && inner.in_hand == 0
    }

    pub(crate) fn counts(&self) -> QueueCounts {
        lock(&self.inner).counts
    }

    pub(crate) fn window_bytes(&self) -> usize {
        self.limits.window_bytes
    }
}

impl QueueState {
    fn pop(&mut self) -> Option<QueueEntry> {
        let entry = self.entries.pop_front()?;
        self.bytes -= entry.frame.len();
        Some(entry)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.memory.give(lock(&self.inner).bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn queue(keep: Keep, frames_max: usize, bytes_max: usize, memory: &Memory) -> Queue {
        let limits = ClassLimits {
            frames_max,
            bytes_max,
            patience: Duration::from_secs(1),
            window_bytes: 1 << 20,
            inbound_bytes_max: 1 << 20,
        };
        Queue::new(limits, keep, memory.clone())
    }

    fn frame(byte: u8) -> Bytes {
        Bytes::copy_from_slice(&[byte; 10])
    }

    fn taken(queue: &Queue, now: Instant) -> Vec<u8> {
        let mut batch = Vec::new();
        queue.try_take(&mut batch, now);
        batch.iter().map(|frame| frame[0]).collect()
    }

    #[test]
    fn a_full_queue_keeps_the_newest_or_the_oldest() {
        let memory = Memory::new(1000);
        let now = Instant::now();
        let newest = queue(Keep::Newest, 3, 1000, &memory);
        let oldest = queue(Keep::Oldest, 1000, 30, &memory);
        for byte in 0..5 {
            assert!(newest.push(frame(byte), now).is_ok());
            assert_eq!(oldest.push(frame(byte), now).is_ok(), byte < 3);
        }
        assert_eq!(memory.used(), 60);
        assert_eq!(taken(&newest, now), [2, 3, 4]);
        assert_eq!(taken(&oldest, now), [0, 1, 2]);
        assert_eq!((newest.counts().dropped_full, oldest.counts().dropped_full), (2, 2));
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn the_memory_of_all_queues_has_a_limit() {
        let memory = Memory::new(25);
        let now = Instant::now();
        let (a, b) = (queue(Keep::Newest, 10, 1000, &memory), queue(Keep::Oldest, 10, 1000, &memory));
        assert!(a.push(frame(1), now).is_ok());
        assert!(b.push(frame(2), now).is_ok());
        assert_eq!(a.push(frame(3), now), Err(SendError::Full));
        drop(b);
        assert!(a.push(frame(3), now).is_ok());
        assert_eq!(
            a.push(Bytes::from(vec![0; FRAME_BYTES_MAX + 1]), now),
            Err(SendError::TooLong(FRAME_BYTES_MAX + 1))
        );
        assert_eq!(memory.used(), 20);
    }

    #[test]
    fn what_waited_too_long_is_not_sent() {
        let memory = Memory::new(1000);
        let now = Instant::now();
        let queue = queue(Keep::Oldest, 10, 1000, &memory);
        queue.push(frame(1), now).unwrap();
        queue.push(frame(2), now + Duration::from_millis(900)).unwrap();
        queue.push(frame(3), now + Duration::from_millis(900)).unwrap();
        assert_eq!(taken(&queue, now + Duration::from_millis(1500)), [2, 3]);
        queue.push(frame(4), now).unwrap();
        queue.expire(now + Duration::from_secs(2));
        assert_eq!(queue.depth(), (0, 0));
        assert_eq!(queue.counts().dropped_late, 2);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn only_a_sleeping_writer_is_woken() {
        let memory = Memory::new(1000);
        let now = Instant::now();
        let queue = queue(Keep::Oldest, 10, 1000, &memory);
        assert_eq!(queue.push(frame(1), now), Ok(false), "it has not looked yet");
        assert_eq!(taken(&queue, now), [1]);
        assert_eq!(queue.push(frame(2), now), Ok(false), "it will look again by itself");
        assert_eq!(taken(&queue, now), [2]);
        assert!(taken(&queue, now).is_empty());
        assert_eq!(queue.push(frame(3), now), Ok(true));
        assert_eq!(queue.push(frame(4), now), Ok(false), "once");
    }
}
