//! Group time: the median of the members' wall clocks (`docs/design/primaries.md`).
//!
//! Group time decides expiry and the age of members. One wrong clock does not move it. It may step back a little; its decisions are chosen
//! in the log or by a primary, so nothing that expired comes back.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use overlay::NodeId;

use overlay::time::{Now, Time, WallMillis};

/// Clock that the members of a group agree on, as one member computes it.
#[derive(Clone, Debug, Default)]
pub struct GroupClock {
    /// For each other member, its wall clock less the steady clock of this node, in milliseconds, as of its last heartbeat.
    walls: BTreeMap<NodeId, i128>,
    /// Group time less the steady clock of this node, in milliseconds, as of the last [`GroupClock::set`].
    offset: i128,
}

impl GroupClock {
    /// Forgets the clocks of all nodes but these.
    pub fn keep(&mut self, nodes: &[NodeId]) {
        self.walls.retain(|node, _| nodes.contains(node));
    }

    /// Notes the wall clock that a member's heartbeat carries.
    pub fn on_heartbeat(&mut self, from: NodeId, wall: WallMillis, now: Time) {
        self.walls.insert(from, beyond_steady(wall, now));
    }

    /// Sets group time from all known clocks. To be called at every heartbeat of this node.
    pub fn set(&mut self, now: Now) {
        let mut offsets: Vec<i128> = self.walls.values().copied().collect();
        offsets.push(beyond_steady(now.wall, now.time));
        offsets.sort_unstable();
        // Of two clocks in the middle the lower one: rather late than early.
        self.offset = offsets[(offsets.len() - 1) / 2];
    }

    /// Returns the group time; zero if it would be negative.
    pub fn group_time(&self, now: Time) -> WallMillis {
        WallMillis(u64::try_from(steady_ms(now) + self.offset).unwrap_or(0))
    }
}

fn steady_ms(now: Time) -> i128 {
    i128::from(now.0 / 1_000_000)
}

fn beyond_steady(wall: WallMillis, now: Time) -> i128 {
    i128::from(wall.0) - steady_ms(now)
}

#[cfg(test)]
mod tests {
    use overlay::{Incarnation, PeerKey};

    use super::*;

    fn node(number: u8) -> NodeId {
        NodeId { peer: PeerKey([number; 32]), incarnation: Incarnation(1) }
    }

    fn at(seconds: u64, wall: u64) -> Now {
        Now { time: Time(seconds * 1_000_000_000), awake: Time(0), wall: WallMillis(wall) }
    }

    /// Returns the group time after these wall clocks of other members were heard, by a member with this wall clock.
    fn median(own: u64, others: &[u64]) -> u64 {
        let mut clock = GroupClock::default();
        for (number, wall) in others.iter().enumerate() {
            clock.on_heartbeat(node(number as u8), WallMillis(*wall), Time(1_000_000_000));
        }
        clock.set(at(1, own));
        clock.group_time(Time(1_000_000_000)).0
    }

    #[test]
    fn one_wrong_clock_does_not_move_group_time() {
        assert_eq!(median(50_000, &[50_010, 900_000]), 50_010);
        assert_eq!(median(50_000, &[50_010, 0]), 50_000);
        assert_eq!(median(900_000, &[50_010, 50_020]), 50_020);
    }

    #[test]
    fn the_lower_one_of_two_clocks_in_the_middle_counts() {
        assert_eq!(median(50_000, &[60_000]), 50_000);
    }

    #[test]
    fn a_former_member_counts_no_more() {
        let mut clock = GroupClock::default();
        clock.on_heartbeat(node(1), WallMillis(10_000), Time(0));
        clock.on_heartbeat(node(2), WallMillis(10_000), Time(0));
        clock.keep(&[node(2)]);
        clock.set(at(0, 30_000));
        assert_eq!(clock.group_time(Time(0)), WallMillis(10_000), "of two, the lower one");
        clock.keep(&[]);
        clock.set(at(0, 30_000));
        assert_eq!(clock.group_time(Time(2_000_000_000)), WallMillis(32_000), "it goes on between two settings");
    }
}
