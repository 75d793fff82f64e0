//! A key's operations, made ready for a search: attempts under one id are one, and operations without effect are left out.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use group::op::{Answer, Op, ReadMode};
use overlay::time::Time;

use crate::history::{Operation, Outcome};

/// One operation, with any number of attempts.
#[derive(Clone, Debug)]
pub struct CallOf<'a> {
    /// Client that asked, for a person.
    pub client: u64,
    /// Requested operation.
    pub op: &'a Op,
    /// Given answer.
    pub answer: Option<&'a Answer>,
    /// Moment of the first request.
    pub invoked: u64,
    /// Moment of the first answer.
    pub completed: Option<u64>,
    /// Moment at which the client last heard of the operation, with or without an answer.
    pub told: Option<(u64, Time)>,
    /// Time of the first request.
    pub invoked_at: Time,
    /// Time of the first answer.
    pub completed_at: Option<Time>,
    /// The answered call before it on the same connection, if that was still open when this one was asked.
    pub predecessor: Option<usize>,
    /// Calls after it on the same connection that were asked while it was open.
    pub successors: Vec<usize>,
}

/// Returns the calls of one key, in order of asking. Left out: operations without effect, reads that were not answered, and relaxed
/// reads.
pub fn calls_of<'a>(operations: &[&'a Operation]) -> Vec<CallOf<'a>> {
    let mut calls: Vec<CallOf<'a>> = Vec::new();
    let mut once: BTreeMap<&Bytes, usize> = BTreeMap::new();
    let mut connections: BTreeMap<u64, usize> = BTreeMap::new();
    for operation in operations {
        let answer = operation.outcome.answer();
        let is_read = matches!(operation.op, Op::Read(_));
        if operation.mode == ReadMode::Relaxed || !operation.outcome.may_have_effect() || (is_read && answer.is_none())
        {
            continue;
        }
        if let Some(first) = operation.once.as_ref().and_then(|id| once.get(id)) {
            join(&mut calls[*first], operation);
            continue;
        }
        let index = calls.len();
        if let Some(id) = &operation.once {
            once.insert(id, index);
        }
        let completed = operation.completed.filter(|_| operation.outcome != Outcome::Uncertain);
        // Attempts at several times have no one place among their connection's operations, and the order is promised to answered
        // operations.
        let before = match (&operation.once, completed) {
            (None, Some(_)) => connections.insert(operation.connection, index),
            (None, None) => connections.get(&operation.connection).copied(),
            (Some(_), _) => None,
        };
        let predecessor = before.filter(|before| calls[*before].completed.is_some_and(|c| c > operation.invoked.order));
        if let Some(predecessor) = predecessor {
            calls[predecessor].successors.push(index);
        }
        calls.push(CallOf {
            client: operation.client,
            op: &operation.op,
            answer,
            invoked: operation.invoked.order,
            completed: completed.map(|moment| moment.order),
            told: operation.completed.map(|moment| (moment.order, moment.time)),
            invoked_at: operation.invoked.time,
            completed_at: completed.map(|moment| moment.time),
            predecessor,
            successors: Vec::new(),
        });
    }
    calls
}

/// Adds another attempt to its call.
fn join<'a>(call: &mut CallOf<'a>, attempt: &'a Operation) {
    let told = attempt.completed.map(|moment| (moment.order, moment.time));
    call.told = match (call.told, told) {
        (Some(one), Some(other)) => Some(one.max(other)),
        _ => None,
    };
    if call.answer.is_none() && attempt.outcome.answer().is_some() {
        call.answer = attempt.outcome.answer();
        call.completed = attempt.completed.map(|moment| moment.order);
        call.completed_at = attempt.completed.map(|moment| moment.time);
    }
}

impl CallOf<'_> {
    /// Returns whether the call was answered so that it changed nothing, in any state.
    pub fn is_inert(&self) -> bool {
        match self.answer {
            Some(Answer::NotMet | Answer::Unfit(_)) => true,
            Some(_) => matches!(self.op, Op::Read(_)),
            None => false,
        }
    }
}

impl fmt::Display for CallOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let client = if self.client == u64::MAX { "last read".into() } else { format!("client {}", self.client) };
        write!(f, "{:?} {client}: {:?}", self.invoked_at, self.op)?;
        match (self.answer, self.completed_at) {
            (Some(answer), Some(at)) => write!(f, " -> {answer:?} at {at:?}"),
            _ => write!(f, " -> unknown"),
        }
    }
}
