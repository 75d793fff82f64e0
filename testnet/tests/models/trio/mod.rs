//! Three real members of one group in one process. The search chooses each message, restart and change of division, time stands
//! still, and one key is a counter. The model is small enough for a search through all schedules.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use group::Group;
use group::ballot::Number;
use group::config::{Defect, Defects, GroupConfig, Timing};
use group::message::{AttemptOutcome, Message, Sender};
use group::op::Version;
use group::outbox::GroupOutput;
use overlay::{Epoch, KeyRange, NodeId};

pub use crate::parts::Ask;
use crate::parts::{self, Asked, Disk, MEMBERS, NOW, node, restarted, state, sum_of};

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A message arrives: the first one with this encoding.
    Deliver(Vec<u8>),
    /// The message arrives, and stays on its way to arrive once more.
    Double(Vec<u8>),
    /// A member learns of the division after the one it knows.
    Learn(usize),
    /// A client asks the next question of its member.
    Ask,
    /// A member stops and comes back with all that it had written.
    Restart(usize),
}

/// Three members, their disks, and the messages on their way.
#[derive(Clone)]
pub struct Trio {
    defects: Defects,
    /// Primaries of the divisions. All members know the first division.
    divisions: &'static [usize],
    /// Members. A step copies only the one that it changes.
    groups: Vec<Arc<Group>>,
    /// Hash of each member's state, unless the member has changed since.
    prints: [Option<u64>; MEMBERS],
    disks: Vec<Disk>,
    runs: [u64; MEMBERS],
    /// Messages on their way, by encoding: sender, receiver, message.
    net: BTreeMap<Vec<u8>, (usize, usize, Message)>,
    asked: Asked,
    /// Values of the one key, by all versions that were seen as chosen.
    chosen: BTreeMap<Version, Option<i64>>,
    /// Versions and values of the one key, by all numbers that were seen as accepted.
    accepted: BTreeMap<Number, (Version, Option<i64>)>,
    /// Numbers of messages that may yet be doubled, and of restarts that may yet happen.
    doubles: u32,
    restarts: u32,
    /// The violation that was found.
    pub wrong: Option<String>,
    fingerprint: u64,
}

impl Trio {
    /// Makes a group whose first primary serves, and all members know this.
    pub fn new(defects: Defects, divisions: &'static [usize], doubles: u32, restarts: u32) -> Trio {
        let config = config(defects);
        let groups = (0..MEMBERS).map(|index| Group::join(config.clone(), node(index), state(1, divisions[0]), NOW, 1));
        let mut trio = Trio {
            defects,
            divisions,
            groups: groups.map(Arc::new).collect(),
            prints: [None; MEMBERS],
            disks: vec![Disk::default(); MEMBERS],
            runs: [0; MEMBERS],
            net: BTreeMap::new(),
            asked: Asked::default(),
            chosen: BTreeMap::new(),
            accepted: BTreeMap::new(),
            doubles,
            restarts,
            wrong: None,
            fingerprint: 0,
        };
        for index in 0..MEMBERS {
            trio.drain(index);
        }
        while let Some((_, (from, to, message))) = trio.net.pop_first() {
            trio.deliver(from, to, message);
        }
        trio.look();
        trio
    }

    /// Delivers all messages between two members, until neither sends any more. All other messages on their way are then lost.
    pub fn talk(&mut self, one: usize, other: usize) {
        let among = |from, to| (from, to) == (one, other) || (from, to) == (other, one);
        while let Some(name) =
            self.net.iter().find(|(_, (from, to, _))| among(*from, *to)).map(|(name, _)| name.clone())
        {
            let (from, to, message) = self.net.remove(&name).expect("just seen");
            self.deliver(from, to, message);
        }
        self.net.clear();
        self.look();
    }

    /// Adds all steps that are possible now.
    pub fn steps(&self, asks: &[(usize, Ask)], steps: &mut Vec<Step>) {
        if self.wrong.is_some() {
            return;
        }
        for name in self.net.keys() {
            steps.push(Step::Deliver(name.clone()));
            if self.doubles > 0 {
                steps.push(Step::Double(name.clone()));
            }
        }
        for (index, group) in self.groups.iter().enumerate() {
            // An acceptor need not know the division. The interesting case is a primary that does not.
            let known = group.state().applied.0 as usize;
            if self.divisions.get(known).is_some_and(|primary| *primary == index) {
                steps.push(Step::Learn(index));
            }
            if self.restarts > 0 {
                steps.push(Step::Restart(index));
            }
        }
        if let Some((member, _)) = asks.get(self.asked.count())
            && self.groups[*member].primaries().any(|primary| primary.is_serving())
        {
            steps.push(Step::Ask);
        }
    }

    /// Returns the situation after a step.
    pub fn after(&self, step: &Step, asks: &[(usize, Ask)]) -> Trio {
        let mut next = self.clone();
        let taken = catch_unwind(AssertUnwindSafe(|| {
            next.take(step, asks);
            next.drop_idle();
            next.look();
        }));
        if let Err(panic) = taken {
            let text = panic.downcast_ref::<String>().cloned();
            next.wrong = Some(text.unwrap_or_else(|| "a panic".into()));
            let mut hasher = DefaultHasher::new();
            (self.fingerprint, &next.wrong).hash(&mut hasher);
            next.fingerprint = hasher.finish();
        }
        next
    }

    /// Returns a member that is about to change.
    fn group_mut(&mut self, index: usize) -> &mut Group {
        self.prints[index] = None;
        Arc::make_mut(&mut self.groups[index])
    }

    /// Takes a step.
    pub fn take(&mut self, step: &Step, asks: &[(usize, Ask)]) {
        match step {
            Step::Deliver(name) => {
                if let Some((from, to, message)) = self.net.remove(name) {
                    self.deliver(from, to, message);
                }
            }
            Step::Double(name) => {
                self.doubles -= 1;
                if let Some((from, to, message)) = self.net.get(name).cloned() {
                    self.deliver(from, to, message);
                }
            }
            Step::Learn(index) => {
                let known = self.groups[*index].state().applied.0 as usize;
                let next = state(known as u64 + 1, self.divisions[known]);
                let other = (*index + 1) % MEMBERS;
                self.deliver(other, *index, Message::State(Box::new(next)));
            }
            Step::Ask => {
                let (member, ask) = asks[self.asked.count()];
                self.ask(member, ask);
            }
            Step::Restart(index) => {
                self.restarts -= 1;
                self.runs[*index] += 1;
                let group = restarted(config(self.defects), *index, &self.disks[*index]);
                *self.group_mut(*index) = group;
                self.drain(*index);
            }
        }
    }

    /// Drops answers to primaries that have ended: their arrival changes nothing. With `BallotReuse` a restarted primary may
    /// use such a ballot again, so then these answers stay.
    fn drop_idle(&mut self) {
        if self.defects.has(Defect::BallotReuse) {
            return;
        }
        let groups = &self.groups;
        self.net.retain(|_, (_, to, message)| match message {
            Message::Committee(message) if message.is_for_primary() => {
                let ballot = message.ballot();
                groups[*to].primaries().any(|primary| primary.ballot() == ballot && !primary.is_ended())
            }
            _ => true,
        });
    }

    fn ask(&mut self, index: usize, ask: Ask) {
        let number = self.asked.count() as u64;
        self.asked.ask();
        let serving = self.groups[index].primaries().find(|primary| primary.is_serving());
        let ballot = serving.map(|primary| primary.ballot());
        let operation = ask.operation(number, index, self.runs[index], ballot);
        self.group_mut(index).operate(node(index), operation);
        self.drain(index);
    }

    fn deliver(&mut self, from: usize, to: usize, message: Message) {
        let epoch = Epoch(1);
        self.group_mut(to).on_message(Sender { node: node(from), epoch }, message);
        self.drain(to);
    }

    /// Carries out the outputs of a member.
    fn drain(&mut self, index: usize) {
        while let Some(output) = self.group_mut(index).poll_output() {
            match output {
                GroupOutput::Send(to, message @ Message::Committee(_), _) => {
                    for to in to {
                        let to = (0..MEMBERS).find(|other| node(*other) == to).expect("one of three");
                        let name = postcard::to_allocvec(&(index as u8, to as u8, &message)).expect("plain");
                        self.net.insert(name, (index, to, message.clone()));
                    }
                }
                GroupOutput::Persist(token, changes) => {
                    for change in changes {
                        self.disks[index].change(change);
                    }
                    self.group_mut(index).on_persisted(token);
                }
                GroupOutput::Load { key, .. } => {
                    let record = self.disks[index].records.get(&key).cloned();
                    self.group_mut(index).on_loaded(&key, record);
                }
                GroupOutput::Scan(token, ..) => {
                    let records = self.disks[index].records.clone().into_iter().collect();
                    self.group_mut(index).on_scanned(token, records, true);
                }
                GroupOutput::Outcome(number, AttemptOutcome::Done(answer) | AttemptOutcome::Unchanged(answer)) => {
                    if let Err(why) = self.asked.answered(number as usize, &answer) {
                        self.wrong = Some(why);
                    }
                }
                _ => {}
            }
        }
    }

    /// Looks for two values in one place: at the members that have changed, as all others were looked at before.
    fn look(&mut self) {
        for (group, print) in self.groups.iter().zip(&mut self.prints).filter(|(_, print)| print.is_none()) {
            for (_, record) in group.table().iter() {
                let value = record.value.as_ref().map(|value| sum_of(value));
                let first = *self.chosen.entry(record.version).or_insert(value);
                if first != value {
                    self.wrong = Some(format!("{:?} is chosen as {first:?} and as {value:?}", record.version));
                }
            }
            for write in group.acceptor().committees().flat_map(|committee| committee.unsettled(KeyRange::FULL)) {
                let value = (write.record.version, write.record.value.as_ref().map(|value| sum_of(value)));
                let first = *self.accepted.entry(write.record.number).or_insert(value);
                if first != value {
                    self.wrong = Some(format!("{:?} is accepted as {first:?} and as {value:?}", write.record.number));
                }
            }
            let primaries: Vec<_> = group.primaries().collect();
            let parts = (group.state().applied, group.acceptor(), primaries, group.table());
            let mut hasher = DefaultHasher::new();
            format!("{parts:?}").hash(&mut hasher);
            *print = Some(hasher.finish());
        }
        let mut hasher = DefaultHasher::new();
        self.prints.hash(&mut hasher);
        self.net.keys().for_each(|name| name.hash(&mut hasher));
        (&self.asked, &self.wrong, self.doubles, self.restarts).hash(&mut hasher);
        format!("{:?}{:?}", self.chosen, self.accepted).hash(&mut hasher);
        self.fingerprint = hasher.finish();
    }

    /// Returns whether `count` questions were asked, and each was answered.
    pub fn all_answered(&self, count: usize) -> bool {
        self.asked.count() == count && self.asked.answers().all(|answer| answer.is_some())
    }

    /// Returns the answer of each question; `None` while a question has none.
    pub fn answers(&self) -> Vec<Option<i64>> {
        self.asked.answers().collect()
    }

    /// Returns the members that serve as primaries, or believe that they do.
    pub fn serving(&self) -> BTreeSet<NodeId> {
        let serving = self.groups.iter().filter(|group| group.primaries().any(|primary| primary.is_serving()));
        serving.map(|group| group.me()).collect()
    }
}

fn config(defects: Defects) -> GroupConfig {
    parts::config(defects, Timing::default())
}

impl Hash for Trio {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.fingerprint.hash(hasher);
    }
}

impl PartialEq for Trio {
    fn eq(&self, other: &Trio) -> bool {
        self.fingerprint == other.fingerprint
    }
}

impl fmt::Debug for Trio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {:?}, {} on their way", self.wrong, self.asked, self.net.len())
    }
}
