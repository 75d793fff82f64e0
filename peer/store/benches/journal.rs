//! Cost of the store on top of the disk: commits of 64 batches that wait, beside a minimal journal.
//!
//! One run interleaves all variants, round after round, and compares within each round, since a disk's speed drifts. The
//! whole store begins anew with each round: its writes behind the journal must not run in another variant's round, and
//! its long-run behaviour with only new keys is the table's speed, not the journal's.
//!
//! ```text
//! cargo bench -p store --bench journal [-- ROUNDS [DIRECTORY]]
//! ```

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use node::Change;
use store::{Engine, StoreConfig, StoreEvent, StoreThread};

const WAITING: u64 = 64;
const VALUE: usize = 200;
const ROUND: Duration = Duration::from_millis(1000);

fn main() {
    // `cargo bench` adds `--bench`.
    let arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect::<Vec<_>>();
    let rounds = arguments.first().and_then(|rounds| rounds.parse().ok()).unwrap_or(9_usize);
    let dir = arguments
        .get(1)
        .map_or_else(std::env::temp_dir, PathBuf::from)
        .join(format!("store-bench-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a directory to work in");
    let mut variants: Vec<(&str, Box<dyn Variant>)> = vec![
        ("bare", Box::new(Bare::new(&dir.join("bare")))),
        ("engine", Box::new(Plain::new(&dir.join("engine")))),
        ("thread, 10,000 keys", Box::new(Threads::new(&dir.join("thread"), 10_000))),
        ("thread, ever new keys", Box::new(Threads::new(&dir.join("fresh"), u64::MAX))),
    ];
    let mut rates = vec![Vec::new(); variants.len()];
    for round in 0..=rounds {
        for (number, (_, variant)) in variants.iter_mut().enumerate() {
            let (began, mut done) = (Instant::now(), 0);
            while began.elapsed() < ROUND {
                done += variant.commit();
            }
            let rate = done as f64 / began.elapsed().as_secs_f64();
            variant.rest();
            if round > 0 {
                rates[number].push(rate); // The first round warms up.
            }
        }
    }
    println!("{WAITING} waiting, batches of one change of about 250 bytes, {rounds} rounds of {ROUND:?}");
    println!("{:>24} {:>12} {:>10}", "", "batches/s", "of bare");
    for ((name, _), own) in variants.iter().zip(&rates) {
        let ratios = own.iter().zip(&rates[0]).map(|(own, bare)| own / bare).collect();
        println!("{name:>24} {:>12.0} {:>9.0}%", median(own.clone()), 100.0 * median(ratios));
    }
    drop(variants);
    let _ = fs::remove_dir_all(&dir);
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

trait Variant {
    /// Commits some batches, at most 64 at once. Returns their number.
    fn commit(&mut self) -> u64;
    /// Called after each round: remaining work must not run in another variant's round.
    fn rest(&mut self) {}
}

fn change(number: u64, keys: u64) -> Change {
    let key = format!(
        "a key of some length that names what it is about {:020}",
        (number % keys).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    );
    Change::PutRecord(Bytes::from(key), Bytes::from(vec![number as u8; VALUE - 20]))
}

/// Writes and syncs, in space that was written before, and does nothing else.
struct Bare {
    file: File,
    at: u64,
    number: u64,
}

const BARE_BYTES: u64 = 8 << 20;

impl Bare {
    fn new(path: &Path) -> Bare {
        let file = OpenOptions::new().write(true).create_new(true).open(path).expect("a new file");
        file.write_all_at(&vec![0; BARE_BYTES as usize], 0).and_then(|()| file.sync_all()).expect("written ahead");
        Bare { file, at: 0, number: 0 }
    }
}

impl Variant for Bare {
    fn commit(&mut self) -> u64 {
        let mut buffer = Vec::with_capacity(32 << 10);
        for _ in 0..WAITING {
            self.number += 1;
            let Change::PutRecord(key, value) = change(self.number, u64::MAX) else { unreachable!("as made above") };
            buffer.extend_from_slice(&[0; 8]);
            buffer.extend_from_slice(&key);
            buffer.extend_from_slice(&value);
        }
        if self.at + buffer.len() as u64 > BARE_BYTES {
            self.at = 0;
        }
        self.file.write_all_at(&buffer, self.at).and_then(|()| self.file.sync_data()).expect("written");
        self.at += buffer.len() as u64;
        WAITING
    }
}

/// The engine in one thread. Its write-behind runs between the rounds.
struct Plain {
    engine: Engine,
    number: u64,
}

impl Plain {
    fn new(dir: &Path) -> Plain {
        Plain { engine: Engine::open_dir(dir, &StoreConfig::default()).expect("opens").0, number: 0 }
    }
}

impl Variant for Plain {
    fn commit(&mut self) -> u64 {
        let batches = (0..WAITING).map(|_| {
            self.number += 1;
            vec![change(self.number, 10_000)]
        });
        self.engine.append(batches.collect::<Vec<_>>()).expect("appends");
        WAITING
    }

    fn rest(&mut self) {
        self.engine.checkpoint().expect("makes a checkpoint");
    }
}

/// The whole store, with its threads. The loop hands in as many batches as were acknowledged.
struct Threads {
    store: Option<(StoreThread, Receiver<StoreEvent>)>,
    dir: PathBuf,
    keys: u64,
    number: u64,
    handed: u64,
    acknowledged: u64,
}

impl Threads {
    fn new(dir: &Path, keys: u64) -> Threads {
        let mut threads = Threads { store: None, dir: dir.to_path_buf(), keys, number: 0, handed: 0, acknowledged: 0 };
        threads.begin();
        threads
    }

    fn begin(&mut self) {
        self.store = None;
        let _ = fs::remove_dir_all(&self.dir);
        let (engine, _) = Engine::open_dir(&self.dir, &StoreConfig::default()).expect("opens");
        #[expect(clippy::disallowed_methods, reason = "a test takes every message")]
        let (send, events) = channel();
        let thread = StoreThread::start(engine, move |_, event| drop(send.send(event))).expect("starts");
        self.store = Some((thread, events));
        (self.handed, self.acknowledged) = (0, 0);
    }

    fn wait(&mut self) -> u64 {
        let (_, events) = self.store.as_ref().expect("it was begun");
        match events.recv().expect("the store lives") {
            StoreEvent::Persisted(token) => token - std::mem::replace(&mut self.acknowledged, token),
            StoreEvent::DiskLow(_) | StoreEvent::Behind(_) => 0,
            other => panic!("{other:?}"),
        }
    }
}

impl Variant for Threads {
    fn commit(&mut self) -> u64 {
        let (thread, _) = self.store.as_mut().expect("it was begun");
        while self.handed < self.acknowledged + WAITING {
            self.handed += 1;
            self.number += 1;
            thread.persist(0, self.handed, vec![change(self.number, self.keys)]);
        }
        thread.submit();
        self.wait()
    }

    fn rest(&mut self) {
        self.begin();
    }
}
