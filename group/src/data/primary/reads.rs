//! Reads at a primary (`docs/design/read.md`; fRSM §3.3.3; Scatter §5, leases).
//!
//! *Confirmed*: the primary takes the value when it registers the read. A later round that a quorum answers under the same ballot proves
//! that the value was current then. *Leased*: the same without a round, while a quorum has promised not to promise another primary.
//! *Quorum*: where this node does not hold everything, it first asks quorums for the key's record, and proposes the record again where no
//! quorum of this epoch has it (*mutating*).

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use overlay::{Epoch, Key, KeyRange, NodeId};

use crate::config::Defect;
use crate::context::Context;
use crate::data::Committee;
use crate::data::acceptor::leases::holders_length;
use crate::data::catch_up::{Asks, asked_configs, covers_quorums};
use crate::data::primary::{Local, Primary};
use crate::message::{AttemptOutcome, CommitteeMessage, Message, Write};
use crate::outbox::Attempt;
use crate::record::Record;
use overlay::time::Time;

/// Upper limit of rounds with reads in progress; reads that come meanwhile go into the next round.
const ROUNDS_MAX: usize = 4;

/// Upper limit of attempts to renew the lease with confirmations that may still bring grants.
const LEASE_ATTEMPTS_MAX: usize = 3;

/// Upper limit of keys that are remembered as known by quorum reads, until this node holds everything itself.
const KNOWN_MAX: usize = 1 << 16;

/// Attempt to have the ballot confirmed.
#[derive(Clone, Debug)]
struct Round {
    attempt: u64,
    /// Time at which the round was first sent: a lease counts from then.
    sent: Time,
    sent_awake: Time,
    /// Time at which the round was last sent.
    said: Time,
    lease: bool,
    votes: BTreeSet<NodeId>,
    reads: Vec<(Attempt, AttemptOutcome)>,
}

/// Reads of a primary.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reads {
    /// Reads registered since the last round was sent.
    registered: Vec<(Attempt, AttemptOutcome)>,
    rounds: VecDeque<Round>,
    next_attempt: u64,
    /// End of the lease: until then the primary may answer alone.
    pub(crate) lease_until: Time,
    lease_asked: Time,
    /// Last attempts that asked for the lease.
    lease_attempts: VecDeque<u64>,
}

/// Quorum read of a key's record.
#[derive(Clone, Debug)]
pub(crate) struct QuorumRead {
    /// Name of this read: an answer to another name is none to this read.
    attempt: u64,
    /// Configurations with majorities that must answer.
    asks: Asks,
    asked: Time,
    /// Answers by sender, each with the last epoch about which the sender is in doubt.
    answers: BTreeMap<NodeId, (Option<Arc<Record>>, Epoch)>,
}

impl QuorumRead {
    fn new(ctx: &Context<'_>, key: &Key, attempt: u64) -> QuorumRead {
        let asks = asked_configs(ctx, KeyRange::at(key.point()));
        QuorumRead { attempt, asks, asked: ctx.now.time, answers: BTreeMap::new() }
    }
}

impl Reads {
    /// Returns a name for an attempt, used for no other attempt under this ballot.
    fn name_attempt(&mut self) -> u64 {
        self.next_attempt += 1;
        self.next_attempt
    }

    /// Registers a read: it is answered once a round that is sent after this confirms the ballot.
    pub(crate) fn register(&mut self, attempt: Attempt, outcome: AttemptOutcome) {
        self.registered.push((attempt, outcome));
    }

    /// Returns whether this attempt asked for the lease recently.
    pub(crate) fn asked_for_lease(&self, attempt: u64) -> bool {
        self.lease_attempts.contains(&attempt)
    }

    /// Returns the number of reads that wait for a round.
    pub(crate) fn waiting(&self) -> usize {
        self.registered.len() + self.rounds.iter().map(|round| round.reads.len()).sum::<usize>()
    }

    /// Takes all reads that wait.
    pub(crate) fn take_all(&mut self) -> Vec<(Attempt, AttemptOutcome)> {
        let mut all = core::mem::take(&mut self.registered);
        all.extend(core::mem::take(&mut self.rounds).into_iter().flat_map(|round| round.reads));
        all
    }

    pub(crate) fn next_timeout(&self, ctx: &Context<'_>) -> Time {
        let repeated = self.rounds.iter().filter(|round| !round.reads.is_empty());
        let again = repeated.map(|round| round.said + ctx.config.timing.resend);
        let round = again.min().unwrap_or(Time::NEVER);
        let lease = if ctx.state.settings.leases { self.lease_asked + renewal(ctx) } else { Time::NEVER };
        round.min(lease)
    }
}

fn renewal(ctx: &Context<'_>) -> core::time::Duration {
    holders_length(&ctx.state.settings) / 3
}

/// Returns whether this node lacks records of the key's sub-range from before the committee's term.
fn lacks(committee: &Committee, key: &Key) -> bool {
    committee.base().is_none() || committee.missing().iter().any(|piece| piece.contains(key.point()))
}

impl Primary {
    /// Sends a round for the reads registered since the last one; under a lease, answers them at once.
    pub(crate) fn flush_reads(&mut self, ctx: &mut Context<'_>) {
        if self.reads.registered.is_empty() || !self.takes_operations() {
            return;
        }
        // The lease is checked last, after the value was taken (hazard 15).
        let clock = if ctx.config.defects.has(Defect::LeaseSleeps) { ctx.now.awake } else { ctx.now.time };
        if clock < self.reads.lease_until || ctx.config.defects.has(Defect::StaleRead) {
            for (attempt, outcome) in core::mem::take(&mut self.reads.registered) {
                ctx.out.outcome(attempt, outcome);
            }
            return;
        }
        if self.reads.rounds.iter().filter(|round| !round.reads.is_empty()).count() < ROUNDS_MAX {
            let reads = core::mem::take(&mut self.reads.registered);
            self.send_round(ctx, reads, false);
        }
    }

    fn send_round(&mut self, ctx: &mut Context<'_>, reads: Vec<(Attempt, AttemptOutcome)>, lease: bool) {
        let attempt = self.reads.name_attempt();
        let (sent, sent_awake) = (ctx.now.time, ctx.now.awake);
        let round = Round { attempt, sent, sent_awake, said: sent, lease, votes: BTreeSet::new(), reads };
        self.reads.rounds.push_back(round);
        self.ask_to_confirm(ctx, &ctx.state.nodes(), attempt, lease);
    }

    fn ask_to_confirm(&self, ctx: &mut Context<'_>, nodes: &[NodeId], attempt: u64, lease: bool) {
        let chosen = self.is_serving().then(|| self.chosen.mark());
        let message = CommitteeMessage::Confirm { ballot: self.ballot, attempt, lease, chosen };
        ctx.out.send(nodes, Message::Committee(message));
    }

    /// Repeats rounds that were not answered for long, under the same names. Each answer is given after the round was first sent, and so
    /// after its reads were registered. Under new names, no round would ever be confirmed if answers take longer than a repetition. A round
    /// for the lease alone is not repeated, because another one follows. It is forgotten when its lease would be over.
    fn repeat_rounds(&mut self, ctx: &mut Context<'_>) {
        let (now, resend) = (ctx.now.time, ctx.config.timing.resend);
        let is_due = |round: &Round| now.since(round.said) >= resend;
        let length = holders_length(&ctx.state.settings);
        self.reads.rounds.retain(|round| !round.reads.is_empty() || now.since(round.sent) < length);
        let mut again = Vec::new();
        for round in self.reads.rounds.iter_mut().filter(|round| !round.reads.is_empty() && is_due(round)) {
            round.said = now;
            let silent = ctx.state.nodes().into_iter().filter(|node| !round.votes.contains(node));
            again.push((silent.collect::<Vec<NodeId>>(), round.attempt, round.lease));
        }
        for (nodes, attempt, lease) in again {
            self.ask_to_confirm(ctx, &nodes, attempt, lease);
        }
    }

    pub(crate) fn on_confirmed(&mut self, ctx: &mut Context<'_>, from: NodeId, attempt: u64) {
        if !ctx.state.is_member(from) || !self.takes_operations() {
            return;
        }
        let recycled = ctx.config.defects.has(Defect::RecycledConfirmation);
        let matches = |round: &Round| round.attempt == attempt || recycled;
        let Some(index) = self.reads.rounds.iter().rposition(matches) else { return };
        self.reads.rounds[index].votes.insert(from);
        self.answer_round(ctx, index);
    }

    /// Answers the reads that a quorum confirmed before the primary served, and asks again for the rest: some of the asked members may not
    /// have begun their parts by then.
    pub(crate) fn begin_answers(&mut self, ctx: &mut Context<'_>) {
        let quorum = ctx.state.quorum();
        if let Some(index) = self.reads.rounds.iter().rposition(|round| round.votes.len() >= quorum) {
            self.answer_round(ctx, index);
        }
        let rest: Vec<(Attempt, AttemptOutcome)> = self.reads.rounds.drain(..).flat_map(|round| round.reads).collect();
        if !rest.is_empty() {
            self.send_round(ctx, rest, false);
        }
        let keys: Vec<Key> = self.quorum_reads.keys().cloned().collect();
        keys.iter().for_each(|key| self.ask_record(ctx, key));
    }

    /// Answers the reads of this round and of earlier ones, if a quorum has confirmed the round. A primary that does not serve yet answers
    /// none: older leases may not be over, and the read value may have been chosen with the base for the first time.
    fn answer_round(&mut self, ctx: &mut Context<'_>, index: usize) {
        let round = &self.reads.rounds[index];
        if round.votes.len() < ctx.state.quorum() || !self.is_serving() {
            return;
        }
        let (sent, sent_awake, lease) = (round.sent, round.sent_awake, round.lease);
        // A later round was sent after every read of the earlier rounds was registered: it confirms those reads too.
        for round in self.reads.rounds.drain(..=index) {
            for (attempt, outcome) in round.reads {
                ctx.out.outcome(attempt, outcome);
            }
        }
        if lease {
            let from = if ctx.config.defects.has(Defect::LeaseFromReply) {
                ctx.now.time
            } else if ctx.config.defects.has(Defect::LeaseSleeps) {
                sent_awake
            } else {
                sent
            };
            self.reads.lease_until = self.reads.lease_until.max(from + holders_length(&ctx.state.settings));
        }
        self.flush_reads(ctx);
    }

    /// Asks for the lease, or extends it.
    pub(crate) fn renew_lease(&mut self, ctx: &mut Context<'_>) {
        if ctx.state.settings.leases && self.is_serving() {
            self.reads.lease_asked = ctx.now.time;
            self.send_round(ctx, Vec::new(), true);
            self.reads.lease_attempts.push_back(self.reads.next_attempt);
            if self.reads.lease_attempts.len() > LEASE_ATTEMPTS_MAX {
                self.reads.lease_attempts.pop_front();
            }
        }
    }

    /// Drops the lease, because the clocks disagree: the machine slept, or the process was stopped, so the lease rests on nothing.
    pub fn drop_lease(&mut self) {
        self.reads.lease_until = Time(0);
        self.reads.rounds.retain(|round| !round.reads.is_empty());
    }

    pub(crate) fn tick_reads(&mut self, ctx: &mut Context<'_>) {
        self.repeat_rounds(ctx);
        if ctx.state.settings.leases && ctx.now.time.since(self.reads.lease_asked) >= renewal(ctx) {
            self.renew_lease(ctx);
        }
    }

    /// Returns whether this key's chosen record is the newest one. Otherwise asks quorums, and continues when they have answered.
    pub(crate) fn knows(
        &mut self,
        ctx: &mut Context<'_>,
        local: &mut Local<'_>,
        key: &Key,
        chosen: Option<&Arc<Record>>,
    ) -> bool {
        let Some(committee) = local.acceptor.committee(self.ballot) else { return false };
        if committee.missing().is_empty() && committee.base().is_some() {
            self.known.clear();
            return true;
        }
        let missing = lacks(committee, key);
        let mine = chosen.is_some_and(|record| record.number.term == self.ballot.term);
        if !missing || mine || self.known.contains(key) {
            return true;
        }
        if !self.quorum_reads.contains_key(key) {
            let attempt = self.reads.name_attempt();
            let read = QuorumRead::new(ctx, key, attempt);
            self.quorum_reads.insert(key.clone(), read);
            self.ask_record(ctx, key);
        }
        false
    }

    fn ask_record(&self, ctx: &mut Context<'_>, key: &Key) {
        let read = &self.quorum_reads[key];
        let nodes: BTreeSet<NodeId> =
            ctx.state.configs(KeyRange::at(key.point())).into_iter().flat_map(|config| config.members).collect();
        let to: Vec<NodeId> =
            nodes.into_iter().filter(|node| *node != ctx.me && !read.answers.contains_key(node)).collect();
        let message = CommitteeMessage::AskRecord { ballot: self.ballot, key: key.clone(), attempt: read.attempt };
        ctx.out.send(&to, Message::Committee(message));
    }

    pub(crate) fn on_record_is(
        &mut self,
        ctx: &mut Context<'_>,
        local: &mut Local<'_>,
        (from, attempt, doubt): (NodeId, u64, Epoch),
        key: Key,
        record: Option<Arc<Record>>,
    ) {
        let Some(read) = self.quorum_reads.get_mut(&key).filter(|read| read.attempt == attempt) else { return };
        if read.asks != asked_configs(ctx, KeyRange::at(key.point())) {
            // A node that is asked no more may have been the only one to hold the record when other nodes said that they did not.
            *read = QuorumRead::new(ctx, &key, self.reads.name_attempt());
            return self.ask_record(ctx, &key);
        }
        read.answers.insert(from, (record, doubt));
        let answered: BTreeMap<NodeId, Epoch> = read.answers.iter().map(|(node, (_, doubt))| (*node, *doubt)).collect();
        if !covers_quorums(ctx, KeyRange::at(key.point()), &answered) {
            return;
        }
        let read = self.quorum_reads.remove(&key).expect("just seen");
        if self.keys.get(&key).is_none_or(|queue| queue.in_flight > 0) {
            return; // Catch-up was faster, and the key's next write is in flight already.
        }
        let mine = local.table.peek(&key).flatten();
        if mine.as_ref().is_some_and(|record| record.number.term == self.ballot.term) {
            return self.run(ctx, local, &key); // The same record, and its write is chosen.
        }
        let told = read.answers.values().filter_map(|(record, _)| record.as_ref());
        let newest = told.chain(&mine).max_by_key(|record| record.number).cloned();
        if let Some(newest) = newest {
            let write = Write { key: key.clone(), record: newest.clone() };
            if !local.acceptor.install(ctx, local.table, from, &write, true) {
                return; // Its own record left memory meanwhile: asked again once that is loaded.
            }
            let holds = |record: &Option<Arc<Record>>| record.as_ref().is_some_and(|r| r.number == newest.number);
            let answers =
                read.answers.iter().filter(|(node, (record, _))| ctx.state.is_member(**node) && holds(record));
            // This node holds the record too, from now on.
            if 1 + answers.count() < ctx.state.quorum() {
                self.repropose(ctx, &key, &newest);
            }
        }
        if self.known.len() >= KNOWN_MAX {
            self.known.clear(); // They are asked for again.
        }
        self.known.insert(key.clone());
        self.run(ctx, local, &key);
    }

    /// Continues with the keys with records that were asked for and are here by now. The answers may never come: the asked nodes may have
    /// been released since.
    pub fn end_quorum_reads(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>) {
        if self.quorum_reads.is_empty() {
            return; // The usual case.
        }
        let Some(committee) = local.acceptor.committee(self.ballot) else { return };
        let here: Vec<Key> = self.quorum_reads.keys().filter(|key| !lacks(committee, key)).cloned().collect();
        for key in here {
            self.quorum_reads.remove(&key);
            self.run(ctx, local, &key);
        }
    }

    pub(crate) fn tick_quorum_reads(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now.time;
        let due = |read: &QuorumRead| now.since(read.asked) >= ctx.config.timing.resend;
        let keys: Vec<Key> =
            self.quorum_reads.iter().filter(|(_, read)| due(read)).map(|(key, _)| key.clone()).collect();
        for key in keys {
            if self.keys.contains_key(&key) {
                self.quorum_reads.get_mut(&key).expect("just seen").asked = now;
                self.ask_record(ctx, &key);
            } else {
                self.quorum_reads.remove(&key); // No operation waits for it any more.
            }
        }
    }
}
