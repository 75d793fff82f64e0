//! The wires: streams per pair of machines, direction and class, and all their faults.

pub(super) mod connections;
pub(crate) mod planet;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use node::Class;
use overlay::time::Time;

use crate::marks::Marks;
use crate::rng::Rng;
use crate::sim::network::planet::Planet;

/// Number of frames that wait in a stalled stream; later frames are dropped, as in the driver's bounded queues.
pub const HELD_MAX: usize = 4_096;

/// Travel time of a frame.
#[derive(Clone, Debug)]
pub enum Latency {
    /// The same on all links: at least the first duration, mostly below the sum, rarely much longer.
    Uniform(Duration, Duration),
    /// Machines stand in three sites in turn: short inside, tens of milliseconds between them (Scatter §7).
    ThreeSites,
    /// Machines stand in the papers' three sites in turn: round trips of 82, 79 and 38 ms between them, and 0.3 ms inside.
    PaperSites,
    /// Latencies like those on PlanetLab, by a model.
    Planet(Arc<Planet>),
}

impl Latency {
    /// Returns the least travel time of one way between two machines, and the most that is usually added.
    pub fn between(&self, from: usize, to: usize) -> (Duration, Duration) {
        match *self {
            Latency::Uniform(base, jitter) => (base, jitter),
            Latency::Planet(ref planet) => {
                let base = planet.one_way(from, to);
                (base, base / 20)
            }
            Latency::ThreeSites if from % 3 == to % 3 => (Duration::from_micros(300), Duration::from_micros(200)),
            Latency::PaperSites => {
                let micros = match (from % 3, to % 3) {
                    (a, b) if a == b => 150,
                    (0, 1) | (1, 0) => 41_000,
                    (0, 2) | (2, 0) => 39_500,
                    _ => 19_000,
                };
                (Duration::from_micros(micros), Duration::ZERO)
            }
            Latency::ThreeSites => {
                let apart = (from % 3 + to % 3) as u64;
                (Duration::from_millis(20 + 20 * apart), Duration::from_millis(5))
            }
        }
    }
}

/// Faults that occur all the time, each as a rate in frames of 1,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noise {
    /// Frames that are lost.
    pub loss: u32,
    /// Frames that are delivered twice.
    pub duplication: u32,
    /// Frames that later ones overtake.
    pub reordering: u32,
}

/// A frame on its way.
#[derive(Clone, Debug)]
pub struct Flight {
    /// Index of the sender.
    pub from: usize,
    /// Index of the receiver.
    pub to: usize,
    /// Life of the receiver at the time of sending: a later life has another connection.
    pub life: u32,
    /// Class of the stream.
    pub class: Class,
    /// Encoded content of the frame.
    pub frame: Bytes,
}

/// One direction between two machines. A link that was never used equals the default.
#[derive(Debug, Default)]
struct Link {
    /// Number of faults that stall the link now.
    blocks: u32,
    held: VecDeque<Flight>,
    /// Arrival of the last frame of each class: streams keep their order.
    last_arrival: [Time; 3],
}

impl Link {
    /// Returns whether the link is as good as one that was never used.
    fn is_idle(&self, now: Time) -> bool {
        self.blocks == 0 && self.held.is_empty() && self.last_arrival.iter().all(|at| *at <= now)
    }
}

/// Number of a sender's links from which on it drops the idle ones when it needs another.
const LINKS_MAX: usize = 128;

/// All wires between the machines. Links that are not in use take no memory.
#[derive(Debug)]
pub struct Network {
    /// Links by sender, then by receiver.
    links: Vec<BTreeMap<usize, Link>>,
    latency: Latency,
    noise: Noise,
    /// For each machine: loss of the frames to and from it, in frames of 1,000.
    lossy: Vec<u32>,
    rng: Rng,
}

impl Network {
    /// Returns wires without faults.
    pub fn new(n: usize, latency: Latency, rng: Rng) -> Network {
        let links = (0..n).map(|_| BTreeMap::new()).collect();
        Network { links, latency, noise: Noise::default(), lossy: vec![0; n], rng }
    }

    fn link(&mut self, now: Time, from: usize, to: usize) -> &mut Link {
        let links = &mut self.links[from];
        if links.len() >= LINKS_MAX && !links.contains_key(&to) {
            links.retain(|_, link| !link.is_idle(now));
        }
        links.entry(to).or_default()
    }

    /// Sets the noise from now on.
    pub fn set_noise(&mut self, noise: Noise) {
        self.noise = noise;
    }

    /// Loses `per_mille` of 1,000 frames to and from this machine from now on.
    pub fn set_loss(&mut self, host: usize, per_mille: u32) {
        self.lossy[host] = per_mille;
    }

    /// Sends a frame: its arrivals are pushed to `arrivals` with their times.
    pub fn send(&mut self, now: Time, flight: Flight, arrivals: &mut Vec<(Time, Flight)>, marks: &mut Marks) {
        let (from, to) = (flight.from, flight.to);
        let link = self.link(now, from, to);
        if link.blocks > 0 {
            if link.held.len() < HELD_MAX {
                link.held.push_back(flight);
            } else {
                marks.hit("network: a stalled stream was full");
            }
            return;
        }
        let loss = self.noise.loss.max(self.lossy[flight.from]).max(self.lossy[flight.to]);
        if self.rng.per_mille(loss) {
            marks.hit("network: frame lost");
            return;
        }
        let mut arrival = now + self.delay(flight.from, flight.to);
        if self.rng.per_mille(self.noise.reordering) {
            marks.hit("network: frame delayed out of order");
            arrival = arrival + self.delay(flight.from, flight.to) * self.rng.between(1, 10) as u32;
        } else {
            let last = &mut self.link(now, from, to).last_arrival[class_index(flight.class)];
            arrival = arrival.max(*last);
            *last = arrival;
        }
        if self.rng.per_mille(self.noise.duplication) {
            marks.hit("network: frame duplicated");
            let again = arrival + self.delay(flight.from, flight.to) * self.rng.between(0, 10) as u32;
            arrivals.push((again, flight.clone()));
        }
        arrivals.push((arrival, flight));
    }

    /// Draws the travel time of one way between two machines.
    pub fn delay(&mut self, from: usize, to: usize) -> Duration {
        let (base, jitter) = self.latency.between(from, to);
        let bits = self.rng.bits();
        let tail = if bits.is_multiple_of(64) { 10 } else { 1 };
        base + jitter * tail * (bits >> 54) as u32 / 1024
    }

    /// Stalls a direction. Stalls add up.
    pub fn block(&mut self, from: usize, to: usize) {
        self.links[from].entry(to).or_default().blocks += 1;
    }

    /// Ends one stall. After the last one, the held frames arrive in order, or are gone with their connection.
    pub fn unblock(&mut self, now: Time, from: usize, to: usize, alive: bool, arrivals: &mut Vec<(Time, Flight)>) {
        let link = self.link(now, from, to);
        link.blocks = link.blocks.saturating_sub(1);
        if link.blocks > 0 {
            return;
        }
        let held = std::mem::take(&mut link.held);
        if !alive {
            return;
        }
        for flight in held {
            let arrival = now + self.delay(from, to);
            let last = &mut self.link(now, from, to).last_arrival[class_index(flight.class)];
            *last = arrival.max(*last);
            arrivals.push((*last, flight));
        }
    }

    /// Returns whether this direction stalls.
    pub fn is_blocked(&self, from: usize, to: usize) -> bool {
        self.links[from].get(&to).is_some_and(|link| link.blocks > 0)
    }

    /// Drops the held frames of both directions: the connection between the two machines is gone.
    pub fn forget_held(&mut self, a: usize, b: usize) {
        for (from, to) in [(a, b), (b, a)] {
            self.links[from].entry(to).and_modify(|link| link.held.clear());
        }
    }
}

fn class_index(class: Class) -> usize {
    match class {
        Class::Control => 0,
        Class::Data => 1,
        Class::Bulk => 2,
    }
}
