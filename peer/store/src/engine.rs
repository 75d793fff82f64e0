//! The store as one value that works in its caller's thread. [`StoreThread`](crate::StoreThread) takes it apart and gives
//! each part a thread of its own; simulations and tests use it as it is.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use node::{Change, Restored};

use crate::behind::pending::{Batch, Durable, PendingWrites};
use crate::behind::{Behind, Progress};
use crate::config::StoreConfig;
use crate::disk::{Disk, DiskLock, RealDisk};
use crate::error::{Doing, StoreError};
use crate::format::StoreFormat;
use crate::health::Health;
use crate::journal::frame::{FRAME_BODY_MAX, FrameKind};
use crate::journal::mark::Mark;
use crate::journal::{Journal, Written};
use crate::manifest::MANIFEST;
use crate::meters::StoreStats;
use crate::opening;
use crate::room::{Gauge, Room};
use crate::table::Tables;
use crate::table::ledger::behind;
use crate::table::rebuild::{Copied, Current};
use crate::table::sled_table::SledTables;

/// A batch that was handed out and is not yet committed.
pub type Staged = Arc<Batch>;

/// An open store.
pub struct Engine {
    pub(crate) config: StoreConfig,
    pub(crate) writer: Writer,
    pub(crate) behind: Behind,
    pub(crate) view: View,
    pub(crate) gauge: Gauge,
    /// The last field, so that the directory is free only when no part works on it any more.
    pub(crate) lock: DiskLock,
}

impl Engine {
    /// Returns whether this directory holds a store.
    pub fn is_in(dir: impl AsRef<Path>) -> bool {
        dir.as_ref().join(MANIFEST).is_file()
    }

    /// Refuses the store in this directory if another version of the program wrote it. Changes nothing, and accepts a
    /// directory that does not exist.
    ///
    /// # Errors
    /// [`StoreError::Version`], and [`StoreError::Io`] where the manifest exists and cannot be read.
    pub fn check_format(dir: impl AsRef<Path>) -> Result<(), StoreError> {
        StoreFormat::check(&RealDisk::existing(dir.as_ref()))
    }

    /// Opens the store in the directory `dir`, or creates one there.
    ///
    /// # Errors
    /// The store is of another version, damaged, in use by another process, or cannot be read or written.
    pub fn open_dir(dir: impl AsRef<Path>, config: &StoreConfig) -> Result<(Engine, Restored), StoreError> {
        let dir = dir.as_ref();
        Engine::check_format(dir)?;
        let disk = RealDisk::new(dir).doing(|| format!("opening {}", dir.display()))?;
        Engine::open(Arc::new(disk), SledTables::new(dir, config.cache_bytes), config)
    }

    /// Opens the store on `disk`, or creates one there. Everything returned is durable, in any state that the last process
    /// left the store in.
    ///
    /// # Errors
    /// The store is of another version, damaged, in use by another process, or cannot be read or written.
    pub fn open(
        disk: Arc<dyn Disk>,
        tables: impl Tables + 'static,
        config: &StoreConfig,
    ) -> Result<(Engine, Restored), StoreError> {
        opening::open(disk, Arc::new(tables), config)
    }

    /// Hands out a batch: every later [`Engine::load`] and [`Engine::scan`] sees it. Batches are committed in the order in
    /// which they were handed out.
    pub fn stage(&self, changes: Vec<Change>) -> Staged {
        self.view.pending.stage(changes)
    }

    /// Makes batches durable, with one write and one sync for all of them.
    ///
    /// # Errors
    /// A write or a sync failed: the batches may or may not be durable, and the store is unusable.
    pub fn commit(&mut self, staged: &[Staged]) -> Result<(), StoreError> {
        self.writer.commit(staged)
    }

    /// Stages and commits batches: [`Engine::stage`] and [`Engine::commit`] in one call.
    ///
    /// # Errors
    /// As [`Engine::commit`].
    pub fn append(&mut self, batches: impl IntoIterator<Item = Vec<Change>>) -> Result<(), StoreError> {
        let staged = batches.into_iter().map(|changes| self.stage(changes)).collect::<Vec<_>>();
        self.commit(&staged)
    }

    /// Returns a record, as of all batches handed out before.
    ///
    /// # Errors
    /// The table is damaged or cannot be read.
    pub fn load(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.view.load(key)
    }

    /// Returns records from `from` on, up to about `bytes_max` bytes (at least one, if there is one), as of all batches
    /// handed out before; and whether no record follows.
    ///
    /// # Errors
    /// The table is damaged or cannot be read.
    pub fn scan(&self, from: &[u8], bytes_max: usize) -> Result<(Vec<(Bytes, Bytes)>, bool), StoreError> {
        self.view.scan(from, bytes_max)
    }

    /// Writes one portion of the durable changes to the table. Returns `false` where there was nothing to write, or where
    /// that was the last portion of a sweep. Then a checkpoint was made, or waits for batches that are not committed yet.
    ///
    /// # Errors
    /// The table is damaged, or a read or a write failed. Changes that are durable stay so in the journal.
    pub fn write_behind(&mut self) -> Result<bool, StoreError> {
        self.behind.prepare()?;
        Ok(self.behind.step(self.config.behind_bytes)? == Progress::More)
    }

    /// Writes all durable changes to the table, writes the manifest and cuts the journal. The last two steps may be left for
    /// later while some batches are handed out and not committed.
    ///
    /// # Errors
    /// The table is damaged, or a read or a write failed. Changes that are durable stay so in the journal.
    pub fn checkpoint(&mut self) -> Result<(), StoreError> {
        loop {
            self.behind.prepare()?;
            match self.behind.step(self.config.behind_bytes)? {
                Progress::Done if !self.behind.is_level() => {}
                Progress::Done | Progress::Waits(_) => return Ok(()),
                Progress::More => {}
            }
        }
    }

    /// Copies one portion of the table into a new table, which is begun if there is none. Once all is copied, the next
    /// [`Engine::checkpoint`] replaces the old table. Returns `false` where all is copied, or where the new table failed and
    /// is given up ([`StoreStats::given_up`]).
    ///
    /// # Errors
    /// The old table is damaged, or cannot be read or flushed.
    pub fn rebuild(&mut self) -> Result<bool, StoreError> {
        Ok(self.behind.rebuild(self.config.behind_bytes)? == Copied::More)
    }

    /// Compares one more range of the table with its books; returns `false` when all ranges were compared.
    ///
    /// # Errors
    /// The table is damaged or cannot be read.
    pub fn verify_next(&self) -> Result<bool, StoreError> {
        self.view.verify_next()
    }

    /// Reads the whole table and compares it with its books.
    ///
    /// # Errors
    /// The table is damaged or cannot be read.
    pub fn verify(&self) -> Result<(), StoreError> {
        while self.verify_next()? {}
        Ok(())
    }

    /// Notes outside of the journal how far the journal goes, once no batch was committed for a moment. Any frame up to
    /// there that is bad or missing later is known to be damage.
    ///
    /// # Errors
    /// The mark cannot be written.
    pub fn mark(&mut self) -> Result<(), StoreError> {
        self.writer.mark()
    }

    /// Returns a function that reads the store's statistics, also after the store's end.
    pub fn watch(&self) -> impl Fn() -> StoreStats + Send + Sync + 'static {
        let pending = self.view.pending.clone();
        move || pending.stats()
    }

    /// Measures the room on the disk.
    ///
    /// # Errors
    /// The sizes of files or the free room cannot be read.
    pub fn room(&mut self) -> Result<Room, StoreError> {
        self.gauge.read(self.behind.beside()?)
    }

    /// Stops the store cleanly: the next start reports [`Sealed`](node::Tail::Sealed). A store dropped without it is not
    /// sealed.
    ///
    /// # Errors
    /// The table is damaged, or a read or a write failed: the store is then not sealed.
    pub fn seal(mut self) -> Result<(), StoreError> {
        self.checkpoint()?;
        self.writer.seal()?;
        self.behind.end();
        Ok(())
    }
}

/// The write end of a store, which takes batches in.
pub(crate) struct Writer {
    pub(crate) health: Arc<Health>,
    pub(crate) pending: Arc<PendingWrites>,
    pub(crate) journal: Journal,
    pub(crate) marked: Mark,
    /// Bodies of about this length, in bytes, are cut into several frames, so that little room is lost at the end of a
    /// segment.
    pub(crate) frame_bytes: usize,
    /// Bytes that wait when the write-behind is woken.
    pub(crate) mark: usize,
    /// Number of the last committed batch.
    pub(crate) last: u64,
}

impl Writer {
    pub(crate) fn commit(&mut self, staged: &[Staged]) -> Result<(), StoreError> {
        self.health.check()?;
        let mut rest = staged;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |batch: &&Staged| {
                bytes += batch.bytes;
                bytes <= self.frame_bytes
            };
            let (now, later) = rest.split_at(rest.iter().take_while(fits).count().max(1));
            let since = Instant::now();
            let written = self.write(now);
            let written = self.health.note(written)?;
            self.pending.meters.frame(written.bytes, since);
            self.pending.push(durable(written, now.to_vec()), self.mark);
            rest = later;
        }
        Ok(())
    }

    /// Returns whether a frame behind the mark is durable.
    pub(crate) fn is_unmarked(&self) -> bool {
        self.marked.seq() < self.journal.seq()
    }

    /// Writes to the mark file how far the journal goes: one write and one sync, or nothing where the mark is up to date.
    pub(crate) fn mark(&mut self) -> Result<(), StoreError> {
        self.health.check()?;
        let marked = self.marked.advance(self.journal.seq());
        self.health.note(marked)
    }

    /// Like [`Writer::mark`], with one write and no sync; the note is lost if the power fails.
    pub(crate) fn note(&mut self) -> Result<(), StoreError> {
        self.health.check()?;
        let noted = self.marked.note(self.journal.seq());
        self.health.note(noted)
    }

    pub(crate) fn seal(&mut self) -> Result<(), StoreError> {
        // If the seal is damaged later, the frames before it are still known to have existed.
        self.mark()?;
        let written = self.journal.append(FrameKind::Seal, []);
        self.health.note(written).map(drop)
    }

    fn write(&mut self, batches: &[Staged]) -> Result<Written, StoreError> {
        for batch in batches {
            assert_eq!(batch.number, self.last + 1, "batches are committed in the order in which they were staged");
            self.last = batch.number;
        }
        if let [batch] = batches
            && batch.bytes > FRAME_BODY_MAX
        {
            let cause = format!("a batch of {} bytes, at most {FRAME_BODY_MAX} are possible", batch.bytes);
            let (doing, kind) = ("writing the journal".into(), std::io::ErrorKind::InvalidInput);
            return Err(StoreError::Io { doing, cause, kind });
        }
        self.journal.append(FrameKind::Data, batches.iter().map(|batch| &batch.changes[..]))
    }
}

/// Returns a written frame as the write-behind takes it.
pub(crate) fn durable(written: Written, batches: Vec<Staged>) -> Durable {
    Durable { seq: written.seq, segment: written.segment, bytes: written.bytes, batches }
}

/// The read end of a store. May be shared.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) health: Arc<Health>,
    pub(crate) pending: Arc<PendingWrites>,
    pub(crate) current: Arc<Current>,
}

impl View {
    pub(crate) fn load(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.health.check()?;
        // In this order: a record that has left the pending batches is in the table already.
        match self.pending.get(key) {
            Some(value) => Ok(value),
            None => self.health.note(self.current.get().get(key)),
        }
    }

    pub(crate) fn scan(&self, from: &[u8], bytes_max: usize) -> Result<(Vec<(Bytes, Bytes)>, bool), StoreError> {
        self.health.check()?;
        let mut from = Bytes::copy_from_slice(from);
        loop {
            // In this order, as above. A record that changes between the two reads may show its newer state, never an older
            // one.
            let (pending, pending_done) = self.pending.page(&from, bytes_max);
            let (stored, stored_done) = self.health.note(self.current.get().scan(&from, bytes_max))?;
            // Up to the end of the shorter page only: behind it, the other page alone could be wrong.
            let reach = |last: Option<&Bytes>, done: bool| if done { None } else { last.cloned() };
            let ends = [
                reach(pending.last().map(|(key, _)| key), pending_done),
                reach(stored.last().map(|(key, _)| key), stored_done),
            ];
            let end = ends.into_iter().flatten().min();
            let within = |key: &Bytes| end.as_ref().is_none_or(|end| key <= end);
            let mut merged = stored.into_iter().filter(|(key, _)| within(key)).collect::<BTreeMap<_, _>>();
            for (key, value) in pending.into_iter().filter(|(key, _)| within(key)) {
                match value {
                    Some(value) => drop(merged.insert(key, value)),
                    None => drop(merged.remove(&key)),
                }
            }
            match end {
                Some(end) if merged.is_empty() => from = behind(&end),
                end => return Ok(trim(merged, bytes_max, end.is_none())),
            }
        }
    }

    pub(crate) fn verify_next(&self) -> Result<bool, StoreError> {
        self.health.check()?;
        self.health.note(self.current.get().verify_next())
    }
}

/// Cuts the merged records to `bytes_max`: both pages together may be twice as long as the limit.
fn trim(records: BTreeMap<Bytes, Bytes>, bytes_max: usize, done: bool) -> (Vec<(Bytes, Bytes)>, bool) {
    let (mut kept, mut bytes, all) = (Vec::new(), 0, records.len());
    for (key, value) in records {
        if bytes >= bytes_max && !kept.is_empty() {
            break;
        }
        bytes += key.len() + value.len();
        kept.push((key, value));
    }
    let whole = kept.len() == all;
    (kept, done && whole)
}
