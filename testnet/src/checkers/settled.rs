//! Once a read completes without a timed-out operation, that operation never shows up later (I8; fRSM §3.3, Figure 1).
//!
//! An operation of unknown outcome must have its place before the first read that settles it ends, or never. A read
//! settles it if it was asked after the client was told of the unknown outcome, and after everything that was on its way
//! by then has arrived: a request that a wire kept back is nothing that any replica could have been asked about. So
//! this is the search for an order once more, with an end to each operation's time.

use std::time::Duration;

use group::op::{Answer, Op, ReadMode};
use group::time::Time;

use crate::history::Operation;

use super::calls::CallOf;

/// The way of frames that nothing holds up, and a node's own delays.
const MARGIN: Duration = Duration::from_millis(500);

/// When operations on one key are settled.
pub struct Settling<'a> {
    /// `(asked, when, answered)` of each read, in order of asking.
    reads: Vec<(u64, Time, u64)>,
    /// Whatever was sent within one of these may arrive at its end; in order.
    stalls: &'a [(Time, Time)],
}

impl<'a> Settling<'a> {
    /// For the operations on one key.
    pub fn new(operations: &[&Operation], stalls: &'a [(Time, Time)]) -> Settling<'a> {
        let reads = operations
            .iter()
            .filter(|operation| operation.mode == ReadMode::Linearizable && rests_on_state(operation))
            .filter_map(|operation| {
                let completed = operation.completed?.order;
                Some((operation.invoked.order, operation.invoked.time, completed))
            })
            .collect();
        Settling { reads, stalls }
    }

    /// The moment after which the call cannot take effect any more; `u64::MAX` if there is none.
    pub fn end_of(&self, call: &CallOf<'_>) -> u64 {
        let Some((told, told_at)) = call.told else { return u64::MAX };
        let arrived = self
            .stalls
            .iter()
            .filter(|(from, to)| *from <= told_at && *to >= call.invoked_at)
            .fold(told_at, |latest, (_, to)| latest.max(*to))
            + MARGIN;
        self.reads
            .iter()
            .filter(|(asked, at, _)| *asked > told && *at > arrived)
            .map(|(_, _, completed)| *completed)
            .min()
            .unwrap_or(u64::MAX)
    }
}

/// Reads do, and "condition not met" does; a write's own answer says nothing of those before it.
fn rests_on_state(operation: &Operation) -> bool {
    match operation.outcome.answer() {
        Some(Answer::NotMet) => true,
        Some(_) => matches!(operation.op, Op::Read(_)),
        None => false,
    }
}
