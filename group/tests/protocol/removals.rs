//! A leader removes members that are dead, and keeps members that only seem dead (hazard 50).

use std::time::Duration;

use group::config::{Defect, Defects};

use crate::world::{Rules, World};

/// A group of `members`, all of which run, with its leader and the members' indices. Another `outside` peers are not started.
pub fn led(members: usize, outside: usize, defects: Defects) -> (World, usize, Vec<usize>) {
    let all: Vec<usize> = (0..members).collect();
    let mut world = World::new(Rules { defects, ..Rules::of(members, outside) }, 5);
    for _ in 0..100 {
        world.run(20, &all);
        if let (None, Some(leader)) = (world.unrest(), all.iter().find(|index| world.group(**index).log().leads())) {
            return (world, *leader, all);
        }
    }
    panic!("{:?}: {:#?}", world.unrest(), world.notes);
}

/// The members at `which` places after the leader.
pub fn after(leader: usize, members: usize, which: std::ops::Range<usize>) -> Vec<usize> {
    which.map(|more| (leader + 1 + more) % members).collect()
}

pub fn without(all: &[usize], gone: &[usize]) -> Vec<usize> {
    all.iter().copied().filter(|index| !gone.contains(index)).collect()
}

fn count(world: &World) -> usize {
    world.latest().members.len()
}

/// A group of nine from which the three members after the leader were removed, though they are only slow: with the leader, the indices of
/// all, and those of the other six.
fn without_three_slow_ones() -> (World, usize, Vec<usize>, Vec<usize>) {
    let (mut world, leader, all) = led(9, 0, Defects::NONE);
    let quick = without(&all, &after(leader, 9, 0..3));
    world.run(600, &quick);
    assert_eq!(count(&world), 6, "{:#?}", world.notes);
    (world, leader, all, quick)
}

/// One change removes all dead members, up to a third of the group; the rest follow once those deaths are confirmed.
#[test]
fn one_change_removes_all_that_are_due() {
    for (defects, rest) in [(Defects::NONE, 6), (Defects::NONE.with(Defect::RemovalsUncapped), 5)] {
        let (mut world, leader, all) = led(9, 0, defects);
        let epoch = world.epoch();
        let dead = after(leader, 9, 0..4);
        dead.iter().for_each(|index| world.crash(*index));
        let living = without(&all, &dead);
        world.run(600, &living);
        assert_eq!((count(&world), world.wrong.as_ref()), (rest, None), "{:#?}", world.notes);
        assert_eq!(world.epoch().0, epoch.0 + 1, "one change: {:#?}", world.notes);
        world.run(2_200, &living);
        assert_eq!(count(&world), rest);
        world.run(600, &living);
        assert_eq!(count(&world), 5, "{:#?}", world.notes);
    }
}

/// A change of members does not make the group wait anew for a member that was silent before.
#[test]
fn a_second_death_is_not_waited_for_anew() {
    let (mut world, leader, all) = led(13, 0, Defects::NONE);
    let dead = after(leader, 13, 0..2);
    world.crash(dead[0]);
    world.run(60, &without(&all, &dead[..1]));
    world.crash(dead[1]);
    let living = without(&all, &dead);
    world.run(280, &living);
    assert_eq!(count(&world), 12, "{:#?}", world.notes);
    world.run(80, &living);
    assert_eq!(count(&world), 11, "{:#?}", world.notes);
}

/// A process with a disk that keeps its acknowledgements returns as the same member: the closing of its connections makes no difference.
#[test]
fn ended_processes_are_waited_for_where_disks_keep_what_they_had() {
    let (mut world, leader, all) = led(9, 0, Defects::NONE);
    let dead = after(leader, 9, 0..4);
    dead.iter().for_each(|index| world.crash(*index));
    let living = without(&all, &dead);
    dead.iter().for_each(|index| world.close(*index, &living));
    world.run(200, &living);
    assert_eq!(count(&world), 9);
    world.run(400, &living);
    assert_eq!((count(&world), world.wrong.as_ref()), (6, None), "{:#?}", world.notes);
}

/// A removed member that returns at once was alive: from then on the group removes one at a time.
#[test]
fn false_suspicions_make_a_group_careful() {
    let (mut world, _, all, quick) = without_three_slow_ones();
    for _ in 0..100 {
        world.run(20, &all);
        if count(&world) == 9 && world.unrest().is_none() {
            break;
        }
    }
    assert_eq!((count(&world), world.unrest()), (9, None), "{:#?}", world.notes);
    world.run(600, &quick);
    assert_eq!(count(&world), 9, "three were refuted a moment ago, and are open still: {:#?}", world.notes);
    world.run(2_900, &all);
    assert_eq!(count(&world), 9);
    world.run(600, &quick);
    assert_eq!(count(&world), 8, "one at a time: {:#?}", world.notes);
}

/// A member that was removed by mistake, or that died and starts again, keeps its age. The time in which it was gone does not count.
#[test]
fn an_age_survives_a_removal() {
    let (mut world, leader, all) = led(5, 0, Defects::NONE);
    world.run(3_000, &all);
    let gone = (leader + 1) % 5;
    let age = |world: &World, index: usize| world.group(leader).age_of(world.peers[index].node).as_secs();
    let (before, others) = (age(&world, gone), without(&all, &[gone]));
    assert!(before >= 12, "{before}");
    while age(&world, others[1]) < before + 15 {
        world.run(20, &others);
    }
    assert_eq!(count(&world), 4, "{:#?}", world.notes);
    for _ in 0..100 {
        world.run(20, &all);
        if count(&world) == 5 && world.unrest().is_none() {
            break;
        }
    }
    assert_eq!((count(&world), world.unrest()), (5, None), "{:#?}", world.notes);
    let (after, other) = (age(&world, gone), age(&world, others[1]));
    assert!(after >= before - 3 && after + 9 <= other, "{before} s before, {after} s after, {other} s");
}

/// A newcomer that is ready replaces a dead member, however many were removed before.
#[test]
fn replacements_have_no_limit() {
    let members = 9;
    let (mut world, leader, all) = led(members, 4, Defects::NONE);
    let dead = after(leader, members, 0..3);
    dead.iter().for_each(|index| world.crash(*index));
    let living = without(&all, &dead);
    world.run(600, &living);
    assert_eq!(count(&world), 6);
    let more = after(leader, members, 3..4);
    world.crash(more[0]);
    let mut living = without(&living, &more);
    world.run(600, &living);
    assert_eq!(count(&world), 6, "the limit is reached: {:#?}", world.notes);
    living.push(members);
    for _ in 0..100 {
        world.run(20, &living);
        if !world.latest().is_member(world.peers[more[0]].node) {
            break;
        }
    }
    let latest = world.latest();
    assert!(!latest.is_member(world.peers[more[0]].node) && latest.is_member(world.peers[members].node));
    assert_eq!(world.wrong, None);
}

/// A group of three does not become one of two; a newcomer replaces its dead member.
#[test]
fn of_three_members_none_goes_without_a_replacement() {
    let (mut world, leader, all) = led(3, 1, Defects::NONE);
    let dead = (leader + 1) % 3;
    world.crash(dead);
    let mut living = without(&all, &[dead]);
    world.run(5_000, &living);
    assert_eq!(count(&world), 3);
    living.push(3);
    world.run(2_000, &living);
    assert!(!world.latest().is_member(world.peers[dead].node), "{:#?}", world.notes);
    assert_eq!((count(&world), world.wrong), (3, None));
}

/// While most members that are heard miss each other, the group removes no member, not even one that no member hears.
#[test]
fn a_silence_that_most_share_is_not_death() {
    for (defects, stays) in [(Defects::NONE, true), (Defects::NONE.with(Defect::LoadRemoves), false)] {
        let (mut world, leader, all) = led(6, 0, defects);
        let silent = after(leader, 6, 0..1);
        let rest = without(&all, &silent);
        for one in rest.iter().filter(|index| **index != leader) {
            let others = rest.iter().filter(|other| **other != leader && *other != one);
            world.cut.extend(others.map(|other| (*one, *other)));
        }
        world.crash(silent[0]);
        world.run(1_000, &rest);
        assert_eq!(count(&world), if stays { 6 } else { 5 }, "{:#?}", world.notes);
        world.cut.clear();
        world.run(1_000, &rest);
        assert_eq!(count(&world), 5, "{:#?}", world.notes);
    }
}

/// The link between the leader and a member is broken for good, and the member is cut off from all others for half of the time after
/// which it is removed. Only a silence that all of them have seen for long enough counts.
#[test]
fn a_moment_beside_a_bad_link_is_not_death() {
    let (mut world, leader, all) = led(5, 0, Defects::NONE);
    let one = after(leader, 5, 0..1)[0];
    world.cut.insert((leader, one));
    world.cut.insert((one, leader));
    world.run(600, &all);
    assert_eq!(count(&world), 5, "four hear it: {:#?}", world.notes);
    let others = after(leader, 5, 1..4);
    let cut: Vec<(usize, usize)> = others.iter().flat_map(|other| [(*other, one), (one, *other)]).collect();
    world.cut.extend(cut.iter().copied());
    world.run(150, &all);
    cut.iter().for_each(|pair| _ = world.cut.remove(pair));
    world.run(500, &all);
    assert_eq!(count(&world), 5, "{:#?}", world.notes);
    world.cut.extend(cut);
    world.run(800, &all);
    assert_eq!(count(&world), 4, "{:#?}", world.notes);
}

/// A member announced an absence; then all others start again. A leader that never heard the announcement itself knows of it.
#[test]
fn an_absence_is_known_to_those_that_start_again() {
    let (mut world, leader, all) = led(5, 0, Defects::NONE);
    let away = after(leader, 5, 0..1);
    let rest = without(&all, &away);
    world.peers[away[0]].group.as_mut().expect("it runs").stop_soon(Duration::from_secs(3));
    world.run(100, &all);
    world.crash(away[0]);
    for index in rest.iter().rev() {
        world.crash(*index);
        world.restart(*index, true);
        world.run(300, &rest);
    }
    world.run(600, &rest);
    assert_eq!(count(&world), 5, "{:#?}", world.notes);
    world.run(5_000, &rest);
    assert_eq!(count(&world), 4, "{:#?}", world.notes);
}

/// Members that were removed by mistake replace no dead member when they return: the limit holds though they are ready.
#[test]
fn the_return_of_removed_members_allows_no_further_removals() {
    let (mut world, leader, all, _) = without_three_slow_ones();
    // They return, and three others fall silent while those are learners.
    let next = after(leader, 9, 3..6);
    world.run(40, &all);
    world.run(800, &without(&all, &next));
    let removed = next.iter().filter(|index| !world.latest().is_member(world.peers[**index].node)).count();
    assert_eq!(removed, 0, "{:#?}", world.notes);
}
