//! What waits for the loop, beside what the network holds for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

use group::op::Refusal;
use node::Request;
use tokio::sync::oneshot;

use crate::admin::{Admin, LeaveError};
use crate::resp::{Backend, Rejected};
use crate::status::LeavingStatus;
use crate::store::StoreEvent;

/// Somebody wants this peer to leave, and perhaps insists; answered once that has begun.
pub type Leave = (bool, oneshot::Sender<Result<LeavingStatus, LeaveError>>);

/// Requests that wait at most; more are refused, and clients try again.
const REQUESTS_MAX: usize = 1 << 16;

/// Filled by any thread, emptied by the loop, which is woken once for all that came meanwhile.
#[derive(Default)]
pub struct Mailbox {
    requests: Mutex<Vec<Request>>,
    store: Mutex<Vec<StoreEvent>>,
    /// As many at most as the HTTP endpoint has connections.
    leaves: Mutex<Vec<Leave>>,
    stop: AtomicBool,
    ended: AtomicBool,
    /// Who is woken. Before there is a loop, the thread that prepares it.
    thread: Mutex<Option<Thread>>,
}

impl Mailbox {
    /// The calling thread empties it from now on, and is the one that is woken. It looks before it sleeps: what came
    /// earlier woke another.
    pub fn adopt(&self) {
        *lock(&self.thread) = Some(std::thread::current());
    }

    /// Something waits: so does the network's call.
    pub fn wake(&self) {
        if let Some(thread) = &*lock(&self.thread) {
            thread.unpark();
        }
    }

    /// The store says something.
    pub fn tell(&self, event: StoreEvent) {
        lock(&self.store).push(event);
        self.wake();
    }

    /// Asks the loop to hand over and stop.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    /// Was it asked to stop, since this was last asked?
    pub fn take_stop(&self) -> bool {
        self.stop.swap(false, Ordering::AcqRel)
    }

    /// Nobody empties it any more.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
        // Who waits is told by the sender's end.
        lock(&self.leaves).clear();
    }

    /// Who wants this peer to leave.
    pub fn take_leaves(&self) -> Vec<Leave> {
        std::mem::take(&mut *lock(&self.leaves))
    }

    /// Takes what waits.
    pub fn take(&self, requests: &mut Vec<Request>, events: &mut Vec<StoreEvent>) {
        std::mem::swap(&mut *lock(&self.requests), requests);
        std::mem::swap(&mut *lock(&self.store), events);
    }
}

impl Backend for Mailbox {
    fn submit(&self, mut batch: Vec<Request>) -> Result<(), Rejected> {
        if self.ended.load(Ordering::Acquire) {
            return Err(Rejected { batch, why: Refusal::Stopping });
        }
        let mut requests = lock(&self.requests);
        if requests.len() + batch.len() > REQUESTS_MAX {
            return Err(Rejected { batch, why: Refusal::Busy });
        }
        let first = requests.is_empty();
        requests.append(&mut batch);
        drop(requests);
        if first {
            self.wake();
        }
        Ok(())
    }
}

impl Admin for Mailbox {
    fn leave(&self, force: bool) -> oneshot::Receiver<Result<LeavingStatus, LeaveError>> {
        let (sender, answer) = oneshot::channel();
        let mut leaves = lock(&self.leaves);
        // Looked at under the lock: what is put in before the end is dropped by it.
        if !self.ended.load(Ordering::Acquire) {
            leaves.push((force, sender));
            drop(leaves);
            self.wake();
        }
        answer
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that can panic happens under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
