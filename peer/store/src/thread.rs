//! Threads of the store: the journal's thread commits, and other threads write behind, read, and verify the table after a
//! start.
//!
//! The loop that owns a [`StoreThread`] never waits for a disk, unless a queue is full. All batches that wait in the journal's
//! queue share one write, one sync and one event.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvError, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use environment::step_back;
use node::Change;

use crate::behind::pending::PendingWrites;
use crate::behind::turns::Turns;
use crate::behind::{Behind, Progress};
use crate::config::StoreConfig;
use crate::disk::DiskLock;
use crate::engine::{Engine, Staged, View, Writer};
use crate::error::StoreError;
use crate::meters::StoreStats;
use crate::reads::{Read, Reads};
use crate::room::Shortage;

/// Upper limit of hand-ins that wait for the journal. Each hand-in is a whole drained batch of the loop.
const COMMITS_MAX: usize = 1024;
/// Niceness of background threads, in the kernel's scale (0 to 19). With 5, such a thread gets a third of an equal share of a
/// contended core. With much less, the background threads would in the end delay the commits that wait for room.
const BACKGROUND_NICE: i32 = 5;
/// Bytes that are committed before the next event, if that many bytes wait.
pub const COMMIT_BYTES_MAX: usize = 4 << 20;
/// Time that a clean stop spends at most on writing pending changes to the table, in portions of `PORTION_BYTES`.
const SEAL_MAX: Duration = Duration::from_secs(2);
const PORTION_BYTES: usize = 1 << 20;
/// Time without a commit after which the journal's end is marked. A commit that arrives during the marking waits for one more
/// sync.
const MARK_AFTER: Duration = Duration::from_millis(30);
/// Interval at which the journal's end is noted while commits arrive without a pause: one write, no sync.
const NOTE_EVERY: Duration = Duration::from_secs(1);
/// Longest pause of the verifier between two steps.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Events that the store reports to the loop. The store's own threads report them.
#[derive(Clone, Debug)]
pub enum StoreEvent {
    /// The batch with this token is durable, and so are all earlier batches of the same lane.
    Persisted(u64),
    /// The store failed: nothing more becomes durable, and loads and scans may stay unanswered. Reported once. After damage
    /// ([`StoreError::is_damage`]) the store must be moved aside.
    Failed(StoreError),
    /// Answers [`StoreThread::load`].
    Loaded {
        /// The key of the request.
        record_key: Bytes,
        /// `None` where the store has no record for the key.
        record: Option<Bytes>,
    },
    /// Answers [`StoreThread::scan`].
    Scanned {
        /// The token of the request.
        token: u64,
        /// In the order of their keys.
        records: Vec<(Bytes, Bytes)>,
        /// Whether no record follows the last one.
        done: bool,
    },
    /// Room on the disk became low, by this limit, or is no longer low (`None`). Initially room counts as not low.
    DiskLow(Option<Shortage>),
    /// Whether the write-behind is behind: the waiting bytes exceed three quarters of the amount at which commits wait.
    /// Initially `false`.
    Behind(bool),
}

/// Handle of a running store. Dropping it stops the store without a seal; [`StoreThread::seal`] stops the store cleanly.
///
/// For one caller at a time: the order of the calls is the order of the batches. The store serves several lanes with separate
/// records, and each event names the lanes that receive it.
pub struct StoreThread {
    pending: Arc<PendingWrites>,
    /// Batches that are staged, but not yet submitted.
    staged: Vec<Handed>,
    commits: Option<SyncSender<Vec<Handed>>>,
    reads: Arc<Reads>,
    report: Arc<StoreReporter>,
    writer: Option<JoinHandle<Writer>>,
    behind: Option<JoinHandle<Behind>>,
    others: Vec<JoinHandle<()>>,
    /// The last field: the directory is free once no thread works on it any more.
    lock: Option<DiskLock>,
}

/// A batch on its way to the journal: its lane, its token, and its staged changes.
type Handed = (u8, u64, Staged);

impl StoreThread {
    /// Starts the threads. All of them call `tell`, which must not wait for the loop: the loop may be waiting for a place in
    /// the store's queue. An event for one lane carries the lane's number; all lanes receive every other event.
    ///
    /// # Errors
    /// A thread could not be started. The threads that were started before are stopped.
    pub fn start(
        engine: Engine,
        tell: impl Fn(To, StoreEvent) + Send + Sync + 'static,
    ) -> Result<StoreThread, StoreError> {
        let Engine { config, writer, behind, view, gauge, lock } = engine;
        let pending = view.pending.clone();
        let report = Arc::new(StoreReporter::new(tell, pending.clone()));
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
        // If a thread does not start, dropping `thread` stops the threads that were started before it.
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

    /// Returns a function that reads the store's statistics from any thread, also after the store has stopped.
    pub fn watch(&self) -> impl Fn() -> StoreStats + Send + Sync + 'static {
        let pending = self.pending.clone();
        move || pending.stats()
    }

    /// Hands out a batch, atomically and after all earlier batches. Loads and scans see the batch from now on; the journal gets
    /// it at the next [`StoreThread::submit`]. Answered by [`StoreEvent::Persisted`] with this token or a later one.
    pub fn persist(&mut self, lane: u8, token: u64, changes: Vec<Change>) {
        self.staged.push((lane, token, self.pending.stage(changes)));
    }

    /// Sends all batches that were handed out to the journal, with one wake-up for all of them. The loop calls it once it has
    /// drained its outputs. Waits if the journal is far behind.
    pub fn submit(&mut self) {
        if self.staged.is_empty() {
            return;
        }
        // A journal that has ended has reported the reason.
        if let Some(commits) = &self.commits {
            let _ = commits.send(std::mem::take(&mut self.staged));
        }
    }

    /// Looks up a record as of all batches handed out before. An `urgent` load passes all requests that are not urgent.
    pub fn load(&self, lane: u8, record_key: Bytes, urgent: bool) {
        self.reads.push(Read::Load { lane, record_key }, urgent);
    }

    /// Lists records from `from` on, up to about `bytes_max` bytes, as of all batches handed out before.
    pub fn scan(&self, lane: u8, token: u64, from: Bytes, bytes_max: usize) {
        self.reads.push(Read::Scan { lane, token, from, bytes_max }, false);
    }

    /// Stops the store cleanly: all batches that were handed out become durable, then the store is sealed. No event follows.
    ///
    /// # Errors
    /// A thread panicked, or the store has failed or fails now. The store is then not sealed; acknowledged batches stay durable.
    pub fn seal(mut self) -> Result<(), StoreError> {
        self.submit();
        let (writer, behind) = self.stop();
        let died = || StoreError::Io {
            doing: "stopping the store".into(),
            cause: "one of its threads had panicked".into(),
            kind: std::io::ErrorKind::Other,
        };
        let (mut writer, mut behind) = (writer.ok_or_else(died)?, behind.ok_or_else(died)?);
        // After `SEAL_MAX` the next start reads the rest from the journal.
        let began = Instant::now();
        while began.elapsed() < SEAL_MAX && (behind.step(PORTION_BYTES)? != Progress::Done || !behind.is_level()) {}
        writer.seal()?;
        behind.end();
        Ok(())
    }

    /// Ends a store that is of no more use to this process, without a seal. Frees its directory as soon as its threads have
    /// stopped, and after `patience` at the latest. Waits for no thread that hangs, and drops no table. The table's destructor
    /// may wait for ever for a write that a failed disk has not taken. The process should end soon.
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
            // The caller may have gone on.
            let _ = tell.send(());
            std::mem::forget(left);
        });
        if joins.is_err() || stopped.recv_timeout(patience).is_err() {
            tracing::warn!("a thread of the store does not stop: it will end with the process");
        }
        self.lock = None;
    }

    /// Stops all threads; the journal's thread first commits all batches that it was given.
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
        // Commits wait for room no more: batches that were handed out and not acknowledged may be lost.
        self.pending.end();
        if let (_, Some(behind)) = self.stop() {
            behind.end();
        }
    }
}

/// The receivers of a [`StoreEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// All lanes.
    All,
    /// The lane with this number.
    Lane(u8),
}

/// Channel through which the threads report to the loop.
pub(crate) struct StoreReporter {
    tell: Box<dyn Fn(To, StoreEvent) + Send + Sync>,
    told: AtomicBool,
    stop: AtomicBool,
    pending: Arc<PendingWrites>,
}

impl StoreReporter {
    pub(crate) fn new(
        tell: impl Fn(To, StoreEvent) + Send + Sync + 'static,
        pending: Arc<PendingWrites>,
    ) -> StoreReporter {
        StoreReporter { tell: Box::new(tell), told: AtomicBool::new(false), stop: AtomicBool::new(false), pending }
    }

    /// Returns the value; reports an error as a failure of the store, and returns `None` then.
    pub(crate) fn value<T>(&self, result: Result<T, StoreError>) -> Option<T> {
        result.map_err(|error| self.failed(error)).ok()
    }

    fn failed(&self, error: StoreError) {
        self.pending.end();
        if !self.told.swap(true, Ordering::AcqRel) {
            self.tell_all(StoreEvent::Failed(error));
        }
    }

    /// Reports an event to every lane.
    pub(crate) fn tell_all(&self, event: StoreEvent) {
        (self.tell)(To::All, event);
    }
}

/// Guard that reports a panic of its thread: a store with a dead thread must not look like a slow store.
struct ThreadGuard(Arc<StoreReporter>);

impl Drop for ThreadGuard {
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

/// The kind of caller that waits for a thread's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waited {
    /// Clients wait for the thread.
    ByClients,
    /// No caller waits, as long as the thread keeps up.
    ByNobody,
}

fn spawn<T: Send + 'static>(
    name: &str,
    waited_for: Waited,
    report: &Arc<StoreReporter>,
    work: impl FnOnce(&StoreReporter) -> T + Send + 'static,
) -> Result<JoinHandle<T>, StoreError> {
    let watch = ThreadGuard(report.clone());
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

/// The journal's thread: takes all batches that wait and commits them at once, until no sender is left.
fn commit_all(
    mut writer: Writer,
    to_commit: &Receiver<Vec<Handed>>,
    config: &StoreConfig,
    report: &StoreReporter,
) -> Writer {
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
                    failed = true; // The thread goes on receiving, so that the loop does not wait for ever.
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

/// Keeps the last token of each lane.
fn note(tokens: &mut Vec<(u8, u64)>, lane: u8, token: u64) {
    match tokens.iter_mut().find(|(of, _)| *of == lane) {
        Some((_, last)) => *last = token,
        None => tokens.push((lane, token)),
    }
}

/// The reader's thread. sled's reads may be slow; only the callers that asked wait for them.
fn read_all(view: &View, reads: &Reads, report: &StoreReporter) {
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

/// Goes through the whole table once, in small steps with pauses between them, so that damage is found early and not only at a
/// request.
fn verify_all(view: &View, report: &StoreReporter) {
    while !report.stop.load(Ordering::Acquire) {
        let began = Instant::now();
        match report.value(view.verify_next()) {
            Some(true) => std::thread::sleep(began.elapsed().min(PAUSE_MAX)),
            Some(false) | None => return,
        }
    }
}
