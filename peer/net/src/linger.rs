//! A TCP stream that closes only when the other side has closed.
//!
//! A socket that is closed with unread bytes, or that receives bytes later, answers with a reset. All later writes of the
//! other side then fail, and Yamux gives up a connection that it cannot write to, with all that it has not read: our last
//! frames. There are always bytes under way to us (a ping, a window). So closing here means: announce the end of the
//! stream, and discard incoming bytes until the other side has announced its end too.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use libp2p::futures::{AsyncRead, AsyncWrite};
use tokio::time::{Sleep, sleep};

/// Time that the other side may take to close after this side. It first reads the bytes before this side's end.
pub(crate) const PARTING: Duration = Duration::from_secs(1);
/// Bytes per read of a stream that is discarded.
const DISCARD_BYTES: usize = 4 * 1024;

/// A stream with this way to close; see the module.
pub(crate) struct Linger<S> {
    stream: S,
    parting: Duration,
    state: LingerState,
}

enum LingerState {
    Open,
    /// This side's half is closed; until then the other side may close its own.
    Parting(Pin<Box<Sleep>>),
    Closed,
}

impl<S> Linger<S> {
    /// Wraps a stream. Closing waits for the other side for `parting` at most.
    pub(crate) fn new(stream: S, parting: Duration) -> Linger<S> {
        Linger { stream, parting, state: LingerState::Open }
    }
}

impl<S: AsyncRead + Unpin> Linger<S> {
    /// Reads to the other side's end. A stream that breaks has ended too.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut bytes = [0; DISCARD_BYTES];
        loop {
            match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut bytes)) {
                Ok(0) | Err(_) => return Poll::Ready(()),
                Ok(_) => {}
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Linger<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Linger<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let LingerState::Open = this.state {
            ready!(Pin::new(&mut this.stream).poll_close(cx))?;
            this.state = LingerState::Parting(Box::pin(sleep(this.parting)));
        }
        if let LingerState::Parting(until) = &mut this.state {
            // Checked first, so that a side that never stops sending is cut off too.
            if until.as_mut().poll(cx).is_pending() {
                ready!(this.poll_discard(cx));
            }
            this.state = LingerState::Closed;
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use libp2p::futures::{AsyncReadExt as _, AsyncWriteExt as _};
    use libp2p::tcp::tokio::TcpStream;
    use tokio::net::TcpListener;

    use super::*;

    async fn sockets(parting: Duration) -> (Linger<TcpStream>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dialled = tokio::net::TcpStream::connect(listener.local_addr().unwrap());
        let (ours, theirs) = tokio::join!(dialled, listener.accept());
        (Linger::new(TcpStream(ours.unwrap()), parting), TcpStream(theirs.unwrap().0))
    }

    /// Unread bytes lie on this side, and the other side goes on writing before it reads: it still reads the last bytes.
    #[tokio::test]
    async fn last_words_are_heard() {
        let (mut ours, mut theirs) = sockets(Duration::from_secs(60)).await;
        theirs.write_all(b"unread").await.unwrap();
        ours.write_all(b"last words").await.unwrap();
        let parting = tokio::spawn(async move {
            let closed = ours.close().await;
            drop(ours);
            closed
        });
        // It gets as far as it can, on this one thread.
        tokio::task::yield_now().await;
        for _ in 0..3 {
            theirs.write_all(&[0; 100_000]).await.unwrap();
        }
        let mut heard = vec![0; 10];
        theirs.read_exact(&mut heard).await.unwrap();
        assert_eq!(heard, b"last words");
        assert_eq!(theirs.read(&mut heard).await.unwrap(), 0, "an end, not a reset");
        drop(theirs);
        parting.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn nobody_is_waited_for_for_ever() {
        let (mut ours, theirs) = sockets(Duration::from_millis(10)).await;
        ours.close().await.unwrap();
        drop(theirs);
    }
}
