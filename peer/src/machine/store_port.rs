//! The store as the loop of one lane holds it.

use std::sync::{Arc, Mutex, PoisonError};

use node::Output;

use store::{StoreStats, StoreThread};

/// The store that the lanes of a peer share. The holder of the lock hands in all its outputs, and releases it.
pub(crate) type SharedStore = Arc<Mutex<StoreThread>>;

/// The port of one lane to the store; see the module.
pub(crate) struct StorePort {
    lane: u8,
    store: SharedStore,
    waiting: Vec<Output>,
    watch: Box<dyn Fn() -> StoreStats + Send>,
}

impl StorePort {
    /// Creates the port of a lane.
    pub fn new(lane: u8, store: SharedStore) -> StorePort {
        let watch = Box::new(store.lock().unwrap_or_else(PoisonError::into_inner).watch());
        StorePort { lane, store, waiting: Vec::new(), watch }
    }

    /// Returns the store's counters.
    pub(crate) fn stats(&self) -> StoreStats {
        (self.watch)()
    }

    /// Takes an output for the store; [`StorePort::flush`] hands it in.
    pub fn push(&mut self, output: Output) {
        self.waiting.push(output);
    }

    /// Hands all outputs in, in order, with one wake-up for all of them. Waits if the store is far behind.
    pub fn flush(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        for output in self.waiting.drain(..) {
            match output {
                Output::Persist { token, changes } => store.persist(self.lane, token, changes),
                Output::Load { record_key, urgent } => store.load(self.lane, record_key, urgent),
                Output::Scan { token, from, bytes_max } => store.scan(self.lane, token, from, bytes_max),
                other => unreachable!("{other:?} is not for the store"),
            }
        }
        store.submit();
    }
}
