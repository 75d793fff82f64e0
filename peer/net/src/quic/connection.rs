//! A QUIC connection and its streams in libp2p's terms, and their end.
//!
//! quinn drops the unsent bytes of a connection that is closed, and tells the other side to stop when the reading end of
//! a stream is dropped. Both would lose last frames that TCP delivers. So a dropped stream goes on for a moment until all
//! of it was received, and discards incoming bytes. A connection is closed when its streams have gone, or after that
//! moment.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use libp2p::PeerId;
use libp2p::core::muxing::{StreamMuxer, StreamMuxerEvent};
use libp2p::futures::future::BoxFuture;
use libp2p::futures::{AsyncRead, AsyncWrite, FutureExt};
use quinn::{ConnectionError, RecvStream, SendStream, VarInt};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::tls;

/// Time that a dropped stream may take to end, and a connection to close.
const PARTING: Duration = Duration::from_secs(1);
/// Wait for the last packet, which another task sends; a process that ends at once would lose it.
const LAST_PACKET: Duration = Duration::from_millis(10);
/// Bytes per read of a stream that is discarded.
const DISCARD_BYTES: usize = 4 * 1024;

const NO_ERROR: VarInt = VarInt::from_u32(0);

type OpeningStream = BoxFuture<'static, Result<(SendStream, RecvStream), ConnectionError>>;

/// A QUIC connection; see the module.
pub struct QuicConnection {
    connection: quinn::Connection,
    accepting: Option<OpeningStream>,
    opening: Option<OpeningStream>,
    closing: Option<BoxFuture<'static, ()>>,
    /// Each stream watches it, until the stream is over.
    streams: Arc<watch::Sender<()>>,
}

impl QuicConnection {
    /// Returns a connection whose handshake is over, with the peer at its other end.
    pub(super) fn of(connection: quinn::Connection) -> io::Result<(PeerId, QuicConnection)> {
        let peer = tls::peer_of(&connection)?;
        let streams = Arc::new(watch::Sender::new(()));
        Ok((peer, QuicConnection { connection, accepting: None, opening: None, closing: None, streams }))
    }

    fn stream(&self, (send, recv): (SendStream, RecvStream)) -> Stream {
        Stream { halves: Some((send, recv)), alive: self.streams.subscribe() }
    }
}

impl StreamMuxer for QuicConnection {
    type Substream = Stream;
    type Error = io::Error;

    fn poll_inbound(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        let this = self.get_mut();
        let connection = &this.connection;
        let accepting = this.accepting.get_or_insert_with(|| {
            let connection = connection.clone();
            async move { connection.accept_bi().await }.boxed()
        });
        let halves = ready!(accepting.poll_unpin(cx));
        this.accepting = None;
        Poll::Ready(Ok(this.stream(halves?)))
    }

    fn poll_outbound(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        let this = self.get_mut();
        let connection = &this.connection;
        let opening = this.opening.get_or_insert_with(|| {
            let connection = connection.clone();
            async move { connection.open_bi().await }.boxed()
        });
        let halves = ready!(opening.poll_unpin(cx));
        this.opening = None;
        Poll::Ready(Ok(this.stream(halves?)))
    }

    /// Addresses do not change, and quinn drives a connection by itself.
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<StreamMuxerEvent>> {
        Poll::Pending
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let (connection, streams) = (&this.connection, &this.streams);
        let closing = this.closing.get_or_insert_with(|| part(connection.clone(), streams.clone()).boxed());
        closing.poll_unpin(cx).map(Ok)
    }
}

/// Closes a connection when its streams are over. A connection that the other side has closed needs no wait.
async fn part(connection: quinn::Connection, streams: Arc<watch::Sender<()>>) {
    tokio::select! {
        _ = timeout(PARTING, streams.closed()) => {}
        _ = connection.closed() => return,
    }
    connection.close(NO_ERROR, &[]);
    sleep(LAST_PACKET).await;
}

/// One stream. When dropped, it ends in the background: see the module.
pub struct Stream {
    /// `Some` until it is dropped.
    halves: Option<(SendStream, RecvStream)>,
    alive: watch::Receiver<()>,
}

impl Stream {
    fn halves(&mut self) -> io::Result<&mut (SendStream, RecvStream)> {
        self.halves.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let (_, recv) = self.halves()?;
        AsyncRead::poll_read(Pin::new(recv), cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let (send, _) = self.halves()?;
        AsyncWrite::poll_write(Pin::new(send), cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (send, _) = self.halves()?;
        AsyncWrite::poll_flush(Pin::new(send), cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Closed before, or told to stop by the other side: no more bytes are needed either way.
        let _ = self.halves()?.0.finish();
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let Some((mut send, mut recv)) = self.halves.take() else {
            return;
        };
        // Without a runtime the process ends, and quinn cannot send without one either.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let alive = self.alive.clone();
        let _ = send.finish();
        runtime.spawn(async move {
            let received = send.stopped();
            let discard = async {
                let mut bytes = [0; DISCARD_BYTES];
                while let Ok(Some(_)) = recv.read(&mut bytes).await {}
            };
            let _ = timeout(PARTING, async { tokio::join!(received, discard) }).await;
            drop(alive);
        });
    }
}
