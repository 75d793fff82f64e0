//! Behaviour of a node in time.

use alloc::vec::Vec;
use core::time::Duration;

use alloc::collections::BTreeMap;
use bytes::Bytes;
use group::op::{Answer, Op, OpError, Read, ReadMode};
use group::transaction::plan::GroupTransaction;
use overlay::time::{Now, Time, WallMillis};
use overlay::{Incarnation, Key, PeerKey, Point};

use super::*;
use crate::admin::{AdminOutcome, AdminRequest};
use crate::api::{Change, ConnectionId, Request, RequestId};
use crate::config::{Durability, Tail};
use crate::life::SETTLE;
use crate::readiness::PROBE_PATIENCE;
use crate::sessions::requester::Requester;
use crate::tests::small_net::{self, Net};
use crate::wire::{self, Frame, Stamp};

fn at(time: Time) -> Now {
    Now { time, awake: time, wall: WallMillis(time.since(Time(0)).as_millis() as u64) }
}

fn node(found: bool, now: Time) -> Node {
    node_that_is(Durability::Memory, found, now)
}

fn node_that_is(durability: Durability, found: bool, now: Time) -> Node {
    Node::new(config(1, durability, found), 7, at(now), Restored::empty())
}

fn config(peer: u8, durability: Durability, found: bool) -> NodeConfig {
    NodeConfig { durability, found, ..NodeConfig::new(PeerKey([peer; 32]), Incarnation(1)) }
}

fn request(id: u64, op: Op) -> Input {
    Input::Routecast(Request {
        id: RequestId(id),
        connection: ConnectionId(1),
        key: Key::new(b"k").unwrap(),
        op,
        mode: ReadMode::Linearizable,
        patience: Duration::from_millis(100),
        once: None,
    })
}

/// Pulls all outputs: returns the replies, and notes the time of the next wake-up.
fn pull(node: &mut Node, wake_at: &mut Time) -> Vec<(RequestId, Result<Answer, OpError>)> {
    let mut replies = Vec::new();
    while let Some(output) = node.poll_output() {
        match output {
            Output::Reply { id, result } => replies.push((id, result)),
            Output::WakeAt(time) => *wake_at = time,
            _ => {}
        }
    }
    replies
}

/// An input comes every tenth of a millisecond, and due timers run all the same.
#[test]
fn timers_are_not_put_off_by_work() {
    let begin = Time(1_000_000_000);
    let (mut node, mut wake_at, mut now) = (node(false, begin), Time(0), begin);
    node.handle(at(now), request(5, Op::Read(Read::Exists)));
    let mut replies = pull(&mut node, &mut wake_at);
    while replies.is_empty() && now.since(begin) < Duration::from_secs(1) {
        now = now + Duration::from_micros(100);
        node.handle(at(now), Input::Frame { from: PeerKey([2; 32]), frame: Bytes::from_static(b"nonsense") });
        if now >= wake_at {
            node.handle(at(now), Input::Tick);
        }
        replies = pull(&mut node, &mut wake_at);
    }
    assert_eq!(replies, [(RequestId(5), Err(OpError::TryAgain(Refusal::NotInGroup)))]);
    let took = now.since(begin);
    assert!(took < Duration::from_millis(103), "it had 100 ms, and was told after {took:?}");
}

/// An operation that waits for another one of its connection begins when that one ends, not at the next timer.
#[test]
fn operations_on_one_key_follow_each_other_at_once() {
    let mut now = Time(1_000_000_000);
    let (mut node, mut wake_at) = (node(true, now), Time(0));
    while !node.stage.ready {
        now = now + Duration::from_millis(10);
        node.handle(at(now), Input::Tick);
        pull(&mut node, &mut wake_at);
    }
    for id in 0..1000 {
        node.handle(at(now), request(id, Op::Add(1)));
    }
    let replies = pull(&mut node, &mut wake_at);
    assert!(replies.iter().map(|(id, _)| id.0).eq(0..1000), "{} of 1000 are answered, in order", replies.len());
    assert!(replies.iter().all(|(_, result)| result.is_ok()));
}

/// Of two operations on one key that end at the same moment, only the first was begun: the other one is certain to have had no
/// effect.
#[test]
fn what_was_never_begun_certainly_did_nothing() {
    let mut now = Time(1_000_000_000);
    let mut node = node_that_is(Durability::Sync, true, now);
    let pull = |node: &mut Node, now: Time, stores: bool| {
        let mut replies = Vec::new();
        while let Some(output) = node.poll_output() {
            match output {
                Output::Reply { id, result } => replies.push((id, result)),
                Output::Persist { token, .. } if stores => node.handle(at(now), Input::Persisted(token)),
                _ => {}
            }
        }
        replies
    };
    while !node.stage.ready {
        now = now + Duration::from_millis(10);
        node.handle(at(now), Input::Tick);
        pull(&mut node, now, true);
    }
    (1..=2).for_each(|id| node.handle(at(now), request(id, Op::Add(1))));
    assert_eq!(pull(&mut node, now, false), [], "the store says nothing");
    now = now + Duration::from_millis(100);
    node.handle(at(now), Input::Tick);
    let never = Err(OpError::TryAgain(Refusal::NoPrimary));
    assert_eq!(pull(&mut node, now, false), [(RequestId(1), Err(OpError::Uncertain)), (RequestId(2), never)]);
}

/// A lone founder, with a store that answers only on request.
struct Lone {
    node: Node,
    now: Time,
    /// Batches that the store has not confirmed yet.
    waiting: Vec<u64>,
    replies: Vec<(RequestId, Result<Answer, OpError>)>,
    stopped: bool,
}

impl Lone {
    /// Returns a founder that serves.
    fn ready() -> Lone {
        let now = Time(1_000_000_000);
        let node = node_that_is(Durability::Sync, true, now);
        let mut lone = Lone { node, now, waiting: Vec::new(), replies: Vec::new(), stopped: false };
        while !lone.node.stage.ready {
            lone.turn(Duration::from_millis(10));
            lone.persist();
        }
        lone
    }

    fn turn(&mut self, time: Duration) {
        self.now = self.now + time;
        self.handle(Input::Tick);
    }

    fn handle(&mut self, input: Input) {
        self.node.handle(at(self.now), input);
        while let Some(output) = self.node.poll_output() {
            match output {
                Output::Reply { id, result } => self.replies.push((id, result)),
                Output::Persist { token, .. } => self.waiting.push(token),
                Output::Event(Event::Stopped) => self.stopped = true,
                _ => {}
            }
        }
    }

    fn persist(&mut self) {
        while !self.waiting.is_empty() {
            for token in core::mem::take(&mut self.waiting) {
                self.handle(Input::Persisted(token));
            }
        }
    }
}

/// A lone peer cannot hand over: it ends as soon as all data is durable, not after [`HAND_OVER_MAX`].
#[test]
fn a_lone_node_stops_at_once() {
    let mut lone = Lone::ready();
    lone.handle(Input::Stop);
    lone.turn(Duration::from_millis(60));
    assert!(lone.stopped);
}

/// A write that was accepted before the stop is answered, and a write that comes after it is refused.
#[test]
fn a_lone_node_that_stops_settles_what_it_accepted() {
    let mut lone = Lone::ready();
    lone.handle(request(1, Op::Add(1)));
    lone.handle(Input::Stop);
    lone.turn(Duration::from_millis(60));
    assert!(!lone.waiting.is_empty() && !lone.stopped, "the write is not durable yet");
    lone.persist();
    lone.turn(Duration::from_millis(20));
    lone.persist();
    lone.handle(request(2, Op::Add(1)));
    lone.turn(Duration::from_millis(60));
    assert!(lone.stopped && lone.waiting.is_empty());
    let refused = Err(OpError::TryAgain(Refusal::Stopping));
    assert!(lone.replies[0].1.is_ok(), "{:?}", lone.replies);
    assert_eq!(lone.replies[1..], [(RequestId(2), refused)]);
}

/// Of three members two fall silent. The third stops at once. With a write under way it stops at the end of the client's patience:
/// no majority can choose that write any more. A node that does not serve keeps probing itself; it does not wait for that probe.
#[test]
fn the_last_member_that_is_heard_stops_at_once() {
    for (writes, serves) in [(false, true), (true, true), (false, false)] {
        let mut net = Net::of(3);
        net.run_until(|net| net.nodes.iter().all(|node| node.status().ready));
        net.cut[1..].fill(true);
        net.run_until(|net| net.nodes[0].group().is_some_and(|group| group.hears().is_empty()));
        if !serves {
            net.nodes[0].stage.ready = false;
            net.run_for(PROBE_PATIENCE);
            assert!(!net.nodes[0].sessions.is_empty_but(Requester::Client(RequestId(1))), "it asks itself");
        }
        if writes {
            net.nodes[0].handle(net.now, request(1, Op::Add(1)));
        }
        net.nodes[0].handle(net.now, Input::Stop);
        net.run_for(Duration::from_millis(60));
        let has_stopped = |net: &Net| net.events[0].contains(&Event::Stopped);
        assert_eq!(has_stopped(&net), !writes);
        // The client's patience is 100 ms.
        net.run_for(Duration::from_millis(100));
        assert!(has_stopped(&net));
        assert_eq!(net.replies.iter().filter(|(id, _)| *id == RequestId(1)).count(), usize::from(writes));
    }
}

/// A majority that is heard takes over first.
#[test]
fn a_member_among_others_hands_over_before_it_stops() {
    let mut net = Net::of(3);
    net.run_until(|net| net.nodes.iter().all(|node| node.status().ready));
    net.nodes[0].handle(net.now, Input::Stop);
    net.run_until(|net| net.events[0].contains(&Event::Stopped));
    let me = net.nodes[0].id();
    let state = net.nodes[1].group().expect("it stays").state();
    assert!(state.division.iter().all(|part| part.node != me), "{:?}", state.division);
}

/// A node serves as long as its own group does, independent of other groups.
#[test]
fn a_node_serves_while_another_group_has_no_majority() {
    for dead in [0..3, 3..6] {
        let settle = |config| NodeConfig { members_min: 1, members_max: 6, ..config };
        let mut net = Net::with(6, settle);
        let id = net.nodes[0].group().expect("it is in one").state().id;
        let split = AdminRequest::Split { at: None, first: (0..3).map(small_net::key).collect() };
        assert!(matches!(net.request(0, id, split), AdminOutcome::Done(_)));
        net.run_until(|net| net.nodes.iter().all(|node| node.status().ready && node.groups().count() == 1));
        net.cut[dead].fill(true);
        net.add(settle);
        net.run_until(|net| net.nodes[6].status().ready);
    }
}

/// Members that all stop at the same time have no successor, and wait for none; they settle the writes that each had accepted.
#[test]
fn members_that_stop_at_the_same_time_stop_at_once() {
    for count in [2, 3, 5] {
        let mut net = Net::of(count);
        net.run_until(|net| net.nodes.iter().all(|node| node.status().ready));
        for (index, node) in net.nodes.iter_mut().enumerate() {
            node.handle(net.now, request(index as u64, Op::Add(1)));
        }
        for node in &mut net.nodes {
            node.handle(net.now, Input::Stop);
        }
        net.run_for(SETTLE + Duration::from_millis(200));
        assert!(net.events.iter().all(|events| events.contains(&Event::Stopped)), "{count}: {:?}", net.events);
        assert_eq!(net.replies.len(), count, "{:?}", net.replies);
        assert!(net.replies.iter().all(|(_, reply)| reply.is_ok()), "{count}: {:?}", net.replies);
    }
}

/// Returns the frames that a node sends to a peer in answer to this one.
fn answers(node: &mut Node, now: Time, from: PeerKey, frame: &[u8]) -> Vec<Bytes> {
    node.handle(at(now), Input::Frame { from, frame: Bytes::copy_from_slice(frame) });
    let sent = core::iter::from_fn(|| node.poll_output()).filter_map(|output| match output {
        Output::Send { to, frame, .. } if to == from => Some(frame),
        _ => None,
    });
    sent.collect()
}

/// A peer of another frame version is told so once in each connection.
#[test]
fn a_frame_of_another_version_is_answered_once() {
    for lane in [None, Some(3)] {
        let (now, from) = (Time(1_000_000_000), PeerKey([2; 32]));
        let config = NodeConfig { lane, ..config(1, Durability::Memory, false) };
        let mut node = Node::new(config, 7, at(now), Restored::empty());
        let version = usize::from(lane.is_some());
        let later = |frame: &Frame| {
            let mut bytes = wire::encode(&Stamp::default(), frame, lane).to_vec();
            bytes[version] += 1;
            bytes
        };
        let started = later(&Frame::Started);
        let told = answers(&mut node, now, from, &started);
        assert!(
            matches!(wire::decode(&told[0], lane), Ok((_, Frame::NotUnderstood { version: wire::FRAME_VERSION }))),
            "{told:?}"
        );
        assert!(answers(&mut node, now, from, &started).is_empty(), "it was told");
        node.handle(at(now), Input::PeerDown(from));
        assert_eq!(answers(&mut node, now, from, &started).len(), 1, "the next connection may be of another process");
    }
}

/// Two peers of different versions must not answer each other for ever.
#[test]
fn not_understood_is_never_answered() {
    for lane in [None, Some(3)] {
        let (now, from) = (Time(1_000_000_000), PeerKey([2; 32]));
        let config = NodeConfig { lane, ..config(1, Durability::Memory, false) };
        let mut node = Node::new(config, 7, at(now), Restored::empty());
        for version in 0..=u8::MAX {
            let mut bytes = wire::encode(&Stamp::default(), &Frame::NotUnderstood { version }, lane).to_vec();
            bytes[usize::from(lane.is_some())] = version;
            assert!(answers(&mut node, now, from, &bytes).is_empty(), "of version {version}");
            node.handle(at(now), Input::PeerDown(from));
        }
    }
}

/// Two nodes that hear each other at once, and all batches of each.
struct Pair {
    now: Time,
    nodes: [Node; 2],
    written: [Vec<Vec<Change>>; 2],
}

impl Pair {
    fn new() -> Pair {
        let now = Time(1_000_000_000);
        let of = |peer: u8| Node::new(config(peer, Durability::Sync, peer == 1), 7, at(now), Restored::empty());
        let mut pair = Pair { now, nodes: [of(1), of(2)], written: Default::default() };
        pair.nodes[0].handle(at(now), Input::PeerUp(PeerKey([2; 32])));
        pair.nodes[1].handle(at(now), Input::PeerUp(PeerKey([1; 32])));
        pair
    }

    /// Lets a millisecond pass.
    fn turn(&mut self) {
        self.now = self.now + Duration::from_millis(1);
        let now = at(self.now);
        for one in 0..2 {
            self.nodes[one].handle(now, Input::Tick);
            while let Some(output) = self.nodes[one].poll_output() {
                let from = self.nodes[one].id().peer;
                match output {
                    Output::Send { frame, .. } => self.nodes[1 - one].handle(now, Input::Frame { from, frame }),
                    Output::Persist { token, changes } => {
                        self.written[one].push(changes);
                        self.nodes[one].handle(now, Input::Persisted(token));
                    }
                    Output::Load { record_key, .. } => {
                        self.nodes[one].handle(now, Input::Loaded { record_key, record: None });
                    }
                    Output::Scan { token, .. } => {
                        self.nodes[one].handle(now, Input::Scanned { token, records: Vec::new(), done: true });
                    }
                    _ => {}
                }
            }
        }
    }

    /// Returns the number of groups of a node that finds this number of batches after a crash.
    fn groups_after(&self, one: usize, batches: usize) -> usize {
        let mut meta = BTreeMap::new();
        for change in self.written[one][..batches].iter().flatten() {
            match change {
                Change::PutMeta(key, value) => drop(meta.insert(key.clone(), value.clone())),
                Change::DropMeta(from, to) => meta.retain(|key, _| !(from..to).contains(&key)),
                _ => {}
            }
        }
        let restored = Restored { meta, tail: Tail::Unsealed };
        Node::new(config(1 + one as u8, Durability::Sync, false), 8, at(self.now), restored).groups().count()
    }
}

/// Groups are born of a group. For each point of a crash, the node is in an old or a new group after it.
#[test]
fn a_crash_amid_a_birth_leaves_nobody_outside() {
    let mut pair = Pair::new();
    let first = alloc::vec![pair.nodes[0].id()];
    let split = GroupTransaction::Split { at: Point(1 << 127), first };
    let is_of_two = |node: &Node| node.group().is_some_and(|group| group.state().members.len() == 2);
    let mut begun = false;
    for _ in 0..20_000 {
        let has_both = pair.nodes.iter().all(is_of_two);
        begun |= has_both && pair.nodes.iter_mut().any(|node| node.begin_transaction(split.clone()).is_ok());
        pair.turn();
        let is_half =
            |node: &Node| node.groups().count() == 1 && !node.replicas.living().any(|g| g.state().range.is_full());
        if begun && pair.nodes.iter().all(is_half) {
            break;
        }
    }
    assert!(begun && pair.nodes.iter().all(|node| node.groups().count() == 1), "it has become two groups");
    for one in 0..2 {
        let all = pair.written[one].len();
        let enters = (0..all).find(|batches| pair.groups_after(one, *batches) > 0).expect("it came in");
        let outside: Vec<usize> = (enters..=all).filter(|batches| pair.groups_after(one, *batches) == 0).collect();
        assert!(outside.is_empty(), "node {one} is in no group after these of {all} batches: {outside:?}");
    }
}
