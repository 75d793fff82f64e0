//! Packets on their way, in the order in which they arrive. Buffers are used again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Time of the machine's monotonic clock, in nanoseconds.
pub(super) type Nanos = u64;

/// Upper limit of the buffers that are kept for later packets.
const SPARE_MAX: usize = 4_096;

/// A packet on its way.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) bytes: Vec<u8>,
    /// Whether it already waited for the line of its receiver.
    pub(super) is_past_line: bool,
}

/// Packets by the time of their next step. Packets of the same time keep the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    due: BinaryHeap<Reverse<(Nanos, u64, usize)>>,
    packets: Vec<Option<Packet>>,
    vacant: Vec<usize>,
    spare: Vec<Vec<u8>>,
    count: u64,
}

impl Schedule {
    /// Returns a buffer with these bytes, a used one if there is one.
    pub(super) fn buffer(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        buffer
    }

    /// Takes back the buffer of a packet that has arrived.
    pub(super) fn recycle(&mut self, packet: Packet) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(packet.bytes);
        }
    }

    /// Adds a packet.
    pub(super) fn add(&mut self, at: Nanos, packet: Packet) {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.packets.push(None);
            self.packets.len() - 1
        });
        self.packets[slot] = Some(packet);
        self.count += 1;
        self.due.push(Reverse((at, self.count, slot)));
    }

    /// Returns the time of the next step.
    pub(super) fn next(&self) -> Option<Nanos> {
        self.due.peek().map(|Reverse((at, ..))| *at)
    }

    /// Takes the next packet that is due, with its time.
    pub(super) fn take_due(&mut self, now: Nanos) -> Option<(Nanos, Packet)> {
        let Reverse((at, _, slot)) = *self.due.peek().filter(|Reverse((at, ..))| *at <= now)?;
        self.due.pop();
        self.vacant.push(slot);
        self.packets[slot].take().map(|packet| (at, packet))
    }

    /// Returns the number of packets on their way.
    pub(super) fn len(&self) -> usize {
        self.due.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(schedule: &mut Schedule, mark: u8) -> Packet {
        Packet { from: 0, to: 1, bytes: schedule.buffer(&[mark]), is_past_line: false }
    }

    #[test]
    fn packets_come_in_order_of_time_and_then_of_arrival() {
        let mut schedule = Schedule::default();
        for (at, mark) in [(30, 1), (10, 2), (10, 3), (20, 4)] {
            let packet = packet(&mut schedule, mark);
            schedule.add(at, packet);
        }
        let mut marks = Vec::new();
        while let Some((at, packet)) = schedule.take_due(25) {
            marks.push((at, packet.bytes[0]));
            schedule.recycle(packet);
        }
        assert_eq!(marks, [(10, 2), (10, 3), (20, 4)]);
        assert_eq!((schedule.next(), schedule.len()), (Some(30), 1));
        // Three buffers and three places are free for the next packets.
        for mark in 5..8 {
            let packet = packet(&mut schedule, mark);
            schedule.add(40, packet);
        }
        assert_eq!((schedule.packets.len(), schedule.spare.len(), schedule.vacant.len()), (4, 0, 0));
    }
}
