//! Elections: the members that stand or wait, and the first action of a new leader.

use std::collections::BTreeSet;

use group::config::{Defect, Defects};
use group::message::{LogMessage, Message};
use overlay::Epoch;

use crate::removals::{after, led, without};
use crate::world::{Packet, Rules, World};

/// Delivers the messages between these members that are `like` this, once, and makes their writes durable.
fn deliver(world: &mut World, living: &[usize], like: impl Fn(&Packet) -> bool) {
    let (now, later) = std::mem::take(&mut world.net).into_iter().partition(|packet| like(packet));
    world.net = later;
    let now: Vec<Packet> = now;
    now.into_iter().for_each(|packet| world.deliver(packet));
    living.iter().for_each(|index| world.sync_all(*index));
}

/// The leader of a group of five ends, and all other members find out at about the same time whether they could lead. One of them is told
/// so a little earlier. Returns how many ask for promises.
fn candidates(defects: Defects) -> usize {
    let (mut world, leader, all) = led(5, 0, defects);
    let living = without(&all, &[leader]);
    world.crash(leader);
    world.close(leader, &living);
    world.net.clear();
    let (poll, answer) = (
        |it: &LogMessage| matches!(it, LogMessage::AskPromise { .. }),
        |it: &LogMessage| matches!(it, LogMessage::WouldPromise { .. }),
    );
    let prepare = |it: &LogMessage| matches!(it, LogMessage::Prepare { .. });
    let log =
        |packet: &Packet, like: &dyn Fn(&LogMessage) -> bool| matches!(&packet.message, Message::Log(it) if like(it));
    for _ in 0..40 {
        world.pass(1_000, &living);
        deliver(&mut world, &living, |packet| log(packet, &poll));
    }
    let first = world.net.iter().find(|packet| log(packet, &answer)).expect("somebody is answered").to;
    deliver(&mut world, &living, |packet| log(packet, &answer) && packet.to == first);
    let mut asked: BTreeSet<_> =
        world.net.iter().filter(|packet| log(packet, &prepare)).map(|packet| packet.from.node).collect();
    assert_eq!(asked.iter().collect::<Vec<_>>(), [&first], "{:#?}", world.notes);
    deliver(&mut world, &living, |packet| log(packet, &prepare));
    deliver(&mut world, &living, |packet| log(packet, &answer));
    asked.extend(world.net.iter().filter(|packet| log(packet, &prepare)).map(|packet| packet.from.node));
    world.run(200, &living);
    assert!(living.iter().any(|index| world.group(*index).log().leads()), "{:#?}", world.notes);
    assert_eq!(world.wrong, None);
    asked.len()
}

/// Members that have promised to follow a candidate wait for it. Before, attempts that outran each other left a group without a leader for
/// five seconds where the answer of one member took a second.
#[test]
fn who_has_promised_waits_for_the_candidate() {
    assert_eq!(candidates(Defects::NONE), 1);
    assert!(candidates(Defects::NONE.with(Defect::Dueling)) > 1);
}

/// The leader of a group of nine ends with three other members, all of which are primaries, and for a moment no message arrives. Returns
/// the first proposal of the next leader.
fn first_proposal(defects: Defects) -> String {
    let (_, leader, all) = led(9, 0, defects);
    let mut world = World::new(Rules { defects, durable: false, ..Rules::of(9, 0) }, 5);
    while !(world.unrest().is_none() && world.group(leader).log().leads()) {
        world.run(20, &all);
    }
    let dead: Vec<usize> = std::iter::once(leader).chain(after(leader, 9, 0..3)).collect();
    let living = without(&all, &dead);
    dead.iter().for_each(|index| world.crash(*index));
    dead.iter().for_each(|index| world.close(*index, &living));
    world.notes.clear();
    for _ in 0..12 {
        world.pass(4_000, &living);
    }
    world.run(100, &living);
    assert_eq!(world.latest().members.len(), 5, "{:#?}", world.notes);
    world.notes.iter().find(|note| note.contains("proposes")).cloned().unwrap_or_default()
}

/// Where the living members are just a majority, each entry takes as long as the slowest of them needs, and one more death ends the group.
#[test]
fn dead_members_are_removed_before_anything_else() {
    let is_next = |proposal: &str| proposal.contains("these members from now on");
    let (first, late) = (first_proposal(Defects::NONE), first_proposal(Defects::NONE.with(Defect::TransactionsFirst)));
    assert!(is_next(&first), "{first}");
    assert!(!is_next(&late), "{late}");
}

/// Delivers all messages but the votes for entries of this epoch.
fn talk_without_votes(world: &mut World, epoch: Epoch) {
    let is_vote = |packet: &Packet| {
        packet.from.epoch >= epoch && matches!(&packet.message, Message::Log(LogMessage::Accepted { .. }))
    };
    while let Some(at) = world.net.iter().position(|packet| !is_vote(packet)) {
        let packet = world.net.remove(at);
        world.deliver(packet);
    }
}

/// A member dies, and is silent for long enough, while the first entry of an epoch is in flight. Meanwhile all other members have come to
/// hold everything. The next epoch would continue to ask the former members, and some of those may be dead by then.
#[test]
fn what_is_there_is_established_before_the_dead_are_removed() {
    let (mut world, leader, mut all) = led(5, 1, Defects::NONE);
    all.push(5);
    let next = Epoch(world.epoch().0 + 1);
    let mut living = all.clone();
    for _ in 0..200 {
        world.pass(4_000, &living);
        world.ask_to_join(&living);
        talk_without_votes(&mut world, next);
        living.iter().for_each(|index| world.sync_all(*index));
        talk_without_votes(&mut world, next);
        if world.epoch() == next && living.len() == 6 {
            let dead = after(leader, 5, 0..1)[0];
            world.crash(dead);
            living = without(&all, &[dead]);
            world.notes.clear();
        }
    }
    assert_eq!((world.epoch(), world.latest().recovery.len(), living.len()), (next, 1, 5), "{:#?}", world.notes);
    assert!(!world.notes.iter().any(|note| note.contains("proposes")), "{:#?}", world.notes);
    world.run(600, &living);
    let first = world.notes.iter().find(|note| note.contains("proposes")).cloned().unwrap_or_default();
    assert!(first.contains("that all is there"), "{:#?}", world.notes);
    assert_eq!((world.latest().members.len(), world.wrong.as_ref()), (5, None), "{:#?}", world.notes);
}
