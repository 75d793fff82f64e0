//! Who is connected to whom, and what each side believes about it.

use std::collections::BTreeSet;

use group::time::Time;

/// Connections between `n` machines.
#[derive(Debug)]
pub struct Connections {
    n: usize,
    /// By pair, both ways: it is asked for each frame.
    up: Vec<bool>,
    /// Being made.
    dialling: BTreeSet<(usize, usize)>,
    /// What a machine's driver has told its node: `(machine, peer)`.
    told: BTreeSet<(usize, usize)>,
    /// Whom a machine's driver can find: `(machine, peer)`.
    known: BTreeSet<(usize, usize)>,
    /// No attempt before this.
    not_before: Vec<Time>,
    /// Counts stalls, so that an old one's end is not taken for the new one's.
    stalls: u64,
    stalled: Vec<Option<u64>>,
}

fn pair(a: usize, b: usize) -> (usize, usize) {
    (a.min(b), a.max(b))
}

impl Connections {
    /// None yet.
    pub fn new(n: usize) -> Connections {
        Connections {
            n,
            up: vec![false; n * n],
            dialling: BTreeSet::new(),
            told: BTreeSet::new(),
            known: BTreeSet::new(),
            not_before: vec![Time(0); n * n],
            stalls: 0,
            stalled: vec![None; n * n],
        }
    }

    /// Whether there is a connection.
    pub fn is_up(&self, a: usize, b: usize) -> bool {
        self.up[a * self.n + b]
    }

    /// The machine's driver learns where a peer can be found.
    pub fn learn(&mut self, host: usize, peer: usize) {
        self.known.insert((host, peer));
    }

    /// Whether an attempt begins now, which then ends with [`Connections::made`] or [`Connections::not_made`].
    pub fn dial(&mut self, now: Time, host: usize, peer: usize) -> bool {
        let place = host * self.n + peer;
        if host == peer
            || self.is_up(host, peer)
            || !self.known.contains(&(host, peer))
            || self.not_before[place] > now
            || !self.dialling.insert(pair(host, peer))
        {
            return false;
        }
        self.not_before[place] = now + std::time::Duration::from_millis(100);
        true
    }

    /// The attempt failed.
    pub fn not_made(&mut self, a: usize, b: usize) {
        self.dialling.remove(&pair(a, b));
    }

    /// The attempt succeeded: whether each side's node is to be told (it may still believe in an old connection).
    pub fn made(&mut self, a: usize, b: usize) -> (bool, bool) {
        self.dialling.remove(&pair(a, b));
        self.set_up(a, b, true);
        self.learn(a, b);
        self.learn(b, a);
        (self.told.insert((a, b)), self.told.insert((b, a)))
    }

    /// The connection is gone; whether there was one.
    pub fn broken(&mut self, a: usize, b: usize) -> bool {
        self.stalled[pair(a, b).0 * self.n + pair(a, b).1] = None;
        self.set_up(a, b, false)
    }

    /// Whether there was a connection.
    fn set_up(&mut self, a: usize, b: usize, up: bool) -> bool {
        self.up[b * self.n + a] = up;
        std::mem::replace(&mut self.up[a * self.n + b], up)
    }

    /// The driver notices that it has no connection: whether its node is to be told.
    pub fn noticed(&mut self, host: usize, peer: usize) -> bool {
        !self.is_up(host, peer) && self.told.remove(&(host, peer))
    }

    /// A process has ended: its driver knows nothing any more.
    pub fn forget(&mut self, host: usize) {
        self.told.retain(|(from, _)| *from != host);
        self.known.retain(|(from, _)| *from != host);
        self.dialling.retain(|(a, b)| *a != host && *b != host);
        for peer in 0..self.n {
            self.not_before[host * self.n + peer] = Time(0);
        }
    }

    /// Traffic between the two stalls: the number of this stall.
    pub fn stall(&mut self, a: usize, b: usize) -> u64 {
        self.stalls += 1;
        let (a, b) = pair(a, b);
        *self.stalled[a * self.n + b].get_or_insert(self.stalls)
    }

    /// It goes on.
    pub fn resume(&mut self, a: usize, b: usize) {
        let (a, b) = pair(a, b);
        self.stalled[a * self.n + b] = None;
    }

    /// Whether this very stall lasts.
    pub fn still_stalled(&self, a: usize, b: usize, serial: u64) -> bool {
        let (a, b) = pair(a, b);
        self.stalled[a * self.n + b] == Some(serial)
    }
}
