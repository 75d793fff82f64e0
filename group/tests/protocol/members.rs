//! Epochs and members: vouching, removals and waiting newcomers. Each of these tests once failed.

use group::Group;
use group::ballot::Ballot;
use group::config::{Defect, Defects};
use group::control::state::Entry;
use group::message::{CommitteeMessage, LogMessage, Message, Progress, Sender};
use group::outbox::GroupOutput;
use overlay::{Epoch, Incarnation, KeyRange, NodeId};

use crate::bench::{Bench, node};
use crate::world::{Packet, Rules, World, chance};

fn is_log(message: &Message) -> bool {
    matches!(message, Message::Log(_))
}

/// Returns a world with a leader, and the leader.
fn led(rules: Rules) -> (World, usize) {
    let members: Vec<usize> = (0..rules.members).collect();
    let mut world = World::new(rules, 1);
    for _ in 0..100 {
        world.run(40, &members);
        if let Some(leader) = world.free_leader().filter(|_| world.unrest().is_none()) {
            assert_eq!(world.wrong, None);
            world.net.clear();
            return (world, leader);
        }
    }
    panic!("nobody leads");
}

/// Of five members, the leader and another one accept an entry that the rest do not hear of. The three others have a leader of their own,
/// which has another entry chosen in that slot. The old leader learns the present state, but not the new leader. It must not tell the
/// member that accepted with it that their entry is chosen.
#[test]
fn a_leader_vouches_for_nothing_that_others_had_chosen() {
    let (mut world, first) = led(Rules::of(5, 0));
    let second = (first + 1) % 5;
    let others: Vec<usize> = (2..5).map(|more| (first + more) % 5).collect();
    let before = world.group(first).state().applied;
    // The first member proposes, and only the second hears it.
    world.act(first, |group| group.propose(Entry::Horizon(1_000)));
    for packet in world.take(first, second, is_log) {
        world.deliver(packet);
    }
    assert_eq!(world.group(second).log().last_accepted(), Some(before.next()));
    world.net.clear();
    // The others miss their leader, and one of them leads. The first member hears only signs of life from them.
    let all: Vec<usize> = (0..5).collect();
    let alive = |message: &Message| matches!(message, Message::Heartbeat(heartbeat) if heartbeat.leads.is_none());
    let mut other = None;
    for _ in 0..200 {
        world.pass(4_000, &all);
        world.talk(&others);
        let signs: Vec<_> = others.iter().chain([&second]).flat_map(|from| world.take(*from, first, alive)).collect();
        let own = world.take(first, second, |message| matches!(message, Message::Heartbeat(_)));
        signs.into_iter().chain(own).for_each(|packet| world.deliver(packet));
        let leads = |index: &&usize| world.group(**index).log().leads() && !world.group(**index).log().is_busy();
        other = others.iter().find(leads).copied();
        if other.is_some() {
            break;
        }
        world.net.retain(|packet| matches!(packet.message, Message::AskState));
    }
    let other = other.expect("one of three leads");
    assert!(world.group(first).log().leads_under().is_some() && world.group(other).state().applied > before);
    // It asks a member that has come further for the state, and gives a sign of life to the member that accepted with it.
    let told = others.into_iter().find(|index| *index != other).expect("three");
    for _ in 0..20 {
        world.pass(4_000, &all);
        for (from, to, like) in [
            (told, first, alive as fn(&Message) -> bool),
            (second, first, alive),
            (first, told, |message| matches!(message, Message::AskState)),
            (told, first, |message| matches!(message, Message::State(_))),
            (first, second, |message| matches!(message, Message::Heartbeat(_) | Message::Log(_))),
        ] {
            world.take(from, to, like).into_iter().for_each(|packet| world.deliver(packet));
        }
        world.net.clear();
    }
    assert!(world.group(first).state().applied > before);
    assert_eq!(world.wrong, None);
}

/// A member stops the epoch, and its process dies before any of that is written. Another member that promised has a slow disk. Its promise
/// comes when the process runs again, and asks for one under the same ballot, having forgotten more than the ballot.
#[test]
fn a_promise_to_what_was_forgotten_counts_for_nothing() {
    let (mut world, leader) = led(Rules { quick_disks: false, ..Rules::of(3, 0) });
    let (one, two) = ((leader + 1) % 3, (leader + 2) % 3);
    let before = world.group(leader).state().applied;
    // The two others choose an entry; the leader has not written it.
    world.act(leader, |group| group.propose(Entry::Horizon(1_000)));
    for index in [one, two] {
        for packet in world.take(leader, index, is_log) {
            world.deliver(packet);
        }
        world.sync_all(index);
    }
    let votes: Vec<_> = [world.take(one, leader, is_log), world.take(two, leader, is_log)].concat();
    votes.into_iter().for_each(|packet| world.deliver(packet));
    assert_eq!(world.group(leader).state().applied, before.next(), "it is chosen");
    // One of them learns that it is chosen.
    for packet in world.take(leader, one, is_log) {
        world.deliver(packet);
    }
    world.sync_all(one);
    assert_eq!(world.group(one).state().applied, before.next());
    world.net.clear();
    // The leader ends the epoch, and that member promises, if it is asked; then the leader dies.
    world.act(leader, Group::stop_epoch);
    for packet in world.take(leader, one, is_log) {
        world.deliver(packet);
    }
    world.crash(leader);
    world.sync_all(one);
    let promise = world.take(one, leader, |message| matches!(message, Message::Log(LogMessage::Promise { .. })));
    world.net.clear();
    // It is back, hears the other member, which vouches for it, and ends the epoch again.
    world.restart(leader, false);
    for _ in 0..200 {
        world.pass(4_000, &[leader]);
        world.sync_all(leader);
        for (from, to) in [(leader, two), (two, leader)] {
            let vouching = |message: &Message| matches!(message, Message::AskVouch | Message::Vouch(_));
            world.take(from, to, vouching).into_iter().for_each(|packet| world.deliver(packet));
        }
        world.net.clear();
    }
    assert!(!world.group(leader).is_recovering());
    assert_eq!(world.group(leader).state().applied, before);
    world.act(leader, Group::stop_epoch);
    world.sync_all(leader);
    promise.into_iter().for_each(|packet| world.deliver(packet));
    for _ in 0..50 {
        for (from, to) in [(leader, two), (two, leader)] {
            for packet in world.take(from, to, is_log) {
                world.deliver(packet);
            }
            world.sync_all(to);
        }
    }
    assert_eq!(world.wrong, None);
    let state = world.group(leader).state();
    assert!(state.applied == before || state.horizon == 1_000, "{state:?} has forgotten what was chosen");
}

/// Lets time pass for these until a call is answered.
fn answer(world: &mut World, among: &[usize], call: u64) {
    for _ in 0..200 {
        world.run(8, among);
        if !world.clients.calls.contains_key(&call) {
            return;
        }
        if world.clients.tries(call).1 {
            world.attempt(call);
        }
    }
    panic!("no answer to {:?}", world.clients.calls[&call]);
}

/// Sets a key (an even number), or deletes it.
fn change(world: &mut World, among: &[usize], place: usize, chance: u64) {
    let call = world.ask(among[0], place, false, chance).expect("it lives");
    answer(world, among, call);
}

/// A newcomer reads the window of recent writes from the very first on, page by page. It has got a key's value when the window is cut, and
/// compares its records with the existing ones. The key was deleted long ago, and its tombstone purged: no member tells the newcomer.
#[test]
fn what_was_let_go_of_does_not_come_from_a_window() {
    let rules = Rules { window_bytes_max: 2_000, message_bytes_max: 300, ..Rules::of(1, 1) };
    let mut world = World::new(rules, 1);
    let (gone, other) = (world.clients.add_key(false), world.clients.add_key(false));
    let alone = [0];
    world.run(40, &alone);
    change(&mut world, &alone, other, 2);
    change(&mut world, &alone, gone, 2);
    change(&mut world, &alone, other, 4);
    change(&mut world, &alone, gone, 1);
    for _ in 0..100 {
        if world.group(0).purged() > 0 {
            break;
        }
        world.run(40, &alone);
    }
    assert_eq!(world.group(0).purged(), 1);
    // One page of the window gets through to the newcomer; meanwhile there are many writes.
    let is_page = |message: &Message| matches!(message, Message::Committee(CommitteeMessage::Since(_)));
    let (mut pages, mut value, mut call) = (0, 4, None);
    for round in 0..4_000 {
        world.pass(1_000, &[0, 1]);
        world.ask_to_join(&[0, 1]);
        for packet in std::mem::take(&mut world.net) {
            pages += u32::from(is_page(&packet.message));
            if pages <= 1 || !is_page(&packet.message) {
                world.deliver(packet);
            }
        }
        match call {
            _ if (pages <= 1 && round < 500) || value > 80 => {}
            Some(open) if world.clients.calls.contains_key(&open) => {
                if world.clients.tries(open).1 {
                    world.attempt(open);
                }
            }
            _ => {
                value += 2;
                call = world.ask(0, other, false, value);
            }
        }
    }
    assert!(value > 80);
    leave_the_newcomer_alone(&mut world);
    let call = world.ask(1, gone, true, 0).expect("it lives");
    answer(&mut world, &[1], call);
    assert_eq!(world.wrong, None);
}

/// Lets everything get through until there are two members; then the first one leaves.
fn leave_the_newcomer_alone(world: &mut World) {
    let both = [0, 1];
    for _ in 0..100 {
        world.run(40, &both);
        if world.latest().members.len() == 2 && world.unrest().is_none() {
            break;
        }
    }
    assert_eq!(world.latest().members.len(), 2);
    world.act(0, |group| group.leave(true));
    for _ in 0..400 {
        if world.peers[0].group.is_none() {
            break;
        }
        world.run(4, &both);
    }
    world.run(400, &[1]);
    assert_eq!(world.latest().nodes(), [world.peers[1].node]);
}

/// Everything was written in the first term of all, before which there are no records. A newcomer to a group of one becomes no member
/// before it has those writes: with four such newcomers the only holder would be one of five members.
#[test]
fn who_holds_nothing_of_the_first_term_waits() {
    let mut world = World::new(Rules::of(1, 4), 1);
    let place = world.clients.add_key(false);
    world.run(40, &[0]);
    (1..10).for_each(|value| change(&mut world, &[0], place, 2 * value));
    let is_page = |message: &Message| {
        matches!(message, Message::Committee(CommitteeMessage::Since(_) | CommitteeMessage::Compared(_)))
    };
    let all: Vec<usize> = (0..5).collect();
    for _ in 0..1_000 {
        world.pass(1_000, &all);
        world.ask_to_join(&all);
        for packet in std::mem::take(&mut world.net).into_iter().filter(|packet| !is_page(&packet.message)) {
            world.deliver(packet);
        }
    }
    let state = world.latest();
    assert_eq!((state.members.len(), state.learners.len()), (1, 4), "{:?}", world.notes);
    world.run(800, &all);
    assert_eq!((world.latest().members.len(), world.unrest()), (5, None));
    assert_eq!(world.wrong, None);
}

/// A member is cut off, removed, and admitted again by an old message of its own; so it never learns of its removal. Meanwhile a key was
/// deleted, and its tombstone purged. The member must not bring back its record of that key.
#[test]
fn whoever_was_put_out_begins_anew() {
    let (mut world, leader) = led(Rules::of(4, 0));
    let all: Vec<usize> = (0..4).collect();
    let out = (leader + 1) % 4;
    let among: Vec<usize> = (2..5).map(|more| (leader + more) % 4).collect();
    let place = world.clients.add_key(false);
    let key = world.clients.key(place).clone();
    change(&mut world, &all, place, 2);
    world.run(40, &all);
    let node = world.peers[out].node;
    world.cut.extend(all.iter().flat_map(|other| [(out, *other), (*other, out)]));
    world.run(120, &among); // The rest takes over its sub-ranges.
    change(&mut world, &among, place, 1);
    for _ in 0..200 {
        let state = world.latest();
        if !state.is_member(node) && among.iter().all(|index| world.group(*index).purged() > 0) {
            break;
        }
        world.run(20, &among);
    }
    assert!(!world.latest().is_member(node));
    assert!(among.iter().all(|index| world.group(*index).purged() > 0));
    // A member passes on the message with which that node first came.
    for index in among.iter().copied() {
        let from = Sender { node: world.peers[among[0]].node, epoch: world.epoch() };
        world.act(index, |group| group.on_message(from, Message::Join(crate::world::member(node))));
    }
    world.run(20, &among);
    assert!(world.latest().is_learner(node));
    world.cut.clear();
    for _ in 0..200 {
        world.run(20, &all);
        if world.latest().members.len() == 4 && world.unrest().is_none() {
            break;
        }
    }
    assert_eq!((world.latest().members.len(), world.unrest()), (4, None));
    for index in all {
        let mut records = world.group(index).table().iter().filter(|(known, _)| **known == key);
        let back = records.find(|(_, record)| record.value.is_some());
        assert_eq!(back, None, "{index} of {:?}", world.latest().nodes());
    }
}

/// A member learns that it was removed and admitted again. Its process may stop, with all its writes, before it has begun anew.
#[test]
fn whoever_was_put_out_does_not_forget_it() {
    let bench = Bench::new(node(3), 3);
    let then = bench.state.clone();
    let mut group = Group::join(bench.config.clone(), node(3), then.clone(), bench.now, 1);
    let mut now = then.clone();
    let mut next = |entry| now.apply(now.applied.next(), &entry);
    next(Entry::Next(then.members[..2].to_vec()));
    next(Entry::Established(Epoch(then.epoch.0 + 1), vec![KeyRange::FULL]));
    next(Entry::Learners(vec![then.members[2].clone()]));
    while group.poll_output().is_some() {}
    let from = Sender { node: node(1), epoch: now.epoch };
    group.on_message(from, Message::State(Box::new(now.clone())));
    group.tick();
    let mut over = false;
    while let Some(output) = group.poll_output() {
        assert!(!matches!(output, GroupOutput::Persist(..)), "{output:?}");
        over |= matches!(output, GroupOutput::Over(_));
    }
    assert!(over);
}

/// Releases one of three members: with that it drops data for which the other two may have to ask it.
fn let_go_of_one(defects: Defects) -> World {
    let (mut world, leader) = led(Rules { defects, ..Rules::of(3, 0) });
    let [stays, goes] = [1, 2].map(|more| world.peers[(leader + more) % 3].node);
    let stay = [world.peers[leader].node, stays];
    let entry = world.next(&stay);
    world.act(leader, |group| group.propose(entry));
    world.run(2_000, &[0, 1, 2]);
    assert!(world.index(goes).is_none(), "it begins anew: {:#?}", world.notes);
    world
}

#[test]
fn a_majority_holds_what_a_node_is_told_when_it_is_let_go_of() {
    assert_eq!(let_go_of_one(Defects::NONE).wrong, None);
    let early = let_go_of_one(Defects::NONE.with(Defect::ReleaseEarly));
    assert!(early.wrong.is_some_and(|why| why.contains("let go of")), "the check sees it");
}

/// A majority of the members durably held the removal of a node, and the node was told. One of that majority loses its store, and an old
/// message of the node arrives late: the leader repeats its answer.
#[test]
fn a_node_is_told_again_after_a_holder_lost_its_store() {
    let (mut world, leader) = led(Rules::of(4, 0));
    let [holder, goes, unheard] = [1, 2, 3].map(|more| (leader + more) % 4);
    let late = Sender { node: world.peers[goes].node, epoch: world.epoch() };
    let entry = world.next(&[leader, holder, unheard].map(|index| world.peers[index].node));
    world.act(leader, |group| group.propose(entry));
    for _ in 0..100 {
        if world.index(late.node).is_none() {
            break;
        }
        world.run(4, &[leader, holder, goes]);
    }
    assert!(world.index(late.node).is_none(), "it begins anew: {:#?}", world.notes);
    assert_eq!((world.latest().members.len(), &world.wrong), (3, &None));
    world.reincarnate(holder);
    world.net.clear();
    world.pass(4_000, &[leader]);
    world.act(leader, |group| group.on_message(late, Message::AskState));
    let is_answer = |packet: &Packet| packet.to == late.node && matches!(packet.message, Message::State(_));
    assert!(world.net.iter().any(is_answer), "it is told again");
    assert_eq!(world.wrong, None);
}

/// A message by which a removed node once asked to join arrives late, and the group knows a later incarnation of its peer. The answer is
/// the state, which has the removal of the node: the answer waits for a majority like any other.
#[test]
fn a_late_joiner_is_told_that_it_was_let_go_of_once_a_majority_holds_it() {
    let bench = Bench::new(node(3), 3);
    let (old, new) = (node(1), NodeId { incarnation: Incarnation(2), ..node(1) });
    let mut state = bench.state.clone();
    let mut group = Group::join(bench.config.clone(), node(3), state.clone(), bench.now, 1);
    let members = [new, node(2), node(3)].map(crate::world::member).to_vec();
    state.apply(state.applied.next(), &Entry::Next(members));
    state.apply(state.applied.next(), &Entry::Established(state.epoch, vec![KeyRange::FULL]));
    assert!(!state.is_in_audience(old) && state.last_life(old.peer) == Some(new));
    let from = Sender { node: node(2), epoch: state.epoch };
    group.on_message(from, Message::State(Box::new(state.clone())));
    let mut is_told = |message| {
        group.on_message(from, message);
        let mut told = false;
        while let Some(output) = group.poll_output() {
            match output {
                GroupOutput::Persist(token, _) => group.on_persisted(token),
                GroupOutput::Send(to, Message::State(_), _) => told |= to == [old],
                _ => {}
            }
        }
        told
    };
    assert!(!is_told(Message::Join(crate::world::member(old))), "only this member holds it");
    let progress = Progress { applied: state.applied, complete: Vec::new(), marks: Vec::new() };
    assert!(is_told(Message::Progress(progress)), "two of three hold it");
}

/// A leader of its own account says that these are chosen: the next horizon, or generation, would be beyond all numbers.
#[test]
fn entries_beyond_all_numbers_are_dropped() {
    let (mut world, leader) = led(Rules::of(3, 0));
    let (from, to) = (world.peers[leader].node, (leader + 1) % 3);
    let sender = Sender { node: from, epoch: world.epoch() };
    let purge = Entry::Purge { epoch: world.epoch(), bounds: Vec::new(), floor: u32::MAX };
    let slot = world.group(to).state().applied.next();
    let ballot = Ballot { round: 1_000, node: from };
    for entry in [Entry::Horizon(u64::MAX), purge] {
        let accept = LogMessage::Accept { ballot, entries: vec![(slot, entry)], chosen: slot };
        world.act(to, |group| group.on_message(sender, Message::Log(accept)));
        assert!(world.group(to).state().applied < slot, "{:?}", world.group(to).state());
    }
}

/// Members come, go, crash, lose their stores, end epochs and are cut off, by chance.
#[test]
fn whatever_happens_to_members_all_holds() {
    let of = |name: &str, default| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (first, count, steps) = (of("WORLD_SEED", 0), of("WORLD_SEEDS", 60), of("WORLD_STEPS", 800));
    let (mut epochs, mut answered, mut purged, mut wrongs) = (0, 0, 0, 0);
    for seed in first..first + count {
        let came = chance::run(seed, steps, count == 1);
        epochs += came.epochs;
        answered += came.answered;
        purged += came.purged;
        if let Some(wrong) = came.wrong {
            wrongs += 1;
            println!("seed {seed}: {}", &wrong[..wrong.len().min(1500)]);
        }
    }
    println!("{count} runs: {epochs} epochs, {answered} answers, {purged} tombstones let go of");
    assert_eq!(wrongs, 0);
}
