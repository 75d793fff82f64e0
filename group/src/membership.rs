//! Who comes, who goes, and who is put out (§5.3 and §5.4 of the design). All of it is one change of members at a time,
//! chosen in the group's own log.
//!
//! A suspicion costs time when it is wrong, never safety: whoever is put out and still lives finds its epoch over, and
//! asks to be let in again.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use overlay::{NodeId, PeerKey};

use crate::ballot::Term;
use crate::config::Defect;
use crate::group::Group;
use crate::message::{Message, Parting};
use crate::state::{Entry, Member};
use crate::time::Time;

/// Newcomers that are noted; others are asked to come again later.
pub const JOINERS_MAX: usize = 64;
/// Learners at a time: each is told of every write, and each asks members for everything that the group holds.
pub const LEARNERS_MAX: usize = 8;
/// A learner that is silent for so long is forgotten.
const LEARNER_SILENCE_MAX: Duration = Duration::from_secs(30);
/// Who has asked to be let in and is noted asks again after this; who is not noted, after up to three times as long.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// Who has not asked again for so long has gone elsewhere.
const JOINER_SILENCE_MAX: Duration = Duration::from_secs(8);
/// Nobody is put out, and nobody leaves unless it insists, where fewer than so many members would remain.
pub const MEMBERS_MIN: usize = 3;
/// At most so many members, or a third of them, are put out within [`REMOVALS_WINDOW`]: were all of a group's silences
/// its leader's own fault, or load's, most members should still be there when it is over (PITFALLS 50).
const REMOVALS_MAX: usize = 2;
const REMOVALS_WINDOW: Duration = Duration::from_secs(60);

/// Who waits at the door, and who was shown it. Kept by every member, used by the leader.
#[derive(Clone, Debug, Default)]
pub struct Doors {
    /// Who asked to be let in, and when it did last, in order of their first asking.
    joiners: VecDeque<(Member, Time)>,
    /// When each learner was last known to be alive.
    learners_heard: BTreeMap<NodeId, Time>,
    /// Learners that are in other groups by now.
    declined: BTreeSet<NodeId>,
    /// When members were put out of late, once for each.
    removals: VecDeque<Time>,
    /// Somebody may have to be put out then.
    due: Option<Time>,
}

impl Doors {
    /// Forgets who is gone.
    pub(crate) fn keep(&mut self, nodes: &[NodeId]) {
        self.learners_heard.retain(|node, _| nodes.contains(node));
        self.declined.retain(|node| nodes.contains(node));
    }

    /// It does not come.
    pub(crate) fn on_declined(&mut self, node: NodeId) {
        self.declined.insert(node);
    }

    /// When to look at the doors again, if nothing happens.
    pub(crate) fn look_again(&self, now: Time) -> Time {
        self.due.map_or(Time::NEVER, |due| due.max(now))
    }

    /// How many wait to be let in.
    pub fn joiners(&self) -> usize {
        self.joiners.len()
    }

    /// Notes who asks; false if there is no room.
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

    /// How many more may be put out now.
    fn removals_left(&mut self, members: usize, interval: Duration, now: Time) -> usize {
        while self.removals.front().is_some_and(|at| now.since(*at) >= REMOVALS_WINDOW) {
            self.removals.pop_front();
        }
        if self.removals.back().is_some_and(|at| now.since(*at) < interval) {
            return 0;
        }
        REMOVALS_MAX.max(members / 3).saturating_sub(self.removals.len())
    }
}

impl Group {
    /// Somebody asks to become a member, here or through another member.
    pub(crate) fn on_join(&mut self, joiner: Member) {
        if self.state.last_life(joiner.node.peer).is_some_and(|known| known >= joiner.node) {
            // Told already, or an older life than the group knows: its state tells it all.
            let state = Message::State(Box::new(self.state.clone()));
            self.out.send(&[joiner.node], state);
        } else if self.log.leads() {
            let node = joiner.node;
            let wait = if self.duties.doors.note(joiner, self.now.time) {
                ASK_AGAIN
            } else {
                ASK_AGAIN + Duration::from_millis(self.rng.below(2 * ASK_AGAIN.as_millis() as u64))
            };
            self.out.send(&[node], Message::Wait(wait.as_millis() as u64));
            self.do_duties();
        } else if let Some(leader) = self.log.leader().filter(|leader| *leader != self.me) {
            self.out.send(&[leader], Message::Join(joiner));
        }
    }

    /// This node leaves for good; [`crate::outbox::GroupOutput::Left`] says when it is not needed any more. `force`:
    /// also where fewer than three members remain.
    pub fn leave(&mut self, force: bool) {
        self.part(Parting::Leaves { force });
    }

    /// Some members sealed their epoch, and accept nothing in it any more: it has to end (PITFALLS 21).
    pub(crate) fn end_sealed(&mut self) -> Option<Entry> {
        let told = |node: &NodeId| {
            let heartbeat = self.pulse.heartbeat_of(*node, self.state.epoch);
            heartbeat.is_some_and(|heartbeat| heartbeat.sealed)
        };
        let sealed = self.acceptor.has_sealed(self.state.epoch) || self.state.nodes().iter().any(told);
        sealed.then(|| self.next_members().unwrap_or_else(|| Entry::Next(self.state.members.clone())))
    }

    /// The next change of members, if one is due: learners that have caught up come, in place of older lives of theirs
    /// and of the dead; who wants to go goes; who has been silent for long is put out.
    pub(crate) fn next_members(&mut self) -> Option<Entry> {
        let (mut ready, mut dead, leaving) = (self.ready_learners(), self.dead(), self.leaving());
        if ready.is_empty() && dead.is_empty() && leaving.is_empty() {
            return None; // As mostly, and this is asked with each heartbeat.
        }
        let mut members = self.state.members.clone();
        for learner in ready.extract_if(.., |learner| is_life_of(&members, learner.node.peer)).collect::<Vec<_>>() {
            members.retain(|member| member.node.peer != learner.node.peer);
            members.push(learner);
        }
        dead.retain(|node| members.iter().any(|member| member.node == *node)); // Its next life is here already.
        // An epoch that is not established yet is only healed: one comes for one who is dead.
        let heals = !self.state.recovery.is_empty();
        let replaced = dead.len().min(ready.len());
        let coming: Vec<Member> = if heals { ready.drain(..replaced).collect() } else { ready };
        let mut put_out = 0;
        let least = if heals { self.state.members.len() } else { MEMBERS_MIN.min(self.state.members.len()) };
        members.extend(coming);
        let mut room = members.len() - least;
        for node in dead {
            if room > 0 && members.len() > 1 {
                members.retain(|member| member.node != node);
                (room, put_out) = (room - 1, put_out + 1);
            }
        }
        for (node, force) in leaving.into_iter().filter(|_| !heals) {
            let others: Vec<NodeId> = members.iter().map(|member| member.node).filter(|other| *other != node).collect();
            if !self.leaves_able(&others) {
                continue; // It goes when it is decided, or when the dead are put out.
            }
            if (room > 0 || force) && members.len() > 1 {
                members.retain(|member| member.node != node);
                room = room.saturating_sub(1);
            }
        }
        members.sort_by_key(|member| member.node);
        if members == self.state.members || self.state.refuses_next(&members).is_some() || !self.can_go_on(&members) {
            return None;
        }
        self.duties.doors.removals.extend(core::iter::repeat_n(self.now.time, put_out));
        Some(Entry::Next(members))
    }

    /// Are enough of them alive to choose anything? Who leaves a group of which others are silent must wait for them, or
    /// until they are put out.
    fn can_go_on(&self, members: &[Member]) -> bool {
        let timing = &self.config.timing;
        let lives = |node: NodeId| node == self.me || !self.pulse.suspects(node, timing, self.now.time);
        members.iter().filter(|member| lives(member.node)).count() > members.len() / 2
    }

    /// Learners that hold everything, and live. Where nothing was chosen before the current terms all is of those.
    fn ready_learners(&mut self) -> Vec<Member> {
        let terms: Vec<Term> = self.state.division.iter().map(|part| part.term).collect();
        let nodes = self.state.nodes();
        let (duties, early) = (&mut self.duties, self.config.defects.has(Defect::EmptyMembers));
        let ready = self.state.learners.iter().filter(|learner| {
            let holds = terms.iter().all(|term| duties.keeps_up(learner.node, &nodes, *term));
            (holds || early)
                && duties.knows(learner.node, learner.since)
                && !self.pulse.suspects(learner.node, &self.config.timing, self.now.time)
        });
        ready.cloned().collect()
    }

    /// Members that have been silent for long enough, to a majority of all, as many as may be put out now.
    fn dead(&mut self) -> Vec<NodeId> {
        let timing = &self.config.timing;
        let now = self.now.time;
        let voters = self.state.nodes();
        let mut dead = Vec::new();
        let mut due: Option<Time> = None;
        for node in voters.iter().filter(|node| **node != self.me) {
            let at = self.pulse.dead_at(*node, timing);
            if at > now {
                due = Some(due.map_or(at, |due| due.min(at)));
                continue;
            }
            // Who has not said anything of late has no opinion of others.
            let misses = |other: &&NodeId| match self.pulse.heartbeat(**other, timing.suspicion(), now) {
                _ if **other == self.me => true,
                Some(heartbeat) => !heartbeat.hears.contains(node),
                None => false,
            };
            if voters.iter().filter(misses).count() >= self.state.quorum() {
                dead.push(*node);
            }
        }
        let left = self.duties.doors.removals_left(voters.len(), timing.exclude_interval, now);
        if dead.len() > left {
            due = Some(now + timing.exclude_interval);
        }
        self.duties.doors.due = due;
        dead.truncate(left);
        dead
    }

    /// Members that leave, and whether they insist.
    pub fn leaving(&self) -> Vec<(NodeId, bool)> {
        let of = |node: NodeId| match self.parting_of(node) {
            Some(Parting::Leaves { force }) => Some((node, force)),
            _ => None,
        };
        self.state.nodes().into_iter().filter_map(of).collect()
    }

    /// What a node is about to do, as it last told in this epoch.
    pub(crate) fn parting_of(&self, node: NodeId) -> Option<Parting> {
        let told = self.pulse.heartbeat_of(node, self.state.epoch).map(|heartbeat| heartbeat.parting);
        if node == self.me { Some(self.parting) } else { told }
    }

    /// Lets newcomers in, all that there is room for at once: a crowd at the door of one group should find two, and not make it
    /// one of hundreds before it has split.
    pub(crate) fn admit(&mut self) -> Option<Entry> {
        // A group that splits has room again.
        let (all, max) =
            (self.state.members.len() + self.state.learners.len(), self.state.settings.members_max as usize);
        let mut room = LEARNERS_MAX.saturating_sub(self.state.learners.len()).min((2 * max).saturating_sub(all));
        let mut coming: Vec<Member> = Vec::new();
        let waiting = core::mem::take(&mut self.duties.doors.joiners);
        for (mut joiner, asked) in waiting {
            // Another life of a learner comes in its place: the group must not wait for one that is dead until it is forgotten.
            let takes = usize::from(!is_life_of(&self.state.learners, joiner.node.peer));
            let known = self.state.last_life(joiner.node.peer).is_some_and(|known| known >= joiner.node);
            if takes > room {
                self.duties.doors.joiners.push_back((joiner, asked));
            } else if !known && self.now.time.since(asked) < JOINER_SILENCE_MAX {
                room -= takes;
                joiner.joined = self.pulse.group_time(self.now);
                coming.push(joiner);
            }
        }
        (!coming.is_empty()).then_some(Entry::Learners(coming))
    }

    /// Waits no longer for a learner that is silent.
    pub(crate) fn drop_learner(&mut self) -> Option<Entry> {
        let now = self.now.time;
        let mut silent = None;
        for learner in &self.state.learners {
            let heard = self.duties.doors.learners_heard.entry(learner.node).or_insert(now);
            if !self.pulse.suspects(learner.node, &self.config.timing, now) {
                *heard = now;
            } else if now.since(*heard) >= LEARNER_SILENCE_MAX {
                silent = Some(learner.node);
            }
            if self.duties.doors.declined.contains(&learner.node) {
                silent = Some(learner.node);
            }
        }
        silent.map(Entry::DropLearner)
    }
}

fn is_life_of(members: &[Member], peer: PeerKey) -> bool {
    members.iter().any(|member| member.node.peer == peer)
}
