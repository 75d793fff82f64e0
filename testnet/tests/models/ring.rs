//! A ring of groups of one member each, and all steps that can come next.

use std::collections::{BTreeMap, BTreeSet};

use group::ballot::LogSlot;
use group::config::{Defect, Defects};
use group::transaction::plan::{GroupTransaction, Plan, Rank};
use group::transaction::state::{Own, TransactionEntry, TransactionState};
use group::transaction::{Outcome, TransactionId, Vote};
use overlay::time::WallMillis;
use overlay::{Contact, Epoch, GroupId, GroupRef, Incarnation, KeyRange, NodeId, PeerKey, Point};

/// Transaction that a test wants, with the index of the group that owned this part of the ring at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Intent {
    /// The group is split in the middle.
    Split(usize),
    /// The group is merged with its successor.
    Merge(usize),
    /// The end of the group moves to its middle.
    Repartition(usize),
    /// A member of the group goes to its successor.
    Migrate(usize),
}

impl Intent {
    /// Returns the index of the part of the ring.
    pub fn group(self) -> usize {
        let (Intent::Split(group) | Intent::Merge(group) | Intent::Repartition(group) | Intent::Migrate(group)) = self;
        group
    }

    /// Returns the same intent for another group.
    pub fn of(self, group: usize) -> Intent {
        match self {
            Intent::Split(_) => Intent::Split(group),
            Intent::Merge(_) => Intent::Merge(group),
            Intent::Repartition(_) => Intent::Repartition(group),
            Intent::Migrate(_) => Intent::Migrate(group),
        }
    }
}

/// Next step of a schedule.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A transaction is planned for an intent, from the current statements of two groups about themselves.
    Plans(usize),
    /// A plan is proposed to the group that it was planned for.
    Begins(usize),
    /// The members of the current owner of this part of the ring change.
    Changes(usize),
    /// A group has this entry chosen.
    Chooses(GroupId, TransactionEntry),
}

/// Formats a step for a reader.
pub fn tell(step: &Step) -> String {
    match step {
        Step::Chooses(id, entry) => format!("{id:?} chooses {entry}"),
        other => format!("{other:?}"),
    }
}

/// Statement of a group. From then on any group may hear it at any time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Said {
    Prepare(TransactionId),
    Vote(TransactionId, GroupId, Vote),
    Decision(TransactionId, Outcome),
    End(TransactionId, GroupId),
}

/// One group, in which each proposed entry is chosen at once.
#[derive(Clone, Debug, PartialEq, Hash)]
struct Sim {
    own: Own,
    members: Vec<Contact>,
    transactions: TransactionState,
    ended: Option<TransactionId>,
}

impl Sim {
    fn reference(&self) -> GroupRef {
        let Own { id, epoch, range, .. } = self.own;
        GroupRef { id, epoch, range, members: self.members.clone() }
    }

    /// Returns whether the entry would change the group.
    fn changed_by(&self, entry: &TransactionEntry) -> bool {
        let mut next = self.transactions.clone();
        next.apply(&self.own, self.own.applied.next(), entry) || next != self.transactions
    }
}

/// The whole ring, and all statements of its groups.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Ring {
    groups: BTreeMap<GroupId, Sim>,
    /// Number of groups at first; parts of the ring are named by it.
    parts: usize,
    defects: Defects,
    intents: Vec<Option<Intent>>,
    plans: Vec<Option<(GroupId, Plan)>>,
    changes: Vec<Point>,
    said: BTreeSet<Said>,
    asked: BTreeMap<TransactionId, Plan>,
    pushed: Vec<GroupRef>,
    outcomes: BTreeMap<TransactionId, Outcome>,
    /// True once a plan was out of date when it was begun.
    pub too_old: bool,
    /// Properties that do not hold.
    pub wrong: Vec<&'static str>,
}

/// Returns the start of a part of the ring.
fn part(index: usize, groups: usize) -> Point {
    KeyRange::FULL.cut_at(index as u32, groups as u32)
}

fn contact(n: u8) -> Contact {
    let node = NodeId { peer: PeerKey([n; 32]), incarnation: Incarnation(1) };
    Contact { node, addresses: Vec::new(), name: None }
}

impl Ring {
    /// Makes a ring of `groups` groups that know each other, by splits of one group.
    pub fn new(groups: usize, intents: &[Intent], changes: &[usize], without: Option<Defect>) -> Ring {
        let own = Own {
            id: GroupId(1),
            epoch: Epoch(1),
            range: KeyRange::FULL,
            settled: true,
            applied: LogSlot(1),
            defects: Defects::NONE,
        };
        let members = (0..2 * groups as u8).map(contact).collect();
        let first = Sim { own, members, transactions: TransactionState::default(), ended: None };
        let mut ring = Ring {
            groups: BTreeMap::from([(own.id, first)]),
            parts: groups,
            defects: Defects::NONE,
            intents: Vec::new(),
            plans: Vec::new(),
            changes: Vec::new(),
            said: BTreeSet::new(),
            asked: BTreeMap::new(),
            pushed: Vec::new(),
            outcomes: BTreeMap::new(),
            too_old: false,
            wrong: Vec::new(),
        };
        for index in 1..groups {
            ring.split_off(part(index, groups));
        }
        let defects = without.map_or(Defects::NONE, |defect| Defects::NONE.with(defect));
        ring.defects = defects;
        ring.groups.values_mut().for_each(|sim| sim.own.defects = defects);
        ring.intents = intents.iter().copied().map(Some).collect();
        ring.plans = intents.iter().map(|_| None).collect();
        ring.changes = changes.iter().map(|index| part(*index, groups)).collect();
        (ring.said, ring.asked, ring.outcomes) = Default::default();
        ring.pushed.clear();
        ring
    }

    /// Splits the owner of `at`, which keeps the part before this point, and takes all steps that follow.
    fn split_off(&mut self, at: Point) {
        let id = self.owner(at);
        let sim = &self.groups[&id];
        let first = sim.members.iter().take(2).map(|contact| contact.node).collect();
        let view = sim.transactions.view(&sim.reference());
        let operation = GroupTransaction::Split { at, first };
        let plan = Plan::new(operation, &view, None, Rank::new(0, WallMillis(0))).expect("it can be split");
        self.choose(id, &TransactionEntry::Begin(plan.into()));
        let mut steps = Vec::new();
        loop {
            steps.clear();
            self.steps(&mut steps);
            let next = steps
                .iter()
                .find(|step| !matches!(step, Step::Chooses(_, TransactionEntry::Outcome(_, Outcome::Abort))));
            let Some(Step::Chooses(id, entry)) = next.cloned() else { break };
            self.choose(id, &entry);
        }
        assert!(self.wrong.is_empty(), "{:?}", self.wrong);
    }

    fn owner(&self, point: Point) -> GroupId {
        let owner = self.groups.values().find(|sim| sim.own.range.contains(point));
        owner.expect("every point has an owner").own.id
    }

    fn live(&self) -> impl Iterator<Item = &Sim> {
        self.groups.values().filter(|sim| sim.ended.is_none())
    }

    /// Returns the number of transactions with this outcome.
    pub fn count(&self, wanted: Outcome) -> usize {
        self.outcomes.values().filter(|outcome| **outcome == wanted).count()
    }

    /// Returns the number of open transactions.
    pub fn open(&self) -> usize {
        self.live().filter(|sim| sim.transactions.coordinates().is_some()).count()
    }

    /// Returns whether no step is possible any more.
    pub fn is_at_rest(&self) -> bool {
        let mut steps = Vec::new();
        self.steps(&mut steps);
        steps.is_empty()
    }

    /// Adds all steps that are possible next.
    pub fn steps(&self, steps: &mut Vec<Step>) {
        let intents = self.intents.iter().enumerate();
        steps.extend(intents.filter(|(_, intent)| intent.is_some()).map(|(index, _)| Step::Plans(index)));
        let plans = self.plans.iter().enumerate();
        steps.extend(plans.filter(|(_, plan)| plan.is_some()).map(|(index, _)| Step::Begins(index)));
        let changes = (0..self.changes.len()).filter(|index| {
            let sim = &self.groups[&self.owner(self.changes[*index])];
            sim.ended.is_none()
        });
        steps.extend(changes.map(Step::Changes));
        for sim in self.live() {
            let mut entries = self.entries_of(sim);
            entries.retain(|entry| sim.changed_by(entry));
            steps.extend(entries.into_iter().map(|entry| Step::Chooses(sim.own.id, entry)));
        }
    }

    /// Returns the entries that a leader of this group might have chosen, given the statements so far.
    fn entries_of(&self, sim: &Sim) -> Vec<TransactionEntry> {
        let (own, transactions) = (&sim.own, &sim.transactions);
        let mut entries = Vec::new();
        if let Some((id, plan)) = transactions.coordinates() {
            entries.push(TransactionEntry::Outcome(id, Outcome::Abort));
            let yes = |group: GroupId| self.said.contains(&Said::Vote(id, group, Vote::Yes));
            let enough = self.defects.has(Defect::OneVote) && plan.asked().any(|party| yes(party.group.id));
            if enough || plan.asked().all(|party| yes(party.group.id)) {
                entries.push(TransactionEntry::Outcome(id, Outcome::Commit));
            }
        }
        for said in &self.said {
            match said {
                Said::Prepare(id) if self.asked[id].party(own.id).is_some() && id.group != own.id => {
                    entries.push(TransactionEntry::Asked(*id, Box::new(self.asked[id].clone())));
                }
                Said::Decision(id, outcome) if id.group != own.id && self.asked[id].party(own.id).is_some() => {
                    let ends = *outcome == Outcome::Commit && transactions.is_touched(own, *id);
                    entries.push(if ends {
                        TransactionEntry::Ending(*id)
                    } else {
                        TransactionEntry::Decided(*id, *outcome)
                    });
                }
                Said::End(id, group) => entries.push(TransactionEntry::Ended(*id, *group)),
                _ => {}
            }
        }
        entries.extend(self.pushed.iter().cloned().map(TransactionEntry::Neighbour));
        // A group that waits for a commit knows it as one; hearing of it twice does not undo it.
        entries.retain(
            |entry| !matches!(entry, TransactionEntry::Decided(id, Outcome::Commit) if transactions.vote(*id) != Some(Vote::Yes)),
        );
        entries
    }

    /// Returns the ring after a step; `None` where the step changes nothing.
    pub fn after(&self, step: &Step) -> Option<Ring> {
        let mut next = self.clone();
        match step {
            Step::Plans(index) => next.plan(*index)?,
            Step::Begins(index) => {
                let (id, plan) = next.plans[*index].take().expect("it was planned");
                let begins = next.groups.get(&id).is_some_and(|sim| sim.ended.is_none());
                if begins && next.groups[&id].transactions.refuses_begin(&next.groups[&id].own, &plan).is_none() {
                    next.choose(id, &TransactionEntry::Begin(Box::new(plan)));
                } else {
                    next.too_old = true;
                }
            }
            Step::Changes(index) => {
                let point = next.changes.remove(*index);
                let id = next.owner(point);
                let sim = next.groups.get_mut(&id).expect("it was found");
                sim.own.epoch = Epoch(sim.own.epoch.0 + 1);
                sim.own.applied = sim.own.applied.next();
                if let Some((open, _)) = sim.transactions.coordinates() {
                    next.outcomes.insert(open, Outcome::Abort);
                }
                sim.transactions.on_epoch();
                let reference = sim.reference();
                next.push(reference);
                next.speak();
            }
            Step::Chooses(id, entry) => next.choose(*id, entry),
        }
        next.check();
        Some(next)
    }

    fn plan(&mut self, index: usize) -> Option<()> {
        let intent = self.intents[index].take().expect("it is wanted");
        let id = self.owner(part(intent.group(), self.parts));
        let sim = &self.groups[&id];
        let own = sim.transactions.view(&sim.reference());
        let other = self.groups.get(&own.successor.id).map(|other| other.transactions.view(&other.reference()));
        let middle = own.own.range.cut_at(1, 2);
        let mut other = other.filter(|_| !matches!(intent, Intent::Split(_)));
        let operation = match intent {
            Intent::Split(_) => GroupTransaction::Split { at: middle, first: vec![own.own.members.first()?.node] },
            Intent::Merge(_) => GroupTransaction::Merge,
            Intent::Repartition(_) => GroupTransaction::Repartition { at: middle },
            Intent::Migrate(_) => {
                GroupTransaction::Migrate { to: vec![own.own.members.last()?.node], from: Vec::new() }
            }
        };
        let rank = Rank::new(0, WallMillis(0));
        match Plan::new(operation, &own, other.take().as_ref(), rank) {
            Ok(plan) => self.plans[index] = Some((id, plan)),
            Err(_) => self.too_old = true,
        }
        Some(())
    }

    fn choose(&mut self, id: GroupId, entry: &TransactionEntry) {
        let sim = self.groups.get_mut(&id).expect("it is there");
        let open = sim.transactions.coordinates().map(|(id, plan)| (id, plan.clone()));
        sim.own.applied = sim.own.applied.next();
        let ends = sim.transactions.apply(&sim.own, sim.own.applied, entry);
        match entry {
            TransactionEntry::Begin(_) => {
                if let Some((id, plan)) = sim.transactions.coordinates() {
                    self.asked.insert(id, plan.clone());
                    self.said.insert(Said::Prepare(id));
                }
            }
            TransactionEntry::Outcome(of, outcome) => {
                if self.outcomes.insert(*of, *outcome).is_some_and(|known| known != *outcome) {
                    self.wrong.push("two outcomes");
                }
                let (_, plan) = open.expect("it was open");
                let agreed = |group: GroupId| self.said.contains(&Said::Vote(*of, group, Vote::Yes));
                if *outcome == Outcome::Commit && !plan.asked().all(|party| agreed(party.group.id)) {
                    self.wrong.push("committed, and not all agreed");
                }
            }
            TransactionEntry::Decided(of, outcome) => self.learned(*of, *outcome),
            TransactionEntry::Ending(of) => self.learned(*of, Outcome::Commit),
            _ => {}
        }
        let sim = self.groups.get_mut(&id).expect("it is there");
        sim.ended = match entry {
            TransactionEntry::Outcome(of, _) | TransactionEntry::Ending(of) if ends => Some(*of),
            _ => sim.ended,
        };
        self.bear();
        self.speak();
        if self.defects.has(Defect::OutcomeBeforeChosen) {
            self.speak(); // Of votes that were heard just now.
        }
    }

    /// Records that a group learned an outcome.
    fn learned(&mut self, of: TransactionId, outcome: Outcome) {
        if *self.outcomes.entry(of).or_insert(outcome) != outcome {
            self.wrong.push("another outcome was learned");
        }
    }

    /// Makes the groups that succeed those that ended with one transaction, once all groups that it touched have ended.
    fn bear(&mut self) {
        let Some((id, plan)) = self.asked.iter().find_map(|(id, plan)| {
            let mut touched = plan.touched();
            let all = touched.all(|party| self.groups.get(&party.group.id).is_some_and(|sim| sim.ended == Some(*id)));
            all.then(|| (*id, plan.clone()))
        }) else {
            return;
        };
        let finals: Vec<Sim> = plan.touched().filter_map(|party| self.groups.remove(&party.group.id)).collect();
        let epoch = plan.epoch_after(finals.iter().map(|last| last.own.epoch));
        let applied = finals.iter().map(|last| last.own.applied).max().unwrap_or_default().next();
        let last: Vec<_> = finals.iter().map(|last| (last.own.id, last.own.epoch, &last.transactions)).collect();
        for birth in &plan.births {
            let born = GroupRef { epoch, ..plan.reference(id, birth) };
            let own = Own { id: born.id, epoch, range: born.range, settled: true, applied, defects: self.defects };
            let transactions = TransactionState::inherit(id, &plan, &born, &last, self.defects);
            let sim = Sim { own, members: born.members.clone(), transactions, ended: None };
            if self.groups.insert(born.id, sim).is_some() {
                self.wrong.push("a group is there twice");
            }
            self.push(born);
        }
    }

    fn push(&mut self, reference: GroupRef) {
        self.pushed.retain(|known| known.id != reference.id);
        self.pushed.push(reference);
        self.pushed.sort_by_key(|known| known.id);
    }

    /// Adds all statements that groups can make now.
    fn speak(&mut self) {
        let mut said = Vec::new();
        for (id, plan) in &self.asked {
            for sim in self.groups.values() {
                let (own, transactions) = (&sim.own, &sim.transactions);
                if let Some(outcome) = transactions.outcome(own, *id) {
                    said.push(Said::Decision(*id, outcome));
                }
                if sim.ended.is_none() {
                    said.extend(self.said_before_chosen(sim, *id, plan));
                }
                for party in plan.asked() {
                    let group = party.group.id;
                    let committed = self.outcomes.get(id) == Some(&Outcome::Commit);
                    if group == own.id {
                        match transactions.vote(*id) {
                            Some(Vote::No) if committed => said.push(Said::End(*id, group)),
                            Some(vote) => said.push(Said::Vote(*id, group, vote)),
                            None => {}
                        }
                    } else if transactions.is_heir_of(group) && committed {
                        said.push(Said::End(*id, group));
                    }
                }
            }
        }
        self.said.extend(said);
    }

    /// Returns the statement that a leader makes too early where that rule is left out.
    fn said_before_chosen(&self, sim: &Sim, id: TransactionId, plan: &Plan) -> Option<Said> {
        let group = sim.own.id;
        let is_asked = plan.asked().any(|party| party.group.id == group);
        if self.defects.has(Defect::VoteBeforeChosen) && is_asked && sim.transactions.vote(id).is_none() {
            return Some(Said::Vote(id, group, Vote::Yes));
        }
        let agreed = |group: GroupId| self.said.contains(&Said::Vote(id, group, Vote::Yes));
        let is_open = sim.transactions.coordinates().is_some_and(|(open, _)| open == id);
        let early = self.defects.has(Defect::OutcomeBeforeChosen) && is_open;
        (early && plan.asked().all(|party| agreed(party.group.id))).then_some(Said::Decision(id, Outcome::Commit))
    }

    fn check(&mut self) {
        let mut ranges: Vec<KeyRange> = self.groups.values().map(|sim| sim.own.range).collect();
        ranges.sort_by_key(|range| range.start());
        let beside = |index: usize| ranges[index].end() == ranges[(index + 1) % ranges.len()].start();
        if !(0..ranges.len()).all(beside) || ranges.len() > 1 && ranges.iter().any(|range| range.is_full()) {
            self.wrong.push("the ring is not covered once");
            return;
        }
        if !self.is_at_rest() {
            return;
        }
        for sim in self.groups.values() {
            let calm = sim.ended.is_none() && sim.transactions.is_calm() && sim.transactions.decided().is_empty();
            let view = sim.transactions.view(&sim.reference());
            let at = |reference: &GroupRef| self.groups.get(&reference.id).map(Sim::reference);
            if !calm {
                self.wrong.push("something is open or locked at rest");
                return;
            }
            if at(&view.predecessor).as_ref() != Some(&view.predecessor)
                || at(&view.successor).as_ref() != Some(&view.successor)
            {
                self.wrong.push("a link is wrong at rest");
                return;
            }
        }
    }
}
