//! The store against a simple reference: ordered maps that do at once the work of the store's journal, index and
//! table.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use node::{Change, Tail};
use proptest::prelude::*;
use store::sim::{Loss, SimDisk};
use store::{Engine, StoreConfig};

type Map = BTreeMap<Bytes, Bytes>;

fn config() -> StoreConfig {
    StoreConfig {
        segment_bytes: 1024,
        behind_bytes: 256,
        checkpoint_bytes: 4096,
        ballast_bytes: 0,
        low_bytes: Some(0),
        range_blocks_max: 4,
        block_bytes: 100,
        range_bytes_max: 200,
        piece_bytes: 20,
        salt: Some(1),
        ..StoreConfig::default()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<Vec<Change>>),
    Load(Bytes),
    Scan(Bytes, usize),
    WriteBehind,
    Checkpoint,
    /// A portion of the table is copied into a new one.
    Rebuild,
    Verify,
    Kill,
    Seal,
}

fn key() -> impl Strategy<Value = Bytes> {
    // Short keys over a small alphabet, the empty one among them: neighbours, prefixes and repetitions are common.
    proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..4).prop_map(Bytes::from)
}

fn change() -> impl Strategy<Value = Change> {
    let value = || proptest::collection::vec(any::<u8>(), 0..60).prop_map(Bytes::from);
    prop_oneof![
        3 => (key(), value()).prop_map(|(key, value)| Change::PutMeta(key, value)),
        1 => (key(), key()).prop_map(|(from, to)| Change::DropMeta(from, to)),
        2 => (key(), key(), 0usize..3).prop_map(|(from, to, strip)| Change::Promote { from, to, strip }),
        6 => (key(), value()).prop_map(|(key, value)| Change::PutRecord(key, value)),
        3 => key().prop_map(Change::DropRecord),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => proptest::collection::vec(proptest::collection::vec(change(), 0..5), 1..4).prop_map(Step::Append),
        4 => key().prop_map(Step::Load),
        4 => (key(), 0usize..300).prop_map(|(from, bytes_max)| Step::Scan(from, bytes_max)),
        4 => Just(Step::WriteBehind),
        2 => Just(Step::Checkpoint),
        3 => Just(Step::Rebuild),
        1 => Just(Step::Verify),
        1 => Just(Step::Kill),
        1 => Just(Step::Seal),
    ]
}

/// Applies changes as their documentation describes them.
fn apply(meta: &mut Map, records: &mut Map, change: &Change) {
    match change {
        Change::PutMeta(key, value) => drop(meta.insert(key.clone(), value.clone())),
        Change::DropMeta(from, to) => meta.retain(|key, _| !(from <= key && key < to)),
        Change::Promote { from, to, strip } => {
            for (key, value) in meta.iter_mut().filter(|(key, _)| from <= key && *key < to) {
                if !value.is_empty() && key.len() >= *strip {
                    records.insert(Bytes::copy_from_slice(&key[*strip..]), value.clone());
                    *value = Bytes::new();
                }
            }
        }
        Change::PutRecord(key, value) => drop(records.insert(key.clone(), value.clone())),
        Change::DropRecord(key) => drop(records.remove(key)),
    }
}

fn open(disk: &SimDisk) -> (Engine, node::Restored) {
    Engine::open(Arc::new(disk.clone()), disk.tables(), &config()).expect("opens")
}

fn check_scan(engine: &Engine, records: &Map, from: &Bytes, bytes_max: usize) {
    let (found, done) = engine.scan(from, bytes_max).expect("scans");
    let expected = records.range(from.clone()..).collect::<Vec<_>>();
    assert!(found.len() <= expected.len(), "{found:?}");
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!((&found.0, &found.1), *expected);
    }
    assert!(!found.is_empty() || expected.is_empty(), "at least one record, if there is one");
    // The end may be reported only with the next page, but is never claimed too early.
    assert!(!done || found.len() == expected.len());
    let (_, last) = found
        .split_last()
        .map_or((0, 0), |(_, rest)| (0, rest.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>()));
    assert!(last <= bytes_max, "the page ends with the record that fills it");
}

fn check_all(engine: &Engine, records: &Map) {
    let mut found = Map::new();
    let mut from = Bytes::new();
    loop {
        let (page, done) = engine.scan(&from, 100).expect("scans");
        let Some((last, _)) = page.last() else { break };
        from = [last, &[0][..]].concat().into();
        found.extend(page);
        if done {
            break;
        }
    }
    assert_eq!(&found, records);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn does_what_ordered_maps_do(steps in proptest::collection::vec(step(), 1..60)) {
        let mut disk = SimDisk::new();
        let (mut engine, restored) = open(&disk);
        prop_assert_eq!(restored.tail, Tail::Empty);
        let (mut meta, mut records) = (Map::new(), Map::new());
        for step in steps {
            match step {
                Step::Append(batches) => {
                    for change in batches.iter().flatten() {
                        apply(&mut meta, &mut records, change);
                    }
                    engine.append(batches).expect("appends");
                }
                Step::Load(key) => prop_assert_eq!(engine.load(&key).expect("loads"), records.get(&key).cloned()),
                Step::Scan(from, bytes_max) => check_scan(&engine, &records, &from, bytes_max),
                Step::WriteBehind => drop(engine.write_behind().expect("writes behind")),
                Step::Rebuild => drop(engine.rebuild().expect("copies")),
                Step::Checkpoint => engine.checkpoint().expect("makes a checkpoint"),
                Step::Verify => engine.verify().expect("is sound"),
                Step::Kill | Step::Seal => {
                    let sealed = matches!(step, Step::Seal);
                    match sealed {
                        true => engine.seal().expect("seals"),
                        false => drop(engine),
                    }
                    disk = disk.restart(Loss::All);
                    let (opened, restored) = open(&disk);
                    engine = opened;
                    prop_assert_eq!(restored.tail, if sealed { Tail::Sealed } else { Tail::Unsealed });
                    prop_assert_eq!(restored.meta, meta.clone());
                }
            }
        }
        check_all(&engine, &records);
        engine.verify().expect("is sound");
        check_all(&engine, &records);
    }
}

/// A batch that was handed out is visible: it becomes durable later.
#[test]
fn loads_and_scans_see_what_was_handed_out() {
    let disk = SimDisk::new();
    let (mut engine, _) = open(&disk);
    let put = |key: &'static str, value: &'static str| Change::PutRecord(key.into(), value.into());
    let first = engine.stage(vec![put("a", "1"), Change::PutMeta("m/b".into(), "2".into())]);
    let second = engine.stage(vec![Change::Promote { from: "m".into(), to: "n".into(), strip: 2 }]);
    assert_eq!(engine.load(b"a"), Ok(Some("1".into())));
    assert_eq!(engine.load(b"b"), Ok(Some("2".into())), "a promotion finds entries that are only handed out");
    engine.commit(&[first, second]).expect("commits");
    engine.checkpoint().expect("makes a checkpoint");
    let dropped = engine.stage(vec![Change::DropRecord("a".into())]);
    assert_eq!(engine.load(b"a"), Ok(None));
    assert_eq!(engine.scan(b"", 100), Ok((vec![("b".into(), "2".into())], true)));
    engine.commit(&[dropped]).expect("commits");
}
