//! State of a key: value or tombstone, clock, and the operations that produced it (fRSM §3.3.1).

use alloc::vec::Vec;

use bytes::Bytes;
use overlay::{Key, NodeId};
use serde::{Deserialize, Serialize};

use crate::ballot::Number;
use crate::op::{Answer, Kind, Version};
use overlay::time::WallMillis;

/// Upper limit of an id that a client gives an operation (`SCATTER.ONCE`), in bytes.
pub const CLIENT_ID_BYTES_MAX: usize = 128;
/// Upper limit of live operation ids in a record. At the limit an operation waits until ids have moved to completion records: no live id is
/// forgotten.
pub const LIVE_IDS_MAX: usize = 1024;
/// Upper limit of a record's ids and answers, in bytes, as [`Record::bytes`] counts them.
const ANSWERS_BYTES_MAX: usize = 1 << 18;
/// Above this number of ids, or a quarter of [`ANSWERS_BYTES_MAX`], all ids move to completion records.
const STAY_IDS_MAX: usize = 256;
/// Above this number of clients' ids, or with larger answers than [`KEPT_ANSWER_BYTES_MAX`] in all, clients' ids move. They stay alive
/// until their horizon has passed, and every write carries the ids that stay.
const STAY_CLIENT_IDS_MAX: usize = 2;
/// Upper limit of an answer that is kept for a peer's repetition of a client's command, in bytes; see [`Answer::NotKept`].
pub const KEPT_ANSWER_BYTES_MAX: usize = 1 << 10;

/// Id of a client operation, the same through all its retries and different from every other one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum OpId {
    /// Id from the peer that the client asked.
    Origin {
        /// Node of that peer.
        node: NodeId,
        /// Run of its process: an incarnation may have several runs, and each counts from the start.
        run: u64,
        /// Count of the run's operations.
        sequence: u64,
    },
    /// Id from the client, at most [`CLIENT_ID_BYTES_MAX`] bytes.
    Client(Bytes),
}

impl OpId {
    /// Returns the key of the completion record for an operation of this id on `key` ([`Completions`]).
    pub fn completion_of(&self, key: &Key) -> Key {
        match self {
            OpId::Client(id) => key.companion(&[b"c", &id[..]].concat()),
            OpId::Origin { node, run, sequence } => {
                let numbers = [node.incarnation.0, *run, *sequence].map(u64::to_be_bytes);
                key.companion(&[b"o", &node.peer.0[..], numbers.as_flattened()].concat())
            }
        }
    }
}

/// Operation that took effect or found nothing to change, with its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoneOp {
    /// Id of the operation.
    pub id: OpId,
    /// Horizon that its origin knew when it first sent the operation.
    pub horizon: u64,
    /// The first and only answer to the operation.
    pub answer: Answer,
}

impl DoneOp {
    /// Returns whether this record remembers this operation for as long as necessary.
    pub fn is_in(&self, record: &Record) -> bool {
        record.done.iter().any(|known| known.id == self.id && known.horizon >= self.horizon)
    }
}

/// Ids of a key that may have moved to completion records: tombstones at companion keys, each with one id and its answer.
///
/// An id leaves a key's record only after its completion record was chosen. So a primary that finds an id neither in the record nor beside
/// it knows that the operation was not executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completions {
    /// Highest horizon of a client's id that has moved; `None`: no id with a live horizon has.
    pub client: Option<u64>,
    /// Highest horizon of a peer's id that has moved; `None` likewise.
    pub origin: Option<u64>,
}

impl Completions {
    /// Returns whether an id of this kind with this horizon, or a later one, may have moved.
    pub fn may_have(&self, id: &OpId, horizon: u64) -> bool {
        let last = match id {
            OpId::Client(_) => self.client,
            OpId::Origin { .. } => self.origin,
        };
        last.is_some_and(|last| last >= horizon)
    }

    /// Notes that the id of this operation moves.
    pub fn note(&mut self, done: &DoneOp) {
        let last = match done.id {
            OpId::Client(_) => &mut self.client,
            OpId::Origin { .. } => &mut self.origin,
        };
        *last = (*last).max(Some(done.horizon));
    }

    /// Forgets ids below this horizon.
    pub fn forget_below(&mut self, horizon: u64) {
        for last in [&mut self.client, &mut self.origin] {
            *last = last.filter(|last| *last >= horizon);
        }
    }

    /// Returns whether all ids that have moved are below this horizon.
    pub fn are_below(&self, horizon: u64) -> bool {
        [self.client, self.origin].into_iter().flatten().all(|last| last < horizon)
    }
}

/// State of one key after one write. Never changed once proposed: a re-proposal is a new record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Number of the write. Of two chosen records of a key the one with the larger number is newer.
    pub number: Number,
    /// Generation and timestamp: the place of this state in the key's history.
    pub version: Version,
    /// The value; `None` is a tombstone.
    pub value: Option<Bytes>,
    /// Kind of service that made the value.
    pub kind: Kind,
    /// Time of expiry, in group time; `None`: never.
    pub deadline: Option<WallMillis>,
    /// Operations with a horizon below this one may have been forgotten here, and are refused.
    pub horizon: u64,
    /// Operations that clients or peers may still repeat.
    pub done: Vec<DoneOp>,
    /// Ids that may have moved to completion records.
    pub completions: Completions,
}

impl Record {
    /// Returns its approximate size in memory, in bytes, with the overhead of allocators.
    pub fn bytes(&self) -> usize {
        144 + self.value.as_ref().map_or(0, Bytes::len) + self.answers_bytes()
    }

    fn answers_bytes(&self) -> usize {
        self.done.iter().map(|done| 128 + done.answer.bytes()).sum()
    }

    /// Returns whether it has no room for one more id.
    pub fn is_full(&self) -> bool {
        self.done.len() >= LIVE_IDS_MAX || self.answers_bytes() >= ANSWERS_BYTES_MAX
    }

    /// Returns the operations with ids that are to move to completion records.
    pub fn surplus(&self) -> impl Iterator<Item = &DoneOp> {
        let is_client = |done: &&DoneOp| matches!(done.id, OpId::Client(_));
        let all = self.done.len() > STAY_IDS_MAX || self.answers_bytes() > ANSWERS_BYTES_MAX / 4;
        let (mut clients, mut bytes) = (0, 0);
        for done in self.done.iter().filter(is_client) {
            (clients, bytes) = (clients + 1, bytes + done.answer.bytes());
        }
        let clients = all || clients > STAY_CLIENT_IDS_MAX || bytes > KEPT_ANSWER_BYTES_MAX;
        self.done.iter().filter(move |done| all || clients && is_client(done))
    }

    /// Returns the answer to an operation that this record remembers.
    pub fn answer_of(&self, id: &OpId) -> Option<&Answer> {
        self.done.iter().find(|done| done.id == *id).map(|done| &done.answer)
    }
}
