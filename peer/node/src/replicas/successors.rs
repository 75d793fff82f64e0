//! Successors: the knowledge of a node about the groups that succeed its own (Scatter §4). [`crate::replicas::births`] begins its part in
//! them.
//!
//! A node that knows the last states of all groups that a transaction touched works out by itself which groups are born. A late node is
//! told the present groups by one of their members, and cuts its own data to fit.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use group::Group;
use group::config::Defect;
use group::control::state::GroupState;
use group::message::{AttemptOutcome, ClientMessage, ClientOperation, Message, Sender};
use group::transaction::TransactionId;
use group::transaction::successor::birth::births;
use group::transaction::successor::handover::{Handover, Inheritance};
use overlay::time::Time;
use overlay::{Epoch, GroupId, GroupRef, KeyRange, NodeId, PeerKey};

use crate::api::Event;
use crate::context::Context;
use crate::replicas::{LocalReplica, LocalReplicas, ReplicaSerial};
use crate::routing::RoutingTable;

/// Upper limit of other groups' last states that are kept until their successors are born.
const FINALS_MAX: usize = 16;
/// Upper limit of groups that are known to have a part of this node's range, kept until the rest is known.
const PENDING_MAX: usize = 16;
/// Upper limit of early messages of groups that are not born here yet.
const EARLY_MAX: usize = 128;
/// Upper limit of sub-ranges that primaries hand over, kept until their new group is born.
const HANDED_MAX: usize = 64;
/// Time between two questions for last states.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Upper limit of peers for which the time of the last correction is remembered.
const TOLD_MAX: usize = 1024;

/// Last state of each group that a transaction ended, and the groups that are born of them.
pub(crate) struct Birth {
    pub(crate) id: TransactionId,
    pub(crate) born: Vec<GroupState>,
    pub(crate) inheritance: Inheritance,
    /// The groups that ended.
    pub(crate) touched: Vec<GroupId>,
    pub(crate) finals: Vec<GroupState>,
}

/// Knowledge about groups that succeed those of this node.
#[derive(Default)]
pub(crate) struct Successors {
    /// Groups in which this node's part is over, and the event to report; `None` if the node left.
    pub(crate) departed: Vec<(ReplicaSerial, Option<Event>)>,
    /// Whether a group has ended, or the last state of one has arrived.
    pub(crate) birth_wanted: bool,
    /// Last states of groups that this node has no part in, from which a group is still to be born.
    finals: BTreeMap<GroupId, GroupState>,
    /// Last states of groups that other nodes may still need, the oldest first.
    pub(crate) kept: Vec<GroupState>,
    /// Groups, as other nodes report them, that succeed groups of this node, together with groups that this node does not know
    /// yet.
    pending: Vec<GroupState>,
    /// Time since which `pending` is not empty.
    pending_since: Time,
    /// Time of the next question for last states.
    finals_due: Time,
    /// Time at which each late peer was last told the groups that are here.
    told: BTreeMap<PeerKey, Time>,
    /// First messages of groups in which other nodes began their part before this node did.
    early: Vec<(GroupId, Sender, Message)>,
    /// Handovers of primaries of groups that are about to end.
    handed: Vec<(GroupId, Handover)>,
}

impl Successors {
    /// Creates the knowledge of a process that begins now.
    pub(crate) fn new(now: Time) -> Successors {
        Successors { pending_since: now, finals_due: now, ..Successors::default() }
    }

    /// Returns whether a group may soon be born in which this node will have a part.
    pub(crate) fn expects_birth(&self, replicas: &LocalReplicas) -> bool {
        self.awaits_birth(replicas) || replicas.living().any(|group| !group.state().transactions.is_calm())
    }

    /// Returns whether a group here is over and not all of its successors are born.
    pub(crate) fn awaits_birth(&self, replicas: &LocalReplicas) -> bool {
        let is_over = |replica: &LocalReplica| replica.over.is_some() || replica.group.state().ended.is_some();
        !self.pending.is_empty() || replicas.all.iter().any(is_over)
    }

    /// Returns whether last states are to be asked for now, while a birth is awaited; if so, the next time is later.
    pub(crate) fn is_due(&mut self, replicas: &LocalReplicas, now: Time) -> bool {
        let is_due = now >= self.due(replicas);
        if is_due {
            self.finals_due = now + ASK_AGAIN;
        }
        is_due
    }

    /// Returns the time at which last states are to be asked for.
    pub(crate) fn due(&self, replicas: &LocalReplicas) -> Time {
        if self.awaits_birth(replicas) { self.finals_due } else { Time::NEVER }
    }

    /// Forgets the pending groups that take the place of no group here any more.
    pub(crate) fn forget_pending(&mut self, replicas: &LocalReplicas) {
        let is_old = |state: &GroupState| {
            let older = |group: &Group| group.state().epoch < state.epoch && group.state().range.overlaps(state.range);
            !replicas.living().any(older)
        };
        self.pending.retain(|state| !is_old(state));
    }

    /// Returns the next birth, if all that it needs is known.
    pub(crate) fn next_birth(&mut self, cx: &mut Context<'_>) -> Option<Birth> {
        let ended: Vec<_> = cx.replicas.all.iter().filter_map(|replica| replica.group.state().ending()).collect();
        for (id, plan) in ended {
            let finals: Vec<&GroupState> =
                plan.touched().filter_map(|party| self.last_state(cx.replicas, party.group.id, id)).collect();
            if finals.len() < plan.touched().count() {
                continue;
            }
            let Some(born) = births(id, plan, &finals, cx.config.defects) else {
                self.doubt_finals(cx, id);
                return None;
            };
            let mut inheritance = Inheritance::of(&finals);
            let own = cx.replicas.all.iter().flat_map(|replica| {
                replica.group.handovers().iter().map(|handover| (replica.group.state().id, handover))
            });
            let told = self.handed.iter().map(|(group, handover)| (*group, handover));
            for (group, handover) in own.chain(told) {
                inheritance.take(group, handover);
            }
            let touched: Vec<GroupId> = finals.iter().map(|last| last.id).collect();
            let finals: Vec<GroupState> = finals.into_iter().cloned().collect();
            return Some(Birth { id, born, inheritance, touched, finals });
        }
        None
    }

    /// Forgets the last states that other nodes reported, since no groups can have ended like this. They are asked for again.
    fn doubt_finals(&mut self, cx: &mut Context<'_>, id: TransactionId) {
        let before = self.finals.len();
        self.finals.retain(|_, last| last.ended != Some(id));
        let doubted = before - self.finals.len();
        *cx.frames_dropped += doubted as u64;
        if doubted > 0 {
            let note = "received impossible final states of predecessor groups: asks again";
            cx.event(Event::Note(note.into()));
        }
    }

    /// Keeps last states that other nodes may still need, and that may be nowhere else.
    pub(crate) fn keep_finals(&mut self, cx: &mut Context<'_>, finals: Vec<GroupState>) {
        // The last state of a group that was alone is known to each of its members.
        if finals.len() < 2 {
            return;
        }
        self.kept.retain(|known| finals.iter().all(|last| last.id != known.id));
        self.kept.extend(finals);
        let excess = self.kept.len().saturating_sub(FINALS_MAX);
        self.kept.drain(..excess);
        let changes = alloc::vec![cx.space().finals(&self.kept)];
        cx.persist_own(changes);
    }

    /// Forgets the last states and handovers of these groups, whose successors are born.
    pub(crate) fn forget(&mut self, ended: &[GroupId]) {
        ended.iter().for_each(|group| drop(self.finals.remove(group)));
        self.handed.retain(|(group, _)| !ended.contains(group));
    }

    /// Sends a group's last state of that epoch or a later one, if it is kept. Returns whether it is.
    pub(crate) fn tell_final(&mut self, cx: &mut Context<'_>, of: GroupId, epoch: Epoch, node: NodeId) -> bool {
        let last = self.kept.iter().find(|last| last.id == of && last.epoch >= epoch).cloned();
        let is_kept = last.is_some();
        if let Some(last) = last {
            let epoch = last.epoch;
            cx.send_as(of, &[node], Message::State(Box::new(last)), epoch);
        }
        is_kept
    }

    /// Returns the state with which this group ended in that transaction, if it is known.
    fn last_state<'a>(
        &'a self,
        replicas: &'a LocalReplicas,
        group: GroupId,
        id: TransactionId,
    ) -> Option<&'a GroupState> {
        let here = replicas.all.iter().map(|replica| replica.group.state());
        here.chain(self.finals.values()).find(|state| state.id == group && state.ended == Some(id))
    }

    /// Takes the last state of another group, if this node waits for it or may soon do so.
    pub(crate) fn take_final(&mut self, replicas: &LocalReplicas, state: GroupState) {
        let wanted = |replica: &LocalReplica| {
            let plan = replica.group.state().ending().filter(|(id, _)| Some(*id) == state.ended);
            plan.is_some_and(|(_, plan)| plan.party(state.id).is_some())
        };
        // The last state of another group whose transaction is still open here is kept until this node's own group has ended too.
        let is_near = replicas.living().any(|group| {
            let transactions = &group.state().transactions;
            transactions.voted().chain(transactions.coordinates()).any(|(id, _)| Some(id) == state.ended)
        });
        if (is_near || replicas.all.iter().any(wanted)) && self.finals.len() < FINALS_MAX {
            self.finals.insert(state.id, state);
            self.birth_wanted = true;
        }
    }

    /// Notes a group that has a part of this node's range.
    pub(crate) fn note_pending(&mut self, now: Time, state: GroupState) {
        if self.pending.is_empty() {
            self.pending_since = now;
        }
        self.pending.retain(|known| !known.range.overlaps(state.range) || known.epoch > state.epoch);
        if self.pending.len() < PENDING_MAX {
            self.pending.push(state);
        }
    }

    /// Takes out the pending groups that the node goes over to, once they take the place of all groups here: a node that knew half of them
    /// would never learn the rest.
    pub(crate) fn take_ready(&mut self, cx: &mut Context<'_>) -> Vec<GroupState> {
        let is_whole = |state: &GroupState| {
            let older = cx.replicas.all.iter().map(|replica| replica.group.state());
            let mut older = older.filter(|older| older.epoch < state.epoch && older.range.overlaps(state.range));
            older.all(|older| {
                let mut rest = cx.replicas.rest(older.range, older.epoch);
                for known in self.pending.iter().filter(|known| known.epoch > older.epoch) {
                    rest = rest.into_iter().flat_map(|piece| piece.without([known.range])).collect();
                }
                rest.is_empty()
            })
        };
        let (ready, rest): (Vec<GroupState>, Vec<GroupState>) = self.pending.iter().cloned().partition(is_whole);
        // A member that is in none of the pending groups may have been moved elsewhere: the last states, which it asks for, tell.
        let here = || cx.replicas.living().map(Group::state).filter(|state| state.is_member(cx.me));
        let stays = here().any(|state| !is_superseded(&ready, state));
        let has_place = |state: &GroupState| state.is_member(cx.me) || state.is_learner(cx.me);
        let goes = here().count() > 0 && !stays && !ready.iter().any(has_place);
        let patience = cx.config.timing.heartbeat * cx.config.timing.missed_max;
        if goes && cx.now.time.since(self.pending_since) < patience {
            return Vec::new();
        }
        self.pending = rest;
        ready
    }

    /// Handles the handover of a primary whose group ends, or may end. The succeeding group may have begun already.
    pub(crate) fn on_handover(&mut self, cx: &mut Context<'_>, of: GroupId, sender: Sender, handover: Handover) {
        if handover.check(sender.node).is_err() {
            cx.drop_frame();
            return;
        }
        for group in cx.replicas.living_mut() {
            group.on_handover(of, &handover);
        }
        self.handed.retain(|(group, known)| (*group, known.ballot) != (of, handover.ballot));
        if may_follow(cx.replicas, of, sender.node) && self.handed.len() < HANDED_MAX {
            self.handed.push((of, handover));
        }
    }

    /// Keeps a message that begins an epoch, if a birth is expected. Other members can be faster: a message that is not heard now would be
    /// repeated much later. It is held once.
    pub(crate) fn hold_early(&mut self, cx: &mut Context<'_>, to: GroupId, sender: Sender, message: &Message) {
        if !message.begins_epoch() || !self.expects_birth(cx.replicas) {
            return;
        }
        let early = (to, sender, message.clone());
        self.early.retain(|held| *held != early);
        if self.early.len() >= EARLY_MAX {
            let oldest = self.early.remove(0);
            answer_unknown(cx, oldest);
        }
        self.early.push(early);
    }

    /// Handles operations for a primary of a group in which this node has no part. Those that a group to be born here may take are kept; the
    /// others are answered *unknown*.
    pub(crate) fn on_foreign_operations(
        &mut self,
        cx: &mut Context<'_>,
        to: GroupId,
        sender: Sender,
        operations: Vec<ClientOperation>,
    ) {
        // An operation that is answered *unknown* may still be executed, as far as its sender can tell, and the sender would have
        // to wait for the end of the very ballot that is about to begin here.
        let holds = self.early.len() < EARLY_MAX && self.expects_birth(cx.replicas);
        let is_early = |operation: &ClientOperation| holds && is_to_come(cx.replicas, operation);
        let (early, foreign): (Vec<_>, Vec<_>) = operations.into_iter().partition(is_early);
        let asked = |operations| Message::Client(ClientMessage { operations, outcomes: Vec::new() });
        if !early.is_empty() {
            self.early.push((to, sender, asked(early)));
        }
        answer_unknown(cx, (to, sender, asked(foreign)));
    }

    /// Takes out the early messages of a group that is born.
    pub(crate) fn take_early(&mut self, born: GroupId) -> impl Iterator<Item = (Sender, Message)> {
        self.early.extract_if(.., move |(group, ..)| *group == born).map(|(_, sender, message)| (sender, message))
    }

    /// Drops the kept handovers and early messages if no birth is expected any more: no other group will take them. Operations among them
    /// are answered *unknown*.
    pub(crate) fn release_early(&mut self, cx: &mut Context<'_>) {
        if !self.expects_birth(cx.replicas) {
            self.handed.clear();
            core::mem::take(&mut self.early).into_iter().for_each(|early| answer_unknown(cx, early));
        }
    }

    /// Asks for the last states of other groups that births wait for. Asks former members of this node's groups for the successors.
    pub(crate) fn ask_for_finals(&mut self, cx: &mut Context<'_>, routing: &mut RoutingTable) {
        if cx.config.defects.has(Defect::ToldOnce) {
            return;
        }
        let mut asked: Vec<(GroupId, Epoch, Vec<NodeId>)> = Vec::new();
        for replica in &cx.replicas.all {
            let state = replica.group.state();
            let others = state.nodes().into_iter().filter(|node| *node != cx.me).collect();
            match state.ending() {
                Some((id, plan)) => {
                    for party in
                        plan.touched().filter(|party| self.last_state(cx.replicas, party.group.id, id).is_none())
                    {
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
            cx.replicas.all.iter().any(older) && !self.pending.iter().any(|known| known.id == beside.id)
        };
        for known in self.pending.iter().chain(cx.replicas.living().map(Group::state)) {
            let beside = known.transactions.neighbours();
            asked.extend(beside.filter(is_lacking).map(|beside| (beside.id, Epoch(0), beside.nodes().collect())));
        }
        let rests: Vec<KeyRange> =
            cx.replicas.all.iter().filter_map(|replica| replica.over.clone()).flatten().collect();
        rests.iter().for_each(|rest| routing.want(rest.start(), cx.now.time));
        let known = rests.iter().flat_map(|rest| routing.hints.overlapping(*rest));
        let known: BTreeMap<GroupId, GroupRef> = known.map(|group| (group.id, group)).collect();
        asked.extend(known.values().filter(is_lacking).map(|group| (group.id, Epoch(0), group.nodes().collect())));
        for (group, epoch, nodes) in asked {
            cx.send_as(group, &nodes, Message::AskState, epoch);
        }
    }

    /// Returns whether a pending group takes the place of a part of this one.
    fn is_pending(&self, state: &GroupState) -> bool {
        self.pending.iter().any(|known| known.epoch > state.epoch && known.range.overlaps(state.range))
    }

    /// Returns whether a late node may be corrected now: not with each of its messages.
    pub(crate) fn may_tell(&mut self, cx: &mut Context<'_>, node: NodeId) -> bool {
        let last = self.told.get(&node.peer).copied();
        let soon = cx.config.timing.heartbeat / 10;
        if last.is_some_and(|last| cx.now.time.since(last) < soon) {
            return false;
        }
        if self.told.len() >= TOLD_MAX {
            self.told.clear();
        }
        self.told.insert(node.peer, cx.now.time);
        true
    }

    pub(crate) fn tell_heirs(&mut self, cx: &mut Context<'_>, of: GroupId, node: NodeId) {
        if !self.may_tell(cx, node) {
            return;
        }
        let heirs: Vec<GroupState> = cx.replicas.heirs_of(of).map(|group| group.state().clone()).collect();
        for state in heirs {
            let (id, epoch) = (state.id, state.epoch);
            cx.send_as(id, &[node], Message::State(Box::new(state)), epoch);
        }
    }
}

/// Answers *unknown* to operations for a group in which this node has no part: it cannot tell their outcome.
fn answer_unknown(cx: &mut Context<'_>, (to, sender, message): (GroupId, Sender, Message)) {
    let Message::Client(message) = message else { return };
    let outcomes: Vec<_> =
        message.operations.iter().map(|operation| (operation.attempt, AttemptOutcome::Unknown)).collect();
    if !outcomes.is_empty() {
        let message = ClientMessage { operations: Vec::new(), outcomes };
        cx.send_as(to, &[sender.node], Message::Client(message), Epoch(0));
    }
}

/// Returns whether a group may soon be born here that inherits data of this member of that group, as far as is known.
fn may_follow(replicas: &LocalReplicas, of: GroupId, node: NodeId) -> bool {
    let states = || replicas.all.iter().map(|replica| replica.group.state());
    let open =
        states().flat_map(|state| state.transactions.coordinates().into_iter().chain(state.transactions.voted()));
    let mut plans = open.chain(states().filter_map(GroupState::ending)).map(|(_, plan)| plan);
    plans.any(|plan| {
        plan.party(of).is_some_and(|party| party.touched && party.group.nodes().any(|member| member == node))
    })
}

/// Returns whether the operation is for a primary of a later epoch than all groups that this node has, or had, at that point.
fn is_to_come(replicas: &LocalReplicas, operation: &ClientOperation) -> bool {
    let (point, ballot) = (operation.key.point(), operation.ballot);
    let here = || replicas.all.iter().map(|replica| replica.group.state());
    ballot.is_some_and(|ballot| {
        here().filter(|state| state.range.contains(point)).all(|state| state.epoch < ballot.epoch)
    })
}

/// Returns whether one of these groups takes the place of `state`.
fn is_superseded(these: &[GroupState], state: &GroupState) -> bool {
    these.iter().any(|other| other.epoch > state.epoch && other.range.overlaps(state.range))
}
