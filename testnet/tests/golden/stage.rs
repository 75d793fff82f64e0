//! Machines with real nodes, their stores, and what is on its way between them. Nothing takes time but waiting, and nothing
//! happens but one step after another: a frame arrives, or a timer is due.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use group::Group;
use group::config::Defects;
use group::message::{LogMessage, Message};
use group::op::{Answer, OpError};
use group::state::Entry;
use group::time::{Now, Time, WallMillis};
use group::transaction::dealer::{Letter, Word};
use group::watched::Applied;
use node::wire::{self, Frame};
use node::{Event, Granted, Input, Node, NodeConfig, Output, Restored, Tail};
use overlay::{GroupId, Incarnation, PeerKey, RingId};
use testnet::sim::Contents;

/// One peer's machine.
pub struct Machine {
    pub node: Option<Node>,
    pub store: Contents,
    incarnation: u64,
    runs: u64,
    wake: Time,
}

/// A frame on its way, with the letter in it, if it is one.
struct Flight {
    from: usize,
    to: usize,
    frame: Bytes,
    letter: Option<Letter>,
    /// Entries of a group's log that are to be accepted.
    entries: Vec<(GroupId, Entry)>,
}

/// What was seen in a step.
pub enum Happening {
    /// A leader sends this entry of its group's log to be accepted.
    Proposes(GroupId, Entry),
    /// Another member has got it, and accepts it unless it has promised more.
    Accepts(GroupId, Entry),
    /// A member says this to another group; it is lost on the way, or held up.
    Says(Letter, Fate),
    /// It has come to a leader of the group that it is for.
    Hears(GroupId, Letter),
    /// A member has applied an entry of its group's log.
    Applies(Box<Applied>),
    /// This machine has done something.
    Acts(usize),
    /// Whoever wished for something is told.
    Granted(u64, Granted),
    /// What a machine holds was declared lost.
    Quarantined(usize),
}

/// What becomes of a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Arrives,
    Lost,
    /// It is lost, and the story does not say so: whether it is said at all depends on chance.
    Barred,
    Held,
    /// It arrives, and once more when the script says so.
    Twice,
}

/// Which letters have another fate than to arrive.
pub struct Rule {
    pub word: &'static str,
    pub from: GroupId,
    pub to: GroupId,
    pub fate: Fate,
    pub hits: usize,
}

/// Letters that are remembered to have come.
const ARRIVED_MAX: usize = 64;

pub struct Stage {
    pub now: u64,
    pub machines: Vec<Machine>,
    pub rules: Vec<Rule>,
    /// Who hears nobody.
    pub cut: BTreeSet<usize>,
    pub seen: Vec<Happening>,
    pub replies: Vec<Result<Answer, OpError>>,
    flying: VecDeque<Flight>,
    kept: Vec<Flight>,
    /// The last letters that have come to some member of the group that they are for.
    arrived: VecDeque<Letter>,
    defects: Defects,
    chance: u64,
    ring: Option<RingId>,
}

/// How the last state of a group that has ended is called in scripts. It is no letter: who is in a group that ends with it
/// needs it to know what is born.
pub const FINAL: &str = "final";

pub fn key(index: usize) -> PeerKey {
    PeerKey([index as u8 + 1; 32])
}

/// How a word is called in scripts.
pub fn name_of(word: &Word) -> &'static str {
    match word {
        Word::Prepare(..) => "prepare",
        Word::Vote(..) => "vote",
        Word::Decision(_, true) => "commit",
        Word::Decision(_, false) => "abort",
        Word::End(_) => "end",
        Word::Question(_) => "question",
        Word::Push(..) => "push",
        Word::Known(_) => "known",
    }
}

fn watch(node: &mut Node, seen: &mut Vec<Happening>) {
    node.watch_groups(|_, watched, _| {
        seen.extend(watched.applied.into_iter().map(|applied| Happening::Applies(Box::new(applied))));
    });
}

impl Stage {
    /// Machines with what they had stored when they were stopped; where they had nothing the first one founds a network.
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
        // Groups become others when the script says so, and only then.
        (config.members_min, config.members_max) = (1, 1_000);
        // What is copied before is no part of these stories.
        config.timing.copy_patience = core::time::Duration::ZERO;
        // Nor are removals: a story that waits for an answer waits for less.
        config.timing.exclude_after = core::time::Duration::from_secs(10);
        config.ring = self.ring;
        config.found = index == 0 && self.ring.is_none();
        config.defects = self.defects;
        config
    }

    /// The machine's process begins; everybody is connected with it from then on.
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

    /// The machine's process is gone, with what it said and has not arrived: letters of which nothing has.
    pub fn crash(&mut self, index: usize) -> Vec<Letter> {
        self.machines[index].node = None;
        let letters =
            self.flying.iter().filter(|flight| flight.from == index).filter_map(|flight| flight.letter.clone());
        let unheard = letters.filter(|letter| !self.arrived.contains(letter)).collect();
        self.flying.retain(|flight| flight.from != index && flight.to != index);
        for other in (0..self.machines.len()).filter(|other| *other != index) {
            self.handle(other, Input::PeerDown(key(index)));
        }
        unheard
    }

    /// A new life, with an empty store.
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

    /// Hands something to a machine, and carries all that comes of it.
    pub fn handle(&mut self, index: usize, input: Input) {
        let now = self.clock();
        let Some(node) = &mut self.machines[index].node else { return };
        node.handle(now, input);
        self.drain(index);
    }

    fn drain(&mut self, index: usize) {
        let now = self.clock();
        while let Machine { node: Some(node), store, wake, .. } = &mut self.machines[index] {
            // What was chosen comes before what is said of it, and before what comes of it.
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
                Output::Granted { number, granted } => self.seen.push(Happening::Granted(number, granted)),
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
        let (mut letter, mut proposed) = (None, Vec::new());
        if let Ok((_, Frame::Group { group, message, .. })) = wire::decode(&frame, None) {
            match message {
                Message::Log(LogMessage::Accept { entries, .. }) => {
                    proposed.extend(entries.into_iter().map(|(_, entry)| (group, entry)));
                    self.seen.extend(proposed.iter().cloned().map(|(group, entry)| Happening::Proposes(group, entry)));
                }
                Message::Letter(said) => letter = Some(*said),
                Message::State(state) if state.ended.is_some() && self.loses_final(state.id, to) => return,
                _ => {}
            }
        }
        let flight = Flight { from, to, frame, letter, entries: proposed };
        let fate = flight.letter.as_ref().map_or(Fate::Arrives, |letter| self.fate(letter));
        if let Some(letter) = &flight.letter {
            // Members pass on what they hear to whoever leads; that is nothing that another group says.
            let speaks = |node: &Node| node.groups().any(|group| group.state().id == letter.by.id);
            if self.node(from).is_some_and(speaks) {
                self.seen.push(Happening::Says(letter.clone(), fate));
            }
        }
        match fate {
            Fate::Arrives => self.flying.push_back(flight),
            Fate::Lost | Fate::Barred => {}
            Fate::Held => self.kept.push(flight),
            Fate::Twice => {
                let (frame, letter) = (flight.frame.clone(), flight.letter.clone());
                let again = Flight { frame, letter, entries: Vec::new(), ..flight };
                self.kept.push(again);
                self.flying.push_back(flight);
            }
        }
    }

    /// Is this the last state of a group, and not to reach members of another one?
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

    fn fate(&mut self, letter: &Letter) -> Fate {
        let word = name_of(&letter.word);
        let mut rules = self.rules.iter_mut();
        let rule = rules.find(|rule| rule.word == word && rule.from == letter.from && rule.to == letter.to.id);
        rule.map_or(Fate::Arrives, |rule| {
            rule.hits += 1;
            rule.fate
        })
    }

    /// What was held up, or is to come twice, arrives now; how much that is.
    pub fn release(&mut self) -> usize {
        let kept = std::mem::take(&mut self.kept);
        let count = kept.len();
        self.flying.extend(kept);
        count
    }

    /// One frame arrives, or time passes until a timer is due. False where nothing will happen before `until`.
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
        let Flight { from, to, frame, letter, entries } = flight;
        if !self.is_up(to) || self.cut.contains(&from) || self.cut.contains(&to) {
            return;
        }
        if let Some(letter) = &letter {
            self.arrived.push_back(letter.clone());
            if self.arrived.len() > ARRIVED_MAX {
                self.arrived.pop_front();
            }
        }
        let node = self.node(to).expect("just found");
        let heard = letter.and_then(|letter| {
            let hears = |group: &&Group| {
                let state = group.state();
                group.log().leads() && (state.id == letter.to.id || state.dealings.is_heir_of(letter.to.id))
            };
            let group = node.groups().find(hears)?.state().id;
            Some(Happening::Hears(group, letter))
        });
        self.seen.extend(heard);
        self.handle(to, Input::Frame { from: key(from), frame });
        self.seen.extend(entries.into_iter().map(|(group, entry)| Happening::Accepts(group, entry)));
    }

    /// Time in microseconds from now.
    pub fn after(&self, time: Duration) -> u64 {
        self.now + time.as_micros() as u64
    }
}
