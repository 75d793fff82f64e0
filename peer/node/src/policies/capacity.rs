//! Capacity of this node in operations a second, and its belief about the capacities of the other members of its group (Scatter §6.3).
//!
//! The driver measures for how long the node was busy. The operations that the node served in that time, for each busy second, are the
//! operations that the node could serve in a second. It tells that with its heartbeats. Each member judges the reports of the others by the
//! operations that it saw them execute ([`policy::capacity`]). The leader divides the group's range by the result, and tells neighbours the
//! sum.
//!
//! None of this has a timer of its own: a node checks it at its other timers.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use group::config::Defect;
use group::control::capacity::Believed;
use overlay::NodeId;
use overlay::time::Time;
use policy::capacity::{Claim, believed, relative, settled};

use crate::context::Context;

/// Time between two checks of the members' reports.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Rate below which a window says little, in operations a second: most of its busy time went to heartbeats and timers.
const SERVED_MIN_PER_S: f64 = 50.0;
/// Busy part of a window below which the measurement is too coarse, from 0 to 1.
const BUSY_MIN: f64 = 0.01;
/// Part of its difference from each new measurement by which the estimate moves.
const SMOOTHING: f64 = 0.25;

/// A node's own capacity, and those of its group's members.
#[derive(Debug, Default)]
pub(crate) struct CapacityWatch {
    /// Operations a second that this node can execute; `None` before the first usable window.
    pub(crate) measured: Option<f64>,
    /// Work of the node up to the end of the last window, as `Node::work` counts it.
    served: f64,
    /// Capacities of the members on which the last decision rested, in operations a second.
    settled: BTreeMap<NodeId, u32>,
    looked: Time,
}

impl CapacityWatch {
    /// Takes a window, with the operations served in it.
    fn measure(&mut self, served: f64, window: Duration, busy: Duration) {
        let (window, busy) = (window.as_secs_f64(), busy.min(window).as_secs_f64());
        if served >= SERVED_MIN_PER_S * window && busy >= BUSY_MIN * window && busy > 0.0 {
            let now = served / busy;
            self.measured = Some(self.measured.map_or(now, |before| before + (now - before) * SMOOTHING));
        }
    }

    /// Returns this node's own capacity in operations a second, as it reports it.
    fn own(&self) -> Option<u32> {
        self.measured.map(|measured| measured as u32)
    }

    /// Returns the belief about each of these members, in their order; nothing unless most of them have reported their capacities.
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

impl CapacityWatch {
    /// Takes a window that the driver has measured.
    pub(crate) fn on_busy(&mut self, work: f64, window: Duration, busy: Duration) {
        // A group that was let go of takes its count along.
        let served = (work - core::mem::replace(&mut self.served, work)).max(0.0);
        self.measure(served, window, busy);
    }

    /// Checks from time to time the capacities of the members of the node's own group.
    pub(crate) fn watch(&mut self, cx: &mut Context<'_>) {
        let now = cx.now.time;
        if now.since(self.looked) < LOOK_EVERY {
            return;
        }
        self.looked = now;
        let own = self.own();
        cx.replicas.each(|group| group.set_capacity(own));
        let defects = cx.config.defects;
        let Some(group) = cx.replicas.home() else { return };
        let is_checked = !defects.has(Defect::CapacityUnchecked);
        let claim = |node| Claim {
            told: group.told_capacity(node),
            seen: if is_checked { group.seen_capacity(node) } else { u32::MAX },
        };
        let claims: Vec<(NodeId, Claim)> = group.state().nodes().into_iter().map(|node| (node, claim(node))).collect();
        let believed = match defects.has(Defect::CapacityIgnored) {
            true => BTreeMap::new(),
            false => self.believe(&claims),
        };
        if let Some(group) = cx.replicas.home_mut() {
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
