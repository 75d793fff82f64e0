//! Requests to stop the process: signals, and the end of stdin.

use std::future::Future;
use std::io;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Sources of requests to stop the process.
pub(super) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    /// `None` where SIGHUP is ignored, as under `nohup`.
    hangup: Option<tokio::signal::unix::Signal>,
    parent: Option<mpsc::Receiver<()>>,
}

impl Signals {
    pub(super) fn new(stop_with_stdin: bool) -> io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: if environment::is_hangup_ignored() { None } else { Some(signal(SignalKind::hangup())?) },
            parent: stop_with_stdin.then(watch_stdin),
        })
    }

    /// Waits for the next signal, and returns its number.
    pub(super) async fn next(&mut self) -> i32 {
        let parent: std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>> = match &mut self.parent {
            Some(parent) => Box::pin(async {
                parent.recv().await;
            }),
            None => Box::pin(std::future::pending()),
        };
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        let number = tokio::select! {
            _ = hangup => 1,
            _ = self.interrupt.recv() => 2,
            _ = self.terminate.recv() => 15,
            () = parent => {
                // Only once: the channel stays closed.
                0
            }
        };
        if number == 0 {
            self.parent = None;
            return 15;
        }
        number
    }

    /// Waits for a signal that ends a stop at once. A SIGHUP does not: where a terminal closes, both the kernel and the shell send
    /// one.
    pub(super) async fn second(&mut self, first: Instant) -> i32 {
        // `timeout` and terminals send a signal to the process and to its group: both count as one request.
        const TOGETHER: Duration = Duration::from_millis(200);
        loop {
            let number = self.next().await;
            if number != 1 && first.elapsed() > TOGETHER {
                return number;
            }
        }
    }
}

/// Reports the end of stdin: the parent holds its other end, which closes however the parent dies.
fn watch_stdin() -> mpsc::Receiver<()> {
    let (gone, parent) = mpsc::channel(1);
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        drop(gone);
    });
    parent
}
