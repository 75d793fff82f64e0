//! Signals that ask a program to end, seen by a thread of their own: also where the one that draws is stuck, the terminal is
//! given back and the process ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Handle;

use super::give_back;

/// So long a program may take to end by itself.
const GRACE: Duration = Duration::from_secs(3);

/// Watches until it is dropped.
pub struct Signals {
    seen: Arc<Seen>,
    handle: Handle,
    /// Dropped with this: so the thread learns that the program has come to its end in time.
    _alive: Sender<()>,
}

#[derive(Default)]
struct Seen {
    /// The first signal to end; 0 where none came.
    end: AtomicI32,
    /// The process went on after it was stopped.
    continued: AtomicBool,
}

impl Signals {
    /// Begins to watch.
    pub fn watch() -> io::Result<Signals> {
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP, SIGCONT])?;
        let (handle, seen) = (signals.handle(), Arc::new(Seen::default()));
        let (alive, watched) = channel::<()>();
        let told = seen.clone();
        let watch = move || {
            for number in signals.forever() {
                if number == SIGCONT {
                    told.continued.store(true, Ordering::SeqCst);
                    continue;
                }
                let first = told.end.compare_exchange(0, number, Ordering::SeqCst, Ordering::SeqCst).is_ok();
                // A second one: whoever sends it does not want to wait.
                let grace = if first { GRACE } else { Duration::ZERO };
                if watched.recv_timeout(grace) == Err(RecvTimeoutError::Timeout) {
                    give_back();
                    std::process::exit(128 + number);
                }
                return;
            }
        };
        std::thread::Builder::new().name("screen-signals".into()).spawn(watch)?;
        Ok(Signals { seen, handle, _alive: alive })
    }

    /// The signal that asks for an end, if one came.
    pub fn end(&self) -> Option<i32> {
        Some(self.seen.end.load(Ordering::SeqCst)).filter(|number| *number != 0)
    }

    /// Whether the process went on since this was asked last.
    pub fn take_continued(&self) -> bool {
        self.seen.continued.swap(false, Ordering::SeqCst)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.handle.close();
    }
}
