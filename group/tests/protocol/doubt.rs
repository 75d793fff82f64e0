//! A member with a bad end of its journal: it may have forgotten its last acknowledgements (see `group/src/control/recovery/doubt.rs`).

use group::config::{Defect, Defects};
use group::message::{CommitteeMessage, Message};

use crate::world::chance;
use crate::world::{Rules, World};

const ALL: [usize; 3] = [0, 1, 2];
/// Time in milliseconds that is long enough for every possible event.
const LONG: u64 = 3_000;

fn world(defects: Defects) -> World {
    let mut world = World::new(Rules { torn: true, defects, ..Rules::of(3, 0) }, 7);
    world.clients.add_key(true);
    settle(&mut world, &ALL);
    world
}

/// Runs these members until all is well among them.
fn settle(world: &mut World, among: &[usize]) {
    for _ in 0..200 {
        world.run(40, among);
        assert_eq!(world.wrong, None);
        if among.len() < 3 || world.unrest().is_none() {
            return;
        }
    }
    panic!("{:?}: {:#?}", world.unrest(), world.notes);
}

/// Asks this member for an operation on a key, an increment or a read. Returns whether it was answered.
fn ask_at(world: &mut World, of: usize, place: usize, read: bool, among: &[usize]) -> bool {
    let Some(call) = world.ask(of, place, read, 1) else { return false };
    for _ in 0..60 {
        world.run(20, among);
        if !world.clients.calls.contains_key(&call) {
            return true;
        }
        if world.clients.tries(call).1 {
            world.attempt(call);
        }
    }
    world.clients.give_up(call);
    false
}

fn ask(world: &mut World, of: usize, read: bool, among: &[usize]) -> bool {
    (0..20).any(|_| ask_at(world, of, 0, read, among))
}

/// Member 1 writes, as primary of a key, and answers: at that moment all members die. Member 0 has acknowledged the write, and member 2
/// only where it was not `behind`, that is, away. Returns the key's place.
fn written(defects: Defects, behind: bool) -> (World, usize) {
    let mut world = world(defects);
    (0..15).for_each(|_| _ = world.clients.add_key(true));
    if behind {
        world.crash(2);
    }
    let there: Vec<usize> = (0..if behind { 2 } else { 3 }).collect();
    world.run(1_000, &there);
    let of_one = |world: &World, place: &usize| {
        let ballot = world.group(1).primary_of(world.clients.key(*place).point());
        ballot.is_some_and(|ballot| ballot.node == world.peers[1].node)
    };
    let place = (0..16).find(|place| of_one(&world, place)).expect("it has a share");
    assert!((0..20).any(|_| ask_at(&mut world, 1, place, false, &there)), "a majority is there: {:#?}", world.notes);
    world.run(200, &there);
    if !behind {
        // No more messages come to 2, so that 0 is the acceptor that it takes.
        world.cut.insert((1, 2));
    }
    let call = world.ask(1, place, false, 1).expect("it is there");
    for _ in 0..1_000 {
        if !world.clients.calls.contains_key(&call) {
            break;
        }
        match world.net.is_empty() {
            true => world.pass(500, &there),
            false => {
                let packet = world.net.remove(0);
                world.deliver(packet);
            }
        }
    }
    assert!(!world.clients.calls.contains_key(&call), "it is answered");
    world.cut.clear();
    (world, place)
}

/// Loses the last write of member 0, which is its last acknowledgement; member 2 was away.
fn with_a_loss(defects: Defects) -> (World, usize) {
    let (mut world, place) = written(defects, true);
    world.crash(1);
    world.tear(0, true);
    (world, place)
}

/// Further events for the three members.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    /// Members with bad ends of their journals: a bit for each.
    torn: u8,
    /// Whether the last write of member 0 is lost.
    lost: bool,
    /// Whether member 2 was away.
    behind: bool,
    /// Member that does not come back at first.
    gone: Option<usize>,
    /// Member that begins anew once more while the rest is asked, and whether that was a clean stop.
    again: Option<(usize, bool)>,
}

fn schedules() -> Vec<Schedule> {
    let mut all = Vec::new();
    for torn in 1..8_u8 {
        for lost in [false, true].into_iter().filter(|lost| !lost || torn & 1 > 0) {
            for behind in [false, true] {
                for gone in [None, Some(1), Some(2)] {
                    for again in [None, Some((0, false)), Some((0, true)), Some((1, false))] {
                        if again.map(|(who, _)| who) != gone || gone.is_none() {
                            all.push(Schedule { torn, lost, behind, gone, again });
                        }
                    }
                }
            }
        }
    }
    all
}

/// Plays a schedule. Returns the failure, if there is one.
fn play(schedule: Schedule, defects: Defects) -> Option<String> {
    let Schedule { torn, lost, behind, gone, again } = schedule;
    let (mut world, place) = written(defects, behind);
    for index in ALL {
        match torn & 1 << index {
            0 => world.crash(index),
            _ => world.tear(index, lost && index == 0),
        }
    }
    world.net.clear();
    let back: Vec<usize> = ALL.into_iter().filter(|index| Some(*index) != gone).collect();
    back.iter().for_each(|index| world.restart(*index, false));
    if let Some((who, sealed)) = again {
        world.pass(4_000, &back);
        for _ in 0..5 {
            if !world.net.is_empty() {
                let packet = world.net.remove(0);
                world.deliver(packet);
            }
        }
        world.crash(who);
        world.restart(who, sealed);
    }
    world.run(1_500, &back);
    for index in &back {
        let _ = world.peers[*index].group.is_some() && ask_at(&mut world, *index, place, true, &back);
    }
    gone.into_iter().for_each(|index| world.restart(index, false));
    let mut unrest = None;
    for _ in 0..100 {
        world.run(40, &ALL);
        world.ask_to_join(&ALL);
        unrest = world.unrest();
        if unrest.is_none() || world.wrong.is_some() {
            break;
        }
    }
    let answered =
        (0..20).any(|turn| world.peers[turn % 3].group.is_some() && ask_at(&mut world, turn % 3, place, true, &ALL));
    world.wrong.or(unrest).or((!answered).then(|| "nobody answers although all are back".into()))
}

#[test]
fn no_schedule_loses_anything_or_waits_for_ever() {
    for schedule in schedules() {
        assert_eq!(play(schedule, Defects::NONE), None, "{schedule:?}");
    }
}

/// Reads at 0 and 2 while 1 is away. Returns whether there was an answer.
fn read_without_the_other(world: &mut World, place: usize) -> bool {
    world.restart(0, false);
    world.restart(2, false);
    world.run(LONG, &[0, 2]);
    ask_at(world, 0, place, true, &[0, 2]) || ask_at(world, 2, place, true, &[0, 2])
}

#[test]
fn nothing_is_answered_without_the_one_who_knows() {
    let (mut world, place) = with_a_loss(Defects::NONE);
    assert!(!read_without_the_other(&mut world, place), "{:#?}", world.notes);
    let doubt = world.group(2).in_doubt();
    assert_eq!((doubt.members, doubt.waiting_for), (vec![world.peers[0].node], vec![world.peers[1].node]));
    world.restart(1, false);
    settle(&mut world, &ALL);
    assert!(
        (0..20).any(|_| ask_at(&mut world, 2, place, true, &ALL)),
        "and the client's check says that it is the right answer"
    );
    assert_eq!(world.wrong, None);
    assert!(ALL.iter().all(|index| world.group(*index).doubt().is_none()));
}

#[test]
fn schedules_show_what_the_rules_are_for() {
    for defect in [Defect::DoubtCounts, Defect::DoubtForgotten] {
        let defects = Defects::NONE.with(defect);
        let wrong = |schedule: &Schedule| {
            let played = std::panic::catch_unwind(|| play(*schedule, defects));
            played.map_or(true, |wrong| wrong.is_some())
        };
        let found = schedules().into_iter().find(wrong);
        assert!(found.is_some(), "{defect:?}");
    }
}

/// Without the rules some schedule loses an acknowledged write, and the check of clients' answers sees the loss.
#[test]
fn each_rule_is_needed() {
    for defect in [Defect::DoubtCounts, Defect::DoubtForgotten] {
        let (mut world, place) = with_a_loss(Defects::NONE.with(defect));
        let read = read_without_the_other(&mut world, place);
        assert!(world.wrong.is_some(), "{defect:?}: read {read}, and nobody noticed: {:#?}", world.notes);
    }
}

#[test]
fn a_majority_that_is_sure_needs_nothing_from_who_is_not() {
    for lost in [false, true] {
        let mut world = world(Defects::NONE);
        // It has not followed 0 from the beginning: its knowledge does not suffice.
        world.crash(1);
        world.restart(1, false);
        settle(&mut world, &ALL);
        world.tear(0, lost);
        let others = [1, 2];
        settle(&mut world, &others);
        assert!(ask(&mut world, 1, false, &others), "they go on");
        let epoch = world.epoch();
        world.restart(0, false);
        settle(&mut world, &ALL);
        assert!(ask(&mut world, 1, true, &ALL));
        assert!(world.group(0).doubt().is_none(), "{:#?}", world.notes);
        assert!(world.epoch() > epoch || world.peers[0].node.incarnation.0 > 1, "the epoch is over, or its life");
    }
}

/// A power cut hits a write of all members, and all come back.
#[test]
fn all_torn_and_all_back_go_on_by_themselves() {
    for seed in 0..8_usize {
        let mut world = world(Defects::NONE);
        assert!(ask(&mut world, 1, false, &ALL));
        for index in ALL {
            world.tear(index, false);
        }
        for turn in 0..3 {
            world.restart((seed + turn) % 3, false);
            world.run(100 * (seed as u64 % 4), &ALL);
        }
        settle(&mut world, &ALL);
        assert!(ask(&mut world, seed % 3, true, &ALL));
        assert!(ALL.iter().all(|index| world.group(*index).doubt().is_none() && world.peers[*index].run > 0));
        assert!(ALL.iter().all(|index| world.peers[*index].node.incarnation.0 == 1), "nobody's life ends");
    }
}

#[test]
fn all_torn_and_one_gone_wait_for_a_word() {
    let mut world = world(Defects::NONE);
    assert!(ask(&mut world, 1, false, &ALL));
    ALL.iter().for_each(|index| world.tear(*index, false));
    let back = [0, 1];
    back.iter().for_each(|index| world.restart(*index, false));
    world.run(LONG, &back);
    assert!(!ask(&mut world, 0, true, &back));
    for index in back {
        let doubt = world.group(index).in_doubt();
        assert_eq!(doubt.members, back.map(|index| world.peers[index].node));
        assert_eq!(doubt.waiting_for, [world.peers[2].node], "it says who is missing");
    }
    // Restarts change nothing, clean or not.
    for sealed in [true, false] {
        back.iter().for_each(|index| world.crash(*index));
        back.iter().for_each(|index| world.restart(*index, sealed));
        world.run(LONG, &back);
        assert!(!ask(&mut world, 0, true, &back) && world.group(0).doubt().is_some());
    }
    world.act(0, |group| assert!(group.accept_loss(), "somebody is waited for"));
    assert!(ask(&mut world, 0, true, &back), "{:#?}", world.notes);
    assert_eq!(world.wrong, None, "nothing was lost in fact");
    world.act(0, |group| assert!(!group.accept_loss(), "nobody is waited for"));
}

/// The other members have followed the torn run from its beginning: they know that nothing is lost, and no epoch ends for it.
#[test]
fn witnesses_end_the_doubt_at_once() {
    let mut world = world(Defects::NONE);
    // All have begun since they first heard of each other: so each knows the next run of each from its first message on.
    for index in ALL {
        world.crash(index);
        settle(&mut world, &ALL.into_iter().filter(|other| *other != index).collect::<Vec<_>>());
        world.restart(index, false);
        settle(&mut world, &ALL);
    }
    for index in [0, 1] {
        world.crash(index);
        world.run(100, &ALL);
        world.restart(index, false);
        settle(&mut world, &ALL);
    }
    // 2 has run since before 0 and 1 began last, and 1 since before ... 0 again.
    world.crash(0);
    world.run(100, &ALL);
    world.restart(0, false);
    settle(&mut world, &ALL);
    let epoch = world.epoch();
    world.tear(0, false);
    world.restart(0, false);
    settle(&mut world, &ALL);
    assert_eq!((world.epoch(), world.group(0).doubt()), (epoch, None), "{:#?}", world.notes);
}

#[test]
fn chance_finds_nothing() {
    // Of the last two seeds, one gave a sub-range again and again to a member that asked other members for long. In the other one no member
    // ended an epoch for a node that was asked, and was no member any more.
    for seed in (0..60).chain([1_491, 1_856]) {
        let came = chance::run_torn(seed, 1_500, Defects::NONE, false);
        assert_eq!(came.wrong, None, "seed {seed}");
    }
}

/// Lets all other members follow the present run of `index`, from its first message on.
fn follow(world: &mut World, index: usize) {
    world.crash(index);
    let others: Vec<usize> = ALL.into_iter().filter(|other| *other != index).collect();
    settle(world, &others);
    world.restart(index, false);
    settle(world, &ALL);
}

/// Delivers only questions about acknowledgements, and the answers, until this member has them all.
fn vouch(world: &mut World, index: usize) {
    world.restart(index, false);
    for _ in 0..50 {
        for other in ALL.into_iter().filter(|other| *other != index) {
            let asked = world.take(index, other, |message| matches!(message, Message::AskVouch));
            asked.into_iter().for_each(|packet| world.deliver(packet));
            let told = world.take(other, index, |message| matches!(message, Message::Vouch(_)));
            told.into_iter().for_each(|packet| world.deliver(packet));
        }
        if world.peers[index].group.as_ref().is_none_or(|group| !group.is_recovering()) {
            return;
        }
        world.pass(2_000, &[index]);
    }
    panic!("{index} waits: {:#?}", world.notes);
}

/// Returns the place of a key with this member as primary.
fn place_of(world: &World, index: usize) -> usize {
    let of_it = |place: &usize| {
        let ballot = world.group(index).primary_of(world.clients.key(*place).point());
        ballot.is_some_and(|ballot| ballot.node == world.peers[index].node)
    };
    (0..16).find(of_it).expect("it has a share")
}

/// A primary counts on its votes for itself: no other node knows of those.
#[test]
fn what_a_primary_acknowledged_to_itself_may_be_lost_too() {
    let mut world = world(Defects::NONE);
    (0..15).for_each(|_| _ = world.clients.add_key(true));
    follow(&mut world, 1);
    let place = place_of(&world, 1);
    assert!((0..20).any(|_| ask_at(&mut world, 1, place, false, &ALL)));
    world.run(200, &ALL);
    world.net.clear();
    world.rules.quick_disks = false;
    world.cut.insert((1, 2));
    let call = world.ask(1, place, false, 1).expect("it is there");
    world.pass(0, &[1]);
    assert!(world.sync(1));
    world.drain(1);
    for (from, to) in [(1, 0), (0, 1)] {
        let committee = world.take(from, to, |message| matches!(message, Message::Committee(_)));
        committee.into_iter().for_each(|packet| world.deliver(packet));
        if to == 0 {
            world.sync_all(0);
        }
    }
    assert!(!world.clients.calls.contains_key(&call), "it is answered");
    world.tear(1, true);
    world.cut.clear();
    world.net.clear();
    world.rules.quick_disks = true;
    vouch(&mut world, 1);
    world.crash(0);
    world.run(LONG, &[1, 2]);
    assert!(!ask_at(&mut world, 2, place, true, &[1, 2]), "{:?} {:#?}", world.wrong, world.notes);
    world.restart(0, false);
    settle(&mut world, &ALL);
    assert!((0..20).any(|_| ask_at(&mut world, 2, place, true, &ALL)));
    assert_eq!(world.wrong, None);
}

/// Delivers messages of committees between these two, and makes their writes durable, until no more follow.
fn exchange(world: &mut World, one: usize, other: usize) {
    loop {
        let mut packets = world.take(one, other, |message| matches!(message, Message::Committee(_)));
        packets.extend(world.take(other, one, |message| matches!(message, Message::Committee(_))));
        if packets.is_empty() {
            return;
        }
        for packet in packets {
            world.deliver(packet);
            [one, other].into_iter().for_each(|index| world.sync_all(index));
        }
    }
}

/// Member 1 takes over the sub-range of 2, with the promise of 0, and lays its base, which no other member gets. Member 1 forgets what it
/// was told, 0 loses its promise, and 2 has not heard of anything yet. Then 2 writes. Returns whether that write was answered.
fn write_below_a_lost_promise(world: &mut World) -> (bool, usize) {
    (0..15).for_each(|_| _ = world.clients.add_key(true));
    settle(world, &ALL);
    let place = place_of(world, 2);
    assert!((0..20).any(|_| ask_at(world, 2, place, false, &ALL)));
    world.run(200, &ALL);
    world.net.clear();
    world.rules.quick_disks = false;
    let point = world.clients.key(place).point();
    let is_prepare = |message: &Message| match message {
        Message::Committee(CommitteeMessage::Prepare { range, .. }) => range.contains(point),
        _ => false,
    };
    let mut prepared = Vec::new();
    for _ in 0..100 {
        world.pass(2_000, &[0, 1]);
        for _ in 0..20 {
            prepared.extend(world.take(1, 0, is_prepare));
            let mut packets = world.take(0, 1, |_| true);
            packets.extend(world.take(1, 0, |message| !is_prepare(message)));
            packets.into_iter().for_each(|packet| world.deliver(packet));
            [0, 1].into_iter().for_each(|index| world.sync_all(index));
        }
        if !prepared.is_empty() {
            break;
        }
    }
    world.deliver(prepared.pop().expect("it takes over"));
    assert!(world.sync(0));
    world.drain(0);
    let promise = world.take(0, 1, |message| matches!(message, Message::Committee(_)));
    promise.into_iter().for_each(|packet| world.deliver(packet));
    world.sync_all(1);
    let laid = world.group(1).acceptor().base_at(point);
    assert_eq!(laid.map(|ballot| ballot.node), Some(world.peers[1].node), "it has laid its base");
    world.crash(1);
    world.tear(0, true);
    world.net.clear();
    world.restart(1, false);
    vouch(world, 0);
    let call = world.ask(2, place, false, 1).expect("it is there");
    world.pass(0, &[2]);
    exchange(world, 0, 2);
    let answered = !world.clients.calls.contains_key(&call);
    world.crash(2);
    world.net.clear();
    world.rules.quick_disks = true;
    (answered, place)
}

/// A forgotten promise must not be broken, even where its primary has forgotten it too.
#[test]
fn who_may_have_promised_accepts_nothing() {
    for defects in [Defects::NONE, Defects::NONE.with(Defect::DoubtSpeaks)] {
        let mut world = world(defects);
        let (answered, place) = write_below_a_lost_promise(&mut world);
        assert_eq!(answered, defects.has(Defect::DoubtSpeaks), "{:#?}", world.notes);
        world.restart(2, false);
        let read = (0..40).any(|turn| {
            world.run(40, &ALL);
            world.wrong.is_some() || ask_at(&mut world, turn % 3, place, true, &ALL)
        });
        assert!(read, "{:#?}", world.notes);
        assert_eq!(world.wrong.is_some(), defects.has(Defect::DoubtSpeaks), "{:?}", world.wrong);
    }
}

/// A start with another bad end, while the first doubt lasts. The data that the first one may have forgotten stays in doubt, although all
/// members have followed the later ones.
#[test]
fn a_second_bad_end_does_not_hide_the_first() {
    let (mut world, place) = with_a_loss(Defects::NONE);
    [1, 2].into_iter().for_each(|index| world.restart(index, false));
    vouch(&mut world, 0);
    for _ in 0..3 {
        world.tear(0, false);
        vouch(&mut world, 0);
        assert!(world.group(0).doubt().is_some(), "{:#?}", world.notes);
    }
    world.crash(1);
    world.net.clear();
    world.run(LONG, &[0, 2]);
    assert!(!ask_at(&mut world, 2, place, true, &[0, 2]), "{:?} {:#?}", world.wrong, world.notes);
    world.restart(1, false);
    settle(&mut world, &ALL);
    assert!((0..20).any(|_| ask_at(&mut world, 2, place, true, &ALL)));
    assert_eq!(world.wrong, None);
}

/// A part that a node drops does not bring back a doubt that is over. A group that is born of a group still in doubt asks for itself:
/// otherwise it would be in doubt for ever, and end each epoch.
#[test]
fn doubt_of_another_group_ends_too() {
    let mut world = world(Defects::NONE);
    world.tear(0, false);
    world.restart(0, false);
    let mut gone = world.group(0).clone();
    gone.give_way();
    settle(&mut world, &ALL);
    assert_eq!(world.group(0).doubt(), None);
    world.act(0, |group| group.inherit_grants(&gone));
    assert_eq!(world.group(0).doubt(), None);
    world.act(0, |group| group.inherit_doubt(&gone));
    assert!(world.group(0).is_recovering() && world.group(0).primaries().count() == 0);
    settle(&mut world, &ALL);
    world.run(500, &ALL);
    let epoch = world.epoch();
    world.run(LONG, &ALL);
    assert_eq!((world.group(0).doubt(), world.epoch()), (None, epoch), "{:#?}", world.notes);
    assert!(ask(&mut world, 0, true, &ALL));
}
