//! The store's threads: one commits, one writes behind, one reads, and one verifies the table after a start.
//!
//! The loop that owns a [`StoreThread`] never waits for a disk, unless a queue is full. For all batches that wait there
//! is one write, one sync and one event.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvError, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use node::Change;

use super::behind::{Behind, Progress};
use super::config::StoreConfig;
use super::disk::DiskLock;
use super::engine::{Engine, Staged, View, Writer};
use super::error::StoreError;
use super::meters::StoreStats;
use super::pending::Pending;
use super::reads::{Read, Reads};
use super::room::Shortage;
use super::turns::Turns;
use crate::priority::step_back;

/// Hand-ins that may wait for the journal. Each is a whole drained batch of the loop.
const COMMITS_MAX: usize = 1024;
/// How far threads that nobody waits for step back, in the kernel's terms (0 to 19): to a third of an equal share of a
/// core that others want. With much less they would hold up, in the end, those who wait for room.
const BACKGROUND_NICE: i32 = 5;
/// Bytes committed before the next event, if so much waits.
pub const COMMIT_BYTES_MAX: usize = 4 << 20;
/// At a clean stop what waits is written to the table for so long at most, in portions of so many bytes.
const SEAL_MAX: Duration = Duration::from_secs(2);
const PORTION_BYTES: usize = 1 << 20;
/// With nothing to commit for so long after a frame the journal's end is marked. A commit that comes meanwhile waits for one
/// sync more.
const MARK_AFTER: Duration = Duration::from_millis(30);
/// Where there is always something to commit, its end is noted so often: one write, no sync.
const NOTE_EVERY: Duration = Duration::from_secs(1);
/// The verifier pauses at most so long between two steps.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// What the store tells the loop. Called from the store's own threads.
#[derive(Clone, Debug)]
pub enum StoreEvent {
    /// The batch of this token, and all before it of the same lane, are durable.
    Persisted(u64),
    /// The store failed; nothing more will be durable, and no load or scan need be answered. Said once. After damage
    /// ([`StoreError::is_damage`]) the store must be moved aside.
    Failed(StoreError),
    /// Answers [`StoreThread::load`].
    Loaded {
        /// As asked.
        record_key: Bytes,
        /// `None` where there is none.
        record: Option<Bytes>,
    },
    /// Answers [`StoreThread::scan`].
    Scanned {
        /// As asked.
        token: u64,
        /// In order of their keys.
        records: Vec<(Bytes, Bytes)>,
        /// There are no more behind the last one.
        done: bool,
    },
    /// Room on the disk came to be low, by this limit, or is no longer (`None`). At first it counts as not low.
    DiskLow(Option<Shortage>),
    /// More waits to be written behind than is well, or no longer: with a third more commits wait. At first none does.
    Behind(bool),
}

/// A store at work. Dropped, it stops without a seal; [`StoreThread::seal`] stops it properly.
///
/// For one caller at a time: the order of the calls is the order of the batches. It serves several lanes, whose records
/// are apart, and tells each what is for it.
pub struct StoreThread {
    pending: Arc<Pending>,
    /// Staged, not yet submitted.
    staged: Vec<Handed>,
    commits: Option<SyncSender<Vec<Handed>>>,
    reads: Arc<Reads>,
    report: Arc<Report>,
    writer: Option<JoinHandle<Writer>>,
    behind: Option<JoinHandle<Behind>>,
    others: Vec<JoinHandle<()>>,
    /// Last: the directory is free once no thread works on it any more.
    lock: Option<DiskLock>,
}

/// A batch on its way to the journal: whose, its token, and what it is.
type Handed = (u8, u64, Staged);

impl StoreThread {
    /// Starts the threads. `tell` is called from all of them and must not wait for the loop: the loop may be waiting for
    /// a place in the store's queue. What is for one lane comes with its number; all others hear everything else.
    pub fn start(
        engine: Engine,
        tell: impl Fn(To, StoreEvent) + Send + Sync + 'static,
    ) -> Result<StoreThread, StoreError> {
        let Engine { config, writer, behind, view, gauge, lock } = engine;
        let pending = view.pending.clone();
        let report = Arc::new(Report::new(tell, pending.clone()));
        let (commits, to_commit) = sync_channel(COMMITS_MAX);
        let reads = Arc::new(Reads::default());
        let mut thread = StoreThread {
            pending,
            staged: Vec::new(),
            commits: Some(commits),
            reads: reads.clone(),
            report: report.clone(),
            writer: None,
            behind: None,
            others: Vec::new(),
            lock: Some(lock),
        };
        // One that does not start: those started before are stopped as `thread` is dropped.
        let limits = config.clone();
        thread.writer = Some(spawn("journal", Waited::ByClients, &report, move |report| {
            commit_all(writer, &to_commit, &limits, report)
        })?);
        thread.behind = Some(spawn("behind", Waited::ByNobody, &report, move |report| {
            Turns::new(behind, gauge, config, report).work()
        })?);
        let reader = view.clone();
        thread.others.push(spawn("read", Waited::ByClients, &report, move |report| read_all(&reader, &reads, report))?);
        thread.others.push(spawn("verify", Waited::ByNobody, &report, move |report| verify_all(&view, report))?);
        Ok(thread)
    }

    /// Whoever asks for it learns what the store does, from any thread and also after it has stopped.
    pub fn watch(&self) -> impl Fn() -> StoreStats + Send + Sync + 'static {
        let pending = self.pending.clone();
        move || pending.stats()
    }

    /// Hands out a batch: all or nothing, and after all batches before. Loads and scans see it from now on; the journal
    /// gets it at the next [`StoreThread::submit`]. Answered by [`StoreEvent::Persisted`] with this token or a later one.
    pub fn persist(&mut self, lane: u8, token: u64, changes: Vec<Change>) {
        self.staged.push((lane, token, self.pending.stage(changes)));
    }

    /// Sends everything handed out to the journal, with one wake-up for all of it. To be called once the loop has drained
    /// its outputs. Waits if the journal is far behind.
    pub fn submit(&mut self) {
        if self.staged.is_empty() {
            return;
        }
        // A journal that has ended has said why.
        if let Some(commits) = &self.commits {
            let _ = commits.send(std::mem::take(&mut self.staged));
        }
    }

    /// Looks up a record, as of all batches handed out before; ahead of all that is not `urgent`.
    pub fn load(&self, lane: u8, record_key: Bytes, urgent: bool) {
        self.reads.push(Read::Load { lane, record_key }, urgent);
    }

    /// Lists records from `from` on, until they have about `bytes_max` bytes, as of all batches handed out before.
    pub fn scan(&self, lane: u8, token: u64, from: Bytes, bytes_max: usize) {
        self.reads.push(Read::Scan { lane, token, from, bytes_max }, false);
    }

    /// A clean stop: everything handed out becomes durable, then the store is sealed. No event follows its return.
    pub fn seal(mut self) -> Result<(), StoreError> {
        self.submit();
        let (writer, behind) = self.stop();
        let died = || StoreError::Io {
            doing: "stopping the store".into(),
            cause: "one of its threads had panicked".into(),
            kind: std::io::ErrorKind::Other,
        };
        let (mut writer, mut behind) = (writer.ok_or_else(died)?, behind.ok_or_else(died)?);
        // What takes longer is for the next start to read.
        let began = Instant::now();
        while began.elapsed() < SEAL_MAX && (behind.step(PORTION_BYTES)? != Progress::Done || !behind.is_level()) {}
        writer.seal()?;
        behind.end();
        Ok(())
    }

    /// Ends a store that is of no more use to this process, without a seal: gives its directory free as soon as its threads
    /// have stopped, and after `patience` at the latest. Waits for no thread that hangs, and drops no table: what a failed disk
    /// has not taken the table may wait for in its destructor, for ever. The process should end soon.
    pub fn abandon(mut self, patience: Duration) {
        self.pending.end();
        self.commits = None;
        self.report.stop.store(true, Ordering::Release);
        self.reads.end();
        let (writer, behind, others) = (self.writer.take(), self.behind.take(), std::mem::take(&mut self.others));
        let (tell, stopped) = sync_channel(1);
        let joins = Builder::new().name("store-abandon".into()).spawn(move || {
            let left = (writer.map(JoinHandle::join), behind.map(JoinHandle::join));
            others.into_iter().for_each(|thread| drop(thread.join()));
            // Who abandoned it may have gone on.
            let _ = tell.send(());
            std::mem::forget(left);
        });
        if joins.is_err() || stopped.recv_timeout(patience).is_err() {
            tracing::warn!("a thread of the store does not stop; it ends with the process");
        }
        self.lock = None;
    }

    /// Stops all threads; the journal's first commits all it was given.
    fn stop(&mut self) -> (Option<Writer>, Option<Behind>) {
        self.commits = None;
        let writer = self.writer.take().and_then(|thread| thread.join().ok());
        self.report.stop.store(true, Ordering::Release);
        self.pending.end();
        self.reads.end();
        let behind = self.behind.take().and_then(|thread| thread.join().ok());
        for thread in self.others.drain(..) {
            let _ = thread.join();
        }
        (writer, behind)
    }
}

impl Drop for StoreThread {
    fn drop(&mut self) {
        // No more waiting for room: what was handed out and not acknowledged may be lost.
        self.pending.end();
        if let (_, Some(behind)) = self.stop() {
            behind.end();
        }
    }
}

/// For whom a [`StoreEvent`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// All lanes.
    All,
    /// The one with this number.
    Lane(u8),
}

/// How the threads speak.
pub(crate) struct Report {
    tell: Box<dyn Fn(To, StoreEvent) + Send + Sync>,
    told: AtomicBool,
    stop: AtomicBool,
    pending: Arc<Pending>,
}

impl Report {
    pub(crate) fn new(tell: impl Fn(To, StoreEvent) + Send + Sync + 'static, pending: Arc<Pending>) -> Report {
        Report { tell: Box::new(tell), told: AtomicBool::new(false), stop: AtomicBool::new(false), pending }
    }

    /// The value, or the failure reported.
    pub(crate) fn value<T>(&self, result: Result<T, StoreError>) -> Option<T> {
        result.map_err(|error| self.failed(error)).ok()
    }

    fn failed(&self, error: StoreError) {
        self.pending.end();
        if !self.told.swap(true, Ordering::AcqRel) {
            self.tell_all(StoreEvent::Failed(error));
        }
    }

    /// Tells every lane.
    pub(crate) fn tell_all(&self, event: StoreEvent) {
        (self.tell)(To::All, event);
    }
}

/// Says so if its thread panics: a store with a dead thread must not look like a slow one.
struct Watch(Arc<Report>);

impl Drop for Watch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.failed(StoreError::Io {
                doing: "working on the store".into(),
                cause: "a thread panicked".into(),
                kind: std::io::ErrorKind::Other,
            });
        }
    }
}

/// Who waits for what a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waited {
    /// Clients do.
    ByClients,
    /// Nobody does, as long as it keeps up.
    ByNobody,
}

fn spawn<T: Send + 'static>(
    name: &str,
    waited_for: Waited,
    report: &Arc<Report>,
    work: impl FnOnce(&Report) -> T + Send + 'static,
) -> Result<JoinHandle<T>, StoreError> {
    let watch = Watch(report.clone());
    let thread = Builder::new().name(format!("store-{name}")).spawn(move || {
        let watch = watch;
        if waited_for == Waited::ByNobody {
            step_back(BACKGROUND_NICE);
        }
        work(&watch.0)
    });
    thread.map_err(|error| StoreError::Io {
        doing: format!("starting the thread store-{name}"),
        cause: error.to_string(),
        kind: error.kind(),
    })
}

/// The journal's thread: takes everything that waits, commits it at once, until nobody can hand in any more.
fn commit_all(mut writer: Writer, to_commit: &Receiver<Vec<Handed>>, config: &StoreConfig, report: &Report) -> Writer {
    let (mut staged, mut failed, mut noted) = (Vec::new(), false, Instant::now());
    loop {
        let first = if failed || !writer.is_unmarked() {
            to_commit.recv().map_err(|RecvError| RecvTimeoutError::Disconnected)
        } else {
            to_commit.recv_timeout(MARK_AFTER)
        };
        let first = match first {
            Ok(first) => first,
            Err(RecvTimeoutError::Timeout) => {
                failed = report.value(writer.mark()).is_none();
                noted = Instant::now();
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return writer,
        };
        let (mut tokens, mut bytes) = (Vec::new(), 0);
        let mut next = Some(first);
        while let Some(some) = next {
            for (lane, token, batch) in some {
                note(&mut tokens, lane, token);
                bytes += batch.bytes;
                staged.push(batch);
            }
            next = if bytes < COMMIT_BYTES_MAX { to_commit.try_recv().ok() } else { None };
        }
        if !failed {
            writer.pending.wait_for_room(config.pending_bytes_max, config.backlog_bytes_max());
            match writer.commit(&staged) {
                Ok(()) => {
                    for (lane, token) in tokens {
                        (report.tell)(To::Lane(lane), StoreEvent::Persisted(token));
                    }
                }
                Err(error) => {
                    report.failed(error);
                    failed = true; // And goes on taking in, so that the loop does not wait for ever.
                }
            }
        }
        staged.clear();
        if !failed && noted.elapsed() >= NOTE_EVERY {
            failed = report.value(writer.note()).is_none();
            noted = Instant::now();
        }
    }
}

/// The last token of each lane.
fn note(tokens: &mut Vec<(u8, u64)>, lane: u8, token: u64) {
    match tokens.iter_mut().find(|(of, _)| *of == lane) {
        Some((_, last)) => *last = token,
        None => tokens.push((lane, token)),
    }
}

/// The reader's thread. sled's reads may be slow; nobody waits for them but those who asked.
fn read_all(view: &View, reads: &Reads, report: &Report) {
    let reads = reads.reader();
    while let Some(read) = reads.pop() {
        let (lane, event) = match read {
            Read::Load { lane, record_key } => {
                let loaded = view.load(&record_key);
                (lane, report.value(loaded).map(|record| StoreEvent::Loaded { record_key, record }))
            }
            Read::Scan { lane, token, from, bytes_max } => {
                let scanned = view.scan(&from, bytes_max);
                (lane, report.value(scanned).map(|(records, done)| StoreEvent::Scanned { token, records, done }))
            }
        };
        if report.stop.load(Ordering::Acquire) {
            return;
        }
        event.into_iter().for_each(|event| (report.tell)(To::Lane(lane), event));
    }
}

/// Goes through the whole table once, in small steps with pauses between them, so that damage is found early and not
/// only when somebody asks.
fn verify_all(view: &View, report: &Report) {
    while !report.stop.load(Ordering::Acquire) {
        let began = Instant::now();
        match report.value(view.verify_next()) {
            Some(true) => std::thread::sleep(began.elapsed().min(PAUSE_MAX)),
            Some(false) | None => return,
        }
    }
}
