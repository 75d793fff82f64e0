//! Messages a second between two processes on loopback, and a heartbeat beside bulk.
//!
//! Each side is a plain loop thread and a runtime of one worker. A request has 64 bytes, an answer 16. For comparing
//! builds on one machine, not for quoting.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use node::Class;
use overlay::PeerKey;
use peer::net::{Identity, Net, NetConfig, NetEvent, Outgoing, Transport, peer_key_of};
use tokio::runtime::Runtime;

const SECONDS: u64 = 3;

fn main() {
    // `cargo test --benches` only wants to know that it starts.
    let quick = std::env::args().any(|arg| arg == "--test");
    match std::env::args().nth(1).as_deref() {
        Some("--answer") => answer(),
        _ => ask(if quick { Duration::from_millis(50) } else { Duration::from_secs(SECONDS) }),
    }
}

struct Side {
    net: Net,
    wake: mpsc::Receiver<()>,
    _runtime: Runtime,
    events: Vec<NetEvent>,
}

impl Side {
    fn start() -> Side {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let mut config = NetConfig::new("bench");
        config.listen = vec!["/ip4/127.0.0.1/tcp/0".parse().unwrap()];
        let (tx, wake) = mpsc::sync_channel(1);
        let net = Net::start(config, &Identity::random(), runtime.handle(), move || _ = tx.try_send(())).unwrap();
        Side { net, wake, _runtime: runtime, events: Vec::new() }
    }

    /// What happened since, waiting a moment where nothing did.
    fn next(&mut self) -> Vec<NetEvent> {
        self.events.clear();
        if self.net.drain(&mut self.events) == 0 {
            let _ = self.wake.recv_timeout(Duration::from_millis(100));
            self.net.drain(&mut self.events);
        }
        std::mem::take(&mut self.events)
    }
}

/// Answers requests with their first 16 bytes; takes bulk without a word.
fn answer() {
    let mut side = Side::start();
    let mut out = Vec::new();
    loop {
        for event in side.next() {
            match event {
                NetEvent::Addresses(addresses) => {
                    println!("{}/p2p/{}", addresses[0], side.net.handle().peer_id());
                    std::io::stdout().flush().unwrap();
                }
                NetEvent::Frames { peer, class, frames } if class != Class::Bulk => {
                    out.extend(frames.iter().map(|frame| Outgoing { to: peer, class, frame: frame.slice(..16) }));
                }
                NetEvent::PeerDown(_) => return,
                _ => {}
            }
        }
        side.net.send_batch(&mut out);
    }
}

fn ask(time: Duration) {
    let mut child =
        Command::new(std::env::current_exe().unwrap()).arg("--answer").stdout(Stdio::piped()).spawn().unwrap();
    let mut door = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut door).unwrap();
    let (address, peer) = door.trim().rsplit_once("/p2p/").unwrap();
    let peer = peer_key_of(&peer.parse().unwrap()).unwrap();
    let mut side = Side::start();
    side.net.dial(peer, &[address.to_string()]);
    while !side.net.handle().is_up(&peer) {
        side.next();
    }

    println!("{:>9} {:>12} {:>14}", "in flight", "requests/s", "CPU s/million");
    for in_flight in [1, 16, 256, 1024] {
        rate(&mut side, &child, peer, in_flight, time);
    }
    beside_bulk(&mut side, peer, time, false);
    beside_bulk(&mut side, peer, time, true);
    side.net.shutdown();
    child.wait().unwrap();
}

fn rate(side: &mut Side, child: &Child, peer: PeerKey, in_flight: usize, time: Duration) {
    let request = || Outgoing { to: peer, class: Class::Data, frame: Bytes::from(vec![7; 64]) };
    let mut out: Vec<Outgoing> = (0..in_flight).map(|_| request()).collect();
    let (began, cpu) = (Instant::now(), cpu(std::process::id()) + cpu(child.id()));
    let mut answers = 0;
    while began.elapsed() < time {
        side.net.send_batch(&mut out);
        for event in side.next() {
            if let NetEvent::Frames { frames, .. } = event {
                answers += frames.len();
                out.extend(frames.iter().map(|_| request()));
            }
        }
    }
    let took = began.elapsed().as_secs_f64();
    let cpu = crate::cpu(std::process::id()) + crate::cpu(child.id()) - cpu;
    let per_million = cpu / (answers as f64 / 1e6);
    println!("{in_flight:>9} {:>12.0} {per_million:>14.2}", answers as f64 / took);
    // Let the last answers come before the next round counts its own.
    let rest = Instant::now() + Duration::from_millis(100);
    while Instant::now() < rest {
        side.next();
    }
}

/// Round trips of control frames, one every 5 ms, alone or beside as much bulk as passes.
fn beside_bulk(side: &mut Side, peer: PeerKey, time: Duration, bulk: bool) {
    let chunk = Bytes::from(vec![1; 64 * 1024]);
    let mut trips = Vec::new();
    let bulk_before = side.net.handle().stats().peers[0].classes[2].sent_bytes;
    let began = Instant::now();
    while began.elapsed() < time {
        let due = began + Duration::from_millis(5) * trips.len() as u32;
        if let Some(wait) = due.checked_duration_since(Instant::now()) {
            std::thread::sleep(wait);
        }
        while bulk && side.net.send(&peer, Class::Bulk, chunk.clone()).is_ok() {}
        let sent = Instant::now();
        side.net.send(&peer, Class::Control, Bytes::from(vec![1; 64])).unwrap();
        while !side.next().iter().any(|event| matches!(event, NetEvent::Frames { class: Class::Control, .. })) {}
        trips.push(sent.elapsed());
    }
    trips.sort();
    let sent = side.net.handle().stats().peers[0].classes[2].sent_bytes - bulk_before;
    println!(
        "control {}: p50 {:?}, p99 {:?}; bulk {:.0} MB/s",
        if bulk { "beside bulk" } else { "alone" },
        trips[trips.len() / 2],
        trips[trips.len() * 99 / 100],
        sent as f64 / 1e6 / began.elapsed().as_secs_f64(),
    );
}

/// Seconds of processor time that a process has used so far.
fn cpu(pid: u32) -> f64 {
    load::cpu_time(pid).map_or(f64::NAN, |time| time.total().as_secs_f64())
}
