//! How many operations a second this node can execute, and what it believes of the other members of its group (Scatter §6.3).
//!
//! The driver measures for how long the node was busy. What the node served in that time, for each second of it, is what the node could serve
//! in a second. It tells that with its heartbeats. Each member judges what the others tell by what it saw them execute
//! ([`policy::capacity`]); the leader divides the group's range by that, and tells neighbours the sum.
//!
//! None of this has a timer of its own: a node looks at it at its other timers.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use group::Group;
use group::capacity::Believed;
use group::config::Defect;
use group::time::Time;
use overlay::NodeId;
use policy::capacity::{Claim, believed, relative, settled};

use crate::node::Node;

/// Between two looks at what members tell.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A window with fewer operations a second says little: most of its time went to heartbeats and timers.
const SERVED_MIN_PER_S: f64 = 50.0;
/// A window in which the node was busy for less than this part is measured too coarsely.
const BUSY_MIN: f64 = 0.01;
/// The estimate moves by this part of its difference from each new measurement.
const SMOOTHING: f64 = 0.25;

/// A node's own capacity, and those of its group's members.
#[derive(Debug, Default)]
pub(crate) struct CapacityWatch {
    /// Operations a second that this node can execute; `None` before a window told.
    pub(crate) measured: Option<f64>,
    /// What the node had served when the last window ended, as [`Node::work`] counts it.
    served: f64,
    /// The members' capacities that were decided by last, in operations a second.
    settled: BTreeMap<NodeId, u32>,
    looked: Time,
}

impl CapacityWatch {
    /// Takes a window, in which so much was served.
    fn measure(&mut self, served: f64, window: Duration, busy: Duration) {
        let (window, busy) = (window.as_secs_f64(), busy.min(window).as_secs_f64());
        if served >= SERVED_MIN_PER_S * window && busy >= BUSY_MIN * window && busy > 0.0 {
            let now = served / busy;
            self.measured = Some(self.measured.map_or(now, |before| before + (now - before) * SMOOTHING));
        }
    }

    /// Returns this node's own capacity in operations a second, as it is told.
    fn own(&self) -> Option<u32> {
        self.measured.map(|measured| measured as u32)
    }

    /// Returns what to believe of each of these members, in their order; nothing unless most of them have told their capacities.
    fn believe(&mut self, claims: &[(NodeId, Claim)]) -> BTreeMap<NodeId, Believed> {
        let told: Vec<Claim> = claims.iter().map(|(_, claim)| *claim).collect();
        let Some(now) = believed(&told) else { return BTreeMap::new() };
        let decided =
            |((node, _), now): (&(NodeId, Claim), u32)| (*node, settled(self.settled.get(node).copied(), now));
        let decided: Vec<(NodeId, u32)> = claims.iter().zip(now).map(decided).collect();
        self.settled = decided.iter().copied().collect();
        let capacities = relative(&decided.iter().map(|(_, ops_per_s)| *ops_per_s).collect::<Vec<_>>());
        let all = decided.into_iter().zip(capacities);
        all.map(|((node, ops_per_s), capacity)| (node, Believed { ops_per_s, quarters: capacity.quarters() })).collect()
    }
}

impl Node {
    /// The driver has measured a window.
    pub(crate) fn on_busy(&mut self, window: Duration, busy: Duration) {
        let work = self.work();
        // A group that was let go of takes its count along.
        let served = (work - core::mem::replace(&mut self.capacities.served, work)).max(0.0);
        self.capacities.measure(served, window, busy);
    }

    /// Returns what the node has served, in operations that it executed as a primary.
    ///
    /// An operation of another primary in which it takes part, and one of its own clients, count as half of one: each comes with about as
    /// many messages as half of an operation of its own. Without these, a member with a small part of the range would seem weak, and its
    /// part would shrink further.
    fn work(&self) -> f64 {
        let assisted: u64 = self.groups().map(Group::operations_assisted).sum();
        self.operations_taken() as f64 + (assisted + self.answered) as f64 / 2.0
    }

    /// Looks from time to time at what the members of the node's own group can execute.
    pub(crate) fn watch_capacities(&mut self) {
        let now = self.now.time;
        if now.since(self.capacities.looked) < LOOK_EVERY {
            return;
        }
        self.capacities.looked = now;
        let own = self.capacities.own();
        self.each_group(|group| group.set_capacity(own));
        let defects = self.config.defects;
        let Some(group) = self.hosts.home() else { return };
        let is_checked = !defects.has(Defect::CapacityUnchecked);
        let claim = |node| Claim {
            told: group.told_capacity(node),
            seen: if is_checked { group.seen_capacity(node) } else { u32::MAX },
        };
        let claims: Vec<(NodeId, Claim)> = group.state().nodes().into_iter().map(|node| (node, claim(node))).collect();
        let believed = match defects.has(Defect::CapacityIgnored) {
            true => BTreeMap::new(),
            false => self.capacities.believe(&claims),
        };
        if let Some(group) = self.hosts.home_mut() {
            group.expect_capacities(believed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(10);

    #[test]
    fn capacity_is_what_was_served_for_each_busy_second() {
        let mut watch = CapacityWatch::default();
        watch.measure(400.0, WINDOW, WINDOW / 10);
        assert_eq!(watch.own(), None, "fifty operations a second are needed");
        watch.measure(4_000.0, WINDOW, WINDOW / 200);
        assert_eq!(watch.own(), None, "and a hundredth of the time");
        watch.measure(4_000.0, WINDOW, WINDOW / 10);
        assert_eq!(watch.own(), Some(4_000));
        watch.measure(8_000.0, WINDOW, WINDOW / 10);
        assert_eq!(watch.own(), Some(5_000), "a quarter of the way");
        (0..30).for_each(|_| watch.measure(4_000.0, WINDOW, WINDOW * 2));
        assert_eq!(watch.own(), Some(400), "it cannot be busy for longer than the window");
        watch.measure(0.0, Duration::ZERO, Duration::ZERO);
        assert_eq!(watch.own(), Some(400), "an empty window tells nothing");
    }
}
