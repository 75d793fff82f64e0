//! Socket with many datagrams in each system call.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;

use header::ReplyTo;
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, getsockopt, recvmmsg, sendmmsg, setsockopt, sockopt};
use nix::{getsockopt_impl, sockopt_impl};

use super::{BATCH, Batch, PATIENCE, SOCKET_BUFFER_BYTES, SendPlan, Sent, destination};

sockopt_impl!(
    /// The system's figures about a socket's memory.
    MemoryOfSocket,
    GetOnly,
    libc::SOL_SOCKET,
    libc::SO_MEMINFO,
    [u32; 9]
);

/// Binds a socket.
///
/// # Errors
/// If the address cannot be bound.
pub fn bind(listen: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(listen)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    // The system gives as much as it allows: datagrams without room are lost, and counted.
    setsockopt(&socket, sockopt::RcvBuf, &SOCKET_BUFFER_BYTES)?;
    setsockopt(&socket, sockopt::SndBuf, &SOCKET_BUFFER_BYTES)?;
    Ok(socket)
}

/// UDP socket with the buffers of its system calls. It stays with one thread.
#[derive(Debug)]
pub struct Link {
    socket: UdpSocket,
    is_v6: bool,
    incoming: MultiHeaders<SockaddrStorage>,
    outgoing: MultiHeaders<SockaddrStorage>,
}

impl Link {
    /// Returns a link over a socket of [`bind()`].
    pub fn new(socket: UdpSocket) -> Link {
        let is_v6 = socket.local_addr().is_ok_and(|address| address.is_ipv6());
        Link {
            socket,
            is_v6,
            incoming: MultiHeaders::preallocate(BATCH, None),
            outgoing: MultiHeaders::preallocate(BATCH, None),
        }
    }

    /// Returns the socket itself.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Waits for a datagram, and receives all further ones that are there; the batch is empty if none comes for a while.
    ///
    /// # Errors
    /// Any error of the system; the batch is empty then.
    pub fn receive(&mut self, batch: &mut Batch) -> io::Result<()> {
        batch.count = 0;
        let mut buffers = batch.bytes.iter_mut();
        // Each slice has a buffer.
        let mut slices: [[IoSliceMut<'_>; 1]; BATCH] =
            std::array::from_fn(|_| [IoSliceMut::new(buffers.next().map_or(&mut [], |buffer| buffer))]);
        let flags = MsgFlags::MSG_WAITFORONE;
        let received = match recvmmsg(self.socket.as_raw_fd(), &mut self.incoming, &mut slices, flags, None) {
            Ok(received) => received,
            Err(Errno::EAGAIN) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for datagram in received {
            batch.lengths[batch.count] = datagram.bytes;
            batch.sources[batch.count] = datagram.address.as_ref().map_or(ReplyTo::NOWHERE, source);
            batch.count += 1;
        }
        Ok(())
    }

    /// Sends the packets of a plan. It does not wait: a packet without room is not sent.
    pub fn send(&mut self, batch: &Batch, plan: &SendPlan) -> Sent {
        let mut sent = Sent::default();
        let mut slices = [[IoSlice::new(&[])]; BATCH];
        let mut addresses = [None::<SockaddrStorage>; BATCH];
        let mut count = 0;
        for (place, to) in plan.sends() {
            match destination(self.is_v6, *to) {
                Some(address) => {
                    slices[count] = [IoSlice::new(batch.get(*place))];
                    addresses[count] = Some(address.into());
                    count += 1;
                }
                None => sent.failed += 1,
            }
        }
        let mut done = 0;
        while done < count {
            let (slices, addresses) = (&slices[done..count], &addresses[done..count]);
            let flags = MsgFlags::MSG_DONTWAIT;
            match sendmmsg(self.socket.as_raw_fd(), &mut self.outgoing, slices, addresses, [], flags) {
                Ok(results) => {
                    let taken = results.count();
                    sent.done += taken as u64;
                    // The call stops before a datagram that it cannot send. It returns the reason when that one is the first.
                    done += taken;
                }
                Err(Errno::EINTR) => {}
                Err(error) => {
                    sent.not(&error.into());
                    done += 1;
                }
            }
        }
        sent
    }

    /// Returns the number of datagrams that came to this socket and were lost, because they were not received in time.
    pub fn lost(socket: &UdpSocket) -> Option<u64> {
        let memory = getsockopt(socket, MemoryOfSocket).ok()?;
        Some(u64::from(memory[libc::SK_MEMINFO_DROPS as usize]))
    }

    /// Returns the bytes of memory that the system has for datagrams that wait to be received.
    pub fn room(socket: &UdpSocket) -> Option<u64> {
        getsockopt(socket, sockopt::RcvBuf).ok().map(|bytes| bytes as u64)
    }
}

/// Returns the address from which a datagram came.
fn source(address: &SockaddrStorage) -> ReplyTo {
    match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
        (Some(address), _) => ReplyTo { ip: address.ip().to_ipv6_mapped(), port: address.port() },
        (_, Some(address)) => ReplyTo { ip: address.ip(), port: address.port() },
        // A UDP socket has no other families.
        (None, None) => ReplyTo::NOWHERE,
    }
}
