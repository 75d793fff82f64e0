//! The bytes of all files of a store, except the node's data in them.

use std::path::Path;

use bytes::Bytes;
use golden::{Format as Versioned, Golden, examples};
use node::Change;

use crate::change::Meta;
use crate::codec::{Reader, put_batch};
use crate::format::{CONTAINER_VERSION, StoreFormat};
use crate::journal::frame::{FrameKind, FramePlace, HEADER, finish, parse};
use crate::journal::replay::From;
use crate::journal::segment::SegmentName;
use crate::manifest::Manifest;
use crate::table::blocks;
use crate::table::ledger::golden as table;
use crate::table::pieces;
use crate::table::sled_table::SledTables;
use crate::table::sum::Sum;
use crate::table::{seal, unseal};

const CONTAINER: Versioned = Versioned {
    version: CONTAINER_VERSION as u64,
    constant: "CONTAINER_VERSION in peer/store/src/format.rs",
    package: "store --lib",
};

fn golden(name: &str) -> Golden {
    Golden::new(env!("CARGO_MANIFEST_DIR"), name, CONTAINER)
}

#[test]
fn golden_manifest() {
    let manifest = Manifest {
        salt: 0x0102_0304_0506_0708,
        from: From { seq: 0x1112_1314, segment: 0x2122_2324, first_seq: 0x0112_1314 },
        table: 0x6162_6364,
        portions: 0x3132_3334,
        sum: Sum { entries: 0x4142, bytes: 0x5152_5354, hash: 1 << 100 | 7 },
        meta: Meta::from([(Bytes::from("a key"), Bytes::from("a value")), (Bytes::from("b"), Bytes::new())]),
    };
    let mut golden = golden("manifest");
    // The program's name changes with every commit, and the stored version with the node's types.
    let mut begin = Vec::new();
    StoreFormat { container: CONTAINER_VERSION, stored: 7 }.begin(&mut begin, "scatter 0.1.0 (commit 0123456789ab)");
    golden.add("beginning, stored version 7", &begin);
    let whole = manifest.encode();
    let rest = StoreFormat::skip(&whole).unwrap();
    golden.add("behind the beginning, without its checksum", &rest[..rest.len() - 4]);
    golden.check();
    let body = golden.bytes("behind the beginning, without its checksum");
    assert_eq!(Manifest::decode_body(body), Some(manifest));
    let refused = StoreFormat::skip(golden.bytes("beginning, stored version 7")).unwrap_err().to_string();
    assert!(
        refused.contains(&format!("format {CONTAINER_VERSION}.7 by scatter 0.1.0 (commit 0123456789ab)")),
        "{refused}"
    );
}

/// Returns the kinds of a frame; a new kind has to be added here.
fn kinds() -> Vec<FrameKind> {
    let first = FrameKind::Data;
    let next = |kind: &FrameKind| match kind {
        FrameKind::Data => Some(FrameKind::Open),
        FrameKind::Open => Some(FrameKind::Seal),
        FrameKind::Seal => None,
    };
    std::iter::successors(Some(first), next).collect()
}

#[test]
fn golden_journal() {
    let place = FramePlace { salt: 0x0102_0304_0506_0708, segment: 0x1112_1314, at: 64 };
    let changes: Vec<Change> = examples::<Change>()
        .values
        .into_iter()
        .map(|(_, change)| match change {
            // No key is as long as an example's number.
            Change::Promote { from, to, .. } => Change::Promote { from, to, strip: 19 },
            other => other,
        })
        .collect();
    let mut golden = golden("journal");
    for change in &changes {
        let mut batch = Vec::new();
        put_batch(&mut batch, std::slice::from_ref(change));
        let name = format!("{change:?}");
        golden.add(&format!("batch of {}", name.split([' ', '(']).next().unwrap_or_default()), &batch);
    }
    for kind in kinds() {
        let mut frame = vec![0; HEADER];
        if kind == FrameKind::Data {
            put_batch(&mut frame, &changes);
            put_batch(&mut frame, &changes[..1]);
        }
        finish(&mut frame, kind, 0x2122_2324_2526_2728, place);
        golden.add(&format!("frame {kind:?}"), &frame);
    }
    let name = SegmentName { id: 0x0a0b_0c0d, bytes: 8 << 20 };
    golden.add("name of a segment", name.file().as_bytes());
    golden.check();
    for kind in kinds() {
        let mut segment = vec![0; 64];
        segment.extend_from_slice(golden.bytes(&format!("frame {kind:?}")));
        let frame = parse(&segment, place).expect("it is a frame");
        assert_eq!((frame.kind, frame.seq, frame.next), (kind, 0x2122_2324_2526_2728, segment.len()));
        if kind == FrameKind::Data {
            assert_eq!(Reader::new(frame.body).batches(), Some(vec![changes.clone(), changes[..1].to_vec()]));
        }
    }
    let stored = String::from_utf8(golden.bytes("name of a segment").to_vec()).unwrap();
    assert_eq!(SegmentName::parse(&stored), Some(name));
}

#[test]
fn golden_table() {
    let records = [(Bytes::from("a key"), Bytes::from("a value")), (Bytes::from("b"), Bytes::new())];
    let mut golden = golden("table");
    let block = blocks::encode(&records);
    golden.add("block", &block);
    golden.add("block, sealed under its key", &seal(b"ra key", &block));
    for (name, key, value) in table::entries() {
        golden.add(&format!("{name}: key"), &key);
        golden.add(&format!("{name}: value"), &value);
    }
    for (name, bytes) in pieces::golden::entries() {
        golden.add(name, &bytes);
    }
    golden.add("directory of table 12", SledTables::name(12).as_bytes());
    for name in [crate::manifest::MANIFEST, crate::disk::LOCK, crate::health::DAMAGED] {
        assert_eq!(Path::new(name).components().count(), 1);
        golden.add(&format!("file {name}"), name.as_bytes());
    }
    golden.check();
    let sealed = Bytes::copy_from_slice(golden.bytes("block, sealed under its key"));
    assert_eq!(blocks::records(&unseal(b"ra key", &sealed).unwrap()).unwrap(), records);
    let bytes = |name: &str| Bytes::copy_from_slice(golden.bytes(name));
    pieces::golden::reads_back(&bytes("entry in pieces"), &bytes("key of a piece"));
    let directory = String::from_utf8(golden.bytes("directory of table 12").to_vec()).unwrap();
    assert_eq!(SledTables::number(directory.as_ref()), Some(12));
    let stored = |name: &str, part: &str| Bytes::copy_from_slice(golden.bytes(&format!("{name}: {part}")));
    table::reads_back(|name| (stored(name, "key"), stored(name, "value")));
}
