//! How a node comes to be in the groups that are born of its own (Scatter §4). How it lets go of those that are over: see
//! [`crate::letting_go`].
//!
//! Whoever knows the last states of all groups that a transaction touched works out by itself what is born. Who is late is
//! told what there is now by whoever is in it, and cuts what it has to fit.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use group::Group;
use group::config::Defect;
use group::handover::{Handover, Inheritance};
use group::message::{ClientMessage, Message, Operation, Outcome, Sender};
use group::state::{GroupState, Loss};
use group::table::Table;
use group::transaction::TransactionId;
use group::transaction::birth::births;
use overlay::{Epoch, GroupId, GroupRef, KeyRange, NodeId, PeerKey};

use crate::api::{Change, Event, Output};
use crate::bays::Bays;
use crate::config::Durability;
use crate::copying::Claim;
use crate::hosting::Hosted;
use crate::letting_go::{is_alike, meet};
use crate::node::Node;
use crate::sessions::Sessions;
use crate::wire::{self, Frame};

/// Last states of others' groups that are kept until what comes of them is born.
const FINALS_MAX: usize = 16;
/// Groups that are known to be there in part of what is this node's, until the rest is known.
const PENDING_MAX: usize = 16;
/// First words of groups that are not born here yet.
const EARLY_MAX: usize = 128;
/// Sub-ranges that others hand over, kept until what they are for is born.
const HANDED_MAX: usize = 64;
/// Peers of whom it is remembered when they were told of what is here.
const TOLD_MAX: usize = 1024;

impl Node {
    /// Sees to what is over, and to what comes of it. True if there was something.
    pub(crate) fn attend(&mut self) -> bool {
        let departed = core::mem::take(&mut self.departed);
        let mut busy = !departed.is_empty();
        for (serial, why) in departed {
            self.depart(serial, why);
        }
        // Nothing is born of a life that is over: the next one would take that for what it had.
        while self.birth_wanted && !self.over && self.give_birth() {
            busy = true;
        }
        self.birth_wanted = false;
        if busy {
            self.resume_questions();
            self.let_go_early();
        }
        busy
    }

    /// One birth, where all is known that it needs.
    fn give_birth(&mut self) -> bool {
        let ended: Vec<_> = self.hosts.all.iter().filter_map(|hosted| hosted.group.state().ending()).collect();
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
            let own =
                self.hosts.all.iter().flat_map(|hosted| {
                    hosted.group.handovers().iter().map(|handover| (hosted.group.state().id, handover))
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
            // Whoever asks here for what others own now need not be asked who they are.
            born.iter().for_each(|state| self.whereabouts.note_parts(state, self.now.time));
            let mut has_room = true;
            for state in born {
                has_room &= self.inherit(state, inheritance.clone());
            }
            if !has_room {
                return false; // What it needs stays where it is until that is tried again.
            }
            // What of it this node is not in is not its affair any more.
            self.let_go(|group| touched.contains(&group.state().id) && group.state().ended == Some(id));
            touched.iter().for_each(|group| drop(self.finals.remove(group)));
            self.handed.retain(|(group, _)| !touched.contains(group));
            return true;
        }
        false
    }

    /// Whether one of these new groups shows that this node lost something of a group that it comes of: this life is over, before
    /// anything of it is begun.
    fn finds_loss(&mut self, born: &[GroupState]) -> bool {
        let born = || born.iter().filter(|state| state.audience().contains(&self.me));
        // What it gave to another group before is that one's now, and no loss of its own.
        let is_parent = |hosted: &Hosted, state: &GroupState| {
            hosted.group.state().epoch < state.epoch && hosted.place().iter().any(|place| place.overlaps(state.range))
        };
        self.hosts
            .all
            .iter_mut()
            .any(|hosted| born().any(|state| is_parent(hosted, state) && hosted.group.find_loss_for(state)))
    }

    /// No groups can have ended like this: what others told of theirs is forgotten, and asked for again.
    fn doubt_finals(&mut self, id: TransactionId) -> bool {
        let before = self.finals.len();
        self.finals.retain(|_, last| last.ended != Some(id));
        let doubted = before - self.finals.len();
        self.frames_dropped += doubted as u64;
        if doubted > 0 {
            let note = "was told how groups ended that became others, and none can have ended like that: asks again";
            self.event(Event::Note(note.into()));
        }
        false
    }

    /// Others may still need these, and nobody else have them.
    fn keep_finals(&mut self, finals: Vec<GroupState>) {
        // A group that was alone is known by whoever was in it.
        if finals.len() < 2 {
            return;
        }
        self.kept.retain(|known| finals.iter().all(|last| last.id != known.id));
        self.kept.extend(finals);
        let excess = self.kept.len().saturating_sub(FINALS_MAX);
        self.kept.drain(..excess);
        let changes = alloc::vec![self.space().finals(&self.kept)];
        self.persist_own(changes);
    }

    /// Somebody asks for a group as it was in that epoch: its last state, if that is kept.
    pub(crate) fn tell_final(&mut self, of: GroupId, epoch: Epoch, node: NodeId) -> bool {
        let last = self.kept.iter().find(|last| last.id == of && last.epoch >= epoch).cloned();
        let is_kept = last.is_some();
        if let Some(last) = last {
            let epoch = last.epoch;
            self.send_as(of, &[node], Message::State(Box::new(last)), epoch);
        }
        is_kept
    }

    /// The state with which this group ended in that transaction, if it is known.
    fn last_state(&self, group: GroupId, id: TransactionId) -> Option<&GroupState> {
        let here = self.hosts.all.iter().map(|hosted| hosted.group.state());
        here.chain(self.finals.values()).find(|state| state.id == group && state.ended == Some(id))
    }

    /// Somebody told of a group that this node has no part in. Is that its affair?
    pub(crate) fn on_foreign_state(&mut self, from: NodeId, state: GroupState) {
        if !state.is_sound() || self.ring != Some(state.ring) {
            self.frames_dropped += 1;
            return;
        }
        if state.ended.is_some() {
            let wanted = |hosted: &Hosted| {
                let plan = hosted.group.state().ending().filter(|(id, _)| Some(*id) == state.ended);
                plan.is_some_and(|(_, plan)| plan.party(state.id).is_some())
            };
            // What others still have to end with is kept for when this node's own group has.
            let is_near = self.hosts.living().any(|group| {
                let dealings = &group.state().dealings;
                dealings.voted().chain(dealings.coordinates()).any(|(id, _)| Some(id) == state.ended)
            });
            if (is_near || self.hosts.all.iter().any(wanted)) && self.finals.len() < FINALS_MAX {
                self.finals.insert(state.id, state);
                self.birth_wanted = true;
            }
            return;
        }
        if self.knows_later(&state) || self.heeds_losses(&state) {
            return;
        }
        let older = |hosted: &Hosted| {
            let known = hosted.group.state();
            known.epoch < state.epoch && known.range.overlaps(state.range)
        };
        if !self.hosts.all.iter().any(older) {
            if self.has_moved_to(&state) {
                self.take_part(state);
            } else if state.is_learner(self.me) {
                // Two groups may have noted that it wanted in; it is in one. Each member that still counts on it tells it the state, and is answered:
                // if all were, members and learners would answer each other with n times n messages in each heartbeat.
                self.send_as(state.id, &[from], Message::Declined, state.epoch);
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

    /// What this node has of ranges that were declared lost while it was away is no part of the store any more: it is kept
    /// apart, and this life is over (hazard 40). True where that is so.
    fn heeds_losses(&mut self, state: &GroupState) -> bool {
        if state.audience().contains(&self.me) || self.over {
            return false;
        }
        // What this node only keeps for others, or owned more of than was lost, it lets go of like anything that others own now.
        let is_lost = |group: &Group| {
            let known = group.state();
            let belongs = known.is_member(self.me) || known.is_learner(self.me);
            let of_loss = |loss: &Loss| loss.concerns(known) && loss.range.contains_range(known.range);
            belongs && state.losses.iter().any(of_loss)
        };
        let Some(lost) = self.hosts.living().find(|group| is_lost(group)) else { return false };
        let why = alloc::format!(
            "the range {:?} of {} was declared lost while this peer was away: what it holds of that is served no more",
            lost.state().range,
            lost.state().id.called()
        );
        self.each_group(Group::give_way);
        self.end_life(Event::Quarantine(why));
        true
    }

    /// Did a migration move this node to that group, which has nothing of what is here? It must have been born after all groups
    /// that this node has let go of: of one that it voted in it does not know any more what it promised. Who only asked to be let
    /// in there came later than it was born.
    fn has_moved_to(&self, state: &GroupState) -> bool {
        let mut learners = state.learners.iter();
        let moved = learners.any(|learner| learner.node == self.me && learner.since == state.born_at);
        (moved || state.is_member(self.me)) && state.born > self.voted
    }

    /// Is this, or what took its place, here already?
    fn knows_later(&self, state: &GroupState) -> bool {
        self.hosts.living().any(|group| group.state().epoch >= state.epoch && is_alike(group.state(), state))
    }

    /// Goes over to what others say there is now, once that takes the place of all that is here: who knew half of it would
    /// never learn the rest.
    pub(crate) fn follow_pending(&mut self) {
        let is_whole = |state: &GroupState| {
            let older = self.hosts.all.iter().map(|hosted| hosted.group.state());
            let mut older = older.filter(|older| older.epoch < state.epoch && older.range.overlaps(state.range));
            older.all(|older| {
                let mut rest = self.hosts.rest(older.range, older.epoch);
                for known in self.pending.iter().filter(|known| known.epoch > older.epoch) {
                    rest = rest.into_iter().flat_map(|piece| piece.without([known.range])).collect();
                }
                rest.is_empty()
            })
        };
        let (ready, rest): (Vec<GroupState>, Vec<GroupState>) = self.pending.iter().cloned().partition(is_whole);
        // A member that is in none of what comes may have been moved elsewhere: the last states tell, which it asks for.
        let here = || self.hosts.living().map(Group::state).filter(|state| state.is_member(self.me));
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

    /// A primary of a group that ends, or may, says what it hands over to whoever follows it. That may have begun already.
    pub(crate) fn on_handover(&mut self, of: GroupId, sender: Sender, handover: Handover) {
        if handover.check(sender.node).is_err() {
            self.frames_dropped += 1;
            return;
        }
        for group in self.hosts.living_mut() {
            group.on_handover(of, &handover);
        }
        self.handed.retain(|(group, known)| (*group, known.ballot) != (of, handover.ballot));
        if self.may_follow(of, sender.node) && self.handed.len() < HANDED_MAX {
            self.handed.push((of, handover));
        }
    }

    /// May something be born here soon of what this member of that group has, as far as is known?
    fn may_follow(&self, of: GroupId, node: NodeId) -> bool {
        let states = || self.hosts.all.iter().map(|hosted| hosted.group.state());
        let open = states().flat_map(|state| state.dealings.coordinates().into_iter().chain(state.dealings.voted()));
        let mut plans = open.chain(states().filter_map(GroupState::ending)).map(|(_, plan)| plan);
        plans.any(|plan| {
            plan.party(of).is_some_and(|party| party.touched && party.group.nodes().any(|member| member == node))
        })
    }

    /// Begins a part in this group, with what there is of it here.
    fn take_part(&mut self, state: GroupState) {
        if self.finds_loss(core::slice::from_ref(&state)) {
            return;
        }
        self.inherit(state, Inheritance::default());
    }

    /// The same where it is known who was primary last of what, and what some of these hand over. False where there is no room
    /// for it now.
    fn inherit(&mut self, state: GroupState, inheritance: Inheritance) -> bool {
        if !state.audience().contains(&self.me) || self.knows_later(&state) {
            return true;
        }
        let (range, epoch) = (state.range, state.epoch);
        // The first batch of the last one says where records lie without this one; and what groups say may have this node copy
        // something.
        self.hear_all();
        let mut parents: Vec<usize> = (0..self.hosts.all.len())
            .filter(|index| self.hosts.all[*index].place().iter().any(|place| place.overlaps(range)))
            .filter(|index| self.hosts.all[*index].group.state().epoch < epoch)
            .collect();
        // It is needed in one of them at most: that for which the new one asks it, and else the last that took it in. Who was moved
        // may not have heard the end of the other.
        parents.sort_by_key(|index| {
            let (parent, place) = (self.hosts.all[*index].group.state(), self.hosts.all[*index].place());
            let of_place = |open: &KeyRange| place.iter().any(|place| place.overlaps(*open));
            let mut asked = state.recovery.iter().filter(|config| config.members.contains(&self.me));
            let is_asked = asked.any(|config| config.open.iter().any(of_place));
            let is_in = parent.is_member(self.me) || parent.is_learner(self.me);
            (!is_asked, !is_in, Reverse(parent.epoch), !parent.is_member(self.me))
        });
        let Some((bays, claimed)) = self.bays_for(&state, &parents) else {
            self.event(Event::Note("too much is still to be dropped: no new group is entered yet".into()));
            return false;
        };
        let seed = self.rng.draw();
        for index in parents.iter().copied() {
            self.silence(index);
        }
        let copied = self.take_copies(claimed);
        let records: usize = copied.iter().map(Table::len).sum();
        let group = match parents.first() {
            Some(index) => {
                let given = range.intersection(self.hosts.all[*index].group.state().range).into_iter().flatten();
                let place = self.hosts.all[*index].place();
                let given = given.flat_map(|piece| piece.without(place.iter().copied())).collect::<Vec<_>>();
                let parent = &mut self.hosts.all[*index].group;
                Group::bear(parent, state, &given, copied, inheritance, self.now, seed)
            }
            None => {
                let mut group = Group::join_holding(self.group_config(), self.me, state, self.now, seed, copied);
                // What it has been asked goes for wherever it comes to be.
                group.set_addresses(self.addresses.clone());
                group.set_full(self.full);
                group.set_history(self.history());
                self.leaving.into_iter().for_each(|force| group.leave(force));
                group
            }
        };
        // Whatever it was primary of, others may still answer reads there.
        let mut group = group;
        for hosted in &self.hosts.all {
            group.inherit_grants(&hosted.group);
            group.inherit_doubt(&hosted.group);
        }
        let moved = core::mem::replace(&mut self.hosts.bays, bays) != self.hosts.bays;
        let id = group.state().id;
        let Some(serial) = self.hosts.add(group) else {
            self.damaged("it has a part in too many groups");
            return false;
        };
        if moved && self.config.durability == Durability::Sync {
            // Not before: what it comes from lies elsewhere until then.
            self.bays_due = Some(serial);
        }
        let copied = match records {
            0 => String::new(),
            count => alloc::format!(", with {count} records that were copied before"),
        };
        self.event(Event::Note(alloc::format!("has a part in {} from now on{copied}", id.called())));
        let same = self.hosts.all.iter_mut().filter(|hosted| hosted.group.state().id == id);
        let mut early: Vec<(Sender, Message)> = same.flat_map(|hosted| hosted.group.take_early()).collect();
        early.extend(
            self.early.extract_if(.., |(group, ..)| *group == id).map(|(_, sender, message)| (sender, message)),
        );
        self.settle_ranges(&[]);
        for (sender, message) in early {
            if let Some(message) = self.hold_early(id, sender, message) {
                self.on_own_message(id, sender, message);
            }
        }
        self.share_memory();
        self.with_sessions(Sessions::on_division);
        true
    }

    /// Where the records of a group lie of which this node takes a part, with what the first of these parents has, and what was
    /// copied elsewhere. `None` where too much is still to be dropped.
    pub(crate) fn bays_for(&self, state: &GroupState, parents: &[usize]) -> Option<(Bays, Vec<Claim>)> {
        let mut bays = self.hosts.bays.clone();
        let mut fresh = alloc::vec![state.range];
        for (nth, parent) in parents.iter().map(|index| &self.hosts.all[*index]).enumerate() {
            let place = parent.place();
            let ours: Vec<KeyRange> = fresh.iter().flat_map(|piece| meet(*piece, &place)).collect();
            fresh = fresh.into_iter().flat_map(|piece| piece.without(place.iter().copied())).collect();
            let gone = if nth == 0 { parent.group.forgotten(state) } else { ours.clone() };
            let gone: Vec<KeyRange> = ours.into_iter().flat_map(|piece| meet(piece, &gone)).collect();
            for piece in gone {
                if self.config.durability == Durability::Sync {
                    bays.leave(piece);
                }
                bays.enter(piece).then_some(())?;
            }
        }
        let claims = self.claims(state, &fresh);
        for claim in &claims {
            for (lent, parts) in &claim.lots {
                lent.iter().for_each(|lent| bays.claim(*lent, parts));
            }
            fresh = fresh.into_iter().flat_map(|piece| piece.without(claim.parts())).collect();
        }
        fresh.into_iter().all(|piece| bays.enter(piece)).then_some((bays, claims))
    }

    /// Asks for the last states of other groups that births wait for, and whoever was in this node's own group for what came
    /// of it.
    pub(crate) fn ask_for_finals(&mut self) {
        if self.config.defects.has(Defect::ToldOnce) {
            return;
        }
        let mut asked: Vec<(GroupId, Epoch, Vec<NodeId>)> = Vec::new();
        for hosted in &self.hosts.all {
            let state = hosted.group.state();
            let others = state.nodes().into_iter().filter(|node| *node != self.me).collect();
            match state.ending() {
                Some((id, plan)) => {
                    for party in plan.touched().filter(|party| self.last_state(party.group.id, id).is_none()) {
                        asked.push((party.group.id, party.group.epoch, party.group.nodes().collect()));
                    }
                    asked.push((state.id, state.epoch, others));
                }
                None if hosted.over.is_some() || self.is_pending(state) => asked.push((state.id, state.epoch, others)),
                None => {}
            }
        }
        // Whoever was here may know of a part alone; what lies beside that knows the rest.
        let is_lacking = |beside: &&GroupRef| {
            let older = |hosted: &Hosted| {
                let state = hosted.group.state();
                state.epoch < beside.epoch && state.range.overlaps(beside.range)
            };
            self.hosts.all.iter().any(older) && !self.pending.iter().any(|known| known.id == beside.id)
        };
        for known in self.pending.iter().chain(self.hosts.living().map(Group::state)) {
            let beside = known.dealings.predecessor().into_iter().chain(known.dealings.successor());
            asked.extend(beside.filter(is_lacking).map(|beside| (beside.id, Epoch(0), beside.nodes().collect())));
        }
        let rests: Vec<KeyRange> = self.hosts.all.iter().filter_map(|hosted| hosted.over.clone()).flatten().collect();
        rests.iter().for_each(|rest| self.whereabouts.want(rest.start(), self.now.time));
        let known = rests.iter().flat_map(|rest| self.whereabouts.hints.overlapping(*rest));
        let known: BTreeMap<GroupId, GroupRef> = known.map(|group| (group.id, group)).collect();
        asked.extend(known.values().filter(is_lacking).map(|group| (group.id, Epoch(0), group.nodes().collect())));
        for (group, epoch, nodes) in asked {
            self.send_as(group, &nodes, Message::AskState, epoch);
        }
    }

    /// Is something known that takes its place in part?
    fn is_pending(&self, state: &GroupState) -> bool {
        self.pending.iter().any(|known| known.epoch > state.epoch && known.range.overlaps(state.range))
    }

    /// Something was said to a group that this node has no part in: who is late is told what there is now.
    pub(crate) fn on_foreign(&mut self, to: GroupId, sender: Sender, message: Message) {
        if message.begins_epoch() && self.expects_birth() {
            // Others can be faster: unheard, it would be said again much later. Then it is held once.
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
            Message::Letter(letter) => self.on_letter(*letter),
            Message::Client(message) => {
                message.outcomes.into_iter().for_each(|(attempt, outcome)| {
                    self.with_sessions(|sessions, ctx| sessions.on_outcome(ctx, attempt, outcome));
                });
                // What is answered *unknown* may yet be done, as far as whoever asks can tell, and it must wait for the end of
                // the very ballot that is about to begin here.
                let holds = self.early.len() < EARLY_MAX && self.expects_birth();
                let is_early = |operation: &Operation| holds && self.is_to_come(operation);
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
            // It is thought to be a member, and may be one by now.
            Message::Heartbeat(_) | Message::Log(_) if self.hosts.heirs_of(to).next().is_none() => {
                if self.may_tell(sender.node) {
                    self.send_as(to, &[sender.node], Message::AskState, Epoch(0));
                }
            }
            _ => self.tell_heirs(to, sender.node),
        }
    }

    /// Is it for a primary of a later epoch than all that this node has, or had, at that place?
    fn is_to_come(&self, operation: &Operation) -> bool {
        let (point, ballot) = (operation.key.point(), operation.ballot);
        let here = || self.hosts.all.iter().map(|hosted| hosted.group.state());
        ballot.is_some_and(|ballot| {
            here().filter(|state| state.range.contains(point)).all(|state| state.epoch < ballot.epoch)
        })
    }

    /// Nothing is about to be born here any more: what was said to anything else comes to nothing.
    pub(crate) fn let_go_early(&mut self) {
        if !self.expects_birth() {
            self.handed.clear();
            core::mem::take(&mut self.early).into_iter().for_each(|early| self.answer_unknown(early));
        }
    }

    /// Of operations for a group that this node has no part in it cannot tell what became.
    fn answer_unknown(&mut self, (to, sender, message): (GroupId, Sender, Message)) {
        let Message::Client(message) = message else { return };
        let outcomes: Vec<_> =
            message.operations.iter().map(|operation| (operation.attempt, Outcome::Unknown)).collect();
        if !outcomes.is_empty() {
            let message = ClientMessage { operations: Vec::new(), outcomes };
            self.send_as(to, &[sender.node], Message::Client(message), Epoch(0));
        }
    }

    /// Not with every message that somebody sends who is late.
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
        let heirs: Vec<GroupState> = self.hosts.heirs_of(of).map(|group| group.state().clone()).collect();
        for state in heirs {
            let (id, epoch) = (state.id, state.epoch);
            self.send_as(id, &[node], Message::State(Box::new(state)), epoch);
        }
    }

    /// Says something as one of a group, whether this node has a part in it or not.
    pub(crate) fn send_as(&mut self, group: GroupId, to: &[NodeId], message: Message, epoch: Epoch) {
        let Some(ring) = self.ring else { return };
        let class = wire::class_of(&message);
        let sender = Sender { node: self.me, epoch };
        let me: PeerKey = self.me.peer;
        let to: Vec<PeerKey> = to.iter().map(|node| node.peer).filter(|peer| *peer != me).collect();
        if !to.is_empty() {
            self.post_all(&to, class, &Frame::Group { ring, group, sender, message });
        }
    }

    /// Makes changes of the node's own durable, where anything is.
    pub(crate) fn persist_own(&mut self, changes: Vec<Change>) {
        self.persist_named(0, changes);
    }

    /// The same under this name, which [`crate::hosting::Hosts::on_persisted`] gives back.
    pub(crate) fn persist_named(&mut self, name: u64, changes: Vec<Change>) {
        if self.config.durability == Durability::Sync {
            let token = self.hosts.name_batch(0, name);
            self.outputs.push_back(Output::Persist { token, changes });
        }
    }
}

/// Does one of these take the place of that one?
fn is_superseded(these: &[GroupState], state: &GroupState) -> bool {
    these.iter().any(|other| other.epoch > state.epoch && other.range.overlaps(state.range))
}

#[cfg(test)]
#[path = "births_test.rs"]
mod tests;
