//! Makes the writes of sled durable in their order.
//!
//! sled 0.34.7 takes a buffer of its log for durable once `sync_file_range` has returned. It then reuses, or cuts off the end of its
//! file, the segments whose pages that buffer replaces. On Linux that call writes neither the file's length and its block map nor the
//! disk's own cache, so a power cut could leave the old pages overwritten and the new ones lost. On other systems sled calls `fsync`
//! here, and its order holds.
//!
//! Therefore this program defines `sync_file_range` itself, which the linker prefers to the C library's: it is `fdatasync`, which also
//! makes the length and the block map durable. No other code of the program calls it.

use std::ffi::{c_int, c_uint};
#[cfg(test)]
use std::sync::atomic::{AtomicU64, Ordering};

/// Calls so far.
#[cfg(test)]
static CALLS: AtomicU64 = AtomicU64::new(0);

/// Returns how often sled has synced a buffer in this process.
#[cfg(test)]
pub(crate) fn calls() -> u64 {
    CALLS.load(Ordering::Relaxed)
}

/// The signature of the C library's function of this name.
#[unsafe(no_mangle)]
extern "C" fn sync_file_range(file: c_int, _offset: i64, _bytes: i64, _flags: c_uint) -> c_int {
    #[cfg(test)]
    CALLS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: fdatasync takes any number, and fails where it is no open file. Where it fails it sets `errno`, which sled reads.
    unsafe { libc::fdatasync(file) }
}

/// Keeps the function above in the program: the linker leaves out unreferenced code.
pub(crate) fn keep() {
    let here: extern "C" fn(c_int, i64, i64, c_uint) -> c_int = sync_file_range;
    std::hint::black_box(here);
}
