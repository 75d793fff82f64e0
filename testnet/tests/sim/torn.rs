//! Journals with a damaged end after a crash: torn in the middle of a write, or good once and bad later. A group never answers
//! without an acknowledged write, and goes on by itself once all its members are back.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use group::config::Defect;
use group::op::Answer;
use node::{Durability, Node};
use testnet::history::Outcome;
use testnet::marks::Marks;
use testnet::rng::Rng;
use testnet::sim::fault::{Fault, FaultKind, Target};
use testnet::sim::harness::{expect_well, for_each_seed, is_found_from};
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

/// Faults that a batch of runs must meet: otherwise it proves nothing.
const MET: [&str; 4] = [
    "fault: crash, and the store's end is torn",
    "fault: all crash at once, torn",
    "fault: crash, and what was durable last goes bad",
    "fault: left out, the group could not survive it",
];

#[test]
fn torn_journals_lose_nothing() {
    let marks = RefCell::new(Marks::default());
    for_each_seed("torn_journals_lose_nothing", 40, |seed| {
        marks.borrow_mut().merge(&expect_well::<Node>(&Scenario::torn(seed)).marks);
    });
    let marks = marks.into_inner();
    let unmet: Vec<&str> = MET.into_iter().filter(|mark| marks.count(mark) == 0).collect();
    assert!(unmet.is_empty() || std::env::var_os("SCATTER_SEED").is_some(), "never: {unmet:?}\n{marks}");
}

/// Again and again one of three members is away while the two others write. Then one of these loses its last writes, the other
/// goes away, and the first one comes back.
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
        add(at(0), FaultKind::Crash(host(0)), strike + 50);
        add(at(strike), FaultKind::Flip(host(1)), 50);
        add(at(strike), FaultKind::Crash(host(2)), 2_500);
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
    is_found_from(1, Defect::DoubtCounts, &LOST, 100, alone_with_a_loss);
}

#[test]
fn a_doubt_that_is_forgotten() {
    is_found_from(18, Defect::DoubtForgotten, &LOST, 100, alone_with_a_loss);
}

/// Three members, asked by the script alone.
fn quiet(seed: u64) -> World<Node> {
    let load = Load { clients: 0, ..Load::default() };
    let mut world = World::new(Scenario { load, tears: true, ..Scenario::calm(seed) });
    world.run_until_group();
    world
}

/// Two of three members acknowledge a write while the third is away. Both are killed, one of them loses its last writes, and
/// the other one stays away: no read may miss the write.
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
        let flipped = world.inject(FaultKind::Flip(Target::Host(loser)));
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
        let torn = world.inject(FaultKind::TearAll);
        world.undo(torn);
        assert_eq!(world.read_within(1, "k", SOON), Some(value("old")), "seed {seed}");
    });
}

/// Runs of many faults that failed once.
#[test]
fn what_failed_once_holds() {
    const FAILED: [(u64, &str); 8] = [
        (50_454_539_937_336, "attempts of members in doubt outran each other for a minute"),
        (229_990_008_436_686, "a member took records over that a purge had passed by"),
        (
            97_994_060_140_320,
            "what was lost in an epoch that was over ended a life at the start after its doubt had ended",
        ),
        (17_897_786_170_272, "one of two equal deletions that had to wait kept the other from its place in the order"),
        (17_897_786_166_193, "what a member had lost while it was a learner ended its life"),
        (228_815_959_193_684, "a learner alone knew a start that was lost, and its word ended the group"),
        (
            217_786_044_900_115,
            "a node was let go of, and the one member that knew it forgot it: two waited for its answer for ever",
        ),
        (
            10_890_141_493_156,
            "an incarnation that ended because of a loss was shown in an epoch that it had learned of and did not store",
        ),
    ];
    for (seed, why) in FAILED {
        println!("{seed}: {why}");
        expect_well::<Node>(&Scenario::torn(seed));
    }
}

/// A start is told to two members, and its entry is lost with the journal's end; so is the knowledge of the member that heard
/// it. Each of them then has it from the other one, and none may wait for ever for whether the start runs.
#[test]
fn a_start_that_is_known_by_hearsay_alone() {
    let faults = [
        (10, FaultKind::Tear(Target::Primary), 818),
        (308, FaultKind::Tear(Target::Host(1)), 629),
        (393, FaultKind::TearAll, 228),
        (691, FaultKind::TearAll, 1_189),
        (1_092, FaultKind::Tear(Target::Primary), 631),
        (1_407, FaultKind::Flip(Target::Host(1)), 740),
        (1_940, FaultKind::Flip(Target::Host(1)), 300),
        (1_995, FaultKind::TearAll, 71),
        (2_263, FaultKind::Tear(Target::Primary), 19),
        (2_313, FaultKind::Tear(Target::Primary), 922),
        (2_386, FaultKind::TearAll, 667),
        (2_477, FaultKind::TearAll, 968),
        (3_197, FaultKind::TearAll, 127),
        (3_355, FaultKind::Tear(Target::Primary), 142),
        (3_630, FaultKind::TearAll, 287),
        (3_922, FaultKind::TearAll, 98),
        (4_248, FaultKind::Tear(Target::Host(0)), 1_200),
        (4_288, FaultKind::Tear(Target::Host(1)), 1_022),
        (4_531, FaultKind::TearAll, 297),
        (4_944, FaultKind::Flip(Target::Leader), 460),
        (5_090, FaultKind::TearAll, 159),
        (5_409, FaultKind::Tear(Target::Primary), 167),
        (6_085, FaultKind::Flip(Target::Host(2)), 434),
        (6_142, FaultKind::Flip(Target::Leader), 374),
        (6_402, FaultKind::Flip(Target::Leader), 500),
        (6_685, FaultKind::Flip(Target::Primary), 282),
        (6_782, FaultKind::Flip(Target::Leader), 687),
        (7_022, FaultKind::Flip(Target::Primary), 963),
        (7_852, FaultKind::TearAll, 705),
        (7_967, FaultKind::TearAll, 890),
        (8_204, FaultKind::Flip(Target::Host(0)), 917),
        (8_890, FaultKind::Tear(Target::Primary), 222),
        (9_150, FaultKind::Flip(Target::Primary), 378),
    ];
    let fault = |(at, kind, lasts)| Fault { at: Duration::from_millis(at), kind, lasts: Duration::from_millis(lasts) };
    let faults = faults.into_iter().map(fault).collect();
    expect_well::<Node>(&Scenario { faults, ..Scenario::torn(228_815_959_193_684) });
}
