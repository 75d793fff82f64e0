//! Reads by any member, scheduled by a switch: the side of whoever answers. See [`super::offload`].
//!
//! Nothing of this is remembered over a restart: whoever begins anew has no grant.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use overlay::KeyRange;

use super::acceptor::Acceptor;
use super::leases::Grants;
use super::window::Committee;
use crate::ballot::TermBallot;
use crate::config::Defect;
use crate::context::Context;
use crate::time::Time;

/// Confirmations whose times are remembered: a grant names one.
const CONFIRMED_MAX: usize = 4;
/// Marks that have been told and are not settled. Of more those in the middle are forgotten: what comes later says more.
const MARKS_MAX: usize = 8;

/// What the primary of one ballot has granted this member.
#[derive(Clone, Debug, Default)]
struct Granted {
    /// The switch.
    switch: u32,
    /// It is over then.
    until: Time,
    /// What did not pass the switch is chosen up to here.
    floor: u64,
    /// Everything that the switch numbered up to here is in the table, or void.
    executed: u64,
    /// Chosen marks that are not settled here, with their points, in order.
    marks: VecDeque<(u64, u64)>,
    /// When this member confirmed the ballot, in which attempts.
    confirmed: VecDeque<(u64, Time)>,
}

/// What this member may answer alone, and what it has granted others as a primary.
#[derive(Clone, Debug, Default)]
pub(super) struct Replicas {
    granted: BTreeMap<TermBallot, Granted>,
    /// What this node granted as a primary.
    delegated: Grants,
}

impl Replicas {
    /// What of it counts in a group that is born: what was given as a primary, to whoever has not heard of that yet.
    pub(super) fn heir(&self) -> Replicas {
        Replicas { granted: BTreeMap::new(), delegated: self.delegated.clone() }
    }
}

/// Whether a member may answer a read alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// It may.
    Yes,
    /// It may, once it has executed what the switch was told to be complete.
    Behind,
    /// It may not.
    No,
}

/// A grant, as it was told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) switch: u32,
    pub(super) chosen: u64,
    pub(super) point: u64,
}

impl Granted {
    /// From now on under this id; what was of a lower one is over.
    fn enter(&mut self, switch: u32) -> bool {
        if switch > self.switch {
            let confirmed = core::mem::take(&mut self.confirmed);
            *self = Granted { switch, confirmed, ..Granted::default() };
        }
        switch == self.switch
    }

    /// All up to this mark is chosen, and that is all that the switch numbered up to this point.
    fn note(&mut self, chosen: u64, point: u64) {
        if self.marks.len() >= MARKS_MAX {
            self.marks.pop_back();
        }
        self.marks.push_back((chosen, point));
    }

    /// Everything up to here is settled.
    fn settle(&mut self, mark: u64) {
        while self.marks.front().is_some_and(|(chosen, _)| *chosen <= mark) {
            let point = self.marks.pop_front().map_or(0, |(_, point)| point);
            self.executed = self.executed.max(point);
        }
    }
}

/// Everything up to here is chosen, and held: nothing is missing before it.
fn settled(committee: &Committee) -> Option<u64> {
    let chosen = committee.chosen().filter(|chosen| committee.received().mark() >= *chosen)?;
    committee.is_complete().then_some(chosen)
}

impl Acceptor {
    /// The ballot was confirmed for a lease: a grant may follow that is counted from now.
    pub(super) fn note_confirmed(&mut self, ballot: TermBallot, attempt: u64, now: Time) {
        let confirmed = &mut self.replicas.granted.entry(ballot).or_default().confirmed;
        if confirmed.len() >= CONFIRMED_MAX {
            confirmed.pop_front();
        }
        confirmed.push_back((attempt, now));
    }

    /// The primary says how far its switch's numbers are executed.
    pub(super) fn on_point(&mut self, ballot: TermBallot, told: Told) {
        if let Some(granted) = self.replicas.granted.get_mut(&ballot)
            && granted.enter(told.switch)
        {
            granted.note(told.chosen, told.point);
        }
    }

    /// The primary grants this member to answer reads for so long from when it confirmed the ballot.
    pub(super) fn on_grant(&mut self, ctx: &Context<'_>, ballot: TermBallot, attempt: u64, left: Duration, told: Told) {
        let Some(granted) = self.replicas.granted.get_mut(&ballot) else { return };
        let confirmed = granted.confirmed.iter().find(|(known, _)| *known == attempt).map(|(_, at)| *at);
        let Some(confirmed) = confirmed else { return };
        if !granted.enter(told.switch) {
            return;
        }
        // Whoever waits for it counts on another clock: theirs may be as fast as this one is slow.
        let drift = u64::from(ctx.state.settings.drift_per_mille.min(900));
        let left = Duration::from_micros((left.as_micros() as u64).min(1 << 40) * (1000 - drift) / (1000 + drift));
        let from = if ctx.config.defects.has(Defect::GrantFromArrival) { ctx.now.time } else { confirmed };
        granted.until = granted.until.max(from + left);
        granted.floor = granted.floor.max(told.chosen);
        granted.note(told.chosen, told.point);
    }

    /// May this member answer a read that a switch of this id has stamped with this point?
    pub fn may_answer(&mut self, ctx: &Context<'_>, ballot: TermBallot, switch: u32, point: u64) -> Answers {
        let defects = ctx.config.defects;
        let Some(committee) = self.committees.get(&ballot).filter(|it| !it.is_superseded()) else { return Answers::No };
        let Some(granted) = self.replicas.granted.get_mut(&ballot) else { return Answers::No };
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

    /// Whatever was granted counts no more: the machine slept.
    pub fn drop_grants(&mut self) {
        self.replicas.granted.clear();
    }

    /// This node has granted others to answer reads, as the primary of this ballot, until then at the latest.
    pub(super) fn delegate(&mut self, ballot: TermBallot, range: KeyRange, until: Time, now: Time) {
        self.replicas.delegated.note(ballot, range, until, now);
    }

    /// As a group's that is born where this node had a part in that one, too: grants that it gave there may be alive.
    pub fn inherit_grants(&mut self, other: &Acceptor, now: Time) {
        self.replicas.delegated.inherit(&other.replicas.delegated, now);
    }

    /// All that this node granted others as a primary is over then, for checks.
    pub fn delegated_until(&self) -> Time {
        self.replicas.delegated.last()
    }

    /// For how many milliseconds grants may be alive that this node gave in this range as a primary, under other ballots.
    pub(super) fn delegated(&self, ctx: &Context<'_>, ballot: TermBallot, range: KeyRange) -> Vec<(TermBallot, u64)> {
        match ctx.config.defects.has(Defect::GrantsForgotten) {
            true => Vec::new(),
            false => self.replicas.delegated.left(ballot, range, ctx.now.time),
        }
    }

    /// Forgets what is over.
    pub fn forget_replicas(&mut self) {
        let Acceptor { replicas, committees, .. } = self;
        replicas.granted.retain(|ballot, _| committees.get(ballot).is_some());
    }
}
