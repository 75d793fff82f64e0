//! Clients that write and read while peers come and go.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::population::Population;
use super::register::{Register, Written};
use super::{ChurnParameters, report};
use crate::live::{Connection, Reply};
use crate::rng::Rng;

/// A daemon answers within 3 s, with an error at the latest.
const PATIENCE: Duration = Duration::from_secs(4);
/// Threads; each has its share of the keys.
const THREADS: usize = 8;
/// Attempts to read a key at the end, each by another peer.
const LAST_READS: usize = 3;

/// Addresses of the peers that serve.
pub(super) type Addresses = Arc<RwLock<Vec<SocketAddr>>>;

/// Outcomes of the operations.
#[derive(Clone, Debug, Default)]
pub(super) struct ChurnCounts {
    pub(super) writes: u64,
    pub(super) reads: u64,
    pub(super) try_again: u64,
    pub(super) uncertain: u64,
    pub(super) unanswered: u64,
    pub(super) failed_reads: u64,
    pub(super) errors: u64,
    /// Reads that no order of the writes explains.
    pub(super) wrong: Vec<String>,
    /// Errors that no client should see.
    pub(super) strange: Vec<String>,
    /// Time of each answer.
    pub(super) latencies: Vec<Duration>,
}

impl ChurnCounts {
    /// Returns the number of failed operations.
    pub(super) fn failed(&self) -> u64 {
        self.try_again + self.uncertain + self.unanswered + self.failed_reads + self.errors
    }

    /// Returns the number of operations.
    pub(super) fn all(&self) -> u64 {
        self.writes + self.reads + self.failed()
    }
}

/// The clients of a run.
pub(super) struct ChurnClients {
    threads: Vec<JoinHandle<Vec<(String, Register)>>>,
    counts: Arc<Mutex<ChurnCounts>>,
    stop: Arc<AtomicBool>,
}

impl ChurnClients {
    /// Starts the clients.
    pub(super) fn start(churn: &ChurnParameters, addresses: Addresses) -> ChurnClients {
        let (counts, stop) = (Arc::default(), Arc::default());
        let start = |index: usize| {
            let client = ChurnClient {
                registers: (index..churn.keys).step_by(THREADS).map(|key| (name(key), Register::default())).collect(),
                pause: Duration::from_secs_f64(THREADS as f64 / churn.rate),
                rng: Rng::new(churn.seed.wrapping_add(index as u64), "churn client"),
                addresses: Arc::clone(&addresses),
                counts: Arc::clone(&counts),
            };
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || client.run(&stop))
        };
        let threads = (0..THREADS.min(churn.keys)).map(start).collect();
        ChurnClients { threads, counts, stop }
    }

    /// Returns the outcomes of the operations so far.
    pub(super) fn counts(&self) -> ChurnCounts {
        lock(&self.counts).clone()
    }

    /// Returns a line of figures.
    pub(super) fn line(&self, population: &Population) -> String {
        let counts = self.counts();
        let recent = counts.latencies.len().saturating_sub(2_000);
        let [median, worst] = report::quantiles(&counts.latencies[recent..], [0.5, 0.99]);
        format!(
            "{} serve, {} deaths; {} writes, {} reads, {} failed ({:.2} %), {} wrong; median {:.1} ms, p99 {:.0} ms",
            population.serving(),
            population.deaths,
            counts.writes,
            counts.reads,
            counts.failed(),
            report::percent(counts.failed(), counts.all()),
            counts.wrong.len(),
            median.as_secs_f64() * 1e3,
            worst.as_secs_f64() * 1e3,
        )
    }

    /// Ends, and returns the outcomes of the operations, and the clients' knowledge of all keys.
    pub(super) fn finish(self) -> (ChurnCounts, Vec<(String, Register)>) {
        self.stop.store(true, Ordering::Relaxed);
        let registers = self.threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect();
        let counts = lock(&self.counts).clone();
        (counts, registers)
    }
}

fn name(key: usize) -> String {
    format!("churn:{key}")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn some_peer(addresses: &Addresses, rng: &mut Rng) -> Option<SocketAddr> {
    let addresses = addresses.read().unwrap_or_else(PoisonError::into_inner);
    (!addresses.is_empty()).then(|| *rng.pick(&addresses))
}

struct ChurnClient {
    registers: Vec<(String, Register)>,
    pause: Duration,
    rng: Rng,
    addresses: Addresses,
    counts: Arc<Mutex<ChurnCounts>>,
}

impl ChurnClient {
    fn run(mut self, stop: &AtomicBool) -> Vec<(String, Register)> {
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(self.pause.mul_f64(self.rng.between(50, 150) as f64 / 100.0));
            let Some(peer) = some_peer(&self.addresses, &mut self.rng) else { continue };
            let place = self.rng.below(self.registers.len() as u64) as usize;
            let begun = Instant::now();
            // The peer may have died since: then nothing was sent.
            let Ok(mut connection) = Connection::open(peer, PATIENCE) else { continue };
            let is_answered = match self.rng.per_mille(500) {
                true => self.write(place, &mut connection),
                false => self.read(place, &mut connection),
            };
            if is_answered {
                lock(&self.counts).latencies.push(begun.elapsed());
            }
        }
        self.registers
    }

    fn write(&mut self, place: usize, connection: &mut Connection) -> bool {
        let (key, register) = &mut self.registers[place];
        let value = register.begin();
        let reply = connection.call(&["SET", key, &value.to_string()]);
        let mut counts = lock(&self.counts);
        let (written, count) = match reply {
            Ok(Reply::Simple(_)) => (Written::Acknowledged, &mut counts.writes),
            Ok(Reply::Error(why)) if why.starts_with("TRYAGAIN") => (Written::Refused, &mut counts.try_again),
            Ok(Reply::Error(why)) if why.starts_with("UNCERTAIN") => (Written::Unknown, &mut counts.uncertain),
            Ok(other) => {
                counts.strange.push(format!("SET {key}: {other:?}"));
                (Written::Unknown, &mut counts.errors)
            }
            Err(_) => (Written::Unknown, &mut counts.unanswered),
        };
        *count += 1;
        register.end(value, written);
        written == Written::Acknowledged
    }

    fn read(&mut self, place: usize, connection: &mut Connection) -> bool {
        let (key, register) = &mut self.registers[place];
        let reply = read(connection, key);
        let mut counts = lock(&self.counts);
        let value = match reply {
            Ok(Some(value)) => value,
            Ok(None) => {
                counts.failed_reads += 1;
                return false;
            }
            Err(strange) => {
                counts.errors += 1;
                counts.strange.push(strange);
                return false;
            }
        };
        counts.reads += 1;
        if let Err(why) = register.read(value) {
            counts.wrong.push(format!("{key}: {why}"));
        }
        true
    }
}

/// Reads a key; `None` where the peer does not answer, or asks to try again.
fn read(connection: &mut Connection, key: &str) -> Result<Option<u64>, String> {
    match connection.call(&["GET", key]) {
        Ok(Reply::Bulk(None)) => Ok(Some(0)),
        Ok(Reply::Bulk(Some(bytes))) => match std::str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok()) {
            Some(value) => Ok(Some(value)),
            None => Err(format!("GET {key}: {bytes:?} was never written")),
        },
        Ok(Reply::Error(why)) if why.starts_with("TRYAGAIN") => Ok(None),
        Ok(other) => Err(format!("GET {key}: {other:?}")),
        Err(_) => Ok(None),
    }
}

/// Returns the keys that no peer answers for, and those whose value is wrong.
pub(super) fn lost(registers: &[(String, Register)], addresses: &Addresses) -> Vec<String> {
    let share = registers.len().div_ceil(2 * THREADS).max(1);
    std::thread::scope(|scope| {
        let shares = registers.chunks(share).enumerate();
        let threads: Vec<_> = shares
            .map(|(index, share)| scope.spawn(move || lost_of(share, addresses, Rng::new(index as u64, "last reads"))))
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    })
}

/// Returns the lost keys of one thread's share.
fn lost_of(share: &[(String, Register)], addresses: &Addresses, mut rng: Rng) -> Vec<String> {
    let mut lost = Vec::new();
    for (key, register) in share {
        let mut last_value = || {
            let mut connection = Connection::open(some_peer(addresses, &mut rng)?, PATIENCE).ok()?;
            read(&mut connection, key).ok().flatten()
        };
        match (0..LAST_READS).find_map(|_| last_value()) {
            None => lost.push(format!("{key}: no answer")),
            Some(value) => lost.extend(register.clone().read(value).err().map(|why| format!("{key}: {why}"))),
        }
    }
    lost
}
