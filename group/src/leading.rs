//! Work of a member as the leader of its group, its reports to the leader, and transactions that the leader begins: which part is asked, and
//! in which order.

use alloc::boxed::Box;
use alloc::vec::Vec;

use overlay::{GroupId, GroupRef, NodeId, Point};

use crate::control::division::Candidates;
use crate::control::state::Entry;
use crate::group::Group;
use crate::lend::{context, facts, knowledge};
use crate::message::{Heartbeat, LogMessage, Message, Progress, Sender};
use crate::outbox::GroupOutput;
use crate::transaction::driver::GroupEnvelope;
use crate::transaction::member::BeginRefusal;
use crate::transaction::plan::{GroupTransaction, Plan, Rank};
use crate::transaction::state::TransactionEntry;

impl Group {
    pub(crate) fn send_heartbeat(&mut self) {
        self.liveness.on_own_heartbeat(self.now, self.config.timing.heartbeat);
        self.workload.fold(facts!(self));
        self.leader.follow_trips(facts!(self), self.log.leads(), &self.liveness);
        let hears = self.liveness.list_heard(facts!(self));
        let marks = self.primaries.marks_to_tell(facts!(self));
        self.on_marks(Sender { node: self.me, epoch: self.state.epoch }, &marks);
        // Writes that the acceptor took since then are part of the changes that must be durable.
        self.acceptor.flush(&mut context!(self));
        let progress = (!self.recovery.is_asking()).then(|| Progress::of(&self.state, &self.acceptor));
        let is_durable = self.out.is_durable();
        let detector = &self.liveness.failure_detector;
        let heartbeat = Heartbeat {
            applied: self.state.applied,
            leads: self.log.leads_under(),
            chosen: self.log.chosen(self.state.applied),
            echoes: detector.echoes(&hears, self.now.time),
            hears,
            terms: self.primaries.terms(),
            parting: self.liveness.own_parting(),
            sealed: self.acceptor.has_sealed(self.state.epoch),
            wall: self.now.wall,
            sent_us: self.now.time.0 / 1_000,
            agreement_us: self.liveness.agreement_us(facts!(self)),
            doubt: self.recovery.doubt_to_tell(),
            load: self.workload.meter.told(self.config.timing.heartbeat),
            full: self.room.is_told(),
            absences: detector.absences(self.liveness.group_time(self.now.time), self.now.time),
            capacity: self.workload.capacities.own,
            history: self.liveness.told_history(self.me, self.me),
            progress: progress.clone().filter(|_| is_durable),
            marks,
        };
        let audience = self.state.audience();
        let others: Vec<NodeId> = audience.iter().copied().filter(|node| *node != self.me).collect();
        self.out.send(&others, Message::Heartbeat(heartbeat.into()));
        if let Some(progress) = progress {
            let me = [self.me];
            self.leader.send_progress(&mut self.out, if is_durable { &me } else { &audience }, progress);
            self.leader.tell_contact(&mut context!(self), &self.log);
        }
    }

    /// Reports this node's progress where it has changed: newcomers and epochs wait for it.
    pub(crate) fn tell_progress(&mut self) {
        let changed = self.acceptor.take_completeness_changed();
        if self.recovery.is_asking() || !(changed || self.leader.has_news()) {
            return;
        }
        if changed {
            self.acceptor.drive_catch_up(&mut context!(self), &mut self.table);
        }
        self.leader.tell_progress(&mut context!(self), &self.log, &self.acceptor);
    }

    /// Proposes the most urgent entry, if this node leads and no entry is on its way.
    pub(crate) fn lead(&mut self) {
        // Also while an entry is on its way, and where another member leads: the next leader then knows since when the dead are missed.
        self.leader.membership.note_missed(facts!(self), self.log.leads(), &self.liveness);
        if !self.log.leads() {
            return self.leader.membership.rest();
        }
        self.leader.membership.note_learners(facts!(self), &self.liveness);
        if self.log.is_busy() {
            // Called again when that entry is chosen.
            return self.leader.membership.rest();
        }
        let dead = self.leader.membership.look_for_dead(facts!(self), &self.liveness);
        // The next epoch would abort an open transaction, and would continue to ask former members for records that a majority holds
        // already.
        let is_calm = self.state.transactions.is_calm();
        let is_sealed = self.acceptor.has_sealed(self.state.epoch);
        let entry = self
            .leader
            .end_sealed(facts!(self), &self.liveness, is_sealed, &dead)
            .or_else(|| if is_calm { None } else { self.transactions.entry(&mut context!(self), &knowledge!(self)) })
            .or_else(|| self.leader.establish(facts!(self), &self.liveness))
            .or_else(|| self.leader.remove_dead(facts!(self), &self.liveness, &dead))
            .or_else(|| {
                if is_calm && !dead.gathers {
                    self.transactions.entry(&mut context!(self), &knowledge!(self))
                } else {
                    None
                }
            })
            .or_else(|| self.leader.divide(&self.candidates(), &self.workload))
            .or_else(|| self.leader.next_members(facts!(self), &self.liveness, &dead))
            .or_else(|| self.leader.membership.admit(facts!(self), &self.liveness))
            .or_else(|| self.leader.update_contact(facts!(self)))
            .or_else(|| self.transactions.follow_policies(facts!(self)))
            .or_else(|| self.leader.membership.drop_learner(&mut context!(self), &self.liveness))
            .or_else(|| self.leader.raise_horizon(facts!(self)));
        if let Some(entry) = entry {
            self.propose(entry);
        }
    }

    /// Returns the parts that know which members can be primary.
    fn candidates(&self) -> Candidates<'_> {
        let Group { liveness, recovery, room, primaries, .. } = self;
        Candidates { facts: facts!(self), liveness, recovery, room, primaries }
    }

    /// Proposes an entry, even while another one is on its way; does nothing where this node does not lead.
    pub fn propose(&mut self, entry: Entry) {
        if !matches!(entry, Entry::Noop | Entry::Horizon(_)) {
            self.out.push(GroupOutput::Note(alloc::format!("leads the group, and proposes {entry}").into()));
        }
        self.log.propose(&mut context!(self), entry);
    }

    /// Asks a member to lead instead of this node, which leads. Returns `false` where it cannot do so now. The request decides nothing: the
    /// member stands for election, as it may at any time.
    pub fn pass_lead(&mut self, to: NodeId) -> bool {
        let calm = self.log.leads() && !self.log.is_busy() && self.state.transactions.is_calm();
        let may = calm && to != self.me && self.liveness.is_heir_of_lead(facts!(self), to);
        if may {
            self.out.send(&[to], Message::Log(LogMessage::Lead));
        }
        may
    }

    /// Searches for tombstones that no member needs.
    pub(crate) fn tick_purging(&mut self) {
        let entry = self.purging.tick(&mut context!(self), &mut self.table, &self.log, &self.leader);
        if let Some(entry) = entry {
            self.propose(entry);
        }
    }

    /// Returns the plan of a transaction that this group would coordinate, as far as its leader knows now. Begins nothing.
    ///
    /// # Errors
    /// Returns the reason why the transaction cannot begin.
    pub fn plan_transaction(&mut self, operation: GroupTransaction, rank: Rank) -> Result<Plan, BeginRefusal> {
        if self.failed {
            return Err(knowledge!(self).not_leader(self.me));
        }
        self.transactions.plan(facts!(self), &knowledge!(self), operation, rank)
    }

    /// Begins a transaction that this group coordinates; only its leader can. The state shows its progress. `rank` states how often it was
    /// tried before, and since when, in group time.
    ///
    /// # Errors
    /// Returns the reason why nothing is begun, and changes nothing then.
    pub fn begin_transaction(&mut self, operation: GroupTransaction, rank: Rank) -> Result<(), BeginRefusal> {
        if self.failed {
            return Err(knowledge!(self).not_leader(self.me));
        }
        let plan = self.transactions.prepare_begin(facts!(self), &knowledge!(self), operation, rank)?;
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
        let plan = self.transactions.prepare_repair(facts!(self), &knowledge!(self), from, lost, before)?;
        self.propose(Entry::Transaction(TransactionEntry::Begin(Box::new(plan))));
        Ok(())
    }

    /// Asks the neighbours for their state again.
    pub fn look_for_predecessor(&mut self) {
        self.transactions.look_for_predecessor(facts!(self), &knowledge!(self));
    }

    /// Handles an envelope to this group, or to one for which it answers.
    pub fn on_envelope(&mut self, envelope: GroupEnvelope) {
        if self.serves() && self.transactions.on_envelope(&mut context!(self), &knowledge!(self), envelope) {
            self.lead();
        }
    }
}
