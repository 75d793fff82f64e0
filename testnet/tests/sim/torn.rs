//! Journals that end badly after a crash: torn in the middle of a write, or good once and bad later. A group never answers
//! without an acknowledged write, and goes on by itself once all its members are back.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use group::config::Defect;
use group::op::Answer;
use node::{Durability, Node};
use testnet::history::Outcome;
use testnet::marks::Marks;
use testnet::rng::Rng;
use testnet::sim::fault::{Fault, Kind, Target};
use testnet::sim::harness::{expect_well, for_each_seed, is_found};
use testnet::sim::script::{set, value};
use testnet::sim::{Latency, Load, Scenario, World};

const SOON: Duration = Duration::from_secs(30);

/// The properties that a lost acknowledgement breaks.
const LOST: [&str; 9] = [
    "I1 one value",
    "I2 one configuration",
    "I4 linearizable",
    "I5 durable",
    "I6 at most once",
    "I7 no dirty read",
    "I12 only up",
    "PTO5 total order",
    "panic",
];

/// Faults that a batch of runs must have met: else it proves nothing.
const MET: [&str; 4] = [
    "fault: crash, and the store's end is torn",
    "fault: all crash at once, torn",
    "fault: crash, and what was durable last goes bad",
    "fault: left out, the group could not survive it",
];

#[test]
fn torn_journals_lose_nothing() {
    let marks = RefCell::new(Marks::default());
    for_each_seed("torn_journals_lose_nothing", 100, |seed| {
        marks.borrow_mut().merge(&expect_well::<Node>(&Scenario::torn(seed)).marks);
    });
    let marks = marks.into_inner();
    let unmet: Vec<&str> = MET.into_iter().filter(|mark| marks.count(mark) == 0).collect();
    assert!(unmet.is_empty() || std::env::var_os("SCATTER_SEED").is_some(), "never: {unmet:?}\n{marks}");
}

/// Again and again one of three is away while the two others write; then one of these loses what it wrote last, the other goes
/// away, and the first one comes back.
fn alone_with_a_loss(seed: u64) -> Scenario {
    const ROUND: Duration = Duration::from_secs(5);
    let mut scenario = Scenario { tears: true, durability: Durability::Sync, ..Scenario::small(seed, Some(3)) };
    scenario.load.think = (Duration::from_millis(1), Duration::from_millis(10));
    scenario.load.reads = 300;
    scenario.fault_time = ROUND * 4;
    let mut rng = Rng::new(seed, "alone with a loss");
    let mut faults = Vec::new();
    for round in 0..3 {
        let first = rng.below(3) as usize;
        let host = |n: usize| Target::Host((first + n) % 3);
        let at = |ms: u64| ROUND * (round + 1) + Duration::from_millis(ms);
        let strike = rng.between(1_000, 1_400);
        let mut add = |at, kind, ms| faults.push(Fault { at, kind, lasts: Duration::from_millis(ms) });
        add(at(0), Kind::Crash(host(0)), strike + 50);
        add(at(strike), Kind::Flip(host(1)), 50);
        add(at(strike), Kind::Crash(host(2)), 2_500);
    }
    scenario.faults = faults;
    scenario
}

#[test]
fn the_one_who_is_left_is_not_believed() {
    let marks = RefCell::new(Marks::default());
    for_each_seed("the_one_who_is_left_is_not_believed", 30, |seed| {
        marks.borrow_mut().merge(&expect_well::<Node>(&alone_with_a_loss(seed)).marks);
    });
    let bad = marks.into_inner().count("fault: crash, and what was durable last goes bad");
    assert!(bad > 30 || std::env::var_os("SCATTER_SEED").is_some(), "only {bad} journals went bad");
}

#[test]
fn a_vote_in_doubt_that_counts() {
    is_found(Defect::DoubtCounts, &LOST, 100, alone_with_a_loss);
}

#[test]
fn a_doubt_that_is_forgotten() {
    is_found(Defect::DoubtForgotten, &LOST, 100, alone_with_a_loss);
}

/// Three members, asked by the script alone.
fn quiet(seed: u64) -> World<Node> {
    let load = Load { clients: 0, ..Load::default() };
    let mut world = World::new(Scenario { load, tears: true, ..Scenario::calm(seed) });
    world.run_until_group();
    world
}

/// Two of three acknowledge a write while the third is away. Both are killed, one of them loses what it wrote last, and the
/// other one stays away: no read may miss the write.
#[test]
fn the_write_of_two_outlasts_a_bad_end_of_one() {
    let bad = Cell::new(0);
    for_each_seed("the_write_of_two_outlasts_a_bad_end_of_one", 30, |seed| {
        let mut world = quiet(seed);
        assert_eq!(world.tell(0, "k", set("old")), Outcome::Answered(Answer::Done));
        let primary = world.primary_of("k");
        let (loser, away) = ((primary + 1) % 3, (primary + 2) % 3);
        let back = world.kill(away, true);
        while world.tell(primary, "k", set("new")) != Outcome::Answered(Answer::Done) {}
        let flipped = world.inject(Kind::Flip(Target::Host(loser)));
        let killed = world.kill(primary, true);
        bad.set(bad.get() + u32::from(flipped.is_some()));
        world.undo(back);
        world.undo(flipped);
        if let Some(read) = world.read_within(away, "k", Duration::from_secs(20)) {
            assert_eq!(read, value("new"), "seed {seed}");
        }
        world.undo(killed);
        assert_eq!(world.read_within(away, "k", SOON), Some(value("new")), "seed {seed}: all are back");
        world.heal();
        world.converge();
        world.judge();
        assert_eq!(world.failure(), None);
    });
    assert!(bad.get() > 10 || std::env::var_os("SCATTER_SEED").is_some(), "only {} journals went bad", bad.get());
}

/// Where all members are in doubt, each ballot needs the answers of all, which takes longer than the pause between the attempts
/// of eight members. Attempts must not outrun each other for ever.
#[test]
fn eight_members_in_doubt_find_a_leader() {
    for_each_seed("eight_members_in_doubt_find_a_leader", 30, |seed| {
        let load = Load { clients: 0, ..Load::default() };
        let latency = Latency::ThreeSites;
        let sync_time = (Duration::from_millis(2), Duration::from_millis(30));
        let mut world =
            World::<Node>::new(Scenario { load, tears: true, hosts: 8, latency, sync_time, ..Scenario::calm(seed) });
        world.run_until_group();
        while world.tell(0, "k", set("old")) != Outcome::Answered(Answer::Done) {}
        let torn = world.inject(Kind::TearAll);
        world.undo(torn);
        assert_eq!(world.read_within(1, "k", SOON), Some(value("old")), "seed {seed}");
    });
}

/// A run of many faults in which the same went on for 60 s.
#[test]
fn attempts_that_outran_each_other_for_a_minute() {
    expect_well::<Node>(&Scenario::torn(50_454_539_937_336));
}
