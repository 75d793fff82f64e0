//! The store on the real file system, with sled behind it, and its threads.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use node::{Change, Restored, Tail};
use store::{Aside, Engine, StoreConfig, StoreError, StoreEvent, StoreThread, set_aside};

fn config() -> StoreConfig {
    StoreConfig {
        segment_bytes: 64 << 10,
        pending_bytes_max: 256 << 10,
        behind_bytes: 64 << 10,
        checkpoint_bytes: 256 << 10,
        ballast_bytes: 1 << 20,
        ..StoreConfig::default()
    }
}

fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Change {
    Change::PutRecord(key.into(), value.into())
}

fn open(dir: &Path) -> (Engine, Restored) {
    when_free(|| Engine::open_dir(dir, &config())).expect("opens")
}

/// Retries while the store is locked: a process that another test starts has copies of all descriptors until it executes its program, and
/// with them the lock of a store that was closed meanwhile.
fn when_free<T>(call: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        match call() {
            Err(StoreError::InUse) if Instant::now() < until => std::thread::sleep(Duration::from_millis(10)),
            other => return other,
        }
    }
}

fn all(engine: &Engine) -> BTreeMap<Bytes, Bytes> {
    let (records, done) = engine.scan(b"", usize::MAX).expect("scans");
    assert!(done);
    records.into_iter().collect()
}

#[test]
fn a_sealed_store_comes_back_sealed_and_a_dropped_one_does_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path().join("store");
    let (mut engine, restored) = open(&dir);
    assert_eq!((restored.tail, restored.meta.len()), (Tail::Empty, 0));
    engine
        .append([vec![put("a", "1"), Change::PutMeta("m".into(), "x".into())], vec![put("b", "2")]])
        .expect("appends");
    engine.seal().expect("seals");

    let (mut engine, restored) = open(&dir);
    assert_eq!(restored.tail, Tail::Sealed);
    assert_eq!(restored.meta, BTreeMap::from([("m".into(), "x".into())]));
    engine.append([vec![Change::DropRecord("a".into()), put("c", "3")]]).expect("appends");
    drop(engine);

    let (engine, restored) = open(&dir);
    assert_eq!(restored.tail, Tail::Unsealed);
    assert_eq!(all(&engine), BTreeMap::from([("b".into(), "2".into()), ("c".into(), "3".into())]));
    engine.verify().expect("is sound");
}

#[test]
fn a_second_open_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let (engine, _) = open(dir.path());
    assert_eq!(Engine::open_dir(dir.path(), &config()).err(), Some(StoreError::InUse));
    assert_eq!(set_aside(dir.path(), Aside::Damaged).err(), Some(StoreError::InUse));
    drop(engine);
    open(dir.path());
}

#[test]
fn a_store_moved_aside_leaves_room_for_a_new_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = dir.path().join("store");
    let (mut engine, _) = open(&store);
    engine.append([vec![put("a", "1")]]).expect("appends");
    drop(engine);
    fs::remove_file(store.join("manifest")).expect("removes");
    let opened = when_free(|| Engine::open_dir(&store, &config()));
    assert!(opened.is_err_and(|error| error.is_damage()), "missing is not empty");
    let aside = when_free(|| set_aside(&store, Aside::Damaged)).expect("moves");
    assert_eq!(aside, dir.path().join("store.damaged-1"));
    assert!(aside.join("table-1").is_dir());
    assert_eq!(open(&store).1.tail, Tail::Empty);
    let used = |store: &Path| {
        let (mut engine, _) = open(store);
        engine.room().expect("measures").used
    };
    let (with, alone) = (used(&store), used(&dir.path().join("other")));
    assert!(with > alone, "what is kept counts as used: {with}, {alone}");
    assert_eq!(when_free(|| set_aside(&store, Aside::Damaged)), Ok(dir.path().join("store.damaged-2")));
    assert!(!aside.exists(), "one is kept");
}

#[test]
fn of_stores_left_behind_the_last_is_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = dir.path().join("store");
    for (key, place) in [("a", "store.left-1"), ("b", "store.left-2")] {
        let (mut engine, _) = open(&store);
        assert_eq!(set_aside(&store, Aside::Left), Err(StoreError::InUse));
        engine.append([vec![put(key, "1")]]).expect("appends");
        drop(engine);
        assert_eq!(when_free(|| set_aside(&store, Aside::Left)), Ok(dir.path().join(place)));
    }
    let mut left: Vec<_> = fs::read_dir(dir.path()).expect("lists").map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["store.left-2"], "and nothing of it stands where the next store will");
}

fn next(events: &Receiver<StoreEvent>) -> StoreEvent {
    events.recv_timeout(Duration::from_secs(30)).expect("an event")
}

fn start(engine: Engine) -> (StoreThread, Receiver<StoreEvent>) {
    #[expect(clippy::disallowed_methods, reason = "a test takes every message")]
    let (send, events) = channel();
    let thread = StoreThread::start(engine, move |_, event| drop(send.send(event))).expect("starts");
    (thread, events)
}

#[test]
fn threads_persist_load_scan_and_seal() {
    let dir = tempfile::tempdir().expect("a directory");
    let (mut thread, events) = start(open(dir.path()).0);
    // Enough to roll segments, to write behind and to make checkpoints.
    let count = 5000_u64;
    let mut persisted = 0;
    for token in 1..=count {
        thread.persist(0, token, vec![put(format!("key{token:05}"), vec![token as u8; 200])]);
        if token % 50 == 0 {
            thread.submit();
        }
    }
    while persisted < count {
        match next(&events) {
            StoreEvent::Persisted(token) => {
                assert!(token > persisted, "tokens rise");
                persisted = token;
            }
            StoreEvent::Behind(_) => (),
            other => panic!("{other:?}"),
        }
    }
    thread.load(0, "key00017".into(), true);
    thread.load(0, "none".into(), false);
    thread.scan(0, 7, "key04999".into(), 1 << 20);
    let (mut loaded, mut scanned) = (Vec::new(), None);
    while loaded.len() < 2 || scanned.is_none() {
        match next(&events) {
            StoreEvent::Loaded { record_key, record } => loaded.push((record_key, record)),
            StoreEvent::Scanned { token: 7, records, done } => scanned = Some((records.len(), done)),
            StoreEvent::Behind(_) => (),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(loaded, [("key00017".into(), Some(vec![17; 200].into())), ("none".into(), None)]);
    assert_eq!(scanned, Some((2, true)));
    // Handed out and never submitted: a seal commits it nevertheless.
    thread.persist(0, count + 1, vec![put("last", "word")]);
    thread.seal().expect("seals");
    let (engine, restored) = open(dir.path());
    assert_eq!(restored.tail, Tail::Sealed);
    engine.verify().expect("is sound");
    assert_eq!(all(&engine).len() as u64, count + 1);
}

#[test]
fn a_dropped_thread_frees_the_directory_and_leaves_no_seal() {
    let dir = tempfile::tempdir().expect("a directory");
    let (mut thread, events) = start(open(dir.path()).0);
    thread.persist(0, 1, vec![put("a", "1")]);
    thread.submit();
    assert!(matches!(next(&events), StoreEvent::Persisted(1)));
    drop(thread);
    let (engine, restored) = open(dir.path());
    assert_eq!((restored.tail, all(&engine).len()), (Tail::Unsealed, 1));
}

/// Not a test by itself: the process that [`what_was_acknowledged_survives_kill_9`] kills.
#[test]
fn child() {
    let Ok(dir) = std::env::var("STORE_CHILD_DIR") else {
        return;
    };
    let (engine, restored) = open(dir.as_ref());
    let from = restored
        .meta
        .get(&b"next"[..])
        .map_or(0, |next| String::from_utf8_lossy(next).parse::<u64>().expect("a number"));
    let (mut thread, events) = start(engine);
    for number in from.. {
        let next = Change::PutMeta("next".into(), (number + 1).to_string().into());
        thread.persist(0, number + 1, vec![put(format!("key{:03}", number % 997), number.to_string()), next]);
        thread.submit();
        if number % 16 == 0
            && let StoreEvent::Persisted(acknowledged) = self::next(&events)
        {
            println!("\nack {acknowledged}");
        }
        for event in events.try_iter() {
            if let StoreEvent::Persisted(acknowledged) = event {
                println!("\nack {acknowledged}");
            }
        }
    }
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path().join("store");
    for round in 0..12 {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "child", "--nocapture"])
            .env("STORE_CHILD_DIR", &dir)
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let until = Duration::from_millis(100 + 70 * round);
        let (mut began, mut acknowledged) = (None, 0);
        for line in out.lines() {
            let Some(number) = line.expect("text").strip_prefix("ack ").and_then(|number| number.parse::<u64>().ok())
            else {
                continue;
            };
            acknowledged = number;
            if began.get_or_insert_with(Instant::now).elapsed() > until {
                child.kill().expect("kills");
            }
        }
        child.wait().expect("ends");
        let (engine, restored) = open(&dir);
        assert_eq!(restored.tail, Tail::Unsealed);
        let next =
            restored.meta.get(&b"next"[..]).map_or(0, |next| String::from_utf8_lossy(next).parse().expect("a number"));
        assert!(next >= acknowledged && acknowledged > 0, "{next} of {acknowledged} acknowledged");
        // All of a prefix: each key has the last number that was put there before `next`.
        let expected = (next.saturating_sub(997)..next)
            .map(|number| (format!("key{:03}", number % 997).into(), number.to_string().into()));
        assert_eq!(all(&engine), expected.collect::<BTreeMap<Bytes, Bytes>>());
        engine.verify().expect("is sound");
    }
}
