//! What the leader sees to: who is primary of what, who joins, what is established (Scatter §5, Harmony §7.6).

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use overlay::{NodeId, PeerKey, Point};

use crate::ballot::Term;
use crate::config::{Defect, DivisionView};
use crate::context::Context;
use crate::group::{Group, context};
use crate::message::{Heartbeat, Message, Progress};
use crate::outbox::GroupOutput;
use crate::state::{Entry, Member};
use crate::time::Time;

/// Newcomers that wait to be told of; more are asked to come again (their own repetition does that).
const JOINERS_MAX: usize = 64;
/// Learners at a time: each is told of every write, and is part of the group's state.
const LEARNERS_MAX: usize = 32;
/// A learner that is silent for so long is forgotten.
const LEARNER_SILENCE_MAX: Duration = Duration::from_secs(30);

/// The leader's notes; every member keeps them, since any may come to lead.
#[derive(Clone, Debug)]
pub struct Duties {
    /// The terms that this node last said it is complete for.
    told: Vec<Term>,
    /// The terms that it speaks of are others now.
    granted_anew: bool,
    progress: BTreeMap<NodeId, Progress>,
    joiners: BTreeMap<PeerKey, (Member, Time)>,
    addresses: BTreeMap<NodeId, Vec<String>>,
    /// When membership or division changed last.
    changed: Time,
    /// When the horizon was raised last, as this node knows.
    horizon: (u64, Time),
    /// When each learner was last known to be alive.
    learners_heard: BTreeMap<NodeId, Time>,
}

impl Duties {
    /// Nothing noted yet.
    pub fn new(now: Time) -> Duties {
        Duties {
            told: Vec::new(),
            granted_anew: true,
            progress: BTreeMap::new(),
            joiners: BTreeMap::new(),
            addresses: BTreeMap::new(),
            changed: now,
            horizon: (0, now),
            learners_heard: BTreeMap::new(),
        }
    }

    /// Somebody says how far it has come.
    pub fn on_progress(&mut self, from: NodeId, progress: Progress) {
        self.progress.insert(from, progress);
    }

    /// Somebody's addresses changed.
    pub fn on_addresses(&mut self, from: NodeId, addresses: Vec<String>) {
        self.addresses.insert(from, addresses);
    }

    /// Membership or division changed.
    pub fn on_change(&mut self, now: Time) {
        self.granted_anew = true;
        self.changed = now;
    }

    /// When there may be something to do next.
    pub fn next_timeout(&self, ctx: &Context<'_>) -> Time {
        let calm = self.changed + ctx.config.timing.calm;
        if calm > ctx.now.time { calm } else { Time::NEVER }
    }

    /// Forgets who is gone.
    pub fn keep(&mut self, nodes: &[NodeId]) {
        self.progress.retain(|node, _| nodes.contains(node));
        self.addresses.retain(|node, _| nodes.contains(node));
        self.learners_heard.retain(|node, _| nodes.contains(node));
    }

    /// Does this node hold, durably, everything chosen before each of these terms?
    fn is_complete(&self, node: NodeId, terms: &[Term]) -> bool {
        self.progress.get(&node).is_some_and(|progress| terms.iter().all(|term| progress.complete.contains(term)))
    }
}

impl Group {
    /// Somebody asks to become a member, here or through another member.
    pub(crate) fn on_join(&mut self, joiner: Member) {
        if self.state.last_life(joiner.node.peer).is_some_and(|known| known >= joiner.node) {
            // Told already, or an older life than the group knows: its state tells it all.
            let state = Message::State(alloc::boxed::Box::new(self.state.clone()));
            self.out.send(&[joiner.node], state);
            return;
        }
        if self.log.leads() {
            if self.duties.joiners.len() < JOINERS_MAX || self.duties.joiners.contains_key(&joiner.node.peer) {
                self.duties.joiners.insert(joiner.node.peer, (joiner, self.now.time));
            }
            self.do_duties();
        } else if let Some(leader) = self.log.leader().filter(|leader| *leader != self.me) {
            self.out.send(&[leader], Message::Join(joiner));
        }
    }

    pub(crate) fn send_heartbeat(&mut self) {
        self.heartbeat_due = self.now.time + self.config.timing.heartbeat;
        self.pulse.set_clock(self.now);
        let heartbeat = Heartbeat {
            applied: self.state.applied,
            leads: self.log.leads_under(),
            chosen: self.log.chosen(self.state.applied),
            hears: self.pulse.hears(&self.config.timing, self.now.time),
            terms: self.primaries.keys().map(|ballot| ballot.term).collect(),
            leaving: self.leaving,
            wall: self.now.wall,
        };
        let audience = self.state.audience();
        let others: Vec<NodeId> = audience.into_iter().filter(|node| *node != self.me).collect();
        self.out.send(&others, Message::Heartbeat(heartbeat));
        if self.vouching.is_none() {
            self.send_progress(self.progress());
            self.tell_addresses();
        }
    }

    fn tell_addresses(&mut self) {
        let mut all = self.state.members.iter().chain(&self.state.learners);
        let known = all.find(|member| member.node == self.me).map(|member| &member.addresses);
        if !self.addresses.is_empty()
            && known.is_some_and(|known| *known != self.addresses)
            && let Some(leader) = self.log.leader()
        {
            self.out.send(&[leader], Message::Addresses(self.addresses.clone()));
        }
    }

    /// Says how far this node has come, where that has changed: newcomers and epochs wait for it.
    pub(crate) fn tell_progress(&mut self) {
        if self.vouching.is_some() || !(self.acceptor.take_completeness_changed() || self.duties.granted_anew) {
            return;
        }
        self.duties.granted_anew = false;
        let progress = self.progress();
        if self.duties.told != progress.complete {
            self.send_progress(progress);
        }
    }

    fn progress(&self) -> Progress {
        let parts: Vec<_> = self.state.parts().collect();
        let (complete, marks) = self.acceptor.progress(self.state.epoch, &parts);
        Progress { applied: self.state.applied, complete, marks }
    }

    fn send_progress(&mut self, progress: Progress) {
        self.duties.told.clone_from(&progress.complete);
        let nodes = self.state.nodes();
        self.out.send_after(&nodes, Message::Progress(progress));
    }

    /// Proposes the most urgent thing, if this node leads and nothing is on its way.
    pub(crate) fn do_duties(&mut self) {
        if !self.log.leads() || self.log.is_busy() {
            return;
        }
        let entry = self
            .establish()
            .or_else(|| self.divide())
            .or_else(|| self.next_members())
            .or_else(|| self.admit())
            .or_else(|| self.update_addresses())
            .or_else(|| self.drop_learner())
            .or_else(|| self.raise_horizon());
        if let Some(entry) = entry {
            if !matches!(entry, Entry::Noop | Entry::Horizon(_)) {
                self.out.push(GroupOutput::Note(alloc::format!("leads the group, and proposes {entry}").into()));
            }
            self.log.propose(&mut context!(self), entry);
        }
    }

    /// A quorum holds everything from before this epoch: recovery need not look further back (§6.5 of the design).
    fn establish(&mut self) -> Option<Entry> {
        if self.state.recovery.is_empty() {
            return None;
        }
        let terms: Vec<Term> = self.state.division.iter().map(|part| part.term).collect();
        let complete = self.state.nodes().into_iter().filter(|node| self.duties.is_complete(*node, &terms)).count();
        (complete >= self.state.quorum()).then_some(Entry::Established(self.state.epoch))
    }

    /// Divides the range anew where a primary is suspected, restarted or leaving, at once; evenly when all is calm.
    fn divide(&mut self) -> Option<Entry> {
        let able: Vec<NodeId> = self.state.nodes().into_iter().filter(|node| self.is_able(*node)).collect();
        let current: Vec<(Point, NodeId)> = self.state.division.iter().map(|part| (part.start, part.node)).collect();
        let kept: Vec<Term> = self
            .state
            .division
            .iter()
            .filter(|part| !self.is_stale(part.node, part.term))
            .map(|part| part.term)
            .collect();
        let calm = self.now.time.since(self.duties.changed) >= self.config.timing.calm;
        let view = DivisionView { range: self.state.range, current: &current, able: &able, calm };
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

    /// Can this member be primary: alive, staying, and connected to a quorum?
    fn is_able(&self, node: NodeId) -> bool {
        if node == self.me {
            return !self.leaving;
        }
        let timing = &self.config.timing;
        if self.pulse.suspects(node, timing, self.now.time) {
            return false;
        }
        let Some(heartbeat) = self.pulse.heartbeat(node, timing.suspicion(), self.now.time) else { return false };
        let reached = 1 + heartbeat.hears.iter().filter(|other| self.state.is_member(**other)).count();
        !heartbeat.leaving && reached >= self.state.quorum()
    }

    /// Does this primary not know, or not want to know, of its term, although it knows the division?
    fn is_stale(&self, node: NodeId, term: Term) -> bool {
        if node == self.me {
            return !self.primaries.iter().any(|(ballot, primary)| ballot.term == term && !primary.is_ended());
        }
        self.pulse
            .heartbeat(node, self.config.timing.suspicion(), self.now.time)
            .is_some_and(|heartbeat| heartbeat.applied >= self.state.applied && !heartbeat.terms.contains(&term))
    }

    /// Learners that have caught up become members, in place of older lives of theirs.
    fn next_members(&mut self) -> Option<Entry> {
        let terms: Vec<Term> = self.state.division.iter().map(|part| part.term).collect();
        let ready: Vec<Member> = self
            .state
            .learners
            .iter()
            .filter(|learner| self.duties.is_complete(learner.node, &terms))
            .filter(|learner| !self.pulse.suspects(learner.node, &self.config.timing, self.now.time))
            .cloned()
            .collect();
        if ready.is_empty() {
            return None;
        }
        let replaces = |learner: &Member| self.state.members.iter().any(|m| m.node.peer == learner.node.peer);
        // While the epoch is not established only older lives may be replaced.
        let unsettled = !self.state.recovery.is_empty();
        let coming: Vec<&Member> = ready.iter().filter(|learner| !unsettled || replaces(learner)).collect();
        let stays = |member: &&Member| !coming.iter().any(|learner| learner.node.peer == member.node.peer);
        let mut members: Vec<Member> = self.state.members.iter().filter(stays).cloned().collect();
        members.extend(coming.into_iter().cloned());
        members.sort_by_key(|member| member.node);
        let changed = members.len() != self.state.members.len() || members != self.state.members;
        (changed && self.state.refuses_next(&members).is_none()).then_some(Entry::Next(members))
    }

    fn admit(&mut self) -> Option<Entry> {
        if self.state.learners.len() >= LEARNERS_MAX {
            return None; // Until some have become members, or are forgotten.
        }
        let (_, (mut joiner, asked)) = self.duties.joiners.pop_first()?;
        if self.now.time.since(asked) > self.config.timing.suspicion() {
            return None; // It will ask again, if it still wants to.
        }
        let known = self.state.members.iter().chain(&self.state.learners).any(|member| member.node == joiner.node);
        joiner.joined = self.pulse.group_time(self.now);
        (!known).then_some(Entry::Learner(joiner))
    }

    fn update_addresses(&mut self) -> Option<Entry> {
        let (node, addresses) = self.duties.addresses.pop_first()?;
        let mut known = self.state.members.iter().chain(&self.state.learners);
        let differs = known.any(|member| member.node == node && member.addresses != addresses);
        differs.then_some(Entry::Addresses(node, addresses))
    }

    fn drop_learner(&mut self) -> Option<Entry> {
        let now = self.now.time;
        let mut silent = None;
        for learner in &self.state.learners {
            let heard = self.duties.learners_heard.entry(learner.node).or_insert(now);
            if !self.pulse.suspects(learner.node, &self.config.timing, now) {
                *heard = now;
            } else if now.since(*heard) >= LEARNER_SILENCE_MAX {
                silent = Some(learner.node);
            }
        }
        silent.map(Entry::DropLearner)
    }

    /// Ids of operations are remembered for at least as long as the horizon stands.
    fn raise_horizon(&mut self) -> Option<Entry> {
        let (known, since) = self.duties.horizon;
        if known != self.state.horizon {
            self.duties.horizon = (self.state.horizon, self.now.time);
            return None;
        }
        let due = self.now.time.since(since) >= Duration::from_millis(self.state.settings.horizon_ms);
        due.then_some(Entry::Horizon(self.state.horizon + 1))
    }
}
