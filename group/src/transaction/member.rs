//! Part of a member in its group's transactions with other groups: envelopes in and out, and the end of the group.
//!
//! Only the leader answers envelopes; any other member forwards them to it. A group that has ended has no leader any more: each member sends
//! the outcome and the last state until the successors of the group have begun.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use overlay::{Contact, Epoch, GroupId, GroupRef, KeyRange, NodeId, Point};

use crate::ballot::{Ballot, LogSlot};
use crate::config::{Defect, Defects};
use crate::control::agreed::AgreedPolicies;
use crate::control::health::Health;
use crate::control::leader::own_members;
use crate::control::state::{Entry, GroupState, Member};
use crate::group::{Group, context, facts};
use crate::message::{AskCopy, Message};
use crate::outbox::GroupOutput;
use crate::transaction::driver::{GroupEnvelope, GroupMessage, TransactionDriver};
use crate::transaction::plan::{Birth, GroupTransaction, Plan, PlanRefusal, Rank, View};
use crate::transaction::state::{Own, TransactionEntry};
use crate::transaction::{Outcome, TransactionId, Vote};
use overlay::time::Time;

/// Upper limit of a member's addresses in references to other groups.
const ADDRESSES_TOLD: usize = 4;
/// Delay after which a member that did not lead at the group's end tells other groups of it; the leader tells them at once.
const TELL_AFTER: Duration = Duration::from_millis(900);
/// Time without a leader after which members ask the neighbours for the present owners of the range, and the interval of these questions.
const LONELY: Duration = Duration::from_secs(3);

/// Knowledge of a member about its group's transactions beside the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transactions {
    driver: TransactionDriver,
    /// Leadership that the driver's notes belong to.
    leads: Option<Ballot>,
    /// Last applied slot at which this leader first saw each open transaction: a member that reports the slot has lived since.
    seen: BTreeMap<TransactionId, LogSlot>,
    /// Votes that wait until they may be sent.
    held: Vec<GroupEnvelope>,
    answered: RecentAnswers,
    /// Time when this member next tells other groups of the end of its group.
    tell_end: Option<Time>,
    /// Time when this member next asks the neighbours, while no member leads.
    lonely: Option<Time>,
    /// Time when this member last told a group that its range was declared lost.
    told_loss: Option<Time>,
}

/// Envelopes that a leader answered recently: each member that an envelope reaches forwards a copy.
#[derive(Clone, Debug, Default)]
struct RecentAnswers(VecDeque<(Time, LogSlot, GroupEnvelope)>);

impl RecentAnswers {
    /// Upper limit of remembered envelopes.
    const MAX: usize = 8;

    /// Returns whether this envelope was answered, from the same log, less than a third of the resend time ago. An envelope that is sent again
    /// is answered again.
    fn has(&mut self, envelope: &GroupEnvelope, applied: LogSlot, now: Time, resend: Duration) -> bool {
        while self.0.front().is_some_and(|(at, ..)| now.since(*at) >= resend / 3) {
            self.0.pop_front();
        }
        self.0.iter().any(|(_, slot, known)| *slot == applied && known == envelope)
    }

    fn note(&mut self, envelope: GroupEnvelope, applied: LogSlot, now: Time) {
        if self.0.len() >= Self::MAX {
            self.0.pop_front();
        }
        self.0.push_back((now, applied, envelope));
    }
}

impl Transactions {
    /// See [`TransactionDriver::heard_policies`].
    pub(crate) fn heard_policies(&self, own: &AgreedPolicies) -> Option<&AgreedPolicies> {
        self.driver.heard_policies(own)
    }

    /// See [`TransactionDriver::health_of`].
    pub(crate) fn health_of(&self, link: &GroupRef, now: Time) -> Option<(KeyRange, &Health)> {
        self.driver.health_of(link, now)
    }
}

/// Reason why a transaction is not begun; nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeginRefusal {
    /// Another member leads, or none: only the leader knows which transactions can begin.
    NotLeader(Option<NodeId>),
    /// The neighbour that would take part has not reported its state since this member leads, or is changing.
    NeighbourUnknown,
    /// The state of the group does not allow it now, for this reason.
    NotNow(&'static str),
    /// The transaction makes no sense.
    Unsound(PlanRefusal),
}

impl core::fmt::Display for BeginRefusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            BeginRefusal::NotLeader(Some(leader)) => {
                write!(f, "this member is not the leader of the group: ask {leader}")
            }
            BeginRefusal::NotLeader(None) => f.write_str("the group has no known leader at the moment; try again"),
            BeginRefusal::NeighbourUnknown => {
                f.write_str("the participating neighbour group has not reported its state recently; try again")
            }
            BeginRefusal::NotNow(why) => f.write_str(why),
            BeginRefusal::Unsound(why) => write!(f, "{why}"),
        }
    }
}

impl GroupState {
    /// Returns the group as its own transactions see it.
    pub fn own(&self, defects: Defects) -> Own {
        let GroupState { id, epoch, range, applied, .. } = *self;
        Own { id, epoch, range, settled: self.is_settled(), applied, defects }
    }

    /// Returns the reference to the group for other groups.
    pub fn reference(&self) -> GroupRef {
        let contact = |member: &Member| Contact {
            node: member.node,
            addresses: member.addresses.iter().take(ADDRESSES_TOLD).cloned().collect(),
            name: member.name.clone(),
        };
        let members = self.members.iter().map(contact).collect();
        GroupRef { id: self.id, epoch: self.epoch, range: self.range, members }
    }

    /// Returns the group with its neighbours.
    pub fn view(&self) -> View {
        self.transactions.view(&self.reference())
    }

    /// Returns the transaction that ended this group; `None` where the group continues.
    pub fn ending(&self) -> Option<(TransactionId, &Plan)> {
        let id = self.ended?;
        Some((id, self.transactions.ending(id)?))
    }

    pub(crate) fn apply_transaction(&mut self, slot: LogSlot, entry: &TransactionEntry, defects: Defects) {
        let own = Own { applied: slot, ..self.own(defects) };
        if self.transactions.apply(&own, slot, entry) {
            self.ended = match entry {
                TransactionEntry::Outcome(id, _) | TransactionEntry::Ending(id) => Some(*id),
                _ => None,
            };
        }
    }
}

impl Group {
    fn own(&self) -> Own {
        self.state.own(self.config.defects)
    }

    /// Returns the plan of a transaction that this group would coordinate, as far as its leader knows now. Begins nothing.
    ///
    /// # Errors
    /// Returns the reason why the transaction cannot begin.
    pub fn plan_transaction(&mut self, operation: GroupTransaction, rank: Rank) -> Result<Plan, BeginRefusal> {
        if !self.log.leads() || self.state.ended.is_some() || self.failed {
            return Err(BeginRefusal::NotLeader(self.log.leader().filter(|leader| *leader != self.me)));
        }
        self.follow_leadership();
        let view = self.state.view();
        let other = match &operation {
            GroupTransaction::Split { .. } => None,
            _ if view.successor.id == view.own.id => {
                return Err(BeginRefusal::Unsound(PlanRefusal::Alone));
            }
            _ => Some(self.transactions.driver.view_of(&view.successor).ok_or(BeginRefusal::NeighbourUnknown)?),
        };
        let plan = match Plan::new(operation, &view, other, rank) {
            Ok(plan) => plan,
            Err(PlanRefusal::Stale) => {
                self.transactions.driver.look_again();
                return Err(BeginRefusal::NeighbourUnknown);
            }
            Err(why) => return Err(BeginRefusal::Unsound(why)),
        };
        let is_split = matches!(plan.operation, GroupTransaction::Split { .. });
        if !is_split && !self.transactions.driver.has_same_sizes(&view.successor) {
            return Err(BeginRefusal::NotNow(
                "the participating neighbour group has not yet adopted the network's --min-group and --max-group",
            ));
        }
        let is_large = |birth: &Birth| birth.members.len() > self.state.settings.policies.members_max as usize;
        if plan.operation == GroupTransaction::Merge && plan.births.iter().any(is_large) {
            return Err(BeginRefusal::Unsound(PlanRefusal::TooLarge));
        }
        Ok(plan)
    }

    /// Begins a transaction that this group coordinates; only its leader can. The state shows its progress. `rank` states how often it was
    /// tried before, and since when, in group time.
    ///
    /// # Errors
    /// Returns the reason why nothing is begun, and changes nothing then.
    pub fn begin_transaction(&mut self, operation: GroupTransaction, rank: Rank) -> Result<(), BeginRefusal> {
        let plan = self.plan_transaction(operation, rank)?;
        if !self.leader.are_able(facts!(self), &self.liveness, &plan, &self.state.nodes()) {
            return Err(BeginRefusal::NotNow(
                "too few future members of one group are heard and hold all data; try again",
            ));
        }
        let own = self.own();
        if let Some(why) = self.state.transactions.refuses_begin(&own, &plan) {
            return Err(BeginRefusal::NotNow(why));
        }
        // They must know its state since its birth: its range has not changed since. A group that does not know it would refuse.
        let takes_part = |group| plan.party(group).is_some();
        if !self.transactions.driver.is_known(self.state.born, &self.state.transactions, takes_part) {
            return Err(BeginRefusal::NotNow("a neighbour that takes part does not know this group yet"));
        }
        self.propose_begin(plan)
    }

    fn propose_begin(&mut self, plan: Plan) -> Result<(), BeginRefusal> {
        if self.log.is_busy() {
            return Err(BeginRefusal::NotNow("the group is deciding another transaction at the moment; try again"));
        }
        self.propose(Entry::Transaction(TransactionEntry::Begin(Box::new(plan))));
        Ok(())
    }

    /// Begins to take over the range before this group on the ring, back to `from`, which is lost: no group will know the data that was
    /// chosen there. `before`: the owner of the range before that, where that is another group. Only the leader can begin this, and only
    /// while nothing is heard of the lost group: see [`Group::look_for_predecessor`].
    ///
    /// # Errors
    /// Returns the reason why nothing is begun, and changes nothing then.
    pub fn begin_repair(
        &mut self,
        from: Point,
        lost: Vec<GroupId>,
        before: Option<&GroupRef>,
    ) -> Result<(), BeginRefusal> {
        if !self.log.leads() || self.state.ended.is_some() {
            return Err(BeginRefusal::NotLeader(self.log.leader().filter(|leader| *leader != self.me)));
        }
        if self.hears_predecessor() {
            return Err(BeginRefusal::NotNow("the group that is said to be lost answers: nothing is lost"));
        }
        let plan = Plan::repair(from, lost, &self.state.view(), before, self.rank(0));
        let plan = plan.map_err(BeginRefusal::Unsound)?;
        if !self.transactions.driver.are_silent(plan.lost()) {
            return Err(BeginRefusal::NotNow("a group that was declared lost was heard a moment ago; try again"));
        }
        if !self.leader.are_able(facts!(self), &self.liveness, &plan, &self.state.nodes()) {
            return Err(BeginRefusal::NotNow("too few members are heard and hold all data; try again"));
        }
        if let Some(why) = self.state.transactions.refuses_begin(&self.own(), &plan) {
            return Err(BeginRefusal::NotNow(why));
        }
        self.propose_begin(plan)
    }

    /// Answers a neighbour's member, which may come to own a part of this range. Other nodes need no copy.
    pub(crate) fn on_ask_copy(&mut self, from: NodeId, ask: AskCopy) {
        let (predecessor, successor) = (self.state.transactions.predecessor(), self.state.transactions.successor());
        let is_near = predecessor.into_iter().chain(successor).any(|link| link.nodes().any(|node| node == from));
        if is_near && !self.recovery.is_asking() && !self.failed && self.state.ended.is_none() {
            self.acceptor.on_ask_copy(&mut context!(self), &mut self.table, from, ask);
        }
    }

    /// Asks the neighbours for their state again.
    pub fn look_for_predecessor(&mut self) {
        self.follow_leadership();
        self.transactions.driver.look_again();
    }

    /// Returns whether the group before this one has reported its state since it was asked.
    pub fn hears_predecessor(&self) -> bool {
        let predecessor = self.state.transactions.predecessor();
        predecessor.is_some_and(|link| self.transactions.driver.view_of(link).is_some())
    }

    /// Returns whether, for each group to be born, a majority of the members that it gets from this group have reported that they know of
    /// the transaction. A member that died just before the transaction began may still have counted as heard. A later death leaves a group
    /// that has other members.
    fn is_acknowledged(&self, id: TransactionId, plan: &Plan) -> bool {
        if self.config.defects.has(Defect::Unheard) {
            return true;
        }
        let Some(slot) = self.transactions.seen.get(&id) else { return false };
        let members = self.state.nodes();
        plan.births.iter().map(|birth| own_members(birth, &members)).all(|own| {
            let knows = |node: &&NodeId| **node == self.me || self.leader.knows(**node, *slot);
            // Where all members go, their group has chosen it.
            own.is_empty() || own.len() == members.len() || own.iter().filter(knows).count() > own.len() / 2
        })
    }

    /// Returns whether this entry may be chosen now. A commit waits until the members of the groups to be born are known to live.
    fn is_due(&self, entry: &TransactionEntry) -> bool {
        match (entry, self.state.transactions.coordinates()) {
            (TransactionEntry::Outcome(id, Outcome::Commit), Some((open, plan))) if *id == open => {
                self.is_acknowledged(open, plan)
            }
            _ => true,
        }
    }

    /// Returns whether this envelope may be sent: a yes vote waits for the same.
    fn is_sure(&self, envelope: &GroupEnvelope) -> bool {
        match envelope.message {
            GroupMessage::Vote(id, Vote::Yes) => {
                let mut voted = self.state.transactions.voted();
                voted.find(|(open, _)| *open == id).is_none_or(|(_, plan)| self.is_acknowledged(id, plan))
            }
            _ => true,
        }
    }

    /// Notes at which slot each open transaction was first seen.
    fn see_open(&mut self) {
        let Group { state, transactions, .. } = self;
        let open = || state.transactions.coordinates().into_iter().chain(state.transactions.voted()).map(|(id, _)| id);
        transactions.seen.retain(|id, _| open().any(|open| open == *id));
        transactions
            .held
            .retain(|envelope| matches!(envelope.message, GroupMessage::Vote(id, _) if open().any(|open| open == id)));
        for id in open() {
            transactions.seen.entry(id).or_insert(state.applied);
        }
    }

    /// Returns whether both neighbours know this group's present state; `None`: only the leader can tell.
    pub fn is_known_to_neighbours(&self) -> Option<bool> {
        let leads = self.log.leads() && self.transactions.leads == self.log.leads_under();
        leads.then(|| self.transactions.driver.is_known(self.state.epoch, &self.state.transactions, |_| true))
    }

    /// Returns the rank of a transaction that begins now, in group time.
    pub fn rank(&self, tried: u32) -> Rank {
        Rank::new(tried, self.liveness.group_time(self.now.time))
    }

    /// Handles an envelope to this group, or to one for which it answers.
    pub fn on_envelope(&mut self, envelope: GroupEnvelope) {
        if self.recovery.is_asking() || self.failed {
            return;
        }
        if self.state.losses.iter().any(|loss| loss.is_of(&envelope.by)) {
            // The group has come back, and does not know that its range was declared lost.
            return self.tell_loss(&envelope.by);
        }
        if self.state.ended.is_some() {
            // It can still report its decisions and what it has learned, but nothing new.
            if matches!(envelope.message, GroupMessage::Question(_) | GroupMessage::Decision(_, Outcome::Commit)) {
                self.answer(envelope);
            }
        } else if self.log.leads() {
            self.follow_leadership();
            let (applied, now) = (self.state.applied, self.now.time);
            if self.transactions.answered.has(&envelope, applied, now, self.config.timing.resend) {
                return;
            }
            // The sender asks again: the members may be heard by then, or the coordinator gives up. A leader that hears no majority may
            // lead no member any more.
            let answers = match &envelope.message {
                GroupMessage::Prepare(_, plan) => {
                    self.leader.are_able(facts!(self), &self.liveness, plan, &self.state.nodes())
                        && self.transactions.driver.are_silent(plan.lost())
                }
                GroupMessage::Push(..) => self.liveness.hears_majority(facts!(self)),
                _ => true,
            };
            if answers {
                self.transactions.answered.note(envelope.clone(), applied, now);
                self.answer(envelope);
            }
            self.lead();
        } else if let Some(leader) = self.log.leader().filter(|leader| *leader != self.me) {
            self.out.send(&[leader], Message::Envelope(Box::new(envelope)));
        }
    }

    /// Sends the state to a group that comes back and does not know of a declared loss. Not all members do so, and not often.
    fn tell_loss(&mut self, to: &GroupRef) {
        let tells = self.log.leads() || self.log.leader().is_none();
        if tells
            && self.transactions.told_loss.is_none_or(|told| self.now.time.since(told) >= self.config.timing.resend)
        {
            self.transactions.told_loss = Some(self.now.time);
            let nodes: Vec<NodeId> = to.nodes().collect();
            self.out.send(&nodes, Message::State(Box::new(self.state.clone())));
        }
    }

    fn answer(&mut self, envelope: GroupEnvelope) {
        let (own, me) = (self.own(), self.state.reference());
        self.transactions.driver.on_envelope(&own, &me, &self.state.transactions, envelope);
        self.post();
    }

    /// Drops the notes of another leadership: they say nothing about this leader's knowledge.
    fn follow_leadership(&mut self) {
        let leads = self.log.leads_under();
        if self.transactions.leads != leads {
            self.transactions.leads = leads;
            self.transactions.driver = TransactionDriver::of(self.me);
            self.transactions.driver.health = self.leader.health(facts!(self), &self.liveness, &self.workload);
            self.transactions.answered = RecentAnswers::default();
            self.transactions.seen.clear();
            self.transactions.held.clear();
        }
    }

    /// Does all that is due in transactions.
    pub(crate) fn tick_transactions(&mut self) {
        if self.state.ended.is_some() {
            return self.tell_end();
        }
        if self.state.transactions.is_alone() {
            self.transactions.lonely = None;
            return;
        }
        if !self.log.leads() {
            return self.seek_word();
        }
        self.follow_leadership();
        let (own, me) = (self.own(), self.state.reference());
        self.transactions.driver.health = self.leader.health(facts!(self), &self.liveness, &self.workload);
        self.transactions.driver.tick(&own, &me, &self.state.transactions, self.now.time);
        self.post();
    }

    /// Asks the neighbours while this node waits, after a crash, for the members of its group to vouch for it. They may be in other groups
    /// by now, and would then never answer.
    pub(crate) fn seek_word_alone(&mut self) {
        if self.state.ended.is_none() && !self.state.transactions.is_alone() {
            self.seek_word();
        }
    }

    /// Asks the neighbours, from each member that knows no leader or hears no majority: other groups may own the range by now, and no
    /// member that knows may be left here.
    fn seek_word(&mut self) {
        if self.liveness.hears_majority(facts!(self)) && self.log.leader().is_some() {
            self.transactions.lonely = None;
            return;
        }
        let due = *self.transactions.lonely.get_or_insert(self.now.time + LONELY);
        if self.now.time < due {
            return;
        }
        self.transactions.lonely = Some(self.now.time + LONELY);
        let by = self.state.reference();
        let (predecessor, successor) = (self.state.transactions.predecessor(), self.state.transactions.successor());
        for to in predecessor.into_iter().chain(successor).cloned() {
            // The envelope has no news for the receiver: a group that answers must not be taken for one that lives.
            let envelope =
                GroupEnvelope { from: self.state.id, by: by.clone(), to, message: GroupMessage::Known(Epoch(0)) };
            self.out.push(GroupOutput::Envelope(Box::new(envelope)));
        }
    }

    /// Returns when [`Group::tick_transactions`] has something to do next.
    pub(crate) fn transactions_due(&self) -> Time {
        let soon = self.now.time + self.config.timing.resend / 10;
        match self.transactions.tell_end {
            Some(due) => due.max(soon),
            None if self.log.leads() => {
                self.transactions.driver.next_timeout(&self.own(), &self.state.transactions).max(soon)
            }
            None => self.transactions.lonely.map_or(Time::NEVER, |due| due.max(soon)),
        }
    }

    /// Returns the next entry about transactions.
    pub(crate) fn entry(&mut self) -> Option<Entry> {
        self.follow_leadership();
        let own = self.own();
        self.see_open();
        let mut driver = core::mem::take(&mut self.transactions.driver);
        let wanted = driver.take_wanted(&own, &self.state.transactions, |entry| self.is_due(entry));
        self.transactions.driver = driver;
        if !self.transactions.held.is_empty() {
            self.post();
        }
        wanted.map(Entry::Transaction)
    }

    /// Sends the envelopes that wait; a vote only once it is sure.
    fn post(&mut self) {
        self.see_open();
        let mut envelopes = core::mem::take(&mut self.transactions.held);
        envelopes.extend(self.transactions.driver.take_envelopes());
        for envelope in envelopes {
            if self.is_sure(&envelope) {
                self.out.push(GroupOutput::Envelope(Box::new(envelope)));
            } else if !self.transactions.held.contains(&envelope) {
                self.transactions.held.push(envelope);
            }
        }
    }

    /// Ends the group: nothing is served or accepted any more. Other groups learn of the end at once from the former leader (`led`).
    pub(crate) fn end(&mut self, led: bool) {
        self.acceptor.seal(&mut context!(self), self.state.epoch);
        self.end_superseded();
        self.hand_over();
        self.sealed_since = None;
        let wait = if led { Duration::ZERO } else { TELL_AFTER + self.rng.duration_below(TELL_AFTER) };
        self.transactions.tell_end = Some(self.now.time + wait);
        self.out.push(GroupOutput::Ended);
        self.tell_end();
    }

    /// Tells the other groups that the transaction touches how this one ended, and participants that it did. Repeated until this instance
    /// is dropped.
    fn tell_end(&mut self) {
        if self.transactions.tell_end.is_none_or(|due| self.now.time < due) {
            return;
        }
        let again = if self.config.defects.has(Defect::ToldOnce) {
            Time::NEVER
        } else {
            self.now.time + self.config.timing.resend
        };
        self.transactions.tell_end = Some(again);
        let Some((_, plan)) = self.state.ending() else { return };
        let others: Vec<NodeId> = plan
            .touched()
            .filter(|party| party.group.id != self.state.id)
            .flat_map(|party| party.group.nodes())
            .collect();
        let me = self.state.reference();
        self.transactions.driver.tell_outcomes(&me, &self.state.transactions, self.now.time);
        self.post();
        if !others.is_empty() {
            self.out.send(&others, Message::State(Box::new(self.state.clone())));
        }
    }
}
