//! What the network counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use node::Class;
use overlay::PeerKey;

use super::event::Via;
use super::hello::Refusal;

/// A picture of the network as of now; counts are since start.
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
    /// Times that a peer refused us or we refused one: by [`Refusal`], in its order.
    pub refused: [u64; 6],
    /// Times that a peer sent what nobody may send: a frame or greeting too long, or one that cannot be read.
    pub violations: u64,
    /// Connections ended because the other side took nothing for too long.
    pub stalled: u64,
    /// Connections not taken because of a limit.
    pub over_limit: u64,
}

/// One peer.
#[derive(Clone, Debug)]
pub struct PeerStats {
    /// Who.
    pub peer: PeerKey,
    /// Connected, and its hello accepted.
    pub up: bool,
    /// How it is written to, while it is connected.
    pub via: Option<Via>,
    /// Round trip of the last ping.
    pub rtt: Option<Duration>,
    /// By class: control, data, bulk.
    pub classes: [ClassStats; 3],
}

/// One class of one peer.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClassStats {
    /// Frames waiting to be written.
    pub queued_frames: usize,
    /// Their bytes.
    pub queued_bytes: usize,
    /// Frames written and flushed.
    pub sent_frames: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames received.
    pub received_frames: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Frames dropped because there was no room.
    pub dropped_full: u64,
    /// Frames dropped because they waited too long.
    pub dropped_late: u64,
    /// Frames taken for writing when the connection broke; some may have arrived.
    pub lost: u64,
}

impl PeerStats {
    /// The counts of one class.
    pub fn class(&self, class: Class) -> &ClassStats {
        &self.classes[class as usize]
    }
}

/// Counts that belong to no peer. See [`NetStats`].
#[derive(Default)]
pub(super) struct Counters {
    pub(super) connections: AtomicU64,
    pub(super) unknown_peer: AtomicU64,
    pub(super) refused: [AtomicU64; 6],
    pub(super) violations: AtomicU64,
    pub(super) stalled: AtomicU64,
    pub(super) over_limit: AtomicU64,
}

impl Counters {
    /// Counts a refusal and says how many of this kind there were.
    pub(super) fn refused(&self, reason: Refusal) -> u64 {
        self.refused[reason as usize].fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Adds one and says how many that makes.
pub(super) fn count(counter: &AtomicU64) -> u64 {
    counter.fetch_add(1, Ordering::Relaxed) + 1
}
