//! Single schedules from the literature, step by step.

use std::time::Duration;

use group::op::Answer;
use node::Node;
use testnet::history::Outcome;
use testnet::sim::fault::{FaultKind, Target};
use testnet::sim::harness::for_each_seed;
use testnet::sim::script::{set, value};
use testnet::sim::{Load, Scenario, World};

const SOON: Duration = Duration::from_secs(30);

/// Returns three machines without any client.
fn idle(seed: u64, leases: bool) -> World<Node> {
    let load = Load { clients: 0, ..Load::default() };
    // Frames that a cut keeps back are soon lost with their connection: no earlier question arrives after the cut.
    let keepalive = Some(Duration::from_millis(300));
    World::new(Scenario { load, leases, keepalive, ..Scenario::calm(seed) })
}

/// Returns a group of three that serves, and is asked by the script alone.
fn quiet(seed: u64, leases: bool) -> World<Node> {
    let mut world = idle(seed, leases);
    world.run_until_group();
    world
}

#[test]
fn machines_that_nobody_asks_anything_become_one_group() {
    for_each_seed("machines_that_nobody_asks_anything_become_one_group", 10, |seed| {
        let mut world = idle(seed, false);
        assert!(world.run_until_ready(SOON), "{:?}", world.failure());
    });
}

/// fRSM Figure 1 (hazard 11): a write reaches its primary alone, which is then cut off. The other members read the value before
/// it; the primary returns. The write must not come back.
#[test]
fn a_write_that_was_read_as_not_done_does_not_come_back() {
    for_each_seed("a_write_that_was_read_as_not_done_does_not_come_back", 30, |seed| {
        for leases in [false, true] {
            let mut world = quiet(seed, leases);
            assert_eq!(world.tell(0, "k", set("old")), Outcome::Answered(Answer::Done));
            let primary = world.primary_of("k");
            let other = (primary + 1) % 3;
            let cut = world.inject(FaultKind::Mute(Target::Host(primary)));
            let outcome = world.tell(primary, "k", set("new"));
            assert!(!matches!(outcome, Outcome::Answered(_)), "nobody else has it: {outcome:?}");
            let before = world.read_within(other, "k", SOON).expect("two of three serve");
            assert_eq!(before, value("old"));
            world.undo(cut);
            for turn in 0..100 {
                if turn % 20 == 10 {
                    // The current primary is made to give way.
                    let cut = world.inject(FaultKind::Isolate(Target::Host(world.primary_of("k"))));
                    world.run_for(Duration::from_secs(4));
                    world.undo(cut);
                }
                let read = world.read_within(turn % 3, "k", SOON).expect("a healed group serves");
                assert_eq!(read, value("old"), "read {turn}");
            }
            world.converge();
            world.judge();
            assert_eq!(world.failure(), None);
        }
    });
}

/// Hazard 13: a write reaches two of three members; the third becomes primary. Its own copy proves nothing.
#[test]
fn a_new_primary_does_not_trust_its_own_copy() {
    for_each_seed("a_new_primary_does_not_trust_its_own_copy", 30, |seed| {
        let mut world = quiet(seed, false);
        for round in 0..6 {
            let key = format!("k{round}");
            let primary = world.primary_of(&key);
            let third = (primary + 1 + round % 2) % 3;
            let cut = world.inject(FaultKind::Deafen(Target::Host(third)));
            let written = world.tell(primary, &key, set("there"));
            world.undo(cut);
            let gone = world.inject(FaultKind::Crash(Target::Host(primary)));
            let read = world.read_within(third, &key, SOON).expect("two of three serve");
            if written == Outcome::Answered(Answer::Done) {
                assert_eq!(read, value("there"));
            }
            world.undo(gone);
            assert!(world.run_until_ready(SOON));
        }
        world.converge();
        world.judge();
        assert_eq!(world.failure(), None);
    });
}

/// Hazard 6: the whole group at once. All acknowledged writes are there again.
#[test]
fn all_crash_and_nothing_is_lost() {
    for_each_seed("all_crash_and_nothing_is_lost", 30, |seed| {
        let mut world = quiet(seed, false);
        for round in 0..5 {
            let key = format!("k{round}");
            assert_eq!(world.tell(round % 3, &key, set("there")), Outcome::Answered(Answer::Done));
            let down = world.inject(FaultKind::CrashAll);
            world.run_for(Duration::from_secs(1));
            world.undo(down);
            assert_eq!(world.read_within((round + 1) % 3, &key, SOON), Some(value("there")));
        }
        world.converge();
        world.judge();
        assert_eq!(world.failure(), None);
    });
}
