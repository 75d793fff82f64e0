//! What passes between the network and the loop that drives a node.

use bytes::Bytes;
use node::Class;
use overlay::{PeerKey, RingId};

use super::hello::Refusal;

/// What the network tells the loop.
#[derive(Clone, Debug)]
pub enum NetEvent {
    /// Frames of one peer and class, in the order in which they were sent on one connection.
    ///
    /// They share one buffer: copy what is to be kept for long. Frames of a peer never come before its
    /// [`NetEvent::PeerUp`]; the last of them may come after its [`NetEvent::PeerDown`].
    Frames {
        /// Who sent them: proven by the connection.
        peer: PeerKey,
        /// On which stream they came.
        class: Class,
        /// One or more.
        frames: Vec<Bytes>,
    },
    /// A hello of this peer was accepted, or ours by it. Once, however many connections there are.
    PeerUp(PeerKey),
    /// The last connection to this peer is gone. A hint, never a proof.
    PeerDown(PeerKey),
    /// Where others can reach this peer, best first, as multiaddresses without `/p2p/…`. Replaces what was said before.
    Addresses(Vec<String>),
    /// Somebody does not belong here, or holds that we do not. The connection is being closed.
    Refused {
        /// The other side.
        peer: PeerKey,
        /// Why.
        reason: Refusal,
        /// Who refused whom.
        by: RefusedBy,
    },
}

/// Who refused whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusedBy {
    /// We refused the peer.
    Us,
    /// The peer refused us.
    Them,
}

/// How a peer is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Via {
    /// TCP: whenever it can be had.
    Tcp,
    /// QUIC, over UDP.
    Quic,
}

/// One frame on its way out.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// To whom.
    pub to: PeerKey,
    /// On which stream.
    pub class: Class,
    /// What to say.
    pub frame: Bytes,
}

/// Why a frame was not queued. It is counted either way; a sender that may lose frames need not look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// Neither connected nor asked for with [`Transport::dial`].
    #[error("not connected to this peer, nor asked to be")]
    UnknownPeer,
    /// The peer's queue of this class, or the memory for all queues, is full.
    #[error("queue full")]
    Full,
    /// Longer than [`FRAME_BYTES_MAX`](super::FRAME_BYTES_MAX): nobody would take it.
    #[error("frame of {0} bytes is too long")]
    TooLong(usize),
}

/// What the loop of a peer needs from a network. No call waits.
pub trait Transport {
    /// Queues all of `batch` and empties it, waking each writer at most once. What finds no room is dropped and counted.
    fn send_batch(&mut self, batch: &mut Vec<Outgoing>);

    /// Connect to this peer and stay connected; the addresses replace those given before, unless there are none.
    fn dial(&mut self, peer: PeerKey, addresses: &[String]);

    /// From now on this peer belongs to `ring`: peers of another ring are refused, connected ones too.
    fn set_ring(&mut self, ring: RingId);

    /// Appends what happened to `into`, the urgent first, and says how many events that were.
    fn drain(&mut self, into: &mut Vec<NetEvent>) -> usize;
}
