//! The switch in software: the pipeline over one UDP socket.
//!
//! Clients send their reads to it, replicas what they write, their answers and completions. It is for where there is no switch in hardware, and
//! it is not one: one core, and not line rate. Whoever stands in its place on a network has to guard against what a switch's place
//! guards against by itself: who may send to whom.
//!
//! - A read is taken from anybody, if it wants its answer at the address that it comes from, or none. From a replica it may want
//!   it anywhere: replicas pass on what clients asked. It goes to replicas only.
//! - A packet of a write is taken only from an address that is in the table of ports, and goes to replicas only: primaries have their
//!   own writes pass, and what nobody completes would fill the dirty set.
//! - An answer, and a completion, is believed only from such an address, too; and it goes on only to who asked lately
//!   ([`clients`]). A completion that says nowhere is for the switch alone.
//! - All else is dropped and counted, and so is what cannot be sent. Nothing that arrives, and no error, ends it.
//!
//! It trusts sources, as the rest of a data centre's network does: where somebody can send from a replica's address, somebody can
//! say what is complete.

pub mod cli;
pub mod clients;
mod forward;
pub(crate) mod host;
mod http;
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

pub use forward::Forwarder;
pub use http::serve as serve_http;
#[cfg(target_os = "linux")]
pub use many::{Link, bind};
pub use metrics::{Metrics, Pulse};
#[cfg(not(target_os = "linux"))]
pub use single::{Link, bind};

use crate::device::{Cut, Device};

/// So many datagrams are received, or sent, with one call to the system at most.
pub const BATCH: usize = 64;
/// One more than a packet has: what is longer shows itself by filling it.
const BUFFER_BYTES: usize = PACKET_BYTES_MAX + 1;
/// After so long without a packet a call comes back, to see whether it is over.
const PATIENCE: Duration = Duration::from_millis(100);
/// Room for packets that wait, asked of the system; it may give less.
const SOCKET_BUFFER_BYTES: usize = 8 << 20;

/// Datagrams that came at once.
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
    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// One of them, and where it came from.
    pub fn get_mut(&mut self, place: usize) -> (&mut [u8], ReplyTo) {
        (&mut self.bytes[place][..self.lengths[place]], self.sources[place])
    }

    fn get(&self, place: usize) -> &[u8] {
        &self.bytes[place][..self.lengths[place]]
    }
}

/// Which datagrams of a batch go where, in this order.
#[derive(Debug)]
pub struct Plan {
    sends: [(usize, ReplyTo); BATCH],
    count: usize,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan { sends: [(0, ReplyTo::NOWHERE); BATCH], count: 0 }
    }
}

impl Plan {
    /// Nothing goes anywhere.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// This datagram goes there, after those before.
    ///
    /// # Panics
    /// Where it is full: a batch has no more.
    pub fn push(&mut self, place: usize, to: ReplyTo) {
        self.sends[self.count] = (place, to);
        self.count += 1;
    }

    /// All of it.
    pub fn sends(&self) -> &[(usize, ReplyTo)] {
        &self.sends[..self.count]
    }
}

/// What became of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// The system has taken so many.
    pub done: u64,
    /// For so many it had no room.
    pub full: u64,
    /// So many it did not send for another reason.
    pub failed: u64,
}

impl Sent {
    /// One was not sent.
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

/// The address that a socket of this family sends to; `None` where it cannot.
fn destination(is_v6: bool, to: ReplyTo) -> Option<SocketAddr> {
    match (is_v6, to.address()?) {
        (true, _) => Some(SocketAddr::new(to.ip.into(), to.port)),
        (false, address) => address.is_ipv4().then_some(address),
    }
}

/// A switch in software, before it runs and while it does.
#[derive(Debug)]
pub struct Switch {
    socket: UdpSocket,
    device: Arc<Device>,
    pulse: Pulse,
    forwarder: Forwarder,
}

impl Switch {
    /// Takes its address.
    ///
    /// # Errors
    /// Where it cannot be had.
    pub fn bind(listen: SocketAddr, device: Arc<Device>) -> io::Result<Switch> {
        let socket = bind(listen)?;
        Ok(Switch { socket, device, pulse: Pulse::default(), forwarder: Forwarder::new(chance()) })
    }

    /// Its address.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// What is to be known of it from outside while it runs.
    ///
    /// # Errors
    /// Where the system gives no second handle of its socket.
    pub fn metrics(&self) -> io::Result<Metrics> {
        Ok(Metrics { device: self.device.clone(), socket: self.socket().try_clone()?, pulse: self.pulse.clone() })
    }

    /// Moves packets until `stop` becomes true, and a tenth of a second more at most. Where it runs, nothing is allocated.
    pub fn run(mut self, stop: &AtomicBool) {
        let (mut link, mut batch, mut plan) = (Link::new(self.socket), Batch::default(), Plan::default());
        let began = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let received = link.receive(&mut batch);
            // It begins with 1, since 0 is never: a switch lives for less than a century.
            let now = began.elapsed().as_secs().min(u64::from(u32::MAX) - 1) as u32 + 1;
            self.pulse.beat();
            if let Err(error) = received {
                if error.kind() != io::ErrorKind::Interrupted {
                    self.device.lock().counters.receive_errors += 1;
                    // If it cannot receive at all, it is not to spin.
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

/// A number that nobody knows.
fn chance() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0)
}

#[cfg(test)]
#[path = "link_test.rs"]
mod link_tests;
