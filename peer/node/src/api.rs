//! Inputs and outputs of a [`Node`](crate::Node).

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use group::op::{Answer, Limit, Op, OpError, ReadMode};
use header::ReplyTo;
use overlay::time::Time;
use overlay::{GroupId, Incarnation, Key, PeerKey, Point, RingId};
use serde::{Deserialize, Serialize};

use crate::admin::{AdminOutcome, AdminRequest};
use crate::routing::ring_walk::RingWalk;

/// Id of a client connection of this peer; never used again while the process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Id of a client operation of this peer. The driver chooses it, and never uses it again while the process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// One operation of a client of this peer.
#[derive(Clone, Debug)]
pub struct Request {
    /// Id, repeated in the answer.
    pub id: RequestId,
    /// Connection of the client. Operations of one connection on one key take effect in the order in which they are handed in.
    pub connection: ConnectionId,
    /// The key.
    pub key: Key,
    /// Operation on the key.
    pub op: Op,
    /// Mode of a read.
    pub mode: ReadMode,
    /// Time that the client waits; then it gets an error. At most 3 s.
    pub patience: Duration,
    /// The client's own id (`SCATTER.ONCE`): an operation that is repeated with the same id takes effect once.
    pub once: Option<Bytes>,
}

/// Stream of a frame. Classes do not wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Class {
    /// Heartbeats, elections, the group's log: small, and sent first.
    Control,
    /// Client operations and their replication.
    Data,
    /// Bulk state, limited in rate.
    Bulk,
}

/// Input of a node, from its driver.
#[derive(Clone, Debug)]
pub enum Input {
    /// A frame arrived. The transport proves `from`; the frame's content is a claim.
    Frame {
        /// The peer at the other end.
        from: PeerKey,
        /// The frame's bytes; decoded here, and counted and dropped where they are invalid.
        frame: Bytes,
    },
    /// A connection to this peer is up. Sent once, for any number of connections.
    PeerUp(PeerKey),
    /// The last connection to this peer is gone. A hint, never a proof.
    PeerDown(PeerKey),
    /// Entry of all client operations, `routecast(key, message)` (RECODE §III). The node delivers an operation to the service at the key's
    /// group, wherever that group is: in one total order for each key, at most once, and also while groups become other groups. Answered by
    /// exactly one [`Output::Reply`] with the same id.
    Routecast(Request),
    /// A datagram came from `from` to this peer's address for packets of switches. Its content is not trusted.
    Packet {
        /// Source of the datagram.
        from: ReplyTo,
        /// The whole datagram.
        bytes: Bytes,
    },
    /// The batch with this token and all batches before it are durable.
    Persisted(u64),
    /// The store failed: data that was not yet [`Input::Persisted`] cannot be relied on, and nothing more is written.
    StoreFailed(String),
    /// Limit of the store's room, once the room is below its low mark; `None` once it is above the mark again. While room is low, other
    /// members become primaries in this node's place; where no member has room, writes are refused.
    DiskLow(Option<Limit>),
    /// Whether the store has much left to write behind the durable data. Copies from other members wait for it.
    StoreBehind(bool),
    /// Busy time of this peer in a past window: the time for which its scarcest resource was in use. Resources are the loop that drives the
    /// node, and the bandwidth that its operator allows. From the busy time and the operations that it served in the window, the node
    /// estimates how many operations a second it can execute. Windows of ten seconds or more give the best estimates.
    Busy {
        /// Length of the window.
        window: Duration,
        /// Busy time; at most `window`.
        busy: Duration,
    },
    /// Answer to [`Output::Load`]: the stored record, or `None` if there is none.
    Loaded {
        /// Key of the [`Output::Load`].
        record_key: Bytes,
        /// Record as this node persisted it last.
        record: Option<Bytes>,
    },
    /// Answer to [`Output::Scan`].
    Scanned {
        /// Token of the [`Output::Scan`].
        token: u64,
        /// Records in order of their keys: all records from the first requested key to the last key given here.
        records: Vec<(Bytes, Bytes)>,
        /// Whether no records follow the last one.
        done: bool,
    },
    /// The time of [`Output::WakeAt`] has come. Early or repeated ticks are harmless.
    Tick,
    /// Addresses under which other peers can reach this peer, as the transport knows them now (multiaddresses as text).
    Addresses(Vec<String>),
    /// Request to stop: the node hands its primaries over, then reports [`Event::Stopped`].
    Stop,
    /// Administrator's request that a group become another. Answered by exactly one [`Output::AdminOutcome`], at the latest after 10 s, and
    /// after 60 s for a repair. Members may have to copy much data first: then the time begins anew as long as they copy, for up to 600 s.
    AdminRequest {
        /// Number of the request. The driver chooses it, and never uses it again while the process lives.
        number: u64,
        /// Group of the request; this peer must have a part in it.
        group: GroupId,
        /// The requested change.
        request: AdminRequest,
    },
    /// Request for the owners of the ring. Answered by exactly one [`Output::RingWalked`]. The node waits at most 2 s for each group on the
    /// way.
    RingWalk {
        /// Number of the walk. The driver chooses it, and never uses it again while the process lives.
        number: u64,
        /// First point of the walk; `None` for the start of this node's group.
        from: Option<Point>,
        /// Number of groups wanted; fewer where the ring has fewer.
        count: usize,
    },
    /// Request to leave the group for good, then [`Event::Left`]. The node goes on serving until other members have all data that it has.
    Leave {
        /// Whether to leave also where fewer than three members remain.
        force: bool,
    },
}

/// One change to the store. The changes of a batch are atomic; batches are durable in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// Sets a small entry: protocol state. The store keeps all small entries in memory, and gives them back at start.
    PutMeta(Bytes, Bytes),
    /// Drops the small entries from the first key up to the second, which stays.
    DropMeta(Bytes, Bytes),
    /// Moves values from small entries into records, without writing the values again. It takes each small entry with a key in `[from, to)`
    /// and a value that is not empty, in ascending order. The record whose key is the entry's key without its first `strip` bytes takes the
    /// value, and the entry stays with an empty value. In this way an accepted write becomes a chosen one: the journal holds its value
    /// once, and a later entry of the same record wins.
    Promote {
        /// First entry.
        from: Bytes,
        /// End of the entries, exclusive.
        to: Bytes,
        /// Number of bytes before the record's key in an entry's key; entries with shorter keys are left alone.
        strip: usize,
    },
    /// Sets a record: the state of a key. Records may need more room than memory has.
    PutRecord(Bytes, Bytes),
    /// Drops a record.
    DropRecord(Bytes),
}

/// Output of a node: actions for the driver, to be taken in this order.
#[derive(Clone, Debug)]
#[must_use]
pub enum Output {
    /// Send a frame. The frame may be lost, repeated or reordered on the way: the protocol allows for it.
    Send {
        /// Receiver. The driver knows or finds the address; a peer that cannot be reached counts as silent.
        to: PeerKey,
        /// Stream.
        class: Class,
        /// Bytes of the frame.
        frame: Bytes,
    },
    /// Send this datagram from this peer's address for packets of switches. It may be lost, as any datagram.
    Packet {
        /// Destination.
        to: ReplyTo,
        /// The whole datagram.
        bytes: Bytes,
    },
    /// Make these changes durable, then report [`Input::Persisted`]. Tokens rise.
    Persist {
        /// Token that [`Input::Persisted`] names.
        token: u64,
        /// Changes of the batch: all take effect, or none.
        changes: Vec<Change>,
    },
    /// Look a record up, as of all batches handed out before. Each request is answered by one [`Input::Loaded`].
    Load {
        /// Key of the record.
        record_key: Bytes,
        /// Whether an operation waits for the record: it is then served before other loads, and before pages.
        urgent: bool,
    },
    /// List records, as of all batches handed out before. Answered by [`Input::Scanned`].
    Scan {
        /// Token that [`Input::Scanned`] names.
        token: u64,
        /// First key.
        from: Bytes,
        /// Approximate limit of the page in bytes; a page has at least one record.
        bytes_max: usize,
    },
    /// The answer to a client.
    Reply {
        /// Request that is answered.
        id: RequestId,
        /// Answer, or the error.
        result: Result<Answer, OpError>,
    },
    /// Answer to [`Input::AdminRequest`].
    AdminOutcome {
        /// Number of the [`Input::AdminRequest`].
        number: u64,
        /// Result of the request.
        outcome: AdminOutcome,
    },
    /// The answer to [`Input::RingWalk`].
    RingWalked {
        /// Number of the [`Input::RingWalk`].
        number: u64,
        /// Groups, and the ranges that they own.
        walk: RingWalk,
    },
    /// Call [`Input::Tick`] at this time; replaces the time of an earlier `WakeAt`.
    WakeAt(Time),
    /// Connect to this peer if it is not connected; these addresses belong to it.
    Dial {
        /// The peer.
        peer: PeerKey,
        /// Its last known addresses (multiaddresses as text), best first.
        addresses: Vec<String>,
    },
    /// An event that is of interest to an operator.
    Event(Event),
}

/// Event of a node that its operator or its driver must know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Client operations that are sent from now on will be answered.
    Ready,
    /// Client operations may no longer be answered.
    NotReady,
    /// Primaries are handed over: the driver seals the store and ends the process.
    Stopped,
    /// The node has left for good. The driver moves the store aside, remembers that the peer belongs to no ring any more, and ends the
    /// process.
    Left,
    /// The store failed ([`Input::StoreFailed`]), and the node with it; the text tells the operator how to proceed.
    Fatal(String),
    /// This node's incarnation ended because its group went on without it, as after a long sleep. The store is sound: the driver starts the
    /// node anew on it as a new incarnation, and names the `former` one ([`NodeConfig::former`](crate::NodeConfig::former)).
    Reincarnate {
        /// Reason.
        why: String,
        /// The incarnation that ended.
        former: Incarnation,
    },
    /// Other peers know a start of this node's process that its store does not know, and its journal had lost its end. The doubt that
    /// follows is durable already. The driver starts the node again on the same store, as the same incarnation, without sealing the store.
    StartAgain(String),
    /// This node's incarnation ended because its store lost data or cannot be read. The driver keeps the store aside, and starts the node
    /// anew with an empty store as a new incarnation.
    Damaged(String),
    /// This node's incarnation ended because its data was declared lost. The driver keeps the data where no peer serves it, and starts the
    /// node anew with an empty store as a new incarnation.
    Quarantine(String),
    /// Another process with this peer's identity runs and takes precedence; the text tells the operator how to proceed. The driver ends the
    /// process with an error, and does not start it anew.
    Twin(String),
    /// Processes of one peer contradict each other: the peer runs twice, or from a directory that is an older copy. The peer may be this
    /// one.
    Identity {
        /// The peer.
        peer: PeerKey,
        /// The observation, and its consequence.
        what: String,
    },
    /// This peer belongs to this ring from now on. The driver remembers the ring apart from the store, so that the peer never founds a
    /// second network (hazard 41).
    InRing(RingId),
    /// This node stopped serving a group, and only an operator can find out the cause: a line for the log.
    Alarm(String),
    /// Any other event: a line for the log.
    Note(String),
}
