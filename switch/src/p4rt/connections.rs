//! Connections of controllers: bounded in number, and closed if the client sends nothing.
//!
//! Each connection costs memory and a descriptor, and a host that reaches the address may open as many as it can. So the oldest
//! connection without a stream makes room for the next one.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Sleep, sleep};
use tokio_stream::Stream;
use tonic::transport::server::Connected;

use super::places::{Handle, Place, Places};

/// Upper limit of connections at one time: one for each controller that there may be, and as many for other requests.
pub const CONNECTIONS_MAX: usize = 2 * super::service::STREAMS_MAX;

/// Length of the connection preface in bytes (RFC 9113 §3.4). After it, the server itself checks that the client is there.
const PREFACE_BYTES: usize = 24;
/// Divisor of all connections: this share is kept for clients on this machine.
const KEPT: usize = 4;
/// Pause after a connection could not be accepted, for example for want of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Incoming connections. A further one takes the place of the oldest one without a stream.
#[derive(Debug)]
pub struct Incoming {
    listener: TcpListener,
    places: Arc<Places>,
    hello: Duration,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Incoming {
    /// Returns the connections of this listener, at most `max` at once; each has to begin within `hello`.
    pub fn new(listener: TcpListener, max: usize, hello: Duration) -> Incoming {
        Incoming { listener, places: Places::new(max, max / KEPT), hello, pause: None }
    }
}

impl Stream for Incoming {
    type Item = Result<Connection, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            let Ok((stream, address)) = ready!(self.listener.poll_accept(cx)) else {
                self.pause = Some(Box::pin(sleep(PAUSE)));
                continue;
            };
            let place = self.places.take(address.ip().to_canonical().is_loopback());
            // Messages are few and small, so none should wait for another one. If the option fails, they are only slower.
            let _ = stream.set_nodelay(true);
            let deadline = Some(Box::pin(sleep(self.hello)));
            return Poll::Ready(Some(Ok(Connection { stream, deadline, missing: PREFACE_BYTES, place })));
        }
    }
}

/// Incoming connection. It keeps its place until it is dropped.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    /// Set as long as a part of the preface is missing.
    deadline: Option<Pin<Box<Sleep>>>,
    missing: usize,
    place: Place,
}

impl Connected for Connection {
    type ConnectInfo = Handle;

    fn connect_info(&self) -> Handle {
        self.place.handle()
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.place.poll_lost(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let before = bytes.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, bytes);
        let Some(deadline) = &mut self.deadline else { return read };
        if read.is_pending() {
            ready!(deadline.as_mut().poll(cx));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        self.missing = self.missing.saturating_sub(bytes.filled().len() - before);
        if self.missing == 0 {
            self.deadline = None;
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.place.poll_lost(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio_stream::StreamExt as _;

    use super::*;

    async fn read(connection: &mut Connection) -> io::Result<usize> {
        let mut bytes = [0; 64];
        let mut bytes = ReadBuf::new(&mut bytes);
        poll_fn(|cx| Pin::new(&mut *connection).poll_read(cx, &mut bytes)).await?;
        Ok(bytes.filled().len())
    }

    #[tokio::test]
    async fn who_says_nothing_is_let_go() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let mut incoming = Incoming::new(listener, 1, Duration::from_millis(50));
        for beginning in [0, PREFACE_BYTES - 1, PREFACE_BYTES] {
            let other = TcpStream::connect(at).await.unwrap();
            let Some(Ok(mut connection)) = incoming.next().await else { panic!("a connection") };
            if beginning > 0 {
                other.writable().await.unwrap();
                other.try_write(&vec![b'x'; beginning]).unwrap();
                assert_eq!(read(&mut connection).await.unwrap(), beginning);
            }
            if beginning < PREFACE_BYTES {
                assert_eq!(read(&mut connection).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
            } else {
                sleep(Duration::from_millis(60)).await;
                other.try_write(b"late").unwrap();
                assert_eq!(read(&mut connection).await.unwrap(), 4, "it has begun in time");
            }
        }
    }
}
