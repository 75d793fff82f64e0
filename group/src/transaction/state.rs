//! State of a group's transactions in its log.
//!
//! A pure function of the log, and part of the group's state. Nothing here waits, sends, or knows the time: see
//! [`crate::transaction::driver`] for that.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

use overlay::{Epoch, GroupId, GroupRef, KeyRange, Point};
use serde::{Deserialize, Serialize};

use crate::ballot::LogSlot;
use crate::config::{Defect, Defects};
use crate::transaction::plan::{LOSS_EPOCHS, Plan, View};
use crate::transaction::{Outcome, TransactionId, Vote};

/// Upper limit of coordinators for which the last transaction that is over is remembered. To forget one costs, at worst, a lock about which
/// the coordinator must be asked.
const OVER_MAX: usize = 64;
/// Upper limit of former groups for which this group answers.
const RETIRED_MAX: usize = 256;

/// Log entry about transactions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TransactionEntry {
    /// This group coordinates a transaction; its id has the slot of this entry.
    Begin(Box<Plan>),
    /// This group is asked for its vote; the application of this entry decides the vote.
    Asked(TransactionId, Box<Plan>),
    /// The coordinator decides.
    Outcome(TransactionId, Outcome),
    /// A participant learns the decision of the coordinator.
    Decided(TransactionId, Outcome),
    /// A touched participant learns that the transaction is committed: its log ends with this entry.
    Ending(TransactionId),
    /// A participant has learned the outcome: it need not be told any more.
    Ended(TransactionId, GroupId),
    /// A neighbour has other members.
    Neighbour(GroupRef),
}

/// Text for a reader of a leader's log.
impl fmt::Display for TransactionEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransactionEntry::Begin(plan) => write!(f, "to {}", plan.operation.name()),
            TransactionEntry::Asked(id, plan) => {
                write!(f, "to vote about the {} that {} wants", plan.operation.name(), id.group.called())
            }
            TransactionEntry::Outcome(id, outcome) => write!(f, "to {outcome} what began in slot {}", id.slot.0),
            TransactionEntry::Decided(id, outcome) => write!(f, "to {outcome} what {} began", id.group.called()),
            TransactionEntry::Ending(id) => write!(f, "to end with what {} began", id.group.called()),
            TransactionEntry::Ended(id, group) => {
                write!(f, "that {} knows what came of what began in slot {}", group.called(), id.slot.0)
            }
            TransactionEntry::Neighbour(group) => {
                write!(f, "to know {} as of epoch {}", group.id.called(), group.epoch.0)
            }
        }
    }
}

/// The group at this moment, as its transactions see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Own {
    /// Id of the group.
    pub id: GroupId,
    /// Epoch of the group, which other groups must expect of it.
    pub epoch: Epoch,
    /// Range that the group owns.
    pub range: KeyRange,
    /// Whether the epoch is established: then the group may become another one.
    pub settled: bool,
    /// Last applied slot of the group's log.
    pub applied: LogSlot,
    /// Rules that are left out, for tests of the checks.
    pub defects: Defects,
}

/// Commit that not all participants are known to have learned.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Decision {
    /// Id of the transaction.
    pub id: TransactionId,
    /// Plan of the transaction.
    pub plan: Plan,
    /// Groups that must be told.
    pub unconfirmed: Vec<GroupId>,
}

/// State of a group's transactions and of its links to its neighbours.
///
/// # Invariants
/// - At most one transaction of the group's own is open, and no boundary is locked by two.
/// - Each commit is kept until all participants have confirmed it. A transaction of this group that is neither kept nor open was aborted,
///   or its outcome is known to all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TransactionState {
    /// Group with a range that ends where this group's starts; itself where there is none.
    predecessor: Option<GroupRef>,
    /// Group with a range that starts where this group's ends; itself where there is none.
    successor: Option<GroupRef>,
    /// Transaction that this group coordinates and has not decided.
    coordinates: Option<(TransactionId, Plan)>,
    /// Transactions with a yes vote of this group and an outcome that the group does not know.
    voted: Vec<(TransactionId, Plan)>,
    /// Commits of this group, or of one that it came from.
    decided: Vec<Decision>,
    /// For each coordinator, its last transaction that is over here: this group votes for no earlier one any more (hazard 29).
    over: BTreeMap<GroupId, (Epoch, LogSlot)>,
    /// Former groups for which this group answers, and their last epochs.
    retired: BTreeMap<GroupId, Epoch>,
}

impl TransactionState {
    /// Returns the group with a range that ends where this group's starts; `None` if that is this group.
    pub fn predecessor(&self) -> Option<&GroupRef> {
        self.predecessor.as_ref()
    }

    /// Returns the group with a range that starts where this group's ends; `None` if that is this group.
    pub fn successor(&self) -> Option<&GroupRef> {
        self.successor.as_ref()
    }

    /// Returns the neighbours of this group, the predecessor first; a ring of two groups names the same one twice.
    pub fn neighbours(&self) -> impl Iterator<Item = &GroupRef> {
        self.predecessor.iter().chain(&self.successor)
    }

    /// Returns the group with its neighbours.
    pub fn view(&self, own: &GroupRef) -> View {
        let or_own = |link: &Option<GroupRef>| link.as_ref().unwrap_or(own).clone();
        View { own: own.clone(), predecessor: or_own(&self.predecessor), successor: or_own(&self.successor) }
    }

    /// Returns the transaction that this group coordinates and has not decided.
    pub fn coordinates(&self) -> Option<(TransactionId, &Plan)> {
        self.coordinates.as_ref().map(|(id, plan)| (*id, plan))
    }

    /// Returns the transactions with a yes vote of this group and an outcome that the group does not know.
    pub fn voted(&self) -> impl Iterator<Item = (TransactionId, &Plan)> {
        self.voted.iter().map(|(id, plan)| (*id, plan))
    }

    /// Returns commits that are not known to all.
    pub fn decided(&self) -> &[Decision] {
        &self.decided
    }

    /// Returns whether this group answers for that former group.
    pub fn is_heir_of(&self, group: GroupId) -> bool {
        self.retired.contains_key(&group)
    }

    /// Returns former groups for which this group answers, and their last epochs.
    pub fn retired(&self) -> impl Iterator<Item = (GroupId, Epoch)> {
        self.retired.iter().map(|(group, epoch)| (*group, *epoch))
    }

    /// Returns the locked boundaries of this group, each with the transaction that locks it.
    pub fn locks(&self, own: KeyRange) -> impl Iterator<Item = (Point, TransactionId)> {
        let open = self.coordinates.iter().chain(&self.voted);
        open.flat_map(move |(id, plan)| plan.boundaries_of(own).into_iter().map(|boundary| (boundary, *id)))
    }

    /// Returns whether all lists are as short as the application of entries keeps them.
    pub(crate) fn is_bounded(&self) -> bool {
        self.over.len() <= OVER_MAX
            && self.retired.len() <= RETIRED_MAX
            && self.voted.len() <= OVER_MAX
            && self.decided.len() <= RETIRED_MAX
    }

    /// Returns whether nothing is open, and there is no neighbour or participant to tell.
    pub fn is_alone(&self) -> bool {
        self.predecessor.is_none() && self.successor.is_none() && self.is_calm() && self.decided.is_empty()
    }

    /// Returns whether nothing is open, and nothing locked.
    pub fn is_calm(&self) -> bool {
        self.coordinates.is_none() && self.voted.is_empty()
    }

    /// Returns the outcome of a transaction that another group waits for. `None` while the transaction is open, or if this group does not
    /// decide it.
    pub fn outcome(&self, own: &Own, id: TransactionId) -> Option<Outcome> {
        if self.decided.iter().any(|decision| decision.id == id) {
            return Some(Outcome::Commit);
        }
        let open = self.coordinates.as_ref().is_some_and(|(open, _)| *open == id);
        // A member that lags has not heard of the transaction yet.
        let answers = id.group == own.id && id.slot <= own.applied || self.retired.contains_key(&id.group);
        (answers && !open).then_some(Outcome::Abort)
    }

    /// Returns this group's vote, if it was asked; `None` where it must still be asked.
    pub fn vote(&self, id: TransactionId) -> Option<Vote> {
        if self.voted.iter().any(|(voted, _)| *voted == id) {
            return Some(Vote::Yes);
        }
        self.is_over(id).then_some(Vote::No)
    }

    /// Returns whether this transaction is over here: refused, aborted, or committed.
    fn is_over(&self, id: TransactionId) -> bool {
        self.over.get(&id.group).is_some_and(|last| *last >= (id.epoch, id.slot))
    }

    /// Returns the reason for which this transaction could not begin now, if there is one.
    pub fn refuses_begin(&self, own: &Own, plan: &Plan) -> Option<&'static str> {
        let expected = plan.coordinator();
        if self.coordinates.is_some() {
            return Some("a transaction of this group is open");
        }
        if !plan.is_sound() || !self.is_expected(own, expected) || !self.knows_neighbours(own, plan) {
            return Some("the group or a neighbour has changed since the transaction was planned");
        }
        if !own.settled {
            return Some("the group's epoch is not established yet");
        }
        if self.is_locked(own, plan) {
            return Some("a boundary is locked by another transaction");
        }
        None
    }

    /// Applies an entry. Returns whether the group ends with it: a transaction that touches the group is committed now.
    pub fn apply(&mut self, own: &Own, slot: LogSlot, entry: &TransactionEntry) -> bool {
        match entry {
            TransactionEntry::Begin(plan) => {
                if self.refuses_begin(own, plan).is_none() {
                    let id = TransactionId { group: own.id, epoch: own.epoch, slot };
                    self.coordinates = Some((id, (**plan).clone()));
                }
                false
            }
            TransactionEntry::Asked(id, plan) => {
                self.apply_asked(own, *id, plan);
                false
            }
            TransactionEntry::Outcome(id, outcome) => self.apply_outcome(*id, *outcome),
            TransactionEntry::Decided(id, outcome) => {
                self.apply_decided(own, *id, *outcome);
                false
            }
            TransactionEntry::Ending(id) => self.apply_ending(own, *id),
            TransactionEntry::Ended(id, group) => {
                for decision in self.decided.iter_mut().filter(|decision| decision.id == *id) {
                    decision.unconfirmed.retain(|unconfirmed| unconfirmed != group);
                }
                self.decided.retain(|decision| !decision.unconfirmed.is_empty());
                false
            }
            TransactionEntry::Neighbour(group) => {
                self.apply_neighbour(own, group);
                false
            }
        }
    }

    /// Aborts the transaction that this group coordinates, because the group's members or its epoch change: it was planned for other ones.
    /// Its yes votes stand: the group gave its word, and its part in the outcome is determined at the end.
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

    /// Returns the vote. It is yes where this group is as the plan expects it, its neighbours are those of the plan, and no other
    /// transaction locks its boundaries. A group that only gets another neighbour may have changed its members since the plan was made.
    /// Members die and come at any time, and a plan for four groups would hardly ever find all of them in the planned epochs.
    fn agrees(&self, own: &Own, id: TransactionId, plan: &Plan) -> bool {
        let Some(party) = plan.party(own.id) else { return false };
        let may_change = own.settled && self.is_calm();
        // A group that takes over a lost range must be later than all that is known of the range, and epochs tell that.
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
        let same = expected.epoch == own.epoch || own.defects.has(Defect::AnyGeneration);
        self.is_expected_beside(own, expected) && same
    }

    /// Returns whether this group, which only gets another neighbour, has the expected range, in the expected epoch or a later one. Its
    /// boundaries with the groups that change could have moved meanwhile only together with these groups, and their epochs must be the
    /// expected ones.
    fn is_expected_beside(&self, own: &Own, expected: &GroupRef) -> bool {
        let same = expected.epoch <= own.epoch && expected.range == own.range;
        expected.id == own.id && (same || own.defects.has(Defect::AnyGeneration))
    }

    /// Returns whether each group of the plan that lies beside this one is its neighbour, as this group knows. Where it is not, that group
    /// would refuse: this check saves the question.
    fn knows_neighbours(&self, own: &Own, plan: &Plan) -> bool {
        if let Some((from, last)) = plan.gap() {
            return self.knows_lost(own, plan, from, last);
        }
        if plan.keeps_boundaries() {
            // Its neighbours are not asked. But the other group is one of them, and answers for the transaction, or its heir does.
            return self.neighbours().any(|link| link.id != own.id && plan.party(link.id).is_some());
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

    /// Returns whether the group beside this one, on the side of the lost range, is among the lost groups. The lost groups must also reach
    /// as far as both sides of the range know, so that no group lives between them. Their replacement must be later than they may be by
    /// now.
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

    /// Returns whether another transaction locks a boundary of the plan. Transactions that lost groups began are over with them.
    fn is_locked(&self, own: &Own, plan: &Plan) -> bool {
        let boundaries = plan.boundaries_of(own.range);
        let mut open = self.coordinates.iter().chain(&self.voted);
        open.any(|(id, locks)| {
            let mut locked = locks.boundaries_of(own.range).into_iter();
            !plan.lost().contains(&id.group) && locked.any(|boundary| boundaries.contains(&boundary))
        }) && !own.defects.has(Defect::NoLocks)
    }

    /// Returns the holder of locks that this plan needs, if all holders are younger (of a later rank, or id): the group's own transaction
    /// first. `None` where no transaction holds such a lock, or where an older one does: then the plan is to be refused.
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

    /// Ends the transactions that lost groups began, and the duty to tell lost groups of outcomes.
    fn give_up_on(&mut self, lost: &[GroupId]) {
        let over: Vec<TransactionId> =
            self.voted.iter().map(|(id, _)| *id).filter(|id| lost.contains(&id.group)).collect();
        over.into_iter().for_each(|id| self.note_over(id));
        self.voted.retain(|(id, _)| !lost.contains(&id.group));
        self.decided.iter_mut().for_each(|decision| decision.unconfirmed.retain(|group| !lost.contains(group)));
        self.decided.retain(|decision| !decision.unconfirmed.is_empty());
    }

    fn apply_outcome(&mut self, id: TransactionId, outcome: Outcome) -> bool {
        let Some((_, plan)) = self.coordinates.take_if(|(open, _)| *open == id) else { return false };
        if outcome == Outcome::Commit {
            let unconfirmed = plan.asked().map(|party| party.group.id).collect();
            self.decided.push(Decision { id, plan, unconfirmed });
        }
        outcome == Outcome::Commit
    }

    fn apply_decided(&mut self, own: &Own, id: TransactionId, outcome: Outcome) {
        if outcome == Outcome::Commit && self.is_touched(own, id) {
            return; // A commit would end the group, and is another entry.
        }
        // Whatever the outcome of a transaction for which this group was not asked: the group will not vote for it.
        self.note_over(id);
        let Some(index) = self.voted.iter().position(|(voted, _)| *voted == id) else { return };
        let (_, plan) = self.voted.remove(index);
        if outcome == Outcome::Abort {
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
        // Kept until the next group begins: each of its members must know the transaction.
        self.decided.push(Decision { id, plan, unconfirmed: Vec::new() });
        true
    }

    /// Returns whether this group will be another one if this transaction, for which it voted, is committed.
    pub fn is_touched(&self, own: &Own, id: TransactionId) -> bool {
        let plan = self.voted.iter().find(|(voted, _)| *voted == id).map(|(_, plan)| plan);
        plan.and_then(|plan| plan.party(own.id)).is_some_and(|party| party.touched)
    }

    /// Returns whether `group`, which has taken over a lost range, lies where the log names another group. That one is an earlier group: a
    /// lost member told of it, and no other node learned that it was to be.
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

    /// Returns the transaction that ended this group, from the group's own final state.
    pub fn ending(&self, id: TransactionId) -> Option<&Plan> {
        self.decided.iter().find(|decision| decision.id == id).map(|decision| &decision.plan)
    }

    /// Returns the transaction state of a group that is born of a transaction: from the final states of all touched groups.
    ///
    /// `finals`: each with its group's id and last epoch. Earlier commits that are not known to all are told on by all groups that come of
    /// the deciding group; but a group that keeps its name is its own only heir.
    pub fn inherit(
        id: TransactionId,
        plan: &Plan,
        born: &GroupRef,
        finals: &[(GroupId, Epoch, &TransactionState)],
        defects: Defects,
    ) -> TransactionState {
        let keeps = |group: GroupId| plan.births.iter().any(|birth| plan.id_of(id, birth) == group);
        let (start, end) = (born.range.start(), born.range.end());
        let known = || finals.iter().flat_map(|(_, _, last)| last.neighbours());
        let other = |link: Option<GroupRef>| known().fold(link, |link, known| newest(link, Some(known)));
        let other = |link: Option<GroupRef>| other(link).filter(|link| link.id != born.id);
        // A group that takes over a lost range keeps its neighbour on the other side.
        let same = || finals.iter().find_map(|(_, _, last)| last.successor.clone()).filter(|_| !plan.lost().is_empty());
        // A group with a boundary that the plan does not name keeps its neighbour there.
        let kept =
            finals.iter().find(|(group, ..)| *group == born.id && plan.keeps_boundaries()).map(|(.., last)| last);
        let before = plan.ends_at(id, start).or_else(|| kept?.predecessor.clone());
        let behind = plan.starts_at(id, end).or_else(|| kept?.successor.clone()).or_else(same);
        let (predecessor, successor) = (other(before), other(behind));
        let mut transactions = TransactionState { predecessor, successor, ..TransactionState::default() };
        for (group, epoch, last) in finals {
            let is_heir = *group == born.id || !keeps(*group);
            for (of, last) in &last.over {
                transactions.note_over(TransactionId { group: *of, epoch: last.0, slot: last.1 });
            }
            if !is_heir {
                continue;
            }
            for decision in last.decided.iter().filter(|_| !defects.has(Defect::NotInherited)) {
                let mut decision = decision.clone();
                if decision.id == id {
                    // Touched groups know the commit: otherwise no group would be born.
                    decision.unconfirmed.retain(|group| plan.party(*group).is_some_and(|party| !party.touched));
                }
                let known = transactions.decided.iter().any(|known| known.id == decision.id);
                if !decision.unconfirmed.is_empty() && !known {
                    transactions.decided.push(decision);
                }
            }
            for (open, _) in last.voted.iter().filter(|(open, _)| plan.lost().contains(&open.group)) {
                transactions.note_over(*open);
            }
            transactions.retired.extend(last.retired.iter().map(|(group, epoch)| (*group, *epoch)));
            if *group != born.id {
                transactions.retired.insert(*group, *epoch);
            }
        }
        // It answers for the lost groups: their transactions without a known outcome are aborted.
        let lost = plan.lost().iter().map(|group| (*group, Epoch(born.epoch.0 - 1)));
        transactions.retired.extend(lost);
        transactions.give_up_on(plan.lost());
        while transactions.retired.len() > RETIRED_MAX {
            let oldest =
                transactions.retired.iter().min_by_key(|(group, epoch)| (**epoch, **group)).map(|(group, _)| *group);
            oldest.map(|group| transactions.retired.remove(&group));
        }
        transactions
    }
}

/// Returns a neighbour as planned, or as it has described itself since. A neighbour that heard that it is known need not describe itself
/// again.
fn newest(planned: Option<GroupRef>, known: Option<&GroupRef>) -> Option<GroupRef> {
    let newer = |link: &GroupRef| known.filter(|known| known.id == link.id && known.epoch >= link.epoch).cloned();
    planned.map(|link| newer(&link).unwrap_or(link))
}
