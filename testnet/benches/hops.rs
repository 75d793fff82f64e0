//! Number of groups that are asked until one owns the key, with many groups and hints alone (Scatter §7.2).
//!
//! Each group has a table as refreshes alone make it in the first minutes, from its neighbours on the ring alone. "Asked
//! before" is a key whose owner the peer has asked since, with some other keys after it. Nothing is moving. There is no
//! network, and no time: hops are counted.
//!
//! ```text
//! cargo bench -p testnet --bench hops
//! ```

use std::collections::BTreeMap;

use overlay::{
    Contact, Epoch, GroupId, GroupRef, HINTS_BYTES_MAX, Hints, Incarnation, KeyRange, NodeId, PeerKey, Point, Way,
    next_hop,
};
use testnet::rng::Rng;

const LOOKUPS: u64 = 2_000;
/// Number of a peer's looks around: a node does one every other second while a hint is missing.
const LOOKS: u64 = 240;
/// Number of other keys that are asked for before a key is asked for again.
const BETWEEN: u64 = 30;

struct Ring {
    /// Starts of the groups, in the order of the ring.
    starts: Vec<u128>,
}

impl Ring {
    fn new(rng: &mut Rng, groups: usize) -> Ring {
        let point = |rng: &mut Rng| u128::from(rng.below(u64::MAX)) << 64 | u128::from(rng.below(u64::MAX));
        let mut starts: Vec<u128> = (0..groups).map(|_| point(rng)).collect();
        starts.sort_unstable();
        starts.dedup();
        Ring { starts }
    }

    fn group(&self, index: usize) -> GroupRef {
        let count = self.starts.len();
        let index = index % count;
        let contact = |member: u64| Contact {
            node: NodeId { peer: PeerKey([member as u8; 32]), incarnation: Incarnation(1_790_000_000_000 + member) },
            addresses: vec!["/ip4/203.0.113.77/tcp/6478".into(), "/ip4/203.0.113.77/udp/6478/quic-v1".into()],
            name: None,
        };
        let range = KeyRange::new(Point(self.starts[index]), Point(self.starts[(index + 1) % count]));
        let members = (0..10).map(contact).collect();
        GroupRef { id: GroupId(index as u128 + 1), epoch: Epoch(1), range, members }
    }

    fn owner(&self, point: Point) -> usize {
        let behind = self.starts.partition_point(|start| *start <= point.0);
        (behind + self.starts.len() - 1) % self.starts.len()
    }

    /// Returns the hints of a peer that has looked around for a while, and was asked for nothing. The same each time.
    fn hints(&self, index: usize) -> Hints {
        let count = self.starts.len();
        let mut hints = Hints::new(self.group(index).range, HINTS_BYTES_MAX);
        for beside in [index + count - 1, index + 1].into_iter().filter(|beside| beside % count != index) {
            hints.learn(&self.group(beside));
        }
        for n in 0..LOOKS {
            let Some(look) = hints.to_look_at(n).filter(|look| look.is_lacking) else { break };
            hints.learn(&self.group(self.owner(look.point)));
        }
        hints
    }

    /// Looks up a key from a group. Returns the number of groups that are asked until one owns the key. `origin`: the hints of
    /// the peer that asks.
    fn look_up(&self, from: usize, point: Point, origin: &mut Hints) -> u32 {
        let (mut at, mut hops) = (from, 0);
        while !self.group(at).range.contains(point) {
            let count = self.starts.len();
            let links = [self.group(at + count - 1), self.group(at + 1)];
            let mut own;
            let hints = if at == from {
                &mut *origin
            } else {
                own = self.hints(at);
                &mut own
            };
            let next = next_hop(point, &self.group(at), links, hints, Way::Either).expect("one neighbour is nearer");
            at = next.id.0 as usize - 1;
            hops += 1;
        }
        hops
    }
}

fn main() {
    println!("{LOOKUPS} lookups each; groups asked beside one's own: mean, p50, p99, worst");
    println!(
        "{:>8} {:>34} {:>34} {:>14} {:>8}",
        "groups", "cold table", "a key asked before", "table, bytes", "entries"
    );
    for groups in [1, 2, 3, 10, 100, 1_000, 10_000, 100_000] {
        let mut rng = Rng::new(groups, "ring");
        let ring = Ring::new(&mut rng, groups as usize);
        let (mut cold, mut again) = (Vec::new(), Vec::new());
        let (mut bytes, mut entries) = (0, 0);
        let mut lookups = LOOKUPS;
        while lookups > 0 {
            let from = rng.below(ring.starts.len() as u64) as usize;
            let mut origin = ring.hints(from);
            (bytes, entries) = (bytes.max(origin.bytes()), entries.max(origin.len()));
            let points: Vec<Point> = (0..BETWEEN.min(lookups))
                .map(|_| Point(u128::from(rng.below(u64::MAX)) << 64 | u128::from(rng.below(u64::MAX))))
                .collect();
            // The table alone answers: earlier questions are forgotten.
            for point in &points {
                cold.push(ring.look_up(from, *point, &mut origin.clone()));
            }
            for point in &points {
                origin.learn(&ring.group(ring.owner(*point)));
            }
            for point in &points {
                again.push(ring.look_up(from, *point, &mut origin));
            }
            bytes = bytes.max(origin.bytes());
            lookups -= points.len() as u64;
        }
        println!("{groups:>8} {} {} {bytes:>14} {entries:>8}", figures(cold), figures(again));
    }
}

fn figures(mut hops: Vec<u32>) -> String {
    hops.sort_unstable();
    let mean = hops.iter().map(|hops| f64::from(*hops)).sum::<f64>() / hops.len() as f64;
    let counts: BTreeMap<u32, usize> = hops.iter().fold(BTreeMap::new(), |mut counts, hops| {
        *counts.entry(*hops).or_default() += 1;
        counts
    });
    let worst = counts.last_key_value().map_or(0, |(hops, _)| *hops);
    format!("{:>10.2} {:>7} {:>7} {:>7}", mean, hops[hops.len() / 2], hops[hops.len() * 99 / 100], worst)
}
