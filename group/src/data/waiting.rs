//! Reads of this member's own records that wait until these are loaded.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use overlay::Key;

/// Waiting reads by key, those of one key in the order of their arrival.
#[derive(Clone, Debug)]
pub(crate) struct Waiting<T> {
    by_key: BTreeMap<Key, Vec<T>>,
    count: usize,
}

impl<T> Default for Waiting<T> {
    fn default() -> Waiting<T> {
        Waiting { by_key: BTreeMap::new(), count: 0 }
    }
}

impl<T> Waiting<T> {
    /// Returns the number of waiting reads.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Adds a read.
    pub(crate) fn wait(&mut self, key: Key, read: T) {
        self.count += 1;
        self.by_key.entry(key).or_default().push(read);
    }

    /// Removes and returns the reads that wait for this key's record.
    pub(crate) fn take(&mut self, key: &Key) -> Vec<T> {
        let taken = self.by_key.remove(key).unwrap_or_default();
        self.count -= taken.len();
        taken
    }

    /// Removes and returns all waiting reads.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        core::mem::take(self).by_key.into_values().flatten()
    }
}
