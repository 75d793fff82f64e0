//! Lifetimes of peers.

use std::fmt;
use std::time::Duration;

use crate::rng::Rng;

/// A distribution of lifetimes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lives {
    /// Exponential with this mean: a peer's age tells nothing about its remaining life.
    Exponential(Duration),
    /// Pareto: most peers die young, and some live for very long.
    Pareto {
        /// The mean.
        mean: Duration,
        /// The shape, above 1.
        shape: f64,
    },
}

impl Lives {
    /// Shape of the papers' Pareto distribution.
    pub const SHAPE: f64 = 1.1;
    /// Number of mean lives after which a Pareto population is warm. If all peers of a network were new at one moment, half of them
    /// would die within a sixth of the mean life, and no group would survive that.
    pub const WARM: u32 = 10;

    /// Returns the papers' Pareto distribution with this mean: no life is shorter than an eleventh of it.
    pub const fn pareto(mean: Duration) -> Lives {
        Lives::Pareto { mean, shape: Lives::SHAPE }
    }

    /// Draws a lifetime.
    pub(crate) fn draw(self, rng: &mut Rng) -> Duration {
        // Above 0, at most 1.
        let chance = rng.positive_fraction();
        match self {
            Lives::Exponential(mean) => mean.mul_f64(-chance.ln()),
            Lives::Pareto { mean, shape } => least(mean, shape).mul_f64(chance.powf(-1.0 / shape).min(1e6)),
        }
    }

    /// Draws the peer that stands at a place where peers have lived one after the other for the time `after`: its age, and its
    /// remaining life.
    pub(crate) fn draw_standing(self, rng: &mut Rng, after: Duration) -> (Duration, Duration) {
        let (mut start, mut end) = (Duration::ZERO, self.draw(rng));
        while end <= after {
            start = end;
            end += self.draw(rng);
        }
        (after - start, end - after)
    }

    /// Returns the mean life.
    pub fn mean(self) -> Duration {
        match self {
            Lives::Exponential(mean) | Lives::Pareto { mean, .. } => mean,
        }
    }

    /// Returns the probability that a peer of this age dies within `window`. Unlike `policy::lifetimes`, which peers use, this knows that
    /// no Pareto life ends before the shortest one.
    pub(crate) fn dies_within(self, age: Duration, window: Duration) -> f64 {
        1.0 - self.survives(age + window) / self.survives(age)
    }

    /// Returns the probability that a life lasts longer than this.
    fn survives(self, age: Duration) -> f64 {
        match self {
            Lives::Exponential(mean) => (-age.as_secs_f64() / mean.as_secs_f64()).exp(),
            Lives::Pareto { mean, shape } => {
                (least(mean, shape).as_secs_f64() / age.as_secs_f64()).min(1.0).powf(shape)
            }
        }
    }
}

/// Returns the shortest lifetime of a Pareto distribution.
fn least(mean: Duration, shape: f64) -> Duration {
    // Exact for the papers' shape, as recorded runs have it.
    if shape == Lives::SHAPE { mean / 11 } else { mean.mul_f64((shape - 1.0) / shape) }
}

impl fmt::Display for Lives {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lives::Exponential(mean) => write!(out, "exponential {} s", mean.as_secs_f64()),
            Lives::Pareto { mean, .. } => write!(out, "Pareto {} s", mean.as_secs_f64()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_end_as_they_are_drawn() {
        let (age, window) = (Duration::from_secs(5), Duration::from_secs(20));
        for lives in [Lives::Exponential(Duration::from_secs(50)), Lives::pareto(Duration::from_secs(100))] {
            let mut rng = Rng::new(3, "lives");
            let all: Vec<Duration> = (0..50_000).map(|_| lives.draw(&mut rng)).filter(|life| *life > age).collect();
            let died = all.iter().filter(|life| **life <= age + window).count() as f64 / all.len() as f64;
            assert!((lives.dies_within(age, window) - died).abs() < 0.01, "{lives}: {died}");
        }
        // A Pareto life of this mean lasts for 9.09 s at least.
        assert_eq!(Lives::pareto(Duration::from_secs(100)).dies_within(Duration::ZERO, Duration::from_secs(9)), 0.0);
    }

    #[test]
    fn means_and_medians_are_those_of_the_distributions() {
        let mean = Duration::from_secs(100);
        let sorted = |lives: Lives| {
            let mut rng = Rng::new(1, "lives");
            let mut all: Vec<f64> = (0..20_000).map(|_| lives.draw(&mut rng).as_secs_f64()).collect();
            all.sort_by(f64::total_cmp);
            all
        };
        let exponential = sorted(Lives::Exponential(mean));
        assert!((exponential.iter().sum::<f64>() / 20_000.0 - 100.0).abs() < 3.0);
        assert!((exponential[10_000] - 69.3).abs() < 3.0);
        let mut rng = Rng::new(2, "lives");
        let residual = |lives: Lives, rng: &mut Rng| {
            let all = (0..20_000).map(|_| lives.draw_standing(rng, mean * 10).1.as_secs_f64());
            all.filter(|residual| *residual < 30.0).count()
        };
        let [exponential, old] = [Lives::Exponential(mean), Lives::pareto(mean)].map(|lives| residual(lives, &mut rng));
        assert!((4_900..5_500).contains(&exponential), "an exponential life has no age: {exponential}");
        let pareto = sorted(Lives::pareto(mean));
        let young = pareto.iter().filter(|life| **life < 30.0).count();
        assert!(old < young * 3 / 5, "peers that stand after ten mean lives live longer: {old} and {young}");
        assert!((pareto[10_000] - 17.0).abs() < 1.0 && pareto[0] >= 9.09, "the median is 0.17 of the mean");
    }
}
