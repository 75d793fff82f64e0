//! The clients on one host: they put load on the peers of that host, and record requests and answers.
//!
//! `scatter-testnet worker` is their program. It is started on each host by [`super::Fleet::load`], gets a [`WorkOrder`], prints a
//! [`Clock`] when it begins and a [`WorkSummary`] at its end, and ends early once nobody holds its input open any more.

use std::io::Read as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use group::op::{Op, Read};
use overlay::Key;
use serde::{Deserialize, Serialize};

use crate::history::Outcome;
use crate::live::{Endpoint, Habits, Keys, LiveLoad, Recorder};
use crate::rng::Rng;
use crate::study::Popularity;

/// Time for which a client waits for an answer: all answers are promised within 3 s.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time within which each key must be readable at the end.
const LAST_READ_MAX: Duration = Duration::from_secs(60);
/// Posts on one page of a user's list.
const POSTS_PER_PAGE: u64 = 40;
/// Client number of the last reads of a host: above those of all other clients of the host.
const LAST_READER: u64 = 900_000;
/// Threads that read the keys at the end.
const LAST_READERS: usize = 8;

/// Load that clients put on a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LoadKind {
    /// Registers, lists, counters and leases, of which a few are used at a time: they show most about linearizability.
    Kv,
    /// Posts and fetches of a small Twitter (Scatter §7.2.1): each post is appended to the list of its user, and one follower
    /// fetches the list then. Popular users post more often.
    Chirp,
    /// No load: the peers are only observed.
    Watch,
}

/// What the clients on a host are to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkOrder {
    /// The load.
    pub kind: LoadKind,
    /// Ports of the peers on this host, for clients.
    pub resp: Vec<u16>,
    /// Ports of the peers on this host, for administrators.
    pub http: Vec<u16>,
    /// Number of this host, from 0.
    pub host: u64,
    /// Number of clients on this host.
    pub clients: u64,
    /// Wait of a client between an answer and its next request.
    pub pause: Duration,
    /// Duration of the load.
    pub time: Duration,
    /// Number of users of Chirp on this host.
    pub users: usize,
    /// Prefix of the keys: unlike that of any load before.
    pub prefix: String,
    /// Seed of all choices.
    pub seed: u64,
    /// File for the history, relative to the directory on the host.
    pub history: PathBuf,
    /// File for what the peers' metrics show, relative to the directory on the host.
    pub observed: PathBuf,
}

/// Clocks of a host at the beginning of the recorded times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// Identity of the running system: hosts with the same one share their steady clock.
    pub boot: String,
    /// Steady clock, in nanoseconds.
    pub steady_ns: u64,
    /// Time of day, in nanoseconds since 1970.
    pub wall_ns: u64,
}

impl Clock {
    /// Returns the clocks of this machine, now.
    pub fn now() -> Clock {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let read = |clock| {
            let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: clock_gettime writes to `time` alone, which outlives the call.
            unsafe { libc::clock_gettime(clock, &mut time) };
            u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
        };
        let (steady_ns, wall_ns) = (read(libc::CLOCK_MONOTONIC), read(libc::CLOCK_REALTIME));
        Clock { boot: boot.trim().to_owned(), steady_ns, wall_ns }
    }
}

/// What the clients of a host saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkSummary {
    /// Operations that were asked for.
    pub operations: u64,
    /// Operations that were answered.
    pub answered: u64,
    /// Keys that could not be read at the end.
    pub unread: Vec<String>,
}

/// Does the work of an order. `begun` is told the clocks at the beginning of the history's times.
///
/// # Errors
/// The history, or what was observed, cannot be written.
pub fn work(order: &WorkOrder, stop: &AtomicBool, begun: impl FnOnce(&Clock)) -> Result<WorkSummary, String> {
    let recorder = Arc::new(Recorder::default());
    let clock = Clock::now();
    let before = recorder.now().0;
    begun(&Clock { steady_ns: clock.steady_ns - before, wall_ns: clock.wall_ns - before, ..clock });
    let peers: Vec<Endpoint> = order
        .resp
        .iter()
        .map(|port| Endpoint { address: SocketAddr::from(([127, 0, 0, 1], *port)), namespace: None })
        .collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let observer = scope.spawn(|| super::observer::observe(&order.http, &order.observed, &over));
        match order.kind {
            LoadKind::Kv => put_kv(order, &recorder, &peers, stop),
            LoadKind::Chirp => chirp(order, &recorder, &peers, stop),
            LoadKind::Watch => wait(order, stop),
        }
        over.store(true, Ordering::Relaxed);
        observer.join().unwrap_or_else(|_| Err("the observer of the peers ended early".into()))
    })?;
    let unread = if stop.load(Ordering::Relaxed) { Vec::new() } else { read_all(order, &recorder, &peers) };
    let history = recorder.taken();
    crate::file::write(&order.history, &history).map_err(|error| format!("{}: {error}", order.history.display()))?;
    let answered = history.answered() as u64;
    Ok(WorkSummary { operations: history.operations.len() as u64, answered, unread })
}

/// Sets `stop` once the input of this process has ended: who started it is gone.
pub fn stop_with_input(stop: &'static AtomicBool) {
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        while matches!(input.read(&mut [0; 64]), Ok(1..)) {}
        stop.store(true, Ordering::Relaxed);
    });
}

/// Waits for the time of the order, or until `stop`.
fn wait(order: &WorkOrder, stop: &AtomicBool) {
    let until = Instant::now() + order.time;
    while Instant::now() < until && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn put_kv(order: &WorkOrder, recorder: &Arc<Recorder>, peers: &[Endpoint], stop: &AtomicBool) {
    let keys = Keys { prefix: format!("{}{}.", order.prefix, order.host), ..Keys::default() };
    let habits =
        Habits { clients: order.clients, seed: order.seed ^ order.host, keys, pause: order.pause, faithful: false };
    let load = LiveLoad::start_as(recorder, peers, &habits);
    wait(order, stop);
    load.stop();
}

/// The users of Chirp on one host.
struct ChirpUsers {
    popularity: Popularity,
    /// Number of posts of each user.
    posts: Vec<AtomicU64>,
}

fn chirp(order: &WorkOrder, recorder: &Arc<Recorder>, peers: &[Endpoint], stop: &AtomicBool) {
    let posts = (0..order.users).map(|_| AtomicU64::new(0)).collect();
    let users = ChirpUsers { popularity: Popularity::chirp(order.users), posts };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for client in 0..order.clients {
            let (users, over) = (&users, &over);
            scope.spawn(move || chirp_client(order, client, (recorder, peers), users, over));
        }
        wait(order, stop);
        over.store(true, Ordering::Relaxed);
    });
}

fn chirp_client(
    order: &WorkOrder,
    client: u64,
    (recorder, peers): (&Recorder, &[Endpoint]),
    users: &ChirpUsers,
    over: &AtomicBool,
) {
    let mut rng = Rng::new(order.seed ^ order.host << 32 ^ client, "chirp client");
    let mut connections = client << 32;
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(order.pause);
        let user = users.popularity.draw(&mut rng);
        let post = users.posts[user].fetch_add(1, Ordering::Relaxed);
        let name = format!("{}{}.{user}.{}", order.prefix, order.host, post / POSTS_PER_PAGE);
        let Ok(key) = Key::new(name.as_bytes()) else { return };
        let value = Bytes::from(format!("{client}-{post};"));
        for op in [Op::Append { value, max: None }, Op::Read(Read::Value)] {
            let via = rng.below(peers.len() as u64) as usize;
            let Ok(mut connection) = peers[via].connect(PATIENCE) else { continue };
            connections += 1;
            recorder.ask(&mut connection, (client, connections), via, &key, &op);
        }
    }
}

/// Reads every key once more, and returns those that no peer answers for.
fn read_all(order: &WorkOrder, recorder: &Recorder, peers: &[Endpoint]) -> Vec<String> {
    let keys = recorder.keys();
    let share = keys.len().div_ceil(LAST_READERS).max(1);
    std::thread::scope(|scope| {
        let read = |(index, share): (usize, &[Key])| {
            let mut rng = Rng::new(order.seed ^ index as u64, "last reads");
            let client = LAST_READER + index as u64;
            let unread = share.iter().enumerate().filter(|(n, key)| {
                let who = (client, client << 32 | *n as u64);
                !read_key(recorder, peers, who, key, &mut rng)
            });
            unread.map(|(_, key)| String::from_utf8_lossy(key.name()).into_owned()).collect::<Vec<String>>()
        };
        let threads: Vec<_> = keys.chunks(share).enumerate().map(|share| scope.spawn(move || read(share))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    })
}

/// Reads a key, through one peer after the other; returns whether one of them answered.
fn read_key(recorder: &Recorder, peers: &[Endpoint], who: (u64, u64), key: &Key, rng: &mut Rng) -> bool {
    let until = Instant::now() + LAST_READ_MAX;
    while Instant::now() < until {
        let via = rng.below(peers.len() as u64) as usize;
        if let Ok(mut connection) = peers[via].connect(PATIENCE)
            && let Some(Outcome::Answered(_)) = recorder.ask(&mut connection, who, via, key, &Op::Read(Read::Value))
        {
            return true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    false
}
