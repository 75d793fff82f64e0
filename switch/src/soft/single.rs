//! Socket with one datagram in each system call, for systems that have no other way. It has the same items as `many.rs`.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use super::{Batch, PATIENCE, SendPlan, Sent, destination};

/// Binds a socket.
///
/// # Errors
/// If the address cannot be bound.
pub fn bind(listen: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(listen)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// UDP socket with the state of its system calls. It stays with one thread.
#[derive(Debug)]
pub struct Link {
    socket: UdpSocket,
    is_v6: bool,
}

impl Link {
    /// Returns a link over a socket of [`bind()`].
    pub fn new(socket: UdpSocket) -> Link {
        let is_v6 = socket.local_addr().is_ok_and(|address| address.is_ipv6());
        Link { socket, is_v6 }
    }

    /// Returns the socket itself.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Waits for a datagram; the batch is empty if none comes for a while.
    ///
    /// # Errors
    /// Any error of the system; the batch is empty then.
    pub fn receive(&mut self, batch: &mut Batch) -> io::Result<()> {
        batch.count = 0;
        match self.socket.recv_from(&mut batch.bytes[0]) {
            Ok((length, source)) => {
                (batch.lengths[0], batch.sources[0], batch.count) = (length, source.into(), 1);
                Ok(())
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sends the packets of a plan.
    pub fn send(&mut self, batch: &Batch, plan: &SendPlan) -> Sent {
        let mut sent = Sent::default();
        for (place, to) in plan.sends() {
            match destination(self.is_v6, *to).map(|address| self.socket.send_to(batch.get(*place), address)) {
                Some(Ok(_)) => sent.done += 1,
                Some(Err(error)) => sent.not(&error),
                None => sent.failed += 1,
            }
        }
        sent
    }

    /// Returns `None`: this system does not tell how many datagrams were lost before they were received.
    pub fn lost(_: &UdpSocket) -> Option<u64> {
        None
    }

    /// Returns `None`: this system does not tell how many bytes may wait.
    pub fn room(_: &UdpSocket) -> Option<u64> {
        None
    }
}
