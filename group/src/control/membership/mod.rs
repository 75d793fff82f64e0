//! Changes of members: newcomers, leaving members, and the dead (`docs/design/epochs.md`). One change of members is made at a time, chosen
//! in the group's own log.
//!
//! A wrong suspicion costs time, never safety: a removed member that still lives finds its epoch over, and asks to join again.

pub mod learners;
pub(crate) mod opinions;
pub(crate) mod release;
pub(crate) mod removals;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use overlay::{NodeId, PeerKey};

use crate::config::Defect;
use crate::context::{Context, Facts};
use crate::control::leader::LeaderState;
use crate::control::liveness::Liveness;
use crate::control::log::Log;
use crate::control::membership::learners::{LearnerNotes, Outside};
use crate::control::membership::opinions::Opinions;
use crate::control::membership::removals::Removals;
use crate::control::state::{Entry, GroupState, Member};
use crate::message::{Message, Parting};
use overlay::time::Time;

/// Upper limit of noted newcomers; further ones are told to ask again later.
pub const JOINERS_MAX: usize = 64;
/// Time after which a noted newcomer asks again; a newcomer that is not noted asks after up to three times as long.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// Time without a new request after which a newcomer has gone elsewhere.
pub(crate) const JOINER_SILENCE_MAX: Duration = Duration::from_secs(8);
/// Upper limit of removed peers with remembered ages, so that their ages do not begin anew when they return.
const LIVED_MAX: usize = 256;
/// Least number of members after a removal, and after a leave unless the member insists.
pub const MEMBERS_MIN: usize = 3;

/// Newcomers that wait to join, and members that were removed. Kept by every member, used by the leader.
#[derive(Clone, Debug)]
pub struct MembershipState {
    /// Newcomers that asked to join, with the time of the last request, in the order of their first requests.
    joiners: VecDeque<(Member, Time)>,
    /// Notes of this member on each learner.
    learners_heard: BTreeMap<NodeId, LearnerNotes>,
    /// Time when the leader last looked at the learners.
    learners_seen: Time,
    /// Learners that are in other groups by now.
    declined: BTreeSet<NodeId>,
    /// Peers that are not admitted for a while.
    outside: Outside,
    /// Recent removals.
    pub(crate) removals: Removals,
    /// Suspected members that a majority misses, and since when it has without a break.
    missed: BTreeMap<NodeId, Time>,
    /// Time of the last update of `missed`.
    missed_at: Time,
    /// Time when the leader looks for dead members again.
    due: Option<Time>,
    /// Time before which no newcomer is admitted.
    held_until: Time,
    /// Ages of removed peers, with the times of their removals.
    lived: BTreeMap<PeerKey, (Duration, Time)>,
}

impl MembershipState {
    /// Creates empty lists. `confirm_after`: [`crate::config::Timing::confirm_after`].
    pub(crate) fn new(confirm_after: Duration) -> MembershipState {
        MembershipState {
            joiners: VecDeque::new(),
            learners_heard: BTreeMap::new(),
            learners_seen: Time(0),
            declined: BTreeSet::new(),
            outside: Outside::default(),
            removals: Removals::new(confirm_after),
            missed: BTreeMap::new(),
            missed_at: Time(0),
            due: None,
            held_until: Time(0),
            lived: BTreeMap::new(),
        }
    }

    /// Notes the age of a peer at its removal. Beyond the limit the peer that was removed first is forgotten.
    fn note_lived(&mut self, peer: PeerKey, lived: Duration, now: Time) {
        self.lived.insert(peer, (lived, now));
        if self.lived.len() > LIVED_MAX
            && let Some(oldest) = self.lived.iter().min_by_key(|(_, (_, at))| *at).map(|(peer, _)| *peer)
        {
            self.lived.remove(&oldest);
        }
    }

    /// Forgets all nodes but these.
    pub(crate) fn keep(&mut self, nodes: &[NodeId]) {
        self.learners_heard.retain(|node, _| nodes.contains(node));
        self.declined.retain(|node| nodes.contains(node));
    }

    /// Admits no newcomer before this time.
    pub(crate) fn hold_joiners(&mut self, until: Time) {
        self.held_until = until;
    }

    /// Notes that a learner declined.
    pub(crate) fn on_declined(&mut self, node: NodeId) {
        self.declined.insert(node);
    }

    /// Returns when to look again, if nothing happens.
    pub(crate) fn look_again(&self, now: Time) -> Time {
        self.due.map_or(Time::NEVER, |due| due.max(now))
    }

    /// Cancels the next look: nothing is due before the leader looks again.
    pub(crate) fn rest(&mut self) {
        self.due = None;
    }

    /// Returns the number of newcomers that wait to be admitted.
    pub fn joiners(&self) -> usize {
        self.joiners.len()
    }

    /// Notes a newcomer; returns `false` if there is no room.
    fn note(&mut self, joiner: Member, now: Time) -> bool {
        self.joiners.retain(|(_, asked)| now.since(*asked) < JOINER_SILENCE_MAX);
        let same = |(known, _): &&mut (Member, Time)| known.node.peer == joiner.node.peer;
        if let Some(known) = self.joiners.iter_mut().find(same) {
            *known = (joiner, now);
            return true;
        }
        if self.joiners.len() >= JOINERS_MAX {
            return false;
        }
        self.joiners.push_back((joiner, now));
        true
    }
}

/// Dead members, as a leader sees them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dead {
    /// Dead members, the longest silent first.
    pub(crate) nodes: Vec<NodeId>,
    /// Whether their removal waits a moment for other members that seem to have died with them. A change of members that is made in any
    /// case does not wait.
    pub(crate) gathers: bool,
}

impl MembershipState {
    /// Returns how many of `wanted` dead members may be removed now without a replacement. Schedules the next look where not all may.
    fn removals_allowed(&mut self, facts: Facts<'_>, wanted: usize) -> usize {
        let now = facts.now;
        let removals = &self.removals;
        let allowed = match facts.config.defects.has(Defect::RemovalsUncapped) {
            true => wanted,
            false => removals.allowance(facts.state.members.len(), now).min(wanted),
        };
        if allowed < wanted {
            let due = removals.next_change(now);
            self.due = Some(self.due.map_or(due, |known| known.min(due)));
        }
        allowed
    }

    /// Notes the members that this change of the state removed, except those that announced that they leave. A member with a later
    /// incarnation here was alive.
    pub(crate) fn note_removals(&mut self, facts: Facts<'_>, liveness: &Liveness, before: &GroupState) {
        let now = facts.now;
        let is_gone = |member: &&Member| !facts.state.is_member(member.node) && !facts.state.is_learner(member.node);
        for member in before.members.iter().filter(is_gone) {
            let lived = liveness.age(facts, member);
            self.note_lived(member.node.peer, lived, now);
        }
        let leaves = |node| matches!(liveness.last_parting(node), Parting::Leaves { .. });
        let gone = before.members.iter().filter(is_gone).map(|member| member.node);
        let (own, gone): (Vec<NodeId>, Vec<NodeId>) = gone.filter(|node| !leaves(*node)).partition(|node| {
            is_life_of(&facts.state.members, node.peer) || is_life_of(&facts.state.learners, node.peer)
        });
        let comes = |member: &&Member| !before.is_member(member.node) && !is_life_of(&before.members, member.node.peer);
        let coming: Vec<PeerKey> = facts.state.members.iter().filter(comes).map(|member| member.node.peer).collect();
        let (ended, silent): (Vec<NodeId>, Vec<NodeId>) =
            gone.into_iter().partition(|node| self.has_ended(facts, liveness, *node));
        let removals = &mut self.removals;
        own.iter().map(|node| node.peer).chain(coming.iter().copied()).for_each(|peer| removals.note_return(peer, now));
        // After several changes at once this node does not know which newcomer replaced a dead member.
        let is_one_step = before.epoch.0 + 1 == facts.state.epoch.0;
        let fresh = coming.iter().filter(|peer| !removals.is_refuted(**peer, now)).count();
        let replaced = if is_one_step { fresh } else { 0 };
        removals.note(&ended, ended.len(), now);
        removals.note(&silent, replaced, now);
    }

    /// Notes which of the suspected members a majority misses: the silence towards one member may be due to one bad link. Members that do
    /// not lead look less often. `leads`: whether this node leads.
    pub(crate) fn note_missed(&mut self, facts: Facts<'_>, leads: bool, liveness: &Liveness) {
        let (timing, now) = (&facts.config.timing, facts.now);
        if !leads && now.since(self.missed_at) < timing.heartbeat / 2 {
            return;
        }
        self.missed_at = now;
        let voters = facts.state.nodes();
        let is_suspect = |node: &NodeId| *node != facts.me && liveness.suspects(facts, *node);
        if !voters.iter().any(is_suspect) {
            return self.missed.clear();
        }
        let opinions = Opinions::of(facts, liveness);
        let suspects = voters.iter().enumerate().filter(|(_, node)| is_suspect(node));
        let missed: BTreeSet<NodeId> =
            suspects.filter(|(index, _)| opinions.is_missed(*index)).map(|(_, node)| *node).collect();
        let known = &mut self.missed;
        known.retain(|node, _| missed.contains(node));
        missed.into_iter().for_each(|node| _ = known.entry(node).or_insert(now));
    }

    /// Returns whether a majority has missed this member for so long that it has been silent to them for [`Timing::exclude_after`], but
    /// for the time that a heartbeat takes to tell.
    ///
    /// [`Timing::exclude_after`]: crate::config::Timing::exclude_after
    fn is_missed_for_long(&self, facts: Facts<'_>, liveness: &Liveness, node: NodeId) -> bool {
        self.missed_until(facts, liveness, node).is_some_and(|until| facts.now >= until)
    }

    /// Returns until when a majority has to miss this member, which it does now, for [`MembershipState::is_missed_for_long`].
    fn missed_until(&self, facts: Facts<'_>, liveness: &Liveness, node: NodeId) -> Option<Time> {
        let timing = &facts.config.timing;
        let after = if self.has_ended(facts, liveness, node) { timing.ended_after() } else { timing.exclude_after };
        let needed = after.saturating_sub(timing.suspicion() + timing.heartbeat);
        self.missed.get(&node).map(|since| *since + needed)
    }

    /// Returns whether the process of a member ended for good: its connections closed while it was being heard, and nothing is durable, so
    /// it cannot return as this member. Where a removal was refuted recently, closed connections prove nothing.
    pub(crate) fn has_ended(&self, facts: Facts<'_>, liveness: &Liveness, node: NodeId) -> bool {
        !facts.config.durable
            && liveness.failure_detector.has_ended(node, &facts.config.timing)
            && !self.removals.has_refuted(facts.now)
    }

    /// Returns when a member counts as dead, if it sends nothing more.
    pub(crate) fn dead_at(&self, facts: Facts<'_>, liveness: &Liveness, node: NodeId) -> Time {
        liveness.failure_detector.dead_at(node, &facts.config.timing, self.has_ended(facts, liveness, node))
    }

    /// Returns until when the removal of these dead members waits for other members that seem to have died with them; `None` where it does
    /// not wait. Members that die at once are found dead within about one heartbeat, each change of members must be established before the
    /// next, and a smaller group may remove fewer members.
    fn gathers_until(&self, facts: Facts<'_>, liveness: &Liveness, dead: &[(Time, NodeId)]) -> Option<Time> {
        let (now, timing, members) = (facts.now, &facts.config.timing, facts.state.nodes());
        let removable_at = |node: NodeId| {
            self.dead_at(facts, liveness, node).max(self.missed_until(facts, liveness, node).unwrap_or(Time::NEVER))
        };
        let last = dead.iter().map(|(_, node)| removable_at(*node)).min()? + timing.heartbeat;
        let may_follow = |node: &NodeId| match self.dead_at(facts, liveness, *node) {
            _ if *node == facts.me || dead.iter().any(|(_, known)| known == node) => None,
            // It is not known yet whether a majority will miss it by then.
            dies if dies > now => Some(dies),
            _ => Some(removable_at(*node)).filter(|at| *at > now),
        };
        let next = members.iter().filter_map(may_follow).min().filter(|next| *next <= last)?;
        (now < last).then_some(next)
    }

    /// Returns the members that have been silent for [`Timing::exclude_after`] and that a majority misses, the longest silent first.
    /// Returns none where this node has no majority in both directions, or where the silence is load. The second part is when to look
    /// again.
    ///
    /// [`Timing::exclude_after`]: crate::config::Timing::exclude_after
    pub(crate) fn dead(&self, facts: Facts<'_>, liveness: &Liveness) -> (Dead, Option<Time>) {
        let timing = &facts.config.timing;
        let now = facts.now;
        let voters = facts.state.nodes();
        let is_silent = |node: &NodeId| *node != facts.me && self.dead_at(facts, liveness, *node) <= now;
        let ends = voters.iter().filter(|node| **node != facts.me).map(|node| self.dead_at(facts, liveness, *node));
        let mut due = ends.filter(|end| *end > now).min();
        let (mut dead, mut gathers) = (Vec::new(), false);
        if voters.iter().any(is_silent) {
            let opinions = Opinions::of(facts, liveness);
            let silent = voters.iter().enumerate().filter(|(_, node)| is_silent(node));
            let missed = silent
                .filter(|(index, node)| opinions.is_missed(*index) && self.is_missed_for_long(facts, liveness, **node));
            dead = missed.map(|(_, node)| (self.dead_at(facts, liveness, *node), *node)).collect();
            if !dead.is_empty() && (!opinions.is_heard_both_ways() || opinions.is_patchy()) {
                dead.clear();
            }
            if let Some(next) = self.gathers_until(facts, liveness, &dead) {
                gathers = true;
                due = Some(due.map_or(next, |due| due.min(next)));
            }
            if dead.is_empty() {
                // The opinions of other members come with their heartbeats; only time shows that they have missed it for long enough.
                let until = voters
                    .iter()
                    .filter(|node| is_silent(node))
                    .filter_map(|node| self.missed_until(facts, liveness, *node));
                due = Some(until.filter(|until| *until > now).min().unwrap_or(now + timing.heartbeat));
            }
        }
        dead.sort_unstable();
        (Dead { nodes: dead.into_iter().map(|(_, node)| node).collect(), gathers }, due)
    }

    /// Returns the dead members, and schedules the next look at them.
    pub(crate) fn look_for_dead(&mut self, facts: Facts<'_>, liveness: &Liveness) -> Dead {
        let (dead, due) = self.dead(facts, liveness);
        self.due = due;
        dead
    }
}

impl LeaderState {
    /// Handles a request to join from a newcomer, direct or forwarded by another member. Returns whether this node leads and
    /// has answered: it may have an entry to propose.
    pub(crate) fn on_join(&mut self, ctx: &mut Context<'_>, log: &Log, joiner: Member) -> bool {
        self.membership.removals.note_return(joiner.node.peer, ctx.now.time);
        if ctx.state.last_life(joiner.node.peer).is_some_and(|known| known >= joiner.node) {
            // The group knows this incarnation, or a later one of its peer. With a later one, the state may have released this incarnation.
            self.tell_state(ctx, &[joiner.node]);
        } else if log.leads() {
            let node = joiner.node;
            if self.membership.outside.holds(node.peer, ctx.now.time) {
                return false; // The newcomer then looks for groups again.
            }
            let wait = if self.membership.note(joiner, ctx.now.time) {
                ASK_AGAIN
            } else {
                ASK_AGAIN + Duration::from_millis(ctx.rng.below(2 * ASK_AGAIN.as_millis() as u64))
            };
            ctx.out.send(&[node], Message::Wait(wait.as_millis() as u64));
            return true;
        } else if let Some(leader) = log.leader().filter(|leader| *leader != ctx.me) {
            ctx.out.send(&[leader], Message::Join(joiner));
        }
        false
    }

    /// Returns the entry that ends an epoch which some members sealed, so that they accept nothing in it any more (hazard 21).
    ///
    /// `is_sealed`: whether this member sealed it. `dead`: as [`MembershipState::look_for_dead`] returns it, here and below.
    pub(crate) fn end_sealed(
        &mut self,
        facts: Facts<'_>,
        liveness: &Liveness,
        is_sealed: bool,
        dead: &Dead,
    ) -> Option<Entry> {
        let told = |node: &NodeId| {
            let heartbeat = liveness.failure_detector.heartbeat_of(*node, facts.state.epoch);
            heartbeat.is_some_and(|heartbeat| heartbeat.sealed)
        };
        let sealed = is_sealed || facts.state.nodes().iter().any(told);
        sealed.then(|| {
            let all = Dead { gathers: false, ..dead.clone() };
            self.next_members(facts, liveness, &all).unwrap_or_else(|| Entry::Next(facts.state.members.clone()))
        })
    }

    /// Returns the next change of members where it removes dead ones. It comes before most other duties of a leader: a group that needs
    /// each living member for its majority agrees as slowly as the slowest of them, and may lose its majority before the removal.
    pub(crate) fn remove_dead(&mut self, facts: Facts<'_>, liveness: &Liveness, dead: &Dead) -> Option<Entry> {
        if dead.nodes.is_empty() || dead.gathers || facts.config.defects.has(Defect::TransactionsFirst) {
            return None;
        }
        let stays = |members: &[Member], node: &NodeId| members.iter().any(|member| member.node == *node);
        self.next_members(facts, liveness, dead)
            .filter(|next| matches!(next, Entry::Next(members) if !dead.nodes.iter().all(|node| stays(members, node))))
    }

    /// Returns the next change of members, if one is due. Learners that have caught up are admitted, and replace older incarnations of
    /// their peers and dead members. Members that leave are released. Of the dead members without a replacement, as many are removed as
    /// [`crate::control::membership::removals`] allows. All of it is one step.
    pub(crate) fn next_members(&mut self, facts: Facts<'_>, liveness: &Liveness, dead: &Dead) -> Option<Entry> {
        let (mut ready, leaving) = (self.ready_learners(facts, liveness), liveness.leaving(facts));
        // A change that is made in any case removes the dead too.
        if ready.is_empty() && leaving.is_empty() && (dead.nodes.is_empty() || dead.gathers) {
            return None; // The usual case, and checked with each heartbeat.
        }
        let mut members = facts.state.members.clone();
        for learner in ready.extract_if(.., |learner| is_life_of(&members, learner.node.peer)).collect::<Vec<_>>() {
            members.retain(|member| member.node.peer != learner.node.peer);
            members.push(learner);
        }
        // Later incarnations of some are members already.
        let mut dead: Vec<NodeId> =
            dead.nodes.iter().copied().filter(|node| members.iter().any(|member| member.node == *node)).collect();
        // An epoch that is not established yet is only healed: a newcomer comes for a dead member, and the dead are removed.
        let heals = !facts.state.recovery.is_empty();
        // A member that was removed by mistake replaces none when it returns: each such return would allow another mistake.
        let removals = &self.membership.removals;
        let fresh = ready.iter().filter(|member| !removals.is_refuted(member.node.peer, facts.now)).count();
        let replaced = dead.len().min(fresh);
        let coming: Vec<Member> = if heals { ready.drain(..replaced).collect() } else { ready };
        let least = MEMBERS_MIN.min(facts.state.members.len());
        members.extend(coming);
        let mut room = members.len() - least;
        // Members that are replaced, and those with processes that ended for good, need no allowance.
        dead.sort_by_key(|node| !self.membership.has_ended(facts, liveness, *node));
        let ended = dead.iter().filter(|node| self.membership.has_ended(facts, liveness, **node)).count();
        let free = dead.len().min(replaced + ended);
        let allowed = free + self.membership.removals_allowed(facts, dead.len() - free);
        for node in dead.into_iter().take(allowed) {
            if room > 0 && members.len() > 1 {
                members.retain(|member| member.node != node);
                room -= 1;
            }
        }
        for (node, force) in leaving.into_iter().filter(|_| !heals) {
            let others: Vec<NodeId> = members.iter().map(|member| member.node).filter(|other| *other != node).collect();
            if !self.leaves_able(facts, liveness, &others) {
                continue; // It leaves when the transaction is decided, or when the dead are removed.
            }
            if (room > 0 || force) && members.len() > 1 {
                members.retain(|member| member.node != node);
                room = room.saturating_sub(1);
            }
        }
        members.sort_by_key(|member| member.node);
        if members == facts.state.members
            || facts.state.refuses_next(&members).is_some()
            || !liveness.can_go_on(facts, &members)
        {
            return None;
        }
        Some(Entry::Next(members))
    }
}

/// Returns whether one of the members is an incarnation of this peer.
pub(crate) fn is_life_of(members: &[Member], peer: PeerKey) -> bool {
    members.iter().any(|member| member.node.peer == peer)
}
