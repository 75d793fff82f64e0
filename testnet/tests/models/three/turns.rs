//! Results of one input at one member, computed once for all schedules that lead there.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use group::Group;
use group::ballot::{Ballot, LogSlot, Number, Term};
use group::config::{Defects, GroupConfig, Timing};
use group::control::state::Entry;
use group::message::{AttemptOutcome, CommitteeMessage, LogMessage, Message, Sender};
use group::op::Answer;
use group::outbox::{Durable, GroupOutput};
use overlay::{Epoch, Point};

use crate::parts::{self, Ask, Disk, MEMBERS, node};

// Names of the properties that must hold.
pub const ONE_ENTRY: &str = "one entry is chosen in a slot";
pub const NOTHING_LOST: &str = "a member's state is what was chosen";
pub const ONE_STATE: &str = "who has come as far is in the same state";
pub const SEALED: &str = "nothing is written in an epoch behind its end";
pub const ONE_ORDER: &str = "answers have one order";
pub const NO_PANIC: &str = "nobody panics";
pub const ALL: &[&str] = &[ONE_ENTRY, NOTHING_LOST, ONE_STATE, SEALED, ONE_ORDER, NO_PANIC];

/// Input or action of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Act {
    /// The member receives the message of this number.
    Hear(u32),
    /// The member receives it, sends the answers that need no write, and dies before any write.
    Die(u32),
    /// The member stops, and comes back with all that it had written.
    Restart,
    /// The member stands for election, together with another one that misses the leader as well.
    Stand,
    /// The member ends the epoch.
    Stop,
    /// As leader, the member proposes the entry of this number.
    Propose(usize),
    /// As leader, the member sends its heartbeat, and does its duties.
    Tick,
    /// A client asks the member the question of this number.
    Ask(usize),
}

/// The actions that schedules may have, and how often.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Rules that members leave out.
    pub defects: Defects,
    /// Index of the first leader. The first member is primary of the whole ring.
    pub leader: usize,
    /// Entries that this leader proposes, one after another, without waiting.
    pub proposes: Vec<Entry>,
    /// Members that end the epoch, once each.
    pub stops: &'static [usize],
    /// Members that stand for election, once each.
    pub stands: &'static [usize],
    /// Members that stop and come back; only one of them does, once.
    pub restarts: &'static [usize],
    /// Whether leaders send heartbeats, and do their duties.
    pub ticks: bool,
    /// Whether members send each other their whole states.
    pub states: bool,
    /// Whether members also send refusals, and ask for states.
    pub refusals: bool,
    /// Names of the properties that are checked.
    pub watches: &'static [&'static str],
    /// Questions of clients, with the members that they ask. Without questions, members send no messages about keys.
    pub asks: &'static [(usize, Ask)],
}

/// A message that was sent.
pub(super) struct Said {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) epoch: Epoch,
    pub(super) message: Message,
}

/// One member at one time.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) group: Group,
    pub(super) disk: Disk,
    pub(super) runs: u64,
    pub(super) print: u64,
}

/// Results of one member's step.
#[derive(Default)]
pub(super) struct Turn {
    pub(super) after: Option<Arc<Member>>,
    pub(super) said: Vec<u32>,
    pub(super) accepted: Vec<(Place, Ballot, Arc<Entry>)>,
    pub(super) written: Vec<Number>,
    pub(super) answers: Vec<(usize, Answer)>,
    pub(super) wrong: Option<(&'static str, String)>,
}

/// Results that were computed so far.
#[derive(Default)]
pub struct Memory {
    names: BTreeMap<Vec<u8>, u32>,
    pub(super) all: Vec<Said>,
    turns: BTreeMap<(u64, Act), Arc<Turn>>,
}

/// A slot in one epoch: behind the end of an epoch, its slots belong to the next one.
pub(super) type Place = (Epoch, LogSlot);

/// Returns a configuration with a heartbeat of 1 ns. Fractions of it round to zero, and are over at once; the whole is never
/// over while time stands still.
pub(super) fn config(defects: Defects) -> GroupConfig {
    let timing = Timing { heartbeat: Duration::from_nanos(1), broken_grace: Duration::ZERO, ..Timing::default() };
    parts::config(defects, timing)
}

impl Member {
    pub(super) fn epoch(&self) -> Epoch {
        self.group.state().epoch
    }

    /// Updates the fingerprint. The member's reactions to inputs depend on nothing else, since time stands still.
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
    /// Returns whether the search has to remember this message.
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

    /// Computes the results of a member's action.
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

    /// Makes a member stand for election: for this member, and for the voter that would promise, all members live but the
    /// leader. The poll changes nothing at the voter, so its answer comes at once.
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

    /// Carries out the outputs of a member.
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
                GroupOutput::Outcome(number, AttemptOutcome::Done(answer) | AttemptOutcome::Unchanged(answer)) => {
                    turn.answers.push((number as usize, answer));
                }
                _ => {}
            }
        }
    }
}

/// Returns whether this message tells of a promise to end the epoch (its question `ends` the epoch), or of the accepted end.
fn says_the_end(disk: &Disk, ends: bool, message: &Message) -> bool {
    match message {
        Message::Log(LogMessage::Promise { .. }) => ends,
        Message::Log(LogMessage::Accepted { ballot, slots, .. }) => slots.iter().any(|slot| {
            disk.log_accepted.get(slot).is_some_and(|(under, entry)| under == ballot && entry.ends_epoch())
        }),
        _ => false,
    }
}

/// Returns whether the member has stored a promise to write nothing more in the first epoch.
fn has_sealed(disk: &Disk) -> bool {
    let promised = disk.promises.as_ref().and_then(|promises| *promises.get(Point(0)));
    promised.is_some_and(|promised| promised.epoch > Epoch(1) || promised.term == Term(u64::MAX))
}

/// Notes the votes and writes in a change to a member's disk.
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
    /// Returns whether the step changed nothing, apart from the messages that it sent.
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

    /// Returns the results of a member's step.
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
