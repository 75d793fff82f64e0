//! Primaries of one member: their begin and end, the choice of one for each client operation, and the answer where there is none.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use overlay::Epoch;

use crate::ballot::{Term, TermBallot};
use crate::config::Defect;
use crate::context::{Context, Facts};
use crate::control::load::Meter;
use crate::control::recovery::Recovery;
use crate::control::state::GroupState;
use crate::data::{Acceptor, Arrival, Committee, Local, Name, Pending, Primary, Seen, seal_of};
use crate::message::{AttemptOutcome, ClientOperation};
use crate::outbox::Attempt;
use crate::transaction::successor::handover::Handovers;
use crate::validate::Violation;
use overlay::time::Time;

/// Upper limit of an operation's wait here, whatever time its origin gives. No origin lets a client wait for so long.
pub const PATIENCE_MAX: Duration = Duration::from_secs(10);
/// Upper limit of ended primaries with remembered attempts, beside those that the division still names.
const ENDED_MAX: usize = 64;
/// Upper limit of future primaries with remembered early attempts: as many as a division has parts for one node. Further ones are invented
/// by a sender, and their operations are dropped.
const EARLY_MAX: usize = 64;

/// Attempts that came for terms of this node while they have no primary here.
#[derive(Clone, Debug, Default)]
struct Strays {
    /// Attempts that came to primaries that are over: a later copy must not be answered as without effect.
    ended: BTreeMap<TermBallot, Seen>,
    /// Attempts at primaries up to this ballot may be forgotten.
    forgotten: Option<TermBallot>,
    /// Attempts that were refused before their primary began: a later copy must not have an effect.
    early: BTreeMap<TermBallot, Seen>,
}

impl Strays {
    /// Creates notes that know nothing of attempts at primaries up to this epoch.
    fn forgotten_up_to(epoch: Epoch) -> Strays {
        Strays { forgotten: Some(seal_of(epoch)), ..Strays::default() }
    }

    fn arrive_early(&mut self, ballot: TermBallot, name: Name, now: Time) -> Arrival {
        if self.early.len() >= EARLY_MAX && !self.early.contains_key(&ballot) {
            return Arrival::NoRoom;
        }
        self.early.entry(ballot).or_default().arrive(name, now)
    }

    /// Forgets attempts at most of the primaries that the division does not name any more, and attempts from before the horizon.
    fn forget(&mut self, facts: Facts<'_>) {
        let granted: Vec<TermBallot> = facts.state.parts().map(|(_, ballot)| ballot).collect();
        let over: Vec<TermBallot> = self.ended.keys().copied().filter(|ballot| !granted.contains(ballot)).collect();
        for ballot in over.iter().take(self.ended.len().saturating_sub(ENDED_MAX)) {
            self.ended.remove(ballot);
            self.forgotten = self.forgotten.max(Some(*ballot));
        }
        for seen in self.ended.values_mut().chain(self.early.values_mut()) {
            seen.forget(facts.state.horizon, facts.now);
        }
    }
}

/// Primaries of this node, and the attempts that came while there was none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Primaries {
    by_ballot: BTreeMap<TermBallot, Primary>,
    strays: Strays,
}

impl Primaries {
    /// Creates an empty set that knows nothing of attempts at primaries up to this epoch.
    pub(crate) fn forgotten_up_to(epoch: Epoch) -> Primaries {
        Primaries { by_ballot: BTreeMap::new(), strays: Strays::forgotten_up_to(epoch) }
    }

    /// Returns the primary of this ballot.
    pub(crate) fn get(&self, ballot: TermBallot) -> Option<&Primary> {
        self.by_ballot.get(&ballot)
    }

    /// Returns the primary of this ballot, for a message to it.
    pub(crate) fn get_mut(&mut self, ballot: TermBallot) -> Option<&mut Primary> {
        self.by_ballot.get_mut(&ballot)
    }

    /// Iterates over the primaries, in the order of their ballots.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Primary> {
        self.by_ballot.values()
    }

    /// Iterates over the primaries, for changes.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut Primary> {
        self.by_ballot.values_mut()
    }

    /// Returns the terms under which this node serves or begins to.
    pub(crate) fn terms(&self) -> Vec<Term> {
        self.by_ballot.keys().map(|ballot| ballot.term).collect()
    }

    /// Returns whether this node serves, or begins to, under this term.
    pub(crate) fn has_term(&self, term: Term) -> bool {
        self.by_ballot.iter().any(|(ballot, primary)| ballot.term == term && !primary.is_ended())
    }

    /// Returns the terms under which this node serves and has sent nothing for half a heartbeat, each with the number up to which all
    /// writes are chosen.
    pub(crate) fn marks_to_tell(&mut self, facts: Facts<'_>) -> Vec<(Term, u64)> {
        let (epoch, quiet, now) = (facts.state.epoch, facts.config.timing.heartbeat / 2, facts.now);
        let current = self.by_ballot.iter_mut().filter(|(ballot, _)| ballot.epoch == epoch);
        current.filter_map(|(ballot, primary)| Some((ballot.term, primary.mark_to_tell(quiet, now)?))).collect()
    }

    /// Has the primary that an operation names execute it; answers where there is none.
    pub(crate) fn execute(
        &mut self,
        ctx: &mut Context<'_>,
        local: &mut Local<'_>,
        recovery: &Recovery,
        meter: &mut Meter,
        attempt: Attempt,
        operation: ClientOperation,
    ) {
        let primary = operation.ballot.and_then(|ballot| self.by_ballot.get_mut(&ballot));
        let Some(primary) = primary.filter(|primary| primary.range().contains(operation.key.point())) else {
            return self.refuse_attempt(ctx, recovery, attempt, &operation);
        };
        meter.count(operation.key.point());
        let patience = Duration::from_millis(u64::from(operation.patience_ms)).min(PATIENCE_MAX);
        let pending = Pending {
            attempt,
            id: operation.id,
            horizon: operation.horizon,
            deadline: ctx.now.time + patience,
            op: operation.op,
            run: operation.run,
            serial: operation.serial,
            retired_below: operation.retired_below,
            retired_except: operation.retired_except,
        };
        primary.submit(ctx, local, &operation.key, pending);
    }

    /// Answers that there is no such primary here, unless there was one that may have executed exactly this attempt.
    fn refuse_attempt(
        &mut self,
        ctx: &mut Context<'_>,
        recovery: &Recovery,
        attempt: Attempt,
        operation: &ClientOperation,
    ) {
        let Some(ballot) = operation.ballot.filter(|ballot| ballot.node == ctx.me) else {
            return ctx.out.outcome(attempt, AttemptOutcome::NotPrimary);
        };
        let name =
            Name { origin: attempt.origin, run: operation.run, serial: operation.serial, horizon: operation.horizon };
        let ended = &self.strays.ended;
        if ended.get(&ballot).is_some_and(|seen| seen.contains(name)) {
            return; // A copy: the first one is answered.
        }
        let forgotten = !ended.contains_key(&ballot) && self.strays.forgotten >= Some(ballot);
        if recovery.was_granted_before(ballot.term) || forgotten {
            return ctx.out.outcome(attempt, AttemptOutcome::Unknown);
        }
        // A copy that came to another run of this process would not be recognised. None does: it would have had to come over a connection
        // with that run, and all copies of an attempt come over one connection.
        if self.may_begin(ctx.state, recovery, ballot) {
            match self.strays.arrive_early(ballot, name, ctx.now.time) {
                Arrival::First => {}
                Arrival::Copy => return,
                Arrival::NoRoom => return ctx.dropped.note(Violation::NoRoom),
            }
        }
        ctx.out.outcome(attempt, AttemptOutcome::NotPrimary);
    }

    /// Returns whether this node may begin to serve under this ballot of its own, under which it does not serve now.
    fn may_begin(&self, state: &GroupState, recovery: &Recovery, ballot: TermBallot) -> bool {
        let granted = state.parts().any(|(_, known)| known == ballot);
        let to_come = ballot.term.slot() > state.applied;
        (granted || to_come)
            && !recovery.was_granted_before(ballot.term)
            && !recovery.doubts(ballot.epoch)
            && !self.by_ballot.contains_key(&ballot)
            && !self.strays.ended.contains_key(&ballot)
    }

    /// Begins to take over the sub-ranges that the division grants, once for each term: under a term that is over nothing is proposed
    /// again, as the value might differ (hazard 5).
    pub(crate) fn begin(&mut self, ctx: &mut Context<'_>, recovery: &Recovery, handovers: &Handovers) {
        if ctx.state.ended.is_some() {
            return;
        }
        let parts: Vec<_> = ctx.state.parts().collect();
        for (range, ballot) in parts {
            if ballot.node == ctx.me && self.may_begin(ctx.state, recovery, ballot) {
                let seen = self.strays.early.remove(&ballot).unwrap_or_default();
                let handed = handovers.to(ctx.state, ballot, range);
                let primary = Primary::begin(ctx, ballot, range, seen, handed);
                self.by_ballot.insert(ballot, primary);
            }
        }
    }

    /// Ends all primaries.
    pub(crate) fn end_all(&mut self, ctx: &mut Context<'_>) {
        self.by_ballot.values_mut().for_each(|primary| primary.end(ctx));
    }

    /// Ends the primaries that the division does not name any more.
    pub(crate) fn end_former(&mut self, ctx: &mut Context<'_>) {
        let granted: Vec<TermBallot> = ctx.state.parts().map(|(_, ballot)| ballot).collect();
        for (ballot, primary) in &mut self.by_ballot {
            if !granted.contains(ballot) {
                primary.end(ctx);
            }
        }
    }

    /// Ends the primaries that the promises of this node's own acceptor superseded. Their leases are gone before such a promise leaves.
    pub(crate) fn end_superseded(&mut self, ctx: &mut Context<'_>, acceptor: &Acceptor) {
        for (ballot, primary) in &mut self.by_ballot {
            if acceptor.committee(*ballot).is_some_and(Committee::is_superseded)
                && !ctx.config.defects.has(Defect::PromiseIgnored)
            {
                primary.end(ctx);
            }
        }
    }

    /// Drops primaries that are over, and keeps their handovers.
    pub(crate) fn drop_ended(&mut self, facts: Facts<'_>, acceptor: &Acceptor, handovers: &mut Handovers) {
        if !self.by_ballot.values().any(Primary::is_ended) {
            return;
        }
        let (ended, rest): (BTreeMap<_, _>, BTreeMap<_, _>) =
            core::mem::take(&mut self.by_ballot).into_iter().partition(|(_, primary)| primary.is_ended());
        self.by_ballot = rest;
        handovers.keep(facts.state, ended.values().filter_map(|primary| primary.handover(acceptor, facts.now)));
        self.strays.ended.extend(ended.into_iter().map(|(ballot, primary)| (ballot, primary.into_seen())));
    }

    /// Forgets attempts that can have no effect any more.
    pub(crate) fn forget_strays(&mut self, facts: Facts<'_>, recovery: &Recovery) {
        if self.strays.early.is_empty() && self.strays.ended.is_empty() {
            return;
        }
        let mut early = core::mem::take(&mut self.strays.early);
        early.retain(|ballot, _| self.may_begin(facts.state, recovery, *ballot));
        self.strays.early = early;
        self.strays.forget(facts);
    }
}
