//! How a member follows the agreed state: entry by entry from its log, or from another's state where it is behind.

use alloc::boxed::Box;
use alloc::vec::Vec;

use overlay::NodeId;

use crate::ballot::TermBallot;
use crate::group::{Group, context};
use crate::handover::Inheritance;
use crate::message::{Message, Parting, Sender};
use crate::outbox::{Durable, GroupOutput};
use crate::state::{Entry, GroupState};
use crate::time::Time;
use crate::violation::{Contradicts, contradiction};
use crate::watched::Applied;

impl Group {
    /// Applies what is chosen, entry by entry.
    pub(crate) fn apply_chosen(&mut self) {
        let (mut dealt, mut applied) = (false, false);
        while self.state.ended.is_none()
            && !self.has_lost()
            && let Some(entry) = self.log.take_chosen(self.state.applied)
        {
            let led = self.log.leads();
            let before = self.state.clone();
            dealt |= matches!(entry, Entry::Deal(_));
            applied = true;
            self.state.apply_without(self.state.applied.next(), &entry, self.config.defects);
            if let Some(watched) = &mut self.watched {
                watched.push(Applied { before: before.clone(), entry, after: self.state.clone() });
            }
            self.out.set_epoch(self.state.epoch);
            self.note_let_go(&before);
            if led {
                self.tell_change(&before);
            }
            self.log.on_applied(&mut context!(self), before.epoch, led);
            self.after_change(&before, led);
            if led && self.state.epoch == before.epoch {
                self.log.announce(&mut context!(self));
            }
            self.replay_early();
        }
        if dealt {
            self.tick_dealings();
        }
        if applied {
            self.do_duties(); // It waited until nothing was on its way.
        }
    }

    /// What came for later epochs: of what goes on under this group's name, where the group has ended.
    pub fn take_early(&mut self) -> Vec<(Sender, Message)> {
        core::mem::take(&mut self.early)
    }

    /// What came before this node knew of its epoch.
    fn replay_early(&mut self) {
        let now = self.state.epoch;
        if self.early.iter().all(|(from, _)| from.epoch > now) {
            return;
        }
        for (from, message) in core::mem::take(&mut self.early) {
            if from.epoch == now {
                self.on_message(from, message);
            } else if from.epoch > now {
                self.early.push((from, message));
            }
        }
    }

    /// Newcomers learn that they are in, all learn of a new epoch, and who is not needed any more learns that: none of them
    /// need find out by itself.
    fn tell_change(&mut self, before: &GroupState) {
        let (now, then) = (self.state.audience(), before.audience());
        // Of an end nobody will tell them what is chosen any more.
        let mut told: Vec<NodeId> = if self.state.epoch == before.epoch && self.state.ended.is_none() {
            now.iter().copied().filter(|node| !then.contains(node)).collect()
        } else {
            now.clone()
        };
        told.extend(then.iter().copied().filter(|node| !now.contains(node)));
        told.retain(|node| *node != self.me);
        if !told.is_empty() {
            self.tell_state(&told);
        }
    }

    /// Sends the state to these nodes; to those that the group has let go of when it is time ([`crate::let_go`]).
    pub(crate) fn tell_state(&mut self, to: &[NodeId]) {
        let audience = self.state.audience();
        let is_let_go = |node: &NodeId| audience.contains(&self.me) && !audience.contains(node);
        let (let_go, others): (Vec<NodeId>, Vec<NodeId>) = to.iter().copied().partition(is_let_go);
        self.out.send(&others, Message::State(Box::new(self.state.clone())));
        if !let_go.is_empty() {
            self.await_let_go(let_go);
        }
    }

    /// A newer state of this very group replaces this node's.
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
            // Only who has a part in the group is believed to know of a fork.
            if state != self.state && self.state.is_in_audience(from) {
                let slot = state.applied;
                let what = format_args!("has applied another log up to slot {slot:?}");
                contradiction(&mut context!(self), Contradicts::Chosen, from, what);
            }
            return;
        }
        let before = core::mem::replace(&mut self.state, state);
        self.out.set_epoch(self.state.epoch);
        self.note_let_go(&before);
        self.log.on_applied(&mut context!(self), before.epoch, false);
        self.after_change(&before, false);
        self.replay_early();
        self.apply_chosen();
    }

    /// `led`: this node led until then.
    fn after_change(&mut self, before: &GroupState, led: bool) {
        if self.state.let_go_since(before, self.me) {
            // What it holds may be of keys that are gone: nobody waited for it. It finds this out again, should this process not come
            // to begin anew.
            self.end_with_loss("its group had let go of this life of it, and let it in again");
        }
        // Before this state is in the store: see there.
        self.find_loss();
        if self.has_lost() {
            return; // Nothing comes of this life, nor of what the group ends with.
        }
        if before.epoch != self.state.epoch {
            self.sealed_since = None;
        }
        let (now, then) = (self.state.audience(), before.audience());
        let newcomers: Vec<NodeId> = now.into_iter().filter(|node| !then.contains(node)).collect();
        for primary in self.primaries.values().filter(|_| !newcomers.is_empty()) {
            primary.welcome(&mut context!(self), &newcomers);
        }
        // Whom the group goes on without keeps, on disk, the last state that it had a part in: what it holds is as of then, and
        // purges since tell whether it is of use to another life.
        if self.state.audience().contains(&self.me) || matches!(self.parting, Parting::Leaves { .. }) {
            self.out.persist(Durable::State(Box::new(self.state.clone())));
        }
        if before.members != self.state.members {
            self.note_removals(before);
            let fresh = self.state.nodes().into_iter().filter(|node| !before.is_member(*node));
            self.duties.on_voters(fresh, self.now.time);
        }
        if before.members != self.state.members || before.division != self.state.division {
            self.duties.on_change(self.now.time);
        }
        self.review_doubt();
        self.follow_state();
        if before.members != self.state.members
            || before.division != self.state.division
            || before.learners != self.state.learners
            || before.epoch != self.state.epoch
        {
            self.heartbeat_due = self.now.time;
        }
        if !self.state.dealings.is_calm() {
            self.duties.on_awaited(); // A transaction goes on once enough members know what its leader knew when it saw it.
        }
        if self.state.ended.is_some() {
            self.end(led);
        }
    }

    /// Brings everything in line with the agreed state.
    pub(crate) fn follow_state(&mut self) {
        let audience = self.state.audience();
        if !audience.contains(&self.me) {
            if matches!(self.parting, Parting::Leaves { .. }) {
                self.out.push(GroupOutput::Left);
            } else {
                // Its last word: the group learns that it removed a member that was alive.
                self.out.send(&self.state.nodes(), Message::AskState);
                self.out.push(GroupOutput::Over(match self.has_heartbeats_of_majority() {
                    true => "its group goes on without this life of it",
                    false => {
                        "its group goes on without this life of it, which hears fewer than a majority of the members directly: all of them \
                         must reach this peer, or it them"
                    }
                }));
            }
            self.failed = true;
        }
        if self.state.recovery.is_empty() {
            self.inheritance = Inheritance::default(); // Whoever was to follow somebody does.
        }
        self.acknowledgements.keep(&audience);
        self.duties.keep(&audience);
        self.capacities.keep(&audience);
        let others: Vec<NodeId> = audience.into_iter().filter(|node| *node != self.me).collect();
        self.pulse.watch(&others, self.now.time);
        let granted: Vec<TermBallot> = self.state.parts().map(|(_, ballot)| ballot).collect();
        for (ballot, primary) in &mut self.primaries {
            if !granted.contains(ballot) {
                primary.end(&mut context!(self));
            }
        }
        self.drop_ended();
        if self.vouching.is_none() && !self.failed {
            self.begin_primaries();
        }
        self.forget_strays();
        self.out.push(GroupOutput::Changed);
    }

    /// Others have vouched: from now on this node takes part.
    pub(crate) fn take_part(&mut self) {
        self.vouching = None;
        self.doubting.on_compared(self.state.applied);
        self.follow_state();
        self.heartbeat_due = self.now.time;
    }

    pub(crate) fn send_state(&mut self, to: NodeId) {
        let last = self.sent_state.get(&to).copied().unwrap_or(Time(0));
        if last > Time(0) && self.now.time.since(last) < self.config.timing.heartbeat / 10 {
            return;
        }
        self.sent_state.insert(to, self.now.time);
        if self.sent_state.len() > 1024 {
            self.sent_state.clear();
        }
        self.tell_state(&[to]);
    }

    /// Something is chosen that this node's log does not hold.
    pub(crate) fn ask_what_is_lacking(&mut self) {
        if let Some(leader) = self.log.take_lacking() {
            self.ask_state(leader);
        }
    }

    /// Asks for the whole state, not with every message that shows that it is needed.
    pub(crate) fn ask_state(&mut self, of: NodeId) {
        if self.asked_state == Time(0) || self.now.time.since(self.asked_state) >= self.config.timing.heartbeat / 10 {
            self.asked_state = self.now.time;
            self.out.send(&[of], Message::AskState);
        }
    }
}
