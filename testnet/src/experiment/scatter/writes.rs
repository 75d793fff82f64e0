//! Writes of random keys at a steady rate, for experiments on groups without churn.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use group::op::{Condition, Expiry, Op};
use node::Node;
use overlay::time::Time;
use overlay::{Epoch, GroupId, Key, KeyRange, Point};

use crate::history::Outcome;
use crate::rng::Rng;
use crate::sim::World;
use crate::study::System;

/// The size of a value, in bytes.
const VALUE_BYTES: usize = 100;
/// Number of attempts to find another machine.
const DRAWS: usize = 64;

/// The machine that a client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::experiment) enum AskedMachine {
    /// Any.
    Any,
    /// The primary of the key.
    Primary,
}

/// A client of a network.
pub(in crate::experiment) struct Writes {
    rate: f64,
    keys: u64,
    next: Time,
    rng: Rng,
    value: Bytes,
    /// Writes: their numbers in the world's history, and their keys' points.
    asked: Vec<(usize, Point)>,
}

impl Writes {
    /// Returns a client that writes one of `keys` keys, `rate` times a second, from now on.
    pub(in crate::experiment) fn new(world: &World<Node>, rate: f64, keys: u64, seed: u64) -> Writes {
        let value = vec![b'v'; VALUE_BYTES].into();
        Writes { rate, keys, next: world.now(), rng: Rng::new(seed, "writes"), value, asked: Vec::new() }
    }

    /// Goes on for this time.
    ///
    /// # Errors
    /// If an invariant is broken.
    pub(in crate::experiment) fn run(
        &mut self,
        world: &mut World<Node>,
        time: Duration,
        at: AskedMachine,
    ) -> Result<(), String> {
        let end = world.now() + time;
        self.next = self.next.max(world.now());
        while self.next < end {
            world.run_until(self.next);
            self.write(world, at);
            let chance = self.rng.positive_fraction();
            self.next = self.next + Duration::from_secs_f64(-chance.ln() / self.rate);
        }
        world.run_until(end);
        world.failure().map_or(Ok(()), |failure| Err(failure.to_string()))
    }

    fn write(&mut self, world: &mut World<Node>, at: AskedMachine) {
        let name = format!("key-{}", self.rng.below(self.keys));
        let Ok(key) = Key::new(name.as_bytes()) else { return };
        let point = key.point();
        let host = match at {
            AskedMachine::Any => {
                (0..DRAWS).map(|_| self.rng.below(world.hosts() as u64) as usize).find(|host| world.is_ready(*host))
            }
            AskedMachine::Primary => {
                Some(world.primary_of(&name)).filter(|host| world.host(*host).is_some_and(|node| node.serves(point)))
            }
        };
        let op = Op::Set { value: self.value.clone(), condition: Condition::Always, expiry: Expiry::Clear, get: false };
        if let Some(host) = host {
            self.asked.push((world.ask_key(host, key, op), point));
        }
    }

    /// Returns the points of the writes since the last call, and the times of the acknowledged ones.
    pub(in crate::experiment) fn take(&mut self, world: &World<Node>) -> (Vec<Point>, Vec<Duration>) {
        let asked = std::mem::take(&mut self.asked);
        let took = asked.iter().filter_map(|(index, _)| {
            let operation = &world.history().operations[*index];
            let completed = operation.completed.filter(|_| matches!(operation.outcome, Outcome::Answered(_)))?;
            Some(completed.time.since(operation.invoked.time))
        });
        (asked.iter().map(|(_, point)| *point).collect(), took.collect())
    }
}

/// Returns the groups of a network, with their ranges and numbers of members, as known to the member with the newest state of each.
pub(in crate::experiment) fn groups(world: &World<Node>) -> Vec<(KeyRange, usize)> {
    let mut all: BTreeMap<GroupId, (Epoch, KeyRange, usize)> = BTreeMap::new();
    let nodes = (0..world.hosts()).filter_map(|host| world.host(host));
    for state in nodes.flat_map(Node::groups).map(group::Group::state).filter(|state| state.ended.is_none()) {
        let known = (state.epoch, state.range, state.members.len());
        all.entry(state.id).and_modify(|old| *old = if old.0 < state.epoch { known } else { *old }).or_insert(known);
    }
    all.into_values().map(|(_, range, members)| (range, members)).collect()
}
