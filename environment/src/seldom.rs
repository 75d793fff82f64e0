//! Log lines about a repeated failure: one at once, then one a minute.

use std::time::{Duration, Instant};

/// Interval of two log lines about the same failure.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Counts failures of one kind, and decides about log lines.
#[derive(Debug, Default)]
pub struct Seldom {
    told: Option<Instant>,
    failures: u64,
}

impl Seldom {
    /// Counts one more failure. Where a line is due, returns the number of failures since the last line.
    pub fn failed(&mut self, now: Instant) -> Option<u64> {
        self.failures += 1;
        if self.told.is_some_and(|told| now.duration_since(told) < TOLD_EVERY) {
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.failures))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_once_a_minute() {
        let (mut seldom, start) = (Seldom::default(), Instant::now());
        let told: Vec<u64> = (0..200).filter_map(|n| seldom.failed(start + n * TOLD_EVERY / 100)).collect();
        assert_eq!(told, [1, 100]);
    }
}
