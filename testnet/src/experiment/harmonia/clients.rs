//! Clients of a simulated testbed: their operations, the way of each, and whether each value read is possible.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use group::op::{Op, Read};
use load::Keys;
use overlay::Key;
use overlay::time::Time;

use super::fabric::object;
use super::setting::{LoadModel, SwitchSetting};
use super::testbed::SwitchEvent;
use crate::experiment::agenda::Agenda;
use crate::experiment::members::{key_of, set};
use crate::rng::Rng;

/// Time for which no read goes through the switch after its first silence; it doubles with each further silence, as in peers.
const REST_FIRST: Duration = Duration::from_millis(250);
const REST_MAX: Duration = Duration::from_secs(2);
/// Time within which clients begin.
const BEGIN: Duration = Duration::from_millis(2);
/// Size of a value, in bytes, as in the paper.
const VALUE_BYTES: usize = 16;

/// An operation that a client waits for.
struct AskedOperation {
    client: usize,
    number: u64,
    is_write: bool,
    /// Whether it goes through the switch.
    spread: bool,
    at: Time,
    /// For a read: the least version that it must find. For a write, once begun at the primary: the version that it makes.
    version: u64,
}

/// An operation that has ended.
pub(super) struct Answered {
    pub(super) client: usize,
    pub(super) is_write: bool,
    pub(super) waited: Duration,
    /// Time of that client's next operation, if the client sends one after each answer.
    pub(super) next: Option<Time>,
}

pub(super) struct Clients {
    load: LoadModel,
    writes: f64,
    keys: Keys,
    rng: Rng,
    last_tag: u64,
    asked: HashMap<u64, AskedOperation>,
    /// By serial at the primary: tag and key of the operation.
    pub(super) attempts: HashMap<u64, (u64, Key)>,
    /// For each key, the newest version that an answer has shown, and the newest that the primary has begun.
    known: Vec<u64>,
    taken_up: Vec<u64>,
    /// Reads that were older than the version known when they were sent, or newer than any write.
    pub(super) stale: u64,
    /// Time of the last answer through the switch; time before which no read goes that way; length of the next rest.
    heard: Time,
    rests_until: Time,
    rest: Duration,
}

impl Clients {
    pub(super) fn new(setting: &SwitchSetting) -> Clients {
        let keys = Keys::new(setting.keys, setting.key_count, setting.seed, 0, 1);
        Clients {
            load: setting.load,
            writes: setting.writes,
            keys: keys.expect("the distribution makes sense"),
            rng: Rng::new(setting.seed, "clients"),
            last_tag: 0,
            asked: HashMap::new(),
            attempts: HashMap::new(),
            known: vec![0; setting.key_count as usize],
            taken_up: vec![0; setting.key_count as usize],
            stale: 0,
            heard: Time(0),
            rests_until: Time(0),
            rest: REST_FIRST,
        }
    }

    /// Starts the first operations.
    pub(super) fn begin(&mut self, setting: &SwitchSetting, agenda: &mut Agenda<SwitchEvent>) {
        let clients = match setting.load {
            LoadModel::Closed { clients } => clients,
            LoadModel::Apart { readers, writers, .. } => readers + writers,
            LoadModel::Open { .. } => 1,
        };
        for client in 0..clients {
            agenda.after(self.rng.duration(Duration::ZERO, BEGIN), SwitchEvent::Client(client));
        }
    }

    /// Plans the next operation, where operations come at a rate.
    pub(super) fn next_arrival(&mut self, agenda: &mut Agenda<SwitchEvent>) {
        if let LoadModel::Open { per_s } = self.load {
            let share = self.rng.fraction();
            agenda.after(Duration::from_secs_f64(-(1.0 - share).ln() / per_s), SwitchEvent::Client(0));
        }
    }

    /// Draws a client's operation, and returns its tag.
    pub(super) fn ask(&mut self, client: usize, spreads: bool, now: Time) -> u64 {
        let number = self.keys.next_key().expect("keys without an end");
        let is_write = match self.load {
            LoadModel::Apart { readers, .. } => client >= readers,
            LoadModel::Closed { .. } | LoadModel::Open { .. } => self.keys.chance(self.writes),
        };
        let spread = spreads && !is_write && now >= self.rests_until;
        self.last_tag += 1;
        let asked = AskedOperation { client, number, is_write, spread, at: now, version: self.known[number as usize] };
        self.asked.insert(self.last_tag, asked);
        self.last_tag
    }

    /// Returns the object of a read that goes through the switch.
    pub(super) fn spread(&self, tag: u64) -> Option<u32> {
        self.asked.get(&tag).filter(|asked| asked.spread).map(|asked| object(&key_of(asked.number)))
    }

    pub(super) fn key(&self, tag: u64) -> Option<Key> {
        self.asked.get(&tag).map(|asked| key_of(asked.number))
    }

    pub(super) fn is_write(&self, tag: u64) -> bool {
        self.asked.get(&tag).is_some_and(|asked| asked.is_write)
    }

    /// Begins an operation at the primary, unless it was answered meanwhile. Operations of one key are executed in that order.
    pub(super) fn take_up(&mut self, tag: u64) -> Option<(Key, Op)> {
        let asked = self.asked.get_mut(&tag)?;
        let op = if asked.is_write {
            let last = &mut self.taken_up[asked.number as usize];
            *last += 1;
            asked.version = *last;
            let mut value = [0; VALUE_BYTES];
            value[..8].copy_from_slice(&last.to_be_bytes());
            set(Bytes::copy_from_slice(&value))
        } else {
            Op::Read(Read::Value)
        };
        Some((key_of(asked.number), op))
    }

    /// Returns the version that a value stands for.
    pub(super) fn version(value: &[u8]) -> u64 {
        value.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
    }

    /// Takes an answer, for a read with the version that it found. A second answer to the same operation has no effect.
    pub(super) fn answered(&mut self, tag: u64, found: Option<u64>, now: Time) -> Option<Answered> {
        let AskedOperation { client, number, is_write, spread, at, version } = self.asked.remove(&tag)?;
        let (known, taken_up) = (&mut self.known[number as usize], self.taken_up[number as usize]);
        let shown = found.unwrap_or(version);
        self.stale += u64::from(!is_write && !(version..=taken_up).contains(&shown));
        *known = (*known).max(shown);
        if spread {
            (self.heard, self.rests_until, self.rest) = (now, Time(0), REST_FIRST);
        }
        let next = match self.load {
            LoadModel::Open { .. } => None,
            LoadModel::Apart { pause, .. } if is_write => Some(now + pause),
            LoadModel::Closed { .. } | LoadModel::Apart { .. } => Some(now),
        };
        Some(Answered { client, is_write, waited: now.since(at), next })
    }

    /// Notes that an operation has no answer yet. Returns whether it must be sent to the primary.
    pub(super) fn impatient(&mut self, tag: u64, now: Time) -> bool {
        let Some(asked) = self.asked.get_mut(&tag) else { return false };
        // A late answer, from the primary, tells nothing about the switch.
        asked.spread = false;
        if self.heard < asked.at && self.rests_until <= now {
            (self.rests_until, self.rest) = (now + self.rest, (self.rest * 2).min(REST_MAX));
        }
        true
    }
}
