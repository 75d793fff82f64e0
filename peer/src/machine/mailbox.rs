//! The inputs that wait for a loop, beside those that the network holds for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, MutexGuard};
use std::thread::Thread;

use environment::lock;
use group::op::Refusal;
use node::{AdminOutcome, AdminRequest, LeaveMode, LeaveRefusal, LeaveStatus, Request, RingWalk};
use overlay::{GroupId, Point};
use store::StoreEvent;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use crate::resp::{Backend, Rejected};

/// Requests to a loop from the supervisor of all loops.
#[derive(Debug)]
pub enum Ask {
    /// Asks for the reason that prevents leaving, if there is one.
    MayLeave(LeaveMode, SyncSender<Option<LeaveRefusal>>),
    /// Leave. The answer is the present step of the leave.
    Leave(LeaveMode, SyncSender<Option<LeaveStatus>>),
    /// Carry out an administrator's request on a group.
    AdminRequest(GroupId, AdminRequest, UnboundedSender<AdminOutcome>),
    /// Walk along the ring from this point, to so many groups.
    RingWalk(Option<Point>, usize, oneshot::Sender<RingWalk>),
    /// End at once: another lane has ended.
    Halt,
}

/// Upper limit of waiting requests; further requests are refused, and clients try again.
const REQUESTS_MAX: usize = 1 << 16;

/// Inputs of a loop: any thread fills it, the loop empties it and is woken once for all new inputs.
#[derive(Default)]
pub(crate) struct Mailbox {
    requests: Mutex<Vec<Request>>,
    store: Mutex<Vec<StoreEvent>>,
    asks: Mutex<Vec<Ask>>,
    stop: AtomicBool,
    /// Whether the peer stops and takes no more requests. Changed under the lock of the requests.
    closed: AtomicBool,
    ended: AtomicBool,
    /// The thread to wake. Before there is a loop, the thread that prepares it.
    thread: Mutex<Option<Thread>>,
}

impl Mailbox {
    /// Makes the calling thread the one that empties the mailbox and is woken. It looks before it sleeps: earlier
    /// inputs woke another thread.
    pub(crate) fn adopt(&self) {
        *lock(&self.thread) = Some(std::thread::current());
    }

    /// Wakes the loop, because an input waits; the network calls it too.
    pub fn wake(&self) {
        if let Some(thread) = &*lock(&self.thread) {
            thread.unpark();
        }
    }

    /// Adds an event of the store.
    pub fn tell(&self, event: StoreEvent) {
        lock(&self.store).push(event);
        self.wake();
    }

    /// Asks the loop to hand over and stop. Later requests are refused; requests taken before are settled.
    pub fn stop(&self) {
        drop(self.close());
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    /// Returns whether the loop was asked to stop since the last call.
    pub(crate) fn take_stop(&self) -> bool {
        self.stop.swap(false, Ordering::AcqRel)
    }

    fn close(&self) -> MutexGuard<'_, Vec<Request>> {
        let requests = lock(&self.requests);
        self.closed.store(true, Ordering::Release);
        requests
    }

    /// Ends the mailbox, which no loop empties any more, and returns the requests that were not taken.
    pub fn end(&self) -> Vec<Request> {
        let left = std::mem::take(&mut *self.close());
        self.ended.store(true, Ordering::Release);
        // The end of the sender tells the waiting callers.
        lock(&self.asks).clear();
        left
    }

    /// Asks the loop. After its end no loop answers.
    pub fn ask(&self, ask: Ask) {
        let mut asks = lock(&self.asks);
        // Checked under the lock: an entry that is added before the end is dropped by it.
        if !self.ended.load(Ordering::Acquire) {
            asks.push(ask);
            drop(asks);
            self.wake();
        }
    }

    /// Takes the waiting asks.
    pub(crate) fn take_asks(&self) -> Vec<Ask> {
        std::mem::take(&mut *lock(&self.asks))
    }

    /// Returns the reason for which `count` more requests would be refused now, if they would be.
    pub fn refuses(&self, count: usize) -> Option<Refusal> {
        self.refuses_in_all(lock(&self.requests).len() + count)
    }

    fn refuses_in_all(&self, count: usize) -> Option<Refusal> {
        if self.closed.load(Ordering::Acquire) {
            return Some(Refusal::Stopping);
        }
        (count > REQUESTS_MAX).then_some(Refusal::Busy)
    }

    /// Takes a batch in, also where too many requests wait.
    ///
    /// # Errors
    /// The peer stops: returns the batch.
    pub fn put(&self, batch: Vec<Request>) -> Result<(), Vec<Request>> {
        let requests = lock(&self.requests);
        if self.closed.load(Ordering::Acquire) {
            return Err(batch);
        }
        self.add(requests, batch);
        Ok(())
    }

    fn add(&self, mut requests: MutexGuard<'_, Vec<Request>>, mut batch: Vec<Request>) {
        let first = requests.is_empty();
        requests.append(&mut batch);
        drop(requests);
        if first {
            self.wake();
        }
    }

    /// Takes the waiting requests and events.
    pub fn take(&self, requests: &mut Vec<Request>, events: &mut Vec<StoreEvent>) {
        std::mem::swap(&mut *lock(&self.requests), requests);
        std::mem::swap(&mut *lock(&self.store), events);
    }
}

impl Backend for Mailbox {
    fn submit(&self, batch: Vec<Request>) -> Result<(), Rejected> {
        let requests = lock(&self.requests);
        if let Some(why) = self.refuses_in_all(requests.len() + batch.len()) {
            return Err(Rejected { batch, why });
        }
        self.add(requests, batch);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use group::op::{Op, Read, ReadMode};
    use node::{ConnectionId, RequestId};
    use overlay::Key;

    use super::*;

    fn request(id: u64) -> Request {
        Request {
            id: RequestId(id),
            connection: ConnectionId(1),
            key: Key::new(b"k").unwrap(),
            op: Op::Read(Read::Exists),
            mode: ReadMode::Linearizable,
            patience: Duration::from_secs(1),
            once: None,
        }
    }

    fn ids(requests: &[Request]) -> Vec<u64> {
        requests.iter().map(|request| request.id.0).collect()
    }

    #[test]
    fn every_request_is_taken_given_back_or_left() {
        let mailbox = Mailbox::default();
        assert!(mailbox.submit(vec![request(1)]).is_ok());
        mailbox.stop();
        let rejected = mailbox.submit(vec![request(2)]).unwrap_err();
        assert_eq!((ids(&rejected.batch), rejected.why), (vec![2], Refusal::Stopping));
        assert_eq!(ids(&mailbox.put(vec![request(3)]).unwrap_err()), [3]);
        // Requests from before the stop are the loop's to settle, or are left over at its end.
        assert_eq!(ids(&mailbox.end()), [1]);
        assert_eq!(ids(&mailbox.put(vec![request(4)]).unwrap_err()), [4]);
        assert!(mailbox.end().is_empty());
    }
}
