//! A group of three real daemons on loopback. Measures the throughput and its cost, the time until a peer is back after
//! `kill -9`, the time without service when a primary dies, the time until a member that was away has caught up, and the effect on
//! clients when a member is replaced. For comparing builds on one machine.
//!
//! ```text
//! cargo bench -p testnet --bench one_group [-- [--keys N] [--kills N] [--only load|start|gap|away|replace] [--max-bandwidth B]]
//! ```

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use testnet::live::{Cluster, ClusterOptions, Connection, FILL_VALUE_BYTES, Spread, fill, is_ok};

/// Number of keys that the load is spread over.
const LOAD_KEYS: u64 = 100_000;
/// Clients, requests that each has under way, requests in all.
const LOADS: [(u32, u32, u64); 3] = [(1, 1, 5_000), (16, 1, 60_000), (16, 16, 400_000)];
/// Time in which all writes are brought into the tables behind the journals.
const REST: Duration = Duration::from_secs(45);
/// Writers on the range of a primary that is killed, the interval of each writer's writes, and the time of the measurement
/// after the kill.
const WRITERS: usize = 8;
const WRITE_EVERY: Duration = Duration::from_millis(4);
const WATCH: Duration = Duration::from_secs(8);
const PATIENCE: Duration = Duration::from_secs(30);
/// Number of clients that write while a member is replaced.
const CLIENTS: usize = 16;

struct Arguments {
    keys: u64,
    kills: usize,
    only: Option<String>,
    /// Bandwidth of each daemon, in bytes a second; a daemon copies with half of it.
    max_bandwidth: Option<u64>,
}

fn main() {
    let arguments = arguments();
    let run = |part: &str| arguments.only.as_deref().is_none_or(|only| only == part);
    let flags = arguments.max_bandwidth.map(|given| ["--max-bandwidth".into(), given.to_string()]);
    let flags = flags.into_iter().flatten().collect();
    let mut cluster = Cluster::start("bench", &ClusterOptions { daemons: 3, flags, ..ClusterOptions::default() });
    cluster.wait_serving(&[0, 1, 2], Duration::from_secs(60));
    if run("load") {
        load(&cluster);
    }
    if run("gap") {
        gaps(&mut cluster, arguments.kills);
    }
    if run("start") {
        starts(&mut cluster, arguments.keys);
    }
    if run("away") {
        away(&mut cluster, arguments.keys);
    }
    if run("replace") {
        replace(&mut cluster, arguments.keys);
    }
}

fn arguments() -> Arguments {
    let mut parsed = Arguments { keys: 1_000_000, kills: 10, only: None, max_bandwidth: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|text| text.parse().ok()).expect("a number behind it");
        match word.as_str() {
            "--keys" => parsed.keys = number(),
            "--kills" => parsed.kills = number() as usize,
            "--only" => parsed.only = words.next(),
            "--max-bandwidth" => parsed.max_bandwidth = Some(number()),
            // `cargo test --benches` only checks that the program starts.
            "--test" => parsed = Arguments { keys: 1_000, kills: 1, only: Some("start".into()), max_bandwidth: None },
            // `cargo bench` adds it.
            "--bench" => {}
            _ => panic!("what is {word}?"),
        }
    }
    parsed
}

/// Measures writes and confirmed reads with `redis-benchmark`, all through one peer, which is primary of a third of the keys.
fn load(cluster: &Cluster) {
    if Command::new("redis-benchmark").arg("--version").output().is_err() {
        println!("load: SKIPPED, there is no redis-benchmark on this machine");
        return;
    }
    fill(&endpoints(cluster), LOAD_KEYS);
    println!("load: {FILL_VALUE_BYTES}-byte values, {LOAD_KEYS} keys, three daemons, through one of them");
    println!("{:>6} {:>10} {:>10} {:>10} {:>10} {:>10}", "", "in flight", "ops/s", "p50 ms", "p99 ms", "CPU us/op");
    for test in ["set", "get"] {
        for (clients, pipeline, requests) in LOADS {
            let before = cpu_time(cluster);
            let figures = redis_benchmark(cluster.daemons[0].resp, test, clients, pipeline, requests);
            let cpu_us = (cpu_time(cluster) - before).as_secs_f64() * 1e6 / requests as f64;
            let in_flight = clients * pipeline;
            println!(
                "{test:>6} {in_flight:>10} {:>10.0} {:>10.2} {:>10.2} {cpu_us:>10.1}",
                figures.operations, figures.p50_ms, figures.p99_ms
            );
        }
    }
}

struct Figures {
    operations: f64,
    p50_ms: f64,
    p99_ms: f64,
}

fn redis_benchmark(at: SocketAddr, test: &str, clients: u32, pipeline: u32, requests: u64) -> Figures {
    let numbers = [clients.to_string(), pipeline.to_string(), requests.to_string()];
    let output = Command::new("redis-benchmark")
        .args(["-h", "127.0.0.1", "-p", &at.port().to_string(), "-t", test, "--csv"])
        .args(["-c", &numbers[0], "-P", &numbers[1], "-n", &numbers[2]])
        .args(["-d", &FILL_VALUE_BYTES.to_string(), "-r", &LOAD_KEYS.to_string()])
        .output()
        .expect("redis-benchmark runs");
    let text = String::from_utf8_lossy(&output.stdout);
    // "test","rps","avg_latency_ms","min","p50","p95","p99","max", under a header line with these names.
    let line = text.lines().last().unwrap_or_default();
    let fields: Vec<f64> = line.split(',').skip(1).filter_map(|field| field.trim_matches('"').parse().ok()).collect();
    match fields[..] {
        [operations, _, _, p50_ms, _, p99_ms, _] => Figures { operations, p50_ms, p99_ms },
        _ => panic!("redis-benchmark says {text:?} and {:?}", String::from_utf8_lossy(&output.stderr)),
    }
}

fn cpu_time(cluster: &Cluster) -> Duration {
    cluster.daemons.iter().map(|daemon| daemon.cpu_time()).sum()
}

fn endpoints(cluster: &Cluster) -> Vec<SocketAddr> {
    cluster.daemons.iter().map(|daemon| daemon.resp).collect()
}

/// Measures the time from the start of a daemon that was killed to its `ready`.
fn starts(cluster: &mut Cluster, keys: u64) {
    let since = Instant::now();
    let keys = fill(&endpoints(cluster), keys);
    let seconds = since.elapsed().as_secs_f64();
    println!("start: {keys} keys with {FILL_VALUE_BYTES}-byte values, stored in {seconds:.1} s");
    for index in 0..cluster.daemons.len() {
        cluster.kill(index);
        let since = Instant::now();
        cluster.restart(index);
        cluster.wait_ready(index);
        let ready = since.elapsed();
        cluster.wait_serving(&[index], PATIENCE);
        let memory = cluster.daemons[index].memory_bytes() >> 20;
        println!(
            "start: after kill -9 of peer {index}: ready after {:.2} s, a write through it after {:.2} s, {memory} MiB",
            ready.as_secs_f64(),
            since.elapsed().as_secs_f64()
        );
    }
}

/// A member is killed, misses writes to 1 % of the keys, and comes back: right after all keys were written, when its journal is
/// as long as it gets, and once all is written behind.
fn away(cluster: &mut Cluster, keys: u64) {
    let keys = fill(&endpoints(cluster), keys);
    for (victim, when) in [(2, "right after a burst of writes"), (1, "after a rest")] {
        if victim == 1 {
            thread::sleep(REST);
        }
        cluster.kill(victim);
        let others: Vec<SocketAddr> = (0..cluster.daemons.len())
            .filter(|index| *index != victim)
            .map(|index| cluster.daemons[index].resp)
            .collect();
        thread::sleep(Duration::from_secs(3));
        let missed = fill(&others, keys / 100);
        let since = Instant::now();
        cluster.restart(victim);
        cluster.wait_ready(victim);
        let ready = since.elapsed();
        let (complete, _) = wait_complete(cluster, victim);
        println!(
            "away, {when}: {missed} of {keys} keys written meanwhile; started again, peer {victim} is ready after {:.2} s, and holds \
             everything {:.2} s after that",
            ready.as_secs_f64(),
            (complete - since).saturating_sub(ready).as_secs_f64()
        );
    }
}

/// Waits until this daemon reports that it holds everything, as of the division that another daemon knows. Returns the time,
/// and the highest number of copied bytes that it reported.
fn wait_complete(cluster: &Cluster, index: usize) -> (Instant, u64) {
    let other = &cluster.daemons[usize::from(index == 0)];
    let until = Instant::now() + PATIENCE * 20;
    let mut copied = 0;
    loop {
        let status = cluster.daemons[index].ask_http("/v1/status").unwrap_or_default();
        let group = &status["groups"][0];
        let transfers = group["transfers"].as_array().map_or(&[][..], Vec::as_slice);
        copied = copied.max(transfers.iter().filter_map(|transfer| transfer["bytes"].as_u64()).sum());
        let parts = group["primaries"].as_array().map_or(0, Vec::len) as u64;
        let is_member = group["members"].as_array().is_some_and(|members| {
            members.iter().any(|member| member["peer_id"] == status["peer_id"] && member["role"] != "learner")
        });
        let known = other.ask_http("/v1/status").unwrap_or_default();
        let is_current = group["term"] == known["groups"][0]["term"];
        if is_member
            && is_current
            && parts > 0
            && group["complete"].as_u64() == Some(parts)
            && group["established"] == true
        {
            return (Instant::now(), copied);
        }
        assert!(Instant::now() < until, "peer {index} never holds everything: {status}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Measures the effect on clients when a member dies and an empty one comes in its place, under half the load that the group
/// can take.
fn replace(cluster: &mut Cluster, keys: u64) {
    let keys = fill(&endpoints(cluster), keys);
    let at: Vec<SocketAddr> = endpoints(cluster).into_iter().take(2).collect();
    thread::sleep(REST);
    let until = |seconds: u64| {
        let end = Instant::now() + Duration::from_secs(seconds);
        move || Instant::now() < end
    };
    let most = paced(&at, until(10), None).len() as f64 / 10.0;
    let rate = most / 2.0;
    let before = Spread::of(paced(&at, until(20), Some(rate)));
    let victim = 2;
    cluster.kill(victim);
    let directory = cluster.daemons[victim].directory.clone();
    std::fs::remove_dir_all(&directory).expect("its data can be removed");
    thread::sleep(Duration::from_secs(3));
    let since = Instant::now();
    cluster.restart(victim);
    let (stop, mut during) = (AtomicBool::new(false), Vec::new());
    let mut done = (since, 0);
    thread::scope(|scope| {
        let load = scope.spawn(|| paced(&at, || !stop.load(Ordering::Relaxed), Some(rate)));
        done = wait_complete(cluster, victim);
        stop.store(true, Ordering::Relaxed);
        during = load.join().expect("clients go on");
    });
    let during = Spread::of(during);
    println!(
        "replace: {keys} keys, {rate:.0} writes/s (half of what {CLIENTS} clients get); an empty member is in, and the epoch \
         established, after {:.1} s\n  before    {before}\n  meanwhile {during}\n  p99 {:.2} times",
        (done.0 - since).as_secs_f64(),
        during.p99.as_secs_f64() / before.p99.as_secs_f64()
    );
}

/// Runs clients that write at a rate all together, or as fast as they can. Returns the duration of each write that succeeded.
fn paced(at: &[SocketAddr], goes_on: impl Fn() -> bool + Sync, rate: Option<f64>) -> Vec<Duration> {
    let took = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (took, goes_on, at) = (&took, &goes_on, at[client % at.len()]);
            scope.spawn(move || {
                let mut connection = Connection::open(at, PATIENCE).expect("it serves");
                let pause = rate.map(|rate| Duration::from_secs_f64(CLIENTS as f64 / rate));
                let (mut due, mut mine, mut key) = (Instant::now(), Vec::new(), client as u64);
                while goes_on() {
                    if let Some(pause) = pause {
                        thread::sleep(due.saturating_duration_since(Instant::now()));
                        due += pause;
                    }
                    // Late clients count from the time at which they should have asked.
                    let since = if pause.is_some() {
                        (due - pause.unwrap_or_default()).min(Instant::now())
                    } else {
                        Instant::now()
                    };
                    key = (key.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1)) % 1_000_000;
                    let name = format!("key:{key:012}");
                    if connection.call(&["SET", name.as_str(), "y"]).is_ok_and(|reply| is_ok(&reply)) {
                        mine.push(since.elapsed());
                    }
                }
                took.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(mine);
            });
        }
    });
    took.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Measures the time without a successful write to a primary's range after that primary is killed.
fn gaps(cluster: &mut Cluster, kills: usize) {
    let mut gaps: Vec<Duration> = Vec::new();
    for round in 0..kills {
        let victim = round % cluster.daemons.len();
        let keys = keys_of(cluster, victim);
        gaps.push(gap(cluster, victim, &keys));
        cluster.restart(victim);
        cluster.wait_ready(victim);
        cluster.wait_serving(&[0, 1, 2], PATIENCE);
    }
    gaps.sort();
    let (Some(min), Some(max)) = (gaps.first(), gaps.last()) else { return };
    let median = gaps[gaps.len() / 2];
    println!(
        "gap: {kills} times kill -9 of a primary, {WRITERS} writers on its range through another peer: \
         median {:.0} ms, min {:.0} ms, max {:.0} ms",
        median.as_secs_f64() * 1e3,
        min.as_secs_f64() * 1e3,
        max.as_secs_f64() * 1e3
    );
}

/// Returns keys of which this daemon is primary, once it is primary of any: a range comes back some time after a restart.
fn keys_of(cluster: &Cluster, victim: usize) -> Vec<String> {
    let until = Instant::now() + PATIENCE;
    loop {
        let names = (0..60).map(|number| format!("gap {number}"));
        let keys: Vec<String> = names.filter(|key| cluster.primary_of(key) == Some(victim)).take(WRITERS).collect();
        if keys.len() == WRITERS {
            return keys;
        }
        assert!(Instant::now() < until, "peer {victim} is primary of too little");
        thread::sleep(Duration::from_millis(500));
    }
}

/// Returns the longest time without a success from the kill on.
fn gap(cluster: &mut Cluster, victim: usize, keys: &[String]) -> Duration {
    let through = cluster.daemons[(victim + 1) % cluster.daemons.len()].resp;
    let (stop, successes) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let mut killed = Instant::now();
    thread::scope(|scope| {
        for key in keys {
            scope.spawn(|| write_until(&stop, through, key, &successes));
        }
        thread::sleep(Duration::from_secs(1));
        killed = Instant::now();
        cluster.kill(victim);
        thread::sleep(WATCH);
        stop.store(true, Ordering::Relaxed);
    });
    let mut moments = successes.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    assert!(moments.iter().any(|moment| *moment < killed), "nothing was written before the kill");
    moments.retain(|moment| *moment >= killed);
    moments.push(killed);
    moments.push(killed + WATCH);
    moments.sort();
    moments.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
}

/// Writes again and again and notes the time of each success.
fn write_until(stop: &AtomicBool, at: SocketAddr, key: &str, successes: &Mutex<Vec<Instant>>) {
    let mut connection = None;
    while !stop.load(Ordering::Relaxed) {
        if connection.is_none() {
            connection = Connection::open(at, PATIENCE).ok();
        }
        let answer = connection.as_mut().map(|connection| connection.call(&["SET", key, "x"]));
        match answer {
            Some(Ok(reply)) if is_ok(&reply) => {
                successes.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(Instant::now());
            }
            Some(Ok(_)) => {}
            _ => connection = None,
        }
        thread::sleep(WRITE_EVERY);
    }
}
