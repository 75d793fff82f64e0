//! A group ends with a transaction: all members come to one last state, and nothing happens after it, regardless of the members that die
//! and of the moment.
//!
//! The ring has one group here, which need not ask another group: so each step is its own log's. The messages between groups are tested in
//! `transactions.rs`.

use group::Group;
use group::config::Defects;
use group::control::state::{Entry, GroupState};
use group::message::Message;
use group::transaction::member::BeginRefusal;
use group::transaction::plan::{GroupTransaction, PlanRefusal};
use group::transaction::state::{TransactionEntry, TransactionState};
use group::transaction::successor::birth::births;
use overlay::rng::Rng;
use overlay::{NodeId, Point};

use crate::world::{Rules, World};

const MIDDLE: Point = Point(1 << 127);
const KEYS: usize = 8;

/// Returns a world with a leader and an established epoch, and the leader.
fn led(members: usize, seed: u64) -> (World, usize) {
    let all: Vec<usize> = (0..members).collect();
    let mut world = World::new(Rules::of(members, 0), seed);
    for _ in 0..KEYS {
        world.clients.add_key(true);
    }
    for _ in 0..200 {
        world.run(40, &all);
        let settled = |world: &World, leader: usize| world.group(leader).state().is_settled();
        if let Some(leader) = world.free_leader().filter(|leader| settled(&world, *leader))
            && world.unrest().is_none()
        {
            assert_eq!(world.wrong, None);
            return (world, leader);
        }
    }
    panic!("nobody leads");
}

fn split(state: &GroupState) -> GroupTransaction {
    let first: Vec<NodeId> = state.nodes().into_iter().take(state.members.len() / 2).collect();
    GroupTransaction::Split { at: MIDDLE, first }
}

fn begin(world: &mut World, leader: usize) {
    let operation = split(world.group(leader).state());
    world.act(leader, |group| {
        let rank = group.rank(0);
        group.begin_transaction(operation, rank).expect("all is calm");
    });
}

/// Checks that all living members that have ended have ended alike, and serve nothing.
fn check_end(world: &World, among: &[usize]) -> Vec<GroupState> {
    assert_eq!(world.wrong, None);
    let groups = || among.iter().map(|index| world.group(*index));
    let last = groups().next().expect("some live").state().clone();
    let (id, plan) = last.ending().expect("it has ended");
    for group in groups() {
        assert_eq!(*group.state(), last);
        assert_eq!(group.primaries().count(), 0, "nobody serves any more");
        assert!(group.acceptor().has_sealed(last.epoch) && !group.log().leads());
    }
    let born = births(id, plan, &[&last], Defects::NONE).expect("a group ended so");
    assert!(born.iter().all(GroupState::is_sound), "{born:?}");
    assert_eq!(born.iter().map(|state| state.members.len()).sum::<usize>(), last.members.len());
    born
}

#[test]
fn all_members_come_to_one_last_state() {
    let (mut world, leader) = led(5, 1);
    let all: Vec<usize> = (0..5).collect();
    let calls: Vec<u64> = (0..20).filter_map(|place| world.ask(place % 5, place % KEYS, false, 1)).collect();
    assert!(!calls.is_empty());
    begin(&mut world, leader);
    world.run(400, &all);
    let born = check_end(&world, &all);
    assert_eq!(born[0].range.end(), MIDDLE);
    // A member that asks now finds no member to ask: nothing happens.
    let applied = world.group(leader).state().applied;
    for place in 0..20 {
        world.ask(place % 5, place % KEYS, false, 2);
    }
    world.run(2_000, &all);
    check_end(&world, &all);
    assert_eq!(world.group(leader).state().applied, applied);
}

#[test]
fn who_was_away_learns_that_it_is_over() {
    let (mut world, leader) = led(5, 2);
    let away = last_but(&world, leader);
    let others: Vec<usize> = (0..5).filter(|index| *index != away).collect();
    begin(&mut world, leader);
    world.run(400, &others);
    check_end(&world, &others);
    assert_eq!(world.group(away).state().ended, None);
    world.run(3_000, &[0, 1, 2, 3, 4]);
    check_end(&world, &[0, 1, 2, 3, 4]);
}

/// One of the two members that one half would have is dead, and no member has missed it yet.
#[test]
fn who_died_just_now_goes_nowhere() {
    let (mut world, leader) = led(5, 7);
    let leads = world.peers[leader].node;
    let dead = (0..5).find(|index| *index != leader && in_first_half(&world, *index)).expect("two are");
    world.crash(dead);
    let others: Vec<usize> = (0..5).filter(|index| *index != dead).collect();
    assert!(world.group(leader).hears().contains(&world.peers[dead].node), "nobody knows");
    begin(&mut world, leader);
    world.run(8_000, &others);
    assert_eq!(world.wrong, None);
    let state = world.group(leader).state();
    assert!(state.ended.is_none() && state.transactions.is_calm() && state.is_member(leads), "{state:?}");
    let tried = world.free_leader().expect("one leads");
    let operation = split(world.group(tried).state());
    world.act(tried, |group| group.begin_transaction(operation, group.rank(1)).expect("without it, it can be done"));
    world.run(1_000, &others);
    check_end(&world, &others);
}

/// Returns a member that the half with most members gets, and that does not lead.
fn last_but(world: &World, leader: usize) -> usize {
    (0..5).find(|index| *index != leader && !in_first_half(world, *index)).expect("three are")
}

fn in_first_half(world: &World, index: usize) -> bool {
    let GroupTransaction::Split { first, .. } = split(world.group(index).state()) else { unreachable!() };
    first.contains(&world.peers[index].node)
}

#[test]
fn what_cannot_be_begun_changes_nothing() {
    let (mut world, leader) = led(5, 3);
    let other = (leader + 1) % 5;
    let good = split(world.group(leader).state());
    let members = world.group(leader).state().nodes();
    let mut tried = |index: usize, operation: GroupTransaction| {
        let mut result = Ok(());
        world.act(index, |group: &mut Group| result = group.begin_transaction(operation, group.rank(0)));
        result.expect_err("it cannot be done")
    };
    assert!(matches!(tried(other, good), BeginRefusal::NotLeader(Some(_))));
    assert_eq!(tried(leader, GroupTransaction::Merge), BeginRefusal::Unsound(PlanRefusal::Alone));
    let outside = GroupTransaction::Split { at: Point(0), first: members[..2].to_vec() };
    assert_eq!(tried(leader, outside), BeginRefusal::Unsound(PlanRefusal::Outside));
    let nobody = GroupTransaction::Split { at: MIDDLE, first: members.clone() };
    assert_eq!(tried(leader, nobody), BeginRefusal::Unsound(PlanRefusal::NoMembers));
    assert!(!tried(leader, GroupTransaction::Repartition { at: MIDDLE }).to_string().is_empty());
    world.run(400, &[0, 1, 2, 3, 4]);
    let state = world.group(leader).state();
    assert_eq!((&state.transactions, state.ended, &world.wrong), (&TransactionState::default(), None, &None));
}

/// Of five members, three are to be one half, and two of them are gone: the third could agree with no member of that half.
#[test]
fn nothing_is_born_of_the_dead() {
    let (mut world, leader) = led(5, 6);
    let others: Vec<usize> = (0..5).filter(|index| *index != leader).collect();
    world.crash(others[0]);
    world.crash(others[1]);
    // So long that they are missed, and not so long that they are removed.
    while world.group(leader).hears().len() > 2 {
        world.run(50, &[leader, others[2], others[3]]);
    }
    let of = |indices: &[usize]| -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = indices.iter().map(|index| world.peers[*index].node).collect();
        nodes.sort_unstable();
        nodes
    };
    let (gone, mixed) = (of(&[others[0], others[1], others[2]]), of(&[others[0], others[2], others[3]]));
    let mut tried = |first: Vec<NodeId>| {
        let mut result = Ok(());
        let operation = GroupTransaction::Split { at: MIDDLE, first };
        world.act(leader, |group: &mut Group| result = group.begin_transaction(operation, group.rank(0)));
        result
    };
    let too_few = |result| matches!(result, Err(BeginRefusal::NotNow(why)) if why.starts_with("too few"));
    let (gone, mixed) = (tried(gone), tried(mixed));
    assert!(too_few(gone), "{gone:?}");
    assert!(too_few(mixed), "the other half would have one of two: {mixed:?}");
}

/// No part of a group that ended begins anew with its members' processes.
#[test]
fn it_stays_over_when_all_start_again() {
    let (mut world, leader) = led(3, 5);
    begin(&mut world, leader);
    world.run(400, &[0, 1, 2]);
    check_end(&world, &[0, 1, 2]);
    (0..3).for_each(|index| world.crash(index));
    (0..3).for_each(|index| world.restart(index, index == 0));
    world.notes.clear();
    world.run(3_000, &[0, 1, 2]);
    check_end(&world, &[0, 1, 2]);
}

/// A member that accepts the end accepts no other entry of the epoch from then on, before it knows that the end is chosen. Later proposals
/// are void.
#[test]
fn the_end_is_sealed_before_it_is_chosen() {
    let (mut world, leader) = led(3, 4);
    world.net.clear();
    begin(&mut world, leader);
    let others: Vec<usize> = (0..3).filter(|index| *index != leader).collect();
    let is_of_log = |message: &Message| matches!(message, Message::Log(_) | Message::Progress(_));
    let proposed = |world: &World| {
        let group = world.group(others[0]);
        group
            .log()
            .undecided(group.state().applied)
            .iter()
            .any(|entry| matches!(entry, Entry::Transaction(TransactionEntry::Outcome(..))))
    };
    for turn in 0..40 {
        let (from, to) = [(leader, others[0]), (others[0], leader), (leader, others[1]), (others[1], leader)][turn % 4];
        world.take(from, to, is_of_log).into_iter().for_each(|packet| world.deliver(packet));
        if proposed(&world) {
            break;
        }
    }
    let state = world.group(others[0]).state();
    let last = world.group(others[0]).log().undecided(state.applied);
    assert!(
        last.iter().any(|entry| matches!(
            entry,
            Entry::Transaction(TransactionEntry::Outcome(_, group::transaction::Outcome::Commit))
        )),
        "{last:?}"
    );
    assert!(state.ended.is_none() && world.group(others[0]).acceptor().has_sealed(state.epoch));
    world.act(leader, |group| group.propose(Entry::Horizon(1_000)));
    world.run(2_000, &[0, 1, 2]);
    let born = check_end(&world, &[0, 1, 2]);
    assert!(born.iter().all(|state| state.horizon < 1_000));
}

/// Leaders die, and members are cut off, at any moment from *begin* on. In the end either the transaction is aborted and the group
/// continues, or all members have the same last state.
#[test]
fn whoever_dies_when_there_is_one_end() {
    let (mut ended, mut went_on) = (0, 0);
    for seed in 0..60 {
        let (mut world, leader) = led(5, seed);
        let mut rng = Rng::new(seed);
        let all: Vec<usize> = (0..5).collect();
        for place in 0..10 {
            world.ask(place % 5, place % KEYS, false, seed);
        }
        begin(&mut world, leader);
        // Some of the messages arrive.
        for _ in 0..rng.below(25) {
            if world.net.is_empty() {
                break;
            }
            let packet = world.net.remove(rng.below(world.net.len() as u64) as usize);
            world.deliver(packet);
        }
        match rng.below(3) {
            0 => world.crash(leader),
            1 => world.net.clear(),
            _ => {
                world.net.clear();
                world.crash(leader);
            }
        }
        let rest: Vec<usize> = all.iter().copied().filter(|index| !world.peers[*index].down).collect();
        world.run(5_000, &rest);
        if world.peers[leader].down {
            world.restart(leader, false);
        }
        world.run(4_000, &all);
        assert_eq!(world.wrong, None, "seed {seed}");
        if world.latest().ended.is_some() {
            check_end(&world, &world.living());
            ended += 1;
        } else {
            assert!(world.latest().transactions.is_calm(), "seed {seed}: it is still open");
            assert!(world.free_leader().is_some(), "seed {seed}: it does not go on");
            went_on += 1;
        }
    }
    assert!(ended >= 10 && went_on >= 5, "{ended} ended, {went_on} went on");
}
