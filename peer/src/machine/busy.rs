//! The load of a lane of this peer, from which its node estimates its capacity in operations a second ([`node::Input::Busy`],
//! Scatter §6.3).
//!
//! A peer uses a loop, a disk and, where its operator limits it (`--max-bandwidth`), a number of bytes a second. The resource that is in
//! use for the largest part of the time limits the peer. `--max-disk` is not among them: the members of a group hold the same records, for
//! any distribution of primaries.

use std::time::Duration;

use overlay::time::Time;

use store::{COMMIT_BYTES_MAX, StoreStats};

/// Length of a window of measurement. A shorter one would show bursts instead of the capacity.
const WINDOW: Duration = Duration::from_secs(10);

/// Meter of a lane's load.
#[derive(Debug)]
pub(crate) struct BusyMeter {
    since: Time,
    /// Time for which the loop had no work.
    parked: Duration,
    /// Bytes of frames sent and received.
    bytes: u64,
    /// Bytes a second that this lane may send and receive; `None`: no limit.
    bandwidth: Option<u64>,
    store: StoreStats,
}

impl BusyMeter {
    /// Begins the first window. `bandwidth` is the limit of the whole peer, in bytes a second, of which each of `lanes` has an equal part.
    pub fn new(now: Time, bandwidth: Option<u64>, lanes: u8) -> BusyMeter {
        let bandwidth = bandwidth.map(|bytes| (bytes / u64::from(lanes.max(1))).max(1));
        BusyMeter { since: now, parked: Duration::ZERO, bytes: 0, bandwidth, store: StoreStats::default() }
    }

    /// Notes that the loop had no work for `time`.
    pub(crate) fn park(&mut self, time: Duration) {
        self.parked += time;
    }

    /// Notes that frames with so many bytes were sent or received.
    pub fn carry(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Returns a window that is over, and the time for which the lane's scarcest resource was in use; `None` while the window lasts.
    /// `stats` reads the store's counters, where there is a store.
    pub fn end(&mut self, now: Time, stats: impl FnOnce() -> Option<StoreStats>) -> Option<(Duration, Duration)> {
        let window = now.since(self.since);
        if window < WINDOW {
            return None;
        }
        let store = stats().unwrap_or_default();
        let looped = window.saturating_sub(self.parked);
        let busy = looped.max(on_the_wire(self.bytes, self.bandwidth)).max(on_disk(&self.store, &store)).min(window);
        (self.since, self.parked, self.bytes, self.store) = (now, Duration::ZERO, 0, store);
        Some((window, busy))
    }
}

/// Returns the time that so many bytes take; zero where there is no limit.
fn on_the_wire(bytes: u64, bandwidth: Option<u64>) -> Duration {
    bandwidth.map_or(Duration::ZERO, |limit| seconds(bytes as f64 / limit as f64))
}

/// Returns the time for which the disk was in use between two readings of the store's counters.
///
/// Commits that wait are written with one sync, so a disk that syncs all the time may be able to take many more. Therefore a sync counts
/// as far as its frame was full. The time for which commits waited for room on the disk counts in full.
fn on_disk(before: &StoreStats, now: &StoreStats) -> Duration {
    let frames = now.frames.saturating_sub(before.frames);
    let bytes = now.bytes.saturating_sub(before.bytes);
    let full = bytes as f64 / (frames.max(1) as f64 * COMMIT_BYTES_MAX as f64);
    let writing = now.writing.saturating_sub(before.writing).as_secs_f64();
    seconds(writing * full.min(1.0)) + now.no_room.saturating_sub(before.no_room)
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_loop_is_busy_unless_it_is_parked() {
        let mut meter = BusyMeter::new(at(0), None, 1);
        meter.park(s(7));
        assert_eq!(meter.end(at(9), || None), None, "the window lasts");
        assert_eq!(meter.end(at(10), || None), Some((s(10), s(3))));
        assert_eq!(meter.end(at(22), || None), Some((s(12), s(12))), "each window is measured anew");
        meter.park(s(100));
        assert_eq!(meter.end(at(32), || None), Some((s(10), s(0))), "clocks differ");
    }

    /// A limit by an operator can only make a peer seem busier.
    #[test]
    fn a_limit_of_bandwidth_is_shared_by_lanes() {
        for (limit, busy) in [(None, 3), (Some(2_000), 8), (Some(1 << 40), 3), (Some(1), 10)] {
            let mut meter = BusyMeter::new(at(0), limit, 2);
            meter.park(s(7));
            (0..80).for_each(|_| meter.carry(100));
            assert_eq!(meter.end(at(10), || None), Some((s(10), s(busy))), "{limit:?}");
        }
    }

    #[test]
    fn a_disk_is_busy_with_full_frames_and_where_there_is_no_room() {
        let frame = COMMIT_BYTES_MAX as u64;
        let stats = |frames, bytes, writing, no_room| StoreStats {
            frames,
            bytes,
            writing: s(writing),
            no_room: s(no_room),
            ..StoreStats::default()
        };
        let before = stats(5, 3, 2, 1);
        assert_eq!(on_disk(&before, &before), Duration::ZERO);
        assert_eq!(on_disk(&before, &stats(105, 100 * frame / 4 + 3, 10, 1)), s(2), "a quarter full");
        assert_eq!(on_disk(&before, &stats(7, 9 * frame, 10, 2)), s(9), "frames may be larger");
        let mut meter = BusyMeter::new(at(0), None, 1);
        meter.park(s(10));
        assert_eq!(meter.end(at(10), || Some(stats(4, 4 * frame, 4, 2))), Some((s(10), s(6))));
    }
}
