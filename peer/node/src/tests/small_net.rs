//! Several nodes in memory, for tests of their interaction.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use core::net::Ipv4Addr;
use group::Group;
use group::op::{Answer, Condition, Expiry, Op, OpError, ReadMode};
use header::{NO_OBJECT, Operation, Packet, ReplyTo};
use overlay::time::{Now, Time, WallMillis};
use overlay::{Contact, GroupId, Incarnation, Key, NodeId, PeerKey, Point};
use switch::pipeline::{Pipeline, Verdict};

use crate::admin::{AdminOutcome, AdminRequest};
use crate::api::{ConnectionId, Event, Input, Output, Request, RequestId};
use crate::config::{Durability, NodeConfig, Restored};
use crate::node::Node;
use crate::reconfigure::leaving::LeaveStep;
use crate::routing::ring_walk::RingWalk;
use crate::wire::{self, Frame};

/// Address of the switch.
pub(crate) const SWITCH: ReplyTo = ReplyTo { ip: Ipv4Addr::new(10, 0, 0, 254).to_ipv6_mapped(), port: 6477 };

/// Nodes in memory, with a network that takes no time. It loses only frames from and to nodes that are cut off.
pub(crate) struct Net {
    pub(crate) nodes: Vec<Node>,
    pub(crate) events: Vec<Vec<Event>>,
    pub(crate) cut: Vec<bool>,
    /// Side of each node in a partition: nodes on the same side hear each other.
    pub(crate) side: Vec<u8>,
    /// Pairs of nodes that do not hear each other.
    pub(crate) deaf: Vec<(usize, usize)>,
    pub(crate) now: Now,
    pub(crate) outcomes: Vec<(u64, AdminOutcome)>,
    pub(crate) walks: Vec<RingWalk>,
    pub(crate) replies: Vec<(RequestId, Result<Answer, OpError>)>,
    /// Number of requests so far.
    asked: u64,
    pub(crate) switch: Option<Pipeline>,
    /// Whether passes of writes are lost on their way to the switch.
    pub(crate) loses_writes: bool,
    /// Completions that the switch was last told, by partition.
    pub(crate) completed: BTreeMap<u32, u64>,
    /// Receiver and operation of each packet that the switch sent.
    pub(crate) switched: Vec<(usize, Operation)>,
    /// Number of requests to join that newcomers sent.
    pub(crate) joins: usize,
    /// Answers to questions for owners: the answering node, and the receiver.
    pub(crate) answered: Vec<(usize, PeerKey)>,
}

pub(crate) fn key(index: usize) -> PeerKey {
    PeerKey([index as u8 + 1; 32])
}

impl Net {
    pub(crate) fn of(count: usize) -> Net {
        Net::with(count, |config| config)
    }

    /// Returns a network of nodes with these settings.
    pub(crate) fn with(count: usize, settle: impl Fn(NodeConfig) -> NodeConfig) -> Net {
        let time = Time(1_000_000_000);
        let now = Now { time, awake: time, wall: WallMillis(1_000) };
        let mut net = Net {
            nodes: Vec::new(),
            events: Vec::new(),
            cut: Vec::new(),
            side: Vec::new(),
            deaf: Vec::new(),
            now,
            outcomes: Vec::new(),
            walks: Vec::new(),
            replies: Vec::new(),
            asked: 0,
            switch: None,
            loses_writes: false,
            completed: BTreeMap::new(),
            switched: Vec::new(),
            joins: 0,
            answered: Vec::new(),
        };
        for index in 0..count {
            net.add(&settle);
            if net.nodes.iter().any(|node| node.groups().count() > 1) {
                break;
            }
            let until = index + 1;
            net.run_until(|net| {
                net.nodes.iter().all(|node| {
                    let state = node.group().map(Group::state);
                    state.is_some_and(|state| state.members.len() == until && state.recovery.is_empty())
                })
            });
        }
        net
    }

    /// Adds one more node, connected to all.
    pub(crate) fn add(&mut self, settle: impl Fn(NodeConfig) -> NodeConfig) {
        let index = self.nodes.len();
        let mut config = settle(NodeConfig::new(key(index), Incarnation(1)));
        config.durability = Durability::Memory;
        config.fatal_contradictions = true;
        config.found = index == 0;
        self.nodes.push(Node::new(config, index as u64, self.now, Restored::empty()));
        self.events.push(Vec::new());
        self.cut.push(false);
        self.side.push(0);
        for other in 0..index {
            self.nodes[index].handle(self.now, Input::PeerUp(key(other)));
            self.nodes[other].handle(self.now, Input::PeerUp(key(index)));
        }
    }

    /// Returns the contact under which other peers know a node.
    pub(crate) fn contact(&self, index: usize) -> Contact {
        let node = &self.nodes[index];
        Contact { node: node.me, addresses: node.addresses.clone(), name: node.config.name.clone() }
    }

    /// Returns the leader of the first nodes' group.
    pub(crate) fn leader(&self) -> usize {
        let leads = |node: &Node| node.group().is_some_and(|group| group.log().leads());
        self.nodes.iter().position(leads).expect("one leads")
    }

    /// Makes a request, and returns its result.
    pub(crate) fn request(&mut self, index: usize, group: GroupId, request: AdminRequest) -> AdminOutcome {
        let number = self.outcomes.len() as u64;
        self.nodes[index].handle(self.now, Input::AdminRequest { number, group, request });
        self.settle();
        self.run_until(|net| net.outcomes.len() as u64 > number);
        let (told, outcome) = self.outcomes[number as usize].clone();
        assert_eq!(told, number);
        outcome
    }

    /// Splits the one group into its first `count` nodes and the rest, and waits until both groups are at rest.
    pub(crate) fn split(&mut self, count: usize) {
        let id = self.nodes[0].group().expect("it is in one").state().id;
        let split = AdminRequest::Split { at: None, first: (0..count).map(key).collect() };
        assert!(matches!(self.request(0, id, split), AdminOutcome::Done(_)));
        let calm = |node: &Node| {
            let calm = |group: &Group| group.state().is_settled() && group.state().transactions.decided().is_empty();
            node.is_settled() && node.groups().count() == 1 && node.groups().all(calm)
        };
        self.run_until(|net| net.nodes.iter().all(calm));
    }

    /// Makes a request, without waiting for its result.
    pub(crate) fn begin(&mut self, index: usize, group: GroupId, request: AdminRequest) {
        self.nodes[index].handle(self.now, Input::AdminRequest { number: u64::MAX, group, request });
    }

    /// Carries frames, and cuts these nodes off as soon as `is_so` holds, between two messages.
    pub(crate) fn cut_when(&mut self, cut: &[usize], is_so: impl Fn(&Net) -> bool) {
        for _ in 0..1_000 {
            self.settle_but(|net| {
                if !net.cut[cut[0]] && is_so(net) {
                    cut.iter().for_each(|index| net.cut[*index] = true);
                }
            });
            if self.cut[cut[0]] {
                return;
            }
            self.tick();
        }
        panic!("it never came to that");
    }

    /// Returns the owners of ranges, as this node finds them.
    pub(crate) fn walk_ring(&mut self, index: usize, from: Option<Point>, count: usize) -> RingWalk {
        self.nodes[index].handle(self.now, Input::RingWalk { number: 0, from, count });
        self.settle();
        self.run_until(|net| !net.walks.is_empty());
        self.walks.remove(0)
    }

    pub(crate) fn run_for(&mut self, time: Duration) {
        let end = self.now.time + time;
        self.run_until(|net| net.now.time >= end);
    }

    pub(crate) fn run_until(&mut self, done: impl Fn(&Net) -> bool) {
        for _ in 0..6_000 {
            if done(self) {
                return;
            }
            self.tick();
            self.settle();
        }
        let steps: Vec<_> = self.nodes.iter().map(|node| node.status().leaving).collect();
        panic!("it does not come to that: {steps:?}");
    }

    fn tick(&mut self) {
        let time = self.now.time + Duration::from_millis(10);
        self.now = Now { time, awake: time, wall: WallMillis(self.now.wall.0 + 10) };
        for index in 0..self.nodes.len() {
            self.nodes[index].handle(self.now, Input::Tick);
        }
    }

    pub(crate) fn settle(&mut self) {
        self.settle_but(|_| {});
    }

    fn settle_but(&mut self, between: impl Fn(&mut Net)) {
        let mut frames: VecDeque<(usize, PeerKey, Bytes)> = VecDeque::new();
        loop {
            for index in 0..self.nodes.len() {
                while let Some(output) = self.nodes[index].poll_output() {
                    match output {
                        Output::Send { to, frame, .. } => {
                            match wire::decode(&frame, None) {
                                Ok((_, Frame::Join { .. })) => self.joins += 1,
                                Ok((_, Frame::Located(_))) => self.answered.push((index, to)),
                                _ => {}
                            }
                            frames.push_back((index, to, frame));
                        }
                        Output::Event(event) => self.events[index].push(event),
                        Output::AdminOutcome { number, outcome } if number != u64::MAX => {
                            self.outcomes.push((number, outcome))
                        }
                        Output::RingWalked { walk, .. } => self.walks.push(walk),
                        Output::Reply { id, result } => self.replies.push((id, result)),
                        Output::Packet { to, bytes } => self.packet(index, to, &bytes),
                        _ => {}
                    }
                }
            }
            let Some((from, to, frame)) = frames.pop_front() else { return };
            let to = (0..self.nodes.len()).find(|index| key(*index) == to);
            let to = to.filter(|to| !self.deaf.contains(&(from, *to)) && !self.deaf.contains(&(*to, from)));
            if let Some(to) = to.filter(|to| !self.cut[*to] && !self.cut[from] && self.side[*to] == self.side[from]) {
                self.nodes[to].handle(self.now, Input::Frame { from: key(from), frame });
                between(self);
            }
        }
    }

    /// Returns the address at which a node gets packets.
    pub(crate) fn address(index: usize) -> ReplyTo {
        ReplyTo { ip: Ipv4Addr::new(10, 0, 0, index as u8 + 1).to_ipv6_mapped(), port: 7001 }
    }

    /// Carries a packet to the switch, and from there to a node, unless the switch drops it. It takes no time.
    fn packet(&mut self, from: usize, to: ReplyTo, bytes: &[u8]) {
        assert_eq!(to, SWITCH, "packets go to the switch");
        let Some(pipeline) = &mut self.switch else { return };
        let packet = Packet::decode(bytes).expect("one of ours");
        let mut header = packet.header;
        if self.loses_writes && header.operation == Operation::WriteFirst && header.object != NO_OBJECT {
            return;
        }
        if header.operation == Operation::Completion {
            self.completed.insert(header.partition, header.sequence);
        }
        let chance = (self.now.time.0 as u32).wrapping_add(self.switched.len() as u32);
        let to = match pipeline.process(&mut header, chance) {
            Verdict::To(replica) => replica as usize,
            Verdict::On if header.operation == Operation::Reply => {
                (0..self.nodes.len()).find(|index| Net::address(*index) == packet.reply_to).expect("a node asked")
            }
            Verdict::On | Verdict::Drop(_) => return,
        };
        if self.cut[from] || self.cut[to] {
            return;
        }
        let mut bytes = bytes.to_vec();
        header.stamp(&mut bytes);
        self.switched.push((to, header.operation));
        self.nodes[to].handle(self.now, Input::Packet { from: SWITCH, bytes: bytes.into() });
    }

    /// Sets this number of small keys through this node, at once. Returns how many of them were set, and the errors of the
    /// rest.
    pub(crate) fn set(&mut self, index: usize, first: u64, count: u64) -> (usize, Vec<OpError>) {
        let key = |id| Key::new(alloc::format!("k{}", id % 40).as_bytes()).expect("short");
        self.put(index, (first..first + count).map(|id| (key(id), "v".into())).collect())
    }

    /// Begins to set this key through this node.
    pub(crate) fn begin_set(&mut self, index: usize, key: Key, value: Bytes) -> RequestId {
        self.asked += 1;
        let id = RequestId(self.asked);
        let request = Request {
            id,
            connection: ConnectionId(self.asked),
            key,
            op: Op::Set { value, condition: Condition::Always, expiry: Expiry::Clear, get: false },
            mode: ReadMode::Linearizable,
            patience: Duration::from_secs(3),
            once: None,
        };
        self.nodes[index].handle(self.now, Input::Routecast(request));
        id
    }

    /// Sets these keys to these values through this node, at once. Returns the same.
    pub(crate) fn put(&mut self, index: usize, values: Vec<(Key, Bytes)>) -> (usize, Vec<OpError>) {
        self.replies.clear();
        let count = values.len();
        for (key, value) in values {
            self.begin_set(index, key, value);
        }
        self.settle();
        self.run_until(|net| net.replies.len() == count);
        let failed: Vec<OpError> = self.replies.iter().filter_map(|(_, result)| result.clone().err()).collect();
        (self.replies.len() - failed.len(), failed)
    }

    /// Returns the primaries of the first node's group, in ring order.
    pub(crate) fn primaries(&self) -> Vec<NodeId> {
        self.nodes[0].group().expect("is in one").state().division.iter().map(|part| part.node).collect()
    }

    pub(crate) fn leave(&mut self, index: usize, force: bool) {
        self.nodes[index].handle(self.now, Input::Leave { force });
        self.settle();
    }

    pub(crate) fn has_left(&self, index: usize) -> bool {
        self.events[index].contains(&Event::Left)
    }

    pub(crate) fn step(&self, index: usize) -> Option<LeaveStep> {
        self.nodes[index].status().leaving.map(|leaving| leaving.step)
    }
}
