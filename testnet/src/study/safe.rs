//! The sizes of groups that are safe while peers live for random times: a group loses its majority with at most the probability [`SAFE`]
//! before its dead members are replaced.

use std::time::Duration;

use policy::risk::{Exposure, loses_majority};

use crate::churn::Lives;
use crate::rng::Rng;

/// A group is safe where it fails with at most this probability before a repair: seven nines.
pub(crate) const SAFE: f64 = 1e-7;
/// Time from a death until the failure detector senses it.
pub(crate) const DETECTION: Duration = Duration::from_secs(2);
/// Approximate time of a change of members, after detection.
const CHANGE: Duration = Duration::from_millis(300);
/// Number of standing members that are drawn to find how many die within a window.
const STANDING: usize = 200_000;
/// Limit of the search for a group's size.
const SIZE_MAX: usize = 99;

/// Members that stand in a population that has renewed itself for long: their ages, and their remaining lives.
pub(crate) struct StandingMembers(Vec<(Duration, Duration)>);

impl StandingMembers {
    pub(crate) fn draw(lives: Lives, seed: u64) -> StandingMembers {
        let mut rng = Rng::new(seed, "standing");
        StandingMembers((0..STANDING).map(|_| lives.draw_standing(&mut rng, lives.mean() * Lives::WARM)).collect())
    }

    /// Draws the remaining life of one of them.
    pub(crate) fn pick(&self, rng: &mut Rng) -> Duration {
        rng.pick(&self.0).1
    }

    /// Returns the probability that one of them dies within this time.
    pub(crate) fn dies_within(&self, lives: Lives, window: Duration) -> f64 {
        let sum: f64 = self.0.iter().map(|(age, _)| lives.dies_within(*age, window)).sum();
        sum / self.0.len() as f64
    }
}

/// Returns the least and the greatest size of a group of such peers, whose deaths are detected after `detection`: the least with seven nines
/// until dead members are replaced, and the greatest beyond which a group splits into halves of at least the least size.
pub fn safe_sizes(lives: Lives, detection: Duration, seed: u64) -> (u32, u32) {
    let dies = StandingMembers::draw(lives, seed).dies_within(lives, detection + CHANGE);
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

    #[test]
    fn safer_lives_need_fewer_members() {
        let size = |seconds| safe_sizes(Lives::pareto(Duration::from_secs(seconds)), DETECTION, 1).0;
        let sizes = [100, 500, 1_000].map(size);
        assert!(sizes[0] > sizes[1] && sizes[1] >= sizes[2] && sizes[2] >= 5 && sizes[0] <= 25, "{sizes:?}");
    }

    /// Later detection needs larger groups, Pareto lives larger ones than exponential lives, and no group splits into ones that must merge.
    #[test]
    fn later_detection_needs_more_members() {
        let sizes = |lives, detection| safe_sizes(lives, Duration::from_secs(detection), 1);
        let mean = Duration::from_secs(180);
        let (pareto, exponential) = (sizes(Lives::pareto(mean), 2), sizes(Lives::Exponential(mean), 2));
        assert!(
            exponential.0 <= pareto.0 && pareto.0 < sizes(Lives::pareto(mean), 10).0,
            "{exponential:?}, {pareto:?}"
        );
        assert!(!node::can_flap(pareto.0 as usize, pareto.1 as usize));
    }
}
