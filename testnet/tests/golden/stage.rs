//! Machines with real nodes, their stores, and the frames between them. Only waiting takes time. Events come
//! one step after another: a frame arrives, or a timer is due.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use group::Group;
use group::config::Defects;
use group::control::state::Entry;
use group::message::{LogMessage, Message};
use group::op::{Answer, OpError};
use group::transaction::Outcome;
use group::transaction::driver::{GroupEnvelope, GroupMessage};
use group::watched::Applied;
use node::wire::{self, Frame};
use node::{AdminOutcome, Event, Input, Node, NodeConfig, Output, Restored, Tail};
use overlay::time::{Now, Time, WallMillis};
use overlay::{GroupId, Incarnation, PeerKey, RingId};
use testnet::sim::Contents;

/// The machine of one peer.
pub struct Machine {
    pub node: Option<Node>,
    pub store: Contents,
    incarnation: u64,
    runs: u64,
    wake: Time,
}

/// A frame on its way, with its envelope to another group, if it has one.
struct Flight {
    from: usize,
    to: usize,
    frame: Bytes,
    envelope: Option<GroupEnvelope>,
    /// Entries of a group's log that the receiver is asked to accept.
    entries: Vec<(GroupId, Entry)>,
}

/// Event of a step.
pub enum Happening {
    /// A leader sends this entry of its group's log to the acceptors.
    Proposes(GroupId, Entry),
    /// Another member receives the entry, and accepts it unless it has promised a higher ballot.
    Accepts(GroupId, Entry),
    /// A member sends this envelope to another group. Its fate may be a loss or a delay.
    Says(GroupEnvelope, Fate),
    /// The envelope has come to a leader of the group that it is for.
    Hears(GroupId, GroupEnvelope),
    /// A member has applied an entry of its group's log.
    Applies(Box<Applied>),
    /// A machine has taken a step.
    Acts(usize),
    /// A request was answered.
    AdminOutcome(u64, AdminOutcome),
    /// A range that a machine holds was declared lost.
    Quarantined(usize),
}

/// Fate of an envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Arrives,
    Lost,
    /// The envelope is lost, and the story does not tell it: whether the envelope is sent at all depends on chance.
    Barred,
    Held,
    /// The envelope arrives, and arrives once more when the script says so.
    Twice,
}

/// Selects envelopes that have another fate than to arrive.
pub struct Rule {
    pub word: &'static str,
    pub from: GroupId,
    pub to: GroupId,
    pub fate: Fate,
    pub hits: usize,
}

/// Number of envelopes that are remembered as arrived.
const ARRIVED_MAX: usize = 64;

pub struct Stage {
    pub now: u64,
    pub machines: Vec<Machine>,
    pub rules: Vec<Rule>,
    /// Machines that are cut off from all other machines.
    pub cut: BTreeSet<usize>,
    pub seen: Vec<Happening>,
    pub replies: Vec<Result<Answer, OpError>>,
    flying: VecDeque<Flight>,
    kept: Vec<Flight>,
    /// The last envelopes that have come to some member of the group that they are for.
    arrived: VecDeque<GroupEnvelope>,
    defects: Defects,
    chance: u64,
    ring: Option<RingId>,
}

/// Name in scripts of the last state of a group that has ended. It is no envelope: members of a group that ends with it need this
/// state to know which groups are born.
pub const FINAL: &str = "final";

pub fn key(index: usize) -> PeerKey {
    PeerKey([index as u8 + 1; 32])
}

/// Returns the name of a message between groups in scripts.
pub fn name_of(word: &GroupMessage) -> &'static str {
    match word {
        GroupMessage::Prepare(..) => "prepare",
        GroupMessage::Vote(..) => "vote",
        GroupMessage::Decision(_, Outcome::Commit) => "commit",
        GroupMessage::Decision(_, Outcome::Abort) => "abort",
        GroupMessage::End(_) => "end",
        GroupMessage::Question(_) => "question",
        GroupMessage::Push(..) => "push",
        GroupMessage::Known(_) => "known",
    }
}

fn watch(node: &mut Node, seen: &mut Vec<Happening>) {
    node.watch_groups(|_, watched, _| {
        seen.extend(watched.applied.into_iter().map(|applied| Happening::Applies(Box::new(applied))));
    });
}

impl Stage {
    /// Makes machines with the content that they had stored when they were stopped. Where all stores are empty, the first
    /// machine founds a network.
    pub fn new(stores: Vec<Contents>, defects: Defects, chance: u64) -> Stage {
        let mut stage = Stage {
            now: 1_000_000_000,
            machines: Vec::new(),
            rules: Vec::new(),
            cut: BTreeSet::new(),
            seen: Vec::new(),
            replies: Vec::new(),
            flying: VecDeque::new(),
            kept: Vec::new(),
            arrived: VecDeque::new(),
            defects,
            chance,
            ring: None,
        };
        for store in stores {
            let wake = Time::NEVER;
            stage.machines.push(Machine { node: None, store, incarnation: 1, runs: 0, wake });
        }
        for index in 0..stage.machines.len() {
            stage.start(index, Tail::Sealed);
        }
        stage
    }

    fn clock(&self) -> Now {
        let time = Time(self.now * 1_000);
        Now { time, awake: time, wall: WallMillis(self.now / 1_000) }
    }

    fn config(&self, index: usize) -> NodeConfig {
        let incarnation = Incarnation(self.machines[index].incarnation);
        let mut config = NodeConfig::new(key(index), incarnation);
        // Groups split, merge or move only when the script says so.
        (config.members_min, config.members_max) = (1, 1_000);
        // Copies before a transaction are no part of these stories.
        config.timing.copy_patience = core::time::Duration::ZERO;
        // Nor are removals: a story waits for an answer for a shorter time.
        config.timing.exclude_after = core::time::Duration::from_secs(10);
        config.ring = self.ring;
        config.found = index == 0 && self.ring.is_none();
        config.defects = self.defects;
        config
    }

    /// Starts the process of a machine; all other machines are connected with it from then on.
    pub fn start(&mut self, index: usize, tail: Tail) {
        let (config, now) = (self.config(index), self.clock());
        let machine = &mut self.machines[index];
        let tail = if machine.store.meta.is_empty() { Tail::Empty } else { tail };
        let restored = Restored { meta: machine.store.meta.clone(), tail };
        machine.runs += 1;
        machine.node = Some(Node::new(config, self.chance << 32 | machine.runs << 8 | index as u64, now, restored));
        for other in (0..self.machines.len()).filter(|other| *other != index) {
            self.handle(other, Input::PeerUp(key(index)));
            if self.machines[other].node.is_some() {
                self.handle(index, Input::PeerUp(key(other)));
            }
        }
        self.drain(index);
    }

    /// Ends the process of a machine; frames on their way from it or to it are lost. Returns the envelopes from it of which no
    /// copy has arrived.
    pub fn crash(&mut self, index: usize) -> Vec<GroupEnvelope> {
        self.machines[index].node = None;
        let envelopes =
            self.flying.iter().filter(|flight| flight.from == index).filter_map(|flight| flight.envelope.clone());
        let unheard = envelopes.filter(|envelope| !self.arrived.contains(envelope)).collect();
        self.flying.retain(|flight| flight.from != index && flight.to != index);
        for other in (0..self.machines.len()).filter(|other| *other != index) {
            self.handle(other, Input::PeerDown(key(index)));
        }
        unheard
    }

    /// Begins a new incarnation of a machine, with an empty store.
    fn begin_anew(&mut self, index: usize) {
        let _ = self.crash(index);
        self.machines[index].incarnation += 1;
        self.machines[index].store = Contents::default();
        self.start(index, Tail::Empty);
    }

    pub fn is_up(&self, index: usize) -> bool {
        self.machines[index].node.is_some()
    }

    pub fn node(&self, index: usize) -> Option<&Node> {
        self.machines[index].node.as_ref()
    }

    pub fn nodes(&self) -> impl Iterator<Item = (usize, &Node)> {
        self.machines.iter().enumerate().filter_map(|(index, machine)| Some((index, machine.node.as_ref()?)))
    }

    /// Gives an input to a machine, and carries out its outputs.
    pub fn handle(&mut self, index: usize, input: Input) {
        let now = self.clock();
        let Some(node) = &mut self.machines[index].node else { return };
        node.handle(now, input);
        self.drain(index);
    }

    fn drain(&mut self, index: usize) {
        let now = self.clock();
        while let Machine { node: Some(node), store, wake, .. } = &mut self.machines[index] {
            // A chosen entry is noted before the messages about it and before its results.
            watch(node, &mut self.seen);
            let Some(output) = node.poll_output() else { break };
            watch(node, &mut self.seen);
            match output {
                Output::Send { to, frame, .. } => self.send(index, to, frame),
                Output::Persist { token, changes } => {
                    changes.iter().for_each(|change| store.apply(change));
                    node.handle(now, Input::Persisted(token));
                }
                Output::Load { record_key, .. } => {
                    let record = store.records.get(&record_key).cloned();
                    node.handle(now, Input::Loaded { record_key, record });
                }
                Output::Scan { token, from, .. } => {
                    let records = store.records.range(from..);
                    let records = records.map(|(key, record)| (key.clone(), record.clone())).collect();
                    node.handle(now, Input::Scanned { token, records, done: true });
                }
                Output::AdminOutcome { number, outcome } => self.seen.push(Happening::AdminOutcome(number, outcome)),
                Output::Reply { result, .. } => self.replies.push(result),
                Output::WakeAt(at) => *wake = at,
                Output::Event(Event::InRing(ring)) => self.ring = Some(ring),
                Output::Event(Event::Reincarnate { .. } | Event::Damaged(_)) => self.begin_anew(index),
                Output::Event(Event::Quarantine(_)) => {
                    self.seen.push(Happening::Quarantined(index));
                    self.begin_anew(index);
                }
                Output::Event(Event::Fatal(why)) => panic!("{index}: {why}"),
                _ => {}
            }
        }
        self.seen.push(Happening::Acts(index));
    }

    fn send(&mut self, from: usize, to: PeerKey, frame: Bytes) {
        let Some(to) = (0..self.machines.len()).find(|index| key(*index) == to) else { return };
        let (mut envelope, mut proposed) = (None, Vec::new());
        if let Ok((_, Frame::Group { group, message, .. })) = wire::decode(&frame, None) {
            match message {
                Message::Log(LogMessage::Accept { entries, .. }) => {
                    proposed.extend(entries.into_iter().map(|(_, entry)| (group, entry)));
                    self.seen.extend(proposed.iter().cloned().map(|(group, entry)| Happening::Proposes(group, entry)));
                }
                Message::Envelope(said) => envelope = Some(*said),
                Message::State(state) if state.ended.is_some() && self.loses_final(state.id, to) => return,
                _ => {}
            }
        }
        let flight = Flight { from, to, frame, envelope, entries: proposed };
        let fate = flight.envelope.as_ref().map_or(Fate::Arrives, |envelope| self.fate(envelope));
        if let Some(envelope) = &flight.envelope {
            // Members pass on envelopes to their leader; such a frame is no statement of another group.
            let speaks = |node: &Node| node.groups().any(|group| group.state().id == envelope.by.id);
            if self.node(from).is_some_and(speaks) {
                self.seen.push(Happening::Says(envelope.clone(), fate));
            }
        }
        match fate {
            Fate::Arrives => self.flying.push_back(flight),
            Fate::Lost | Fate::Barred => {}
            Fate::Held => self.kept.push(flight),
            Fate::Twice => {
                let (frame, envelope) = (flight.frame.clone(), flight.envelope.clone());
                let again = Flight { frame, envelope, entries: Vec::new(), ..flight };
                self.kept.push(again);
                self.flying.push_back(flight);
            }
        }
    }

    /// Returns whether this frame carries the last state of a group that a rule keeps from members of another group.
    fn loses_final(&mut self, of: GroupId, to: usize) -> bool {
        let Machine { node: Some(node), .. } = &self.machines[to] else { return false };
        let is_in = |group: GroupId| node.groups().any(|other| other.state().id == group);
        let mut rules = self.rules.iter_mut();
        let rule = rules.find(|rule| rule.word == FINAL && rule.from == of && is_in(rule.to));
        rule.is_some_and(|rule| {
            rule.hits += 1;
            matches!(rule.fate, Fate::Lost | Fate::Barred)
        })
    }

    fn fate(&mut self, envelope: &GroupEnvelope) -> Fate {
        let word = name_of(&envelope.message);
        let mut rules = self.rules.iter_mut();
        let rule = rules.find(|rule| rule.word == word && rule.from == envelope.from && rule.to == envelope.to.id);
        rule.map_or(Fate::Arrives, |rule| {
            rule.hits += 1;
            rule.fate
        })
    }

    /// Lets envelopes arrive that were held up, or that come twice. Returns their number.
    pub fn release(&mut self) -> usize {
        let kept = std::mem::take(&mut self.kept);
        let count = kept.len();
        self.flying.extend(kept);
        count
    }

    /// Takes a step: one frame arrives, or time passes until a timer is due. Returns false where nothing will happen before
    /// `until`.
    pub fn step(&mut self, until: u64) -> bool {
        if let Some(flight) = self.flying.pop_front() {
            self.deliver(flight);
            return true;
        }
        let due =
            (0..self.machines.len()).filter(|index| self.is_up(*index)).min_by_key(|index| self.machines[*index].wake);
        let at = |index: usize| self.machines[index].wake.0.div_ceil(1_000);
        match due.filter(|index| at(*index) <= until) {
            Some(index) => {
                self.now = self.now.max(at(index));
                self.handle(index, Input::Tick);
                true
            }
            None => {
                self.now = self.now.max(until);
                false
            }
        }
    }

    fn deliver(&mut self, flight: Flight) {
        let Flight { from, to, frame, envelope, entries } = flight;
        if !self.is_up(to) || self.cut.contains(&from) || self.cut.contains(&to) {
            return;
        }
        if let Some(envelope) = &envelope {
            self.arrived.push_back(envelope.clone());
            if self.arrived.len() > ARRIVED_MAX {
                self.arrived.pop_front();
            }
        }
        let node = self.node(to).expect("just found");
        let heard = envelope.and_then(|envelope| {
            let hears = |group: &&Group| {
                let state = group.state();
                group.log().leads() && (state.id == envelope.to.id || state.transactions.is_heir_of(envelope.to.id))
            };
            let group = node.groups().find(hears)?.state().id;
            Some(Happening::Hears(group, envelope))
        });
        self.seen.extend(heard);
        self.handle(to, Input::Frame { from: key(from), frame });
        self.seen.extend(entries.into_iter().map(|(group, entry)| Happening::Accepts(group, entry)));
    }

    /// Returns the time `time` from now, in microseconds.
    pub fn after(&self, time: Duration) -> u64 {
        self.now + time.as_micros() as u64
    }
}
