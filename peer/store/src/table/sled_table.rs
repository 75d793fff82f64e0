//! The table as a sled database.
//!
//! Measured traits of sled 0.34.7 that shape this file. On Linux its `flush` does not survive a power cut unless its file `db` is
//! synced (see also [`durable_range`](crate::table::durable_range)). Pages over 128 KiB lie in files of their own, and are not reliably
//! durable. On damaged files `open` may panic, or may open with records missing. Where a write failed, its destructor may wait for
//! that write for ever.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use bytes::Bytes;

use crate::table::{Table, TableError, Tables};

/// Prefix of the names of tables.
const PREFIX: &str = "table-";

/// Directories of a store, each of which holds a sled database: `table-1` and so on.
pub struct SledTables {
    store: PathBuf,
    cache_bytes: u64,
    /// The table whose opening [`Tables::open_ahead`] began.
    opening: Mutex<Option<OpeningTable>>,
}

/// A table that a thread is opening: its number and the thread.
type OpeningTable = (u64, JoinHandle<Result<SledTable, TableError>>);

impl SledTables {
    /// Creates the access to the tables in the store's directory `store`, each with a cache of about `cache_bytes`.
    pub fn new(store: impl Into<PathBuf>, cache_bytes: u64) -> SledTables {
        SledTables { store: store.into(), cache_bytes, opening: Mutex::default() }
    }

    /// Returns the name of a table's directory.
    pub(crate) fn name(number: u64) -> String {
        format!("{PREFIX}{number}")
    }

    /// Returns the number of the table in a directory of this name.
    pub(crate) fn number(name: &OsStr) -> Option<u64> {
        let number = name.to_str()?.strip_prefix(PREFIX)?.parse().ok()?;
        (name == &*SledTables::name(number)).then_some(number)
    }

    fn path(&self, number: u64) -> PathBuf {
        self.store.join(SledTables::name(number))
    }

    fn opening(&self) -> MutexGuard<'_, Option<OpeningTable>> {
        self.opening.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SledTables {
    fn drop(&mut self) {
        // The owner of this value may move the directory after the drop.
        self.opening().take().map(|(_, opens)| opens.join());
    }
}

impl Tables for SledTables {
    fn open_ahead(&self, number: u64) {
        let mut opening = self.opening();
        if opening.is_none() {
            let (path, cache_bytes) = (self.path(number), self.cache_bytes);
            // Without a thread, [`Tables::open`] opens the table.
            let opens = Builder::new().name("store-open".into()).spawn(move || SledTable::open(path, cache_bytes));
            *opening = opens.ok().map(|opens| (number, opens));
        }
    }

    fn open(&self, number: u64) -> Result<Box<dyn Table>, TableError> {
        let ahead = self.opening().take_if(|(ahead, _)| *ahead == number);
        let table = match ahead.map(|(_, opens)| opens.join()) {
            Some(Ok(opened)) => opened,
            Some(Err(_)) => Err(TableError::Damaged("the thread that opened the table panicked".into())),
            None => SledTable::open(self.path(number), self.cache_bytes),
        };
        table.map(|table| Box::new(table) as Box<dyn Table>)
    }

    fn remove(&self, number: u64) -> io::Result<()> {
        let path = self.path(number);
        // A sled that failed stays open, and would keep the room of its files. Where truncation fails, the removal below may
        // succeed.
        let _ = File::options().write(true).open(path.join(FILE)).and_then(|file| file.set_len(0));
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn list(&self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.store)? {
            numbers.extend(SledTables::number(&entry?.file_name()));
        }
        Ok(numbers)
    }
}

/// Number of attempts, and the pause between them, to take the lock of a table before sled does, which does not wait.
const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(10);
/// Name of sled's own file in a table's directory.
const FILE: &str = "db";
/// Name of sled's directory for files of large pages.
const BLOBS: &str = "blobs";

struct SledTable {
    db: sled::Db,
    /// Whether a call into sled has failed: sled is not dropped then.
    failed: AtomicBool,
    /// sled's own file, opened once more to sync it.
    file: File,
    path: PathBuf,
}

impl Drop for SledTable {
    fn drop(&mut self) {
        // sled writes its unwritten pages in its destructor. That is done here, where it may fail; a sled that has failed stays in
        // memory until the process ends.
        if self.failed.load(Ordering::Acquire) || self.call(|| self.db.flush()).is_err() {
            // Clones share one database, which is dropped with the last of them.
            std::mem::forget(self.db.clone());
        }
    }
}

impl SledTable {
    fn open(path: PathBuf, cache_bytes: u64) -> Result<SledTable, TableError> {
        let config = sled::Config::new().path(&path).cache_capacity(cache_bytes).flush_every_ms(None);
        #[cfg(target_os = "linux")]
        crate::table::durable_range::keep();
        await_lock(&path.join(FILE));
        let db = contained(|| config.open())?;
        let file = OpenOptions::new().read(true).write(true).open(path.join(FILE))?;
        // The directory's own entries too: the database's name, and the names of the snapshots that sled writes.
        File::open(&path)?.sync_all()?;
        if let Some(parent) = path.parent() {
            File::open(parent)?.sync_all()?;
        }
        Ok(SledTable { db, failed: AtomicBool::new(false), file, path })
    }

    /// Calls into sled, and notes an error.
    fn call<T>(&self, call: impl FnOnce() -> Result<T, sled::Error>) -> Result<T, TableError> {
        contained(call).inspect_err(|_| self.failed.store(true, Ordering::Release))
    }
}

impl Table for SledTable {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TableError> {
        self.call(|| Ok(self.db.get(key)?.map(|value| Bytes::copy_from_slice(&value))))
    }

    fn scan(&self, from: &[u8], to: &[u8], bytes_max: usize) -> Result<Vec<(Bytes, Bytes)>, TableError> {
        self.call(|| {
            let (mut found, mut bytes) = (Vec::new(), 0);
            for entry in self.db.range(from..to) {
                let (key, value) = entry?;
                bytes += key.len() + value.len();
                found.push((Bytes::copy_from_slice(&key), Bytes::copy_from_slice(&value)));
                if bytes >= bytes_max {
                    break;
                }
            }
            Ok(found)
        })
    }

    fn last(&self, from: &[u8], upto: &[u8]) -> Result<Option<(Bytes, Bytes)>, TableError> {
        self.call(|| {
            let last = self.db.range(from..=upto).next_back().transpose()?;
            Ok(last.map(|(key, value)| (Bytes::copy_from_slice(&key), Bytes::copy_from_slice(&value))))
        })
    }

    fn apply(&self, changes: &[(Bytes, Option<Bytes>)]) -> Result<(), TableError> {
        self.call(|| {
            let mut batch = sled::Batch::default();
            for (key, value) in changes {
                match value {
                    Some(value) => batch.insert(&key[..], &value[..]),
                    None => batch.remove(&key[..]),
                }
            }
            self.db.apply_batch(batch)?;
            // Only a few of sled's buffers may be in flight. sled has seven threads: where all of them write, they end up waiting
            // for a thread that waits for them.
            self.db.flush().map(|_| ())
        })
    }

    fn flush(&self) -> Result<(), TableError> {
        self.call(|| self.db.flush())?;
        sync_blobs(&self.path.join(BLOBS)).map_err(io::Error::other)?;
        // An error of any kind: pages that could not be written may look written from now on.
        Ok(self.file.sync_data().map_err(io::Error::other)?)
    }

    fn disk_bytes(&self) -> Result<u64, TableError> {
        Ok(dir_bytes(&self.path)?)
    }
}

/// Makes sled's files for large pages durable. There are hardly any: see [`pieces`](crate::table::pieces). The rest are pages of sled's
/// index over thousands of neighbouring keys that begin with the same 500 bytes or more.
fn sync_blobs(dir: &Path) -> io::Result<()> {
    let mut any = false;
    for entry in fs::read_dir(dir)? {
        match File::open(entry?.path()) {
            Ok(file) => file.sync_data()?,
            // Removed by sled meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => (),
            Err(error) => return Err(error),
        }
        any = true;
    }
    if any { File::open(dir)?.sync_all() } else { Ok(()) }
}

/// Returns the bytes of all files below a directory. Files that vanish meanwhile count nothing.
pub(crate) fn dir_bytes(dir: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        match entry.metadata() {
            Ok(meta) if meta.is_dir() => bytes += dir_bytes(&entry.path())?,
            Ok(meta) => bytes += meta.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (),
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// Waits a moment while the lock of a sled that this process closed is held. A child process that is being started has copies of all
/// descriptors until it executes its program. The store's own lock is held here, so no other process has the table open.
fn await_lock(file: &Path) {
    let Ok(file) = File::open(file) else { return };
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            // Where the lock cannot be released here, closing the file releases it.
            _ => return file.unlock().unwrap_or_default(),
        }
    }
}

/// Runs a call into sled. A panic inside means that sled met files that it cannot read.
///
/// Unwind safety: after such an error the store never calls its table again, so no caller sees a half-changed state.
fn contained<T>(call: impl FnOnce() -> Result<T, sled::Error>) -> Result<T, TableError> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(sled::Error::Io(error))) => Err(TableError::Io(error)),
        Ok(Err(other)) => Err(TableError::Damaged(format!("sled: {other}"))),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no words");
            Err(of_panic(text))
        }
    }
}

/// Returns the table's error for a panic within sled. Some of sled's writes are unwrapped: a full disk is no damage.
fn of_panic(text: &str) -> TableError {
    let full = ["StorageFull", "QuotaExceeded", "No space left on device", "Disk quota exceeded"];
    match full.iter().any(|words| text.contains(words)) {
        true => {
            TableError::Io(io::Error::new(io::ErrorKind::StorageFull, "no space is left on the disk, or in the quota"))
        }
        false => TableError::Damaged(format!("sled panicked: {text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_for_want_of_room_is_no_damage() {
        let error = io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error());
        let text = format!("called `Result::unwrap()` on an `Err` value: {error:?}");
        assert!(
            matches!(of_panic(&text), TableError::Io(error) if error.kind() == io::ErrorKind::StorageFull),
            "{text}"
        );
        assert!(matches!(of_panic("index out of bounds"), TableError::Damaged(_)));
    }

    /// Otherwise a power cut could take pages that were rewritten: sled would have freed the old pages already.
    #[cfg(target_os = "linux")]
    #[test]
    fn buffers_are_durable_before_what_they_replace_is_let_go_of() {
        use crate::table::durable_range::calls;
        let dir = tempfile::tempdir().expect("a directory");
        let table = SledTable::open(dir.path().join("table"), 1 << 20).expect("opens");
        let (before, value) = (calls(), Bytes::from(vec![7; 100_000]));
        for number in 0..20u8 {
            table.apply(&[(Bytes::copy_from_slice(&[number]), Some(value.clone()))]).expect("applies");
        }
        table.call(|| table.db.flush()).expect("flushes");
        assert!(calls() >= before + 4, "2 MB are four buffers of sled's, and {} were synced", calls() - before);
    }

    /// As a child process that is being started holds the lock.
    #[test]
    fn a_lock_that_is_held_for_a_moment_is_waited_for() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("table");
        drop(SledTable::open(path.clone(), 1 << 20).expect("opens"));
        let held = File::open(path.join(FILE)).expect("is there");
        // A process that another test starts may have a copy of the table's descriptor for a moment.
        held.lock().expect("it comes to be free");
        let lets_go = std::thread::spawn(move || {
            std::thread::sleep(20 * LOCK_PAUSE);
            drop(held);
        });
        let opened = SledTable::open(path, 1 << 20).map(drop);
        assert!(opened.is_ok(), "{opened:?}");
        lets_go.join().expect("does not panic");
    }

    /// A sled that failed once is not dropped: its destructor may never return.
    #[test]
    fn a_table_that_failed_is_left_in_memory() {
        let dir = tempfile::tempdir().expect("a directory");
        let table = SledTable::open(dir.path().join("table"), 1 << 20).expect("opens");
        let failed = table.call(|| Err::<(), _>(sled::Error::Io(io::ErrorKind::StorageFull.into())));
        assert!(failed.is_err());
        drop(table);
        // sled holds its lock as long as any part of it is in memory.
        assert!(SledTable::open(dir.path().join("table"), 1 << 20).is_err(), "it was dropped");
    }
}
