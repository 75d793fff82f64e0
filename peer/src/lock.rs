//! Taking a lock, whatever became of whoever held it last.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock. What is guarded so holds between any two statements, so the panic of another holder is no reason for one's own.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
