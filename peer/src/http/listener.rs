//! Connections of the HTTP endpoint, bounded in number and in time: a slow client makes room for new ones.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Sleep;

use super::exchange::Exchange;
use crate::accept::Accept;
use crate::places::{Place, Places};

/// Divisor of the places that are kept for clients on this machine: a probe of `/healthz` always finds a place, in spite of remote
/// clients.
const KEPT: usize = 4;

/// Listener with limits.
#[derive(Debug)]
pub(crate) struct BoundedListener {
    accept: Accept,
    places: Arc<Places>,
}

impl BoundedListener {
    /// Limits a listener to `connections_max` connections. The next one takes the place of the oldest idle one.
    pub fn new(listener: TcpListener, connections_max: usize) -> BoundedListener {
        BoundedListener {
            accept: Accept::new(listener, "--http"),
            places: Places::new(connections_max, connections_max / KEPT),
        }
    }
}

impl axum::serve::Listener for BoundedListener {
    type Io = HttpConnection<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (HttpConnection<TcpStream>, SocketAddr) {
        let (stream, address) = self.accept.next().await;
        let place = self.places.take(address.ip().to_canonical().is_loopback());
        (HttpConnection::new(stream, place), address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.accept.local_addr()
    }
}

/// Connection that ends when a part of its exchange takes too long, or another one takes its place.
#[derive(Debug)]
pub(crate) struct HttpConnection<S> {
    stream: S,
    exchange: Exchange,
    alarm: Pin<Box<Sleep>>,
    place: Place,
    /// Whether the client sends no more.
    ended: bool,
    /// Whether bytes of an answer were written since the last flush.
    unflushed: bool,
    /// Wakes the task that waits for the end of the client's input.
    waiting: Option<Waker>,
}

impl<S> HttpConnection<S> {
    fn new(stream: S, place: Place) -> HttpConnection<S> {
        let exchange = Exchange::new(Instant::now());
        let alarm = Box::pin(tokio::time::sleep_until(exchange.deadline().into()));
        HttpConnection { stream, exchange, alarm, place, ended: false, unflushed: false, waiting: None }
    }

    fn note(&mut self, note: impl FnOnce(&mut Exchange, Instant)) {
        let (deadline, busy) = (self.exchange.deadline(), self.exchange.is_busy());
        note(&mut self.exchange, Instant::now());
        if self.exchange.deadline() != deadline {
            self.alarm.as_mut().reset(self.exchange.deadline().into());
        }
        if self.exchange.is_busy() != busy {
            self.place.set_busy(!busy);
        }
    }

    /// Reports that the client sends no more, but not before its answer is out. A server that learns it earlier takes the client for
    /// gone, but a client may close its side as soon as it has sent its request.
    fn end(&mut self, context: &Context<'_>) -> Poll<io::Result<()>> {
        if self.exchange.is_busy() || self.unflushed {
            self.waiting = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    /// Returns the reason for which the connection ends, if it does; wakes the task when that happens.
    fn check(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        if self.place.poll_lost(context).is_ready() {
            return Poll::Ready(io::ErrorKind::ConnectionAborted.into());
        }
        self.alarm.as_mut().poll(context).map(|()| io::ErrorKind::TimedOut.into())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HttpConnection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Poll::Ready(error) = self.check(context) {
            return Poll::Ready(Err(error));
        }
        if self.ended {
            return self.end(context);
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Poll::Ready(Ok(())) = read {
            if buffer.filled().len() == before && buffer.remaining() > 0 {
                self.ended = true;
                return self.end(context);
            }
            self.note(|exchange, now| exchange.read(&buffer.filled()[before..], now));
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HttpConnection<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Poll::Ready(error) = self.check(context) {
            return Poll::Ready(Err(error));
        }
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(_)) = written {
            self.unflushed = true;
            self.note(Exchange::wrote);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if flushed.is_ready() {
            self.unflushed = false;
            self.waiting.take().into_iter().for_each(Waker::wake);
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// A client that closes its side right after its request gets its answer, also a long one and one that takes a while.
    #[tokio::test]
    async fn who_sends_no_more_is_answered() {
        use axum::routing::get;
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let closed = Arc::new(tokio::sync::Notify::new());
        let until = closed.clone();
        let slow = || async move {
            until.notified().await;
            "x".repeat(3_000_000)
        };
        let router = axum::Router::new().route("/quick", get(|| async { "quick" })).route("/slow", get(slow));
        tokio::spawn(async move { axum::serve(BoundedListener::new(listener, 8), router).await });
        for (path, bytes) in [("/quick", 5), ("/slow", 3_000_000)].repeat(20) {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
            client.shutdown().await.unwrap();
            if path == "/slow" {
                // The server learns of the end before it has an answer.
                tokio::task::yield_now().await;
                closed.notify_one();
            }
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            let head = answer.windows(4).position(|four| four == b"\r\n\r\n").map(|place| place + 4);
            assert_eq!(head.map(|head| answer.len() - head), Some(bytes), "{path}");
        }
    }

    /// Clients that send half a head hold every place, from this machine and from other ones; each newcomer is served at once.
    #[tokio::test]
    async fn slow_clients_keep_nobody_out() {
        let places = Places::new(8, 2);
        let mut slow = Vec::new();
        for n in 0..100 {
            let (mut client, stream) = tokio::io::duplex(1 << 10);
            let mut connection = HttpConnection::new(stream, places.take(n % 3 == 0));
            client.write_all(b"GET / HTTP/1.1\r\nX-a").await.unwrap();
            assert!(connection.read(&mut [0; 64]).await.unwrap() > 0);
            slow.push((client, connection));
        }
        for is_local in [true, false] {
            let (mut client, stream) = tokio::io::duplex(1 << 10);
            let mut connection = HttpConnection::new(stream, places.take(is_local));
            client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            assert!(connection.read(&mut [0; 64]).await.unwrap() > 0);
            connection.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            assert!(client.read(&mut [0; 64]).await.unwrap() > 0);
        }
        let mut kept = 0;
        for (client, mut connection) in slow {
            // The read ends where another connection took its place; where none did, it returns the next byte.
            let mut client = client;
            client.write_all(b"x").await.unwrap();
            kept += usize::from(connection.read(&mut [0; 64]).await.is_ok());
        }
        assert!(kept < 8, "{kept} of the slow ones are still there");
    }
}
