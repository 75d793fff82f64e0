//! Clients of a study: each update of a key is followed by a fetch through another peer (as Chirp's posts are read by followers).

use std::time::Duration;

use bytes::Bytes;
use group::op::{Answer, Condition, Expiry, Op, Read};
use overlay::Key;
use overlay::time::Time;

use super::chirp::Popularity;
use super::system::System;
use super::{Demand, Study};
use crate::churn::register::{Register, Written};
use crate::history::Outcome;
use crate::rng::Rng;
use crate::sim::World;

/// Interval between two looks for answers.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Time without an answer after which an operation has failed (Scatter §7.2.2).
const PATIENCE: Duration = Duration::from_secs(3);
/// The size of a value, in bytes.
const VALUE_BYTES: usize = 100;

/// The outcomes of the operations that were counted.
#[derive(Clone, Debug, Default)]
pub struct StudyCounts {
    /// Updates.
    pub updates: u64,
    /// Fetches.
    pub fetches: u64,
    /// Updates without an acknowledgement, though the peer that was asked lived.
    pub failed_updates: u64,
    /// Fetches without an answer, though the peer that was asked lived.
    pub failed_fetches: u64,
    /// Fetches that no order of the updates explains, also those that were not counted.
    pub wrong: Vec<String>,
    /// Number of them that were counted.
    pub inconsistent: u64,
    /// Times of answered fetches.
    pub fetch_times: Vec<Duration>,
    /// Times of acknowledged updates.
    pub update_times: Vec<Duration>,
}

impl StudyCounts {
    /// Returns the share of all operations that failed, in percent.
    pub fn failed_percent(&self) -> f64 {
        100.0 * (self.failed_updates + self.failed_fetches) as f64 / (self.updates + self.fetches).max(1) as f64
    }

    /// Returns the share of fetches that failed, in percent.
    pub(crate) fn failed_fetches_percent(&self) -> f64 {
        100.0 * self.failed_fetches as f64 / self.fetches.max(1) as f64
    }

    /// Returns the share of answered fetches that were inconsistent, in percent.
    pub(crate) fn inconsistent_percent(&self) -> f64 {
        100.0 * self.inconsistent as f64 / self.fetch_times.len().max(1) as f64
    }
}

/// A step of a client.
#[derive(Clone, Copy, Debug)]
enum ClientStep {
    /// Reads the list that this value is to be appended to.
    Look(u64),
    /// Writes this value.
    Write(u64),
    /// Reads, and this many times again after that.
    Fetch(u32),
}

/// A step under way.
struct Open {
    key: usize,
    step: ClientStep,
    /// Time at which the client began the update or the fetch.
    begun: Time,
    host: usize,
    life: u32,
    index: usize,
    counts: bool,
}

/// All clients.
pub(super) struct StudyLoad {
    keys: Vec<Key>,
    popularity: Popularity,
    registers: Vec<Register>,
    busy: Vec<bool>,
    /// Keys of acknowledged updates.
    posted: Vec<usize>,
    open: Vec<Open>,
    counts: StudyCounts,
    rate: f64,
    appends: bool,
    demand: Demand,
    next: Time,
    looks: Time,
    rng: Rng,
}

impl StudyLoad {
    pub(super) fn new(study: &Study) -> StudyLoad {
        let name = |index: usize| Key::new(format!("user-{index}").as_bytes()).expect("short");
        let popularity = if study.is_chirp { Popularity::chirp(study.keys) } else { Popularity::even(study.keys) };
        StudyLoad {
            keys: (0..study.keys).map(name).collect(),
            popularity,
            registers: vec![Register::default(); study.keys],
            busy: vec![false; study.keys],
            posted: Vec::new(),
            open: Vec::new(),
            counts: StudyCounts::default(),
            rate: study.rate,
            appends: study.is_chirp,
            demand: study.demand,
            next: Time(0) + study.settle,
            looks: Time(0) + study.settle,
            rng: Rng::new(study.seed, "clients"),
        }
    }

    pub(super) fn counts(&self) -> &StudyCounts {
        &self.counts
    }

    /// Returns the time of the next step.
    pub(super) fn next(&self) -> Time {
        if self.open.is_empty() { self.next } else { self.next.min(self.looks) }
    }

    /// Begins the updates and fetches that are due, and notes answers.
    pub(super) fn go_on<S: System>(&mut self, world: &mut World<S>, begins: bool, counts: bool) {
        let now = world.now();
        while begins && self.next <= now {
            let fetches = match self.demand {
                Demand::Apart { fetches_per_s } if counts => Some(fetches_per_s),
                _ => None,
            };
            let chance = self.rng.positive_fraction();
            self.next = self.next + Duration::from_secs_f64(-chance.ln() / fetches.unwrap_or(self.rate));
            match fetches {
                Some(_) => self.fetch(world, counts),
                None => self.update(world, counts),
            }
        }
        if now >= self.looks {
            self.looks = now + LOOK_EVERY;
            self.look(world);
        }
    }

    /// Waits for the operations under way.
    pub(super) fn end<S: System>(&mut self, world: &mut World<S>) {
        let until = world.now() + 4 * PATIENCE;
        while !self.open.is_empty() && world.now() < until && world.failure().is_none() {
            world.run_for(LOOK_EVERY);
            self.look(world);
        }
    }

    /// Begins an update of a key; its writer waits for each answer.
    fn update<S: System>(&mut self, world: &mut World<S>, counts: bool) {
        let key = self.popularity.draw(&mut self.rng);
        if !self.busy[key] {
            self.busy[key] = true;
            let value = self.registers[key].begin();
            let step = if self.appends { ClientStep::Look(value) } else { ClientStep::Write(value) };
            self.ask(world, key, step, world.now(), counts);
        }
    }

    /// Begins a fetch of a posted update. The outcome of each update of its key is known: fetches may overtake each other.
    fn fetch<S: System>(&mut self, world: &mut World<S>, counts: bool) {
        if self.posted.is_empty() {
            return;
        }
        let key = *self.rng.pick(&self.posted);
        if !self.busy[key] && self.registers[key].is_settled() {
            self.ask(world, key, ClientStep::Fetch(0), world.now(), counts);
        }
    }

    fn ask<S: System>(&mut self, world: &mut World<S>, key: usize, step: ClientStep, begun: Time, counts: bool) {
        let Some(host) = self.ready_host(world) else {
            self.busy[key] = false;
            return;
        };
        let op = match step {
            ClientStep::Write(value) => {
                let value = Bytes::from(format!("{value:0VALUE_BYTES$}"));
                Op::Set { value, condition: Condition::Always, expiry: Expiry::Clear, get: false }
            }
            ClientStep::Look(_) | ClientStep::Fetch(_) => Op::Read(Read::Value),
        };
        let index = world.ask_key(host, self.keys[key].clone(), op);
        self.open.push(Open { key, step, begun, host, life: world.life(host), index, counts });
    }

    fn ready_host<S: System>(&mut self, world: &World<S>) -> Option<usize> {
        let drawn = (0..64).map(|_| self.rng.below(world.hosts() as u64) as usize);
        drawn.into_iter().find(|host| world.is_ready(*host))
    }

    fn look<S: System>(&mut self, world: &mut World<S>) {
        let (over, open) =
            std::mem::take(&mut self.open).into_iter().partition(|open| world.outcome(open.index).is_some());
        self.open = open;
        for one in over {
            self.note(world, one);
        }
    }

    fn note<S: System>(&mut self, world: &mut World<S>, one: Open) {
        let operation = &world.history().operations[one.index];
        let took = operation.completed.map_or(PATIENCE, |completed| completed.time.since(one.begun));
        let outcome = operation.outcome.clone();
        let asked_lives = world.life(one.host) == one.life && world.is_running(one.host);
        let is_answered = matches!(outcome, Outcome::Answered(_));
        let ended = Ended { is_answered, failed: u64::from(!is_answered && asked_lives), took };
        match one.step {
            ClientStep::Look(value) if is_answered => {
                self.ask(world, one.key, ClientStep::Write(value), one.begun, one.counts)
            }
            ClientStep::Look(value) => {
                // The value was never written.
                self.registers[one.key].end(value, Written::Refused);
                self.busy[one.key] = false;
                self.count_update(&one, &ended);
            }
            ClientStep::Write(value) => {
                self.note_write(one.key, value, &outcome);
                self.count_update(&one, &ended);
                match self.demand {
                    Demand::Fetched { fetches } if fetches > 0 => {
                        self.ask(world, one.key, ClientStep::Fetch(fetches - 1), world.now(), one.counts);
                    }
                    _ => self.busy[one.key] = false,
                }
            }
            ClientStep::Fetch(more) => {
                self.note_fetch(world.now(), &one, &outcome, &ended);
                match more {
                    0 => self.busy[one.key] = false,
                    more => self.ask(world, one.key, ClientStep::Fetch(more - 1), world.now(), one.counts),
                }
            }
        }
    }

    fn note_write(&mut self, key: usize, value: u64, outcome: &Outcome) {
        let written = match outcome {
            Outcome::Answered(_) => Written::Acknowledged,
            Outcome::TryAgain | Outcome::Limit => Written::Refused,
            Outcome::Uncertain => Written::Unknown,
        };
        self.registers[key].end(value, written);
        if written == Written::Acknowledged {
            self.posted.push(key);
        }
    }

    fn count_update(&mut self, one: &Open, ended: &Ended) {
        if one.counts {
            self.counts.updates += 1;
            self.counts.failed_updates += ended.failed;
            self.counts.update_times.extend(ended.is_answered.then_some(ended.took));
        }
    }

    fn note_fetch(&mut self, now: Time, one: &Open, outcome: &Outcome, ended: &Ended) {
        if let Outcome::Answered(answer) = outcome
            && let Err(why) = read_value(answer).and_then(|value| self.registers[one.key].read(value))
        {
            let key = self.keys[one.key].name().escape_ascii();
            self.counts.wrong.push(format!("{key} at {now:?}: {why}"));
            self.counts.inconsistent += u64::from(one.counts);
        }
        if one.counts {
            self.counts.fetches += 1;
            self.counts.failed_fetches += ended.failed;
            self.counts.fetch_times.extend(ended.is_answered.then_some(ended.took));
        }
    }
}

/// Result of a step.
struct Ended {
    is_answered: bool,
    /// 1 if the step failed though the peer that was asked lived; otherwise 0.
    failed: u64,
    took: Duration,
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
