//! Content of the table on disk: of records that change all the time only their newest states, and never less than the
//! journal gives up.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use node::Change;
use store::sim::{Loss, SimDisk};
use store::{Engine, StoreConfig, Table, TableError, Tables};

/// Tables that count the records written to them.
struct Counting<T> {
    tables: T,
    records: Arc<AtomicUsize>,
}

struct CountingTable {
    table: Box<dyn Table>,
    records: Arc<AtomicUsize>,
}

impl<T: Tables> Tables for Counting<T> {
    fn open(&self, number: u64) -> Result<Box<dyn Table>, TableError> {
        Ok(Box::new(CountingTable { table: self.tables.open(number)?, records: self.records.clone() }))
    }

    fn remove(&self, number: u64) -> io::Result<()> {
        self.tables.remove(number)
    }

    fn list(&self) -> io::Result<Vec<u64>> {
        self.tables.list()
    }
}

impl Table for CountingTable {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TableError> {
        self.table.get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], bytes_max: usize) -> Result<Vec<(Bytes, Bytes)>, TableError> {
        self.table.scan(from, to, bytes_max)
    }

    fn last(&self, from: &[u8], upto: &[u8]) -> Result<Option<(Bytes, Bytes)>, TableError> {
        self.table.last(from, upto)
    }

    fn apply(&self, changes: &[(Bytes, Option<Bytes>)]) -> Result<(), TableError> {
        self.records.fetch_add(changes.iter().filter(|(key, _)| key.starts_with(b"r")).count(), Ordering::Relaxed);
        self.table.apply(changes)
    }

    fn flush(&self) -> Result<(), TableError> {
        self.table.flush()
    }

    fn disk_bytes(&self) -> Result<u64, TableError> {
        self.table.disk_bytes()
    }
}

/// Portions of about 10 records, and each in a block of its own.
fn config() -> StoreConfig {
    StoreConfig {
        behind_bytes: 2000,
        block_bytes: 1,
        ballast_bytes: 0,
        low_bytes: Some(0),
        salt: Some(1),
        ..StoreConfig::default()
    }
}

fn open(disk: &SimDisk, records: &Arc<AtomicUsize>) -> Engine {
    let tables = Counting { tables: disk.tables(), records: records.clone() };
    Engine::open(Arc::new(disk.clone()), tables, &config()).expect("opens").0
}

fn key(number: usize) -> Bytes {
    format!("key{number:03}").into()
}

/// Sets 100 keys.
fn change_all(engine: &mut Engine, round: u8) {
    engine.append(changes(round)).expect("appends");
}

fn changes(round: u8) -> impl Iterator<Item = Vec<Change>> {
    (0..100).map(move |number| vec![Change::PutRecord(key(number), vec![round; 60].into())])
}

fn assert_all(engine: &Engine, round: u8) {
    for number in 0..100 {
        let value = engine.load(&key(number)).expect("loads").expect("is there");
        assert!(value.iter().all(|byte| *byte == round), "key {number}: {value:?}");
    }
}

#[test]
fn a_record_that_changes_often_is_written_once() {
    let (disk, records) = (SimDisk::new(), Arc::default());
    let mut engine = open(&disk, &records);
    (0..50).for_each(|round| change_all(&mut engine, round));
    engine.checkpoint().expect("makes a checkpoint");
    assert_eq!(records.load(Ordering::Relaxed), 100);
    assert_all(&engine, 49);
    engine.checkpoint().expect("nothing to do");
    assert_eq!(records.load(Ordering::Relaxed), 100);
}

/// A record that changes again during a sweep is left to the next one, stands in the journal until then, and is found there
/// after `kill -9` and after a power cut.
#[test]
fn a_record_that_changes_during_a_sweep_is_passed_over_and_not_lost() {
    for loss in [Loss::Process, Loss::All, Loss::Some(7)] {
        let (disk, records) = (SimDisk::new(), Arc::default());
        let mut engine = open(&disk, &records);
        change_all(&mut engine, 1);
        assert!(engine.write_behind().expect("writes behind"), "a portion is not all");
        let first = records.load(Ordering::Relaxed);
        assert!((1..50).contains(&first), "{first}");
        change_all(&mut engine, 2);
        while engine.write_behind().expect("writes behind") {}
        assert_eq!(records.load(Ordering::Relaxed), first, "the others were passed over");
        assert_all(&engine, 2);
        drop(engine);
        let disk = disk.restart(loss);
        let mut engine = open(&disk, &records);
        assert_all(&engine, 2);
        engine.checkpoint().expect("makes a checkpoint");
        assert_eq!(records.load(Ordering::Relaxed), first + 100);
        engine.verify().expect("the books are right");
        assert_all(&engine, 2);
    }
}

/// Records that a sweep passes over stand in the journal only. A checkpoint before their successors are durable would lose
/// them.
#[test]
fn a_checkpoint_waits_for_what_was_passed_over() {
    let (disk, records) = (SimDisk::new(), Arc::default());
    let mut engine = open(&disk, &records);
    change_all(&mut engine, 1);
    assert!(engine.write_behind().expect("writes behind"), "a portion is not all");
    let staged: Vec<_> = changes(2).map(|changes| engine.stage(changes)).collect();
    for _ in 0..50 {
        engine.write_behind().expect("writes behind");
    }
    assert_eq!(engine.load(&key(99)).expect("loads"), Some(vec![2; 60].into()), "what is handed out is seen");
    let other = disk.fork();
    assert_all(&open(&other.restart(Loss::All), &records), 1);
    engine.commit(&staged).expect("commits");
    engine.checkpoint().expect("makes a checkpoint");
    assert_all(&engine, 2);
    drop(engine);
    assert_all(&open(&disk.restart(Loss::All), &records), 2);
}
