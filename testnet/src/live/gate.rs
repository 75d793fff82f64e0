//! Limit of the clusters that run side by side in one process. Tests that mostly wait share a machine; tests that would measure the
//! load of other tests do not.

use std::sync::{Condvar, Mutex, PoisonError};

/// Number of permits for clusters.
const PERMITS: usize = 2;
/// Number of daemons above which a cluster takes all permits.
const SMALL_MAX: usize = 5;

static TAKEN: Mutex<usize> = Mutex::new(0);
static LEFT: Condvar = Condvar::new();

/// Permits of one cluster, free again when this is dropped.
#[derive(Debug)]
pub(super) struct ClusterPermits(usize);

impl ClusterPermits {
    /// Waits until there is room for a cluster of `daemons` daemons.
    pub(super) fn wait(daemons: usize) -> ClusterPermits {
        let wanted = if daemons > SMALL_MAX { PERMITS } else { 1 };
        let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken =
            LEFT.wait_while(taken, |taken| *taken + wanted > PERMITS).unwrap_or_else(PoisonError::into_inner);
        *taken += wanted;
        ClusterPermits(wanted)
    }
}

impl Drop for ClusterPermits {
    fn drop(&mut self) {
        *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) -= self.0;
        LEFT.notify_all();
    }
}
