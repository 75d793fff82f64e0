//! Log lines on their way to stderr, through a thread of their own: no logging thread waits for the reader of stderr.
//!
//! A pipe without a reader takes 64 KiB and then blocks; a full disk refuses. Lines that do not fit into a bounded
//! queue meanwhile, and lines that cannot be written, are dropped and counted, and a line reports the number once
//! writing works again.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::Builder;
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

use crate::config::Format;

/// Upper limits of waiting lines, and of their bytes.
const LINES_MAX: usize = 8192;
const BYTES_MAX: usize = 2 << 20;

/// Log of this process, once it was started.
static LOG: OnceLock<Log> = OnceLock::new();

/// Queue of lines, and the thread behind it.
#[derive(Clone)]
pub(crate) struct Log {
    queue: SyncSender<LogEntry>,
    counts: Arc<LineCounts>,
}

#[derive(Default)]
struct LineCounts {
    /// Bytes in the queue.
    waiting: AtomicUsize,
    dropped: AtomicU64,
}

enum LogEntry {
    Line(Vec<u8>),
    /// All entries before it were written, or dropped.
    Flush(SyncSender<()>),
}

impl Log {
    /// Starts the thread that writes to `out`.
    ///
    /// # Errors
    ///
    /// An I/O error where the thread cannot be started.
    pub(crate) fn start(out: impl Write + Send + 'static, format: Format) -> io::Result<Log> {
        let (queue, entries) = sync_channel(LINES_MAX);
        let log = Log { queue, counts: Arc::default() };
        let counts = log.counts.clone();
        Builder::new().name("scatter-log".into()).spawn(move || carry(&entries, &counts, out, format))?;
        Ok(log)
    }

    /// Returns the number of lines dropped since the start.
    pub(crate) fn dropped(&self) -> u64 {
        self.counts.dropped.load(Ordering::Relaxed)
    }

    /// Waits until all lines so far are written, and not longer than `patience`.
    pub(crate) fn flush(&self, patience: Duration) {
        let until = Instant::now() + patience;
        let (tell, told) = sync_channel(1);
        let mut flush = LogEntry::Flush(tell);
        // A full queue takes it once the thread has written a line.
        while let Err(TrySendError::Full(entry)) = self.queue.try_send(flush) {
            if Instant::now() >= until {
                return;
            }
            flush = entry;
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = told.recv_timeout(until.saturating_duration_since(Instant::now()));
    }

    fn put(&self, line: &[u8]) {
        let waiting = self.counts.waiting.fetch_add(line.len(), Ordering::Relaxed);
        if waiting + line.len() > BYTES_MAX || self.queue.try_send(LogEntry::Line(line.to_vec())).is_err() {
            self.counts.waiting.fetch_sub(line.len(), Ordering::Relaxed);
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Write for Log {
    /// Takes one line per call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.put(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Log;

    fn make_writer(&'a self) -> Log {
        self.clone()
    }
}

/// Makes this log the one of the process; the first one stays.
pub(crate) fn set(log: Log) {
    let _ = LOG.set(log);
}

/// Returns the number of lines that the log of this process has dropped.
pub(crate) fn dropped() -> u64 {
    LOG.get().map_or(0, Log::dropped)
}

/// Writes the logged lines before the process ends, unless stderr takes none.
pub(crate) fn flush() {
    LOG.get().into_iter().for_each(|log| log.flush(Duration::from_millis(500)));
}

/// Runs the thread: writes lines as long as there may be more.
fn carry(entries: &Receiver<LogEntry>, counts: &LineCounts, mut out: impl Write, format: Format) {
    let mut told = 0;
    while let Ok(entry) = entries.recv() {
        let dropped = counts.dropped.load(Ordering::Relaxed);
        if dropped > told && out.write_all(gap(dropped - told, format).as_bytes()).is_ok() {
            told = dropped;
        }
        match entry {
            LogEntry::Line(line) => {
                counts.waiting.fetch_sub(line.len(), Ordering::Relaxed);
                if out.write_all(&line).and_then(|()| out.flush()).is_err() {
                    counts.dropped.fetch_add(1, Ordering::Relaxed);
                }
            }
            // The caller may have gone on.
            LogEntry::Flush(tell) => drop(tell.try_send(())),
        }
    }
}

/// Returns the line that stands for missing ones.
fn gap(count: u64, format: Format) -> String {
    match format {
        Format::Text => format!("{count} log lines are missing here: stderr did not take them in time\n"),
        Format::Json => {
            format!("{{\"level\":\"WARN\",\"message\":\"log lines are missing here\",\"dropped\":{count}}}\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::Sender;
    use std::sync::mpsc::channel;

    use super::*;

    /// Takes one line each time it is told to, and keeps it.
    struct LineReader {
        may: Receiver<io::Result<()>>,
        took: Arc<Mutex<String>>,
    }

    impl Write for LineReader {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.may.recv().unwrap_or(Ok(()))?;
            self.took.lock().unwrap().push_str(std::str::from_utf8(line).unwrap());
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn log(format: Format) -> (Log, Sender<io::Result<()>>, Arc<Mutex<String>>) {
        #[expect(clippy::disallowed_methods, reason = "a test takes every message")]
        let (go, may) = channel();
        let took = Arc::new(Mutex::new(String::new()));
        (Log::start(LineReader { may, took: took.clone() }, format).unwrap(), go, took)
    }

    #[test]
    fn who_logs_never_waits_and_what_is_missing_is_told() {
        let (mut log, go, took) = log(Format::Text);
        for number in 0..LINES_MAX + 100 {
            log.write_all(format!("line {number}\n").as_bytes()).unwrap();
        }
        let dropped = log.dropped();
        assert!((99..=100).contains(&dropped), "{dropped}: all but those that wait, and one that is being written");
        drop(go);
        log.flush(Duration::from_secs(60));
        writeln!(log, "the last").unwrap();
        log.flush(Duration::from_secs(60));
        let took = took.lock().unwrap();
        // In one line or in two: the thread may have begun when some were missing already.
        let told =
            took.lines().filter_map(|line| line.split_once(" log lines are missing here")?.0.parse::<u64>().ok());
        assert_eq!(told.sum::<u64>(), dropped, "{}", &took[..200]);
        assert!(took.ends_with("the last\n"));
        assert_eq!(log.dropped(), dropped);
    }

    #[test]
    fn long_lines_are_bounded_in_bytes() {
        let (log, go, _) = log(Format::Text);
        let line = vec![b'x'; 64 << 10];
        (0..100).for_each(|_| log.put(&line));
        assert!(log.dropped() >= 100 - 1 - (BYTES_MAX / line.len()) as u64);
        drop(go);
    }

    #[test]
    fn what_cannot_be_written_is_counted_and_told() {
        let (mut log, go, took) = log(Format::Json);
        (0..3).for_each(|_| go.send(Err(io::ErrorKind::StorageFull.into())).unwrap());
        writeln!(log, "lost").unwrap();
        writeln!(log, "lost, as is the word of the first").unwrap();
        drop(go);
        writeln!(log, "{{}}").unwrap();
        log.flush(Duration::from_secs(60));
        assert_eq!(log.dropped(), 2);
        let took = took.lock().unwrap();
        let last = serde_json::from_str::<serde_json::Value>(took.lines().next().unwrap()).unwrap();
        assert_eq!((last["dropped"].as_u64(), took.lines().count()), (Some(2), 2), "{took}");
    }

    #[test]
    fn a_reader_that_takes_nothing_does_not_hold_up_the_end() {
        let (mut log, _go, _) = log(Format::Text);
        writeln!(log, "nobody reads this").unwrap();
        log.flush(Duration::from_millis(1));
    }
}
