//! A disk that fills up: the store reports it while it still can, stops when it cannot go on, and opens again all the same.

#[path = "common/volume.rs"]
mod volume;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use bytes::Bytes;
use node::{Change, Restored, Tail};
use store::sim::{Fault, Loss, SimDisk, Site};
use store::{Engine, Shortage, StoreConfig, StoreError, StoreEvent, StoreThread};
use volume::Volume;

const MIB: u64 = 1 << 20;

fn open(disk: &SimDisk, config: &StoreConfig) -> Result<(Engine, Restored), StoreError> {
    Engine::open(Arc::new(disk.clone()), disk.tables(), config)
}

fn put(number: u64) -> Change {
    Change::PutRecord(Bytes::from(format!("key{number:08}")), Bytes::from(vec![number as u8; 1000]))
}

/// Appends records until the store reports that room is low. Returns their number.
fn fill_to_the_mark(engine: &mut Engine) -> u64 {
    for number in 0.. {
        engine.append([vec![put(number)]]).expect("there is room above the mark");
        if number % 16 == 0 {
            while engine.write_behind().expect("there is room above the mark") {}
        }
        if number % 128 == 0 {
            engine.checkpoint().expect("there is room above the mark");
        }
        if number % 32 == 0 && engine.room().expect("measures").low.is_some() {
            return number + 1;
        }
    }
    unreachable!("the disk is finite")
}

#[test]
fn low_is_said_while_there_is_room_for_a_clean_stop() {
    let disk = SimDisk::new();
    disk.set_capacity(16 * MIB);
    let config = StoreConfig { salt: Some(1), ..StoreConfig::default() };
    let (mut engine, _) = open(&disk, &config).expect("opens");
    assert!(engine.room().expect("measures").low.is_none());
    let count = fill_to_the_mark(&mut engine);
    assert!(count > 4000, "{count} records in 16 MiB");
    engine.seal().expect("there is room for a clean stop");
    let (mut engine, restored) = open(&disk.restart(Loss::All), &config).expect("opens");
    assert_eq!(restored.tail, Tail::Sealed);
    assert_eq!(engine.load(b"key00000000").expect("loads").map(|value| value.len()), Some(1000), "reads go on");
    disk.set_capacity(32 * MIB);
    assert!(engine.room().expect("measures").low.is_none(), "room again");
}

#[test]
fn a_limit_set_by_a_person_counts_like_the_disk() {
    let disk = SimDisk::new();
    let config = StoreConfig { disk_bytes_max: Some(16 * MIB), salt: Some(1), ..StoreConfig::default() };
    let (mut engine, _) = open(&disk, &config).expect("opens");
    fill_to_the_mark(&mut engine);
    let room = engine.room().expect("measures");
    assert!(room.used < 16 * MIB && room.free > 1 << 30 && room.low == Some(Shortage::Given), "{room:?}");
    engine.seal().expect("seals");
}

/// A caller that ignores the report runs into an error, for ever, and nothing is lost. The next start has the ballast.
#[test]
fn a_store_on_a_full_disk_opens_again() {
    let disk = SimDisk::new();
    disk.set_capacity(8 * MIB);
    let config = StoreConfig { salt: Some(1), ..StoreConfig::default() };
    let (mut engine, _) = open(&disk, &config).expect("opens");
    let mut acknowledged = 0;
    let error = (0..).find_map(|number| {
        let worked = engine.append([vec![put(number)]]).map(|()| acknowledged = number + 1);
        worked.and_then(|()| engine.write_behind().map(drop)).err()
    });
    assert!(error.is_some_and(|error| error.is_full()));
    assert!(engine.append([vec![put(0)]]).is_err_and(|error| error.is_full()), "for ever");
    drop(engine);
    let free = |disk: &SimDisk| store::Disk::space(disk).expect("measures").free;
    let disk = disk.restart(Loss::None);
    assert!(free(&disk) < 64 << 10, "{} bytes free", free(&disk));
    let (mut engine, restored) = open(&disk, &config).expect("the ballast made room");
    assert_eq!(restored.tail, Tail::Unsealed);
    assert_eq!(engine.room().expect("measures").low, Some(Shortage::Volume));
    for number in 0..acknowledged {
        assert_eq!(
            engine.load(format!("key{number:08}").as_bytes()).expect("loads").map(|value| value.len()),
            Some(1000)
        );
    }
}

fn start(engine: Engine) -> (StoreThread, Receiver<StoreEvent>) {
    #[expect(clippy::disallowed_methods, reason = "a test takes every message")]
    let (send, events) = channel();
    (StoreThread::start(engine, move |_, event| drop(send.send(event))).expect("starts"), events)
}

fn next(events: &Receiver<StoreEvent>) -> StoreEvent {
    events.recv_timeout(Duration::from_secs(30)).expect("an event")
}

#[test]
fn the_threads_say_that_room_is_low_and_that_it_is_no_longer() {
    let disk = SimDisk::new();
    disk.set_capacity(16 * MIB);
    let (engine, _) = open(&disk, &StoreConfig { salt: Some(1), ..StoreConfig::default() }).expect("opens");
    let (mut thread, events) = start(engine);
    let mut number = 0;
    while number < 20_000 {
        number += 1;
        thread.persist(0, number, vec![put(number)]);
        thread.submit();
        match next(&events) {
            StoreEvent::DiskLow(low) => {
                assert_eq!(low, Some(Shortage::Volume));
                break;
            }
            StoreEvent::Persisted(_) if number % 100 == 0 => std::thread::sleep(Duration::from_millis(40)),
            StoreEvent::Persisted(_) | StoreEvent::Behind(_) => (),
            other => panic!("{other:?}"),
        }
    }
    disk.set_capacity(64 * MIB);
    loop {
        match next(&events) {
            StoreEvent::DiskLow(low) => break assert_eq!(low, None),
            StoreEvent::Persisted(_) | StoreEvent::Behind(_) => (),
            other => panic!("{other:?}"),
        }
    }
    thread.seal().expect("seals");
}

/// A volume that other programs fill: deferrable writes do not reach the table, and the store goes on, because its journal has
/// its room.
#[test]
fn a_store_outlives_a_time_without_room() {
    let disk = SimDisk::new();
    disk.set_capacity(64 * MIB);
    let (engine, _) = open(&disk, &StoreConfig { salt: Some(1), ..StoreConfig::default() }).expect("opens");
    let (mut thread, events) = start(engine);
    let put_and_wait = |thread: &mut StoreThread, number| {
        thread.persist(0, number, vec![put(number)]);
        thread.submit();
        loop {
            match next(&events) {
                StoreEvent::Persisted(token) if token == number => return,
                StoreEvent::DiskLow(_) => (),
                other => panic!("{other:?}"),
            }
        }
    };
    put_and_wait(&mut thread, 1);
    let free = store::Disk::space(&disk).expect("measures").free;
    disk.set_capacity(64 * MIB - free);
    // As long as two sweeps of a store with little room would need to begin.
    for number in 2..=25 {
        put_and_wait(&mut thread, number);
        std::thread::sleep(Duration::from_millis(100));
    }
    disk.set_capacity(64 * MIB);
    put_and_wait(&mut thread, 26);
    thread.seal().expect("seals");
    let (engine, restored) = open(&disk.restart(Loss::All), &StoreConfig::default()).expect("opens");
    assert_eq!(restored.tail, Tail::Sealed);
    for number in 1..=26 {
        assert!(engine.load(format!("key{number:08}").as_bytes()).expect("loads").is_some(), "{number}");
    }
}

#[test]
fn the_threads_say_that_much_is_left_to_write_and_that_it_is_no_longer() {
    // The write-behind begins at 32 KiB, and counts as behind from 48 KiB on: one batch, with the weight of each change.
    let config = StoreConfig { pending_bytes_max: 64 << 10, behind_bytes: 4 << 10, ..StoreConfig::default() };
    let disk = SimDisk::new();
    let (engine, _) = open(&disk, &StoreConfig { salt: Some(1), ..config }).expect("opens");
    let (mut thread, events) = start(engine);
    let mut said = Vec::new();
    for round in 0.. {
        // Now and then the backlog is gone before it is measured: then it is not reported.
        thread.persist(0, round, (0..48).map(put).collect());
        thread.submit();
        loop {
            match next(&events) {
                StoreEvent::Behind(behind) => said.push(behind),
                StoreEvent::Persisted(token) => break assert_eq!(token, round),
                other => panic!("{other:?}"),
            }
        }
        if said.len() >= 6 {
            break;
        }
    }
    assert_eq!(said[..6], [true, false, true, false, true, false]);
    thread.seal().expect("seals");
}

/// A failure at any call of any thread is reported once. Nothing hangs, nothing is acknowledged after it, and nothing is lost.
#[test]
fn a_failure_in_any_thread_is_said_once_and_nothing_hangs() {
    let config = StoreConfig {
        segment_bytes: 4096,
        pending_bytes_max: 4096,
        behind_bytes: 1024,
        checkpoint_bytes: 8192,
        ballast_bytes: 0,
        low_bytes: Some(0),
        salt: Some(1),
        ..StoreConfig::default()
    };
    let mut failures = 0;
    for nth in (1..400).step_by(3) {
        let disk = SimDisk::new();
        let (engine, _) = open(&disk, &config).expect("opens");
        disk.plan(nth, Fault::Error(std::io::ErrorKind::Other));
        let (mut thread, events) = start(engine);
        for token in 1..=60 {
            thread.persist(0, token, vec![put(token % 7)]);
            thread.submit();
            thread.load(0, "key00000001".into(), true);
        }
        let sealed = thread.seal();
        let (mut acknowledged, mut failed) = (0, 0);
        for event in events {
            match event {
                StoreEvent::Persisted(token) => {
                    assert!(token > acknowledged);
                    acknowledged = token;
                }
                StoreEvent::Failed(_) => failed += 1,
                StoreEvent::Loaded { .. } | StoreEvent::Behind(_) => (),
                other => panic!("{other:?}"),
            }
        }
        let happened = disk.unplan();
        assert!(failed <= 1);
        assert!(happened || sealed.is_ok(), "call {nth}");
        assert!(failed == 0 || sealed.is_err(), "call {nth}");
        failures += failed;
        let disk = disk.restart(Loss::All);
        match open(&disk, &config) {
            Ok((engine, restored)) => {
                assert_eq!(restored.tail == Tail::Sealed, sealed.is_ok());
                for token in acknowledged.saturating_sub(6).max(1)..=acknowledged {
                    let key = format!("key{:08}", token % 7);
                    let value = engine.load(key.as_bytes()).expect("loads").expect("was acknowledged");
                    assert_eq!(value.len(), 1000);
                }
            }
            Err(error) => assert!(error.is_damage() && sealed.is_err_and(|error| error.is_damage()), "{error}"),
        }
    }
    assert!(failures > 20, "{failures}");
}

/// The same on a real file system of 24 MiB with sled, where this process may mount one.
#[test]
fn a_real_full_disk_is_survived() {
    match Volume::tmpfs(24) {
        Ok(volume) => fill_a_real_disk(&volume.path().join("store")),
        Err(why) => println!("skipped: this process may not mount: {why}"),
    }
}

fn small_cache() -> StoreConfig {
    StoreConfig { cache_bytes: 4 << 20, ..StoreConfig::default() }
}

fn fill_a_real_disk(dir: &Path) {
    // In a process of its own: a sled that met a full disk keeps its lock until its process ends.
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "child", "--nocapture"])
        .env("STORE_CHILD_DIR", dir)
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    let acknowledged = said.lines().find_map(|line| line.strip_prefix("full after ")?.parse::<u64>().ok());
    let acknowledged = acknowledged.expect("it came to the end of the disk");
    let (engine, _) = Engine::open_dir(dir, &small_cache()).expect("the ballast made room");
    engine.verify().expect("is sound");
    for number in 0..acknowledged {
        let value = engine.load(format!("key{number:08}").as_bytes()).expect("loads");
        assert_eq!(value.map(|value| value.len()), Some(1000), "{number}");
    }
}

/// Not a test by itself: the process that fills the disk of [`a_real_full_disk_is_survived`].
#[test]
fn child() {
    let Ok(dir) = std::env::var("STORE_CHILD_DIR") else {
        return;
    };
    let (mut engine, _) = Engine::open_dir(&dir, &small_cache()).expect("opens");
    let marked = fill_to_the_mark(&mut engine);
    engine.seal().expect("there is room for a clean stop");
    let (mut engine, restored) = Engine::open_dir(&dir, &small_cache()).expect("opens");
    assert_eq!(restored.tail, Tail::Sealed);
    engine.verify().expect("is sound");
    let mut acknowledged = marked;
    let error = (marked..).find_map(|number| {
        let worked = engine.append([vec![put(number)]]).map(|()| acknowledged = number + 1);
        worked.and_then(|()| engine.write_behind().map(drop)).err()
    });
    let error = error.expect("the disk is finite");
    assert!(error.is_full(), "{error}");
    println!("\nlow after {marked} records: then {error}\nfull after {acknowledged}");
}

/// Advice of a store after an error at this site, of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    /// Make room, or check the disk, and start again: all data is there.
    Stop,
    /// The table cannot be trusted any more.
    Damaged,
}

/// A full and a broken disk at each place that a running store writes to: reported once and in fitting words, nothing hangs,
/// and nothing acknowledged is lost.
#[test]
fn each_place_that_is_written_may_be_full_or_broken() {
    use std::io::ErrorKind::{Other, StorageFull};
    let cases = [
        (Site::Write("journal"), StorageFull, Says::Stop),
        (Site::Write("journal"), Other, Says::Stop),
        (Site::Sync("journal"), StorageFull, Says::Stop),
        (Site::Sync("journal"), Other, Says::Stop),
        (Site::Apply, StorageFull, Says::Stop),
        (Site::Apply, Other, Says::Stop),
        (Site::Flush, StorageFull, Says::Stop),
        (Site::Flush, Other, Says::Damaged),
        (Site::Create("manifest"), StorageFull, Says::Stop),
        (Site::Create("manifest"), Other, Says::Stop),
        (Site::Write("manifest"), StorageFull, Says::Stop),
        (Site::Write("manifest"), Other, Says::Stop),
        (Site::Sync("manifest"), StorageFull, Says::Stop),
        (Site::Sync("manifest"), Other, Says::Stop),
        (Site::Rename("manifest"), StorageFull, Says::Stop),
        (Site::Rename("manifest"), Other, Says::Stop),
        (Site::SyncDir, StorageFull, Says::Stop),
        (Site::SyncDir, Other, Says::Stop),
    ];
    let config = StoreConfig {
        segment_bytes: 16 << 10,
        pending_bytes_max: 4096,
        behind_bytes: 1024,
        checkpoint_bytes: 8192,
        ballast_bytes: 0,
        low_bytes: Some(0),
        salt: Some(1),
        ..StoreConfig::default()
    };
    for (site, kind, says) in cases {
        let case = format!("{site:?}, {kind:?}");
        let disk = SimDisk::new();
        let (engine, _) = open(&disk, &config).expect("opens");
        let (mut thread, events) = start(engine);
        disk.plan_at(site, Fault::Error(kind));
        let (mut acknowledged, mut error) = (0, None);
        for token in 1..2000 {
            thread.persist(0, token, vec![put(token)]);
            thread.submit();
            // One at a time: so each is answered, unless the store has failed.
            let answer = loop {
                match next(&events) {
                    StoreEvent::Behind(_) => (),
                    other => break other,
                }
            };
            match answer {
                StoreEvent::Persisted(last) => acknowledged = last,
                StoreEvent::Failed(failed) => {
                    error = Some(failed);
                    break;
                }
                other => panic!("{case}: {other:?}"),
            }
        }
        let error = error.unwrap_or_else(|| panic!("{case}: never met"));
        assert_eq!(error.is_full(), kind == StorageFull, "{case}: {error}");
        assert_eq!(error.is_damage(), says == Says::Damaged, "{case}: {error}");
        thread.abandon(Duration::from_secs(60));
        match open(&disk.restart(Loss::All), &config) {
            Ok((engine, _)) => {
                for token in 1..=acknowledged {
                    let key = format!("key{token:08}");
                    assert!(engine.load(key.as_bytes()).expect("loads").is_some(), "{case}: {key} is lost");
                }
            }
            Err(error) => assert!(says == Says::Damaged && error.is_damage(), "{case}: {error}"),
        }
    }
}

/// A table that waits for ever for a failed write, as sled's destructor does: a process that gives the store up goes on, and
/// its directory is free.
#[test]
fn a_table_that_hangs_does_not_hold_up_the_end() {
    let config = StoreConfig {
        pending_bytes_max: 4096,
        behind_bytes: 1024,
        ballast_bytes: 0,
        low_bytes: Some(0),
        salt: Some(1),
        ..StoreConfig::default()
    };
    for (is_writing, patience) in [(true, Duration::ZERO), (false, Duration::from_secs(60))] {
        let disk = SimDisk::new();
        let (engine, _) = open(&disk, &config).expect("opens");
        let (mut thread, events) = start(engine);
        if !is_writing {
            disk.plan_at(Site::Apply, Fault::Error(std::io::ErrorKind::StorageFull));
            thread.persist(0, 1, (0..48).map(put).collect());
            thread.submit();
            while !matches!(next(&events), StoreEvent::Failed(_)) {}
        }
        disk.hang_table();
        if is_writing {
            thread.persist(0, 1, (0..48).map(put).collect());
            thread.submit();
            while !matches!(next(&events), StoreEvent::Persisted(_)) {}
        }
        thread.abandon(patience);
        assert!(store::Disk::lock(&disk).expect("asks").is_some(), "writing: {is_writing}");
    }
}
