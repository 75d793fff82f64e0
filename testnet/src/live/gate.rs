//! How many clusters run side by side in one process: tests that mostly wait share a machine, those that would only measure how
//! busy it is do not.

use std::sync::{Condvar, Mutex, PoisonError};

/// Places for clusters.
const PLACES: usize = 2;
/// A cluster with more daemons takes all places.
const SMALL_MAX: usize = 5;

static TAKEN: Mutex<usize> = Mutex::new(0);
static LEFT: Condvar = Condvar::new();

/// The places of one cluster, free again when this is dropped.
#[derive(Debug)]
pub(super) struct Places(usize);

impl Places {
    /// Waits until there is room for a cluster of so many daemons.
    pub(super) fn wait(daemons: usize) -> Places {
        let wanted = if daemons > SMALL_MAX { PLACES } else { 1 };
        let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken =
            LEFT.wait_while(taken, |taken| *taken + wanted > PLACES).unwrap_or_else(PoisonError::into_inner);
        *taken += wanted;
        Places(wanted)
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) -= self.0;
        LEFT.notify_all();
    }
}
