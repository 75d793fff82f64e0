//! Messages between peers.

use bytes::Bytes;
use overlay::{PeerKey, Point};
use serde::{Deserialize, Serialize};

use super::copies::{Copy, Version};

/// A peer with its address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contact {
    /// The peer.
    pub peer: PeerKey,
    /// A multiaddress as text.
    pub address: String,
}

impl Contact {
    /// Returns the peer's id: its place on the ring.
    pub fn id(&self) -> Point {
        id_of(self.peer)
    }
}

/// Returns the id of a peer.
pub fn id_of(peer: PeerKey) -> Point {
    Point::of(&peer.0)
}

/// A request to the root of a point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Errand {
    /// The peers next to a newcomer: [`Message::Welcome`].
    Join,
    /// The root's contact: [`Message::Found`].
    Find,
    /// The value of a key.
    Get(Bytes),
    /// A new value of a key.
    Put(Copy),
}

/// A message on its way to the root of a point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Routed {
    /// The point.
    pub point: Point,
    /// The peer that is answered, directly.
    pub origin: Contact,
    /// The origin's number of this errand.
    pub number: u64,
    /// Peers that have passed the message on.
    pub hops: u8,
    /// The request.
    pub errand: Errand,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// The sender is alive and has entered.
    Heartbeat,
    /// The sender asks for a heartbeat.
    Probe,
    /// Peers next to the sender. `wants`: the same is asked of the receiver.
    Leaves {
        /// The sender's leaves.
        leaves: Vec<Contact>,
        /// Whether an answer is asked for.
        wants: bool,
    },
    /// A hop of a routed message, to be acknowledged under this number of the sender.
    Hop(u64, Routed),
    /// The hop of this number has arrived.
    Arrived(u64),
    /// The answer to [`Errand::Join`]: peers next to the newcomer, and peers for its routing table.
    Welcome {
        /// The root and its leaves.
        leaves: Vec<Contact>,
        /// The root's routing table.
        table: Vec<Contact>,
    },
    /// The answer to [`Errand::Find`].
    Found,
    /// The answer to [`Errand::Get`], by the origin's number.
    Got(u64, Option<Bytes>),
    /// The answer to [`Errand::Put`], by the origin's number.
    Stored(u64),
    /// A newcomer asks for copies of the keys that it will hold.
    Fetch,
    /// Copies. `done`: all copies that a [`Message::Fetch`] asked for have been sent.
    Copies {
        /// The copies.
        copies: Vec<Copy>,
        /// Whether these are the last ones.
        done: bool,
    },
    /// Keys and versions that the sender, as their root, wants the receiver to hold.
    Compare(Vec<(Bytes, Version)>),
    /// The sender lacks these keys of a comparison, or has older copies of them.
    Lacks(Vec<Bytes>),
}

/// A message with the sender's address.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Frame {
    /// Address of the sender.
    pub address: String,
    /// The message.
    pub message: Message,
}
