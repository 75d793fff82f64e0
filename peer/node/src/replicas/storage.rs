//! State of a node and its groups, as entries and records of the store.
//!
//! | entry | value |
//! | --- | --- |
//! | namespace `s` | a group's state |
//! | namespace `lp` | its log's promise, with its epoch |
//! | namespace `la` slot | its log's accepted entry |
//! | namespace `p` | promises to primaries |
//! | namespace `d` | the doubt about lost entries of this table ([`Doubt`]) |
//! | namespace `ch` term, namespace `cp` term | a committee: the constant part, the changing part |
//! | namespace `w` term number record-key | an unsettled write |
//! | `~n` | this incarnation, with its ring |
//! | `~b` | the generations in which records lie ([`KeyspaceGenerations`]) |
//! | `~o` | the rest of groups here that are over ([`Over`]) |
//! | `~f` | last states of groups that other nodes may need |
//! | `~c` | the starts of this incarnation ([`Lineage`]) |
//! | `~s` peer incarnation | the highest known start of another node ([`Lineage`]) |
//!
//! A namespace is a byte. Each group that a node is in has a namespace of its own, and an empty namespace is used again. Numbers are
//! big-endian, so the order of entries is the order of their numbers. A record's key is its generation (a byte), its point (16 bytes) and
//! its name: the records of a generation lie in ring order. Where several lanes of a peer share a store, all keys of a lane begin with
//! its number ([`Space`]).

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

use bytes::Bytes;
use group::ballot::{Ballot, LogSlot, Number, Term, TermBallot};
use group::control::state::{Entry, GroupState};
use group::message::Write;
use group::number_set::NumberSet;
use group::outbox::{CommitteeHead, Durable};
use group::record::Record;
use group::{Doubt, Stored};
use overlay::{Epoch, GroupId, Incarnation, IntervalMap, Key, KeyRange, NodeId, PeerKey, Point, RingId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::api::Change;
use crate::replicas::keyspace::KeyspaceGenerations;
use crate::starts::lineage::Lineage;

/// Version of all stored entries and records: of their keys, and of every type in their values.
///
/// A store of another version is refused by name before any change to it. Raise this number with every change of those bytes; the
/// golden files find an unintended change. Version 1 was never written down: stores before version 2 have no version.
pub const STORED_VERSION: u32 = 6;

/// Length of the prefix before the record's key in the key of an unsettled write, without the space: tag, term, number. In bytes.
const UNSETTLED_PREFIX: usize = 1 + 8 + 8;
/// First byte of the node's own entries: behind all namespaces.
const OWN: u8 = b'~';
/// Upper limit of the groups in which a node has a part at one time: its own, and its successors that still need the node.
pub const NAMESPACES: u8 = 32;

/// A node's part of a store: all of it, or the keys that begin with the number of the node's lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space(pub Option<u8>);

/// A group's part of a space, for small entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupNamespace {
    space: Space,
    number: u8,
}

/// This incarnation of the peer, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// The ring that the peer belongs to.
    pub ring: RingId,
    /// The incarnation.
    pub incarnation: Incarnation,
    /// Highest epoch of the groups that the node had a part in and has let go of.
    pub voted: Epoch,
}

/// A node's part in a group that is over: the rest of the group's range, for which no later owner is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Over {
    /// Namespace of its entries.
    pub namespace: u8,
    /// The group.
    pub group: GroupId,
    /// Last epoch of the group that this node knew.
    pub epoch: Epoch,
    /// Rest of the range.
    pub place: Vec<KeyRange>,
}

/// A stored value that cannot be read though it is of [`STORED_VERSION`]: the store is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a stored {0} cannot be read")]
pub struct StorageError(pub &'static str);

impl Space {
    /// Returns the length of the prefix of all keys, in bytes.
    fn len(self) -> usize {
        usize::from(self.0.is_some())
    }

    /// Returns the prefix of a key, with capacity for exactly this number of bytes behind it: a full vector need not be moved to
    /// be shared.
    fn key(self, bytes: usize) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.len() + bytes);
        key.extend(self.0);
        key
    }

    /// Returns a key without its prefix; `None` if the key lies in another space.
    fn within(self, key: &[u8]) -> Option<&[u8]> {
        match self.0 {
            None => Some(key),
            Some(lane) => key.split_first().filter(|(first, _)| **first == lane).map(|(_, rest)| rest),
        }
    }

    /// Returns the namespace of one of its groups.
    pub fn namespace(self, number: u8) -> GroupNamespace {
        GroupNamespace { space: self, number }
    }

    /// Returns the key of a record.
    pub fn record_key(self, generation: u8, key: &Key) -> Bytes {
        let mut bytes = self.key(1 + 16 + key.encoded().len());
        put_key(&mut bytes, generation, key);
        bytes.into()
    }

    /// Returns the generation and the key of a record; `None` if these bytes are no record's key, or lie in another space.
    pub fn key_of(self, record_key: &[u8]) -> Option<(u8, Key)> {
        key_at(self.within(record_key)?)
    }

    /// Returns the first key of a scan of a generation, as a record's key.
    pub fn scan_start(self, generation: u8, from: Bound<&Key>) -> Bytes {
        match from {
            Bound::Unbounded => {
                let mut key = self.key(1);
                key.push(generation);
                key.into()
            }
            Bound::Included(key) => self.record_key(generation, key),
            Bound::Excluded(key) => {
                let mut behind = self.record_key(generation, key).to_vec();
                behind.push(0);
                behind.into()
            }
        }
    }

    fn own(self, tag: u8) -> Bytes {
        let mut key = self.key(2);
        key.extend_from_slice(&[OWN, tag]);
        key.into()
    }

    /// Returns the change that stores this incarnation.
    pub fn life(self, life: &Life) -> Change {
        Change::PutMeta(self.own(b'n'), encode(life))
    }

    /// Returns the change that stores the generations of records.
    pub fn keyspace(self, keyspace: &KeyspaceGenerations) -> Change {
        Change::PutMeta(self.own(b'b'), encode(keyspace))
    }

    /// Returns the change that stores the groups that are over.
    pub fn over(self, all: &[Over]) -> Change {
        Change::PutMeta(self.own(b'o'), encode(&all))
    }

    /// Returns the stored groups that are over.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn restore_over(self, meta: &BTreeMap<Bytes, Bytes>) -> Result<Vec<Over>, StorageError> {
        meta.get(&self.own(b'o')).map_or(Ok(Vec::new()), |over| decode(over, "list of what is over"))
    }

    /// Returns the change that stores last states that other nodes may need.
    pub fn finals(self, finals: &[GroupState]) -> Change {
        Change::PutMeta(self.own(b'f'), encode(&finals))
    }

    /// Returns the stored last states.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn restore_finals(self, meta: &BTreeMap<Bytes, Bytes>) -> Result<Vec<GroupState>, StorageError> {
        meta.get(&self.own(b'f')).map_or(Ok(Vec::new()), |finals| decode(finals, "list of last states"))
    }

    /// Returns the change that stores the starts of this incarnation.
    pub fn lineage(self, lineage: &Lineage) -> Change {
        Change::PutMeta(self.own(b'c'), encode(lineage))
    }

    /// Returns the stored starts of this incarnation; an empty lineage if none is stored.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn restore_lineage(self, meta: &BTreeMap<Bytes, Bytes>) -> Result<Lineage, StorageError> {
        meta.get(&self.own(b'c')).map_or(Ok(Lineage::default()), |lineage| decode(lineage, "lineage of starts"))
    }

    fn start_key(self, node: NodeId) -> Bytes {
        let mut key = self.key(2 + 32 + 8);
        key.extend_from_slice(&[OWN, b's']);
        key.extend_from_slice(&node.peer.0);
        key.extend_from_slice(&node.incarnation.0.to_be_bytes());
        key.into()
    }

    /// Returns the change that stores another node's start, with the starts before it as far as they are known.
    pub fn start_of(self, node: NodeId, lineage: &Lineage) -> Change {
        Change::PutMeta(self.start_key(node), encode(lineage))
    }

    /// Returns the change that drops another node's start.
    pub fn forget_start(self, node: NodeId) -> Change {
        drop_one(self.start_key(node))
    }

    /// Returns the stored starts of all other nodes.
    ///
    /// # Errors
    /// A start cannot be read.
    pub fn restore_starts(self, meta: &BTreeMap<Bytes, Bytes>) -> Result<Vec<(NodeId, Lineage)>, StorageError> {
        let first = self.own(b's');
        let stored = meta.range(first.clone()..).map_while(|(key, value)| Some((key.strip_prefix(&first[..])?, value)));
        let read = |(key, value): (&[u8], &Bytes)| {
            let (peer, incarnation) = key.split_first_chunk::<32>().ok_or(StorageError("start"))?;
            let incarnation = incarnation.try_into().map_err(|_| StorageError("start"))?;
            let incarnation = Incarnation(u64::from_be_bytes(incarnation));
            Ok((NodeId { peer: PeerKey(*peer), incarnation }, decode(value, "start")?))
        };
        stored.filter(|(_, value)| !value.is_empty()).map(read).collect()
    }

    /// Returns the stored incarnation, and the generations of its records; `None` if none is stored.
    ///
    /// # Errors
    /// One of the two cannot be read.
    pub fn restore_life(
        self,
        meta: &BTreeMap<Bytes, Bytes>,
    ) -> Result<Option<(Life, KeyspaceGenerations)>, StorageError> {
        let Some(life) = meta.get(&self.own(b'n')) else { return Ok(None) };
        let keyspace = meta.get(&self.own(b'b')).map(|keyspace| decode(keyspace, "map of the keyspace")).transpose()?;
        Ok(Some((decode(life, "identity")?, keyspace.unwrap_or_default())))
    }
}

impl GroupNamespace {
    fn key(self, bytes: usize) -> Vec<u8> {
        let mut key = self.space.key(1 + bytes);
        key.push(self.number);
        key
    }

    /// Returns the change that stores a doubt.
    pub fn doubt(self, doubt: &Doubt) -> Change {
        Change::PutMeta(self.tagged(b"d"), encode(doubt))
    }

    fn tagged(self, tag: &[u8]) -> Bytes {
        let mut key = self.key(tag.len());
        key.extend_from_slice(tag);
        key.into()
    }

    fn numbered(self, tag: &[u8], number: u64) -> Bytes {
        let mut key = self.key(tag.len() + 8);
        key.extend_from_slice(tag);
        key.extend_from_slice(&number.to_be_bytes());
        key.into()
    }

    /// Returns the change that drops all entries of the namespace.
    pub fn clear(self) -> Change {
        let mut behind = self.space.key(1);
        behind.push(self.number + 1);
        Change::DropMeta(self.tagged(b""), behind.into())
    }

    /// Appends the changes that make `durable` stored, with records in these generations.
    pub fn changes(self, keyspace: &KeyspaceGenerations, durable: Durable, changes: &mut Vec<Change>) {
        let last = match durable {
            Durable::State(state) => Change::PutMeta(self.tagged(b"s"), encode(&*state)),
            Durable::LogPromised(epoch, ballot) => Change::PutMeta(self.tagged(b"lp"), encode(&(epoch, ballot))),
            Durable::LogAccepted(slot, ballot, entry) => {
                Change::PutMeta(self.numbered(b"la", slot.0), encode(&(ballot, entry)))
            }
            Durable::LogForget(Some(slot)) => {
                Change::DropMeta(self.numbered(b"la", 0), self.numbered(b"la", slot.0 + 1))
            }
            Durable::LogForget(None) => Change::DropMeta(self.tagged(b"la"), self.tagged(b"lb")),
            Durable::Promises(map) => Change::PutMeta(self.tagged(b"p"), encode(&map)),
            Durable::Committee(head) => Change::PutMeta(self.numbered(b"ch", head.ballot.term.0), encode(&head)),
            Durable::CommitteeProgress(ballot, received, chosen) => {
                Change::PutMeta(self.numbered(b"cp", ballot.term.0), encode(&(received, chosen)))
            }
            Durable::CommitteeForget(ballot) => {
                changes.push(drop_one(self.numbered(b"cp", ballot.term.0)));
                drop_one(self.numbered(b"ch", ballot.term.0))
            }
            Durable::Accepted(write) => {
                Change::PutMeta(self.unsettled_key(keyspace, &write), encode_record(&write.record))
            }
            Durable::Settle(term, first, last) => {
                let (from, to) = (self.unsettled_bound(term, first), self.unsettled_bound(term, last + 1));
                let strip = self.space.len() + 1 + UNSETTLED_PREFIX;
                changes.push(Change::Promote { from: from.clone(), to: to.clone(), strip });
                Change::DropMeta(from, to)
            }
            Durable::Void(write) => drop_one(self.unsettled_key(keyspace, &write)),
            Durable::Purge(key) => Change::DropRecord(self.space.record_key(keyspace.of(key.point()), &key)),
            Durable::Doubt(None) => drop_one(self.tagged(b"d")),
            Durable::Doubt(Some(doubt)) => self.doubt(&doubt),
            Durable::Record(write) => {
                let key = self.space.record_key(keyspace.of(write.key.point()), &write.key);
                Change::PutRecord(key, encode_record(&write.record))
            }
        };
        changes.push(last);
    }

    fn unsettled_bound(self, term: Term, n: u64) -> Bytes {
        self.unsettled(term, n, 0).into()
    }

    fn unsettled_key(self, keyspace: &KeyspaceGenerations, write: &Write) -> Bytes {
        let Number { term, n } = write.record.number;
        let mut bytes = self.unsettled(term, n, self.space.len() + 1 + 16 + write.key.encoded().len());
        // The whole key of the record that the write becomes.
        bytes.extend(self.space.0);
        put_key(&mut bytes, keyspace.of(write.key.point()), &write.key);
        bytes.into()
    }

    fn unsettled(self, term: Term, n: u64, more: usize) -> Vec<u8> {
        let mut bytes = self.key(UNSETTLED_PREFIX + more);
        bytes.push(b'w');
        bytes.extend_from_slice(&term.0.to_be_bytes());
        bytes.extend_from_slice(&n.to_be_bytes());
        bytes
    }

    /// Returns the entries with this tag: the rest of their keys, and their values.
    fn entries<'a>(
        self,
        meta: &'a BTreeMap<Bytes, Bytes>,
        tag: &'static [u8],
    ) -> impl Iterator<Item = (&'a [u8], &'a Bytes)> {
        meta.range(self.tagged(tag)..)
            .map_while(move |(key, value)| {
                let within = self.space.within(key)?.strip_prefix(&[self.number])?;
                Some((within.strip_prefix(tag)?, value))
            })
            .filter(|(_, value)| !value.is_empty())
    }

    /// Returns the stored part in this namespace's group; `None` if the namespace is empty.
    ///
    /// # Errors
    /// An entry of the namespace cannot be read.
    pub fn restore(self, meta: &BTreeMap<Bytes, Bytes>, sealed: bool) -> Result<Option<Stored>, StorageError> {
        let entry = |tag: &[u8]| meta.get(&self.tagged(tag));
        let Some(state) = entry(b"s") else { return Ok(None) };
        let state: GroupState = decode(state, "group state")?;
        let log_promised = match entry(b"lp") {
            None => None,
            Some(bytes) => {
                let (epoch, ballot): (Epoch, Option<Ballot>) = decode(bytes, "promise")?;
                ballot.map(|ballot| (epoch, ballot))
            }
        };
        let mut log_accepted: BTreeMap<LogSlot, (Ballot, Entry)> = BTreeMap::new();
        for (key, value) in self.entries(meta, b"la") {
            log_accepted.insert(LogSlot(number(key, 0)?), decode(value, "log entry")?);
        }
        let promises = match entry(b"p") {
            None => None,
            Some(bytes) => Some(decode::<IntervalMap<Option<TermBallot>>>(bytes, "map of promises")?),
        };
        let mut committees = Vec::new();
        for (key, value) in self.entries(meta, b"ch") {
            let head: CommitteeHead = decode(value, "committee")?;
            let (received, chosen) = match meta.get(&self.numbered(b"cp", number(key, 0)?)) {
                None => (NumberSet::default(), None),
                Some(bytes) => decode(bytes, "committee's progress")?,
            };
            committees.push((head, received, chosen));
        }
        let mut unsettled: BTreeMap<Term, Vec<Write>> = BTreeMap::new();
        for (key, value) in self.entries(meta, b"w") {
            let record = decode_record(value)?;
            let name = key.get(UNSETTLED_PREFIX - 1..).and_then(|key| self.space.key_of(key));
            let (_, name) = name.ok_or(StorageError("write"))?;
            let known = Number { term: Term(number(key, 0)?), n: number(key, 8)? };
            if record.number != known {
                return Err(StorageError("write"));
            }
            unsettled.entry(known.term).or_default().push(Write { key: name, record });
        }
        let doubt = entry(b"d").map(|bytes| decode(bytes, "doubt")).transpose()?;
        let empty = false;
        Ok(Some(Stored { state, log_promised, log_accepted, promises, committees, unsettled, empty, sealed, doubt }))
    }
}

/// Returns the changes that a store must make durable together with the note that it was opened; `meta` is all its small entries.
/// If the store's end is in doubt, every group stored here may have forgotten acknowledged data. A doubt of an earlier run has
/// outlasted one more run.
pub fn doubt(meta: &BTreeMap<Bytes, Bytes>, is_new: bool) -> Vec<Change> {
    let is_of_namespace =
        |key: &[u8], tag| matches!(key, [namespace, t] | [_, namespace, t] if *namespace < NAMESPACES && *t == tag);
    let there = meta.iter().filter(|(_, value)| !value.is_empty());
    if !is_new {
        let doubts = there.filter(|(key, _)| is_of_namespace(key, b'd'));
        let known = doubts.filter_map(|(key, value)| Some((key, decode::<Doubt>(value, "doubt").ok()?)));
        return known.map(|(key, doubt)| Change::PutMeta(key.clone(), encode(&doubt.again()))).collect();
    }
    let beside = |state: &Bytes| {
        let mut key = state.to_vec();
        key.pop();
        key.push(b'd');
        // A member that forgot data before may have forgotten more, and not less.
        let known = meta.get(&key[..]).and_then(|value| decode::<Doubt>(value, "doubt").ok());
        Change::PutMeta(key.into(), encode(&known.map_or(Doubt::new(), Doubt::anew)))
    };
    there.filter(|(key, _)| is_of_namespace(key, b's')).map(|(key, _)| beside(key)).collect()
}

/// Encodes a record.
pub fn encode_record(record: &Record) -> Bytes {
    encode_about(record, record.bytes())
}

/// Decodes a record.
///
/// # Errors
/// The bytes are no record.
pub fn decode_record(bytes: &[u8]) -> Result<Arc<Record>, StorageError> {
    decode(bytes, "record").map(Arc::new)
}

fn put_key(bytes: &mut Vec<u8>, generation: u8, key: &Key) {
    bytes.push(generation);
    bytes.extend_from_slice(&key.point().0.to_be_bytes());
    bytes.extend_from_slice(key.encoded());
}

fn key_at(bytes: &[u8]) -> Option<(u8, Key)> {
    let (generation, bytes) = bytes.split_first()?;
    let (point, name) = bytes.split_at_checked(16)?;
    let key = Key::decode(name).ok()?;
    (key.point() == Point(u128::from_be_bytes(point.try_into().ok()?))).then_some((*generation, key))
}

fn encode<T: Serialize>(value: &T) -> Bytes {
    encode_about(value, 64)
}

/// Encodes a value. `bytes` is its approximate length, so that it need not be moved as it grows.
fn encode_about<T: Serialize>(value: &T, bytes: usize) -> Bytes {
    let encoded = postcard::to_extend(value, Vec::with_capacity(bytes));
    let mut encoded = encoded.expect("stored values have no maps of unknown length");
    encoded.shrink_to_fit();
    encoded.into()
}

fn decode<T: DeserializeOwned>(bytes: &[u8], what: &'static str) -> Result<T, StorageError> {
    postcard::from_bytes(bytes).map_err(|_| StorageError(what))
}

fn drop_one(key: Bytes) -> Change {
    let mut behind = key.to_vec();
    behind.push(0);
    Change::DropMeta(key, behind.into())
}

fn number(key: &[u8], at: usize) -> Result<u64, StorageError> {
    let bytes = key.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).ok_or(StorageError("entry's key"))?;
    Ok(u64::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use overlay::{KeyRange, NodeId, PeerKey};

    use super::*;
    use crate::policies::Policies;

    fn ballot(term: u64) -> TermBallot {
        let node = NodeId { peer: PeerKey([7; 32]), incarnation: Incarnation(1 << 40) };
        TermBallot { epoch: Epoch(9), term: Term::new(LogSlot(term), 0), node }
    }

    /// Returns the number of bytes that a batch adds to the journal.
    fn cost(durable: Durable) -> usize {
        let mut made = Vec::new();
        Space(None).namespace(0).changes(&KeyspaceGenerations::default(), durable, &mut made);
        let bytes = |change: &Change| match change {
            Change::PutMeta(key, value) => key.len() + value.len(),
            _ => 0,
        };
        made.iter().map(bytes).sum()
    }

    /// With each start a doubt has outlasted one more run. A new doubt does not shorten an older one.
    #[test]
    fn doubts_add_up() {
        let state = Bytes::from_static(b"state");
        let namespaces = [Space(None).namespace(1), Space(Some(4)).namespace(0)];
        let mut meta: BTreeMap<Bytes, Bytes> =
            namespaces.iter().map(|namespace| (namespace.tagged(b"s"), state.clone())).collect();
        let mut start = |is_new| {
            for change in doubt(&meta, is_new) {
                let Change::PutMeta(key, value) = change else { panic!("{change:?}") };
                meta.insert(key, value);
            }
            namespaces.map(|namespace| {
                meta.get(&namespace.tagged(b"d")).map(|value| decode::<Doubt>(value, "doubt").unwrap())
            })
        };
        assert_eq!(start(false), [None; 2]);
        for (is_new, runs) in [(true, 1), (false, 2), (true, 3), (true, 4)] {
            assert_eq!(start(is_new), [Some(Doubt { runs, ..Doubt::new() }); 2]);
        }
    }

    /// A group of a lane finds its own data again in a store that lanes share, and no data of its neighbours.
    #[test]
    fn lanes_and_namespaces_lie_apart() {
        let record = |n| {
            let number = Number { term: Term::new(LogSlot(1), 0), n };
            let version = group::op::Version { generation: 0, timestamp: n };
            let kind = group::op::Kind::Value;
            Arc::new(Record {
                number,
                version,
                value: None,
                kind,
                deadline: None,
                horizon: 0,
                done: Vec::new(),
                completions: Default::default(),
            })
        };
        let write = |name: &[u8], n| Write { key: Key::new(name).unwrap(), record: record(n) };
        let settings = group::control::state::Settings {
            coarse: false,
            leases: false,
            lease_ms: 1,
            drift_per_mille: 1,
            value_bytes_max: 1,
            policies: Policies::default().agreed_on(5, 12),
            horizon_ms: 1,
        };
        let mut keyspace = KeyspaceGenerations::default();
        keyspace.leave(KeyRange::FULL);
        assert!(keyspace.enter(KeyRange::FULL));
        let mut meta = BTreeMap::new();
        let all = [(1, 0), (1, 1), (2, 1), (2, NAMESPACES - 1)];
        let name = |lane: u8, namespace: u8| u128::from(lane) << 8 | u128::from(namespace);
        for (lane, namespace) in all {
            let state = GroupState::founded(
                RingId(name(lane, namespace)),
                overlay::GroupId(7),
                group::control::state::Member {
                    node: ballot(1).node,
                    addresses: Vec::new(),
                    name: None,
                    cluster: alloc::string::String::new(),
                    joined: overlay::time::WallMillis(0),
                    since: LogSlot(0),
                },
                settings.clone(),
            );
            let space = Space(Some(lane));
            let life = Life { ring: RingId(u128::from(lane)), incarnation: Incarnation(5), voted: Epoch(0) };
            let mut made = alloc::vec![space.life(&life), space.keyspace(&keyspace)];
            let namespace = space.namespace(namespace);
            namespace.changes(&keyspace, Durable::State(alloc::boxed::Box::new(state)), &mut made);
            namespace.changes(&keyspace, Durable::Accepted(write(b"k", u64::from(lane))), &mut made);
            for change in made {
                let Change::PutMeta(key, value) = change else { panic!("{change:?}") };
                meta.insert(key, value);
            }
        }
        for (lane, number) in all {
            let space = Space(Some(lane));
            let (life, known) = space.restore_life(&meta).unwrap().expect("it is there");
            assert_eq!((life.ring, &known), (RingId(u128::from(lane)), &keyspace));
            let namespace = space.namespace(number);
            let stored = namespace.restore(&meta, true).unwrap().expect("it is there");
            assert_eq!(stored.state.ring, RingId(name(lane, number)));
            let unsettled = stored.unsettled.values().flatten().map(|write| write.record.number.n).collect::<Vec<_>>();
            assert_eq!(unsettled, [u64::from(lane)]);
            // A settled write becomes the record of its own lane, in its generation.
            let mut settled = Vec::new();
            namespace.changes(&keyspace, Durable::Settle(Term::new(LogSlot(1), 0), 0, 9), &mut settled);
            let Change::Promote { from, to, strip } = &settled[0] else { panic!("{settled:?}") };
            let promoted: Vec<_> = meta.range(from.clone()..to.clone()).map(|(key, _)| &key[*strip..]).collect();
            assert_eq!(promoted, [&space.record_key(1, &Key::new(b"k").unwrap())[..]]);
            // Clearing a namespace drops no other entries.
            let Change::DropMeta(from, to) = namespace.clear() else { panic!("it clears nothing") };
            let mut rest = meta.clone();
            rest.retain(|key, _| !(from.clone()..to.clone()).contains(key));
            assert!(namespace.restore(&rest, true).unwrap().is_none());
            for (lane, other) in all.into_iter().filter(|other| *other != (lane, number)) {
                assert!(Space(Some(lane)).namespace(other).restore(&rest, true).unwrap().is_some());
            }
            assert!(space.restore_life(&rest).unwrap().is_some());
        }
        // A doubt about the store concerns all groups in it, and nothing else.
        let doubts = doubt(&meta, true);
        assert_eq!(doubts.len(), all.len(), "{doubts:?}");
        for change in doubts {
            let Change::PutMeta(key, value) = change else { panic!("{change:?}") };
            meta.insert(key, value);
        }
        for (lane, number) in all {
            let namespace = Space(Some(lane)).namespace(number);
            let once = namespace.restore(&meta, true).unwrap().unwrap().doubt;
            assert_eq!(once, Some(Doubt::new()));
            for change in doubt(&meta, false) {
                let Change::PutMeta(key, value) = change else { panic!("{change:?}") };
                let mut meta = meta.clone();
                meta.insert(key.clone(), value);
                let again = namespace.restore(&meta, true).unwrap().unwrap().doubt;
                assert_eq!(again == once, key[..] != *namespace.tagged(b"d"), "one more run, in its own namespace");
            }
            let mut over = Vec::new();
            namespace.changes(&keyspace, Durable::Doubt(None), &mut over);
            let Change::DropMeta(from, to) = &over[0] else { panic!("{over:?}") };
            meta.retain(|key, _| !(from..to).contains(&key));
            assert_eq!(namespace.restore(&meta, true).unwrap().unwrap().doubt, None);
        }
        assert!(Space(Some(3)).restore_life(&meta).unwrap().is_none());
        assert!(Space(Some(1)).namespace(2).restore(&meta, true).unwrap().is_none());
    }

    /// A committee's progress is written whole with every batch. Messages between members keep their order, so the received
    /// numbers have gaps only where a message was lost, until catch-up fills them.
    #[test]
    fn progress_costs_little() {
        let begin = 1_000_000;
        let mut received = NumberSet::default();
        received.insert_range(1, begin);
        let progress =
            |received: &NumberSet| cost(Durable::CommitteeProgress(ballot(5), received.clone(), Some(begin)));
        received.insert_range(begin + 1, begin + 256);
        assert_eq!(progress(&received), 19, "256 in flight, in order: no more than at rest");
        // Ten messages of eight writes each were lost on the way.
        for lost in 0..10 {
            received.insert_range(begin + 265 + 16 * lost, begin + 272 + 16 * lost);
        }
        assert_eq!(progress(&received), 19 + 10 * 6);
        let mut shuffled = NumberSet::default();
        shuffled.insert_range(1, begin);
        for n in 0..128 {
            shuffled.insert(begin + 2 + 2 * n);
        }
        assert_eq!(progress(&shuffled), 20 + 128 * 6, "256 in flight, and every second one is lost");
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
