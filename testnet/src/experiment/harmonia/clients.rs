//! Clients of a hall: what they ask, by which way, and whether what they read can be true.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use group::op::{Op, Read};
use group::time::Time;
use load::Keys;
use overlay::Key;

use super::fabric::object;
use super::hall::Event;
use super::setting::{Load, Setting};
use crate::experiment::agenda::Agenda;
use crate::experiment::members::set;
use crate::rng::Rng;

/// After silence of the switch no read goes by it for so long, and then twice as long each time: as peers have it.
const REST_FIRST: Duration = Duration::from_millis(250);
const REST_MAX: Duration = Duration::from_secs(2);
/// Clients begin within this.
const BEGIN: Duration = Duration::from_millis(2);
/// Bytes of a value, as in the paper.
const VALUE_BYTES: usize = 16;

/// What a client waits for.
struct Asked {
    client: usize,
    number: u64,
    is_write: bool,
    /// By way of the switch.
    spread: bool,
    at: Time,
    /// A read must find this version or a later one; a write, once it is taken up, makes this one.
    version: u64,
}

/// An operation has come to its end.
pub(super) struct Answered {
    pub(super) client: usize,
    pub(super) is_write: bool,
    pub(super) waited: Duration,
    /// When that client asks next, if it does so after answers.
    pub(super) next: Option<Time>,
}

pub(super) struct Clients {
    load: Load,
    writes: f64,
    keys: Keys,
    rng: Rng,
    last_tag: u64,
    asked: HashMap<u64, Asked>,
    /// By serial at the primary: whose it is.
    pub(super) attempts: HashMap<u64, (u64, Key)>,
    /// Of each key, the newest version that an answer has shown, and the newest that the primary has taken up.
    known: Vec<u64>,
    taken_up: Vec<u64>,
    /// Reads that were older than what was known when they were asked, or newer than what was written.
    pub(super) stale: u64,
    /// When something was heard by way of the switch; none is asked that way before; how long the next rest is.
    heard: Time,
    rests_until: Time,
    rest: Duration,
}

pub(super) fn key_of(number: u64) -> Key {
    Key::new(format!("key:{number}").as_bytes()).expect("short")
}

impl Clients {
    pub(super) fn new(setting: &Setting) -> Clients {
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

    /// The first operations.
    pub(super) fn begin(&mut self, setting: &Setting, agenda: &mut Agenda<Event>) {
        let clients = match setting.load {
            Load::Closed { clients } => clients,
            Load::Apart { readers, writers, .. } => readers + writers,
            Load::Open { .. } => 1,
        };
        for client in 0..clients {
            agenda.after(self.rng.duration(Duration::ZERO, BEGIN), Event::Client(client));
        }
    }

    /// Where operations come by themselves: the next one.
    pub(super) fn next_arrival(&mut self, agenda: &mut Agenda<Event>) {
        if let Load::Open { per_s } = self.load {
            let share = (self.rng.bits() >> 11) as f64 / (1u64 << 53) as f64;
            agenda.after(Duration::from_secs_f64(-(1.0 - share).ln() / per_s), Event::Client(0));
        }
    }

    /// A client asks for something: the tag of that.
    pub(super) fn ask(&mut self, client: usize, spreads: bool, now: Time) -> u64 {
        let number = self.keys.next_key().expect("keys without an end");
        let is_write = match self.load {
            Load::Apart { readers, .. } => client >= readers,
            Load::Closed { .. } | Load::Open { .. } => self.keys.chance(self.writes),
        };
        let spread = spreads && !is_write && now >= self.rests_until;
        self.last_tag += 1;
        let asked = Asked { client, number, is_write, spread, at: now, version: self.known[number as usize] };
        self.asked.insert(self.last_tag, asked);
        self.last_tag
    }

    /// The object of a read that goes by way of the switch.
    pub(super) fn spread(&self, tag: u64) -> Option<u32> {
        self.asked.get(&tag).filter(|asked| asked.spread).map(|asked| object(&key_of(asked.number)))
    }

    pub(super) fn key(&self, tag: u64) -> Option<Key> {
        self.asked.get(&tag).map(|asked| key_of(asked.number))
    }

    pub(super) fn is_write(&self, tag: u64) -> bool {
        self.asked.get(&tag).is_some_and(|asked| asked.is_write)
    }

    /// The primary takes this up, unless it was answered meanwhile. Operations of one key are executed in that order.
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

    /// The version that a value is.
    pub(super) fn version(value: &[u8]) -> u64 {
        value.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
    }

    /// An answer came, of a read with the version that it found. The second answer to the same says nothing.
    pub(super) fn answered(&mut self, tag: u64, found: Option<u64>, now: Time) -> Option<Answered> {
        let Asked { client, number, is_write, spread, at, version } = self.asked.remove(&tag)?;
        let (known, taken_up) = (&mut self.known[number as usize], self.taken_up[number as usize]);
        let shown = found.unwrap_or(version);
        self.stale += u64::from(!is_write && !(version..=taken_up).contains(&shown));
        *known = (*known).max(shown);
        if spread {
            (self.heard, self.rests_until, self.rest) = (now, Time(0), REST_FIRST);
        }
        let next = match self.load {
            Load::Open { .. } => None,
            Load::Apart { pause, .. } if is_write => Some(now + pause),
            Load::Closed { .. } | Load::Apart { .. } => Some(now),
        };
        Some(Answered { client, is_write, waited: now.since(at), next })
    }

    /// Nothing was heard of this: is it to be asked of the primary?
    pub(super) fn impatient(&mut self, tag: u64, now: Time) -> bool {
        let Some(asked) = self.asked.get_mut(&tag) else { return false };
        // What is heard late, and of the primary, says nothing of the switch.
        asked.spread = false;
        if self.heard < asked.at && self.rests_until <= now {
            (self.rests_until, self.rest) = (now + self.rest, (self.rest * 2).min(REST_MAX));
        }
        true
    }
}
