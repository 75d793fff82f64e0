//! The primary of one sub-range under one ballot.
//!
//! # Invariants
//! - Serves only after a quorum accepted its base, and after every older lease is over. Takes operations before that, but
//!   answers none.
//! - Evaluates an operation on a chosen record only, and has one write of a key in flight (hazard 9).
//! - An answer leaves only after its write is chosen, or after a quorum confirmed the ballot since it was asked for.
//! - Ends at the first sign of a higher ballot: what was not sent is refused, what was sent is unknown.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use overlay::{Key, KeyRange, NodeId};

use super::acceptor::Acceptor;
use super::expiry::Sweep;
use super::offload::Offload;
use super::reads::{QuorumRead, Reads};
use super::seen::{Arrival, Name, Seen};
use super::takeover::Takeover;
use super::writes::InFlight;
use crate::ballot::TermBallot;
use crate::context::Context;
use crate::handover::Handover;
use crate::message::{Base, CommitteeMessage, Message, Outcome, Write};
use crate::nonsense::Nonsense;
use crate::number_set::NumberSet;
use crate::op::{Limit, Op, OpError, Refusal};
use crate::outbox::Attempt;
use crate::record::{OpId, Record};
use crate::table::Table;
use crate::time::{Time, WallMillis};

/// The rest of the member that a primary works with.
pub struct Local<'a> {
    /// Chosen records.
    pub table: &'a mut Table,
    /// This node's acceptor.
    pub acceptor: &'a mut Acceptor,
    /// Group time.
    pub group_time: WallMillis,
    /// No writes are taken, and why.
    pub full: Option<Limit>,
    /// Another member has room, and takes over: a write that finds none here should be tried again.
    pub is_relieved: bool,
}

/// An operation that waits.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Who is answered.
    pub attempt: Attempt,
    /// Its id.
    pub id: OpId,
    /// The horizon its origin knew.
    pub horizon: u64,
    /// After this nobody waits for it any more.
    pub deadline: Time,
    /// What to do.
    pub op: Op,
    /// Which run of its origin's process.
    pub run: u64,
    /// That run's count of attempts under this ballot.
    pub serial: u64,
    /// Of its origin's operations on this key those below are never sent again, but for the exceptions.
    pub retired_below: u64,
    /// The exceptions.
    pub retired_except: Vec<u64>,
}

impl Pending {
    pub(super) fn name(&self) -> Name {
        Name { origin: self.attempt.origin, run: self.run, serial: self.serial, horizon: self.horizon }
    }

    /// Will this operation never be sent again, by what the origin of this one says?
    pub(super) fn retires(&self, id: &OpId) -> bool {
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

/// One key's queue.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyQueue {
    pub(super) in_flight: u32,
    pub(super) waiting: VecDeque<Pending>,
    /// It may have expired: look.
    pub(super) expire: bool,
    /// An operation on the owner of this companion key waits for its record, until then.
    pub(super) looked_up: Time,
}

/// What a primary does.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// Phase 1, and the base.
    TakingOver(Takeover),
    /// It serves.
    Serving,
    /// Somebody else does, or will.
    Ended,
}

/// Counts of one primary, for a person to see and for checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrimaryCounts {
    /// It serves.
    pub serving: bool,
    /// Operations waiting.
    pub waiting: usize,
    /// Writes in flight.
    pub in_flight: usize,
    /// Gaps in the numbers of its chosen writes.
    pub gaps: usize,
    /// Its lease ends then.
    pub lease_until: Time,
    /// Leases of older primaries that it waits for.
    pub older_leases: usize,
}

/// The primary of one sub-range.
#[derive(Clone, Debug)]
pub struct Primary {
    pub(super) ballot: TermBallot,
    pub(super) range: KeyRange,
    pub(super) phase: Phase,
    /// Its base, once it has one.
    pub(super) base: Option<Arc<Base>>,
    pub(super) base_accepted: BTreeSet<NodeId>,
    pub(super) next_n: u64,
    pub(super) in_flight: BTreeMap<u64, InFlight>,
    pub(super) chosen: NumberSet,
    /// Writes proposed and not sent yet.
    pub(super) unsent: Vec<Write>,
    /// Those that are not sent before it serves.
    pub(super) early: BTreeSet<u64>,
    /// The chosen mark that everyone was last told, and when.
    pub(super) announced: (u64, Time),
    pub(super) keys: BTreeMap<Key, KeyQueue>,
    pub(super) waiting: usize,
    /// Empty, with room for those who wait for an answer.
    pub(super) spare: Vec<(Attempt, Outcome)>,
    /// Keys that could not go on because too much was in flight.
    pub(super) stalled: VecDeque<Key>,
    pub(super) reads: Reads,
    pub(super) offload: Offload,
    pub(super) quorum_reads: BTreeMap<Key, QuorumRead>,
    /// Keys of missing pieces that are known by a quorum read.
    pub(super) known: BTreeSet<Key>,
    /// Attempts that came, by origin: a copy that comes later is not executed, although its id may be forgotten.
    pub(super) seen: Seen,
    /// The search for expired values.
    pub(super) sweep: Sweep,
    /// What was in flight when it ended, where it served until then.
    left: Option<Vec<Write>>,
    /// Its own acceptor has its base, or it serves; and it is not over.
    pub(super) takes_operations: bool,
    /// Batches of writes that were sent between these two.
    pub(super) batches_ahead: u32,
}

impl Primary {
    /// Begins to take over; see the module's text in [`super`]. What was `seen` came before, and was refused. `handed`: what
    /// those say who had the sub-range last.
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

    /// Its ballot.
    pub fn ballot(&self) -> TermBallot {
        self.ballot
    }

    /// Its sub-range.
    pub fn range(&self) -> KeyRange {
        self.range
    }

    /// Does it serve?
    pub fn is_serving(&self) -> bool {
        matches!(self.phase, Phase::Serving)
    }

    /// Does it take operations? It does once its own acceptor has its base: what it proposes then is on its way behind that, and
    /// nothing is answered before it serves.
    pub fn takes_operations(&self) -> bool {
        self.takes_operations
    }

    /// Is it over?
    pub fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }

    /// Counts, for a person to see and for checks.
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

    /// One message to the primary; the caller has checked the sender.
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

    /// An operation for a key of the sub-range. It is answered, whatever happens.
    pub fn submit(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>, key: &Key, pending: Pending) {
        match self.seen.arrive(pending.name(), ctx.now.time) {
            Arrival::First => {}
            Arrival::Copy => return, // The first one is answered.
            Arrival::NoRoom => return ctx.dropped.note(Nonsense::NoRoom),
        }
        if self.is_ended() {
            ctx.out.outcome(pending.attempt, Outcome::NotPrimary);
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

    /// A key's record was loaded.
    pub fn on_loaded(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>, key: &Key) {
        if self.keys.contains_key(key) {
            self.run(ctx, local, key);
        }
    }

    /// Timers: repeats, leases, expiry.
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

    /// When [`Primary::on_tick`] or [`Primary::flush`] has something to do next.
    pub fn next_timeout(&self, ctx: &Context<'_>) -> Time {
        if self.is_ended() {
            return Time::NEVER;
        }
        let repeat = ctx.now.time + ctx.config.timing.resend / 3;
        if !self.is_serving() {
            // What has to do with leases, rounds and expiry is not looked at before.
            return repeat.min(self.lease_wait_over(ctx));
        }
        // Without writes in flight and operations waiting there is nothing to repeat.
        let mut next = if self.keys.is_empty() && self.in_flight.is_empty() { Time::NEVER } else { repeat };
        if self.chosen.mark() > self.announced.0 {
            next = next.min(self.announced.1 + super::writes::ANNOUNCE_AFTER);
        }
        next = next.min(self.reads.next_timeout(ctx)).min(self.next_sweep()).min(self.lease_wait_over(ctx));
        next.min(self.offload_due(ctx))
    }

    /// Sends what the inputs since the last call have brought together.
    pub fn flush(&mut self, ctx: &mut Context<'_>) {
        self.flush_writes(ctx);
        self.flush_reads(ctx);
    }

    /// It is over: whoever waits is told, by what is certain.
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
                ctx.out.outcome(pending.attempt, Outcome::NotPrimary);
            }
        }
        for (_, in_flight) in core::mem::take(&mut self.in_flight) {
            for (attempt, _) in in_flight.waiters {
                ctx.out.outcome(attempt, Outcome::Unknown);
            }
        }
        for (attempt, _) in self.reads.take_all() {
            ctx.out.outcome(attempt, Outcome::NotPrimary);
        }
        self.waiting = 0;
        self.unsent.clear();
        self.stalled.clear();
        self.quorum_reads.clear();
    }

    /// Everyone who is told of its writes.
    pub(super) fn audience(&self, ctx: &Context<'_>) -> Vec<NodeId> {
        ctx.state.audience()
    }

    /// Sends the base to these nodes, if there is one.
    pub(super) fn send_base(&self, ctx: &mut Context<'_>, to: &[NodeId]) {
        let Some(base) = &self.base else { return };
        let chosen = self.is_serving().then(|| self.chosen.mark());
        let message = CommitteeMessage::Base { ballot: self.ballot, base: base.clone(), chosen };
        ctx.out.send(to, Message::Committee(message));
    }

    /// Newcomers are told the base: what is written rests on it.
    pub fn welcome(&self, ctx: &mut Context<'_>, newcomers: &[NodeId]) {
        if self.is_serving() {
            self.send_base(ctx, newcomers);
        }
    }

    /// It is over, and served until then: what may have been chosen under its ballot. `None` where it cannot tell of each
    /// number what became of it; its own acceptor has what it sent, unless others came first.
    pub fn handover(&self, acceptor: &Acceptor, now: Time) -> Option<Handover> {
        if self.offload.granted_until() > now {
            return None; // Whoever follows has to wait, and so to ask for how long.
        }
        let (left, base) = (self.left.as_ref()?, self.base.clone()?);
        let committee = acceptor.committee(self.ballot);
        // What others may not know to be chosen is handed over as well: who lacks it then gets it, and lacks nothing.
        let known = committee.and_then(|committee| committee.chosen()).unwrap_or(0);
        let chosen = self.chosen.mark().min(known);
        let accepted = committee.into_iter().flat_map(|committee| committee.unsettled(self.range));
        let writes = accepted.chain(left).map(|write| (write.record.number.n, write));
        let beyond: BTreeMap<u64, Write> =
            writes.filter(|(n, _)| *n > chosen).map(|(n, write)| (n, write.clone())).collect();
        let is_whole = beyond.len() as u64 == self.next_n.saturating_sub(chosen + 1);
        is_whole.then(|| Handover { ballot: self.ballot, base, chosen, unsettled: beyond.into_values().collect() })
    }

    /// The attempts that it has seen, to be told from copies of them when it is over.
    pub fn into_seen(self) -> Seen {
        self.seen
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

/// The record of a write under a new number.
pub(super) fn renumbered(record: &Record, number: crate::ballot::Number) -> Arc<Record> {
    Arc::new(Record { number, ..record.clone() })
}
