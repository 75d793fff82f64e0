//! The group's log: Multi-Paxos over decisions about the group itself, one epoch at a time (Harmony §3.1, Scatter §4).
//!
//! Client operations never go through this log. Applied entries are forgotten: a member that lags gets the whole state, which is small.
//!
//! # Invariants
//! - An acceptor's ballot never goes down within an epoch, and the acceptor accepts nothing below its ballot.
//! - A leader proposes under its ballot only after phase 1 with a quorum of its epoch's members, and one value for each slot.
//! - Entries are applied in order, each only when a quorum accepted it under one ballot.
//! - A leader announces slots as chosen only where its own proposal is chosen, or where it proposed nothing.

mod acceptor;
mod candidate;
mod leader;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use overlay::{Epoch, NodeId};

pub use acceptor::LogAcceptor;
use candidate::Candidacy;
use leader::Leadership;

use crate::ballot::{Ballot, LogSlot};
use crate::config::{Defect, Timing};
use crate::context::Context;
use crate::contradiction::{Contradicts, Disowned, contradiction};
use crate::control::liveness::failure_detector::FailureDetector;
use crate::control::recovery::doubt::decides;
use crate::control::state::Entry;
use crate::message::{LogMessage, Message};
use crate::outbox::Durable;
use crate::validate::Violation;
use overlay::time::Time;

/// Upper limit of the distance by which an entry, or a term, may be ahead of the applied state, in slots. A leader has one decision in
/// flight, and a few from before. A member that is further behind gets the state, and stores and fills no slots up to there.
pub const AHEAD_MAX: u64 = 1 << 10;

/// Upper limit of doublings of the pause before the next attempt to lead: sixteen times as long.
const DOUBLINGS_MAX: u32 = 4;

/// Role of this node in elections.
#[derive(Clone, Debug)]
enum Role {
    /// Does nothing, as long as the leader lives.
    Follower,
    /// Polls, or is in phase 1.
    Candidate(Candidacy),
    /// Leads.
    Leader(Leadership),
}

/// Log of one node.
#[derive(Clone, Debug)]
pub struct Log {
    acceptor: LogAcceptor,
    role: Role,
    /// Highest round seen anywhere.
    round_seen: u64,
    /// Ballot of the leader, and when it was last heard of.
    leader: Option<(Ballot, Time)>,
    /// Node that knows a slot to be chosen that is not held here.
    lacking: Option<NodeId>,
    /// Chosen entries that are not applied yet.
    chosen: BTreeMap<LogSlot, Entry>,
    /// Time of the next election.
    election_due: Time,
    /// Time between the notice that there is no leader and the election. Each member draws its own, because otherwise all members that
    /// notice at once would stand at once.
    patience: Duration,
    /// Whether the node has noticed that there is no leader.
    is_leaderless: bool,
    /// Name of the next attempt.
    next_attempt: u64,
    /// Number of attempts of this node that a higher ballot outran since the state last moved on.
    outrun: u32,
    /// Time at which this node last promised a ballot to another member, or was asked for that promise again.
    promised_other: Option<Time>,
    /// Member to which this node first promised the highest ballot, and when.
    candidate: Option<(Time, NodeId)>,
    /// Whether to seal the epoch's data plane, because the end of the epoch was promised or accepted. Reported once.
    seals: bool,
    /// Ballots under which one slot had two proposals.
    disowned: Disowned<Ballot>,
}

impl Log {
    /// Returns a log with the given acceptor state.
    pub fn new(acceptor: LogAcceptor) -> Log {
        let round_seen = acceptor.promised().map_or(0, |ballot| ballot.round);
        Log {
            acceptor,
            role: Role::Follower,
            round_seen,
            leader: None,
            lacking: None,
            chosen: BTreeMap::new(),
            election_due: Time(0),
            patience: Duration::ZERO,
            is_leaderless: false,
            next_attempt: 1,
            outrun: 0,
            promised_other: None,
            candidate: None,
            seals: false,
            disowned: Disowned::default(),
        }
    }

    /// Returns whether this node leads, with an entry of its own epoch and ballot chosen.
    pub fn leads(&self) -> bool {
        matches!(&self.role, Role::Leader(leadership) if leadership.is_confirmed())
    }

    /// Returns the ballot under which this node leads.
    pub fn leads_under(&self) -> Option<Ballot> {
        match &self.role {
            Role::Leader(leadership) => Some(leadership.ballot()),
            _ => None,
        }
    }

    /// Returns the leader, as far as it is known.
    pub fn leader(&self) -> Option<NodeId> {
        self.leads_under().or(self.leader.map(|(ballot, _)| ballot)).map(|ballot| ballot.node)
    }

    /// Returns the highest round seen anywhere.
    pub fn round_seen(&self) -> u64 {
        self.round_seen
    }

    /// Returns when this node last promised a ballot to another member, which then needs time to finish.
    pub(crate) fn promised_other(&self) -> Option<Time> {
        self.promised_other
    }

    /// Returns until when members have time to answer an attempt of this node to end the epoch, where one is in phase 1. Another attempt
    /// would replace it: where one answer takes longer than the pause between attempts, none would ever end.
    pub(crate) fn ending_until(&self, timing: &Timing) -> Option<Time> {
        let Role::Candidate(candidacy) = &self.role else { return None };
        candidacy.ends_epoch_since().map(|since| since + timing.suspicion())
    }

    /// Returns the longest random pause before the next attempt to lead: `base`, doubled with each attempt that was outrun. Otherwise
    /// members could outrun each other for ever, where an attempt takes longer than the pause between the attempts of all.
    pub(crate) fn spread(&self, base: Duration) -> Duration {
        base * (1 << self.outrun.min(DOUBLINGS_MAX))
    }

    /// Raises the rounds of this node's later ballots: they are `apart` above this round and all rounds that it has seen.
    pub(crate) fn begin_above(&mut self, round: u64, apart: u64) {
        self.round_seen = self.round_seen.max(round).saturating_add(apart);
    }

    /// Returns the ballot under which this slot was accepted.
    pub fn accepted_under(&self, slot: LogSlot) -> Option<Ballot> {
        self.acceptor.accepted(slot).map(|(ballot, _)| ballot)
    }

    /// Returns the ballot that the acceptor has promised.
    pub fn promised(&self) -> Option<Ballot> {
        self.acceptor.promised()
    }

    /// Returns the last slot accepted.
    pub fn last_accepted(&self) -> Option<LogSlot> {
        self.acceptor.last_accepted()
    }

    /// Returns the entries accepted here after a slot, or known to be chosen: each of them may be chosen.
    pub fn undecided(&self, applied: LogSlot) -> Vec<Entry> {
        let accepted = self.acceptor.accepted_behind(applied).into_iter().map(|(_, _, entry)| entry);
        accepted.chain(self.chosen.values().cloned()).collect()
    }

    /// Returns the slot up to which all slots are known here to be chosen.
    pub fn chosen(&self, applied: LogSlot) -> LogSlot {
        let mut chosen = applied;
        while self.chosen.contains_key(&chosen.next()) {
            chosen = chosen.next();
        }
        chosen
    }

    /// Returns whether the leader has an entry in flight.
    pub fn is_busy(&self) -> bool {
        !self.chosen.is_empty() || matches!(&self.role, Role::Leader(leadership) if leadership.is_busy())
    }

    /// Takes the node to ask for the state: a slot is chosen that this log does not hold. Reported once.
    pub fn take_lacking(&mut self) -> Option<NodeId> {
        self.lacking.take()
    }

    /// Returns whether the end of the epoch was promised or accepted since the last call. Then the caller must seal the epoch, so that no
    /// more of it is accepted, before the answer leaves (`docs/design/epochs.md`).
    pub fn take_seal(&mut self) -> bool {
        core::mem::take(&mut self.seals)
    }

    /// Takes the next entry to apply, if it is known to be chosen.
    pub fn take_chosen(&mut self, applied: LogSlot) -> Option<Entry> {
        self.chosen.remove(&applied.next())
    }

    /// Forgets entries that the state contains, after the state moved on. A new epoch begins with nothing promised (Harmony §3.3.2).
    pub fn on_applied(&mut self, ctx: &mut Context<'_>, epoch_before: Epoch, led: bool) {
        self.outrun = 0;
        if ctx.state.ended.is_some() {
            // Nothing follows; a member that still tries is told the last state.
            self.acceptor.forget(ctx.state.applied, ctx.out);
            self.chosen.clear();
            self.role = Role::Follower;
            return;
        }
        if ctx.state.epoch == epoch_before {
            self.acceptor.forget(ctx.state.applied, ctx.out);
            self.chosen = self.chosen.split_off(&ctx.state.applied.next());
            if let Role::Leader(leadership) = &mut self.role
                && !leadership.forget(ctx.state.applied)
            {
                // The other members continue under another ballot.
                self.role = Role::Follower;
                self.leader = None;
                self.arm(ctx);
            }
            return;
        }
        self.acceptor = LogAcceptor::default();
        self.chosen.clear();
        self.leader = None;
        self.candidate = None;
        self.role = Role::Follower;
        ctx.out.persist(Durable::LogForget(None));
        ctx.out.persist(Durable::LogPromised(ctx.state.epoch, None));
        self.arm(ctx);
        if led && ctx.state.is_member(ctx.me) {
            // The leader of the last epoch continues at once: no member need notice a gap.
            self.prepare(ctx, false);
        }
    }

    /// Ends the epoch, regardless of its leader: phase 1 for all slots, then *Next* with unchanged members where no *Next* may have been
    /// chosen already (Harmony §3.3.1).
    pub fn stop(&mut self, ctx: &mut Context<'_>) {
        if ctx.state.ended.is_none() {
            self.prepare(ctx, true);
        }
    }

    /// Proposes an entry; only where [`Log::leads`]. Returns its slot.
    pub fn propose(&mut self, ctx: &mut Context<'_>, entry: Entry) -> Option<LogSlot> {
        let Role::Leader(leadership) = &mut self.role else { return None };
        let slot = leadership.propose(ctx, entry.clone());
        if entry.ends_epoch() && ctx.config.defects.has(Defect::NextUnchosen) {
            self.chosen.insert(slot, entry);
        }
        Some(slot)
    }

    /// Tells the other members the chosen slots, as leader, if no other message tells them soon.
    pub fn announce(&self, ctx: &mut Context<'_>) {
        let Role::Leader(leadership) = &self.role else { return };
        let message =
            LogMessage::Accept { ballot: leadership.ballot(), entries: Vec::new(), chosen: ctx.state.applied };
        let others = ctx.others();
        ctx.out.send(&others, Message::Log(message));
    }

    /// Notes a sign of life of the leader.
    pub fn on_leader_heartbeat(&mut self, ctx: &mut Context<'_>, ballot: Ballot, chosen: LogSlot) {
        self.round_seen = self.round_seen.max(ballot.round);
        if self.disowned.has(&ballot) {
            return ctx.dropped.note(Violation::Contradiction); // Its silence makes other members stand.
        }
        if self.acceptor.promised().is_some_and(|promised| ballot < promised) {
            return; // Outrun already.
        }
        self.heed(ctx, ballot);
        self.learn(ctx, ballot, chosen);
    }

    /// Handles one message; the caller has checked that it comes from a member of the same epoch.
    pub fn on_message(&mut self, ctx: &mut Context<'_>, detector: &FailureDetector, from: NodeId, message: LogMessage) {
        match message {
            LogMessage::AskPromise { round } => {
                if !self.has_leader_beside(from, ctx, detector) {
                    ctx.out.send(&[from], Message::Log(LogMessage::WouldPromise { round }));
                }
            }
            LogMessage::Lead => {
                // From another member than the leader, the request would only disturb.
                let led_by_them = self.leader.is_some_and(|(ballot, _)| ballot.node == from);
                if led_by_them && matches!(self.role, Role::Follower) && ctx.state.ended.is_none() {
                    self.prepare(ctx, false);
                }
            }
            LogMessage::WouldPromise { round } => self.on_would_promise(ctx, from, round),
            LogMessage::Prepare { ballot, applied, stop } => self.on_prepare(ctx, from, ballot, applied, stop),
            LogMessage::Promise { ballot, accepted, doubt, .. } => {
                self.on_promise(ctx, (from, doubt), ballot, accepted);
            }
            LogMessage::Accept { ballot, entries, chosen } => self.on_accept(ctx, from, ballot, entries, chosen),
            LogMessage::Accepted { ballot, slots, doubt } => self.on_accepted(ctx, (from, doubt), ballot, &slots),
            LogMessage::Refused { ballot, promised } => self.on_refused(ctx, ballot, promised),
        }
    }

    /// Handles timers: elections, repeats. Called whenever time has passed.
    pub fn on_tick(&mut self, ctx: &mut Context<'_>, detector: &FailureDetector) {
        if !ctx.state.is_member(ctx.me) || ctx.state.ended.is_some() {
            self.role = Role::Follower;
            return;
        }
        match &mut self.role {
            Role::Leader(leadership) => {
                let heard = detector.hears(&ctx.config.timing, ctx.now.time);
                let quorum = ctx.state.quorum();
                let reached = 1 + heard.iter().filter(|node| **node != ctx.me && ctx.state.is_member(**node)).count();
                if reached < quorum {
                    // A leader that does not hear a quorum must not keep other members from leading (quorum-connectedness).
                    self.role = Role::Follower;
                    self.leader = None;
                    self.arm(ctx);
                } else {
                    leadership.resend(ctx);
                }
            }
            Role::Candidate(candidacy) if candidacy.is_stale(ctx) => {
                self.role = Role::Follower;
                self.arm(ctx);
            }
            Role::Candidate(candidacy) => candidacy.resend(ctx),
            Role::Follower => {
                let is_leaderless = !self.has_leader(ctx, detector);
                let was_leaderless = core::mem::replace(&mut self.is_leaderless, is_leaderless);
                if is_leaderless && !was_leaderless {
                    self.election_due = self.election_due.max(ctx.now.time + self.patience);
                }
                if is_leaderless && ctx.now.time >= self.election_due {
                    self.stand(ctx, detector);
                }
            }
        }
    }

    /// Returns when [`Log::on_tick`] has to be called next.
    pub fn next_timeout(&self, ctx: &Context<'_>) -> Time {
        match &self.role {
            Role::Follower if self.is_leaderless => {
                self.election_due.max(ctx.now.time + ctx.config.timing.heartbeat / 100)
            }
            // The leader's life is checked with each heartbeat, and where the leader is suspected.
            Role::Follower => ctx.now.time + ctx.config.timing.heartbeat,
            Role::Candidate(_) => ctx.now.time + ctx.config.timing.resend,
            Role::Leader(leadership) if leadership.is_busy() => ctx.now.time + ctx.config.timing.resend,
            Role::Leader(_) => ctx.now.time + ctx.config.timing.heartbeat,
        }
    }

    /// Returns whether there is a leader that this node believes alive, or a candidate that this node has promised to follow and that may
    /// lead soon.
    fn has_leader(&self, ctx: &Context<'_>, detector: &FailureDetector) -> bool {
        matches!(self.role, Role::Leader(_)) || self.has_leader_beside(ctx.me, ctx, detector)
    }

    /// Returns the same for all members but this one.
    fn has_leader_beside(&self, node: NodeId, ctx: &Context<'_>, detector: &FailureDetector) -> bool {
        let timing = &ctx.config.timing;
        let lives = |other: NodeId, at: Time| {
            other != node
                && ctx.now.time.since(at) < timing.suspicion()
                && !detector.suspects(other, timing, ctx.now.time)
        };
        let candidate = self.candidate.filter(|_| !ctx.config.defects.has(Defect::Dueling));
        let is_ahead = match &self.role {
            Role::Leader(_) => true,
            Role::Candidate(candidacy) => !candidacy.is_polling() && !ctx.config.defects.has(Defect::Dueling),
            Role::Follower => false,
        };
        is_ahead && ctx.me != node
            || self.leader.is_some_and(|(ballot, at)| lives(ballot.node, at))
            || candidate.is_some_and(|(at, candidate)| lives(candidate, at))
    }

    /// Postpones the next election, by a time that differs between members.
    fn arm(&mut self, ctx: &mut Context<'_>) {
        self.patience = ctx.rng.duration_below(self.spread(ctx.config.timing.heartbeat));
        self.election_due = ctx.now.time + ctx.config.timing.heartbeat / 4 + self.patience;
        self.is_leaderless = self.leader.is_none();
    }

    /// Follows the leader of this ballot.
    fn heed(&mut self, ctx: &mut Context<'_>, ballot: Ballot) {
        if ballot.node == ctx.me {
            return;
        }
        if self.leads_under().is_some_and(|mine| mine < ballot) || matches!(self.role, Role::Candidate(_)) {
            self.role = Role::Follower;
        }
        if self.leader.is_none_or(|(known, _)| known <= ballot) {
            self.leader = Some((ballot, ctx.now.time));
        }
        self.arm(ctx);
    }

    /// Marks slots up to `chosen` as chosen, where their entries were accepted under the same ballot.
    fn learn(&mut self, ctx: &mut Context<'_>, ballot: Ballot, chosen: LogSlot) {
        let mut slot = ctx.state.applied.next();
        while slot <= chosen {
            if !self.chosen.contains_key(&slot) {
                match self.acceptor.accepted(slot) {
                    Some((accepted, entry)) if accepted == ballot => {
                        self.chosen.insert(slot, entry.clone());
                    }
                    _ => {
                        self.lacking = Some(ballot.node).filter(|leader| *leader != ctx.me);
                        return;
                    }
                }
            }
            slot = slot.next();
        }
    }

    fn on_prepare(&mut self, ctx: &mut Context<'_>, from: NodeId, ballot: Ballot, applied: LogSlot, stop: bool) {
        self.round_seen = self.round_seen.max(ballot.round);
        let is_new = self.acceptor.promised() != Some(ballot);
        if let Err(promised) = self.acceptor.prepare(ballot, ctx) {
            ctx.out.send(&[from], Message::Log(LogMessage::Refused { ballot, promised }));
            return;
        }
        self.seals |= stop;
        if let Role::Leader(leadership) = &self.role
            && leadership.ballot() < ballot
        {
            self.outrun = self.outrun.saturating_add(u32::from(!leadership.is_confirmed()));
            self.role = Role::Follower;
        }
        if from != ctx.me {
            self.promised_other = Some(ctx.now.time);
            if is_new {
                self.candidate = Some((ctx.now.time, from)); // Its attempt is over at a set time, however often it asks.
            }
            let polls = matches!(&self.role, Role::Candidate(candidacy) if candidacy.is_polling());
            if polls && !ctx.config.defects.has(Defect::Dueling) {
                self.role = Role::Follower; // Its poll would only outrun the faster candidate.
            }
            self.arm(ctx);
        }
        let state = (ctx.state.applied > applied).then(|| alloc::boxed::Box::new(ctx.state.clone()));
        let accepted = self.acceptor.accepted_behind(ctx.state.applied);
        let promise = LogMessage::Promise { ballot, state, accepted, doubt: ctx.doubt };
        ctx.out.send_after(&[from], Message::Log(promise));
    }

    fn on_accept(
        &mut self,
        ctx: &mut Context<'_>,
        from: NodeId,
        ballot: Ballot,
        mut entries: Vec<(LogSlot, Entry)>,
        chosen: LogSlot,
    ) {
        let proposed = entries.len();
        if self.disowned.has(&ballot) {
            return ctx.dropped.note(Violation::Contradiction);
        }
        let last = ctx.state.applied.0 + AHEAD_MAX;
        entries.retain(|(slot, _)| slot.0 <= last);
        if entries.len() < proposed {
            ctx.dropped.note(Violation::Far);
        }
        self.round_seen = self.round_seen.max(ballot.round);
        entries.retain(|(slot, _)| *slot > ctx.state.applied); // The rest is chosen, and in the state.
        if self.contradicts(ctx, from, ballot, &entries) {
            return;
        }
        let ends = entries.iter().any(|(slot, entry)| *slot > ctx.state.applied && entry.ends_epoch());
        match self.acceptor.accept(ballot, entries, ctx) {
            Err(promised) => ctx.out.send(&[from], Message::Log(LogMessage::Refused { ballot, promised })),
            Ok(slots) => {
                self.seals |= ends;
                self.heed(ctx, ballot);
                if !slots.is_empty() {
                    let accepted = LogMessage::Accepted { ballot, slots, doubt: ctx.doubt };
                    ctx.out.send_after(&[from], Message::Log(accepted));
                }
                self.learn(ctx, ballot, chosen);
            }
        }
    }

    /// Returns whether these entries contradict those accepted under their ballot, or those chosen in their slots.
    fn contradicts(
        &mut self,
        ctx: &mut Context<'_>,
        from: NodeId,
        ballot: Ballot,
        entries: &[(LogSlot, Entry)],
    ) -> bool {
        // A leader that is outrun may propose differently from a later decision: that is refused.
        if self.acceptor.promised().is_some_and(|promised| promised > ballot) {
            return false;
        }
        let fork = entries.iter().find(|(slot, entry)| self.chosen.get(slot).is_some_and(|chosen| chosen != entry));
        let (of, slot) = match (fork, self.acceptor.contradicted(ballot, entries)) {
            (Some((slot, _)), _) => (Contradicts::Chosen, *slot),
            (None, Some(slot)) => (Contradicts::Accepted, slot),
            (None, None) => return false,
        };
        self.disowned.add(ballot);
        contradiction(ctx, of, from, format_args!("proposes another entry for slot {slot:?} under {ballot:?}"));
        true
    }

    fn on_accepted(&mut self, ctx: &mut Context<'_>, from: (NodeId, Epoch), ballot: Ballot, slots: &[LogSlot]) {
        let Role::Leader(leadership) = &mut self.role else { return };
        if leadership.ballot() != ballot || !ctx.state.is_member(from.0) {
            return;
        }
        let (members, epoch, defects) = (ctx.state.nodes(), ctx.state.epoch, ctx.config.defects);
        let is_chosen =
            |votes: &BTreeMap<NodeId, Epoch>| decides(&members, epoch, defects, |node| votes.get(&node).copied());
        for (slot, entry) in leadership.on_accepted(from, slots, is_chosen) {
            self.chosen.insert(slot, entry);
        }
    }

    fn on_refused(&mut self, ctx: &mut Context<'_>, ballot: Ballot, promised: Ballot) {
        self.round_seen = self.round_seen.max(promised.round);
        let mine = match &self.role {
            Role::Leader(leadership) => Some(leadership.ballot()),
            Role::Candidate(candidacy) => candidacy.ballot(),
            Role::Follower => None,
        };
        if mine == Some(ballot) && promised > ballot {
            self.outrun = self.outrun.saturating_add(1);
            self.role = Role::Follower;
            self.arm(ctx);
        }
    }
}
