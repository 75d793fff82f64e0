//! Connections between machines, and the belief of each side about them.

use std::collections::{BTreeMap, BTreeSet};

use overlay::time::Time;

use crate::sim::network::{Flight, HELD_MAX};

/// Connections between the machines. Pairs without any traffic take one bit of memory.
#[derive(Debug)]
pub struct Connections {
    n: usize,
    /// A bit for each pair, both ways: it is read for each frame.
    up: Vec<u64>,
    /// Pairs whose connection is being made.
    dialling: BTreeSet<(usize, usize)>,
    /// By sender and receiver: frames that wait for a connection that is being made, as they do in a driver's queues.
    waiting: BTreeMap<(usize, usize), Vec<Flight>>,
    /// By machine: the peers to which its driver has told its node that there is a connection.
    told: Vec<BTreeSet<usize>>,
    /// By machine: the peers that its driver can find.
    known: Vec<BTreeSet<usize>>,
    /// By machine and peer: no attempt before this.
    not_before: Vec<BTreeMap<usize, Time>>,
    /// Counts stalls, so that an old one's end is not taken for the new one's.
    stalls: u64,
    /// By pair: the stall that lasts.
    stalled: BTreeMap<(usize, usize), u64>,
}

fn pair(a: usize, b: usize) -> (usize, usize) {
    (a.min(b), a.max(b))
}

impl Connections {
    /// Returns a state without connections.
    pub fn new(n: usize) -> Connections {
        Connections {
            n,
            up: vec![0; (n * n).div_ceil(64)],
            dialling: BTreeSet::new(),
            waiting: BTreeMap::new(),
            told: vec![BTreeSet::new(); n],
            known: vec![BTreeSet::new(); n],
            not_before: vec![BTreeMap::new(); n],
            stalls: 0,
            stalled: BTreeMap::new(),
        }
    }

    /// Returns whether there is a connection.
    pub fn is_up(&self, a: usize, b: usize) -> bool {
        let place = a * self.n + b;
        self.up[place / 64] >> (place % 64) & 1 == 1
    }

    /// Tells the machine's driver where a peer can be found.
    pub fn learn(&mut self, host: usize, peer: usize) {
        self.known[host].insert(peer);
    }

    /// Begins an attempt, if one may begin now, which then ends with [`Connections::made`] or [`Connections::not_made`]. Returns
    /// whether it began.
    pub fn dial(&mut self, now: Time, host: usize, peer: usize) -> bool {
        if host == peer
            || self.is_up(host, peer)
            || !self.known[host].contains(&peer)
            || self.not_before[host].get(&peer).is_some_and(|at| *at > now)
            || !self.dialling.insert(pair(host, peer))
        {
            return false;
        }
        self.not_before[host].insert(peer, now + std::time::Duration::from_millis(100));
        true
    }

    /// Lets a frame wait for the connection that is being made. Returns `false` where none is being made, or where too many frames
    /// wait.
    pub fn wait(&mut self, flight: Flight) -> bool {
        if !self.dialling.contains(&pair(flight.from, flight.to)) {
            return false;
        }
        let waiting = self.waiting.entry((flight.from, flight.to)).or_default();
        let has_room = waiting.len() < HELD_MAX;
        if has_room {
            waiting.push(flight);
        }
        has_room
    }

    /// Takes the frames that waited for this connection, in both directions.
    pub fn take_waiting(&mut self, a: usize, b: usize) -> Vec<Flight> {
        [(a, b), (b, a)].iter().flat_map(|pair| self.waiting.remove(pair).unwrap_or_default()).collect()
    }

    /// Ends an attempt that failed.
    pub fn not_made(&mut self, a: usize, b: usize) {
        self.dialling.remove(&pair(a, b));
        self.take_waiting(a, b);
    }

    /// Ends an attempt that succeeded. Returns for each side whether its node must be told: it may still believe in an old
    /// connection.
    pub fn made(&mut self, a: usize, b: usize) -> (bool, bool) {
        self.dialling.remove(&pair(a, b));
        self.set_up(a, b, true);
        self.learn(a, b);
        self.learn(b, a);
        (self.told[a].insert(b), self.told[b].insert(a))
    }

    /// Ends a connection. Returns whether there was one.
    pub fn broken(&mut self, a: usize, b: usize) -> bool {
        self.stalled.remove(&pair(a, b));
        self.set_up(a, b, false)
    }

    /// Sets whether there is a connection. Returns whether there was one.
    fn set_up(&mut self, a: usize, b: usize, up: bool) -> bool {
        let was_up = self.is_up(a, b);
        for place in [a * self.n + b, b * self.n + a] {
            let bit = 1 << (place % 64);
            self.up[place / 64] = if up { self.up[place / 64] | bit } else { self.up[place / 64] & !bit };
        }
        was_up
    }

    /// Notes that a driver notices the missing connection. Returns whether its node must be told.
    pub fn noticed(&mut self, host: usize, peer: usize) -> bool {
        !self.is_up(host, peer) && self.told[host].remove(&peer)
    }

    /// Forgets the knowledge of a machine's driver: its process has ended.
    pub fn forget(&mut self, host: usize) {
        self.told[host].clear();
        self.known[host].clear();
        self.not_before[host].clear();
        self.dialling.retain(|(a, b)| *a != host && *b != host);
        self.waiting.retain(|(a, b), _| *a != host && *b != host);
    }

    /// Notes that another peer takes the place of this one: no driver has told its node of a connection to the new peer.
    pub fn replace(&mut self, host: usize) {
        self.told.iter_mut().for_each(|told| _ = told.remove(&host));
    }

    /// Begins a stall of the traffic between the two machines. Returns the number of this stall.
    pub fn stall(&mut self, a: usize, b: usize) -> u64 {
        self.stalls += 1;
        *self.stalled.entry(pair(a, b)).or_insert(self.stalls)
    }

    /// Ends the stall between the two machines.
    pub fn resume(&mut self, a: usize, b: usize) {
        self.stalled.remove(&pair(a, b));
    }

    /// Returns whether this very stall lasts.
    pub fn still_stalled(&self, a: usize, b: usize, serial: u64) -> bool {
        self.stalled.get(&pair(a, b)) == Some(&serial)
    }
}
