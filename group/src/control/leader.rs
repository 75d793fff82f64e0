//! Tasks of the leader: the primaries of the sub-ranges, joins, and established epochs (Scatter §5, Harmony §7.6).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use overlay::{Contact, KeyRange, NodeId, PeerKey, Point};

use crate::ballot::{LogSlot, Term};
use crate::config::{AbleMember, Defect, DivisionView};
use crate::context::{Context, Facts};
use crate::control::liveness::Liveness;
use crate::control::membership::MembershipState;
use crate::control::membership::release::Releases;
use crate::control::state::Entry;
use crate::group::{Group, context, facts};
use crate::message::{Heartbeat, LogMessage, Message, Parting, Progress, Sender};
use crate::outbox::GroupOutput;
use overlay::time::Time;

/// Round trips below this are alike: a scheduler may add as much.
const SHORT: Duration = Duration::from_millis(5);

/// Notes for the leader; every member keeps them, since any may become leader.
#[derive(Clone, Debug)]
pub struct LeaderState {
    /// Terms for which this node last reported that it is complete.
    told: Vec<Term>,
    /// Whether the terms have changed since that report.
    granted_anew: bool,
    /// Whether the leader waits for this node to report its applied slot.
    awaited: bool,
    /// Whether this node is a learner and has reported that it hears a majority of the members.
    pub(crate) told_connections: bool,
    progress: BTreeMap<NodeId, Progress>,
    /// Numbers up to which learners must hold the writes that are made while they copy.
    goals: BTreeMap<(NodeId, Term), u64>,
    /// Peers that want to join, and members to remove.
    pub(crate) membership: MembershipState,
    /// Addresses and names that nodes reported, until the agreed state has them.
    contacts: BTreeMap<NodeId, Contact>,
    /// Nodes that the group released.
    pub(crate) releases: Releases,
    /// Time of the last change of membership or division.
    changed: Time,
    /// Members that this node saw begin to vote, with the time.
    settled: BTreeMap<NodeId, Time>,
    /// Expected remaining lives of members.
    residuals: BTreeMap<NodeId, Duration>,
    /// Times that each member waits for the answers of a majority, while this node leads.
    pub(crate) agreements: BTreeMap<NodeId, Duration>,
    /// Horizon, and the time when it was last raised, as far as this node knows.
    horizon: (u64, Time),
}

/// A member without room for more records.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shortage {
    /// Whether the heartbeats report that this node has no room.
    pub(crate) told: bool,
    /// Whether another member has room: the leader moves this node's sub-ranges there.
    pub(crate) relieved: bool,
}

impl LeaderState {
    /// Creates empty notes. `confirm_after`: [`crate::config::Timing::confirm_after`]. `applied`: the last slot of the agreed state.
    pub fn new(confirm_after: Duration, applied: LogSlot, now: Time) -> LeaderState {
        LeaderState {
            told: Vec::new(),
            granted_anew: true,
            awaited: false,
            told_connections: false,
            progress: BTreeMap::new(),
            goals: BTreeMap::new(),
            membership: MembershipState::new(confirm_after),
            contacts: BTreeMap::new(),
            releases: Releases::new(applied),
            changed: now,
            settled: BTreeMap::new(),
            residuals: BTreeMap::new(),
            agreements: BTreeMap::new(),
            horizon: (0, now),
        }
    }

    /// Takes the progress that a node reported.
    pub fn on_progress(&mut self, from: NodeId, progress: Progress) {
        self.progress.insert(from, progress);
    }

    /// Drops the progress that earlier runs of this peer reported: its store may have lost some of that since.
    pub(crate) fn forget_progress(&mut self, peer: PeerKey) {
        self.progress.retain(|node, _| node.peer != peer);
    }

    /// Takes the changed addresses or name of a node.
    pub fn on_contact(&mut self, contact: Contact) {
        self.contacts.insert(contact.node, contact);
    }

    /// Notes that membership or division changed.
    pub fn on_change(&mut self, now: Time) {
        self.granted_anew = true;
        self.changed = now;
        self.goals.clear();
    }

    /// Notes that these nodes begin to vote.
    pub(crate) fn on_voters(&mut self, nodes: impl Iterator<Item = NodeId>, now: Time) {
        self.settled.extend(nodes.map(|node| (node, now)));
    }

    /// Notes that an entry was applied of which the leader must know whether a majority of the members applied it.
    pub(crate) fn on_awaited(&mut self) {
        self.awaited = true;
    }

    /// Returns when there may be something to do next.
    pub fn next_timeout(&self, ctx: &Context<'_>) -> Time {
        let calm = self.changed + ctx.config.timing.calm;
        let calm = if calm > ctx.now.time { calm } else { Time::NEVER };
        calm.min(self.membership.look_again(ctx.now.time))
    }

    /// Forgets all nodes but these.
    pub fn keep(&mut self, nodes: &[NodeId]) {
        self.progress.retain(|node, _| nodes.contains(node));
        self.goals.retain(|(node, _), _| nodes.contains(node));
        self.contacts.retain(|node, _| nodes.contains(node));
        self.settled.retain(|node, _| nodes.contains(node));
        self.residuals.retain(|node, _| nodes.contains(node));
        self.agreements.retain(|node, _| nodes.contains(node));
        self.membership.keep(nodes);
    }

    /// Returns the number of a term up to which this node holds everything, durably; `None` if it lacks something from before the term.
    pub(crate) fn mark(&self, node: NodeId, term: Term) -> Option<u64> {
        let progress = self.progress.get(&node).filter(|progress| progress.complete.contains(&term))?;
        progress.marks.iter().find(|(known, _)| *known == term).map(|(_, mark)| *mark)
    }

    /// Returns whether this node has reported its progress since it applied this slot.
    pub(crate) fn knows(&self, node: NodeId, slot: LogSlot) -> bool {
        self.progress.get(&node).is_some_and(|progress| progress.applied >= slot)
    }

    /// Returns whether this learner holds, durably, everything chosen before this term. Of the term itself it must hold as much as the
    /// slowest member did when the learner first reported that. Later writes reach it as they reach members; a goal that kept rising
    /// might never be reached.
    pub(crate) fn keeps_up(&mut self, learner: NodeId, members: &[NodeId], term: Term) -> bool {
        let Some(mark) = self.mark(learner, term) else { return false };
        let slowest = || members.iter().filter_map(|member| self.mark(*member, term)).min();
        let goal = match self.goals.get(&(learner, term)) {
            Some(goal) => *goal,
            None => {
                let goal = slowest();
                self.goals.extend(goal.map(|goal| ((learner, term), goal)));
                goal.unwrap_or(0)
            }
        };
        mark >= goal
    }

    /// Returns whether this node holds, durably, everything chosen before each of these terms.
    pub(crate) fn is_complete(&self, node: NodeId, terms: &[Term]) -> bool {
        self.progress.get(&node).is_some_and(|progress| terms.iter().all(|term| progress.complete.contains(term)))
    }

    /// Follows, while this node `leads`, how long each member waits for the answers of a majority: the round trip to the last of the nearest
    /// members that make a majority with it (Scatter §6.2). A moving average over about eight heartbeats, in which one measurement counts
    /// for at most four times the average, for those of other members are single ones.
    pub(crate) fn follow_trips(&mut self, facts: Facts<'_>, leads: bool, liveness: &Liveness) {
        if !leads {
            return self.agreements.clear();
        }
        let quorum = facts.state.quorum();
        for (node, trips) in facts.state.nodes().into_iter().zip(liveness.round_trips(facts)) {
            let mut known: Vec<Duration> = trips.into_iter().flatten().collect();
            known.sort_unstable();
            let Some(measured) = known.get(quorum - 1).copied() else { continue };
            let average = self.agreements.entry(node).or_insert(measured);
            *average = (*average * 7 + measured.min(*average * 4 + SHORT)) / 8;
        }
    }
}

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
        let progress = (!self.recovery.is_asking()).then(|| self.progress());
        let is_durable = self.out.is_durable();
        let heartbeat = Heartbeat {
            applied: self.state.applied,
            leads: self.log.leads_under(),
            chosen: self.log.chosen(self.state.applied),
            echoes: self.liveness.failure_detector.echoes(&hears, self.now.time),
            hears,
            terms: self.primaries.terms(),
            parting: self.liveness.parting,
            sealed: self.acceptor.has_sealed(self.state.epoch),
            wall: self.now.wall,
            sent_us: self.now.time.0 / 1_000,
            agreement_us: self.liveness.agreement_us(facts!(self)),
            doubt: self.recovery.doubt_to_tell(),
            load: self.workload.meter.told(self.config.timing.heartbeat),
            full: self.shortage.told,
            absences: self.liveness.failure_detector.absences(self.liveness.group_time(self.now.time), self.now.time),
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
            self.send_progress(if is_durable { &me } else { &audience }, progress);
            self.tell_contact();
        }
    }

    /// Reports this node's addresses and name to the leader, where the agreed state differs.
    fn tell_contact(&mut self) {
        let mut all = self.state.members.iter().chain(&self.state.learners);
        let Some(known) = all.find(|member| member.node == self.me) else { return };
        // Until the network has reported addresses, those of the last start stand.
        let addresses = if self.addresses.is_empty() { &known.addresses } else { &self.addresses };
        let differs = known.addresses != *addresses || known.name != self.config.name;
        if let Some(leader) = self.log.leader().filter(|_| differs) {
            let contact = Contact { node: self.me, addresses: addresses.clone(), name: self.config.name.clone() };
            self.out.send(&[leader], Message::Contact(contact));
        }
    }

    /// Reports this node's progress where it has changed: newcomers and epochs wait for it.
    ///
    /// All nodes are told that it has everything. The leader is told each step on the way, and that this node applied an entry that the
    /// group waits for. Other members hear of these with the next heartbeat: if all were told at once, a change of n members would cost n
    /// times n messages for each of n sub-ranges.
    pub(crate) fn tell_progress(&mut self) {
        let changed = self.acceptor.take_completeness_changed();
        if self.recovery.is_asking() || !(changed || self.leader.granted_anew || self.leader.awaited) {
            return;
        }
        if changed {
            self.acceptor.drive_catch_up(&mut context!(self), &mut self.table);
        }
        self.leader.granted_anew = false;
        let awaited = core::mem::take(&mut self.leader.awaited);
        let progress = self.progress();
        let is_news = self.leader.told != progress.complete;
        if !is_news && !awaited {
            return;
        }
        let has_everything = progress.complete.len() == self.state.division.len();
        match self.log.leader().filter(|_| !is_news || !has_everything) {
            Some(leader) => self.send_progress(&[leader], progress),
            None => self.send_progress(&self.state.audience(), progress),
        }
    }

    fn progress(&self) -> Progress {
        let parts: Vec<_> = self.state.parts().collect();
        let (complete, marks) = self.acceptor.progress(self.state.epoch, &parts);
        Progress { applied: self.state.applied, complete, marks }
    }

    fn send_progress(&mut self, to: &[NodeId], progress: Progress) {
        self.leader.told.clone_from(&progress.complete);
        self.out.send_after(to, Message::Progress(progress));
    }

    /// Proposes the most urgent entry, if this node leads and no entry is on its way.
    pub(crate) fn lead(&mut self) {
        // Also while an entry is on its way, and where another member leads: the next leader then knows since when the dead are missed.
        self.note_missed();
        if !self.log.leads() {
            return self.leader.membership.rest();
        }
        self.note_learners();
        if self.log.is_busy() {
            // Called again when that entry is chosen.
            return self.leader.membership.rest();
        }
        let dead = self.look_for_dead();
        // The next epoch would abort an open transaction, and would continue to ask former members for records that a majority holds
        // already.
        let is_calm = self.state.transactions.is_calm();
        let entry = self
            .end_sealed(&dead)
            .or_else(|| if is_calm { None } else { self.entry() })
            .or_else(|| self.establish())
            .or_else(|| self.remove_dead(&dead))
            .or_else(|| if is_calm && !dead.gathers { self.entry() } else { None })
            .or_else(|| self.divide())
            .or_else(|| self.next_members(&dead))
            .or_else(|| self.admit())
            .or_else(|| self.update_contact())
            .or_else(|| self.follow_policies())
            .or_else(|| self.drop_learner())
            .or_else(|| self.raise_horizon());
        if let Some(entry) = entry {
            self.propose(entry);
        }
    }

    /// Proposes an entry, even while another one is on its way; does nothing where this node does not lead.
    pub fn propose(&mut self, entry: Entry) {
        if !matches!(entry, Entry::Noop | Entry::Horizon(_)) {
            self.out.push(GroupOutput::Note(alloc::format!("leads the group, and proposes {entry}").into()));
        }
        self.log.propose(&mut context!(self), entry);
    }

    /// Returns the entry for sub-ranges of which a quorum holds everything from before this epoch: there recovery need not look further
    /// back (`docs/design/epochs.md`).
    fn establish(&mut self) -> Option<Entry> {
        if self.state.recovery.is_empty() {
            return None;
        }
        let hurries = self.config.defects.has(Defect::BackToBack)
            && (self.state.learners.iter().any(|learner| self.leader.is_complete(learner.node, &[]))
                || !self.liveness.leaving(facts!(self)).is_empty());
        if self.config.defects.has(Defect::EmptyMembers) || hurries {
            return Some(Entry::Established(self.state.epoch, alloc::vec![self.state.range]));
        }
        let nodes = self.state.nodes();
        let complete = |term: Term| nodes.iter().filter(|node| self.leader.is_complete(**node, &[term])).count();
        let parts = self.state.parts().filter(|(range, _)| self.state.is_open(*range));
        let held = parts.filter(|(_, ballot)| complete(ballot.term) >= self.state.quorum());
        let ranges: Vec<KeyRange> = held.map(|(range, _)| range).collect();
        (!ranges.is_empty()).then_some(Entry::Established(self.state.epoch, ranges))
    }

    /// Divides the range anew: at once where a primary is suspected, restarted or leaving, and by the policy when all is calm.
    fn divide(&mut self) -> Option<Entry> {
        if self.recovery.doubts(self.state.epoch) {
            return None; // The epoch is to end, and a member in doubt would serve nothing.
        }
        let able = self.able();
        let current: Vec<(Point, NodeId)> = self.state.division.iter().map(|part| (part.start, part.node)).collect();
        let kept: Vec<Term> = self
            .state
            .division
            .iter()
            .filter(|part| !self.is_stale(part.node, part.term))
            .map(|part| part.term)
            .collect();
        let unchanged = self.now.time.since(self.leader.changed);
        let (calm, rested) = (unchanged >= self.config.timing.calm, unchanged >= self.config.timing.rested);
        let able: Vec<AbleMember> = able.into_iter().map(|node| self.able_member(node)).collect();
        let load = if calm { self.workload.load(facts!(self), &self.liveness) } else { None };
        let (range, load) = (self.state.range, load.as_deref());
        let policies = &self.state.settings.policies;
        let view = DivisionView { range, current: &current, able: &able, policies, load, calm, rested };
        let proposed = (self.config.divide)(&view);
        if kept.len() == current.len() && proposed.is_none() {
            return None;
        }
        let parts = proposed.unwrap_or(current);
        let kept = if self.config.defects.has(Defect::BallotReuse) {
            self.state.division.iter().map(|part| part.term).collect()
        } else {
            kept
        };
        Some(Entry::Division { parts, kept })
    }

    /// Returns a member that can be primary, as the policy sees it.
    fn able_member(&self, node: NodeId) -> AbleMember {
        let age = self.liveness.age_of(facts!(self), node);
        let voted = self.leader.settled.get(&node).map(|since| self.now.time.since(*since));
        let settled = voted.map_or(age, |voted| voted.min(age));
        let residual = self.leader.residuals.get(&node).copied();
        let (capacity, agreement) =
            (self.workload.capacities.believed(node), self.leader.agreements.get(&node).copied());
        AbleMember { node, age, settled, residual, capacity, agreement }
    }

    /// Sets the expected remaining lives of members for the division policy: their median residual lives, for example. The policy only
    /// compares them. Replaces earlier values; empty where nothing is known.
    pub fn expect_lives(&mut self, residuals: BTreeMap<NodeId, Duration>) {
        self.leader.residuals = residuals;
    }

    /// Returns the members that can be primary, in order. A member without room for records serves only while no member has room, and a
    /// member that leaves for good only while no other member can.
    fn able(&self) -> Vec<NodeId> {
        let stays = |parting| parting == Parting::Stays;
        let is_here = |parting| !matches!(parting, Parting::Stops { .. });
        let able = |here: fn(Parting) -> bool| -> Vec<NodeId> {
            self.state
                .nodes()
                .into_iter()
                .filter(|node| self.liveness.is_able(facts!(self), self.recovery.doubts(self.state.epoch), *node, here))
                .collect()
        };
        let staying = able(stays);
        let roomy: Vec<NodeId> = staying.iter().copied().filter(|node| !self.is_out_of_room(*node)).collect();
        match (roomy.is_empty(), staying.is_empty()) {
            (false, _) => roomy,
            (true, false) => staying,
            (true, true) => able(is_here),
        }
    }

    /// Returns whether this node has no room for more records, as it last reported.
    fn is_out_of_room(&self, node: NodeId) -> bool {
        if node == self.me {
            return self.shortage.told;
        }
        let heartbeat = self.liveness.recent_heartbeat(facts!(self), node);
        heartbeat.is_some_and(|heartbeat| heartbeat.full)
    }

    /// Checks whether this node has room, and tells the other members at once where that has changed.
    pub(crate) fn watch_room(&mut self) {
        let full =
            self.full.is_some() || if self.shortage.told { self.table.is_nearly_full() } else { self.table.is_full() };
        if core::mem::replace(&mut self.shortage.told, full) != full {
            self.liveness.hurry_heartbeat(self.now.time);
        }
        self.shortage.relieved = full && self.has_relief();
    }

    /// Returns whether another member has room, and can take over the sub-ranges of a primary that has none.
    fn has_relief(&self) -> bool {
        let stays = |parting| parting == Parting::Stays;
        let nodes = self.state.nodes().into_iter().filter(|node| *node != self.me);
        nodes.into_iter().any(|node| {
            self.liveness.is_able(facts!(self), self.recovery.doubts(self.state.epoch), node, stays)
                && !self.is_out_of_room(node)
        })
    }

    /// Returns whether this primary does not know, or does not want, its term, although it knows the division.
    fn is_stale(&self, node: NodeId, term: Term) -> bool {
        if node == self.me {
            return !self.primaries.has_term(term);
        }
        self.liveness
            .failure_detector
            .heartbeat(node, self.config.timing.suspicion(), self.now.time)
            .is_some_and(|heartbeat| heartbeat.applied >= term.slot() && !heartbeat.terms.contains(&term))
    }

    fn update_contact(&mut self) -> Option<Entry> {
        let (node, contact) = self.leader.contacts.pop_first()?;
        let mut known = self.state.members.iter().chain(&self.state.learners);
        let differs = known.any(|member| member.node == node && member.contact() != contact);
        differs.then_some(Entry::Contact(contact))
    }

    /// Raises the horizon when it is due: ids of operations are remembered for at least as long as the horizon stands.
    fn raise_horizon(&mut self) -> Option<Entry> {
        let (known, since) = self.leader.horizon;
        if known != self.state.horizon {
            self.leader.horizon = (self.state.horizon, self.now.time);
            return None;
        }
        let due = self.now.time.since(since) >= Duration::from_millis(self.state.settings.horizon_ms);
        due.then_some(Entry::Horizon(self.state.horizon + 1))
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
}
