//! The keys of requests.

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use rand_distr::{Distribution as _, Zipf};

/// Distribution of requests over the keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Each key as often as any other.
    Uniform,
    /// Key `n` in proportion to `1 / (n + 1)^exponent`. The usual skewed load has 0.99.
    Zipf {
        /// 0 or more.
        exponent: f64,
    },
    /// Each key once, in order, and no request after the last.
    Once,
}

impl Distribution {
    pub(crate) fn is_sound(&self) -> bool {
        !matches!(self, Distribution::Zipf { exponent } if !(exponent.is_finite() && *exponent >= 0.0))
    }
}

/// Draws keys and kinds of requests.
pub struct Keys {
    random: SmallRng,
    keys: u64,
    draw: Draw,
}

enum Draw {
    Uniform,
    Zipf(Zipf<f64>),
    /// The next key, and its distance to the key after.
    Once(u64, u64),
}

impl Keys {
    /// Creates the keys of the `part`th of `parts` generators that share the keys. `None` if the distribution is
    /// invalid.
    pub fn new(distribution: Distribution, keys: u64, seed: u64, part: u64, parts: u64) -> Option<Keys> {
        let draw = match distribution {
            Distribution::Uniform => Draw::Uniform,
            Distribution::Zipf { exponent } => Draw::Zipf(Zipf::new(keys as f64, exponent).ok()?),
            Distribution::Once => Draw::Once(part, parts),
        };
        let random = SmallRng::seed_from_u64(seed ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Some(Keys { random, keys, draw })
    }

    /// Returns the next key; `None` once each key was returned under [`Distribution::Once`].
    pub fn next_key(&mut self) -> Option<u64> {
        match &mut self.draw {
            Draw::Uniform => Some(self.random.random_range(0..self.keys)),
            Draw::Zipf(zipf) => Some((zipf.sample(&mut self.random) as u64).clamp(1, self.keys) - 1),
            Draw::Once(next, step) => {
                let key = *next;
                *next += *step;
                (key < self.keys).then_some(key)
            }
        }
    }

    /// Returns whether the next request is one of a kind with this share, from 0 to 1.
    pub fn chance(&mut self, share: f64) -> bool {
        share >= 1.0 || (share > 0.0 && self.random.random_bool(share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(distribution: Distribution, draws: usize) -> Vec<u64> {
        let mut keys = Keys::new(distribution, 1000, 7, 0, 1).expect("sound");
        let mut counts = vec![0; 1000];
        (0..draws).for_each(|_| counts[keys.next_key().expect("endless") as usize] += 1);
        counts
    }

    #[test]
    fn every_key_as_often() {
        let counts = counts(Distribution::Uniform, 1_000_000);
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    }

    /// The shares of the first keys against the definition.
    #[test]
    fn the_first_keys_as_often_as_zipf_says() {
        let counts = counts(Distribution::Zipf { exponent: 0.99 }, 1_000_000);
        let all = (1..=1000).map(|rank| f64::from(rank).powf(-0.99)).sum::<f64>();
        for rank in [1, 2, 10, 100, 1000] {
            let expected = 1e6 * f64::from(rank).powf(-0.99) / all;
            let counted = counts[rank as usize - 1] as f64;
            assert!((counted - expected).abs() < 5.0 * expected.sqrt() + 1.0, "rank {rank}: {counted} of {expected}");
        }
    }

    #[test]
    fn each_key_once_over_all_parts() {
        let mut seen = Vec::new();
        for part in 0..3 {
            let mut keys = Keys::new(Distribution::Once, 10, 7, part, 3).expect("sound");
            seen.extend(std::iter::from_fn(|| keys.next_key()));
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn nonsense_is_no_distribution() {
        assert!(!Distribution::Zipf { exponent: f64::NAN }.is_sound());
        assert!(!Distribution::Zipf { exponent: -1.0 }.is_sound());
        assert!(Distribution::Zipf { exponent: 0.0 }.is_sound());
    }
}
