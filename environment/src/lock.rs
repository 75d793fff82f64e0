//! Locks without poisoning.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock. The guarded data is valid between any two statements, so the panic of another holder is ignored.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
