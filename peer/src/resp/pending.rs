//! Commands of one connection that wait for their answers, in the order of the answers.
//!
//! Requests complete in any order; answers go out in the order of the commands. One command may have a request for each of
//! its keys. An answer that comes after its command was given up is ignored.

use std::collections::VecDeque;
use std::time::Instant;

use group::op::{Answer, OpError};
use node::RequestId;

use super::join::Join;
use super::reply::{Protocol, Reply};

/// One command in the queue.
#[derive(Debug)]
struct CommandSlot {
    /// Id of the first request; those of the other keys follow.
    first: u64,
    /// Protocol of the connection when the command came.
    protocol: Protocol,
    /// Deadline of the answer.
    due: Instant,
    /// Whether the command has requests to the node.
    asked: bool,
    state: CommandState,
}

#[derive(Debug)]
enum CommandState {
    /// The answer is known.
    Ready(Reply),
    /// One request, which is under way.
    One(Join),
    /// Several requests, of which `missing` are under way.
    Several { join: Join, results: Vec<Option<Result<Answer, OpError>>>, missing: usize },
}

/// Queue of the commands of one connection.
#[derive(Debug, Default)]
pub(crate) struct PendingCommands {
    slots: VecDeque<CommandSlot>,
    /// Number of requests that belong to the commands in the queue.
    requests: usize,
}

impl PendingCommands {
    /// Returns the number of commands in the queue.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the number of requests of the commands in the queue.
    pub fn requests(&self) -> usize {
        self.requests
    }

    /// Returns the deadline of the first command, if it has no answer yet. Later commands never have an earlier one.
    pub fn due(&self) -> Option<Instant> {
        self.slots.front().filter(|slot| !matches!(slot.state, CommandState::Ready(_))).map(|slot| slot.due)
    }

    /// Returns whether [`PendingCommands::pop`] has an answer.
    pub(crate) fn is_next_ready(&self) -> bool {
        self.slots.front().is_some_and(|slot| matches!(slot.state, CommandState::Ready(_)))
    }

    /// Adds a command with a known answer.
    pub(crate) fn push_ready(&mut self, reply: Reply, protocol: Protocol, due: Instant) {
        let first = self.slots.back().map_or(0, CommandSlot::end);
        self.slots.push_back(CommandSlot { first, protocol, due, asked: false, state: CommandState::Ready(reply) });
    }

    /// Adds a command with `count` requests, at least one, numbered from `first` on; ids only rise.
    pub(crate) fn push_requests(
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
            1 => CommandState::One(join),
            _ => CommandState::Several { join, results: vec![None; count], missing: count },
        };
        self.slots.push_back(CommandSlot { first: first.0, protocol, due, asked: true, state });
    }

    /// Takes the answer to one request.
    pub fn complete(&mut self, id: RequestId, result: Result<Answer, OpError>) {
        // The last slot that begins at or before the id: commands without requests share the number of the next one.
        let behind = self.slots.partition_point(|slot| slot.first <= id.0);
        let Some(slot) = behind.checked_sub(1).and_then(|index| self.slots.get_mut(index)) else {
            return;
        };
        let part = (id.0 - slot.first) as usize;
        match &mut slot.state {
            CommandState::One(join) if part == 0 => {
                self.requests -= 1;
                slot.state = CommandState::Ready(join.one(result));
            }
            CommandState::Several { join, results, missing } => {
                let Some(place @ None) = results.get_mut(part) else {
                    return;
                };
                *place = Some(result);
                *missing -= 1;
                if *missing == 0 {
                    self.requests -= results.len();
                    let results: Vec<_> = results.drain(..).flatten().collect();
                    slot.state = CommandState::Ready(join.several(results));
                }
            }
            // Given up before, or of a command that has left the queue.
            CommandState::Ready(_) | CommandState::One(_) => {}
        }
    }

    /// Gives up commands that are due: a request without an answer counts as one with an unknown outcome. Returns their
    /// number.
    pub fn expire(&mut self, now: Instant) -> usize {
        self.give_up_while(|slot| slot.due <= now)
    }

    /// Gives up all commands, as [`PendingCommands::expire`] does.
    pub fn give_up(&mut self) -> usize {
        self.give_up_while(|_| true)
    }

    fn give_up_while(&mut self, is_over: impl Fn(&CommandSlot) -> bool) -> usize {
        let mut count = 0;
        for slot in self.slots.iter_mut().take_while(|slot| is_over(slot)) {
            match &mut slot.state {
                CommandState::Ready(_) => continue,
                CommandState::One(join) => {
                    self.requests -= 1;
                    slot.state = CommandState::Ready(join.one(Err(OpError::Uncertain)));
                }
                CommandState::Several { join, results, .. } => {
                    self.requests -= results.len();
                    let results = results.drain(..).map(|result| result.unwrap_or(Err(OpError::Uncertain))).collect();
                    slot.state = CommandState::Ready(join.several(results));
                }
            }
            count += 1;
        }
        count
    }

    /// Takes the next answer, if the first command has one: the reply, its protocol, its deadline, and whether the command
    /// had requests to the node.
    pub fn pop(&mut self) -> Option<(Reply, Protocol, Instant, bool)> {
        if !matches!(self.slots.front()?.state, CommandState::Ready(_)) {
            return None;
        }
        match self.slots.pop_front()? {
            CommandSlot { state: CommandState::Ready(reply), protocol, due, asked, .. } => {
                Some((reply, protocol, due, asked))
            }
            _ => None,
        }
    }
}

impl CommandSlot {
    /// Returns the id behind the last request, as far as that is known.
    fn end(&self) -> u64 {
        match &self.state {
            CommandState::Ready(_) => self.first,
            CommandState::One(_) => self.first + 1,
            CommandState::Several { results, .. } => self.first + results.len() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use group::op::Refusal;
    use proptest::prelude::*;

    use super::*;
    use crate::resp::join::Shape;

    fn popped(pending: &mut PendingCommands) -> Vec<Reply> {
        std::iter::from_fn(|| pending.pop()).map(|(reply, ..)| reply).collect()
    }

    fn is_error(reply: &Reply, code: &str) -> bool {
        matches!(reply, Reply::Error(text) if text.starts_with(code))
    }

    #[test]
    fn what_is_due_is_answered_and_its_late_answer_ignored() {
        let start = Instant::now();
        let due = start + Duration::from_secs(3);
        let mut pending = PendingCommands::default();
        pending.push_requests(RequestId(5), 1, Join::write(Shape::OkOrNil), Protocol::Resp2, due);
        pending.push_requests(RequestId(6), 2, Join::read(Shape::Values), Protocol::Resp2, due);
        pending.push_requests(RequestId(8), 2, Join::write(Shape::Count), Protocol::Resp2, due);
        pending.push_requests(
            RequestId(10),
            1,
            Join::write(Shape::OkOrNil),
            Protocol::Resp2,
            due + Duration::from_secs(1),
        );
        pending.complete(RequestId(7), Ok(Answer::Value(None)));
        pending.complete(RequestId(8), Err(OpError::TryAgain(Refusal::Busy)));
        assert_eq!(pending.expire(start), 0);
        assert_eq!(pending.due(), Some(due));
        assert_eq!(pending.expire(due), 3);
        assert_eq!(pending.requests(), 1);
        for id in 0..10 {
            pending.complete(RequestId(id), Ok(Answer::Done));
        }
        let answers = popped(&mut pending);
        assert_eq!(answers.len(), 3);
        assert!(is_error(&answers[0], "UNCERTAIN"));
        assert!(is_error(&answers[1], "TRYAGAIN"));
        assert!(is_error(&answers[2], "UNCERTAIN"));
        for id in [0, 5, 6, 7, 8, 9, 11, 1 << 40] {
            pending.complete(RequestId(id), Ok(Answer::Done));
        }
        assert_eq!(pending.len(), 1);
        pending.complete(RequestId(10), Ok(Answer::Done));
        assert_eq!(popped(&mut pending), [Reply::OK]);
        assert_eq!(pending.requests(), 0);
    }

    proptest! {
        /// In any order of completion, the answers belong to the commands, in the commands' order.
        #[test]
        fn answers_keep_the_order_of_commands(
            counts in proptest::collection::vec(0..5_usize, 1..40),
            order in any::<prop::sample::Index>().prop_flat_map(|_| proptest::collection::vec(any::<u64>(), 200)),
            gaps in proptest::collection::vec(0..3_u64, 40),
            eager: bool,
        ) {
            let due = Instant::now();
            let mut pending = PendingCommands::default();
            let (mut next, mut expected, mut ids) = (7, Vec::new(), Vec::new());
            for (index, &count) in counts.iter().enumerate() {
                if count == 0 {
                    let reply = Reply::Integer(-(index as i64));
                    pending.push_ready(reply.clone(), Protocol::Resp2, due);
                    expected.push(reply);
                    continue;
                }
                next += gaps[index];
                pending.push_requests(RequestId(next), count, Join::read(Shape::Count), Protocol::Resp2, due);
                ids.extend(next..next + count as u64);
                expected.push(Reply::Integer((next..next + count as u64).map(|id| id as i64).sum()));
                next += count as u64;
            }
            let mut shuffled: Vec<_> = ids.iter().zip(&order).collect();
            shuffled.sort_by_key(|(_, key)| **key);
            let mut answers = Vec::new();
            for (&id, _) in shuffled {
                pending.complete(RequestId(id), Ok(Answer::Integer(id as i64)));
                // A repeated completion changes nothing.
                pending.complete(RequestId(id), Ok(Answer::Integer(1000)));
                if eager {
                    answers.extend(popped(&mut pending));
                }
            }
            answers.extend(popped(&mut pending));
            prop_assert_eq!(answers, expected);
            prop_assert!(pending.is_empty() && pending.requests() == 0);
        }
    }
}
