//! Property tests of the workspace draw the same cases in every run, unless the environment asks for other cases.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngSeed, TestRunner};

/// Returns the first cases of a property with the default settings.
fn cases() -> Vec<(u128, Vec<u32>)> {
    let mut runner = TestRunner::new(ProptestConfig::default());
    let strategy = any::<(u128, Vec<u32>)>();
    (0..4).map(|_| strategy.new_tree(&mut runner).expect("all values will do").current()).collect()
}

#[test]
fn property_tests_draw_from_a_fixed_seed() {
    let seed = ProptestConfig::default().rng_seed;
    assert!(
        matches!(seed, RngSeed::Fixed(_)),
        "PROPTEST_RNG_SEED is not set or no number: `.cargo/config.toml` sets it for cargo within the repository"
    );
    assert_eq!(ProptestConfig::with_cases(7).rng_seed, seed, "settings of single tests keep the seed");
    assert_eq!(cases(), cases());
}
