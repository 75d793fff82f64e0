//! Real daemons on loopback under faults of real processes; the clients' history is recorded and judged.
//!
//! `SCATTER_BIN` names the daemon's binary; without it, it is built. `SCATTER_LONG=1` makes each test take its full time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use testnet::live::{Cluster, ClusterOptions, Connection, Keys, LiveLoad, Recorder, Reply, Signal, short_or};
use testnet::rng::Rng;

const SERVING_MAX: Duration = Duration::from_secs(60);
/// A lease's default length.
const LEASE: Duration = Duration::from_secs(1);

fn sync(daemons: usize) -> ClusterOptions {
    ClusterOptions { daemons, ..ClusterOptions::default() }
}

#[test]
fn a_minority_is_killed_in_a_loop() {
    let mut cluster = Cluster::start("minority", &sync(5));
    let recorder = Arc::new(Recorder::default());
    let load = LiveLoad::start(&recorder, &cluster.endpoints(), 8, 1, &Keys::default());
    let mut rng = Rng::new(1, "kills");
    let until = Instant::now() + short_or(20, 600);
    while Instant::now() < until {
        let first = rng.below(5) as usize;
        let second = (first + 1 + rng.below(4) as usize) % 5;
        let victims = if rng.per_mille(500) { vec![first, second] } else { vec![first] };
        for &victim in &victims {
            cluster.kill(victim);
        }
        std::thread::sleep(rng.duration(Duration::from_millis(100), Duration::from_secs(3)));
        for &victim in &victims {
            cluster.restart(victim);
        }
        for &victim in &victims {
            cluster.wait_ready(victim);
        }
    }
    load.stop();
    cluster.wait_serving(&cluster.all(), SERVING_MAX);
    recorder.judge(&cluster.endpoints());
    assert!(recorder.answered() > 1_000, "too little was answered: {}", recorder.answered());
    cluster.wait_same("serving", SERVING_MAX);
}

#[test]
fn all_are_killed_and_nothing_is_lost() {
    let mut cluster = Cluster::start("all", &sync(3));
    let recorder = Arc::new(Recorder::default());
    for round in 0..short_or(3, 30).as_secs() {
        let load = LiveLoad::start(&recorder, &cluster.endpoints(), 6, round, &Keys::default());
        std::thread::sleep(Duration::from_secs(2));
        // Under load: the kills interrupt some writes.
        for index in 0..3 {
            cluster.kill(index);
        }
        load.stop();
        for index in 0..3 {
            cluster.restart(index);
        }
        for index in 0..3 {
            cluster.wait_ready(index);
        }
    }
    cluster.wait_serving(&cluster.all(), SERVING_MAX);
    recorder.judge(&cluster.endpoints());
}

/// Hazard 6: data in memory is gone. No daemon may answer that it never was, nor begin a second network.
#[test]
fn in_memory_mode_what_is_lost_is_never_called_absent() {
    let mut cluster = Cluster::start("memory", &ClusterOptions { memory: true, ..sync(3) });
    let set = cluster.daemons[0].connect(Duration::from_secs(5)).and_then(|mut c| c.call(&["SET", "k", "v"]));
    assert_eq!(set.expect("it serves"), Reply::Simple("OK".into()));
    for index in 0..3 {
        cluster.kill(index);
    }
    for index in 0..3 {
        cluster.restart(index);
    }
    let until = Instant::now() + short_or(15, 60);
    while Instant::now() < until {
        for daemon in &cluster.daemons {
            let Ok(mut connection) = daemon.connect(Duration::from_secs(5)) else { continue };
            for command in [&["GET", "k"][..], &["EXISTS", "k"], &["SET", "other", "v"]] {
                match connection.call(command) {
                    Ok(Reply::Error(_)) => {}
                    // A daemon may give up and end.
                    Err(_) => break,
                    Ok(reply) => panic!("{command:?} was answered with {reply:?} by a range that is lost"),
                }
            }
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Hazard 17: a primary is frozen for three leases, and goes on with reads waiting in its sockets.
#[test]
fn a_primary_that_was_frozen_does_not_answer_from_the_past() {
    for leases in [false, true] {
        let mut cluster = Cluster::start("frozen", &ClusterOptions { leases, ..sync(3) });
        for round in 0..short_or(2, 20).as_secs() {
            let key = format!("frozen-{round}");
            let endpoints = cluster.endpoints();
            let set = |daemon: usize, value: &str| {
                let connection = endpoints[daemon].connect(Duration::from_secs(5));
                connection.and_then(|mut connection| connection.call(&["SET", &key, value]))
            };
            assert_eq!(set(0, "old").expect("it serves"), Reply::Simple("OK".into()));
            let primary = cluster.primary_of(&key).expect("some peer is named as primary");
            // Reads that wait in the frozen process's sockets.
            let mut readers: Vec<Connection> =
                (0..8).map(|_| cluster.daemons[primary].connect(LEASE * 20).expect("it serves")).collect();
            for reader in &mut readers {
                assert!(reader.call(&["GET", &key]).is_ok());
            }
            cluster.daemons[primary].signal(Signal::Freeze);
            for reader in &mut readers {
                reader.send(&["GET", &key]).expect("sockets take it");
            }
            let frozen = Instant::now();
            let other = (primary + 1) % 3;
            let changed = loop {
                match set(other, "new") {
                    Ok(Reply::Simple(text)) if text == "OK" => break true,
                    _ if frozen.elapsed() > SERVING_MAX => break false,
                    _ => std::thread::sleep(Duration::from_millis(50)),
                }
            };
            std::thread::sleep((LEASE * 3).saturating_sub(frozen.elapsed()));
            cluster.daemons[primary].signal(Signal::Thaw);
            assert!(changed, "two of three serve");
            for reader in &mut readers {
                match reader.receive() {
                    // Either nothing was done, or the answer is the present value.
                    Ok(Reply::Error(text)) => assert!(text.starts_with("TRYAGAIN"), "{text}"),
                    Ok(reply) => assert_eq!(reply, Reply::Bulk(Some("new".into())), "leases {leases}"),
                    Err(error) => panic!("a read was not answered: {error}"),
                }
            }
            cluster.wait_serving(&cluster.all(), SERVING_MAX);
        }
    }
}

/// A member is frozen for long under load: the memory of the other members stays as it is, and the member catches up.
#[test]
fn a_frozen_member_costs_the_others_nothing() {
    let mut cluster = Cluster::start("flat", &sync(3));
    let recorder = Arc::new(Recorder::default());
    let load = LiveLoad::start(&recorder, &cluster.endpoints(), 8, 3, &Keys::default());
    std::thread::sleep(Duration::from_secs(3));
    cluster.daemons[2].signal(Signal::Freeze);
    // The window of recent writes fills first.
    std::thread::sleep(short_or(5, 30));
    let before: Vec<u64> = cluster.daemons.iter().map(|daemon| daemon.memory_bytes()).collect();
    std::thread::sleep(short_or(15, 300));
    for index in 0..2 {
        let (before, after) = (before[index], cluster.daemons[index].memory_bytes());
        assert!(after < before + (64 << 20), "{index} grew from {before} to {after} bytes");
    }
    cluster.daemons[2].signal(Signal::Thaw);
    load.stop();
    cluster.wait_serving(&cluster.all(), SERVING_MAX);
    recorder.judge(&cluster.endpoints());
    cluster.wait_same("serving", SERVING_MAX);
}

/// A clean stop loses nothing and is over in time. The peer is still a member when it is back.
#[test]
fn a_clean_stop_is_quick_and_loses_nothing() {
    let mut cluster = Cluster::start("stop", &sync(3));
    let recorder = Arc::new(Recorder::default());
    let load = LiveLoad::start(&recorder, &cluster.endpoints(), 4, 4, &Keys::default());
    for index in 0..3 {
        std::thread::sleep(Duration::from_secs(1));
        cluster.daemons[index].signal(Signal::Terminate);
        let status = cluster.daemons[index].wait_end(Duration::from_secs(10)).expect("within 10 s");
        assert!(status.success(), "{status}");
        cluster.restart(index);
        cluster.wait_ready(index);
    }
    load.stop();
    cluster.wait_serving(&cluster.all(), SERVING_MAX);
    recorder.judge(&cluster.endpoints());
}

/// Hazard 3: a stopped store is damaged or cut short. The daemon refuses it, or its peer begins anew. No acknowledged write is
/// lost, and the daemon does not crash again and again.
#[test]
fn damaged_stores_lose_nothing() {
    let mut cluster = Cluster::start("damage", &sync(3));
    let recorder = Arc::new(Recorder::default());
    let mut rng = Rng::new(5, "damage");
    let mut refused = 0;
    for _ in 0..short_or(5, 50).as_secs() {
        let load = LiveLoad::start(&recorder, &cluster.endpoints(), 4, rng.bits(), &Keys::default());
        std::thread::sleep(Duration::from_secs(1));
        let victim = rng.below(3) as usize;
        if rng.per_mille(500) {
            cluster.kill(victim);
        } else {
            cluster.daemons[victim].signal(Signal::Terminate);
            cluster.daemons[victim].wait_end(Duration::from_secs(10)).expect("within 10 s");
        }
        load.stop();
        damage(&cluster.daemons[victim].directory, &mut rng);
        cluster.restart(victim);
        if cluster.daemons[victim].wait_ready(SERVING_MAX).is_err() {
            // The daemon may refuse, and prints this. Then a person moves everything aside but the peer's identity.
            let ended = cluster.daemons[victim].wait_end(Duration::from_secs(5)).expect("neither ready nor gone");
            assert!(!ended.success(), "it says that all is well: {ended}");
            assert!(!cluster.daemons[victim].log_text().trim().is_empty(), "it ended without a word");
            refused += 1;
            clear(&cluster.daemons[victim].directory);
            cluster.restart(victim);
            cluster.wait_ready(victim);
        }
        cluster.wait_serving(&cluster.all(), SERVING_MAX);
        // A member that lost its memory is no part of a quorum until it is a member again: one is damaged at a time.
        cluster.wait_members(SERVING_MAX);
    }
    println!("{refused} refused to start");
    recorder.judge(&cluster.endpoints());
}

/// Removes everything from a data directory but the identity.
fn clear(directory: &std::path::Path) {
    for entry in std::fs::read_dir(directory).expect("it is a directory").flatten() {
        if entry.file_name() == "identity" {
            continue;
        }
        let path = entry.path();
        let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        removed.expect("it can be removed");
    }
}

/// Flips some bytes of, or cuts, one file of the store.
fn damage(directory: &std::path::Path, rng: &mut Rng) {
    let mut files = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(place) = open.pop() {
        for entry in std::fs::read_dir(place).expect("a store is a directory").flatten() {
            match entry.file_type() {
                // Stores that were moved aside before are not read any more.
                _ if entry.file_name().to_string_lossy().contains("damaged") => {}
                Ok(kind) if kind.is_dir() => open.push(entry.path()),
                // The identity is no part of the store, and the ballast's content means nothing.
                _ if matches!(entry.file_name().to_str(), Some("identity" | "ballast")) => {}
                _ if entry.metadata().is_ok_and(|data| data.len() > 0) => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files.sort();
    let file = rng.pick(&files);
    let mut bytes = std::fs::read(file).expect("it can be read");
    // Files that are allocated ahead of time end with zeros that were never written.
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(bytes.len(), |last| last + 1);
    let place = rng.below(used as u64) as usize;
    if rng.per_mille(300) {
        bytes.truncate(place);
    } else {
        for byte in bytes.iter_mut().skip(place).take(64) {
            *byte ^= rng.bits() as u8 | 1;
        }
    }
    std::fs::write(file, bytes).expect("it can be written");
    println!("damaged {} at {place}", file.display());
}

/// Hazard 19: one peer's wall clock is an hour off, without any effect, on deadlines neither.
#[test]
fn a_wall_clock_an_hour_off_decides_nothing() {
    for offset in ["3600000", "-3600000"] {
        let environment = vec![(0, "SCATTER_TEST_WALL_OFFSET_MS".to_owned(), offset.to_owned())];
        let cluster = Cluster::start("wall", &ClusterOptions { environment, ..sync(3) });
        for daemon in &cluster.daemons {
            let mut connection = daemon.connect(Duration::from_secs(5)).expect("it serves");
            let mut ask = |words: &[&str]| connection.call(words).expect("an answer");
            assert_eq!(ask(&["SET", "long", "v", "EX", "600"]), Reply::Simple("OK".into()));
            assert_eq!(ask(&["SET", "short", "v", "PX", "1500"]), Reply::Simple("OK".into()));
            assert_eq!(ask(&["GET", "short"]), Reply::Bulk(Some("v".into())));
            std::thread::sleep(Duration::from_secs(4));
            assert_eq!(ask(&["GET", "short"]), Reply::Bulk(None));
            match ask(&["PTTL", "long"]) {
                Reply::Integer(left) => assert!((500_000..=600_000).contains(&left), "{left}"),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Random bytes at each port: the daemon answers with an error or closes the connection, and goes on serving.
#[test]
fn nonsense_does_no_harm() {
    use std::io::{Read as _, Write as _};
    let mut cluster = Cluster::start("nonsense", &sync(1));
    let mut rng = Rng::new(6, "nonsense");
    let port = cluster.daemons[0].listen.rsplit('/').next().and_then(|port| port.parse().ok()).expect("a port");
    let doors = [cluster.daemons[0].resp, cluster.daemons[0].http, SocketAddr::from(([127, 0, 0, 1], port))];
    let before = cluster.daemons[0].memory_bytes();
    let mut held = Vec::new();
    for door in doors {
        for round in 0..60 {
            let Ok(mut stream) = std::net::TcpStream::connect(door) else { panic!("{door} does not listen") };
            stream.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket");
            let bytes = match round % 4 {
                0 => (0..rng.below(4_000)).map(|_| rng.bits() as u8).collect(),
                1 => b"*1000000000\r\n".to_vec(),
                2 => b"*1\r\n$99999999999\r\n".to_vec(),
                _ => vec![0xff; 8],
            };
            let _ = stream.write_all(&bytes);
            let _ = stream.read(&mut [0; 256]);
            if round % 8 == 1 {
                // Slow clients, which send half of a request and stay.
                held.push(stream);
            }
        }
    }
    cluster.wait_serving(&[0], SERVING_MAX);
    assert!(cluster.daemons[0].is_running());
    let after = cluster.daemons[0].memory_bytes();
    assert!(after < before + (128 << 20), "it grew from {before} to {after} bytes");
}

/// Hazard 4: one member's disk is full. Writes go on through the other members and reads through all. With room again the
/// member takes part as before.
#[test]
fn a_full_disk_is_survived() {
    let Some(disk) = SmallDisk::mount("one", 96) else { return };
    let other = std::env::temp_dir().join(format!("scatter-room-{}", std::process::id()));
    let directories = vec![other.join("0"), other.join("1"), disk.place.join("store")];
    let mut cluster = Cluster::start("full", &ClusterOptions { directories: Some(directories), ..sync(3) });
    let recorder = Arc::new(Recorder::default());
    disk.fill();
    let load = LiveLoad::start(&recorder, &cluster.endpoints(), 6, 9, &Keys::default());
    let until = Instant::now() + short_or(8, 60);
    let mut answered = [0; 2];
    let mut round = 0;
    while Instant::now() < until {
        round += 1;
        let (key, value) = (format!("full-{}", round % 50), "x".repeat(30_000));
        for (index, answered) in answered.iter_mut().enumerate() {
            let reply = cluster.daemons[index]
                .connect(Duration::from_secs(5))
                .and_then(|mut connection| connection.call(&["SET", &key, &value]));
            *answered += u32::from(reply.is_ok_and(|reply| matches!(reply, Reply::Simple(_))));
        }
        disk.fill();
    }
    println!("{answered:?} of {round} large writes through the others");
    assert!(answered.iter().all(|answered| *answered > 20), "the others go on: {answered:?}");
    disk.free();
    load.stop();
    let log = cluster.daemons[2].log_text();
    if let Some(status) = cluster.daemons[2].wait_end(Duration::ZERO) {
        // The disk was full before the daemon could know that room was low.
        assert!(!status.success() && log.contains("the disk is full"), "{status}: {log}");
        cluster.restart(2);
        cluster.wait_ready(2);
    } else {
        assert!(log.contains("room"), "it says what is wrong: {log}");
    }
    cluster.wait_serving(&cluster.all(), SERVING_MAX);
    cluster.wait_members(SERVING_MAX);
    recorder.judge(&cluster.endpoints());
    cluster.wait_same("serving", SERVING_MAX);
    drop(cluster);
    let _ = std::fs::remove_dir_all(other);
}

/// All disks are full. Daemons take nothing more, with an error that names the cause, and old data can be read. With room again
/// they go on by themselves.
#[test]
fn when_all_disks_are_full_nothing_is_taken_and_nothing_lost() {
    let Some(disk) = SmallDisk::mount("all", 280) else { return };
    let directories = (0..3).map(|index| disk.place.join(format!("store-{index}"))).collect();
    let cluster = Cluster::start("allfull", &ClusterOptions { directories: Some(directories), ..sync(3) });
    let ask = |index: usize, words: &[&str]| {
        cluster.daemons[index].connect(Duration::from_secs(5)).and_then(|mut connection| connection.call(words))
    };
    assert_eq!(ask(0, &["SET", "before", "v"]).expect("it serves"), Reply::Simple("OK".into()));
    disk.fill();
    let until = Instant::now() + SERVING_MAX;
    // Until each daemon has noticed.
    for index in 0..3 {
        loop {
            match ask(index, &["SET", &format!("during-{index}"), "v"]) {
                Ok(Reply::Error(text)) if text.starts_with("OOM") => break,
                other => assert!(Instant::now() < until, "{index} takes more: {other:?}"),
            }
            disk.fill();
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    // Long enough for each second's task of a store with little room.
    for _ in 0..6 {
        disk.fill();
        std::thread::sleep(Duration::from_millis(500));
    }
    for index in 0..3 {
        assert_eq!(ask(index, &["GET", "before"]).expect("reads go on"), Reply::Bulk(Some("v".into())));
    }
    disk.free();
    cluster.wait_serving(&cluster.all(), SERVING_MAX);
    assert_eq!(ask(1, &["GET", "before"]).expect("it serves"), Reply::Bulk(Some("v".into())));
}

/// A disk of some megabytes in memory; it is removed when the value is dropped.
struct SmallDisk {
    place: std::path::PathBuf,
}

impl SmallDisk {
    /// Mounts the disk; prints a note and returns `None` without the right to mount one.
    fn mount(name: &str, megabytes: u32) -> Option<SmallDisk> {
        let place = std::env::temp_dir().join(format!("scatter-disk-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&place).expect("a place");
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "scatter-test"])
            .arg(&place)
            .stderr(std::process::Stdio::null())
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(SmallDisk { place });
        }
        eprintln!("SKIPPED: a small disk needs the right to mount one");
        let _ = std::fs::remove_dir(&place);
        None
    }

    /// Fills the free space, but for some kilobytes.
    fn fill(&self) {
        use std::io::Write as _;
        let more = std::fs::OpenOptions::new().create(true).append(true).open(self.place.join("filling"));
        let mut more = more.expect("a file");
        while more.write_all(&[0; 64 << 10]).is_ok() {}
    }

    fn free(&self) {
        std::fs::remove_file(self.place.join("filling")).expect("it is there");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.place).status();
        let _ = std::fs::remove_dir(&self.place);
    }
}
