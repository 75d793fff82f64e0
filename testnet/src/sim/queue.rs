//! Events to come, in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bytes::Bytes;
use node::{Input, RequestId};
use overlay::PeerKey;
use overlay::time::Time;

use crate::sim::network::Flight;
use crate::sim::switch::controller::Plan;

/// An event at a moment of true time. A `life` names the process that the event is meant for; a late frame is for the process of
/// that time.
pub(super) enum Event {
    Arrive(Flight),
    Late(Flight),
    Input { host: usize, life: u32, input: Input },
    Synced { host: usize, life: u32 },
    Wake { host: usize, life: u32 },
    Turn { host: usize, life: u32 },
    Connected { a: usize, b: usize, lives: (u32, u32) },
    Noticed { host: usize, life: u32, peer: usize, key: PeerKey },
    Stalled { a: usize, b: usize, serial: u64 },
    Join { host: usize, life: u32 },
    Restart { host: usize, life: u32 },
    Fault(usize),
    FaultEnds(usize),
    Client(usize),
    AtSwitch { at: usize, from: usize, bytes: Bytes },
    Packet { to: usize, bytes: Bytes },
    Look,
    SetTables { at: usize, life: u32, plans: Vec<Plan> },
    Patience { id: RequestId, host: usize },
}

/// Time of an event, its serial number, and its place: the sorted entries are small.
type Queued = (Time, u64, usize);

/// Events to come; those of one moment in the order in which they were put in.
#[derive(Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Reverse<Queued>>,
    events: Vec<Option<Event>>,
    /// Free places in `events`.
    free: Vec<usize>,
    serial: u64,
}

impl Queue {
    /// Adds an event at a time.
    pub fn push(&mut self, at: Time, event: Event) {
        self.serial += 1;
        let place = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            self.events.len() - 1
        });
        self.events[place] = Some(event);
        self.heap.push(Reverse((at, self.serial, place)));
    }

    /// Returns the time of the next event.
    pub fn next_at(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// Takes the next event.
    pub fn pop(&mut self) -> Option<(Time, Event)> {
        let Reverse((at, _, place)) = self.heap.pop()?;
        self.free.push(place);
        Some((at, self.events[place].take()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_of_time_and_then_of_being_put_in() {
        let mut queue = Queue::default();
        let mut seen = Vec::new();
        let mut next = |queue: &mut Queue| match queue.pop() {
            Some((at, Event::Client(client))) => seen.push((at.0, client)),
            _ => panic!("there are clients alone"),
        };
        for (at, client) in [(5, 0), (3, 1), (5, 2), (3, 3)] {
            queue.push(Time(at), Event::Client(client));
        }
        next(&mut queue);
        // The event takes the place of the one that has gone, and not its turn.
        queue.push(Time(3), Event::Client(4));
        assert_eq!(queue.next_at(), Some(Time(3)));
        (0..4).for_each(|_| next(&mut queue));
        assert_eq!(seen, [(3, 1), (3, 3), (3, 4), (5, 0), (5, 2)]);
        assert!(queue.pop().is_none());
    }
}
