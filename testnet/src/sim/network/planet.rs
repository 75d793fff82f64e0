//! A model of latencies like PlanetLab's. Synthetic: no latencies of PlanetLab are available. It has one anchor: in groups of nine
//! machines chosen at random a primary waits 124 ms for a majority at the median (Scatter Fig. 10).

use std::time::Duration;

use crate::rng::Rng;

/// One way between regions, in milliseconds: the east and the west of North America, Europe, Asia, the south.
const BETWEEN: [[f64; 5]; 5] = [
    [11.0, 33.0, 42.0, 95.0, 65.0],
    [33.0, 9.0, 70.0, 60.0, 88.0],
    [42.0, 70.0, 12.0, 115.0, 100.0],
    [95.0, 60.0, 115.0, 28.0, 140.0],
    [65.0, 88.0, 100.0, 140.0, 25.0],
];
/// Machines in each region, in 1,000.
const SHARES: [u64; 5] = [330, 200, 300, 140, 30];
/// The last mile, one way, is log-normal: its median in milliseconds, and the deviation of its logarithm.
const LAST_MILE: (f64, f64) = (8.0, 0.9);
/// Slow machines, in 1,000, and the upper limit of their delay for one way, in milliseconds.
const SLOW: (u32, u64) = (50, 300);

/// Machines with places in the model.
#[derive(Clone, Debug)]
pub struct Planet {
    places: Vec<(usize, Duration)>,
}

impl Planet {
    /// Draws places for `n` machines.
    pub fn new(n: usize, seed: u64) -> Planet {
        let mut rng = Rng::new(seed, "planet");
        let places = (0..n).map(|_| {
            let mut drawn = rng.below(1_000);
            let region = SHARES.iter().position(|share| {
                let is_here = drawn < *share;
                drawn = drawn.saturating_sub(*share);
                is_here
            });
            let mut last_ms = LAST_MILE.0 * (LAST_MILE.1 * normal(&mut rng)).exp();
            if rng.per_mille(SLOW.0) {
                last_ms += rng.below(SLOW.1) as f64;
            }
            (region.unwrap_or_default(), Duration::from_secs_f64(last_ms.min(1_000.0) / 1e3))
        });
        Planet { places: places.collect() }
    }

    /// Returns the least time of one way.
    pub fn one_way(&self, from: usize, to: usize) -> Duration {
        let ((here, near), (there, far)) = (self.places[from], self.places[to]);
        Duration::from_secs_f64(BETWEEN[here][there] / 1e3) + near + far
    }
}

/// Draws from the normal distribution of mean 0 and deviation 1 (Box and Muller).
pub(crate) fn normal(rng: &mut Rng) -> f64 {
    let (radius, angle) =
        ((-2.0 * rng.positive_fraction().ln()).sqrt(), std::f64::consts::TAU * rng.positive_fraction());
    radius * angle.cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the time for which the first of nine machines waits for a majority, itself counted.
    fn agreement(planet: &Planet, rng: &mut Rng) -> Duration {
        let members: Vec<usize> = (0..9).map(|_| rng.below(840) as usize).collect();
        let mut trips: Vec<Duration> =
            members[1..].iter().map(|other| 2 * planet.one_way(members[0], *other)).collect();
        trips.sort();
        trips[3]
    }

    #[test]
    fn a_majority_of_nine_takes_as_long_as_in_the_paper() {
        let (planet, mut rng) = (Planet::new(840, 1), Rng::new(1, "groups"));
        let mut all: Vec<Duration> = (0..20_000).map(|_| agreement(&planet, &mut rng)).collect();
        all.sort();
        let median = all[all.len() / 2].as_millis();
        assert!((118..=130).contains(&median), "{median} ms at the median, and the paper has 124");
        assert!(
            all[200] > Duration::from_millis(20) && all[19_800] < Duration::from_millis(1_000),
            "{:?}",
            all[19_800]
        );
    }
}
