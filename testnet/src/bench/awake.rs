//! Keeps all cores awake during a measurement, without taking them from other threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, available_parallelism, spawn};

/// Guard that keeps cores awake until it is dropped.
pub struct Awake {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// Starts a thread for each core that spins whenever no other thread wants to run there.
pub fn keep_awake() -> Awake {
    let stop = Arc::new(AtomicBool::new(false));
    let cores = available_parallelism().map_or(1, usize::from);
    let threads = (0..cores).map(|_| {
        let stop = stop.clone();
        spawn(move || {
            if behind_all_others() {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }
        })
    });
    Awake { threads: threads.collect(), stop }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Lets this thread run only when no other thread wants to. Returns whether that could be arranged.
fn behind_all_others() -> bool {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: all bytes zero are a valid sched_param, the only priority that SCHED_IDLE takes.
        let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
        // SAFETY: 0 is the calling thread; the kernel reads `parameters`, which outlives the call.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameters) == 0 }
    }
    #[cfg(not(target_os = "linux"))]
    false
}
