//! The sizes of groups that are safe while peers live for random times: with at most the probability [`SAFE`] they lose their majorities before
//! the dead are replaced.

use std::time::Duration;

use policy::risk::{Exposure, loses_majority};

use crate::churn::Lives;
use crate::rng::Rng;

/// A group is safe where it fails with at most this probability before a repair: seven nines.
pub(crate) const SAFE: f64 = 1e-7;
/// From a death until the failure detector senses it.
pub(crate) const DETECTION: Duration = Duration::from_secs(2);
/// A change of members takes about so long, after detection.
const CHANGE: Duration = Duration::from_millis(300);
/// Standing members that are drawn to know how many die within a window.
const STANDING: usize = 200_000;
/// The largest group that is looked for.
const SIZE_MAX: usize = 99;

/// The members that stand in a population that has renewed itself for long: their ages, and how long they still live.
pub(crate) struct Standing(Vec<(Duration, Duration)>);

impl Standing {
    pub(crate) fn draw(lives: Lives, seed: u64) -> Standing {
        let mut rng = Rng::new(seed, "standing");
        Standing((0..STANDING).map(|_| lives.draw_standing(&mut rng, lives.mean() * Lives::WARM)).collect())
    }

    /// Returns how long one of them still lives.
    pub(crate) fn pick(&self, rng: &mut Rng) -> Duration {
        rng.pick(&self.0).1
    }

    /// Returns the probability that one of them dies within this time.
    pub(crate) fn dies_within(&self, lives: Lives, window: Duration) -> f64 {
        let sum: f64 = self.0.iter().map(|(age, _)| lives.dies_within(*age, window)).sum();
        sum / self.0.len() as f64
    }
}

/// Returns the limits of the sizes of groups of such peers: the least one with seven nines until the dead are replaced, and the greatest whose
/// halves are not smaller than that.
pub fn safe_sizes(lives: Lives, seed: u64) -> (u32, u32) {
    let dies = Standing::draw(lives, seed).dies_within(lives, DETECTION + CHANGE);
    let least = (1..SIZE_MAX).find(|size| fails(*size, dies) <= SAFE).unwrap_or(SIZE_MAX) as u32;
    (least, 2 * least - 1)
}

/// Returns the probability that a group of this size loses its majority, where each member dies with the probability `dies`.
pub(crate) fn fails(size: usize, dies: f64) -> f64 {
    loses_majority(&vec![Exposure { dies, site: None }; size])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shorter lives need larger groups, and Pareto lives larger ones than exponential lives.
    #[test]
    fn groups_are_larger_where_peers_die_sooner() {
        let least = |lives| safe_sizes(lives, 1).0;
        let seconds = Duration::from_secs;
        let exponential = [100, 180, 1000].map(|mean| least(Lives::Exponential(seconds(mean))));
        let pareto = [100, 180, 1000].map(|mean| least(Lives::Pareto(seconds(mean))));
        assert!(exponential.is_sorted_by(|one, next| one >= next), "{exponential:?}");
        assert!(pareto.is_sorted_by(|one, next| one >= next), "{pareto:?}");
        assert!(exponential.iter().zip(&pareto).all(|(one, other)| one <= other), "{exponential:?}, {pareto:?}");
        assert!(pareto.iter().chain(&exponential).all(|size| (5..=25).contains(size)), "{exponential:?}, {pareto:?}");
        assert!(!node::can_flap(pareto[1] as usize, 2 * pareto[1] as usize - 1));
    }
}
