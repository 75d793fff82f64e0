//! Interface between client connections and the loop that drives the node.
//!
//! Requests go one way in batches, one batch for each read of a connection. Answers come back in batches, one for each
//! connection that a drained loop has answers for. Per operation there is no task, no oneshot, no lock and no wake-up.
//!
//! ```text
//! connection --Backend::submit(Vec<Request>)--> loop thread: Node::handle(Input::Routecast) …
//! connection <--Inbox-- Replies::flush() <-- Replies::push(id, result) for each Output::Reply
//! ```

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use group::op::{Answer, OpError, Refusal};
use node::{ConnectionId, Request, RequestId};
use tokio::sync::Notify;

/// Receiver of the connections' requests.
pub trait Backend: Send + Sync + 'static {
    /// Submits requests, in order. Each is answered by exactly one [`Replies::push`] with its id.
    ///
    /// Must not block.
    ///
    /// # Errors
    /// Requests that were not accepted: they had no effect, and get no other answer.
    fn submit(&self, batch: Vec<Request>) -> Result<(), Rejected>;
}

/// Requests that were not accepted.
#[derive(Debug)]
pub struct Rejected {
    /// All requests of the batch, or those of a lane that was just told to stop.
    pub batch: Vec<Request>,
    /// Reason for the clients.
    pub why: Refusal,
}

/// Outcome of one request.
pub type RequestOutcome = (RequestId, Result<Answer, OpError>);

/// Request ids that a connection gets at a time: an answer finds its connection by its block of ids.
const BLOCK: u64 = 1 << 20;

/// Routes answers to the connections that wait for them.
#[derive(Debug, Default)]
pub struct Router {
    inboxes: Mutex<HashMap<u64, Arc<AnswerInbox>>>,
    /// Number of the next block. Blocks are never given out twice, so no id is reused while the process lives.
    next_block: AtomicU64,
    next_connection: AtomicU64,
}

/// Answers that wait for one connection. Never more than its open requests.
#[derive(Debug, Default)]
pub(crate) struct AnswerInbox {
    outcomes: Mutex<Vec<RequestOutcome>>,
    arrived: Notify,
}

/// The loop thread's side: collects answers, and wakes each connection once.
#[derive(Debug)]
pub struct Replies {
    router: Arc<Router>,
    blocks: HashMap<u64, Vec<RequestOutcome>>,
    touched: Vec<u64>,
}

/// A connection's side: its ids and its inbox.
#[derive(Debug)]
pub struct Line {
    router: Arc<Router>,
    inbox: Arc<AnswerInbox>,
    connection: ConnectionId,
    /// The block in use, and the one before it, whose last answers may still be under way.
    blocks: [Option<u64>; 2],
    next: u64,
    end: u64,
}

impl Router {
    /// Returns a router without connections.
    pub fn new() -> Arc<Router> {
        Arc::new(Router { next_connection: AtomicU64::new(1), ..Router::default() })
    }

    /// Returns the loop's side.
    pub fn replies(self: &Arc<Router>) -> Replies {
        Replies { router: self.clone(), blocks: HashMap::new(), touched: Vec::new() }
    }

    /// Returns a new connection's side.
    pub fn connect(self: &Arc<Router>) -> Line {
        Line {
            router: self.clone(),
            inbox: Arc::default(),
            connection: ConnectionId(self.next_connection.fetch_add(1, Ordering::Relaxed)),
            blocks: [None, None],
            next: 0,
            end: 0,
        }
    }

    fn inboxes(&self) -> MutexGuard<'_, HashMap<u64, Arc<AnswerInbox>>> {
        // No code under this lock can panic.
        self.inboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Replies {
    /// Takes one answer. The next [`Replies::flush`] delivers it.
    pub fn push(&mut self, id: RequestId, result: Result<Answer, OpError>) {
        let block = id.0 / BLOCK;
        let outcomes = self.blocks.entry(block).or_default();
        if outcomes.is_empty() {
            self.touched.push(block);
        }
        outcomes.push((id, result));
    }

    /// Delivers the pushed answers. Call once after each drained batch, not once for each answer.
    pub fn flush(&mut self) {
        if self.touched.is_empty() {
            return;
        }
        let inboxes = self.router.inboxes();
        for block in self.touched.drain(..) {
            let (Some(outcomes), Some(inbox)) = (self.blocks.get_mut(&block), inboxes.get(&block)) else {
                // The connection is gone, and no client waits.
                self.blocks.remove(&block);
                continue;
            };
            inbox.lock().append(outcomes);
            inbox.arrived.notify_one();
        }
        // Blocks come and go with connections; only capacity stays here.
        if self.blocks.len() > 2 * inboxes.len() + 64 {
            self.blocks.retain(|block, _| inboxes.contains_key(block));
        }
    }
}

impl AnswerInbox {
    fn lock(&self) -> MutexGuard<'_, Vec<RequestOutcome>> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// Returns the connection's id for the node.
    pub fn connection(&self) -> ConnectionId {
        self.connection
    }

    /// Returns the first of `count` consecutive ids; later ids are always greater.
    pub fn ids(&mut self, count: u64) -> RequestId {
        debug_assert!(count <= BLOCK, "no command has so many keys");
        if self.end - self.next < count {
            let block = self.router.next_block.fetch_add(1, Ordering::Relaxed);
            let mut inboxes = self.router.inboxes();
            inboxes.insert(block, self.inbox.clone());
            if let Some(oldest) = self.blocks[1].replace(block)
                && let Some(older) = self.blocks[0].replace(oldest)
            {
                inboxes.remove(&older);
            }
            (self.next, self.end) = (block * BLOCK, (block + 1) * BLOCK);
        }
        let first = self.next;
        self.next += count;
        RequestId(first)
    }

    /// Moves the arrived answers into `into`.
    pub fn take(&self, into: &mut Vec<RequestOutcome>) {
        let mut outcomes = self.inbox.lock();
        if into.is_empty() {
            std::mem::swap(&mut *outcomes, into);
        } else {
            into.append(&mut outcomes);
        }
    }

    /// Returns when answers may have arrived since the last time.
    pub(crate) async fn arrived(&self) {
        self.inbox.arrived.notified().await;
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let mut inboxes = self.router.inboxes();
        for block in self.blocks.into_iter().flatten() {
            inboxes.remove(&block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_find_their_connection() {
        let router = Router::new();
        let mut replies = router.replies();
        let (mut a, mut b) = (router.connect(), router.connect());
        let (first, second) = (a.ids(2), b.ids(1));
        replies.push(second, Ok(Answer::Done));
        replies.push(RequestId(first.0 + 1), Ok(Answer::NotMet));
        replies.push(first, Err(OpError::Uncertain));
        let mut got = Vec::new();
        a.take(&mut got);
        assert!(got.is_empty(), "nothing before the flush");
        replies.flush();
        a.take(&mut got);
        assert_eq!(got, [(RequestId(first.0 + 1), Ok(Answer::NotMet)), (first, Err(OpError::Uncertain))]);
        got.clear();
        b.take(&mut got);
        assert_eq!(got, [(second, Ok(Answer::Done))]);
    }

    #[test]
    fn ids_rise_and_are_never_reused() {
        let router = Router::new();
        let mut line = router.connect();
        let mut other = router.connect();
        let mut last = 0;
        for _ in 0..5 {
            let first = line.ids(BLOCK - 1).0;
            assert!(first >= last);
            last = first + BLOCK - 1;
            let theirs = other.ids(1).0;
            assert_ne!(theirs / BLOCK, first / BLOCK);
        }
        assert_eq!(router.inboxes().len(), 3, "two blocks of one, one of the other");
        drop(line);
        drop(other);
        assert!(router.inboxes().is_empty());
    }

    #[test]
    fn answers_to_nobody_are_dropped() {
        let router = Router::new();
        let mut replies = router.replies();
        let id = router.connect().ids(1);
        replies.push(id, Ok(Answer::Done));
        replies.flush();
        assert!(replies.blocks.is_empty());
    }
}
