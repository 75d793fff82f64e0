//! The recent sizes of each group, and the deaths of members: they explain the end of a lost group.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use overlay::time::Time;
use overlay::{GroupId, NodeId};

/// Number of sizes of a group that are remembered.
const SIZES_MAX: usize = 12;

/// The size of a group from one look on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupSize {
    /// The first look with this size.
    pub(super) since: Time,
    /// Members that live.
    pub(super) living: usize,
    /// All members.
    pub(super) members: usize,
}

/// The recent sizes of all groups, and the deaths of peers.
#[derive(Debug, Default)]
pub(super) struct Trail {
    sizes: BTreeMap<GroupId, VecDeque<GroupSize>>,
    alive: BTreeSet<NodeId>,
    died: BTreeMap<NodeId, Time>,
}

impl Trail {
    /// Takes these peers as the living from now on; peers that are missing since the last look have died.
    pub(super) fn look(&mut self, alive: &BTreeSet<NodeId>, now: Time) {
        let died = self.alive.difference(alive).map(|node| (*node, now));
        self.died.extend(died);
        self.alive.clone_from(alive);
    }

    /// Notes the size of a group.
    pub(super) fn note(&mut self, group: GroupId, living: usize, members: usize, now: Time) {
        let sizes = self.sizes.entry(group).or_default();
        if sizes.back().is_none_or(|last| (last.living, last.members) != (living, members)) {
            sizes.push_back(GroupSize { since: now, living, members });
        }
        while sizes.len() > SIZES_MAX {
            sizes.pop_front();
        }
    }

    /// Forgets the sizes of groups that are no more.
    pub(super) fn keep(&mut self, is_there: impl Fn(&GroupId) -> bool) {
        self.sizes.retain(|group, _| is_there(group));
    }

    /// Returns the last sizes of a group, the oldest first.
    pub(super) fn sizes(&self, group: &GroupId) -> Vec<GroupSize> {
        self.sizes.get(group).map_or(Vec::new(), |sizes| sizes.iter().copied().collect())
    }

    /// Returns the times of death of the dead ones among these members, the first death first, as far as looks told.
    pub(super) fn deaths(&self, members: &[NodeId]) -> Vec<Time> {
        let mut deaths: Vec<Time> = members.iter().filter_map(|member| self.died.get(member).copied()).collect();
        deaths.sort_unstable();
        deaths
    }
}

#[cfg(test)]
mod tests {
    use overlay::{Incarnation, PeerKey};

    use super::*;

    #[test]
    fn sizes_and_deaths_are_remembered() {
        let node = |n: u8| NodeId { peer: PeerKey([n; 32]), incarnation: Incarnation(1) };
        let alive = |nodes: &[u8]| nodes.iter().map(|n| node(*n)).collect::<BTreeSet<_>>();
        let (mut trail, group) = (Trail::default(), GroupId(7));
        for (at, nodes) in [(1, &[1, 2, 3][..]), (2, &[1, 2, 3]), (3, &[1, 3]), (4, &[3])] {
            trail.look(&alive(nodes), Time(at));
            trail.note(group, nodes.len(), 3, Time(at));
        }
        let size = |at, living| GroupSize { since: Time(at), living, members: 3 };
        assert_eq!(trail.sizes(&group), [size(1, 3), size(3, 2), size(4, 1)]);
        assert_eq!(trail.deaths(&[node(1), node(2), node(3)]), [Time(3), Time(4)]);
        (0..100).for_each(|at| trail.note(group, at, 100, Time(at as u64)));
        assert_eq!(trail.sizes(&group).len(), SIZES_MAX);
        trail.keep(|_| false);
        assert_eq!(trail.sizes(&group), []);
    }
}
