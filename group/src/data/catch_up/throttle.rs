//! Limit of the rate at which a node copies from other members.

use core::time::Duration;

use overlay::time::Time;

/// Shares a bandwidth out over time: after a large copy the next one waits until that was its share.
#[derive(Clone, Copy, Debug, Default)]
pub struct Throttle {
    free_at: Time,
    /// Ratio of the largest page to recent pages, in halvings.
    halved: u32,
}

impl Throttle {
    /// Time by which data may come early.
    const BURST: Duration = Duration::from_millis(20);

    /// Upper limit of the time counted for one page that has not come: a silent source does not delay other copies for
    /// long.
    const PAGE_MAX: Duration = Duration::from_millis(50);

    /// Upper limit of the halvings: a page is expected to take at least an eighth of the largest one.
    const HALVED_MAX: u32 = 3;

    /// Returns the time that this many bytes take.
    fn time_of(bytes: u64, per_second: u64) -> Duration {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(per_second.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX / 4))
    }

    /// Counts bytes that came.
    pub fn take(&mut self, now: Time, bytes: u64, per_second: u64) {
        self.free_at = self.free_at.max(now) + Throttle::time_of(bytes, per_second);
    }

    /// Counts a page that came, with the limit `page_max` of a page, in bytes.
    pub(crate) fn take_page(&mut self, now: Time, bytes: u64, page_max: u64, per_second: u64) {
        self.take(now, bytes, per_second);
        // Large pages are expected at once, smaller ones with each page more.
        let halved = (1..=Throttle::HALVED_MAX).take_while(|halved| bytes <= page_max >> halved);
        self.halved = halved.last().unwrap_or(0).min(self.halved + 1);
    }

    /// Counts a page that was asked for, of at most `page_max` bytes.
    pub(crate) fn expect(&mut self, asked: Time, page_max: u64, per_second: u64) {
        let page = Throttle::time_of(page_max >> self.halved, per_second);
        self.free_at = self.free_at.max(asked) + page.min(Throttle::PAGE_MAX);
    }

    /// Returns when more may be asked for; `now`, if it may.
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

    /// Small pages are asked for in greater number at the same time; after a large one, fewer.
    #[test]
    fn small_pages_may_be_asked_for_together() {
        let (page_max, per_second) = (256 << 10, 8 << 20);
        let together = |throttle: &Throttle| {
            let (mut asked, mut throttle) = (0, *throttle);
            while throttle.opens(Time(0)) == Time(0) {
                throttle.expect(Time(0), page_max, per_second);
                asked += 1;
            }
            asked
        };
        let mut throttle = Throttle::default();
        let mut all = alloc::vec![together(&throttle)];
        for bytes in [100, 100, 100, 100, 256 << 10] {
            throttle.take_page(Time(0), bytes, page_max, per_second);
            all.push(together(&Throttle { free_at: Time(0), ..throttle }));
        }
        assert_eq!(all, [1, 2, 3, 6, 6, 1]);
    }
}
