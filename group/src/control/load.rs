//! Load of a group and of the places in its range, for the policies that move boundaries (Scatter §6.3, Harmony §7.6).
//!
//! Each member counts the operations that come to it as a primary, in equal pieces of the group's range, and reports averages with its
//! heartbeats. The leader adds them up, and includes the sums in its messages to the neighbours.

use alloc::vec::Vec;
use core::time::Duration;

use overlay::{KeyRange, Point};

use crate::context::Facts;
use crate::control::capacity::{Capacities, is_granted};
use crate::control::liveness::Liveness;
use overlay::time::Time;

/// Number of pieces of equal length in which a group's range is measured.
pub const CELLS: u32 = 32;
/// Length of the average, in heartbeats.
const MEMORY: u32 = 20;
/// Heartbeats before the first report.
const WARM: u32 = 10;

/// Counter of operations.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    range: KeyRange,
    cells: Vec<Cell>,
    /// Time since which this range is measured.
    since: Time,
    /// Time of the last update of the averages.
    folded: Time,
    /// Operations since the start, in any range.
    all: u64,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    /// Offset of its begin from the start of the range.
    begins: u128,
    /// Operations since the last update of the averages.
    count: u64,
    /// Operations in 1,000 seconds.
    rate: u64,
}

impl Meter {
    pub(crate) fn new(range: KeyRange, now: Time) -> Meter {
        let begins = |cell| range.start().distance_to(range.cut_at(cell, CELLS));
        let cells = (0..CELLS).map(|cell| Cell { begins: begins(cell), count: 0, rate: 0 }).collect();
        Meter { range, cells, since: now, folded: now, all: 0 }
    }

    /// Counts an operation on a key at this point.
    pub(crate) fn count(&mut self, point: Point) {
        self.all += 1;
        let offset = self.range.start().distance_to(point);
        let behind = self.cells.partition_point(|cell| cell.begins <= offset);
        if let Some(cell) = behind.checked_sub(1).and_then(|index| self.cells.get_mut(index)) {
            cell.count += 1;
        }
    }

    /// Updates the averages, unless the last update is less than half a heartbeat ago.
    pub(crate) fn fold(&mut self, range: KeyRange, now: Time, heartbeat: Duration) {
        if self.range != range {
            *self = Meter { all: self.all, ..Meter::new(range, now) };
        }
        let micros = |time: Duration| time.as_micros() as u64;
        let elapsed = micros(now.since(self.folded));
        if elapsed == 0 || elapsed < micros(heartbeat / 2) {
            return;
        }
        self.folded = now;
        // At first the mean over all time so far; after a sleep nothing is known of the time before.
        let memory = micros(now.since(self.since).min(heartbeat * MEMORY)).max(elapsed);
        for cell in &mut self.cells {
            let kept = u128::from(cell.rate) * u128::from(memory - elapsed);
            let new = u128::from(core::mem::take(&mut cell.count)) * 1_000_000_000;
            cell.rate = ((kept + new) / u128::from(memory)) as u64;
        }
    }

    /// Returns the operations a minute in each piece; empty where there are none at all, `None` where they have not been counted for long
    /// enough.
    pub(crate) fn told(&self, heartbeat: Duration) -> Option<Vec<u32>> {
        if self.folded.since(self.since) < heartbeat * WARM {
            return None;
        }
        let per_minute = |cell: &Cell| u32::try_from(u128::from(cell.rate) * 60 / 1_000).unwrap_or(u32::MAX);
        let all: Vec<u32> = self.cells.iter().map(per_minute).collect();
        Some(if all.iter().all(|rate| *rate == 0) { Vec::new() } else { all })
    }
}

/// Returns whether an honest member can have sent this load.
pub(crate) fn is_sound(load: &[u32]) -> bool {
    load.is_empty() || load.len() == CELLS as usize
}

/// Work of the members: the operations that came to this one as a primary, and the members' capacities.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) meter: Meter,
    pub(crate) capacities: Capacities,
}

impl Workload {
    /// Begins to measure this range.
    pub(crate) fn new(range: KeyRange, now: Time) -> Workload {
        Workload { meter: Meter::new(range, now), capacities: Capacities::default() }
    }

    /// Updates the averages and counts, once a heartbeat.
    pub(crate) fn fold(&mut self, facts: Facts<'_>) {
        self.meter.fold(facts.state.range, facts.now, facts.config.timing.heartbeat);
        self.capacities.keep_ballots(|ballot| is_granted(facts.state, ballot));
        self.capacities.fold(facts.me, self.meter.all, facts.now);
    }

    /// Returns the operations a minute in each of [`CELLS`] equal pieces of the range, of all primaries together; `None` where one of them
    /// has not reported yet.
    pub(crate) fn load(&self, facts: Facts<'_>, liveness: &Liveness) -> Option<Vec<u32>> {
        let timing = &facts.config.timing;
        let mut all = self.meter.told(timing.heartbeat)?;
        all.resize(CELLS as usize, 0);
        for node in facts.state.nodes().into_iter().filter(|node| *node != facts.me) {
            let heartbeat =
                liveness.failure_detector.heartbeat_since(node, facts.state.born, timing.suspicion(), facts.now);
            match heartbeat.and_then(|heartbeat| heartbeat.load.as_ref()) {
                Some(load) => all.iter_mut().zip(load).for_each(|(sum, load)| *sum = sum.saturating_add(*load)),
                None if facts.state.division.iter().any(|part| part.node == node) => return None,
                None => {}
            }
        }
        Some(all)
    }

    /// Returns the load for neighbours.
    pub(crate) fn told_load(&self, facts: Facts<'_>, liveness: &Liveness) -> Option<Vec<u32>> {
        self.load(facts, liveness).map(|load| if load.iter().all(|rate| *rate == 0) { Vec::new() } else { load })
    }

    /// Returns the number of operations that have come to this node as a primary.
    pub(crate) fn operations_taken(&self) -> u64 {
        self.meter.all
    }

    /// Returns the operations a minute that come to this node as a primary; `None` where it does not know yet.
    pub(crate) fn own_load(&self, facts: Facts<'_>) -> Option<u64> {
        let told = self.meter.told(facts.config.timing.heartbeat)?;
        Some(told.iter().map(|cell| u64::from(*cell)).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEAT: Duration = Duration::from_millis(500);

    fn at(millis: u64) -> Time {
        Time(millis * 1_000_000)
    }

    fn run(meter: &mut Meter, range: KeyRange, millis: core::ops::Range<u64>, point: Point, every_ms: u64) {
        for now in millis {
            if now % every_ms == 0 {
                meter.count(point);
            }
            meter.fold(range, at(now), BEAT);
        }
    }

    #[test]
    fn averages_follow_what_is_asked() {
        let range = KeyRange::new(Point(u128::MAX - 31), Point(32));
        let mut meter = Meter::new(range, at(0));
        assert_eq!(meter.told(BEAT), None);
        run(&mut meter, range, 0..6_000, Point(1), 10);
        let told = meter.told(BEAT).expect("it was counted for long enough");
        let cell = range.start().distance_to(Point(1)) as usize / 2;
        assert!(told[cell].abs_diff(6_000) < 100, "100 a second: {told:?}");
        assert_eq!(told.iter().filter(|rate| **rate > 0).count(), 1);
        run(&mut meter, range, 6_000..60_000, Point(u128::MAX), 20);
        let told = meter.told(BEAT).unwrap();
        assert!(told[cell] < 100 && told[15].abs_diff(3_000) < 100, "{told:?}");
        run(&mut meter, range, 60_000..400_000, Point(5), 1 << 40);
        assert_eq!(meter.told(BEAT), Some(Vec::new()), "idle");
    }

    #[test]
    fn another_range_is_counted_anew() {
        let mut meter = Meter::new(KeyRange::FULL, at(0));
        run(&mut meter, KeyRange::FULL, 0..10_000, Point(1), 10);
        let half = KeyRange::new(Point(0), Point(1 << 127));
        meter.fold(half, at(10_000), BEAT);
        assert_eq!(meter.told(BEAT), None);
        // Operations outside of the range count for no piece.
        let tiny = KeyRange::new(Point(0), Point(3));
        let mut meter = Meter::new(tiny, at(0));
        run(&mut meter, tiny, 0..10_000, Point(2), 10);
        assert!(meter.told(BEAT).unwrap()[CELLS as usize - 1] > 5_000);
    }
}
