//! The harness itself: it finds nothing in a store that works, finds each defect of one that does not, and repeats.

mod toy;

use testnet::sim::harness::{Batch, expect_well, for_each_seed, run, shrink};
use testnet::sim::{Host, Scenario};
use toy::Toy;

/// The first failure within so many seeds.
fn first_failure<H: Host>(seeds: u64) -> Option<(Scenario, &'static str)> {
    let batch = Batch::run::<H>((0..seeds).map(Scenario::from_seed), None, 1);
    batch.failures.into_iter().next().map(|(scenario, failure)| {
        println!("{failure}");
        (scenario, failure.property)
    })
}

#[test]
fn a_store_that_works_passes() {
    for_each_seed("a_store_that_works_passes", 150, |seed| {
        expect_well::<Toy<{ toy::NOTHING }>>(&Scenario::from_seed(seed));
    });
}
