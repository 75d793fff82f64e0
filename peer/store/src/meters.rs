//! Counters and waiting times of the store, for status and metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Counters since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    frames: AtomicU64,
    bytes: AtomicU64,
    written: Waits,
    no_room: Waits,
    records: AtomicU64,
    checkpoints: AtomicU64,
    rebuilds: AtomicU64,
    given_up: AtomicU64,
    not_removed: AtomicU64,
    unprepared: AtomicU64,
    used_bytes: AtomicU64,
}

/// A total of waiting times, in nanoseconds.
#[derive(Debug, Default)]
struct Waits(AtomicU64);

impl Waits {
    fn add(&self, since: Instant) {
        let nanos = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.0.fetch_add(nanos, Ordering::Relaxed);
    }

    fn all(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// The store's counters as of now; they count since it was opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreStats {
    /// Frames written to the journal, each with one sync.
    pub frames: u64,
    /// Bytes of these frames.
    pub bytes: u64,
    /// Time that these writes and syncs took.
    pub writing: Duration,
    /// Time that commits waited for room before they were written.
    pub no_room: Duration,
    /// Records written to the table.
    pub records: u64,
    /// Checkpoints made.
    pub checkpoints: u64,
    /// Rebuilds of the table, whose files took several times the bytes of its content.
    pub rebuilds: u64,
    /// Rebuilds that were given up: there was no room, or the new table failed.
    pub given_up: u64,
    /// Unused tables that could not be removed: the next start tries again.
    pub not_removed: u64,
    /// Times that the disk had no room for a segment of the journal that was to be made ahead.
    pub unprepared: u64,
    /// Bytes that wait to be written to the table.
    pub pending_bytes: usize,
    /// Bytes of the journal behind the last checkpoint.
    pub backlog_bytes: u64,
    /// Bytes that the store takes on its disk, as last measured.
    pub used_bytes: u64,
}

impl Meters {
    /// Counts a durable frame of so many bytes, whose write began at `since`.
    pub(crate) fn frame(&self, bytes: u64, since: Instant) {
        self.frames.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.written.add(since);
    }

    /// Counts a wait of commits for room since then.
    pub(crate) fn waited(&self, since: Instant) {
        self.no_room.add(since);
    }

    /// Counts records written to the table.
    pub(crate) fn records(&self, records: usize) {
        self.records.fetch_add(records as u64, Ordering::Relaxed);
    }

    /// Counts a checkpoint.
    pub(crate) fn checkpoint(&self) {
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a rebuild of the table.
    pub(crate) fn rebuild(&self) {
        self.rebuilds.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a table that could not be removed.
    pub(crate) fn not_removed(&self) {
        self.not_removed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a segment of the journal that found no room.
    pub(crate) fn unprepared(&self) {
        self.unprepared.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a rebuild that was given up.
    pub(crate) fn give_up(&self) {
        self.given_up.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets the bytes that the store takes on its disk.
    pub(crate) fn used(&self, bytes: u64) {
        self.used_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns all counters, with these bytes that wait and that lie behind the last checkpoint.
    pub(crate) fn stats(&self, (pending_bytes, backlog_bytes): (usize, u64)) -> StoreStats {
        StoreStats {
            frames: self.frames.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            writing: self.written.all(),
            no_room: self.no_room.all(),
            records: self.records.load(Ordering::Relaxed),
            checkpoints: self.checkpoints.load(Ordering::Relaxed),
            rebuilds: self.rebuilds.load(Ordering::Relaxed),
            given_up: self.given_up.load(Ordering::Relaxed),
            not_removed: self.not_removed.load(Ordering::Relaxed),
            unprepared: self.unprepared.load(Ordering::Relaxed),
            pending_bytes,
            backlog_bytes,
            used_bytes: self.used_bytes.load(Ordering::Relaxed),
        }
    }
}
