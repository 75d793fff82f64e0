//! Clients that put load on real daemons and record requests and answers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use group::op::{Condition, Expiry, LeaseOp, Op, Read, ReadMode};
use overlay::Key;
use overlay::time::Time;

use super::namespace::Endpoint;
use super::resp::{Connection, Reply};
use super::translate;
use crate::checkers::{Circumstances, check_history};
use crate::history::{History, Operation, Outcome};
use crate::rng::Rng;

/// Time for which a client waits for an answer: all answers are promised within 3 s.
const PATIENCE: Duration = Duration::from_secs(5);

/// Keys that clients use.
#[derive(Clone, Debug)]
pub struct Keys {
    /// Prefix of the keys' names.
    pub prefix: String,
    /// Number of keys of each kind: registers, lists, counters, leases.
    pub count: u64,
    /// Number of operations, at most 60, after which a new key takes the place of a key.
    pub uses: u64,
}

impl Default for Keys {
    fn default() -> Keys {
        Keys { prefix: String::new(), count: 4, uses: 60 }
    }
}

/// Behaviour of clients.
#[derive(Clone, Debug)]
pub struct Habits {
    /// Number of clients.
    pub clients: u64,
    /// Seed of all chance.
    pub seed: u64,
    /// Keys that they use.
    pub keys: Keys,
    /// Wait between an answer and the next request.
    pub pause: Duration,
    /// Whether each client keeps to one daemon, whatever the daemon answers; otherwise to one until that fails it.
    pub faithful: bool,
}

impl Default for Habits {
    fn default() -> Habits {
        Habits { clients: 8, seed: 0, keys: Keys::default(), pause: Duration::ZERO, faithful: false }
    }
}

/// Number of the client that reads all keys at the end.
const LAST_READER: u64 = u64::MAX;
/// First number of clients that [`LiveLoad`] does not know.
const NEWCOMERS: u64 = 1 << 20;
/// Number of last reads that are on their way at once over one connection.
const LAST_READS: usize = 64;
/// Time within which a key must be readable again.
const LAST_READ_MAX: Duration = Duration::from_secs(60);

/// History of all clients, shared between them.
#[derive(Debug)]
pub struct Recorder {
    history: Mutex<History>,
    start: Instant,
    uses: AtomicU64,
    newcomers: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

impl Default for Recorder {
    fn default() -> Recorder {
        let (history, uses, wrong) = Default::default();
        Recorder { history, start: Instant::now(), uses, newcomers: AtomicU64::new(NEWCOMERS), wrong }
    }
}

impl Recorder {
    /// Returns the number of a client that no other client has.
    pub fn newcomer(&self) -> u64 {
        self.newcomers.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the time that is recorded for an event now.
    pub fn now(&self) -> Time {
        Time(self.start.elapsed().as_nanos() as u64)
    }

    fn history(&self) -> std::sync::MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends an operation over a connection and records its outcome. `None`: the connection is of no use any more.
    pub fn ask(&self, connection: &mut Connection, who: (u64, u64), via: usize, key: &Key, op: &Op) -> Option<Outcome> {
        let words = translate::command(key.name(), op, false, None)?;
        let index = self.invoke(who, via, key, op);
        let reply = connection.call(&words);
        let broken = reply.is_err();
        let outcome = self.complete(index, op, reply);
        (!broken).then_some(outcome)
    }

    fn invoke(&self, who: (u64, u64), via: usize, key: &Key, op: &Op) -> usize {
        let mut history = self.history();
        let invoked = history.moment(self.now());
        history.invoke(Operation {
            client: who.0,
            connection: who.1,
            via,
            key: key.clone(),
            op: op.clone(),
            mode: ReadMode::Linearizable,
            once: None,
            invoked,
            completed: None,
            outcome: Outcome::Uncertain,
        })
    }

    fn complete(&self, index: usize, op: &Op, reply: std::io::Result<Reply>) -> Outcome {
        let outcome = match reply {
            // A connection that breaks in place of an answer leaves the outcome open.
            Err(_) => Outcome::Uncertain,
            Ok(reply) => translate::outcome(op, reply).unwrap_or_else(|wrong| {
                self.wrong.lock().unwrap_or_else(PoisonError::into_inner).push(wrong);
                Outcome::Uncertain
            }),
        };
        self.history().complete(index, self.now(), outcome.clone());
        outcome
    }

    /// Returns the keys that were asked for.
    pub(crate) fn keys(&self) -> Vec<Key> {
        self.history().by_key().into_keys().cloned().collect()
    }

    /// Takes the history so far.
    pub(crate) fn taken(&self) -> History {
        std::mem::take(&mut self.history())
    }

    /// Returns the number of operations for which `is` is true.
    pub fn count(&self, is: impl Fn(&Operation) -> bool) -> usize {
        self.history().operations.iter().filter(|operation| is(operation)).count()
    }

    /// Returns the number of operations that were answered.
    pub fn answered(&self) -> usize {
        self.history().answered()
    }

    /// Returns the longest time within these in which some client had no answer to any request.
    pub fn longest_wait(&self, from: Time, until: Time) -> Duration {
        let mut last = BTreeMap::new();
        let mut longest = Duration::ZERO;
        let history = self.history();
        let mut answers: Vec<(Time, u64)> = history
            .operations
            .iter()
            .filter(|operation| operation.client < NEWCOMERS && operation.outcome.answer().is_some())
            .filter_map(|operation| Some((operation.completed?.time, operation.client)))
            .filter(|(at, _)| *at <= until)
            .collect();
        answers.sort_unstable();
        for (at, client) in answers {
            let before = last.insert(client, at).unwrap_or(Time(0)).max(from);
            if at > from {
                longest = longest.max(at.since(before));
            }
        }
        last.values().map(|at| until.since((*at).max(from))).fold(longest, Duration::max)
    }

    /// Reads every key once more through the daemons in turn, then judges the whole history. A bad history is kept in a file; its
    /// name is part of the panic.
    pub fn judge(&self, daemons: &[Endpoint]) {
        let keys = self.keys();
        for (index, key) in keys.iter().enumerate() {
            self.read_until_answered(daemons, index, key);
        }
        self.judge_what_was_seen();
    }

    /// Judges as [`Recorder::judge`] does, but reads every key through every daemon.
    pub fn judge_everywhere(&self, daemons: &[Endpoint]) {
        let keys = self.keys();
        std::thread::scope(|scope| {
            for (via, daemon) in daemons.iter().enumerate() {
                let keys = &keys;
                scope.spawn(move || self.read_all(daemon, via, keys.iter().collect()));
            }
        });
        self.judge_what_was_seen();
    }

    /// Reads each of these keys through one daemon, many at once, and again until the daemon answers.
    fn read_all(&self, daemon: &Endpoint, via: usize, mut keys: Vec<&Key>) {
        let op = Op::Read(Read::Value);
        let mut connections = (via as u64) << 32;
        let (mut until, mut left) = (Instant::now() + LAST_READ_MAX, keys.len());
        while !keys.is_empty() {
            if keys.len() < left {
                (until, left) = (Instant::now() + LAST_READ_MAX, keys.len());
            }
            assert!(Instant::now() < until, "{:?} and {left} keys in all cannot be read via {via} any more", keys[0]);
            connections += 1;
            let Ok(mut connection) = daemon.connect(PATIENCE) else {
                std::thread::sleep(Duration::from_millis(50));
                continue;
            };
            let batch: Vec<&Key> = keys.iter().rev().take(LAST_READS).copied().collect();
            let who = (LAST_READER, u64::MAX - connections);
            let asked: Vec<usize> = batch.iter().map(|key| self.invoke(who, via, key, &op)).collect();
            let sent = batch.iter().try_for_each(|key| {
                connection.send(&translate::command(key.name(), &op, false, None).expect("RESP has reads"))
            });
            let mut unanswered = Vec::new();
            let mut sound = sent.is_ok();
            for (key, index) in batch.iter().zip(asked) {
                let reply = if sound { connection.receive() } else { Err(std::io::ErrorKind::BrokenPipe.into()) };
                sound &= reply.is_ok();
                if !matches!(self.complete(index, &op, reply), Outcome::Answered(_)) {
                    unanswered.push(*key);
                }
            }
            keys.truncate(keys.len() - batch.len());
            keys.extend(unanswered);
        }
    }

    fn judge_what_was_seen(&self) {
        let wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(wrong.is_empty(), "answers that the contract does not know: {wrong:?}");
        let history = self.history();
        if let Err((property, detail)) = check_history(&history, &Circumstances::of_daemons()) {
            let file = std::env::temp_dir().join(format!("scatter-history-{}.jsonl", std::process::id()));
            let kept =
                crate::file::write(&file, &history).map_or_else(|e| e.to_string(), |()| file.display().to_string());
            panic!("{property} does not hold: {detail}\nthe history: {kept}");
        }
    }

    fn read_until_answered(&self, daemons: &[Endpoint], first: usize, key: &Key) {
        let until = Instant::now() + LAST_READ_MAX;
        for attempt in first.. {
            let via = attempt % daemons.len();
            if let Ok(mut connection) = daemons[via].connect(PATIENCE) {
                let who = (LAST_READER, u64::MAX - attempt as u64);
                let outcome = self.ask(&mut connection, who, via, key, &Op::Read(Read::Value));
                if matches!(outcome, Some(Outcome::Answered(_))) {
                    return;
                }
            }
            assert!(Instant::now() < until, "{key:?} cannot be read any more");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Clients at work. They stop when this is dropped.
#[derive(Debug)]
pub struct LiveLoad {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl LiveLoad {
    /// Starts `clients` clients on the daemons; each stays with one daemon until that fails it.
    pub fn start(recorder: &Arc<Recorder>, daemons: &[Endpoint], clients: u64, seed: u64, keys: &Keys) -> LiveLoad {
        let keys = keys.clone();
        LiveLoad::start_as(recorder, daemons, &Habits { clients, seed, keys, ..Habits::default() })
    }

    /// Starts clients with these habits on the daemons.
    pub fn start_as(recorder: &Arc<Recorder>, daemons: &[Endpoint], habits: &Habits) -> LiveLoad {
        assert!(habits.keys.uses <= 60, "each addition to a counter has a bit of its own");
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..habits.clients)
            .map(|number| {
                let (recorder, stop) = (Arc::clone(recorder), Arc::clone(&stop));
                let (daemons, habits) = (daemons.to_vec(), habits.clone());
                std::thread::spawn(move || {
                    let rng = Rng::new(habits.seed ^ number << 32, "live client");
                    LiveClient { number, rng, recorder, habits, stop }.work(&daemons);
                })
            })
            .collect();
        LiveLoad { stop, threads }
    }

    /// Waits until all clients have stopped.
    pub fn stop(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("clients do not panic");
        }
    }
}

impl Drop for LiveLoad {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// One client.
struct LiveClient {
    number: u64,
    rng: Rng,
    recorder: Arc<Recorder>,
    habits: Habits,
    stop: Arc<AtomicBool>,
}

impl LiveClient {
    fn work(&mut self, daemons: &[Endpoint]) {
        let mut connections = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let via = match self.habits.faithful {
                true => self.number as usize % daemons.len(),
                false => self.rng.below(daemons.len() as u64) as usize,
            };
            connections += 1;
            match daemons[via].connect(PATIENCE) {
                Ok(connection) => self.use_up(connection, connections, via),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Works over one connection, until the connection breaks or serves no more.
    fn use_up(&mut self, mut connection: Connection, connections: u64, via: usize) {
        let who = (self.number, self.number << 32 | connections);
        let Keys { prefix, count, uses } = self.habits.keys.clone();
        let mut refused = 0;
        while !self.stop.load(Ordering::Relaxed) && refused < 5 {
            let unique = self.recorder.uses.fetch_add(1, Ordering::Relaxed);
            let (kind, index) = (unique % 4, unique / 4 % count);
            let (life, use_of_it) = (unique / (4 * count) / uses, unique / (4 * count) % uses);
            let name = format!("{prefix}{}{index}.{life}", ["r", "l", "c", "e"][kind as usize]);
            let key = Key::new(name.as_bytes()).expect("short");
            let op = draw(&mut self.rng, kind, who.0, unique, use_of_it);
            match self.recorder.ask(&mut connection, who, via, &key, &op) {
                None => return,
                Some(Outcome::Answered(_)) => refused = 0,
                Some(_) => {
                    refused += 1;
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            if !self.habits.pause.is_zero() {
                std::thread::sleep(self.habits.pause);
            }
        }
    }
}

fn draw(rng: &mut Rng, kind: u64, client: u64, unique: u64, use_of_it: u64) -> Op {
    let text = |text: String| Bytes::from(text);
    let set = |condition| Op::Set {
        value: Bytes::from(format!("{client}-{unique}")),
        condition,
        expiry: Expiry::Clear,
        get: false,
    };
    if kind == 3 {
        return draw_lease(rng, client);
    }
    if rng.per_mille(400) {
        return Op::Read(if kind == 0 && rng.per_mille(300) { Read::Versioned } else { Read::Value });
    }
    match kind {
        0 => match rng.below(6) {
            0 => set(Condition::Absent),
            1 => set(Condition::Present),
            2 => Op::Delete { condition: Condition::Always, get: rng.per_mille(500) },
            _ => set(Condition::Always),
        },
        1 => Op::Append { value: text(format!("{client}-{unique};")), max: None },
        _ => Op::Add(1 << use_of_it.min(61)),
    }
}

/// Draws an operation on a lease. Leases are short: some end by themselves between two requests.
fn draw_lease(rng: &mut Rng, client: u64) -> Op {
    let holder = Bytes::from(client.to_string());
    match rng.below(6) {
        0 => Op::Lease(LeaseOp::Release { holder }),
        1 => Op::Read(Read::Exists),
        2 => Op::Delete { condition: Condition::Always, get: false },
        _ => Op::Lease(LeaseOp::Acquire { holder, term: Duration::from_millis(rng.between(20, 2_000)) }),
    }
}
