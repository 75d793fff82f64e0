//! The three clocks of one simulated machine, each wrong in its own way.

use std::time::Duration;

use overlay::time::{Now, Time, WallMillis};

/// A wall clock's start, in milliseconds since 1970.
const WALL_START: u64 = 1_700_000_000_000;

/// Clocks of a machine: they run at a rate of their own, stop in sleep where real ones do, and the wall clock jumps.
#[derive(Clone, Debug)]
pub struct Clocks {
    /// The true time at which the steady clock showed `base`.
    start: Time,
    base: Time,
    /// Excess of the rate over true time, in parts per million.
    rate_ppm: i32,
    /// Time that the awake clock has missed, in this machine's own nanoseconds.
    slept: Duration,
    asleep_since: Option<Time>,
    wall_offset_ms: i64,
}

impl Clocks {
    /// Returns clocks of a machine that is started at true time `now`, with a steady clock at `base`.
    pub fn new(now: Time, base: Time, rate_ppm: i32) -> Clocks {
        Clocks { start: now, base, rate_ppm, slept: Duration::ZERO, asleep_since: None, wall_offset_ms: 0 }
    }

    /// Returns the clocks' readings at true time `now`.
    pub fn at(&self, now: Time) -> Now {
        let time = self.steady(now);
        let asleep = self.asleep_since.map_or(Duration::ZERO, |since| time.since(since));
        let wall = (WALL_START + time.since(self.base).as_millis() as u64 + self.start.0 / 1_000_000)
            .saturating_add_signed(self.wall_offset_ms);
        Now { time, awake: time - self.slept - asleep, wall: WallMillis(wall) }
    }

    /// Returns the first true time at which the steady clock shows at least `local`.
    pub(crate) fn true_time_of(&self, local: Time) -> Time {
        if local == Time::NEVER {
            return Time::NEVER;
        }
        let ahead = u128::from(local.0.saturating_sub(self.base.0));
        let truly = (ahead * 1_000_000).div_ceil(self.scale());
        Time(u64::try_from(truly).unwrap_or(u64::MAX).saturating_add(self.start.0))
    }

    /// Stops the awake clock: the machine falls asleep.
    pub fn sleep(&mut self, now: Time) {
        let local = self.steady(now);
        self.asleep_since.get_or_insert(local);
    }

    /// Starts the awake clock again: the machine wakes.
    pub fn wake(&mut self, now: Time) {
        if let Some(since) = self.asleep_since.take() {
            self.slept += self.steady(now).since(since);
        }
    }

    /// Lets the wall clock jump.
    pub fn jump(&mut self, milliseconds: i64) {
        self.wall_offset_ms += milliseconds;
    }

    /// Corrects the wall clock.
    pub(crate) fn set_right(&mut self) {
        self.wall_offset_ms = 0;
    }

    fn steady(&self, now: Time) -> Time {
        let passed = u128::from(now.since(self.start).as_nanos() as u64);
        Time(self.base.0 + (passed * self.scale() / 1_000_000) as u64)
    }

    fn scale(&self) -> u128 {
        (1_000_000 + i64::from(self.rate_ppm)) as u128
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_rate_applies_and_can_be_undone() {
        for rate in [-10_000, 0, 1, 9_999, 200_000] {
            let clocks = Clocks::new(Time(5), Time(1_000), rate);
            for local in [1_000, 1_001, 999_999, 123_456_789_123] {
                let truly = clocks.true_time_of(Time(local));
                assert!(clocks.at(truly).time.0 >= local);
                assert!(truly == Time(5) || clocks.at(Time(truly.0 - 1)).time.0 < local);
            }
        }
    }

    #[test]
    fn sleep_stops_the_awake_clock_alone() {
        let mut clocks = Clocks::new(Time(0), Time(1_000_000_000), 0);
        let before = clocks.at(Time(0) + SECOND);
        clocks.sleep(Time(0) + SECOND);
        clocks.wake(Time(0) + SECOND * 3);
        let after = clocks.at(Time(0) + SECOND * 3);
        assert_eq!(after.time.since(before.time), SECOND * 2);
        assert_eq!(after.awake, before.awake);
        clocks.jump(-5_000);
        assert_eq!(clocks.at(Time(0) + SECOND * 3).wall.0 + 5_000, after.wall.0);
    }
}
