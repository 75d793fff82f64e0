//! The node itself: a group, sessions, and the edge between them and the outside.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use group::Group;
use group::ballot::Slot;
use group::config::GroupConfig;
use group::message::Write;
use group::op::{Answer, Op, OpError, Read, ReadMode, Refusal};
use group::outbox::GroupOutput;
use group::record::Record;
use group::rng::Rng;
use group::state::{GroupState, Member, Settings};
use group::time::{Now, Time};
use overlay::{GroupId, Key, NodeId, PeerKey, RingId};

use crate::api::{ConnectionId, Event, Input, Output, Request, RequestId};
use crate::config::{Durability, NodeConfig, Restored, Tail};
use crate::leaving::LeaveStep;
use crate::sessions::{SessionContext, Sessions};
use crate::status::{GroupStatus, NodeStatus};
use crate::storage::{self, Life, Space};

/// What was chosen, as [`Group::watch`] notes it.
pub type WatchedChosen = Vec<(Key, Arc<Record>)>;
/// What was accepted, as [`Group::watch`] notes it.
pub type WatchedAccepted = Vec<Write>;

/// One peer.
pub struct Node {
    pub(crate) config: NodeConfig,
    pub(crate) me: NodeId,
    pub(crate) ring: Option<RingId>,
    pub(crate) now: Now,
    pub(crate) rng: Rng,
    pub(crate) group: Option<Group>,
    sessions: Sessions,
    pub(crate) outputs: VecDeque<Output>,
    connected: BTreeSet<PeerKey>,
    pub(crate) addresses: Vec<String>,
    pub(crate) join_due: Time,
    /// The store has it that this node is in its group: until then nobody hears of it.
    pub(crate) entered: bool,
    pub(crate) ready: bool,
    probe_due: Time,
    pub(crate) stopping: Option<Time>,
    /// It leaves for good, and perhaps insists.
    pub(crate) leaving: Option<bool>,
    /// What it was last said to wait for.
    pub(crate) leave_step: Option<LeaveStep>,
    pub(crate) over: bool,
    wake_at: Time,
    /// When it last looked at its timers.
    ticked: Time,
    pub(crate) frames_dropped: u64,
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
            leaving: None,
            leave_step: None,
            over: false,
            wake_at: Time(0),
            ticked: now.time,
            frames_dropped: 0,
            answered: 0,
        };
        node.begin(&restored);
        node
    }

    fn begin(&mut self, restored: &Restored) {
        if self.config.durability == Durability::Sync && restored.tail != Tail::Empty {
            match self.space().restore(&restored.meta, restored.tail == Tail::Sealed) {
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
            coarse: self.config.coarse,
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

    pub(crate) fn enter(&mut self, group: Group) {
        let ring = group.state().ring;
        self.ring = Some(ring);
        if self.config.durability == Durability::Sync {
            // Together with the group's own first batch, which is still to come: before that, nothing is promised.
            let life = Life { ring, incarnation: self.me.incarnation };
            let changes = alloc::vec![self.space().life(&life)];
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

    fn space(&self) -> Space {
        Space(self.config.lane)
    }

    pub(crate) fn member(&self) -> Member {
        Member {
            node: self.me,
            addresses: self.addresses.clone(),
            cluster: self.config.cluster.clone(),
            joined: self.now.wall,
            since: Slot(0),
        }
    }

    pub(crate) fn group_config(&self) -> GroupConfig {
        let timing = group::config::Timing {
            heartbeat: self.config.timing.heartbeat,
            missed_max: self.config.timing.missed_max,
            broken_grace: self.config.timing.heartbeat / 2,
            exclude_after: self.config.timing.exclude_after,
            purge_every: self.config.timing.purge_every,
            ..group::config::Timing::default()
        };
        GroupConfig {
            timing,
            durable: self.config.durability == Durability::Sync,
            memory_bytes_max: self.config.memory_bytes_max,
            window_bytes_max: (self.config.memory_bytes_max / 8).clamp(1 << 20, 64 << 20),
            in_flight_max: 4096,
            waiting_max: 1 << 16,
            transfer_bytes_per_s: self.config.transfer_bytes_per_s,
            message_bytes_max: self.config.message_bytes_max,
            divide: |view| policy::division::even(view.range, view.current, view.able, view.calm),
            defects: self.config.defects,
        }
    }

    /// This node, in this life.
    pub fn id(&self) -> NodeId {
        self.me
    }

    /// Is somebody there?
    pub fn is_connected(&self) -> bool {
        !self.connected.is_empty()
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

    /// As [`Group::stop_epoch`], for tests.
    pub fn stop_epoch(&mut self) {
        self.with_group(Group::stop_epoch);
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
            Input::StoreBehind(behind) => self.with_group(|group| group.on_store_behind(behind)),
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
                let away = self.config.away;
                // Who leaves hands over as it is, and need not be waited for.
                if self.leaving.is_none() {
                    self.with_group(|group| group.stop_soon(away));
                }
            }
            Input::Leave { force } => self.leave(force),
        }
        if self.now.time >= self.wake_at {
            self.tick();
        }
    }

    pub(crate) fn with_group(&mut self, act: impl FnOnce(&mut Group)) {
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
        // What was told is not put off: this is asked after every batch, and some timeouts count from now.
        let told = if self.wake_at > self.ticked { self.wake_at } else { Time::NEVER };
        let wake_at = self.next_timeout().min(told);
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
            group: self.group.as_ref().map(GroupStatus::of),
            operations: self.sessions.len(),
            frames_dropped: self.frames_dropped,
            answered: self.answered,
            leaving: self.leave_status(),
        }
    }

    /// Carries what the group wants done to the outside.
    fn carry(&mut self, output: GroupOutput) {
        match output {
            GroupOutput::Send(to, message, epoch) => self.send(&to, message, epoch),
            GroupOutput::Persist(token, durable) => {
                let mut changes = Vec::with_capacity(durable.len());
                for change in durable {
                    self.space().changes(change, &mut changes);
                }
                self.outputs.push_back(Output::Persist { token, changes });
            }
            GroupOutput::Load { key, urgent } => {
                let record_key = self.space().record_key(&key);
                self.outputs.push_back(Output::Load { record_key, urgent });
            }
            GroupOutput::Scan(token, from, bytes_max) => {
                let from = self.space().scan_start(from.as_ref());
                self.outputs.push_back(Output::Scan { token, from, bytes_max });
            }
            GroupOutput::Outcome(attempt, outcome) => {
                self.with_sessions(|sessions, ctx| sessions.on_outcome(ctx, attempt, outcome));
            }
            GroupOutput::Changed => self.on_changed(),
            GroupOutput::Left => self.left(),
            // A life that is over has nothing more to give; the wish to leave outlives it.
            GroupOutput::Over(_) if self.leaving.is_some() => self.left(),
            GroupOutput::Over(why) => {
                self.over = true;
                self.ready = false;
                self.with_sessions(Sessions::stop);
                self.event(Event::Reincarnate(why.to_string()));
            }
            // One group owns the whole ring: there is nobody to write to, and nothing begins a transaction.
            GroupOutput::Letter(_) | GroupOutput::Ended => {}
            GroupOutput::Note(text) => self.event(Event::Note(text.into())),
        }
    }

    pub(crate) fn with_sessions(&mut self, act: impl FnOnce(&mut Sessions, &mut SessionContext<'_>)) {
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

    fn on_request(&mut self, request: Request) {
        if self.stopping.is_some() && self.group.as_ref().is_none_or(Group::is_idle) {
            let error = OpError::TryAgain(Refusal::Stopping);
            self.reply(request.id, Err(error));
            return;
        }
        self.with_sessions(|sessions, ctx| sessions.submit(ctx, request));
    }

    fn on_loaded(&mut self, record_key: &[u8], record: Option<&[u8]>) {
        let Some(key) = self.space().key_of(record_key) else { return };
        match record.map(storage::decode_record).transpose() {
            Ok(record) => self.with_group(|group| group.on_loaded(&key, record)),
            Err(error) => self.damaged(&error.to_string()),
        }
    }

    fn on_scanned(&mut self, token: u64, mut records: Vec<(Bytes, Bytes)>, mut done: bool) {
        self.space().keep(&mut records, &mut done);
        let mut decoded = Vec::with_capacity(records.len());
        for (key, value) in records {
            match (self.space().key_of(&key), storage::decode_record(&value)) {
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
        self.tell_leave();
    }

    fn tick(&mut self) {
        self.ticked = self.now.time;
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
        self.tell_leave();
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

    pub(crate) fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }
}

#[cfg(test)]
#[path = "node_test.rs"]
mod tests;
