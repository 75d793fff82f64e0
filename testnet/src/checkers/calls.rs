//! A key's operations, made ready for a search: attempts under one id are one, and what had no effect is left out.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use group::op::{Answer, Op, Read, ReadMode};
use group::time::Time;

use super::model::State;
use crate::history::{Operation, Outcome};

/// One operation, whatever the number of its attempts.
#[derive(Clone, Debug)]
pub struct CallOf<'a> {
    /// Who asked, for a person.
    pub client: u64,
    /// What was asked.
    pub op: &'a Op,
    /// What was answered.
    pub answer: Option<&'a Answer>,
    /// When it was first asked.
    pub invoked: u64,
    /// When it was first answered.
    pub completed: Option<u64>,
    /// When the client last heard of it, with or without an answer.
    pub told: Option<(u64, Time)>,
    /// When it was first asked.
    pub invoked_at: Time,
    /// When it was first answered.
    pub completed_at: Option<Time>,
    /// The one before it on the same connection, if that was still open when this one was asked.
    pub predecessor: Option<usize>,
    /// Those after it on the same connection that were asked while it was open.
    pub successors: Vec<usize>,
}

/// The calls of one key, in order of asking. Left out: what had no effect, reads that were not answered, and relaxed reads.
pub fn calls_of<'a>(operations: &[&'a Operation]) -> Vec<CallOf<'a>> {
    let mut calls: Vec<CallOf<'a>> = Vec::new();
    let mut once: BTreeMap<&Bytes, usize> = BTreeMap::new();
    let mut connections: BTreeMap<u64, usize> = BTreeMap::new();
    for operation in operations {
        let answer = operation.outcome.answer();
        let is_read = matches!(operation.op, Op::Read(_));
        if operation.mode == ReadMode::Relaxed || !operation.outcome.may_have_effect() || (is_read && answer.is_none()) {
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
        // Attempts at several times have no one place among their connection's operations.
        let before = operation.once.is_none().then(|| connections.insert(operation.connection, index)).flatten();
        let predecessor = before.filter(|before| calls[*before].told.is_none_or(|(told, _)| told > operation.invoked.order));
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

/// Another attempt of the same operation.
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

/// What the open operations can do to a value, at most. Where they can only make it grow, many states need not be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Bytes are added at its end.
    Appends,
    /// It is a number, and becomes larger.
    Sums,
    /// It may become anything.
    Any,
}

impl Growth {
    /// That of these operations.
    pub fn of<'a>(ops: impl Iterator<Item = &'a Op>) -> Growth {
        let mut growth = None;
        for op in ops {
            let this = match op {
                Op::Read(_) => continue,
                Op::Append { .. } => Growth::Appends,
                Op::Add(delta) if *delta > 0 => Growth::Sums,
                _ => return Growth::Any,
            };
            if growth.is_some_and(|other| other != this) {
                return Growth::Any;
            }
            growth = Some(this);
        }
        growth.unwrap_or(Growth::Appends)
    }

    /// Whether no growth of the state's value can lead to this answer.
    pub fn out_of_reach(self, state: &State, call: &CallOf<'_>) -> bool {
        if state.deadline.is_some() {
            return false;
        }
        let value = state.value.as_deref().unwrap_or_default();
        match (self, call.op, call.answer) {
            (Growth::Appends, Op::Append { value: added, .. }, Some(Answer::Integer(length))) => {
                value.len() + added.len() > *length as usize
            }
            (Growth::Appends, Op::Read(Read::Value), Some(Answer::Value(Some(read)))) => !read.starts_with(value),
            (Growth::Sums, Op::Add(delta), Some(Answer::Integer(sum))) => {
                number(value).is_some_and(|before| before.saturating_add(*delta) > *sum)
            }
            (Growth::Sums, Op::Read(Read::Value), Some(Answer::Value(Some(read)))) => {
                matches!((number(value), number(read)), (Some(before), Some(read)) if before > read)
            }
            _ => false,
        }
    }
}

fn number(value: &[u8]) -> Option<i64> {
    if value.is_empty() {
        return Some(0);
    }
    std::str::from_utf8(value).ok()?.parse().ok()
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
