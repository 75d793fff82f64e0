//! Opinions of the members about each other: which members each one has heard recently, as its heartbeats report.

use alloc::vec::Vec;

use overlay::NodeId;

use crate::config::{Defect, Defects};
use crate::context::Facts;
use crate::control::liveness::Liveness;

/// Square matrix over the members: whether one member has heard another recently.
#[derive(Clone, Debug)]
pub(crate) struct Opinions {
    /// Index of this node, if it is a member.
    me: Option<usize>,
    /// Row: the hearer. Column: the heard. Both in the order of the members. `None`: the hearer's last heartbeat is too old to count.
    heard: Vec<Option<Vec<bool>>>,
    defects: Defects,
}

impl Opinions {
    /// Returns the members' current opinions of each other.
    pub(crate) fn of(facts: Facts<'_>, liveness: &Liveness) -> Opinions {
        let nodes = facts.state.nodes();
        let of = |node: &NodeId| {
            if *node == facts.me {
                return Some(nodes.iter().map(|other| !liveness.suspects(facts, *other)).collect());
            }
            let heartbeat = liveness.recent_heartbeat(facts, *node)?;
            Some(nodes.iter().map(|other| heartbeat.hears.contains(other)).collect())
        };
        Opinions {
            me: nodes.iter().position(|node| *node == facts.me),
            heard: nodes.iter().map(of).collect(),
            defects: facts.config.defects,
        }
    }

    fn quorum(&self) -> usize {
        self.heard.len() / 2 + 1
    }

    fn has_heard(&self, hearer: usize, heard: usize) -> Option<bool> {
        Some(self.heard[hearer].as_ref()?[heard])
    }

    /// Returns whether a majority of the members misses `member`.
    pub(crate) fn is_missed(&self, member: usize) -> bool {
        let all = 0..self.heard.len();
        all.filter(|other| self.has_heard(*other, member) == Some(false)).count() >= self.quorum()
    }

    /// Returns whether this node hears a majority of the members, itself included, and that majority hears this node. A leader with a
    /// link that works in one direction only cannot tell a dead member from its own bad link.
    pub(crate) fn is_heard_both_ways(&self) -> bool {
        let Some(me) = self.me else { return false };
        let both = |other: &usize| self.has_heard(me, *other) == Some(true) && self.has_heard(*other, me) == Some(true);
        let count = (0..self.heard.len()).filter(|other| *other == me || both(other)).count();
        count >= self.quorum() || self.defects.has(Defect::OneWayRemoval)
    }

    /// Returns whether most pairs of the members that are heard at all do not hear each other. No member hears a dead one; a silence
    /// that is spread over most pairs has another cause: overloaded machines, or an overloaded network.
    pub(crate) fn is_patchy(&self) -> bool {
        let all = 0..self.heard.len();
        let hears = |one: usize, other: usize| one != other && self.has_heard(one, other) == Some(true);
        let heard: Vec<usize> =
            all.clone().filter(|it| Some(*it) == self.me || all.clone().any(|one| hears(one, *it))).collect();
        let pairs = heard.iter().flat_map(|one| heard.iter().map(move |other| (*one, *other)));
        let opinions: Vec<bool> =
            pairs.filter(|(one, other)| one != other).filter_map(|(one, other)| self.has_heard(one, other)).collect();
        let silent = opinions.iter().filter(|hears| !**hears).count();
        silent * 2 > opinions.len() && !self.defects.has(Defect::LoadRemoves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds the matrix of `count` members, of which the first is this node. `silent` members have no row.
    fn opinions(count: usize, silent: &[usize], hears: impl Fn(usize, usize) -> bool) -> Opinions {
        let row = |one: usize| (!silent.contains(&one)).then(|| (0..count).map(|other| hears(one, other)).collect());
        Opinions { me: Some(0), heard: (0..count).map(row).collect(), defects: Defects::NONE }
    }

    #[test]
    fn the_dead_are_missed_by_all_and_no_silence_is_spread() {
        for dead in 0..4 {
            let known = opinions(9, &(9 - dead..9).collect::<Vec<_>>(), |_, other| other < 9 - dead);
            assert!(known.is_heard_both_ways() && !known.is_patchy());
            assert_eq!((1..9).filter(|other| known.is_missed(*other)).count(), dead);
        }
    }

    /// This node hears all and too few hear it, or the other way round.
    #[test]
    fn a_majority_in_one_direction_does_not_count() {
        let deaf = opinions(5, &[4], |one, other| other != 4 && (one != 0 || other < 2));
        let mute = opinions(5, &[4], |one, other| other != 4 && (other != 0 || one < 2));
        for known in [&deaf, &mute] {
            assert!(!known.is_heard_both_ways() && !known.is_patchy() && known.is_missed(4));
            assert!(
                Opinions { defects: Defects::NONE.with(Defect::OneWayRemoval), ..known.clone() }.is_heard_both_ways()
            );
        }
    }

    /// One bad link, or one member that hears badly, is not load. A star around this node is.
    #[test]
    fn load_shows_in_most_pairs() {
        let link = opinions(5, &[], |one, other| (one, other) != (1, 2) && (one, other) != (2, 1));
        let deaf = opinions(5, &[], |one, other| one != 3 || other == 0);
        let star = opinions(6, &[5], |one, other| other != 5 && (one == 0 || other == 0));
        assert!(!link.is_patchy() && !deaf.is_patchy() && star.is_patchy() && star.is_missed(5));
        assert!(!Opinions { defects: Defects::NONE.with(Defect::LoadRemoves), ..star }.is_patchy());
    }

    /// Half of the members cut off from the other half: each misses the other half, and has no majority for that.
    #[test]
    fn two_halves_remove_no_member() {
        let halves = opinions(6, &[3, 4, 5], |one, other| (one < 3) == (other < 3));
        assert!((1..6).all(|other| !halves.is_missed(other)));
        assert!(!halves.is_heard_both_ways());
    }
}
