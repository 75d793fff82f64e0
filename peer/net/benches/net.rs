//! Messages per second between two processes on loopback, and messages beside bulk, by TCP and by QUIC in turns.
//!
//! Each side is a plain loop thread and a runtime of one worker. A request has 64 bytes, an answer 16. The figures
//! compare builds and transports on one machine and are not for publication: the ratios at the end are medians over
//! rounds of one run.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use net::{Identity, Net, NetConfig, NetEvent, Outgoing, Transport, Via, peer_key_of};
use node::Class;
use overlay::PeerKey;
use tokio::runtime::Runtime;

const SECONDS: u64 = 2;
const ROUNDS: usize = 3;
const IN_FLIGHT: [usize; 4] = [1, 16, 256, 1024];
const BOTH: [Via; 2] = [Via::Tcp, Via::Quic];

fn main() {
    // `cargo test --benches` only checks that it starts.
    let is_trial = std::env::args().any(|arg| arg == "--test");
    let (time, rounds) = match is_trial {
        true => (Duration::from_millis(50), 1),
        false => (Duration::from_secs(SECONDS), ROUNDS),
    };
    match std::env::args().nth(1).as_deref() {
        Some("--answer") => answer(if std::env::args().any(|arg| arg == "quic") { Via::Quic } else { Via::Tcp }),
        _ => compare(time, rounds),
    }
}

/// Runs one after the other, in rounds, so that other load of the machine meets both.
fn compare(time: Duration, rounds: usize) {
    println!("{:>5} {:>9} {:>12} {:>14}", "", "in flight", "requests/s", "CPU s/million");
    let mut rounds: Vec<[Vec<Figure>; 2]> = (0..rounds).map(|_| BOTH.map(|via| ask(via, time))).collect();
    println!("\nQUIC : TCP, median of {} rounds", rounds.len());
    for index in 0..rounds[0][0].len() {
        rounds.sort_by(|one, other| ratio(one, index).total_cmp(&ratio(other, index)));
        println!("{:>40} {:.2}", rounds[0][0][index].what, ratio(&rounds[rounds.len() / 2], index));
    }
}

fn ratio([tcp, quic]: &[Vec<Figure>; 2], index: usize) -> f64 {
    quic[index].value / tcp[index].value
}

struct Figure {
    what: String,
    value: f64,
}

fn figure(what: impl Into<String>, value: f64) -> Figure {
    Figure { what: what.into(), value }
}

struct Side {
    net: Net,
    wake: mpsc::Receiver<()>,
    _runtime: Runtime,
    events: Vec<NetEvent>,
}

impl Side {
    fn start(via: Via) -> Side {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let mut config = NetConfig::new("bench");
        let address = if via == Via::Tcp { "/ip4/127.0.0.1/tcp/0" } else { "/ip4/127.0.0.1/udp/0/quic-v1" };
        config.listen = vec![address.parse().unwrap()];
        let (tx, wake) = mpsc::sync_channel(1);
        let net =
            Net::start(config, &Identity::random(), runtime.handle(), vec![Box::new(move || _ = tx.try_send(()))])
                .unwrap();
        Side { net, wake, _runtime: runtime, events: Vec::new() }
    }

    /// Returns the events since the last call, waiting a moment where there are none.
    fn next(&mut self) -> Vec<NetEvent> {
        self.events.clear();
        if self.net.port(0).drain(&mut self.events) == 0 {
            let _ = self.wake.recv_timeout(Duration::from_millis(100));
            self.net.port(0).drain(&mut self.events);
        }
        std::mem::take(&mut self.events)
    }
}

/// Answers requests with their first 16 bytes; takes bulk without an answer.
fn answer(via: Via) {
    let mut side = Side::start(via);
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
        side.net.port(0).send_batch(&mut out);
    }
}

fn ask(via: Via, time: Duration) -> Vec<Figure> {
    let name = if via == Via::Tcp { "tcp" } else { "quic" };
    let mut child =
        Command::new(std::env::current_exe().unwrap()).args(["--answer", name]).stdout(Stdio::piped()).spawn().unwrap();
    let mut door = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut door).unwrap();
    let (address, peer) = door.trim().rsplit_once("/p2p/").unwrap();
    let peer = peer_key_of(&peer.parse().unwrap()).unwrap();
    let mut side = Side::start(via);
    side.net.port(0).dial(peer, &[address.to_string()]);
    while !side.net.handle().is_up(&peer) {
        side.next();
    }
    let mut figures = Vec::new();
    for in_flight in IN_FLIGHT {
        figures.extend(rate(&mut side, &child, peer, in_flight, time, name));
    }
    for class in [Class::Control, Class::Data] {
        figures.extend(beside_bulk(&mut side, peer, time, class, false, name));
        figures.extend(beside_bulk(&mut side, peer, time, class, true, name));
    }
    side.net.shutdown();
    child.wait().unwrap();
    figures
}

fn rate(side: &mut Side, child: &Child, peer: PeerKey, in_flight: usize, time: Duration, name: &str) -> [Figure; 2] {
    let request = || Outgoing { to: peer, class: Class::Data, frame: Bytes::from(vec![7; 64]) };
    let mut out: Vec<Outgoing> = (0..in_flight).map(|_| request()).collect();
    let (began, cpu) = (Instant::now(), cpu(std::process::id()) + cpu(child.id()));
    let mut answers = 0;
    while began.elapsed() < time {
        side.net.port(0).send_batch(&mut out);
        for event in side.next() {
            if let NetEvent::Frames { frames, .. } = event {
                answers += frames.len();
                out.extend(frames.iter().map(|_| request()));
            }
        }
    }
    let took = began.elapsed().as_secs_f64();
    let cpu = crate::cpu(std::process::id()) + crate::cpu(child.id()) - cpu;
    let (rate, per_million) = (answers as f64 / took, cpu / (answers as f64 / 1e6));
    println!("{name:>5} {in_flight:>9} {rate:>12.0} {per_million:>14.2}");
    // Let the last answers come before the next round counts its own.
    let rest = Instant::now() + Duration::from_millis(100);
    while Instant::now() < rest {
        side.next();
    }
    [
        figure(format!("requests/s, {in_flight} in flight"), rate),
        figure(format!("CPU of a request, {in_flight} in flight"), per_million),
    ]
}

/// Measures round trips of small frames of a class, one every 5 ms, alone or beside as much bulk as passes.
fn beside_bulk(side: &mut Side, peer: PeerKey, time: Duration, class: Class, bulk: bool, name: &str) -> Vec<Figure> {
    let chunk = Bytes::from(vec![1; 64 * 1024]);
    let mut trips = Vec::new();
    let bulk_before = side.net.handle().stats().peers[0].classes[2].sent_bytes;
    let began = Instant::now();
    while began.elapsed() < time {
        let due = began + Duration::from_millis(5) * trips.len() as u32;
        if let Some(wait) = due.checked_duration_since(Instant::now()) {
            std::thread::sleep(wait);
        }
        while bulk && side.net.handle().send(&peer, Class::Bulk, chunk.clone()).is_ok() {}
        let sent = Instant::now();
        side.net.handle().send(&peer, class, Bytes::from(vec![1; 64])).unwrap();
        while !side.next().iter().any(|event| matches!(event, NetEvent::Frames { class: came, .. } if *came == class)) {
        }
        trips.push(sent.elapsed());
    }
    trips.sort();
    let sent = side.net.handle().stats().peers[0].classes[2].sent_bytes - bulk_before;
    let (p50, p99) = (trips[trips.len() / 2], trips[trips.len() * 99 / 100]);
    let bulk_rate = sent as f64 / 1e6 / began.elapsed().as_secs_f64();
    let beside = if bulk { "beside bulk" } else { "alone" };
    println!("{name:>5} {class:?} {beside}: p50 {p50:?}, p99 {p99:?}; bulk {bulk_rate:.0} MB/s");
    let mut figures = vec![figure(format!("{class:?} {beside}, p50"), p50.as_secs_f64())];
    if bulk {
        figures.push(figure(format!("bulk beside {class:?}"), bulk_rate));
    }
    figures
}

/// Returns the processor time that a process has used so far, in seconds.
fn cpu(pid: u32) -> f64 {
    load::cpu_time(pid).map_or(f64::NAN, |time| time.total().as_secs_f64())
}
