//! A disk that keeps exactly what it promised to keep.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use bytes::Bytes;
use node::{Change, Restored, Tail};

/// What a store holds: small entries and records ([`Change`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Small entries: all are given back at start.
    pub meta: BTreeMap<Bytes, Bytes>,
    /// Records, looked up one by one.
    pub records: BTreeMap<Bytes, Bytes>,
}

impl Contents {
    /// Makes one change.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::PutMeta(key, value) => {
                self.meta.insert(key.clone(), value.clone());
            }
            Change::DropMeta(from, to) => {
                let dropped: Vec<Bytes> = self.meta_between(from, to).map(|(key, _)| key.clone()).collect();
                for key in dropped {
                    self.meta.remove(&key);
                }
            }
            Change::Promote { from, to, strip } => {
                let moved: Vec<(Bytes, Bytes)> = self
                    .meta_between(from, to)
                    .filter(|(key, value)| key.len() >= *strip && !value.is_empty())
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect();
                for (key, value) in moved {
                    self.records.insert(key.slice(*strip..), value);
                    self.meta.insert(key, Bytes::new());
                }
            }
            Change::PutRecord(key, value) => {
                self.records.insert(key.clone(), value.clone());
            }
            Change::DropRecord(key) => {
                self.records.remove(key);
            }
        }
    }

    fn meta_between<'a>(&'a self, from: &Bytes, to: &Bytes) -> impl Iterator<Item = (&'a Bytes, &'a Bytes)> {
        let empty = from >= to;
        let bounds = if empty {
            (Bound::Included(from.clone()), Bound::Included(from.clone()))
        } else {
            (Bound::Included(from.clone()), Bound::Excluded(to.clone()))
        };
        self.meta.range(bounds).filter(move |_| !empty)
    }
}

/// The store's twin: batches are atomic and durable in order, a sync covers all that waits when it starts, and a crash
/// loses some end of what was not synced.
#[derive(Debug, Default)]
pub struct SimStore {
    /// What survives a crash.
    durable: Contents,
    /// What the node sees: all that was handed out.
    view: Contents,
    /// Handed out, not yet durable.
    waiting: VecDeque<(u64, Vec<Change>)>,
    /// So many of them are covered by the sync under way.
    syncing: usize,
    /// So many more calls succeed.
    calls_left: Option<u64>,
    failed: bool,
    sealed: bool,
    exists: bool,
}

/// What came of handing a batch in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persist {
    /// It waits for the sync under way, which is followed by another.
    Waits,
    /// A sync starts now.
    Starts,
    /// This call failed: nothing is written any more.
    Fails,
    /// The store has failed before.
    Ignored,
}

/// The same, in no more memory than it needs: what was encoded may take twice as much.
fn exact(change: Change) -> Change {
    match change {
        Change::PutMeta(key, value) => Change::PutMeta(key, Bytes::copy_from_slice(&value)),
        Change::PutRecord(key, value) => Change::PutRecord(key, Bytes::copy_from_slice(&value)),
        other => other,
    }
}

impl SimStore {
    /// Takes a batch.
    pub fn persist(&mut self, token: u64, changes: Vec<Change>) -> Persist {
        if self.failed {
            return Persist::Ignored;
        }
        if self.calls_left == Some(0) {
            self.failed = true;
            return Persist::Fails;
        }
        self.calls_left = self.calls_left.map(|left| left - 1);
        self.exists = true;
        self.sealed = false;
        let changes: Vec<Change> = changes.into_iter().map(exact).collect();
        for change in &changes {
            self.view.apply(change);
        }
        self.waiting.push_back((token, changes));
        if self.syncing > 0 {
            return Persist::Waits;
        }
        self.syncing = self.waiting.len();
        Persist::Starts
    }

    /// The sync under way has ended: the last token that is durable now, and whether another sync starts.
    pub fn synced(&mut self) -> Option<(u64, bool)> {
        if self.failed {
            return None;
        }
        let mut last = None;
        for _ in 0..std::mem::take(&mut self.syncing) {
            let (token, changes) = self.waiting.pop_front()?;
            for change in &changes {
                self.durable.apply(change);
            }
            last = Some(token);
        }
        self.syncing = self.waiting.len();
        last.map(|token| (token, self.syncing > 0))
    }

    /// The record, as of all batches handed out.
    pub fn load(&self, record_key: &Bytes) -> Option<Bytes> {
        self.view.records.get(record_key).cloned()
    }

    /// Records from `from` on, about `bytes_max` of them, and whether that is all.
    pub fn scan(&self, from: &Bytes, bytes_max: usize) -> (Vec<(Bytes, Bytes)>, bool) {
        let mut records = Vec::new();
        let mut bytes = 0;
        for (key, value) in self.view.records.range(from.clone()..) {
            if bytes >= bytes_max && !records.is_empty() {
                return (records, false);
            }
            bytes += key.len() + value.len();
            records.push((key.clone(), value.clone()));
        }
        (records, true)
    }

    /// All records, as of all batches handed out.
    pub fn records(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.view.records.iter()
    }

    /// How many batches are not durable.
    pub fn unsynced(&self) -> usize {
        self.waiting.len()
    }

    /// The process or the machine stops dead: of the batches that are not durable the first `kept` happen to be on
    /// disk, the others are gone. Batches are atomic, so a torn one is a lost one.
    pub fn crash(&mut self, kept: usize) {
        for (_, changes) in self.waiting.drain(..).take(kept) {
            for change in &changes {
                self.durable.apply(change);
            }
        }
        self.waiting.clear();
        self.syncing = 0;
        self.view = self.durable.clone();
        self.failed = false;
        self.calls_left = None;
    }

    /// A clean stop: all is written, and the end is sealed.
    pub fn seal(&mut self) {
        self.crash(usize::MAX);
        self.sealed = true;
    }

    /// Everything is gone: another disk, or the store was moved aside.
    pub fn wipe(&mut self) {
        *self = SimStore::default();
    }

    /// The call after the next `calls` fails.
    pub fn fail_after(&mut self, calls: Option<u64>) {
        self.calls_left = calls;
    }

    /// Whether a call has failed since the last start.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// What is given back at start.
    pub fn restore(&self) -> Restored {
        let tail = match (self.exists, self.sealed) {
            (false, _) => Tail::Empty,
            (true, true) => Tail::Sealed,
            (true, false) => Tail::Unsealed,
        };
        Restored { meta: self.durable.meta.clone(), tail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    fn put(key: &'static str, value: &'static str) -> Vec<Change> {
        vec![Change::PutRecord(bytes(key), bytes(value))]
    }

    #[test]
    fn a_crash_loses_an_end_of_what_was_not_synced() {
        let mut store = SimStore::default();
        assert_eq!(store.restore().tail, Tail::Empty);
        assert_eq!(store.persist(1, put("a", "1")), Persist::Starts);
        assert_eq!(store.persist(2, put("b", "2")), Persist::Waits);
        assert_eq!(store.persist(3, put("c", "3")), Persist::Waits);
        assert_eq!(store.load(&bytes("c")), Some(bytes("3")));
        assert_eq!(store.synced(), Some((1, true)), "the sync covers what was there when it started");
        store.crash(1);
        assert_eq!(store.load(&bytes("a")), Some(bytes("1")));
        assert_eq!(store.load(&bytes("b")), Some(bytes("2")));
        assert_eq!(store.load(&bytes("c")), None);
        assert_eq!(store.restore().tail, Tail::Unsealed);
        store.seal();
        assert_eq!(store.restore().tail, Tail::Sealed);
        store.wipe();
        assert_eq!(store.restore().tail, Tail::Empty);
    }

    #[test]
    fn a_failed_call_ends_the_writing() {
        let mut store = SimStore::default();
        store.fail_after(Some(1));
        assert_eq!(store.persist(1, put("a", "1")), Persist::Starts);
        assert_eq!(store.persist(2, put("b", "2")), Persist::Fails);
        assert_eq!(store.persist(3, put("c", "3")), Persist::Ignored);
        assert_eq!(store.synced(), None, "what was under way cannot be relied on either");
        store.crash(0);
        assert_eq!(store.load(&bytes("a")), None);
    }

    #[test]
    fn scans_are_cut_and_resumed() {
        let mut store = SimStore::default();
        for (token, key) in ["a", "b", "c"].into_iter().enumerate() {
            store.persist(token as u64, put(key, "12345"));
        }
        let (first, done) = store.scan(&Bytes::new(), 1);
        assert_eq!((first.len(), done), (1, false));
        let (rest, done) = store.scan(&bytes("b"), 1_000);
        assert_eq!((rest.len(), done), (2, true));
    }

    #[test]
    fn promotion_moves_values_into_records() {
        let mut contents = Contents::default();
        for (key, value) in [("w/1/k", "old"), ("w/2/k", "new"), ("w/3/l", ""), ("x", "far")] {
            contents.apply(&Change::PutMeta(bytes(key), bytes(value)));
        }
        contents.apply(&Change::Promote { from: bytes("w/"), to: bytes("w0"), strip: 4 });
        assert_eq!(contents.records, BTreeMap::from([(bytes("k"), bytes("new"))]));
        assert_eq!(contents.meta[&bytes("w/1/k")], Bytes::new());
        assert_eq!(contents.meta[&bytes("x")], bytes("far"));
        contents.apply(&Change::DropMeta(bytes("w/"), bytes("w0")));
        assert_eq!(contents.meta.len(), 1);
    }
}
