//! The queue of reads from the store: first the urgent ones, then the rest.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};

use bytes::Bytes;

use environment::lock;

/// Upper limit of waiting loads and scans, of each kind.
const READS_MAX: usize = 4096;
/// Number of urgent reads after which one other read is taken: it must not wait for ever.
const TURN: u32 = 8;

/// A load or a scan.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// A load of one record.
    Load { lane: u8, record_key: Bytes },
    /// A scan of one page of records.
    Scan { lane: u8, token: u64, from: Bytes, bytes_max: usize },
}

/// A queue between the loop and the reader's thread.
#[derive(Default)]
pub(crate) struct Reads {
    queues: Mutex<Queues>,
    work: Condvar,
    room: Condvar,
}

#[derive(Default)]
struct Queues {
    urgent: VecDeque<Read>,
    others: VecDeque<Read>,
    /// Number of urgent reads taken in a row.
    row: u32,
    ended: bool,
}

impl Reads {
    /// Hands one read in. Waits while there are too many of its kind.
    pub(crate) fn push(&self, read: Read, urgent: bool) {
        fn queue(queues: &mut Queues, urgent: bool) -> &mut VecDeque<Read> {
            if urgent { &mut queues.urgent } else { &mut queues.others }
        }
        let full = |queues: &mut Queues| !queues.ended && queue(queues, urgent).len() >= READS_MAX;
        let waited = self.room.wait_while(self.queues(), full);
        queue(&mut waited.unwrap_or_else(|poisoned| poisoned.into_inner()), urgent).push_back(read);
        self.work.notify_one();
    }

    /// Returns the queue's reading end. Once that is dropped no caller waits for room in vain.
    pub(crate) fn reader(&self) -> ReadsReceiver<'_> {
        ReadsReceiver(self)
    }

    fn pop(&self) -> Option<Read> {
        let idle = |queues: &mut Queues| !queues.ended && queues.urgent.is_empty() && queues.others.is_empty();
        let waited = self.work.wait_while(self.queues(), idle);
        let mut queues = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        if queues.ended {
            return None;
        }
        let next = if queues.row >= TURN { None } else { queues.urgent.pop_front() };
        queues.row = if next.is_some() { queues.row + 1 } else { 0 };
        let next = next.or_else(|| queues.others.pop_front()).or_else(|| queues.urgent.pop_front());
        self.room.notify_all();
        next
    }

    /// Ends all waiting.
    pub(crate) fn end(&self) {
        self.queues().ended = true;
        self.work.notify_all();
        self.room.notify_all();
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        // No code panics under this lock, apart from running out of memory, which ends the process.
        lock(&self.queues)
    }
}

/// The reading end of the queue.
pub(crate) struct ReadsReceiver<'a>(&'a Reads);

impl ReadsReceiver<'_> {
    /// Takes the next read, and waits for it. Returns `None` once the queue has ended.
    pub(crate) fn pop(&self) -> Option<Read> {
        self.0.pop()
    }
}

impl Drop for ReadsReceiver<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(name: &'static str) -> Read {
        Read::Load { lane: 0, record_key: Bytes::from_static(name.as_bytes()) }
    }

    #[test]
    fn who_is_waited_for_comes_first_and_the_others_come_in_the_end() {
        let reads = Reads::default();
        reads.push(load("copy"), false);
        reads.push(Read::Scan { lane: 0, token: 1, from: Bytes::new(), bytes_max: 1 }, false);
        (0..2 * TURN).for_each(|_| reads.push(load("client"), true));
        let taken: Vec<Read> = (0..2 * TURN + 2).filter_map(|_| reads.pop()).collect();
        let places: Vec<usize> = (0..taken.len()).filter(|place| taken[*place] != load("client")).collect();
        assert_eq!(places, [TURN as usize, 2 * TURN as usize + 1]);
        assert_eq!(taken[places[0]], load("copy"));
        reads.end();
        assert_eq!(reads.pop(), None);
    }

    #[test]
    fn whoever_waits_for_room_is_let_go_at_the_end() {
        let reads = Reads::default();
        (0..READS_MAX).for_each(|_| reads.push(load("a"), true));
        reads.push(load("b"), false);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| reads.push(load("a"), true));
            drop(reads.reader());
            waits.join().expect("it comes back");
        });
    }
}
