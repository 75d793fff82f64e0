//! A toy store, with which the harness is tested first: one machine keeps all data, and the other machines ask it. The store
//! can be broken in several ways, each of which a checker must find.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use group::data::service::{Change, Delivery, Live, deliver};
use group::op::{Answer, Kind, Op, OpError, Read, ReadMode, Refusal, Version};
use node::{Class, Event, Input, NodeConfig, Output, Request, RequestId, Restored};
use overlay::PeerKey;
use overlay::time::{Now, Time, WallMillis};
use serde::{Deserialize, Serialize};
use testnet::sim::Host;

/// Defects of the store.
pub const NOTHING: u8 = 0;
pub const STALE_READS: u8 = 1;
pub const LOST_WRITES: u8 = 2;
pub const DOUBLE_APPLY: u8 = 3;
pub const DIRTY_READS: u8 = 4;
pub const LATE_EFFECTS: u8 = 5;
pub const DELETES_UNDONE: u8 = 6;
pub const TWO_ANSWERS: u8 = 7;
pub const SILENCE: u8 = 8;
pub const PANICS: u8 = 9;
pub const REORDERS: u8 = 10;
pub const REUSED_VERSIONS: u8 = 11;

#[derive(Serialize, Deserialize)]
enum Frame {
    Ask {
        id: u64,
        once: Option<Vec<u8>>,
        key: Vec<u8>,
        op: Op,
        left_ms: u64,
    },
    Told {
        id: u64,
        result: Result<Answer, OpError>,
    },
    /// The server announces itself.
    Here,
}

#[derive(Clone, Default, Serialize, Deserialize)]
struct Entry {
    value: Option<Bytes>,
    kind: Kind,
    version: Version,
    /// Deadline by the server's wall clock, in milliseconds.
    deadline: Option<u64>,
}

#[derive(Clone)]
struct Asked {
    from: Option<PeerKey>,
    id: u64,
    once: Option<Vec<u8>>,
    key: Vec<u8>,
    op: Op,
    until: Time,
}

/// Number, the client's own id, and the operation.
type InLine = (u64, Option<Vec<u8>>, Op);

struct Waiting {
    id: RequestId,
    until: Time,
    read: bool,
    asked: bool,
    line: (u64, Vec<u8>),
}

pub struct Toy<const DEFECT: u8> {
    server: Option<PeerKey>,
    is_server: bool,
    life: u64,
    /// The server's wall clock, in milliseconds.
    wall: u64,
    data: BTreeMap<Vec<u8>, Entry>,
    done: BTreeMap<Vec<u8>, Answer>,
    /// Answers that wait for their batch.
    unsynced: VecDeque<(u64, Asked, Result<Answer, OpError>)>,
    token: u64,
    /// Operations that this machine's clients wait for.
    waiting: BTreeMap<u64, Waiting>,
    /// Requests by connection and key: the first is asked, the later ones wait for its answer.
    lines: BTreeMap<(u64, Vec<u8>), VecDeque<InLine>>,
    cache: BTreeMap<Vec<u8>, Answer>,
    parked: Vec<(Time, Asked)>,
    deleted: Vec<(Time, Vec<u8>, Entry)>,
    seen: BTreeSet<(PeerKey, u64)>,
    /// Machines to which the server announces itself.
    clients: BTreeSet<PeerKey>,
    outputs: VecDeque<Output>,
    counter: u64,
}

impl<const DEFECT: u8> Host for Toy<DEFECT> {
    fn start(config: NodeConfig, seed: u64, now: Now, restored: Restored) -> Self {
        let mut toy = Toy {
            server: None,
            is_server: config.found,
            life: seed,
            wall: now.wall.0,
            data: BTreeMap::new(),
            done: BTreeMap::new(),
            unsynced: VecDeque::new(),
            token: 0,
            waiting: BTreeMap::new(),
            lines: BTreeMap::new(),
            cache: BTreeMap::new(),
            parked: Vec::new(),
            deleted: Vec::new(),
            seen: BTreeSet::new(),
            clients: BTreeSet::new(),
            outputs: VecDeque::new(),
            counter: 0,
        };
        for (key, value) in restored.meta {
            match key[0] {
                b'd' => drop(toy.data.insert(key[1..].to_vec(), serde_json::from_slice(&value).expect("ours"))),
                _ => drop(toy.done.insert(key[1..].to_vec(), serde_json::from_slice(&value).expect("ours"))),
            }
        }
        if toy.is_server {
            toy.outputs.push_back(Output::Event(Event::Ready));
        }
        toy.arm(now.time);
        toy
    }

    fn handle(&mut self, now: Now, input: Input) {
        self.wall = now.wall.0;
        let now = now.time;
        match input {
            Input::PeerUp(peer) if self.is_server => drop(self.clients.insert(peer)),
            Input::Routecast(request) => self.on_request(now, request),
            Input::Frame { from, frame } => self.on_frame(now, from, &frame),
            Input::Persisted(token) => {
                while self.unsynced.front().is_some_and(|(at, ..)| *at <= token) {
                    let (_, asked, result) = self.unsynced.pop_front().expect("looked at");
                    self.tell(now, asked, result);
                }
            }
            Input::StoreFailed(why) => self.outputs.push_back(Output::Event(Event::Fatal(why))),
            Input::Stop => self.outputs.push_back(Output::Event(Event::Stopped)),
            Input::Tick => self.on_tick(now),
            _ => {}
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn is_whole(&self) -> bool {
        false
    }
}

impl<const DEFECT: u8> Toy<DEFECT> {
    fn arm(&mut self, now: Time) {
        self.outputs.push_back(Output::WakeAt(now + Duration::from_millis(100)));
    }

    fn on_request(&mut self, now: Time, request: Request) {
        let Request { id, connection, key, op, patience, once, mode } = request;
        self.counter += 1;
        let number = self.life ^ self.counter << 40;
        let until = now + patience;
        let read = matches!(op, Op::Read(_));
        let line = (connection.0, key.name().to_vec());
        self.waiting.insert(number, Waiting { id, until, read, asked: false, line: line.clone() });
        if (DEFECT == STALE_READS || mode == ReadMode::Relaxed)
            && op == Op::Read(Read::Value)
            && let Some(answer) = self.cache.get(key.name())
        {
            let answer = answer.clone();
            return self.reply(now, number, Ok(answer));
        }
        let waiting = self.lines.entry(line.clone()).or_default();
        let asked = (number, once.map(|once| once.to_vec()), op);
        if DEFECT == REORDERS {
            waiting.clear();
        }
        waiting.push_back(asked);
        if waiting.len() == 1 {
            self.ask_first(now, &line);
        }
    }

    fn ask_first(&mut self, now: Time, line: &(u64, Vec<u8>)) {
        let Some((id, once, op)) = self.lines.get(line).and_then(VecDeque::front).cloned() else { return };
        let key = line.1.clone();
        let waiting = self.waiting.get_mut(&id).expect("those in line wait");
        waiting.asked = true;
        let until = waiting.until;
        if self.is_server {
            self.execute(now, Asked { from: None, id, once, key, op, until });
        } else if let Some(server) = self.server {
            let left_ms = until.since(now).as_millis() as u64;
            self.send(server, &Frame::Ask { id, once, key, op, left_ms });
        } else {
            self.reply(now, id, Err(OpError::TryAgain(Refusal::NotInGroup)));
        }
    }

    fn on_frame(&mut self, now: Time, from: PeerKey, frame: &[u8]) {
        match serde_json::from_slice(frame).expect("ours") {
            Frame::Ask { id, once, key, op, left_ms } => {
                if !self.is_server || (!self.seen.insert((from, id)) && DEFECT != DOUBLE_APPLY) {
                    return;
                }
                let until = now + Duration::from_millis(left_ms);
                self.execute(now, Asked { from: Some(from), id, once, key, op, until });
            }
            Frame::Told { id, result } => self.reply(now, id, result),
            Frame::Here if self.server.is_some() => {}
            Frame::Here => {
                self.server = Some(from);
                self.outputs.push_back(Output::Event(Event::Ready));
            }
        }
    }

    fn on_tick(&mut self, now: Time) {
        let over: Vec<u64> =
            self.waiting.iter().filter(|(_, waiting)| waiting.until <= now).map(|(id, _)| *id).collect();
        for id in over {
            let Some(waiting) = self.waiting.get(&id) else { continue };
            if DEFECT == SILENCE && self.counter.is_multiple_of(3) {
                continue;
            }
            let certain = waiting.read || !waiting.asked;
            let error = if certain { OpError::TryAgain(Refusal::NoPrimary) } else { OpError::Uncertain };
            self.reply(now, id, Err(error));
        }
        let (due, later) = std::mem::take(&mut self.parked).into_iter().partition(|(at, _)| *at <= now);
        self.parked = later;
        for (_, asked) in due {
            self.evaluate(now, asked);
        }
        let (due, later) = std::mem::take(&mut self.deleted).into_iter().partition(|(at, ..)| *at <= now);
        self.deleted = later;
        for (_, key, entry) in due {
            self.data.insert(key, entry);
        }
        for client in self.clients.clone() {
            self.send(client, &Frame::Here);
        }
        self.arm(now);
    }

    fn execute(&mut self, now: Time, asked: Asked) {
        self.counter += 1;
        let chance = self.counter % 97;
        if DEFECT == LATE_EFFECTS && chance == 0 && matches!(asked.op, Op::Set { .. }) {
            self.parked.push((now + Duration::from_secs(8), asked));
            return;
        }
        if DEFECT == REORDERS && chance < 10 && matches!(asked.op, Op::Append { .. } | Op::Set { .. }) {
            self.parked.push((now + Duration::from_millis(50), asked));
            return;
        }
        assert!(DEFECT != PANICS || self.counter < 500, "the toy is broken");
        self.evaluate(now, asked);
    }

    fn evaluate(&mut self, now: Time, asked: Asked) {
        if asked.until < now && DEFECT != LATE_EFFECTS {
            return;
        }
        if let Some(answer) = asked.once.as_ref().and_then(|once| self.done.get(once)) {
            let result = Ok(answer.clone());
            return self.unsynced_or_tell(now, asked, result, Vec::new());
        }
        let time = self.wall;
        let mut entry = self.data.get(&asked.key).cloned().unwrap_or_default();
        let before = entry.clone();
        if entry.deadline.is_some_and(|deadline| deadline <= time) {
            entry = Entry { version: next(entry.version), ..Entry::default() };
        }
        let answer = evaluate(&mut entry, &asked.op, time);
        if DEFECT == REUSED_VERSIONS && entry.version.timestamp % 7 == 6 {
            entry.version.timestamp -= 1;
        }
        if DEFECT == DELETES_UNDONE && before.value.is_some() && entry.value.is_none() {
            self.deleted.push((now + Duration::from_millis(300), asked.key.clone(), before));
        }
        let mut changes = vec![node::Change::PutMeta(prefixed(b'd', &asked.key), json(&entry))];
        if let Some(once) = &asked.once {
            self.done.insert(once.clone(), answer.clone());
            changes.push(node::Change::PutMeta(prefixed(b'o', once), json(&answer)));
        }
        self.data.insert(asked.key.clone(), entry);
        let refused = DEFECT == DIRTY_READS && self.counter.is_multiple_of(89) && !matches!(asked.op, Op::Read(_));
        let result = if refused { Err(OpError::TryAgain(Refusal::Busy)) } else { Ok(answer) };
        self.unsynced_or_tell(now, asked, result, changes);
    }

    fn unsynced_or_tell(
        &mut self,
        now: Time,
        asked: Asked,
        result: Result<Answer, OpError>,
        changes: Vec<node::Change>,
    ) {
        self.token += 1;
        let token = self.token;
        self.outputs.push_back(Output::Persist { token, changes });
        if DEFECT == LOST_WRITES {
            self.tell(now, asked, result);
        } else {
            self.unsynced.push_back((token, asked, result));
        }
    }

    fn tell(&mut self, now: Time, asked: Asked, result: Result<Answer, OpError>) {
        match asked.from {
            Some(peer) => self.send(peer, &Frame::Told { id: asked.id, result }),
            None => self.reply(now, asked.id, result),
        }
    }

    fn reply(&mut self, now: Time, number: u64, result: Result<Answer, OpError>) {
        let Some(Waiting { id, line, read, .. }) = self.waiting.remove(&number) else { return };
        if read && let Ok(answer @ Answer::Value(_)) = &result {
            self.cache.insert(line.1.clone(), answer.clone());
        }
        if DEFECT == TWO_ANSWERS && self.counter.is_multiple_of(31) {
            self.outputs.push_back(Output::Reply { id, result: result.clone() });
        }
        self.outputs.push_back(Output::Reply { id, result });
        if let Some(waiting) = self.lines.get_mut(&line) {
            let was_first = waiting.front().is_some_and(|(first, ..)| *first == number);
            waiting.retain(|(other, ..)| *other != number);
            if waiting.is_empty() {
                self.lines.remove(&line);
            } else if was_first {
                self.ask_first(now, &line);
            }
        }
    }

    fn send(&mut self, to: PeerKey, frame: &Frame) {
        self.outputs.push_back(Output::Send { to, class: Class::Data, frame: json(frame) });
    }
}

fn json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("plain data").into()
}

fn prefixed(first: u8, rest: &[u8]) -> Bytes {
    [&[first], rest].concat().into()
}

fn next(version: Version) -> Version {
    Version { timestamp: version.timestamp + 1, ..version }
}

fn evaluate(entry: &mut Entry, op: &Op, time: u64) -> Answer {
    let Entry { version, deadline, kind, .. } = *entry;
    let live = entry.value.clone().map(|value| Live { value, kind, version, deadline: deadline.map(WallMillis) });
    let (change, answer) = deliver(op, live.as_ref(), &Delivery { now: WallMillis(time), value_bytes_max: usize::MAX });
    match change {
        Change::None => {}
        Change::Put(value, deadline) => {
            let deadline = deadline.map(|deadline| deadline.0);
            *entry =
                Entry { value: Some(value), kind: op.kind().unwrap_or_default(), version: next(version), deadline };
        }
        Change::Delete => *entry = Entry { version: next(version), ..Entry::default() },
    }
    answer
}
