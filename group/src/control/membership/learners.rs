//! Newcomers: they ask to join, copy as learners all that the group holds, and then vote (`docs/design/epochs.md`).
//!
//! A learner votes only once it has direct connections to a majority of the members: one that hears the leader alone would count for
//! agreement, and stop it as soon as another member led. A learner without them is released after [`UNCONNECTED_MAX`], and its peer waits
//! outside before it may try again, each time twice as long. So such peers hold up the steps that wait for learners (other newcomers,
//! purges, reads that a switch spreads) for a small part of the time. They never hold up a split, which waits only for learners that are
//! about to vote. Up to [`SLOW_MAX`] learners that copy slowly do not hold up other newcomers for longer than [`SLOW_AFTER`], as long as
//! the group has less than twice as many members and learners as it should have at most.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use overlay::{NodeId, PeerKey};

use crate::ballot::Term;
use crate::config::Defect;
use crate::context::{Context, Facts};
use crate::control::leader::LeaderState;
use crate::control::liveness::Liveness;
use crate::control::membership::opinions::Opinions;
use crate::control::membership::{JOINER_SILENCE_MAX, MembershipState, is_life_of};
use crate::control::state::{Entry, Member};
use crate::outbox::GroupOutput;
use overlay::time::{Time, WallMillis};

/// Upper limit of learners at a time: each receives every write, and asks members for everything that the group holds.
pub const LEARNERS_MAX: usize = 8;
/// Time under one leader after which a learner that does not vote yet counts as slow.
pub const SLOW_AFTER: Duration = Duration::from_secs(60);
/// Upper limit of slow learners beside [`LEARNERS_MAX`] other ones.
pub const SLOW_MAX: usize = 8;
/// Silence after which a learner is released: no transaction begins while there are learners. An attempt to connect to it may take nearly
/// as long. Never sooner than a member would be removed, since it may have to copy again.
const LEARNER_SILENCE_MAX: Duration = Duration::from_secs(12);
/// Silence after which a learner that announced an absence is released.
const LEARNER_ABSENCE_MAX: Duration = Duration::from_secs(30);
/// Time without direct connections to a majority of the members after which a learner is released: twice the time that an attempt to
/// connect may take.
pub const UNCONNECTED_MAX: Duration = Duration::from_secs(20);
/// First pause of its peer outside.
const OUTSIDE_MIN: Duration = Duration::from_secs(30);
/// Longest pause of a peer outside.
const OUTSIDE_MAX: Duration = Duration::from_secs(600);
/// Upper limit of peers that wait outside. Beyond it the one that may return first is forgotten.
const OUTSIDE_ROOM: usize = 256;
/// Time after a removal within which a returning peer keeps its age.
const LIVED_FOR: Duration = Duration::from_secs(24 * 3600);

/// Peers that were learners without direct connections to a majority of the members, each with the end and the length of its pause.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outside(BTreeMap<PeerKey, (Time, Duration)>);

impl Outside {
    /// Begins a pause of a peer. Returns its length.
    fn send(&mut self, peer: PeerKey, now: Time) -> Duration {
        let before = self.0.get(&peer).filter(|(until, _)| now.since(*until) < OUTSIDE_MAX);
        let length = before.map_or(OUTSIDE_MIN, |(_, length)| (2 * *length).min(OUTSIDE_MAX));
        self.0.insert(peer, (now + length, length));
        if self.0.len() > OUTSIDE_ROOM
            && let Some(first) = self.0.iter().min_by_key(|(_, (until, _))| *until).map(|(peer, _)| *peer)
        {
            self.0.remove(&first);
        }
        length
    }

    /// Returns whether a peer still has to wait.
    pub(crate) fn holds(&self, peer: PeerKey, now: Time) -> bool {
        self.0.get(&peer).is_some_and(|(until, _)| now < *until)
    }
}

/// Notes of a member on a learner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LearnerNotes {
    /// Time since which it is a learner, as this member saw.
    since: Time,
    /// Time when it was last known to be alive.
    heard: Time,
    /// Time when it was last known to have direct connections to enough members.
    connected: Time,
}

impl MembershipState {
    /// Returns the entry that admits newcomers, as many at once as there is room for: a crowd of newcomers at one group should find two
    /// groups, and not make it one of hundreds before it has split.
    pub(crate) fn admit(&mut self, facts: Facts<'_>, liveness: &Liveness) -> Option<Entry> {
        let is_held = facts.now < self.held_until;
        // A group that splits has room again.
        let (all, max) = (
            facts.state.members.len() + facts.state.learners.len(),
            facts.state.settings.policies.members_max as usize,
        );
        let places = LEARNERS_MAX + self.slow_learners(facts).min(SLOW_MAX);
        let mut room = places.saturating_sub(facts.state.learners.len()).min((2 * max).saturating_sub(all));
        let mut coming: Vec<Member> = Vec::new();
        let waiting = core::mem::take(&mut self.joiners);
        for (mut joiner, asked) in waiting {
            // A later incarnation takes the place of a learner: the group must not wait for a dead one until it is forgotten.
            let takes = usize::from(!is_life_of(&facts.state.learners, joiner.node.peer));
            let known = facts.state.last_life(joiner.node.peer).is_some_and(|known| known >= joiner.node);
            if takes > if is_held { 0 } else { room } {
                self.joiners.push_back((joiner, asked));
            } else if !known && facts.now.since(asked) < JOINER_SILENCE_MAX {
                room -= takes;
                let lived = self.lived_before(facts, liveness, joiner.node.peer);
                joiner.joined = WallMillis(liveness.group_time(facts.now).0.saturating_sub(lived.as_millis() as u64));
                coming.push(joiner);
            }
        }
        (!coming.is_empty()).then_some(Entry::Learners(coming))
    }

    /// Returns how many learners copy slowly.
    fn slow_learners(&self, facts: Facts<'_>) -> usize {
        if facts.config.defects.has(Defect::SlowHoldUp) {
            return 0;
        }
        let notes = facts.state.learners.iter().filter_map(|learner| self.learners_heard.get(&learner.node));
        notes.filter(|notes| facts.now.since(notes.since) >= SLOW_AFTER).count()
    }

    /// Returns how long this peer had lived as a member when it was removed, or has until now, if this node knows.
    fn lived_before(&self, facts: Facts<'_>, liveness: &Liveness, peer: PeerKey) -> Duration {
        let before = facts
            .state
            .members
            .iter()
            .find(|member| member.node.peer == peer)
            .map(|member| liveness.age(facts, member));
        let of_late = |(_, at): &&(Duration, Time)| facts.now.since(*at) < LIVED_FOR;
        let removed = self.lived.get(&peer).filter(of_late).map(|(lived, _)| *lived);
        before.or(removed).unwrap_or_default()
    }

    /// Notes which learners live and have direct connections. The time in which this node did not look, or could not tell, does not count.
    pub(crate) fn note_learners(&mut self, facts: Facts<'_>, liveness: &Liveness) {
        let (timing, now) = (&facts.config.timing, facts.now);
        let since = core::mem::replace(&mut self.learners_seen, now);
        if facts.state.learners.is_empty() {
            return; // The usual case.
        }
        let was_away = now.since(since) > 2 * timing.heartbeat;
        let notes: Vec<(NodeId, bool, bool)> = facts
            .state
            .learners
            .iter()
            .map(|learner| learner.node)
            .map(|node| (node, !liveness.suspects(facts, node), liveness.has_direct_connections(facts, node)))
            .collect();
        let opinions = notes.iter().any(|(_, _, is_connected)| !is_connected).then(|| Opinions::of(facts, liveness));
        let can_tell = opinions.is_none_or(|opinions| opinions.is_heard_both_ways() && !opinions.is_patchy());
        for (node, is_heard, is_connected) in notes {
            let first = LearnerNotes { since: now, heard: now, connected: now };
            let notes = self.learners_heard.entry(node).or_insert(first);
            if was_away {
                *notes = first;
            }
            if is_heard {
                notes.heard = now;
            }
            if is_connected || !can_tell {
                notes.connected = now;
            }
        }
    }

    /// Returns the entry that releases a learner: one that is dead, that declined, or that has no direct connections to enough members. A
    /// learner that recovery still asks is a member of a group that became part of this one: it is not released for its connections.
    pub(crate) fn drop_learner(&mut self, ctx: &mut Context<'_>, liveness: &Liveness) -> Option<Entry> {
        let (facts, now) = (ctx.facts(), ctx.now.time);
        let mut dropped = None;
        for node in facts.state.learners.iter().map(|learner| learner.node) {
            let Some(notes) = self.learners_heard.get(&node).copied() else {
                continue;
            };
            let is_asked = || facts.state.recovery.iter().any(|config| config.members.contains(&node));
            if self.is_dead_learner(facts, liveness, node, notes) || self.declined.contains(&node) {
                dropped = Some(node);
            } else if notes.heard == now && now.since(notes.connected) >= UNCONNECTED_MAX && !is_asked() {
                let pause = self.outside.send(node.peer, now).as_secs();
                let note = format!(
                    "leads the group, and turns {node} away for {pause} s: that peer hears fewer than a majority of the \
                    members directly"
                );
                ctx.out.push(GroupOutput::Note(note.into()));
                return Some(Entry::DropLearner(node));
            }
        }
        dropped.map(Entry::DropLearner)
    }

    /// Returns whether a learner has been silent for too long. One with a process that is known to have ended is waited for only as long as
    /// a member: a device on the way may have closed its connections, and then it is back at once.
    fn is_dead_learner(&self, facts: Facts<'_>, liveness: &Liveness, node: NodeId, notes: LearnerNotes) -> bool {
        let (now, timing) = (facts.now, &facts.config.timing);
        let longest = if self.has_ended(facts, liveness, node) {
            timing.exclude_after
        } else if liveness.failure_detector.is_away(node, now) {
            LEARNER_ABSENCE_MAX
        } else {
            LEARNER_SILENCE_MAX.max(timing.exclude_after)
        };
        now.since(notes.heard) >= longest
    }
}

impl LeaderState {
    /// Reports at once, as a learner, that it has heard a majority of the members, for its vote may wait for that.
    pub(crate) fn tell_connections(&mut self, facts: Facts<'_>, liveness: &mut Liveness) {
        let is_news = !self.told_connections && facts.state.is_learner(facts.me);
        if is_news && liveness.has_heartbeats_of_majority(facts) {
            self.told_connections = true;
            liveness.hurry_heartbeat(facts.now);
        }
    }

    /// Returns the learners that hold everything, live, and have direct connections to a majority of the members. Where nothing was chosen
    /// before the current terms, everything is the data of those terms.
    pub(crate) fn ready_learners(&mut self, facts: Facts<'_>, liveness: &Liveness) -> Vec<Member> {
        let terms: Vec<Term> = facts.state.division.iter().map(|part| part.term).collect();
        let nodes = facts.state.nodes();
        let early = facts.config.defects.has(Defect::EmptyMembers);
        let mut ready = facts.state.learners.clone();
        ready.retain(|learner| {
            let holds = terms.iter().all(|term| self.keeps_up(learner.node, &nodes, *term));
            (holds || early)
                && self.knows(learner.node, learner.since)
                && !liveness.suspects(facts, learner.node)
                && liveness.has_direct_connections(facts, learner.node)
        });
        ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each pause is twice as long as the last, up to a limit; a peer that stays away long enough begins anew.
    #[test]
    fn pauses_grow_and_are_forgotten() {
        let (mut outside, peer, second) = (Outside::default(), PeerKey([1; 32]), Duration::from_secs(1));
        let mut now = Time(0) + second;
        for length in [30, 60, 120, 240, 480, 600, 600] {
            assert!(!outside.holds(peer, now));
            assert_eq!(outside.send(peer, now), length * second);
            assert!(outside.holds(peer, now + length * second - second));
            now = now + length * second;
        }
        assert_eq!(outside.send(peer, now + OUTSIDE_MAX), OUTSIDE_MIN);
    }

    #[test]
    fn the_peers_outside_are_bounded() {
        let mut outside = Outside::default();
        let peer = |number: usize| PeerKey(core::array::from_fn(|index| (number >> (8 * index.min(7))) as u8));
        for number in 0..2 * OUTSIDE_ROOM {
            outside.send(peer(number), Time(1 + number as u64));
        }
        assert_eq!(outside.0.len(), OUTSIDE_ROOM);
        assert!(outside.holds(peer(2 * OUTSIDE_ROOM - 1), Time(1)) && !outside.holds(peer(0), Time(1)));
    }
}
