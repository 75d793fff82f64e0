//! A stream in memory for tests: two ends, and a fault at a planned call.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use libp2p::futures::{AsyncRead, AsyncWrite};

/// Counts I/O calls of both ends and fails from the n-th on.
#[derive(Clone)]
pub(super) struct Fault {
    calls: Arc<AtomicU64>,
    at: u64,
}

impl Fault {
    pub(super) fn at(at: u64) -> Fault {
        Fault { calls: Arc::default(), at }
    }

    /// Returns whether there were so many calls at all.
    pub(super) fn was_reached(&self) -> bool {
        self.calls.load(Ordering::Relaxed) >= self.at
    }

    fn check(&self) -> io::Result<()> {
        match self.calls.fetch_add(1, Ordering::Relaxed) + 1 >= self.at {
            true => Err(io::Error::other("a fault as ordered")),
            false => Ok(()),
        }
    }
}

/// One end.
pub(super) struct End {
    io: tokio::io::DuplexStream,
    fault: Option<Fault>,
}

/// Returns two ends with so many bytes between them.
pub(super) fn pipe(bytes: usize, fault: Option<Fault>) -> (End, End) {
    let (one, two) = tokio::io::duplex(bytes);
    (End { io: one, fault: fault.clone() }, End { io: two, fault })
}

impl End {
    fn check(&self) -> io::Result<()> {
        self.fault.as_ref().map_or(Ok(()), Fault::check)
    }
}

impl AsyncRead for End {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buf = tokio::io::ReadBuf::new(buf);
        match tokio::io::AsyncRead::poll_read(Pin::new(&mut self.io), cx, &mut buf) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(read) => Poll::Ready(read.and_then(|()| self.check()).map(|()| buf.filled().len())),
        }
    }
}

impl AsyncWrite for End {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        tokio::io::AsyncWrite::poll_write(Pin::new(&mut self.io), cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        tokio::io::AsyncWrite::poll_flush(Pin::new(&mut self.io), cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        tokio::io::AsyncWrite::poll_shutdown(Pin::new(&mut self.io), cx)
    }
}
