//! Reads by any member, scheduled by a switch: the side of the answering member. See [`crate::harmonia::offload`].
//!
//! No grant is remembered over a restart: a member that restarted has none.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use overlay::KeyRange;

use crate::ballot::TermBallot;
use crate::config::Defect;
use crate::context::Context;
use crate::data::acceptor::committees::Committees;
use crate::data::acceptor::leases::Grants;
use crate::data::acceptor::window::Committee;
use overlay::time::Time;

/// Upper limit of the confirmations with remembered times: a grant names one of them.
const CONFIRMED_MAX: usize = 4;
/// Upper limit of marks that were told and are not settled. Beyond it, marks in the middle are forgotten: a later mark covers them.
const MARKS_MAX: usize = 8;

/// Grant from the primary of one ballot to this member.
#[derive(Clone, Debug, Default)]
struct ReadGrant {
    /// Id of the switch.
    switch: u32,
    /// End of the grant.
    until: Time,
    /// Number up to which all writes are chosen that did not pass the switch.
    floor: u64,
    /// Number of the switch up to which all writes are in the table, or void.
    executed: u64,
    /// Chosen marks that are not settled here, with their points, in order.
    marks: VecDeque<(u64, u64)>,
    /// Times at which this member confirmed the ballot, with the attempts.
    confirmed: VecDeque<(u64, Time)>,
}

/// Grants that this member received, and grants that it gave as a primary.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replicas {
    granted: BTreeMap<TermBallot, ReadGrant>,
    /// Grants that this node gave as a primary.
    delegated: Grants,
}

impl Replicas {
    /// Returns the part that counts in a group that is born: this node's grants as a primary, to members that have not heard of the new
    /// group yet.
    pub(crate) fn heir(&self) -> Replicas {
        Replicas { granted: BTreeMap::new(), delegated: self.delegated.clone() }
    }
}

/// Permission of a member to answer a read alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// The member may answer.
    Yes,
    /// The member may answer once it has executed all writes that the switch was told to be complete.
    Behind,
    /// The member may not answer.
    No,
}

/// Grant, as the primary sent it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) switch: u32,
    pub(crate) chosen: u64,
    pub(crate) point: u64,
}

impl ReadGrant {
    /// Moves to this id, and drops all that belongs to a lower one. Returns whether this is the current id.
    fn enter(&mut self, switch: u32) -> bool {
        if switch > self.switch {
            let confirmed = core::mem::take(&mut self.confirmed);
            *self = ReadGrant { switch, confirmed, ..ReadGrant::default() };
        }
        switch == self.switch
    }

    /// Notes a mark with its point: all writes up to the mark are chosen, and they include all that the switch numbered up to the point.
    fn note(&mut self, chosen: u64, point: u64) {
        if self.marks.len() >= MARKS_MAX {
            self.marks.pop_back();
        }
        self.marks.push_back((chosen, point));
    }

    /// Raises `executed`: everything up to this mark is settled.
    fn settle(&mut self, mark: u64) {
        while self.marks.front().is_some_and(|(chosen, _)| *chosen <= mark) {
            let point = self.marks.pop_front().map_or(0, |(_, point)| point);
            self.executed = self.executed.max(point);
        }
    }
}

/// Returns the number up to which everything is chosen and held, with nothing missing before it.
fn settled(committee: &Committee) -> Option<u64> {
    let chosen = committee.chosen().filter(|chosen| committee.received().mark() >= *chosen)?;
    committee.is_complete().then_some(chosen)
}

impl Replicas {
    /// Notes that the ballot was confirmed for a lease: a grant may follow that is counted from now.
    pub(crate) fn note_confirmed(&mut self, ballot: TermBallot, attempt: u64, now: Time) {
        let confirmed = &mut self.granted.entry(ballot).or_default().confirmed;
        if confirmed.len() >= CONFIRMED_MAX {
            confirmed.pop_front();
        }
        confirmed.push_back((attempt, now));
    }

    /// Notes a point that the primary sent, with its chosen mark.
    pub(crate) fn on_point(&mut self, ballot: TermBallot, told: Told) {
        if let Some(granted) = self.granted.get_mut(&ballot)
            && granted.enter(told.switch)
        {
            granted.note(told.chosen, told.point);
        }
    }

    /// Takes a grant to answer reads, which runs `left` from the confirmation of the ballot in `attempt`.
    pub(crate) fn on_grant(&mut self, ctx: &Context<'_>, ballot: TermBallot, attempt: u64, left: Duration, told: Told) {
        let Some(granted) = self.granted.get_mut(&ballot) else { return };
        let confirmed = granted.confirmed.iter().find(|(known, _)| *known == attempt).map(|(_, at)| *at);
        let Some(confirmed) = confirmed else { return };
        if !granted.enter(told.switch) {
            return;
        }
        // A node that waits for the end of the grant counts by another clock: that clock may be as fast as this one is slow.
        let drift = u64::from(ctx.state.settings.drift_per_mille.min(900));
        let left = Duration::from_micros((left.as_micros() as u64).min(1 << 40) * (1000 - drift) / (1000 + drift));
        let from = if ctx.config.defects.has(Defect::GrantFromArrival) { ctx.now.time } else { confirmed };
        granted.until = granted.until.max(from + left);
        granted.floor = granted.floor.max(told.chosen);
        granted.note(told.chosen, told.point);
    }

    /// Returns whether this member, which has this committee, may answer a read that a switch of this id has stamped with this point.
    pub(crate) fn may_answer(&mut self, ctx: &Context<'_>, committee: &Committee, switch: u32, point: u64) -> Answers {
        let defects = ctx.config.defects;
        if committee.is_superseded() {
            return Answers::No;
        }
        let Some(granted) = self.granted.get_mut(&committee.ballot()) else { return Answers::No };
        let mark = settled(committee);
        if let Some(mark) = mark {
            granted.settle(mark);
        }
        let is_granted = granted.switch == switch && switch > 0 && ctx.now.time < granted.until;
        let is_executed = granted.executed >= point || defects.has(Defect::PointUnchecked);
        match mark {
            _ if !is_granted && !defects.has(Defect::GrantUnchecked) => Answers::No,
            Some(mark) if is_executed && (mark >= granted.floor || defects.has(Defect::PointUnchecked)) => Answers::Yes,
            _ => Answers::Behind,
        }
    }

    /// Drops all grants that this member received: the machine slept.
    pub(crate) fn drop_grants(&mut self) {
        self.granted.clear();
    }

    /// Notes this node's grants to other members, as the primary of this ballot, with the latest time at which they end.
    pub(crate) fn delegate(&mut self, ballot: TermBallot, range: KeyRange, until: Time, now: Time) {
        self.delegated.note(ballot, range, until, now);
    }

    /// Inherits this node's grants as a primary of an older group: they may still run in a group that is born of it.
    pub(crate) fn inherit(&mut self, other: &Replicas, now: Time) {
        self.delegated.inherit(&other.delegated, now);
    }

    /// Returns the end of the last grant that this node gave as a primary, for checks.
    pub(crate) fn delegated_until(&self) -> Time {
        self.delegated.last()
    }

    /// Returns for how many milliseconds grants may run that this node gave in this range as a primary, under other ballots.
    pub(crate) fn delegated(&self, ctx: &Context<'_>, ballot: TermBallot, range: KeyRange) -> Vec<(TermBallot, u64)> {
        match ctx.config.defects.has(Defect::GrantsForgotten) {
            true => Vec::new(),
            false => self.delegated.left(ballot, range, ctx.now.time),
        }
    }

    /// Forgets grants of committees that no longer exist.
    pub(crate) fn forget(&mut self, committees: &Committees) {
        self.granted.retain(|ballot, _| committees.get(ballot).is_some());
    }
}
