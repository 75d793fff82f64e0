//! The node itself: a group, sessions, and the edge between them and the outside.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use group::Group;
use group::config::{Defects, GroupConfig};
use group::message::{Message, Sender, Write};
use group::op::{Answer, Op, OpError, Read, ReadMode, Refusal};
use group::outbox::GroupOutput;
use group::record::Record;
use group::rng::Rng;
use group::state::{GroupState, Member, Settings};
use group::time::{Now, Time};
use overlay::{Epoch, GroupId, Incarnation, Key, NodeId, PeerKey, RingId};

use crate::api::{Class, ConnectionId, Event, Input, Output, Request, RequestId};
use crate::sessions::{SessionContext, Sessions};
use crate::status::{GroupStatus, MemberStatus, NodeStatus, PrimaryStatus};
use crate::storage::{self, Life};
use crate::wire::{self, Frame, FrameError};

/// What an acknowledgement rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// On disk at a quorum.
    Sync,
    /// In the memory of a quorum; every start is a new incarnation (Scatter §5, diskless Paxos). A node of this kind
    /// hands out no `Persist`, `Load` or `Scan`.
    Memory,
}

/// How long things take. All members of a group should have the same.
#[derive(Clone, Debug)]
pub struct Timing {
    /// Between two heartbeats. Default 500 ms.
    pub heartbeat: Duration,
    /// So many missed heartbeats make a suspect. Default 4.
    pub missed_max: u32,
    /// A lease's length; network-wide. Default 1 s.
    pub lease: Duration,
    /// How far two clocks may drift apart, in 1/1000; network-wide. Default 10 (1 %).
    pub drift_per_mille: u32,
    /// How often the horizon of operation ids is raised; ids live at least so long; network-wide. Default 60 s.
    pub horizon: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            heartbeat: Duration::from_millis(500),
            missed_max: 4,
            lease: Duration::from_secs(1),
            drift_per_mille: 10,
            horizon: Duration::from_secs(60),
        }
    }
}

/// What a node is told at its start and never again.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// This peer.
    pub me: PeerKey,
    /// The incarnation to take where the store does not hold one that may go on: never used before by this peer.
    pub incarnation: Incarnation,
    /// The ring that this peer belongs to, where it has been in one.
    pub ring: Option<RingId>,
    /// Found a network where it belongs to none (`--new`).
    pub found: bool,
    /// What acknowledgements rest on.
    pub durability: Durability,
    /// Leased instead of confirmed reads; only a founder's word counts.
    pub leases: bool,
    /// Where this peer stands, for diversity.
    pub cluster: String,
    /// Records held in memory, in bytes. Under [`Durability::Memory`] also the limit of what is stored.
    pub memory_bytes_max: usize,
    /// The longest value, in bytes; network-wide. Default 64 KiB.
    pub value_bytes_max: usize,
    /// The largest message between members, in bytes; bulk is cut to it. Default 256 KiB.
    pub message_bytes_max: usize,
    /// How long things take.
    pub timing: Timing,
    /// Rules left out on purpose, for tests of the checkers. None in earnest.
    pub defects: Defects,
}

impl NodeConfig {
    /// The defaults for a peer, in this life of it if the store does not say otherwise.
    pub fn new(me: PeerKey, incarnation: Incarnation) -> NodeConfig {
        NodeConfig {
            me,
            incarnation,
            ring: None,
            found: false,
            durability: Durability::Sync,
            leases: false,
            cluster: String::new(),
            memory_bytes_max: 512 << 20,
            value_bytes_max: 64 << 10,
            message_bytes_max: 256 << 10,
            timing: Timing::default(),
            defects: Defects::NONE,
        }
    }
}

/// How the store was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// There was none: a first start, or the old one was moved aside.
    Empty,
    /// Sealed by a clean stop: nothing can be missing.
    Sealed,
    /// Intact as far as it reads, but it may lack its end.
    Unsealed,
}

/// What the store gave back at start.
#[derive(Clone, Debug)]
pub struct Restored {
    /// All small entries.
    pub meta: BTreeMap<Bytes, Bytes>,
    /// How it was left.
    pub tail: Tail,
}

impl Restored {
    /// An empty store.
    pub fn empty() -> Restored {
        Restored { meta: BTreeMap::new(), tail: Tail::Empty }
    }
}

/// What was chosen, as [`Group::watch`] notes it.
pub type WatchedChosen = Vec<(Key, Arc<Record>)>;
/// What was accepted, as [`Group::watch`] notes it.
pub type WatchedAccepted = Vec<Write>;

/// One peer.
pub struct Node {
    config: NodeConfig,
    me: NodeId,
    ring: Option<RingId>,
    now: Now,
    rng: Rng,
    group: Option<Group>,
    sessions: Sessions,
    outputs: VecDeque<Output>,
    connected: BTreeSet<PeerKey>,
    addresses: Vec<String>,
    join_due: Time,
    /// The store has it that this node is in its group: until then nobody hears of it.
    entered: bool,
    ready: bool,
    probe_due: Time,
    stopping: Option<Time>,
    over: bool,
    wake_at: Time,
    frames_dropped: u64,
    answered: u64,
}

/// The connection and request of a node's own question whether it can serve.
const PROBE: (ConnectionId, RequestId) = (ConnectionId(u64::MAX), RequestId(u64::MAX));
/// How often a node outside asks to be let in, and one inside asks itself whether it can serve.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// How long a node that stops waits for others to take its sub-ranges.
const HAND_OVER_MAX: Duration = Duration::from_secs(4);

impl Node {
    /// A node at its start. `seed` feeds its only source of chance.
    pub fn new(config: NodeConfig, seed: u64, now: Now, restored: Restored) -> Node {
        let mut node = Node {
            me: NodeId { peer: config.me, incarnation: config.incarnation },
            ring: config.ring,
            config,
            now,
            sessions: Sessions::new(Rng::new(!seed).draw()),
            rng: Rng::new(seed),
            group: None,
            outputs: VecDeque::new(),
            connected: BTreeSet::new(),
            addresses: Vec::new(),
            join_due: now.time,
            entered: false,
            ready: false,
            probe_due: now.time,
            stopping: None,
            over: false,
            wake_at: Time(0),
            frames_dropped: 0,
            answered: 0,
        };
        node.begin(&restored);
        node
    }

    fn begin(&mut self, restored: &Restored) {
        if self.config.durability == Durability::Sync && restored.tail != Tail::Empty {
            match storage::restore(&restored.meta, restored.tail == Tail::Sealed) {
                Err(error) => {
                    self.over = true;
                    self.event(Event::Reincarnate(format!("{error}: the store is damaged or of a later version")));
                }
                Ok(Some((life, stored))) => {
                    self.me.incarnation = life.incarnation;
                    self.ring = Some(life.ring);
                    let seed = self.rng.draw();
                    let group = Group::restore(self.group_config(), self.me, stored, self.now, seed);
                    self.enter(group);
                }
                Ok(None) => {}
            }
        }
        if self.group.is_none() && self.config.found && self.ring.is_none() && !self.over {
            self.found();
        }
        self.tick();
    }

    /// A new network, of which this node is the first.
    fn found(&mut self) {
        let ring = RingId(u128::from(self.rng.draw()) << 64 | u128::from(self.rng.draw()));
        let id = GroupId(u128::from(self.rng.draw()) << 64 | u128::from(self.rng.draw()));
        let timing = &self.config.timing;
        let settings = Settings {
            leases: self.config.leases,
            lease_ms: timing.lease.as_millis() as u64,
            drift_per_mille: timing.drift_per_mille,
            value_bytes_max: self.config.value_bytes_max as u32,
            horizon_ms: timing.horizon.as_millis() as u64,
        };
        let state = GroupState::founded(ring, id, self.member(), settings);
        let seed = self.rng.draw();
        let group = Group::found(self.group_config(), self.me, state, self.now, seed);
        self.enter(group);
    }

    fn enter(&mut self, group: Group) {
        let ring = group.state().ring;
        self.ring = Some(ring);
        if self.config.durability == Durability::Sync {
            // Together with the group's own first batch, which is still to come: before that, nothing is promised.
            let life = Life { ring, incarnation: self.me.incarnation };
            let changes = alloc::vec![storage::life(&life)];
            self.outputs.push_back(Output::Persist { token: 0, changes });
        }
        self.group = Some(group);
        if self.config.durability == Durability::Memory || self.config.ring == Some(ring) {
            self.entered = true;
            self.event(Event::InRing(ring));
        }
    }

    /// Batches are durable. After the first one a crash finds this node in its group again: before, a founder that died
    /// would found another network, and must not have told anybody of this one (PITFALLS 41).
    fn on_persisted(&mut self, token: u64) {
        if token > 0 && !self.entered {
            self.entered = true;
            if let Some(ring) = self.ring {
                self.event(Event::InRing(ring));
            }
        }
        self.with_group(|group| group.on_persisted(token));
    }

    fn member(&self) -> Member {
        Member {
            node: self.me,
            addresses: self.addresses.clone(),
            cluster: self.config.cluster.clone(),
            joined: self.now.wall,
        }
    }

    fn group_config(&self) -> GroupConfig {
        let timing = group::config::Timing {
            heartbeat: self.config.timing.heartbeat,
            missed_max: self.config.timing.missed_max,
            broken_grace: self.config.timing.heartbeat / 2,
            ..group::config::Timing::default()
        };
        GroupConfig {
            timing,
            durable: self.config.durability == Durability::Sync,
            memory_bytes_max: self.config.memory_bytes_max,
            window_bytes_max: (self.config.memory_bytes_max / 8).clamp(1 << 20, 64 << 20),
            in_flight_max: 4096,
            waiting_max: 1 << 16,
            message_bytes_max: self.config.message_bytes_max,
            divide: |view| policy::division::even(view.range, view.current, view.able, view.calm),
            defects: self.config.defects,
        }
    }

    /// This node, in this life.
    pub fn id(&self) -> NodeId {
        self.me
    }

    /// Its group, for checks.
    pub fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }

    /// As [`Group::watch`], for checks; nothing while something is on its way to the store.
    pub fn watch_group(&mut self) -> Option<(&Group, WatchedChosen, WatchedAccepted)> {
        // What is not durable yet may be gone with a crash, and nobody was told of it.
        let group = self.group.as_mut().filter(|group| group.is_durable())?;
        let (chosen, accepted) = group.watch();
        Some((group, chosen, accepted))
    }

    /// Takes one input; `now` never goes backwards. Outputs queue for [`Node::poll_output`]: hand in all that waits,
    /// then pull, so that one drained batch becomes one frame a peer and one sync.
    pub fn handle(&mut self, now: Now, input: Input) {
        self.set_now(now);
        if self.over {
            if let Input::Request(request) = input {
                self.reply(request.id, Err(OpError::TryAgain(Refusal::NotInGroup)));
            }
            return;
        }
        match input {
            Input::Frame { from, frame } => self.on_frame(from, &frame),
            Input::PeerUp(peer) => {
                self.connected.insert(peer);
                if self.group.is_none() {
                    self.ask_to_join(peer);
                }
            }
            Input::PeerDown(peer) => {
                self.connected.remove(&peer);
                self.with_group(|group| group.on_broken(peer));
            }
            Input::Request(request) => self.on_request(request),
            Input::Persisted(token) => self.on_persisted(token),
            Input::StoreFailed(why) => {
                self.with_group(Group::on_store_failed);
                self.event(Event::Fatal(why));
            }
            Input::DiskLow(low) => self.with_group(|group| group.on_disk_low(low)),
            Input::Loaded { record_key, record } => self.on_loaded(&record_key, record.as_deref()),
            Input::Scanned { token, records, done } => self.on_scanned(token, records, done),
            Input::Tick => {}
            Input::Addresses(addresses) => {
                let addresses = group::nonsense::acceptable(addresses);
                self.addresses.clone_from(&addresses);
                self.with_group(|group| group.set_addresses(addresses));
            }
            Input::Stop => {
                self.stopping.get_or_insert(now.time);
                self.with_group(Group::leave_soon);
            }
        }
        if self.now.time >= self.wake_at {
            self.tick();
        }
    }

    fn with_group(&mut self, act: impl FnOnce(&mut Group)) {
        if let Some(group) = &mut self.group {
            act(group);
        }
    }

    fn set_now(&mut self, now: Now) {
        self.now = now;
        if let Some(group) = &mut self.group {
            group.set_now(now);
        }
    }

    /// The next thing to do, until `None`.
    pub fn poll_output(&mut self) -> Option<Output> {
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return Some(output);
            }
            let Some(output) = self.group.as_mut().and_then(Group::poll_output) else { break };
            self.carry(output);
        }
        let wake_at = self.next_timeout();
        if wake_at != self.wake_at {
            self.wake_at = wake_at;
            return Some(Output::WakeAt(wake_at));
        }
        None
    }

    /// What this node knows, for a person to see.
    pub fn status(&self) -> NodeStatus {
        NodeStatus {
            node: self.me,
            ready: self.ready,
            group: self.group.as_ref().map(group_status),
            operations: self.sessions.len(),
            frames_dropped: self.frames_dropped,
            answered: self.answered,
        }
    }

    /// Carries what the group wants done to the outside.
    fn carry(&mut self, output: GroupOutput) {
        match output {
            GroupOutput::Send(to, message, epoch) => self.send(&to, message, epoch),
            GroupOutput::Persist(token, durable) => {
                let mut changes = Vec::with_capacity(durable.len());
                for change in durable {
                    storage::changes(change, &mut changes);
                }
                self.outputs.push_back(Output::Persist { token, changes });
            }
            GroupOutput::Load(key) => {
                let record_key = storage::record_key(&key);
                self.outputs.push_back(Output::Load { record_key });
            }
            GroupOutput::Scan(token, from, bytes_max) => {
                let from = storage::scan_start(from.as_ref());
                self.outputs.push_back(Output::Scan { token, from, bytes_max });
            }
            GroupOutput::Outcome(attempt, outcome) => {
                self.with_sessions(|sessions, ctx| sessions.on_outcome(ctx, attempt, outcome));
            }
            GroupOutput::Changed => self.on_changed(),
            GroupOutput::Over(why) => {
                self.over = true;
                self.ready = false;
                self.with_sessions(Sessions::stop);
                self.event(Event::Reincarnate(why.to_string()));
            }
            GroupOutput::Note(text) => self.event(Event::Note(text.into())),
        }
    }

    fn with_sessions(&mut self, act: impl FnOnce(&mut Sessions, &mut SessionContext<'_>)) {
        let before = self.outputs.len();
        let mut ctx =
            SessionContext { now: self.now, group: self.group.as_mut(), outputs: &mut self.outputs, me: self.me };
        act(&mut self.sessions, &mut ctx);
        self.catch_probe(before);
    }

    /// The node's own question was answered: it can serve.
    fn catch_probe(&mut self, from: usize) {
        let mut index = from;
        while index < self.outputs.len() {
            match &self.outputs[index] {
                Output::Reply { id, result } if *id == PROBE.1 => {
                    let served = result.is_ok();
                    self.outputs.remove(index);
                    if served && !self.ready {
                        self.ready = true;
                        self.event(Event::Ready);
                    }
                }
                Output::Reply { .. } => {
                    self.answered += 1;
                    index += 1;
                }
                _ => index += 1,
            }
        }
    }

    fn send(&mut self, to: &[NodeId], message: Message, epoch: Epoch) {
        let Some(group) = &self.group else { return };
        let class = wire::class_of(&message);
        let sender = Sender { node: self.me, epoch };
        let frame = Frame::Group { ring: group.state().ring, group: group.state().id, sender, message };
        let frame = wire::encode(&frame);
        for node in to {
            self.outputs.push_back(Output::Send { to: node.peer, class, frame: frame.clone() });
        }
    }

    fn on_frame(&mut self, from: PeerKey, frame: &[u8]) {
        if self.group.is_some() && !self.entered {
            return;
        }
        match wire::decode(frame) {
            Ok(Frame::Group { ring, group, sender, message }) => {
                if sender.node.peer != from || self.ring.is_some_and(|mine| mine != ring) {
                    self.frames_dropped += 1;
                } else if let Some(mine) = &mut self.group {
                    if mine.state().id == group {
                        mine.on_message(sender, message);
                    }
                } else if let Message::State(state) = message {
                    self.on_invitation(*state);
                }
            }
            Ok(Frame::Join { ring, member }) => {
                let Some(group) = &mut self.group else { return };
                if member.node.peer != from || ring.is_some_and(|ring| ring != group.state().ring) {
                    self.frames_dropped += 1;
                    return;
                }
                let sender = Sender { node: member.node, epoch: group.state().epoch };
                group.on_message(sender, Message::Join(member));
            }
            Ok(Frame::NotUnderstood { version }) => {
                self.event(Event::Note(format!("{from:?} does not understand frames of version {version}")));
            }
            Err(FrameError::Version(_)) => {
                self.frames_dropped += 1;
                let frame = wire::encode(&Frame::NotUnderstood { version: wire::FRAME_VERSION });
                self.outputs.push_back(Output::Send { to: from, class: Class::Control, frame });
            }
            Err(FrameError::Malformed) => self.frames_dropped += 1,
        }
    }

    /// A group's state came to a node outside: it is in, or learns which incarnation would be.
    fn on_invitation(&mut self, state: GroupState) {
        if !state.is_sound() {
            self.frames_dropped += 1;
            return;
        }
        match state.last_life(self.me.peer) {
            Some(node) if node == self.me => {
                let seed = self.rng.draw();
                let group = Group::join(self.group_config(), self.me, state, self.now, seed);
                self.enter(group);
                let addresses = self.addresses.clone();
                self.with_group(|group| group.set_addresses(addresses));
            }
            Some(node) if node > self.me => {
                // It has lived there before, with a later incarnation than its clock gave it now.
                self.me.incarnation = Incarnation(node.incarnation.0 + 1 + self.rng.below(1 << 16));
                self.join_due = self.now.time;
            }
            _ => {}
        }
    }

    fn ask_to_join(&mut self, peer: PeerKey) {
        let frame = wire::encode(&Frame::Join { ring: self.ring, member: self.member() });
        self.outputs.push_back(Output::Send { to: peer, class: Class::Control, frame });
    }

    fn on_request(&mut self, request: Request) {
        if self.stopping.is_some() && self.group.as_ref().is_none_or(Group::is_idle) {
            let error = OpError::TryAgain(Refusal::Stopping);
            self.reply(request.id, Err(error));
            return;
        }
        self.with_sessions(|sessions, ctx| sessions.submit(ctx, request));
    }

    fn on_loaded(&mut self, record_key: &[u8], record: Option<&[u8]>) {
        let Some(key) = storage::key_of(record_key) else { return };
        match record.map(storage::decode_record).transpose() {
            Ok(record) => self.with_group(|group| group.on_loaded(&key, record)),
            Err(error) => self.damaged(&error.to_string()),
        }
    }

    fn on_scanned(&mut self, token: u64, records: Vec<(Bytes, Bytes)>, done: bool) {
        let mut decoded = Vec::with_capacity(records.len());
        for (key, value) in records {
            match (storage::key_of(&key), storage::decode_record(&value)) {
                (Some(key), Ok(record)) => decoded.push((key, record)),
                _ => return self.damaged("a stored record cannot be read"),
            }
        }
        self.with_group(|group| group.on_scanned(token, decoded, done));
    }

    /// Damage is *unknown*, never *empty*: this life ends.
    fn damaged(&mut self, what: &str) {
        self.with_group(Group::on_store_failed);
        self.over = true;
        self.ready = false;
        self.with_sessions(Sessions::stop);
        self.event(Event::Reincarnate(what.to_string()));
    }

    /// The group's state changed: others may have to be reached, operations may have to go elsewhere.
    fn on_changed(&mut self) {
        let Some(group) = &self.group else { return };
        let all = group.state().members.iter().chain(&group.state().learners);
        for member in all.filter(|member| member.node.peer != self.me.peer && !member.addresses.is_empty()) {
            let (peer, addresses) = (member.node.peer, member.addresses.clone());
            self.outputs.push_back(Output::Dial { peer, addresses });
        }
        self.with_sessions(Sessions::on_division);
    }

    fn tick(&mut self) {
        if self.over {
            return;
        }
        self.with_group(Group::tick);
        self.with_sessions(Sessions::tick);
        if self.group.is_none() && self.now.time >= self.join_due {
            self.join_due = self.now.time + ASK_AGAIN;
            let connected: Vec<PeerKey> = self.connected.iter().copied().collect();
            for peer in connected {
                self.ask_to_join(peer);
            }
        }
        if self.group.is_some() && !self.ready && self.now.time >= self.probe_due {
            self.probe_due = self.now.time + ASK_AGAIN;
            self.probe();
        }
        if let Some(since) = self.stopping {
            let idle = self.group.as_ref().is_none_or(Group::is_idle) && self.sessions.is_empty();
            if idle || self.now.time.since(since) >= HAND_OVER_MAX {
                self.over = true;
                self.with_sessions(Sessions::stop);
                self.event(Event::Stopped);
            }
        }
    }

    /// Asks itself what a client might ask.
    fn probe(&mut self) {
        let Ok(key) = Key::new(b"") else { return };
        let request = Request {
            id: PROBE.1,
            connection: PROBE.0,
            key,
            op: Op::Read(Read::Exists),
            mode: ReadMode::Linearizable,
            patience: ASK_AGAIN,
            once: None,
        };
        self.with_sessions(|sessions, ctx| sessions.submit(ctx, request));
    }

    fn next_timeout(&mut self) -> Time {
        if self.over {
            return Time::NEVER;
        }
        let mut next = self.sessions.next_timeout();
        match &mut self.group {
            Some(group) => {
                next = next.min(group.next_timeout());
                if !self.ready {
                    next = next.min(self.probe_due);
                }
            }
            None => next = next.min(self.join_due),
        }
        if self.stopping.is_some() {
            next = next.min(self.now.time + ASK_AGAIN / 10);
        }
        // Never in the past, and not so often that nothing else gets done.
        next.max(self.now.time + Duration::from_millis(1))
    }

    fn reply(&mut self, id: RequestId, result: Result<Answer, OpError>) {
        self.answered += 1;
        self.outputs.push_back(Output::Reply { id, result });
    }

    fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }
}

fn group_status(group: &Group) -> GroupStatus {
    let state = group.state();
    let hears = group.hears();
    let member = |member: &Member, votes| MemberStatus {
        node: member.node,
        cluster: member.cluster.clone(),
        joined: member.joined,
        votes,
        alive: member.node == group.me() || hears.contains(&member.node),
        addresses: member.addresses.clone(),
    };
    let mut members: Vec<MemberStatus> = state.members.iter().map(|m| member(m, true)).collect();
    members.extend(state.learners.iter().map(|m| member(m, false)));
    let primaries = state.parts().map(|(range, ballot)| PrimaryStatus {
        range,
        node: ballot.node,
        term: ballot.term,
        serving: group.primaries().any(|primary| primary.ballot() == ballot && primary.is_serving()),
    });
    GroupStatus {
        ring: state.ring,
        id: state.id,
        epoch: state.epoch,
        applied: state.applied,
        range: state.range,
        members,
        leader: group.leader(),
        primaries: primaries.collect(),
        established: state.recovery.is_empty(),
        records: group.table().len(),
        bytes: group.table().bytes(),
        whole: group.table().is_whole(),
        catching_up: group.catch_up(),
        dropped: group.dropped(),
    }
}
