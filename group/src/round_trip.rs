//! How long answers take.

use core::time::Duration;

/// As TCP has it (RFC 6298): where others have much to do, or a way is long, what takes longer is not lost.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundTrip {
    smooth: Duration,
    varies: Duration,
}

impl RoundTrip {
    /// An answer took so long. It has to be known which question it answers, also where one is asked again.
    pub fn took(&mut self, time: Duration) {
        if self.smooth.is_zero() {
            (self.smooth, self.varies) = (time, time / 2);
        } else {
            self.varies = (3 * self.varies + self.smooth.abs_diff(time)) / 4;
            self.smooth = (7 * self.smooth + time) / 8;
        }
    }

    /// What has not been answered after so long may be lost; nothing is known before the first answer. It is half as long again as
    /// answers take at least: where all take the same some will take a little longer.
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
