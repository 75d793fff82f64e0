//! The knowledge of one group about another.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::{Called, Epoch, GroupId, KeyRange, NodeId, PeerName, Point};

/// A node with its addresses and its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Contact {
    /// The node.
    pub node: NodeId,
    /// Its multiaddresses as text, best first.
    pub addresses: Vec<String>,
    /// The name that its operator chose, if any.
    pub name: Option<PeerName>,
}

impl Contact {
    /// Returns the form in which people are shown the peer.
    pub fn called(&self) -> Called<'_, NodeId> {
        Called { name: self.name.as_ref(), id: self.node }
    }
}

/// A group as another group, or a peer, knows it (Scatter §3.2).
///
/// Of two references with the same id, the one with the higher epoch is newer: a group's range changes only together with
/// its epoch. A reference in a hint may be of any age, and an old one costs time at worst: a group's own state decides
/// whether the group owns a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GroupRef {
    /// The group's id.
    pub id: GroupId,
    /// The epoch in which the group has this range; also the generation that transactions name.
    pub epoch: Epoch,
    /// The range that the group owns.
    pub range: KeyRange,
    /// Its members, or some of them; the first should be asked first.
    pub members: Vec<Contact>,
}

impl GroupRef {
    /// Returns a reference with at most `count` members, as a hint keeps it.
    pub fn with_members(&self, count: usize) -> GroupRef {
        let members = self.members.iter().take(count).cloned().collect();
        GroupRef { id: self.id, epoch: self.epoch, range: self.range, members }
    }

    /// Returns the nodes of the members.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.members.iter().map(|contact| contact.node)
    }
}

/// Nearness of an arc to a point, for lookups: the greater the nearer. It compares the digits that both share first, then
/// the distance: a group that shares more digits with the point has cells in its table for the next digit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nearness {
    digits: u32,
    gap: core::cmp::Reverse<u128>,
}

impl Nearness {
    /// Returns the nearness of the point of `range` that is nearest to `point`, in either direction.
    pub fn of(range: KeyRange, point: Point) -> Nearness {
        let gap = range.gap(point);
        let nearest = if gap == 0 {
            point
        } else if point.distance_to(range.start()) == gap {
            range.start()
        } else {
            Point(range.end().0.wrapping_sub(1))
        };
        Nearness { digits: (point.0 ^ nearest.0).leading_zeros() / 4, gap: core::cmp::Reverse(gap) }
    }

    /// Returns the nearness for a lookup that goes in ring order only: digits do not count.
    pub fn up(range: KeyRange, point: Point) -> Nearness {
        let gap = if range.contains(point) { 0 } else { range.end().distance_to(point) + 1 };
        Nearness { digits: 0, gap: core::cmp::Reverse(gap) }
    }

    /// Returns the nearness for a lookup that goes against ring order only: digits do not count.
    pub fn down(range: KeyRange, point: Point) -> Nearness {
        let gap = if range.contains(point) { 0 } else { point.distance_to(range.start()) };
        Nearness { digits: 0, gap: core::cmp::Reverse(gap) }
    }
}

impl KeyRange {
    /// Returns the distance of a point outside this arc from the arc, the shorter way round; 0 for a point within.
    pub fn gap(self, point: Point) -> u128 {
        if self.contains(point) {
            return 0;
        }
        let before = point.distance_to(self.start());
        let behind = self.end().distance_to(point) + 1;
        before.min(behind)
    }
}
