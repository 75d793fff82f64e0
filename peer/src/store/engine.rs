//! The store as one value that does what it is told, in one thread. [`StoreThread`](super::StoreThread) takes it apart
//! and gives each part a thread of its own; simulations and tests use it as it is.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use node::{Change, Restored};

use super::behind::{Behind, Progress};
use super::config::StoreConfig;
use super::disk::{Disk, DiskLock, RealDisk};
use super::error::{Doing, StoreError};
use super::format::Format;
use super::frame::{FRAME_BODY_MAX, Kind};
use super::health::Health;
use super::journal::{Journal, Written};
use super::ledger::behind;
use super::manifest::MANIFEST;
use super::mark::Mark;
use super::meters::StoreStats;
use super::opening;
use super::pending::{Batch, Durable, Pending};
use super::rebuild::{Copied, Current};
use super::room::{Gauge, Room};
use super::table::Tables;
use super::table_sled::SledTables;

/// A batch that was handed out and is not yet committed.
pub type Staged = Arc<Batch>;

/// An open store.
pub struct Engine {
    pub(crate) config: StoreConfig,
    pub(crate) writer: Writer,
    pub(crate) behind: Behind,
    pub(crate) view: View,
    pub(crate) gauge: Gauge,
    /// Last, so that the directory is free only when nothing works on it any more.
    pub(crate) lock: DiskLock,
}

impl Engine {
    /// Is there a store in this directory?
    pub fn is_in(dir: impl AsRef<Path>) -> bool {
        dir.as_ref().join(MANIFEST).is_file()
    }

    /// Refuses the store in this directory if another version of the program wrote it. Changes nothing, and is content with
    /// a directory that is not there.
    ///
    /// # Errors
    /// [`StoreError::Version`], and [`StoreError::Io`] where the manifest is there and cannot be read.
    pub fn check_format(dir: impl AsRef<Path>) -> Result<(), StoreError> {
        Format::check(&RealDisk::existing(dir.as_ref()))
    }

    /// Opens the store in the directory `dir`, or makes one there.
    pub fn open_dir(dir: impl AsRef<Path>, config: &StoreConfig) -> Result<(Engine, Restored), StoreError> {
        let dir = dir.as_ref();
        Engine::check_format(dir)?;
        let disk = RealDisk::new(dir).doing(|| format!("opening {}", dir.display()))?;
        Engine::open(Arc::new(disk), SledTables::new(dir, config.cache_bytes), config)
    }

    /// Opens the store on `disk`, or makes one there. Everything given back is durable, whatever state the last process
    /// left it in.
    pub fn open(
        disk: Arc<dyn Disk>,
        tables: impl Tables + 'static,
        config: &StoreConfig,
    ) -> Result<(Engine, Restored), StoreError> {
        opening::open(disk, Arc::new(tables), config)
    }

    /// Hands out a batch: every [`Engine::load`] and [`Engine::scan`] from now on sees it. Batches are committed in the
    /// order in which they were handed out.
    pub fn stage(&self, changes: Vec<Change>) -> Staged {
        self.view.pending.stage(changes)
    }

    /// Makes batches durable, with one write and one sync for all of them.
    pub fn commit(&mut self, staged: &[Staged]) -> Result<(), StoreError> {
        self.writer.commit(staged)
    }

    /// [`Engine::stage`] and [`Engine::commit`] in one.
    pub fn append(&mut self, batches: impl IntoIterator<Item = Vec<Change>>) -> Result<(), StoreError> {
        let staged = batches.into_iter().map(|changes| self.stage(changes)).collect::<Vec<_>>();
        self.commit(&staged)
    }

    /// A record, as of all batches handed out before.
    pub fn load(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.view.load(key)
    }

    /// Records from `from` on, until they have about `bytes_max` bytes (at least one, if there is one), as of all batches
    /// handed out before; and whether there are no more.
    pub fn scan(&self, from: &[u8], bytes_max: usize) -> Result<(Vec<(Bytes, Bytes)>, bool), StoreError> {
        self.view.scan(from, bytes_max)
    }

    /// Brings one portion of what is durable into the table. `false`: that was the last one of a sweep, and a checkpoint
    /// was made, or waits for what was handed out and is not committed; or there was nothing.
    pub fn write_behind(&mut self) -> Result<bool, StoreError> {
        self.behind.prepare()?;
        Ok(self.behind.step(self.config.behind_bytes)? == Progress::More)
    }

    /// Brings everything that is durable into the table, writes the manifest and cuts the journal. The last two may be
    /// left for later as long as batches are handed out and not committed.
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

    /// Copies one portion of the table into a new one, which is begun if there is none. The next [`Engine::checkpoint`]
    /// after all is copied puts it in place of the old one. `false`: all is copied, or the new one failed and is given up
    /// ([`StoreStats::given_up`]).
    pub fn rebuild(&mut self) -> Result<bool, StoreError> {
        Ok(self.behind.rebuild(self.config.behind_bytes)? == Copied::More)
    }

    /// Compares one more range of the table with its books; `false` when all of them were.
    pub fn verify_next(&self) -> Result<bool, StoreError> {
        self.view.verify_next()
    }

    /// Reads the whole table and compares it with its books.
    pub fn verify(&self) -> Result<(), StoreError> {
        while self.verify_next()? {}
        Ok(())
    }

    /// What a store does once nothing is to be committed for a moment: notes how far its journal goes, so that what goes bad
    /// or missing up to there later is known to be damage.
    pub fn mark(&mut self) -> Result<(), StoreError> {
        self.writer.mark()
    }

    /// Whoever asks for it learns what the store does, also after its end.
    pub fn watch(&self) -> impl Fn() -> StoreStats + Send + Sync + 'static {
        let pending = self.view.pending.clone();
        move || pending.stats()
    }

    /// How much room there is.
    pub fn room(&mut self) -> Result<Room, StoreError> {
        self.gauge.read(self.behind.beside()?)
    }

    /// A clean stop: after it the store says [`Sealed`](node::Tail::Sealed). Dropped without it, it will not.
    pub fn seal(mut self) -> Result<(), StoreError> {
        self.checkpoint()?;
        self.writer.seal()?;
        self.behind.end();
        Ok(())
    }
}

/// The end at which batches go in.
pub(crate) struct Writer {
    pub(crate) health: Arc<Health>,
    pub(crate) pending: Arc<Pending>,
    pub(crate) journal: Journal,
    pub(crate) marked: Mark,
    /// Bodies of about this length are cut into several frames, so that little is lost at the end of a segment.
    pub(crate) frame_bytes: usize,
    /// Bytes waiting that wake the write-behind.
    pub(crate) mark: usize,
    /// The number of the last batch committed.
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

    /// Is something durable that the mark does not say to be?
    pub(crate) fn is_unmarked(&self) -> bool {
        self.marked.seq() < self.journal.seq()
    }

    /// Says outside of the journal how far it goes. One write and one sync, or nothing where that is known.
    pub(crate) fn mark(&mut self) -> Result<(), StoreError> {
        self.health.check()?;
        let marked = self.marked.advance(self.journal.seq());
        self.health.note(marked)
    }

    /// The same with one write and no sync, which counts until the power goes out.
    pub(crate) fn note(&mut self) -> Result<(), StoreError> {
        self.health.check()?;
        let noted = self.marked.note(self.journal.seq());
        self.health.note(noted)
    }

    pub(crate) fn seal(&mut self) -> Result<(), StoreError> {
        // Should the seal go bad, what lies before it is still known to have been there.
        self.mark()?;
        let written = self.journal.append(Kind::Seal, []);
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
        self.journal.append(Kind::Data, batches.iter().map(|batch| &batch.changes[..]))
    }
}

/// A frame as the write-behind takes it.
pub(crate) fn durable(written: Written, batches: Vec<Staged>) -> Durable {
    Durable { seq: written.seq, segment: written.segment, bytes: written.bytes, batches }
}

/// The end at which records come out. May be shared.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) health: Arc<Health>,
    pub(crate) pending: Arc<Pending>,
    pub(crate) current: Arc<Current>,
}

impl View {
    pub(crate) fn load(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.health.check()?;
        // In this order: what leaves the pending ones is in the table already.
        match self.pending.get(key) {
            Some(value) => Ok(value),
            None => self.health.note(self.current.get().get(key)),
        }
    }

    pub(crate) fn scan(&self, from: &[u8], bytes_max: usize) -> Result<(Vec<(Bytes, Bytes)>, bool), StoreError> {
        self.health.check()?;
        let mut from = Bytes::copy_from_slice(from);
        loop {
            // In this order, as above. A record changed between the two may show its newer state: never an older one.
            let (pending, pending_done) = self.pending.page(&from, bytes_max);
            let (stored, stored_done) = self.health.note(self.current.get().scan(&from, bytes_max))?;
            // What one page does not reach, the other must not speak for.
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

/// Both pages together may be twice as long as asked.
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
