//! The switch in software: the pipeline over one UDP socket.
//!
//! Clients send it their reads; replicas send it their writes, answers and completions. It stands in where there is no switch in
//! hardware, and does not equal one: it has one core, and not line rate. A switch's place in a network restricts by itself which
//! host may send to which. A program at another place has to check that itself:
//!
//! - A read is accepted from any source, if it wants its answer at the address from which it comes, or no answer. A read from a
//!   replica may name any address: replicas forward requests of clients. A read is sent to replicas only.
//! - A packet of a write is accepted only from an address in the table of ports, and is sent to replicas only. Primaries send
//!   their own writes; writes without completions would fill the dirty set.
//! - An answer or a completion, too, is accepted only from such an address. It is sent on only to a recent client (`clients`).
//!   A completion without an address is for the switch alone.
//! - All other packets are dropped and counted, and so are packets that cannot be sent. No input and no error ends the loop.
//!
//! The switch trusts source addresses, as the rest of a data centre's network does: a host that can send from a replica's address
//! can claim that writes are complete.

pub mod cli;
mod clients;
mod forward;
#[cfg(target_os = "linux")]
mod many;
mod metrics;
#[cfg(any(test, not(target_os = "linux")))]
mod single;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use header::{PACKET_BYTES_MAX, ReplyTo};

use forward::Forwarder;
#[cfg(target_os = "linux")]
pub use many::{Link, bind};
use metrics::{Metrics, Pulse};
#[cfg(not(target_os = "linux"))]
pub use single::{Link, bind};

use crate::device::{Cut, Device};

/// Upper limit of datagrams that are received, or sent, with one system call.
pub(crate) const BATCH: usize = 64;
/// Size of a buffer in bytes: one more than the longest packet, so that a longer datagram is seen because it fills the buffer.
const BUFFER_BYTES: usize = PACKET_BYTES_MAX + 1;
/// Time after which a system call without a packet returns, so that the loop can end.
const PATIENCE: Duration = Duration::from_millis(100);
/// Memory for waiting packets, in bytes, requested from the system; the system may give less.
const SOCKET_BUFFER_BYTES: usize = 8 << 20;

/// Datagrams that were received at once.
#[derive(Debug)]
pub struct Batch {
    bytes: Box<[[u8; BUFFER_BYTES]]>,
    lengths: [usize; BATCH],
    sources: [ReplyTo; BATCH],
    count: usize,
}

impl Default for Batch {
    fn default() -> Batch {
        Batch {
            bytes: vec![[0; BUFFER_BYTES]; BATCH].into(),
            lengths: [0; BATCH],
            sources: [ReplyTo::NOWHERE; BATCH],
            count: 0,
        }
    }
}

impl Batch {
    /// Returns the number of datagrams.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns a datagram and its source.
    pub fn get_mut(&mut self, place: usize) -> (&mut [u8], ReplyTo) {
        (&mut self.bytes[place][..self.lengths[place]], self.sources[place])
    }

    fn get(&self, place: usize) -> &[u8] {
        &self.bytes[place][..self.lengths[place]]
    }
}

/// Datagrams of a batch to send, with their destinations, in this order.
#[derive(Debug)]
pub struct SendPlan {
    sends: [(usize, ReplyTo); BATCH],
    count: usize,
}

impl Default for SendPlan {
    fn default() -> SendPlan {
        SendPlan { sends: [(0, ReplyTo::NOWHERE); BATCH], count: 0 }
    }
}

impl SendPlan {
    /// Removes all entries.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Adds a datagram and its destination, after those before.
    ///
    /// # Panics
    /// If the plan is full: a batch has no more datagrams.
    pub fn push(&mut self, place: usize, to: ReplyTo) {
        self.sends[self.count] = (place, to);
        self.count += 1;
    }

    /// Returns all entries.
    pub fn sends(&self) -> &[(usize, ReplyTo)] {
        &self.sends[..self.count]
    }
}

/// Result of sending a plan, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Packets that the system accepted.
    pub done: u64,
    /// Packets for which the system had no room.
    pub full: u64,
    /// Packets that the system did not send for another reason.
    pub failed: u64,
}

impl Sent {
    /// Counts one packet that was not sent.
    fn not(&mut self, why: &io::Error) {
        match why.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => self.full += 1,
            _ if is_no_buffers(why) => self.full += 1,
            _ => self.failed += 1,
        }
    }
}

#[cfg(target_os = "linux")]
fn is_no_buffers(why: &io::Error) -> bool {
    why.raw_os_error() == Some(nix::libc::ENOBUFS)
}

#[cfg(not(target_os = "linux"))]
fn is_no_buffers(_: &io::Error) -> bool {
    false
}

/// Returns the address to which a socket of this family sends; `None` if it cannot.
fn destination(is_v6: bool, to: ReplyTo) -> Option<SocketAddr> {
    match (is_v6, to.address()?) {
        (true, _) => Some(SocketAddr::new(to.ip.into(), to.port)),
        (false, address) => address.is_ipv4().then_some(address),
    }
}

/// Switch in software, before it runs and while it does.
#[derive(Debug)]
pub struct Switch {
    socket: UdpSocket,
    device: Arc<Device>,
    pulse: Pulse,
    forwarder: Forwarder,
}

impl Switch {
    /// Returns a switch that is bound to this address.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub fn bind(listen: SocketAddr, device: Arc<Device>) -> io::Result<Switch> {
        let socket = bind(listen)?;
        Ok(Switch { socket, device, pulse: Pulse::default(), forwarder: Forwarder::new(chance()) })
    }

    /// Returns the socket.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Returns the data that is visible from outside while the switch runs.
    ///
    /// # Errors
    /// If the system gives no second handle of the socket.
    pub fn metrics(&self) -> io::Result<Metrics> {
        Ok(Metrics { device: self.device.clone(), socket: self.socket().try_clone()?, pulse: self.pulse.clone() })
    }

    /// Moves packets until `stop` becomes true, and at most a tenth of a second longer. The running loop allocates nothing.
    pub fn run(mut self, stop: &AtomicBool) {
        let (mut link, mut batch, mut plan) = (Link::new(self.socket), Batch::default(), SendPlan::default());
        let began = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let received = link.receive(&mut batch);
            // The time begins at 1, since 0 means never. It ends after more than a century.
            let now = began.elapsed().as_secs().min(u64::from(u32::MAX) - 1) as u32 + 1;
            self.pulse.beat();
            if let Err(error) = received {
                if error.kind() != io::ErrorKind::Interrupted {
                    self.device.lock().counters.receive_errors += 1;
                    // A socket that cannot receive at all must not make the loop spin.
                    std::thread::sleep(Duration::from_millis(1));
                }
                continue;
            }
            if batch.is_empty() {
                continue;
            }
            self.forwarder.decide(&mut self.device.lock(), &mut batch, &mut plan, now);
            let sent = link.send(&batch, &plan);
            let mut state = self.device.lock();
            state.counters.forwarded += sent.done;
            state.counters.cut_many(Cut::SendFull, sent.full);
            state.counters.cut_many(Cut::SendFailed, sent.failed);
        }
    }
}

/// Returns a number that no other process knows.
fn chance() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0)
}

#[cfg(test)]
#[path = "link_test.rs"]
mod link_tests;
