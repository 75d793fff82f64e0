//! The opening of a store, and the choice of the files to trust.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Instant;

use node::{Restored, Tail};

use crate::behind::Behind;
use crate::behind::pending::{Durable, PendingWrites};
use crate::change::Meta;
use crate::config::StoreConfig;
use crate::disk::{Disk, DiskLock};
use crate::engine::{Engine, View, Writer, durable};
use crate::error::{Doing, StoreError};
use crate::format::StoreFormat;
use crate::health::{DAMAGED, Health};
use crate::journal::Journal;
use crate::journal::mark::Mark;
use crate::journal::replay::{From, Replayed, ReplayedFrame, replay, segments};
use crate::journal::segment::{SegmentName, Segments, is_temporary, remove_unused};
use crate::manifest::{MANIFEST, MANIFEST_TEMPORARY, Manifest};
use crate::room::{Gauge, drop_ballast, take_ballast};
use crate::table::Tables;
use crate::table::ledger::{DivisionLimits, Ledger};
use crate::table::rebuild::Current;
use crate::table::sum::Sum;

/// Name of a file that exists while a store is being made. Without it, a store that lost its manifest would look like one
/// whose creation was cut short.
const NEW: &str = "new";

/// Number of a new store's table.
const FIRST_TABLE: u64 = 1;

/// Opens a store, or creates one.
pub(crate) fn open(
    disk: Arc<dyn Disk>,
    tables: Arc<dyn Tables>,
    config: &StoreConfig,
) -> Result<(Engine, Restored), StoreError> {
    // Before any change, and before any file counts as damaged.
    StoreFormat::check(&*disk)?;
    let lock = disk.lock().doing(|| "locking the store".into())?.ok_or(StoreError::InUse)?;
    let files = disk.list().doing(|| "listing the store's directory".into())?;
    let has = |name: &str| files.iter().any(|(file, _)| file == name);
    if has(DAMAGED) {
        return Err(StoreError::damaged(read_mark(&*disk)));
    }
    let total = disk.space().doing(|| "measuring the disk".into())?.total;
    let config = config.fitted(total);
    drop_ballast(&*disk, config.ballast_bytes)?;
    // This process acts on everything that it can read; so it first makes that durable, names included.
    disk.sync_dir().doing(|| "syncing the store's directory".into())?;
    let blank = !has(MANIFEST) && known(&*tables)?.is_empty() && segments(&*disk)?.is_empty();
    let parts = if has(NEW) || blank {
        make(&disk, &*tables, &config)?
    } else if has(MANIFEST) {
        resume(&disk, &*tables, &config)?
    } else {
        return Err(StoreError::damaged("the manifest is missing"));
    };
    take_ballast(&*disk, &config)?;
    let newest = known(&*tables)?.into_iter().max().unwrap_or(0);
    Ok(parts.assemble(disk, (tables, newest), config, lock))
}

/// Removes all leftovers of an unfinished store.
fn clear(disk: &dyn Disk, tables: &dyn Tables) -> Result<(), StoreError> {
    for number in known(tables)? {
        tables.remove(number).doing(|| "removing an unfinished table".into())?;
    }
    for (file, _) in disk.list().doing(|| "listing the store's directory".into())? {
        if SegmentName::parse(&file).is_some() || is_leftover(&file) || file == MANIFEST {
            disk.remove(&file).doing(|| format!("removing {file}"))?;
        }
    }
    disk.sync_dir().doing(|| "syncing the store's directory".into())
}

/// Returns the existing tables.
fn known(tables: &dyn Tables) -> Result<Vec<u64>, StoreError> {
    tables.list().doing(|| "looking for the table".into())
}

/// Removes the tables that a rebuild has left. A table that cannot be removed does not prevent a start. Returns whether
/// there were any, and the number of those that are left.
fn remove_others(tables: &dyn Tables, used: u64) -> Result<(bool, u64), StoreError> {
    let (mut any, mut left) = (false, 0);
    for number in known(tables)?.into_iter().filter(|number| *number != used) {
        any = true;
        if let Err(error) = tables.remove(number) {
            tracing::warn!(%error, number, "a table of the store that is not used cannot be removed");
            left += 1;
        }
    }
    Ok((any, left))
}

fn is_leftover(file: &str) -> bool {
    file == MANIFEST_TEMPORARY || is_temporary(file)
}

/// The parts of an engine.
struct Parts {
    health: Arc<Health>,
    ledger: Ledger,
    segments: Arc<Segments>,
    journal: Journal,
    mark: Mark,
    manifest: Manifest,
    chain: Vec<(SegmentName, u64)>,
    frames: Vec<Durable>,
    pending: Arc<PendingWrites>,
    last_batch: u64,
    restored: Restored,
}

/// Makes a new store. As long as [`NEW`] exists, no part of it was used yet, and it may be made anew.
fn make(disk: &Arc<dyn Disk>, tables: &dyn Tables, config: &StoreConfig) -> Result<Parts, StoreError> {
    let marked = disk.create(NEW).and_then(|mut file| file.sync()).and_then(|()| disk.sync_dir());
    marked.doing(|| "beginning a new store".into())?;
    clear(&**disk, tables)?;
    let salt = config.salt.unwrap_or_else(|| RandomState::new().hash_one(std::process::id()));
    let ledger = open_ledger(tables, config, (FIRST_TABLE, 0, Sum::default()))?;
    let segments = Arc::new(Segments::new(disk.clone(), config.segment_bytes, 1));
    let mark = Mark::make(disk, salt)?;
    let (journal, opened) = Journal::start(segments.clone(), salt, 0, None)?;
    let from = From { seq: opened.seq, segment: opened.segment.id, first_seq: opened.seq };
    let manifest = Manifest { salt, from, table: FIRST_TABLE, portions: 0, sum: Sum::default(), meta: Meta::new() };
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
        pending: Arc::new(PendingWrites::new(Meta::new())),
        last_batch: 0,
        restored: Restored { meta: Meta::new(), tail: Tail::Empty },
    })
}

/// Resumes an existing store.
fn resume(disk: &Arc<dyn Disk>, tables: &dyn Tables, config: &StoreConfig) -> Result<Parts, StoreError> {
    let mut manifest = Manifest::read(&**disk)?;
    let table = manifest.table;
    if !known(tables)?.contains(&table) {
        return Err(StoreError::damaged("the table is missing"));
    }
    // Before the table is opened: on a full disk it needs the room of leftovers from a cut or an unfinished file.
    let oldest = manifest.from.segment;
    let (any, left) = remove_others(tables, table)?;
    discard(&**disk, any, |name| name.id < oldest)?;
    let began = Instant::now();
    tables.open_ahead(table);
    let mark = Mark::open(disk, manifest.salt)?;
    let Replayed { frames, chain, unused, last_seq, sealed, doubt } =
        replay(disk, manifest.salt, manifest.from, mark.seq())?;
    let replayed = began.elapsed();
    let ledger = open_ledger(tables, config, (table, manifest.portions, manifest.sum))?;
    tracing::info!(journal = ?replayed, all = ?began.elapsed(), frames = frames.len(), "the store is read");
    if ledger.newest() > last_seq {
        // The table gets only changes that the journal held durably before.
        let what =
            format!("the journal ends at frame {last_seq}, the table has some of frame {} already", ledger.newest());
        return Err(StoreError::damaged(what));
    }
    let newest = chain.last().map_or(manifest.from.segment, |(name, _)| name.id);
    let segments = Arc::new(Segments::new(disk.clone(), config.segment_bytes, newest + 1));
    adopt(&**disk, &segments, &unused)?;
    // Also changes that the table holds already: a sweep passes over them quickly, because they change nothing.
    let pending = Arc::new(PendingWrites::new(std::mem::take(&mut manifest.meta)));
    (0..left).for_each(|_| pending.meters.not_removed());
    let mut waiting = stage(&pending, frames);
    let staged = waiting.iter().rev().find_map(|frame| frame.batches.last());
    let mut last_batch = staged.map_or(0, |batch| batch.number);
    // In the frame that records the opening of the store: a start that ends right after it must not forget the doubt.
    if let Some(doubt) = &doubt {
        tracing::warn!(
            "{doubt}: this peer may have acknowledged the missing part, and asks the other members before \
            it votes again"
        );
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

/// Stages the batches of all replayed frames.
fn stage(pending: &PendingWrites, frames: Vec<ReplayedFrame>) -> Vec<Durable> {
    let staged = frames.into_iter().map(|frame| {
        let batches = frame.batches.into_iter().map(|changes| pending.stage(changes)).collect();
        Durable { seq: frame.seq, segment: frame.segment, bytes: frame.bytes, batches }
    });
    staged.collect()
}

/// Takes over the segments that were made ahead, as far as they fit, and removes the rest.
fn adopt(disk: &dyn Disk, pool: &Segments, unused: &[SegmentName]) -> Result<(), StoreError> {
    let mut adopted = 0;
    while let Some(next) = unused.get(adopted)
        && pool.adopt(*next)?
    {
        adopted += 1;
    }
    remove_unused(disk, &unused[adopted..])
}

/// Removes unfinished files, and the unwanted segments. Durable, also where the caller `removed` another file before.
fn discard(disk: &dyn Disk, mut removed: bool, unwanted: impl Fn(SegmentName) -> bool) -> Result<(), StoreError> {
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

/// Opens the table of this number. A checkpoint knows the least number of its portions, and their sum.
fn open_ledger(
    tables: &dyn Tables,
    config: &StoreConfig,
    (number, portions, sum): (u64, u64, Sum),
) -> Result<Ledger, StoreError> {
    let table = tables.open(number).map_err(|error| error.doing("opening the table"))?;
    let limits = DivisionLimits {
        range_blocks: config.range_blocks_max,
        range_bytes: config.range_bytes_max,
        block_bytes: config.block_bytes,
        piece_bytes: config.piece_bytes,
    };
    Ledger::open(table, limits, (portions, sum))
}

/// Returns the note of the process that found the damage.
fn read_mark(disk: &dyn Disk) -> String {
    let text = disk.open(DAMAGED).and_then(|mut file| file.read_all(1 << 16));
    text.map_or_else(|error| error.to_string(), |text| format!("found earlier: {}", String::from_utf8_lossy(&text)))
}

impl Parts {
    fn assemble(
        self,
        disk: Arc<dyn Disk>,
        (tables, newest): (Arc<dyn Tables>, u64),
        config: StoreConfig,
        lock: DiskLock,
    ) -> (Engine, Restored) {
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
        let current = Arc::new(Current::new(ledger));
        let view = View { health: health.clone(), pending: pending.clone(), current: current.clone() };
        let gauge = Gauge::new(disk.clone(), current.clone(), &config);
        let behind = Behind {
            disk,
            health,
            pending,
            tables,
            current,
            rebuild: None,
            former: None,
            newest,
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
