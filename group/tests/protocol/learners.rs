//! A newcomer votes only with direct connections to a majority of the members.

use core::time::Duration;

use group::config::{Defect, Defects};

use crate::removals::led;
use crate::world::{Rules, World};

/// A second, in milliseconds.
const SECOND: u64 = 1_000;

/// Returns five members and two newcomers after so many seconds. The first newcomer hears, and is heard by, the leader and one other member
/// alone.
fn two_newcomers(defects: Defects, seconds: u64) -> World {
    let (mut world, leader, mut all) = led(5, 2, defects);
    all.extend([5, 6]);
    let near = [leader, (leader + 1) % 5];
    for other in all.iter().copied().filter(|other| *other != 5 && !near.contains(other)) {
        world.cut.extend([(5, other), (other, 5)]);
    }
    world.notes.clear();
    world.run(seconds * SECOND, &all);
    world
}

fn turned_away(world: &World) -> Vec<&str> {
    let pauses = world.notes.iter().filter_map(|note| note.split_once("away for "));
    pauses.map(|(_, rest)| rest.split_once(" s:").expect("a time").0).collect()
}

#[test]
fn a_newcomer_that_hears_the_leader_alone_never_votes() {
    let world = two_newcomers(Defects::NONE, 9);
    let latest = world.latest();
    assert!(latest.is_learner(world.peers[5].node) && latest.is_member(world.peers[6].node), "{:#?}", world.notes);
    let world = two_newcomers(Defects::NONE, 24);
    let latest = world.latest();
    assert!(!latest.is_learner(world.peers[5].node) && latest.learners.is_empty(), "{:#?}", world.notes);
    assert_eq!((turned_away(&world), latest.members.len(), world.wrong.as_ref()), (vec!["30"], 6, None));
    // It was admitted for 20 s after 30 s, and again after a minute.
    let world = two_newcomers(Defects::NONE, 155);
    assert_eq!((turned_away(&world), world.latest().members.len()), (vec!["30", "60", "120"], 6), "{:#?}", world.notes);
}

#[test]
fn what_is_left_out_is_seen() {
    let world = two_newcomers(Defects::NONE.with(Defect::Unconnected), 9);
    assert!(world.latest().is_member(world.peers[5].node), "{:#?}", world.notes);
}

/// A leader that did not run for a while knows nothing of its learners' connections.
#[test]
fn the_time_in_which_the_leader_was_away_does_not_count() {
    let mut world = two_newcomers(Defects::NONE, 15);
    assert!(world.latest().is_learner(world.peers[5].node));
    world.now += 60_000_000;
    let all: Vec<usize> = (0..7).collect();
    world.run(SECOND, &all);
    assert_eq!(turned_away(&world), Vec::<&str>::new(), "{:#?}", world.notes);
}

/// A newcomer with connections that come up votes as soon as it has them.
#[test]
fn connections_that_come_up_are_told_at_once() {
    let mut world = two_newcomers(Defects::NONE, 5);
    assert!(world.latest().is_learner(world.peers[5].node));
    world.cut.clear();
    let all: Vec<usize> = (0..7).collect();
    world.run(2 * SECOND, &all);
    assert!(world.latest().is_member(world.peers[5].node), "{:#?}", world.notes);
}

/// Kind of absence of a newcomer.
#[derive(Clone, Copy, PartialEq)]
enum Gone {
    /// No message comes, and the connections stay open.
    Silent,
    /// The connections are closed.
    Closed,
    /// The newcomer announces that it will be away for an hour.
    Away,
}

/// Returns whether the group still has its newcomer, at two times after it has gone, in milliseconds. Members keep all data in memory where
/// not `durable`.
fn is_learner_after(gone: Gone, durable: bool, [early, late]: [u64; 2]) -> [bool; 2] {
    let all: Vec<usize> = (0..5).collect();
    let mut world = World::new(Rules { durable, ..Rules::of(5, 1) }, 5);
    world.slow.extend([5]);
    world.run(4 * SECOND, &[0, 1, 2, 3, 4, 5]);
    assert!(world.latest().is_learner(world.peers[5].node), "{:#?}", world.notes);
    match gone {
        Gone::Silent => {}
        Gone::Closed => world.close(5, &all),
        Gone::Away => {
            world.act(5, |group| group.stop_soon(Duration::from_secs(3_600)));
            world.run(100, &[0, 1, 2, 3, 4, 5]);
        }
    }
    [early, late - early].map(|millis| {
        world.run(millis, &all);
        world.latest().is_learner(world.peers[5].node)
    })
}

/// No transaction begins while there are learners. So a learner that has gone is released, after as long as an attempt to connect to it may
/// take. Where it is known to have ended, it is released after as long as a member is removed after, which is 300 ms here.
#[test]
fn a_newcomer_that_died_is_let_go_of() {
    let times = [11 * SECOND, 13 * SECOND];
    assert_eq!(is_learner_after(Gone::Silent, true, times), [true, false]);
    assert_eq!(is_learner_after(Gone::Closed, true, times), [true, false], "it may return");
    assert_eq!(is_learner_after(Gone::Closed, false, [200, 600]), [true, false]);
    assert_eq!(is_learner_after(Gone::Away, true, [29 * SECOND, 31 * SECOND]), [true, false]);
}

/// Returns five members, eight newcomers that never finish copying, and one more that has just come, with the indices of all of them.
fn behind_slow_ones(defects: Defects) -> (World, Vec<usize>) {
    let (mut world, _, mut all) = led(5, 9, defects);
    all.extend(5..13);
    world.slow.extend(5..13);
    world.run(10 * SECOND, &all);
    assert_eq!(world.latest().learners.len(), 8, "{:#?}", world.notes);
    all.push(13);
    (world, all)
}

#[test]
fn newcomers_that_copy_slowly_hold_up_nobody_for_long() {
    let (mut world, all) = behind_slow_ones(Defects::NONE);
    world.run(40 * SECOND, &all);
    let is_member = |world: &World| world.latest().is_member(world.peers[13].node);
    assert!(!is_member(&world), "there are eight places: {:#?}", world.notes);
    world.run(20 * SECOND, &all);
    assert!(is_member(&world) && world.latest().learners.len() == 8, "{:#?}", world.notes);
    let (mut world, all) = behind_slow_ones(Defects::NONE.with(Defect::SlowHoldUp));
    world.run(60 * SECOND, &all);
    assert!(!is_member(&world), "the mutant: {:#?}", world.notes);
}
