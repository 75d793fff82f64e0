//! The number of groups that a run should lose by the formula of `policy::risk`, to compare with the lost ones.

use std::time::Duration;

use policy::risk::{Exposure, loses_majority};

use super::Figures;

/// Probability with which a run loses at most as many groups as the bound.
const CONFIDENCE: f64 = 0.95;
/// Mean above which a Poisson variable is taken for a normal one, which exceeds its mean by this many deviations in 5 of 100 cases.
const MEAN_LARGE: f64 = 100.0;
const DEVIATIONS: f64 = 1.645;
/// Interval at which groups are looked at, in seconds.
const LOOK_S: f64 = 1.0;

/// Groups that a run should lose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Losses {
    /// Expected number.
    pub expected: f64,
    /// Number that 95 of 100 runs do not exceed.
    pub bound: u64,
}

/// Returns the losses that follow from the time of repair and from the members that groups had.
///
/// Each member dies within the time of repair with the probability of its age and the true distribution of lives, independently of
/// the other members.
pub(crate) fn losses(figures: &Figures) -> Losses {
    let repair = Duration::from_secs_f64(figures.repair_s());
    let Some(lives) = figures.lives.filter(|_| !repair.is_zero()) else {
        return Losses { expected: 0.0, bound: 0 };
    };
    let exposure = |age: &f32| Exposure { dies: lives.dies_within(Duration::from_secs_f32(*age), repair), site: None };
    let lost = |ages: &Vec<f32>| loses_majority(&ages.iter().map(exposure).collect::<Vec<_>>());
    let expected = figures.ages.iter().map(|ages| rate(ages.len(), lost(ages), repair) * LOOK_S).sum();
    Losses { expected, bound: poisson_quantile(expected) }
}

/// Returns the rate, a second, at which a group of `members` members loses its majority, where a majority is dead with the
/// probability `lost` and a dead member is replaced after `repair`.
///
/// The state in which just too many are dead is entered as often as it is left: whenever the first of them is replaced. A group with `k`
/// dead members too many therefore loses its majority `k` times as often as disjoint windows tell (`policy::risk::per_hour`).
pub(crate) fn rate(members: usize, lost: f64, repair: Duration) -> f64 {
    lost * members.div_ceil(2) as f64 / repair.as_secs_f64()
}

/// Returns the least count that a Poisson variable of this mean does not exceed in 95 of 100 cases.
fn poisson_quantile(mean: f64) -> u64 {
    if mean > MEAN_LARGE {
        return (mean + DEVIATIONS * mean.sqrt()).ceil() as u64;
    }
    let (mut count, mut term) = (0, (-mean).exp());
    let mut sum = term;
    while sum < CONFIDENCE && term > 0.0 {
        count += 1;
        term *= mean / count as f64;
        sum += term;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_tables() {
        let known = [(0.0, 0), (0.04, 0), (0.1, 1), (1.0, 3), (3.0, 6), (10.0, 15), (400.0, 433)];
        known.iter().for_each(|(mean, count)| assert_eq!(poisson_quantile(*mean), *count, "{mean}"));
    }
}
