//! Real members of one group, with their disks, messages in flight and clients; a script or a random run drives them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use group::Group;
use group::ballot::{LogSlot, Number};
use group::config::{Defects, DivisionView, GroupConfig, Timing};
use group::control::agreed::AgreedPolicies;
use group::control::state::{Entry, GroupState, Member, Settings};
use group::message::{LogMessage, Message, Sender};
use group::op::Version;
use group::outbox::GroupOutput;
use group::record::Record;
use overlay::rng::Rng;
use overlay::time::{Now, Time, WallMillis};
use overlay::{Epoch, GroupId, Incarnation, Key, KeyRange, NodeId, PeerKey, Point, RingId};

pub mod chance;
pub mod clients;
pub mod content;
pub mod disk;
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
            if why.contains("lacks something") && !self.rules.torn {
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

    /// Begins a new incarnation, without any data of the last.
    pub fn reincarnate(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        peer.node.incarnation.0 += 1;
        peer.run += 1;
        (peer.group, peer.disk, peer.join_due, peer.down) = (None, Disk::default(), self.now, false);
    }

    /// Ends a process, with all data that was not durable.
    pub fn crash(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        peer.group = None;
        peer.down = true;
        peer.disk.crash();
        peer.run += 1;
    }

    /// Lets these other members see that the peer's connections closed.
    pub fn close(&mut self, index: usize, others: &[usize]) {
        let peer = self.peers[index].node.peer;
        others.iter().for_each(|other| self.act(*other, |group| group.on_broken(peer)));
    }

    /// Ends a process with a bad end of its journal: the last write is `lost`, or none is.
    pub fn tear(&mut self, index: usize, lost: bool) {
        self.crash(index);
        let disk = &mut self.peers[index].disk;
        if !disk.is_empty() {
            let _ = lost && disk.tear();
            disk.doubt();
            // Its knowledge of other members' runs may be among the lost data.
            self.heard.retain(|(of, _), _| *of != index);
        }
    }

    /// Starts a process again, with the data of its disk.
    pub fn restart(&mut self, index: usize, sealed: bool) {
        if !self.peers[index].down {
            return;
        }
        if self.peers[index].disk.is_empty() {
            return self.reincarnate(index);
        }
        let (config, now) = (self.config(), self.local(index));
        let seed = self.seed ^ (self.peers[index].run << 8) ^ index as u64;
        let peer = &mut self.peers[index];
        peer.down = false;
        peer.disk.open();
        let stored = peer.disk.stored(sealed);
        peer.group = Some(Group::restore(config, peer.node, stored, now, seed));
        self.drain(index);
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

    /// Checks that no place has two values.
    fn check(&mut self, index: usize) {
        let Some(group) = &mut self.peers[index].group else { return };
        let state = group.state();
        let known = self.states.entry(state.applied).or_insert_with(|| state.clone());
        if known != state {
            self.wrong.get_or_insert(format!("I1/I2: two states at {:?}: {known:?} and {state:?}", state.applied));
        }
        let watched = group.watch();
        let accepted = watched.accepted.into_iter().map(|write| (write.key, write.record, false));
        let chosen = watched.chosen.into_iter().map(|(key, record)| (key, record, true));
        for (key, record, chosen) in accepted.chain(chosen) {
            let place = (key.clone(), record.number);
            let known = self.numbers.entry(place).or_insert_with(|| record.clone());
            if *known != record {
                self.wrong.get_or_insert(format!("I1: {key:?} is {known:?} and {record:?}"));
            }
            if chosen {
                let value = record.value.as_ref().map(|value| value.to_vec());
                let known = self.versions.entry((key.clone(), record.version)).or_insert_with(|| value.clone());
                if *known != value {
                    let version = record.version;
                    self.wrong.get_or_insert(format!("I1: {key:?} at {version:?} is {known:?} and {value:?}"));
                }
            }
        }
    }

    /// Checks that a node learns of its removal from the group only after the removal was durable at a majority of the members: any one of
    /// them may forget it then.
    ///
    /// A member counts if the state was ever durable there, also if its store is lost since. The sender counts reports, and it may get a
    /// report, or repeat an answer, after the loss. A lost store is the failure of one member, as for an entry of the log.
    fn check_released(&mut self, from: NodeId, to: &[NodeId], state: &GroupState) {
        let released = |node: &&NodeId| !state.is_in_audience(**node);
        for node in to.iter().filter(released).filter(|_| state.is_in_audience(from)) {
            let known = self.states.range(..=state.applied).rev();
            let since = known.take_while(|(_, state)| !state.is_in_audience(*node)).last();
            let since = since.map_or(state.applied, |(slot, _)| *slot);
            let held = |member: &&Member| self.durable.get(&member.node).is_some_and(|durable| *durable >= since);
            let holders = state.members.iter().filter(held).count();
            if holders <= state.members.len() / 2 {
                let why =
                    format!("{node:?} is told that it was let go of at {since:?}, and {holders} members held that");
                self.wrong.get_or_insert(why);
            }
        }
    }

    /// Returns the latest state that any node knows.
    pub fn latest(&self) -> &GroupState {
        self.states.last_key_value().expect("the first").1
    }

    /// Returns whether this peer may lose all its data: a majority of every configuration that may matter must keep its own.
    pub fn can_lose(&self, index: usize) -> bool {
        let ending = |packet: &Packet| {
            matches!(&packet.message, Message::Log(LogMessage::Accept { entries, .. })
                if entries.iter().any(|(_, entry)| entry.ends_epoch()))
        };
        if self.net.iter().any(ending) {
            return false;
        }
        let groups: Vec<&Group> = self.peers.iter().filter_map(|peer| peer.group.as_ref()).collect();
        if groups.iter().any(|group| group.log().last_accepted() > Some(group.state().applied)) {
            return false;
        }
        if self.peers.iter().any(|peer| peer.down) {
            return false; // No node knows the votes of those members.
        }
        let exists = |node: &NodeId| self.index(*node).is_some_and(|at| at != index && !self.peers[at].disk.is_empty());
        let states = groups.iter().map(|group| group.state()).filter(|state| state.epoch >= self.latest().epoch);
        states.into_iter().all(|state| {
            state.configs(KeyRange::FULL).iter().all(|config| {
                let alive = config.members.iter().filter(|node| exists(node)).count();
                alive > config.members.len() / 2
            })
        })
    }

    /// Returns the reason for which the group is not at rest: all members must be in one complete state, and all primaries must serve.
    pub fn unrest(&self) -> Option<String> {
        let latest = self.latest();
        for member in &latest.members {
            // A minority may be gone for good. The group must remove or replace it in the end. This is not waited for here.
            let Some(index) = self.index(member.node) else { continue };
            let Some(group) = &self.peers[index].group else { return Some(format!("{index} is down")) };
            if group.is_recovering() {
                return Some(format!("{index} is recovering"));
            }
            if group.state() != latest {
                return Some(format!("{index} is at {:?}, others at {:?}", group.state().applied, latest.applied));
            }
            if group.acceptor().has_sealed(latest.epoch) {
                return Some(format!("{index} has sealed"));
            }
            if let Some(primary) = group.primaries().find(|primary| !primary.is_serving()) {
                return Some(format!("{index} does not serve as {:?}", primary.ballot()));
            }
        }
        if !latest.recovery.is_empty() {
            return Some(format!("{:?} is not established: {:?}", latest.epoch, latest.recovery));
        }
        let serves = |ballot: &group::ballot::TermBallot| {
            let group = self.index(ballot.node).and_then(|index| self.peers[index].group.as_ref());
            group.is_some_and(|group| group.primaries().any(|primary| primary.ballot() == *ballot))
        };
        latest.parts().find(|(_, ballot)| !serves(ballot)).map(|(_, ballot)| format!("{ballot:?} does not serve"))
    }

    pub fn epoch(&self) -> Epoch {
        self.latest().epoch
    }

    /// Returns a leader that may propose an entry now.
    pub fn free_leader(&self) -> Option<usize> {
        self.living().into_iter().find(|index| self.group(*index).log().leads() && !self.group(*index).log().is_busy())
    }

    /// Returns the entry of the next epoch with these members.
    pub fn next(&self, nodes: &[NodeId]) -> Entry {
        let mut members: Vec<Member> = nodes.iter().map(|node| member(*node)).collect();
        members.sort_by_key(|member| member.node);
        Entry::Next(members)
    }
}
