//! What waits for a loop, beside what the network holds for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard};
use std::thread::Thread;

use group::op::Refusal;
use node::{Granted, LeaveRefusal, LeaveStatus, Request, Survey, Wish};
use overlay::{GroupId, Point};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use crate::lock::lock;
use crate::resp::{Backend, Rejected};
use crate::store::StoreEvent;

/// What is asked of a loop by who sees to all of them.
#[derive(Debug)]
pub enum Ask {
    /// What stands against leaving, if one perhaps insists.
    MayLeave(bool, Sender<Option<LeaveRefusal>>),
    /// Leave, and perhaps insist: what that waits for now.
    Leave(bool, Sender<Option<LeaveStatus>>),
    /// Have a group become another.
    Wish(GroupId, Wish, UnboundedSender<Granted>),
    /// Walk along the ring, from there on to so many groups.
    Survey(Option<Point>, usize, oneshot::Sender<Survey>),
    /// End at once: another lane has.
    Halt,
}

/// Requests that wait at most; more are refused, and clients try again.
const REQUESTS_MAX: usize = 1 << 16;

/// Filled by any thread, emptied by the loop, which is woken once for all that came meanwhile.
#[derive(Default)]
pub struct Mailbox {
    requests: Mutex<Vec<Request>>,
    store: Mutex<Vec<StoreEvent>>,
    asks: Mutex<Vec<Ask>>,
    stop: AtomicBool,
    /// The peer stops: no more requests are taken. Changed under the lock of the requests.
    closed: AtomicBool,
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

    /// Asks the loop to hand over and stop. Requests that come from now on are refused; those taken before are settled.
    pub fn stop(&self) {
        drop(self.close());
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    /// Was it asked to stop, since this was last asked?
    pub fn take_stop(&self) -> bool {
        self.stop.swap(false, Ordering::AcqRel)
    }

    fn close(&self) -> MutexGuard<'_, Vec<Request>> {
        let requests = lock(&self.requests);
        self.closed.store(true, Ordering::Release);
        requests
    }

    /// Nobody empties it any more: the requests that nobody took.
    pub fn end(&self) -> Vec<Request> {
        let left = std::mem::take(&mut *self.close());
        self.ended.store(true, Ordering::Release);
        // Who waits is told by the sender's end.
        lock(&self.asks).clear();
        left
    }

    /// Asks the loop. After its end nobody answers.
    pub fn ask(&self, ask: Ask) {
        let mut asks = lock(&self.asks);
        // Looked at under the lock: what is put in before the end is dropped by it.
        if !self.ended.load(Ordering::Acquire) {
            asks.push(ask);
            drop(asks);
            self.wake();
        }
    }

    /// What it is asked.
    pub fn take_asks(&self) -> Vec<Ask> {
        std::mem::take(&mut *lock(&self.asks))
    }

    /// Why so many requests would not be taken now, if they would not.
    pub fn refuses(&self, count: usize) -> Option<Refusal> {
        self.refuses_in_all(lock(&self.requests).len() + count)
    }

    fn refuses_in_all(&self, count: usize) -> Option<Refusal> {
        if self.closed.load(Ordering::Acquire) {
            return Some(Refusal::Stopping);
        }
        (count > REQUESTS_MAX).then_some(Refusal::Busy)
    }

    /// Takes them in, also where too many wait; gives them back where the peer stops.
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

    /// Takes what waits.
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
        // What came before the stop is the loop's to settle, or is left over at its end.
        assert_eq!(ids(&mailbox.end()), [1]);
        assert_eq!(ids(&mailbox.put(vec![request(4)]).unwrap_err()), [4]);
        assert!(mailbox.end().is_empty());
    }
}
