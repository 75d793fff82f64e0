//! Decoders of a node's entries in its store.

use std::collections::BTreeMap;

use bytes::Bytes;
use node::Change;
use node::replicas::keyspace::KeyspaceGenerations;
use node::replicas::storage::{self, Space};
use overlay::{Epoch, Incarnation, KeyRange, Point, RingId};

use crate::samples;

/// Decodes a record. The decoded record is encoded to no more bytes than came, and reads back the same.
pub fn record(bytes: &[u8]) -> bool {
    let Ok(record) = storage::decode_record(bytes) else { return false };
    let written = storage::encode_record(&record);
    assert!(written.len() <= bytes.len());
    assert_eq!(storage::decode_record(&written), Ok(record));
    true
}

pub fn records() -> Vec<Vec<u8>> {
    samples::records().iter().map(|record| storage::encode_record(record).to_vec()).collect()
}

/// Restores a group from entries. Each stands in `bytes` as the lengths of its key, in one byte, and of its value, in
/// two bytes, with both behind them.
pub fn meta(bytes: &[u8]) -> bool {
    let entries = entries(bytes);
    let Ok(Some((_, keyspace))) = Space(None).restore_life(&entries) else { return false };
    // Every point has a generation; a map without one is refused.
    keyspace.of(Point(0));
    let Ok(Some(stored)) = Space(None).namespace(0).restore(&entries, false) else { return false };
    if let Some(promises) = &stored.promises {
        // Every point has a promise, or none; a map without one is refused.
        promises.get(Point(0));
    }
    true
}

pub fn metas() -> Vec<Vec<u8>> {
    let life = storage::Life { ring: RingId(9), incarnation: Incarnation(3), voted: Epoch(2) };
    let mut keyspace = KeyspaceGenerations::default();
    keyspace.leave(KeyRange::new(Point(5), Point(9)));
    let mut changes = vec![Space(None).life(&life), Space(None).keyspace(&keyspace)];
    let namespace = Space(None).namespace(0);
    samples::durables().into_iter().for_each(|durable| namespace.changes(&keyspace, durable, &mut changes));
    let puts: Vec<(Bytes, Bytes)> = changes
        .into_iter()
        .filter_map(|change| match change {
            Change::PutMeta(key, value) => Some((key, value)),
            _ => None,
        })
        .collect();
    // All entries, and the fewest that make a group.
    vec![written(&puts), written(&puts[..3])]
}

fn written(entries: &[(Bytes, Bytes)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in entries {
        bytes.push(u8::try_from(key.len()).expect("keys of samples are short"));
        bytes.extend_from_slice(&u16::try_from(value.len()).expect("so are values").to_le_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
    }
    bytes
}

fn entries(mut bytes: &[u8]) -> BTreeMap<Bytes, Bytes> {
    let mut entries = BTreeMap::new();
    while let [key, low, high, rest @ ..] = bytes {
        let (key, rest) = rest.split_at(usize::from(*key).min(rest.len()));
        let (value, rest) = rest.split_at(usize::from(u16::from_le_bytes([*low, *high])).min(rest.len()));
        entries.insert(Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
        bytes = rest;
    }
    entries
}
