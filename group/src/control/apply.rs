//! Application of the agreed state at a member: entry by entry from its log, or from another member's state where it is behind.

use alloc::boxed::Box;
use alloc::vec::Vec;

use overlay::NodeId;

use crate::config::Defect;
use crate::contradiction::{Contradicts, contradiction};
use crate::control::recovery::crash_recovery::{RecoveryStep, VouchOutcome};
use crate::control::recovery::doubt::{DoubtStep, LACKS};
use crate::control::state::{Entry, GroupState};
use crate::group::Group;
use crate::lend::{context, facts, knowledge};
use crate::message::{Message, Parting, Sender, Vouch};
use crate::outbox::{Durable, GroupOutput};

impl Group {
    /// Applies chosen entries, one by one.
    pub(crate) fn apply_chosen(&mut self) {
        let (mut dealt, mut applied) = (false, false);
        while self.state.ended.is_none()
            && !self.has_lost()
            && let Some(entry) = self.log.take_chosen(self.state.applied)
        {
            let led = self.log.leads();
            let before = self.state.clone();
            dealt |= matches!(entry, Entry::Transaction(_));
            applied = true;
            self.state.apply_without(self.state.applied.next(), &entry, self.config.defects);
            self.events.note(&before, entry, &self.state);
            self.out.set_epoch(self.state.epoch);
            self.leader.note_released(&before, &self.state);
            if led {
                self.leader.tell_change(&mut context!(self), &before);
            }
            self.log.on_applied(&mut context!(self), before.epoch, led);
            self.after_change(&before, led);
            if led && self.state.epoch == before.epoch {
                self.log.announce(&mut context!(self));
            }
            self.replay_early();
        }
        if dealt {
            self.transactions.tick(&mut context!(self), &knowledge!(self));
        }
        if applied {
            self.lead(); // The duties waited until no entry was on its way.
        }
    }

    /// Returns the kept messages of later epochs: for the group that continues under this group's id, where the group has ended.
    pub fn take_early(&mut self) -> Vec<(Sender, Message)> {
        self.exchange.take_early()
    }

    /// Handles the kept messages of the present epoch, which this node did not know when they came.
    fn replay_early(&mut self) {
        let now = self.state.epoch;
        for (from, message) in self.exchange.take_due(now) {
            if from.epoch == now {
                self.on_message(from, message);
            } else if from.epoch > now {
                self.exchange.put_back(from, message);
            }
        }
    }

    /// Replaces this node's state by a newer one of this same group.
    pub(crate) fn adopt(&mut self, from: NodeId, state: GroupState) {
        if !state.is_sound()
            || state.id != self.state.id
            || state.ring != self.state.ring
            || state.born != self.state.born
            || state.applied < self.state.applied
        {
            return;
        }
        if state.applied == self.state.applied {
            // Only a node with a part in the group is believed to know of a fork.
            if state != self.state && self.state.is_in_audience(from) {
                let slot = state.applied;
                let what = format_args!("has applied another log up to slot {slot:?}");
                contradiction(&mut context!(self), Contradicts::Chosen, from, what);
            }
            return;
        }
        let before = core::mem::replace(&mut self.state, state);
        self.out.set_epoch(self.state.epoch);
        self.leader.note_released(&before, &self.state);
        self.log.on_applied(&mut context!(self), before.epoch, false);
        self.after_change(&before, false);
        self.replay_early();
        self.apply_chosen();
    }

    /// Follows a change of the state. `led`: this node led until then.
    fn after_change(&mut self, before: &GroupState, led: bool) {
        if self.state.released_since(before, self.me) {
            // It may hold records of deleted keys: no member waited for it. It finds this out again if this process ends before it begins
            // anew.
            self.end_with_loss("its group had removed this incarnation, and admitted it again");
        }
        // Must come before the store gets this state: see there.
        self.find_loss();
        if self.has_lost() {
            return; // This incarnation is over: no later step is its own, and if the group ends, no successor starts from it.
        }
        if before.epoch != self.state.epoch {
            self.seal.clear();
        }
        let (now, then) = (self.state.audience(), before.audience());
        let newcomers: Vec<NodeId> = now.into_iter().filter(|node| !then.contains(node)).collect();
        for primary in self.primaries.all().filter(|_| !newcomers.is_empty()) {
            primary.welcome(&mut context!(self), &newcomers);
        }
        // A node that the group released keeps, on disk, the last state in which it had a part: its records are as of then, and later
        // purges tell whether they are of use to another incarnation.
        if self.state.audience().contains(&self.me) || matches!(self.liveness.own_parting(), Parting::Leaves { .. }) {
            self.out.persist(Durable::State(Box::new(self.state.clone())));
        }
        if before.members != self.state.members {
            self.leader.membership.note_removals(facts!(self), &self.liveness, before);
            let fresh = self.state.nodes().into_iter().filter(|node| !before.is_member(*node));
            self.leader.on_voters(fresh, self.now.time);
        }
        if before.members != self.state.members || before.division != self.state.division {
            self.leader.on_change(self.now.time);
        }
        self.review_doubt();
        self.follow_state();
        if before.members != self.state.members
            || before.division != self.state.division
            || before.learners != self.state.learners
            || before.epoch != self.state.epoch
        {
            self.liveness.hurry_heartbeat(self.now.time);
        }
        if !self.state.transactions.is_calm() {
            self.leader.on_awaited(); // A transaction continues once enough members have reported the slot at which its leader first saw it.
        }
        if self.state.ended.is_some() {
            self.end(led);
        }
    }

    /// Brings everything in line with the agreed state.
    pub(crate) fn follow_state(&mut self) {
        let audience = self.state.audience();
        if !audience.contains(&self.me) {
            if matches!(self.liveness.own_parting(), Parting::Leaves { .. }) {
                self.out.push(GroupOutput::Left);
            } else {
                // The last message of this node: the group learns that it removed a member that was alive.
                self.out.send(&self.state.nodes(), Message::AskState);
                self.out.push(GroupOutput::Over(match self.liveness.has_heartbeats_of_majority(facts!(self)) {
                    true => "its group continues without this incarnation",
                    false => {
                        "its group continues without this incarnation, which hears fewer than a majority of the \
                        members directly: each member must be able to connect to this peer, or this peer to the member"
                    }
                }));
            }
            self.failed = true;
        }
        if self.state.recovery.is_empty() {
            self.handovers.forget_inherited(); // All new primaries have taken over by now.
        }
        self.recovery.acknowledgements.keep(&audience);
        self.leader.keep(&audience);
        self.workload.capacities.keep(&audience);
        let others: Vec<NodeId> = audience.into_iter().filter(|node| *node != self.me).collect();
        self.liveness.watch(&others, self.now.time);
        self.primaries.end_former(&mut context!(self));
        self.drop_ended();
        if !self.recovery.is_asking() && !self.failed {
            self.primaries.begin(&mut context!(self), &self.recovery, &self.handovers);
        }
        self.primaries.forget_strays(facts!(self), &self.recovery);
        self.out.push(GroupOutput::Changed);
    }

    /// Seals the epoch: accepts nothing more in it.
    pub(crate) fn seal_epoch(&mut self) {
        if !self.acceptor.has_sealed(self.state.epoch) && !self.config.defects.has(Defect::OneReplicaState) {
            self.acceptor.seal(&mut context!(self), self.state.epoch);
            self.end_superseded();
            self.hand_over();
        }
        self.seal.set(self.now.time);
    }

    /// Ends the epoch, under any leader; the next one has the same members. Any member may do so when it must.
    pub fn stop_epoch(&mut self) {
        if !self.recovery.is_asking() && !self.failed && self.state.is_member(self.me) {
            self.log.stop(&mut context!(self));
        }
    }

    /// Ends the group: nothing is served or accepted any more. Other groups learn of the end at once from the former leader (`led`).
    pub(crate) fn end(&mut self, led: bool) {
        self.acceptor.seal(&mut context!(self), self.state.epoch);
        self.end_superseded();
        self.hand_over();
        self.seal.clear();
        self.transactions.end(&mut context!(self), &knowledge!(self), led);
    }

    /// Begins to take part: the other members have vouched for this node.
    fn take_part(&mut self) {
        self.recovery.take_part(self.state.applied);
        self.follow_state();
        self.liveness.hurry_heartbeat(self.now.time);
    }

    /// Continues to find out whether the store lost anything.
    pub(crate) fn tick_crash_recovery(&mut self) {
        match self.recovery.tick(&mut context!(self), &mut self.log, &self.acceptor) {
            RecoveryStep::Waits => return,
            RecoveryStep::Vouched => {}
            RecoveryStep::Bounded => self.review_doubt(),
        }
        if !self.failed {
            self.take_part();
        }
    }

    /// Takes another member's answer about this node's acknowledgements.
    pub(crate) fn on_vouch(&mut self, from: NodeId, vouch: &Vouch) {
        let compared = self.recovery.on_vouch(facts!(self), &self.log, &self.acceptor, from, vouch);
        if compared == VouchOutcome::Nothing {
            return;
        }
        if vouch.applied > self.state.applied {
            self.ask_state(from);
        }
        if compared == VouchOutcome::Lacking {
            self.on_store_failed();
            self.out.push(GroupOutput::Lost(LACKS));
            return;
        }
        self.tick_crash_recovery();
    }

    /// Does what is due because of a doubt.
    pub(crate) fn tick_doubt(&mut self) {
        let is_sealed = self.seal.is_set();
        match self.recovery.tick_doubt(&mut context!(self), &self.log, &self.liveness, is_sealed) {
            DoubtStep::Rests => {}
            DoubtStep::GivesUp(why) => self.failed_with(why),
            DoubtStep::EndsEpoch => self.stop_epoch(),
        }
    }

    /// Ends the doubt once no configuration that recovery asks is in doubt.
    fn review_doubt(&mut self) {
        self.find_loss();
        if !self.failed {
            self.recovery.review(&mut context!(self));
        }
    }

    /// Ends this incarnation where the state shows that this member lost data: a tombstone that was purged since, so that no other member
    /// can report the deletion. The store keeps the state from before that purge. So the loss shows again if the process ends before the
    /// next incarnation begins, and that one knows which purges the records that it takes over missed.
    fn find_loss(&mut self) {
        if !self.failed && self.recovery.lacks_what_was_purged(facts!(self), &self.acceptor, &self.state) {
            self.end_with_loss(LACKS);
        }
    }

    /// Does the same where `born`, the state of a group that is born of this one, shows the loss. A purge of which this member never heard
    /// may have come between, and in the new group all members count as having been there since after it. Returns whether this incarnation
    /// is over.
    pub fn find_loss_for(&mut self, born: &GroupState) -> bool {
        // Also where it has given way to another group born of it.
        if !self.has_lost() && self.recovery.lacks_what_was_purged(facts!(self), &self.acceptor, born) {
            self.end_with_loss(LACKS);
        }
        self.has_lost()
    }

    /// Ends this incarnation for this reason. On disk it stays where it was.
    fn end_with_loss(&mut self, why: &'static str) {
        self.out.close();
        self.failed_with(why);
    }

    /// Ends this incarnation for this reason.
    fn failed_with(&mut self, why: &'static str) {
        self.on_store_failed();
        self.out.push(GroupOutput::Over(why));
    }

    /// Takes over the doubt of `other`, a predecessor of this new group on the same node.
    pub fn inherit_doubt(&mut self, other: &Group) {
        if let Some(doubt) = self.recovery.inherit_doubt(facts!(self), &other.recovery) {
            self.primaries.end_all(&mut context!(self));
            self.drop_ended();
            self.out.persist(Durable::Doubt(Some(doubt)));
        }
    }

    /// Accepts the loss of the members waited for: members in doubt continue with the contents of their stores. Tells all members that this
    /// one reaches. Returns `false`, and changes nothing, where the group waits for no member.
    pub fn accept_loss(&mut self) -> bool {
        if self.in_doubt().waiting_for.is_empty() {
            return false;
        }
        let others: Vec<NodeId> = self.state.audience().into_iter().filter(|node| *node != self.me).collect();
        self.out.send(&others, Message::AcceptLoss);
        self.on_accept_loss();
        true
    }

    pub(crate) fn on_accept_loss(&mut self) {
        if self.in_doubt().waiting_for.is_empty() || !self.recovery.accept_loss(&mut context!(self)) {
            return;
        }
        self.liveness.hurry_heartbeat(self.now.time);
        self.tick_crash_recovery();
    }

    pub(crate) fn send_state(&mut self, to: NodeId) {
        if self.exchange.may_send(facts!(self), to) {
            self.leader.tell_state(&mut context!(self), &[to]);
        }
    }

    /// Asks for the state where an entry is chosen that this node's log does not hold.
    pub(crate) fn ask_what_is_lacking(&mut self) {
        if let Some(leader) = self.log.take_lacking() {
            self.ask_state(leader);
        }
    }

    /// Asks for the whole state, but not for every message that shows the need.
    pub(crate) fn ask_state(&mut self, of: NodeId) {
        self.exchange.ask(&mut context!(self), of);
    }
}
