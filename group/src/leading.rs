//! Work of a member as the leader of its group, and its reports to the leader: which part is asked, and in which order.

use alloc::vec::Vec;

use overlay::NodeId;

use crate::control::division::Candidates;
use crate::control::state::Entry;
use crate::group::{Group, context, facts};
use crate::message::{Heartbeat, LogMessage, Message, Progress, Sender};
use crate::outbox::GroupOutput;

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
            parting: self.liveness.parting,
            sealed: self.acceptor.has_sealed(self.state.epoch),
            wall: self.now.wall,
            sent_us: self.now.time.0 / 1_000,
            agreement_us: self.liveness.agreement_us(facts!(self)),
            doubt: self.recovery.doubt_to_tell(),
            load: self.workload.meter.told(self.config.timing.heartbeat),
            full: self.room.is_told(),
            absences: detector.absences(self.liveness.group_time(self.now.time), self.now.time),
            capacity: self.workload.capacities.own,
            history: self.liveness.history,
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
            .or_else(|| if is_calm { None } else { self.entry() })
            .or_else(|| self.leader.establish(facts!(self), &self.liveness))
            .or_else(|| self.leader.remove_dead(facts!(self), &self.liveness, &dead))
            .or_else(|| if is_calm && !dead.gathers { self.entry() } else { None })
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
}
