//! Latencies of commands, counted in fine steps: the source of the percentiles of the last second.

use std::array::from_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Steps per doubling of the time: a percentile is off by a fifth at most.
const STEPS: u32 = 4;
/// Shortest time that is told apart, as a power of two of microseconds (2^4): shorter times count as this.
const FIRST_BITS: u32 = 4;
/// Number of steps. Times longer than 2^(4 + 18) us, which is about 4 s, count as that; commands are answered
/// within 3 s.
const BUCKETS: usize = (18 * STEPS) as usize;

/// Counts since the start. Counting takes no lock.
#[derive(Debug)]
pub struct Latencies([AtomicU64; BUCKETS]);

/// Counts at one moment, or between two moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts([u64; BUCKETS]);

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies(from_fn(|_| AtomicU64::new(0)))
    }
}

impl Default for Counts {
    fn default() -> Counts {
        Counts([0; BUCKETS])
    }
}

impl Latencies {
    /// Counts one command.
    pub fn count(&self, time: Duration) {
        self.0[bucket(time)].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns all counts so far.
    pub fn counts(&self) -> Counts {
        Counts(from_fn(|bucket| self.0[bucket].load(Ordering::Relaxed)))
    }
}

impl Counts {
    /// Returns the counts since `before`.
    pub fn since(&self, before: &Counts) -> Counts {
        Counts(from_fn(|bucket| self.0[bucket].saturating_sub(before.0[bucket])))
    }

    /// Returns the number of commands.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the time within which this fraction of the commands (0 to 1) was answered, to within a step;
    /// `None` where there are none.
    pub(crate) fn quantile(&self, part: f64) -> Option<Duration> {
        let total = self.total();
        // At least one: the quickest.
        let wanted = ((total as f64 * part).ceil() as u64).clamp(1, total.max(1));
        let mut seen = 0;
        let bucket = self.0.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some(middle(bucket))
    }
}

/// Returns the step of a time.
fn bucket(time: Duration) -> usize {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1 << FIRST_BITS);
    let bits = micros.ilog2();
    // The bits behind the first one say in which quarter of the octave it lies.
    let step = (micros >> (bits - STEPS.ilog2())) & u64::from(STEPS - 1);
    let place = (bits - FIRST_BITS) as usize * STEPS as usize + step as usize;
    place.min(BUCKETS - 1)
}

/// Returns the time that stands for all times of a step.
fn middle(bucket: usize) -> Duration {
    let (octave, step) = (bucket as u32 / STEPS, bucket as u32 % STEPS);
    let first = f64::from(1_u32 << (FIRST_BITS + octave));
    let micros = first * (1.0 + (f64::from(step) + 0.5) / f64::from(STEPS));
    Duration::from_secs_f64(micros / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_near_what_was_counted() {
        for micros in [16, 20, 100, 999, 1234, 50_000, 700_000, 3_000_000] {
            let latencies = Latencies::default();
            let time = Duration::from_micros(micros);
            latencies.count(time);
            let told = latencies.counts().quantile(0.5).unwrap();
            let ratio = told.as_secs_f64() / time.as_secs_f64();
            assert!((0.8..1.25).contains(&ratio), "{told:?} of {time:?}");
        }
        let latencies = Latencies::default();
        latencies.count(Duration::ZERO);
        latencies.count(Duration::MAX);
        assert_eq!(latencies.counts().total(), 2);
    }

    #[test]
    fn percentiles_of_what_came_between() {
        let latencies = Latencies::default();
        (0..1000).for_each(|_| latencies.count(Duration::from_secs(1)));
        let before = latencies.counts();
        (0..98).for_each(|_| latencies.count(Duration::from_millis(1)));
        (0..2).for_each(|_| latencies.count(Duration::from_millis(100)));
        let since = latencies.counts().since(&before);
        assert_eq!(since.total(), 100);
        let millis = |part| since.quantile(part).unwrap().as_secs_f64() * 1e3;
        assert!((0.8..1.25).contains(&millis(0.5)) && (80.0..125.0).contains(&millis(0.99)));
        assert_eq!(Counts::default().quantile(0.5), None);
    }
}
