//! A key's state: value or tombstone, clock, and the operations that made it what it is (fRSM §3.3.1).

use alloc::vec::Vec;

use bytes::Bytes;
use overlay::NodeId;
use serde::{Deserialize, Serialize};

use crate::ballot::Number;
use crate::op::{Answer, Kind, Version};
use crate::time::WallMillis;

/// The longest id a client may give an operation (`SCATTER.ONCE`), in bytes.
pub const CLIENT_ID_BYTES_MAX: usize = 128;
/// The most live operation ids a record holds; a full one refuses new operations rather than forget one.
pub const LIVE_IDS_MAX: usize = 1024;

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
}

impl Record {
    /// What it takes in memory, roughly, in bytes: with what allocators add.
    pub fn bytes(&self) -> usize {
        144 + self.value.as_ref().map_or(0, Bytes::len)
            + self.done.iter().map(|done| 128 + done.answer.bytes()).sum::<usize>()
    }

    /// The answer to an operation that this record remembers.
    pub fn answer_of(&self, id: &OpId) -> Option<&Answer> {
        self.done.iter().find(|done| done.id == *id).map(|done| &done.answer)
    }
}
