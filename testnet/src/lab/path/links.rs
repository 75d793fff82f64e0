//! The links between wires: delay, jitter, loss, cuts, and the limits of queues.

use std::time::Duration;

use super::schedule::Nanos;
use crate::lab::latency::Jitter;
use crate::lab::plan::QueueLimits;
use crate::rng::Rng;

/// Upper limit of the bytes on all links together.
const TOTAL_BYTES_MAX: u64 = 512 << 20;

/// Decision about a packet that enters a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It arrives at this time.
    Arrives(Nanos),
    /// The link is cut.
    Cut,
    /// It is lost by chance.
    Lost,
    /// A queue is full.
    Full,
}

/// One direction between two wires.
#[derive(Clone, Debug)]
struct PathLink {
    delay: Nanos,
    loss_per_mille: u32,
    is_cut: bool,
    /// Arrival of the last packet.
    last: Nanos,
    bytes: u64,
    rng: Rng,
}

/// The line of a wire in one direction, with a bandwidth.
#[derive(Clone, Copy, Debug, Default)]
struct AccessLine {
    /// Nanoseconds for each byte; 0 if unlimited.
    nanos_per_byte: f64,
    /// Time at which the last packet has passed.
    free: Nanos,
}

impl AccessLine {
    /// Returns the time at which a packet has passed the line; `None` if too many bytes wait already.
    fn pass(&mut self, now: Nanos, bytes: usize, bytes_max: u64) -> Option<Nanos> {
        if self.nanos_per_byte == 0.0 {
            return Some(now);
        }
        let waiting = self.free.saturating_sub(now) as f64 / self.nanos_per_byte;
        if waiting + bytes as f64 > bytes_max as f64 {
            return None;
        }
        self.free = self.free.max(now) + (bytes as f64 * self.nanos_per_byte) as Nanos;
        Some(self.free)
    }
}

/// All links of a laboratory, and the lines of its wires.
#[derive(Debug)]
pub(super) struct PathLinks {
    wires: usize,
    links: Vec<PathLink>,
    /// The lines of each wire: out and in.
    lines: Vec<[AccessLine; 2]>,
    jitter: Jitter,
    queues: QueueLimits,
    /// Bytes on all links.
    pub(super) bytes: u64,
    planned: (Vec<Nanos>, u32),
}

impl PathLinks {
    /// Returns links with these delays, a row for each sender, and lines with these bandwidths in Mbit/s.
    pub(super) fn new(
        delays: &[Vec<Duration>],
        mbit: &[Option<f64>],
        (jitter, loss_per_mille, queues): (Jitter, u32, QueueLimits),
        seed: u64,
    ) -> PathLinks {
        let wires = delays.len();
        let delay = |from: usize, to: usize| Nanos::try_from(delays[from][to].as_nanos()).unwrap_or(Nanos::MAX);
        let links = (0..wires).flat_map(|from| (0..wires).map(move |to| (from, to))).map(|(from, to)| PathLink {
            delay: delay(from, to),
            loss_per_mille,
            is_cut: false,
            last: 0,
            bytes: 0,
            rng: Rng::new(seed, &format!("path {from} {to}")),
        });
        let links: Vec<PathLink> = links.collect();
        let line = |mbit: &Option<f64>| {
            let nanos_per_byte = mbit.map_or(0.0, |mbit| 8_000.0 / mbit);
            [AccessLine { nanos_per_byte, free: 0 }; 2]
        };
        let planned = (links.iter().map(|link| link.delay).collect(), loss_per_mille);
        PathLinks { wires, links, lines: mbit.iter().map(line).collect(), jitter, queues, bytes: 0, planned }
    }

    fn link(&mut self, from: usize, to: usize) -> &mut PathLink {
        &mut self.links[from * self.wires + to]
    }

    /// Decides about a packet that enters a link. One that arrives counts as on the way until [`PathLinks::leave`].
    pub(super) fn admit(&mut self, from: usize, to: usize, bytes: usize, now: Nanos) -> Admission {
        let (total, queues, jitter) = (self.bytes, self.queues, self.jitter);
        let link = &mut self.links[from * self.wires + to];
        // Chance is drawn before all else: the draws of a link depend on the packets that enter it alone.
        let is_lost = link.rng.per_mille(link.loss_per_mille);
        let extra = jitter.draw(&mut link.rng);
        if link.is_cut {
            return Admission::Cut;
        }
        let size = bytes as u64;
        if link.bytes + size > queues.link_bytes || total + size > TOTAL_BYTES_MAX {
            return Admission::Full;
        }
        // A lost packet has passed the sender's line.
        let Some(departs) = self.lines[from][0].pass(now, bytes, queues.line_bytes) else { return Admission::Full };
        if is_lost {
            return Admission::Lost;
        }
        let mut at = departs.saturating_add(link.delay).saturating_add(extra.as_nanos() as Nanos);
        if !jitter.reorder {
            at = at.max(link.last);
            link.last = at;
        }
        link.bytes += size;
        self.bytes += size;
        Admission::Arrives(at)
    }

    /// Returns the time at which a packet has passed the line of its receiver; `None` if the queue before it is full.
    pub(super) fn pass_receiver(&mut self, to: usize, bytes: usize, now: Nanos) -> Option<Nanos> {
        self.lines[to][1].pass(now, bytes, self.queues.line_bytes)
    }

    /// Takes a packet off its link, and returns whether the link is still whole.
    pub(super) fn leave(&mut self, from: usize, to: usize, bytes: usize) -> bool {
        let size = bytes as u64;
        self.bytes = self.bytes.saturating_sub(size);
        let link = self.link(from, to);
        link.bytes = link.bytes.saturating_sub(size);
        !link.is_cut
    }

    /// Cuts a link in one direction. Packets on the way are lost.
    pub(super) fn cut(&mut self, from: usize, to: usize) {
        self.link(from, to).is_cut = true;
    }

    /// Sets the delay of a link for packets that enter it from now on.
    pub(super) fn delay(&mut self, from: usize, to: usize, delay: Duration) {
        let link = self.link(from, to);
        link.delay = delay.as_nanos() as Nanos;
    }

    /// Sets the loss of a link, in packets of 1,000.
    pub(super) fn loss(&mut self, from: usize, to: usize, per_mille: u32) {
        self.link(from, to).loss_per_mille = per_mille;
    }

    /// Makes all links as planned again.
    pub(super) fn heal(&mut self) {
        for (link, delay) in self.links.iter_mut().zip(&self.planned.0) {
            (link.is_cut, link.delay, link.loss_per_mille) = (false, *delay, self.planned.1);
        }
    }

    /// Returns the number of links that are cut.
    pub(super) fn cuts(&self) -> usize {
        self.links.iter().filter(|link| link.is_cut).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::latency::JitterKind;

    const MS: Nanos = 1_000_000;

    fn links(jitter: Jitter, loss: u32, mbit: Option<f64>) -> PathLinks {
        let delays = vec![vec![Duration::from_millis(10); 2]; 2];
        let queues = QueueLimits { link_bytes: 10_000, line_bytes: 5_000 };
        PathLinks::new(&delays, &[mbit, None], (jitter, loss, queues), 7)
    }

    fn arrivals(links: &mut PathLinks, times: impl Iterator<Item = Nanos>) -> Vec<Nanos> {
        times
            .filter_map(|now| match links.admit(0, 1, 100, now) {
                Admission::Arrives(at) => {
                    links.leave(0, 1, 100);
                    Some(at)
                }
                _ => None,
            })
            .collect()
    }

    #[test]
    fn jitter_keeps_the_order_unless_it_may_reorder() {
        for (reorder, ordered) in [(false, true), (true, false)] {
            let jitter = Jitter { kind: JitterKind::Uniform, ms: 5.0, reorder };
            let all = arrivals(&mut links(jitter, 0, None), (0..200).map(|n| n * MS));
            assert_eq!(all.is_sorted(), ordered);
            assert!(all.iter().enumerate().all(|(n, at)| *at >= (n as u64 + 10) * MS), "none is early");
            assert_eq!(all, arrivals(&mut links(jitter, 0, None), (0..200).map(|n| n * MS)), "a seed repeats");
        }
    }

    #[test]
    fn a_link_loses_its_share() {
        let kept = arrivals(&mut links(Jitter::default(), 100, None), 0..10_000).len();
        assert!((8_800..9_200).contains(&kept), "{kept} of 10,000");
        assert_eq!(arrivals(&mut links(Jitter::default(), 1_000, None), 0..100).len(), 0);
    }

    #[test]
    fn a_full_queue_drops() {
        let mut all = links(Jitter::default(), 0, None);
        let admitted = (0..20).filter(|_| matches!(all.admit(0, 1, 1_000, 0), Admission::Arrives(_))).count();
        assert_eq!((admitted, all.bytes), (10, 10_000));
        assert_eq!(all.admit(0, 1, 1_000, 0), Admission::Full);
        all.leave(0, 1, 1_000);
        assert_eq!(all.admit(0, 1, 1_000, 0), Admission::Arrives(10 * MS));
    }

    /// At 8 Mbit/s a packet of 1,000 bytes takes a millisecond, and five of them wait at most.
    #[test]
    fn a_line_passes_one_packet_after_the_other() {
        let mut all = links(Jitter::default(), 0, Some(8.0));
        let sent: Vec<Admission> = (0..6).map(|_| all.admit(0, 1, 1_000, 0)).collect();
        let expected: Vec<Admission> = (1..6).map(|n| Admission::Arrives((n + 10) * MS)).collect();
        assert_eq!((&sent[..5], sent[5]), (&expected[..], Admission::Full));
        assert_eq!(all.pass_receiver(0, 1_000, 50 * MS), Some(51 * MS));
        assert_eq!(all.pass_receiver(1, 1_000, 50 * MS), Some(50 * MS), "the other line is unlimited");
    }

    #[test]
    fn a_cut_is_one_way_and_healed_with_the_rest() {
        let mut all = links(Jitter::default(), 0, None);
        assert!(matches!(all.admit(0, 1, 100, 0), Admission::Arrives(_)));
        all.cut(0, 1);
        all.delay(1, 0, Duration::from_millis(3));
        all.loss(1, 0, 0);
        assert_eq!((all.admit(0, 1, 100, 0), all.leave(0, 1, 100), all.cuts()), (Admission::Cut, false, 1));
        assert_eq!(all.admit(1, 0, 100, 0), Admission::Arrives(3 * MS));
        all.heal();
        assert_eq!(all.admit(0, 1, 100, 0), Admission::Arrives(10 * MS));
        assert_eq!(all.admit(1, 0, 100, 20 * MS), Admission::Arrives(30 * MS));
    }
}
