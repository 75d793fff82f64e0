//! The round trips between all members of a group, as one member learns them from heartbeats.
//!
//! A heartbeat tells when it was sent and gives back the last heartbeat of each other member ([`Heartbeat::echoes`]). So the heartbeats of
//! two members tell a third member how long a message takes there and back between those two, and no member measures anything for it.

use alloc::vec::Vec;
use core::time::Duration;

use overlay::NodeId;

use crate::group::Group;
use crate::message::Heartbeat;

/// Returns the time from when `heard` sent a heartbeat until `hearer` got it, in microseconds: the first by the clock of `heard`, the
/// second by that of `hearer`, whose clocks differ by an unknown constant. `None` where the heartbeat of `hearer` gives none back.
fn one_way_us(hearer: &Heartbeat, heard: NodeId) -> Option<i128> {
    let place = hearer.hears.iter().position(|node| *node == heard)?;
    let echo = (*hearer.echoes.get(place)?)?;
    Some(i128::from(hearer.sent_us) - i128::from(echo.held_us) - i128::from(echo.sent_us))
}

/// Returns the round trip between two members from a heartbeat of each: the clocks' difference cancels out. `None` where that is not known,
/// or where it is negative or at least `limit`: one of the two has started again.
fn round_trip(one: (NodeId, &Heartbeat), other: (NodeId, &Heartbeat), limit: Duration) -> Option<Duration> {
    let us = one_way_us(one.1, other.0)? + one_way_us(other.1, one.0)?;
    let found = Duration::from_micros(u64::try_from(us).ok()?);
    (found < limit).then_some(found)
}

impl Group {
    /// Returns the round trip between each two members, in the order of the members: `[a][b]` is the one between `a` and `b`, zero for a
    /// member and itself, `None` where that is not known. Round trips of this node are averages. Those of other members are single
    /// measurements, as old as a heartbeat; drifting clocks falsify them by at most their drift in the time between two heartbeats.
    pub fn round_trips(&self) -> Vec<Vec<Option<Duration>>> {
        let (nodes, limit) = (self.state.nodes(), self.config.timing.suspicion());
        let heartbeat = |node: NodeId| self.pulse.heartbeat(node, limit, self.now.time);
        let between = |one: NodeId, other: NodeId| match (one == self.me, other == self.me) {
            _ if one == other => Some(Duration::ZERO),
            (true, _) => self.pulse.round_trip(other),
            (_, true) => self.pulse.round_trip(one),
            _ => round_trip((one, heartbeat(one)?), (other, heartbeat(other)?), limit),
        };
        nodes.iter().map(|one| nodes.iter().map(|other| between(*one, *other)).collect()).collect()
    }
}

#[cfg(test)]
mod tests {
    use overlay::{Incarnation, PeerKey};

    use super::*;
    use crate::ballot::Slot;
    use crate::message::{Echo, Parting};
    use crate::time::WallMillis;

    const LIMIT: Duration = Duration::from_secs(2);

    fn node(n: u8) -> NodeId {
        NodeId { peer: PeerKey([n; 32]), incarnation: Incarnation(1) }
    }

    /// A heartbeat sent at this time, which gives back one of another member.
    fn heartbeat(sent_us: u64, of: u8, echo: Option<(u64, u32)>) -> Heartbeat {
        Heartbeat {
            applied: Slot(1),
            leads: None,
            chosen: Slot(1),
            hears: alloc::vec![node(9), node(of)],
            terms: Vec::new(),
            parting: Parting::Stays,
            sealed: false,
            wall: WallMillis(1),
            sent_us,
            echoes: alloc::vec![None, echo.map(|(sent_us, held_us)| Echo { sent_us, held_us })],
            agreement_us: None,
            doubt: None,
            load: None,
            full: false,
            absences: Vec::new(),
            capacity: None,
            progress: None,
            marks: Vec::new(),
        }
    }

    /// The clock of the second member is an hour ahead. A message takes 30 ms one way, and 12 ms the other way.
    #[test]
    fn clocks_cancel_out() {
        const HOUR: u64 = 3_600_000_000;
        let first = heartbeat(1_000_000, 2, Some((HOUR + 500_000, 1_000_000 - 530_000)));
        let second = heartbeat(HOUR + 1_100_000, 1, Some((1_000_000, 100_000 - 12_000)));
        let of = |first: &Heartbeat, second: &Heartbeat| round_trip((node(1), first), (node(2), second), LIMIT);
        assert_eq!(of(&first, &second), Some(Duration::from_millis(42)));
        assert_eq!(of(&second, &first), None, "they give back no heartbeats of their own");
        assert_eq!(of(&heartbeat(1_000_000, 2, None), &second), None);
        // The second member started again: its clock begins anew, and the first member gives back a heartbeat of before.
        assert_eq!(of(&first, &heartbeat(1_100_000, 1, Some((1_000_000, 88_000)))), None);
        let ahead = heartbeat(3 * HOUR, 1, Some((1_000_000, 88_000)));
        assert_eq!(of(&first, &ahead), None);
    }
}
