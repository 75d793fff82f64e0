//! How fast a node copies from others.

use core::time::Duration;

use crate::config::GroupConfig;
use crate::time::Time;

/// Shares a bandwidth out over time: who has taken much waits until that was its share.
#[derive(Clone, Copy, Debug, Default)]
pub struct Throttle {
    free_at: Time,
}

impl Throttle {
    /// What may come ahead of its time.
    const BURST: Duration = Duration::from_millis(20);

    /// What one page takes at most, as long as it has not come: whoever is silent does not keep others waiting for long.
    const PAGE_MAX: Duration = Duration::from_millis(50);

    /// How long so many bytes take.
    fn time_of(bytes: u64, per_second: u64) -> Duration {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(per_second.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX / 4))
    }

    /// So many bytes came.
    pub fn take(&mut self, now: Time, bytes: u64, per_second: u64) {
        self.free_at = self.free_at.max(now) + Throttle::time_of(bytes, per_second);
    }

    /// A page was asked for.
    pub(crate) fn expect(&mut self, asked: Time, config: &GroupConfig) {
        let page = Throttle::time_of(config.message_bytes_max as u64, config.transfer_bytes_per_s);
        self.free_at = self.free_at.max(asked) + page.min(Throttle::PAGE_MAX);
    }

    /// When more may be asked for; now, if it may.
    pub fn opens(&self, now: Time) -> Time {
        now + self.free_at.since(now).saturating_sub(Throttle::BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_throttle_keeps_to_its_rate() {
        let (mut throttle, mut now, mut taken) = (Throttle::default(), Time(1_000_000_000), 0);
        let begin = now;
        while taken < 10_000_000 {
            assert_eq!(throttle.opens(now), now);
            throttle.take(now, 256 << 10, 1_000_000);
            taken += 256 << 10;
            now = now.max(throttle.opens(now));
        }
        let seconds = now.since(begin).as_secs_f64();
        assert!((9.5..10.6).contains(&seconds), "10 MB at 1 MB/s took {seconds} s");
    }
}
