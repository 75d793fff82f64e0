//! Ids of operations move to completion records beside their key: other operations continue regardless of the remembered ids of a key, and
//! writes stay small.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use group::ballot::TermBallot;
use group::config::{Defect, Defects};
use group::message::{AttemptOutcome, ClientOperation, CommitteeMessage, Message, Write};
use group::op::{Answer, Condition, Expiry, Limit, Op, OpError};
use group::outbox::Durable;
use group::record::{LIVE_IDS_MAX, OpId, Record};
use overlay::Key;

use crate::bench::{Bench, Whole, key, node, operate, operation};

/// A primary of three members, of which member 2 accepts all writes, with a store.
struct Primary {
    whole: Whole,
    serial: u64,
    /// Size of the writes sent to members, in bytes.
    bytes: usize,
    store: BTreeMap<Key, Arc<Record>>,
    accepted: BTreeMap<u64, Write>,
    loads: usize,
    outcomes: BTreeMap<u64, AttemptOutcome>,
    /// Whether writes of completion records get lost.
    loses_completions: bool,
}

impl Primary {
    fn new(memory_bytes_max: usize, durable: bool) -> Primary {
        Primary::with(memory_bytes_max, durable, Defects::NONE)
    }

    fn with(memory_bytes_max: usize, durable: bool, defects: Defects) -> Primary {
        let mut bench = Bench::new(node(1), 3);
        bench.config.defects = defects;
        bench.config.memory_bytes_max = memory_bytes_max;
        bench.config.durable = durable;
        bench.config.message_bytes_max = 1 << 19;
        bench.config.waiting_max = 4_000;
        bench.config.in_flight_max = 4_000;
        bench.state.settings.value_bytes_max = 100_000;
        let mut whole = Whole::new(&bench);
        whole.serve();
        whole.said.clear();
        let (store, accepted, outcomes) = Default::default();
        Primary { whole, serial: 0, bytes: 0, store, accepted, loads: 0, outcomes, loses_completions: false }
    }

    /// Returns how many ids its chosen record of this key holds.
    fn ids_of(&self, name: &str) -> usize {
        let found = self.whole.group.table().iter().find(|(known, _)| **known == key(name));
        found.map_or(0, |(_, record)| record.done.len())
    }

    fn ballot(&self) -> TermBallot {
        self.whole.own()
    }

    /// Sends this operation as a new attempt. Its outcome is found in `outcomes` under the number returned.
    fn send(&mut self, name: &str, op: Op, id: Option<OpId>, retired_below: u64) -> u64 {
        self.serial += 1;
        let mut sent = operation(self.ballot(), self.serial, name, op);
        sent.retired_below = retired_below;
        if let Some(id) = id {
            sent.id = id;
        }
        self.whole.hear(2, operate(ClientOperation { ..sent }));
        self.serial
    }

    /// Delivers all messages that follow, until no more are sent.
    fn settle(&mut self) {
        loop {
            self.keep_stored();
            let said = std::mem::take(&mut self.whole.said);
            let mut accepted = Vec::new();
            for (_, message) in said {
                match message {
                    Message::Committee(CommitteeMessage::Accept { ballot, writes, .. }) if !writes.is_empty() => {
                        self.bytes += postcard::to_allocvec(&writes).unwrap().len();
                        let comes = |write: &&Write| !(self.loses_completions && write.key.is_companion());
                        let numbers =
                            writes.iter().filter(comes).map(|write| (write.record.number.n, write.record.number.n));
                        accepted.push(CommitteeMessage::Accepted { ballot, numbers: numbers.collect() });
                    }
                    Message::Committee(CommitteeMessage::Confirm { ballot, attempt, .. }) => {
                        accepted.push(CommitteeMessage::Confirmed { ballot, attempt });
                    }
                    Message::Client(client) => self.outcomes.extend(client.outcomes),
                    _ => {}
                }
            }
            let loaded = self.load();
            if accepted.is_empty() && !loaded {
                return;
            }
            accepted.into_iter().for_each(|message| self.whole.hear(2, Message::Committee(message)));
        }
    }

    fn keep_stored(&mut self) {
        for change in std::mem::take(&mut self.whole.stored) {
            match change {
                Durable::Accepted(write) => drop(self.accepted.insert(write.record.number.n, write)),
                Durable::Settle(_, first, last) => {
                    for n in first..=last {
                        if let Some(write) = self.accepted.remove(&n) {
                            self.store.insert(write.key, write.record);
                        }
                    }
                }
                Durable::Record(write) => drop(self.store.insert(write.key, write.record)),
                _ => {}
            }
        }
    }

    /// Answers the loads that the member wants from the store.
    fn load(&mut self) -> bool {
        let asked = std::mem::take(&mut self.whole.loads);
        self.loads += asked.len();
        let any = !asked.is_empty();
        for key in asked {
            let record = self.store.get(&key).cloned();
            self.whole.group.on_loaded(&key, record);
            self.whole.pull();
        }
        any
    }

    fn ask(&mut self, name: &str, op: Op, id: Option<OpId>) -> AttemptOutcome {
        let attempt = self.send(name, op, id, self.serial);
        self.settle();
        self.outcomes.remove(&attempt).unwrap_or_else(|| panic!("attempt {attempt} at {name} is not answered"))
    }

    fn once(&mut self, name: &str, op: Op, id: &str) -> AttemptOutcome {
        self.ask(name, op, Some(OpId::Client(Bytes::copy_from_slice(id.as_bytes()))))
    }

    /// Returns the cost of one of these actions, in bytes of writes.
    fn cost_of(&mut self, count: usize, mut act: impl FnMut(&mut Primary, usize)) -> usize {
        let before = self.bytes;
        (0..count).for_each(|n| act(self, n));
        (self.bytes - before) / count
    }
}

fn integer(number: i64) -> AttemptOutcome {
    AttemptOutcome::Done(Answer::Integer(number))
}

fn set_get(value: &[u8]) -> Op {
    let value = Bytes::copy_from_slice(value);
    Op::Set { value, condition: Condition::Always, expiry: Expiry::Clear, get: true }
}

#[test]
fn a_write_does_not_grow_with_what_is_remembered() {
    let mut primary = Primary::new(1 << 30, true);
    let plain = |primary: &mut Primary, _| drop(primary.ask("k", Op::Add(1), None));
    assert_eq!(primary.once("k", Op::Add(1), "first"), integer(1));
    let none = primary.cost_of(100, plain);
    let once = |name: &'static str| {
        move |primary: &mut Primary, n| drop(primary.once("k", Op::Add(1), &format!("{name}-{n}")))
    };
    let few = primary.cost_of(100, once("few"));
    let many = if std::env::var_os("SCATTER_LONG").is_some() { 100_000 } else { 10_000 };
    primary.cost_of(many, once("many"));
    let much = primary.cost_of(100, plain);
    let more = primary.cost_of(100, once("more"));
    println!(
        "a plain write {none} and {much} bytes, one of ONCE {few} and {more}, with none and {many} ids remembered"
    );
    assert!(much * 2 <= none * 3, "{much} bytes beside {none}");
    assert!(more * 2 <= few * 3, "{more} bytes beside {few}");
    // All of them are remembered.
    let count = 1 + 100 + 100 + many as i64 + 100 + 100;
    assert_eq!(primary.once("k", Op::Add(1), "first"), integer(1));
    assert_eq!(primary.once("k", Op::Add(1), "many-0"), integer(202));
    assert_eq!(primary.once("k", Op::Add(1), "many-7777"), integer(202 + 7_777));
    assert_eq!(primary.once("k", Op::Add(1), "new"), integer(count + 1));
}

/// Operations that wait for the same key at one time, with answers that do not fit into one record.
#[test]
fn large_answers_stop_nobody() {
    let mut primary = Primary::new(1 << 30, true);
    let value = |n: usize| vec![n as u8; 60_000];
    let attempts: Vec<u64> = (0..90)
        .map(|n| {
            let id = OpId::Client(format!("id {n}").into_bytes().into());
            primary.send("k", set_get(&value(n)), Some(id), 1)
        })
        .collect();
    let last = primary.send("k", set_get(b"plain"), None, 1);
    primary.settle();
    for (n, attempt) in attempts.iter().enumerate() {
        let before = n.checked_sub(1).map(|n| Bytes::from(value(n)));
        assert_eq!(primary.outcomes.remove(attempt), Some(AttemptOutcome::Done(Answer::Value(before))), "{n}");
    }
    assert_eq!(primary.outcomes.remove(&last), Some(AttemptOutcome::Done(Answer::Value(Some(value(89).into())))));
    for n in [1, 40, 89] {
        let again = primary.once("k", set_get(b"other"), &format!("id {n}"));
        assert_eq!(again, AttemptOutcome::Done(Answer::Value(Some(value(n - 1).into()))));
    }
}

/// Large answers are copied once, and not with each later write.
#[test]
fn large_answers_do_not_travel_with_later_writes() {
    let mut primary = Primary::new(1 << 30, true);
    for n in 0..3 {
        primary.once("k", set_get(&[n; 60_000]), &format!("id {n}"));
    }
    primary.ask("k", set_get(b"short"), None);
    let bytes = primary.cost_of(10, |primary, _| drop(primary.ask("k", set_get(b"short"), None)));
    assert!(bytes < 300, "{bytes} bytes");
}

#[test]
fn no_large_answer_is_kept_for_a_plain_command() {
    let mut primary = Primary::new(1 << 30, true);
    let id = |sequence| Some(OpId::Origin { node: node(2), run: 1, sequence });
    let old = vec![1; 60_000];
    assert_eq!(primary.ask("k", set_get(&old), id(900)), AttemptOutcome::Done(Answer::Value(None)));
    assert_eq!(primary.ask("k", set_get(b"new"), id(901)), AttemptOutcome::Done(Answer::Value(Some(old.into()))));
    assert_eq!(primary.ask("k", set_get(b"new"), id(901)), AttemptOutcome::Done(Answer::NotKept), "a repetition");
    assert_eq!(
        primary.ask("k", set_get(b"x"), id(902)),
        AttemptOutcome::Done(Answer::Value(Some("new".into()))),
        "done once"
    );
}

/// A peer leaves more ids behind than a record holds, and sends no more operations: the other peers' operations continue.
#[test]
fn ids_of_a_peer_that_retires_none_stop_nobody() {
    let mut primary = Primary::new(1 << 30, true);
    let id = |sequence| Some(OpId::Origin { node: node(3), run: 1, sequence });
    let count = 3 * LIVE_IDS_MAX as u64;
    for n in 1..=count {
        assert_eq!(primary.ask("k", Op::Add(1), id(n)), integer(n as i64));
    }
    assert_eq!(primary.ask("k", Op::Add(1), None), integer(count as i64 + 1));
    assert_eq!(primary.ask("k", Op::Add(1), id(7)), integer(7), "it is remembered");
    assert_eq!(primary.ask("k", Op::Add(1), id(count)), integer(count as i64));
}

/// Where all data is in memory for good, ids have their part of it, and other data the rest.
#[test]
fn ids_have_a_budget_of_their_own() {
    let mut primary = Primary::new(1 << 20, false);
    let mut refused = None;
    for n in 0..10_000 {
        if primary.once("k", Op::Add(1), &format!("id {n}")) == AttemptOutcome::Refused(OpError::Limit(Limit::Ids)) {
            refused = Some(n);
            break;
        }
    }
    let count = refused.expect("there is a limit");
    assert!(count > 300, "{count}");
    assert_eq!(primary.once("other", Op::Add(1), "x"), AttemptOutcome::Refused(OpError::Limit(Limit::Ids)));
    assert_eq!(primary.once("k", Op::Add(1), "id 0"), integer(1), "what was done is answered");
    for n in 1..=1_000 {
        assert_eq!(
            primary.ask("k", Op::Add(1), None),
            integer(count as i64 + n),
            "it was refused before it took effect"
        );
        let other = format!("other {}", n % 100);
        assert!(matches!(primary.ask(&other, Op::Add(1), None), AttemptOutcome::Done(_)));
    }
}

/// Completion records that have left memory are read from the store.
#[test]
fn ids_are_found_in_the_store() {
    let mut primary = Primary::new(1 << 16, true);
    for n in 0..2_000 {
        assert_eq!(primary.once("k", Op::Add(1), &format!("id {n}")), integer(n + 1));
        primary.whole.wait(0);
        primary.settle();
    }
    assert!(primary.whole.group.table().len() < 1_000, "{} in memory", primary.whole.group.table().len());
    let loads = primary.loads;
    for n in (0..2_000).step_by(97) {
        assert_eq!(primary.once("k", Op::Add(1), &format!("id {n}")), integer(n + 1));
    }
    assert!(primary.loads > loads);
    assert_eq!(primary.once("k", Op::Add(1), "new"), integer(2_001));
}

/// No id leaves its record before its completion record is chosen: another primary may have neither.
#[test]
fn an_id_stays_until_its_completion_record_is_chosen() {
    for defects in [Defects::NONE, Defects::NONE.with(Defect::MovedTooEarly)] {
        let mut primary = Primary::with(1 << 30, true, defects);
        primary.loses_completions = true;
        for n in 0..10 {
            primary.once("k", Op::Add(1), &format!("id {n}"));
        }
        let ids = primary.ids_of("k");
        if defects == Defects::NONE {
            assert_eq!(ids, 10);
            primary.loses_completions = false;
            primary.whole.wait(1_000);
            primary.settle();
            primary.ask("k", Op::Add(1), None);
            assert_eq!(primary.ids_of("k"), 1, "said again, and chosen");
            assert_eq!(primary.once("k", Op::Add(1), "id 3"), integer(4));
        } else {
            assert!(ids < 10, "this test notices nothing");
        }
    }
}

/// Few ids stay in the record, and the rest lies in tombstones beside it.
#[test]
fn ids_move_beside_their_key() {
    let mut primary = Primary::new(1 << 30, true);
    for n in 0..10 {
        primary.once("k", Op::Add(1), &format!("id {n}"));
    }
    let beside = OpId::Client("id 0".into()).completion_of(&key("k"));
    let known = primary.whole.group.table().iter().any(|(key, record)| *key == beside && record.value.is_none());
    assert!(known, "it has moved");
    let main =
        primary.whole.group.table().iter().find(|(known, _)| **known == key("k")).map(|(_, record)| record.clone());
    let main = main.expect("the key is there");
    assert!(main.done.len() <= 4, "{} ids stay", main.done.len());
    assert!(main.completions.client.is_some());
}
