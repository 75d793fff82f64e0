//! Clients of a study: each update of a key is followed by a fetch through another peer (as Chirp's posts are read by followers).

use std::time::Duration;

use bytes::Bytes;
use group::op::{Answer, Condition, Expiry, Op, Read};
use group::time::Time;
use node::Node;
use overlay::Key;

use super::Study;
use crate::churn::register::{Register, Written};
use crate::history::Outcome;
use crate::rng::Rng;
use crate::sim::World;

/// Between two looks for answers.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// An operation without an answer for so long has failed (Scatter §7.2.2).
const PATIENCE: Duration = Duration::from_secs(3);
/// The size of a value, in bytes.
const VALUE_BYTES: usize = 100;

/// The outcomes of the operations that were counted.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Updates.
    pub updates: u64,
    /// Fetches.
    pub fetches: u64,
    /// Updates without an acknowledgement, though the peer that was asked lived.
    pub failed_updates: u64,
    /// Fetches without an answer, though the peer that was asked lived.
    pub failed_fetches: u64,
    /// Fetches that no order of the updates explains.
    pub wrong: Vec<String>,
    /// How long answered fetches took.
    pub fetch_times: Vec<Duration>,
    /// How long acknowledged updates took.
    pub update_times: Vec<Duration>,
}

impl Counts {
    /// Returns the share of all operations that failed, in percent.
    pub fn failed_percent(&self) -> f64 {
        100.0 * (self.failed_updates + self.failed_fetches) as f64 / (self.updates + self.fetches).max(1) as f64
    }
}

/// An operation under way.
struct Open {
    key: usize,
    /// The value that is written; `None`: a fetch.
    value: Option<u64>,
    host: usize,
    life: u32,
    index: usize,
    counts: bool,
}

/// All clients.
pub(super) struct Load {
    keys: Vec<Key>,
    registers: Vec<Register>,
    busy: Vec<bool>,
    open: Vec<Open>,
    counts: Counts,
    rate: f64,
    next: Time,
    looks: Time,
    rng: Rng,
}

impl Load {
    pub(super) fn new(study: &Study) -> Load {
        let name = |index: usize| Key::new(format!("user-{index}").as_bytes()).expect("short");
        Load {
            keys: (0..study.keys).map(name).collect(),
            registers: vec![Register::default(); study.keys],
            busy: vec![false; study.keys],
            open: Vec::new(),
            counts: Counts::default(),
            rate: study.rate,
            next: Time(0) + study.settle,
            looks: Time(0) + study.settle,
            rng: Rng::new(study.seed, "clients"),
        }
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// When the next step is due.
    pub(super) fn next(&self) -> Time {
        if self.open.is_empty() { self.next } else { self.next.min(self.looks) }
    }

    /// Begins the updates that are due, and notes answers.
    pub(super) fn go_on(&mut self, world: &mut World<Node>, begins: bool, counts: bool) {
        let now = world.now();
        while begins && self.next <= now {
            let chance = ((self.rng.bits() >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
            self.next = self.next + Duration::from_secs_f64(-chance.ln() / self.rate);
            let key = self.rng.below(self.keys.len() as u64) as usize;
            // Its writer waits for each answer.
            if !self.busy[key] {
                self.busy[key] = true;
                let value = self.registers[key].begin();
                self.ask(world, key, Some(value), counts);
            }
        }
        if now >= self.looks {
            self.looks = now + LOOK_EVERY;
            self.look(world);
        }
    }

    /// Waits for the operations under way.
    pub(super) fn end(&mut self, world: &mut World<Node>) {
        let until = world.now() + 2 * PATIENCE;
        while !self.open.is_empty() && world.now() < until && world.failure().is_none() {
            world.run_for(LOOK_EVERY);
            self.look(world);
        }
    }

    fn ask(&mut self, world: &mut World<Node>, key: usize, value: Option<u64>, counts: bool) {
        let Some(host) = self.ready_host(world) else {
            self.busy[key] = false;
            return;
        };
        let op = match value {
            Some(value) => {
                let value = Bytes::from(format!("{value:0VALUE_BYTES$}"));
                Op::Set { value, condition: Condition::Always, expiry: Expiry::Clear, get: false }
            }
            None => Op::Read(Read::Value),
        };
        let index = world.ask_key(host, self.keys[key].clone(), op);
        self.open.push(Open { key, value, host, life: world.life(host), index, counts });
    }

    fn ready_host(&mut self, world: &World<Node>) -> Option<usize> {
        let drawn = (0..64).map(|_| self.rng.below(world.hosts() as u64) as usize);
        drawn.into_iter().find(|host| world.is_ready(*host))
    }

    fn look(&mut self, world: &mut World<Node>) {
        let (over, open) =
            std::mem::take(&mut self.open).into_iter().partition(|open| world.outcome(open.index).is_some());
        self.open = open;
        for one in over {
            self.note(world, one);
        }
    }

    fn note(&mut self, world: &mut World<Node>, one: Open) {
        let operation = &world.history().operations[one.index];
        let took = operation.completed.map_or(PATIENCE, |completed| completed.time.since(operation.invoked.time));
        let outcome = operation.outcome.clone();
        let asked_lives = world.life(one.host) == one.life && world.is_running(one.host);
        let (is_answered, counts) = (matches!(outcome, Outcome::Answered(_)), one.counts);
        let failed = u64::from(!is_answered && asked_lives);
        match one.value {
            Some(value) => {
                let written = match &outcome {
                    Outcome::Answered(_) => Written::Acknowledged,
                    Outcome::TryAgain | Outcome::Limit => Written::Refused,
                    Outcome::Uncertain => Written::Unknown,
                };
                self.registers[one.key].end(value, written);
                if counts {
                    self.counts.updates += 1;
                    self.counts.failed_updates += failed;
                    self.counts.update_times.extend(is_answered.then_some(took));
                }
                self.ask(world, one.key, None, counts);
            }
            None => {
                self.busy[one.key] = false;
                if let Outcome::Answered(answer) = &outcome
                    && let Err(why) = read_value(answer).and_then(|value| self.registers[one.key].read(value))
                {
                    let key = self.keys[one.key].name().escape_ascii();
                    self.counts.wrong.push(format!("{key} at {:?}: {why}", world.now()));
                }
                if counts {
                    self.counts.fetches += 1;
                    self.counts.failed_fetches += failed;
                    self.counts.fetch_times.extend(is_answered.then_some(took));
                }
            }
        }
    }
}

/// Returns the number that was read; 0 where there is no value.
fn read_value(answer: &Answer) -> Result<u64, String> {
    match answer {
        Answer::Value(None) => Ok(0),
        Answer::Value(Some(value)) => {
            let text = std::str::from_utf8(value).ok();
            text.and_then(|text| text.parse().ok()).ok_or_else(|| format!("{value:?} was never written"))
        }
        other => Err(format!("{other:?} answers no read")),
    }
}
