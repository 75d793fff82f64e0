//! Chance that repeats: a small seeded generator, one for each purpose.

use std::time::Duration;

/// xoshiro256++ (Blackman and Vigna), seeded through SplitMix64.
///
/// Each purpose of a run has a generator of its own, so that more draws for one do not change the draws for another.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// Returns the generator for `purpose` in the run of `seed`.
    pub fn new(seed: u64, purpose: &str) -> Rng {
        let mut mixer = seed;
        for byte in purpose.bytes() {
            mixer = (mixer ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Rng { state: [(); 4].map(|()| split_mix(&mut mixer)) }
    }

    /// Draws 64 bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let c2 = c ^ a;
        let d2 = d ^ b;
        self.state = [a ^ d2, b ^ c2, c2 ^ (b << 17), d2.rotate_left(45)];
        result
    }

    /// Draws a number below `bound`; 0 where `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The bias of 2^-64 × bound does not matter here.
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// Draws a number from `low` up to and including `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// Returns true in `count` of 1,000 cases.
    pub fn per_mille(&mut self, count: u32) -> bool {
        count > 0 && self.below(1000) < u64::from(count)
    }

    /// Draws a fraction of at least 0 and below 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Draws a fraction above 0 and of at most 1, which has a logarithm.
    pub(crate) fn positive_fraction(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 1.0) / (1u64 << 53) as f64
    }

    /// Draws a duration from `low` up to `high`.
    pub fn duration(&mut self, low: Duration, high: Duration) -> Duration {
        Duration::from_nanos(self.between(low.as_nanos() as u64, high.as_nanos() as u64))
    }

    /// Draws one of these; there must be one.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purpose_repeats_and_differs_from_the_next() {
        let draw = |seed, purpose| {
            let mut rng = Rng::new(seed, purpose);
            [(); 8].map(|()| rng.bits())
        };
        assert_eq!(draw(1, "network"), draw(1, "network"));
        assert_ne!(draw(1, "network"), draw(1, "clients"));
        assert_ne!(draw(1, "network"), draw(2, "network"));
    }

    #[test]
    fn bounds_hold_and_are_reached() {
        let mut rng = Rng::new(7, "bounds");
        let mut seen = [false; 3];
        for _ in 0..200 {
            seen[(rng.between(4, 6) - 4) as usize] = true;
        }
        assert_eq!(seen, [true; 3]);
        assert_eq!(rng.below(0), 0);
    }
}
