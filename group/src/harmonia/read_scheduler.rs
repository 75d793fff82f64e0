//! Reads that a switch spreads over the members: this member answers some by itself, and leaves the rest to the primary.

use alloc::collections::VecDeque;
use core::time::Duration;

use overlay::Key;

use crate::ballot::TermBallot;
use crate::context::Context;
use crate::data::Local;
use crate::data::own_reads::{OwnReads, read_here};
use crate::data::table::Lookup;
use crate::harmonia::Answers;
use crate::op::Op;
use crate::outbox::GroupOutput;
use overlay::time::Time;

/// Time that a read waits for writes which were complete when the switch stamped it: they may still be on their way here, for they left the
/// primary at the same time as the message to the switch.
const BEHIND_MAX: Duration = Duration::from_millis(2);
/// Upper limit of reads that wait so: each is checked again whenever a message comes.
const BEHIND_READS_MAX: usize = 1 << 10;

/// Read that a switch sent to this member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpreadRead {
    /// Tag of the read, echoed.
    pub tag: u64,
    /// Ballot of the partition's primary.
    pub ballot: TermBallot,
    /// Id of the switch.
    pub switch: u32,
    /// Number up to which all writes were complete when the read passed the switch.
    pub point: u64,
    /// Key to read.
    pub key: Key,
    /// Operation, which is a read.
    pub op: Op,
}

/// Reads that wait until this member has executed the writes that they may rest on, each until its time at the latest, in that order.
pub(crate) type Behind = VecDeque<(Time, SpreadRead)>;

impl OwnReads {
    /// Answers a read from this member's own chosen records, where it may: [`GroupOutput::Read`], at once or when the record is loaded.
    /// `None` leaves the answer to the primary. `serves`: whether this member has a part in the group now.
    pub(crate) fn read_spread(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>, serves: bool, read: SpreadRead) {
        let answer = match may_answer(ctx, local, serves, &read) {
            Answers::No => None,
            Answers::Behind if self.behind.len() < BEHIND_READS_MAX => {
                return self.behind.push_back((ctx.now.time + BEHIND_MAX, read));
            }
            Answers::Behind => None,
            Answers::Yes => match local.table.get(&read.key, true, ctx.out) {
                Lookup::Loading if self.spread.len() < ctx.config.waiting_max => {
                    return self.spread.wait(read.key.clone(), read);
                }
                // A key with a deadline is left to the primary.
                Lookup::Known(record) if record.as_ref().is_none_or(|record| record.deadline.is_none()) => {
                    if let Some(watched) = &mut self.watched {
                        watched.push(read.clone());
                    }
                    Some(read_here(&read.op, record.as_deref(), local.group_time))
                }
                Lookup::Loading | Lookup::Known(_) => None,
            },
        };
        ctx.out.push(GroupOutput::Read(read.tag, answer));
    }

    /// Checks again, after a message or some time, whether waiting reads may be answered now.
    pub(crate) fn look_behind(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>, serves: bool) {
        if self.behind.is_empty() {
            return;
        }
        for (until, read) in core::mem::take(&mut self.behind) {
            match may_answer(ctx, local, serves, &read) {
                Answers::Behind if ctx.now.time < until => self.behind.push_back((until, read)),
                Answers::Behind => ctx.out.push(GroupOutput::Read(read.tag, None)),
                Answers::Yes | Answers::No => self.read_spread(ctx, local, serves, read),
            }
        }
    }

    /// Returns when the first waiting read is given up.
    pub(crate) fn behind_due(&self) -> Time {
        self.behind.front().map_or(Time::NEVER, |(until, _)| *until)
    }

    /// Leaves all waiting reads that a switch sent here to their primary.
    pub(crate) fn leave_spread(&mut self, ctx: &mut Context<'_>) {
        let behind = core::mem::take(&mut self.behind).into_iter().map(|(_, read)| read);
        self.spread.drain().chain(behind).for_each(|read| ctx.out.push(GroupOutput::Read(read.tag, None)));
    }
}

fn may_answer(ctx: &Context<'_>, local: &mut Local<'_>, serves: bool, read: &SpreadRead) -> Answers {
    let is_here = local.acceptor.committee(read.ballot).is_some_and(|it| it.range().contains(read.key.point()));
    let is_read = is_here && matches!(read.op, Op::Read(_)) && serves;
    match is_read {
        false => Answers::No,
        true => local.acceptor.may_answer(ctx, read.ballot, read.switch, read.point),
    }
}
