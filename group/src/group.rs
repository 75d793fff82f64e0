//! One member of one group: takes messages and the time, and hands each input to the parts that it concerns.
//!
//! A part is one idea, and owns its fields. Its methods borrow a context, and get other parts that they need as arguments. Where a part
//! cannot do all that follows, its method returns what is left, and the member hands that to the next part.
//!
//! # Invariants
//! - Votes count for the node that cast them, in the configuration of the epoch that they name.
//! - A primary serves only under a term that was granted to this node in this incarnation, and while the agreed division says so.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use overlay::{Key, NodeId};

use crate::ballot::{Term, TermBallot};
use crate::config::{Defect, GroupConfig};
use crate::control::leader::LeaderState;
use crate::control::liveness::Liveness;
use crate::control::load::Workload;
use crate::control::log::{AHEAD_MAX, Log};
use crate::control::purge::Purging;
use crate::control::recovery::Recovery;
use crate::control::room::Room;
use crate::control::seal::Seal;
use crate::control::state::GroupState;
use crate::control::state_exchange::StateExchange;
use crate::data::operations::Primaries;
use crate::data::own_reads::OwnReads;
use crate::data::preload::Preload;
use crate::data::table::Table;
use crate::data::{Acceptor, Committee, Primary};
use crate::lend::{context, facts, knowledge, local};
use crate::message::{AskCopy, ClientMessage, CommitteeMessage, Heartbeat, LogMessage, Message, Progress, Sender};
use crate::outbox::{GroupOutput, Outbox};
use crate::record::Record;
use crate::transaction::member::Transactions;
use crate::transaction::successor::handover::Handovers;
use crate::validate::{Dropped, Violation};
use crate::watched::AppliedEvents;
use overlay::rng::Rng;
use overlay::time::{Now, Time};

/// Member, or learner, of one group. A clone is a member in the same situation, for searches through all schedules.
#[derive(Clone)]
pub struct Group {
    pub(crate) me: NodeId,
    pub(crate) config: GroupConfig,
    pub(crate) state: GroupState,
    pub(crate) now: Now,
    pub(crate) rng: Rng,
    pub(crate) out: Outbox,
    pub(crate) log: Log,
    pub(crate) liveness: Liveness,
    pub(crate) acceptor: Acceptor,
    pub(crate) table: Table,
    pub(crate) primaries: Primaries,
    pub(crate) reads: OwnReads,
    pub(crate) leader: LeaderState,
    pub(crate) purging: Purging,
    pub(crate) recovery: Recovery,
    pub(crate) seal: Seal,
    /// Whether it is a learner that does not have all bases yet.
    pub(crate) lacks_bases: bool,
    /// See [`Group::watch`].
    pub(crate) events: AppliedEvents,
    pub(crate) room: Room,
    /// Whether this incarnation is over.
    pub(crate) failed: bool,
    pub(crate) preload: Preload,
    pub(crate) dropped: Dropped,
    pub(crate) exchange: StateExchange,
    pub(crate) transactions: Transactions,
    pub(crate) handovers: Handovers,
    pub(crate) workload: Workload,
}

impl Group {
    /// Sets the time. Call before any other input.
    pub fn set_now(&mut self, now: Now) {
        let slept = now.time.since(self.now.time).abs_diff(now.awake.since(self.now.awake));
        self.now = now;
        let tolerated = Duration::from_millis(self.state.settings.lease_ms / 10);
        if slept > tolerated && !self.config.defects.has(Defect::LeaseSleeps) {
            self.primaries.all_mut().for_each(Primary::drop_lease);
            self.acceptor.replicas.drop_grants();
        }
    }

    /// Handles a message of this group.
    pub fn on_message(&mut self, from: Sender, message: Message) {
        if from.node.peer == self.me.peer && from.node != self.me {
            return; // From another incarnation of this peer.
        }
        if self.out.halted().is_some() {
            return; // Any answer would rest on state that is in doubt.
        }
        if let Err(violation) = message.check(from.node) {
            self.dropped.note(violation);
            return;
        }
        self.liveness.failure_detector.on_message(from.node, &self.config.timing, self.now.time);
        if !self.leader.membership.removals.is_empty()
            && !self.state.is_member(from.node)
            && !self.state.is_learner(from.node)
        {
            self.leader.membership.removals.refute(from.node, self.now.time);
        }
        match message {
            Message::AskState => return self.send_state(from.node),
            Message::State(state) => return self.adopt(from.node, *state),
            Message::Join(joiner) => {
                if self.leader.on_join(&mut context!(self), &self.log, joiner) {
                    self.lead();
                }
                return;
            }
            Message::AskVouch => {
                let vouch = self.recovery.vouch(facts!(self), &self.log, &self.acceptor, from.node);
                return self.out.send(&[from.node], Message::Vouch(vouch));
            }
            Message::Vouch(vouch) => return self.on_vouch(from.node, &vouch),
            Message::AcceptLoss if !self.state.is_in_audience(from.node) => return,
            Message::AcceptLoss => return self.on_accept_loss(),
            Message::Client(message) => return self.on_client_message(from.node, message),
            Message::AskCopy(ask) => return self.on_ask_copy(from.node, ask),
            _ => {}
        }
        if self.config.defects.has(Defect::NoFence) {
            return self.on_epoch_message(from, message);
        }
        if !self.state.is_in_audience(from.node) {
            if from.epoch > self.state.epoch {
                self.ask_state(from.node);
            } else {
                self.send_state(from.node); // It does not know that the group released it.
            }
            return;
        }
        if from.epoch > self.state.epoch {
            self.ask_state(from.node);
            self.exchange.keep_early(from, message);
            return;
        }
        if from.epoch < self.state.epoch {
            self.send_state(from.node);
            if !matches!(message, Message::Heartbeat(_)) {
                return;
            }
        }
        self.on_epoch_message(from, message);
    }

    fn on_epoch_message(&mut self, from: Sender, message: Message) {
        match message {
            Message::Heartbeat(heartbeat) => self.on_heartbeat(from, *heartbeat),
            Message::Progress(progress) => {
                self.on_progress(from.node, progress);
                self.lead();
            }
            Message::Contact(contact) => self.leader.on_contact(contact),
            Message::Envelope(envelope) => self.on_envelope(*envelope),
            Message::Declined => {
                self.leader.membership.on_declined(from.node);
                self.lead();
            }
            Message::Log(message) => self.on_log_message(from.node, message),
            Message::Committee(message) => self.on_committee_message(from.node, message),
            _ => {}
        }
        self.apply_chosen();
        self.look_behind();
        self.heed_halt();
    }

    /// Ends the work of this member for the group once a peer has contradicted a chosen value.
    fn heed_halt(&mut self) {
        if self.out.halted().is_some() && !self.failed {
            self.give_way();
        }
    }

    fn on_progress(&mut self, from: NodeId, progress: Progress) {
        self.recovery.acknowledgements.on_progress(from, &progress);
        self.leader.on_progress(from, progress);
        self.leader.tell_released(&mut context!(self));
    }

    /// Handles the numbers up to which all writes of a primary's sub-ranges are chosen, in the order of their terms.
    pub(crate) fn on_marks(&mut self, from: Sender, marks: &[(Term, u64)]) {
        let is_its = |ballot: &TermBallot| ballot.epoch == from.epoch && ballot.node == from.node;
        let granted: Vec<TermBallot> = self.state.parts().map(|(_, ballot)| ballot).filter(is_its).collect();
        for ballot in granted {
            let Ok(place) = marks.binary_search_by_key(&ballot.term, |(term, _)| *term) else { continue };
            let patience = self.config.timing.heartbeat / 2;
            let Some(mark) = self.acceptor.heed(ballot, marks[place].1, patience, self.now.time) else { continue };
            let message = CommitteeMessage::Accept { ballot, chosen: Some(mark), writes: Vec::new() };
            self.on_committee_message(from.node, message);
        }
    }

    fn on_heartbeat(&mut self, from: Sender, mut heartbeat: Heartbeat) {
        let (progress, marks) = (heartbeat.progress.take(), core::mem::take(&mut heartbeat.marks));
        if heartbeat.applied > self.state.applied {
            self.ask_state(from.node);
        }
        if from.epoch == self.state.epoch
            && let Some(ballot) = heartbeat.leads
            && !self.recovery.is_asking()
        {
            self.log.on_leader_heartbeat(&mut context!(self), ballot, heartbeat.chosen);
            self.ask_what_is_lacking();
        }
        self.liveness.on_heartbeat(facts!(self), from, heartbeat);
        self.watch_room();
        self.leader.tell_connections(facts!(self), &mut self.liveness);
        if from.epoch == self.state.epoch {
            progress.into_iter().for_each(|progress| self.on_progress(from.node, progress));
            self.on_marks(from, &marks);
        }
        self.apply_chosen();
        self.lead();
    }

    fn on_log_message(&mut self, from: NodeId, message: LogMessage) {
        if self.recovery.is_asking() || !self.state.is_member(from) || !self.state.is_member(self.me) {
            return;
        }
        self.recovery.acknowledgements.on_log(from, self.state.epoch, &message);
        let message = match message {
            LogMessage::Promise { ballot, state: Some(state), accepted, doubt } => {
                let epoch = self.state.epoch;
                self.adopt(from, *state);
                if self.state.epoch != epoch {
                    return;
                }
                LogMessage::Promise { ballot, state: None, accepted, doubt }
            }
            message => message,
        };
        if self.keeps_quiet() && message.ends_epoch() {
            return; // It may have granted a lease in its last run (hazard 16).
        }
        self.log.on_message(&mut context!(self), &self.liveness.failure_detector, from, message);
        if self.log.take_seal() {
            self.seal_epoch();
        }
        self.ask_what_is_lacking();
    }

    fn keeps_quiet(&self) -> bool {
        self.state.settings.leases && self.acceptor.keeps_quiet(self.now.time)
    }

    /// Ends an epoch that this member sealed, if no other member does (hazard 21).
    fn tick_sealed(&mut self) {
        if self.seal.tick(&mut context!(self), &self.log) && self.liveness.is_connected(facts!(self)) {
            self.stop_epoch();
        }
    }

    fn on_committee_message(&mut self, from: NodeId, message: CommitteeMessage) {
        if self.recovery.is_asking() || self.failed {
            return;
        }
        let ballot = message.ballot();
        if self.recovery.is_silent_in(facts!(self), ballot.epoch) && !self.config.defects.has(Defect::DoubtSpeaks) {
            return; // It may have forgotten a higher promise, or another value that it accepted.
        }
        if ballot.term.slot().0 > self.state.applied.0.saturating_add(AHEAD_MAX) {
            self.dropped.note(Violation::Far);
            return;
        }
        if message.is_for_primary() {
            // The acceptor of this node may keep quiet yet, and have no part in that committee.
            let range = self.acceptor.committee(ballot).map(Committee::range);
            let range = range.or_else(|| self.primaries.get(ballot).map(Primary::range));
            let state = &self.state;
            let granted = |ballot| state.parts().any(|(_, known)| known == ballot);
            self.recovery.acknowledgements.on_committee(from, range, &message, granted);
            if let Some(primary) = self.primaries.get_mut(ballot) {
                primary.on_message(&mut context!(self), &mut local!(self), from, message);
            }
            return;
        }
        if ballot.epoch != self.state.epoch && !self.config.defects.has(Defect::NoFence) {
            return; // The epoch is over. A message of a later epoch would come from a node that knows that epoch.
        }
        self.workload.capacities.see_primary(facts!(self), &message);
        self.acceptor.on_message(&mut context!(self), &mut self.table, from, message);
        self.end_superseded();
    }

    /// Ends the primaries of this node that its own acceptor's promises superseded. Their leases are gone before such a promise leaves.
    pub(crate) fn end_superseded(&mut self) {
        self.primaries.end_superseded(&mut context!(self), &self.acceptor);
    }

    /// Drops primaries that are over.
    pub(crate) fn drop_ended(&mut self) {
        self.primaries.drop_ended(facts!(self), &self.acceptor, &mut self.handovers);
    }

    /// Sends handovers when the group ends, or may end.
    pub(crate) fn hand_over(&mut self) {
        self.drop_ended();
        self.handovers.hand_over(&mut context!(self));
    }

    /// Returns whether this member has a part in the group now, and its store is known to have everything.
    pub(crate) fn serves(&self) -> bool {
        !self.recovery.is_asking() && !self.failed
    }

    fn on_client_message(&mut self, from: NodeId, message: ClientMessage) {
        for (attempt, outcome) in message.outcomes {
            self.out.push(GroupOutput::Outcome(attempt, outcome));
        }
        for operation in message.operations {
            self.operate(from, operation);
        }
    }

    /// Checks again, after a message or some time, whether waiting reads may be answered now.
    fn look_behind(&mut self) {
        let serves = self.serves();
        self.reads.look_behind(&mut context!(self), &mut local!(self), serves);
    }

    /// Answers a neighbour's member, which may come to own a part of this range. Other nodes need no copy.
    fn on_ask_copy(&mut self, from: NodeId, ask: AskCopy) {
        let (predecessor, successor) = (self.state.transactions.predecessor(), self.state.transactions.successor());
        let is_near = predecessor.into_iter().chain(successor).any(|link| link.nodes().any(|node| node == from));
        if is_near && !self.recovery.is_asking() && !self.failed && self.state.ended.is_none() {
            let Acceptor { catch_up, committees, .. } = &mut self.acceptor;
            catch_up.on_ask_copy(&mut context!(self), committees, &mut self.table, from, ask);
        }
    }

    /// Takes a record from the store.
    pub fn on_loaded(&mut self, key: &Key, record: Option<Arc<Record>>) {
        self.table.on_loaded(key, record);
        self.acceptor.on_loaded(&mut context!(self), &mut self.table, key);
        for primary in self.primaries.all_mut() {
            if primary.range().contains(key.point()) {
                primary.on_loaded(&mut context!(self), &mut local!(self), key);
            }
        }
        let serves = self.serves();
        self.reads.go_on(&mut context!(self), &mut local!(self), serves, key);
    }

    /// Checks whether this node has room, and tells the other members at once where that has changed.
    fn watch_room(&mut self) {
        self.room.watch(facts!(self), &self.table, &mut self.liveness, &self.recovery);
    }

    /// Runs the timers that are due. Early calls are harmless.
    pub fn tick(&mut self) {
        if self.failed {
            return;
        }
        self.tick_crash_recovery();
        self.tick_doubt();
        self.look_behind();
        self.watch_room();
        if self.now.time >= self.liveness.heartbeat_due() {
            self.send_heartbeat();
        }
        if !self.liveness.hears_as_told(facts!(self)) {
            self.send_heartbeat(); // The leader counts which members miss which.
        }
        if !self.recovery.is_asking() {
            self.log.on_tick(&mut context!(self), &self.liveness.failure_detector);
            self.tick_sealed();
            self.apply_chosen();
            self.transactions.tick(&mut context!(self), &knowledge!(self));
            self.lead();
            if self.state.is_learner(self.me) {
                self.lacks_bases = self.acceptor.ask_for_bases(&mut context!(self));
            }
            self.tick_purging();
            if self.acceptor.catches_up() {
                self.acceptor.set_silent(self.liveness.silent(facts!(self)));
            }
            self.acceptor.drive_catch_up(&mut context!(self), &mut self.table);
        } else {
            self.transactions.seek_word_alone(&mut context!(self), &knowledge!(self));
        }
        for primary in self.primaries.all_mut() {
            primary.on_tick(&mut context!(self), &mut local!(self));
        }
        self.drop_ended();
        self.primaries.forget_strays(facts!(self), &self.recovery);
        self.acceptor.replicas.forget(&self.acceptor.committees);
    }

    /// Returns when [`Group::tick`] has something to do next.
    pub fn next_timeout(&mut self) -> Time {
        let ctx = context!(self);
        let mut next =
            self.liveness.heartbeat_due().min(self.log.next_timeout(&ctx)).min(self.leader.next_timeout(&ctx));
        for primary in self.primaries.all() {
            next = next.min(primary.next_timeout(&ctx));
        }
        if let Some(suspicion) = self.liveness.failure_detector.next_suspicion(&self.config.timing, self.now.time) {
            next = next.min(suspicion);
        }
        if !self.recovery.is_asking() {
            next = next.min(self.purging.next_timeout(self.now.time)).min(self.acceptor.catch_up_due(&context!(self)));
        }
        if let Some(due) = self.seal.due(facts!(self), &self.log) {
            // A leader, or a member that still finds out what it has, waits for other things.
            let soon = self.now.time + self.config.timing.resend / 4;
            next = next.min(due.max(soon));
        }
        next = next.min(self.recovery.doubt_due(facts!(self), &self.log, self.seal.is_set()));
        next = next.min(self.transactions.due(facts!(self), &self.log)).min(self.reads.behind_due());
        if self.recovery.is_asking() || self.lacks_bases {
            next = next.min(self.now.time + self.config.timing.resend / 4);
        }
        next
    }

    /// Returns the next output. Call until `None`, after all waiting inputs were handed in.
    pub fn poll_output(&mut self) -> Option<GroupOutput> {
        loop {
            self.heed_halt();
            if let Some(output) = self.out.poll_ready() {
                return Some(output);
            }
            if let Some((message, epoch)) = self.out.poll_loopback() {
                let me = Sender { node: self.me, epoch };
                self.on_message(me, message);
                continue;
            }
            self.flush();
            if !self.out.flush() && !self.out.has_more() {
                return None;
            }
        }
    }

    fn flush(&mut self) {
        if self.failed {
            return;
        }
        let has_more = self.acceptor.completeness_changed();
        for primary in self.primaries.all_mut() {
            if has_more {
                primary.end_quorum_reads(&mut context!(self), &mut local!(self));
            }
            primary.flush(&mut context!(self));
        }
        self.acceptor.flush(&mut context!(self));
        if self.table.is_full() && !self.room.is_told() {
            self.watch_room();
        }
        if self.now.time >= self.liveness.heartbeat_due() {
            self.send_heartbeat();
        }
        self.tell_progress();
        if self.table.evict() {
            self.preload.on_evicted();
        }
    }
}
