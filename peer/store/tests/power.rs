//! A power cut on a real file system: the content of a checkpoint is there afterwards, in all files of the table.
//!
//! ext4 is told to stop without writing anything more, as if the machine had lost its power. That needs root.

#[path = "common/volume.rs"]
mod volume;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use node::Change;
use store::{Engine, SledTables, StoreConfig, StoreEvent, StoreThread, Tables as _};
use volume::{Volume, run};

/// Script that stops the file system of a directory: data that was not synced does not get to its disk any more.
const SHUTDOWN: &str = "import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', 2))";

/// Size of a value in bytes: large enough for pages that sled would keep in files of their own, without a sync.
const VALUE_BYTES: usize = 20_000;
const RECORDS: u32 = 400;

fn config() -> StoreConfig {
    StoreConfig { cache_bytes: 4 << 20, ..StoreConfig::default() }
}

fn record(number: u32) -> (Bytes, Bytes) {
    (format!("{:08x}", number.wrapping_mul(0x9e37_79b1)).into(), vec![number as u8; VALUE_BYTES].into())
}

/// Runs a test on a file system of its own, where that is possible. One at a time: a process that another test starts has copies of all
/// descriptors until it executes its program, so the file system would be busy and the store locked.
fn on_volume(test: impl FnOnce(&Volume)) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    match Volume::ext4(512).and_then(|volume| run("python3", &["-c", "import fcntl"]).map(|()| volume)) {
        Ok(volume) => test(&volume),
        Err(why) => println!("skipped: a file system cannot be made, mounted and stopped here: {why}"),
    }
}

/// Returns a process of this program that plays this part, with its store there.
fn child_in(store: &Path, part: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", part, "--nocapture"]).env("STORE_CHILD_DIR", store);
    command
}

/// Starts such a process. Returns it and its output.
fn started(store: &Path, part: &str) -> (Child, BufReader<ChildStdout>) {
    let mut child = child_in(store, part).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("starts");
    let out = BufReader::new(child.stdout.take().expect("piped"));
    (child, out)
}

#[test]
fn what_a_checkpoint_holds_survives_a_power_cut() {
    on_volume(checkpoints);
}

fn checkpoints(volume: &Volume) {
    for rebuilt in [false, true] {
        let store = volume.path().join(format!("store-{rebuilt}"));
        // In a process of its own: no handle is left when the volume is mounted again.
        let output = child_in(&store, "child")
            .env("STORE_CHILD_REBUILDS", if rebuilt { "1" } else { "" })
            .output()
            .expect("runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        volume.again();
        let (engine, _) = Engine::open_dir(&store, &config()).unwrap_or_else(|error| panic!("{rebuilt}: {error}"));
        engine.verify().unwrap_or_else(|error| panic!("{rebuilt}: {error}"));
        for (key, value) in (0..RECORDS).map(record) {
            assert_eq!(engine.load(&key).expect("loads"), Some(value), "rebuilt: {rebuilt}");
        }
        drop(engine);
    }
}

/// Number of keys that are written over and over.
const KEYS: u64 = 97;

/// The power fails at any moment of a working store: large pages are written, flushed and removed, checkpoints are made.
#[test]
fn what_was_acknowledged_survives_a_power_cut() {
    on_volume(|volume| {
        let store = volume.path().join("store");
        for round in 0..ROUNDS {
            let (mut child, out) = started(&store, "working_child");
            let until = Duration::from_millis(150 + 130 * round);
            let (mut began, mut acknowledged, mut is_cut) = (None, 0, false);
            for line in out.lines() {
                let line = line.expect("text");
                let Some(number) = line.strip_prefix("ack ").and_then(|number| number.parse::<u64>().ok()) else {
                    continue;
                };
                if began.get_or_insert_with(Instant::now).elapsed() > until && !is_cut {
                    run("python3", &["-c", SHUTDOWN, volume.text()]).expect("stops the file system");
                    is_cut = true;
                }
                // A line that was printed in time and is read late may be from before the cut, and never from after it.
                acknowledged = number;
            }
            child.wait().expect("ends");
            volume.again();
            let (engine, restored) = Engine::open_dir(&store, &working()).unwrap_or_else(|error| panic!("{error}"));
            engine.verify().unwrap_or_else(|error| panic!("round {round}: {error}"));
            let next = restored.meta.get(&b"next"[..]).expect("an entry");
            let next = String::from_utf8_lossy(next).parse::<u64>().expect("a number");
            assert!(next >= acknowledged && acknowledged > 0, "{next} of {acknowledged} acknowledged");
            for number in next.saturating_sub(KEYS)..next {
                let (key, value) = overwritten(number);
                assert_eq!(engine.load(&key).expect("loads"), Some(value), "round {round}, {number} of {next}");
            }
        }
    });
}

const ROUNDS: u64 = 6;

/// The table alone, written over without a sync: it opens, and each key has a whole value.
#[test]
fn a_table_that_nobody_synced_survives_a_power_cut() {
    on_volume(|volume| {
        let store = volume.path().join("tables");
        for round in 0..3 {
            std::fs::create_dir_all(&store).expect("a directory");
            let (mut child, out) = started(&store, "careless_child");
            let until = Duration::from_millis(300 + 170 * round);
            let mut began = None;
            for line in out.lines() {
                let is_begin = line.expect("text").starts_with("written");
                let at = *began.get_or_insert_with(Instant::now);
                if is_begin && at.elapsed() > until {
                    break;
                }
            }
            run("python3", &["-c", SHUTDOWN, volume.text()]).expect("stops the file system");
            // The process may wait for its disk for ever.
            let _ = child.kill();
            child.wait().expect("ends");
            volume.again();
            let table = SledTables::new(&store, 4 << 20).open(1).unwrap_or_else(|error| panic!("{round}: {error}"));
            for key in 0..SMALL_KEYS {
                let value = table.get(&small(key).0).expect("reads").expect("a value");
                let number = u64::from_le_bytes(value[..8].try_into().expect("eight bytes"));
                assert_eq!((number % SMALL_KEYS, value), (key, small(number).1), "round {round}");
            }
        }
    });
}

/// Not a test by itself: the process of [`a_table_that_nobody_synced_survives_a_power_cut`].
#[test]
fn careless_child() {
    let Ok(dir) = std::env::var("STORE_CHILD_DIR") else { return };
    let table = SledTables::new(&dir, 4 << 20).open(1).expect("opens");
    for number in 0.. {
        let (key, value) = small(number);
        if table.apply(&[(key, Some(value))]).is_err() {
            std::process::exit(0);
        }
        if number == SMALL_KEYS {
            table.flush().expect("flushes");
        }
        if number > SMALL_KEYS && number % 16 == 0 {
            println!("written {number}");
        }
    }
}

/// Returns a record that is small enough for sled to keep it in its log.
fn small(number: u64) -> (Bytes, Bytes) {
    (format!("{:04}", number % SMALL_KEYS).into(), number.to_le_bytes().repeat(VALUE_BYTES / 80).into())
}

const SMALL_KEYS: u64 = 997;

/// Small limits, so that sweeps and checkpoints follow each other.
fn working() -> StoreConfig {
    StoreConfig {
        pending_bytes_max: 2 << 20,
        checkpoint_bytes: 4 << 20,
        segment_bytes: 1 << 20,
        ballast_bytes: 0,
        low_bytes: Some(0),
        ..config()
    }
}

fn overwritten(number: u64) -> (Bytes, Bytes) {
    let value = number.to_le_bytes().repeat(VALUE_BYTES / 8);
    (format!("{:02}", number % KEYS).into(), value.into())
}

/// Not a test by itself: the process of [`what_was_acknowledged_survives_a_power_cut`].
#[test]
fn working_child() {
    let Ok(dir) = std::env::var("STORE_CHILD_DIR") else { return };
    let (engine, restored) = Engine::open_dir(&dir, &working()).expect("opens");
    let next = restored.meta.get(&b"next"[..]).map(|next| String::from_utf8_lossy(next).parse().expect("a number"));
    #[expect(clippy::disallowed_methods, reason = "a test takes every message")]
    let (send, events) = channel();
    let mut thread = StoreThread::start(engine, move |_, event| drop(send.send(event))).expect("starts");
    for number in next.unwrap_or(0u64).. {
        let (key, value) = overwritten(number);
        let next = Change::PutMeta("next".into(), (number + 1).to_string().into());
        thread.persist(0, number + 1, vec![Change::PutRecord(key, value), next]);
        thread.submit();
        // Some at a time: so there is always data to write.
        for event in
            if number % 16 == 0 { events.iter().take(1).collect() } else { events.try_iter().collect::<Vec<_>>() }
        {
            match event {
                StoreEvent::Persisted(acknowledged) => println!("\nack {acknowledged}"),
                StoreEvent::Failed(_) => std::process::exit(0),
                _ => (),
            }
        }
    }
}

/// Not a test by itself: the process that loses its file system.
#[test]
fn child() {
    let Ok(dir) = std::env::var("STORE_CHILD_DIR") else { return };
    let (mut engine, _) = Engine::open_dir(&dir, &config()).expect("opens");
    for numbers in (0..RECORDS).collect::<Vec<_>>().chunks(20) {
        let batch = numbers.iter().map(|number| record(*number)).map(|(key, value)| Change::PutRecord(key, value));
        engine.append([batch.collect()]).expect("appends");
    }
    engine.checkpoint().expect("makes a checkpoint");
    if std::env::var("STORE_CHILD_REBUILDS").is_ok_and(|rebuilds| !rebuilds.is_empty()) {
        while engine.rebuild().expect("copies") {}
        engine.checkpoint().expect("makes a checkpoint");
        assert_eq!(engine.watch()().rebuilds, 1);
    }
    run("python3", &["-c", SHUTDOWN, &dir]).expect("stops the file system");
    // Nothing is dropped: there is nothing more to write to.
    std::process::exit(0);
}
