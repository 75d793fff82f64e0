//! The only source of random numbers: seeded, so that a run can be repeated.

/// SplitMix64: small, fast, good enough for jitter.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Creates a generator that this seed determines.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// Returns 64 random bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`; 0 where that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.draw() % bound }
    }

    /// Shuffles these, with each order equally likely.
    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for index in (1..all.len()).rev() {
            all.swap(index, self.below(index as u64 + 1) as usize);
        }
    }

    /// Returns a duration below `bound`.
    pub fn duration_below(&mut self, bound: core::time::Duration) -> core::time::Duration {
        let nanos = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
        core::time::Duration::from_nanos(self.below(nanos))
    }
}
