//! What a node takes along into a group that is born.

use alloc::string::String;

use group::ballot::{Number, Slot, Term, TermBallot};
use group::message::{Base, CommitteeMessage};
use group::state::{Assignment, Member, Purge, Settings};
use group::time::{Now, Time, WallMillis};
use overlay::{Incarnation, Point, RingId};

use super::*;
use crate::config::{NodeConfig, Restored};

const LEFT: KeyRange = KeyRange::new(Point(0), Point(1 << 127));
const RIGHT: KeyRange = KeyRange::new(Point(1 << 127), Point(0));
const NOW: Now = Now { time: Time(1_000_000_000), awake: Time(1_000_000_000), wall: WallMillis(1_000) };

fn id(peer: u8) -> NodeId {
    NodeId { peer: PeerKey([peer; 32]), incarnation: Incarnation(1) }
}

/// A group of these, as of this epoch, with one part.
fn state(name: u128, epoch: u64, range: KeyRange, members: &[u8]) -> GroupState {
    let slot = Slot(epoch * 10);
    let member = |peer: &u8| Member {
        node: id(*peer),
        addresses: Vec::new(),
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
        members_min: 5,
        members_max: 12,
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

/// The primary of a group begins; this node accepts its base, and tells the ballot.
fn begins(group: &mut Group) -> TermBallot {
    let state = group.state();
    let (range, ballot) = state.parts().next().expect("it has a part");
    let from = Sender { node: ballot.node, epoch: state.epoch };
    let base = Base { range, pieces: alloc::vec![(range, Vec::new())], reproposed: 0 };
    for message in
        [CommitteeMessage::Prepare { ballot, range }, CommitteeMessage::Base { ballot, base, chosen: Some(0) }]
    {
        group.on_message(from, Message::Committee(message));
    }
    assert_eq!(group.acceptor().base_at(range.start()), Some(ballot));
    ballot
}

/// A node with parts in these groups, which it came to have in this order; and the ballots that it has accepted a base of.
fn node_in(groups: Vec<GroupState>) -> (Node, Vec<TermBallot>) {
    let config = NodeConfig { durability: Durability::Sync, ..NodeConfig::new(PeerKey([1; 32]), Incarnation(1)) };
    let mut node = Node::new(config, 7, NOW, Restored::empty());
    node.ring = Some(RingId(1));
    let mut ballots = Vec::new();
    for state in groups {
        let mut group = Group::join(node.group_config(), id(1), state, NOW, 3);
        ballots.push(begins(&mut group));
        node.hosts.add(group).expect("there is room");
    }
    (node, ballots)
}

fn has(node: &Node, range: KeyRange) -> Option<TermBallot> {
    node.hosts.at(range.start()).expect("it has a part there").acceptor().base_at(range.start())
}

/// A node was moved from one group to another, and has not heard of the end of the first, when both merge: the second needs
/// what it has accepted there.
#[test]
fn who_was_moved_takes_along_what_it_has_where_it_is() {
    for turned in [false, true] {
        let mut groups = alloc::vec![state(10, 9, LEFT, &[2, 1]), state(11, 11, RIGHT, &[5, 1])];
        if turned {
            groups.reverse();
        }
        let (mut node, ballots) = node_in(groups);
        let bays = node.hosts.bays.clone();
        node.take_part(state(12, 13, KeyRange::FULL, &[1, 2, 5, 6]));
        let there = ballots[usize::from(!turned)];
        assert_eq!((has(&node, LEFT), has(&node, RIGHT)), (None, Some(there)));
        assert_ne!(node.hosts.bays.of(LEFT.start()), bays.of(LEFT.start()), "what is left over lies there");
        assert_eq!(node.hosts.bays.of(RIGHT.start()), bays.of(RIGHT.start()));
        assert_eq!(node.hosts.all.len(), 1);
    }
}

/// A node that a group of its own is born for, in a part of which tombstones were let go of while it was away.
#[test]
fn nothing_comes_along_from_where_tombstones_were_let_go_of_without_this_node() {
    for (epoch, keeps) in [(9, true), (10, false)] {
        let (mut node, ballots) = node_in(alloc::vec![state(10, 9, KeyRange::FULL, &[2, 1])]);
        let bay = node.hosts.bays.of(RIGHT.start());
        let mut born = state(10, 12, KeyRange::FULL, &[1, 2]);
        let up_to = Number { term: Term::new(Slot(99), 0), n: 5 };
        born.purged.bounds.set(RIGHT, Some(Purge { slot: Slot(100), epoch: Epoch(epoch), up_to }));
        node.take_part(born);
        assert_eq!((has(&node, LEFT), has(&node, RIGHT)), (Some(ballots[0]), keeps.then_some(ballots[0])));
        assert_eq!(node.hosts.bays.of(RIGHT.start()) == bay, keeps);
        assert_eq!(node.hosts.bays.of(LEFT.start()), bay);
    }
}
