//! Datagrams of a switch (`Harmonia`): each lane has a socket of its own, so its datagrams are for that lane.
//!
//! A thread waits for them and wakes the loop once for all new datagrams. The socket is connected: the kernel drops datagrams
//! from other addresses, and names the machine's address that leads to the switch.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use environment::lock;
use header::{PACKET_BYTES_MAX, ReplyTo};
use node::SwitchConfig;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::mailbox::Mailbox;

/// Upper limit of datagrams that wait for the loop; more are dropped, and their senders send them again.
const WAITING_MAX: usize = 1 << 14;
/// Upper limit of datagrams that are taken before the loop is woken.
const BATCH_MAX: usize = 64;
/// Interval at which the waiting thread checks whether it is still needed.
const LOOK: Duration = Duration::from_millis(500);
/// Pause after an error of this machine that no sent datagram caused.
const PAUSE: Duration = Duration::from_millis(100);

/// Counters of a socket since the start.
#[derive(Debug, Default)]
pub(crate) struct PacketCounts {
    /// Datagrams that were received.
    pub received: AtomicU64,
    /// Datagrams that were sent.
    pub sent: AtomicU64,
    /// Datagrams for which there was no room, here or in the kernel.
    pub lost: AtomicU64,
}

#[derive(Default)]
struct PacketState {
    waiting: Mutex<Vec<Bytes>>,
    counts: Arc<PacketCounts>,
    over: AtomicBool,
}

/// A lane's port to the switch.
pub(crate) struct PacketPort {
    socket: Arc<UdpSocket>,
    config: SwitchConfig,
    shared: Arc<PacketState>,
}

impl fmt::Debug for PacketPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketPort").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Returns an address as packets encode it.
fn place(address: SocketAddr) -> ReplyTo {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    ReplyTo { ip, port: address.port() }
}

/// Returns an address as administrators write it.
pub fn address(place: ReplyTo) -> SocketAddr {
    SocketAddr::new(IpAddr::V6(place.ip).to_canonical(), place.port)
}

impl PacketPort {
    /// Opens the port to a switch at this address, from a port that the system chooses. Received datagrams wake the mailbox's
    /// owner.
    ///
    /// # Errors
    /// The system gives no socket, or has no route. A switch that is absent now is no error.
    pub fn open(switch: SocketAddr, mailbox: Arc<Mailbox>) -> io::Result<PacketPort> {
        let switch = SocketAddr::new(switch.ip().to_canonical(), switch.port());
        let any = if switch.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(switch)?;
        socket.set_read_timeout(Some(LOOK))?;
        let config = SwitchConfig { at: place(switch), here: place(socket.local_addr()?) };
        let (socket, shared) = (Arc::new(socket), Arc::new(PacketState::default()));
        let (reader, inbox) = (socket.clone(), shared.clone());
        thread::Builder::new().name("scatter-packets".into()).spawn(move || read(&reader, &inbox, &mailbox))?;
        Ok(PacketPort { socket, config, shared })
    }

    /// Returns the switch's address, and the address of this peer for the switch.
    pub fn config(&self) -> SwitchConfig {
        self.config
    }

    /// Returns the port's counters.
    pub fn counts(&self) -> Arc<PacketCounts> {
        self.shared.counts.clone()
    }

    /// Takes the waiting datagrams.
    pub fn drain(&self, packets: &mut Vec<Bytes>) {
        packets.append(&mut lock(&self.shared.waiting));
    }

    /// Sends a datagram to the switch, or loses it: never waits.
    pub fn send(&self, bytes: &[u8]) {
        let counts = &self.shared.counts;
        match send(&*self.socket, bytes, SendFlags::DONTWAIT).map_err(|error| io::Error::from(error).kind()) {
            // The error belongs to an earlier datagram, and this one has not left.
            Err(ErrorKind::ConnectionRefused) if send(&*self.socket, bytes, SendFlags::DONTWAIT).is_ok() => {
                counts.sent.fetch_add(1, Ordering::Relaxed)
            }
            Err(_) => counts.lost.fetch_add(1, Ordering::Relaxed),
            Ok(_) => counts.sent.fetch_add(1, Ordering::Relaxed),
        };
    }
}

impl Drop for PacketPort {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
    }
}

/// Receives datagrams, in a thread of its own.
fn read(socket: &UdpSocket, shared: &PacketState, mailbox: &Mailbox) {
    // One byte more, so that a datagram that is too long is recognized.
    let mut buffer = vec![0; PACKET_BYTES_MAX + 1];
    let mut batch = Vec::new();
    while !shared.over.load(Ordering::Acquire) {
        match socket.recv(&mut buffer) {
            Ok(length) => batch.push(Bytes::copy_from_slice(&buffer[..length])),
            Err(error) => match error.kind() {
                // No datagram came; or a sent datagram had no receiver, which the system reports here.
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => continue,
                ErrorKind::ConnectionRefused => continue,
                _ => {
                    tracing::debug!("cannot receive packets from the switch: {error}");
                    thread::sleep(PAUSE);
                    continue;
                }
            },
        }
        while batch.len() < BATCH_MAX {
            match recv(socket, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok((length, _)) => batch.push(Bytes::copy_from_slice(&buffer[..length])),
                Err(_) => break,
            }
        }
        shared.counts.received.fetch_add(batch.len() as u64, Ordering::Relaxed);
        let mut waiting = lock(&shared.waiting);
        let room = WAITING_MAX.saturating_sub(waiting.len());
        shared.counts.lost.fetch_add(batch.len().saturating_sub(room) as u64, Ordering::Relaxed);
        waiting.extend(batch.drain(..).take(room));
        drop(waiting);
        mailbox.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn wait_for(port: &PacketPort, count: usize) -> Vec<Bytes> {
        let (mut packets, until) = (Vec::new(), Instant::now() + Duration::from_secs(10));
        while packets.len() < count && Instant::now() < until {
            port.drain(&mut packets);
            thread::park_timeout(Duration::from_millis(20));
        }
        packets
    }

    #[test]
    fn packets_come_and_go_whether_or_not_somebody_is_there() {
        let switch = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = switch.local_addr().unwrap();
        let mailbox = Arc::new(Mailbox::default());
        mailbox.adopt();
        let port = PacketPort::open(at, mailbox.clone()).unwrap();
        assert_eq!(address(port.config().at), at);
        let here = address(port.config().here);
        assert!(here.ip().is_loopback() && here.port() != 0);
        port.send(b"there");
        let mut buffer = [0; 16];
        assert_eq!(switch.recv_from(&mut buffer).unwrap(), (5, here));
        (0..200_u8).for_each(|number| assert_eq!(switch.send_to(&[number], here).unwrap(), 1));
        let all: Vec<Bytes> = (0..200_u8).map(|number| Bytes::copy_from_slice(&[number])).collect();
        assert_eq!(wait_for(&port, 200), all);
        // Datagrams from other senders do not arrive.
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"nonsense", here).unwrap();
        drop(switch);
        (0..10).for_each(|_| port.send(b"nobody"));
        let switch = UdpSocket::bind(at).unwrap();
        port.send(b"back");
        assert_eq!(switch.recv(&mut buffer).unwrap(), 4);
        switch.send_to(b"here", here).unwrap();
        assert_eq!(wait_for(&port, 1), [Bytes::from("here")]);
        let counts = port.counts();
        assert_eq!(counts.received.load(Ordering::Relaxed), 201);
    }

    #[test]
    fn what_has_no_room_is_lost() {
        let switch = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = PacketPort::open(switch.local_addr().unwrap(), Arc::default()).unwrap();
        *lock(&port.shared.waiting) = vec![Bytes::new(); WAITING_MAX - 1];
        let here = address(port.config().here);
        (0..3).for_each(|_| assert_eq!(switch.send_to(b"one", here).unwrap(), 3));
        let until = Instant::now() + Duration::from_secs(10);
        while port.counts().lost.load(Ordering::Relaxed) < 2 && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(port.counts().lost.load(Ordering::Relaxed), 2);
        assert_eq!(lock(&port.shared.waiting).len(), WAITING_MAX);
    }
}
