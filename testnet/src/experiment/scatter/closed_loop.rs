//! Clients of a whole simulated network that keep a fixed number of operations under way.

use std::time::Duration;

use bytes::Bytes;
use group::op::{Condition, Expiry, Op};
use overlay::Key;
use overlay::time::Time;

use crate::history::Outcome;
use crate::rng::Rng;
use crate::sim::{Host, World};

/// The size of a value, in bytes.
const VALUE_BYTES: usize = 100;
/// Number of attempts to find a machine that is ready.
const DRAWS: usize = 64;

/// The machine that a client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientPlace {
    /// The primary of the key, as last seen.
    Primary,
    /// Always the same machine, by the client's number.
    Own,
    /// The machine by the client's number, or the next one where that is the primary of the key.
    Away,
}

/// An answered operation: the time of the answer, and how long the client waited.
#[derive(Clone, Copy, Debug)]
pub struct DoneWrite {
    /// Time of the answer.
    pub at: Time,
    /// From the request until the answer.
    pub took: Duration,
}

/// Clients with one write under way each.
pub struct ClosedLoop {
    place: ClientPlace,
    /// Interval at which clients look for answers.
    poll: Duration,
    rng: Rng,
    value: Bytes,
    /// By client: the number of the operation in the world's history.
    open: Vec<Option<usize>>,
    done: Vec<DoneWrite>,
    failed: u64,
}

impl ClosedLoop {
    /// Returns this number of clients, which have nothing under way.
    pub fn new(clients: usize, place: ClientPlace, poll: Duration, seed: u64) -> ClosedLoop {
        let rng = Rng::new(seed, "closed loop");
        let value = vec![b'v'; VALUE_BYTES].into();
        ClosedLoop { place, poll, rng, value, open: vec![None; clients], done: Vec::new(), failed: 0 }
    }

    /// Goes on for this time. `draw` returns the number of the next key of a client.
    ///
    /// # Errors
    /// If an invariant is broken.
    pub fn run<H: Host>(
        &mut self,
        world: &mut World<H>,
        time: Duration,
        draw: &mut dyn FnMut(&mut Rng, usize) -> u64,
    ) -> Result<(), String> {
        let end = world.now() + time;
        while world.now() < end && world.failure().is_none() {
            for client in 0..self.open.len() {
                self.turn(world, client, draw);
            }
            world.run_for(self.poll);
        }
        world.failure().map_or(Ok(()), |failure| Err(failure.to_string()))
    }

    fn turn<H: Host>(&mut self, world: &mut World<H>, client: usize, draw: &mut dyn FnMut(&mut Rng, usize) -> u64) {
        if let Some(index) = self.open[client] {
            let operation = &world.history().operations[index];
            let Some(completed) = operation.completed else { return };
            match operation.outcome {
                Outcome::Answered(_) => {
                    let took = completed.time.since(operation.invoked.time);
                    self.done.push(DoneWrite { at: completed.time, took });
                }
                _ => self.failed += 1,
            }
            self.open[client] = None;
        }
        let name = name_of(draw(&mut self.rng, client));
        let Ok(key) = Key::new(name.as_bytes()) else { return };
        let wanted = match self.place {
            ClientPlace::Primary => world.primary_of(&name),
            ClientPlace::Own => client % world.hosts(),
            ClientPlace::Away => {
                let own = client % world.hosts();
                if world.primary_of(&name) == own { (own + 1) % world.hosts() } else { own }
            }
        };
        let drawn = (0..DRAWS).map(|_| self.rng.below(world.hosts() as u64) as usize);
        let host = std::iter::once(wanted).chain(drawn).find(|host| world.is_ready(*host));
        let op = Op::Set { value: self.value.clone(), condition: Condition::Always, expiry: Expiry::Clear, get: false };
        self.open[client] = host.map(|host| world.ask_key(host, key, op));
    }

    /// Returns the writes that were answered since the last call, and the number of those that failed.
    pub fn take(&mut self) -> (Vec<DoneWrite>, u64) {
        (std::mem::take(&mut self.done), std::mem::take(&mut self.failed))
    }
}

/// Returns the name of the key of this number.
pub fn name_of(number: u64) -> String {
    format!("key-{number}")
}

/// Returns the writes of each second of `time` from `begin` on, on average, and their standard deviation.
pub fn per_second(done: &[DoneWrite], begin: Time, time: Duration) -> (f64, f64) {
    let seconds = time.as_secs().max(1) as usize;
    let mut counts = vec![0.0; seconds];
    for write in done {
        if let Some(count) = counts.get_mut(write.at.since(begin).as_secs() as usize) {
            *count += 1.0;
        }
    }
    let mean = counts.iter().sum::<f64>() / seconds as f64;
    let squares: f64 = counts.iter().map(|count| (count - mean) * (count - mean)).sum();
    (mean, (squares / seconds as f64).sqrt())
}
