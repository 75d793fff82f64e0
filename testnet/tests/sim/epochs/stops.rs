//! Epochs that are stopped, by one member or by two at once, and by members that die of it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use group::config::{Defect, Defects};
use group::message::{LogMessage, Message};
use node::Node;
use overlay::Epoch;
use testnet::sim::fault::{FaultKind, Target};
use testnet::sim::harness::for_each_seed;
use testnet::sim::{Fate, Scenario, World};

use super::parts::*;

/// Another event while an epoch is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meanwhile {
    Nothing,
    /// A member leaves: the leader has another next epoch in mind.
    Leaves,
    /// The leader dies.
    LeaderDies,
}

/// Delays of the second stop after the first one: a round of messages and syncs takes about two milliseconds.
fn offsets() -> impl Iterator<Item = Duration> {
    (0..24_u64).map(|step| Duration::from_micros(200 * step))
}

fn stop(world: &mut World<Node>, host: usize) {
    world.inject(FaultKind::StopEpoch(Target::Host(host)));
}

fn two_stop_at_once(seed: u64, hosts: usize, meanwhile: Meanwhile) -> u64 {
    let mut world = formed(busy(seed, hosts));
    let begin = world.now();
    let mut epochs = 0;
    for (round, offset) in offsets().enumerate() {
        let (a, b) = (round % hosts, (round + 1 + round / hosts % (hosts - 1)) % hosts);
        let before = epoch(&world);
        let mut gone = Vec::new();
        if meanwhile == Meanwhile::Leaves {
            let leaver = (b + 1) % hosts;
            world.inject(FaultKind::Leave(Target::Host(leaver)));
            gone.push(leaver);
        }
        stop(&mut world, a);
        world.run_for(offset);
        stop(&mut world, b);
        let mut died = None;
        if meanwhile == Meanwhile::LeaderDies {
            world.run_for(Duration::from_micros(137 * (round as u64 % 16)));
            let leader = world.resolve(Target::Leader);
            died = world.kill(leader, true);
            gone.push(leader);
        }
        let others = others(&world, &gone);
        serves(&mut world, &others);
        assert!(epoch(&world) > before, "round {round}: nobody stopped anything");
        epochs += epoch(&world).0 - before.0;
        world.undo(died);
        let all: Vec<usize> = (0..hosts).collect();
        wait_whole(&mut world, &all, HEALED);
    }
    was_disturbed(&mut world, begin);
    ends_well(world);
    epochs
}

#[test]
fn two_members_stop_an_epoch_at_once() {
    let plays = [
        (3, Meanwhile::Nothing),
        (5, Meanwhile::Nothing),
        (4, Meanwhile::Leaves),
        (3, Meanwhile::LeaderDies),
        (5, Meanwhile::LeaderDies),
    ];
    for_each_seed("two_members_stop_an_epoch_at_once", 1, |seed| {
        for (hosts, meanwhile) in plays {
            let epochs = two_stop_at_once(seed, hosts, meanwhile);
            println!("{hosts} members, {meanwhile:?}: {epochs} epochs in {} rounds", offsets().count());
        }
    });
}

/// Result of killing a stopper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kill {
    /// The stopper died with its last frame.
    Died,
    /// The stopper had sent fewer frames when all was done.
    Outlived,
}

/// A member stops its epoch and dies with the `nth` frame that it sends from then on. The member stays away until the other
/// members have shown that they serve, or comes back at once.
fn dies_with_frame(seed: u64, stopper: Target, meanwhile: Meanwhile, nth: u32, stays_away: bool) -> Kill {
    let hosts = if meanwhile == Meanwhile::Leaves { 4 } else { 3 };
    let mut world = formed(busy(seed, hosts));
    let stopper = match stopper {
        Target::Leader => world.resolve(Target::Leader),
        _ => (world.resolve(Target::Leader) + 1) % hosts,
    };
    let mut gone = vec![stopper];
    if meanwhile == Meanwhile::Leaves {
        let leaver = others(&world, &[stopper, world.resolve(Target::Leader)])[0];
        world.inject(FaultKind::Leave(Target::Host(leaver)));
        gone.push(leaver);
        // Now the leader has the request, and decides.
        world.run_for(Duration::from_micros(400));
    }
    let (before, begin) = (epoch(&world), world.now());
    let sent = Rc::new(Cell::new(0));
    let counter = sent.clone();
    world.tap(move |flight| {
        if flight.from != stopper || matches!(message(flight), Some(Message::Client(_))) {
            return Fate::Goes;
        }
        counter.set(counter.get() + 1);
        if counter.get() == nth { Fate::Last } else { Fate::Goes }
    });
    stop(&mut world, stopper);
    let all: Vec<usize> = (0..hosts).collect();
    let rest = others(&world, &gone);
    wait(&mut world, SOON, "the epoch ends, or its stopper", |world| {
        let done = |host: &usize| {
            is_whole(world, *host) && group(world, *host).is_some_and(|group| group.state().epoch > before)
        };
        sent.get() >= nth || all.iter().filter(|host| rest.contains(host) || **host == stopper).all(done)
    });
    let died = sent.get() >= nth;
    world.untap();
    if !stays_away {
        world.run_for(Duration::from_millis(20));
        world.heal();
    }
    serves(&mut world, &rest);
    was_disturbed(&mut world, begin);
    ends_well(world);
    if died { Kill::Died } else { Kill::Outlived }
}

#[test]
fn a_stopper_dies_with_each_of_its_words() {
    let plays = [
        (Target::Leader, Meanwhile::Nothing, true),
        (Target::Primary, Meanwhile::Nothing, true),
        (Target::Primary, Meanwhile::Nothing, false),
        (Target::Primary, Meanwhile::Leaves, true),
    ];
    for_each_seed("a_stopper_dies_with_each_of_its_words", 2, |seed| {
        for (stopper, meanwhile, stays_away) in plays {
            let dies = |nth| dies_with_frame(seed, stopper, meanwhile, nth, stays_away) == Kill::Died;
            let kills = (1..400).take_while(|nth| dies(*nth)).count();
            println!("{stopper:?}, {meanwhile:?}, stays away: {stays_away}: killed with each of {kills} frames");
            assert!((10..399).contains(&kills), "all words until the change was complete: {kills}");
        }
    });
}

/// The leader has a change of members chosen with one other member. That one alone receives it, and does not learn that it is
/// chosen. The third member stops the epoch, and must find the change (hazard 21).
fn one_stops_what_the_leader_has_changed(seed: u64, defects: Defects) {
    let (mut world, mut held) = formed_without(Scenario { defects, ..quiet(seed, 4) }, 1);
    world.run_for(Duration::from_secs(3));
    let leader = world.resolve(Target::Leader);
    let (confidant, stopper) = ((leader + 1) % 3, (leader + 2) % 3);
    let before = epoch(&world);
    let changes = Rc::new(Cell::new(false));
    let seen = changes.clone();
    world.tap(move |flight| {
        if flight.from != leader {
            return Fate::Goes;
        }
        let ends = matches!(message(flight), Some(Message::Log(LogMessage::Accept { entries, .. }))
            if entries.iter().any(|(_, entry)| entry.ends_epoch()));
        seen.set(seen.get() || ends);
        match (seen.get(), ends && flight.to == confidant) {
            (false, _) | (true, true) => Fate::Goes,
            (true, false) => Fate::Lost,
        }
    });
    held.drain(..).for_each(|held| world.undo(held));
    let knows = |world: &World<Node>, host| group(world, host).map_or(Epoch(0), |group| group.state().epoch);
    wait(&mut world, HEALED, "the leader takes a newcomer in", |world| knows(world, leader) > before);
    assert_eq!((knows(&world, confidant), knows(&world, stopper)), (before, before));
    stop(&mut world, stopper);
    wait(&mut world, SOON, "the stopper stops", |world| knows(world, stopper) > before);
    world.untap();
    let found = group(&world, stopper).expect("it is in").state().nodes();
    world.run_for(Duration::from_secs(1));
    assert!(world.failure().is_none(), "{}", failure(&world));
    assert_eq!(found.len(), 4, "what was chosen");
    ends_well(world);
}

#[test]
fn a_stopper_finds_what_was_chosen() {
    is_needed(Defect::StopTooLow, "I1 one value", 1, one_stops_what_the_leader_has_changed);
}
