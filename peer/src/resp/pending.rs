//! Commands of one connection that wait for their answers, in the order in which they are to be answered.
//!
//! Requests complete in any order; answers go out in the order of the commands. One command may have a request for each
//! of its keys. An answer that comes after its command was given up is ignored.

use std::collections::VecDeque;
use std::time::Instant;

use group::op::{Answer, OpError};
use node::RequestId;

use super::join::Join;
use super::reply::{Protocol, Reply};

/// One command in the queue.
#[derive(Debug)]
struct Slot {
    /// The id of its first request; those of its other keys follow.
    first: u64,
    /// The protocol that the connection spoke when it was asked.
    protocol: Protocol,
    /// When it has to be answered.
    due: Instant,
    /// The node was asked.
    asked: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Can be answered.
    Ready(Reply),
    /// One request, which is under way.
    One(Join),
    /// Several requests, of which `missing` are under way.
    Several {
        join: Join,
        results: Vec<Option<Result<Answer, OpError>>>,
        missing: usize,
    },
}

/// The queue.
#[derive(Debug, Default)]
pub struct Pending {
    slots: VecDeque<Slot>,
    /// Requests that belong to the commands in the queue.
    requests: usize,
}

impl Pending {
    /// Commands in the queue.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Requests of the commands in the queue.
    pub fn requests(&self) -> usize {
        self.requests
    }

    /// When the first command has to be answered, if it cannot be yet. Later ones never have to be earlier.
    pub fn due(&self) -> Option<Instant> {
        self.slots
            .front()
            .filter(|slot| !matches!(slot.state, State::Ready(_)))
            .map(|slot| slot.due)
    }

    /// Adds a command whose answer is known.
    pub fn push_ready(&mut self, reply: Reply, protocol: Protocol, due: Instant) {
        let first = self.slots.back().map_or(0, Slot::end);
        self.slots.push_back(Slot {
            first,
            protocol,
            due,
            asked: false,
            state: State::Ready(reply),
        });
    }

    /// Adds a command with `count` requests, at least one, numbered from `first` on; ids only rise.
    pub fn push_requests(
        &mut self,
        first: RequestId,
        count: usize,
        join: Join,
        protocol: Protocol,
        due: Instant,
    ) {
        debug_assert!(count > 0 && self.slots.back().is_none_or(|last| last.end() <= first.0));
        self.requests += count;
        let state = match count {
            1 => State::One(join),
            _ => State::Several {
                join,
                results: vec![None; count],
                missing: count,
            },
        };
        self.slots.push_back(Slot {
            first: first.0,
            protocol,
            due,
            asked: true,
            state,
        });
    }

    /// Takes the answer to one request.
    pub fn complete(&mut self, id: RequestId, result: Result<Answer, OpError>) {
        // The last slot that begins at or before the id: commands without requests share the number of the next one.
        let behind = self.slots.partition_point(|slot| slot.first <= id.0);
        let Some(slot) = behind
            .checked_sub(1)
            .and_then(|index| self.slots.get_mut(index))
        else {
            return;
        };
        let part = (id.0 - slot.first) as usize;
        match &mut slot.state {
            State::One(join) if part == 0 => {
                self.requests -= 1;
                slot.state = State::Ready(join.one(result));
            }
            State::Several {
                join,
                results,
                missing,
            } => {
                let Some(place @ None) = results.get_mut(part) else {
                    return;
                };
                *place = Some(result);
                *missing -= 1;
                if *missing == 0 {
                    self.requests -= results.len();
                    let results: Vec<_> = results.drain(..).flatten().collect();
                    slot.state = State::Ready(join.several(results));
                }
            }
            // Given up before, or of a command that has left the queue.
            State::Ready(_) | State::One(_) => {}
        }
    }

    /// Gives up commands that are due: a request without an answer counts as one whose outcome is unknown.
    pub fn expire(&mut self, now: Instant) -> usize {
        let mut expired = 0;
        for slot in &mut self.slots {
            if slot.due > now {
                break;
            }
            match &mut slot.state {
                State::Ready(_) => continue,
                State::One(join) => {
                    self.requests -= 1;
                    slot.state = State::Ready(join.one(Err(OpError::Uncertain)));
                }
                State::Several { join, results, .. } => {
                    self.requests -= results.len();
                    let results = results
                        .drain(..)
                        .map(|result| result.unwrap_or(Err(OpError::Uncertain)))
                        .collect();
                    slot.state = State::Ready(join.several(results));
                }
            }
            expired += 1;
        }
        expired
    }

    /// The next answer, if the first command has one: what it is, how to write it, when it had been due, and whether the
    /// node was asked for it.
    pub fn pop(&mut self) -> Option<(Reply, Protocol, Instant, bool)> {
        if !matches!(self.slots.front()?.state, State::Ready(_)) {
            return None;
        }
        match self.slots.pop_front()? {
            Slot {
                state: State::Ready(reply),
                protocol,
                due,
                asked,
                ..
            } => Some((reply, protocol, due, asked)),
            _ => None,
        }
    }
}

impl Slot {
    /// The id behind its last request, as far as that is known.
    fn end(&self) -> u64 {
        match &self.state {
            State::Ready(_) => self.first,
            State::One(_) => self.first + 1,
            State::Several { results, .. } => self.first + results.len() as u64,
        }
    }
}
