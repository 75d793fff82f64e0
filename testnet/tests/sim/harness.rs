//! Tests of the harness itself: it finds nothing in a store that works, finds each defect of one that does not, and repeats its
//! runs.

use testnet::sim::harness::{Batch, expect_well, for_each_seed, run, shrink};
use testnet::sim::{Host, Scenario};

use crate::toy::{self, Toy};

/// Returns the first failure within this number of seeds.
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

/// Asserts that the defect is found within some seeds, by one of these properties, and that the scenario shrinks to one that
/// still fails.
fn is_caught<H: Host>(properties: &[&str]) {
    let (scenario, property) = first_failure::<H>(60).expect("a defect is found");
    assert!(properties.contains(&property), "found, but as {property}");
    let smallest = shrink::<H>(&scenario, property, 20);
    assert!(smallest.faults.len() <= scenario.faults.len());
    assert_eq!(run::<H>(&smallest, false).failure.map(|failure| failure.property), Some(property));
}

#[test]
fn stale_reads_are_caught() {
    is_caught::<Toy<{ toy::STALE_READS }>>(&[
        "I4 linearizable",
        "I5 durable",
        "I6 at most once",
        "I14 deletes stay deleted",
    ]);
}

#[test]
fn lost_writes_are_caught() {
    is_caught::<Toy<{ toy::LOST_WRITES }>>(&["I4 linearizable", "I5 durable", "I6 at most once"]);
}

#[test]
fn double_application_is_caught() {
    is_caught::<Toy<{ toy::DOUBLE_APPLY }>>(&["I4 linearizable", "I6 at most once"]);
}

#[test]
fn dirty_reads_are_caught() {
    is_caught::<Toy<{ toy::DIRTY_READS }>>(&["I4 linearizable", "I6 at most once", "I7 no dirty read"]);
}

#[test]
fn late_effects_are_caught() {
    is_caught::<Toy<{ toy::LATE_EFFECTS }>>(&["I8 settled"]);
}

#[test]
fn undone_deletes_are_caught() {
    is_caught::<Toy<{ toy::DELETES_UNDONE }>>(&["I4 linearizable", "I14 deletes stay deleted"]);
}

#[test]
fn two_answers_are_caught() {
    is_caught::<Toy<{ toy::TWO_ANSWERS }>>(&["one answer to each request"]);
}

#[test]
fn silence_is_caught() {
    is_caught::<Toy<{ toy::SILENCE }>>(&["PTO1 validity"]);
}

#[test]
fn panics_are_caught() {
    is_caught::<Toy<{ toy::PANICS }>>(&["panic"]);
}

#[test]
fn reordered_connections_are_caught() {
    is_caught::<Toy<{ toy::REORDERS }>>(&["I4 linearizable", "I6 at most once", "I8 settled"]);
}

#[test]
fn versions_used_twice_are_caught() {
    is_caught::<Toy<{ toy::REUSED_VERSIONS }>>(&["I4 linearizable"]);
}

#[test]
fn a_seed_repeats_byte_for_byte() {
    for seed in 0..5 {
        let scenario = Scenario::from_seed(seed);
        let [one, two] = [(); 2].map(|()| run::<Toy<{ toy::NOTHING }>>(&scenario, true));
        assert!(!one.trace.is_empty());
        assert_eq!(one.trace, two.trace);
        assert_eq!(one.hash, two.hash);
        assert_eq!(one.hash, run::<Toy<{ toy::NOTHING }>>(&scenario, false).hash, "reading along changes nothing");
    }
}

/// Prints the speed of the harness. The toy is quick, so this is the harness's own time, checks included.
#[test]
fn the_harness_is_quick() {
    let batch = Batch::run::<Toy<{ toy::NOTHING }>>((1_000..1_040).map(Scenario::from_seed), None, 1);
    println!("{batch}");
    assert!(batch.failures.is_empty(), "{:?}", batch.failures);
}

/// A night's run of the harness against itself: `SCATTER_SEEDS` sets its length.
#[test]
#[ignore = "long"]
fn a_store_that_works_passes_for_long() {
    let count = std::env::var("SCATTER_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2_000);
    let batch = Batch::run::<Toy<{ toy::NOTHING }>>((0..count).map(Scenario::from_seed), None, 5);
    println!("{batch}");
    for (scenario, failure) in &batch.failures {
        println!("{failure}\n{scenario}");
    }
    assert!(batch.failures.is_empty());
}
