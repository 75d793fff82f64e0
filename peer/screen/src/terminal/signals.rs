//! Signals that ask a program to end, seen by a thread of their own: also where the drawing thread is stuck, the terminal is
//! given back and the process ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Handle;

use super::give_back;

/// The time that a program may take to end by itself.
const GRACE: Duration = Duration::from_secs(3);
/// The time after which a second signal is seen.
const SLICE: Duration = Duration::from_millis(50);

/// Watches signals until it is dropped.
pub struct Signals {
    seen: Arc<Seen>,
    handle: Handle,
    /// Dropped with this value: so the thread learns that the program ended in time.
    _alive: SyncSender<()>,
}

#[derive(Default)]
struct Seen {
    /// The first signal to end; 0 where none came.
    end: AtomicI32,
    /// Whether the process went on after it was stopped.
    continued: AtomicBool,
}

impl Signals {
    /// Begins to watch.
    pub fn watch() -> io::Result<Signals> {
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP, SIGCONT])?;
        let (handle, seen) = (signals.handle(), Arc::new(Seen::default()));
        let (alive, watched) = sync_channel::<()>(0);
        let told = seen.clone();
        let watch = move || {
            while !signals.is_closed() {
                for number in signals.wait() {
                    told.take(number);
                }
                let number = told.end.load(Ordering::SeqCst);
                if number != 0 {
                    if outlasts(&mut signals, &watched) {
                        give_back();
                        std::process::exit(128 + number);
                    }
                    return;
                }
            }
        };
        std::thread::Builder::new().name("screen-signals".into()).spawn(watch)?;
        Ok(Signals { seen, handle, _alive: alive })
    }

    /// Returns the signal that asks for an end, if one came.
    pub fn end(&self) -> Option<i32> {
        Some(self.seen.end.load(Ordering::SeqCst)).filter(|number| *number != 0)
    }

    /// Returns whether the process went on since the last call.
    pub(crate) fn take_continued(&self) -> bool {
        self.seen.continued.swap(false, Ordering::SeqCst)
    }
}

impl Seen {
    fn take(&self, number: i32) {
        if number == SIGCONT {
            self.continued.store(true, Ordering::SeqCst);
        } else {
            // Where there is one already, that stays the reason.
            let _ = self.end.compare_exchange(0, number, Ordering::SeqCst, Ordering::SeqCst);
        }
    }
}

/// Returns whether the program is still there after its time to end, or when it is asked a second time: a second signal asks
/// not to wait.
fn outlasts(signals: &mut signal_hook::iterator::Signals, alive: &Receiver<()>) -> bool {
    let until = Instant::now() + GRACE;
    while Instant::now() < until {
        if alive.recv_timeout(SLICE) == Err(RecvTimeoutError::Disconnected) {
            return false;
        }
        if signals.pending().any(|number| number != SIGCONT) {
            break;
        }
    }
    true
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.handle.close();
    }
}
