//! Requests of clients, and the answers that they got.

use bytes::Bytes;
use group::op::{Answer, Op, OpError, ReadMode};
use overlay::Key;
use overlay::time::Time;

/// A moment of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Number of the moment: unique in its history, and smaller for earlier moments.
    pub order: u64,
    /// True time in simulation, a steady clock of one machine elsewhere.
    pub time: Time,
}

/// Outcome of an operation, as told to its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The operation was answered.
    Answered(Answer),
    /// The operation certainly had no effect and never will have.
    TryAgain,
    /// A limit prevents the operation; no effect either.
    Limit,
    /// The operation may have taken effect, or may do so yet. So is an operation that was never answered.
    Uncertain,
}

impl Outcome {
    /// Returns the outcome of a node's result.
    pub fn of(result: Result<Answer, OpError>) -> Outcome {
        match result {
            Ok(answer) => Outcome::Answered(answer),
            Err(OpError::TryAgain(_)) => Outcome::TryAgain,
            Err(OpError::Limit(_)) => Outcome::Limit,
            Err(_) => Outcome::Uncertain,
        }
    }

    /// Returns the answer, if there was one.
    pub fn answer(&self) -> Option<&Answer> {
        match self {
            Outcome::Answered(answer) => Some(answer),
            _ => None,
        }
    }

    /// Returns whether the operation can have changed anything.
    pub(crate) fn may_have_effect(&self) -> bool {
        matches!(self, Outcome::Answered(_) | Outcome::Uncertain)
    }
}

/// One attempt of a client at an operation.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Client that asked.
    pub client: u64,
    /// Connection of the request: its operations on one key take effect in order.
    pub connection: u64,
    /// Peer that was asked.
    pub via: usize,
    /// Key of the operation.
    pub key: Key,
    /// Requested operation.
    pub op: Op,
    /// Mode of a read.
    pub mode: ReadMode,
    /// The client's own id: attempts with the same one are one operation.
    pub once: Option<Bytes>,
    /// Time of the request.
    pub invoked: Moment,
    /// Time at which the outcome was told; `None` if never.
    pub completed: Option<Moment>,
    /// Outcome that the client was told.
    pub outcome: Outcome,
}

/// All requests and answers of clients in one run, in the order of asking.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The operations.
    pub operations: Vec<Operation>,
    /// Number of the last moment.
    moments: u64,
}

impl History {
    /// Returns the next moment.
    pub fn moment(&mut self, time: Time) -> Moment {
        self.moments += 1;
        Moment { order: self.moments, time }
    }

    /// Notes a request; the index names it for [`History::complete`].
    pub(crate) fn invoke(&mut self, operation: Operation) -> usize {
        self.moments = self.moments.max(operation.invoked.order);
        self.operations.push(operation);
        self.operations.len() - 1
    }

    /// Notes the outcome of a request.
    pub fn complete(&mut self, index: usize, time: Time, outcome: Outcome) {
        let moment = self.moment(time);
        let operation = &mut self.operations[index];
        debug_assert!(operation.completed.is_none(), "one outcome for each operation");
        operation.completed = Some(moment);
        operation.outcome = outcome;
    }

    /// Returns the number of operations that were answered.
    pub fn answered(&self) -> usize {
        self.operations.iter().filter(|operation| operation.outcome.answer().is_some()).count()
    }

    /// Returns the requested keys, with their operations in order of asking.
    pub fn by_key(&self) -> std::collections::BTreeMap<&Key, Vec<&Operation>> {
        let mut keys = std::collections::BTreeMap::<_, Vec<_>>::new();
        for operation in &self.operations {
            keys.entry(&operation.key).or_default().push(operation);
        }
        keys
    }
}
