//! Operation ids that move from a key's record to completion records beside it (see [`crate::record::Completions`]).
//!
//! A record travels with every write of its key, so few ids stay in it. The primary copies surplus ids of a *chosen* record to companion
//! keys, by ordinary writes. A later write of the key leaves out the ids with *chosen* completion records. At every moment each live id is
//! in the chosen record, or in a chosen completion record, or in both. Both are ordinary records at one point of the ring: takeovers,
//! catch-up, copies and new groups treat them alike. Purges drop a completion record as a tombstone once operations of its horizon are
//! refused.
//!
//! # Invariants
//! - A completion record is proposed only for an id of a chosen record.
//! - An id leaves the key's record only if this node knows that the completion record of the id is chosen.
//! - An operation with an id that may have moved is evaluated only while no write of its completion record is in flight. The completion
//!   record must also be known, or its absence certain.

use alloc::sync::Arc;
use alloc::vec::Vec;

use overlay::Key;

use crate::ballot::Number;
use crate::config::Defect;
use crate::context::Context;
use crate::data::primary::writes::{BATCH_MAX, changed};
use crate::data::primary::{Local, Pending, Primary};
use crate::data::table::Lookup;
use crate::message::Write;
use crate::op::{Answer, Op};
use crate::record::{DoneOp, Record};
use overlay::time::Time;

impl Primary {
    /// Proposes completion records of a chosen record's surplus ids, where there are none yet.
    pub(crate) fn move_ids(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>, key: &Key, chosen: &Record) {
        let forgotten = ctx.state.horizon.saturating_sub(1);
        let surplus: Vec<&DoneOp> = chosen.surplus().filter(|done| done.horizon >= forgotten).collect();
        for done in surplus {
            let beside = done.id.completion_of(key);
            let Some(before) = self.completion(ctx, local, &beside, Time::NEVER) else { continue };
            if before.as_ref().is_some_and(|before| done.is_in(before)) {
                continue;
            }
            let number = Number { term: self.ballot.term, n: self.next_n };
            self.next_n += 1;
            let record = changed(before.as_deref(), None, ctx.state.purged.floor);
            let record = Arc::new(Record { number, done: alloc::vec![done.clone()], ..record });
            self.put_in_flight(ctx, Write { key: beside, record }, Vec::new());
            self.set_before(number.n, before);
        }
    }

    /// Returns how many operations at the front of a key's queue can be evaluated: up to the first operation with an id that an unknown
    /// completion record may have. Asks for the unknown records.
    pub(crate) fn look_up(
        &mut self,
        ctx: &mut Context<'_>,
        local: &mut Local<'_>,
        key: &Key,
        chosen: Option<&Record>,
    ) -> usize {
        let (Some(queue), Some(chosen)) = (self.keys.get(key), chosen) else { return usize::MAX };
        if ctx.config.defects.has(Defect::CompletionsUnread) {
            return usize::MAX;
        }
        let looks = |pending: &Pending| {
            !matches!(pending.op, Op::Read(_))
                && chosen.completions.may_have(&pending.id, horizon_of(ctx, Some(chosen), pending))
                && chosen.answer_of(&pending.id).is_none()
        };
        let first = queue.waiting.iter().take(BATCH_MAX).enumerate().filter(|(_, pending)| looks(pending));
        let wanted: Vec<(usize, Key, Time)> =
            first.map(|(place, pending)| (place, pending.id.completion_of(key), pending.deadline)).collect();
        let mut ready = usize::MAX;
        for (place, beside, deadline) in wanted {
            if self.completion(ctx, local, &beside, deadline).is_none() {
                ready = ready.min(place);
            }
        }
        ready
    }

    /// Returns the chosen record at a companion key, or that there is certainly none. `None` where the record is unknown, or where a write
    /// of it is in flight. Then [`Primary::run`] of the companion key continues with its owner, if that is before `deadline`.
    fn completion(
        &mut self,
        ctx: &mut Context<'_>,
        local: &mut Local<'_>,
        beside: &Key,
        deadline: Time,
    ) -> Option<Option<Arc<Record>>> {
        if self.keys.get(beside).is_some_and(|queue| queue.in_flight > 0) {
            return None;
        }
        let known = match local.table.get(beside, true, ctx.out) {
            Lookup::Known(record) => self.knows(ctx, local, beside, record.as_ref()).then_some(record),
            Lookup::Loading => None,
        };
        if known.is_none() {
            let queue = self.keys.entry(beside.clone()).or_default();
            queue.looked_up = queue.looked_up.max(deadline.min(ctx.now.time + crate::data::operations::PATIENCE_MAX));
        }
        known
    }

    /// Continues with a key: its completion record was loaded, read from a quorum, or chosen.
    pub(crate) fn on_completion(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>, beside: &Key, owner: &Key) {
        if self.keys.get(beside).is_some_and(|queue| queue.in_flight == 0) {
            self.keys.remove(beside);
            self.run(ctx, local, owner);
        }
    }
}

/// Returns the answer that a completion record has for an operation. [`Primary::look_up`] has made sure that the record is known.
pub(crate) fn completed(
    ctx: &Context<'_>,
    local: &mut Local<'_>,
    key: &Key,
    before: Option<&Record>,
    pending: &Pending,
) -> Option<Answer> {
    let before = before.filter(|_| !ctx.config.defects.has(Defect::CompletionsUnread))?;
    if matches!(pending.op, Op::Read(_))
        || !before.completions.may_have(&pending.id, horizon_of(ctx, Some(before), pending))
    {
        return None;
    }
    let record = local.table.peek(&pending.id.completion_of(key)).flatten()?;
    record.answer_of(&pending.id).cloned()
}

/// Drops ids with chosen completion records from a record that is being written.
pub(crate) fn drop_moved(ctx: &Context<'_>, local: &mut Local<'_>, key: &Key, record: &mut Record) {
    let moved = |done: &&DoneOp| {
        let beside = local.table.peek(&done.id.completion_of(key)).flatten();
        beside.is_some_and(|beside| done.is_in(&beside)) || ctx.config.defects.has(Defect::MovedTooEarly)
    };
    let moved: Vec<DoneOp> = record.surplus().filter(moved).cloned().collect();
    if moved.is_empty() {
        return;
    }
    record.done.retain(|done| !moved.contains(done));
    moved.iter().for_each(|done| record.completions.note(done));
}

/// Returns the horizon below which operations are refused, by the knowledge of this node, the record and the operation's origin.
pub(crate) fn horizon_of(ctx: &Context<'_>, record: Option<&Record>, pending: &Pending) -> u64 {
    // By that horizon, the origin may have retired an operation that this node would still execute.
    let known = ctx.state.horizon.max(pending.horizon);
    record.map_or(0, |record| record.horizon).max(known.saturating_sub(1))
}
