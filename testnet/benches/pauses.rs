//! Effect on clients while groups of real daemons on loopback split, move their boundaries and merge. Measures the durations of
//! operations that were due from the request of the transaction until some time after its end, and counts refusals. Beside it
//! stands the same measurement without any transaction.
//!
//! Clients ask at a rate, and count from the time at which they should have asked.
//!
//! ```text
//! cargo bench -p testnet --bench pauses [-- [--keys N] [--rounds N]]
//! ```

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use testnet::live::{Cluster, ClusterOptions, Connection, Reply, Spread, fill};
use testnet::rng::Rng;

const DAEMONS: usize = 6;
/// Interval of the questions of each client; every daemon has one client.
const ASK_EVERY: Duration = Duration::from_millis(40);
/// Time after a transaction in which operations that are due still count for it.
const AFTER: Duration = Duration::from_secs(2);
/// Longest wait for groups at rest; no transaction begins before.
const SETTLED_MAX: Duration = Duration::from_secs(120);
const PATIENCE: Duration = Duration::from_secs(30);

/// One operation: the time at which it was due, its duration from then on, and the answer if it was not the expected one.
struct Asked {
    due: Instant,
    took: Duration,
    error: Option<String>,
}

fn main() {
    let (keys, rounds) = arguments();
    let flags = ["--min-group", "3", "--max-group", "12"].map(str::to_owned).to_vec();
    let cluster = Cluster::start("pauses", &ClusterOptions { daemons: DAEMONS, flags, ..ClusterOptions::default() });
    let at: Vec<SocketAddr> = cluster.daemons.iter().map(|daemon| daemon.resp).collect();
    let filled = fill(&at, keys);
    println!("{filled} keys, {DAEMONS} daemons, {DAEMONS} clients that ask every {ASK_EVERY:.0?}, half of it writes");
    settle(&cluster, 1);
    let (stop, asked) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let mut spans: Vec<(&str, Instant, Instant)> = Vec::new();
    thread::scope(|scope| {
        for (number, at) in at.iter().enumerate() {
            let (stop, asked) = (&stop, &asked);
            scope.spawn(move || {
                let mine = ask(number, *at, keys, stop);
                asked.lock().expect("nobody panicked").extend(mine);
            });
        }
        let _ends = Stop(&stop);
        thread::sleep(AFTER);
        for _ in 0..rounds {
            let began = Instant::now();
            thread::sleep(AFTER);
            spans.push(("nothing", began, Instant::now()));
            for (operation, groups) in [("split", 2), ("repartition", 2), ("merge", 1)] {
                let began = Instant::now();
                transact(&cluster, operation);
                println!("{operation} was done after {:.0} ms", began.elapsed().as_secs_f64() * 1e3);
                thread::sleep(AFTER);
                spans.push((operation, began, Instant::now()));
                let calm = Instant::now();
                settle(&cluster, groups);
                println!("  {:.1} s later all have what they should", calm.elapsed().as_secs_f64());
            }
        }
    });
    let asked = asked.into_inner().expect("nobody panicked");
    println!();
    for operation in ["nothing", "split", "repartition", "merge"] {
        report(operation, &spans, &asked);
    }
}

/// Clients end when this value is dropped, also after a failure.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn arguments() -> (u64, u32) {
    let words: Vec<String> = std::env::args().collect();
    let value = |name: &str, otherwise: u64| {
        let at = words.iter().position(|word| word == name);
        at.map_or(otherwise, |at| words[at + 1].parse().expect("a number"))
    };
    (value("--keys", 100_000), value("--rounds", 3) as u32)
}

/// Runs one client until it is stopped.
fn ask(number: usize, at: SocketAddr, keys: u64, stop: &AtomicBool) -> Vec<Asked> {
    let mut rng = Rng::new(number as u64, "pauses");
    let mut connection = Connection::open(at, PATIENCE).expect("it serves");
    let (mut due, mut asked) = (Instant::now(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let key = format!("key:{:012}", rng.below(keys));
        let words = if rng.below(2) == 0 { vec!["GET", &key] } else { vec!["SET", &key, "another"] };
        let error = match connection.call(&words) {
            Ok(Reply::Error(text)) => Some(text),
            Ok(_) => None,
            Err(error) => {
                connection = Connection::open(at, PATIENCE).expect("it serves");
                Some(error.to_string())
            }
        };
        asked.push(Asked { due, took: due.elapsed(), error });
        due += ASK_EVERY;
    }
    asked
}

/// Returns the groups, as one daemon knows the ring.
fn groups(cluster: &Cluster) -> Vec<Value> {
    let ring = cluster.daemons[0].ask_http("/v1/ring");
    let whole = ring.filter(|ring| ring["whole"] == true);
    whole.and_then(|mut ring| serde_json::from_value(ring["groups"].take()).ok()).unwrap_or_default()
}

/// Asks for a transaction until it is done.
fn transact(cluster: &Cluster, operation: &str) {
    let until = Instant::now() + SETTLED_MAX;
    loop {
        let said = cluster.daemons[0].ask_http("/v1/groups").unwrap_or_default();
        let first = &said["groups"][0];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let id = text(&first["id"]);
        let point = |name: &str| u128::from_str_radix(&text(&first["range"][name]), 16).unwrap_or_default();
        let length = point("end").wrapping_sub(point("start"));
        let at = format!("{:032x}", point("end").wrapping_sub(length / 4));
        let mut words = vec!["group", operation, &id];
        if operation == "repartition" {
            words.extend(["--at", &at]);
        }
        let output = cluster.daemons[0].run(&words);
        if output.status.success() {
            return;
        }
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(Instant::now() < until, "{operation}: {said}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// Waits until there are so many groups, at rest, each of whose members takes part in no other group.
fn settle(cluster: &Cluster, count: usize) {
    let until = Instant::now() + SETTLED_MAX;
    let is_calm = |daemon: &testnet::live::Daemon| {
        let said = daemon.ask_http("/v1/groups");
        let groups = said.and_then(|mut said| serde_json::from_value::<Vec<Value>>(said["groups"].take()).ok());
        groups.is_some_and(|groups| {
            groups.len() == 1
                && groups[0]["established"] == true
                && groups[0]["transactions"].as_array().is_some_and(Vec::is_empty)
        })
    };
    while groups(cluster).len() != count || !cluster.daemons.iter().all(is_calm) {
        assert!(Instant::now() < until, "{count} groups do not come to rest: {:?}", groups(cluster));
        thread::sleep(Duration::from_millis(100));
    }
}

fn report(operation: &str, spans: &[(&str, Instant, Instant)], asked: &[Asked]) {
    let mut took = Vec::new();
    let (mut errors, mut longest) = (std::collections::BTreeMap::new(), Vec::new());
    for (_, from, until) in spans.iter().filter(|(name, ..)| *name == operation) {
        let within: Vec<&Asked> = asked.iter().filter(|asked| (*from..*until).contains(&asked.due)).collect();
        took.extend(within.iter().map(|asked| asked.took));
        longest.extend(within.iter().map(|asked| asked.took).max());
        for text in within.iter().filter_map(|asked| asked.error.clone()) {
            *errors.entry(text).or_insert(0_u32) += 1;
        }
    }
    longest.sort_unstable();
    let median = longest.get(longest.len() / 2).copied().unwrap_or_default();
    let ms = median.as_secs_f64() * 1e3;
    println!("{operation:<12} {} operations: {}; the longest of each, median {ms:.0} ms", took.len(), Spread::of(took));
    errors.iter().for_each(|(text, count)| println!("  {count} times: {text}"));
}
