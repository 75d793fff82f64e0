//! Round trips between all members of a group, as one member learns them from heartbeats.
//!
//! A heartbeat has its own time of sending and echoes the last heartbeat of each other member ([`Heartbeat::echoes`]). So the heartbeats of
//! two members tell a third member how long a message takes there and back between those two, and no member measures anything for it.

use alloc::vec::Vec;
use core::time::Duration;

use overlay::NodeId;

use crate::group::Group;
use crate::message::Heartbeat;

/// Round trips below this are alike: a scheduler may add as much.
const SHORT: Duration = Duration::from_millis(5);

/// Returns the time from when `heard` sent a heartbeat until `hearer` got it, in microseconds: the first by the clock of `heard`, the
/// second by that of `hearer`. The two clocks differ by an unknown constant. `None` where the heartbeat of `hearer` has no echo of one.
fn one_way_us(hearer: &Heartbeat, heard: NodeId) -> Option<i128> {
    let place = hearer.hears.iter().position(|node| *node == heard)?;
    let echo = (*hearer.echoes.get(place)?)?;
    Some(i128::from(hearer.sent_us) - i128::from(echo.held_us) - i128::from(echo.sent_us))
}

/// Returns the round trip between two members from a heartbeat of each: the clocks' difference cancels out. `None` where it is unknown,
/// negative or at least `limit`: then one of the two has started again.
fn round_trip(one: (NodeId, &Heartbeat), other: (NodeId, &Heartbeat), limit: Duration) -> Option<Duration> {
    let us = one_way_us(one.1, other.0)? + one_way_us(other.1, one.0)?;
    let found = Duration::from_micros(u64::try_from(us).ok()?);
    (found < limit).then_some(found)
}

impl Group {
    /// Returns the round trip between each two members, in the order of the members: `[a][b]` is the one between `a` and `b`, zero for a
    /// member and itself, `None` where unknown. Round trips of this node are averages. Those of other members are single measurements, as
    /// old as a heartbeat; drifting clocks falsify them by at most their drift in the time between two heartbeats.
    pub fn round_trips(&self) -> Vec<Vec<Option<Duration>>> {
        let (nodes, limit) = (self.state.nodes(), self.config.timing.suspicion());
        let heartbeat = |node: NodeId| self.failure_detector.heartbeat(node, limit, self.now.time);
        let between = |one: NodeId, other: NodeId| match (one == self.me, other == self.me) {
            _ if one == other => Some(Duration::ZERO),
            (true, _) => self.failure_detector.round_trip(other),
            (_, true) => self.failure_detector.round_trip(one),
            _ => round_trip((one, heartbeat(one)?), (other, heartbeat(other)?), limit),
        };
        nodes.iter().map(|one| nodes.iter().map(|other| between(*one, *other)).collect()).collect()
    }

    /// Follows, while this node leads, how long each member waits for the answers of a majority: the round trip to the last of the nearest
    /// members that make a majority with it (Scatter §6.2). A moving average over about eight heartbeats, in which one measurement counts
    /// for at most four times the average, for those of other members are single ones.
    pub(crate) fn follow_trips(&mut self) {
        if !self.log.leads() {
            return self.leader.agreements.clear();
        }
        let quorum = self.state.quorum();
        for (node, trips) in self.state.nodes().into_iter().zip(self.round_trips()) {
            let mut known: Vec<Duration> = trips.into_iter().flatten().collect();
            known.sort_unstable();
            let Some(measured) = known.get(quorum - 1).copied() else { continue };
            let average = self.leader.agreements.entry(node).or_insert(measured);
            *average = (*average * 7 + measured.min(*average * 4 + SHORT)) / 8;
        }
    }
}
