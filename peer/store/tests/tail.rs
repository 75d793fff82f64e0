//! States of the journal's end: clean, in doubt, damaged. The power fails in the middle of the last frame, with every prefix of
//! it written; every single bit of the last acknowledged frame is flipped; the end is zeroed.

use std::sync::Arc;

use bytes::Bytes;
use node::{Change, Restored, Tail};
use store::sim::{Loss, SimDisk};
use store::{Disk, Engine, StoreConfig, StoreError};

fn config() -> StoreConfig {
    StoreConfig {
        segment_bytes: 1024,
        checkpoint_bytes: 2048,
        ballast_bytes: 64,
        low_bytes: Some(256),
        salt: Some(99),
        ..StoreConfig::default()
    }
}

fn open(disk: &SimDisk) -> Result<(Engine, Restored), StoreError> {
    Engine::open(Arc::new(disk.clone()), disk.tables(), &config())
}

/// Returns a batch with its own number. Every third one is longer than half a segment, so that some begin a segment.
fn batch(number: u32) -> Vec<Change> {
    let length = if number.is_multiple_of(3) { 600 } else { 20 };
    // As a group's state is stored, and a doubt about it.
    vec![
        Change::PutMeta(Bytes::from_static(b"\x00s"), Bytes::from(number.to_string())),
        Change::PutRecord(Bytes::from(format!("r{number}")), vec![number as u8; length].into()),
    ]
}

fn last(restored: &Restored) -> u32 {
    restored.meta.get(&b"\x00s"[..]).map_or(0, |text| std::str::from_utf8(text).unwrap().parse().unwrap())
}

fn is_doubted(restored: &Restored) -> bool {
    restored.meta.contains_key(&b"\x00d"[..])
}

/// File of the journal that was written last, its content, and the range of its last frame.
struct End {
    file: String,
    content: Vec<u8>,
    from: usize,
    to: usize,
}

fn read(disk: &SimDisk, file: &str) -> Vec<u8> {
    disk.open(file).unwrap().read_all(1 << 20).unwrap()
}

fn journal(disk: &SimDisk) -> Vec<(String, Vec<u8>)> {
    let names = disk.files().into_iter().map(|(name, _)| name).filter(|name| name.starts_with("journal-"));
    names.map(|name| (name.clone(), read(disk, &name))).collect()
}

/// Returns the difference between two states of the journal: the frame that was written in between.
fn written(before: &[(String, Vec<u8>)], disk: &SimDisk) -> End {
    let was = |name: &str, len: usize| {
        before.iter().find(|(known, _)| known == name).map_or_else(|| vec![0; len], |(_, content)| content.clone())
    };
    let mut ends = journal(disk).into_iter().filter_map(|(file, content)| {
        let old = was(&file, content.len());
        let differs = |at: &usize| old.get(*at) != content.get(*at);
        let from = (0..content.len()).find(differs)?;
        let to = (0..content.len()).rfind(differs)? + 1;
        // A frame is a multiple of eight bytes, and begins at one. Its first eight may be as those of an older frame there.
        let from = from / 8 * 8;
        let is_behind = from >= 8 && content[from - 8..].starts_with(b"SCJ1");
        Some(End { file, content, from: if is_behind { from - 8 } else { from }, to: to.next_multiple_of(8) })
    });
    let end = ends.next().expect("something was written");
    assert!(ends.next().is_none(), "one frame lies in one file");
    end
}

fn overwrite(disk: &SimDisk, file: &str, at: usize, bytes: &[u8]) {
    let mut file = disk.open(file).unwrap();
    file.write_at(at as u64, bytes).unwrap();
    file.sync().unwrap();
}

/// Returns a store after `batches` batches, stopped dead, and its last frame. `idle`: it had no work for a moment before that;
/// `reused`: there are segments that were used before.
fn stopped(batches: u32, idle: bool, reused: bool) -> (SimDisk, End) {
    let disk = SimDisk::new();
    let (mut engine, _) = open(&disk).unwrap();
    let mut first = 1;
    if reused {
        (1..=12).for_each(|number| engine.append([batch(number)]).unwrap());
        engine.checkpoint().unwrap();
        (13..=24).for_each(|number| engine.append([batch(number)]).unwrap());
        engine.checkpoint().unwrap();
        first = 25;
    }
    let mut before = journal(&disk);
    for number in first..first + batches {
        before = journal(&disk);
        engine.append([batch(number)]).unwrap();
    }
    if idle {
        engine.mark().unwrap();
    }
    drop(engine);
    let disk = disk.restart(Loss::None);
    let end = written(&before, &disk);
    (disk, end)
}

fn cases() -> impl Iterator<Item = (u32, bool)> {
    (1..=6).flat_map(|batches| [(batches, false), (batches, true)])
}

#[test]
fn an_end_without_a_trace_is_clean() {
    for (batches, reused) in cases() {
        for idle in [false, true] {
            let (disk, _) = stopped(batches, idle, reused);
            let (engine, restored) = open(&disk).unwrap();
            let expected = batches + if reused { 24 } else { 0 };
            assert_eq!((restored.tail, last(&restored)), (Tail::Unsealed, expected));
            engine.seal().unwrap();
            let (_, restored) = open(&disk.restart(Loss::All)).unwrap();
            assert_eq!((restored.tail, is_doubted(&restored)), (Tail::Sealed, false));
        }
    }
}

/// A flip of any single bit of the last acknowledged frame is never taken for a clean end. Up to the mark it is damage.
#[test]
fn a_flipped_bit_in_the_last_frame_is_doubt_or_damage() {
    for (batches, reused) in cases() {
        for idle in [false, true] {
            let (disk, end) = stopped(batches, idle, reused);
            // The padding of a frame to a multiple of eight has no meaning; a body's last byte is in the last eight.
            let padded = (end.to - end.from).saturating_sub(8) * 8..(end.to - end.from) * 8;
            for bit in 0..(end.to - end.from) * 8 {
                let disk = disk.fork();
                let byte = end.content[end.from + bit / 8] ^ 1 << (bit % 8);
                overwrite(&disk, &end.file, end.from + bit / 8, &[byte]);
                let at = format!("bit {bit} after {batches} batches, idle {idle}, reused {reused}");
                match open(&disk) {
                    Err(error) => assert!(error.is_damage() && idle, "{at}: {error}"),
                    Ok((_, restored)) if restored.tail == Tail::Doubtful => {
                        assert!(!idle && is_doubted(&restored) == (last(&restored) > 0), "{at}");
                    }
                    Ok((_, restored)) => {
                        let all = batches + if reused { 24 } else { 0 };
                        assert!(padded.contains(&bit) && last(&restored) == all, "{at}: {:?}", restored.tail);
                    }
                }
            }
        }
    }
}

/// The power fails while the last frame is written, before its acknowledgement. All acknowledged data is there, and this is no
/// damage, also where the frame before was marked.
#[test]
fn a_torn_frame_is_never_damage() {
    let mut doubtful = 0;
    for (batches, reused) in cases().filter(|(batches, _)| *batches > 1) {
        for marked in [false, true] {
            let (disk, _) = stopped(batches - 1, marked, reused);
            let (whole, end) = stopped(batches, false, reused);
            if disk.open(&end.file).is_err() {
                // The file is full of zeros before the first write.
                let mut file = disk.create(&end.file).unwrap();
                file.write_at(0, &vec![0; end.content.len()]).unwrap();
                file.sync().unwrap();
                disk.sync_dir().unwrap();
            }
            let old = read(&disk, &end.file);
            drop(whole);
            for kept in 0..=end.to - end.from {
                let disk = disk.fork();
                overwrite(&disk, &end.file, end.from, &end.content[end.from..end.from + kept]);
                let at = format!("{kept} bytes after {batches} batches, marked {marked}, reused {reused}");
                let (engine, restored) = open(&disk).unwrap_or_else(|error| panic!("{at}: {error}"));
                drop(engine);
                let all = batches + if reused { 24 } else { 0 };
                assert!(last(&restored) >= all - 1, "{at}");
                // From the header's number on the trace is plain, be it the end of the file or old bytes that follow.
                let plain = kept >= 40 && last(&restored) < all;
                assert!(!plain || restored.tail == Tail::Doubtful, "{at}: {:?}", restored.tail);
                assert!(kept > 0 || restored.tail == Tail::Unsealed, "{at}");
                doubtful += u32::from(restored.tail == Tail::Doubtful);
            }
            assert_eq!(read(&disk, &end.file), old, "forks are apart");
        }
    }
    assert!(doubtful > 100, "{doubtful}");
}

/// A zeroed part is damage up to the mark; behind it the store cannot tell.
#[test]
fn a_zeroed_end_is_damage_up_to_the_mark() {
    for (batches, reused) in cases() {
        for idle in [false, true] {
            let (disk, end) = stopped(batches, idle, reused);
            overwrite(&disk, &end.file, end.from, &vec![0; end.to - end.from]);
            match open(&disk) {
                Err(error) => assert!(error.is_damage() && idle, "{error}"),
                Ok((_, restored)) => assert!(!idle && restored.tail == Tail::Unsealed, "{:?}", restored.tail),
            }
        }
    }
}

/// A process that opened the store in doubt and was stopped before any write left a store in doubt.
#[test]
fn doubt_outlasts_the_start_that_found_it() {
    let (disk, end) = stopped(4, false, false);
    overwrite(&disk, &end.file, end.to - 9, &[!end.content[end.to - 9]]);
    for again in 1.. {
        let disk = disk.fork();
        disk.plan(again, store::sim::Fault::Crash);
        let opened = open(&disk);
        if !disk.unplan() {
            assert_eq!(opened.unwrap().1.tail, Tail::Doubtful);
            break;
        }
        drop(opened);
        for loss in [Loss::All, Loss::None, Loss::Process] {
            let (_, restored) = open(&disk.fork().restart(loss)).unwrap();
            assert!(is_doubted(&restored), "crash at call {again} of the start, {loss:?}: {:?}", restored.tail);
        }
    }
    let (engine, restored) = open(&disk).unwrap();
    assert!(is_doubted(&restored));
    engine.seal().unwrap();
    let (_, restored) = open(&disk.restart(Loss::All)).unwrap();
    assert_eq!((restored.tail, is_doubted(&restored)), (Tail::Sealed, true), "a clean stop proves nothing of before");
}

/// A mark that lags is no harm, a missing one is.
#[test]
fn a_store_without_its_mark_is_damaged() {
    let (disk, _) = stopped(3, true, false);
    disk.remove("mark").unwrap();
    assert!(open(&disk).err().is_some_and(|error| error.is_damage()));
}
