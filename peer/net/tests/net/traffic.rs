//! Much traffic, and peers that do not keep up.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use net::{FRAME_BYTES_MAX, Identity, NetEvent, Outgoing, SendError, Transport, Via};
use node::Class;

use crate::support::*;

fn the_longest_frame_passes_in_every_class_and_a_longer_one_in_none(via: Via) {
    let (a, mut b) = pair(config(via), config(via));
    let key = a.key();
    for (i, class) in [Class::Control, Class::Data, Class::Bulk].into_iter().enumerate() {
        let frame = Bytes::from(vec![i as u8; FRAME_BYTES_MAX]);
        a.handle().send(&b.key(), class, frame.clone()).unwrap();
        let longer = Bytes::from(vec![0; FRAME_BYTES_MAX + 1]);
        assert_eq!(a.handle().send(&b.key(), class, longer), Err(SendError::TooLong(FRAME_BYTES_MAX + 1)));
        a.handle().send(&b.key(), class, Bytes::new()).unwrap();
        b.wait("the frames", |b| b.frames(key, class) == [frame.clone(), Bytes::new()]);
    }
    let stats = a.handle().stats();
    assert_eq!(stats.peers[0].class(Class::Bulk).dropped_full, 1);
    assert_eq!(stats.peers[0].class(Class::Bulk).sent_frames, 2);
}

/// The other peer's loop stops draining. Frames to it pile up on neither side, other peers notice nothing, and after a
/// while it counts as gone.
fn a_loop_that_stalls_costs_a_bounded_queue_and_hurts_nobody_else(via: Via) {
    let mut config = config(via);
    config.data.bytes_max = 1 << 20;
    config.data.inbound_bytes_max = 1 << 20;
    let (mut a, mut stalled) = pair(config.clone(), config.clone());
    let mut lively = start(config);
    a.dial(&lively);
    a.wait_up(lively.key());

    let chunk = Bytes::from(vec![0; 10_000]);
    let (began, mut refused) = (Instant::now(), 0);
    let mut echoes = 0;
    while !a.events.iter().any(|event| matches!(event, NetEvent::PeerDown(peer) if *peer == stalled.key())) {
        assert!(began.elapsed() < PATIENCE, "it is never given up");
        for _ in 0..100 {
            refused += u64::from(a.handle().send(&stalled.key(), Class::Data, chunk.clone()).is_err());
        }
        let stats = a.handle().stats();
        assert!(stats.queued_bytes <= 3 << 20, "{} bytes are queued", stats.queued_bytes);
        let (key, sent) = (a.key(), Instant::now());
        a.send(lively.key(), Class::Data, "are you there?");
        echoes += 1;
        lively.wait("a frame", |lively| lively.frames(key, Class::Data).len() == echoes);
        assert!(sent.elapsed() < Duration::from_secs(1), "another peer waited {:?}", sent.elapsed());
        a.poll();
        thread::sleep(Duration::from_millis(10));
    }
    let stats = a.handle().stats();
    let dropped = stats.peers.iter().find(|peer| peer.peer == stalled.key()).unwrap().class(Class::Data).dropped_full;
    assert!(refused > 0 && dropped == refused, "{dropped} of {refused} were counted");
    // Once for each connection: both may have dialled.
    assert!((1..=2).contains(&stats.stalled), "{}", stats.stalled);
    // By then it had taken in its window and its budget, not all that was sent.
    stalled.poll();
    let taken: usize = stalled.frames(a.key(), Class::Data).iter().map(Bytes::len).sum();
    assert!(taken <= 4 << 20, "{taken} bytes were taken in");

    // The stalled peer goes on, and so does all other traffic.
    let key = a.key();
    a.wait_up(stalled.key());
    stalled.wait_up(key);
    let before = stalled.frames(key, Class::Control).len();
    a.send(stalled.key(), Class::Control, "welcome back");
    stalled.wait("a frame", |stalled| stalled.frames(key, Class::Control).len() > before);
}

/// A loop that is behind with bulk finds the heartbeat first.
fn control_overtakes_bulk_that_waits_for_the_loop(via: Via) {
    let (mut a, b) = pair(config(via), config(via));
    let chunk = Bytes::from(vec![0; 100_000]);
    while a.handle().send(&b.key(), Class::Bulk, chunk.clone()).is_ok() {}
    eventually("bulk waits at both ends", || {
        let depth = a.handle().stats().peers[0].class(Class::Bulk).queued_bytes;
        thread::sleep(Duration::from_millis(50));
        let sent = b.handle().stats().peers[0].class(Class::Bulk).received_bytes;
        sent > 0 && depth == a.handle().stats().peers[0].class(Class::Bulk).queued_bytes
    });
    a.send(b.key(), Class::Control, "heartbeat");
    a.send(b.key(), Class::Data, "data");
    eventually("they passed the bulk", || {
        let stats = b.handle().stats();
        stats.peers[0].class(Class::Control).received_frames + stats.peers[0].class(Class::Data).received_frames == 2
    });
    thread::sleep(Duration::from_millis(20));
    let mut events = Vec::new();
    b.net().drain(&mut events);
    let frames = events.iter().filter_map(|event| match event {
        NetEvent::Frames { class, .. } => Some(*class),
        _ => None,
    });
    let order: Vec<Class> = frames.collect();
    assert_eq!(order.first(), Some(&Class::Control));
    assert!(order.contains(&Class::Bulk) && order.contains(&Class::Data));
}

/// Outcomes of frames: every accepted frame is sent, late, dropped, lost or still queued.
fn every_frame_is_accounted_for(via: Via) {
    let (mut a, b) = pair(config(via), config(via));
    let (key, mut sent) = (b.key(), 0);
    for round in 0..20 {
        let mut batch: Vec<Outgoing> =
            (0..1000).map(|_| Outgoing { to: key, class: Class::Control, frame: Bytes::from(vec![0; 100]) }).collect();
        sent += batch.len() as u64;
        a.net().send_batch(&mut batch);
        assert!(batch.is_empty());
        if round == 10 {
            thread::sleep(Duration::from_millis(20));
        }
    }
    drop(b);
    a.wait_down(key);
    eventually("nothing waits any more", || {
        let stats = a.handle().stats();
        let class = stats.peers[0].class(Class::Control);
        class.queued_frames == 0 && class.sent_frames + class.dropped_full + class.dropped_late + class.lost == sent
    });
}

/// Not a measurement: a build without optimisation on a busy machine. It shows a fall by a factor of ten.
fn thousands_of_small_frames_a_second_pass(via: Via) {
    let (mut a, mut b) = pair(config(via), config(via));
    let (ka, kb) = (a.key(), b.key());
    let message = |to| Outgoing { to, class: Class::Data, frame: Bytes::from(vec![7; 64]) };
    let answering = thread::spawn(move || {
        let mut out = Vec::new();
        while b.downs(ka) == 0 {
            b.wait("frames", |b| !b.events.is_empty());
            for event in std::mem::take(&mut b.events) {
                match event {
                    NetEvent::Frames { frames, .. } => out.extend(frames.iter().map(|_| message(ka))),
                    NetEvent::PeerDown(_) => return,
                    _ => {}
                }
            }
            b.net().send_batch(&mut out);
        }
    });
    let (began, mut answers) = (Instant::now(), 0);
    let mut out: Vec<Outgoing> = (0..256).map(|_| message(kb)).collect();
    while began.elapsed() < Duration::from_secs(1) {
        a.net().send_batch(&mut out);
        a.events.clear();
        a.wait("answers", |a| !a.events.is_empty());
        for event in &a.events {
            if let NetEvent::Frames { frames, .. } = event {
                answers += frames.len();
                out.extend(frames.iter().map(|_| message(kb)));
            }
        }
    }
    println!("{:.0} requests/s of 64 bytes, 256 in flight", answers as f64 / began.elapsed().as_secs_f64());
    assert!(answers > 2000, "{answers}");
    drop(a);
    answering.join().unwrap();
}

const CHILD: &str = "SCATTER_NET_TEST_CHILD";
const CHILD_IDENTITY: &str = "SCATTER_NET_TEST_CHILD_IDENTITY";

/// Not a test of its own: the peer in another process that the tests below start, stop and kill.
#[test]
fn child() {
    let Ok(door) = std::env::var(CHILD) else {
        return;
    };
    let mut config = config(if door.contains("quic-v1") { Via::Quic } else { Via::Tcp });
    config.join = vec![door.parse().unwrap()];
    let identity = std::env::var(CHILD_IDENTITY).map(|path| Identity::load_or_create(path.as_ref()).unwrap());
    let mut peer = start_as(identity.unwrap_or_else(|_| Identity::random()), config);
    loop {
        peer.wait("anything", |peer| !peer.events.is_empty());
        for event in std::mem::take(&mut peer.events) {
            if let NetEvent::Frames { peer: from, class, frames } = event {
                for frame in frames {
                    let _ = peer.handle().send(&from, class, frame);
                }
            }
        }
    }
}

/// Peer in a process of its own that echoes all frames.
struct Process(Child);

impl Process {
    fn start(door: &Peer) -> Process {
        Process::start_as(door, None)
    }

    fn start_as(door: &Peer, identity: Option<&Path>) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "traffic::child", "--nocapture"]).env(CHILD, door.door().to_string());
        if let Some(path) = identity {
            command.env(CHILD_IDENTITY, path);
        }
        Process(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn signal(&self, name: &str) {
        let done = Command::new("kill").args([name, &self.0.id().to_string()]).status().unwrap();
        assert!(done.success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn a_killed_process_is_seen_soon(via: Via) {
    // On QUIC its silence is noticed: at most two seconds of it, after at most half a second between two packets.
    let soon = if via == Via::Tcp { Duration::from_secs(2) } else { Duration::from_secs(3) };
    let mut a = start(config(via));
    for _ in 0..3 {
        let process = Process::start(&a);
        a.wait("the other process", |a| a.events.iter().any(|event| matches!(event, NetEvent::PeerUp(_))));
        let killed = Instant::now();
        process.signal("-KILL");
        a.wait("its end", |a| a.events.iter().any(|event| matches!(event, NetEvent::PeerDown(_))));
        println!("seen after {:?}", killed.elapsed());
        assert!(killed.elapsed() < soon, "seen after {:?}", killed.elapsed());
        a.events.retain(|event| matches!(event, NetEvent::Addresses(_)));
    }
}

/// A stopped process keeps its connections and takes nothing: its kernel answers for it. Memory stays flat here, and the
/// peer is found again when it goes on.
fn a_stopped_process_costs_a_bounded_queue_and_comes_back(via: Via) {
    let mut a = start(config(via));
    let process = Process::start(&a);
    a.wait("the other process", |a| a.events.iter().any(|event| matches!(event, NetEvent::PeerUp(_))));
    let key = a.handle().stats().peers[0].peer;
    a.net().dial(key, &[]);
    // Stopped before it has answered all hellos, it would be given up for that, not for the frames.
    for class in [Class::Control, Class::Data, Class::Bulk] {
        a.send(key, class, "ready?");
        a.wait("an answer", |a| a.texts(key, class) == ["ready?"]);
    }
    process.signal("-STOP");
    let before = memory_bytes();
    let (began, mut sent) = (Instant::now(), 0u64);
    while !a.events.iter().any(|event| matches!(event, NetEvent::PeerDown(_))) {
        assert!(began.elapsed() < PATIENCE, "it is never given up");
        for class in [Class::Control, Class::Data, Class::Bulk] {
            for _ in 0..20 {
                sent += 50_000;
                let _ = a.handle().send(&key, class, Bytes::from(vec![0; 50_000]));
            }
        }
        a.poll();
        thread::sleep(Duration::from_millis(5));
    }
    let grown = memory_bytes().saturating_sub(before);
    println!("given up after {:?}; {} MB sent, {} MB grown", began.elapsed(), sent / 1_000_000, grown / 1_000_000);
    // Its queues (14 MiB), the data in Yamux and in the sockets, and the use of other tests in this process meanwhile.
    assert!(sent > 200_000_000 && grown < 150_000_000, "{sent} sent, {grown} grown");
    process.signal("-CONT");
    a.events.clear();
    a.wait_up(key);
    a.send(key, Class::Data, "awake?");
    a.wait("an answer", |a| a.texts(key, Class::Data).iter().any(|text| text == "awake?"));
}

/// A host loses its power and is back at once: its old connections were never closed, and never will be. A stopped process
/// stands for it.
fn a_restarted_peer_is_not_written_to_where_it_no_longer_is(via: Via) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("identity");
    let identity = Identity::load_or_create(&path).unwrap();
    let key = identity.peer();
    // Only the other start of the peer ends a connection here.
    let mut patient = config(via);
    patient.timing.stall = PATIENCE;
    patient.timing.ping_timeout = PATIENCE;
    let mut a = start(patient.clone());
    let before = Process::start_as(&a, Some(&path));
    a.wait_up(key);
    a.send(key, Class::Data, "ready?");
    a.wait("an answer", |a| a.texts(key, Class::Data) == ["ready?"]);
    before.signal("-STOP");

    patient.join = vec![a.door()];
    let began = Instant::now();
    let mut after = start_as(identity, patient);
    after.wait_up(a.key());
    a.wait("the peer's other start", |a| (a.ups(key), a.downs(key)) == (2, 1));
    let from = a.key();
    // A frame or two may still go into the connection that is just being closed.
    eventually("frames arrive", || {
        a.send(key, Class::Data, "are you there?");
        thread::sleep(Duration::from_millis(20));
        after.poll();
        after.texts(from, Class::Data).len() >= 3
    });
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
}

fn memory_bytes() -> u64 {
    load::resident_bytes(std::process::id()).unwrap_or(0)
}

over_both! {
    the_longest_frame_passes_in_every_class_and_a_longer_one_in_none,
    a_loop_that_stalls_costs_a_bounded_queue_and_hurts_nobody_else,
    control_overtakes_bulk_that_waits_for_the_loop,
    every_frame_is_accounted_for,
    thousands_of_small_frames_a_second_pass,
    a_killed_process_is_seen_soon,
    a_stopped_process_costs_a_bounded_queue_and_comes_back,
    a_restarted_peer_is_not_written_to_where_it_no_longer_is,
}
