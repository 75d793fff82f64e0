//! Networks begin only where `--new` is set. Two networks that were founded apart stay apart, also under one name and when
//! their peers are told of each other. A peer that reaches no other peer serves nothing and founds nothing.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use testnet::live::{Daemon, Reply};

const PATIENCE: Duration = Duration::from_secs(10);
const START_MAX: Duration = Duration::from_secs(60);
/// Long enough for all actions of a peer when it hears of other peers.
const A_WHILE: Duration = Duration::from_secs(4);

/// A directory for data, which is removed when the value is dropped.
struct Place(PathBuf);

impl Place {
    fn new(test: &str) -> Place {
        let place = std::env::temp_dir().join(format!("scatter-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&place).expect("a place for data");
        Place(place)
    }

    /// Returns a peer of a network of this name; mDNS must not find other peers for it.
    fn daemon(&self, name: &str) -> Daemon {
        let mut daemon = Daemon::new(name, self.0.join(name), &format!("founding-{}", std::process::id()));
        daemon.flags.extend(["--min-group", "1", "--max-group", "5", "--mdns", "off"].map(str::to_owned));
        daemon
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

fn start(daemon: &mut Daemon, flags: &[&str]) {
    daemon.start(&flags.iter().map(|flag| (*flag).to_owned()).collect::<Vec<_>>());
}

fn ready(daemon: &mut Daemon, flags: &[&str]) {
    start(daemon, flags);
    daemon.wait_ready(START_MAX).expect("it serves");
}

fn set(daemon: &Daemon, key: &str, value: &str) {
    let reply = daemon.connect(PATIENCE).and_then(|mut connection| connection.call(&["SET", key, value]));
    assert!(matches!(reply, Ok(Reply::Simple(_))), "{}: {reply:?}", daemon.name);
}

fn get(daemon: &Daemon, key: &str) -> Reply {
    let mut connection = daemon.connect(PATIENCE).expect("a connection");
    connection.call(&["GET", key]).expect("an answer")
}

fn expect_value(daemon: &Daemon, key: &str, value: &str) {
    assert_eq!(get(daemon, key), Reply::Bulk(Some(value.as_bytes().to_vec().into())), "{}", daemon.name);
}

/// Returns the peer ids of all members that a daemon knows in its ring.
fn ring_of(daemon: &Daemon) -> Vec<String> {
    let mut ring = daemon.ask_http("/v1/ring").expect("an answer");
    assert_eq!(ring["whole"], true, "{}: {ring}", daemon.name);
    let groups: Vec<serde_json::Value> = serde_json::from_value(ring["groups"].take()).expect("groups");
    let members = groups.iter().flat_map(|group| group["members"].as_array().cloned().unwrap_or_default());
    let mut all: Vec<String> =
        members.filter_map(|member| member["peer_id"].as_str().or(member.as_str()).map(str::to_owned)).collect();
    all.sort_unstable();
    all
}

/// Waits until the ring has exactly these members: learners become members.
fn expect_ring(daemon: &Daemon, of: &[&Daemon]) {
    let until = Instant::now() + START_MAX;
    while ring_of(daemon) != peers(of) {
        assert!(Instant::now() < until, "{} knows {:?} instead of {:?}", daemon.name, ring_of(daemon), peers(of));
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn peers(daemons: &[&Daemon]) -> Vec<String> {
    let mut all: Vec<String> = daemons.iter().filter_map(|daemon| daemon.peer_id.clone()).collect();
    all.sort_unstable();
    all
}

#[test]
fn networks_founded_apart_stay_apart() {
    let place = Place::new("apart");
    let mut founders = ["a0", "b0"].map(|name| place.daemon(name));
    let mut others = ["a1", "b1"].map(|name| place.daemon(name));
    for (founder, other) in founders.iter_mut().zip(&mut others) {
        ready(founder, &["--new"]);
        ready(other, &["--join", &founder.entry()]);
        set(founder, "whose", &founder.name);
    }
    let expect_apart = |founders: &[Daemon; 2], others: &[Daemon; 2]| {
        for (founder, other) in founders.iter().zip(others) {
            for daemon in [founder, other] {
                expect_value(daemon, "whose", &founder.name);
                expect_ring(daemon, &[founder, other]);
            }
        }
    };
    expect_apart(&founders, &others);

    // A peer of one network is told to join through the other one. The peer is in a network, and stays in it.
    let entry = founders[1].entry();
    others[0].signal(testnet::live::Signal::Terminate);
    others[0].wait_end(PATIENCE).expect("it stops");
    ready(&mut others[0], &["--join", &entry, "--join", &founders[0].entry()]);
    std::thread::sleep(A_WHILE);
    expect_apart(&founders, &others);

    // A new peer that is told of both networks becomes a peer of one of them.
    let mut both = place.daemon("both");
    ready(&mut both, &["--join", &founders[0].entry(), "--join", &entry]);
    let is_in = |ring: &Vec<String>| ring.contains(both.peer_id.as_ref().expect("it has said who it is"));
    let until = Instant::now() + START_MAX;
    while !founders.iter().any(|founder| is_in(&ring_of(founder))) {
        assert!(Instant::now() < until, "it becomes a member of neither");
        std::thread::sleep(Duration::from_millis(100));
    }
    std::thread::sleep(A_WHILE);
    let rings = founders.each_ref().map(ring_of);
    assert_eq!(rings.iter().filter(|ring| is_in(ring)).count(), 1, "{rings:?}");
    let side = usize::from(is_in(&rings[1]));
    expect_value(&both, "whose", &founders[side].name);
    expect_ring(&founders[side], &[&founders[side], &others[side], &both]);
    expect_ring(&founders[1 - side], &[&founders[1 - side], &others[1 - side]]);
}

#[test]
fn who_reaches_nobody_serves_nothing_and_founds_nothing() {
    let place = Place::new("nobody");
    let mut founder = place.daemon("founder");
    ready(&mut founder, &["--new"]);
    set(&founder, "k", "v");
    let entry = founder.entry();
    founder.signal(testnet::live::Signal::Terminate);
    founder.wait_end(PATIENCE).expect("it stops");

    let mut alone = place.daemon("alone");
    start(&mut alone, &["--join", &entry]);
    std::thread::sleep(A_WHILE);
    assert!(alone.is_running() && !alone.is_ready(), "{}", alone.log_text());
    match alone.connect(PATIENCE).and_then(|mut connection| connection.call(&["SET", "k", "mine"])) {
        Ok(Reply::Error(why)) => assert!(why.starts_with("TRYAGAIN"), "{why}"),
        Ok(other) => panic!("it served: {other:?}"),
        Err(_) => {}
    }
    let status = alone.ask_http("/v1/status").unwrap_or_default();
    assert_eq!(status["groups"].as_array().map_or(0, Vec::len), 0, "{status}");

    // Nor does the peer when it is started again.
    alone.signal(testnet::live::Signal::Kill);
    start(&mut alone, &["--join", &entry]);
    std::thread::sleep(A_WHILE);
    assert!(alone.is_running() && !alone.is_ready(), "{}", alone.log_text());

    // Once the founder is there, the peer joins.
    ready(&mut founder, &[]);
    alone.wait_ready(START_MAX).expect("it is let in");
    expect_value(&alone, "k", "v");
    expect_ring(&alone, &[&founder, &alone]);
}
