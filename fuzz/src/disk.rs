//! Decoders of a store's files.

use std::sync::{Arc, LazyLock};

use node::Change;
use store::sim::{Loss, SimDisk};
use store::{Engine, StoreConfig, StoreError, fuzz};

/// Decodes the body of a journal's frame. The decoded batches are encoded to the same bytes.
pub fn journal(body: &[u8]) -> bool {
    let Some(batches) = fuzz::batches(body) else { return false };
    assert_eq!(fuzz::body(&batches), body);
    true
}

pub fn journals() -> Vec<Vec<u8>> {
    let changes = vec![
        Change::PutMeta("key".into(), "value".into()),
        Change::DropMeta("from".into(), "to".into()),
        Change::PutRecord("key".into(), vec![7; 300].into()),
        Change::DropRecord("".into()),
        Change::Promote { from: "a".into(), to: "b".into(), strip: 17 },
    ];
    vec![fuzz::body(&[]), fuzz::body(&[vec![]]), fuzz::body(&[changes.clone(), vec![], changes[..1].to_vec()])]
}

/// Decodes a manifest without its checksums.
pub fn manifest(body: &[u8]) -> bool {
    fuzz::manifest(body)
}

pub fn manifests() -> Vec<Vec<u8>> {
    let manifests = BASE.files().into_iter().filter(|(name, _)| name == "manifest");
    manifests.map(|(_, content)| fuzz::manifest_body(&content).to_vec()).collect()
}

/// Opens a store in which one file, chosen by the first byte, was replaced by the other bytes. A store that opens,
/// opens again.
pub fn store(bytes: &[u8]) -> bool {
    let Some((which, content)) = bytes.split_first() else { return false };
    let files = BASE.files();
    let disk = BASE.fork();
    disk.overwrite(&files[usize::from(*which) % files.len()].0, content.to_vec());
    if open(&disk).is_err() {
        return false;
    }
    if let Err(error) = open(&disk.restart(Loss::All)) {
        panic!("opened once, and then: {error}");
    }
    true
}

pub fn stores() -> Vec<Vec<u8>> {
    let files = BASE.files().into_iter().enumerate();
    files.map(|(which, (_, content))| [vec![which as u8], content].concat()).collect()
}

/// A store with a checkpoint and later batches, not sealed.
static BASE: LazyLock<SimDisk> = LazyLock::new(|| {
    let disk = SimDisk::new();
    let mut engine = open(&disk).expect("an empty disk makes a store");
    for number in 0..12u8 {
        let value = vec![number; 20];
        let batch = vec![
            Change::PutMeta("last".into(), vec![number].into()),
            Change::PutRecord(vec![b'r', number % 7].into(), value.into()),
        ];
        engine.append([batch]).expect("there is room");
        if number == 6 {
            engine.checkpoint().expect("there is room");
        }
    }
    drop(engine);
    disk.restart(Loss::All)
});

fn open(disk: &SimDisk) -> Result<Engine, StoreError> {
    let config = StoreConfig {
        segment_bytes: 1024,
        behind_bytes: 300,
        ballast_bytes: 0,
        low_bytes: Some(0),
        block_bytes: 64,
        range_blocks_max: 4,
        salt: Some(5),
        ..StoreConfig::default()
    };
    Engine::open(Arc::new(disk.clone()), disk.tables(), &config).map(|(engine, _)| engine)
}
