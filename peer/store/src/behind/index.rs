//! The index: the newest state of every record that the table does not have yet.
//!
//! Loads and scans look here first; a *sweep* of the write-behind goes through it in the order of keys. A batch is sorted
//! in at the next lookup, and at the latest before it is swept. The index holds batches that the journal has already, and
//! batches that it does not have yet.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use overlay::{Placed, PointMap};

use crate::behind::pending::{Batch, CHANGE_WEIGHT};
use crate::change::{Before, Meta, apply, undo};

/// Upper limit of records that are visited for one portion.
const VISITS_MAX: usize = 4096;

/// A record's key as the node gives it: it begins with the place on the ring.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name(Bytes);

impl Placed for Name {
    fn prefix(&self) -> u64 {
        let mut first = [0; 8];
        let len = self.0.len().min(8);
        first[..len].copy_from_slice(&self.0[..len]);
        u64::from_be_bytes(first)
    }
}

/// The newest state of a record; `None` means dropped.
#[derive(Debug)]
struct IndexSlot {
    /// Number of the batch that made this state.
    batch: u64,
    value: Option<Bytes>,
}

/// All staged batches, sorted by record.
#[derive(Default)]
pub(crate) struct Index {
    /// The small entries as of the last batch in the index: a promotion makes records of them.
    meta: Meta,
    records: PointMap<Name, IndexSlot>,
    /// Weight of the records, in bytes.
    bytes: usize,
    /// The batches in the index that may not be durable.
    young: VecDeque<Young>,
    young_bytes: usize,
    /// Earlier values of the small entries that these batches changed, in the order of the changes.
    before: VecDeque<Before>,
}

/// A batch that may not be durable.
struct Young {
    number: u64,
    /// Weight of its records, in bytes.
    bytes: usize,
    /// Number of small entries that it changed.
    entries: usize,
}

/// Some of the records for a sweep.
#[derive(Debug, Default)]
pub(crate) struct Portion {
    pub(crate) records: Vec<(Bytes, Option<Bytes>)>,
    /// For each record, the batch that made its state.
    pub(crate) batches: Vec<u64>,
    /// The last record visited; `None` at the end of the index.
    pub(crate) last: Option<Bytes>,
    /// The newest of the batches that changed a passed-over record again; 0 if there was none.
    pub(crate) passed: u64,
}

impl Index {
    /// Creates an empty index, on top of these small entries.
    pub(crate) fn new(meta: Meta) -> Index {
        Index { meta, ..Index::default() }
    }

    /// Sorts in the next batches.
    pub(crate) fn sort_in(&mut self, batches: &[Arc<Batch>]) {
        let Index { meta, records, bytes, young, young_bytes, before } = self;
        for Batch { number, changes, .. } in batches.iter().map(Arc::as_ref) {
            let (mut its, known) = (0, before.len());
            for change in changes {
                let record = |key: Bytes, value| {
                    let key_bytes = key.len();
                    its += weight(key_bytes, &value);
                    *bytes += weight(key_bytes, &value);
                    if let Some(before) = records.insert(Name(key), IndexSlot { batch: *number, value }) {
                        *bytes -= weight(key_bytes, &before.value);
                    }
                };
                apply(meta, change, record, |was| before.push_back(was));
            }
            *young_bytes += its;
            young.push_back(Young { number: *number, bytes: its, entries: before.len() - known });
        }
    }

    /// Notes that all batches up to this one are durable.
    pub(crate) fn durable(&mut self, last: u64) {
        while self.young.front().is_some_and(|young| young.number <= last)
            && let Some(young) = self.young.pop_front()
        {
            self.young_bytes -= young.bytes;
            self.before.drain(..young.entries);
        }
    }

    /// Returns the bytes that the write-behind could write by now: the weight of the durable records.
    pub(crate) fn bytes(&self) -> usize {
        // A record that two young batches changed counts twice there, and once here.
        self.bytes.saturating_sub(self.young_bytes)
    }

    /// Returns the small entries.
    pub(crate) fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Returns the small entries as of the last batch that is known to be durable.
    pub(crate) fn durable_meta(&self) -> Meta {
        let mut meta = self.meta.clone();
        undo(&mut meta, self.before.iter().rev());
        meta
    }

    /// Returns the newest state of a record: `None` if the index lacks it, `Some(None)` if it is dropped.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<Bytes>> {
        self.records.get(&Name(Bytes::copy_from_slice(key))).map(|slot| slot.value.clone())
    }

    /// Returns records from `from` on, up to about `bytes_max` bytes, and whether no record follows.
    pub(crate) fn page(&self, from: &[u8], bytes_max: usize) -> (Vec<(Bytes, Option<Bytes>)>, bool) {
        let (mut page, mut bytes) = (Vec::new(), 0);
        for (Name(key), slot) in self.records.range_from(Bound::Included(&Name(Bytes::copy_from_slice(from)))) {
            if bytes >= bytes_max && !page.is_empty() {
                return (page, false);
            }
            bytes += key.len() + slot.value.as_ref().map_or(0, Bytes::len) + 16;
            page.push((key.clone(), slot.value.clone()));
        }
        (page, true)
    }

    /// Returns about `bytes_max` bytes of the records behind `after` whose state is from a batch up to `upto`.
    pub(crate) fn portion(&self, after: Option<&Bytes>, upto: u64, bytes_max: usize) -> Portion {
        let (mut portion, mut bytes) = (Portion::default(), 0);
        let after = after.map(|key| Name(key.clone()));
        let from = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        for (visits, (Name(key), slot)) in self.records.range_from(from).enumerate() {
            if slot.batch <= upto {
                bytes += weight(key.len(), &slot.value);
                portion.records.push((key.clone(), slot.value.clone()));
                portion.batches.push(slot.batch);
            } else {
                portion.passed = portion.passed.max(slot.batch);
            }
            if bytes >= bytes_max || visits >= VISITS_MAX {
                portion.last = Some(key.clone());
                break;
            }
        }
        portion
    }

    /// Notes that the table has this record as that batch made it.
    pub(crate) fn written(&mut self, key: &Bytes, batch: u64) {
        let name = Name(key.clone());
        if self.records.get(&name).is_some_and(|slot| slot.batch <= batch)
            && let Some(slot) = self.records.remove(&name)
        {
            self.bytes -= weight(key.len(), &slot.value);
        }
    }
}

fn weight(key_bytes: usize, value: &Option<Bytes>) -> usize {
    CHANGE_WEIGHT + key_bytes + value.as_ref().map_or(0, Bytes::len)
}

#[cfg(test)]
mod tests {
    use node::Change;

    use super::*;

    fn batch(number: u64, changes: Vec<Change>) -> Arc<Batch> {
        Arc::new(Batch { number, changes, bytes: 0 })
    }

    fn put(key: &'static str, value: &'static str) -> Change {
        Change::PutRecord(key.into(), value.into())
    }

    #[test]
    fn a_portion_is_what_a_sweep_may_write() {
        let mut index = Index::new(Meta::new());
        index.sort_in(&[batch(1, vec![put("a", "1"), put("b", "1"), put("c", "1")]), batch(2, vec![put("b", "2")])]);
        let keys = |portion: &Portion| portion.records.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>();
        let first = index.portion(None, 1, 1);
        assert_eq!((keys(&first), first.last, first.passed), (vec!["a".into()], Some("a".into()), 0));
        let rest = index.portion(Some(&"a".into()), 1, usize::MAX);
        assert_eq!((keys(&rest), rest.last, rest.passed), (vec!["c".into()], None, 2));
        index.written(&"c".into(), 1);
        index.written(&"b".into(), 1);
        assert_eq!((index.get(b"b"), index.get(b"c")), (Some(Some("2".into())), None));
    }

    /// Room counts only for records that can be written: a commit would wait for the rest in vain.
    #[test]
    fn what_is_not_durable_yet_does_not_count() {
        let mut index = Index::new(Meta::from([("wk".into(), "long value".into())]));
        let promote = Change::Promote { from: "w".into(), to: "x".into(), strip: 1 };
        index.sort_in(&[batch(1, vec![put("a", "1")]), batch(2, vec![promote]), batch(3, vec![put("a", "3")])]);
        assert_eq!(index.bytes(), 0);
        index.durable(1);
        assert_eq!(index.bytes(), 0, "its only record was changed again");
        index.durable(2);
        assert_eq!(index.bytes(), weight(1, &Some("long value".into())));
        index.durable(3);
        let all = index.bytes();
        assert_eq!(all, weight(1, &Some("long value".into())) + weight(1, &Some("3".into())));
        index.written(&"k".into(), 2);
        index.written(&"a".into(), 3);
        assert_eq!(index.bytes(), 0);
    }

    #[test]
    fn a_checkpoint_holds_the_small_entries_as_of_what_is_durable() {
        let put = |key: &'static str, value: &'static str| Change::PutMeta(key.into(), value.into());
        let mut index = Index::new(Meta::new());
        index.sort_in(&[batch(1, vec![put("a", "1"), put("b", "1")]), batch(2, vec![put("a", "2")])]);
        index.sort_in(&[batch(3, vec![Change::DropMeta("a".into(), "b".into()), put("c", "3")])]);
        let of = |entries: &[(&'static str, &'static str)]| -> Meta {
            entries.iter().map(|(key, value)| (Bytes::from(*key), Bytes::from(*value))).collect()
        };
        assert_eq!(index.durable_meta(), of(&[]));
        index.durable(1);
        assert_eq!(index.durable_meta(), of(&[("a", "1"), ("b", "1")]));
        index.durable(2);
        assert_eq!(index.durable_meta(), of(&[("a", "2"), ("b", "1")]));
        index.durable(3);
        assert_eq!(index.durable_meta(), of(&[("b", "1"), ("c", "3")]));
        assert!(index.before.is_empty());
    }

    #[test]
    fn a_record_that_changes_twice_in_a_batch_counts_once() {
        let mut index = Index::new(Meta::new());
        index.sort_in(&[batch(1, vec![put("a", "a long one"), put("a", "1")])]);
        index.durable(1);
        assert_eq!(index.bytes(), weight(1, &Some("1".into())));
    }
}
