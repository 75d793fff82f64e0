//! Evaluation of operations by a primary, and acceptance of their results (fRSM §3.3.2).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use overlay::{Key, NodeId};

use crate::ballot::Number;
use crate::config::Defect;
use crate::context::Context;
use crate::data::primary::completions::{completed, drop_moved, horizon_of};
use crate::data::primary::{Local, Pending, Phase, Primary, renumbered};
use crate::data::service::{Change, Delivery, Live, deliver};
use crate::data::table::Lookup;
use crate::message::{AttemptOutcome, CommitteeMessage, Message, Write};
use crate::op::{Answer, Kind, Limit, Op, OpError, Refusal, Version};
use crate::outbox::Attempt;
use crate::record::{DoneOp, KEPT_ANSWER_BYTES_MAX, OpId, Record};
use crate::validate::NUMBERS_AHEAD_MAX;
use overlay::time::{Time, WallMillis};

/// Delay after which the primary announces a moved chosen mark by a message of its own, if no other message carries the mark before.
pub(crate) const ANNOUNCE_AFTER: Duration = Duration::from_millis(5);
/// Upper limit of the batches of writes that follow a base before it is chosen.
const BATCHES_AHEAD_MAX: u32 = 6;
/// Upper limit of the operations of one key that one write may carry.
pub(crate) const BATCH_MAX: usize = 256;

/// Write in flight.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    pub(crate) write: Write,
    /// Attempts that are answered once the write is chosen, with their answers.
    pub(crate) waiters: Vec<(Attempt, AttemptOutcome)>,
    votes: Vec<NodeId>,
    sent: Time,
    /// Record that the write replaces, and the earliest deadline among the clients that wait for the write.
    before: Option<Arc<Record>>,
    deadline: Time,
}

impl InFlight {
    /// Makes the write change nothing: it was proposed to no member, and the key stays as it was. Returns the attempts that asked for it.
    fn void(&mut self, ctx: &Context<'_>) -> Vec<(Attempt, AttemptOutcome)> {
        let number = self.write.record.number;
        let nothing = || Arc::new(Record { number, ..changed(None, None, ctx.state.purged.floor) });
        self.write.record = self.before.as_ref().map_or_else(nothing, |before| renumbered(before, number));
        core::mem::take(&mut self.waiters)
    }
}

/// Result of an evaluation of operations.
struct Evaluated {
    /// Whether the evaluation made a write.
    wrote: bool,
    /// Operations with ids for which the record has no room.
    left: Vec<Pending>,
}

/// State of the evaluation of a key's queue.
struct Draft {
    /// Record after the operations so far.
    record: Option<Arc<Record>>,
    /// Whether the record differs from the chosen one.
    changed: bool,
    waiters: Vec<(Attempt, AttemptOutcome)>,
}

impl Primary {
    /// Continues with a key, as far as possible.
    pub(crate) fn run(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>, key: &Key) {
        if !self.takes_operations() {
            return;
        }
        if let Some(owner) = key.owner() {
            return self.on_completion(ctx, local, key, &owner);
        }
        let Some(queue) = self.keys.get(key) else { return };
        if queue.in_flight > 0 && !ctx.config.defects.has(Defect::TwoInFlight) {
            if ctx.config.defects.has(Defect::DirtyRead) {
                self.read_dirty(ctx, local, key);
            }
            return;
        }
        if queue.waiting.is_empty() && !queue.expire {
            self.keys.remove(key);
            return;
        }
        if self.is_crowded(ctx) {
            self.stalled.push_back(key.clone());
            return;
        }
        let Lookup::Known(chosen) = local.table.get(key, true, ctx.out) else { return };
        if !self.knows(ctx, local, key, chosen.as_ref()) {
            return;
        }
        if let Some(chosen) = chosen.as_deref() {
            self.move_ids(ctx, local, key, chosen);
        }
        let ready = self.look_up(ctx, local, key, chosen.as_deref());
        if ready > 0 {
            self.evaluate_queue(ctx, local, key, chosen, ready);
        }
    }

    /// Returns whether no more may be proposed: too much is in flight, or one write is stuck for too long.
    fn is_crowded(&self, ctx: &Context<'_>) -> bool {
        let ahead = self.next_n - self.chosen.mark().min(self.next_n);
        self.in_flight.len() >= ctx.config.in_flight_max || ahead >= NUMBERS_AHEAD_MAX / 2
    }

    /// Answers reads from the newest write in flight, as if it were chosen: reads do not wait for it ([`Defect::DirtyRead`]).
    fn read_dirty(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>, key: &Key) {
        let newest = self.in_flight.values().rev().find(|in_flight| in_flight.write.key == *key);
        let Some(newest) = newest.map(|in_flight| in_flight.write.record.clone()) else { return };
        let mut draft = Draft { record: Some(newest), changed: false, waiters: Vec::new() };
        let queue = self.keys.get_mut(key).expect("the caller looked");
        while queue.waiting.front().is_some_and(|pending| matches!(pending.op, Op::Read(_))) {
            let pending = queue.waiting.pop_front().expect("just seen");
            self.waiting -= 1;
            draft.operate(ctx, local, key, &pending);
        }
        for (attempt, outcome) in draft.waiters {
            self.reads.register(attempt, outcome);
        }
    }

    /// Evaluates up to `ready` waiting operations of a key on its chosen record, in order. One write carries all changes.
    fn evaluate_queue(
        &mut self,
        ctx: &mut Context<'_>,
        local: &mut Local<'_>,
        key: &Key,
        chosen: Option<Arc<Record>>,
        ready: usize,
    ) {
        let queue = self.keys.get_mut(key).expect("the caller looked");
        let rest = queue.waiting.split_off(queue.waiting.len().min(BATCH_MAX).min(ready));
        let waiting = core::mem::replace(&mut queue.waiting, rest);
        queue.expire = false;
        self.waiting -= waiting.len();
        let evaluated = self.evaluate(ctx, local, key, chosen, waiting);
        let has_room = evaluated.left.is_empty();
        if !has_room {
            // The record is full of ids. Those move to companion keys, and the first that has moved continues this key.
            let queue = self.keys.entry(key.clone()).or_default();
            self.waiting += evaluated.left.len();
            evaluated.left.into_iter().rev().for_each(|pending| queue.waiting.push_front(pending));
        }
        if !evaluated.wrote && has_room {
            self.run(ctx, local, key);
        }
    }

    /// Evaluates a read of a key with no queue at once, where that is possible. Otherwise gives the read back.
    pub(crate) fn read_at_once(
        &mut self,
        ctx: &mut Context<'_>,
        local: &mut Local<'_>,
        key: &Key,
        pending: Pending,
    ) -> Option<Pending> {
        let is_free = self.takes_operations() && !self.keys.contains_key(key) && !self.is_crowded(ctx);
        if !is_free || !matches!(pending.op, Op::Read(_)) {
            return Some(pending);
        }
        let Some(chosen) = local.table.peek(key) else { return Some(pending) };
        if !self.knows(ctx, local, key, chosen.as_ref()) {
            return Some(pending);
        }
        self.evaluate(ctx, local, key, chosen, [pending]);
        None
    }

    /// Evaluates these operations, in order.
    fn evaluate(
        &mut self,
        ctx: &mut Context<'_>,
        local: &mut Local<'_>,
        key: &Key,
        chosen: Option<Arc<Record>>,
        waiting: impl IntoIterator<Item = Pending>,
    ) -> Evaluated {
        let before = chosen.clone();
        let mut deadline = Time::NEVER;
        let mut draft = Draft { record: chosen, changed: false, waiters: core::mem::take(&mut self.spare) };
        draft.expire(local.group_time);
        let mut left = Vec::new();
        for pending in waiting {
            if pending.deadline <= ctx.now.time {
                ctx.out.refuse(pending.attempt, OpError::TryAgain(Refusal::NoPrimary));
            } else if !left.is_empty() || !draft.operate(ctx, local, key, &pending) {
                left.push(pending);
            } else {
                deadline = deadline.min(pending.deadline);
            }
        }
        if draft.changed {
            let record = draft.record.expect("a change makes a record");
            let record = Arc::unwrap_or_clone(record);
            let number = Number { term: self.ballot.term, n: self.next_n };
            self.next_n += 1;
            let record = Arc::new(Record { number, ..record });
            let n = number.n;
            self.put_in_flight(ctx, Write { key: key.clone(), record }, draft.waiters);
            self.set_before(n, before);
            if let Some(in_flight) = self.in_flight.get_mut(&n) {
                in_flight.deadline = deadline;
            }
        } else {
            for (attempt, outcome) in draft.waiters.drain(..) {
                self.reads.register(attempt, outcome);
            }
            self.spare = draft.waiters;
        }
        Evaluated { wrote: draft.changed, left }
    }

    /// Sets the chosen record that a write in flight is to replace.
    pub(crate) fn set_before(&mut self, n: u64, before: Option<Arc<Record>>) {
        if let Some(in_flight) = self.in_flight.get_mut(&n) {
            in_flight.before = before;
        }
    }

    /// Proposes a chosen record again, unchanged, so that a quorum of this epoch has it (mutating quorum read).
    pub(crate) fn repropose(&mut self, ctx: &mut Context<'_>, key: &Key, record: &Record) {
        let number = Number { term: self.ballot.term, n: self.next_n };
        self.next_n += 1;
        let write = Write { key: key.clone(), record: renumbered(record, number) };
        self.put_in_flight(ctx, write, Vec::new());
    }

    pub(crate) fn put_in_flight(
        &mut self,
        ctx: &mut Context<'_>,
        write: Write,
        waiters: Vec<(Attempt, AttemptOutcome)>,
    ) {
        self.keys.entry(write.key.clone()).or_default().in_flight += 1;
        self.unsent.push(write.clone());
        let (before, deadline) = (None, Time::NEVER);
        let in_flight = InFlight { write, waiters, votes: Vec::new(), sent: ctx.now.time, before, deadline };
        self.in_flight.insert(in_flight.write.record.number.n, in_flight);
    }

    /// Returns the earliest deadline among the clients that wait for this write in flight.
    pub(crate) fn deadline(&self, n: u64) -> Time {
        self.in_flight.get(&n).map_or(Time::NEVER, |in_flight| in_flight.deadline)
    }

    /// Returns the write to propose under this number, which waited until now for a switch or for older leases. If the deadline is over,
    /// the client may have been told that the outcome is unknown. It may have read since, from some member, that the write was not done. So
    /// the write never takes effect (I8), and the key stays as it was.
    pub(crate) fn released(&mut self, ctx: &mut Context<'_>, n: u64) -> Option<Write> {
        let in_flight = self.in_flight.get_mut(&n)?;
        if in_flight.deadline <= ctx.now.time && !ctx.config.defects.has(Defect::LateWrites) {
            for (attempt, _) in in_flight.void(ctx) {
                ctx.out.refuse(attempt, OpError::TryAgain(Refusal::NoPrimary));
            }
        }
        Some(in_flight.write.clone())
    }

    /// Voids all held writes when the primary ends: they were proposed to no member, so they are not done, whichever node takes over.
    pub(crate) fn void_held(&mut self, ctx: &mut Context<'_>) {
        let early = core::mem::take(&mut self.early);
        let held = |n: &u64| early.contains(n) || self.offload.is_held(*n);
        for (_, in_flight) in self.in_flight.iter_mut().filter(|(n, _)| held(n)) {
            for (attempt, _) in in_flight.void(ctx) {
                ctx.out.outcome(attempt, AttemptOutcome::NotPrimary);
            }
        }
    }

    /// Returns the writes to propose now, before the primary serves, and holds the rest back. The holder of an older lease, or of a grant
    /// under one, answers without these writes until the lease is over. A write with no client that waits until then must not take effect
    /// (I8).
    fn hold_early(&mut self, ctx: &Context<'_>, writes: Vec<Write>) -> Vec<Write> {
        let Phase::TakingOver(takeover) = &self.phase else { return writes };
        let over = takeover.leases_over();
        let is_late = |deadline: Time| ctx.now.time < over && deadline < over;
        let (held, now): (Vec<Write>, Vec<Write>) =
            writes.into_iter().partition(|write| is_late(self.deadline(write.record.number.n)));
        self.early.extend(held.iter().map(|write| write.record.number.n));
        now
    }

    /// Releases the writes that were held back until older leases were over: the primary serves now.
    pub(crate) fn release_early(&mut self, ctx: &mut Context<'_>) {
        for n in core::mem::take(&mut self.early) {
            let write = self.released(ctx, n);
            self.offload.make_ready(write);
        }
    }

    /// Sends phase 2a for all writes proposed since the last call.
    pub(crate) fn flush_writes(&mut self, ctx: &mut Context<'_>) {
        let evaluated = core::mem::take(&mut self.unsent);
        let writes = if self.is_serving() { self.pass_writes(ctx, evaluated) } else { self.hold_early(ctx, evaluated) };
        if !writes.is_empty() && self.may_send() {
            let to = self.audience(ctx);
            self.send_writes(ctx, &to, writes);
        } else if self.chosen.mark() > self.announced.0 && ctx.now.time.since(self.announced.1) >= ANNOUNCE_AFTER {
            self.announce(ctx);
        }
    }

    /// Returns whether a batch may leave. Before the primary serves, only a few batches leave: some members may not have begun their parts
    /// yet, and keep all messages that come before.
    fn may_send(&mut self) -> bool {
        let is_ahead = self.takes_operations() && !self.is_serving();
        self.batches_ahead += u32::from(is_ahead);
        !is_ahead || self.batches_ahead <= BATCHES_AHEAD_MAX
    }

    fn send_writes(&mut self, ctx: &mut Context<'_>, to: &[NodeId], writes: Vec<Write>) {
        let chosen = self.is_serving().then(|| self.chosen.mark());
        self.announced = (self.chosen.mark(), ctx.now.time);
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for write in writes {
            bytes += write.record.bytes() + write.key.encoded().len();
            batch.push(write);
            if bytes >= ctx.config.message_bytes_max {
                let writes = core::mem::take(&mut batch);
                let message = CommitteeMessage::Accept { ballot: self.ballot, chosen, writes };
                ctx.out.send(to, Message::Committee(message));
                bytes = 0;
            }
        }
        if !batch.is_empty() {
            let message = CommitteeMessage::Accept { ballot: self.ballot, chosen, writes: batch };
            ctx.out.send(to, Message::Committee(message));
        }
    }

    /// Announces the chosen mark to the whole audience.
    pub(crate) fn announce(&mut self, ctx: &mut Context<'_>) {
        self.announced = (self.chosen.mark(), ctx.now.time);
        let message =
            CommitteeMessage::Accept { ballot: self.ballot, chosen: Some(self.chosen.mark()), writes: Vec::new() };
        let to = self.audience(ctx);
        ctx.out.send(&to, Message::Committee(message));
    }

    /// Returns the number up to which all writes are chosen, for the heartbeat that leaves now. `None` where another message told the mark
    /// less than `quiet` ago, where an announcement of the mark is due, or where this primary does not serve.
    pub(crate) fn mark_to_tell(&mut self, quiet: Duration, now: Time) -> Option<u64> {
        let (mark, at) = self.announced;
        let tells = self.is_serving() && self.chosen.mark() <= mark && now.since(at) >= quiet;
        tells.then(|| {
            self.announced = (mark, now);
            mark
        })
    }

    /// Counts votes (phase 2b).
    pub(crate) fn on_accepted(
        &mut self,
        ctx: &mut Context<'_>,
        local: &mut Local<'_>,
        from: NodeId,
        numbers: &[(u64, u64)],
    ) {
        if !ctx.state.is_member(from) {
            return;
        }
        let quorum = ctx.state.quorum();
        let mut voted = Vec::new();
        for (first, last) in numbers.iter().filter(|(first, last)| first <= last) {
            for (n, in_flight) in self.in_flight.range_mut(*first..=*last) {
                if !in_flight.votes.contains(&from) {
                    in_flight.votes.push(from);
                }
                if in_flight.votes.len() >= quorum {
                    voted.push(*n);
                }
            }
        }
        self.choose(ctx, local, &voted);
    }

    /// Chooses writes for which a quorum voted before the primary served, or while they waited for a switch.
    pub(crate) fn choose_voted(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>) {
        let all: Vec<u64> = self.in_flight.keys().copied().collect();
        self.choose(ctx, local, &all);
    }

    /// Chooses those of these writes that may be: each got a quorum's last vote, or came back from a switch.
    pub(crate) fn choose(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>, among: &[u64]) {
        if !self.is_serving() {
            return; // Before the base is chosen no write is: another primary may yet propose a re-proposal again.
        }
        let quorum = ctx.state.quorum();
        let is_chosen = |n: &u64, it: &InFlight| it.votes.len() >= quorum && !self.offload.is_away(*n);
        let chosen: Vec<u64> = if ctx.state.settings.coarse && !ctx.config.defects.has(Defect::Overtaking) {
            // A write that waits for a lower number is found when the lower one gets its votes: `in_flight` has exactly the writes that are
            // not chosen.
            let in_order = self.in_flight.iter().take_while(|(n, first)| is_chosen(n, first));
            in_order.map(|(n, _)| *n).collect()
        } else {
            let is_ready = |n: &&u64| self.in_flight.get(n).is_some_and(|it| is_chosen(n, it));
            among.iter().filter(is_ready).copied().collect()
        };
        for n in chosen {
            let Some(in_flight) = self.in_flight.remove(&n) else { continue }; // Listed twice.
            self.chosen.insert(n);
            self.offload.on_chosen(n, ctx.now.time);
            self.on_chosen(ctx, local, in_flight);
        }
        self.move_point(ctx);
        while !self.is_crowded(ctx) {
            let Some(key) = self.stalled.pop_front() else { break };
            self.run(ctx, local, &key);
        }
    }

    /// Answers the clients of a write that a quorum has, and continues with its key.
    pub(crate) fn on_chosen(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>, in_flight: InFlight) {
        let InFlight { write, waiters, .. } = in_flight;
        local.table.put(&write.key, write.record.clone());
        for (attempt, outcome) in waiters {
            ctx.out.outcome(attempt, outcome);
        }
        if let Some(queue) = self.keys.get_mut(&write.key) {
            queue.in_flight -= 1;
        }
        if !self.is_crowded(ctx) && !write.key.is_companion() {
            self.move_ids(ctx, local, &write.key, &write.record);
        }
        self.run(ctx, local, &write.key);
    }

    /// Repeats overdue writes, to the members that have not voted.
    pub(crate) fn resend_writes(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now.time;
        // A write that has not left at all is not repeated.
        let unsent = self.unsent.first().map_or(u64::MAX, |write| write.record.number.n);
        let overdue: Vec<u64> = self
            .in_flight
            .iter()
            .filter(|(n, in_flight)| {
                let is_due = now.since(in_flight.sent) >= ctx.config.timing.resend;
                is_due && **n < unsent && !self.offload.is_held(**n) && !self.early.contains(n)
            })
            .map(|(n, _)| *n)
            .collect();
        if overdue.is_empty() {
            return;
        }
        for node in ctx.state.nodes() {
            let writes: Vec<Write> = overdue
                .iter()
                .map(|n| &self.in_flight[n])
                .filter(|in_flight| !in_flight.votes.contains(&node))
                .map(|in_flight| in_flight.write.clone())
                .collect();
            if !writes.is_empty() {
                self.send_writes(ctx, &[node], writes);
            }
        }
        for n in overdue {
            self.in_flight.get_mut(&n).expect("just seen").sent = now;
        }
    }
}

impl Draft {
    /// Makes an expired value a tombstone before any operation is answered from it.
    fn expire(&mut self, now: WallMillis) {
        if let Some(record) = self.record.as_deref().filter(|record| is_expired(record, now)) {
            self.record = Some(Arc::new(changed(Some(record), None, 0)));
            self.changed = true;
        }
    }

    /// Evaluates one operation. Returns false, and does nothing, where the record has no room for its id.
    fn operate(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>, key: &Key, pending: &Pending) -> bool {
        if pending.horizon > ctx.state.horizon + 1 {
            ctx.out.refuse(pending.attempt, OpError::TryAgain(Refusal::NoPrimary)); // This node is far behind.
            return true;
        }
        let horizon = horizon_of(ctx, self.record.as_deref(), pending);
        if pending.horizon < horizon {
            ctx.out.refuse(pending.attempt, OpError::TryAgain(Refusal::TooOld));
            return true;
        }
        if let Some(answer) = self.answer_of(ctx, local, key, pending) {
            self.waiters.push((pending.attempt, AttemptOutcome::Done(answer)));
            return true;
        }
        let live = self.record.as_ref().and_then(|record| {
            let value = record.value.clone()?;
            Some(Live { value, kind: record.kind, version: record.version, deadline: record.deadline })
        });
        let at = Delivery { now: local.group_time, value_bytes_max: ctx.state.settings.value_bytes_max as usize };
        let (change, answer) = deliver(&pending.op, live.as_ref(), &at);
        let is_client = matches!(pending.id, OpId::Client(_));
        let is_owed = is_client && !matches!(pending.op, Op::Read(_));
        let live = match change {
            // A client that gave its own id is owed the first answer, also where that answer was "no".
            Change::None if is_owed => live.map(|live| (live.value, live.kind, live.deadline)),
            Change::None => {
                self.waiters.push((pending.attempt, AttemptOutcome::Unchanged(answer)));
                return true;
            }
            Change::Put(value, deadline) => Some((value, pending.op.kind().unwrap_or_default(), deadline)),
            Change::Delete => None,
        };
        if let Some(limit) = local.full.filter(|_| live.is_some()) {
            let waits = local.is_relieved;
            let error = if waits { OpError::TryAgain(Refusal::NoPrimary) } else { OpError::Limit(limit) };
            ctx.out.refuse(pending.attempt, error);
            return true;
        }
        if is_client && local.table.is_full_of_completions() {
            ctx.out.refuse(pending.attempt, OpError::Limit(Limit::Ids));
            return true;
        }
        let mut record = changed(self.record.as_deref(), live, ctx.state.purged.floor);
        record.horizon = horizon;
        if ctx.config.defects.has(Defect::ForgetIds) {
            record.done.clear();
        }
        record.done.retain(|done| done.horizon >= horizon && !pending.retires(&done.id));
        record.completions.forget_below(horizon);
        drop_moved(ctx, local, key, &mut record);
        if record.is_full() {
            return false;
        }
        let is_kept = is_client || answer.bytes() <= KEPT_ANSWER_BYTES_MAX;
        let kept = if is_kept { answer.clone() } else { Answer::NotKept };
        // Under the group's horizon, if the origin knows an older one: an id under an older horizon is forgotten at the next raise.
        let since = if is_client { pending.horizon.max(ctx.state.horizon) } else { pending.horizon };
        record.done.reserve_exact(1);
        record.done.push(DoneOp { id: pending.id.clone(), horizon: since, answer: kept });
        self.waiters.push((pending.attempt, AttemptOutcome::Done(answer)));
        self.record = Some(Arc::new(record));
        self.changed = true;
        true
    }

    /// Returns the answer to an operation that was executed before.
    fn answer_of(&self, ctx: &Context<'_>, local: &mut Local<'_>, key: &Key, pending: &Pending) -> Option<Answer> {
        if ctx.config.defects.has(Defect::NoIds) {
            return None;
        }
        let record = self.record.as_deref();
        let here = record.and_then(|record| record.answer_of(&pending.id)).cloned();
        here.or_else(|| completed(ctx, local, key, record, pending))
    }
}

/// Returns the record after one more change; its number is given when it is proposed. A key that does not exist may have existed before, in
/// generations up to `floor`.
pub(crate) fn changed(before: Option<&Record>, live: Option<(Bytes, Kind, Option<WallMillis>)>, floor: u32) -> Record {
    let created = live.is_some() && before.is_none_or(|record| record.value.is_none());
    let version = match before {
        None => Version { generation: floor + 1, timestamp: 1 },
        Some(record) if created => Version { generation: record.version.generation + 1, timestamp: 1 },
        Some(record) => Version { timestamp: record.version.timestamp + 1, ..record.version },
    };
    let (value, kind, deadline) = match live {
        Some((value, kind, deadline)) => (Some(value), kind, deadline),
        None => (None, Kind::default(), None),
    };
    Record {
        number: Number::default(),
        version,
        value,
        kind,
        deadline,
        horizon: before.map_or(0, |record| record.horizon),
        done: before.map(|record| record.done.clone()).unwrap_or_default(),
        completions: before.map(|record| record.completions).unwrap_or_default(),
    }
}

pub(crate) fn is_expired(record: &Record, now: WallMillis) -> bool {
    record.value.is_some() && record.deadline.is_some_and(|deadline| deadline <= now)
}
