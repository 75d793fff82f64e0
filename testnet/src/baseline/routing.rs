//! Recursive routing: a message goes from peer to peer until it comes to one that takes itself for the root. Each hop is acknowledged;
//! where no acknowledgement comes in time, the message goes another way.

use std::time::Duration;

use overlay::Point;
use overlay::time::Time;

use super::message::{Contact, Errand, Message, Routed};
use super::peer::Peer;

/// Number of hops after which a message is dropped.
const HOPS_MAX: u8 = 32;
/// The time for an acknowledgement where no round trip is known: enough for a connection to be made.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(1);
/// Time that is added to twice the round trip, where that is known.
const SLACK: Duration = Duration::from_millis(100);

/// A hop that is not acknowledged yet.
#[derive(Clone, Debug)]
pub(super) struct Hop {
    to: Contact,
    routed: Routed,
    sent: Time,
    pub(super) until: Time,
}

impl Peer {
    /// Returns the peer that a message to the root of a point goes to from here; `None`: this peer takes itself for the root.
    pub(super) fn next_hop(&self, point: Point) -> Option<&Contact> {
        match self.leaves.covers(point) {
            true => self.leaves.root(point),
            false => self.table.next(point).or_else(|| self.leaves.root(point)),
        }
    }

    /// Returns a message of this peer to the root of a point.
    pub(super) fn routed(&mut self, point: Point, errand: Errand) -> Routed {
        Routed { point, origin: self.me.clone(), number: self.number(), hops: 0, errand }
    }

    /// Passes a message on, or executes its errand.
    pub(super) fn route(&mut self, mut routed: Routed) {
        routed.hops += 1;
        if routed.hops > HOPS_MAX {
            return;
        }
        // A newcomer must not be asked for its own leaves.
        let next = self.next_hop(routed.point).filter(|next| next.peer != routed.origin.peer).cloned();
        let Some(to) = next else { return self.execute(routed) };
        let known = self.round_trips.get(&to.peer);
        let within = known.map_or(ACKNOWLEDGED_WITHIN, |known| (2 * *known + SLACK).min(ACKNOWLEDGED_WITHIN));
        let (number, sent) = (self.number(), self.now.time);
        self.send(&to, Message::Hop(number, routed.clone()));
        self.hops.insert(number, Hop { to, routed, sent, until: sent + within });
    }

    /// Ends an acknowledged hop.
    pub(super) fn on_arrived(&mut self, number: u64) {
        let Some(hop) = self.hops.remove(&number) else { return };
        let sample = self.now.time.since(hop.sent);
        let known = self.round_trips.entry(hop.to.peer).or_insert(sample);
        *known = (*known * 7 + sample) / 8;
    }

    /// Sends messages another way that were not acknowledged in time.
    pub(super) fn retry_hops(&mut self) {
        let overdue: Vec<u64> =
            self.hops.iter().filter(|(_, hop)| hop.until <= self.now.time).map(|(number, _)| *number).collect();
        for hop in overdue.iter().filter_map(|number| self.hops.remove(number)).collect::<Vec<_>>() {
            self.leaves.suspect(hop.to.peer);
            self.table.forget(hop.to.peer);
            self.round_trips.remove(&hop.to.peer);
            self.route(hop.routed);
        }
    }
}
