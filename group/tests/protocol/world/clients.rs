//! Operations of clients, and a check that the answers are consistent.
//!
//! Keys of one kind are added to, each addition a bit of its own. All sums must have one order, and each sum must contain all bits that
//! were answered before its operation began. Keys of the other kind are set, deleted and read, one operation at a time: each answer is
//! known beforehand.

use std::collections::{BTreeMap, BTreeSet};

use group::ballot::TermBallot;
use group::message::{AttemptOutcome, ClientOperation};
use group::op::{Answer, Condition, Expiry, Op, Read, ReadMode};
use group::record::OpId;
use overlay::{Key, NodeId};

/// One operation of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Add(u32),
    Sum,
    Set(u64),
    Delete,
    Get,
}

#[derive(Clone, Debug)]
pub struct Call {
    pub key: usize,
    pub what: What,
    pub origin: NodeId,
    pub run: u64,
    sequence: u64,
    horizon: u64,
    /// For a sum: the bits answered before this operation began.
    before: i64,
    open: BTreeSet<u64>,
    unknown: bool,
    tries: u32,
}

#[derive(Clone, Debug)]
struct Place {
    key: Key,
    sums: bool,
    /// Number of bits added, bits that were certainly never added, and answers.
    bits: u32,
    never: i64,
    answers: Vec<i64>,
    /// For the other kind: the value, and whether it is unknown.
    value: Option<u64>,
    lost: bool,
    busy: bool,
}

/// All clients.
#[derive(Default)]
pub struct Clients {
    places: Vec<Place>,
    pub calls: BTreeMap<u64, Call>,
    attempts: BTreeMap<u64, u64>,
    next: u64,
    sequences: BTreeMap<(NodeId, u64), u64>,
    serials: BTreeMap<(NodeId, u64, TermBallot), u64>,
    /// Operations that are over and of which an attempt may still be in flight.
    strays: BTreeMap<(NodeId, u64, usize), BTreeSet<u64>>,
    pub answered: u64,
}

impl Clients {
    /// Returns the number of keys so far.
    pub fn keys(&self) -> usize {
        self.places.len()
    }

    pub fn key(&self, place: usize) -> &Key {
        &self.places[place].key
    }

    /// Returns whether an operation on this key would have a certain answer.
    pub fn is_free(&self, place: usize) -> bool {
        let place = &self.places[place];
        !place.lost && (place.sums || !place.busy)
    }

    pub fn is_lost(&self, place: usize) -> bool {
        self.places[place].lost
    }

    pub fn bits(&self, place: usize) -> u32 {
        self.places[place].bits
    }

    /// Adds a key.
    pub fn add_key(&mut self, sums: bool) -> usize {
        let name = format!("key {}", self.places.len());
        self.places.push(Place {
            key: Key::new(name.as_bytes()).expect("short"),
            sums,
            bits: 0,
            never: 0,
            answers: Vec::new(),
            value: None,
            lost: false,
            busy: false,
        });
        self.places.len() - 1
    }

    /// Begins an operation at this node.
    pub fn ask(&mut self, place: usize, read: bool, chance: u64, origin: NodeId, run: u64, horizon: u64) -> u64 {
        let at = &mut self.places[place];
        let what = match (at.sums, read) {
            (true, false) if at.bits < 60 => {
                at.bits += 1;
                What::Add(at.bits - 1)
            }
            (true, _) => What::Sum,
            (false, true) => What::Get,
            (false, false) if chance.is_multiple_of(2) => What::Set(chance),
            (false, false) => What::Delete,
        };
        at.busy = true;
        let before = at.answers.iter().fold(0, |all, sum| all | sum);
        let sequence = self.sequences.entry((origin, run)).or_default();
        *sequence += 1;
        let call = Call {
            key: place,
            what,
            origin,
            run,
            sequence: *sequence,
            horizon,
            before,
            open: BTreeSet::new(),
            unknown: false,
            tries: 0,
        };
        self.next += 1;
        self.calls.insert(self.next, call);
        self.next
    }

    /// Returns another attempt of a call, under this ballot.
    pub fn attempt(&mut self, number: u64, ballot: TermBallot) -> ClientOperation {
        let (origin, run, key) = {
            let call = &self.calls[&number];
            (call.origin, call.run, call.key)
        };
        let same = |call: &&Call| (call.origin, call.run, call.key) == (origin, run, key);
        let retired_below = self.calls.values().filter(same).map(|call| call.sequence).min().expect("this one");
        let strays = self.strays.get(&(origin, run, key)).into_iter().flatten();
        let retired_except = strays.copied().filter(|stray| *stray < retired_below).collect();
        self.next += 1;
        let attempt = self.next;
        self.attempts.insert(attempt, number);
        let serial = self.serials.entry((origin, run, ballot)).or_default();
        *serial += 1;
        let call = self.calls.get_mut(&number).expect("open");
        call.open.insert(attempt);
        call.tries += 1;
        ClientOperation {
            attempt,
            ballot: Some(ballot),
            run,
            serial: *serial,
            retired_below,
            retired_except,
            id: OpId::Origin { node: origin, run, sequence: call.sequence },
            horizon: call.horizon,
            patience_ms: 400,
            key: self.places[call.key].key.clone(),
            op: match call.what {
                What::Add(bit) => Op::Add(1 << bit),
                What::Sum | What::Get => Op::Read(Read::Value),
                What::Set(value) => Op::Set {
                    value: format!("{value:040}").into_bytes().into(),
                    condition: Condition::Always,
                    expiry: Expiry::Clear,
                    get: false,
                },
                What::Delete => Op::Delete { condition: Condition::Always, get: false },
            },
            mode: ReadMode::Linearizable,
        }
    }

    /// Returns an attempt to read by a switch, of which no primary knows.
    pub fn attempt_spread(&mut self, number: u64) -> u64 {
        self.next += 1;
        self.attempts.insert(self.next, number);
        let call = self.calls.get_mut(&number).expect("open");
        call.open.insert(self.next);
        call.tries += 1;
        self.next
    }

    /// Takes the outcome of such an attempt, at the client.
    pub fn on_spread(&mut self, attempt: u64, outcome: AttemptOutcome) -> Result<(), String> {
        let call = self.attempts.get(&attempt).and_then(|number| self.calls.get(number));
        let Some((origin, run)) = call.map(|call| (call.origin, call.run)) else { return Ok(()) };
        self.on_outcome(origin, run, attempt, outcome)
    }

    pub fn tries(&self, number: u64) -> (u32, bool) {
        self.calls.get(&number).map_or((0, false), |call| (call.tries, call.open.is_empty()))
    }

    /// Takes an outcome at its origin.
    pub fn on_outcome(
        &mut self,
        origin: NodeId,
        run: u64,
        attempt: u64,
        outcome: AttemptOutcome,
    ) -> Result<(), String> {
        let Some(number) = self.attempts.get(&attempt).copied() else { return Ok(()) };
        let Some(call) = self.calls.get_mut(&number) else { return Ok(()) };
        if (call.origin, call.run) != (origin, run) || !call.open.remove(&attempt) {
            return Ok(());
        }
        match outcome {
            AttemptOutcome::Done(answer) => self.finish(number, &answer),
            AttemptOutcome::Unchanged(answer) => {
                let reads = matches!(call.what, What::Sum | What::Get);
                if reads || (call.open.is_empty() && !call.unknown) {
                    return self.finish(number, &answer);
                }
                Ok(())
            }
            AttemptOutcome::Refused(_) | AttemptOutcome::NotPrimary => Ok(()),
            AttemptOutcome::Unknown => {
                call.unknown = true;
                Ok(())
            }
        }
    }

    /// Gives up a call: no client waits for it any more. A part that was not refused may yet take effect.
    pub fn give_up(&mut self, number: u64) {
        let Some(call) = self.calls.remove(&number) else { return };
        self.note_strays(&call);
        let place = &mut self.places[call.key];
        place.busy = false;
        let certain = call.open.is_empty() && !call.unknown;
        match call.what {
            What::Add(bit) if certain => place.never |= 1 << bit,
            What::Set(_) | What::Delete if !certain => place.lost = true,
            _ => {}
        }
    }

    fn note_strays(&mut self, call: &Call) {
        if !call.open.is_empty() || call.unknown {
            self.strays.entry((call.origin, call.run, call.key)).or_default().insert(call.sequence);
        }
    }

    fn finish(&mut self, number: u64, answer: &Answer) -> Result<(), String> {
        let call = self.calls.remove(&number).expect("the caller looked");
        self.note_strays(&call);
        self.answered += 1;
        let place = &mut self.places[call.key];
        place.busy = false;
        let wrong = |expected: String| Err(format!("{:?} of {:?}: {answer:?}, not {expected}", call.what, place.key));
        match call.what {
            What::Add(_) | What::Sum => {
                let sum = match answer {
                    Answer::Integer(sum) => *sum,
                    Answer::Value(None) => 0,
                    Answer::Value(Some(value)) => std::str::from_utf8(value).unwrap().parse().unwrap(),
                    _ => return wrong("a sum".into()),
                };
                let own = if let What::Add(bit) = call.what { 1 << bit } else { 0 };
                let asked = (1_i64 << place.bits) - 1;
                let other = place.answers.iter().find(|other| sum & **other != sum && sum & **other != **other);
                if let Some(other) = other {
                    return wrong(format!("of one order with {other:#b}"));
                }
                if sum & !asked != 0 || sum & own != own || sum & call.before != call.before || sum & place.never != 0 {
                    return wrong(format!(
                        "within {asked:#b}, with {:#b}, without {:#b}",
                        call.before | own,
                        place.never
                    ));
                }
                place.answers.push(sum);
            }
            What::Get => {
                let expected = place.value.map(|value| format!("{value:040}").into_bytes().into());
                if !place.lost && *answer != Answer::Value(expected.clone()) {
                    return wrong(format!("{expected:?}"));
                }
            }
            What::Set(value) => {
                if *answer != Answer::Done {
                    return wrong("done".into());
                }
                place.value = Some(value);
            }
            What::Delete => {
                let expected = if place.value.is_some() { Answer::Done } else { Answer::NotMet };
                if *answer != expected && !place.lost {
                    return wrong(format!("{expected:?}"));
                }
                place.value = None;
            }
        }
        Ok(())
    }
}
