//! Two processes with one identity: which of them counts, and which reports end a process.

use super::*;
use crate::admin::{AdminOutcome, AdminRequest};

/// A directory is copied and both processes run, while increments go through all processes. Returns the world, the number of acknowledged
/// increments, and the value.
pub(super) fn doubled(defects: Defects, together: bool, again: bool) -> (World, i64, i64) {
    let mut world = World::of_three(defects);
    world.ask_until(1, &Op::Add(1));
    let copy = world.stop(0, true);
    let first = world.start(0, copy.clone());
    if !together {
        world.run_for(Duration::from_secs(3));
    }
    let second_disk = match again {
        // A copy of a directory in use: a process that starts from it has a higher counter.
        true => world.processes[first].disk.clone(),
        false => copy,
    };
    let second = world.start(0, second_disk);
    let (mut acknowledged, mut unknown) = (1, 0);
    for turn in 0..200 {
        let process = [1, 2, first, second][turn % 4];
        if !world.processes[process].is_up {
            continue;
        }
        match world.ask(process, Op::Add(1)) {
            Ok(_) => acknowledged += 1,
            Err(OpError::Uncertain) => unknown += 1,
            Err(_) => {}
        }
    }
    world.run_for(Duration::from_secs(20));
    let seen =
        (1..3).any(|member| world.processes[member].node.status().identity.iter().any(|(peer, _)| *peer == key(0)));
    assert!(seen || defects.has(Defect::StartsIgnored), "members show it");
    let Answer::Integer(value) = world.ask_until(1, &Op::Add(0)) else { panic!("not a number") };
    assert!(value <= acknowledged + unknown, "{value} of {acknowledged} and {unknown}");
    (world, acknowledged, value)
}

#[test]
fn of_two_processes_with_one_identity_one_counts_or_none() {
    for (together, again) in [(true, false), (false, false), (false, true)] {
        let (world, acknowledged, value) = doubled(Defects::NONE, together, again);
        assert!(value >= acknowledged, "{acknowledged} were acknowledged, {value} are there");
        let twins: Vec<&Process> = world.processes.iter().filter(|process| process.peer == 0).skip(1).collect();
        let said: Vec<_> =
            twins.iter().map(|process| (process.is_up, &process.twin, process.lives, &process.said)).collect();
        assert!(twins.iter().all(|process| process.lives <= 1), "{said:?}");
        if !together {
            // The loser is the one with the lower counter, or the one that the members heard second.
            let loser = if again { twins[0] } else { twins[1] };
            assert!(loser.twin.as_ref().is_some_and(|why| why.contains("identity of its own")), "{said:?}");
        }
        assert!(said.iter().any(|(_, twin, _, said)| twin.is_some() || !said.is_empty()), "{said:?}");
        let noticed = world.processes[1..3].iter().any(|process| process.said.iter().any(|s| s.contains("runs twice")));
        assert!(noticed, "members say so");
    }
}

/// The original runs, and is cut off from one member, which would report that it is gone. Another one hears it: the copy ends, not the
/// original.
#[test]
fn a_copy_does_not_end_an_original_that_some_hear() {
    for torn in [false, true] {
        let mut world = World::of_three(Defects::NONE);
        world.set(1, "old");
        let copy = world.stop(0, false);
        let original = world.start(0, copy.clone());
        world.get(original);
        world.run_for(Duration::from_secs(2));
        world.cut.push((original, 1));
        world.set(2, "new");
        let twin = world.start(0, Disk { is_torn: torn, ..copy });
        world.run_for(Duration::from_secs(40));
        let said = |process: usize| (&world.processes[process].twin, &world.processes[process].said);
        assert!(world.processes[original].is_up, "{torn} {:?}", said(original));
        assert!(!world.processes[twin].is_up, "{torn} {:?}", said(twin));
        assert_eq!(world.get(2), value("new"));
    }
}

/// Two members count a process, and two a later one with the same identity: each side would be a majority with its process. The member that
/// both sides reach reports it, and the earlier process decides nothing beside the later one.
#[test]
fn half_of_the_others_is_no_majority_over_a_later_start() {
    let mut world = World::empty(Defects::NONE);
    world.exclude_after = Duration::from_secs(60);
    (0..5).for_each(|peer| _ = world.start(peer, Disk::default()));
    world.run_until("five members", |world| {
        let state = world.processes[1].node.group().map(Group::state);
        state.is_some_and(|state| state.members.len() == 5 && state.recovery.is_empty())
    });
    world.set(1, "old");
    world.run_for(Duration::from_secs(3));
    let (first, copy) = (0, world.processes[0].disk.clone());
    let later = world.processes.len();
    world.cut.extend([(1, 2), (1, 4), (3, 2), (3, 4), (later, 2), (later, 4), (first, 3), (first, later)]);
    assert_eq!(world.start(0, copy), later);
    world.run_for(Duration::from_secs(3));
    for _ in 0..20 {
        let process = &world.processes[first];
        let is_out = !process.is_up || process.node.starts.is_barred();
        assert!(is_out || world.processes[later].node.starts.is_barred(), "{:?}", process.said);
        world.run_for(Duration::from_secs(1));
    }
}

/// A stranger reports that a lone peer has gone back in time. The peer serves nothing as long as the stranger repeats it, and begins anew
/// only after a while.
#[test]
fn a_stranger_bars_a_lone_peer_and_ends_it_only_after_a_while() {
    let mut world = World::empty(Defects::NONE);
    let a = world.start(0, Disk::default());
    world.set(a, "mine");
    let (node, start) = (world.processes[a].node.id(), world.processes[a].node.starts.own());
    let state = world.processes[a].node.group().unwrap().state().clone();
    let say = |world: &mut World, stranger: u8, groups: Vec<(KeyRange, Epoch)>| {
        let known = Start { counter: 9, run: 9 };
        let refused =
            Refused { node, start, incarnation: node.incarnation, known, alive: Some(false), contested: false, groups };
        let stamp = Stamp { incarnation: Incarnation(1), start: Start { counter: 1, run: 3 }, to: 0 };
        let frame = wire::encode(&stamp, &Frame::Refused(Box::new(refused)), None);
        let now = world.now;
        world.processes[a].node.handle(now, Input::Frame { from: key(stranger), frame });
        world.settle();
    };
    let earlier = Epoch(state.epoch.0 - 1);
    for (groups, is_barred) in
        [(vec![], false), (vec![(state.range, earlier)], false), (vec![(state.range, state.epoch)], true)]
    {
        say(&mut world, 7, groups);
        assert_eq!(world.processes[a].node.starts.is_barred(), is_barred);
    }
    for stranger in 10..200 {
        say(&mut world, stranger, vec![(state.range, state.epoch)]);
    }
    assert!(world.ask(a, Op::Read(Read::Value)).is_err());
    assert_eq!((world.processes[a].lives, world.processes[a].node.starts.refusals.len()), (0, 0));
    world.run_for(Duration::from_secs(60));
    assert_eq!(world.processes[a].lives, 0, "nobody says so any more");
    let mut seconds = 0;
    while world.processes[a].lives == 0 {
        say(&mut world, 7, vec![(state.range, state.epoch)]);
        world.run_for(Duration::from_secs(1));
        seconds += 1;
    }
    assert!((15..20).contains(&seconds), "it is still said after {seconds} s");
}

/// A member that knows another start by hearsay alone does not know whether it runs, and ends no process for it.
#[test]
fn hearsay_ends_no_life() {
    let mut world = World::of_three(Defects::NONE);
    let node = world.processes[0].node.id();
    let known = world.processes[0].node.starts.own();
    let lineage = Lineage { start: Start { run: 77, ..known }, before: Vec::new() };
    for _ in 0..60 {
        let stamp = world.processes[1].node.stamp();
        let frame = Frame::Contested(Box::new(Contested { node, lineage: lineage.clone() }));
        let (now, frame) = (world.now, wire::encode(&stamp, &frame, None));
        world.processes[2].node.handle(now, Input::Frame { from: key(1), frame });
        world.settle();
        world.run_for(Duration::from_millis(300));
    }
    assert!(world.processes[2].node.starts.refused() > 0, "it does refuse it");
    let peer = &world.processes[0];
    assert_eq!((peer.is_up, peer.lives, &peer.twin), (true, 0, &None), "{:?}", peer.said);
    world.run_for(Duration::from_secs(30));
    assert_eq!(world.ask(0, Op::Read(Read::Value)), Ok(Answer::Value(None)), "once nobody says so, it counts");
}

#[test]
fn a_start_outvotes_another_with_more_voices() {
    let (known, other) = (Start { counter: 1, run: 1 }, Start { counter: 1, run: 2 });
    let mut of = Known::new(Lineage { start: known, before: Vec::new() }, Written::Yes);
    for (voices, contested, outvoted) in [(1, true, false), (2, true, true)] {
        of.told.insert(key(voices), (other, Time(0)));
        assert_eq!((of.is_contested(|_| true), of.is_outvoted_by(other, |_| true)), (contested, outvoted));
        assert!(!of.is_contested(|_| false) && !of.is_outvoted_by(other, |_| false), "what was said long ago is over");
    }
    of.told.insert(key(9), (known, Time(0)));
    assert!(of.is_contested(|_| true) && !of.is_outvoted_by(other, |_| true));
}

/// Requests of users to a process are answered when the process is barred, before their own timeout.
#[test]
fn questions_end_when_a_process_is_barred() {
    let mut world = World::of_three(Defects::NONE);
    let now = world.now;
    let follower = (0..3).find(|index| !world.processes[*index].node.group().unwrap().log().leads()).unwrap();
    let fellow = (follower + 1) % 3;
    let stamp = world.processes[fellow].node.stamp();
    let node = &mut world.processes[follower].node;
    let group = node.group().unwrap().state().id;
    let answer = |node: &mut Node| {
        core::iter::from_fn(|| node.poll_output()).find_map(|output| match output {
            Output::AdminOutcome { number, outcome } => Some((number, outcome)),
            _ => None,
        })
    };
    // The frames sent are lost, and no peer is asked again so soon.
    node.handle(now, Input::AdminRequest { number: 7, group, request: AdminRequest::Merge });
    assert_eq!(answer(node), None);
    let own = node.starts.own();
    let known = Start { counter: own.counter + 1, run: 9 };
    let (incarnation, node_id) = (node.me.incarnation, node.id());
    let refused =
        Refused { node: node_id, start: own, incarnation, known, alive: None, contested: false, groups: vec![] };
    let frame = wire::encode(&Stamp { to: own.run, ..stamp }, &Frame::Refused(Box::new(refused)), None);
    node.handle(now, Input::Frame { from: key(fellow as u8), frame });
    assert!(node.starts.is_barred());
    assert_eq!(answer(node), Some((7, AdminOutcome::Unknown)));
}

/// A run that other members reported is passed to the groups once it is heard here: answers of an earlier run count no more.
#[test]
fn a_run_known_by_hearsay_is_told_to_the_groups() {
    let mut world = World::of_three(Defects::NONE);
    let (node, own) = (world.processes[0].node.id(), world.processes[0].node.starts.own());
    let lineage = Lineage { start: Start { counter: own.counter + 1, run: 77 }, before: vec![own.run] };
    let (now, stamp) = (world.now, world.processes[1].node.stamp());
    let contested = Frame::Contested(Box::new(Contested { node, lineage: lineage.clone() }));
    let listener = &mut world.processes[2].node;
    listener.handle(now, Input::Frame { from: key(1), frame: wire::encode(&stamp, &contested, None) });
    assert_eq!(listener.starts.known[&node].start, lineage.start, "it is known by hearsay");
    assert_ne!(listener.group().unwrap().newest_run(node.peer), Some(77));
    let stamp = Stamp { incarnation: node.incarnation, start: lineage.start, to: 0 };
    listener.handle(now, Input::Frame { from: key(0), frame: wire::encode(&stamp, &Frame::Started, None) });
    assert_eq!(listener.group().unwrap().newest_run(node.peer), Some(77));
}

/// Returns peer 0 after it started with a torn end, was compared, and was cut off.
fn torn_once() -> (World, usize) {
    let mut world = World::of_three(Defects::NONE);
    world.set(1, "old");
    let disk = world.stop(0, false);
    let a = world.start(0, Disk { is_torn: true, ..disk });
    let is_sure = |world: &World| {
        let group = world.processes[a].node.group();
        group.is_some_and(|group| group.doubt().is_none() && !group.is_recovering())
    };
    world.run_until("it is sure again", is_sure);
    world.run_for(Duration::from_secs(5));
    world.cut.extend([(a, 1), (a, 2)]);
    world.run_for(Duration::from_secs(5));
    (world, a)
}

/// A copy of the directory of such a peer takes over: peers 1 and 2 hear it, and with 2 down peer 1 acknowledges a write together with
/// it. Returns the original, the copy, and the disk of 2.
fn torn_once_and_copied() -> (World, usize, usize, Disk) {
    let (mut world, a) = torn_once();
    let copy = world.processes[a].disk.clone();
    let twin = world.start(0, copy);
    world.get(twin);
    world.get(2);
    world.run_for(Duration::from_secs(3));
    let c = world.stop(2, false);
    world.set(1, "new");
    (world, a, twin, c)
}

/// A process that was in doubt once, and no longer is, has no more right than other processes to go on beside a copy that has acknowledged
/// writes since.
#[test]
fn who_was_compared_does_not_go_on_beside_a_copy() {
    let (mut world, a, twin, c) = torn_once_and_copied();
    let b = world.stop(1, false);
    world.stop(twin, false);
    world.cut.clear();
    let c = world.start(2, c);
    world.run_for(Duration::from_secs(60));
    let read = world.ask(c, Op::Read(Read::Value));
    assert_ne!(read, Ok(value("old")), "{a}");
    assert_eq!(world.processes[a].lives, 0, "it waits for the one who knows");
    world.start(1, b);
    assert_eq!((world.get(c), world.get(a)), (value("new"), value("new")));
}

/// The same where the only member that knew the copy falls silent.
#[test]
fn who_was_compared_and_is_left_alone_does_not_go_on() {
    let (mut world, a) = torn_once();
    let copy = world.processes[a].disk.clone();
    // c does not know the twin.
    let c = world.stop(2, false);
    let twin = world.start(0, copy);
    world.get(twin);
    world.set(1, "new");
    world.stop(twin, false);
    world.cut.clear();
    world.run_for(Duration::from_millis(500));
    let _b = world.stop(1, false);
    let c = world.start(2, c);
    world.run_for(Duration::from_secs(60));
    let read = world.ask(c, Op::Read(Read::Value));
    assert_ne!(read, Ok(value("old")), "{a}");
}

/// The same where the copy runs on, on the other side of a cut: never two answers.
#[test]
fn who_was_compared_and_its_copy_do_not_both_answer() {
    let (mut world, a, twin, c) = torn_once_and_copied();
    let next = world.processes.len();
    world.cut.extend([(a, twin), (next, 1), (next, twin)]);
    world.cut.retain(|cut| *cut != (a, 2));
    let c = world.start(2, c);
    world.run_for(Duration::from_secs(60));
    let read_b = world.ask(1, Op::Read(Read::Value));
    let read_c = world.ask(c, Op::Read(Read::Value));
    assert!(read_b.is_err() || read_c.is_err() || read_b == read_c);
}

/// A copy of the directory of a member in doubt takes part in a purge in its stead, and is gone. The original learns of that purge from a
/// newcomer, which never heard the copy. Its data is of no use from then on.
#[test]
fn a_purge_in_the_stead_of_one_in_doubt_brings_nothing_back() {
    let mut world = World::empty(Defects::NONE);
    world.purges = true;
    [0, 1, 3].into_iter().for_each(|peer| _ = world.start(peer, Disk::default()));
    let count = |world: &World, at: usize| {
        let state = world.processes[at].node.group().map(Group::state);
        state.filter(|state| state.recovery.is_empty()).map_or(0, |state| state.members.len())
    };
    world.run_until("three members", |world| (0..3).all(|at| count(world, at) == 3));
    world.set(1, "old");
    world.run_for(Duration::from_secs(3));
    let disk = world.stop(0, false);
    let a = world.start(0, Disk { is_torn: true, ..disk });
    assert!(world.processes[a].node.group().is_some_and(|group| group.doubt().is_some()));
    world.cut.extend([(a, 1), (a, 2), (a, 4)]);
    let copy = world.processes[a].disk.clone();
    let twin = world.start(0, copy);
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.get(twin), value("old"));
    world.ask_until(1, &Op::Delete { condition: Condition::Always, get: false });
    let has_purged =
        |world: &World, at: usize| world.processes[at].node.group().is_some_and(|group| group.purged() > 0);
    world.run_until("purged", |world| (1..3).all(|at| has_purged(world, at)));
    world.run_for(Duration::from_secs(1));
    world.stop(twin, false);
    let newcomer = world.start(2, Disk::default());
    world.run_until("it learns of the purge", |world| {
        let state = world.processes[a].node.group().map(Group::state);
        state.is_some_and(|state| !state.purged_behind(state.range, LogSlot(0)).is_empty())
    });
    world.cut.clear();
    // Without that member they need the original, too.
    let b = world.stop(1, false);
    world.run_for(Duration::from_secs(20));
    world.start(1, b);
    world.run_for(Duration::from_secs(20));
    // Each of the two is missing for a while.
    for gone in [2, newcomer] {
        let (peer, disk) = (world.processes[gone].peer, world.stop(gone, false));
        world.run_for(Duration::from_secs(15));
        world.start(peer, disk);
        world.run_for(Duration::from_secs(15));
    }
    assert_eq!(world.get(a), Answer::Value(None), "{:?}", world.processes[a].said);
}

/// Of two members one lost its last start with the torn end. Only a learner knows that start, and the learner is heard later than the other
/// member each time. The member starts again once.
#[test]
fn it_starts_again_once() {
    let mut world = World::empty(Defects::NONE);
    (0..2).for_each(|peer| _ = world.start(peer, Disk::default()));
    let state = |world: &World, at: usize| world.processes[at].node.group().map(|group| group.state().clone());
    world.run_until("two members", |world| {
        (0..2).all(|at| state(world, at).is_some_and(|state| state.members.len() == 2))
    });
    world.set(1, "there");
    world.run_for(Duration::from_secs(2));
    // As long as that holds, the newcomer stays a learner.
    world.cut.push((0, 2));
    let learner = world.start(2, Disk::default());
    world.run_until("a learner", |world| {
        (0..2).any(|at| state(world, at).is_some_and(|state| state.learners.len() == 1))
    });
    let disk = world.stop(0, false);
    let lost = world.processes.len();
    world.cut.push((lost, 1));
    world.start(0, disk.clone());
    world.run_for(Duration::from_secs(2));
    world.stop(lost, false);
    let a = world.processes.len();
    world.cut.push((a, learner));
    world.start(0, Disk { is_torn: true, ..disk });
    let started = |world: &World| {
        let said = world.processes[a]
            .said
            .iter()
            .filter(|said| said.contains("this process restarts, with its acknowledgements in doubt"));
        said.count()
    };
    for _ in 0..12_000 {
        if world.processes[a].node.group().is_some_and(|group| !group.is_recovering()) {
            world.cut.retain(|cut| *cut != (a, learner));
        }
        world.tick();
    }
    assert_eq!((started(&world), world.processes[a].lives), (1, 0), "{:#?}", world.processes[a].said);
    assert_eq!(world.get(a), value("there"));
}
