//! Blocks: several records in one entry of the table.
//!
//! A table on disk spends memory and work on each of its entries, even on small ones. So neighbouring records share one
//! entry: a block. It holds all records from its own key on up to the next block's key. Its key need not be that of a
//! record; the key of a range's first block is the range's key.
//!
//! ```text
//! each record: key length u32 | key | value length u32 | value, in the order of the keys
//! ```

use bytes::Bytes;

use crate::codec::{Reader, put_bytes};
use crate::error::StoreError;

/// A changed record: its key, and its value, or `None` where it is dropped.
pub(crate) type BlockEntry = (Bytes, Option<Bytes>);

/// Returns the records of a block.
pub(crate) fn records(block: &Bytes) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
    let mut reader = Reader::new(block);
    let mut records = Vec::new();
    while !reader.is_empty() {
        let record = pair(&mut reader).ok_or_else(nonsense)?;
        records.push((block.slice_ref(record.0), block.slice_ref(record.1)));
    }
    Ok(records)
}

fn pair<'a>(reader: &mut Reader<'a>) -> Option<(&'a [u8], &'a [u8])> {
    Some((reader.slice()?, reader.slice()?))
}

/// Returns the value of a key in a block.
pub(crate) fn find(block: &Bytes, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
    let mut reader = Reader::new(block);
    while !reader.is_empty() {
        let (found, value) = pair(&mut reader).ok_or_else(nonsense)?;
        if found >= key {
            return Ok((found == key).then(|| block.slice_ref(value)));
        }
    }
    Ok(None)
}

/// Error of a block that passes its checksum and is unreadable: it was written so.
fn nonsense() -> StoreError {
    StoreError::damaged("a block of the table cannot be read")
}

/// Applies changes, in the order of their keys and without duplicates, to the records of a block; `None` where they change
/// nothing.
pub(crate) fn merge(old: Vec<(Bytes, Bytes)>, changes: &[BlockEntry]) -> Option<Vec<(Bytes, Bytes)>> {
    let mut merged = Vec::with_capacity(old.len() + changes.len());
    let (mut old, mut changed) = (old.into_iter().peekable(), false);
    for (key, value) in changes {
        while let Some(before) = old.next_if(|(known, _)| known < key) {
            merged.push(before);
        }
        let before = old.next_if(|(known, _)| known == key).map(|(_, value)| value);
        changed |= before.as_ref() != value.as_ref();
        merged.extend(value.as_ref().map(|value| (key.clone(), value.clone())));
    }
    merged.extend(old);
    changed.then_some(merged)
}

/// Divides records into blocks of at most about `block_bytes` bytes, as even as possible; each block holds at least one
/// record.
pub(crate) fn divide(records: &[(Bytes, Bytes)], block_bytes: usize) -> Vec<&[(Bytes, Bytes)]> {
    let all: usize = records.iter().map(weight).sum();
    let each = all.div_ceil(all.div_ceil(block_bytes).max(1));
    let (mut blocks, mut begin, mut bytes) = (Vec::new(), 0, 0);
    for (place, record) in records.iter().enumerate() {
        if bytes >= each || (bytes > 0 && bytes + weight(record) > block_bytes) {
            blocks.push(&records[begin..place]);
            (begin, bytes) = (place, 0);
        }
        bytes += weight(record);
    }
    if begin < records.len() {
        blocks.push(&records[begin..]);
    }
    blocks
}

/// Encodes records as a block.
pub(crate) fn encode(records: &[(Bytes, Bytes)]) -> Bytes {
    let mut block = Vec::with_capacity(records.iter().map(weight).sum());
    for (key, value) in records {
        put_bytes(&mut block, key);
        put_bytes(&mut block, value);
    }
    block.into()
}

fn weight((key, value): &(Bytes, Bytes)) -> usize {
    8 + key.len() + value.len()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn bytes(number: u16, len: usize) -> Bytes {
        let mut bytes = number.to_be_bytes().to_vec();
        bytes.resize(2 + len, number as u8);
        bytes.into()
    }

    proptest! {
        /// A map of records that is changed as blocks are, divided and read again, is the map.
        #[test]
        fn blocks_hold_what_a_map_does(
            rounds in prop::collection::vec(prop::collection::btree_map(0u16..200, (any::<bool>(), 0usize..300), 0..60), 1..8),
            block_bytes in 1usize..2000,
        ) {
            let mut model: BTreeMap<Bytes, Bytes> = BTreeMap::new();
            let mut records_now = Vec::new();
            for changes in rounds {
                let changes: Vec<BlockEntry> = changes
                    .into_iter()
                    .map(|(key, (put, len))| (bytes(key, 0), put.then(|| bytes(key, len))))
                    .collect();
                let before = model.clone();
                for (key, value) in &changes {
                    match value {
                        Some(value) => drop(model.insert(key.clone(), value.clone())),
                        None => drop(model.remove(key)),
                    }
                }
                match merge(records_now.clone(), &changes) {
                    Some(merged) => records_now = merged,
                    None => prop_assert_eq!(&before, &model),
                }
                prop_assert!(records_now.iter().eq(model.iter().map(|(k, v)| (k.clone(), v.clone())).collect::<Vec<_>>().iter()));
                let blocks = divide(&records_now, block_bytes);
                prop_assert_eq!(blocks.concat(), records_now.clone());
                for block in blocks {
                    prop_assert!(!block.is_empty());
                    let weigh: usize = block.iter().map(weight).sum();
                    prop_assert!(weigh <= block_bytes || block.len() == 1, "{} of {}", weigh, block_bytes);
                    let encoded = encode(block);
                    prop_assert_eq!(records(&encoded).unwrap(), block);
                    for (key, value) in block {
                        prop_assert_eq!(find(&encoded, key).unwrap(), Some(value.clone()));
                    }
                    prop_assert_eq!(find(&encoded, b"").unwrap(), None);
                    prop_assert_eq!(find(&encoded, &[0xff; 3]).unwrap(), None);
                }
            }
        }

        #[test]
        fn nonsense_is_no_panic(junk in prop::collection::vec(any::<u8>(), 0..100)) {
            let junk = Bytes::from(junk);
            let _ = (records(&junk), find(&junk, b"k"));
        }
    }
}
