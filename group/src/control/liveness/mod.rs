//! Liveness of members: which of them are heard, how far away they are, and what time it is for the group.

pub(crate) mod distances;
pub(crate) mod failure_detector;
pub(crate) mod group_clock;
pub mod round_trip;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use overlay::{NodeId, PeerKey};

use crate::config::Defect;
use crate::context::Facts;
use crate::control::history::{FAILURES_MAX, History};
use crate::control::liveness::failure_detector::FailureDetector;
use crate::control::liveness::group_clock::GroupClock;
use crate::control::membership::is_life_of;
use crate::control::recovery::doubt::Doubt;
use crate::control::state::Member;
use crate::message::{Heartbeat, Parting, Sender};
use overlay::time::{Now, Time, WallMillis};

/// Signs of life: those of the other nodes, and the heartbeats by which this node gives its own.
#[derive(Clone, Debug)]
pub(crate) struct Liveness {
    pub(crate) failure_detector: FailureDetector,
    clock: GroupClock,
    /// Departure that this node announces.
    parting: Parting,
    /// Session history that this peer reports.
    history: Option<History>,
    /// Time of this node's next heartbeat.
    heartbeat_due: Time,
    /// Nodes that the last heartbeat listed as heard.
    heard: Vec<NodeId>,
}

impl Liveness {
    /// Begins with a heartbeat that is due, and without any sign of life.
    pub(crate) fn new(now: Time) -> Liveness {
        Liveness {
            failure_detector: FailureDetector::default(),
            clock: GroupClock::default(),
            parting: Parting::Stays,
            history: None,
            heartbeat_due: now,
            heard: Vec::new(),
        }
    }

    /// Returns the signs of life for a group that is born of this one.
    pub(crate) fn heir(&self, now: Time) -> Liveness {
        Liveness {
            failure_detector: self.failure_detector.clone(),
            clock: self.clock.clone(),
            parting: self.parting,
            ..Liveness::new(now)
        }
    }

    /// Watches exactly these nodes.
    pub(crate) fn watch(&mut self, others: &[NodeId], now: Time) {
        self.failure_detector.watch(others, now);
        self.clock.keep(others);
    }

    /// Takes a heartbeat.
    pub(crate) fn on_heartbeat(&mut self, facts: Facts<'_>, from: Sender, heartbeat: Heartbeat) {
        let (wall, group_time) = (heartbeat.wall, self.group_time(facts.now));
        let timing = &facts.config.timing;
        if self.failure_detector.on_heartbeat(facts.me, from, heartbeat, group_time, facts.now, timing) {
            self.clock.on_heartbeat(from.node, wall, facts.now);
        }
    }

    /// Notes that a peer's last connection closed.
    pub(crate) fn on_broken(&mut self, peer: PeerKey, now: Time) {
        self.failure_detector.on_broken(peer, now);
    }

    /// Announces a departure of this node, at once.
    pub(crate) fn announce(&mut self, parting: Parting, now: Time) {
        self.parting = parting;
        self.hurry_heartbeat(now);
    }

    /// Returns the departure that this node announces.
    pub(crate) fn own_parting(&self) -> Parting {
        self.parting
    }

    /// Sets this peer's own history, for its heartbeats; `None` where it has none. More than [`FAILURES_MAX`] failures count as that
    /// number.
    pub(crate) fn set_history(&mut self, history: Option<History>) {
        self.history = history.map(|known| History { failures: known.failures.min(FAILURES_MAX), ..known });
    }

    /// Returns the history in a node's last heartbeat, or in this node's next one; `None` where the node has no history, or was not heard
    /// yet.
    pub(crate) fn told_history(&self, me: NodeId, node: NodeId) -> Option<History> {
        match node == me {
            true => self.history,
            false => self.failure_detector.last_heartbeat(node)?.history,
        }
    }

    /// Sends the next heartbeat at once.
    pub(crate) fn hurry_heartbeat(&mut self, now: Time) {
        self.heartbeat_due = now;
    }

    /// Returns when the next heartbeat is due.
    pub(crate) fn heartbeat_due(&self) -> Time {
        self.heartbeat_due
    }

    /// Notes that this node sends a heartbeat now: schedules the next one, and sets the group time.
    pub(crate) fn on_own_heartbeat(&mut self, now: Now, interval: Duration) {
        self.heartbeat_due = now.time + interval;
        self.clock.set(now);
    }

    /// Returns the nodes that the heartbeat of this moment lists as heard.
    pub(crate) fn list_heard(&mut self, facts: Facts<'_>) -> Vec<NodeId> {
        self.heard = self.hears(facts);
        self.heard.clone()
    }

    /// Returns the group time.
    pub(crate) fn group_time(&self, now: Time) -> WallMillis {
        self.clock.group_time(now)
    }

    /// Returns the other nodes that are alive, as far as this node can tell.
    pub(crate) fn hears(&self, facts: Facts<'_>) -> Vec<NodeId> {
        self.failure_detector.hears(&facts.config.timing, facts.now)
    }

    /// Returns whether another node has been silent for too long.
    pub(crate) fn suspects(&self, facts: Facts<'_>, node: NodeId) -> bool {
        self.failure_detector.suspects(node, &facts.config.timing, facts.now)
    }

    /// Returns the last heartbeat of another node, if it is recent.
    pub(crate) fn recent_heartbeat(&self, facts: Facts<'_>, node: NodeId) -> Option<&Heartbeat> {
        self.failure_detector.heartbeat(node, facts.config.timing.suspicion(), facts.now)
    }

    /// Returns whether this node hears the members that its last heartbeat listed. Learners and former members come and go without a
    /// heartbeat of their own: the leader counts opinions about members only.
    pub(crate) fn hears_as_told(&self, facts: Facts<'_>) -> bool {
        let is_voter = |node: &NodeId| facts.state.is_member(*node);
        let now = self.failure_detector.those_heard(&facts.config.timing, facts.now).filter(is_voter);
        now.eq(self.heard.iter().copied().filter(is_voter))
    }

    /// Returns whether a majority of the members, this one included, sent heartbeats to the group within the failure detection interval.
    ///
    /// Stricter than [`Liveness::hears_majority`]: a former member may still answer messages to the group.
    pub(crate) fn has_heartbeats_of_majority(&self, facts: Facts<'_>) -> bool {
        let beats = |node: &NodeId| *node == facts.me || self.recent_heartbeat(facts, *node).is_some();
        facts.state.nodes().iter().filter(|node| beats(node)).count() >= facts.state.quorum()
    }

    /// Returns whether this node and the nodes that it hears are a majority of the members.
    pub(crate) fn hears_majority(&self, facts: Facts<'_>) -> bool {
        let hears = self.hears(facts);
        let is_here = |node: &NodeId| *node == facts.me || hears.contains(node);
        facts.state.nodes().iter().filter(|node| is_here(node)).count() >= facts.state.quorum()
    }

    /// Returns whether this node, counted as a member, hears a majority.
    pub(crate) fn is_connected(&self, facts: Facts<'_>) -> bool {
        let heard = self.hears(facts);
        1 + heard.iter().filter(|node| facts.state.is_member(**node)).count() >= facts.state.quorum()
    }

    /// Returns whether another member can take over the sub-ranges of this one: this member hears a majority, and another member that does
    /// not stop as well.
    pub(crate) fn has_successor(&self, facts: Facts<'_>) -> bool {
        let stops = |node| matches!(self.parting_of(facts, node), Some(Parting::Stops { .. }));
        self.is_connected(facts)
            && self.hears(facts).into_iter().any(|node| facts.state.is_member(node) && !stops(node))
    }

    /// Returns whether it hears a majority, and all other heard members stop as well.
    pub(crate) fn stops_together(&self, facts: Facts<'_>) -> bool {
        self.is_connected(facts) && !self.has_successor(facts) && !self.hears(facts).is_empty()
    }

    /// Returns the nodes that this one may ask and that it suspects, because they have been silent for too long.
    pub(crate) fn silent(&self, facts: Facts<'_>) -> BTreeSet<NodeId> {
        facts.state.audience().into_iter().filter(|node| self.suspects(facts, *node)).collect()
    }

    /// Returns whether this member can be primary: it is alive, connected to a quorum, not in doubt, and its announced departure leaves it
    /// `here`. `doubts`: whether this node is in doubt about the present epoch.
    pub(crate) fn is_able(&self, facts: Facts<'_>, doubts: bool, node: NodeId, here: impl Fn(Parting) -> bool) -> bool {
        if node == facts.me {
            return here(self.parting) && !doubts;
        }
        if self.suspects(facts, node) {
            return false;
        }
        let Some(heartbeat) = self.recent_heartbeat(facts, node) else { return false };
        let reached = 1 + heartbeat.hears.iter().filter(|other| facts.state.is_member(**other)).count();
        here(heartbeat.parting) && reached >= facts.state.quorum() && !Doubt::covers(heartbeat.doubt, facts.state.epoch)
    }

    /// Returns whether enough of these members are alive to choose anything. A member that leaves a group with silent members must wait for
    /// them, or for their removal.
    pub(crate) fn can_go_on(&self, facts: Facts<'_>, members: &[Member]) -> bool {
        let lives = |node: NodeId| node == facts.me || !self.suspects(facts, node);
        members.iter().filter(|member| lives(member.node)).count() > members.len() / 2
    }

    /// Returns the last heartbeat of a member that could lead: it is heard, stays, and hears a majority.
    pub(crate) fn candidate_for_lead(&self, facts: Facts<'_>, node: NodeId) -> Option<&Heartbeat> {
        let heartbeat = self.failure_detector.heartbeat(node, 3 * facts.config.timing.heartbeat, facts.now)?;
        let reached =
            heartbeat.hears.iter().filter(|other| **other != node && facts.state.is_member(**other)).count() + 1;
        let reaches = reached >= facts.state.quorum() && self.hears(facts).contains(&node);
        let stays = heartbeat.parting == Parting::Stays;
        (stays && facts.state.is_member(node) && reaches).then_some(heartbeat)
    }

    /// Returns whether a member could take over at once: it could lead, and knows all that is decided.
    pub(crate) fn is_heir_of_lead(&self, facts: Facts<'_>, node: NodeId) -> bool {
        self.candidate_for_lead(facts, node).is_some_and(|heartbeat| heartbeat.applied == facts.state.applied)
    }

    /// Returns whether a learner has direct connections to a majority of the members that there will be with it, itself included: it has
    /// recently reported that it hears them, and has had heartbeats of them.
    pub(crate) fn has_direct_connections(&self, facts: Facts<'_>, learner: NodeId) -> bool {
        if facts.config.defects.has(Defect::Unconnected) {
            return true;
        }
        let Some(heartbeat) = self.recent_heartbeat(facts, learner) else { return false };
        let heard = heartbeat.hears.iter().zip(&heartbeat.echoes).filter(|(_, echo)| echo.is_some());
        let members = facts.state.members.len() + usize::from(!is_life_of(&facts.state.members, learner.peer));
        1 + heard.filter(|(node, _)| facts.state.is_member(**node)).count() > members / 2
    }

    /// Returns for how long a member has lived as one, in group time, without the times in which this node did not hear it. An age survives
    /// a restart of the member's process, and a removal after which the peer returns soon. Zero for a node that is no member.
    pub(crate) fn age_of(&self, facts: Facts<'_>, node: NodeId) -> Duration {
        let member = facts.state.members.iter().find(|member| member.node == node);
        member.map_or(Duration::ZERO, |member| self.age(facts, member))
    }

    /// Returns the age of a member of any state of this group.
    pub(crate) fn age(&self, facts: Facts<'_>, member: &Member) -> Duration {
        let since_joined = Duration::from_millis(self.group_time(facts.now).0.saturating_sub(member.joined.0));
        since_joined.saturating_sub(self.failure_detector.absent(member.node, &facts.config.timing, facts.now))
    }

    /// Returns the members that leave, and whether they insist.
    pub(crate) fn leaving(&self, facts: Facts<'_>) -> Vec<(NodeId, bool)> {
        let of = |node: NodeId| match self.parting_of(facts, node) {
            Some(Parting::Leaves { force }) => Some((node, force)),
            _ => None,
        };
        facts.state.nodes().into_iter().filter_map(of).collect()
    }

    /// Returns the departure that a member last announced, in any epoch; [`Parting::Stays`] before its first heartbeat.
    pub(crate) fn last_parting(&self, node: NodeId) -> Parting {
        self.failure_detector.last_heartbeat(node).map_or(Parting::Stays, |heartbeat| heartbeat.parting)
    }

    /// Returns the departure that a node last announced in this epoch.
    pub(crate) fn parting_of(&self, facts: Facts<'_>, node: NodeId) -> Option<Parting> {
        let told = self.failure_detector.heartbeat_of(node, facts.state.epoch).map(|heartbeat| heartbeat.parting);
        if node == facts.me { Some(self.parting) } else { told }
    }
}
