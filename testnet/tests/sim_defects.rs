//! Each rule of the protocol that can be left out is missed: some check finds the defect within a bounded number of seeds,
//! and finds nothing in the very same runs with the rule in place.

use std::time::Duration;

use group::config::{Defect, Defects};
use node::Node;
use testnet::sim::fault::Target::Primary;
use testnet::sim::fault::{Kind, Mix, target};
use testnet::sim::harness::run;
use testnet::sim::{Load, Noise, Scenario};

/// Runs scenarios with the defect until one fails, by one of these properties; without it none of them may.
fn is_found(defect: Defect, properties: &[&str], seeds: u64, scenario: impl Fn(u64) -> Scenario) {
    for seed in 0..seeds {
        let sound = scenario(seed);
        let broken = Scenario { defects: Defects::NONE.with(defect), ..sound.clone() };
        let failure = run::<Node>(&sound, false).failure;
        assert!(failure.is_none(), "seed {seed} fails without {defect:?}: {}", failure.expect("just seen"));
        if let Some(failure) = run::<Node>(&broken, false).failure {
            println!("{defect:?} is found at seed {seed}: {failure}");
            assert!(properties.contains(&failure.property), "found, but as {}", failure.property);
            return;
        }
    }
    panic!("{defect:?} is not found within {seeds} seeds");
}

/// What clients see go wrong.
const HISTORY: [&str; 5] = [
    "I4 linearizable",
    "I5 durable",
    "I6 at most once",
    "I7 no dirty read",
    "I8 settled",
];

/// What clients or replicas show of two values in one place.
const VALUES: [&str; 7] =
    ["I1 one value", "I4 linearizable", "I5 durable", "I6 at most once", "I7 no dirty read", "I8 settled", "panic"];

/// PITFALLS 1.
#[test]
fn amnesia() {
    let mix = Mix::of(&[(|rng, n| Kind::Crash(target(rng, n)), 2), (|_, _| Kind::CrashAll, 1)]);
    is_found(Defect::Amnesia, &["I1 one value", "I4 linearizable", "I5 durable", "I6 at most once", "I12 only up", "panic"], 20, |seed| Scenario::of(seed, 3, &mix));
}

/// PITFALLS 5: an acceptor sees two values under one ballot.
#[test]
fn ballot_reuse() {
    is_found(Defect::BallotReuse, &["panic", "I1 one value"], 20, Scenario::from_seed);
}

/// PITFALLS 7.
#[test]
fn promise_ignored() {
    is_found(Defect::PromiseIgnored, &["I12 only up", "I1 one value", "I4 linearizable"], 20, Scenario::from_seed);
}

/// PITFALLS 9.
#[test]
fn two_in_flight() {
    is_found(Defect::TwoInFlight, &VALUES, 20, Scenario::from_seed);
}

/// PITFALLS 10: a store that is slow to sync keeps values in flight for long, and loses them when all crash.
#[test]
fn dirty_read() {
    let mix = Mix::of(&[(|_, _| Kind::CrashAll, 1), (|_, _| Kind::Crash(Primary), 2)]);
    is_found(Defect::DirtyRead, &HISTORY, 20, |seed| {
        let sync_time = (Duration::from_millis(20), Duration::from_millis(80));
        let load = Load { hot_keys: 1, cold_keys: 1, clients: 10, families: [1, 1, 1, 0, 0], ..Load::default() };
        Scenario { sync_time, load, ..Scenario::of(seed, 3, &mix) }
    });
}

/// PITFALLS 11.
#[test]
fn void_comes_back() {
    is_found(Defect::VoidComesBack, &VALUES, 20, Scenario::from_seed);
}

/// PITFALLS 12.
#[test]
fn no_ids() {
    is_found(Defect::NoIds, &["I4 linearizable", "I6 at most once"], 20, lost_answers);
}

/// PITFALLS 45.
#[test]
fn forget_ids() {
    is_found(Defect::ForgetIds, &["I4 linearizable", "I6 at most once"], 20, lost_answers);
}

fn lost_answers(seed: u64) -> Scenario {
    let mix = Mix::of(&[
        (|_, _| Kind::Noise(Noise { loss: 200, duplication: 100, reordering: 100 }), 4),
        (|rng, n| Kind::Reset(rng.below(n as u64) as usize, rng.below(n as u64) as usize), 1),
    ]);
    let load = Load { once: 1_000, families: [1, 3, 3, 1, 0], patience: Duration::from_millis(400), ..Load::default() };
    Scenario { load, ..Scenario::of(seed, 3, &mix) }
}

/// PITFALLS 13.
#[test]
fn trust_own_copy() {
    is_found(Defect::TrustOwnCopy, &VALUES, 20, Scenario::from_seed);
}

/// PITFALLS 15.
#[test]
fn stale_read() {
    is_found(Defect::StaleRead, &HISTORY, 20, |seed| cut_off(seed, false));
}

/// PITFALLS 16.
#[test]
fn lease_from_reply() {
    is_found(Defect::LeaseFromReply, &["I13 leases exclude", "I4 linearizable", "I5 durable"], 20, |seed| cut_off(seed, true));
}

fn cut_off(seed: u64, leases: bool) -> Scenario {
    let mix = Mix::of(&[
        (|_, _| Kind::Deafen(Primary), 2),
        (|_, _| Kind::Mute(Primary), 2),
        (|_, _| Kind::Isolate(Primary), 1),
        (|rng, n| Kind::Clog(rng.below(n as u64) as usize, rng.below(n as u64) as usize), 2),
    ]);
    let load = Load { reads: 800, cold_keys: 1, ..Load::default() };
    Scenario { leases, load, ..Scenario::of(seed, 3, &mix) }
}

/// PITFALLS 17.
#[test]
fn lease_sleeps() {
    let mix = Mix::of(&[(|_, _| Kind::Suspend(Primary), 1)]);
    is_found(Defect::LeaseSleeps, &HISTORY, 20, |seed| {
        let load = Load { reads: 800, cold_keys: 1, ..Load::default() };
        Scenario { leases: true, load, ..Scenario::of(seed, 3, &mix) }
    });
}

/// PITFALLS 18.
#[test]
fn recycled_confirmation() {
    let mix = Mix::of(&[
        (|rng, n| Kind::Clog(rng.below(n as u64) as usize, rng.below(n as u64) as usize), 4),
        (|_, _| Kind::Pause(Primary), 2),
        (|rng, n| Kind::Triangle(rng.below(n as u64) as usize, rng.below(n as u64) as usize), 2),
    ]);
    is_found(Defect::RecycledConfirmation, &HISTORY, 40, |seed| {
        let load = Load { reads: 800, cold_keys: 1, ..Load::default() };
        Scenario { load, ..Scenario::of(seed, 3, &mix) }
    });
}
