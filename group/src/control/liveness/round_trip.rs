//! Time that answers take.

use core::time::Duration;

/// Estimator of round trips after TCP (RFC 6298): where a peer is busy, or a way is long, a slow answer is not lost.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundTrip {
    smooth: Duration,
    varies: Duration,
}

impl RoundTrip {
    /// Takes the time of an answer. The caller must know which request it answers, also where one was sent again.
    pub fn took(&mut self, time: Duration) {
        if self.smooth.is_zero() {
            (self.smooth, self.varies) = (time, time / 2);
        } else {
            self.varies = (3 * self.varies + self.smooth.abs_diff(time)) / 4;
            self.smooth = (7 * self.smooth + time) / 8;
        }
    }

    /// Returns the time after which an unanswered request may be lost; `None` before the first answer. At least 1.5 times the average:
    /// where all answers take the same time, some take a little longer.
    pub fn patience(&self) -> Option<Duration> {
        (!self.smooth.is_zero()).then(|| self.smooth + (4 * self.varies).max(self.smooth / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_follows_what_answers_take() {
        let ms = Duration::from_millis;
        let mut trip = RoundTrip::default();
        assert_eq!(trip.patience(), None);
        trip.took(ms(10));
        assert_eq!(trip.patience(), Some(ms(30)));
        (0..100).for_each(|_| trip.took(ms(10)));
        assert_eq!(trip.patience(), Some(ms(15)));
        trip.took(ms(50));
        assert!(trip.patience().is_some_and(|it| it > ms(50)));
    }
}
