//! The load of clients: a few contended hot keys, many cold ones, every value unique.

mod draw;
mod load;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use group::op::{Answer, Op, OpError, ReadMode};
use node::{ConnectionId, Request, RequestId};
use overlay::Key;
use overlay::time::Time;

use crate::history::{History, Operation, Outcome};
use crate::marks::Marks;
use crate::rng::Rng;

pub use load::Load;

use draw::{RememberedKey, draw_lease, draw_mixed, draw_read, draw_register, draw_with_deadline, remember};

/// A request that its client repeats under the same id.
#[derive(Clone, Debug)]
struct Retry {
    key: Key,
    op: Op,
    once: Bytes,
    left: u32,
}

#[derive(Debug)]
struct Client {
    host: usize,
    connection: ConnectionId,
    /// The life of the host that the connection leads to.
    life: Option<u32>,
    waiting: u32,
    seen: BTreeMap<Key, RememberedKey>,
    retry: Option<Retry>,
    rng: Rng,
}

#[derive(Clone, Debug)]
struct WaitingRequest {
    client: Option<usize>,
    host: usize,
    index: usize,
    retry: Option<Retry>,
}

/// Use of a key so far.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    /// Number of the key among the keys that had its place.
    life: u64,
    /// Number of operations on the key so far.
    count: u64,
    /// Number of them with an uncertain outcome.
    uncertain: u64,
}

/// After this many uncertain changes, a key whose answers tell little about them is left alone: their combined effects could not be
/// judged any more.
const UNCERTAIN_MAX: u64 = 10;

/// All clients of a run.
#[derive(Debug)]
pub struct Workload {
    load: Load,
    clients: Vec<Client>,
    waiting: BTreeMap<RequestId, WaitingRequest>,
    given_up: BTreeSet<RequestId>,
    /// Present key of each family and index.
    uses: BTreeMap<(usize, u64), Use>,
    next_id: u64,
    operations: u64,
    hosts: usize,
    stopped: bool,
    /// Requests and answers that clients saw.
    pub history: History,
}

/// A request to a machine.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Index of the machine.
    pub host: usize,
    /// The request itself.
    pub request: Request,
}

impl Workload {
    /// Returns clients that have not begun.
    pub fn new(load: Load, hosts: usize, seed: u64) -> Workload {
        let clients = (0..load.clients)
            .map(|client| {
                let mut rng = Rng::new(seed ^ (client as u64) << 32, "client");
                Client {
                    host: rng.below(hosts as u64) as usize,
                    connection: ConnectionId(0),
                    life: None,
                    waiting: 0,
                    seen: BTreeMap::new(),
                    retry: None,
                    rng,
                }
            })
            .collect();
        Workload {
            load,
            clients,
            waiting: BTreeMap::new(),
            given_up: BTreeSet::new(),
            uses: BTreeMap::new(),
            next_id: 1,
            operations: 0,
            hosts,
            stopped: false,
            history: History::default(),
        }
    }

    /// Returns the number of clients.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Stops new requests from now on.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Returns the number of requests that wait for an answer.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the time until the client's next request.
    pub fn think(&mut self, client: usize) -> Duration {
        let (low, high) = self.load.think;
        self.clients[client].rng.duration(low, high)
    }

    /// Takes the client's turn: adds its next requests to `asks`. `life` tells which life of a machine answers, if any.
    pub fn turn(&mut self, client: usize, now: Time, life: &dyn Fn(usize) -> Option<u32>, asks: &mut Vec<Ask>) {
        if self.stopped || self.clients[client].waiting > 0 || self.operations >= self.load.operations_max {
            return;
        }
        let hosts = self.hosts as u64;
        let fresh_connection = ConnectionId(self.next_id);
        let state = &mut self.clients[client];
        if state.rng.per_mille(20) || life(state.host).is_none() {
            state.host = state.rng.below(hosts) as usize;
            state.life = None;
        }
        let Some(alive) = life(state.host) else { return };
        if state.life != Some(alive) {
            state.life = Some(alive);
            state.connection = fresh_connection;
            self.next_id += 1;
        }
        if let Some(retry) = self.clients[client].retry.take() {
            asks.push(self.ask(
                Some(client),
                now,
                retry.key.clone(),
                retry.op.clone(),
                ReadMode::Linearizable,
                Some(retry),
            ));
            return;
        }
        let state = &mut self.clients[client];
        let count = if state.rng.per_mille(self.load.bursts) { state.rng.between(2, 6) } else { 1 };
        for _ in 0..count {
            let (key, op) = self.draw(client);
            let state = &mut self.clients[client];
            let relaxed = matches!(op, Op::Read(_)) && state.rng.per_mille(self.load.relaxed);
            let mode = if relaxed { ReadMode::Relaxed } else { ReadMode::Linearizable };
            let retry = (!matches!(op, Op::Read(_)) && state.rng.per_mille(self.load.once)).then(|| Retry {
                key: key.clone(),
                op: op.clone(),
                once: Bytes::from(format!("{client}-{}", self.next_id)),
                left: 3,
            });
            asks.push(self.ask(Some(client), now, key, op, mode, retry));
        }
    }

    /// Returns a request that belongs to no client, and its operation's index in the history.
    pub fn ask_apart(&mut self, host: usize, now: Time, key: Key, op: Op) -> (Ask, usize) {
        let index = self.history.operations.len();
        let mut ask = self.ask(None, now, key, op, ReadMode::Linearizable, None);
        ask.host = host;
        self.history.operations[index].via = host;
        self.waiting.get_mut(&ask.request.id).expect("asked just now").host = host;
        (ask, index)
    }

    fn ask(&mut self, client: Option<usize>, now: Time, key: Key, op: Op, mode: ReadMode, retry: Option<Retry>) -> Ask {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        let (host, connection) = match client {
            Some(client) => {
                self.operations += 1;
                self.clients[client].waiting += 1;
                (self.clients[client].host, self.clients[client].connection)
            }
            None => (0, ConnectionId(id.0)),
        };
        let once = retry.as_ref().map(|retry| retry.once.clone());
        let invoked = self.history.moment(now);
        let index = self.history.invoke(Operation {
            client: client.map_or(u64::MAX, |client| client as u64),
            connection: connection.0,
            via: host,
            key: key.clone(),
            op: op.clone(),
            mode,
            once: once.clone(),
            invoked,
            completed: None,
            outcome: Outcome::Uncertain,
        });
        self.waiting.insert(id, WaitingRequest { client, host, index, retry });
        Ask { host, request: Request { id, connection, key, op, mode, patience: self.load.patience, once } }
    }

    /// Notes a machine's answer. Returns the client whose turn may come now, or an error if the answer has no request.
    pub fn answered(
        &mut self,
        id: RequestId,
        now: Time,
        result: Result<Answer, OpError>,
        marks: &mut Marks,
    ) -> Result<Option<usize>, String> {
        let Some(waiting) = self.waiting.remove(&id) else {
            if self.given_up.remove(&id) {
                return Ok(None);
            }
            return Err(format!("{id:?} is answered twice, or was never asked"));
        };
        let outcome = Outcome::of(result);
        marks.hit(match outcome {
            Outcome::Answered(_) => "client: answered",
            Outcome::TryAgain => "client: told to try again",
            Outcome::Limit => "client: met a limit",
            Outcome::Uncertain => "client: told that the outcome is uncertain",
        });
        Ok(self.end(waiting, now, outcome))
    }

    /// Ends the requests to a machine whose process has died: its connections broke. Returns the clients whose turn may come now.
    pub fn host_died(&mut self, host: usize, now: Time) -> Vec<usize> {
        let lost: Vec<RequestId> =
            self.waiting.iter().filter(|(_, waiting)| waiting.host == host).map(|(id, _)| *id).collect();
        lost.into_iter().filter_map(|id| self.give_up(id, now)).collect()
    }

    /// Stops waiting for this answer. Returns the client whose turn may come now.
    pub fn give_up(&mut self, id: RequestId, now: Time) -> Option<usize> {
        let waiting = self.waiting.remove(&id)?;
        self.given_up.insert(id);
        self.end(waiting, now, Outcome::Uncertain)
    }

    /// Returns the time of this request, if it still waits for an answer.
    pub fn asked_at(&self, id: RequestId) -> Option<Time> {
        self.waiting.get(&id).map(|waiting| self.history.operations[waiting.index].invoked.time)
    }

    fn end(&mut self, waiting: WaitingRequest, now: Time, outcome: Outcome) -> Option<usize> {
        let client = waiting.client;
        if let Some(client) = client {
            let state = &mut self.clients[client];
            state.waiting -= 1;
            let operation = &self.history.operations[waiting.index];
            if outcome == Outcome::Uncertain && !matches!(operation.op, Op::Read(_)) {
                note_uncertain(&mut self.uses, &operation.key);
            }
            remember(&mut state.seen, operation, &outcome);
            if outcome == Outcome::Uncertain
                && let Some(mut retry) = waiting.retry
                && retry.left > 0
                && state.rng.per_mille(800)
            {
                retry.left -= 1;
                state.retry = Some(retry);
            }
        }
        self.history.complete(waiting.index, now, outcome);
        client.filter(|client| self.clients[*client].waiting == 0)
    }

    /// Draws a client's next operation.
    fn draw(&mut self, client: usize) -> (Key, Op) {
        let unique = self.next_id;
        let load = &self.load;
        let state = &mut self.clients[client];
        let rng = &mut state.rng;
        let mut drawn = rng.below(load.families.iter().sum());
        let family = load
            .families
            .iter()
            .position(|share| {
                let found = drawn < *share;
                drawn = drawn.saturating_sub(*share);
                found
            })
            .expect("drawn below the sum");
        let hot = load.cold_keys == 0 || rng.per_mille(700);
        let index = if hot { rng.below(load.hot_keys) } else { load.hot_keys + rng.below(load.cold_keys) };
        let uses_max = match family {
            // Each summand is a bit of its own, so that a sum tells its summands.
            2 => load.key_uses.min(60),
            // Additions and changes of all kinds on one key are hard to judge.
            3 => load.key_uses / 3,
            _ => load.key_uses,
        };
        let used = self.uses.entry((family, index)).or_default();
        if used.count >= uses_max.max(1) || family >= 3 && used.uncertain >= UNCERTAIN_MAX {
            *used = Use { life: used.life + 1, ..Use::default() };
        }
        let use_of_it = used.count;
        used.count += 1;
        let key = key_within(&key_name(family, index, used.life), load.part);
        let value = Bytes::from(format!("{client}-{unique}"));
        let seen = state.seen.get(&key).cloned();
        let op = if rng.per_mille(load.reads) {
            draw_read(rng, family)
        } else {
            match family {
                0 => draw_register(rng, value, seen),
                1 => Op::Append { value: Bytes::from(format!("{client}-{unique};")), max: None },
                2 => Op::Add(1 << use_of_it),
                3 => draw_mixed(rng, value, seen),
                4 => draw_with_deadline(rng, value),
                _ => draw_lease(rng, client, value),
            }
        };
        (key, op)
    }
}

const FAMILIES: [&str; 6] = ["r", "l", "c", "m", "t", "e"];

fn key_name(family: usize, index: u64, life: u64) -> String {
    format!("{}{index}.{life}", FAMILIES[family])
}

/// Returns the key of this name, or of the first name like it whose key lies in that part of the ring.
fn key_within(name: &str, part: u128) -> Key {
    let names = (0..).map(|n| if n == 0 { name.to_owned() } else { format!("{name}/{n}") });
    let mut keys = names.map(|name| Key::new(name.as_bytes()).expect("short"));
    keys.find(|key| key.point().0 <= u128::MAX / part).expect("some lie anywhere")
}

fn note_uncertain(uses: &mut BTreeMap<(usize, u64), Use>, key: &Key) {
    let name = key.name().split(|byte| *byte == b'/').next();
    let used =
        uses.iter_mut().find(|((family, index), used)| Some(key_name(*family, *index, used.life).as_bytes()) == name);
    if let Some((_, used)) = used {
        used.uncertain += 1;
    }
}
