//! What is to come, in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use group::time::Time;
use node::{Input, RequestId};

use crate::sim::network::Flight;

/// Something that happens at a moment of true time. A `life` names the process that it is meant for; a late frame is for
/// whichever is there.
pub(super) enum Event {
    Arrive(Flight),
    Late(Flight),
    Input { host: usize, life: u32, input: Input },
    Synced { host: usize, life: u32 },
    Wake { host: usize, life: u32 },
    Turn { host: usize, life: u32 },
    Connected { a: usize, b: usize, lives: (u32, u32) },
    Noticed { host: usize, life: u32, peer: usize },
    Stalled { a: usize, b: usize, serial: u64 },
    Join { host: usize, life: u32 },
    Restart { host: usize, life: u32 },
    Fault(usize),
    FaultEnds(usize),
    Client(usize),
    Patience { id: RequestId, host: usize },
}

struct Queued {
    at: Time,
    serial: u64,
    event: Event,
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.serial) == (other.at, other.serial)
    }
}
impl Eq for Queued {}
impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Queued {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}

/// Events that are to come; those of one moment in the order in which they were put in.
#[derive(Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Reverse<Queued>>,
    serial: u64,
}

impl Queue {
    /// Something is to happen then.
    pub fn push(&mut self, at: Time, event: Event) {
        self.serial += 1;
        self.heap.push(Reverse(Queued { at, serial: self.serial, event }));
    }

    /// When the next thing happens.
    pub fn next_at(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse(next)| next.at)
    }

    /// The next thing.
    pub fn pop(&mut self) -> Option<(Time, Event)> {
        self.heap.pop().map(|Reverse(next)| (next.at, next.event))
    }
}
