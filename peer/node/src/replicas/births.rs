//! Births: how a node begins its part in the groups that succeed its own (Scatter §4), once [`crate::replicas::successors`] knows enough of
//! them. For the end of its part in groups that are over, see [`crate::replicas::retire`].

use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use group::Group;
use group::control::state::{GroupState, Loss};
use group::data::table::Table;
use group::message::{Message, Sender};
use group::transaction::successor::handover::Inheritance;
use overlay::{Epoch, GroupId, KeyRange, NodeId};

use crate::api::Event;
use crate::config::{Durability, NodeConfig};
use crate::context::context;
use crate::node::Node;
use crate::reconfigure::copying::{Claim, Copies};
use crate::replicas::keyspace::KeyspaceGenerations;
use crate::replicas::retire::meet;
use crate::replicas::successors::Birth;
use crate::replicas::{LocalReplica, LocalReplicas};
use crate::sessions::Sessions;

impl Node {
    /// Handles groups that are over, and their successors. Returns whether there were any.
    pub(crate) fn attend(&mut self) -> bool {
        let departed = core::mem::take(&mut self.successors.departed);
        let mut busy = !departed.is_empty();
        for (serial, why) in departed {
            self.depart(serial, why);
        }
        // Nothing is born of an incarnation that is over: the next one would take it for its own.
        while self.successors.birth_wanted && !self.stage.over && self.give_birth() {
            busy = true;
        }
        self.successors.birth_wanted = false;
        if busy {
            self.routing.table.resume_questions(&mut context!(self), &self.lives);
            self.successors.release_early(&mut context!(self));
        }
        busy
    }

    /// Ends this incarnation if it holds ranges that were declared lost while it was away. Its data of them is no part of the store any
    /// more, and is kept apart (hazard 40). Returns whether that is so.
    fn heeds_losses(&mut self, state: &GroupState) -> bool {
        if state.audience().contains(&self.me) || self.stage.over {
            return false;
        }
        // Data that this node only keeps for other members, or a range larger than the lost one, is let go of like any range that another
        // group owns now.
        let is_lost = |group: &Group| {
            let known = group.state();
            let belongs = known.is_member(self.me) || known.is_learner(self.me);
            let of_loss = |loss: &Loss| loss.concerns(known) && loss.range.contains_range(known.range);
            belongs && state.losses.iter().any(of_loss)
        };
        let Some(lost) = self.replicas.living().find(|group| is_lost(group)) else { return false };
        let why = alloc::format!(
            "the range {:?} of {} was declared lost while this peer was away: this peer no longer serves its data of \
            that range",
            lost.state().range,
            lost.state().id.called()
        );
        self.replicas.each(Group::give_way);
        self.end_life(Event::Quarantine(why));
        true
    }

    /// Begins a part in this group, with the data of it that is here.
    fn take_part(&mut self, state: GroupState) {
        if self.replicas.finds_loss(self.me, core::slice::from_ref(&state)) {
            return;
        }
        self.inherit(state, Inheritance::default());
    }

    /// Begins a part in this group, given its last primaries and some of their handovers. Returns false if there is no room for it now.
    fn inherit(&mut self, state: GroupState, inheritance: Inheritance) -> bool {
        if !state.audience().contains(&self.me) || self.replicas.knows_later(&state) {
            return true;
        }
        // The first batch of the last group stores the generations without this group. And outputs of groups may make this node copy data.
        self.hear_all();
        let parents = self.replicas.parents_of(self.me, &state);
        // The node was moved here from another group. If it has let go of this group already, or of a later one, it no longer knows its votes
        // there: the last states of the groups that ended came late.
        if parents.is_empty() && self.replicas.has_forgotten_votes_of(&state) {
            return true;
        }
        let Some((keyspace, claimed)) =
            generations_for(&self.config, &self.replicas, &self.reconfigure.preparation.copies, &state, &parents)
        else {
            self.out.event(Event::Note(
                "too much old data is still to be deleted: this peer enters no new group yet".into(),
            ));
            return false;
        };
        let seed = self.rng.draw();
        for index in parents.iter().copied() {
            self.silence(index);
        }
        let copied = self.reconfigure.preparation.copies.take(&mut self.replicas, claimed);
        let records: usize = copied.iter().map(Table::len).sum();
        let group = self.begin_group(state, parents.first().copied(), inheritance, copied, seed);
        let moved = core::mem::replace(&mut self.replicas.keyspace, keyspace) != self.replicas.keyspace;
        let id = group.state().id;
        let Some(serial) = self.replicas.add(group) else {
            self.damaged("it has a part in too many groups");
            return false;
        };
        if moved && self.config.durability == Durability::Sync {
            // Not earlier: until then the records of its parents lie in other generations.
            self.replicas.keyspace_due = Some(serial);
        }
        let copied = match records {
            0 => String::new(),
            count => alloc::format!(", with {count} records that were copied before"),
        };
        self.out.event(Event::Note(alloc::format!("has a part in {} from now on{copied}", id.called())));
        let same = self.replicas.all.iter_mut().filter(|replica| replica.group.state().id == id);
        let mut early: Vec<(Sender, Message)> = same.flat_map(|replica| replica.group.take_early()).collect();
        early.extend(self.successors.take_early(id));
        self.settle_ranges(&[]);
        for (sender, message) in early {
            if let Some(message) = self.starts.hold_early(&mut context!(self), id, sender, message) {
                self.on_own_message(id, sender, message);
            }
        }
        self.reconfigure.preparation.copies.share_memory(&mut context!(self));
        self.with_sessions(Sessions::on_division);
        true
    }

    /// Creates this node's replica of a group: from its part in a parent group, by the index of that, or else as one that joins.
    fn begin_group(
        &mut self,
        state: GroupState,
        parent: Option<usize>,
        inheritance: Inheritance,
        copied: Vec<Table>,
        seed: u64,
    ) -> Group {
        let mut group = match parent {
            Some(index) => {
                let given =
                    state.range.intersection(self.replicas.all[index].group.state().range).into_iter().flatten();
                let place = self.replicas.all[index].place();
                let given = given.flat_map(|piece| piece.without(place.iter().copied())).collect::<Vec<_>>();
                let parent = &mut self.replicas.all[index].group;
                Group::succeed(parent, state, &given, copied, inheritance, self.now, seed)
            }
            None => {
                let mut group = Group::join_holding(self.config.group_config(), self.me, state, self.now, seed, copied);
                // Requests to the node hold for each group that it comes to be in.
                group.set_addresses(self.addresses.clone());
                group.set_full(self.full);
                group.set_history(self.lives.history(&self.config, self.now));
                self.reconfigure.leave.mode.into_iter().for_each(|mode| group.leave(mode.is_forced()));
                group
            }
        };
        // Other members may still answer reads in each sub-range of which this node was primary.
        for replica in &self.replicas.all {
            group.inherit_grants(&replica.group);
            group.inherit_doubt(&replica.group);
        }
        group
    }

    /// Handles one birth, if all that it needs is known.
    fn give_birth(&mut self) -> bool {
        let Some(birth) = self.successors.next_birth(&mut context!(self)) else { return false };
        let Birth { id, born, inheritance, touched, finals } = birth;
        if self.replicas.finds_loss(self.me, &born) {
            return false;
        }
        self.successors.keep_finals(&mut context!(self), finals);
        // A node that asks here for keys that other groups own now need not look up their owners.
        born.iter().for_each(|state| self.routing.table.note_parts(state, self.now.time));
        let mut has_room = true;
        for state in born {
            has_room &= self.inherit(state, inheritance.clone());
        }
        if !has_room {
            return false; // The data that the birth needs stays until the next attempt.
        }
        // The parts that this node is not in are no longer its concern.
        self.retire(|group| touched.contains(&group.state().id) && group.state().ended == Some(id));
        self.successors.forget(&touched);
        true
    }

    /// Handles the state of a group in which this node has no part, and decides whether it concerns this node.
    pub(crate) fn on_foreign_state(&mut self, from: NodeId, state: GroupState) {
        if !state.is_sound() || self.ring != Some(state.ring) {
            self.frames_dropped += 1;
            return;
        }
        if state.ended.is_some() {
            return self.successors.take_final(&self.replicas, state);
        }
        if self.replicas.knows_later(&state) || self.heeds_losses(&state) {
            return;
        }
        let older = |replica: &LocalReplica| {
            let known = replica.group.state();
            known.epoch < state.epoch && known.range.overlaps(state.range)
        };
        if !self.replicas.all.iter().any(older) {
            if self.replicas.has_moved_to(self.me, &state) {
                self.take_part(state);
            } else if state.is_learner(self.me) {
                // Two groups may have noted its request to join; the node is in one. Each member that still counts on it sends it the state,
                // and is answered. If all members were answered, members and learners would answer each other with n times n messages in
                // each heartbeat.
                self.cx().send_as(state.id, &[from], Message::Declined, state.epoch);
            }
            return;
        }
        self.successors.note_pending(self.now.time, state);
        self.follow_pending();
    }

    /// Goes over to the pending groups that are ready.
    pub(crate) fn follow_pending(&mut self) {
        let ready = self.successors.take_ready(&mut context!(self));
        if self.replicas.finds_loss(self.me, &ready) {
            return;
        }
        for state in ready {
            let (range, epoch) = (state.range, state.epoch);
            if state.audience().contains(&self.me) {
                self.take_part(state);
            } else {
                self.give_up(range, epoch);
            }
        }
    }

    /// Handles a message for a group in which this node has no part: a late sender is told the present groups.
    pub(crate) fn on_foreign(&mut self, to: GroupId, sender: Sender, message: Message) {
        self.successors.hold_early(&mut context!(self), to, sender, &message);
        match message {
            Message::State(state) => self.on_foreign_state(sender.node, *state),
            Message::Envelope(envelope) => self.on_envelope(*envelope),
            Message::Client(message) => {
                message.outcomes.into_iter().for_each(|(attempt, outcome)| {
                    self.with_sessions(|sessions, ctx| sessions.on_outcome(ctx, attempt, outcome));
                });
                self.successors.on_foreign_operations(&mut context!(self), to, sender, message.operations);
            }
            Message::Wait(_)
            | Message::Vouch(_)
            | Message::Declined
            | Message::AskCopy(_)
            | Message::Copied(_)
            | Message::Handover(_) => {}
            Message::AskState if self.successors.tell_final(&mut context!(self), to, sender.epoch, sender.node) => {}
            // The sender takes this node for a member, and it may be one by now.
            Message::Heartbeat(_) | Message::Log(_) if self.replicas.heirs_of(to).next().is_none() => {
                if self.successors.may_tell(&mut context!(self), sender.node) {
                    self.cx().send_as(to, &[sender.node], Message::AskState, Epoch(0));
                }
            }
            _ => self.successors.tell_heirs(&mut context!(self), to, sender.node),
        }
    }
}

impl LocalReplicas {
    /// Returns the parts of this node, by their indices, whose data a new group inherits. The node is needed in one of them at most: the first
    /// is the one for which the new group asks it, or else the last one that took it in. A node that was moved may not have heard the end
    /// of the other.
    fn parents_of(&self, me: NodeId, state: &GroupState) -> Vec<usize> {
        let (range, epoch) = (state.range, state.epoch);
        let mut parents: Vec<usize> = (0..self.all.len())
            .filter(|index| self.all[*index].place().iter().any(|place| place.overlaps(range)))
            .filter(|index| self.all[*index].group.state().epoch < epoch)
            .collect();
        parents.sort_by_key(|index| {
            let (parent, place) = (self.all[*index].group.state(), self.all[*index].place());
            let of_place = |open: &KeyRange| place.iter().any(|place| place.overlaps(*open));
            let mut asked = state.recovery.iter().filter(|config| config.members.contains(&me));
            let is_asked = asked.any(|config| config.open.iter().any(of_place));
            let is_in = parent.is_member(me) || parent.is_learner(me);
            (!is_asked, !is_in, Reverse(parent.epoch), !parent.is_member(me))
        });
        parents
    }
}

/// Returns the generations of a group in which this node begins a part, with the data that the first of these parents has, and with claimed
/// copies. `None` if too much is still to be dropped.
pub(crate) fn generations_for(
    config: &NodeConfig,
    replicas: &LocalReplicas,
    copies: &Copies,
    state: &GroupState,
    parents: &[usize],
) -> Option<(KeyspaceGenerations, Vec<Claim>)> {
    let mut keyspace = replicas.keyspace.clone();
    let mut fresh = alloc::vec![state.range];
    for (nth, parent) in parents.iter().map(|index| &replicas.all[*index]).enumerate() {
        let place = parent.place();
        let ours: Vec<KeyRange> = fresh.iter().flat_map(|piece| meet(*piece, &place)).collect();
        fresh = fresh.into_iter().flat_map(|piece| piece.without(place.iter().copied())).collect();
        let gone = if nth == 0 { parent.group.forgotten(state) } else { ours.clone() };
        let gone: Vec<KeyRange> = ours.into_iter().flat_map(|piece| meet(piece, &gone)).collect();
        for piece in gone {
            if config.durability == Durability::Sync {
                keyspace.leave(piece);
            }
            keyspace.enter(piece).then_some(())?;
        }
    }
    let claims = copies.claims(&config.defects, state, &fresh);
    for claim in &claims {
        for (lent, parts) in &claim.lots {
            lent.iter().for_each(|lent| keyspace.claim(*lent, parts));
        }
        fresh = fresh.into_iter().flat_map(|piece| piece.without(claim.parts())).collect();
    }
    fresh.into_iter().all(|piece| keyspace.enter(piece)).then_some((keyspace, claims))
}

#[cfg(test)]
#[path = "births_test.rs"]
mod tests;
