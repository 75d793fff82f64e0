//! Each write is on no more members than a quorum: a successor of the primary must find all its writes (hazard 13, 22, 23).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use group::config::{Defect, Defects};
use group::message::{CommitteeMessage, Message};
use group::op::Answer;
use node::{Class, Node};
use testnet::history::Outcome;
use testnet::sim::fault::{FaultKind, Target};
use testnet::sim::harness::for_each_seed;
use testnet::sim::{Fate, Flight, Scenario, World};

use super::parts::*;

const PERIODS: usize = 12;
const KEYS: usize = 6;

/// Counts of events in a run.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    dropped: u32,
    written: u32,
    read: u32,
    primaries: u32,
    epochs: u64,
}

/// A world in which some members receive no write, neither from a primary nor by catching up.
struct Starving {
    world: World<Node>,
    starved: Rc<RefCell<Vec<usize>>>,
    dropped: Rc<Cell<u32>>,
    counts: Counts,
}

fn carries_data(flight: &Flight) -> bool {
    let accept = |message| matches!(message, Message::Committee(CommitteeMessage::Accept { .. }));
    match flight.class {
        Class::Control => false,
        Class::Bulk => true,
        Class::Data => message(flight).is_some_and(accept),
    }
}

impl Starving {
    fn over(mut world: World<Node>) -> Starving {
        let starved = Rc::new(RefCell::new(Vec::new()));
        let dropped = Rc::new(Cell::new(0));
        let (list, count) = (starved.clone(), dropped.clone());
        world.tap(move |flight| {
            if !list.borrow().contains(&flight.to) || !carries_data(flight) {
                return Fate::Goes;
            }
            count.set(count.get() + 1);
            Fate::Lost
        });
        Starving { world, starved, dropped, counts: Counts::default() }
    }

    fn starve(&self, hosts: &[usize]) {
        *self.starved.borrow_mut() = hosts.to_vec();
    }

    /// Writes some keys; returns those that were acknowledged.
    fn write(&mut self, period: usize, via: &[usize]) -> Vec<String> {
        let mut written = Vec::new();
        for index in 0..KEYS {
            let key = format!("k{period}-{index}");
            let outcome = self.world.tell(via[index % via.len()], &key, set(&key));
            if outcome == Outcome::Answered(Answer::Done) {
                written.push(key);
            }
        }
        self.counts.written += written.len() as u32;
        written
    }

    /// Asserts that each of these keys is read, through each of these machines.
    fn read(&mut self, keys: &[String], via: &[usize]) {
        for (index, key) in keys.iter().enumerate() {
            let read = self.world.read_within(via[index % via.len()], key, SOON);
            let value = Bytes::copy_from_slice(key.as_bytes());
            assert_eq!(read, Some(Outcome::Answered(Answer::Value(Some(value)))), "{key} was acknowledged");
            self.counts.read += 1;
        }
    }

    /// A fault meets a group whose last writes are on a quorum alone. The writes must be readable all the same.
    fn period(&mut self, period: usize) {
        let hosts = self.world.hosts();
        let minority = (hosts - 1) / 2;
        let starved: Vec<usize> = (0..minority).map(|index| (period + index) % hosts).collect();
        let fed = others(&self.world, &starved);
        self.starve(&starved);
        let keys = self.write(period, &fed);
        self.world.run_for(Duration::from_millis(300));
        // One of the members that have the writes goes, so one member fewer may lack them.
        let served: Vec<usize> =
            keys.iter().map(|key| self.world.primary_of(key)).filter(|p| fed.contains(p)).collect();
        let primary = served.first().copied().unwrap_or(fed[0]);
        self.starve(&starved[1..]);
        self.counts.primaries += u32::from(!served.is_empty());
        let all = others(&self.world, &[]);
        match period % 6 {
            0 => self.without(FaultKind::Crash(Target::Host(primary)), primary, &keys),
            1 => {
                self.world.inject(FaultKind::StopEpoch(Target::Host(starved[0])));
                self.read(&keys, &all);
            }
            2 => self.without(FaultKind::Pause(Target::Host(primary)), primary, &keys),
            3 if hosts > 3 => {
                self.world.inject(FaultKind::Leave(Target::Host(primary)));
                self.read(&keys, &others(&self.world, &[primary]));
            }
            3 | 4 => {
                let gone = self.world.kill(primary, false);
                self.read(&keys, &others(&self.world, &[primary]));
                self.world.undo(gone);
                self.starve(&[]);
                wait_whole(&mut self.world, &all, HEALED);
            }
            _ => self.without(FaultKind::Isolate(Target::Host(primary)), primary, &keys),
        }
        self.read(&keys, &others(&self.world, &[primary]));
    }

    fn without(&mut self, kind: FaultKind, host: usize, keys: &[String]) {
        let gone = self.world.inject(kind);
        self.read(keys, &others(&self.world, &[host]));
        self.world.undo(gone);
    }
}

fn quorums_alone(seed: u64, hosts: usize, defects: Defects) -> Counts {
    let mut play = Starving::over(formed(Scenario { defects, ..busy(seed, hosts) }));
    let (begin, before) = (play.world.now(), epoch(&play.world).0);
    let all = others(&play.world, &[]);
    for period in 0..PERIODS {
        play.period(period);
        play.world.run_for(Duration::from_millis(100));
        if period % 6 == 2 || period % 6 == 3 {
            // A member that has left, and is back, is a newcomer; and the next one loses all that it has.
            play.starve(&[]);
            wait_whole(&mut play.world, &all, HEALED);
        }
    }
    play.starve(&[]);
    let mut world = play.world;
    was_disturbed(&mut world, begin);
    let world = ends_well(world);
    Counts { dropped: play.dropped.get(), epochs: epoch(&world).0 - before, ..play.counts }
}

#[test]
fn what_only_a_quorum_holds_is_there() {
    for_each_seed("what_only_a_quorum_holds_is_there", 4, |seed| {
        for hosts in [3, 4, 5] {
            let counts = quorums_alone(seed, hosts, Defects::NONE);
            println!("{hosts} members, seed {seed}: {counts:?}");
            assert!(counts.dropped > 50 && counts.epochs >= 4, "{counts:?}");
            assert!(counts.written as usize > PERIODS * KEYS / 2 && counts.read >= counts.written, "{counts:?}");
        }
    });
}

#[test]
fn own_copies_say_nothing() {
    let script = |seed, defects| {
        quorums_alone(seed, 3, defects);
    };
    is_needed(Defect::TrustOwnCopy, "was acknowledged", 4, script);
}

/// Hazard 23: keys are on two of three members. A newcomer comes and one of the two goes, while neither the newcomer nor the
/// third member receives any write. Then the other one of the two dies.
fn one_comes_before_it_has_anything(seed: u64, defects: Defects) {
    let (world, held) = formed_without(Scenario { defects, ..quiet(seed, 4) }, 1);
    let mut play = Starving::over(world);
    let leader = play.world.resolve(Target::Leader);
    let (third, leaver, newcomer) = ((leader + 1) % 3, (leader + 2) % 3, 3);
    play.starve(&[third, newcomer]);
    let keys = play.write(0, &[leader, leaver]);
    assert_eq!(keys.len(), KEYS, "two of three write");
    held.into_iter().for_each(|held| play.world.undo(held));
    play.world.run_for(Duration::from_secs(3));
    let node = group(&play.world, leaver).expect("it is in").me();
    play.world.inject(FaultKind::Leave(Target::Host(leaver)));
    play.world.run_for(Duration::from_secs(3));
    play.starve(&[]);
    wait(&mut play.world, HEALED, "one comes and one goes", |world| {
        group(world, leader).is_some_and(|group| !group.state().is_member(node) && group.state().recovery.is_empty())
    });
    assert!(play.dropped.get() > 0, "nobody starved");
    play.starve(&[third, newcomer]);
    let gone = play.world.kill(leader, true);
    play.read(&keys, &[third, newcomer]);
    play.world.undo(gone);
    play.starve(&[]);
    ends_well(play.world);
}

#[test]
fn members_without_data_do_not_count() {
    is_needed(Defect::EmptyMembers, "was acknowledged", 4, one_comes_before_it_has_anything);
}

/// Returns whether this frame carries the key's record to an acceptor.
fn carries_key(flight: &Flight, name: &str) -> bool {
    let writes = match message(flight) {
        Some(Message::Committee(CommitteeMessage::Accept { writes, .. })) => writes,
        Some(Message::Committee(CommitteeMessage::Since(since))) => since.writes,
        Some(Message::Committee(CommitteeMessage::Compared(page))) => page.writes,
        _ => return false,
    };
    writes.iter().any(|write| write.key.name() == name.as_bytes())
}

/// Hazard 22: two of three members hold a key. One of them dies and is replaced by a newcomer, which joins without the key.
/// Then the other one dies. The majority of the new epoch does not have the key: it has to ask the majority of the old one.
fn the_new_epoch_asks_the_old_one(seed: u64, defects: Defects) {
    let (mut world, held) = formed_without(Scenario { defects, ..quiet(seed, 4) }, 1);
    let leader = world.resolve(Target::Leader);
    let (first, primary, newcomer) = ((leader + 1) % 3, (leader + 2) % 3, 3);
    let name = Rc::new(RefCell::new(String::new()));
    let hidden_name = name.clone();
    let hides = Rc::new(Cell::new(false));
    let hidden = hides.clone();
    world.tap(move |flight| {
        // The first one votes on writes, but gives no sign of life: it is primary of nothing, and to be replaced.
        let dumb = flight.from == first && flight.class == Class::Control;
        let lacks = hidden.get() && (flight.to == newcomer || flight.to == leader);
        let lost = dumb || (lacks && carries_key(flight, &hidden_name.borrow()));
        if lost { Fate::Lost } else { Fate::Goes }
    });
    world.run_for(Duration::from_secs(15));
    let found = (0..99).map(|index| format!("k{index}")).find(|name| world.primary_of(name) == primary);
    *name.borrow_mut() = found.expect("it is primary of something");
    let name = name.borrow().clone();
    hides.set(true);
    assert_eq!(world.tell(primary, &name, set("there")), Outcome::Answered(Answer::Done), "two of three");
    let before = epoch(&world);
    let died = world.kill(first, true);
    world.run_for(Duration::from_secs(12));
    assert_eq!(epoch(&world), before, "nobody can take its place yet");
    held.into_iter().for_each(|held| world.undo(held));
    wait(&mut world, SOON, "the dead one is replaced", |world| epoch(world) > before);
    let members = group(&world, leader).expect("it is in").state().nodes().len();
    let also_died = world.kill(primary, true);
    hides.set(false);
    let read = world.read_within(leader, &name, SOON);
    assert_eq!((read, members), (None, 3), "{name} was acknowledged, and both who hold it are dead");
    world.undo(also_died);
    let there = Outcome::Answered(Answer::Value(Some(Bytes::from_static(b"there"))));
    assert_eq!(world.read_within(leader, &name, SOON), Some(there), "{name} was acknowledged");
    world.untap();
    world.undo(died);
    ends_well(world);
}

#[test]
fn one_replica_is_no_state() {
    is_needed(Defect::OneReplicaState, "was acknowledged", 2, the_new_epoch_asks_the_old_one);
}

/// A write that a majority of three accepted may be missing at one of them.
#[test]
fn one_of_three_is_less_than_half() {
    is_needed(Defect::LessThanHalf, "was acknowledged", 4, the_new_epoch_asks_the_old_one);
}
