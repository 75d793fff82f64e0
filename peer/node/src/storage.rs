//! What a group remembers, as entries and records of the store.
//!
//! | entry | value |
//! | --- | --- |
//! | `n` | this life: ring and incarnation |
//! | `s` | the group's state |
//! | `lp` | the log's promise, with its epoch |
//! | `la` slot | the log's accepted entry |
//! | `p` | promises to primaries |
//! | `ch` term, `cp` term | a committee: what stays, what moves |
//! | `w` term number record-key | an unsettled write |
//!
//! Numbers are big-endian, so entries sort as they should. A record's key is its point (16 bytes) and its name: records
//! lie in ring order.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

use bytes::Bytes;
use group::Stored;
use group::ballot::{Ballot, Number, Slot, Term, TermBallot};
use group::message::Write;
use group::number_set::NumberSet;
use group::outbox::{CommitteeHead, Durable};
use group::record::Record;
use group::state::{Entry, GroupState};
use overlay::{Epoch, Incarnation, IntervalMap, Key, Point, RingId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::api::Change;

/// What stands before a record's key in an unsettled write's: tag, term, number.
const UNSETTLED_PREFIX: usize = 1 + 8 + 8;

/// This life of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// The ring it belongs to.
    pub ring: RingId,
    /// Its incarnation.
    pub incarnation: Incarnation,
}

/// What is stored cannot be understood: it is damaged, or of a later version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a stored {0} cannot be read")]
pub struct StorageError(pub &'static str);

/// A record's key.
pub fn record_key(key: &Key) -> Bytes {
    let mut bytes = Vec::with_capacity(16 + key.name().len());
    bytes.extend_from_slice(&key.point().0.to_be_bytes());
    bytes.extend_from_slice(key.name());
    bytes.into()
}

/// The key of a record; `None` if these bytes are none.
pub fn key_of(record_key: &[u8]) -> Option<Key> {
    let (point, name) = record_key.split_at_checked(16)?;
    let key = Key::new(name).ok()?;
    (key.point() == Point(u128::from_be_bytes(point.try_into().ok()?))).then_some(key)
}

/// Where a scan begins, as a record's key.
pub fn scan_start(from: Bound<&Key>) -> Bytes {
    match from {
        Bound::Unbounded => Bytes::new(),
        Bound::Included(key) => record_key(key),
        Bound::Excluded(key) => {
            let mut behind = record_key(key).to_vec();
            behind.push(0);
            behind.into()
        }
    }
}

/// A record as bytes.
pub fn encode_record(record: &Record) -> Bytes {
    encode_about(record, record.bytes())
}

/// Bytes as a record.
pub fn decode_record(bytes: &[u8]) -> Result<Arc<Record>, StorageError> {
    decode(bytes, "record").map(Arc::new)
}

/// This life's entry.
pub fn life(life: &Life) -> Change {
    Change::PutMeta(Bytes::from_static(b"n"), encode(life))
}

/// The changes that make something remembered.
pub fn changes(durable: Durable, changes: &mut Vec<Change>) {
    let last = match durable {
        Durable::State(state) => Change::PutMeta(Bytes::from_static(b"s"), encode(&*state)),
        Durable::LogPromised(epoch, ballot) => Change::PutMeta(Bytes::from_static(b"lp"), encode(&(epoch, ballot))),
        Durable::LogAccepted(slot, ballot, entry) => Change::PutMeta(numbered(b"la", slot.0), encode(&(ballot, entry))),
        Durable::LogForget(Some(slot)) => Change::DropMeta(numbered(b"la", 0), numbered(b"la", slot.0 + 1)),
        Durable::LogForget(None) => Change::DropMeta(Bytes::from_static(b"la"), Bytes::from_static(b"lb")),
        Durable::Promises(map) => Change::PutMeta(Bytes::from_static(b"p"), encode(&map)),
        Durable::Committee(head) => Change::PutMeta(numbered(b"ch", head.ballot.term.0), encode(&head)),
        Durable::CommitteeProgress(ballot, received, chosen) => {
            Change::PutMeta(numbered(b"cp", ballot.term.0), encode(&(received, chosen)))
        }
        Durable::CommitteeForget(ballot) => {
            changes.push(drop_one(numbered(b"cp", ballot.term.0)));
            drop_one(numbered(b"ch", ballot.term.0))
        }
        Durable::Accepted(write) => Change::PutMeta(unsettled_key(&write), encode_record(&write.record)),
        Durable::Settle(term, first, last) => {
            let (from, to) = (unsettled_bound(term, first), unsettled_bound(term, last + 1));
            changes.push(Change::Promote { from: from.clone(), to: to.clone(), strip: UNSETTLED_PREFIX });
            Change::DropMeta(from, to)
        }
        Durable::Void(write) => drop_one(unsettled_key(&write)),
        Durable::Purge(key) => Change::DropRecord(record_key(&key)),
        Durable::Record(write) => Change::PutRecord(record_key(&write.key), encode_record(&write.record)),
    };
    changes.push(last);
}

/// What was stored of this life and its group; `None` where there is no group yet.
pub fn restore(meta: &BTreeMap<Bytes, Bytes>, sealed: bool) -> Result<Option<(Life, Stored)>, StorageError> {
    let (Some(life), Some(state)) = (meta.get(&b"n"[..]), meta.get(&b"s"[..])) else { return Ok(None) };
    let life: Life = decode(life, "identity")?;
    let state: GroupState = decode(state, "group state")?;
    let log_promised = match meta.get(&b"lp"[..]) {
        None => None,
        Some(bytes) => {
            let (epoch, ballot): (Epoch, Option<Ballot>) = decode(bytes, "promise")?;
            ballot.map(|ballot| (epoch, ballot))
        }
    };
    let mut log_accepted: BTreeMap<Slot, (Ballot, Entry)> = BTreeMap::new();
    for (key, value) in with_prefix(meta, b"la") {
        log_accepted.insert(Slot(number(key, 2)?), decode(value, "log entry")?);
    }
    let promises = match meta.get(&b"p"[..]) {
        None => None,
        Some(bytes) => Some(decode::<IntervalMap<Option<TermBallot>>>(bytes, "map of promises")?),
    };
    let mut committees = Vec::new();
    for (key, value) in with_prefix(meta, b"ch") {
        let head: CommitteeHead = decode(value, "committee")?;
        let (received, chosen) = match meta.get(&numbered(b"cp", number(key, 2)?)) {
            None => (NumberSet::default(), None),
            Some(bytes) => decode(bytes, "committee's progress")?,
        };
        committees.push((head, received, chosen));
    }
    let mut unsettled: BTreeMap<Term, Vec<Write>> = BTreeMap::new();
    for (key, value) in with_prefix(meta, b"w") {
        let record = decode_record(value)?;
        let name = key.get(UNSETTLED_PREFIX..).and_then(key_of).ok_or(StorageError("write"))?;
        let known = Number { term: Term(number(key, 1)?), n: number(key, 9)? };
        if record.number != known {
            return Err(StorageError("write"));
        }
        unsettled.entry(known.term).or_default().push(Write { key: name, record });
    }
    let stored = Stored { state, log_promised, log_accepted, promises, committees, unsettled, empty: false, sealed };
    Ok(Some((life, stored)))
}

fn encode<T: Serialize>(value: &T) -> Bytes {
    encode_about(value, 64)
}

/// `bytes`: about how long it will be, so that it need not be moved as it grows.
fn encode_about<T: Serialize>(value: &T, bytes: usize) -> Bytes {
    let encoded = postcard::to_extend(value, Vec::with_capacity(bytes));
    let mut encoded = encoded.expect("stored values have no maps of unknown length");
    encoded.shrink_to_fit();
    encoded.into()
}

fn decode<T: DeserializeOwned>(bytes: &[u8], what: &'static str) -> Result<T, StorageError> {
    postcard::from_bytes(bytes).map_err(|_| StorageError(what))
}

fn numbered(tag: &[u8], number: u64) -> Bytes {
    let mut bytes = Vec::with_capacity(tag.len() + 8);
    bytes.extend_from_slice(tag);
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.into()
}

fn unsettled_bound(term: Term, n: u64) -> Bytes {
    let mut bytes = Vec::with_capacity(UNSETTLED_PREFIX);
    bytes.push(b'w');
    bytes.extend_from_slice(&term.0.to_be_bytes());
    bytes.extend_from_slice(&n.to_be_bytes());
    bytes.into()
}

fn unsettled_key(write: &Write) -> Bytes {
    let mut bytes = Vec::with_capacity(UNSETTLED_PREFIX + 16 + write.key.name().len());
    bytes.push(b'w');
    bytes.extend_from_slice(&write.record.number.term.0.to_be_bytes());
    bytes.extend_from_slice(&write.record.number.n.to_be_bytes());
    bytes.extend_from_slice(&write.key.point().0.to_be_bytes());
    bytes.extend_from_slice(write.key.name());
    bytes.into()
}

fn drop_one(key: Bytes) -> Change {
    let mut behind = key.to_vec();
    behind.push(0);
    Change::DropMeta(key, behind.into())
}

fn with_prefix<'a>(
    meta: &'a BTreeMap<Bytes, Bytes>,
    tag: &'static [u8],
) -> impl Iterator<Item = (&'a Bytes, &'a Bytes)> {
    meta.range(Bytes::from_static(tag)..)
        .take_while(move |(key, _)| key.starts_with(tag))
        .filter(|(_, value)| !value.is_empty())
}

fn number(key: &[u8], at: usize) -> Result<u64, StorageError> {
    let bytes = key.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).ok_or(StorageError("entry's key"))?;
    Ok(u64::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use overlay::{KeyRange, NodeId, PeerKey};

    use super::*;

    fn ballot(term: u64) -> TermBallot {
        let node = NodeId { peer: PeerKey([7; 32]), incarnation: Incarnation(1 << 40) };
        TermBallot { epoch: Epoch(9), term: Term::new(Slot(term), 0), node }
    }

    /// What a batch adds to the journal, in bytes.
    fn cost(durable: Durable) -> usize {
        let mut made = Vec::new();
        changes(durable, &mut made);
        let bytes = |change: &Change| match change {
            Change::PutMeta(key, value) => key.len() + value.len(),
            _ => 0,
        };
        made.iter().map(bytes).sum()
    }

    /// A committee's progress is written whole with every batch. What members send each other keeps its order, so what
    /// was received has no gaps but where a message was lost, until catching up fills them.
    #[test]
    fn progress_costs_little() {
        let begin = 1_000_000;
        let mut received = NumberSet::default();
        received.insert_range(1, begin);
        let progress =
            |received: &NumberSet| cost(Durable::CommitteeProgress(ballot(5), received.clone(), Some(begin)));
        received.insert_range(begin + 1, begin + 256);
        assert_eq!(progress(&received), 18, "256 in flight, in order: no more than at rest");
        // Ten messages of eight writes each were lost on the way.
        for lost in 0..10 {
            received.insert_range(begin + 265 + 16 * lost, begin + 272 + 16 * lost);
        }
        assert_eq!(progress(&received), 18 + 10 * 6);
        let mut shuffled = NumberSet::default();
        shuffled.insert_range(1, begin);
        for n in 0..128 {
            shuffled.insert(begin + 2 + 2 * n);
        }
        assert_eq!(progress(&shuffled), 19 + 128 * 6, "256 in flight, and every second one is lost");
    }

    /// Promises are written whole, but only when one is made: with a takeover, not with a batch.
    #[test]
    fn promises_cost_little() {
        let mut promises = IntervalMap::new(None);
        for part in 0..12_u32 {
            let cut = |part| Point((u128::MAX / 12) * u128::from(part));
            promises.set(KeyRange::new(cut(part), cut((part + 1) % 12)), Some(ballot(u64::from(part))));
        }
        let bytes = cost(Durable::Promises(promises));
        assert!(bytes < 12 * 80, "{bytes} bytes for twelve primaries");
    }
}
