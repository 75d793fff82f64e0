//! The events and calls between the network and the loop that drives a node.

use bytes::Bytes;
use node::Class;
use overlay::{PeerKey, RingId};

use crate::stream::hello::Refusal;

/// Events of the network for the loop.
#[derive(Clone, Debug)]
pub enum NetEvent {
    /// Frames of one peer and class, in the order in which they were sent on one connection.
    ///
    /// They share one buffer: copy frames that are kept for long. Frames of a peer never come before its
    /// [`NetEvent::PeerUp`]; the last of them may come after its [`NetEvent::PeerDown`].
    Frames {
        /// The sender, which the connection proves.
        peer: PeerKey,
        /// The class of their stream.
        class: Class,
        /// One frame or more.
        frames: Vec<Bytes>,
    },
    /// A hello was accepted, by this peer or by the local one. Reported once for any number of connections.
    PeerUp(PeerKey),
    /// The last connection to this peer is gone. A hint, never a proof.
    PeerDown(PeerKey),
    /// The addresses of the local peer for other peers, best first, as multiaddresses without `/p2p/…`. Replaces earlier
    /// ones.
    Addresses(Vec<String>),
    /// The local peer refused a peer, or was refused by one. The connection is being closed.
    Refused {
        /// The other side.
        peer: PeerKey,
        /// The reason.
        reason: Refusal,
        /// The side that refused.
        by: RefusedBy,
    },
}

/// The side that refused the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusedBy {
    /// The local peer refused the other peer.
    Us,
    /// The other peer refused the local peer.
    Them,
}

/// The transport by which a peer is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Via {
    /// TCP: preferred wherever it is possible.
    Tcp,
    /// QUIC, over UDP.
    Quic,
}

/// One outgoing frame.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The receiver.
    pub to: PeerKey,
    /// The class of its stream.
    pub class: Class,
    /// The frame's bytes.
    pub frame: Bytes,
}

/// Reason for which a frame was not queued. The network counts it; a sender that tolerates loss may ignore it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The peer is neither connected nor asked for with [`Transport::dial`].
    #[error("not connected to this peer, and no connection was requested")]
    UnknownPeer,
    /// The peer's queue of this class, or the memory for all queues, is full.
    #[error("queue full")]
    Full,
    /// The frame is longer than [`FRAME_BYTES_MAX`](crate::FRAME_BYTES_MAX): no peer would accept it.
    #[error("frame of {0} bytes is too long")]
    TooLong(usize),
}

/// The network as the loop of a peer uses it. No call waits.
pub trait Transport {
    /// Queues all of `batch` and empties it, waking each writer at most once. A frame without room is dropped and
    /// counted.
    fn send_batch(&mut self, batch: &mut Vec<Outgoing>);

    /// Connects to this peer and stays connected; the addresses replace earlier ones, unless there are none.
    fn dial(&mut self, peer: PeerKey, addresses: &[String]);

    /// Sets the ring that the local peer belongs to: peers of another ring are refused, connected ones too.
    fn set_ring(&mut self, ring: RingId);

    /// Appends the waiting events to `into`, the urgent ones first, and returns their number.
    fn drain(&mut self, into: &mut Vec<NetEvent>) -> usize;
}
