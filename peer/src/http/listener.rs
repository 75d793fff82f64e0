//! Connections of the HTTP endpoint, bounded in number and in time: a client that is slow makes room for others.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Sleep;

use super::exchange::Exchange;
use crate::accept::Accept;
use crate::places::{Place, Places};

/// Of all connections, so many are for clients on this machine: a probe of `/healthz` finds a place whatever others do.
const KEPT: usize = 4;

/// A listener with limits.
#[derive(Debug)]
pub struct Bounded {
    accept: Accept,
    places: Arc<Places>,
}

impl Bounded {
    /// Puts limits on a listener: at most so many connections. The next one takes the place of the oldest idle one.
    pub fn new(listener: TcpListener, connections_max: usize) -> Bounded {
        Bounded {
            accept: Accept::new(listener, "--http"),
            places: Places::new(connections_max, connections_max / KEPT),
        }
    }
}

impl axum::serve::Listener for Bounded {
    type Io = Connection<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection<TcpStream>, SocketAddr) {
        let (stream, address) = self.accept.next().await;
        let place = self.places.take(address.ip().to_canonical().is_loopback());
        (Connection::new(stream, place), address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.accept.local_addr()
    }
}

/// A connection that ends when a part of its exchange takes too long, or another one takes its place.
#[derive(Debug)]
pub struct Connection<S> {
    stream: S,
    exchange: Exchange,
    alarm: Pin<Box<Sleep>>,
    place: Place,
}

impl<S> Connection<S> {
    fn new(stream: S, place: Place) -> Connection<S> {
        let exchange = Exchange::new(Instant::now());
        let alarm = Box::pin(tokio::time::sleep_until(exchange.deadline().into()));
        Connection { stream, exchange, alarm, place }
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

    /// Why it ends, if it does; wakes the task when it gets so far.
    fn check(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        if self.place.poll_lost(context).is_ready() {
            return Poll::Ready(io::ErrorKind::ConnectionAborted.into());
        }
        self.alarm.as_mut().poll(context).map(|()| io::ErrorKind::TimedOut.into())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Poll::Ready(error) = self.check(context) {
            return Poll::Ready(Err(error));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Poll::Ready(Ok(())) = read {
            self.note(|exchange, now| exchange.read(&buffer.filled()[before..], now));
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Poll::Ready(error) = self.check(context) {
            return Poll::Ready(Err(error));
        }
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(_)) = written {
            self.note(Exchange::wrote);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Clients that send half a head hold every place, from this machine and from others; each newcomer is served at once.
    #[tokio::test]
    async fn slow_clients_keep_nobody_out() {
        let places = Places::new(8, 2);
        let mut slow = Vec::new();
        for n in 0..100 {
            let (mut client, stream) = tokio::io::duplex(1 << 10);
            let mut connection = Connection::new(stream, places.take(n % 3 == 0));
            client.write_all(b"GET / HTTP/1.1\r\nX-a").await.unwrap();
            assert!(connection.read(&mut [0; 64]).await.unwrap() > 0);
            slow.push((client, connection));
        }
        for is_local in [true, false] {
            let (mut client, stream) = tokio::io::duplex(1 << 10);
            let mut connection = Connection::new(stream, places.take(is_local));
            client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            assert!(connection.read(&mut [0; 64]).await.unwrap() > 0);
            connection.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            assert!(client.read(&mut [0; 64]).await.unwrap() > 0);
        }
        let mut kept = 0;
        for (client, mut connection) in slow {
            // Ends where its place is another's; where it is not, the next byte is read.
            let mut client = client;
            client.write_all(b"x").await.unwrap();
            kept += usize::from(connection.read(&mut [0; 64]).await.is_ok());
        }
        assert!(kept < 8, "{kept} of the slow ones are still there");
    }
}
