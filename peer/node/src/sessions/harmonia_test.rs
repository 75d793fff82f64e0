//! Reads that go by way of a switch, from client to client: with a real pipeline, between nodes in memory.

use alloc::vec::Vec;

use group::op::{Condition, Expiry, OpError, Read};
use switch::dirty::{Region, Shape};
use switch::pipeline::Pipeline;
use switch::tables::Partition;

use super::*;
use crate::Node;
use crate::admin::{AdminOutcome, AdminRequest};
use crate::api::{ConnectionId, Input, RequestId};
use crate::config::{NodeConfig, SwitchConfig};
use crate::tests::small_net::{Net, SWITCH};

/// Three members whose group uses a switch.
fn net() -> Net {
    let mut net = Net::with(3, |config| {
        let here = Net::address(usize::from(config.me.0[0]) - 1);
        let switch = Some(SwitchConfig { at: SWITCH, here });
        NodeConfig { coarse: true, leases: true, cluster: "hall".into(), switch, ..config }
    });
    net.switch = Some(Pipeline::new(Shape { stages: 2, slots: 64 }, 16));
    net.run_for(Duration::from_secs(5));
    let group = net.nodes[0].group().expect("it is in one").state().id;
    assert_eq!(net.request(0, group, AdminRequest::Switch { id: 7 }), AdminOutcome::Done(alloc::vec![group]));
    set_tables(&mut net);
    net.run_for(Duration::from_secs(3));
    net
}

/// Sets the switch's tables, as a controller does.
fn set_tables(net: &mut Net) {
    let state = net.nodes[0].group().expect("it is in one").state().clone();
    let members: Vec<_> = net.nodes.iter().map(Node::id).collect();
    let pipeline = net.switch.as_mut().expect("there is a switch");
    for ((_, ballot), index) in state.parts().zip(0..) {
        let (number, term) = partition(state.id, ballot);
        let primary = members.iter().position(|node| *node == ballot.node).expect("a member") as u32;
        let region = Region { first: 4 * index, slots: 4 };
        let replicas = alloc::vec![(0, 1), (1, 1), (2, 1)];
        let partition = Partition { index, region, term, switch: state.switch.id, active: true, primary, replicas };
        pipeline.set(number, partition).expect("there is room");
    }
}

/// Submits a request, with a connection of its own.
fn begin(net: &mut Net, index: usize, id: u64, name: &str, op: Op) {
    let request = Request {
        id: RequestId(id),
        connection: ConnectionId(id),
        key: Key::new(name.as_bytes()).expect("short"),
        op,
        mode: ReadMode::Linearizable,
        patience: Duration::from_secs(3),
        once: None,
    };
    net.nodes[index].handle(net.now, Input::Routecast(request));
}

fn ask(net: &mut Net, index: usize, id: u64, name: &str, op: Op) -> Result<Answer, OpError> {
    begin(net, index, id, name, op);
    net.settle();
    net.run_until(|net| net.replies.iter().any(|(of, _)| *of == RequestId(id)));
    net.replies.iter().find(|(of, _)| *of == RequestId(id)).expect("just seen").1.clone()
}

/// Has a switch with this id send a read of the key to a member that is not its primary. The read is stamped with `stamp` of the last
/// completion. Returns the member.
fn ask_member(net: &mut Net, switch: u32, stamp: impl Fn(u64) -> u64) -> usize {
    let key = Key::new(b"key").expect("short");
    let state = net.nodes[0].group().expect("it is in one").state().clone();
    let ballot = state.parts().find(|(range, _)| range.contains(key.point())).expect("all is divided").1;
    let index = (0..3).find(|index| net.nodes[*index].id() != ballot.node).expect("two others");
    let asked = question(state.id, ballot, &key, &Op::Read(Read::Value), 1, Net::address(index)).expect("it fits");
    let mut stamped = asked.to_vec();
    let header = Packet::decode(&asked).expect("one of ours").header;
    let committed = stamp(net.completed[&header.partition]);
    Header { operation: Operation::FastRead, switch, committed, ..header }.stamp(&mut stamped);
    net.switched.clear();
    net.nodes[index].handle(net.now, Input::Packet { from: SWITCH, bytes: stamped.into() });
    net.settle();
    index
}

fn set(value: &'static str) -> Op {
    Op::Set { value: value.into(), condition: Condition::Always, expiry: Expiry::Clear, get: false }
}

#[test]
fn reads_are_spread_and_see_what_was_written() {
    let mut net = net();
    let is_spread = net
        .nodes
        .iter()
        .flat_map(|node| node.groups())
        .all(|group| group.primaries().all(|primary| primary.switch() == Some(7)));
    assert!(is_spread, "all primaries stand to the switch");
    let values = ["a", "b", "c", "d"];
    let mut id = 0;
    for round in 0..40 {
        let (key, value) = (alloc::format!("key {}", round % 8), values[round % 4]);
        id += 1;
        assert_eq!(ask(&mut net, round % 3, id, &key, set(value)), Ok(Answer::Done));
        for reader in 0..3 {
            id += 1;
            let answer = ask(&mut net, reader, id, &key, Op::Read(Read::Value));
            assert_eq!(answer, Ok(Answer::Value(Some(value.into()))), "round {round}");
        }
    }
    let fast = net.switched.iter().filter(|(_, operation)| *operation == Operation::FastRead).count();
    assert!(fast > 20, "{fast} reads went to any member");
}

/// A switch that is gone delays requests for a short time only.
#[test]
fn without_the_switch_all_goes_on() {
    let mut net = net();
    assert_eq!(ask(&mut net, 0, 1, "key", set("a")), Ok(Answer::Done));
    net.switch = None;
    assert_eq!(ask(&mut net, 1, 2, "key", Op::Read(Read::Value)), Ok(Answer::Value(Some("a".into()))));
    assert_eq!(ask(&mut net, 1, 3, "key", set("b")), Ok(Answer::Done), "after one grant at most");
    net.run_for(Duration::from_secs(1));
    for index in 0..3 {
        assert_eq!(
            ask(&mut net, index, 4 + index as u64, "key", Op::Read(Read::Value)),
            Ok(Answer::Value(Some("b".into())))
        );
    }
}

#[test]
fn what_comes_from_elsewhere_is_dropped() {
    let mut net = net();
    let key = Key::new(b"key").expect("short");
    let state = net.nodes[0].group().expect("it is in one").state().clone();
    let ballot = state.parts().next().expect("one").1;
    let packet = question(state.id, ballot, &key, &Op::Read(Read::Value), 1, Net::address(2)).expect("it fits");
    let before = net.nodes[0].harmonia.dropped;
    for (from, bytes) in [(Net::address(2), packet.clone()), (SWITCH, "nonsense".into()), (SWITCH, packet.slice(..40))]
    {
        net.nodes[0].handle(net.now, Input::Packet { from, bytes });
    }
    assert_eq!(net.nodes[0].harmonia.dropped, before + 3);
}

/// A member that must not answer asks the primary, and the switch is not asked again.
#[test]
fn what_is_left_to_the_primary_does_not_go_round() {
    let mut net = net();
    assert_eq!(ask(&mut net, 0, 1, "key", set("a")), Ok(Answer::Done));
    // Stamped by a switch with an id that was never granted.
    ask_member(&mut net, 6, |_| 1);
    net.run_for(Duration::from_millis(50));
    let passed: Vec<Operation> = net.switched.iter().map(|(_, operation)| *operation).collect();
    assert!(passed.contains(&Operation::Reply), "{passed:?}");
    assert!(!passed.iter().any(|it| matches!(it, Operation::Read | Operation::FastRead)), "{passed:?}");
}

/// Slow answers of busy members are no sign that the switch is gone.
#[test]
fn what_is_slow_is_not_gone() {
    let ballot = net().nodes[0].group().expect("it is in one").state().parts().next().expect("one").1;
    let key = Key::new(b"key").expect("short");
    let at = |ms: u64| Time(0) + Duration::from_millis(ms);
    let sent = |tag, ms| Sent { tag, group: GroupId(1), ballot, at: at(ms) };
    let mut switched = HarmoniaState::new(0);
    assert_eq!(switched.patience(), PATIENCE_MIN);
    // Of three reads that were sent together, one is answered, one is late, one is lost.
    switched.answered(sent(1, 100), at(109));
    switched.missed(sent(2, 100), at(110));
    assert!(switched.may_spread(ballot, &key, at(110)));
    switched.answered(sent(2, 100), at(140));
    let patient = switched.patience();
    assert!(patient > Duration::from_millis(40) && patient < Duration::from_millis(80), "{patient:?}");
    switched.missed(sent(3, 100), at(150));
    assert!(switched.may_spread(ballot, &key, at(150)));
    // Later reads are not answered: that is silence, and each pause is longer than the one before.
    switched.missed(sent(4, 150), at(160));
    assert!(!switched.may_spread(ballot, &key, at(160 + 249)) && switched.may_spread(ballot, &key, at(160 + 250)));
    switched.missed(sent(5, 410), at(420));
    assert!(!switched.may_spread(ballot, &key, at(420 + 499)) && switched.may_spread(ballot, &key, at(420 + 500)));
    assert_eq!(switched.counts, ReadSchedulerCounts { answered: 2, missed: 4, ..ReadSchedulerCounts::default() });
    for _ in 0..100 {
        switched.answered(sent(6, 1000), at(9000));
    }
    assert_eq!(switched.patience(), PATIENCE_MAX);
}

/// The group keeps probing whether the switch is there, without completions.
#[test]
fn who_is_idle_completes_nothing() {
    let mut net = net();
    assert_eq!(ask(&mut net, 0, 1, "key", set("a")), Ok(Answer::Done));
    net.run_for(Duration::from_secs(1));
    let before = net.completed.clone();
    net.run_for(Duration::from_secs(10));
    assert_eq!(net.completed, before);
    // An object that was numbered and never came back is dirty no longer than until the next trial.
    let state = net.nodes[0].group().expect("it is in one").state().clone();
    let (key, switch) = (Key::new(b"key").expect("short"), state.switch.id);
    let ballot = state.parts().find(|(range, _)| range.contains(key.point())).expect("all is divided").1;
    let mut lost = Header { object: object(&key), switch, ..blank(Operation::WriteFirst, state.id, ballot) };
    let pipeline = net.switch.as_mut().expect("there is a switch");
    pipeline.process(&mut lost, 0);
    assert!(pipeline.is_dirty(lost.partition, lost.object));
    net.run_for(Duration::from_secs(1));
    assert!(!net.switch.as_mut().expect("there is a switch").is_dirty(lost.partition, lost.object));
    assert!(net.completed[&lost.partition] >= lost.sequence);
}

/// A write that a member has not executed yet may be on its way to it; the member waits for it for a short time only.
#[test]
fn who_is_behind_waits_a_little() {
    let mut net = net();
    assert_eq!(ask(&mut net, 0, 1, "key", set("a")), Ok(Answer::Done));
    let index = ask_member(&mut net, 7, |completed| completed + 1_000);
    assert!(net.switched.is_empty(), "it waits: {:?}", net.switched);
    net.run_for(Duration::from_millis(10));
    assert!(net.switched.iter().any(|(_, operation)| *operation == Operation::Reply), "{:?}", net.switched);
    assert_eq!(net.nodes[index].harmonia.counts.left, 1);
}

/// A stranger that guesses tags has the switch number another object; the written object would not be dirty.
#[test]
fn what_is_numbered_is_what_is_written() {
    let mut net = net();
    let state = net.nodes[0].group().expect("it is in one").state().clone();
    let key = Key::new(b"key").expect("short");
    let ballot = state.parts().find(|(range, _)| range.contains(key.point())).expect("all is divided").1;
    let primary = (0..3).find(|index| net.nodes[*index].id() == ballot.node).expect("one of them");
    net.loses_writes = true;
    begin(&mut net, primary, 1, "key", set("a"));
    net.settle();
    // In these tests there is no secret.
    let mut tags = overlay::rng::Rng::new(0);
    let mut send = |net: &mut Net, object| {
        let before = net.nodes[primary].harmonia.dropped;
        for tag in (0..1_000).map(|_| tags.draw()) {
            let mut header = Header { object, tag, ..blank(Operation::WriteFirst, state.id, ballot) };
            net.switch.as_mut().expect("there is a switch").process(&mut header, 0);
            let bytes = encoded(&Packet { reply_to: Net::address(9), ..Packet::of(header, &[]) }).expect("it fits");
            net.nodes[primary].handle(net.now, Input::Packet { from: SWITCH, bytes });
            net.settle();
        }
        net.nodes[primary].harmonia.dropped - before
    };
    assert!(send(&mut net, object(&key) ^ 1) > 0, "some were guessed, and for nothing");
    assert!(net.replies.is_empty(), "{:?}", net.replies);
    net.loses_writes = false;
    net.run_until(|net| !net.replies.is_empty());
    assert_eq!(net.replies[0].1, Ok(Answer::Done));
}

/// Concurrent writes exceed the room in the switch's table: the group soon does without the switch.
#[test]
fn who_finds_no_room_does_without_the_switch() {
    let mut net = net();
    let (mut open, mut id, mut done) = (0, 0, 0);
    let end = net.now.time + Duration::from_secs(30);
    while net.now.time < end {
        while open < 24 {
            (id, open) = (id + 1, open + 1);
            begin(&mut net, (id % 3) as usize, id, &alloc::format!("key {id}"), set("a"));
        }
        net.settle();
        net.run_for(Duration::from_millis(10));
        let replies = core::mem::take(&mut net.replies);
        open -= replies.len();
        done += replies.iter().filter(|(_, result)| *result == Ok(Answer::Done)).count();
    }
    // Without a switch there would be 24 in each of 3,000 steps.
    assert!(done > 72_000 / 2, "{done} of 72,000");
}

/// A node lets go of a group that has moved on without it. A later state of another group of the node then asks it for a promise.
#[test]
fn what_was_granted_is_remembered_by_other_groups() {
    let mut net = net();
    let now = net.now;
    let granted = |node: &Node| node.replicas.all[0].group.acceptor().delegated_until();
    let node = net.nodes.iter_mut().find(|node| granted(node) > now.time).expect("somebody grants");
    let until = granted(node);
    let state = node.replicas.all[0].group.state().clone();
    let other = group::control::state::GroupState { id: GroupId(77), ..state.clone() };
    let other = group::Group::join(node.config.group_config(), node.id(), other, now, 3);
    node.replicas.add(other).expect("there is room");
    node.retire(|group| group.state().id == state.id);
    assert_eq!((node.replicas.all.len(), granted(node)), (1, until));
}
