//! Six real nodes in two groups of three, one of which lies, and clients.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use group::Group;
use group::ballot::Number;
use group::op::{Condition, Expiry, LeaseOp, Op, Read, ReadMode};
use group::record::Record;
use group::validate::Violation;
use node::wire::{self, Frame, Stamp};
use node::{
    AdminRequest, ConnectionId, Durability, Event, Input, Node, NodeConfig, Output, Request, RequestId, Restored,
    Timing,
};
use overlay::rng::Rng;
use overlay::time::{Now, Time, WallMillis};
use overlay::{Epoch, GroupId, Incarnation, Key, PeerKey, Point};

use crate::change::{Fields, changed, kind};
use crate::made::made;

const NODES: usize = 6;
/// Upper limit of frames that are kept to be repeated.
const POOL_MAX: usize = 600;
const KEYS: u64 = 24;

/// Topic of the liar: one lie about everything may leave a node with nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    /// Replication: bases, writes, promises, catching up.
    Committees,
    /// The group's log, heartbeats and related messages.
    Log,
    /// Whole states, and their effects.
    States,
    /// Messages between groups, copies, handovers.
    Groups,
    /// Messages outside of groups, and clients' operations.
    Outside,
    /// All messages.
    All,
    /// All messages, word for word, at another time, to another node, or in another peer's name.
    Replays,
}

impl Theme {
    pub const ALL: [Theme; 7] =
        [Theme::Committees, Theme::Log, Theme::States, Theme::Groups, Theme::Outside, Theme::All, Theme::Replays];

    /// Returns the theme of a seed.
    pub fn of(seed: u64) -> Theme {
        Theme::ALL[(seed % Theme::ALL.len() as u64) as usize]
    }

    fn is_about(self, kind: &str) -> bool {
        match self {
            Theme::Committees => kind.starts_with("Committee"),
            Theme::Log => {
                let log =
                    ["AskPromise", "WouldPromise", "Prepare", "Promised", "Accept", "Accepted", "Refused", "Lead"];
                log.contains(&kind) || ["Heartbeat", "Progress", "Vouch", "AskVouch", "Join", "Wait"].contains(&kind)
            }
            Theme::States => ["State", "Promised", "Addresses"].contains(&kind),
            Theme::Groups => {
                kind.starts_with("Envelope")
                    || ["Copied", "AskCopy", "Handover", "CopyOrder", "CopyTold", "State"].contains(&kind)
            }
            Theme::Outside => {
                let words = [
                    "Locate",
                    "Located",
                    "Astray",
                    "Sample",
                    "Sampled",
                    "AdminRequest",
                    "AdminOutcome",
                    "Probe",
                    "Probed",
                ];
                words.contains(&kind) || ["Join", "Client", "Declined", "Patience"].contains(&kind)
            }
            Theme::All | Theme::Replays => true,
        }
    }
}

struct Kept {
    from: usize,
    kind: String,
    fields: Fields,
}

/// A node, one of its groups with the epoch of its birth, and a key.
type Place = (usize, (GroupId, Epoch), Key);

pub struct Network {
    pub theme: Theme,
    pub lies: usize,
    seed: u64,
    rng: Rng,
    pub nodes: Vec<Node>,
    liar: usize,
    pub now: Now,
    frames: VecDeque<(usize, usize, Bytes)>,
    /// Start of each peer, in its stamp.
    stamps: BTreeMap<PeerKey, Stamp>,
    pool: VecDeque<Kept>,
    /// Node that hears no other node, until this time.
    away: Option<(usize, Time)>,
    /// Records that each node knew to be chosen.
    chosen: BTreeMap<Place, (Number, Record)>,
    last_lie: Option<(usize, Fields)>,
    asked: u64,
    stores: Vec<Store>,
    pub answered: u64,
    /// Number of times that nodes sent more at once than any honest input causes.
    storms: u32,
}

/// A node's store: as quick as one in memory can be.
#[derive(Default)]
struct Store {
    meta: BTreeMap<Bytes, Bytes>,
    records: BTreeMap<Bytes, Bytes>,
}

impl Store {
    fn change(&mut self, change: node::Change) {
        use node::Change;
        match change {
            Change::PutMeta(key, value) => drop(self.meta.insert(key, value)),
            Change::DropMeta(from, to) => self.meta.retain(|key, _| *key < from || *key >= to),
            Change::Promote { from, to, strip } => {
                for (key, value) in self.meta.iter_mut().filter(|(key, _)| **key >= from && **key < to) {
                    if !value.is_empty() && key.len() >= strip {
                        self.records.insert(key.slice(strip..), std::mem::take(value));
                    }
                }
            }
            Change::PutRecord(key, value) => drop(self.records.insert(key, value)),
            Change::DropRecord(key) => drop(self.records.remove(&key)),
        }
    }
}

fn key(index: usize) -> PeerKey {
    PeerKey([index as u8 + 1; 32])
}

fn keys() -> Vec<PeerKey> {
    (0..NODES + 1).map(key).collect()
}

fn name(n: u64) -> Key {
    Key::new(format!("key {n}").as_bytes()).unwrap()
}

impl Network {
    pub fn new(seed: u64) -> Network {
        let mut rng = Rng::new(seed ^ 0x11e5);
        let time = Time(1_000_000_000);
        Network {
            theme: Theme::of(seed),
            lies: 0,
            seed,
            liar: rng.below(NODES as u64) as usize,
            rng,
            nodes: Vec::new(),
            now: Now { time, awake: time, wall: WallMillis(1_000) },
            frames: VecDeque::new(),
            stamps: BTreeMap::new(),
            pool: VecDeque::new(),
            away: None,
            chosen: BTreeMap::new(),
            last_lie: None,
            asked: 0,
            answered: 0,
            storms: 0,
            stores: (0..NODES).map(|_| Store::default()).collect(),
        }
    }

    pub fn now_ms(&self) -> u64 {
        self.now.time.0 / 1_000_000
    }

    pub fn last_lie(&self) -> String {
        match &self.last_lie {
            Some((to, fields)) => format!("to {to}: {:?}", fields.frame()),
            None => "none".into(),
        }
    }

    fn config(&self, index: usize, incarnation: u64) -> NodeConfig {
        let second = Duration::from_secs(1);
        let timing =
            Timing { purge_every: 2 * second, horizon: second, exclude_after: 3 * second, ..Timing::default() };
        let mut config = NodeConfig::new(key(index), Incarnation(incarnation));
        config.durability = if self.seed & 8 == 0 { Durability::Memory } else { Durability::Sync };
        (config.coarse, config.leases) = (self.seed & 16 != 0, self.seed & 32 != 0);
        (config.members_min, config.timing) = (1, timing);
        config.found = index == 0 && incarnation == 1;
        config.memory_bytes_max = 8 << 20;
        config
    }

    fn begin(&mut self, index: usize, incarnation: u64) {
        let node = Node::new(self.config(index, incarnation), self.seed ^ index as u64, self.now, Restored::empty());
        self.stamps.remove(&key(index));
        if index < self.nodes.len() {
            self.nodes[index] = node;
        } else {
            self.nodes.push(node);
        }
        self.stores[index] = Store::default();
        self.chosen.retain(|(of, _, _), _| *of != index);
        for other in (0..self.nodes.len()).filter(|other| *other != index) {
            self.nodes[index].handle(self.now, Input::PeerUp(key(other)));
            self.nodes[other].handle(self.now, Input::PeerUp(key(index)));
        }
    }

    /// Sets up two groups of three, without lies.
    pub fn settle_in(&mut self) {
        for index in 0..NODES {
            self.begin(index, 1);
            self.until(|network| {
                let is_in = |node: &Node| {
                    let state = node.group().map(Group::state);
                    state.is_some_and(|state| state.members.len() == index + 1 && state.is_settled())
                };
                network.nodes.iter().all(is_in)
            });
        }
        self.pool.clear();
        let group = self.nodes[0].group().unwrap().state().id;
        let request = AdminRequest::Split { at: Some(Point(1 << 127)), first: (0..NODES / 2).map(key).collect() };
        self.nodes[0].handle(self.now, Input::AdminRequest { number: 0, group, request });
        self.until(|network| {
            let id = |index: usize| network.nodes[index].group().map(|group| group.state().id);
            let is_calm = |node: &Node| node.is_settled() && node.groups().count() == 1;
            id(0) != id(NODES / 2) && network.nodes.iter().all(is_calm)
        });
    }

    fn until(&mut self, done: impl Fn(&Network) -> bool) {
        for _ in 0..4_000 {
            if done(self) {
                return;
            }
            self.tick();
            self.carry(false);
        }
        panic!("it does not come to that");
    }

    fn tick(&mut self) {
        let time = self.now.time + Duration::from_millis(10);
        self.now = Now { time, awake: time, wall: WallMillis(self.now.wall.0 + 10) };
        for node in &mut self.nodes {
            node.handle(self.now, Input::Tick);
        }
    }

    /// Runs ten milliseconds: clients submit operations, groups change, a node is away, and the liar lies.
    pub fn step(&mut self) {
        if self.rng.below(3) == 0 {
            self.ask();
        }
        if self.rng.below(60) == 0 {
            self.request();
        }
        match self.away {
            None if self.rng.below(150) == 0 => {
                let until = self.now.time + Duration::from_millis(200 + self.rng.below(5_000));
                self.away = Some((self.rng.below(NODES as u64) as usize, until));
            }
            Some((_, until)) if self.now.time >= until => self.away = None,
            _ => {}
        }
        self.tick();
        self.carry(true);
        for _ in 0..4 {
            self.lie(None);
        }
        self.carry(true);
        self.check();
    }

    fn ask(&mut self) {
        let value = Bytes::from(format!("{}", self.asked));
        let (condition, expiry) = (Condition::Always, Expiry::Clear);
        let op = match self.rng.below(6) {
            0 => Op::Read(Read::Value),
            1 => Op::Delete { condition, get: false },
            2 => Op::Add(1),
            3 => Op::Lease(LeaseOp::Acquire { holder: value, term: Duration::from_secs(1) }),
            _ => Op::Set { value, condition, expiry, get: self.rng.below(2) == 0 },
        };
        self.asked += 1;
        let (id, connection) = (RequestId(self.asked), ConnectionId(self.asked % 5));
        let (key, patience) = (name(self.rng.below(KEYS)), Duration::from_secs(1));
        let request = Request { id, connection, key, op, mode: ReadMode::Linearizable, patience, once: None };
        let index = self.rng.below(NODES as u64) as usize;
        self.nodes[index].handle(self.now, Input::Routecast(request));
    }

    fn request(&mut self) {
        let index = self.rng.below(NODES as u64) as usize;
        let Some(state) = self.nodes[index].group().map(|group| group.state().clone()) else { return };
        let half = state.range.cut_at(1, 2);
        let request = match self.rng.below(5) {
            0 => AdminRequest::Merge,
            1 => AdminRequest::Split { at: None, first: Vec::new() },
            2 => AdminRequest::Migrate { to: vec![key(index)], from: Vec::new() },
            3 => AdminRequest::UseSwitch { on: true },
            _ => AdminRequest::Repartition { at: half },
        };
        self.asked += 1;
        self.nodes[index].handle(self.now, Input::AdminRequest { number: self.asked, group: state.id, request });
    }

    /// Carries the frames under way; with lies, the liar lies about some of them.
    fn carry(&mut self, lies: bool) {
        // A lie may make nodes send without end.
        for _ in 0..3_000 {
            for index in 0..self.nodes.len() {
                self.poll(index);
            }
            let Some((from, to, frame)) = self.frames.pop_front() else { return };
            if self.away.is_some_and(|(index, _)| index == from || index == to) {
                continue;
            }
            if let Entry::Vacant(place) = self.stamps.entry(key(from))
                && let Ok((stamp, _)) = wire::decode(&frame, None)
            {
                place.insert(Stamp { to: 0, ..stamp });
            }
            if lies && self.rng.below(12) == 0 {
                self.note(from, &frame);
            }
            self.nodes[to].handle(self.now, Input::Frame { from: key(from), frame: frame.clone() });
            if lies && from == self.liar && self.rng.below(3) == 0 {
                self.note(from, &frame);
                self.lie(self.pool.len().checked_sub(1));
            }
        }
        self.frames.clear();
        self.storms += 1;
        assert!(self.storms < 200, "the nodes talk without end");
    }

    fn poll(&mut self, index: usize) {
        let mut over = false;
        while let Some(output) = self.nodes[index].poll_output() {
            match output {
                Output::Send { to, frame, .. } => {
                    let to = (0..self.nodes.len()).find(|other| key(*other) == to);
                    self.frames.extend(to.map(|to| (index, to, frame)));
                }
                Output::Persist { token, changes } => {
                    changes.into_iter().for_each(|change| self.stores[index].change(change));
                    self.nodes[index].handle(self.now, Input::Persisted(token));
                }
                Output::Load { record_key, .. } => {
                    let record = self.stores[index].records.get(&record_key).cloned();
                    self.nodes[index].handle(self.now, Input::Loaded { record_key, record });
                }
                Output::Scan { token, from, .. } => {
                    let mut rest = self.stores[index].records.range(from..);
                    let page = rest.by_ref().take(5).map(|(key, value)| (key.clone(), value.clone())).collect();
                    let done = rest.next().is_none();
                    self.nodes[index].handle(self.now, Input::Scanned { token, records: page, done });
                }
                Output::Reply { result: Ok(_), .. } => self.answered += 1,
                Output::Event(
                    Event::Reincarnate { .. }
                    | Event::Damaged(_)
                    | Event::StartAgain(_)
                    | Event::Quarantine(_)
                    | Event::Left
                    | Event::Stopped
                    | Event::Fatal(_),
                ) => over = true,
                _ => {}
            }
        }
        if over {
            let incarnation = self.nodes[index].id().incarnation.0.saturating_add(1);
            self.begin(index, incarnation);
        }
    }

    /// Keeps a frame for later lies.
    fn note(&mut self, from: usize, frame: &[u8]) {
        let Ok((_, frame)) = wire::decode(frame, None) else { return };
        let kind = kind(&frame);
        if self.theme.is_about(&kind) {
            self.pool.push_back(Kept { from, kind, fields: Fields::of(&frame, &keys()) });
            if self.pool.len() > POOL_MAX {
                let gone = self.rng.below(POOL_MAX as u64) as usize;
                self.pool.remove(gone);
            }
        }
    }

    /// Returns the numbers of messages that the nodes dropped, of contradictions that they noticed, and of nodes that
    /// halted a group.
    pub fn noticed(&self) -> [u64; 3] {
        let groups = || self.nodes.iter().flat_map(Node::groups);
        let contradictions = groups().map(|group| group.dropped().of(Violation::Contradiction)).sum();
        let halted = groups().filter(|group| group.halted().is_some()).count() as u64;
        [groups().map(|group| group.dropped().total()).sum(), contradictions, halted]
    }

    /// Has the liar invent a lie.
    fn make_up(&mut self) {
        let to = (self.liar + 1 + self.rng.below(NODES as u64 - 1) as usize) % NODES;
        let other = self.rng.below(NODES as u64) as usize;
        let liar = self.nodes[self.liar].id();
        for _ in 0..8 {
            let lie = made(&mut self.rng, liar, &self.nodes[to], Some(&self.nodes[other]));
            if let Some(frame) = lie.filter(|frame| self.theme.is_about(&kind(frame))) {
                return self.tell(to, &frame);
            }
        }
    }

    /// Sends a frame to a node: in a group from the sender that it names, otherwise from the liar.
    pub fn tell(&mut self, to: usize, frame: &Frame) {
        self.last_lie = Some((to, Fields::of(frame, &keys())));
        self.lies += 1;
        let from = match frame {
            Frame::Group { sender, .. } => sender.node.peer,
            _ => key(self.liar),
        };
        let stamp = self.stamp_of(from);
        self.nodes[to].handle(self.now, Input::Frame { from, frame: wire::encode(&stamp, frame, None) });
    }

    /// Returns the stamp with the start of a peer that counts; with another one, no frame of the peer would count.
    pub fn stamp_of(&self, peer: PeerKey) -> Stamp {
        self.stamps.get(&peer).copied().unwrap_or_default()
    }

    /// Has the liar lie about this frame, or about a random one, to a random node.
    fn lie(&mut self, about: Option<usize>) {
        if self.theme != Theme::Replays && self.rng.below(2) == 0 {
            return self.make_up();
        }
        if self.pool.is_empty() {
            return;
        }
        let about = about.unwrap_or_else(|| self.rng.below(self.pool.len() as u64) as usize);
        let kept = &self.pool[about];
        let mut fields = kept.fields.clone();
        if kept.from != self.liar {
            fields.rename(key(kept.from), key(self.liar));
        }
        if self.theme != Theme::Replays {
            let like = self.pool.iter().filter(|other| other.kind == kept.kind).map(|other| &other.fields);
            let like: Vec<&Fields> = like.collect();
            let Some(lie) = changed(&fields, &like, &keys(), &mut self.rng) else { return };
            fields = lie;
        }
        let to = (self.liar + 1 + self.rng.below(NODES as u64 - 1) as usize) % NODES;
        let Some(mut frame) = fields.frame() else { return };
        if let Frame::Group { sender, group, .. } = &mut frame {
            // Otherwise the frame is dropped before it is read.
            sender.node.peer = key(self.liar);
            if self.rng.below(4) > 0 {
                sender.node = self.nodes[self.liar].id();
                if let Some(known) = self.nodes[to].groups().next().map(Group::state).filter(|_| self.rng.below(4) > 0)
                {
                    (sender.epoch, *group) = (known.epoch, known.id);
                }
            }
        }
        self.tell(to, &frame);
    }

    /// Checks that each record that an honest node knows to be chosen stays, and never becomes another value.
    fn check(&mut self) {
        for (index, node) in self.nodes.iter().enumerate().filter(|(index, _)| *index != self.liar) {
            let mut here = BTreeSet::new();
            for group in node.groups() {
                // A group that is born under the same id may hold records that other members reported.
                let id = (group.state().id, group.state().born);
                here.insert(id);
                for (key, record) in group.table().iter() {
                    let known = self.chosen.entry((index, id, key.clone()));
                    let (number, value) = known.or_insert_with(|| (record.number, (**record).clone()));
                    if *number == record.number {
                        let same = (&value.value, value.version) == (&record.value, record.version);
                        assert!(same, "{index} had {value:?} and has {record:?} of {key:?}");
                    }
                    assert!(*number <= record.number, "{index} had {value:?} and has {record:?} of {key:?}");
                    (*number, *value) = (record.number, (**record).clone());
                }
            }
            self.chosen.retain(|(of, group, _), _| *of != index || here.contains(group));
        }
    }
}
