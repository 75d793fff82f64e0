//! Deletion makes room: the store itself rebuilds a table whose files take several times the size of its content.

#[path = "common/volume.rs"]
mod volume;

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use node::Change;
use store::{Engine, Shortage, StoreConfig, StoreEvent, StoreThread};
use volume::Volume;

const MIB: u64 = 1 << 20;
/// Time limit of all waits.
const PATIENCE: Duration = Duration::from_secs(60);

fn config() -> StoreConfig {
    StoreConfig { disk_bytes_max: Some(64 * MIB), cache_bytes: 4 * MIB, ..StoreConfig::default() }
}

struct Bench {
    thread: StoreThread,
    events: Receiver<StoreEvent>,
    /// Newest report about the room.
    low: Option<Shortage>,
    token: u64,
}

impl Bench {
    fn new(dir: &Path) -> Bench {
        #[expect(clippy::disallowed_methods, reason = "a test takes every message")]
        let (send, events) = channel();
        let (engine, _) = Engine::open_dir(dir, &config()).expect("opens");
        let thread = StoreThread::start(engine, move |_, event| drop(send.send(event))).expect("starts");
        Bench { thread, events, low: None, token: 0 }
    }

    /// Makes a batch durable.
    fn commit(&mut self, changes: Vec<Change>) {
        self.token += 1;
        self.thread.persist(0, self.token, changes);
        self.thread.submit();
        while !matches!(self.next(), StoreEvent::Persisted(token) if token == self.token) {}
    }

    fn next(&mut self) -> StoreEvent {
        let event = self.events.recv_timeout(PATIENCE).expect("an event");
        match event {
            StoreEvent::DiskLow(low) => self.low = low,
            StoreEvent::Failed(error) => panic!("{error}"),
            _ => (),
        }
        event
    }

    fn wait_for_room(&mut self) {
        while self.low.is_some() {
            self.next();
        }
    }

    /// Writes values of `bytes` bytes until room is low. Returns their number.
    fn fill(&mut self, bytes: usize) -> u32 {
        let mut count = 0;
        while self.low.is_none() {
            self.commit((count..count + 10).map(|number| put(number, bytes)).collect());
            count += 10;
        }
        assert_eq!(self.low, Some(Shortage::Given));
        count
    }
}

fn key(number: u32) -> Bytes {
    // In no order, as places on a ring are.
    format!("{:08x}", number.wrapping_mul(0x9e37_79b1)).into()
}

fn put(number: u32, bytes: usize) -> Change {
    Change::PutRecord(key(number), vec![number as u8; bytes].into())
}

/// Twice, with large values and with small ones: full, all but every tenth deleted, and room again.
#[test]
fn deleting_makes_room_below_a_limit() {
    for bytes in [20_000, 1000] {
        let dir = tempfile::tempdir().expect("a directory");
        let store = dir.path().join("store");
        let mut bench = Bench::new(&store);
        let watch = bench.thread.watch();
        for _ in 0..2 {
            let count = bench.fill(bytes);
            assert!(count as usize > 16 * MIB as usize / bytes, "room is low after {count} values of {bytes} bytes");
            let before = watch().rebuilds;
            for numbers in (0..count).collect::<Vec<_>>().chunks(100) {
                let dropped = numbers.iter().filter(|number| *number % 10 > 0);
                bench.commit(dropped.map(|number| Change::DropRecord(key(*number))).collect());
            }
            bench.wait_for_room();
            // A shorter journal may have made room for a moment.
            let deleted = Instant::now();
            while watch().rebuilds == before {
                assert!(deleted.elapsed() < PATIENCE, "the table is not rebuilt");
                std::thread::sleep(Duration::from_millis(10));
            }
            println!("{count} values of {bytes} bytes: {} bytes used after a rebuild", watch().used_bytes);
            // In use as before, with either table.
            bench.thread.load(0, key(0), true);
            while !matches!(bench.next(), StoreEvent::Loaded { record: Some(record), .. } if record.len() == bytes) {}
            // Room may have been low once more before the rebuild, which is counted before its room is measured.
            bench.wait_for_room();
        }
        bench.thread.seal().expect("seals");
        let (engine, _) = Engine::open_dir(&store, &config()).expect("opens");
        engine.verify().expect("is sound");
        let (records, _) = engine.scan(b"", usize::MAX).expect("scans");
        assert!(records.len() > 30 && records.iter().all(|(_, value)| value.len() == bytes), "{}", records.len());
        let tables = std::fs::read_dir(&store).expect("lists").filter(|entry| {
            entry.as_ref().is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("table-"))
        });
        assert_eq!(tables.count(), 1, "former tables are removed");
    }
}

/// A volume of 24 MiB with sled on it, where this process may mount one: a rebuild that finds no room is given up, its room
/// comes back, and the store goes on.
#[test]
fn a_rebuild_without_room_is_given_up() {
    match Volume::tmpfs(24) {
        Ok(volume) => rebuild_without_room(&volume.path().join("store")),
        Err(why) => println!("skipped: this process may not mount: {why}"),
    }
}

fn rebuild_without_room(dir: &Path) {
    let config = StoreConfig { cache_bytes: MIB, ..StoreConfig::default() };
    let (mut engine, _) = Engine::open_dir(dir, &config).expect("opens");
    let mut count = 0;
    while engine.room().expect("measures").low.is_none() {
        engine.append([(count..count + 100).map(|number| put(number, 1000)).collect()]).expect("there is room");
        engine.checkpoint().expect("there is room");
        count += 100;
    }
    let before = engine.room().expect("measures").free;
    while engine.rebuild().expect("a store that goes on") {}
    assert_eq!(engine.watch()().given_up, 1, "{count} records fit twice");
    let after = engine.room().expect("measures").free;
    assert!(after + MIB > before, "{after} bytes are free, and were {before}");
    engine.append([vec![Change::DropRecord(key(0)), put(count, 1000)]]).expect("goes on");
    engine.checkpoint().expect("goes on");
    engine.verify().expect("is sound");
    engine.seal().expect("seals");
    let (engine, _) = Engine::open_dir(dir, &config).expect("opens");
    let (records, _) = engine.scan(b"", usize::MAX).expect("scans");
    assert_eq!(records.len() as u32, count);
}
