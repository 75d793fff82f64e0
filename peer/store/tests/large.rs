//! A store of a million records after `kill -9`. Slow without optimisation, so only on demand: `cargo test --release -p
//! store --test large -- --ignored --nocapture`.

use std::process::Command;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use node::{Change, Tail};
use store::{Engine, StoreConfig, StoreEvent, StoreThread};

const RECORDS: u64 = 1_000_000;

fn key(number: u64) -> Vec<u8> {
    // As the keys of a ring are: spread by a hash.
    let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    [&spread[..], &spread[..], format!("user:{number}").as_bytes()].concat()
}

/// Not a test by itself: the process that is killed, as soon as all records are acknowledged or only once nearly all of
/// them are in the table.
#[test]
#[ignore]
fn child() {
    let Ok(dir) = std::env::var("STORE_CHILD_DIR") else {
        return;
    };
    let settled = std::env::var_os("STORE_CHILD_SETTLED").is_some();
    let (mut engine, _) = Engine::open_dir(&dir, &StoreConfig::default()).expect("opens");
    let put = |number: u64| Change::PutRecord(key(number).into(), format!("value {number}").into());
    let began = Instant::now();
    let mut first = 1;
    if settled {
        first = RECORDS - 10_000;
        for some in (1..first).collect::<Vec<_>>().chunks(2000) {
            engine.append(some.iter().map(|number| vec![put(*number)])).expect("appends");
            if some[0] % 20_000 == 1 {
                while engine.write_behind().expect("writes behind") {}
            }
        }
        engine.checkpoint().expect("makes a checkpoint");
        println!("{first} records in the table after {:?}", began.elapsed());
    }
    #[expect(clippy::disallowed_methods, reason = "a test takes every message")]
    let (send, events) = channel();
    let mut thread = StoreThread::start(engine, move |_, event| drop(send.send(event))).expect("starts");
    let mut acknowledged = 0;
    for number in first..=RECORDS {
        thread.persist(0, number, vec![put(number)]);
        if number % 64 == 0 || number == RECORDS {
            thread.submit();
        }
        while number == RECORDS && acknowledged < RECORDS || number > acknowledged.max(first) + 4096 {
            match events.recv().expect("the store lives") {
                StoreEvent::Persisted(token) => acknowledged = token,
                StoreEvent::DiskLow(_) | StoreEvent::Behind(_) => (),
                other => panic!("{other:?}"),
            }
        }
    }
    println!("{RECORDS} records acknowledged after {:?}", began.elapsed());
    std::process::abort();
}

#[test]
#[ignore]
fn a_million_records_start_within_seconds() {
    start_after_kill(false);
}

#[test]
#[ignore]
fn a_million_records_in_the_table_start_within_seconds() {
    start_after_kill(true);
}

fn start_after_kill(settled: bool) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    child.args(["--exact", "child", "--ignored", "--nocapture"]).env("STORE_CHILD_DIR", dir.path());
    if settled {
        child.env("STORE_CHILD_SETTLED", "1");
    }
    let ended = child.status().expect("runs");
    assert!(!ended.success(), "it aborts");
    let began = Instant::now();
    let (engine, restored) = Engine::open_dir(dir.path(), &StoreConfig::default()).expect("opens");
    let opened = began.elapsed();
    assert_eq!(restored.tail, Tail::Unsealed);
    let mut slowest = Duration::ZERO;
    for number in (1..=RECORDS).step_by(9973) {
        let asked = Instant::now();
        assert_eq!(engine.load(&key(number)), Ok(Some(format!("value {number}").into())));
        slowest = slowest.max(asked.elapsed());
    }
    let asked = Instant::now();
    engine.verify().expect("is sound");
    println!("open after {opened:?}, slowest of 100 loads {slowest:?}, all verified after {:?} more", asked.elapsed());
    assert!(opened < Duration::from_secs(10), "{opened:?}");
}
