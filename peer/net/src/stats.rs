//! The counters of the network.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use node::Class;
use overlay::PeerKey;

use crate::event::Via;
use crate::stream::hello::Refusal;

/// The state of the network as of now; counters are since start.
#[derive(Clone, Debug, Default)]
pub struct NetStats {
    /// Peers that are connected or asked for.
    pub peers: Vec<PeerStats>,
    /// Established connections.
    pub connections: u64,
    /// Bytes in all outgoing queues together.
    pub queued_bytes: usize,
    /// Frames dropped because their receiver is neither connected nor asked for.
    pub dropped_unknown_peer: u64,
    /// Refusals of peers by the local peer, and the other way round: by [`Refusal`], in its order.
    pub refused: [u64; 6],
    /// Violations by peers: a frame or greeting that is too long, or that cannot be read.
    pub violations: u64,
    /// Connections that ended because the other side took no bytes for too long.
    pub stalled: u64,
    /// Connections that were denied because of a limit.
    pub over_limit: u64,
}

/// The state of one peer.
#[derive(Clone, Debug)]
pub struct PeerStats {
    /// The peer's key.
    pub peer: PeerKey,
    /// Whether it is connected, with an accepted hello.
    pub up: bool,
    /// The transport by which frames to it are written, while it is connected.
    pub via: Option<Via>,
    /// Round trip of the last ping; `None` before the first.
    pub rtt: Option<Duration>,
    /// By class: control, data, bulk.
    pub classes: [ClassStats; 3],
}

/// The counters of one class of one peer.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClassStats {
    /// Frames waiting to be written.
    pub queued_frames: usize,
    /// Bytes of these frames.
    pub queued_bytes: usize,
    /// Frames written and flushed.
    pub sent_frames: u64,
    /// Bytes of the sent frames.
    pub sent_bytes: u64,
    /// Frames received.
    pub received_frames: u64,
    /// Bytes of the received frames.
    pub received_bytes: u64,
    /// Frames dropped because there was no room.
    pub dropped_full: u64,
    /// Frames dropped because they waited too long.
    pub dropped_late: u64,
    /// Frames that were taken for writing when the connection broke; some may have arrived.
    pub lost: u64,
}

impl PeerStats {
    /// Returns the counters of one class.
    pub fn class(&self, class: Class) -> &ClassStats {
        &self.classes[class as usize]
    }
}

/// Counters that belong to no peer. See [`NetStats`].
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) connections: AtomicU64,
    pub(crate) unknown_peer: AtomicU64,
    pub(crate) refused: [AtomicU64; 6],
    pub(crate) violations: AtomicU64,
    pub(crate) stalled: AtomicU64,
    pub(crate) over_limit: AtomicU64,
}

impl Counters {
    /// Counts a refusal and returns the number of this kind.
    pub(crate) fn refused(&self, reason: Refusal) -> u64 {
        self.refused[reason as usize].fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Adds one and returns the new value.
pub(crate) fn count(counter: &AtomicU64) -> u64 {
    counter.fetch_add(1, Ordering::Relaxed) + 1
}
