//! Real daemons on loopback under what happens to real processes; what clients saw is recorded and judged.
//!
//! `SCATTER_BIN` names the daemon's binary; without it, it is built. `SCATTER_LONG=1` makes each test take its full time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use testnet::live::{Cluster, Connection, Keys, Load, Options, Recorder, Reply, Signal};
use testnet::rng::Rng;

const SERVING_MAX: Duration = Duration::from_secs(60);
/// A lease's default length.
const LEASE: Duration = Duration::from_secs(1);

/// A short time, or the full one if `SCATTER_LONG` is set.
fn short_or(seconds: u64, full: u64) -> Duration {
    Duration::from_secs(if std::env::var_os("SCATTER_LONG").is_some() { full } else { seconds })
}

fn endpoints(cluster: &Cluster) -> Vec<SocketAddr> {
    cluster.daemons.iter().map(|daemon| daemon.resp).collect()
}

fn all(cluster: &Cluster) -> Vec<usize> {
    (0..cluster.daemons.len()).collect()
}

fn sync(daemons: usize) -> Options {
    Options { daemons, ..Options::default() }
}

#[test]
#[ignore = "needs the daemon"]
fn a_minority_is_killed_in_a_loop() {
    let mut cluster = Cluster::start("minority", &sync(5));
    let recorder = Arc::new(Recorder::default());
    let load = Load::start(&recorder, &endpoints(&cluster), 8, 1, &Keys::default());
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
    cluster.wait_serving(&all(&cluster), SERVING_MAX);
    recorder.judge(&endpoints(&cluster));
    assert!(recorder.answered() > 1_000, "too little was answered: {}", recorder.answered());
    cluster.wait_same("serving", SERVING_MAX);
}

#[test]
#[ignore = "needs the daemon"]
fn all_are_killed_and_nothing_is_lost() {
    let mut cluster = Cluster::start("all", &sync(3));
    let recorder = Arc::new(Recorder::default());
    for round in 0..short_or(3, 30).as_secs() {
        let load = Load::start(&recorder, &endpoints(&cluster), 6, round, &Keys::default());
        std::thread::sleep(Duration::from_secs(2));
        // Under load: some writes are in the middle of it.
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
    cluster.wait_serving(&all(&cluster), SERVING_MAX);
    recorder.judge(&endpoints(&cluster));
}

/// PITFALLS 6: what was in memory is gone, and nobody may say that it never was, nor begin a second network.
#[test]
#[ignore = "needs the daemon"]
fn in_memory_mode_what_is_lost_is_never_called_absent() {
    let mut cluster = Cluster::start("memory", &Options { memory: true, ..sync(3) });
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
                    // A daemon that has given up is well within its rights.
                    Err(_) => break,
                    Ok(reply) => panic!("{command:?} was answered with {reply:?} by a range that is lost"),
                }
            }
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// PITFALLS 17: a primary is frozen for three leases, and goes on with reads waiting at its door.
#[test]
#[ignore = "needs the daemon"]
fn a_primary_that_was_frozen_does_not_answer_from_the_past() {
    for leases in [false, true] {
        let mut cluster = Cluster::start("frozen", &Options { leases, ..sync(3) });
        for round in 0..short_or(2, 20).as_secs() {
            let key = format!("frozen-{round}");
            let endpoints = endpoints(&cluster);
            let set = |daemon: usize, value: &str| {
                Connection::open(endpoints[daemon], Duration::from_secs(5))
                    .and_then(|mut connection| connection.call(&["SET", &key, value]))
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
                    // Nothing was done, or it says what is so.
                    Ok(Reply::Error(text)) => assert!(text.starts_with("TRYAGAIN"), "{text}"),
                    Ok(reply) => assert_eq!(reply, Reply::Bulk(Some("new".into())), "leases {leases}"),
                    Err(error) => panic!("a read was not answered: {error}"),
                }
            }
            cluster.wait_serving(&all(&cluster), SERVING_MAX);
        }
    }
}

/// A member is frozen for long under load: the others' memory stays as it is, and it catches up.
#[test]
#[ignore = "needs the daemon"]
fn a_frozen_member_costs_the_others_nothing() {
    let mut cluster = Cluster::start("flat", &sync(3));
    let recorder = Arc::new(Recorder::default());
    let load = Load::start(&recorder, &endpoints(&cluster), 8, 3, &Keys::default());
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
    cluster.wait_serving(&all(&cluster), SERVING_MAX);
    recorder.judge(&endpoints(&cluster));
    cluster.wait_same("serving", SERVING_MAX);
}

/// A clean stop loses nothing and is over in time, and the peer is a member still when it is back.
#[test]
#[ignore = "needs the daemon"]
fn a_clean_stop_is_quick_and_loses_nothing() {
    let mut cluster = Cluster::start("stop", &sync(3));
    let recorder = Arc::new(Recorder::default());
    let load = Load::start(&recorder, &endpoints(&cluster), 4, 4, &Keys::default());
    for index in 0..3 {
        std::thread::sleep(Duration::from_secs(1));
        cluster.daemons[index].signal(Signal::Terminate);
        let status = cluster.daemons[index].wait_end(Duration::from_secs(10)).expect("within 10 s");
        assert!(status.success(), "{status}");
        cluster.restart(index);
        cluster.wait_ready(index);
    }
    load.stop();
    cluster.wait_serving(&all(&cluster), SERVING_MAX);
    recorder.judge(&endpoints(&cluster));
}

/// PITFALLS 3: a stopped store is damaged or cut short. It is refused, or its peer begins anew; nothing that was
/// acknowledged is lost, and it does not crash again and again.
#[test]
#[ignore = "needs the daemon"]
fn damaged_stores_lose_nothing() {
    let mut cluster = Cluster::start("damage", &sync(3));
    let recorder = Arc::new(Recorder::default());
    let mut rng = Rng::new(5, "damage");
    for _ in 0..short_or(5, 50).as_secs() {
        let load = Load::start(&recorder, &endpoints(&cluster), 4, rng.bits(), &Keys::default());
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
            // It may refuse, and says so; then a person moves the store aside, but for the peer's identity.
            assert!(!cluster.daemons[victim].is_running(), "neither ready nor gone");
            assert!(!cluster.daemons[victim].log_text().trim().is_empty(), "it ended without a word");
            std::fs::remove_dir_all(&cluster.daemons[victim].directory).expect("the store can be removed");
            cluster.restart(victim);
            cluster.wait_ready(victim);
        }
        cluster.wait_serving(&all(&cluster), SERVING_MAX);
    }
    recorder.judge(&endpoints(&cluster));
}

/// Flips some bytes of, or cuts, one file of the store.
fn damage(directory: &std::path::Path, rng: &mut Rng) {
    let mut files = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(place) = open.pop() {
        for entry in std::fs::read_dir(place).expect("a store is a directory").flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => open.push(entry.path()),
                // The identity is no part of the store.
                _ if entry.file_name().to_string_lossy().contains("identity") => {}
                _ if entry.metadata().is_ok_and(|data| data.len() > 0) => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files.sort();
    let file = rng.pick(&files);
    let mut bytes = std::fs::read(file).expect("it can be read");
    let place = rng.below(bytes.len() as u64) as usize;
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

/// PITFALLS 19: one peer's wall clock is an hour off; nothing comes of it, deadlines neither.
#[test]
#[ignore = "needs the daemon, and an offset that tests can inject"]
fn a_wall_clock_an_hour_off_decides_nothing() {
    for offset in ["3600000", "-3600000"] {
        let environment = vec![(0, "SCATTER_TEST_WALL_OFFSET_MS".to_owned(), offset.to_owned())];
        let cluster = Cluster::start("wall", &Options { environment, ..sync(3) });
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

/// Nonsense at every door: the daemon answers with an error or hangs up, and goes on serving.
#[test]
#[ignore = "needs the daemon"]
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
                // Slow clients, who say half of something and stay.
                held.push(stream);
            }
        }
    }
    cluster.wait_serving(&[0], SERVING_MAX);
    assert!(cluster.daemons[0].is_running());
    let after = cluster.daemons[0].memory_bytes();
    assert!(after < before + (128 << 20), "it grew from {before} to {after} bytes");
}

/// A small disk fills: writes are refused with a clear error, reads go on, and when there is room again so do writes.
#[test]
#[ignore = "needs the daemon"]
fn a_full_disk_is_survived() {
    let place = std::env::temp_dir().join(format!("scatter-full-{}", std::process::id()));
    std::fs::create_dir_all(&place).expect("a place");
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=96m", "scatter-test"])
        .arg(&place)
        .stderr(std::process::Stdio::null())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: a small disk needs the right to mount one");
        let _ = std::fs::remove_dir(&place);
        return;
    }
    let _unmount = Unmount(place.clone());
    let mut directories: Vec<_> =
        (0..3).map(|index| std::env::temp_dir().join(format!("scatter-room-{index}-{}", std::process::id()))).collect();
    directories[2] = place.join("store");
    let cluster = Cluster::start("full", &Options { directories: Some(directories.clone()), ..sync(3) });
    let ballast = place.join("ballast");
    let fill = |bytes: usize| std::fs::write(&ballast, vec![0; bytes]);
    // As much as fits, in steps.
    let mut size = 90 << 20;
    while fill(size).is_err() && size > 1 << 20 {
        size -= 1 << 20;
    }
    let mut refused = 0;
    let mut through_others = 0;
    for round in 0..200 {
        let key = format!("full-{round}");
        let value = "x".repeat(30_000);
        for index in 0..3 {
            let reply = cluster.daemons[index]
                .connect(Duration::from_secs(5))
                .and_then(|mut connection| connection.call(&["SET", &key, &value]));
            match reply {
                Ok(Reply::Simple(_)) if index < 2 => through_others += 1,
                Ok(Reply::Error(text)) if text.starts_with("OOM") => refused += 1,
                _ => {}
            }
        }
    }
    println!("{through_others} writes through the others, {refused} refused");
    assert!(through_others > 100, "the others go on: {through_others}");
    std::fs::remove_file(&ballast).expect("it is there");
    cluster.wait_serving(&[0, 1], SERVING_MAX);
    drop(cluster);
    for directory in &directories[..2] {
        let _ = std::fs::remove_dir_all(directory);
    }
}

/// Takes the small disk away again.
struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
        let _ = std::fs::remove_dir(&self.0);
    }
}
