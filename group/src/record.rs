//! A key's state: value or tombstone, clock, and the operations that made it what it is (fRSM §3.3.1).

use alloc::vec::Vec;

use bytes::Bytes;
use overlay::{Key, NodeId};
use serde::{Deserialize, Serialize};

use crate::ballot::Number;
use crate::op::{Answer, Kind, Version};
use crate::time::WallMillis;

/// The longest id a client may give an operation (`SCATTER.ONCE`), in bytes.
pub const CLIENT_ID_BYTES_MAX: usize = 128;
/// The most live operation ids a record holds; an operation waits until ids have moved to completion records, rather than one be
/// forgotten.
pub const LIVE_IDS_MAX: usize = 1024;
/// The most bytes of a record that its ids and answers may take, as [`Record::bytes`] counts them.
const ANSWERS_BYTES_MAX: usize = 1 << 18;
/// More ids than this, or more bytes than a quarter of the most, move to completion records.
const STAY_IDS_MAX: usize = 256;
/// Of clients' ids more than this move, or those of larger answers: they stay alive until their horizon has passed, and every write
/// carries what stays.
const STAY_CLIENT_IDS_MAX: usize = 2;
/// The largest answer that is kept for a peer's repetition of a client's command, in bytes; see [`Answer::NotKept`].
pub const KEPT_ANSWER_BYTES_MAX: usize = 1 << 10;

/// What tells one client operation from all others, through all its retries.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum OpId {
    /// Given by the peer that was asked.
    Origin {
        /// That peer, in that life.
        node: NodeId,
        /// Which run of its process: a life may have several, and each counts from the start.
        run: u64,
        /// Its count of operations.
        sequence: u64,
    },
    /// Given by the client, at most [`CLIENT_ID_BYTES_MAX`] bytes.
    Client(Bytes),
}

impl OpId {
    /// The key of the record that remembers an operation of this id on `key`, beside it ([`Completions`]).
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

/// An operation that took effect, or found that it had nothing to do, and what it was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoneOp {
    /// Which.
    pub id: OpId,
    /// The horizon its origin knew when it first sent it.
    pub horizon: u64,
    /// Its first and only answer.
    pub answer: Answer,
}

impl DoneOp {
    /// Does this record remember this operation, for as long as it must be remembered?
    pub fn is_in(&self, record: &Record) -> bool {
        record.done.iter().any(|known| known.id == self.id && known.horizon >= self.horizon)
    }
}

/// Which ids of a key may have moved to completion records: tombstones at companion keys, each with one id and its answer.
///
/// An id leaves a key's record only after its completion record was chosen. So a primary that finds an id neither in the record nor
/// beside it knows that the operation was not executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completions {
    /// Highest horizon of a client's id that has moved; `None`: no id with a live horizon has.
    pub client: Option<u64>,
    /// The same for ids of peers.
    pub origin: Option<u64>,
}

impl Completions {
    /// May an id of this kind with this horizon, or a later one, have moved?
    pub fn may_have(&self, id: &OpId, horizon: u64) -> bool {
        let last = match id {
            OpId::Client(_) => self.client,
            OpId::Origin { .. } => self.origin,
        };
        last.is_some_and(|last| last >= horizon)
    }

    /// This operation's id moves.
    pub fn note(&mut self, done: &DoneOp) {
        let last = match done.id {
            OpId::Client(_) => &mut self.client,
            OpId::Origin { .. } => &mut self.origin,
        };
        *last = (*last).max(Some(done.horizon));
    }

    /// Ids below this horizon are forgotten.
    pub fn forget_below(&mut self, horizon: u64) {
        for last in [&mut self.client, &mut self.origin] {
            *last = last.filter(|last| *last >= horizon);
        }
    }

    /// Are all ids that have moved below this horizon?
    pub fn are_below(&self, horizon: u64) -> bool {
        [self.client, self.origin].into_iter().flatten().all(|last| last < horizon)
    }
}

/// The state of one key after one write. Never changed once proposed: a re-proposal is a new record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Which write made it. Of two chosen records of a key the one with the larger number is the newer.
    pub number: Number,
    /// Generation and timestamp: the place of this state in the key's history.
    pub version: Version,
    /// The value; `None` is a tombstone.
    pub value: Option<Bytes>,
    /// Whose value it is.
    pub kind: Kind,
    /// When it expires, in group time.
    pub deadline: Option<WallMillis>,
    /// Operations with a horizon below this may have been forgotten here, and are refused.
    pub horizon: u64,
    /// Operations that may still be repeated.
    pub done: Vec<DoneOp>,
    /// Which of them have records of their own.
    pub completions: Completions,
}

impl Record {
    /// What it takes in memory, roughly, in bytes: with what allocators add.
    pub fn bytes(&self) -> usize {
        144 + self.value.as_ref().map_or(0, Bytes::len) + self.answers_bytes()
    }

    fn answers_bytes(&self) -> usize {
        self.done.iter().map(|done| 128 + done.answer.bytes()).sum()
    }

    /// Has it no room for one more id?
    pub fn is_full(&self) -> bool {
        self.done.len() >= LIVE_IDS_MAX || self.answers_bytes() >= ANSWERS_BYTES_MAX
    }

    /// The ids that are to move to completion records.
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

    /// The answer to an operation that this record remembers.
    pub fn answer_of(&self, id: &OpId) -> Option<&Answer> {
        self.done.iter().find(|done| done.id == *id).map(|done| &done.answer)
    }
}
