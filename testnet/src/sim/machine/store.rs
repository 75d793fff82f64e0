//! A disk that keeps exactly the data that it promised to keep.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use bytes::Bytes;
use node::{Change, Restored, Tail};

/// Contents of a store: small entries and records ([`Change`]).
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

    /// Adds the entries that a change will replace.
    fn formers(&self, change: &Change, formers: &mut Vec<Former>) {
        let meta = |key: &Bytes| Former::Meta(key.clone(), self.meta.get(key).cloned());
        let record = |key: Bytes| {
            let value = self.records.get(&key).cloned();
            Former::Record(key, value)
        };
        match change {
            Change::PutMeta(key, _) => formers.push(meta(key)),
            Change::DropMeta(from, to) => formers.extend(self.meta_between(from, to).map(|(key, _)| meta(key))),
            Change::Promote { from, to, strip } => {
                for (key, _) in self.meta_between(from, to).filter(|(key, _)| key.len() >= *strip) {
                    formers.extend([meta(key), record(key.slice(*strip..))]);
                }
            }
            Change::PutRecord(key, _) | Change::DropRecord(key) => formers.push(record(key.clone())),
        }
    }

    fn restore(&mut self, former: Former) {
        let (map, key, value) = match former {
            Former::Meta(key, value) => (&mut self.meta, key, value),
            Former::Record(key, value) => (&mut self.records, key, value),
        };
        match value {
            Some(value) => map.insert(key, value),
            None => map.remove(&key),
        };
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

/// Simulated counterpart of the store: batches are atomic and durable in order, a sync covers all batches that wait when it starts,
/// and a crash loses an end of the unsynced ones.
#[derive(Debug, Default)]
pub struct SimStore {
    /// Contents that survive a crash.
    durable: Contents,
    /// Contents that the node sees: all batches that were handed in.
    view: Contents,
    /// Batches that were handed in and are not yet durable.
    waiting: VecDeque<(u64, Vec<Change>)>,
    /// Number of waiting batches that the sync under way covers.
    syncing: usize,
    /// Number of further calls that succeed.
    calls_left: Option<u64>,
    failed: bool,
    sealed: bool,
    exists: bool,
    /// Whether the end of the journal can be damaged: then the contents before the last sync are kept.
    fallible: bool,
    /// Former entries that the last sync changed; `None` after a later write.
    last: Option<Vec<Former>>,
    /// Whether there is a trace of a write behind the end.
    torn: bool,
}

/// Former content of an entry.
#[derive(Debug)]
enum Former {
    Meta(Bytes, Option<Bytes>),
    Record(Bytes, Option<Bytes>),
}

/// Result of handing a batch in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persist {
    /// The batch waits for the sync under way, which is followed by another.
    Waits,
    /// A sync starts now.
    Starts,
    /// This call failed: the store writes nothing any more.
    Fails,
    /// The store has failed before.
    Ignored,
}

/// Returns the same change, in no more memory than it needs: encoded bytes may take twice as much.
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

    /// Ends the sync under way. Returns the last token that is durable now, and whether another sync starts.
    pub fn synced(&mut self) -> Option<(u64, bool)> {
        if self.failed {
            return None;
        }
        let (mut last, mut formers) = (None, Vec::new());
        for _ in 0..std::mem::take(&mut self.syncing) {
            let (token, changes) = self.waiting.pop_front()?;
            for change in &changes {
                if self.fallible {
                    self.durable.formers(change, &mut formers);
                }
                self.durable.apply(change);
            }
            last = Some(token);
        }
        self.last = self.fallible.then_some(formers);
        self.syncing = self.waiting.len();
        last.map(|token| (token, self.syncing > 0))
    }

    /// Returns the record, as of all batches handed in.
    pub fn load(&self, record_key: &Bytes) -> Option<Bytes> {
        self.view.records.get(record_key).cloned()
    }

    /// Returns records from `from` on, about `bytes_max` bytes of them, and whether these are all.
    pub(crate) fn scan(&self, from: &Bytes, bytes_max: usize) -> (Vec<(Bytes, Bytes)>, bool) {
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

    /// Returns all records, as of all batches handed in.
    pub fn records(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.view.records.iter()
    }

    /// Returns the number of batches that are not durable.
    pub fn unsynced(&self) -> usize {
        self.waiting.len()
    }

    /// Stops the process or the machine dead. Of the batches that are not durable the first `kept` happen to be on disk, the rest
    /// are gone. Batches are atomic, so a torn one is a lost one.
    pub fn crash(&mut self, kept: usize) {
        if kept.min(self.waiting.len()) > 0 {
            self.last = None;
        }
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

    /// Stops the store cleanly: all batches are written, and the end is sealed.
    pub(crate) fn seal(&mut self) {
        self.crash(usize::MAX);
        (self.sealed, self.last) = (true, None);
    }

    /// Lets the end of the journal be damaged from now on.
    pub(crate) fn make_fallible(&mut self) {
        self.fallible = true;
    }

    /// Returns whether [`SimStore::lose_last`] takes durable data away.
    pub(crate) fn has_last(&self) -> bool {
        self.last.as_ref().is_some_and(|formers| !formers.is_empty())
    }

    /// After a crash: damages the data that was synced last, of which only a trace is left.
    pub(crate) fn lose_last(&mut self) {
        for former in self.last.take().into_iter().flatten().rev() {
            self.durable.restore(former);
        }
        self.view = self.durable.clone();
        self.torn = true;
    }

    /// After a crash: leaves a part of the write that was under way.
    pub(crate) fn tear(&mut self) {
        (self.torn, self.last) = (true, None);
    }

    /// Deletes all data: another disk, or the store was moved aside.
    pub(crate) fn wipe(&mut self) {
        *self = SimStore { fallible: self.fallible, ..SimStore::default() };
    }

    /// Lets the call after the next `calls` fail.
    pub(crate) fn fail_after(&mut self, calls: Option<u64>) {
        self.calls_left = calls;
    }

    /// Returns whether a call has failed since the last start.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Returns the data that is given back at start. A note that data may be missing becomes durable with it.
    pub fn open(&mut self) -> Restored {
        let tail = match (self.exists, self.sealed, self.torn) {
            (false, ..) => Tail::Empty,
            (true, _, true) => Tail::Doubtful,
            (true, true, _) => Tail::Sealed,
            (true, false, _) => Tail::Unsealed,
        };
        for change in node::doubt(&self.durable.meta, std::mem::take(&mut self.torn)) {
            self.durable.apply(&change);
            self.view.apply(&change);
        }
        self.last = None;
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
        assert_eq!(store.open().tail, Tail::Empty);
        assert_eq!(store.persist(1, put("a", "1")), Persist::Starts);
        assert_eq!(store.persist(2, put("b", "2")), Persist::Waits);
        assert_eq!(store.persist(3, put("c", "3")), Persist::Waits);
        assert_eq!(store.load(&bytes("c")), Some(bytes("3")));
        assert_eq!(store.synced(), Some((1, true)), "the sync covers what was there when it started");
        store.crash(1);
        assert_eq!(store.load(&bytes("a")), Some(bytes("1")));
        assert_eq!(store.load(&bytes("b")), Some(bytes("2")));
        assert_eq!(store.load(&bytes("c")), None);
        assert_eq!(store.open().tail, Tail::Unsealed);
        store.seal();
        assert_eq!(store.open().tail, Tail::Sealed);
        store.wipe();
        assert_eq!(store.open().tail, Tail::Empty);
    }

    #[test]
    fn the_last_sync_is_undone_where_it_went_bad() {
        let meta = |key, value| Change::PutMeta(bytes(key), bytes(value));
        let of = |store: &SimStore| store.durable.clone();
        let mut store = SimStore::default();
        store.make_fallible();
        store.persist(1, vec![meta("a", "1"), meta("b", "2"), Change::PutRecord(bytes("r"), bytes("old"))]);
        store.synced();
        let before = of(&store);
        store.persist(
            2,
            vec![
                meta("a", "3"),
                Change::PutRecord(bytes("r"), bytes("new")),
                Change::Promote { from: bytes("a"), to: bytes("b"), strip: 0 },
                Change::DropMeta(bytes("a"), bytes("c")),
                Change::DropRecord(bytes("r")),
            ],
        );
        store.synced();
        assert_ne!(of(&store), before);
        store.persist(3, put("s", "1"));
        assert!(store.has_last());
        store.crash(0);
        store.lose_last();
        assert_eq!(of(&store), before);
        assert_eq!(store.open().tail, Tail::Doubtful);
        assert_eq!(store.open().tail, Tail::Unsealed, "it was noted");
        store.persist(4, put("s", "1"));
        store.crash(1);
        assert!(!store.has_last(), "behind what is bad nothing may be sound");
        store.tear();
        assert_eq!(store.open().tail, Tail::Doubtful);
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
