//! Bytes of all frames and stored values, as in `tests/golden`: none changes without its version.

use std::collections::BTreeMap;
use std::fmt::Debug;

use bytes::Bytes;
use golden::{Format, Golden, examples};
use group::Doubt;
use group::ballot::{Ballot, TermBallot};
use group::control::state::{Entry, GroupState};
use group::number_set::NumberSet;
use group::outbox::{CommitteeHead, Durable};
use group::record::Record;
use node::Lineage;
use node::replicas::keyspace::KeyspaceGenerations;
use node::replicas::storage::{GroupNamespace, Life, Over, STORED_VERSION, Space, decode_record, encode_record};
use node::wire::{FRAME_VERSION, Frame, Stamp, decode, encode};
use node::{Change, Start};
use overlay::{Epoch, Incarnation, IntervalMap, KeyRange, NodeId, PeerKey};
use serde::de::DeserializeOwned;

const FRAMES: Format =
    Format { version: FRAME_VERSION as u64, constant: "FRAME_VERSION in peer/node/src/wire.rs", package: "node" };
const STORED: Format = Format {
    version: STORED_VERSION as u64,
    constant: "STORED_VERSION in peer/node/src/replicas/storage.rs",
    package: "node",
};

fn golden(name: &str, format: Format) -> Golden {
    Golden::new(env!("CARGO_MANIFEST_DIR"), name, format)
}

/// Three numbers and a receiver, with different values in all bytes.
const STAMP: Stamp = Stamp {
    incarnation: Incarnation(0x0102_0304_0506_0708),
    start: Start { counter: 0x1112_1314_1516_1718, run: 0x2122_2324_2526_2728 },
    to: 0x3132_3334_3536_3738,
};

/// Each variant of each frame, of each message in it, and of all values in those.
#[test]
fn golden_frames() {
    let mut golden = golden("frames", FRAMES);
    golden.add_all(|frame: &Frame| encode(&STAMP, frame, None).to_vec());
    let in_lane = Frame::NotUnderstood { version: 200 };
    golden.add("in lane 3: NotUnderstood", &encode(&STAMP, &in_lane, Some(3)));
    golden.check();
    for (name, frame) in examples::<Frame>().values {
        assert_eq!(decode(golden.bytes(&name), None), Ok((STAMP, frame)), "{name}");
    }
    assert_eq!(decode(golden.bytes("in lane 3: NotUnderstood"), Some(3)), Ok((STAMP, in_lane)));
}

/// Records without their keys, as the table and the journal hold them.
#[test]
fn golden_records() {
    let mut golden = golden("records", STORED);
    golden.add_all(|record: &Record| encode_record(record).to_vec());
    golden.check();
    for (name, record) in examples::<Record>().values {
        assert_eq!(decode_record(golden.bytes(&name)).as_deref(), Ok(&record), "{name}");
    }
}

/// Returns generations in which records lie in one other than the first, so that their keys show it.
fn keyspace() -> KeyspaceGenerations {
    let mut keyspace = KeyspaceGenerations::default();
    keyspace.leave(KeyRange::FULL);
    assert!(keyspace.enter(KeyRange::FULL));
    keyspace
}

/// Returns the keys and values of a change, apart from each other; keys without a value are alone.
fn parts(change: &Change) -> Vec<(&'static str, Bytes)> {
    match change.clone() {
        Change::PutMeta(key, value) => vec![("entry", key), ("value", value)],
        Change::DropMeta(from, to) => vec![("drop from", from), ("drop to", to)],
        Change::PutRecord(key, value) => vec![("record", key), ("value", value)],
        Change::DropRecord(key) => vec![("drop record", key)],
        Change::Promote { from, to, strip } => {
            vec![("promote from", from), ("promote to", to), ("strip", Bytes::from(vec![strip as u8]))]
        }
    }
}

/// Checks that the value that a change writes reads back the same.
fn reads_back<T: DeserializeOwned + PartialEq + Debug>(golden: &Golden, name: &str, written: &T) {
    let stored = golden.bytes(&format!("{name}: 0 value"));
    assert_eq!(postcard::from_bytes::<T>(stored).as_ref(), Ok(written), "{name}");
}

/// All kinds of a group's stored state, as entries and records with their keys.
#[test]
fn golden_entries() {
    let mut golden = golden("entries", STORED);
    let keyspace = keyspace();
    let places = [(Space(None), 3), (Space(Some(2)), 31)];
    let named = |space, name: &str| format!("{name} in {space:?}");
    for (space, number) in places {
        for (name, durable) in examples::<Durable>().values {
            add(&mut golden, &named(space, &name), space.namespace(number), &keyspace, durable);
        }
    }
    golden.check();
    for (space, _) in places {
        for (name, durable) in examples::<Durable>().values {
            let name = named(space, &name);
            match durable {
                Durable::State(state) => reads_back::<GroupState>(&golden, &name, &state),
                Durable::LogPromised(epoch, ballot) => {
                    reads_back::<(Epoch, Option<Ballot>)>(&golden, &name, &(epoch, ballot));
                }
                Durable::LogAccepted(_, ballot, entry) => {
                    reads_back::<(Ballot, Entry)>(&golden, &name, &(ballot, entry));
                }
                Durable::Promises(map) => reads_back::<IntervalMap<Option<TermBallot>>>(&golden, &name, &map),
                Durable::Committee(head) => reads_back::<CommitteeHead>(&golden, &name, &head),
                Durable::CommitteeProgress(_, received, chosen) => {
                    reads_back::<(NumberSet, Option<u64>)>(&golden, &name, &(received, chosen));
                }
                Durable::Accepted(write) | Durable::Record(write) => {
                    reads_back::<Record>(&golden, &name, &write.record);
                }
                Durable::Doubt(Some(doubt)) => reads_back::<Doubt>(&golden, &name, &doubt),
                // Nothing is written.
                Durable::LogForget(_)
                | Durable::CommitteeForget(_)
                | Durable::Settle(..)
                | Durable::Void(_)
                | Durable::Doubt(None)
                | Durable::Purge(_) => {}
            }
        }
    }
}

fn add(golden: &mut Golden, name: &str, namespace: GroupNamespace, keyspace: &KeyspaceGenerations, durable: Durable) {
    let mut changes = Vec::new();
    namespace.changes(keyspace, durable, &mut changes);
    for (place, change) in changes.iter().enumerate() {
        for (part, bytes) in parts(change) {
            golden.add(&format!("{name}: {place} {part}"), &bytes);
        }
    }
}

/// A node's stored state beside its groups.
#[test]
fn golden_own_entries() {
    let mut golden = golden("own_entries", STORED);
    let (space, mut names) = (Space(Some(1)), Vec::new());
    let mut put = |golden: &mut Golden, name: &str, change: Change| {
        let Change::PutMeta(key, value) = change else { panic!("{change:?}") };
        golden.add(&format!("{name}: key"), &key);
        golden.add(&format!("{name}: value"), &value);
        names.push(name.to_owned());
    };
    let lives = examples::<Life>().values;
    let (name, life) = lives.last().expect("there is one");
    put(&mut golden, &format!("life {name}"), space.life(life));
    put(&mut golden, "keyspace", space.keyspace(&keyspace()));
    let over: Vec<Over> = examples::<Over>().values.into_iter().map(|(_, over)| over).collect();
    put(&mut golden, "over", space.over(&over));
    let finals: Vec<GroupState> = examples::<GroupState>().values.into_iter().map(|(_, state)| state).take(3).collect();
    put(&mut golden, "finals", space.finals(&finals));
    let lineage = Lineage { start: STAMP.start, before: vec![7, 6] };
    put(&mut golden, "lineage of starts", space.lineage(&lineage));
    let other = NodeId { peer: PeerKey([0x5a; 32]), incarnation: STAMP.incarnation };
    put(&mut golden, "start of another node", space.start_of(other, &lineage));
    golden.check();
    let part = |name: &str, part: &str| Bytes::copy_from_slice(golden.bytes(&format!("{name}: {part}")));
    let meta: BTreeMap<_, _> = names.iter().map(|name| (part(name, "key"), part(name, "value"))).collect();
    assert_eq!(space.restore_life(&meta), Ok(Some((*life, keyspace()))));
    assert_eq!(space.restore_over(&meta), Ok(over));
    assert_eq!(space.restore_finals(&meta), Ok(finals));
    assert_eq!(space.restore_lineage(&meta), Ok(lineage.clone()));
    assert_eq!(space.restore_starts(&meta), Ok(vec![(other, lineage)]));
}
