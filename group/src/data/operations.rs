//! Client operations at one member: the choice of its primary, and the answer where it has none.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use overlay::{Epoch, Key, NodeId};

use crate::ballot::TermBallot;
use crate::data::service::{Delivery, Live, deliver};
use crate::data::table::Lookup;
use crate::data::{Arrival, Local, Name, Pending, Primary, Seen, seal_of};
use crate::group::{Group, context, local};
use crate::message::{AttemptOutcome, ClientMessage, ClientOperation};
use crate::op::{Answer, Limit, Op, OpError, ReadMode, Refusal};
use crate::outbox::{Attempt, GroupOutput};
use crate::record::Record;
use crate::transaction::successor::handover::Handover;
use crate::validate::Violation;

/// Upper limit of an operation's wait here, whatever time its origin gives. No origin lets a client wait for so long.
pub const PATIENCE_MAX: Duration = Duration::from_secs(10);
/// Upper limit of ended primaries with remembered attempts, beside those that the division still names.
const ENDED_MAX: usize = 64;
/// Upper limit of future primaries with remembered early attempts: as many as a division has parts for one node. Further ones are invented
/// by a sender, and their operations are dropped.
const EARLY_MAX: usize = 64;

/// Attempts that came for terms of this node while they have no primary here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Strays {
    /// Attempts that came to primaries that are over: a later copy must not be answered as without effect.
    ended: BTreeMap<TermBallot, Seen>,
    /// Attempts at primaries up to this ballot may be forgotten.
    forgotten: Option<TermBallot>,
    /// Attempts that were refused before their primary began: a later copy must not have an effect.
    early: BTreeMap<TermBallot, Seen>,
}

impl Strays {
    /// Creates notes that know nothing of attempts at primaries up to this epoch.
    pub(crate) fn forgotten_up_to(epoch: Epoch) -> Strays {
        Strays { forgotten: Some(seal_of(epoch)), ..Strays::default() }
    }
}

impl Group {
    pub(crate) fn on_client_message(&mut self, from: NodeId, message: ClientMessage) {
        for (attempt, outcome) in message.outcomes {
            self.out.push(GroupOutput::Outcome(attempt, outcome));
        }
        for operation in message.operations {
            self.operate(from, operation);
        }
    }

    /// Has another node execute this. Its outcome is a [`GroupOutput::Outcome`], unless it is lost.
    pub fn ask(&mut self, primary: NodeId, operation: ClientOperation) {
        self.out.ask(primary, operation);
    }

    /// Executes an operation of this node's clients, or of another node's. It leads to one [`AttemptOutcome`], or counts as lost.
    pub fn operate(&mut self, origin: NodeId, operation: ClientOperation) {
        let attempt = Attempt { origin, attempt: operation.attempt };
        if self.halted().is_some() {
            return self.out.outcome(attempt, AttemptOutcome::NotPrimary);
        }
        if operation.mode == ReadMode::Relaxed && operation.ballot.is_none() {
            return self.read_relaxed(attempt, operation);
        }
        let primary = operation.ballot.and_then(|ballot| self.primaries.get_mut(&ballot));
        let Some(primary) = primary.filter(|primary| primary.range().contains(operation.key.point())) else {
            return self.refuse_attempt(attempt, &operation);
        };
        self.workload.meter.count(operation.key.point());
        let patience = Duration::from_millis(u64::from(operation.patience_ms)).min(PATIENCE_MAX);
        let pending = Pending {
            attempt,
            id: operation.id,
            horizon: operation.horizon,
            deadline: self.now.time + patience,
            op: operation.op,
            run: operation.run,
            serial: operation.serial,
            retired_below: operation.retired_below,
            retired_except: operation.retired_except,
        };
        primary.submit(&mut context!(self), &mut local!(self), &operation.key, pending);
    }

    /// Answers that there is no such primary here, unless there was one that may have executed exactly this attempt.
    fn refuse_attempt(&mut self, attempt: Attempt, operation: &ClientOperation) {
        let Some(ballot) = operation.ballot.filter(|ballot| ballot.node == self.me) else {
            return self.out.outcome(attempt, AttemptOutcome::NotPrimary);
        };
        let name =
            Name { origin: attempt.origin, run: operation.run, serial: operation.serial, horizon: operation.horizon };
        let ended = &self.strays.ended;
        if ended.get(&ballot).is_some_and(|seen| seen.contains(name)) {
            return; // A copy: the first one is answered.
        }
        let forgotten = !ended.contains_key(&ballot) && self.strays.forgotten >= Some(ballot);
        if ballot.term.slot() <= self.recovery.granted_before || forgotten {
            return self.out.outcome(attempt, AttemptOutcome::Unknown);
        }
        // A copy that came to another run of this process would not be recognised. None does: it would have had to come over a connection
        // with that run, and all copies of an attempt come over one connection.
        if self.may_begin(ballot) {
            match self.arrive_early(ballot, name) {
                Arrival::First => {}
                Arrival::Copy => return,
                Arrival::NoRoom => return self.dropped.note(Violation::NoRoom),
            }
        }
        self.out.outcome(attempt, AttemptOutcome::NotPrimary);
    }

    /// Returns whether this node may begin to serve under this ballot of its own, under which it does not serve now.
    fn may_begin(&self, ballot: TermBallot) -> bool {
        let granted = self.state.parts().any(|(_, known)| known == ballot);
        let to_come = ballot.term.slot() > self.state.applied;
        (granted || to_come)
            && ballot.term.slot() > self.recovery.granted_before
            && !self.recovery.doubts(ballot.epoch)
            && !self.primaries.contains_key(&ballot)
            && !self.strays.ended.contains_key(&ballot)
    }

    fn arrive_early(&mut self, ballot: TermBallot, name: Name) -> Arrival {
        let early = &mut self.strays.early;
        if early.len() >= EARLY_MAX && !early.contains_key(&ballot) {
            return Arrival::NoRoom;
        }
        early.entry(ballot).or_default().arrive(name, self.now.time)
    }

    /// Begins to take over the sub-ranges that the division grants, once for each term: under a term that is over nothing is proposed
    /// again, as the value might differ (hazard 5).
    pub(crate) fn begin_primaries(&mut self) {
        if self.state.ended.is_some() {
            return;
        }
        let parts: Vec<_> = self.state.parts().collect();
        for (range, ballot) in parts {
            if ballot.node == self.me && self.may_begin(ballot) {
                let seen = self.strays.early.remove(&ballot).unwrap_or_default();
                let handed = self.handed_to(ballot, range);
                let primary = Primary::begin(&mut context!(self), ballot, range, seen, handed);
                self.primaries.insert(ballot, primary);
            }
        }
    }

    /// Drops primaries that are over.
    pub(crate) fn drop_ended(&mut self) {
        if !self.primaries.values().any(Primary::is_ended) {
            return;
        }
        let (ended, rest): (BTreeMap<_, _>, BTreeMap<_, _>) =
            core::mem::take(&mut self.primaries).into_iter().partition(|(_, primary)| primary.is_ended());
        self.primaries = rest;
        let handovers: Vec<Handover> =
            ended.values().filter_map(|primary| primary.handover(&self.acceptor, self.now.time)).collect();
        self.keep_handovers(handovers);
        self.strays.ended.extend(ended.into_iter().map(|(ballot, primary)| (ballot, primary.into_seen())));
    }

    /// Forgets attempts that can have no effect any more.
    pub(crate) fn forget_strays(&mut self) {
        if self.strays.early.is_empty() && self.strays.ended.is_empty() {
            return;
        }
        let mut early = core::mem::take(&mut self.strays.early);
        early.retain(|ballot, _| self.may_begin(*ballot));
        self.strays.early = early;
        let granted: Vec<TermBallot> = self.state.parts().map(|(_, ballot)| ballot).collect();
        let over: Vec<TermBallot> =
            self.strays.ended.keys().copied().filter(|ballot| !granted.contains(ballot)).collect();
        for ballot in over.iter().take(self.strays.ended.len().saturating_sub(ENDED_MAX)) {
            self.strays.ended.remove(ballot);
            self.strays.forgotten = self.strays.forgotten.max(Some(*ballot));
        }
        for seen in self.strays.ended.values_mut().chain(self.strays.early.values_mut()) {
            seen.forget(self.state.horizon, self.now.time);
        }
    }

    /// Reads from this member's own chosen state, of any age. Keys with a deadline are left to the primary.
    fn read_relaxed(&mut self, attempt: Attempt, operation: ClientOperation) {
        if self.relaxed.len() >= self.config.waiting_max {
            return self.out.refuse(attempt, OpError::TryAgain(Refusal::Busy));
        }
        match self.table.get(&operation.key, true, &mut self.out) {
            Lookup::Loading => self.relaxed.wait(operation.key.clone(), (attempt, operation)),
            Lookup::Known(Some(record)) if record.deadline.is_some() => {
                self.out.outcome(attempt, AttemptOutcome::NotPrimary);
            }
            Lookup::Known(record) => {
                let answer = self.read_here(&operation.op, record.as_deref());
                self.out.outcome(attempt, AttemptOutcome::Unchanged(answer));
            }
        }
    }

    /// Returns the answer to a read from a record of this member's own, which has no deadline.
    pub(crate) fn read_here(&self, op: &Op, record: Option<&Record>) -> Answer {
        let live = record.and_then(|record| {
            let (kind, version) = (record.kind, record.version);
            Some(Live { value: record.value.clone()?, kind, version, deadline: None })
        });
        let at = Delivery { now: self.liveness.group_time(self.now.time), value_bytes_max: usize::MAX };
        deliver(op, live.as_ref(), &at).1
    }

    /// Continues the operations that waited for a key's record, which was loaded.
    pub(crate) fn go_on(&mut self, key: &Key) {
        for primary in self.primaries.values_mut() {
            if primary.range().contains(key.point()) {
                primary.on_loaded(&mut context!(self), &mut local!(self), key);
            }
        }
        for (attempt, operation) in self.relaxed.take(key) {
            self.read_relaxed(attempt, operation);
        }
        self.go_on_spread(key);
    }
}
