//! Successors: how a node begins its part in the groups that succeed its own (Scatter §4). For the end of its part in groups that are over, see
//! [`crate::replicas::retire`].
//!
//! A node that knows the last states of all groups that a transaction touched works out by itself which groups are born. A late node is
//! told the present groups by one of their members, and cuts its own data to fit.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use group::Group;
use group::config::Defect;
use group::control::state::{GroupState, Loss};
use group::data::table::Table;
use group::message::{AttemptOutcome, ClientMessage, ClientOperation, Message, Sender};
use group::transaction::TransactionId;
use group::transaction::successor::birth::births;
use group::transaction::successor::handover::{Handover, Inheritance};
use overlay::{Epoch, GroupId, GroupRef, KeyRange, NodeId};

use crate::api::Event;
use crate::config::Durability;
use crate::context::context;
use crate::node::Node;
use crate::reconfigure::copying::Claim;
use crate::replicas::LocalReplica;
use crate::replicas::keyspace::KeyspaceGenerations;
use crate::replicas::retire::{is_alike, meet};
use crate::sessions::Sessions;

/// Upper limit of other groups' last states that are kept until their successors are born.
const FINALS_MAX: usize = 16;
/// Upper limit of groups that are known to have a part of this node's range, kept until the rest is known.
const PENDING_MAX: usize = 16;
/// Upper limit of early messages of groups that are not born here yet.
const EARLY_MAX: usize = 128;
/// Upper limit of sub-ranges that primaries hand over, kept until their new group is born.
const HANDED_MAX: usize = 64;
/// Upper limit of peers for which the time of the last correction is remembered.
const TOLD_MAX: usize = 1024;

impl Node {
    /// Handles groups that are over, and their successors. Returns whether there were any.
    pub(crate) fn attend(&mut self) -> bool {
        let departed = core::mem::take(&mut self.departed);
        let mut busy = !departed.is_empty();
        for (serial, why) in departed {
            self.depart(serial, why);
        }
        // Nothing is born of an incarnation that is over: the next one would take it for its own.
        while self.birth_wanted && !self.stage.over && self.give_birth() {
            busy = true;
        }
        self.birth_wanted = false;
        if busy {
            self.routing.table.resume_questions(&mut context!(self), &self.lives);
            self.release_early();
        }
        busy
    }

    /// Handles one birth, if all that it needs is known.
    fn give_birth(&mut self) -> bool {
        let ended: Vec<_> = self.replicas.all.iter().filter_map(|replica| replica.group.state().ending()).collect();
        for (id, plan) in ended {
            let finals: Vec<&GroupState> =
                plan.touched().filter_map(|party| self.last_state(party.group.id, id)).collect();
            if finals.len() < plan.touched().count() {
                continue;
            }
            let Some(born) = births(id, plan, &finals, self.config.defects) else {
                return self.doubt_finals(id);
            };
            let mut inheritance = Inheritance::of(&finals);
            let own = self.replicas.all.iter().flat_map(|replica| {
                replica.group.handovers().iter().map(|handover| (replica.group.state().id, handover))
            });
            let told = self.handed.iter().map(|(group, handover)| (*group, handover));
            for (group, handover) in own.chain(told) {
                inheritance.take(group, handover);
            }
            let touched: Vec<GroupId> = finals.iter().map(|last| last.id).collect();
            let kept: Vec<GroupState> = finals.into_iter().cloned().collect();
            if self.finds_loss(&born) {
                return false;
            }
            self.keep_finals(kept);
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
            touched.iter().for_each(|group| drop(self.finals.remove(group)));
            self.handed.retain(|(group, _)| !touched.contains(group));
            return true;
        }
        false
    }

    /// Returns whether one of these new groups shows that this node lost data of a parent group: then this incarnation ends, before any
    /// part in a new group begins.
    fn finds_loss(&mut self, born: &[GroupState]) -> bool {
        let born = || born.iter().filter(|state| state.audience().contains(&self.me));
        // A range that it gave to another group before is that group's now, and no loss of its own.
        let is_parent = |replica: &LocalReplica, state: &GroupState| {
            replica.group.state().epoch < state.epoch && replica.place().iter().any(|place| place.overlaps(state.range))
        };
        self.replicas
            .all
            .iter_mut()
            .any(|replica| born().any(|state| is_parent(replica, state) && replica.group.find_loss_for(state)))
    }

    /// Forgets the last states that other nodes reported, since no groups can have ended like this. They are asked for again.
    fn doubt_finals(&mut self, id: TransactionId) -> bool {
        let before = self.finals.len();
        self.finals.retain(|_, last| last.ended != Some(id));
        let doubted = before - self.finals.len();
        self.frames_dropped += doubted as u64;
        if doubted > 0 {
            let note = "received impossible final states of predecessor groups: asks again";
            self.out.event(Event::Note(note.into()));
        }
        false
    }

    /// Keeps last states that other nodes may still need, and that may be nowhere else.
    fn keep_finals(&mut self, finals: Vec<GroupState>) {
        // The last state of a group that was alone is known to each of its members.
        if finals.len() < 2 {
            return;
        }
        self.kept.retain(|known| finals.iter().all(|last| last.id != known.id));
        self.kept.extend(finals);
        let excess = self.kept.len().saturating_sub(FINALS_MAX);
        self.kept.drain(..excess);
        let changes = alloc::vec![self.space().finals(&self.kept)];
        self.cx().persist_own(changes);
    }

    /// Sends a group's last state of that epoch or a later one, if it is kept. Returns whether it is.
    pub(crate) fn tell_final(&mut self, of: GroupId, epoch: Epoch, node: NodeId) -> bool {
        let last = self.kept.iter().find(|last| last.id == of && last.epoch >= epoch).cloned();
        let is_kept = last.is_some();
        if let Some(last) = last {
            let epoch = last.epoch;
            self.cx().send_as(of, &[node], Message::State(Box::new(last)), epoch);
        }
        is_kept
    }

    /// Returns the state with which this group ended in that transaction, if it is known.
    fn last_state(&self, group: GroupId, id: TransactionId) -> Option<&GroupState> {
        let here = self.replicas.all.iter().map(|replica| replica.group.state());
        here.chain(self.finals.values()).find(|state| state.id == group && state.ended == Some(id))
    }

    /// Handles the state of a group in which this node has no part, and decides whether it concerns this node.
    pub(crate) fn on_foreign_state(&mut self, from: NodeId, state: GroupState) {
        if !state.is_sound() || self.ring != Some(state.ring) {
            self.frames_dropped += 1;
            return;
        }
        if state.ended.is_some() {
            let wanted = |replica: &LocalReplica| {
                let plan = replica.group.state().ending().filter(|(id, _)| Some(*id) == state.ended);
                plan.is_some_and(|(_, plan)| plan.party(state.id).is_some())
            };
            // The last state of another group whose transaction is still open here is kept until this node's own group has ended too.
            let is_near = self.replicas.living().any(|group| {
                let transactions = &group.state().transactions;
                transactions.voted().chain(transactions.coordinates()).any(|(id, _)| Some(id) == state.ended)
            });
            if (is_near || self.replicas.all.iter().any(wanted)) && self.finals.len() < FINALS_MAX {
                self.finals.insert(state.id, state);
                self.birth_wanted = true;
            }
            return;
        }
        if self.knows_later(&state) || self.heeds_losses(&state) {
            return;
        }
        let older = |replica: &LocalReplica| {
            let known = replica.group.state();
            known.epoch < state.epoch && known.range.overlaps(state.range)
        };
        if !self.replicas.all.iter().any(older) {
            if self.has_moved_to(&state) {
                self.take_part(state);
            } else if state.is_learner(self.me) {
                // Two groups may have noted its request to join; the node is in one. Each member that still counts on it sends it the state,
                // and is answered. If all members were answered, members and learners would answer each other with n times n messages in
                // each heartbeat.
                self.cx().send_as(state.id, &[from], Message::Declined, state.epoch);
            }
            return;
        }
        if self.pending.is_empty() {
            self.pending_since = self.now.time;
        }
        self.pending.retain(|known| !known.range.overlaps(state.range) || known.epoch > state.epoch);
        if self.pending.len() < PENDING_MAX {
            self.pending.push(state);
        }
        self.follow_pending();
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

    /// Returns whether a migration moved this node to that group, which has no data of the groups here. The group must have been born after
    /// all groups that this node has let go of: the node no longer knows its promises in a group that it voted in. A node that only asked
    /// to join that group became a learner after the group's birth.
    fn has_moved_to(&self, state: &GroupState) -> bool {
        let mut learners = state.learners.iter();
        let moved = learners.any(|learner| learner.node == self.me && learner.since == state.born_at);
        (moved || state.is_member(self.me)) && !self.has_forgotten_votes_of(state)
    }

    /// Returns whether this node may have voted in that group and remember nothing of it: it has let go of a group since that one was born.
    fn has_forgotten_votes_of(&self, state: &GroupState) -> bool {
        state.born <= self.replicas.voted
    }

    /// Returns whether this group, or its successor, is here already.
    fn knows_later(&self, state: &GroupState) -> bool {
        self.replicas.living().any(|group| group.state().epoch >= state.epoch && is_alike(group.state(), state))
    }

    /// Goes over to the pending groups, once they take the place of all groups here: a node that knew half of them would never learn the
    /// rest.
    pub(crate) fn follow_pending(&mut self) {
        let is_whole = |state: &GroupState| {
            let older = self.replicas.all.iter().map(|replica| replica.group.state());
            let mut older = older.filter(|older| older.epoch < state.epoch && older.range.overlaps(state.range));
            older.all(|older| {
                let mut rest = self.replicas.rest(older.range, older.epoch);
                for known in self.pending.iter().filter(|known| known.epoch > older.epoch) {
                    rest = rest.into_iter().flat_map(|piece| piece.without([known.range])).collect();
                }
                rest.is_empty()
            })
        };
        let (ready, rest): (Vec<GroupState>, Vec<GroupState>) = self.pending.iter().cloned().partition(is_whole);
        // A member that is in none of the pending groups may have been moved elsewhere: the last states, which it asks for, tell.
        let here = || self.replicas.living().map(Group::state).filter(|state| state.is_member(self.me));
        let stays = here().any(|state| !is_superseded(&ready, state));
        let has_place = |state: &GroupState| state.is_member(self.me) || state.is_learner(self.me);
        let goes = here().count() > 0 && !stays && !ready.iter().any(has_place);
        let patience = self.config.timing.heartbeat * self.config.timing.missed_max;
        if goes && self.now.time.since(self.pending_since) < patience {
            return;
        }
        self.pending = rest;
        if self.finds_loss(&ready) {
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

    /// Handles the handover of a primary whose group ends, or may end. The succeeding group may have begun already.
    pub(crate) fn on_handover(&mut self, of: GroupId, sender: Sender, handover: Handover) {
        if handover.check(sender.node).is_err() {
            self.frames_dropped += 1;
            return;
        }
        for group in self.replicas.living_mut() {
            group.on_handover(of, &handover);
        }
        self.handed.retain(|(group, known)| (*group, known.ballot) != (of, handover.ballot));
        if self.may_follow(of, sender.node) && self.handed.len() < HANDED_MAX {
            self.handed.push((of, handover));
        }
    }

    /// Returns whether a group may soon be born here that inherits data of this member of that group, as far as is known.
    fn may_follow(&self, of: GroupId, node: NodeId) -> bool {
        let states = || self.replicas.all.iter().map(|replica| replica.group.state());
        let open =
            states().flat_map(|state| state.transactions.coordinates().into_iter().chain(state.transactions.voted()));
        let mut plans = open.chain(states().filter_map(GroupState::ending)).map(|(_, plan)| plan);
        plans.any(|plan| {
            plan.party(of).is_some_and(|party| party.touched && party.group.nodes().any(|member| member == node))
        })
    }

    /// Begins a part in this group, with the data of it that is here.
    fn take_part(&mut self, state: GroupState) {
        if self.finds_loss(core::slice::from_ref(&state)) {
            return;
        }
        self.inherit(state, Inheritance::default());
    }

    /// Begins a part in this group, given its last primaries and some of their handovers. Returns false if there is no room for it now.
    fn inherit(&mut self, state: GroupState, inheritance: Inheritance) -> bool {
        if !state.audience().contains(&self.me) || self.knows_later(&state) {
            return true;
        }
        let (range, epoch) = (state.range, state.epoch);
        // The first batch of the last group stores the generations without this group. And outputs of groups may make this node copy data.
        self.hear_all();
        let mut parents: Vec<usize> = (0..self.replicas.all.len())
            .filter(|index| self.replicas.all[*index].place().iter().any(|place| place.overlaps(range)))
            .filter(|index| self.replicas.all[*index].group.state().epoch < epoch)
            .collect();
        // The node was moved here from another group. If it has let go of this group already, or of a later one, it no longer knows its votes
        // there: the last states of the groups that ended came late.
        if parents.is_empty() && self.has_forgotten_votes_of(&state) {
            return true;
        }
        // The node is needed in one of them at most: the one for which the new group asks it, or else the last one that took it in. A node
        // that was moved may not have heard the end of the other.
        parents.sort_by_key(|index| {
            let (parent, place) = (self.replicas.all[*index].group.state(), self.replicas.all[*index].place());
            let of_place = |open: &KeyRange| place.iter().any(|place| place.overlaps(*open));
            let mut asked = state.recovery.iter().filter(|config| config.members.contains(&self.me));
            let is_asked = asked.any(|config| config.open.iter().any(of_place));
            let is_in = parent.is_member(self.me) || parent.is_learner(self.me);
            (!is_asked, !is_in, Reverse(parent.epoch), !parent.is_member(self.me))
        });
        let Some((keyspace, claimed)) = self.generations_for(&state, &parents) else {
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
        let group = match parents.first() {
            Some(index) => {
                let given = range.intersection(self.replicas.all[*index].group.state().range).into_iter().flatten();
                let place = self.replicas.all[*index].place();
                let given = given.flat_map(|piece| piece.without(place.iter().copied())).collect::<Vec<_>>();
                let parent = &mut self.replicas.all[*index].group;
                Group::succeed(parent, state, &given, copied, inheritance, self.now, seed)
            }
            None => {
                let mut group = Group::join_holding(self.group_config(), self.me, state, self.now, seed, copied);
                // Requests to the node hold for each group that it comes to be in.
                group.set_addresses(self.addresses.clone());
                group.set_full(self.full);
                group.set_history(self.lives.history(&self.config, self.now));
                self.reconfigure.leave.force.into_iter().for_each(|force| group.leave(force));
                group
            }
        };
        // Other members may still answer reads in each sub-range of which this node was primary.
        let mut group = group;
        for replica in &self.replicas.all {
            group.inherit_grants(&replica.group);
            group.inherit_doubt(&replica.group);
        }
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
        early.extend(
            self.early.extract_if(.., |(group, ..)| *group == id).map(|(_, sender, message)| (sender, message)),
        );
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

    /// Returns the generations of a group in which this node begins a part, with the data that the first of these parents has, and with claimed
    /// copies. `None` if too much is still to be dropped.
    pub(crate) fn generations_for(
        &self,
        state: &GroupState,
        parents: &[usize],
    ) -> Option<(KeyspaceGenerations, Vec<Claim>)> {
        let mut keyspace = self.replicas.keyspace.clone();
        let mut fresh = alloc::vec![state.range];
        for (nth, parent) in parents.iter().map(|index| &self.replicas.all[*index]).enumerate() {
            let place = parent.place();
            let ours: Vec<KeyRange> = fresh.iter().flat_map(|piece| meet(*piece, &place)).collect();
            fresh = fresh.into_iter().flat_map(|piece| piece.without(place.iter().copied())).collect();
            let gone = if nth == 0 { parent.group.forgotten(state) } else { ours.clone() };
            let gone: Vec<KeyRange> = ours.into_iter().flat_map(|piece| meet(piece, &gone)).collect();
            for piece in gone {
                if self.config.durability == Durability::Sync {
                    keyspace.leave(piece);
                }
                keyspace.enter(piece).then_some(())?;
            }
        }
        let claims = self.reconfigure.preparation.copies.claims(&self.config.defects, state, &fresh);
        for claim in &claims {
            for (lent, parts) in &claim.lots {
                lent.iter().for_each(|lent| keyspace.claim(*lent, parts));
            }
            fresh = fresh.into_iter().flat_map(|piece| piece.without(claim.parts())).collect();
        }
        fresh.into_iter().all(|piece| keyspace.enter(piece)).then_some((keyspace, claims))
    }

    /// Asks for the last states of other groups that births wait for. Asks former members of this node's groups for the successors.
    pub(crate) fn ask_for_finals(&mut self) {
        if self.config.defects.has(Defect::ToldOnce) {
            return;
        }
        let mut asked: Vec<(GroupId, Epoch, Vec<NodeId>)> = Vec::new();
        for replica in &self.replicas.all {
            let state = replica.group.state();
            let others = state.nodes().into_iter().filter(|node| *node != self.me).collect();
            match state.ending() {
                Some((id, plan)) => {
                    for party in plan.touched().filter(|party| self.last_state(party.group.id, id).is_none()) {
                        asked.push((party.group.id, party.group.epoch, party.group.nodes().collect()));
                    }
                    asked.push((state.id, state.epoch, others));
                }
                None if replica.over.is_some() || self.is_pending(state) => asked.push((state.id, state.epoch, others)),
                None => {}
            }
        }
        // A former member may know one part alone; the groups beside it know the rest.
        let is_lacking = |beside: &&GroupRef| {
            let older = |replica: &LocalReplica| {
                let state = replica.group.state();
                state.epoch < beside.epoch && state.range.overlaps(beside.range)
            };
            self.replicas.all.iter().any(older) && !self.pending.iter().any(|known| known.id == beside.id)
        };
        for known in self.pending.iter().chain(self.replicas.living().map(Group::state)) {
            let beside = known.transactions.neighbours();
            asked.extend(beside.filter(is_lacking).map(|beside| (beside.id, Epoch(0), beside.nodes().collect())));
        }
        let rests: Vec<KeyRange> =
            self.replicas.all.iter().filter_map(|replica| replica.over.clone()).flatten().collect();
        rests.iter().for_each(|rest| self.routing.table.want(rest.start(), self.now.time));
        let known = rests.iter().flat_map(|rest| self.routing.table.hints.overlapping(*rest));
        let known: BTreeMap<GroupId, GroupRef> = known.map(|group| (group.id, group)).collect();
        asked.extend(known.values().filter(is_lacking).map(|group| (group.id, Epoch(0), group.nodes().collect())));
        for (group, epoch, nodes) in asked {
            self.cx().send_as(group, &nodes, Message::AskState, epoch);
        }
    }

    /// Returns whether a pending group takes the place of a part of this one.
    fn is_pending(&self, state: &GroupState) -> bool {
        self.pending.iter().any(|known| known.epoch > state.epoch && known.range.overlaps(state.range))
    }

    /// Handles a message for a group in which this node has no part: a late sender is told the present groups.
    pub(crate) fn on_foreign(&mut self, to: GroupId, sender: Sender, message: Message) {
        if message.begins_epoch() && self.expects_birth() {
            // Other members can be faster: a message that is not heard now would be repeated much later. It is held once.
            let early = (to, sender, message.clone());
            self.early.retain(|held| *held != early);
            if self.early.len() >= EARLY_MAX {
                let oldest = self.early.remove(0);
                self.answer_unknown(oldest);
            }
            self.early.push(early);
        }
        match message {
            Message::State(state) => self.on_foreign_state(sender.node, *state),
            Message::Envelope(envelope) => self.on_envelope(*envelope),
            Message::Client(message) => {
                message.outcomes.into_iter().for_each(|(attempt, outcome)| {
                    self.with_sessions(|sessions, ctx| sessions.on_outcome(ctx, attempt, outcome));
                });
                // An operation that is answered *unknown* may still be executed, as far as its sender can tell, and the sender would have
                // to wait for the end of the very ballot that is about to begin here.
                let holds = self.early.len() < EARLY_MAX && self.expects_birth();
                let is_early = |operation: &ClientOperation| holds && self.is_to_come(operation);
                let (early, foreign): (Vec<_>, Vec<_>) = message.operations.into_iter().partition(is_early);
                let asked = |operations| Message::Client(ClientMessage { operations, outcomes: Vec::new() });
                if !early.is_empty() {
                    self.early.push((to, sender, asked(early)));
                }
                self.answer_unknown((to, sender, asked(foreign)));
            }
            Message::Wait(_)
            | Message::Vouch(_)
            | Message::Declined
            | Message::AskCopy(_)
            | Message::Copied(_)
            | Message::Handover(_) => {}
            Message::AskState if self.tell_final(to, sender.epoch, sender.node) => {}
            // The sender takes this node for a member, and it may be one by now.
            Message::Heartbeat(_) | Message::Log(_) if self.replicas.heirs_of(to).next().is_none() => {
                if self.may_tell(sender.node) {
                    self.cx().send_as(to, &[sender.node], Message::AskState, Epoch(0));
                }
            }
            _ => self.tell_heirs(to, sender.node),
        }
    }

    /// Returns whether the operation is for a primary of a later epoch than all groups that this node has, or had, at that point.
    fn is_to_come(&self, operation: &ClientOperation) -> bool {
        let (point, ballot) = (operation.key.point(), operation.ballot);
        let here = || self.replicas.all.iter().map(|replica| replica.group.state());
        ballot.is_some_and(|ballot| {
            here().filter(|state| state.range.contains(point)).all(|state| state.epoch < ballot.epoch)
        })
    }

    /// Drops the kept handovers and early messages if no birth is expected any more: no other group will take them. Operations among them
    /// are answered *unknown*.
    pub(crate) fn release_early(&mut self) {
        if !self.expects_birth() {
            self.handed.clear();
            core::mem::take(&mut self.early).into_iter().for_each(|early| self.answer_unknown(early));
        }
    }

    /// Answers *unknown* to operations for a group in which this node has no part: it cannot tell their outcome.
    fn answer_unknown(&mut self, (to, sender, message): (GroupId, Sender, Message)) {
        let Message::Client(message) = message else { return };
        let outcomes: Vec<_> =
            message.operations.iter().map(|operation| (operation.attempt, AttemptOutcome::Unknown)).collect();
        if !outcomes.is_empty() {
            let message = ClientMessage { operations: Vec::new(), outcomes };
            self.cx().send_as(to, &[sender.node], Message::Client(message), Epoch(0));
        }
    }

    /// Returns whether a late node may be corrected now: not with each of its messages.
    fn may_tell(&mut self, node: NodeId) -> bool {
        let last = self.told.get(&node.peer).copied();
        let soon = self.config.timing.heartbeat / 10;
        if last.is_some_and(|last| self.now.time.since(last) < soon) {
            return false;
        }
        if self.told.len() >= TOLD_MAX {
            self.told.clear();
        }
        self.told.insert(node.peer, self.now.time);
        true
    }

    fn tell_heirs(&mut self, of: GroupId, node: NodeId) {
        if !self.may_tell(node) {
            return;
        }
        let heirs: Vec<GroupState> = self.replicas.heirs_of(of).map(|group| group.state().clone()).collect();
        for state in heirs {
            let (id, epoch) = (state.id, state.epoch);
            self.cx().send_as(id, &[node], Message::State(Box::new(state)), epoch);
        }
    }
}

/// Returns whether one of these groups takes the place of `state`.
fn is_superseded(these: &[GroupState], state: &GroupState) -> bool {
    these.iter().any(|other| other.epoch > state.epoch && other.range.overlaps(state.range))
}

#[cfg(test)]
#[path = "successors_test.rs"]
mod tests;
