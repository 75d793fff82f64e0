//! What goes into a [`Node`](crate::Node) and what comes out.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use group::op::{Answer, Limit, Op, OpError, ReadMode};
use group::time::Time;
use header::ReplyTo;
use overlay::{GroupId, Incarnation, Key, PeerKey, Point, RingId};
use serde::{Deserialize, Serialize};

use crate::survey::Survey;
use crate::wishes::{Granted, Wish};

/// A client connection of this peer; ids are never used again while the process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// A client operation of this peer; chosen by the driver, never used again while the process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// One operation as a client of this peer asks it.
#[derive(Clone, Debug)]
pub struct Request {
    /// Echoed in the answer.
    pub id: RequestId,
    /// Operations of one connection on one key take effect in the order in which they are handed in.
    pub connection: ConnectionId,
    /// The key.
    pub key: Key,
    /// What to do with it.
    pub op: Op,
    /// How reads are served.
    pub mode: ReadMode,
    /// How long the client waits; then it is answered with an error. At most 3 s.
    pub patience: Duration,
    /// The client's own id (`SCATTER.ONCE`): repeated with the same id, the operation takes effect once.
    pub once: Option<Bytes>,
}

/// Which stream a frame travels on. Classes do not wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Class {
    /// Heartbeats, elections, the group's log. Small, first.
    Control,
    /// Client operations and their replication.
    Data,
    /// Bulk state, throttled.
    Bulk,
}

/// What the outside world tells a node.
#[derive(Clone, Debug)]
pub enum Input {
    /// A frame arrived. `from` is proven by the transport; what it says is a claim.
    Frame {
        /// The peer at the other end.
        from: PeerKey,
        /// What it said; decoded here, counted and dropped where it is nonsense.
        frame: Bytes,
    },
    /// A connection to this peer is up (sent once, however many there are).
    PeerUp(PeerKey),
    /// The last connection to this peer is gone. A hint, never a proof.
    PeerDown(PeerKey),
    /// The one way in, `routecast(key, message)` (RECODE §III): delivers an operation to the service at the key's group, wherever
    /// that is, in one total order for each key, at most once, also while groups become others. Answered by exactly one
    /// [`Output::Reply`] with the same id.
    Routecast(Request),
    /// A datagram came to this peer's address for packets of switches, from there. Nothing in it is believed.
    Packet {
        /// Its source.
        from: ReplyTo,
        /// All of it.
        bytes: Bytes,
    },
    /// The batch of this token, and all before it, are durable.
    Persisted(u64),
    /// The store failed: nothing that was not yet [`Input::Persisted`] can be relied on, and nothing more is written.
    StoreFailed(String),
    /// What limits the room that the store has left, once that is below its low mark; `None` once it is above it again.
    /// While room is low, other members become primaries in this node's place, and where none has room, writes are refused.
    DiskLow(Option<Limit>),
    /// The store has much left to write behind what is durable, or no longer: what is copied from others waits for it.
    StoreBehind(bool),
    /// How busy this peer was in a window of time that is over: for so long the scarcest of what it works with was in use, as the loop that
    /// drives the node, or the bandwidth that its operator allows. From that and from the operations that it served then the node estimates
    /// how many operations a second it can execute. Windows of ten seconds or more tell most.
    Busy {
        /// The length of the window.
        window: Duration,
        /// At most `window`.
        busy: Duration,
    },
    /// Answers [`Output::Load`]: the stored record, or `None` where there is none.
    Loaded {
        /// As asked.
        record_key: Bytes,
        /// As last persisted by this node.
        record: Option<Bytes>,
    },
    /// Answers [`Output::Scan`].
    Scanned {
        /// As asked.
        token: u64,
        /// Records in order of their keys, all that there are from the first key asked up to the last given here.
        records: Vec<(Bytes, Bytes)>,
        /// There are no more behind the last one.
        done: bool,
    },
    /// [`Output::WakeAt`] has come. Early or repeated ticks are harmless.
    Tick,
    /// Addresses under which others can reach this peer, as the transport now has them (multiaddresses as text).
    Addresses(Vec<String>),
    /// Stop politely: hand primaries over, then [`Event::Stopped`].
    Stop,
    /// Somebody wants a group to become another; answered by exactly one [`Output::Granted`], 10 s after it
    /// was begun at the latest; members may have to copy much before.
    Wish {
        /// Chosen by the driver, never used again while the process lives.
        number: u64,
        /// Which group; this peer must have a part in it.
        group: GroupId,
        /// What it should do.
        wish: Wish,
    },
    /// Somebody wants to know who owns the ring; answered by exactly one [`Output::Surveyed`]. Each group on the way is
    /// waited for 2 s at most.
    Survey {
        /// Chosen by the driver, never used again while the process lives.
        number: u64,
        /// Where to begin; else at the start of this node's group.
        from: Option<Point>,
        /// Groups wanted; fewer where the ring has fewer.
        count: usize,
    },
    /// Leave the group for good, then [`Event::Left`]. It goes on serving until others have everything that it has.
    Leave {
        /// Also where fewer than three members remain.
        force: bool,
    },
}

/// One change to the store. Changes of a batch are atomic; batches are durable in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// Sets a small entry: protocol state. All of them are kept in memory and given back at start.
    PutMeta(Bytes, Bytes),
    /// Drops the small entries from the first key up to, but without, the second.
    DropMeta(Bytes, Bytes),
    /// Moves values from small entries into records, without writing them again: for each small entry with a key
    /// in `[from, to)` and a value that is not empty, in ascending order, the record whose key is the entry's key without
    /// its first `strip` bytes takes the value, and the entry stays with an empty value. This is how an accepted write
    /// becomes a chosen one: the journal holds its value once, and a later entry of the same record wins.
    Promote {
        /// The first entry.
        from: Bytes,
        /// Behind the last entry.
        to: Bytes,
        /// How many bytes stand before the record's key in the entry's; entries with shorter keys are left alone.
        strip: usize,
    },
    /// Sets a record: a key's state. There may be more of them than memory.
    PutRecord(Bytes, Bytes),
    /// Drops a record.
    DropRecord(Bytes),
}

/// What a node wants done, in this order.
#[derive(Clone, Debug)]
#[must_use]
pub enum Output {
    /// May be lost, repeated or reordered on the way: the protocol allows for it.
    Send {
        /// To whom. The driver knows or finds the address; a peer that cannot be reached is silence.
        to: PeerKey,
        /// On which stream.
        class: Class,
        /// What to say.
        frame: Bytes,
    },
    /// Send this datagram, from this peer's address for packets of switches. May be lost, as any.
    Packet {
        /// Where to.
        to: ReplyTo,
        /// All of it.
        bytes: Bytes,
    },
    /// Make these changes durable, then say [`Input::Persisted`]. Tokens rise.
    Persist {
        /// Named by [`Input::Persisted`].
        token: u64,
        /// All or nothing.
        changes: Vec<Change>,
    },
    /// Look a record up, as of all batches handed out before; answered by [`Input::Loaded`], each time it is asked for.
    Load {
        /// Which.
        record_key: Bytes,
        /// An operation waits for it: before those that are not, and before pages.
        urgent: bool,
    },
    /// List records, as of all batches handed out before; answered by [`Input::Scanned`].
    Scan {
        /// Named by [`Input::Scanned`].
        token: u64,
        /// The first key of interest.
        from: Bytes,
        /// Stop after about so many bytes (at least one record).
        bytes_max: usize,
    },
    /// The answer to a client.
    Reply {
        /// The request it answers.
        id: RequestId,
        /// What came of it.
        result: Result<Answer, OpError>,
    },
    /// What came of [`Input::Wish`].
    Granted {
        /// As asked.
        number: u64,
        /// What came of it.
        granted: Granted,
    },
    /// The answer to [`Input::Survey`].
    Surveyed {
        /// As asked.
        number: u64,
        /// Who owns what.
        survey: Survey,
    },
    /// Call [`Input::Tick`] then; replaces the time said before.
    WakeAt(Time),
    /// These addresses belong to this peer: connect where not connected.
    Dial {
        /// Whom.
        peer: PeerKey,
        /// Where it was last known (multiaddresses as text), best first.
        addresses: Vec<String>,
    },
    /// Something a person may want to know.
    Event(Event),
}

/// Something worth telling.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A client operation sent now will be answered.
    Ready,
    /// No longer so.
    NotReady,
    /// Primaries are handed over: the driver seals the store and ends the process.
    Stopped,
    /// The node has left for good: the driver moves the store aside, remembers that the peer belongs to no ring any more,
    /// and ends the process.
    Left,
    /// The store failed ([`Input::StoreFailed`]), and the node with it; the text says what to do.
    Fatal(String),
    /// This node's incarnation ended because its group went on without it, as after a long sleep. Nothing is wrong with the
    /// store: the driver starts the node anew on it as a new incarnation, and names the `former` one
    /// ([`NodeConfig::former`](crate::NodeConfig::former)).
    Reincarnate {
        /// Why.
        why: String,
        /// The incarnation that is over.
        former: Incarnation,
    },
    /// Others know a start of this node's process that its store does not, and its journal had lost its end. What it must doubt from
    /// now on is durable: the driver starts the node again on the same store, as the same incarnation, without sealing the store.
    StartAgain(String),
    /// This node's incarnation ended because its store lost something or cannot be read: the driver keeps the store aside, and
    /// starts the node anew with an empty one as a new incarnation.
    Damaged(String),
    /// This node's incarnation ended, for what it holds was declared lost: the driver keeps that where nobody serves it, and
    /// starts the node anew with an empty store as a new incarnation.
    Quarantine(String),
    /// Another process with this peer's identity runs and has the say; the text says what to do. The driver ends the process
    /// with an error, and does not start it anew.
    Twin(String),
    /// A peer's processes contradict each other: it runs twice, or from a directory that is an older copy. May be this one.
    Identity {
        /// Which peer.
        peer: PeerKey,
        /// What was seen, and what comes of it.
        what: String,
    },
    /// This peer belongs to this ring from now on: to be remembered apart from the store, so that it never founds a
    /// second network (hazard 41).
    InRing(RingId),
    /// This node stopped serving a group, and only a person can find out why: a line for the log.
    Alarm(String),
    /// Anything else: a line for the log.
    Note(String),
}
