//! Reads that a member answers from its own chosen records: relaxed ones, and those that a switch spreads over the members
//! ([`crate::harmonia::read_scheduler`]).

use alloc::vec::Vec;

use overlay::Key;
use overlay::time::WallMillis;

use crate::context::Context;
use crate::data::Local;
use crate::data::service::{Delivery, Live, deliver};
use crate::data::table::Lookup;
use crate::data::waiting::Waiting;
use crate::harmonia::read_scheduler::{Behind, SpreadRead};
use crate::message::{AttemptOutcome, ClientOperation};
use crate::op::{Answer, Op, OpError, Refusal};
use crate::outbox::Attempt;
use crate::record::Record;

/// Reads of this member's own records that wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnReads {
    /// Relaxed reads that wait for a record.
    relaxed: Waiting<(Attempt, ClientOperation)>,
    /// Reads sent here by a switch that wait for a record.
    pub(crate) spread: Waiting<SpreadRead>,
    /// Reads sent here by a switch for which this member has not executed enough writes yet.
    pub(crate) behind: Behind,
    /// Reads of a switch that this member answered alone, for checks, see [`crate::Group::watch`].
    pub(crate) watched: Option<Vec<SpreadRead>>,
}

impl OwnReads {
    /// Reads from this member's own chosen state, of any age. Keys with a deadline are left to the primary.
    pub(crate) fn read_relaxed(
        &mut self,
        ctx: &mut Context<'_>,
        local: &mut Local<'_>,
        attempt: Attempt,
        operation: ClientOperation,
    ) {
        if self.relaxed.len() >= ctx.config.waiting_max {
            return ctx.out.refuse(attempt, OpError::TryAgain(Refusal::Busy));
        }
        match local.table.get(&operation.key, true, ctx.out) {
            Lookup::Loading => self.relaxed.wait(operation.key.clone(), (attempt, operation)),
            Lookup::Known(Some(record)) if record.deadline.is_some() => {
                ctx.out.outcome(attempt, AttemptOutcome::NotPrimary);
            }
            Lookup::Known(record) => {
                let answer = read_here(&operation.op, record.as_deref(), local.group_time);
                ctx.out.outcome(attempt, AttemptOutcome::Unchanged(answer));
            }
        }
    }

    /// Continues the reads that waited for a key's record, which was loaded. `serves`: as in [`OwnReads::read_spread`].
    pub(crate) fn go_on(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>, serves: bool, key: &Key) {
        for (attempt, operation) in self.relaxed.take(key) {
            self.read_relaxed(ctx, local, attempt, operation);
        }
        for read in self.spread.take(key) {
            self.read_spread(ctx, local, serves, read);
        }
    }

    /// Leaves all waiting reads to their primaries.
    pub(crate) fn leave(&mut self, ctx: &mut Context<'_>) {
        self.relaxed.drain().for_each(|(attempt, _)| ctx.out.outcome(attempt, AttemptOutcome::NotPrimary));
        self.leave_spread(ctx);
    }
}

/// Returns the answer to a read from a record of this member's own, which has no deadline.
pub(crate) fn read_here(op: &Op, record: Option<&Record>, group_time: WallMillis) -> Answer {
    let live = record.and_then(|record| {
        let (kind, version) = (record.kind, record.version);
        Some(Live { value: record.value.clone()?, kind, version, deadline: None })
    });
    let at = Delivery { now: group_time, value_bytes_max: usize::MAX };
    deliver(op, live.as_ref(), &at).1
}
