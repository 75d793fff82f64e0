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
use crate::context::{Context, Facts};
use crate::control::agreed::AgreedPolicies;
use crate::control::health::Health;
use crate::control::leader::{LeaderState, own_members};
use crate::control::liveness::Liveness;
use crate::control::load::Workload;
use crate::control::log::Log;
use crate::control::state::{Entry, GroupState, Member};
use crate::message::Message;
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

/// Knowledge of a member about its own group that its transactions rest on, beside the agreed state.
pub(crate) struct Knowledge<'a> {
    pub(crate) log: &'a Log,
    pub(crate) liveness: &'a Liveness,
    pub(crate) leader: &'a LeaderState,
    pub(crate) workload: &'a Workload,
}

impl Knowledge<'_> {
    /// Returns the refusal of a member that does not lead.
    pub(crate) fn not_leader(&self, me: NodeId) -> BeginRefusal {
        BeginRefusal::NotLeader(self.log.leader().filter(|leader| *leader != me))
    }

    /// Returns whether each group to be born gets a majority of its members from this group alive, here and with all data.
    fn are_able(&self, facts: Facts<'_>, plan: &Plan) -> bool {
        self.leader.are_able(facts, self.liveness, plan, &facts.state.nodes())
    }

    /// Returns the report for neighbours.
    fn health(&self, facts: Facts<'_>) -> Health {
        self.leader.health(facts, self.liveness, self.workload)
    }
}

impl Facts<'_> {
    fn own(&self) -> Own {
        self.state.own(self.config.defects)
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

    /// Returns the plan of a transaction that this group would coordinate, as far as its leader knows now. Begins nothing.
    ///
    /// # Errors
    /// Returns the reason why the transaction cannot begin.
    pub(crate) fn plan(
        &mut self,
        facts: Facts<'_>,
        knowledge: &Knowledge<'_>,
        operation: GroupTransaction,
        rank: Rank,
    ) -> Result<Plan, BeginRefusal> {
        if !knowledge.log.leads() || facts.state.ended.is_some() {
            return Err(knowledge.not_leader(facts.me));
        }
        self.follow_leadership(facts, knowledge);
        let view = facts.state.view();
        let other = match &operation {
            GroupTransaction::Split { .. } => None,
            _ if view.successor.id == view.own.id => {
                return Err(BeginRefusal::Unsound(PlanRefusal::Alone));
            }
            _ => Some(self.driver.view_of(&view.successor).ok_or(BeginRefusal::NeighbourUnknown)?),
        };
        let plan = match Plan::new(operation, &view, other, rank) {
            Ok(plan) => plan,
            Err(PlanRefusal::Stale) => {
                self.driver.look_again();
                return Err(BeginRefusal::NeighbourUnknown);
            }
            Err(why) => return Err(BeginRefusal::Unsound(why)),
        };
        let is_split = matches!(plan.operation, GroupTransaction::Split { .. });
        if !is_split && !self.driver.has_same_sizes(&view.successor) {
            return Err(BeginRefusal::NotNow(
                "the participating neighbour group has not yet adopted the network's --min-group and --max-group",
            ));
        }
        let is_large = |birth: &Birth| birth.members.len() > facts.state.settings.policies.members_max as usize;
        if plan.operation == GroupTransaction::Merge && plan.births.iter().any(is_large) {
            return Err(BeginRefusal::Unsound(PlanRefusal::TooLarge));
        }
        Ok(plan)
    }

    /// Returns the plan with which a transaction that this group coordinates can begin now; only its leader can begin one. `rank` states
    /// how often it was tried before, and since when, in group time.
    ///
    /// # Errors
    /// Returns the reason why nothing is to be begun.
    pub(crate) fn prepare_begin(
        &mut self,
        facts: Facts<'_>,
        knowledge: &Knowledge<'_>,
        operation: GroupTransaction,
        rank: Rank,
    ) -> Result<Plan, BeginRefusal> {
        let plan = self.plan(facts, knowledge, operation, rank)?;
        if !knowledge.are_able(facts, &plan) {
            return Err(BeginRefusal::NotNow(
                "too few future members of one group are heard and hold all data; try again",
            ));
        }
        let own = facts.own();
        if let Some(why) = facts.state.transactions.refuses_begin(&own, &plan) {
            return Err(BeginRefusal::NotNow(why));
        }
        // They must know its state since its birth: its range has not changed since. A group that does not know it would refuse.
        let takes_part = |group| plan.party(group).is_some();
        if !self.driver.is_known(facts.state.born, &facts.state.transactions, takes_part) {
            return Err(BeginRefusal::NotNow("a neighbour that takes part does not know this group yet"));
        }
        not_busy(knowledge.log)?;
        Ok(plan)
    }

    /// Returns the plan by which this group takes over the range before it on the ring, back to `from`, which is lost: no group will know
    /// the data that was chosen there. `before`: the owner of the range before that, where that is another group. Only the leader can begin
    /// this, and only while nothing is heard of the lost group: see [`Transactions::look_for_predecessor`].
    ///
    /// # Errors
    /// Returns the reason why nothing is to be begun.
    pub(crate) fn prepare_repair(
        &self,
        facts: Facts<'_>,
        knowledge: &Knowledge<'_>,
        from: Point,
        lost: Vec<GroupId>,
        before: Option<&GroupRef>,
    ) -> Result<Plan, BeginRefusal> {
        if !knowledge.log.leads() || facts.state.ended.is_some() {
            return Err(knowledge.not_leader(facts.me));
        }
        if self.hears_predecessor(facts.state) {
            return Err(BeginRefusal::NotNow("the group that is said to be lost answers: nothing is lost"));
        }
        let plan = Plan::repair(
            from,
            lost,
            &facts.state.view(),
            before,
            Rank::new(0, knowledge.liveness.group_time(facts.now)),
        );
        let plan = plan.map_err(BeginRefusal::Unsound)?;
        if !self.driver.are_silent(plan.lost()) {
            return Err(BeginRefusal::NotNow("a group that was declared lost was heard a moment ago; try again"));
        }
        if !knowledge.are_able(facts, &plan) {
            return Err(BeginRefusal::NotNow("too few members are heard and hold all data; try again"));
        }
        if let Some(why) = facts.state.transactions.refuses_begin(&facts.own(), &plan) {
            return Err(BeginRefusal::NotNow(why));
        }
        not_busy(knowledge.log)?;
        Ok(plan)
    }

    /// Asks the neighbours for their state again.
    pub(crate) fn look_for_predecessor(&mut self, facts: Facts<'_>, knowledge: &Knowledge<'_>) {
        self.follow_leadership(facts, knowledge);
        self.driver.look_again();
    }

    /// Returns whether the group before this one has reported its state since it was asked.
    pub(crate) fn hears_predecessor(&self, state: &GroupState) -> bool {
        let predecessor = state.transactions.predecessor();
        predecessor.is_some_and(|link| self.driver.view_of(link).is_some())
    }

    /// Returns whether, for each group to be born, a majority of the members that it gets from this group have reported that they know of
    /// the transaction. A member that died just before the transaction began may still have counted as heard. A later death leaves a group
    /// that has other members.
    fn is_acknowledged(&self, facts: Facts<'_>, knowledge: &Knowledge<'_>, id: TransactionId, plan: &Plan) -> bool {
        if facts.config.defects.has(Defect::Unheard) {
            return true;
        }
        let Some(slot) = self.seen.get(&id) else { return false };
        let members = facts.state.nodes();
        plan.births.iter().map(|birth| own_members(birth, &members)).all(|own| {
            let knows = |node: &&NodeId| **node == facts.me || knowledge.leader.knows(**node, *slot);
            // Where all members go, their group has chosen it.
            own.is_empty() || own.len() == members.len() || own.iter().filter(knows).count() > own.len() / 2
        })
    }

    /// Returns whether this entry may be chosen now. A commit waits until the members of the groups to be born are known to live.
    fn is_due(&self, facts: Facts<'_>, knowledge: &Knowledge<'_>, entry: &TransactionEntry) -> bool {
        match (entry, facts.state.transactions.coordinates()) {
            (TransactionEntry::Outcome(id, Outcome::Commit), Some((open, plan))) if *id == open => {
                self.is_acknowledged(facts, knowledge, open, plan)
            }
            _ => true,
        }
    }

    /// Returns whether this envelope may be sent: a yes vote waits for the same.
    fn is_sure(&self, facts: Facts<'_>, knowledge: &Knowledge<'_>, envelope: &GroupEnvelope) -> bool {
        match envelope.message {
            GroupMessage::Vote(id, Vote::Yes) => {
                let mut voted = facts.state.transactions.voted();
                voted
                    .find(|(open, _)| *open == id)
                    .is_none_or(|(_, plan)| self.is_acknowledged(facts, knowledge, id, plan))
            }
            _ => true,
        }
    }

    /// Notes at which slot each open transaction was first seen.
    fn see_open(&mut self, state: &GroupState) {
        let open = || state.transactions.coordinates().into_iter().chain(state.transactions.voted()).map(|(id, _)| id);
        self.seen.retain(|id, _| open().any(|open| open == *id));
        self.held
            .retain(|envelope| matches!(envelope.message, GroupMessage::Vote(id, _) if open().any(|open| open == id)));
        for id in open() {
            self.seen.entry(id).or_insert(state.applied);
        }
    }

    /// Returns whether both neighbours know this group's present state; `None`: only the leader can tell.
    pub(crate) fn is_known_to_neighbours(&self, state: &GroupState, log: &Log) -> Option<bool> {
        let leads = log.leads() && self.leads == log.leads_under();
        leads.then(|| self.driver.is_known(state.epoch, &state.transactions, |_| true))
    }

    /// Handles an envelope to this group, or to one for which it answers. Returns whether this node leads and has handled it: it may have an
    /// entry to propose.
    pub(crate) fn on_envelope(
        &mut self,
        ctx: &mut Context<'_>,
        knowledge: &Knowledge<'_>,
        envelope: GroupEnvelope,
    ) -> bool {
        let facts = ctx.facts();
        if facts.state.losses.iter().any(|loss| loss.is_of(&envelope.by)) {
            // The group has come back, and does not know that its range was declared lost.
            self.tell_loss(ctx, knowledge.log, &envelope.by);
            return false;
        }
        if facts.state.ended.is_some() {
            // It can still report its decisions and what it has learned, but nothing new.
            if matches!(envelope.message, GroupMessage::Question(_) | GroupMessage::Decision(_, Outcome::Commit)) {
                self.answer(ctx, knowledge, envelope);
            }
        } else if knowledge.log.leads() {
            self.follow_leadership(facts, knowledge);
            let (applied, now) = (facts.state.applied, facts.now);
            if self.answered.has(&envelope, applied, now, facts.config.timing.resend) {
                return false;
            }
            // The sender asks again: the members may be heard by then, or the coordinator gives up. A leader that hears no majority may
            // lead no member any more.
            let answers = match &envelope.message {
                GroupMessage::Prepare(_, plan) => {
                    knowledge.are_able(facts, plan) && self.driver.are_silent(plan.lost())
                }
                GroupMessage::Push(..) => knowledge.liveness.hears_majority(facts),
                _ => true,
            };
            if answers {
                self.answered.note(envelope.clone(), applied, now);
                self.answer(ctx, knowledge, envelope);
            }
            return true;
        } else if let Some(leader) = knowledge.log.leader().filter(|leader| *leader != facts.me) {
            ctx.out.send(&[leader], Message::Envelope(Box::new(envelope)));
        }
        false
    }

    /// Sends the state to a group that comes back and does not know of a declared loss. Not all members do so, and not often.
    fn tell_loss(&mut self, ctx: &mut Context<'_>, log: &Log, to: &GroupRef) {
        let tells = log.leads() || log.leader().is_none();
        if tells && self.told_loss.is_none_or(|told| ctx.now.time.since(told) >= ctx.config.timing.resend) {
            self.told_loss = Some(ctx.now.time);
            let nodes: Vec<NodeId> = to.nodes().collect();
            ctx.out.send(&nodes, Message::State(Box::new(ctx.state.clone())));
        }
    }

    fn answer(&mut self, ctx: &mut Context<'_>, knowledge: &Knowledge<'_>, envelope: GroupEnvelope) {
        let (own, me) = (ctx.facts().own(), ctx.state.reference());
        self.driver.on_envelope(&own, &me, &ctx.state.transactions, envelope);
        self.post(ctx, knowledge);
    }

    /// Drops the notes of another leadership: they say nothing about this leader's knowledge.
    fn follow_leadership(&mut self, facts: Facts<'_>, knowledge: &Knowledge<'_>) {
        let leads = knowledge.log.leads_under();
        if self.leads != leads {
            self.leads = leads;
            self.driver = TransactionDriver::of(facts.me);
            self.driver.health = knowledge.health(facts);
            self.answered = RecentAnswers::default();
            self.seen.clear();
            self.held.clear();
        }
    }

    /// Does all that is due in transactions.
    pub(crate) fn tick(&mut self, ctx: &mut Context<'_>, knowledge: &Knowledge<'_>) {
        let facts = ctx.facts();
        if facts.state.ended.is_some() {
            return self.tell_end(ctx, knowledge);
        }
        if facts.state.transactions.is_alone() {
            self.lonely = None;
            return;
        }
        if !knowledge.log.leads() {
            return self.seek_word(ctx, knowledge);
        }
        self.follow_leadership(facts, knowledge);
        let (own, me) = (facts.own(), facts.state.reference());
        self.driver.health = knowledge.health(facts);
        self.driver.tick(&own, &me, &facts.state.transactions, facts.now);
        self.post(ctx, knowledge);
    }

    /// Asks the neighbours while this node waits, after a crash, for the members of its group to vouch for it. They may be in other groups
    /// by now, and would then never answer.
    pub(crate) fn seek_word_alone(&mut self, ctx: &mut Context<'_>, knowledge: &Knowledge<'_>) {
        if ctx.state.ended.is_none() && !ctx.state.transactions.is_alone() {
            self.seek_word(ctx, knowledge);
        }
    }

    /// Asks the neighbours, from each member that knows no leader or hears no majority: other groups may own the range by now, and no
    /// member that knows may be left here.
    fn seek_word(&mut self, ctx: &mut Context<'_>, knowledge: &Knowledge<'_>) {
        let facts = ctx.facts();
        if knowledge.liveness.hears_majority(facts) && knowledge.log.leader().is_some() {
            self.lonely = None;
            return;
        }
        let due = *self.lonely.get_or_insert(facts.now + LONELY);
        if facts.now < due {
            return;
        }
        self.lonely = Some(facts.now + LONELY);
        let by = facts.state.reference();
        let (predecessor, successor) = (facts.state.transactions.predecessor(), facts.state.transactions.successor());
        for to in predecessor.into_iter().chain(successor).cloned() {
            // The envelope has no news for the receiver: a group that answers must not be taken for one that lives.
            let envelope =
                GroupEnvelope { from: facts.state.id, by: by.clone(), to, message: GroupMessage::Known(Epoch(0)) };
            ctx.out.push(GroupOutput::Envelope(Box::new(envelope)));
        }
    }

    /// Returns when [`Transactions::tick`] has something to do next.
    pub(crate) fn due(&self, facts: Facts<'_>, log: &Log) -> Time {
        let soon = facts.now + facts.config.timing.resend / 10;
        match self.tell_end {
            Some(due) => due.max(soon),
            None if log.leads() => self.driver.next_timeout(&facts.own(), &facts.state.transactions).max(soon),
            None => self.lonely.map_or(Time::NEVER, |due| due.max(soon)),
        }
    }

    /// Returns the next entry about transactions.
    pub(crate) fn entry(&mut self, ctx: &mut Context<'_>, knowledge: &Knowledge<'_>) -> Option<Entry> {
        let facts = ctx.facts();
        self.follow_leadership(facts, knowledge);
        let own = facts.own();
        self.see_open(facts.state);
        let mut driver = core::mem::take(&mut self.driver);
        let wanted = driver.take_wanted(&own, &facts.state.transactions, |entry| self.is_due(facts, knowledge, entry));
        self.driver = driver;
        if !self.held.is_empty() {
            self.post(ctx, knowledge);
        }
        wanted.map(Entry::Transaction)
    }

    /// Sends the envelopes that wait; a vote only once it is sure.
    fn post(&mut self, ctx: &mut Context<'_>, knowledge: &Knowledge<'_>) {
        let facts = ctx.facts();
        self.see_open(facts.state);
        let mut envelopes = core::mem::take(&mut self.held);
        envelopes.extend(self.driver.take_envelopes());
        for envelope in envelopes {
            if self.is_sure(facts, knowledge, &envelope) {
                ctx.out.push(GroupOutput::Envelope(Box::new(envelope)));
            } else if !self.held.contains(&envelope) {
                self.held.push(envelope);
            }
        }
    }

    /// Begins to tell other groups that this one has ended: at once where this node led it (`led`).
    pub(crate) fn end(&mut self, ctx: &mut Context<'_>, knowledge: &Knowledge<'_>, led: bool) {
        let wait = if led { Duration::ZERO } else { TELL_AFTER + ctx.rng.duration_below(TELL_AFTER) };
        self.tell_end = Some(ctx.now.time + wait);
        ctx.out.push(GroupOutput::Ended);
        self.tell_end(ctx, knowledge);
    }

    /// Tells the other groups that the transaction touches how this one ended, and participants that it did. Repeated until this instance
    /// is dropped.
    fn tell_end(&mut self, ctx: &mut Context<'_>, knowledge: &Knowledge<'_>) {
        let facts = ctx.facts();
        if self.tell_end.is_none_or(|due| facts.now < due) {
            return;
        }
        let again = if facts.config.defects.has(Defect::ToldOnce) {
            Time::NEVER
        } else {
            facts.now + facts.config.timing.resend
        };
        self.tell_end = Some(again);
        let Some((_, plan)) = facts.state.ending() else { return };
        let others: Vec<NodeId> = plan
            .touched()
            .filter(|party| party.group.id != facts.state.id)
            .flat_map(|party| party.group.nodes())
            .collect();
        let me = facts.state.reference();
        self.driver.tell_outcomes(&me, &facts.state.transactions, facts.now);
        self.post(ctx, knowledge);
        if !others.is_empty() {
            ctx.out.send(&others, Message::State(Box::new(facts.state.clone())));
        }
    }
}

/// Returns whether the log has no entry on its way.
///
/// # Errors
/// Returns the refusal of a transaction where there is one.
fn not_busy(log: &Log) -> Result<(), BeginRefusal> {
    match log.is_busy() {
        true => Err(BeginRefusal::NotNow("the group is deciding another transaction at the moment; try again")),
        false => Ok(()),
    }
}
