//! The encoding of changes: fixed little-endian lengths, and no allocation by an unchecked length.

use bytes::Bytes;
use node::Change;

const PUT_META: u8 = 1;
const DROP_META: u8 = 2;
const PUT_RECORD: u8 = 3;
const DROP_RECORD: u8 = 4;
const PROMOTE: u8 = 5;

/// Appends one batch: the number of its changes, then the changes.
pub(crate) fn put_batch(out: &mut Vec<u8>, changes: &[Change]) {
    put_len(out, changes.len());
    for change in changes {
        let (tag, first, second) = match change {
            Change::PutMeta(key, value) => (PUT_META, key, Some(value)),
            Change::DropMeta(from, to) => (DROP_META, from, Some(to)),
            Change::PutRecord(key, value) => (PUT_RECORD, key, Some(value)),
            Change::DropRecord(key) => (DROP_RECORD, key, None),
            Change::Promote { from, to, .. } => (PROMOTE, from, Some(to)),
        };
        out.push(tag);
        put_bytes(out, first);
        if let Some(second) = second {
            put_bytes(out, second);
        }
        if let Change::Promote { strip, .. } = change {
            // No key is as long as this, so a larger number means the same.
            out.extend_from_slice(&u32::try_from(*strip).unwrap_or(u32::MAX).to_le_bytes());
        }
    }
}

/// Returns an upper bound of the bytes that [`put_batch`] appends; a batch also counts for so many bytes in memory.
pub(crate) fn batch_bytes(changes: &[Change]) -> usize {
    let one = |change: &Change| match change {
        Change::PutMeta(a, b) | Change::DropMeta(a, b) | Change::PutRecord(a, b) => 9 + a.len() + b.len(),
        Change::Promote { from, to, .. } => 13 + from.len() + to.len(),
        Change::DropRecord(a) => 9 + a.len(),
    };
    4 + changes.iter().map(one).sum::<usize>()
}

/// Appends a length and that many bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_len(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends a length. The caller has bounded it: a frame holds at most `FRAME_BODY_MAX`.
pub(crate) fn put_len(out: &mut Vec<u8>, len: usize) {
    let len = u32::try_from(len).expect("lengths are bounded by the frame's");
    out.extend_from_slice(&len.to_le_bytes());
}

/// Reader of the encoding above. Every method returns `None` where the bytes end too early.
pub(crate) struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { left: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Returns the remaining bytes.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.left
    }

    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, left) = self.left.split_at_checked(len)?;
        self.left = left;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_le_bytes)
    }

    /// Returns a copy, so that one small value does not keep a whole segment in memory.
    pub(crate) fn bytes(&mut self) -> Option<Bytes> {
        self.slice().map(Bytes::copy_from_slice)
    }

    /// Returns the bytes that [`put_bytes`] wrote, without a copy.
    pub(crate) fn slice(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()? as usize;
        self.take(len)
    }

    /// Reads one batch.
    pub(crate) fn batch(&mut self) -> Option<Vec<Change>> {
        let count = self.u32()?;
        // No capacity by `count`: it may be any number.
        let mut changes = Vec::new();
        for _ in 0..count {
            let change = match self.take(1)?[0] {
                PUT_META => Change::PutMeta(self.bytes()?, self.bytes()?),
                DROP_META => Change::DropMeta(self.bytes()?, self.bytes()?),
                PUT_RECORD => Change::PutRecord(self.bytes()?, self.bytes()?),
                DROP_RECORD => Change::DropRecord(self.bytes()?),
                PROMOTE => Change::Promote { from: self.bytes()?, to: self.bytes()?, strip: self.u32()? as usize },
                _ => return None,
            };
            changes.push(change);
        }
        Some(changes)
    }

    /// Reads all batches up to the end.
    pub(crate) fn batches(mut self) -> Option<Vec<Vec<Change>>> {
        let mut batches = Vec::new();
        while !self.is_empty() {
            batches.push(self.batch()?);
        }
        Some(batches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn change() -> impl Strategy<Value = Change> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from);
        prop_oneof![
            (bytes(), bytes()).prop_map(|(key, value)| Change::PutMeta(key, value)),
            (bytes(), bytes()).prop_map(|(from, to)| Change::DropMeta(from, to)),
            (bytes(), bytes()).prop_map(|(key, value)| Change::PutRecord(key, value)),
            bytes().prop_map(Change::DropRecord),
            (bytes(), bytes(), any::<u32>()).prop_map(|(from, to, strip)| Change::Promote {
                from,
                to,
                strip: strip as usize
            }),
        ]
    }

    proptest! {
        #[test]
        fn batches_read_back_as_written(batches in proptest::collection::vec(proptest::collection::vec(change(), 0..9), 0..9)) {
            let mut out = Vec::new();
            let mut bound = 0;
            for batch in &batches {
                put_batch(&mut out, batch);
                bound += batch_bytes(batch);
            }
            prop_assert!(out.len() <= bound);
            prop_assert_eq!(Reader::new(&out).batches(), Some(batches));
        }

        #[test]
        fn nonsense_is_refused_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = Reader::new(&bytes).batches();
        }
    }
}
