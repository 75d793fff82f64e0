//! Reads that a switch spreads over the members: what this one answers by itself, and what it leaves to the primary.

use overlay::Key;

use crate::ballot::TermBallot;
use crate::group::{Group, context};
use crate::op::Op;
use crate::outbox::GroupOutput;
use crate::table::Lookup;

/// A read that a switch sent to this member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpreadRead {
    /// To be given back.
    pub tag: u64,
    /// Whose partition.
    pub ballot: TermBallot,
    /// The switch's id.
    pub switch: u32,
    /// Up to which number all was complete when it passed.
    pub point: u64,
    /// The key.
    pub key: Key,
    /// A read.
    pub op: Op,
}

impl Group {
    /// Answers a read from this member's own chosen records, where it may: [`GroupOutput::Read`], at once or when the record is
    /// loaded. An answer of nothing leaves it to the primary.
    pub fn read_spread(&mut self, read: SpreadRead) {
        let answer = match self.may_answer(&read) {
            false => None,
            true => match self.table.get(&read.key, true, &mut self.out) {
                Lookup::Loading if self.spread.len() < self.config.waiting_max => {
                    return self.spread.wait(read.key.clone(), read);
                }
                // What a key with a deadline comes to is the primary's affair.
                Lookup::Known(record) if record.as_ref().is_none_or(|record| record.deadline.is_none()) => {
                    if let Some(watched) = &mut self.watched_alone {
                        watched.push(read.clone());
                    }
                    Some(self.read_here(&read.op, record.as_deref()))
                }
                Lookup::Loading | Lookup::Known(_) => None,
            },
        };
        self.out.push(GroupOutput::Read(read.tag, answer));
    }

    fn may_answer(&mut self, read: &SpreadRead) -> bool {
        let is_here = self.acceptor.committee(read.ballot).is_some_and(|it| it.range().contains(read.key.point()));
        let is_read = is_here && matches!(read.op, Op::Read(_)) && self.vouching.is_none() && !self.failed;
        is_read && self.acceptor.may_answer(&context!(self), read.ballot, read.switch, read.point)
    }

    /// A key's record was loaded: whether it may be answered is looked at again.
    pub(crate) fn go_on_spread(&mut self, key: &Key) {
        for read in self.spread.take(key) {
            self.read_spread(read);
        }
    }

    /// Leaves all that wait to their primary.
    pub(crate) fn leave_spread(&mut self) {
        self.spread.drain().for_each(|read| self.out.push(GroupOutput::Read(read.tag, None)));
    }

    /// What was to pass a switch came back with this number.
    pub fn on_passed(&mut self, ballot: TermBallot, switch: u32, number: u64, tag: u64) {
        if let Some(primary) = self.primaries.get_mut(&ballot) {
            primary.on_passed(&mut context!(self), switch, number, tag);
        }
    }
}
