//! Clients that set real daemons to work and record what they see.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use group::op::{Condition, Expiry, Op, Read, ReadMode};
use group::time::Time;
use overlay::Key;

use super::resp::Connection;
use super::translate;
use crate::checkers::{Circumstances, check_history};
use crate::history::{History, Operation, Outcome};
use crate::rng::Rng;

/// How long a client waits for an answer: all are promised within 3 s.
const PATIENCE: Duration = Duration::from_secs(5);

/// Which keys clients use.
#[derive(Clone, Debug)]
pub struct Keys {
    /// What their names begin with.
    pub prefix: String,
    /// So many of each kind: registers, lists, counters.
    pub count: u64,
    /// After so many operations a key is left alone and a new one takes its place.
    pub uses: u64,
}

impl Default for Keys {
    fn default() -> Keys {
        Keys { prefix: String::new(), count: 4, uses: 60 }
    }
}

/// What clients saw, shared between them.
#[derive(Debug)]
pub struct Recorder {
    history: Mutex<History>,
    start: Instant,
    uses: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

impl Default for Recorder {
    fn default() -> Recorder {
        let (history, wrong) = Default::default();
        Recorder { history, start: Instant::now(), uses: AtomicU64::new(0), wrong }
    }
}

impl Recorder {
    fn now(&self) -> Time {
        Time(self.start.elapsed().as_nanos() as u64)
    }

    fn history(&self) -> std::sync::MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks over a connection and records what came of it. `None`: the connection is of no use any more.
    pub fn ask(&self, connection: &mut Connection, who: (u64, u64), via: usize, key: &Key, op: &Op) -> Option<Outcome> {
        let words = translate::command(key.name(), op, false, None)?;
        let index = {
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
        };
        let reply = connection.call(&words);
        let broken = reply.is_err();
        let outcome = match reply {
            // A connection that breaks in place of an answer leaves the outcome open.
            Err(_) => Outcome::Uncertain,
            Ok(reply) => translate::outcome(op, reply).unwrap_or_else(|wrong| {
                self.wrong.lock().unwrap_or_else(PoisonError::into_inner).push(wrong);
                Outcome::Uncertain
            }),
        };
        self.history().complete(index, self.now(), outcome.clone());
        (!broken).then_some(outcome)
    }

    /// How many operations were answered.
    pub fn answered(&self) -> usize {
        self.history().operations.iter().filter(|operation| operation.outcome.answer().is_some()).count()
    }

    /// Reads every key once more through the daemons in turn, then judges all that clients saw. A bad history is kept in
    /// a file; its name is part of the panic.
    pub fn judge(&self, daemons: &[SocketAddr]) {
        let keys: Vec<Key> = self.history().by_key().into_keys().cloned().collect();
        for (index, key) in keys.iter().enumerate() {
            self.read_until_answered(daemons, index, key);
        }
        let wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(wrong.is_empty(), "answers that the contract does not know: {wrong:?}");
        let history = self.history();
        let circumstances = Circumstances { stalls: None, clock_slack: Some(Duration::from_secs(10)) };
        if let Err((property, detail)) = check_history(&history, &circumstances) {
            let file = std::env::temp_dir().join(format!("scatter-history-{}.jsonl", std::process::id()));
            let kept =
                crate::file::write(&file, &history).map_or_else(|e| e.to_string(), |()| file.display().to_string());
            panic!("{property} does not hold: {detail}\nthe history: {kept}");
        }
    }

    fn read_until_answered(&self, daemons: &[SocketAddr], first: usize, key: &Key) {
        let until = Instant::now() + Duration::from_secs(60);
        for attempt in first.. {
            let via = attempt % daemons.len();
            if let Ok(mut connection) = Connection::open(daemons[via], PATIENCE) {
                let who = (u64::MAX, u64::MAX - attempt as u64);
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
pub struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Sets so many clients on the daemons; each stays with one until that fails it.
    pub fn start(recorder: &Arc<Recorder>, daemons: &[SocketAddr], clients: u64, seed: u64, keys: &Keys) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..clients)
            .map(|client| {
                let (recorder, stop) = (Arc::clone(recorder), Arc::clone(&stop));
                let (daemons, keys) = (daemons.to_vec(), keys.clone());
                std::thread::spawn(move || {
                    let mut rng = Rng::new(seed ^ client << 32, "live client");
                    let mut connections = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let via = rng.below(daemons.len() as u64) as usize;
                        connections += 1;
                        match Connection::open(daemons[via], PATIENCE) {
                            Ok(connection) => {
                                let who = (client, client << 32 | connections);
                                work(&recorder, connection, who, via, &mut rng, &keys, &stop);
                            }
                            Err(_) => std::thread::sleep(Duration::from_millis(20)),
                        }
                    }
                })
            })
            .collect();
        Load { stop, threads }
    }

    /// Waits until all clients have stopped.
    pub fn stop(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("clients do not panic");
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// One client over one connection, until that breaks or serves no more.
fn work(
    recorder: &Recorder,
    mut connection: Connection,
    who: (u64, u64),
    via: usize,
    rng: &mut Rng,
    keys: &Keys,
    stop: &AtomicBool,
) {
    let mut refused = 0;
    while !stop.load(Ordering::Relaxed) && refused < 5 {
        let unique = recorder.uses.fetch_add(1, Ordering::Relaxed);
        let place = unique % (3 * keys.count);
        let (kind, index) = (place % 3, place / 3);
        let (life, use_of_it) = (unique / (3 * keys.count) / keys.uses, unique / (3 * keys.count) % keys.uses);
        let name = format!("{}{}{index}.{life}", keys.prefix, ["r", "l", "c"][kind as usize]);
        let key = Key::new(name.as_bytes()).expect("short");
        let op = draw(rng, kind, who.0, unique, use_of_it);
        match recorder.ask(&mut connection, who, via, &key, &op) {
            None => return,
            Some(Outcome::Answered(_)) => refused = 0,
            Some(_) => {
                refused += 1;
                std::thread::sleep(Duration::from_millis(20));
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
