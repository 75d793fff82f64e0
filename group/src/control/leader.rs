//! Notes for the leader: the progress, contacts and expected lives of members, established epochs, and the horizon (Scatter §5, Harmony §7.6).
//! What this node itself reports to the leader is noted here, too.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use overlay::{Contact, KeyRange, NodeId, PeerKey};

use crate::ballot::{LogSlot, Term};
use crate::config::Defect;
use crate::context::{Context, Facts};
use crate::control::liveness::Liveness;
use crate::control::log::Log;
use crate::control::membership::MembershipState;
use crate::control::membership::release::Releases;
use crate::control::state::{Entry, EpochConfig, GroupState};
use crate::data::Acceptor;
use crate::message::{Message, Progress};
use crate::outbox::Outbox;
use crate::transaction::plan::{Birth, Plan};
use crate::validate::acceptable;
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
    /// Addresses of this node, as the network reported them; the leader is told until the agreed state has them.
    addresses: Vec<String>,
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
    agreements: BTreeMap<NodeId, Duration>,
    /// Horizon, and the time when it was last raised, as far as this node knows.
    horizon: (u64, Time),
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
            addresses: Vec::new(),
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

    /// Returns the entry for sub-ranges of which a quorum holds everything from before this epoch: there recovery need not look further
    /// back (`docs/design/epochs.md`).
    pub(crate) fn establish(&self, facts: Facts<'_>, liveness: &Liveness) -> Option<Entry> {
        if facts.state.recovery.is_empty() {
            return None;
        }
        let hurries = facts.config.defects.has(Defect::BackToBack)
            && (facts.state.learners.iter().any(|learner| self.is_complete(learner.node, &[]))
                || !liveness.leaving(facts).is_empty());
        if facts.config.defects.has(Defect::EmptyMembers) || hurries {
            return Some(Entry::Established(facts.state.epoch, alloc::vec![facts.state.range]));
        }
        let nodes = facts.state.nodes();
        let complete = |term: Term| nodes.iter().filter(|node| self.is_complete(**node, &[term])).count();
        let parts = facts.state.parts().filter(|(range, _)| facts.state.is_open(*range));
        let held = parts.filter(|(_, ballot)| complete(ballot.term) >= facts.state.quorum());
        let ranges: Vec<KeyRange> = held.map(|(range, _)| range).collect();
        (!ranges.is_empty()).then_some(Entry::Established(facts.state.epoch, ranges))
    }

    /// Returns the entry that takes over changed addresses or a changed name.
    pub(crate) fn update_contact(&mut self, facts: Facts<'_>) -> Option<Entry> {
        let (node, contact) = self.contacts.pop_first()?;
        let mut known = facts.state.members.iter().chain(&facts.state.learners);
        let differs = known.any(|member| member.node == node && member.contact() != contact);
        differs.then_some(Entry::Contact(contact))
    }

    /// Raises the horizon when it is due: ids of operations are remembered for at least as long as the horizon stands.
    pub(crate) fn raise_horizon(&mut self, facts: Facts<'_>) -> Option<Entry> {
        let (known, since) = self.horizon;
        if known != facts.state.horizon {
            self.horizon = (facts.state.horizon, facts.now);
            return None;
        }
        let due = facts.now.since(since) >= Duration::from_millis(facts.state.settings.horizon_ms);
        due.then_some(Entry::Horizon(facts.state.horizon + 1))
    }

    /// Returns whether each group to be born gets a majority of its members from these members of this group alive, here and with all data.
    /// A group born of dead members stays dead (`docs/design/transactions.md`). Each group answers for its own members.
    pub(crate) fn are_able(&self, facts: Facts<'_>, liveness: &Liveness, plan: &Plan, members: &[NodeId]) -> bool {
        let hears = liveness.hears(facts);
        let terms: Vec<Term> = facts.state.division.iter().map(|part| part.term).collect();
        let is_able = |node: &NodeId| (*node == facts.me || hears.contains(node)) && self.is_complete(*node, &terms);
        plan.births.iter().all(|birth| {
            let own = own_members(birth, members);
            own.is_empty() || own.iter().filter(|node| is_able(node)).count() > own.len() / 2
        })
    }

    /// Returns whether members may leave, so that only these are left. They may not where this group has begun an open transaction, or
    /// voted for it, and a group to be born would lose its majority: of its members among these, at most half are alive, here and with all
    /// data.
    pub(crate) fn leaves_able(&self, facts: Facts<'_>, liveness: &Liveness, members: &[NodeId]) -> bool {
        let transactions = &facts.state.transactions;
        let mut open = transactions.coordinates().into_iter().chain(transactions.voted());
        open.all(|(_, plan)| self.are_able(facts, liveness, plan, members))
    }

    /// Returns the configurations without whose majorities no operation is answered in some sub-range: the group's own, and former ones
    /// that recovery asks there, unless this member or one that it hears has reported that it stores everything that they did.
    pub(crate) fn needed_configs(&self, facts: Facts<'_>, liveness: &Liveness) -> Vec<EpochConfig> {
        let (state, mut hears) = (facts.state, liveness.hears(facts));
        hears.push(facts.me);
        let has_all = |term: Term| hears.iter().any(|node| state.is_member(*node) && self.is_complete(*node, &[term]));
        let waiting: Vec<KeyRange> =
            state.parts().filter(|(_, ballot)| !has_all(ballot.term)).map(|(part, _)| part).collect();
        let mut configs = state.configs(state.range);
        configs.retain(|config| config.epoch == state.epoch || waiting.iter().any(|part| config.matters_in(*part)));
        configs
    }

    /// Returns for how long membership and division have not changed.
    pub(crate) fn unchanged_for(&self, now: Time) -> Duration {
        now.since(self.changed)
    }

    /// Returns for how long a member has voted, if this node saw it begin.
    pub(crate) fn voted_for(&self, node: NodeId, now: Time) -> Option<Duration> {
        self.settled.get(&node).map(|since| now.since(*since))
    }

    /// Returns the expected remaining life of a member, if it is known.
    pub(crate) fn expected_life(&self, node: NodeId) -> Option<Duration> {
        self.residuals.get(&node).copied()
    }

    /// Sets the expected remaining lives of members for the division policy. Replaces earlier values.
    pub(crate) fn expect_lives(&mut self, residuals: BTreeMap<NodeId, Duration>) {
        self.residuals = residuals;
    }

    /// Returns how long a member waits for the answers of a majority, if it is known and this node leads.
    pub(crate) fn agreement_of(&self, node: NodeId) -> Option<Duration> {
        self.agreements.get(&node).copied()
    }

    /// Sets the addresses of this node, as the network reported them.
    pub(crate) fn set_addresses(&mut self, addresses: Vec<String>) {
        self.addresses = acceptable(addresses);
    }

    /// Returns whether the leader may need a new report of this node's progress.
    pub(crate) fn has_news(&self) -> bool {
        self.granted_anew || self.awaited
    }

    /// Reports this node's progress where it has changed.
    ///
    /// All nodes are told that it has everything. The leader is told each step on the way, and that this node applied an entry that the
    /// group waits for. Other members hear of these with the next heartbeat: if all were told at once, a change of n members would cost n
    /// times n messages for each of n sub-ranges.
    pub(crate) fn tell_progress(&mut self, ctx: &mut Context<'_>, log: &Log, acceptor: &Acceptor) {
        self.granted_anew = false;
        let awaited = core::mem::take(&mut self.awaited);
        let progress = Progress::of(ctx.state, acceptor);
        let is_news = self.told != progress.complete;
        if !is_news && !awaited {
            return;
        }
        let has_everything = progress.complete.len() == ctx.state.division.len();
        match log.leader().filter(|_| !is_news || !has_everything) {
            Some(leader) => self.send_progress(ctx.out, &[leader], progress),
            None => self.send_progress(ctx.out, &ctx.state.audience(), progress),
        }
    }

    /// Sends this node's progress, once it is durable.
    pub(crate) fn send_progress(&mut self, out: &mut Outbox, to: &[NodeId], progress: Progress) {
        self.told.clone_from(&progress.complete);
        out.send_after(to, Message::Progress(progress));
    }

    /// Reports this node's addresses and name to the leader, where the agreed state differs.
    pub(crate) fn tell_contact(&self, ctx: &mut Context<'_>, log: &Log) {
        let mut all = ctx.state.members.iter().chain(&ctx.state.learners);
        let Some(known) = all.find(|member| member.node == ctx.me) else { return };
        // Until the network has reported addresses, those of the last start stand.
        let addresses = if self.addresses.is_empty() { &known.addresses } else { &self.addresses };
        let differs = known.addresses != *addresses || known.name != ctx.config.name;
        if let Some(leader) = log.leader().filter(|_| differs) {
            let contact = Contact { node: ctx.me, addresses: addresses.clone(), name: ctx.config.name.clone() };
            ctx.out.send(&[leader], Message::Contact(contact));
        }
    }

    /// Takes over the notes that count in a group that is born of this one.
    pub(crate) fn inherit(&mut self, parent: &LeaderState) {
        self.membership.removals = parent.membership.removals.clone();
        self.addresses.clone_from(&parent.addresses);
    }
}

impl Progress {
    /// Returns the progress of this node.
    pub(crate) fn of(state: &GroupState, acceptor: &Acceptor) -> Progress {
        let parts: Vec<_> = state.parts().collect();
        let (complete, marks) = acceptor.progress(state.epoch, &parts);
        Progress { applied: state.applied, complete, marks }
    }
}

/// Returns the members of a group that the group to be born gets.
pub(crate) fn own_members(birth: &Birth, members: &[NodeId]) -> Vec<NodeId> {
    birth.members.iter().map(|contact| contact.node).filter(|node| members.contains(node)).collect()
}
