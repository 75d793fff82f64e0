//! Damage at rest: one flipped bit or one cut in any file of a store that is not running. The store finds it, or it
//! is harmless; no record is ever silently missing or old.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use node::{Change, Tail};
use store::sim::{Loss, SimDisk};
use store::{Engine, StoreConfig, StoreError};

type Map = BTreeMap<Bytes, Bytes>;

fn config() -> StoreConfig {
    StoreConfig {
        segment_bytes: 1024,
        behind_bytes: 300,
        ballast_bytes: 0,
        low_bytes: Some(0),
        range_blocks_max: 8,
        block_bytes: 150,
        salt: Some(5),
        ..StoreConfig::default()
    }
}

fn open(disk: &SimDisk) -> Result<(Engine, node::Restored), StoreError> {
    Engine::open(Arc::new(disk.clone()), disk.tables(), &config())
}

fn batch(number: usize) -> Vec<Change> {
    vec![
        Change::PutMeta("last".into(), number.to_string().into()),
        Change::PutRecord(format!("r{:02}", number * 7 % 31).into(), vec![number as u8; 20].into()),
    ]
}

const BATCHES: usize = 36;

/// Returns a store with a checkpoint, batches behind it, and batches after a restart; and its records after each
/// batch.
fn store(sealed: bool) -> (SimDisk, Vec<Map>) {
    let disk = SimDisk::new();
    let mut records = vec![Map::new()];
    for number in 1..=BATCHES {
        let mut next = records.last().cloned().expect("never empty");
        next.insert(format!("r{:02}", number * 7 % 31).into(), vec![number as u8; 20].into());
        records.push(next);
    }
    let (mut engine, _) = open(&disk).expect("opens");
    for number in 1..=BATCHES {
        if number == 30 {
            drop(engine);
            engine = open(&disk).expect("opens").0;
        }
        engine.append([batch(number)]).expect("appends");
        if number == 20 {
            engine.checkpoint().expect("makes a checkpoint");
        }
    }
    match sealed {
        true => engine.seal().expect("seals"),
        false => drop(engine),
    }
    (disk.restart(Loss::All), records)
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Found {
    Damage,
    /// Reported as in doubt, with the batches up to this one.
    Doubtful(usize),
    Whole,
}

/// Opens a damaged store and reads its whole content. Its answers must be true of some prefix of the batches.
fn look(disk: &SimDisk, states: &[Map], sealed: bool, at: &str) -> Found {
    let looked = (|| {
        let (engine, restored) = open(disk)?;
        let last =
            restored.meta.get(&b"last"[..]).map_or(0, |last| String::from_utf8_lossy(last).parse().expect("a number"));
        let state: &Map = &states[last];
        for (key, value) in &states[BATCHES] {
            let loaded = engine.load(key)?;
            assert_eq!(loaded.as_ref(), state.get(key), "{at}: {key:?}; the end has {value:?}");
        }
        let (found, _) = engine.scan(b"", usize::MAX)?;
        assert_eq!(&found.into_iter().collect::<Map>(), state, "{at}");
        engine.verify()?;
        Ok::<_, StoreError>((last, restored.tail))
    })();
    match looked {
        Err(error) if error.is_damage() => Found::Damage,
        Err(error) => panic!("{at}: {error}"),
        Ok((last, Tail::Doubtful)) => Found::Doubtful(last),
        Ok((BATCHES, tail)) if !sealed || tail == Tail::Sealed => Found::Whole,
        Ok((last, tail)) => panic!("{at}: said to be {tail:?} with {last} batches"),
    }
}

#[test]
fn every_flipped_bit_is_found_or_harmless() {
    for sealed in [true, false] {
        let (disk, states) = store(sealed);
        let (mut damages, mut doubtful, mut whole) = (0, 0, 0);
        for (name, content) in disk.files() {
            for bit in 0..content.len() * 8 {
                // Every bit of small files, and a coprime stride through files that are mostly zeros.
                if content.len() > 800 && bit % 11 != 0 {
                    continue;
                }
                let mut flipped = content.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                let disk = disk.fork();
                disk.overwrite(&name, flipped);
                match look(&disk, &states, sealed, &format!("bit {bit} of {name}")) {
                    Found::Damage => damages += 1,
                    // Only the very last frame, which may be the seal, can be taken for one that was never finished.
                    Found::Doubtful(last) => {
                        assert!(last >= BATCHES - usize::from(!sealed), "bit {bit} of {name}");
                        doubtful += 1;
                    }
                    Found::Whole => whole += 1,
                }
            }
        }
        assert!(damages > 500 && doubtful > 10 && whole > 100, "{damages} {doubtful} {whole}");
    }
}

#[test]
fn every_cut_is_found() {
    for sealed in [true, false] {
        let (disk, states) = store(sealed);
        for (name, content) in disk.files() {
            // The lock, and segments that are kept only to be used again.
            let without = disk.fork();
            store::Disk::remove(&without, &name).expect("removes");
            let spare = open(&without).is_ok();
            for cut in 0..content.len() {
                let disk = disk.fork();
                disk.overwrite(&name, content[..cut].to_vec());
                let found = look(&disk, &states, sealed, &format!("{name} cut to {cut}"));
                assert!(found == Found::Damage || (spare && found == Found::Whole), "{name} cut to {cut}: {found:?}");
            }
        }
    }
}

/// A table that lost an entry, or has an old or a changed one, reports "damaged" before any wrong answer.
#[test]
fn a_table_that_lies_is_found_out() {
    let (disk, states) = store(true);
    let before = disk.tables().entries();
    for (key, value) in &before {
        let mut variants = vec![None];
        for bit in 0..value.len() * 8 {
            let mut flipped = value.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            variants.push(Some(Bytes::from(flipped)));
        }
        for variant in variants {
            let disk = disk.fork();
            let at = format!("{key:?} turned from {value:?} into {variant:?}");
            disk.tables().tamper(key.clone(), variant);
            assert_eq!(look(&disk, &states, true, &at), Found::Damage, "{at}");
        }
    }
}

/// The last frame alone cannot be told from one that was never finished, unless the table has its content already.
#[test]
fn a_journal_that_lost_what_the_table_holds_is_found_out() {
    let disk = SimDisk::new();
    let (mut engine, _) = open(&disk).expect("opens");
    engine.append([batch(1)]).expect("appends");
    engine.append([batch(2)]).expect("appends");
    while engine.write_behind().expect("writes behind") {}
    drop(engine);
    let disk = disk.restart(Loss::All);
    let (name, mut content) =
        disk.files().into_iter().find(|(name, _)| name.starts_with("journal-")).expect("a segment");
    let end = content.iter().rposition(|byte| *byte != 0).expect("frames");
    content[end] ^= 1;
    disk.overwrite(&name, content);
    assert!(open(&disk).is_err_and(|error| error.is_damage()));
}

/// An older state of an entry has a valid checksum. So has the older state of the whole table.
#[test]
fn a_table_that_went_back_is_found_out() {
    let old = SimDisk::new();
    let (mut engine, _) = open(&old).expect("opens");
    engine.append((1..=20).map(batch)).expect("appends");
    engine.checkpoint().expect("makes a checkpoint");
    let early = old.tables().entries();
    engine.append((21..=BATCHES).map(batch)).expect("appends");
    engine.seal().expect("seals");
    let (_, states) = store(true);
    let late = old.tables().entries();
    let changed = early.iter().filter(|entry| !late.contains(entry)).collect::<Vec<_>>();
    assert!(changed.len() > 5);
    for (key, value) in &changed {
        let disk = old.fork();
        disk.tables().tamper(key.clone(), Some(value.clone()));
        let disk = disk.restart(Loss::All);
        assert_eq!(look(&disk, &states, true, &format!("{key:?} is old")), Found::Damage);
    }
    let disk = old.restart(Loss::All);
    for (key, _) in &late {
        disk.tables().tamper(key.clone(), None);
    }
    for (key, value) in &early {
        disk.tables().tamper(key.clone(), Some(value.clone()));
    }
    assert_eq!(look(&disk, &states, true, "all of it is old"), Found::Damage);
}

/// Damage that is found while the store is open is recorded: the next start finds it at once.
#[test]
fn damage_found_once_is_found_again_at_the_next_start() {
    let (disk, _) = store(true);
    let (key, _) = disk.tables().entries().into_iter().find(|(key, _)| key[0] == b'r').expect("a record");
    disk.tables().tamper(key, None);
    let (mut engine, _) = open(&disk).expect("the loss is not found by looking at the books alone");
    assert!(engine.verify().is_err_and(|error| error.is_damage()));
    assert!(engine.append([batch(99)]).is_err_and(|error| error.is_damage()), "poisoned");
    drop(engine);
    assert!(open(&disk.restart(Loss::All)).is_err_and(|error| error.is_damage()));
}

#[test]
fn a_missing_file_is_damage() {
    let (disk, _) = store(true);
    for (name, _) in disk.files() {
        let disk = disk.fork();
        store::Disk::remove(&disk, &name).expect("removes");
        let found = open(&disk).map(|(_, restored)| restored.tail);
        match found {
            Err(error) => assert!(error.is_damage(), "{name}: {error}"),
            // The lock, the ballast, a segment made ahead.
            Ok(tail) => assert_eq!(tail, Tail::Sealed, "{name}"),
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("lists") {
        let entry = entry.expect("an entry");
        match entry.file_type().expect("a type").is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).expect("copies")),
        }
    }
}

/// The same with sled, whose own answers to damage are to panic, or to open with records missing.
#[test]
fn damage_in_the_files_of_sled_is_found_or_harmless() {
    let config =
        StoreConfig { segment_bytes: 64 << 10, ballast_bytes: 0, cache_bytes: 1 << 20, ..StoreConfig::default() };
    let dir = tempfile::tempdir().expect("a directory");
    let sound = dir.path().join("sound");
    let (mut engine, _) = Engine::open_dir(&sound, &config).expect("opens");
    let record = |number: usize| (Bytes::from(format!("key{number:05}")), Bytes::from(vec![number as u8; 100]));
    let expected = (0..3000).map(record).collect::<Map>();
    for some in expected.iter().collect::<Vec<_>>().chunks(100) {
        let changes = some.iter().map(|(key, value)| Change::PutRecord((*key).clone(), (*value).clone()));
        engine.append([changes.collect()]).expect("appends");
    }
    engine.seal().expect("seals");
    let bytes = fs::metadata(sound.join("table-1/db")).expect("sled's file").len();
    let (mut damages, mut whole) = (0, 0);
    let mut chance = 1_u64;
    for trial in 0..60 {
        chance = chance.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let damaged = dir.path().join("damaged");
        copy(&sound, &damaged);
        let at = (chance >> 20) % bytes;
        let file = fs::OpenOptions::new().write(true).open(damaged.join("table-1/db")).expect("opens");
        match trial % 3 {
            0 => file.set_len(at).expect("cuts"),
            1 => std::os::unix::fs::FileExt::write_all_at(&file, &[chance as u8; 64], at).expect("writes"),
            _ => std::os::unix::fs::FileExt::write_all_at(&file, &[chance as u8], at).expect("writes"),
        }
        let looked = Engine::open_dir(&damaged, &config).and_then(|(engine, _)| {
            for (key, value) in &expected {
                assert_eq!(engine.load(key)?.as_ref(), Some(value), "trial {trial}: {key:?} at {at}");
            }
            let (found, _) = engine.scan(b"", usize::MAX)?;
            assert_eq!(found.into_iter().collect::<Map>(), expected, "trial {trial}");
            engine.verify()
        });
        match looked {
            Ok(()) => whole += 1,
            Err(error) => {
                assert!(error.is_damage(), "trial {trial}: {error}");
                damages += 1;
            }
        }
        fs::remove_dir_all(&damaged).expect("removes");
    }
    println!("{damages} found, {whole} harmless");
    assert!(damages > 5, "{damages} found, {whole} harmless");
}
