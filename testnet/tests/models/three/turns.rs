//! What one member makes of one input, worked out once for all schedules that lead there.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use group::Group;
use group::ballot::{Ballot, Number, Slot, Term};
use group::config::{Defects, GroupConfig, Timing};
use group::message::{CommitteeMessage, LogMessage, Message, Outcome, Sender};
use group::op::Answer;
use group::outbox::{Durable, GroupOutput};
use group::state::Entry;
use overlay::{Epoch, Point};

use crate::parts::{self, Ask, Disk, MEMBERS, node};

// What must hold.
pub const ONE_ENTRY: &str = "one entry is chosen in a slot";
pub const NOTHING_LOST: &str = "a member's state is what was chosen";
pub const ONE_STATE: &str = "who has come as far is in the same state";
pub const SEALED: &str = "nothing is written in an epoch behind its end";
pub const ONE_ORDER: &str = "answers have one order";
pub const NO_PANIC: &str = "nobody panics";
pub const ALL: &[&str] = &[ONE_ENTRY, NOTHING_LOST, ONE_STATE, SEALED, ONE_ORDER, NO_PANIC];

/// What a member is told, or does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Act {
    /// It hears what was said with this number.
    Hear(u32),
    /// It hears it, says what needs no writing, and dies before anything is written.
    Die(u32),
    /// It stops, and comes back with what it had written.
    Restart,
    /// It stands for election, with another one that misses the leader as well.
    Stand,
    /// It ends the epoch.
    Stop,
    /// Leading, it proposes the entry of this number.
    Propose(usize),
    /// Leading, it says so, and sees to its duties.
    Tick,
    /// It is asked the question of this number.
    Ask(usize),
}

/// What may happen, and how often.
#[derive(Clone, Debug)]
pub struct Rules {
    /// What members leave out.
    pub defects: Defects,
    /// Who leads at first; the first of all is primary of everything.
    pub leader: usize,
    /// What that leader proposes, one after another, without waiting.
    pub proposes: Vec<Entry>,
    /// Who ends the epoch, once each.
    pub stops: &'static [usize],
    /// Who stands for election, once each.
    pub stands: &'static [usize],
    /// Who stops and comes back, of all once.
    pub restarts: &'static [usize],
    /// Leaders' signs of life, and their duties.
    pub ticks: bool,
    /// Members tell others their whole states.
    pub states: bool,
    /// They also say what they refuse, and ask for states.
    pub refusals: bool,
    /// What is looked for.
    pub watches: &'static [&'static str],
    /// What clients ask, of whom; only then members say anything about keys.
    pub asks: &'static [(usize, Ask)],
}

/// Something that was said.
pub(super) struct Said {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) epoch: Epoch,
    pub(super) message: Message,
}

/// One member as it is at some time.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) group: Group,
    pub(super) disk: Disk,
    pub(super) runs: u64,
    pub(super) print: u64,
}

/// What a step of one member came to.
#[derive(Default)]
pub(super) struct Turn {
    pub(super) after: Option<Arc<Member>>,
    pub(super) said: Vec<u32>,
    pub(super) accepted: Vec<(Place, Ballot, Arc<Entry>)>,
    pub(super) written: Vec<Number>,
    pub(super) answers: Vec<(usize, Answer)>,
    pub(super) wrong: Option<(&'static str, String)>,
}

/// What was worked out so far.
#[derive(Default)]
pub struct Memory {
    names: BTreeMap<Vec<u8>, u32>,
    pub(super) all: Vec<Said>,
    turns: BTreeMap<(u64, Act), Arc<Turn>>,
}

/// A slot, as one epoch has it: behind the end of an epoch its slots are the next one's.
pub(super) type Place = (Epoch, Slot);

/// So short that all of it is over at once, and nothing is while time stands still.
pub(super) fn config(defects: Defects) -> GroupConfig {
    let timing = Timing { heartbeat: Duration::from_nanos(1), broken_grace: Duration::ZERO, ..Timing::default() };
    parts::config(defects, timing)
}

impl Member {
    pub(super) fn epoch(&self) -> Epoch {
        self.group.state().epoch
    }

    /// What it will make of inputs depends on nothing else, since time stands still.
    fn note_print(&mut self, index: usize, rules: &Rules) {
        let mut hasher = DefaultHasher::new();
        let group = &self.group;
        (index, self.runs).hash(&mut hasher);
        postcard::to_allocvec(group.state()).expect("plain").hash(&mut hasher);
        format!("{:?}{:?}", group.log(), group.acceptor().promises()).hash(&mut hasher);
        if !rules.asks.is_empty() {
            let primaries: Vec<_> = group.primaries().collect();
            format!("{:?}{primaries:?}{:?}", group.acceptor(), group.table()).hash(&mut hasher);
        }
        self.print = hasher.finish();
    }
}

impl Rules {
    /// Is it worth remembering that this was said?
    fn follows(&self, epoch: Epoch, message: &Message, act: Act) -> bool {
        match message {
            Message::Log(LogMessage::AskPromise { .. } | LogMessage::WouldPromise { .. }) => false,
            Message::Log(LogMessage::Refused { .. }) => self.refusals,
            Message::Log(_) => epoch == Epoch(1),
            Message::State(_) => self.states,
            Message::AskState => self.states && self.refusals,
            Message::Committee(CommitteeMessage::Refused { .. }) => self.refusals && !self.asks.is_empty(),
            Message::Committee(_) => !self.asks.is_empty(),
            Message::Heartbeat(heartbeat) => act == Act::Tick && heartbeat.leads.is_some() && epoch == Epoch(1),
            _ => false,
        }
    }

    /// Works out what a member does.
    fn turn(&self, index: usize, before: &Member, act: Act, memory: &mut Memory) -> Turn {
        let mut turn = Turn::default();
        let mut next = before.clone();
        let done = catch_unwind(AssertUnwindSafe(|| self.act(index, &mut next, act, memory, &mut turn)));
        if let Err(panic) = done {
            let text = panic.downcast_ref::<String>().cloned();
            turn.wrong = Some((NO_PANIC, text.unwrap_or_else(|| "without words".into())));
            return turn;
        }
        next.note_print(index, self);
        turn.after = Some(Arc::new(next));
        turn
    }

    fn act(&self, index: usize, member: &mut Member, act: Act, memory: &mut Memory, turn: &mut Turn) {
        let group = &mut member.group;
        match act {
            Act::Hear(number) | Act::Die(number) => {
                let said = &memory.all[number as usize];
                group.on_message(Sender { node: node(said.from), epoch: said.epoch }, said.message.clone());
            }
            Act::Restart => self.restart(index, member),
            Act::Stand => self.stand(index, group),
            Act::Stop => group.stop_epoch(),
            Act::Propose(number) => group.propose(self.proposes[number].clone()),
            Act::Tick => {
                group.set_addresses(Vec::new());
                group.tick();
            }
            Act::Ask(number) => {
                let ballot = group.primaries().find(|primary| primary.is_serving()).map(|primary| primary.ballot());
                let (_, ask) = self.asks[number];
                group.operate(node(index), ask.operation(number as u64, index, member.runs, ballot));
            }
        }
        self.drain(index, member, act, memory, turn);
        if matches!(act, Act::Die(_)) {
            self.restart(index, member);
            self.drain(index, member, Act::Restart, memory, turn);
        }
    }

    fn restart(&self, index: usize, member: &mut Member) {
        member.runs += 1;
        member.group = parts::restarted(config(self.defects), index, &member.disk);
    }

    /// All live but the leader, to this member and to the one that would promise: what it asks changes nothing there.
    fn stand(&self, index: usize, group: &mut Group) {
        let leader = group.leader();
        let epoch = group.state().epoch;
        for other in (0..MEMBERS).filter(|other| *other != index) {
            group.on_message(Sender { node: node(other), epoch }, Message::Wait(0));
            if leader == Some(node(other)) {
                group.on_broken(node(other).peer);
            }
        }
        group.tick();
        let mut round = None;
        while let Some(output) = group.poll_output() {
            if let GroupOutput::Send(_, Message::Log(LogMessage::AskPromise { round: asked }), _) = output {
                round = Some(asked);
            }
        }
        let voter = (0..MEMBERS).find(|other| *other != index && leader != Some(node(*other))).expect("three");
        if let Some(round) = round {
            let message = Message::Log(LogMessage::WouldPromise { round });
            group.on_message(Sender { node: node(voter), epoch }, message);
        }
    }

    /// Does what a member wants done.
    fn drain(&self, index: usize, member: &mut Member, act: Act, memory: &mut Memory, turn: &mut Turn) {
        let dies = matches!(act, Act::Die(_));
        let ends = matches!(act, Act::Hear(number) if memory.stops(number));
        while let Some(output) = member.group.poll_output() {
            match output {
                GroupOutput::Send(to, message, epoch) => {
                    if says_the_end(&member.disk, ends, &message) && !has_sealed(&member.disk) {
                        turn.wrong = Some((SEALED, format!("not sealed, and says {message:?}")));
                    }
                    if self.follows(epoch, &message, act) {
                        let to = to.into_iter().filter_map(|to| (0..MEMBERS).find(|other| node(*other) == to));
                        turn.said.extend(
                            to.map(|to| memory.number(Said { from: index, to, epoch, message: message.clone() })),
                        );
                    }
                }
                GroupOutput::Persist(..) if dies => {}
                GroupOutput::Persist(token, changes) => {
                    for change in changes {
                        note_change(member, &change, turn);
                        member.disk.change(change);
                    }
                    member.group.on_persisted(token);
                }
                GroupOutput::Load { key, .. } => {
                    let record = member.disk.records.get(&key).cloned();
                    member.group.on_loaded(&key, record);
                }
                GroupOutput::Scan(token, ..) => {
                    let records = member.disk.records.clone().into_iter().collect();
                    member.group.on_scanned(token, records, true);
                }
                GroupOutput::Outcome(number, Outcome::Done(answer) | Outcome::Unchanged(answer)) => {
                    turn.answers.push((number as usize, answer));
                }
                _ => {}
            }
        }
    }
}

/// Does this say that the end was promised (it was asked for a promise that `ends`), or accepted?
fn says_the_end(disk: &Disk, ends: bool, message: &Message) -> bool {
    match message {
        Message::Log(LogMessage::Promise { .. }) => ends,
        Message::Log(LogMessage::Accepted { ballot, slots, .. }) => slots.iter().any(|slot| {
            disk.log_accepted.get(slot).is_some_and(|(under, entry)| under == ballot && entry.ends_epoch())
        }),
        _ => false,
    }
}

/// Has it written that it writes nothing more in the first epoch?
fn has_sealed(disk: &Disk) -> bool {
    let promised = disk.promises.as_ref().and_then(|promises| *promises.get(Point(0)));
    promised.is_some_and(|promised| promised.epoch > Epoch(1) || promised.term == Term(u64::MAX))
}

/// What a change to its disk says of a member.
fn note_change(member: &Member, change: &Durable, turn: &mut Turn) {
    match change {
        Durable::LogAccepted(slot, ballot, entry) => {
            let epoch = member.disk.state.as_ref().map_or(Epoch(1), |state| state.epoch);
            turn.accepted.push(((epoch, *slot), *ballot, Arc::new(entry.clone())));
        }
        Durable::Accepted(write) => {
            let number = write.record.number;
            turn.written.push(number);
            let mut committees = member.group.acceptor().committees().map(|committee| committee.ballot());
            let of_first = committees.any(|ballot| ballot.term == number.term && ballot.epoch == Epoch(1));
            if of_first && has_sealed(&member.disk) {
                turn.wrong = Some((SEALED, format!("{number:?} is written where the epoch is sealed")));
            }
        }
        _ => {}
    }
}

impl Turn {
    /// Did nothing come of it, but for what was said?
    pub(super) fn is_nothing(&self, before: &Member) -> bool {
        self.after.as_ref().is_some_and(|after| after.print == before.print)
            && self.wrong.is_none()
            && self.accepted.is_empty()
            && self.written.is_empty()
            && self.answers.is_empty()
    }
}

impl Memory {
    fn number(&mut self, said: Said) -> u32 {
        let name = postcard::to_allocvec(&(said.from as u8, said.to as u8, said.epoch, &said.message)).expect("plain");
        let next = self.all.len() as u32;
        let number = *self.names.entry(name).or_insert(next);
        if number == next {
            self.all.push(said);
        }
        number
    }

    /// What comes of a member's step.
    pub(super) fn turn(&mut self, rules: &Rules, index: usize, before: &Member, act: Act) -> Arc<Turn> {
        let key = (before.print, act);
        if let Some(turn) = self.turns.get(&key) {
            return turn.clone();
        }
        let turn = Arc::new(rules.turn(index, before, act, self));
        self.turns.insert(key, turn.clone());
        turn
    }

    fn stops(&self, number: u32) -> bool {
        matches!(&self.all[number as usize].message, Message::Log(LogMessage::Prepare { stop: true, .. }))
    }
}
