//! The power fails, or a call fails, at the n-th call to the disk, for n = 1, 2, … until a run has no n-th call. After each
//! run, all acknowledged batches are there, and the store holds a prefix of the batches, each of them whole.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

use bytes::Bytes;
use node::{Change, Restored, Tail};
use store::sim::{Fault, Loss, SimDisk};
use store::{Engine, StoreConfig, StoreError, StoreStats};

type Map = BTreeMap<Bytes, Bytes>;

/// Small limits, so that a short run rolls segments, divides ranges, writes behind in portions and cuts the journal.
fn config() -> StoreConfig {
    StoreConfig {
        segment_bytes: 1024,
        behind_bytes: 300,
        checkpoint_bytes: 2048,
        ballast_bytes: 64,
        low_bytes: Some(256),
        range_blocks_max: 4,
        block_bytes: 100,
        range_bytes_max: 400,
        piece_bytes: 1000,
        salt: Some(99),
        ..StoreConfig::default()
    }
}

fn open(disk: &SimDisk) -> Result<(Engine, Restored), StoreError> {
    Engine::open(Arc::new(disk.clone()), disk.tables(), &config())
}

/// Step of one process with the store.
#[derive(Clone, Copy)]
enum Step {
    /// One group commit of this many batches.
    Commit(u32),
    /// One batch that is longer than a segment.
    Huge,
    WriteBehind,
    Checkpoint,
    /// No commit for a moment.
    Idle,
    Verify,
    /// A portion of the table is copied into a new one.
    Rebuild,
    /// The rest of the table is copied.
    RebuildAll,
    Seal,
    /// The process ends without a seal.
    Kill,
    /// The process ends without a seal, and the next one has segments twice as long.
    Grow,
}

const SCRIPT: &[Step] = {
    use Step::*;
    &[
        Commit(1),
        Commit(3),
        Commit(2),
        WriteBehind,
        Commit(4),
        Checkpoint,
        Commit(2),
        Idle,
        Commit(5),
        Kill,
        Commit(1),
        Idle,
        Verify,
        WriteBehind,
        Commit(2),
        Commit(3),
        Checkpoint,
        Commit(6),
        Huge,
        Commit(1),
        WriteBehind,
        Huge,
        Commit(1),
        WriteBehind,
        Seal,
        Verify,
        Commit(2),
        Checkpoint,
        Commit(4),
        Commit(4),
        Checkpoint,
        Commit(1),
        Seal,
        Commit(3),
        WriteBehind,
        Grow,
        Commit(2),
        Rebuild,
        Commit(3),
        WriteBehind,
        Rebuild,
        Commit(5),
        Checkpoint,
        Commit(4),
        Rebuild,
        WriteBehind,
        RebuildAll,
        Commit(4),
        Checkpoint,
        Commit(2),
        Rebuild,
        Kill,
        Verify,
        Commit(1),
        Checkpoint,
        Rebuild,
        Seal,
        RebuildAll,
        Checkpoint,
        Seal,
        Commit(2),
        Seal,
    ]
};

/// Returns batch `number`: changes of every kind. `last` distinguishes each state of the store from every other.
fn batch(number: u32, huge: bool) -> Vec<Change> {
    let text = |text: String| Bytes::from(text);
    let value = if huge { vec![number as u8; 3000] } else { vec![number as u8; 10 + number as usize % 40] };
    let mut changes = vec![
        Change::PutMeta("last".into(), text(number.to_string())),
        Change::PutRecord(text(format!("r{:02}", number * 7 % 23)), value.into()),
        Change::PutMeta(text(format!("w{number:04}/p{:02}", number % 11)), text(format!("value {number}"))),
    ];
    if number.is_multiple_of(3) {
        changes.push(Change::DropRecord(text(format!("r{:02}", number * 5 % 23))));
    }
    if number.is_multiple_of(4) {
        changes.push(Change::Promote { from: "w".into(), to: text(format!("w{:04}", number - 2)), strip: 6 });
        changes.push(Change::DropMeta("w".into(), text(format!("w{:04}", number.saturating_sub(6)))));
    }
    changes
}

/// Returns the store after each number of batches.
fn states(batches: &[Vec<Change>]) -> Vec<(Map, Map)> {
    let mut states = vec![(Map::new(), Map::new())];
    for batch in batches {
        let (mut meta, mut records) = states.last().cloned().expect("never empty");
        for change in batch {
            match change {
                Change::PutMeta(key, value) => drop(meta.insert(key.clone(), value.clone())),
                Change::DropMeta(from, to) => meta.retain(|key, _| !(from <= key && key < to)),
                Change::Promote { from, to, strip } => {
                    for (key, value) in meta.iter_mut().filter(|(key, _)| from <= key && *key < to) {
                        if !value.is_empty() && key.len() >= *strip {
                            records.insert(key.slice(*strip..), std::mem::take(value));
                        }
                    }
                }
                Change::PutRecord(key, value) => drop(records.insert(key.clone(), value.clone())),
                Change::DropRecord(key) => drop(records.remove(key)),
            }
        }
        states.push((meta, records));
    }
    states
}

/// Result of a run.
#[derive(Default)]
struct Run {
    batches: Vec<Vec<Change>>,
    acknowledged: usize,
    /// Whether a batch was handed out since the last seal was begun or found.
    unsealed: bool,
    /// Whether segments are twice as long by now.
    grown: bool,
    /// Whether an error was contained, and the store goes on: a new table was given up, an unused one could not be removed,
    /// or there was no room for a segment ahead.
    contained: bool,
    watch: Option<Box<dyn Fn() -> StoreStats>>,
    error: Option<StoreError>,
}

/// Runs the script up to the first error. A poisoned store must go on failing.
fn run(disk: &mut SimDisk) -> Run {
    let mut run = Run::default();
    let mut engine = None;
    for step in SCRIPT {
        let taken = take(*step, disk, &mut engine, &mut run);
        let contained = |now: StoreStats| now.given_up + now.not_removed + now.unprepared > 0;
        run.contained |= run.watch.as_ref().map(|watch| watch()).is_some_and(contained);
        if let Err(error) = taken {
            if let Some(engine) = &mut engine {
                assert!(engine.append([batch(9999, false)]).is_err(), "poisoned for ever");
                assert!(engine.checkpoint().is_err() && engine.load(b"r01").is_err() && engine.scan(b"", 9).is_err());
            }
            if let Some(engine) = engine {
                assert!(engine.seal().is_err(), "poisoned for ever");
            }
            run.error = Some(error);
            return run;
        }
    }
    run
}

fn take(step: Step, disk: &mut SimDisk, engine: &mut Option<Engine>, run: &mut Run) -> Result<(), StoreError> {
    if engine.is_none() {
        let segment_bytes = config().segment_bytes * if run.grown { 2 } else { 1 };
        let config = StoreConfig { segment_bytes, ..config() };
        let (opened, _) = Engine::open(Arc::new(disk.clone()), disk.tables(), &config)?;
        run.watch = Some(Box::new(opened.watch()));
        *engine = Some(opened);
    }
    let Some(at_work) = engine else { unreachable!("it was just opened") };
    match step {
        Step::Commit(_) | Step::Huge => {
            let count = if let Step::Commit(count) = step { count } else { 1 };
            run.unsealed = true;
            let mut staged = Vec::new();
            for _ in 0..count {
                let changes = batch(run.batches.len() as u32 + 1, matches!(step, Step::Huge));
                run.batches.push(changes.clone());
                staged.push(at_work.stage(changes));
            }
            at_work.commit(&staged)?;
            run.acknowledged = run.batches.len();
        }
        Step::WriteBehind => drop(at_work.write_behind()?),
        Step::Checkpoint => at_work.checkpoint()?,
        Step::Idle => at_work.mark()?,
        Step::Verify => at_work.verify()?,
        Step::Rebuild => drop(at_work.rebuild()?),
        Step::RebuildAll => while at_work.rebuild()? {},
        Step::Seal => {
            let Some(at_work) = engine.take() else { unreachable!("it is at work") };
            run.unsealed = false;
            at_work.seal()?;
        }
        Step::Kill | Step::Grow => {
            run.grown |= matches!(step, Step::Grow);
            *engine = None;
            run.unsealed = true;
            *disk = disk.restart(Loss::Process);
        }
    }
    Ok(())
}

const LOSSES: [Loss; 11] = [
    Loss::Process,
    Loss::All,
    Loss::None,
    Loss::Some(1),
    Loss::Some(2),
    Loss::Some(3),
    Loss::Some(4),
    Loss::Some(5),
    Loss::Some(6),
    Loss::Some(7),
    Loss::Some(8),
];

/// Opens the store after a restart and checks its whole content.
fn check(run: &Run, opened: (Engine, Restored), at: &str) -> Engine {
    let (engine, restored) = opened;
    let states = states(&run.batches);
    let last =
        restored.meta.get(&b"last"[..]).map_or(0, |last| String::from_utf8_lossy(last).parse().expect("a number"));
    assert!(last >= run.acknowledged, "{at}: {last} batches are left of {} acknowledged", run.acknowledged);
    assert!(last < states.len(), "{at}: batch {last} comes from nowhere");
    let (meta, records) = &states[last];
    assert_eq!(&restored.meta, meta, "{at}");
    let (found, done) = engine.scan(b"", usize::MAX).unwrap_or_else(|error| panic!("{at}: {error}"));
    assert!(done);
    assert_eq!(&found.into_iter().collect::<Map>(), records, "{at}");
    engine.verify().unwrap_or_else(|error| panic!("{at}: {error}"));
    if restored.tail == Tail::Sealed {
        assert!(!run.unsealed || last == run.batches.len(), "{at}: sealed, and a batch is missing");
        assert!(!run.unsealed || run.acknowledged == run.batches.len(), "{at}: sealed, over a batch under way");
    }
    assert!(restored.tail != Tail::Empty || run.batches.is_empty(), "{at}: taken for a first start");
    engine
}

/// Checks that the store is usable again, not only readable: it goes on, is killed, and has all data.
fn go_on(mut engine: Engine, disk: &SimDisk, at: &str) {
    let failed = |error: StoreError| -> () { panic!("{at}: {error}") };
    for _ in 0..3 {
        engine.append([vec![Change::PutRecord("afterwards".into(), vec![7; 500].into())]]).unwrap_or_else(failed);
        engine.write_behind().map(drop).unwrap_or_else(failed);
    }
    engine.checkpoint().unwrap_or_else(failed);
    drop(engine);
    let disk = disk.restart(Loss::All);
    let (engine, restored) = open(&disk).unwrap_or_else(|error| panic!("{at}: {error}"));
    assert_eq!(restored.tail, Tail::Unsealed, "{at}");
    assert_eq!(engine.load(b"afterwards"), Ok(Some(vec![7; 500].into())), "{at}");
    engine.verify().unwrap_or_else(failed);
}

#[test]
fn the_script_is_worth_running() {
    let mut disk = SimDisk::new();
    let run = run(&mut disk);
    assert_eq!(run.error, None);
    assert_eq!(run.acknowledged, run.batches.len());
    let segments = disk.files().iter().filter(|(name, _)| name.starts_with("journal-")).count();
    assert!(segments <= 8, "the journal is cut: {segments}");
    assert_eq!(disk.tables().numbers(), [3], "rebuilt twice, and the others are removed");
    assert!(disk.tables().entries().iter().filter(|(key, _)| key[0] == b'g').count() > 4, "ranges were divided");
    check(&run, open(&disk.restart(Loss::All)).expect("opens"), "the end");
}

#[test]
fn a_crash_at_any_call_loses_nothing_acknowledged() {
    let mut nth = 0;
    loop {
        nth += 1;
        let mut disk = SimDisk::new();
        disk.plan(nth, Fault::Crash);
        let run = run(&mut disk);
        if !disk.unplan() {
            assert_eq!(run.error, None);
            break;
        }
        // Right before a kill the fault may have hit only a rebuild.
        assert!(run.error.is_some() || run.contained);
        for loss in LOSSES {
            let at = format!("crash at call {nth}, {loss:?}");
            let disk = disk.fork().restart(loss);
            let opened = open(&disk).unwrap_or_else(|error| panic!("{at}: {error}"));
            go_on(check(&run, opened, &at), &disk, &at);
        }
    }
    assert!(nth > 300, "{nth} calls in all");
}

/// The start after a crash is interrupted as well, at each of its own calls.
#[test]
fn a_crash_while_starting_after_a_crash_loses_nothing() {
    let mut nth = 0;
    loop {
        nth += 3;
        let mut disk = SimDisk::new();
        disk.plan(nth, Fault::Crash);
        let run = run(&mut disk);
        if !disk.unplan() {
            break;
        }
        for (first, then) in [(Loss::Some(1), Loss::All), (Loss::Process, Loss::All), (Loss::All, Loss::Some(2))] {
            let crashed = disk.fork().restart(first);
            for again in 1.. {
                let at = format!("crash at call {nth}, {first:?}, and at call {again} of the start, {then:?}");
                let disk = crashed.fork();
                disk.plan(again, Fault::Crash);
                let opened = open(&disk);
                if !disk.unplan() {
                    check(&run, opened.unwrap_or_else(|error| panic!("{at}: {error}")), &at);
                    break;
                }
                drop(opened);
                let disk = disk.restart(then);
                check(&run, open(&disk).unwrap_or_else(|error| panic!("{at}: {error}")), &at);
            }
        }
    }
}

/// Data that a start read after the end of a process, and acted upon, is still there after a power cut.
#[test]
fn what_a_start_gave_back_is_durable() {
    for nth in 1.. {
        let mut disk = SimDisk::new();
        disk.plan(nth, Fault::Error(ErrorKind::Other));
        let run = run(&mut disk);
        if !disk.unplan() {
            break;
        }
        let disk = disk.restart(Loss::Process);
        let Ok((engine, restored)) = open(&disk) else {
            continue;
        };
        drop(engine);
        let disk = disk.restart(Loss::All);
        let (engine, again) = open(&disk).unwrap_or_else(|error| panic!("error at call {nth}: {error}"));
        assert_eq!(again.meta, restored.meta, "error at call {nth}");
        check(&run, (engine, again), &format!("error at call {nth}"));
    }
}

/// Every kind of call fails once, at every place: the store stops for ever, and nothing acknowledged is lost.
#[test]
fn an_error_at_any_call_poisons_and_loses_nothing_acknowledged() {
    for kind in [ErrorKind::Other, ErrorKind::StorageFull] {
        let mut damaged = 0;
        for nth in 1.. {
            let mut disk = SimDisk::new();
            disk.plan(nth, Fault::Error(kind));
            let run = run(&mut disk);
            if !disk.unplan() {
                assert_eq!(run.error, None);
                break;
            }
            assert!(run.error.is_some() != run.contained, "{kind} at call {nth} went unnoticed: {:?}", run.error);
            for loss in LOSSES {
                let at = format!("{kind} at call {nth}, {loss:?}");
                let disk = disk.fork().restart(loss);
                match open(&disk) {
                    Ok(opened) => go_on(check(&run, opened, &at), &disk, &at),
                    // A table that could not be flushed is given up, and reports that ever after.
                    Err(error) if error.is_damage() && run.error.as_ref().is_some_and(StoreError::is_damage) => {
                        assert_eq!(kind, ErrorKind::Other, "{at}");
                        damaged += 1;
                    }
                    Err(error) => panic!("{at}: {error}"),
                }
            }
        }
        assert_eq!(damaged > 0, kind == ErrorKind::Other);
    }
}
