//! Three real members of one epoch, which some of them end. Each message may arrive at any later time, any number of times, or
//! never. So a situation consists of the members and of the messages that were sent so far. Time stands still.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use group::Group;
use group::ballot::{Ballot, LogSlot, Number};
use group::control::state::{Entry, GroupState};
use group::message::{LogMessage, Message};
use overlay::Epoch;

mod settle;
mod turns;

use crate::parts::{self, Asked, Disk, MEMBERS, NOW};
pub use crate::parts::{Ask, member, node};
pub use turns::{ALL, Act, Memory, NOTHING_LOST, ONE_ORDER, ONE_STATE, Rules, SEALED};
use turns::{Member, ONE_ENTRY, Place, Said, Turn, config};

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Step {
    /// Index of the member that acts.
    pub index: usize,
    /// Input or action of that member.
    pub act: Act,
}

/// The members that voted for an entry, as bits.
#[derive(Clone, Debug)]
struct Votes {
    entry: Arc<Entry>,
    by: u8,
}

/// The members that wrote one write of the epoch, as bits. `late`: whether the write was asked for when the end of the epoch
/// had been chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Written {
    by: u8,
    late: bool,
}

/// Three members, and the messages that were sent.
#[derive(Clone)]
pub struct Three {
    members: Vec<Arc<Member>>,
    said: Vec<u32>,
    votes: BTreeMap<(Place, Ballot), Votes>,
    writes: BTreeMap<Number, Written>,
    chosen: BTreeMap<Place, Arc<Entry>>,
    first: Arc<GroupState>,
    asked: Asked,
    proposed: usize,
    stopped: u8,
    stood: u8,
    restarted: bool,
    /// Violations, by the names of the properties.
    pub wrong: BTreeMap<&'static str, String>,
    print: u64,
}

/// The first slot that is open when a search begins.
const FIRST: u64 = 3;

fn is_majority(by: u8, of: u8) -> bool {
    2 * (by & of).count_ones() > of.count_ones()
}

impl Three {
    /// Makes a group in which one member leads and the first member is primary of the whole ring. All members know this.
    pub fn new(rules: &Rules, memory: &mut Memory) -> Three {
        let first = parts::state(1, 0);
        let start = |index| {
            let group = Group::join(config(rules.defects), node(index), first.clone(), NOW, 1);
            Arc::new(Member { group, disk: Disk::default(), runs: 0, print: index as u64 })
        };
        let mut three = Three {
            members: (0..MEMBERS).map(start).collect(),
            said: Vec::new(),
            votes: BTreeMap::new(),
            writes: BTreeMap::new(),
            chosen: BTreeMap::new(),
            first: Arc::new(first),
            asked: Asked::default(),
            proposed: 0,
            stopped: 0,
            stood: 0,
            restarted: false,
            wrong: BTreeMap::new(),
            print: 0,
        };
        let leader = rules.leader;
        let others = (0..MEMBERS).filter(|index| *index != leader).map(|index| (index, Act::Tick));
        let begin = [(leader, Act::Stand)].into_iter().chain(others).chain([(leader, Act::Tick)]);
        for (index, act) in begin {
            three = three.after(rules, memory, Step { index, act }).unwrap_or(three);
            three.hear_all(rules, memory);
        }
        three.said.clear();
        three.stood = 0;
        three.note_print();
        let log = three.members[leader].group.log();
        assert!(log.leads() && !log.is_busy());
        assert!(three.members.iter().all(|member| member.group.state().applied == LogSlot(FIRST - 1)));
        assert!(three.wrong.is_empty(), "{:?}", three.wrong);
        three
    }

    fn hear_all(&mut self, rules: &Rules, memory: &mut Memory) {
        loop {
            let hears = self.said.iter().map(|number| (memory.all[*number as usize].to, Act::Hear(*number)));
            let steps: Vec<Step> = hears.map(|(index, act)| Step { index, act }).collect();
            match steps.into_iter().find_map(|step| self.after(rules, memory, step)) {
                Some(next) => *self = next,
                None => return,
            }
        }
    }

    /// Adds all steps that are possible now.
    pub fn steps(&self, rules: &Rules, memory: &Memory, steps: &mut Vec<Step>) {
        self.hears(rules, memory, steps);
        for (index, member) in self.members.iter().enumerate() {
            let group = &member.group;
            let mut may = |act| steps.push(Step { index, act });
            if rules.restarts.contains(&index) && !self.restarted {
                may(Act::Restart);
            }
            if rules.asks.get(self.asked.count()).is_some_and(|(asked, _)| *asked == index)
                && group.primaries().any(|primary| primary.is_serving())
            {
                may(Act::Ask(self.asked.count()));
            }
            if member.epoch() > Epoch(1) {
                continue;
            }
            if rules.stops.contains(&index) && self.stopped & 1 << index == 0 {
                may(Act::Stop);
            }
            if rules.stands.contains(&index) && self.stood & 1 << index == 0 && group.log().leads_under().is_none() {
                may(Act::Stand);
            }
            if index == rules.leader && self.proposed < rules.proposes.len() && group.log().leads() {
                may(Act::Propose(self.proposed));
            }
            if rules.ticks && group.log().leads_under().is_some() {
                may(Act::Tick);
            }
        }
    }

    fn hears(&self, rules: &Rules, memory: &Memory, steps: &mut Vec<Step>) {
        for number in &self.said {
            let index = memory.all[*number as usize].to;
            steps.push(Step { index, act: Act::Hear(*number) });
            if rules.restarts.contains(&index) && !self.restarted {
                steps.push(Step { index, act: Act::Die(*number) });
            }
        }
    }

    /// Returns whether this message can still change its receiver.
    fn matters(&self, rules: &Rules, said: &Said) -> bool {
        let member = &self.members[said.to];
        let (state, log) = (member.group.state(), member.group.log());
        let refused = |ballot: &Ballot| log.promised().is_some_and(|promised| promised > *ballot);
        match &said.message {
            Message::Log(_) | Message::Heartbeat(_) if state.epoch > said.epoch => rules.states,
            Message::Log(LogMessage::Prepare { ballot, .. } | LogMessage::Accept { ballot, .. }) => {
                rules.refusals || !refused(ballot)
            }
            Message::Log(LogMessage::Promise { ballot, .. }) => log.leads_under().is_none_or(|led| led < *ballot),
            Message::Log(LogMessage::Accepted { ballot, slots, .. }) => {
                log.leads_under() == Some(*ballot) && slots.iter().any(|slot| *slot > state.applied)
            }
            Message::Log(LogMessage::Refused { ballot, .. }) => {
                log.leads_under().is_none_or(|led| led == *ballot) && log.promised() == Some(*ballot)
            }
            Message::Heartbeat(heartbeat) => heartbeat.leads.is_some_and(|ballot| !refused(&ballot)),
            Message::State(told) => told.applied > state.applied,
            Message::Committee(message) if message.is_for_primary() => {
                let ballot = message.ballot();
                member.group.primaries().any(|primary| primary.ballot() == ballot && !primary.is_ended())
            }
            Message::Committee(message) => message.ballot().epoch >= state.epoch,
            _ => true,
        }
    }

    /// Returns the situation after a step; `None` where it is the same.
    pub fn after(&self, rules: &Rules, memory: &mut Memory, Step { index, act }: Step) -> Option<Three> {
        let before = &self.members[index];
        let turn = memory.turn(rules, index, before, act);
        let heard = matches!(act, Act::Hear(_) | Act::Tick);
        if heard && turn.is_nothing(before) && turn.said.iter().all(|number| self.said.contains(number)) {
            return None;
        }
        let mut next = self.clone();
        match act {
            Act::Propose(number) => next.proposed = number + 1,
            Act::Stop => next.stopped |= 1 << index,
            Act::Stand => next.stood |= 1 << index,
            Act::Restart | Act::Die(_) => next.restarted = true,
            Act::Ask(_) => next.asked.ask(),
            Act::Hear(_) | Act::Tick => {}
        }
        next.take(index, act, &turn);
        next.wrong.retain(|name, _| rules.watches.contains(name));
        if !next.said.is_empty() {
            let all = &memory.all;
            let mut said = std::mem::take(&mut next.said);
            said.retain(|number| next.matters(rules, &all[*number as usize]));
            next.said = said;
        }
        next.note_print();
        (next.print != self.print).then_some(next)
    }

    /// Takes over the results of one member's step.
    fn take(&mut self, index: usize, act: Act, turn: &Turn) {
        if let Some((name, why)) = &turn.wrong {
            self.wrong.insert(name, why.clone());
        }
        let Some(after) = &turn.after else { return };
        self.members[index] = after.clone();
        self.said.extend(&turn.said);
        self.said.sort_unstable();
        self.said.dedup();
        for (place, ballot, entry) in &turn.accepted {
            self.vote(index, *place, *ballot, entry);
        }
        let ended = self.chosen.values().any(|entry| entry.ends_epoch());
        for number in &turn.written {
            let late = ended && matches!(act, Act::Ask(_));
            let written = self.writes.entry(*number).or_insert(Written { by: 0, late });
            written.by |= 1 << index;
            let of_first = number.term == self.first.division[0].term;
            if of_first && written.late && is_majority(written.by, 7) {
                self.wrong.insert(SEALED, format!("{number:?} was asked for behind the end, and is chosen"));
            }
        }
        for (number, answer) in &turn.answers {
            if let Err(why) = self.asked.answered(*number, answer) {
                self.wrong.insert(ONE_ORDER, why);
            }
        }
        self.compare(index);
    }

    fn vote(&mut self, index: usize, place: Place, ballot: Ballot, entry: &Arc<Entry>) {
        let fresh = || Votes { entry: entry.clone(), by: 0 };
        let votes = self.votes.entry((place, ballot)).or_insert_with(fresh);
        if votes.entry != *entry {
            self.wrong.insert(ONE_ENTRY, format!("{:?} and {entry:?} under {ballot:?} in {place:?}", votes.entry));
            return;
        }
        votes.by |= 1 << index;
        if is_majority(votes.by, self.voters(place.0)) {
            let known = self.chosen.entry(place).or_insert_with(|| entry.clone());
            if known != entry {
                self.wrong.insert(ONE_ENTRY, format!("{known:?} and {entry:?} are chosen in {place:?}"));
            }
        }
    }

    /// Returns the voters of an epoch, as bits.
    fn voters(&self, epoch: Epoch) -> u8 {
        let next = self.chosen_prefix().last().filter(|_| epoch > Epoch(1));
        let votes = |index: &usize| match next {
            Some(Entry::Next(members)) => members.iter().any(|member| member.node == node(*index)),
            _ => true,
        };
        (0..MEMBERS).filter(votes).map(|index| 1 << index).sum()
    }

    /// Compares a member's state with the chosen entries, applied in order, and with the states of other members that have come
    /// as far. They must be equal.
    fn compare(&mut self, index: usize) {
        let state = self.members[index].group.state();
        let mut expected = (*self.first).clone();
        while expected.applied < state.applied {
            let slot = expected.applied.next();
            match self.chosen.get(&(expected.epoch, slot)) {
                Some(entry) => expected.apply(slot, entry),
                None => break,
            }
        }
        if expected != *state {
            self.wrong.insert(NOTHING_LOST, format!("{state:?} is not {expected:?}"));
        }
        let mut states = self.members.iter().map(|member| member.group.state());
        let as_far = |other: &&GroupState| (other.epoch, other.applied) == (state.epoch, state.applied);
        if let Some(other) = states.find(|other| as_far(other) && *other != state) {
            self.wrong.insert(ONE_STATE, format!("{state:?} and {other:?}"));
        }
    }

    /// Returns the number of members in the next epoch.
    pub fn ended(&self) -> usize {
        self.members.iter().filter(|member| member.epoch() > Epoch(1)).count()
    }

    /// Returns the chosen entries before the first open slot, up to the end of the epoch.
    fn chosen_prefix(&self) -> impl Iterator<Item = &Entry> {
        let mut ended = false;
        let slots = (FIRST..).map_while(|slot| self.chosen.get(&(Epoch(1), LogSlot(slot))));
        slots.map(|entry| &**entry).take_while(move |entry| !std::mem::replace(&mut ended, entry.ends_epoch()))
    }

    /// Returns the number of entries that were chosen before the end of the epoch; `None` while that end is not chosen.
    pub fn before_the_end(&self) -> Option<usize> {
        self.chosen_prefix().position(Entry::ends_epoch)
    }

    /// Returns the number of members that lead, or believe that they do.
    pub fn leaders(&self) -> usize {
        self.members.iter().filter(|member| member.group.log().leads_under().is_some()).count()
    }

    /// Returns whether every question was asked and answered.
    pub fn all_answered(&self, rules: &Rules) -> bool {
        self.asked.count() == rules.asks.len() && self.asked.answers().all(|answer| answer.is_some())
    }

    fn note_print(&mut self) {
        let mut hasher = DefaultHasher::new();
        self.members.iter().for_each(|member| member.print.hash(&mut hasher));
        self.votes.iter().for_each(|(place, votes)| (place, votes.by).hash(&mut hasher));
        let left = (self.proposed, self.stopped, self.stood, self.restarted);
        (&self.said, &self.writes, &self.asked, left, &self.wrong).hash(&mut hasher);
        self.print = hasher.finish();
    }
}

impl Hash for Three {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.print.hash(hasher);
    }
}

impl PartialEq for Three {
    fn eq(&self, other: &Three) -> bool {
        self.print == other.print
    }
}

impl fmt::Debug for Three {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {:?}, {} things said", self.wrong, self.asked, self.said.len())
    }
}
