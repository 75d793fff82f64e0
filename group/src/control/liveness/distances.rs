//! Round trips between all members of a group, as one member learns them from heartbeats.
//!
//! A heartbeat has its own time of sending and echoes the last heartbeat of each other member ([`Heartbeat::echoes`]). So the heartbeats of
//! two members tell a third member how long a message takes there and back between those two, and no member measures anything for it.

use alloc::vec::Vec;
use core::time::Duration;

use overlay::NodeId;

use crate::context::Facts;
use crate::control::liveness::Liveness;
use crate::message::Heartbeat;

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

impl Liveness {
    /// Returns the round trip between each two members, in the order of the members: `[a][b]` is the one between `a` and `b`, zero for a
    /// member and itself, `None` where unknown. Round trips of this node are averages. Those of other members are single measurements, as
    /// old as a heartbeat; drifting clocks falsify them by at most their drift in the time between two heartbeats.
    pub(crate) fn round_trips(&self, facts: Facts<'_>) -> Vec<Vec<Option<Duration>>> {
        let (nodes, limit) = (facts.state.nodes(), facts.config.timing.suspicion());
        let heartbeat = |node: NodeId| self.failure_detector.heartbeat(node, limit, facts.now);
        let between = |one: NodeId, other: NodeId| match (one == facts.me, other == facts.me) {
            _ if one == other => Some(Duration::ZERO),
            (true, _) => self.failure_detector.round_trip(other),
            (_, true) => self.failure_detector.round_trip(one),
            _ => round_trip((one, heartbeat(one)?), (other, heartbeat(other)?), limit),
        };
        nodes.iter().map(|one| nodes.iter().map(|other| between(*one, *other)).collect()).collect()
    }

    /// Returns how long this node waits for a majority of the members, itself counted, in microseconds; `None` where unknown.
    pub(crate) fn agreement_us(&self, facts: Facts<'_>) -> Option<u32> {
        let hears = self.hears(facts);
        let others = facts.state.nodes().into_iter().filter(|node| *node != facts.me && hears.contains(node));
        self.failure_detector.agreement_us(others, facts.state.quorum().checked_sub(1)?)
    }

    /// Returns how long a member that could lead waits for a majority; `None` where unknown.
    pub(crate) fn agreement_of(&self, facts: Facts<'_>, node: NodeId) -> Option<Duration> {
        let own = node == facts.me;
        let us = if own { self.agreement_us(facts) } else { self.candidate_for_lead(facts, node)?.agreement_us };
        us.map(|us| Duration::from_micros(u64::from(us)))
    }
}
