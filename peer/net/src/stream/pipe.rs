//! A stream in memory for tests: two ends, and a fault at a planned call.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use libp2p::futures::{AsyncRead, AsyncWrite};

/// Counts I/O calls of both ends and fails from the n-th on.
#[derive(Clone)]
pub(crate) struct PipeFault {
    calls: Arc<AtomicU64>,
    at: u64,
}

impl PipeFault {
    pub(crate) fn at(at: u64) -> PipeFault {
        PipeFault { calls: Arc::default(), at }
    }

    /// Returns whether there were so many calls at all.
    pub(crate) fn was_reached(&self) -> bool {
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
pub(crate) struct PipeEnd {
    io: tokio::io::DuplexStream,
    fault: Option<PipeFault>,
}

/// Returns two ends with so many bytes between them.
pub(crate) fn pipe(bytes: usize, fault: Option<PipeFault>) -> (PipeEnd, PipeEnd) {
    let (one, two) = tokio::io::duplex(bytes);
    (PipeEnd { io: one, fault: fault.clone() }, PipeEnd { io: two, fault })
}

impl PipeEnd {
    fn check(&self) -> io::Result<()> {
        self.fault.as_ref().map_or(Ok(()), PipeFault::check)
    }
}

impl AsyncRead for PipeEnd {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buf = tokio::io::ReadBuf::new(buf);
        match tokio::io::AsyncRead::poll_read(Pin::new(&mut self.io), cx, &mut buf) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(read) => Poll::Ready(read.and_then(|()| self.check()).map(|()| buf.filled().len())),
        }
    }
}

impl AsyncWrite for PipeEnd {
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
