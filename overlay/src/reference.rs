//! What one group knows of another.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::{Called, Epoch, GroupId, KeyRange, NodeId, PeerName, Point};

/// Somebody who can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Contact {
    /// Who.
    pub node: NodeId,
    /// Where: multiaddresses as text, best first.
    pub addresses: Vec<String>,
    /// What its operator calls it.
    pub name: Option<PeerName>,
}

impl Contact {
    /// The peer as people are shown it.
    pub fn called(&self) -> Called<'_, NodeId> {
        Called { name: self.name.as_ref(), id: self.node }
    }
}

/// One group as another one, or a peer, knows it (Scatter §3.2).
///
/// Of the same id, that of the higher epoch is true for longer; a group's range changes only together with its epoch. A
/// reference in a hint may be of any age, and costs time at worst: whether a group owns a key is decided by its own state.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GroupRef {
    /// Which group.
    pub id: GroupId,
    /// Since when it is as it is said to be here: also the generation that transactions name.
    pub epoch: Epoch,
    /// What it owns.
    pub range: KeyRange,
    /// Its members, or some of them; whoever should be asked first comes first.
    pub members: Vec<Contact>,
}

impl GroupRef {
    /// A reference with only so many members: what a hint keeps.
    pub fn with_members(&self, count: usize) -> GroupRef {
        let members = self.members.iter().take(count).cloned().collect();
        GroupRef { id: self.id, epoch: self.epoch, range: self.range, members }
    }

    /// Its members' nodes.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.members.iter().map(|contact| contact.node)
    }
}

/// How near an arc is to a point, for lookups: the more the nearer. In whole digits first: of whoever shares more of them
/// with the point the table has cells for the next one. Then by the way round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nearness {
    digits: u32,
    gap: core::cmp::Reverse<u128>,
}

impl Nearness {
    /// Of the point of this arc that is nearest to that one.
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

    /// The same for whoever goes in ring order only: digits do not count.
    pub fn up(range: KeyRange, point: Point) -> Nearness {
        let gap = if range.contains(point) { 0 } else { range.end().distance_to(point) + 1 };
        Nearness { digits: 0, gap: core::cmp::Reverse(gap) }
    }

    /// And for whoever goes against it.
    pub fn down(range: KeyRange, point: Point) -> Nearness {
        let gap = if range.contains(point) { 0 } else { point.distance_to(range.start()) };
        Nearness { digits: 0, gap: core::cmp::Reverse(gap) }
    }
}

impl KeyRange {
    /// How far a point lies outside this arc, whichever way round is shorter; 0 within.
    pub fn gap(self, point: Point) -> u128 {
        if self.contains(point) {
            return 0;
        }
        let before = point.distance_to(self.start());
        let behind = self.end().distance_to(point) + 1;
        before.min(behind)
    }
}
