//! What a group's log says of its transactions with others.
//!
//! A pure function of the log, and part of the group's state. Nothing here waits, sends or knows the time: see
//! [`super::dealer`] for that.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

use overlay::{Epoch, GroupId, GroupRef, KeyRange, Point};
use serde::{Deserialize, Serialize};

use super::TransactionId;
use super::plan::{LOSS_EPOCHS, Plan, View};
use crate::ballot::Slot;
use crate::config::{Defect, Defects};

/// Of so many groups it is remembered which of their transactions was the last that is over. To forget one costs a lock
/// that its coordinator must be asked about, at worst.
const OVER_MAX: usize = 64;
/// Of so many groups that are no more it is remembered that this one answers for them.
const RETIRED_MAX: usize = 256;

/// One entry of the log about transactions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Deal {
    /// This group coordinates a transaction; its id has the slot of this entry.
    Begin(Box<Plan>),
    /// This group is asked; applying this decides its vote.
    Asked(TransactionId, Box<Plan>),
    /// The coordinator decides.
    Outcome(TransactionId, bool),
    /// A participant learns what the coordinator decided.
    Decided(TransactionId, bool),
    /// A participant that is touched learns that it is committed: its log ends with this.
    Ending(TransactionId),
    /// A participant has learned it: it need not be told any more.
    Ended(TransactionId, GroupId),
    /// A neighbour has other members.
    Neighbour(GroupRef),
}

/// For a person who reads the log of a leader.
impl fmt::Display for Deal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |commit: &bool| if *commit { "commit" } else { "abort" };
        match self {
            Deal::Begin(plan) => write!(f, "to {}", plan.operation.name()),
            Deal::Asked(id, plan) => {
                write!(f, "to vote about the {} that {} wants", plan.operation.name(), id.group.called())
            }
            Deal::Outcome(id, commit) => write!(f, "to {} what began in slot {}", word(commit), id.slot.0),
            Deal::Decided(id, commit) => write!(f, "to {} what {} began", word(commit), id.group.called()),
            Deal::Ending(id) => write!(f, "to end with what {} began", id.group.called()),
            Deal::Ended(id, group) => {
                write!(f, "that {} knows what came of what began in slot {}", group.called(), id.slot.0)
            }
            Deal::Neighbour(group) => write!(f, "to know {} as of epoch {}", group.id.called(), group.epoch.0),
        }
    }
}

/// What the group is at this moment, as its transactions see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Own {
    /// Which.
    pub id: GroupId,
    /// Its epoch: what others must expect of it.
    pub epoch: Epoch,
    /// What it owns.
    pub range: KeyRange,
    /// Its epoch is established: it may become another group.
    pub settled: bool,
    /// The last slot of its log that is applied.
    pub applied: Slot,
    /// Rules that are left out, for tests of the checks.
    pub defects: Defects,
}

/// A commit that not all who take part are known to have learned.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Decision {
    /// Of what.
    pub id: TransactionId,
    /// What it did.
    pub plan: Plan,
    /// Who must be told.
    pub unconfirmed: Vec<GroupId>,
}

/// The state of a group's transactions and of its links to its neighbours.
///
/// # Invariants
/// - At most one transaction of its own is open, and no boundary is locked by two.
/// - Each commit is kept until all who take part have confirmed it; what is neither kept nor open, and was this group's
///   to decide, was aborted or is known to all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Dealings {
    /// Whose range ends where this group's starts; itself where there is none.
    predecessor: Option<GroupRef>,
    /// Whose range starts where this group's ends; itself where there is none.
    successor: Option<GroupRef>,
    /// What this group coordinates and has not decided.
    coordinates: Option<(TransactionId, Plan)>,
    /// What this group voted for, and does not know the outcome of.
    voted: Vec<(TransactionId, Plan)>,
    /// What this group, or one that it came from, committed.
    decided: Vec<Decision>,
    /// The last transaction of each coordinator that is over here: nothing before it is voted for any more (hazard 29).
    over: BTreeMap<GroupId, (Epoch, Slot)>,
    /// Groups that are no more, for which this one answers, and their last epochs.
    retired: BTreeMap<GroupId, Epoch>,
}

impl Dealings {
    /// Whose range ends where this group's starts; `None`: its own.
    pub fn predecessor(&self) -> Option<&GroupRef> {
        self.predecessor.as_ref()
    }

    /// Whose range starts where this group's ends; `None`: its own.
    pub fn successor(&self) -> Option<&GroupRef> {
        self.successor.as_ref()
    }

    /// The group with its neighbours.
    pub fn view(&self, own: &GroupRef) -> View {
        let or_own = |link: &Option<GroupRef>| link.as_ref().unwrap_or(own).clone();
        View { own: own.clone(), predecessor: or_own(&self.predecessor), successor: or_own(&self.successor) }
    }

    /// What this group coordinates and has not decided.
    pub fn coordinates(&self) -> Option<(TransactionId, &Plan)> {
        self.coordinates.as_ref().map(|(id, plan)| (*id, plan))
    }

    /// What this group voted for, and does not know the outcome of.
    pub fn voted(&self) -> impl Iterator<Item = (TransactionId, &Plan)> {
        self.voted.iter().map(|(id, plan)| (*id, plan))
    }

    /// What was committed and is not known to all.
    pub fn decided(&self) -> &[Decision] {
        &self.decided
    }

    /// Does this group answer for that one, which is no more?
    pub fn is_heir_of(&self, group: GroupId) -> bool {
        self.retired.contains_key(&group)
    }

    /// Groups that are no more, for which this one answers, and their last epochs.
    pub fn retired(&self) -> impl Iterator<Item = (GroupId, Epoch)> {
        self.retired.iter().map(|(group, epoch)| (*group, *epoch))
    }

    /// Which boundaries of this group are locked, and for what.
    pub fn locks(&self, own: KeyRange) -> impl Iterator<Item = (Point, TransactionId)> {
        let open = self.coordinates.iter().chain(&self.voted);
        open.flat_map(move |(id, plan)| plan.boundaries_of(own).into_iter().map(|boundary| (boundary, *id)))
    }

    /// Are all lists as short as applying entries keeps them?
    pub(crate) fn is_bounded(&self) -> bool {
        self.over.len() <= OVER_MAX
            && self.retired.len() <= RETIRED_MAX
            && self.voted.len() <= OVER_MAX
            && self.decided.len() <= RETIRED_MAX
    }

    /// Is nothing open, and nobody there to be told anything?
    pub fn is_alone(&self) -> bool {
        self.predecessor.is_none() && self.successor.is_none() && self.is_calm() && self.decided.is_empty()
    }

    /// Is nothing open, and nothing locked?
    pub fn is_calm(&self) -> bool {
        self.coordinates.is_none() && self.voted.is_empty()
    }

    /// What this group can say of a transaction that somebody waits for: its outcome. `None` while it is open, or if it is not
    /// this group's to say.
    pub fn outcome(&self, own: &Own, id: TransactionId) -> Option<bool> {
        if self.decided.iter().any(|decision| decision.id == id) {
            return Some(true);
        }
        let open = self.coordinates.as_ref().is_some_and(|(open, _)| *open == id);
        // Whoever lags behind has not heard of it yet.
        let answers = id.group == own.id && id.slot <= own.applied || self.retired.contains_key(&id.group);
        (answers && !open).then_some(false)
    }

    /// What this group voted, if it was asked; `None` where it must still be asked.
    pub fn vote(&self, id: TransactionId) -> Option<bool> {
        if self.voted.iter().any(|(voted, _)| *voted == id) {
            return Some(true);
        }
        self.is_over(id).then_some(false)
    }

    /// Is this over here: refused, aborted, or committed?
    fn is_over(&self, id: TransactionId) -> bool {
        self.over.get(&id.group).is_some_and(|last| *last >= (id.epoch, id.slot))
    }

    /// Could this be begun now? Says why not.
    pub fn refuses_begin(&self, own: &Own, plan: &Plan) -> Option<&'static str> {
        let expected = plan.coordinator();
        if self.coordinates.is_some() {
            return Some("a transaction of this group is open");
        }
        if !plan.is_sound() || !self.is_expected(own, expected) || !self.knows_neighbours(own, plan) {
            return Some("it was planned for what the group, or a neighbour, is not any more");
        }
        if !own.settled {
            return Some("the group's epoch is not established yet");
        }
        if self.is_locked(own, plan) {
            return Some("a boundary is locked by another transaction");
        }
        None
    }

    /// Applies an entry. True if the group ends with it: it was touched by what is committed now.
    pub fn apply(&mut self, own: &Own, slot: Slot, deal: &Deal) -> bool {
        match deal {
            Deal::Begin(plan) => {
                if self.refuses_begin(own, plan).is_none() {
                    let id = TransactionId { group: own.id, epoch: own.epoch, slot };
                    self.coordinates = Some((id, (**plan).clone()));
                }
                false
            }
            Deal::Asked(id, plan) => {
                self.apply_asked(own, *id, plan);
                false
            }
            Deal::Outcome(id, commit) => self.apply_outcome(*id, *commit),
            Deal::Decided(id, commit) => {
                self.apply_decided(own, *id, *commit);
                false
            }
            Deal::Ending(id) => self.apply_ending(own, *id),
            Deal::Ended(id, group) => {
                for decision in self.decided.iter_mut().filter(|decision| decision.id == *id) {
                    decision.unconfirmed.retain(|unconfirmed| unconfirmed != group);
                }
                self.decided.retain(|decision| !decision.unconfirmed.is_empty());
                false
            }
            Deal::Neighbour(group) => {
                self.apply_neighbour(own, group);
                false
            }
        }
    }

    /// The group's members, or its epoch, change: what it coordinates was planned for others, so it is aborted. What it voted
    /// for stands: its word was given, and what it will be at the end is looked at then.
    pub fn on_epoch(&mut self) {
        self.coordinates = None;
    }

    fn apply_asked(&mut self, own: &Own, id: TransactionId, plan: &Plan) {
        if self.vote(id).is_some() {
            return;
        }
        if self.agrees(own, id, plan) {
            self.voted.push((id, plan.clone()));
        } else {
            self.note_over(id);
        }
    }

    /// Returns the vote: yes where this group is as the plan expects it, its neighbours are those of the plan, and no other transaction
    /// locks its boundaries. A group that only gets another neighbour may have changed its members since the plan was made: members
    /// die and come at any time, and a plan for four groups would hardly ever find all of them in the epochs that it was made for.
    fn agrees(&self, own: &Own, id: TransactionId, plan: &Plan) -> bool {
        let Some(party) = plan.party(own.id) else { return false };
        let may_change = own.settled && self.is_calm();
        // What takes a lost range over must be later than all that is known of it, and that is told by epochs.
        let is_as_expected = match party.touched || plan.gap().is_some() {
            true => self.is_expected(own, &party.group),
            false => self.is_expected_beside(own, &party.group),
        };
        plan.is_sound()
            && plan.coordinator().id == id.group
            && plan.coordinator().epoch == id.epoch
            && id.group != own.id
            && is_as_expected
            && self.knows_neighbours(own, plan)
            && !self.is_locked(own, plan)
            && (may_change || !party.touched)
    }

    fn is_expected(&self, own: &Own, expected: &GroupRef) -> bool {
        let same = expected.epoch == own.epoch && expected.range == own.range;
        expected.id == own.id && (same || own.defects.has(Defect::AnyGeneration))
    }

    /// Returns whether this group, which only gets another neighbour, has the range that it is expected to have, in the expected epoch or a
    /// later one. Its boundaries with the groups that change could have moved meanwhile only together with these, and their epochs
    /// must be the expected ones.
    fn is_expected_beside(&self, own: &Own, expected: &GroupRef) -> bool {
        let same = expected.epoch <= own.epoch && expected.range == own.range;
        expected.id == own.id && (same || own.defects.has(Defect::AnyGeneration))
    }

    /// Is each group of the plan that lies beside this one its neighbour, as it knows? Where not, whoever it is not would
    /// refuse: this saves asking.
    fn knows_neighbours(&self, own: &Own, plan: &Plan) -> bool {
        if let Some((from, last)) = plan.gap() {
            return self.knows_lost(own, plan, from, last);
        }
        if plan.keeps_boundaries() {
            // Its neighbours are not asked, but the other group is one of them, which answers for the transaction or has an heir that does.
            let mut links = self.predecessor.iter().chain(&self.successor);
            return links.any(|link| link.id != own.id && plan.party(link.id).is_some());
        }
        let id = |link: &Option<GroupRef>| link.as_ref().map_or(own.id, |group| group.id);
        plan.boundaries_of(own.range).into_iter().all(|boundary| {
            let ends = plan.parties.iter().find(|party| party.group.range.end() == boundary);
            let starts = plan.parties.iter().find(|party| party.group.range.start() == boundary);
            let before =
                boundary != own.range.start() || ends.is_some_and(|party| party.group.id == id(&self.predecessor));
            let behind =
                boundary != own.range.end() || starts.is_some_and(|party| party.group.id == id(&self.successor));
            before && behind
        })
    }

    /// Is what lies beside this group, on the side of the lost range, among the lost groups? And do these reach as far as both
    /// sides of it know, so that nobody lives between them? What takes their place must be later than they may be by now.
    fn knows_lost(&self, own: &Own, plan: &Plan, from: Point, last: Point) -> bool {
        let is_before = |link: &GroupRef| link.epoch.0.saturating_add(LOSS_EPOCHS / 2) < plan.epoch_least().0;
        let is_lost = |link: &Option<GroupRef>| {
            let link = link.as_ref().filter(|link| plan.lost().contains(&link.id));
            link.filter(|link| is_before(link)).cloned()
        };
        let behind = || is_lost(&self.predecessor).is_some_and(|gone| gone.range.start() == last);
        let before = || {
            let gone = is_lost(&self.successor);
            gone.is_some_and(|gone| from.distance_to(gone.range.end()) >= from.distance_to(last))
        };
        let is_behind = own.id == plan.coordinator().id;
        (!is_behind || behind()) && (own.range.end() != from || before())
    }

    /// Does something else lock a boundary of it? What lost groups began is over with them.
    fn is_locked(&self, own: &Own, plan: &Plan) -> bool {
        let boundaries = plan.boundaries_of(own.range);
        let mut open = self.coordinates.iter().chain(&self.voted);
        open.any(|(id, locks)| {
            let mut locked = locks.boundaries_of(own.range).into_iter();
            !plan.lost().contains(&id.group) && locked.any(|boundary| boundaries.contains(&boundary))
        }) && !own.defects.has(Defect::NoLocks)
    }

    /// What holds locks that this plan needs, where all of that is younger (of a later rank, or id): its own first. `None` where
    /// nothing does, or something older: then it is to be refused.
    pub fn younger_holder(&self, own: &Own, id: TransactionId, plan: &Plan) -> Option<TransactionId> {
        let boundaries = plan.boundaries_of(own.range);
        let open = self.coordinates.iter().chain(&self.voted);
        let mut holders = open.filter(|(holder, locks)| {
            let mut locked = locks.boundaries_of(own.range).into_iter();
            !plan.lost().contains(&holder.group) && locked.any(|boundary| boundaries.contains(&boundary))
        });
        let (first, locks) = holders.next()?;
        let is_younger = |holder: &TransactionId, locks: &Plan| (plan.rank, id) < (locks.rank, *holder);
        let all = is_younger(first, locks) && holders.all(|(holder, locks)| is_younger(holder, locks));
        all.then_some(*first)
    }

    /// What lost groups began, and what was to be told to them, is over.
    fn give_up_on(&mut self, lost: &[GroupId]) {
        let over: Vec<TransactionId> =
            self.voted.iter().map(|(id, _)| *id).filter(|id| lost.contains(&id.group)).collect();
        over.into_iter().for_each(|id| self.note_over(id));
        self.voted.retain(|(id, _)| !lost.contains(&id.group));
        self.decided.iter_mut().for_each(|decision| decision.unconfirmed.retain(|group| !lost.contains(group)));
        self.decided.retain(|decision| !decision.unconfirmed.is_empty());
    }

    fn apply_outcome(&mut self, id: TransactionId, commit: bool) -> bool {
        let Some((_, plan)) = self.coordinates.take_if(|(open, _)| *open == id) else { return false };
        if commit {
            let unconfirmed = plan.asked().map(|party| party.group.id).collect();
            self.decided.push(Decision { id, plan, unconfirmed });
        }
        commit
    }

    fn apply_decided(&mut self, own: &Own, id: TransactionId, commit: bool) {
        if commit && self.is_touched(own, id) {
            return; // That would end the group, and is another entry.
        }
        // Whatever comes of what this group was not asked: it will not vote for it.
        self.note_over(id);
        let Some(index) = self.voted.iter().position(|(voted, _)| *voted == id) else { return };
        let (_, plan) = self.voted.remove(index);
        if !commit {
            return;
        }
        self.give_up_on(plan.lost());
        let (start, end) = (own.range.start(), own.range.end());
        let boundaries = plan.boundaries_of(own.range);
        if boundaries.contains(&start) {
            self.predecessor = newest(plan.ends_at(id, start), self.predecessor.as_ref());
        }
        if boundaries.contains(&end) {
            self.successor = newest(plan.starts_at(id, end), self.successor.as_ref());
        }
    }

    fn apply_ending(&mut self, own: &Own, id: TransactionId) -> bool {
        if !self.is_touched(own, id) {
            return false;
        }
        self.note_over(id);
        let index = self.voted.iter().position(|(voted, _)| *voted == id).expect("it is touched by what it voted for");
        let (_, plan) = self.voted.remove(index);
        // Kept until what comes of it begins: everybody who belongs to that must know it.
        self.decided.push(Decision { id, plan, unconfirmed: Vec::new() });
        true
    }

    /// Will this group be another one, if what it voted for is committed?
    pub fn is_touched(&self, own: &Own, id: TransactionId) -> bool {
        let plan = self.voted.iter().find(|(voted, _)| *voted == id).map(|(_, plan)| plan);
        plan.and_then(|plan| plan.party(own.id)).is_some_and(|party| party.touched)
    }

    /// Does this group, which has taken over a lost range, lie where the log says that another one does? That one is of before:
    /// somebody who was lost told of it, and nobody else learned that it was to be.
    pub fn is_mended_by(&self, own: &Own, group: &GroupRef) -> bool {
        let is_old =
            |link: &GroupRef| link.id != group.id && link.epoch.0.saturating_add(LOSS_EPOCHS / 2) < group.epoch.0;
        self.predecessor.as_ref().is_some_and(|link| is_old(link) && group.range.end() == own.range.start())
    }

    fn apply_neighbour(&mut self, own: &Own, group: &GroupRef) {
        if self.is_mended_by(own, group) {
            self.predecessor = Some(group.clone());
        }
        let newest = own.defects.has(Defect::ByArrival);
        let is_newer = |link: &GroupRef| link.id == group.id && (link.epoch <= group.epoch || newest);
        if let Some(link) = self.predecessor.as_mut().filter(|link| is_newer(link))
            && group.range.end() == own.range.start()
        {
            link.clone_from(group);
        }
        if let Some(link) = self.successor.as_mut().filter(|link| is_newer(link))
            && group.range.start() == own.range.end()
        {
            link.clone_from(group);
        }
    }

    fn note_over(&mut self, id: TransactionId) {
        let last = self.over.entry(id.group).or_insert((id.epoch, id.slot));
        *last = (*last).max((id.epoch, id.slot));
        while self.over.len() > OVER_MAX {
            let oldest = self.over.iter().min_by_key(|(group, last)| (**last, **group)).map(|(group, _)| *group);
            oldest.map(|group| self.over.remove(&group));
        }
    }

    /// The transaction that ended this group, from its own final state.
    pub fn ending(&self, id: TransactionId) -> Option<&Plan> {
        self.decided.iter().find(|decision| decision.id == id).map(|decision| &decision.plan)
    }

    /// What a group that is born of a transaction has of this: from the final states of all that it touched.
    ///
    /// `finals`: each with its group's id and last epoch. What was committed before, and is not known to all, is told on by
    /// all that come of whoever decided it; but a group that keeps its name is its own only heir.
    pub fn inherit(
        id: TransactionId,
        plan: &Plan,
        born: &GroupRef,
        finals: &[(GroupId, Epoch, &Dealings)],
        defects: Defects,
    ) -> Dealings {
        let keeps = |group: GroupId| plan.births.iter().any(|birth| plan.id_of(id, birth) == group);
        let (start, end) = (born.range.start(), born.range.end());
        let known = || finals.iter().flat_map(|(_, _, last)| last.predecessor.iter().chain(&last.successor));
        let other = |link: Option<GroupRef>| known().fold(link, |link, known| newest(link, Some(known)));
        let other = |link: Option<GroupRef>| other(link).filter(|link| link.id != born.id);
        // Whoever takes over a lost range is the same on its other side.
        let same = || finals.iter().find_map(|(_, _, last)| last.successor.clone()).filter(|_| !plan.lost().is_empty());
        // A group whose boundary the plan does not name keeps its neighbour there.
        let kept =
            finals.iter().find(|(group, ..)| *group == born.id && plan.keeps_boundaries()).map(|(.., last)| last);
        let before = plan.ends_at(id, start).or_else(|| kept?.predecessor.clone());
        let behind = plan.starts_at(id, end).or_else(|| kept?.successor.clone()).or_else(same);
        let (predecessor, successor) = (other(before), other(behind));
        let mut dealings = Dealings { predecessor, successor, ..Dealings::default() };
        for (group, epoch, last) in finals {
            let is_heir = *group == born.id || !keeps(*group);
            for (of, last) in &last.over {
                dealings.note_over(TransactionId { group: *of, epoch: last.0, slot: last.1 });
            }
            if !is_heir {
                continue;
            }
            for decision in last.decided.iter().filter(|_| !defects.has(Defect::NotInherited)) {
                let mut decision = decision.clone();
                if decision.id == id {
                    // Who is touched knows: nothing would have been born else.
                    decision.unconfirmed.retain(|group| plan.party(*group).is_some_and(|party| !party.touched));
                }
                let known = dealings.decided.iter().any(|known| known.id == decision.id);
                if !decision.unconfirmed.is_empty() && !known {
                    dealings.decided.push(decision);
                }
            }
            for (open, _) in last.voted.iter().filter(|(open, _)| plan.lost().contains(&open.group)) {
                dealings.note_over(*open);
            }
            dealings.retired.extend(last.retired.iter().map(|(group, epoch)| (*group, *epoch)));
            if *group != born.id {
                dealings.retired.insert(*group, *epoch);
            }
        }
        // It answers for them: what they began and nobody knows the outcome of is aborted.
        let lost = plan.lost().iter().map(|group| (*group, Epoch(born.epoch.0 - 1)));
        dealings.retired.extend(lost);
        dealings.give_up_on(plan.lost());
        while dealings.retired.len() > RETIRED_MAX {
            let oldest =
                dealings.retired.iter().min_by_key(|(group, epoch)| (**epoch, **group)).map(|(group, _)| *group);
            oldest.map(|group| dealings.retired.remove(&group));
        }
        dealings
    }
}

/// A neighbour as it was planned, or as it has said since that it is: whoever heard that it is known need not say it again.
fn newest(planned: Option<GroupRef>, known: Option<&GroupRef>) -> Option<GroupRef> {
    let newer = |link: &GroupRef| known.filter(|known| known.id == link.id && known.epoch >= link.epoch).cloned();
    planned.map(|link| newer(&link).unwrap_or(link))
}
