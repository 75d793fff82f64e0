//! Knowledge of the ring that nodes have without requests, and the repair of wrong hints.

use alloc::vec;
use alloc::vec::Vec;

use group::Group;
use overlay::rng::Rng;
use overlay::{Contact, Epoch, GroupId, GroupRef, HINTS_BYTES_MAX, Hints, KeyRange};

use super::*;
use crate::admin::{AdminOutcome, AdminRequest};
use crate::api::Input;
use crate::config::{NodeConfig, Timing};
use crate::routing::{Locate, Wanted};
use crate::tests::small_net::{Net, key};
use crate::wire::{self, Frame};

/// Returns a ring of this number of groups, a power of two, of one node each. No requests are made.
fn ring_of(count: usize) -> Net {
    let timing = Timing { look_around: Duration::from_millis(200), ..Timing::default() };
    let settle = |config| NodeConfig { members_min: 1, members_max: 64, timing: timing.clone(), ..config };
    let mut net = Net::with(count, settle);
    let mut step = count;
    while step > 1 {
        for from in (0..count).step_by(step) {
            let first = (from..from + step / 2).map(key).collect();
            let id = own(&net, from).id;
            assert!(matches!(net.request(from, id, AdminRequest::Split { at: None, first }), AdminOutcome::Done(_)));
            calm(&mut net);
        }
        step /= 2;
    }
    net
}

fn calm(net: &mut Net) {
    net.run_until(|net| {
        net.nodes.iter().all(|node| {
            let is_calm = |group: &Group| group.state().is_settled() && group.state().transactions.decided().is_empty();
            node.is_settled() && node.groups().count() == 1 && node.groups().all(is_calm)
        })
    });
}

fn own(net: &Net, index: usize) -> GroupRef {
    net.nodes[index].group().expect("it is in one").state().reference()
}

fn forget_all(net: &mut Net) {
    for node in &mut net.nodes {
        node.routing.table.hints = Hints::new(KeyRange::FULL, HINTS_BYTES_MAX);
        node.routing.table.refresh = Refresh::default();
    }
}

fn knows(net: &Net, index: usize, group: &GroupRef) -> bool {
    net.nodes[index].routing.table.hints.find(group.id).is_some_and(|known| known.epoch == group.epoch)
}

/// Has this node look up the owner of a range; returns the group that answers.
fn located(net: &mut Net, index: usize, range: KeyRange) -> GroupId {
    let walk = net.walk_ring(index, Some(range.cut_at(1, 3)), 1);
    walk.groups.first().expect("somebody owns it").group.id
}

/// Sends a question to a node, as another one passes it on.
fn passes_on(net: &mut Net, from: usize, to: usize, point: Point) {
    let origin = Contact { node: net.nodes[from].id(), addresses: Vec::new(), name: None };
    let ring = net.nodes[from].ring.expect("it is in one");
    let frame = wire::encode(
        &net.nodes[from].stamp(),
        &Frame::Locate(Locate::new(ring, point, origin, Wanted::Owner).into()),
        None,
    );
    let now = net.now;
    net.nodes[to].handle(now, Input::Frame { from: key(from), frame });
    net.settle();
}

#[test]
fn whoever_is_asked_for_nothing_gets_to_know_the_ring() {
    let mut net = ring_of(8);
    forget_all(&mut net);
    let all: Vec<GroupRef> = (0..8).map(|index| own(&net, index)).collect();
    net.run_until(|net| {
        (0..8).all(|index| all.iter().enumerate().all(|(other, group)| other == index || knows(net, index, group)))
    });
    // A missing peer is forgotten, though there are no requests for it; a peer that comes back is found.
    net.cut[5] = true;
    net.run_until(|net| (0..3).all(|index| !knows(net, index, &all[5])));
    assert!((0..3).all(|index| knows(&net, index, &all[3])));
    net.cut[5] = false;
    net.run_until(|net| (0..3).all(|index| knows(net, index, &all[5])));
}

/// Each of two groups knows the other one by itself.
#[test]
fn neighbours_do_not_look_for_each_other() {
    let mut net = ring_of(2);
    let looks = |net: &Net| net.nodes.iter().all(|node| node.routing.table.refresh.looking.is_some());
    for _ in 0..1_000 {
        net.run_for(Duration::from_millis(10));
        assert!(!looks(&net));
    }
    assert!(knows(&net, 0, &own(&net, 1)) && knows(&net, 1, &own(&net, 0)));
}

/// Hazard 44: a wrong hint is replaced at the peer that was led astray by it, not only at the origin.
#[test]
fn whoever_sends_somebody_astray_is_told_so() {
    let mut net = ring_of(8);
    let (owner, taken) = (own(&net, 3), own(&net, 5));
    let point = owner.range.cut_at(1, 2);
    let wrong = GroupRef { id: GroupId(99), epoch: Epoch(1), range: owner.range, members: taken.members.clone() };
    forget_all(&mut net);
    net.nodes[1].routing.table.hints.learn(&wrong);
    passes_on(&mut net, 0, 1, point);
    let hints = &net.nodes[1].routing.table.hints;
    assert_eq!((hints.find(GroupId(99)), hints.find(taken.id)), (None, Some(taken.with_members(3))));
    // Only a peer that is a member according to the hint can deny it.
    net.nodes[1].routing.table.hints.learn(&wrong);
    let ring = net.nodes[0].ring.expect("it is in one");
    let astray = crate::routing::Astray { ring, taken_for: (wrong.id, wrong.epoch), group: None };
    for (from, believed) in [(2, false), (5, true)] {
        let frame = wire::encode(&net.nodes[from].stamp(), &Frame::Astray(astray.clone().into()), None);
        let now = net.now;
        net.nodes[1].handle(now, Input::Frame { from: key(from), frame });
        assert_eq!(net.nodes[1].routing.table.hints.find(wrong.id).is_none(), believed, "said by {from}");
    }
}

/// A hint whose only known member is this node itself is outdated: the present owner of its range is found all the same.
#[test]
fn what_is_said_of_oneself_is_no_dead_end() {
    let mut net = ring_of(4);
    let (owner, me) = (own(&net, 2), own(&net, 0));
    let wrong = GroupRef { id: GroupId(99), epoch: Epoch(1), range: owner.range, members: me.members };
    forget_all(&mut net);
    net.nodes[0].routing.table.hints.learn(&wrong);
    assert_eq!(located(&mut net, 0, owner.range), owner.id);
    assert_eq!(net.nodes[0].routing.table.hints.find(GroupId(99)), None);
}

/// Hazard 44: each of two peers takes the other one for the owner.
#[test]
fn a_question_does_not_go_back_and_forth() {
    let mut net = ring_of(8);
    let owner = own(&net, 3);
    let says = |net: &Net, index: usize| GroupRef {
        epoch: Epoch(1),
        range: owner.range,
        id: GroupId(90 + index as u128),
        members: own(net, index).members,
    };
    let wrong = [says(&net, 5), says(&net, 0)];
    forget_all(&mut net);
    net.nodes[0].routing.table.hints.learn(&wrong[0]);
    net.nodes[5].routing.table.hints.learn(&wrong[1]);
    assert_eq!(located(&mut net, 0, owner.range), owner.id);
    assert!(wrong.iter().zip([0, 5]).all(|(wrong, at)| net.nodes[at].routing.table.hints.find(wrong.id).is_none()));
    assert!(net.nodes.iter().all(|node| node.frames_dropped == 0), "within the limit of hops");
}

/// Hazards 43, 44: independent of the hints that all nodes have of a sound ring, every question finds the owner, within the
/// limit of hops (otherwise it would be dropped, and counted).
#[test]
fn every_question_comes_to_the_owner_whatever_the_hints_say() {
    let mut net = ring_of(8);
    let all: Vec<GroupRef> = (0..8).map(|index| own(&net, index)).collect();
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        forget_all(&mut net);
        for index in 0..8 {
            for n in 0..rng.below(30) {
                // A group with a random id, an old epoch, a random range and random members.
                let mut pick = || all[rng.below(8) as usize].clone();
                let (id, start, end, of) = (pick().id, pick().range.start(), pick().range.end(), pick().members);
                let id = if n % 2 == 0 { id } else { GroupId(1 + n as u128) };
                let members = if n % 5 == 0 { vec![of[0].clone(), all[index].members[0].clone()] } else { of };
                let told = GroupRef { id, epoch: Epoch(1), range: KeyRange::new(start, end), members };
                net.nodes[index].routing.table.hints.learn(&told);
            }
        }
        for _ in 0..10 {
            let (from, to) = (rng.below(8) as usize, rng.below(8) as usize);
            let begun = net.now.time;
            assert_eq!(located(&mut net, from, all[to].range), all[to].id, "seed {seed}, from {from} to {to}");
            let took = net.now.time.since(begun);
            assert!(took < Duration::from_millis(300), "seed {seed}, from {from} to {to}: it took {took:?}");
        }
        assert!(net.nodes.iter().all(|node| node.frames_dropped == 0), "seed {seed}: within the limit of hops");
    }
}
