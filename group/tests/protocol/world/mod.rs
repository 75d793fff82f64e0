//! Real members of one group, with their disks, messages in flight and clients; a script or a random run drives them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use group::Group;
use group::ballot::{LogSlot, Number};
use group::config::{Defects, DivisionView, GroupConfig, Timing};
use group::control::agreed::AgreedPolicies;
use group::control::state::{GroupState, Member, Settings};
use group::message::{Message, Sender};
use group::op::Version;
use group::outbox::GroupOutput;
use group::record::Record;
use overlay::rng::Rng;
use overlay::time::{Now, Time, WallMillis};
use overlay::{GroupId, Incarnation, Key, NodeId, PeerKey, Point, RingId};

mod calm;
pub mod chance;
mod checks;
pub mod clients;
pub mod content;
pub mod disk;
mod lives;
pub mod switches;

use clients::Clients;
use disk::Disk;
use switches::Switches;

/// Properties of a world.
#[derive(Clone, Debug)]
pub struct Rules {
    pub members: usize,
    /// Number of peers that are not members at first, and ask to join.
    pub outside: usize,
    pub coarse: bool,
    pub leases: bool,
    /// Deviation of the clocks, in 1/1000.
    pub drift: u32,
    pub memory_bytes_max: usize,
    pub window_bytes_max: usize,
    pub message_bytes_max: usize,
    pub defects: Defects,
    /// Whether writes are durable at once.
    pub quick_disks: bool,
    /// Whether members know that disks keep durable data.
    pub durable: bool,
    /// Whether the end of a journal may be bad: a crash loses the last write, or may have lost it, as far as any node can tell.
    pub torn: bool,
    pub switches: Option<switches::Rules>,
}

impl Rules {
    pub fn of(members: usize, outside: usize) -> Rules {
        Rules {
            members,
            outside,
            coarse: false,
            leases: false,
            drift: 10,
            memory_bytes_max: 1 << 20,
            window_bytes_max: 1 << 20,
            message_bytes_max: 1 << 16,
            defects: Defects::NONE,
            quick_disks: true,
            durable: true,
            torn: false,
            switches: None,
        }
    }
}

/// One peer: its current incarnation, if it has one in the group.
pub struct Peer {
    pub node: NodeId,
    pub group: Option<Group>,
    pub disk: Disk,
    pub run: u64,
    /// Rate of its clock in 1/1000 of true time.
    rate: u64,
    join_due: u64,
    /// Whether its process does not run.
    pub down: bool,
}

/// Message in flight.
#[derive(Clone, Debug)]
pub struct Packet {
    pub from: Sender,
    pub to: NodeId,
    pub message: Message,
    runs: (u64, u64),
}

pub struct World {
    pub rules: Rules,
    /// True time, in microseconds.
    pub now: u64,
    pub peers: Vec<Peer>,
    pub net: Vec<Packet>,
    pub clients: Clients,
    pub switches: Option<Switches>,
    /// Pairs of sender and receiver between which no message passes.
    pub cut: BTreeSet<(usize, usize)>,
    /// Peers that copy slowly: they never report that they hold data.
    pub slow: BTreeSet<usize>,
    pub wrong: Option<String>,
    pub notes: Vec<String>,
    seed: u64,
    states: BTreeMap<LogSlot, GroupState>,
    numbers: BTreeMap<(Key, Number), Arc<Record>>,
    versions: BTreeMap<(Key, Version), Option<Vec<u8>>>,
    /// For each pair of peers: the last run of the second that the first has heard of, and remembers.
    heard: BTreeMap<(usize, usize), u64>,
    /// Last slot of the newest state that was ever durable at a node. Incarnations that are over keep their entries.
    durable: BTreeMap<NodeId, LogSlot>,
}

pub fn peer(index: usize) -> PeerKey {
    PeerKey([index as u8 + 1; 32])
}

pub fn member(node: NodeId) -> Member {
    Member {
        node,
        addresses: Vec::new(),
        name: None,
        cluster: String::from("hall"),
        joined: WallMillis(0),
        since: LogSlot(0),
    }
}

/// Divides the range into equal shares for all able members, where a primary is not able, or all is calm.
fn divide(view: &DivisionView<'_>) -> Option<Vec<(Point, NodeId)>> {
    let able: Vec<NodeId> = view.able.iter().map(|able| able.node).collect();
    let orphaned = view.current.iter().any(|(_, node)| !able.contains(node));
    if able.is_empty() || !(orphaned || view.calm) {
        return None;
    }
    let count = able.len() as u32;
    let even: Vec<(Point, NodeId)> =
        able.iter().zip(0..).map(|(node, part)| (view.range.cut_at(part, count), *node)).collect();
    (even != view.current).then_some(even)
}

impl World {
    pub fn new(rules: Rules, seed: u64) -> World {
        let node = |index| NodeId { peer: peer(index), incarnation: Incarnation(1) };
        let settings = Settings {
            coarse: rules.coarse,
            leases: rules.leases,
            lease_ms: 60,
            drift_per_mille: rules.drift,
            value_bytes_max: 1_000,
            policies: AgreedPolicies { members_min: 5, members_max: 12, ..AgreedPolicies::default() },
            horizon_ms: 60,
        };
        let mut state = GroupState::founded(RingId(1), GroupId(1), member(node(0)), settings);
        state.members = (0..rules.members).map(|index| member(node(index))).collect();
        let mut rng = Rng::new(seed ^ 0x5eed);
        let mut peers = Vec::new();
        for index in 0..rules.members + rules.outside {
            let spread = u64::from(2 * rules.drift) + 1;
            peers.push(Peer {
                node: node(index),
                group: None,
                disk: Disk::default(),
                run: 1,
                rate: 1000 - u64::from(rules.drift) + rng.below(spread),
                join_due: 0,
                down: false,
            });
        }
        let mut world = World {
            switches: rules.switches.map(Switches::new),
            rules,
            now: 10_000_000,
            peers,
            net: Vec::new(),
            clients: Clients::default(),
            cut: BTreeSet::new(),
            slow: BTreeSet::new(),
            wrong: None,
            notes: Vec::new(),
            seed,
            states: BTreeMap::new(),
            numbers: BTreeMap::new(),
            versions: BTreeMap::new(),
            heard: BTreeMap::new(),
            durable: BTreeMap::new(),
        };
        for index in 0..world.rules.members {
            let (config, now) = (world.config(), world.local(index));
            world.peers[index].disk.may_tear = world.rules.torn;
            world.peers[index].group = Some(Group::join(config, node(index), state.clone(), now, seed + index as u64));
            world.drain(index);
            world.sync_all(index);
        }
        world
    }

    fn config(&self) -> GroupConfig {
        let ms = Duration::from_millis;
        GroupConfig {
            name: None,
            timing: Timing {
                heartbeat: ms(20),
                missed_max: 4,
                broken_grace: ms(10),
                resend: ms(12),
                calm: ms(60),
                rested: ms(600),
                exclude_after: ms(300),
                confirm_after: ms(3_000),
                purge_every: ms(80),
                seal_patience: ms(25),
            },
            durable: self.rules.durable,
            memory_bytes_max: self.rules.memory_bytes_max,
            window_bytes_max: self.rules.window_bytes_max,
            in_flight_max: 100,
            waiting_max: 100,
            transfer_bytes_per_s: 1 << 30,
            message_bytes_max: self.rules.message_bytes_max,
            divide,
            fatal_contradictions: true,
            defects: self.rules.defects,
        }
    }

    /// Returns the clock of a peer.
    fn local(&self, index: usize) -> Now {
        let time = Time(self.now * self.peers[index].rate + index as u64 * 77_777);
        Now { time, awake: time, wall: WallMillis(self.now / 1000) }
    }

    /// Returns the peer with this current incarnation.
    pub fn index(&self, node: NodeId) -> Option<usize> {
        self.peers.iter().position(|peer| peer.node == node)
    }

    pub fn group(&self, index: usize) -> &Group {
        self.peers[index].group.as_ref().expect("it lives")
    }

    /// Returns the peers that are in the group, as far as they know.
    pub fn living(&self) -> Vec<usize> {
        (0..self.peers.len()).filter(|index| self.peers[*index].group.is_some()).collect()
    }

    /// Lets a peer act.
    pub fn act(&mut self, index: usize, act: impl FnOnce(&mut Group)) {
        let now = self.local(index);
        if let Some(group) = &mut self.peers[index].group {
            group.set_now(now);
            act(group);
            self.drain(index);
        }
    }

    /// Executes the outputs of a member.
    pub fn drain(&mut self, index: usize) {
        let mut over = None;
        loop {
            let peer = &mut self.peers[index];
            let Some(group) = &mut peer.group else { break };
            let Some(output) = group.poll_output() else { break };
            match output {
                GroupOutput::Send(to, message, epoch) => {
                    let from = Sender { node: group.me(), epoch };
                    self.send(index, from, &to, message);
                }
                GroupOutput::Persist(token, changes) => {
                    peer.disk.write(token, changes);
                    if self.rules.quick_disks {
                        self.sync(index);
                    }
                }
                GroupOutput::Load { key, .. } => {
                    let record = peer.disk.load(&key);
                    group.on_loaded(&key, record);
                }
                GroupOutput::Scan(token, from, bytes_max) => {
                    let (page, done) = peer.disk.scan(from, bytes_max.min(self.rules.message_bytes_max));
                    group.on_scanned(token, page, done);
                }
                GroupOutput::Outcome(attempt, outcome) => {
                    let (node, run) = (peer.node, peer.run);
                    if let Err(why) = self.clients.on_outcome(node, run, attempt, outcome) {
                        self.wrong.get_or_insert(why);
                    }
                }
                GroupOutput::Pass(pass) => self.pass_switch(pass),
                GroupOutput::Complete { ballot, switch, number } => self.complete(ballot, switch, number),
                GroupOutput::Read(tag, answer) => self.on_read(tag, answer),
                GroupOutput::Left => over = Some("left"),
                GroupOutput::Over(why) | GroupOutput::Lost(why) => over = Some(why),
                GroupOutput::Changed => {}
                GroupOutput::Halted(why) => self.notes.push(format!("{} {index}: halted: {why}", self.now / 1000)),
                GroupOutput::Ended => self.notes.push(format!("{} {index}: its group has ended", self.now / 1000)),
                GroupOutput::Envelope(envelope) => {
                    self.wrong.get_or_insert(format!("an envelope, and there is no other group: {envelope:?}"));
                }
                GroupOutput::Note(text) => {
                    let note = format!("{} {index}: {text}", self.now / 1000);
                    self.notes.push(note);
                }
            }
        }
        self.check(index);
        if let Some(why) = over {
            self.notes.push(format!("{} {index}: over: {why}", self.now / 1000));
            if why.contains("lacks a write or promise") && !self.rules.torn {
                self.wrong.get_or_insert(format!("peer {index}, which lost nothing: {why}"));
            }
            self.reincarnate(index);
        }
    }

    /// Sends a message of a member over the wires that are not cut. A slow member reports no progress.
    fn send(&mut self, index: usize, from: Sender, to: &[NodeId], mut message: Message) {
        match &mut message {
            Message::Heartbeat(heartbeat) if self.slow.contains(&index) => heartbeat.progress = None,
            Message::Progress(progress) if self.slow.contains(&index) => progress.complete.clear(),
            _ => {}
        }
        if let Message::State(state) = &message {
            self.check_released(from.node, to, state);
        }
        for to in to {
            let target = (0..self.peers.len()).find(|other| self.peers[*other].node.peer == to.peer);
            if let Some(target) = target.filter(|target| !self.cut.contains(&(index, *target))) {
                let runs = (self.peers[index].run, self.peers[target].run);
                self.net.push(Packet { from, to: *to, message: message.clone(), runs });
            }
        }
    }

    /// Makes one batch of a member durable.
    pub fn sync(&mut self, index: usize) -> bool {
        let now = self.local(index);
        let peer = &mut self.peers[index];
        let Some(token) = peer.disk.sync() else { return false };
        let durable = self.durable.entry(peer.node).or_insert(LogSlot(0));
        *durable = peer.disk.applied().max(*durable);
        if let Some(group) = &mut peer.group {
            group.set_now(now);
            group.on_persisted(token);
        }
        true
    }

    /// Delivers a message.
    pub fn deliver(&mut self, packet: Packet) {
        let Some(index) = self.index(packet.to) else { return };
        let Some(from) = (0..self.peers.len()).find(|other| peer(*other) == packet.from.node.peer) else { return };
        if self.cut.contains(&(from, index)) || self.peers[index].down {
            return;
        }
        // Copies of an attempt come over one connection.
        let runs = (self.peers[from].run, self.peers[index].run);
        if matches!(packet.message, Message::Client(_)) && packet.runs != runs {
            return;
        }
        if self.rules.torn {
            // A member that has heard of a run hears no message of earlier runs any more.
            let known = self.heard.get(&(index, from)).copied();
            if known.is_some_and(|known| known > packet.runs.0) {
                return;
            }
            if known != Some(packet.runs.0) {
                self.heard.insert((index, from), packet.runs.0);
                let run = packet.runs.0 + 1;
                self.act(index, |group| group.on_new_run(packet.from.node.peer, run));
            }
        }
        if self.peers[index].group.is_some() {
            self.act(index, |group| group.on_message(packet.from, packet.message));
            return;
        }
        if let Message::State(state) = packet.message {
            let me = self.peers[index].node;
            match state.last_life(me.peer) {
                Some(node) if node == me => {
                    let (config, now) = (self.config(), self.local(index));
                    let seed = self.seed ^ (self.peers[index].run << 16) ^ index as u64;
                    self.peers[index].group = Some(Group::join(config, me, *state, now, seed));
                    self.drain(index);
                }
                Some(node) if node > me => self.peers[index].node.incarnation.0 = node.incarnation.0 + 1,
                _ => {}
            }
        }
    }

    /// Delivers all messages between these peers, until they send no more.
    pub fn talk(&mut self, among: &[usize]) {
        for _ in 0..10_000 {
            let inside = |node: NodeId| among.iter().any(|index| self.peers[*index].node == node);
            // The last messages of an earlier incarnation are still in flight.
            let from_inside = |from: NodeId| among.iter().any(|index| self.peers[*index].node.peer == from.peer);
            let is_theirs = |packet: &Packet| from_inside(packet.from.node) && inside(packet.to);
            let Some(at) = self.net.iter().position(is_theirs) else { return };
            let packet = self.net.remove(at);
            self.deliver(packet);
        }
        let last: Vec<String> = self.net.iter().take(6).map(|packet| format!("{packet:?}")).collect();
        panic!("they talk without end: {last:#?}\n{:#?}", self.notes);
    }

    /// Takes messages out of those in flight.
    pub fn take(&mut self, from: usize, to: usize, like: impl Fn(&Message) -> bool) -> Vec<Packet> {
        let (from, to) = (peer(from), peer(to));
        let is = |packet: &Packet| packet.from.node.peer == from && packet.to.peer == to && like(&packet.message);
        let (taken, rest) = std::mem::take(&mut self.net).into_iter().partition(is);
        self.net = rest;
        taken
    }

    /// Lets time pass for these peers, and lets them do their due work.
    pub fn pass(&mut self, micros: u64, among: &[usize]) {
        self.now += micros;
        for index in among {
            self.act(*index, Group::tick);
        }
    }

    /// Runs these peers for so long: they hear each other, and no other peer, and their writes become durable soon.
    pub fn run(&mut self, millis: u64, among: &[usize]) {
        for _ in 0..millis / 4 {
            self.pass(4_000, among);
            self.ask_to_join(among);
            self.talk(among);
            among.iter().for_each(|index| self.sync_all(*index));
            self.talk(among);
        }
    }

    /// Makes all batches of a member durable.
    pub fn sync_all(&mut self, index: usize) {
        while self.sync(index) {
            self.drain(index);
        }
    }

    pub fn ask_to_join(&mut self, among: &[usize]) {
        for index in among.iter().copied() {
            let peer = &self.peers[index];
            if peer.group.is_none() && !peer.down && self.now >= peer.join_due {
                let node = peer.node;
                self.peers[index].join_due = self.now + 50_000;
                for to in among.iter().copied().filter(|to| self.peers[*to].group.is_some()) {
                    if self.cut.contains(&(index, to)) {
                        continue;
                    }
                    let epoch = self.group(to).state().epoch;
                    let from = Sender { node, epoch };
                    let (to, runs) = (self.peers[to].node, (self.peers[index].run, self.peers[to].run));
                    self.net.push(Packet { from, to, message: Message::Join(member(node)), runs });
                }
            }
        }
    }

    /// Sends another attempt of a client's call.
    pub fn attempt(&mut self, call: u64) {
        let Some((origin, key)) = self.clients.calls.get(&call).map(|call| (call.origin, call.key)) else { return };
        let Some(index) = self.index(origin) else { return };
        let Some(group) = &self.peers[index].group else { return };
        let Some(ballot) = group.primary_of(self.clients.key(key).point()) else { return };
        let operation = self.clients.attempt(call, ballot);
        self.act(index, |group| {
            if ballot.node == origin {
                group.operate(origin, operation);
            } else {
                group.ask(ballot.node, operation);
            }
        });
    }

    /// Sends a client's operation through this peer.
    pub fn ask(&mut self, index: usize, place: usize, read: bool, chance: u64) -> Option<u64> {
        let call = self.begin(index, place, read, chance)?;
        self.attempt(call);
        Some(call)
    }

    /// Begins a client's call, without an attempt.
    pub fn begin(&mut self, index: usize, place: usize, read: bool, chance: u64) -> Option<u64> {
        let group = self.peers[index].group.as_ref()?;
        let (node, run, horizon) = (self.peers[index].node, self.peers[index].run, group.state().horizon);
        Some(self.clients.ask(place, read, chance, node, run, horizon))
    }
}
