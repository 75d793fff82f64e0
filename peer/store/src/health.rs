//! Whether a store can still be relied on. A failed store never recovers.

use std::sync::{Arc, OnceLock};

use crate::disk::Disk;
use crate::error::StoreError;

/// Name of the file that tells the next start that this store is damaged.
pub(crate) const DAMAGED: &str = "damaged";

/// State of a store's failure, shared by all parts that work on the store.
pub(crate) struct Health {
    disk: Arc<dyn Disk>,
    failed: OnceLock<StoreError>,
}

impl Health {
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Health {
        Health { disk, failed: OnceLock::new() }
    }

    /// Returns the first error, for ever.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.failed.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Passes a result on; an error ends this store. The caller gets the first error that occurred.
    pub(crate) fn note<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        result.map_err(|error| {
            if self.failed.set(error.clone()).is_ok() {
                tracing::error!(%error, "the store failed");
                if error.is_damage() {
                    self.mark(&error);
                }
            }
            self.failed.get().cloned().unwrap_or(error)
        })
    }

    /// Notes the damage for the next start. If even that fails, the next start finds the damage as this one did.
    fn mark(&self, error: &StoreError) {
        let written = self.disk.create(DAMAGED).and_then(|mut file| {
            file.write_at(0, error.to_string().as_bytes())?;
            file.sync()?;
            self.disk.sync_dir()
        });
        if let Err(error) = written {
            tracing::warn!(%error, "the damage could not be recorded");
        }
    }
}
