//! What clients asked and what they were answered.

use bytes::Bytes;
use group::op::{Answer, Op, OpError, ReadMode};
use group::time::Time;
use overlay::Key;

/// A moment of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Unique in its history; earlier moments have smaller ones.
    pub order: u64,
    /// True time in simulation, a steady clock of one machine elsewhere.
    pub time: Time,
}

/// What a client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered.
    Answered(Answer),
    /// Certainly had no effect and never will have.
    TryAgain,
    /// A limit stands in the way; no effect either.
    Limit,
    /// May have taken effect, or may do so yet. So is an operation that was never answered.
    Uncertain,
}

impl Outcome {
    /// The outcome in the words of a node.
    pub fn of(result: Result<Answer, OpError>) -> Outcome {
        match result {
            Ok(answer) => Outcome::Answered(answer),
            Err(OpError::TryAgain(_)) => Outcome::TryAgain,
            Err(OpError::Limit(_)) => Outcome::Limit,
            Err(_) => Outcome::Uncertain,
        }
    }

    /// The answer, if there was one.
    pub fn answer(&self) -> Option<&Answer> {
        match self {
            Outcome::Answered(answer) => Some(answer),
            _ => None,
        }
    }

    /// Whether the operation can have changed anything.
    pub fn may_have_effect(&self) -> bool {
        matches!(self, Outcome::Answered(_) | Outcome::Uncertain)
    }
}

/// One attempt of a client to do something.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Who asked.
    pub client: u64,
    /// Over which connection: its operations on one key take effect in order.
    pub connection: u64,
    /// Which peer was asked.
    pub via: usize,
    /// The key.
    pub key: Key,
    /// What was asked.
    pub op: Op,
    /// How it is read.
    pub mode: ReadMode,
    /// The client's own id: attempts with the same one are one operation.
    pub once: Option<Bytes>,
    /// When it was asked.
    pub invoked: Moment,
    /// When the outcome was told; `None` if never.
    pub completed: Option<Moment>,
    /// What was told.
    pub outcome: Outcome,
}

/// All that clients saw of one run, in the order of asking.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The operations.
    pub operations: Vec<Operation>,
    /// The last moment's order.
    moments: u64,
}

impl History {
    /// The next moment.
    pub fn moment(&mut self, time: Time) -> Moment {
        self.moments += 1;
        Moment { order: self.moments, time }
    }

    /// Notes that something was asked; the index names it for [`History::complete`].
    pub fn invoke(&mut self, operation: Operation) -> usize {
        self.moments = self.moments.max(operation.invoked.order);
        self.operations.push(operation);
        self.operations.len() - 1
    }

    /// Notes what came of it.
    pub fn complete(&mut self, index: usize, time: Time, outcome: Outcome) {
        let moment = self.moment(time);
        let operation = &mut self.operations[index];
        debug_assert!(operation.completed.is_none(), "one outcome for each operation");
        operation.completed = Some(moment);
        operation.outcome = outcome;
    }

    /// The keys asked for, with their operations in order of asking.
    pub fn by_key(&self) -> std::collections::BTreeMap<&Key, Vec<&Operation>> {
        let mut keys = std::collections::BTreeMap::<_, Vec<_>>::new();
        for operation in &self.operations {
            keys.entry(&operation.key).or_default().push(operation);
        }
        keys
    }
}
