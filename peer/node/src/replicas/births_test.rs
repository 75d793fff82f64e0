//! Data that a node takes along into a group that is born.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use core::time::Duration;

use group::ballot::{LogSlot, Number, Term, TermBallot};
use group::control::agreed::AgreedPolicies;
use group::control::state::{Assignment, Entry, EpochConfig, Member, Purge, Settings};
use group::message::{Base, CommitteeMessage};
use group::transaction::TransactionId;
use group::transaction::plan::{GroupTransaction, Plan, Rank};
use group::transaction::state::TransactionEntry;
use group::{Doubt, Stored};
use overlay::time::{Now, Time, WallMillis};
use overlay::{Incarnation, PeerKey, Point, RingId};

use super::*;
use crate::api::{Change, Input, Output};
use crate::config::{Restored, Tail};
use crate::replicas::storage::Over;
use crate::routing::Heard;
use crate::routing::join::Sampled;
use crate::wire::{self, Frame};

const LEFT: KeyRange = KeyRange::new(Point(0), Point(1 << 127));
const RIGHT: KeyRange = KeyRange::new(Point(1 << 127), Point(0));
const NOW: Now = Now { time: Time(1_000_000_000), awake: Time(1_000_000_000), wall: WallMillis(1_000) };

fn id(peer: u8) -> NodeId {
    NodeId { peer: PeerKey([peer; 32]), incarnation: Incarnation(1) }
}

/// Returns a group of these members, in this epoch, with one sub-range.
fn state(name: u128, epoch: u64, range: KeyRange, members: &[u8]) -> GroupState {
    let slot = LogSlot(epoch * 10);
    let member = |peer: &u8| Member {
        node: id(*peer),
        addresses: Vec::new(),
        name: None,
        cluster: String::new(),
        joined: WallMillis(0),
        since: slot,
    };
    let settings = Settings {
        coarse: false,
        leases: false,
        lease_ms: 1,
        drift_per_mille: 1,
        value_bytes_max: 100,
        policies: AgreedPolicies { members_min: 5, members_max: 12, ..AgreedPolicies::default() },
        horizon_ms: 1_000,
    };
    let founded = GroupState::founded(RingId(1), GroupId(name), member(&members[0]), settings);
    GroupState {
        applied: slot,
        epoch: Epoch(epoch),
        born: Epoch(epoch),
        born_at: slot,
        range,
        members: members.iter().map(member).collect(),
        division: alloc::vec![Assignment { start: range.start(), node: id(members[0]), term: Term::new(slot, 0) }],
        ..founded
    }
}

/// Has the primary of a group begin, and this node accept its base; returns the ballot.
fn begins(group: &mut Group) -> TermBallot {
    let state = group.state();
    let (range, ballot) = state.parts().next().expect("it has a part");
    let from = Sender { node: ballot.node, epoch: state.epoch };
    let base = Base { range, pieces: alloc::vec![(range, Vec::new())], reproposed: 0 };
    for message in [
        CommitteeMessage::Prepare { ballot, range },
        CommitteeMessage::Base { ballot, base: base.into(), chosen: Some(0) },
    ] {
        group.on_message(from, Message::Committee(message));
    }
    assert_eq!(group.acceptor().base_at(range.start()), Some(ballot));
    ballot
}

/// Returns a node with parts in these groups, in this order, and the ballots of the bases that it accepted.
fn node_in(groups: Vec<GroupState>) -> (Node, Vec<TermBallot>) {
    let config = NodeConfig { durability: Durability::Sync, ..NodeConfig::new(PeerKey([1; 32]), Incarnation(1)) };
    let mut node = Node::new(config, 7, NOW, Restored::empty());
    node.ring = Some(RingId(1));
    let mut ballots = Vec::new();
    for state in groups {
        let mut group = Group::join(node.config.group_config(), id(1), state, NOW, 3);
        ballots.push(begins(&mut group));
        node.replicas.add(group).expect("there is room");
    }
    (node, ballots)
}

fn has(node: &Node, range: KeyRange) -> Option<TermBallot> {
    node.replicas.at(range.start()).expect("it has a part there").acceptor().base_at(range.start())
}

/// A node was moved from one group to another, and has not heard of the end of the first, when both merge: the second needs the writes that
/// the node accepted there.
#[test]
fn who_was_moved_takes_along_what_it_has_where_it_is() {
    for turned in [false, true] {
        let mut groups = alloc::vec![state(10, 9, LEFT, &[2, 1]), state(11, 11, RIGHT, &[5, 1])];
        if turned {
            groups.reverse();
        }
        let (mut node, ballots) = node_in(groups);
        let keyspace = node.replicas.keyspace.clone();
        node.take_part(state(12, 13, KeyRange::FULL, &[1, 2, 5, 6]));
        let there = ballots[usize::from(!turned)];
        assert_eq!((has(&node, LEFT), has(&node, RIGHT)), (None, Some(there)));
        assert_ne!(node.replicas.keyspace.of(LEFT.start()), keyspace.of(LEFT.start()), "what is left over lies there");
        assert_eq!(node.replicas.keyspace.of(RIGHT.start()), keyspace.of(RIGHT.start()));
        assert_eq!(node.replicas.all.len(), 1);
    }
}

/// A group is born for a node; in a part of its range tombstones were purged while the node was away.
#[test]
fn nothing_comes_along_from_where_tombstones_were_let_go_of_without_this_node() {
    for (epoch, keeps) in [(9, true), (10, false)] {
        let (mut node, ballots) = node_in(alloc::vec![state(10, 9, KeyRange::FULL, &[2, 1])]);
        let generation = node.replicas.keyspace.of(RIGHT.start());
        let mut born = state(10, 12, KeyRange::FULL, &[1, 2]);
        let up_to = Number { term: Term::new(LogSlot(99), 0), n: 5 };
        born.purged.bounds.set(RIGHT, Some(Purge { slot: LogSlot(100), epoch: Epoch(epoch), up_to }));
        node.take_part(born);
        assert_eq!((has(&node, LEFT), has(&node, RIGHT)), (Some(ballots[0]), keeps.then_some(ballots[0])));
        assert_eq!(node.replicas.keyspace.of(RIGHT.start()) == generation, keeps);
        assert_eq!(node.replicas.keyspace.of(LEFT.start()), generation);
    }
}

/// A node that does not vote in an epoch is not asked before tombstones are purged, though it knows of the epoch.
#[test]
fn who_only_learns_was_not_asked() {
    let mut learns = state(10, 9, KeyRange::FULL, &[2, 3]);
    learns.learners = state(10, 9, KeyRange::FULL, &[1]).members;
    let (mut node, _) = node_in(alloc::vec![learns]);
    let mut born = state(10, 12, KeyRange::FULL, &[1, 2]);
    let up_to = Number { term: Term::new(LogSlot(89), 0), n: 5 };
    born.purged.bounds.set(KeyRange::FULL, Some(Purge { slot: LogSlot(90), epoch: Epoch(9), up_to }));
    node.take_part(born);
    assert_eq!(has(&node, KeyRange::FULL), None);
}

/// A node that some unheard members removed from the second group, too, is asked for the writes that it accepted there.
#[test]
fn what_the_new_group_asks_for_goes_along() {
    let left_it = GroupState {
        recovery: alloc::vec![EpochConfig { epoch: Epoch(7), members: alloc::vec![id(1)], open: alloc::vec![RIGHT] }],
        ..state(11, 8, RIGHT, &[5, 6])
    };
    let (mut node, ballots) = node_in(alloc::vec![state(10, 5, LEFT, &[2, 1]), left_it]);
    let config = EpochConfig { epoch: Epoch(7), members: alloc::vec![id(1), id(5), id(6)], open: alloc::vec![RIGHT] };
    node.take_part(GroupState { recovery: alloc::vec![config], ..state(12, 13, KeyRange::FULL, &[2, 5, 6]) });
    assert_eq!((has(&node, LEFT), has(&node, RIGHT)), (None, Some(ballots[1])));
}

/// A group hears its members, but not two of three former members: it reports so, and takes no newcomer. One former member of two is
/// enough, for both accepted every write.
#[test]
fn former_members_that_are_needed_are_told() {
    let told = |former: &[u8]| {
        let members = former.iter().map(|peer| id(*peer)).collect();
        let config = EpochConfig { epoch: Epoch(7), members, open: alloc::vec![RIGHT] };
        let (mut node, _) = node_in(Vec::new());
        let state = GroupState { recovery: alloc::vec![config], ..state(10, 8, KeyRange::FULL, &[1]) };
        let group = Group::join(node.config.group_config(), id(1), state, NOW, 3);
        node.replicas.add(group).expect("there is room");
        // At first, a member that was never heard may be about to speak.
        let time = NOW.time + Duration::from_secs(3);
        node.handle(Now { time, awake: time, ..NOW }, Input::Tick);
        let status = node.status().group.expect("it is a member");
        let sampled = Sampled::of(&node.replicas, &node.config, &node.lives, Point(5)).is_some();
        (status.heard.expect("it listens"), status.established, sampled)
    };
    let heard = |epoch, members, needed, of| Heard { epoch: Epoch(epoch), members, needed, of };
    assert_eq!(told(&[1, 8, 9]), (heard(7, 1, 2, 3), false, false));
    assert_eq!(told(&[1, 8]), (heard(8, 1, 1, 1), false, true));
}

/// A part of a group is over, and a later group that owned some of its range is gone from here already: only the rest goes along.
#[test]
fn what_was_given_to_others_does_not_go_along() {
    let (mut node, ballots) = node_in(alloc::vec![state(10, 9, KeyRange::FULL, &[2, 1])]);
    node.replicas.all[0].over = Some(alloc::vec![RIGHT]);
    let keyspace = node.replicas.keyspace.clone();
    node.replicas.keyspace.leave(LEFT);
    node.take_part(state(12, 12, KeyRange::FULL, &[1, 2]));
    assert_eq!((has(&node, LEFT), has(&node, RIGHT)), (None, Some(ballots[0])));
    assert_ne!(node.replicas.keyspace.of(LEFT.start()), keyspace.of(LEFT.start()));
    assert_eq!(node.replicas.keyspace.of(RIGHT.start()), keyspace.of(RIGHT.start()));
}

/// A part that is over loses some of its range to groups without this node. Its records there are left over at once: the node may come to
/// own that range again before the end of the part. The same holds after a crash.
#[test]
fn what_is_given_up_is_left_over_at_once() {
    let all = || alloc::vec![state(10, 9, KeyRange::FULL, &[2, 1])];
    let (mut node, ballots) = node_in(all());
    let generation = node.replicas.keyspace.of(LEFT.start());
    node.give_up(LEFT, Epoch(12));
    assert_eq!(node.replicas.all[0].over, Some(alloc::vec![RIGHT]));
    assert_eq!(node.replicas.keyspace.leftover(), Some((generation, LEFT)));
    let over = Over { namespace: 0, group: GroupId(10), epoch: Epoch(9), place: alloc::vec![RIGHT] };
    assert_eq!(node.replicas.places(node.space())[1], node.space().over(core::slice::from_ref(&over)));
    node.take_part(state(13, 13, LEFT, &[1, 2]));
    assert_ne!(node.replicas.keyspace.of(LEFT.start()), generation, "what lies there is of before");
    let (mut again, _) = node_in(all());
    again.replicas.restore_over(alloc::vec![over]);
    again.take_part(state(12, 12, KeyRange::FULL, &[1, 2]));
    assert_eq!((has(&again, LEFT), has(&again, RIGHT)), (None, Some(ballots[0])));
}

/// While too much is still to be dropped, a new group is not entered yet, and the data that it needs stays.
#[test]
fn what_is_born_waits_for_room() {
    let (mut node, ballots) = node_in(alloc::vec![state(10, 9, LEFT, &[2, 1])]);
    let mut keyspace = node.replicas.keyspace.clone();
    for _ in 0..256 {
        keyspace.leave(RIGHT);
        let _ = keyspace.enter(RIGHT);
    }
    let full = core::mem::replace(&mut node.replicas.keyspace, keyspace);
    let born = state(12, 12, KeyRange::FULL, &[1, 2]);
    assert!(!node.inherit(born.clone(), Inheritance::default()));
    assert_eq!((node.replicas.living().count(), has(&node, LEFT)), (1, Some(ballots[0])));
    node.replicas.keyspace = full;
    assert!(node.inherit(born, Inheritance::default()));
    assert_eq!(has(&node, LEFT), Some(ballots[0]));
}

/// The generations become durable together with the first batch of the new group, not before.
#[test]
fn bays_and_heirs_are_durable_together() {
    let (mut node, _) = node_in(alloc::vec![state(10, 9, LEFT, &[2, 1]), state(11, 11, RIGHT, &[5, 1])]);
    let pull = |node: &mut Node| -> Vec<Vec<Change>> {
        let outputs = core::iter::from_fn(|| node.poll_output());
        outputs
            .filter_map(|output| if let Output::Persist { changes, .. } = output { Some(changes) } else { None })
            .collect()
    };
    pull(&mut node);
    node.take_part(state(12, 13, KeyRange::FULL, &[1, 2, 5, 6]));
    let is_keyspace = |change: &Change| matches!(change, Change::PutMeta(key, _) if key.ends_with(b"~b"));
    let batches = pull(&mut node);
    let first = batches.iter().position(|batch| batch.iter().any(is_keyspace)).expect("they are written");
    let is_state = |change: &Change| matches!(change, Change::PutMeta(key, _) if key.ends_with(b"s") && key.len() == 2);
    assert!(batches[first].iter().any(is_state), "{:?}", batches[first]);
}

/// A node that had let go of all groups begins anew with its store, if the process ended just then: its leftovers stay in their place.
#[test]
fn what_is_left_over_is_remembered_by_the_next_life() {
    let (node, _) = node_in(alloc::vec![state(10, 9, KeyRange::FULL, &[2, 1])]);
    let mut keyspace = node.replicas.keyspace.clone();
    keyspace.leave(KeyRange::FULL);
    let changes = [node.space().life(&node.life(RingId(1))), node.space().keyspace(&keyspace)];
    let meta = changes.into_iter().map(|change| match change {
        Change::PutMeta(key, value) => (key, value),
        other => panic!("{other:?}"),
    });
    let restored = Restored { meta: meta.collect(), tail: Tail::Sealed };
    let config = NodeConfig { durability: Durability::Sync, ..NodeConfig::new(PeerKey([1; 32]), Incarnation(2)) };
    let node = Node::new(config, 7, NOW, restored);
    assert_eq!((node.replicas.keyspace.leftover(), node.me.incarnation), (keyspace.leftover(), Incarnation(2)));
}

/// Returns the store of member 1 for such a group, with the end of its journal torn.
fn torn(state: GroupState) -> Stored {
    Stored {
        state,
        log_promised: None,
        log_accepted: BTreeMap::new(),
        promises: None,
        committees: Vec::new(),
        unsettled: BTreeMap::new(),
        empty: true,
        sealed: false,
        doubt: Some(Doubt::new()),
    }
}

/// Returns all outputs of a node.
fn drain(node: &mut Node) -> Vec<Output> {
    core::iter::from_fn(|| node.poll_output()).collect()
}

fn is_over(outputs: &[Output]) -> bool {
    outputs.iter().any(|output| matches!(output, Output::Event(Event::Reincarnate { .. } | Event::Damaged(_))))
}

/// A member lost a tombstone with the end of its journal. While it was down, the tombstone was purged, and another group succeeded its
/// group. In that one every member counts as present since after the purge. The member's data would bring the record back.
#[test]
fn a_loss_shows_in_what_is_born_of_the_group() {
    for (n, keeps) in [(0, true), (5, false)] {
        let parent = state(10, 9, KeyRange::FULL, &[2, 1]);
        let (mut node, ballots) = node_in(alloc::vec![parent.clone()]);
        let doubtful = Group::restore(node.config.group_config(), id(1), torn(parent), NOW, 3);
        node.replicas.all[0].group.inherit_doubt(&doubtful);
        drain(&mut node);
        let mut born = state(10, 12, KeyRange::FULL, &[1, 2]);
        let up_to = Number { term: ballots[0].term, n };
        born.purged.bounds.set(RIGHT, Some(Purge { slot: LogSlot(95), epoch: Epoch(9), up_to }));
        node.take_part(born.clone());
        let outputs = drain(&mut node);
        assert_eq!(!is_over(&outputs), keeps);
        let epochs =
            |node: &Node| node.replicas.all.iter().map(|replica| replica.group.state().epoch).collect::<Vec<_>>();
        assert_eq!(epochs(&node), [Epoch(if keeps { 12 } else { 9 })]);
        node.take_part(born);
        assert_eq!(epochs(&node), [Epoch(if keeps { 12 } else { 9 })], "nor later");
    }
}

/// The state that shows that this incarnation is over is also the last one of the group. Nothing is born of it here: the next incarnation
/// would find it in the store, and take it for its own.
#[test]
fn nothing_is_born_of_a_life_that_is_over() {
    for is_released in [false, true] {
        let parent = state(10, 9, KeyRange::FULL, &[1, 2]);
        let (mut node, _) = node_in(alloc::vec![parent.clone()]);
        drain(&mut node);
        let mut last = parent;
        let split = GroupTransaction::Split { at: RIGHT.start(), first: alloc::vec![id(1)] };
        let view = last.transactions.view(&last.reference());
        let plan = Plan::new(split, &view, None, Rank::new(0, WallMillis(0))).expect("it can be split");
        last.apply(LogSlot(91), &Entry::Transaction(TransactionEntry::Begin(Box::new(plan))));
        let began = TransactionId { group: last.id, epoch: last.epoch, slot: LogSlot(91) };
        last.apply(
            LogSlot(92),
            &Entry::Transaction(TransactionEntry::Outcome(began, group::transaction::Outcome::Commit)),
        );
        assert_eq!(last.ended, Some(began));
        if is_released {
            last.members[0].since = LogSlot(91);
        }
        let from = Sender { node: id(2), epoch: last.epoch };
        node.replicas.all[0].group.on_message(from, Message::State(Box::new(last)));
        let outputs = drain(&mut node);
        assert_eq!(is_over(&outputs), is_released);
        let heirs = node.replicas.all.iter().filter(|replica| replica.group.state().epoch > Epoch(9)).count();
        assert_eq!(heirs, if is_released { 0 } else { 2 });
    }
}

/// Another group counts on a member of this one as a newcomer. The member declines to each member that sends it the state, and to no other:
/// a large group sends it with each heartbeat of each member, and all would be answered each time.
#[test]
fn a_newcomer_elsewhere_declines_to_whoever_counts_on_it() {
    let (mut node, _) = node_in(alloc::vec![state(10, 9, LEFT, &[1, 2])]);
    drain(&mut node);
    let mut other = state(11, 9, RIGHT, &[5, 6, 7]);
    other.learners = state(12, 9, RIGHT, &[1]).members;
    (other.applied, other.learners[0].since) = (LogSlot(95), LogSlot(95)); // It asked to join: no birth made it a learner there.
    let sender = Sender { node: id(6), epoch: other.epoch };
    node.on_foreign(other.id, sender, Message::State(Box::new(other)));
    let declines = |output: Output| match output {
        Output::Send { to, frame, .. } => {
            let (_, frame) = wire::decode(&frame, None).expect("it is its own");
            matches!(frame, Frame::Group { message: Message::Declined, .. }).then_some(to)
        }
        _ => None,
    };
    let declined: Vec<PeerKey> = drain(&mut node).into_iter().filter_map(declines).collect();
    assert_eq!(declined, [id(6).peer]);
}
