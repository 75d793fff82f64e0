//! What happens when a store is opened: which of its files to believe.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Instant;

use node::{Restored, Tail};

use super::behind::Behind;
use super::change::Meta;
use super::config::StoreConfig;
use super::disk::{Disk, DiskLock};
use super::engine::{Engine, View, Writer, durable};
use super::error::{Doing, StoreError};
use super::format::Format;
use super::health::{DAMAGED, Health};
use super::journal::Journal;
use super::ledger::{Ledger, Limits};
use super::manifest::{MANIFEST, MANIFEST_TEMPORARY, Manifest};
use super::mark::Mark;
use super::pending::{Durable, Pending};
use super::replay::{From, Replayed, replay, segments};
use super::room::{Gauge, drop_ballast, take_ballast};
use super::segment::{SegmentName, Segments, is_temporary, remove_unused};
use super::sum::Sum;
use super::table::Tables;

/// The file that is there while a store is being made. Without it a store that lost its manifest could not be told from
/// one whose making was cut short.
const NEW: &str = "new";

/// Opens a store, or makes one.
pub(crate) fn open(
    disk: Arc<dyn Disk>,
    tables: &dyn Tables,
    config: &StoreConfig,
) -> Result<(Engine, Restored), StoreError> {
    // Before anything is changed, and before anything is called damage.
    Format::check(&*disk)?;
    let lock = disk.lock().doing(|| "locking the store".into())?.ok_or(StoreError::InUse)?;
    let files = disk.list().doing(|| "listing the store's directory".into())?;
    let has = |name: &str| files.iter().any(|(file, _)| file == name);
    if has(DAMAGED) {
        return Err(StoreError::damaged(read_mark(&*disk)));
    }
    let total = disk.space().doing(|| "measuring the disk".into())?.total;
    let config = config.fitted(total);
    drop_ballast(&*disk, config.ballast_bytes)?;
    // What this process can read it will act on; first make sure that it stays, names included.
    disk.sync_dir().doing(|| "syncing the store's directory".into())?;
    let has_table = tables.exists().doing(|| "looking for the table".into())?;
    let blank = !has(MANIFEST) && !has_table && segments(&*disk)?.is_empty();
    let parts = if has(NEW) || blank {
        make(&disk, tables, &config)?
    } else if has(MANIFEST) {
        resume(&disk, tables, &config)?
    } else {
        return Err(StoreError::damaged("the manifest is missing"));
    };
    take_ballast(&*disk, &config)?;
    Ok(parts.assemble(disk, config, lock))
}

/// Removes whatever was left here.
fn clear(disk: &dyn Disk, tables: &dyn Tables) -> Result<(), StoreError> {
    tables.remove().doing(|| "removing an unfinished table".into())?;
    for (file, _) in disk.list().doing(|| "listing the store's directory".into())? {
        if SegmentName::parse(&file).is_some() || is_leftover(&file) || file == MANIFEST {
            disk.remove(&file).doing(|| format!("removing {file}"))?;
        }
    }
    disk.sync_dir().doing(|| "syncing the store's directory".into())
}

fn is_leftover(file: &str) -> bool {
    file == MANIFEST_TEMPORARY || is_temporary(file)
}

/// Everything an engine is made of.
struct Parts {
    health: Arc<Health>,
    ledger: Arc<Ledger>,
    segments: Arc<Segments>,
    journal: Journal,
    mark: Mark,
    manifest: Manifest,
    chain: Vec<(SegmentName, u64)>,
    frames: Vec<Durable>,
    pending: Arc<Pending>,
    last_batch: u64,
    restored: Restored,
}

/// Makes a new store. As long as [`NEW`] is there, nothing of it was used yet and it may be made anew.
fn make(disk: &Arc<dyn Disk>, tables: &dyn Tables, config: &StoreConfig) -> Result<Parts, StoreError> {
    let marked = disk.create(NEW).and_then(|mut file| file.sync()).and_then(|()| disk.sync_dir());
    marked.doing(|| "beginning a new store".into())?;
    clear(&**disk, tables)?;
    let salt = config.salt.unwrap_or_else(|| RandomState::new().hash_one(std::process::id()));
    let ledger = open_ledger(tables, config, (0, Sum::default()))?;
    let segments = Arc::new(Segments::new(disk.clone(), config.segment_bytes, 1));
    let mark = Mark::make(disk, salt)?;
    let (journal, opened) = Journal::start(segments.clone(), salt, 0, None)?;
    let from = From { seq: opened.seq, segment: opened.segment.id, first_seq: opened.seq };
    let manifest = Manifest { salt, from, portions: 0, sum: Sum::default(), meta: Meta::new() };
    manifest.write(&**disk)?;
    disk.remove(NEW).and_then(|()| disk.sync_dir()).doing(|| "finishing a new store".into())?;
    Ok(Parts {
        health: Arc::new(Health::new(disk.clone())),
        ledger,
        segments,
        journal,
        mark,
        manifest,
        chain: vec![(opened.segment, opened.seq)],
        frames: Vec::new(),
        pending: Arc::new(Pending::new(Meta::new())),
        last_batch: 0,
        restored: Restored { meta: Meta::new(), tail: Tail::Empty },
    })
}

/// Takes up an existing store.
fn resume(disk: &Arc<dyn Disk>, tables: &dyn Tables, config: &StoreConfig) -> Result<Parts, StoreError> {
    let mut manifest = Manifest::read(&**disk)?;
    // Before the table is opened: on a full disk it needs the room that a cut or a making of files left taken.
    let oldest = manifest.from.segment;
    discard(&**disk, |name| name.id < oldest)?;
    if !tables.exists().doing(|| "looking for the table".into())? {
        return Err(StoreError::damaged("the table is missing"));
    }
    let began = Instant::now();
    tables.open_ahead();
    let mark = Mark::open(disk, manifest.salt)?;
    let Replayed { frames, chain, unused, last_seq, sealed, doubt } =
        replay(disk, manifest.salt, manifest.from, mark.seq())?;
    let replayed = began.elapsed();
    let ledger = open_ledger(tables, config, (manifest.portions, manifest.sum))?;
    tracing::info!(journal = ?replayed, all = ?began.elapsed(), frames = frames.len(), "the store is read");
    if ledger.newest() > last_seq {
        // The table gets nothing that the journal did not hold durably before.
        let what =
            format!("the journal ends at frame {last_seq}, the table has some of frame {} already", ledger.newest());
        return Err(StoreError::damaged(what));
    }
    let newest = chain.last().map_or(manifest.from.segment, |(name, _)| name.id);
    let segments = Arc::new(Segments::new(disk.clone(), config.segment_bytes, newest + 1));
    adopt(&**disk, &segments, &unused)?;
    // Also what the table holds already: a sweep passes over it quickly, for it changes nothing.
    let pending = Arc::new(Pending::new(std::mem::take(&mut manifest.meta)));
    let mut waiting = Vec::new();
    let mut last_batch = 0;
    for frame in frames {
        let mut batches = Vec::new();
        for changes in frame.batches {
            let batch = pending.stage(changes);
            last_batch = batch.number;
            batches.push(batch);
        }
        waiting.push(Durable { seq: frame.seq, segment: frame.segment, bytes: frame.bytes, batches });
    }
    // With the frame that says that the store was opened: a start that ends right after it must not forget the doubt.
    if let Some(doubt) = &doubt {
        tracing::warn!("{doubt}: this peer may have acknowledged that to others, and asks them before it votes again");
    }
    let doubts = node::doubt(&pending.meta(), doubt.is_some());
    let found = (!doubts.is_empty()).then(|| pending.stage(doubts));
    let (journal, opened) =
        Journal::start(segments.clone(), manifest.salt, last_seq, found.as_ref().map(|batch| &batch.changes[..]))?;
    last_batch = found.as_ref().map_or(last_batch, |batch| batch.number);
    waiting.push(durable(opened, found.into_iter().collect()));
    let tail = match (doubt, sealed) {
        (Some(_), _) => Tail::Doubtful,
        (None, true) => Tail::Sealed,
        (None, false) => Tail::Unsealed,
    };
    Ok(Parts {
        health: Arc::new(Health::new(disk.clone())),
        ledger,
        segments,
        journal,
        mark,
        manifest,
        chain,
        frames: waiting,
        last_batch,
        restored: Restored { meta: pending.meta(), tail },
        pending,
    })
}

/// Takes over the segments that were made ahead, as far as they suit, and removes the others.
fn adopt(disk: &dyn Disk, pool: &Segments, unused: &[SegmentName]) -> Result<(), StoreError> {
    let mut adopted = 0;
    while let Some(next) = unused.get(adopted)
        && pool.adopt(*next)?
    {
        adopted += 1;
    }
    remove_unused(disk, &unused[adopted..])
}

/// Removes files that were never finished, and the segments that are not wanted.
fn discard(disk: &dyn Disk, unwanted: impl Fn(SegmentName) -> bool) -> Result<(), StoreError> {
    let mut removed = false;
    for (file, _) in disk.list().doing(|| "listing the store's directory".into())? {
        if is_leftover(&file) || SegmentName::parse(&file).is_some_and(&unwanted) {
            disk.remove(&file).doing(|| format!("removing {file}"))?;
            removed = true;
        }
    }
    if removed {
        disk.sync_dir().doing(|| "syncing the store's directory".into())?;
    }
    Ok(())
}

fn open_ledger(tables: &dyn Tables, config: &StoreConfig, checkpoint: (u64, Sum)) -> Result<Arc<Ledger>, StoreError> {
    let table = tables.open().map_err(|error| error.doing("opening the table"))?;
    let limits = Limits {
        range_blocks: config.range_blocks_max,
        range_bytes: config.range_bytes_max,
        block_bytes: config.block_bytes,
    };
    Ok(Arc::new(Ledger::open(table, limits, checkpoint)?))
}

/// What the process that found the damage wrote down.
fn read_mark(disk: &dyn Disk) -> String {
    let text = disk.open(DAMAGED).and_then(|mut file| file.read_all(1 << 16));
    text.map_or_else(|error| error.to_string(), |text| format!("found earlier: {}", String::from_utf8_lossy(&text)))
}

impl Parts {
    fn assemble(self, disk: Arc<dyn Disk>, config: StoreConfig, lock: DiskLock) -> (Engine, Restored) {
        let Parts { health, ledger, segments, journal, mark, manifest, chain, frames, pending, last_batch, restored } =
            self;
        for frame in frames {
            pending.push(frame, usize::MAX);
        }
        pending.begin(config.pending_bytes_max, config.backlog_bytes_max());
        let writer = Writer {
            health: health.clone(),
            pending: pending.clone(),
            journal,
            marked: mark,
            frame_bytes: usize::try_from(segments.bytes() / 4).unwrap_or(usize::MAX),
            mark: config.behind_mark(),
            last: last_batch,
        };
        let view = View { health: health.clone(), pending: pending.clone(), ledger: ledger.clone() };
        let gauge = Gauge::new(disk.clone(), ledger.clone(), &config);
        let behind = Behind {
            disk,
            health,
            pending,
            ledger,
            segments,
            seq: manifest.from.seq,
            manifest,
            last: 0,
            chain: chain.into(),
            taken: 0,
            sweep: None,
            unflushed: 0,
        };
        (Engine { config, writer, behind, view, gauge, lock }, restored)
    }
}
