//! The primary of one sub-range under one ballot.
//!
//! # Invariants
//! - A primary serves only after a quorum accepted its base, and after every older lease is over. It takes operations before that, but
//!   answers none.
//! - A primary evaluates an operation on a chosen record only, and has one write of a key in flight (hazard 9).
//! - An answer leaves only after its write is chosen, or after a quorum confirmed the ballot since the operation arrived.
//! - A primary ends at the first sign of a higher ballot: operations that were not sent are refused, and the outcome of sent ones is
//!   unknown.

pub(crate) mod completions;
pub(crate) mod expiry;
pub(crate) mod reads;
pub(crate) mod seen;
pub(crate) mod takeover;
pub(crate) mod writes;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use overlay::{Key, KeyRange, NodeId};

use crate::ballot::TermBallot;
use crate::context::Context;
use crate::data::acceptor::Acceptor;
use crate::data::primary::expiry::Sweep;
use crate::data::primary::reads::{QuorumRead, Reads};
use crate::data::primary::seen::{Arrival, Name, Seen};
use crate::data::primary::takeover::Takeover;
use crate::data::primary::writes::InFlight;
use crate::data::table::Table;
use crate::harmonia::offload::Offload;
use crate::message::{AttemptOutcome, Base, CommitteeMessage, Message, Write};
use crate::number_set::NumberSet;
use crate::op::{Limit, Op, OpError, Refusal};
use crate::outbox::Attempt;
use crate::record::{OpId, Record};
use crate::transaction::successor::handover::Handover;
use crate::validate::Violation;
use overlay::time::{Time, WallMillis};

/// Parts of the member that a primary works with.
pub struct Local<'a> {
    /// Chosen records.
    pub table: &'a mut Table,
    /// This node's acceptor.
    pub acceptor: &'a mut Acceptor,
    /// Group time.
    pub group_time: WallMillis,
    /// Limit because of which no writes are taken, if there is one.
    pub full: Option<Limit>,
    /// Whether another member has room and takes over: a write that finds no room here should then be tried again.
    pub is_relieved: bool,
}

/// Operation that waits for evaluation.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Receiver of the answer.
    pub attempt: Attempt,
    /// Id of the operation.
    pub id: OpId,
    /// Horizon that the origin knew.
    pub horizon: u64,
    /// Time after which no client waits for the operation any more.
    pub deadline: Time,
    /// Operation to evaluate.
    pub op: Op,
    /// Run of the origin's process.
    pub run: u64,
    /// Number of the attempt among that run's attempts under this ballot.
    pub serial: u64,
    /// The origin never again sends its operations on this key with a lower sequence number, except those in `retired_except`.
    pub retired_below: u64,
    /// Sequence numbers below `retired_below` that the origin may still send.
    pub retired_except: Vec<u64>,
}

impl Pending {
    pub(crate) fn name(&self) -> Name {
        Name { origin: self.attempt.origin, run: self.run, serial: self.serial, horizon: self.horizon }
    }

    /// Returns whether, by the statement of this operation's origin, the operation of `id` will never be sent again.
    pub(crate) fn retires(&self, id: &OpId) -> bool {
        match id {
            OpId::Origin { node, run, sequence } => {
                *node == self.attempt.origin
                    && *run == self.run
                    && *sequence < self.retired_below
                    && !self.retired_except.contains(sequence)
            }
            OpId::Client(_) => false,
        }
    }
}

/// Queue of one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyQueue {
    pub(crate) in_flight: u32,
    pub(crate) waiting: VecDeque<Pending>,
    /// The value may have expired: the next evaluation checks.
    pub(crate) expire: bool,
    /// Until this time an operation on the owner of this companion key waits for the companion's record.
    pub(crate) looked_up: Time,
}

/// Phase of a primary.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// Phase 1, and the base.
    TakingOver(Takeover),
    /// The primary serves.
    Serving,
    /// Another node is primary of the sub-range, or will be.
    Ended,
}

/// Counts of one primary, for display and for checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrimaryCounts {
    /// Whether the primary serves.
    pub serving: bool,
    /// Number of waiting operations.
    pub waiting: usize,
    /// Number of writes in flight.
    pub in_flight: usize,
    /// Number of gaps in the numbers of the chosen writes.
    pub gaps: usize,
    /// End of the primary's lease.
    pub lease_until: Time,
    /// Number of older primaries' leases that the primary waits for.
    pub older_leases: usize,
}

/// The primary of one sub-range.
#[derive(Clone, Debug)]
pub struct Primary {
    pub(crate) ballot: TermBallot,
    pub(crate) range: KeyRange,
    pub(crate) phase: Phase,
    /// Base of this ballot, once the primary has laid one.
    pub(crate) base: Option<Arc<Base>>,
    pub(crate) base_accepted: BTreeSet<NodeId>,
    pub(crate) next_n: u64,
    pub(crate) in_flight: BTreeMap<u64, InFlight>,
    pub(crate) chosen: NumberSet,
    /// Writes that are proposed and not sent yet.
    pub(crate) unsent: Vec<Write>,
    /// Numbers of the writes that are not sent before the primary serves.
    pub(crate) early: BTreeSet<u64>,
    /// Chosen mark that the whole audience was last told, and when.
    pub(crate) announced: (u64, Time),
    pub(crate) keys: BTreeMap<Key, KeyQueue>,
    pub(crate) waiting: usize,
    /// Empty vector, kept for its capacity: the next evaluation uses it for the answers that wait.
    pub(crate) spare: Vec<(Attempt, AttemptOutcome)>,
    /// Keys that could not continue because too much was in flight.
    pub(crate) stalled: VecDeque<Key>,
    pub(crate) reads: Reads,
    pub(crate) offload: Offload,
    pub(crate) quorum_reads: BTreeMap<Key, QuorumRead>,
    /// Keys of missing pieces with a record that is known by a quorum read.
    pub(crate) known: BTreeSet<Key>,
    /// Attempts that arrived, by origin. A copy that comes later is not executed, although the attempt's id may be forgotten.
    pub(crate) seen: Seen,
    /// Search for expired values.
    pub(crate) sweep: Sweep,
    /// Writes that were in flight when the primary ended, if it served until then.
    left: Option<Vec<Write>>,
    /// Whether the primary's own acceptor has the base, or the primary serves; and the primary has not ended.
    pub(crate) takes_operations: bool,
    /// Number of batches of writes that were sent after the base and before the primary served.
    pub(crate) batches_ahead: u32,
}

impl Primary {
    /// Begins to take over; see the module's text in [`crate::data`]. The attempts in `seen` came before, and were refused. `handed` has the
    /// handovers of the sub-range's last primaries.
    pub fn begin(
        ctx: &mut Context<'_>,
        ballot: TermBallot,
        range: KeyRange,
        seen: Seen,
        handed: Vec<Handover>,
    ) -> Primary {
        let mut primary = Primary {
            ballot,
            range,
            phase: Phase::TakingOver(Takeover::new(ctx.now.time, handed)),
            base: None,
            base_accepted: BTreeSet::new(),
            next_n: 1,
            in_flight: BTreeMap::new(),
            chosen: NumberSet::default(),
            unsent: Vec::new(),
            early: BTreeSet::new(),
            announced: (0, ctx.now.time),
            keys: BTreeMap::new(),
            waiting: 0,
            spare: Vec::new(),
            stalled: VecDeque::new(),
            reads: Reads::default(),
            offload: Offload::default(),
            quorum_reads: BTreeMap::new(),
            known: BTreeSet::new(),
            seen,
            sweep: Sweep::new(ctx.now.time),
            left: None,
            takes_operations: false,
            batches_ahead: 0,
        };
        primary.send_prepare(ctx);
        primary
    }

    /// Returns the ballot of this primary.
    pub fn ballot(&self) -> TermBallot {
        self.ballot
    }

    /// Returns the sub-range of this primary.
    pub fn range(&self) -> KeyRange {
        self.range
    }

    /// Returns whether the primary serves.
    pub fn is_serving(&self) -> bool {
        matches!(self.phase, Phase::Serving)
    }

    /// Returns whether the primary takes operations: from when its own acceptor has its base. Writes that the primary proposes then follow
    /// the base, and no answer leaves before the primary serves.
    pub fn takes_operations(&self) -> bool {
        self.takes_operations
    }

    /// Returns whether the primary has ended.
    pub fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }

    /// Returns counts, for display and for checks.
    pub fn counts(&self) -> PrimaryCounts {
        PrimaryCounts {
            serving: self.is_serving(),
            waiting: self.waiting,
            in_flight: self.in_flight.len(),
            gaps: self.chosen.gaps(),
            lease_until: self.reads.lease_until,
            older_leases: match &self.phase {
                Phase::TakingOver(takeover) => takeover.leases_held(),
                Phase::Serving | Phase::Ended => 0,
            },
        }
    }

    /// Handles one message to the primary; the caller has checked the sender.
    pub fn on_message(
        &mut self,
        ctx: &mut Context<'_>,
        local: &mut Local<'_>,
        from: NodeId,
        message: CommitteeMessage,
    ) {
        match message {
            CommitteeMessage::Promise {
                part, parts, total, committees, unsettled, leases, delegated, doubt, ..
            } => {
                self.note_leases(ctx, from, part, leases, delegated);
                self.on_promise(ctx, local, (from, doubt), (part, parts, total), committees, unsettled);
            }
            CommitteeMessage::Refused { promised, .. } if promised > self.ballot => self.end(ctx),
            CommitteeMessage::Accepted { numbers, .. } => self.on_accepted(ctx, local, from, &numbers),
            CommitteeMessage::BaseAccepted { .. } => self.on_base_accepted(ctx, local, from),
            CommitteeMessage::AskBase { .. } => self.send_base(ctx, &[from]),
            CommitteeMessage::Confirmed { attempt, .. } => {
                self.on_confirmed(ctx, from, attempt);
                self.grant(ctx, local.acceptor, from, attempt);
            }
            CommitteeMessage::RecordIs { key, attempt, record, doubt, .. } => {
                self.on_record_is(ctx, local, (from, attempt, doubt), key, record);
            }
            _ => {}
        }
    }

    /// Takes an operation for a key of the sub-range. Each attempt is answered, except where [`Seen`] has no room for the attempt: then it
    /// counts as lost. A copy of an attempt is not answered again.
    pub fn submit(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>, key: &Key, pending: Pending) {
        match self.seen.arrive(pending.name(), ctx.now.time) {
            Arrival::First => {}
            Arrival::Copy => return, // The first one is answered.
            Arrival::NoRoom => return ctx.dropped.note(Violation::NoRoom),
        }
        if self.is_ended() {
            ctx.out.outcome(pending.attempt, AttemptOutcome::NotPrimary);
            return;
        }
        if self.waiting + self.reads.waiting() >= ctx.config.waiting_max {
            ctx.out.refuse(pending.attempt, OpError::TryAgain(Refusal::Busy));
            return;
        }
        let Some(pending) = self.read_at_once(ctx, local, key, pending) else { return };
        self.waiting += 1;
        self.keys.entry(key.clone()).or_default().waiting.push_back(pending);
        self.run(ctx, local, key);
    }

    /// Continues with a key after its record was loaded.
    pub fn on_loaded(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>, key: &Key) {
        if self.keys.contains_key(key) {
            self.run(ctx, local, key);
        }
    }

    /// Handles timers: repeats, leases, expiry.
    pub fn on_tick(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>) {
        match self.phase {
            Phase::TakingOver(_) => self.tick_takeover(ctx, local),
            Phase::Serving => {
                self.tick_offload(ctx, local);
                self.resend_writes(ctx);
                self.tick_reads(ctx);
                self.end_quorum_reads(ctx, local);
                self.tick_quorum_reads(ctx);
                self.sweep_expired(ctx, local);
            }
            Phase::Ended => {}
        }
        self.drop_overdue(ctx);
        self.seen.forget(ctx.state.horizon, ctx.now.time);
    }

    /// Returns when [`Primary::on_tick`] or [`Primary::flush`] has to be called next.
    pub fn next_timeout(&self, ctx: &Context<'_>) -> Time {
        if self.is_ended() {
            return Time::NEVER;
        }
        let repeat = ctx.now.time + ctx.config.timing.resend / 3;
        if !self.is_serving() {
            // Leases, rounds and expiry do not matter before the primary serves.
            return repeat.min(self.lease_wait_over(ctx));
        }
        // Without writes in flight and operations waiting there is nothing to repeat.
        let mut next = if self.keys.is_empty() && self.in_flight.is_empty() { Time::NEVER } else { repeat };
        if self.chosen.mark() > self.announced.0 {
            next = next.min(self.announced.1 + crate::data::primary::writes::ANNOUNCE_AFTER);
        }
        next = next.min(self.reads.next_timeout(ctx)).min(self.next_sweep()).min(self.lease_wait_over(ctx));
        next.min(self.offload_due(ctx))
    }

    /// Sends the messages that the inputs since the last call have gathered.
    pub fn flush(&mut self, ctx: &mut Context<'_>) {
        self.flush_writes(ctx);
        self.flush_reads(ctx);
    }

    /// Ends this primary, and answers each waiting operation: not done where that is certain, else unknown.
    pub fn end(&mut self, ctx: &mut Context<'_>) {
        if self.is_ended() {
            return;
        }
        self.void_held(ctx);
        self.left =
            self.is_serving().then(|| self.in_flight.values().map(|in_flight| in_flight.write.clone()).collect());
        self.phase = Phase::Ended;
        self.takes_operations = false;
        self.reads.lease_until = Time(0);
        self.offload.end();
        for (_, queue) in core::mem::take(&mut self.keys) {
            for pending in queue.waiting {
                ctx.out.outcome(pending.attempt, AttemptOutcome::NotPrimary);
            }
        }
        for (_, in_flight) in core::mem::take(&mut self.in_flight) {
            for (attempt, _) in in_flight.waiters {
                ctx.out.outcome(attempt, AttemptOutcome::Unknown);
            }
        }
        for (attempt, _) in self.reads.take_all() {
            ctx.out.outcome(attempt, AttemptOutcome::NotPrimary);
        }
        self.waiting = 0;
        self.unsent.clear();
        self.stalled.clear();
        self.quorum_reads.clear();
    }

    /// Returns the nodes that are told of this primary's writes.
    pub(crate) fn audience(&self, ctx: &Context<'_>) -> Vec<NodeId> {
        ctx.state.audience()
    }

    /// Sends the base to these nodes, if there is one.
    pub(crate) fn send_base(&self, ctx: &mut Context<'_>, to: &[NodeId]) {
        let Some(base) = &self.base else { return };
        let chosen = self.is_serving().then(|| self.chosen.mark());
        let message = CommitteeMessage::Base { ballot: self.ballot, base: base.clone(), chosen };
        ctx.out.send(to, Message::Committee(message));
    }

    /// Sends the base to newcomers: all writes of this ballot rest on it.
    pub fn welcome(&self, ctx: &mut Context<'_>, newcomers: &[NodeId]) {
        if self.is_serving() {
            self.send_base(ctx, newcomers);
        }
    }

    /// Returns all writes that may have been chosen under this ballot, if the primary has ended and served until then. `None` where the
    /// primary cannot account for each number that it used. Its own acceptor has the writes that it sent, unless it had promised a higher
    /// ballot before.
    pub fn handover(&self, acceptor: &Acceptor, now: Time) -> Option<Handover> {
        if self.offload.granted_until() > now {
            return None; // A successor has to wait, and so to ask for how long.
        }
        let (left, base) = (self.left.as_ref()?, self.base.clone()?);
        let committee = acceptor.committee(self.ballot);
        // Members may not know yet that a write is chosen: such writes are handed over as well. A member that lacks them then gets them,
        // and lacks nothing.
        let known = committee.and_then(|committee| committee.chosen()).unwrap_or(0);
        let chosen = self.chosen.mark().min(known);
        let accepted = committee.into_iter().flat_map(|committee| committee.unsettled(self.range));
        let writes = accepted.chain(left).map(|write| (write.record.number.n, write));
        let beyond: BTreeMap<u64, Write> =
            writes.filter(|(n, _)| *n > chosen).map(|(n, write)| (n, write.clone())).collect();
        let is_whole = beyond.len() as u64 == self.next_n.saturating_sub(chosen + 1);
        is_whole.then(|| Handover { ballot: self.ballot, base, chosen, unsettled: beyond.into_values().collect() })
    }

    /// Returns the attempts that this primary has seen, so that copies of them are recognised when it has ended.
    pub fn into_seen(self) -> Seen {
        self.seen
    }

    /// Deletes the expired values of the next page of the sub-range, where that is due.
    fn sweep_expired(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>) {
        if ctx.now.time < self.next_sweep() {
            return;
        }
        self.sweep.at = ctx.now.time;
        if !self.stalled.is_empty() {
            return; // They would only wait behind the stalled keys.
        }
        for key in self.sweep.look(local, self.range) {
            self.keys.entry(key.clone()).or_default().expire = true;
            self.run(ctx, local, &key);
        }
    }

    /// Returns when the next page is to be searched for expired values.
    fn next_sweep(&self) -> Time {
        if self.is_serving() { self.sweep.due() } else { Time::NEVER }
    }

    fn drop_overdue(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now.time;
        let (out, waiting) = (&mut *ctx.out, &mut self.waiting);
        for queue in self.keys.values_mut() {
            while queue.waiting.front().is_some_and(|pending| pending.deadline <= now) {
                let pending = queue.waiting.pop_front().expect("just seen");
                *waiting -= 1;
                out.refuse(pending.attempt, OpError::TryAgain(Refusal::NoPrimary));
            }
        }
        self.keys.retain(|_, queue| {
            queue.in_flight > 0 || !queue.waiting.is_empty() || queue.expire || queue.looked_up > now
        });
    }
}

/// Returns the record of a write under a new number.
pub(crate) fn renumbered(record: &Record, number: crate::ballot::Number) -> Arc<Record> {
    Arc::new(Record { number, ..record.clone() })
}
