//! Election of a leader: a poll that changes nothing (pre-vote), then phase 1.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use overlay::{Epoch, NodeId};

use super::leader::Leadership;
use super::{AHEAD_MAX, Log, Role};
use crate::ballot::{Ballot, LogSlot};
use crate::context::Context;
use crate::control::liveness::failure_detector::FailureDetector;
use crate::control::recovery::doubt::decides;
use crate::control::state::Entry;
use crate::message::{LogMessage, Message};
use overlay::time::Time;

/// Entries that an acceptor accepted after the applied state.
type Accepted = Vec<(LogSlot, Ballot, Entry)>;

/// Attempt to lead.
#[derive(Clone, Debug)]
pub(super) struct Candidacy {
    since: Time,
    /// Time of the last question to the members.
    said: Time,
    stage: CandidateStage,
}

#[derive(Clone, Debug)]
enum CandidateStage {
    Polling { round: u64, yes: BTreeSet<NodeId> },
    Preparing { ballot: Ballot, applied: LogSlot, stop: bool, promises: BTreeMap<NodeId, (Accepted, Epoch)> },
}

impl Candidacy {
    /// Returns the ballot of the attempt's phase 1.
    pub(super) fn ballot(&self) -> Option<Ballot> {
        match &self.stage {
            CandidateStage::Polling { .. } => None,
            CandidateStage::Preparing { ballot, .. } => Some(*ballot),
        }
    }

    /// Returns whether the attempt is still a poll: it has promised nothing, and asked only whether members would promise.
    pub(super) fn is_polling(&self) -> bool {
        matches!(self.stage, CandidateStage::Polling { .. })
    }

    /// Returns since when the attempt is one to end the epoch.
    pub(super) fn ends_epoch_since(&self) -> Option<Time> {
        matches!(self.stage, CandidateStage::Preparing { stop: true, .. }).then_some(self.since)
    }

    /// Returns whether the attempt has taken too long.
    pub(super) fn is_stale(&self, ctx: &Context<'_>) -> bool {
        ctx.now.time.since(self.since) >= ctx.config.timing.suspicion()
    }

    /// Repeats a question that was not answered for long.
    pub(super) fn resend(&mut self, ctx: &mut Context<'_>) {
        if ctx.now.time.since(self.said) < ctx.config.timing.resend {
            return;
        }
        self.said = ctx.now.time;
        let (message, answered): (_, Vec<NodeId>) = match &self.stage {
            CandidateStage::Polling { round, yes } => {
                (LogMessage::AskPromise { round: *round }, yes.iter().copied().collect())
            }
            CandidateStage::Preparing { ballot, applied, stop, promises } => {
                let prepare = LogMessage::Prepare { ballot: *ballot, applied: *applied, stop: *stop };
                (prepare, promises.keys().copied().collect())
            }
        };
        let to: Vec<NodeId> = ctx.others().into_iter().filter(|node| !answered.contains(node)).collect();
        ctx.out.send_after(&to, Message::Log(message));
    }
}

impl Log {
    /// Stands for election, if this node hears a quorum.
    pub(super) fn stand(&mut self, ctx: &mut Context<'_>, detector: &FailureDetector) {
        let heard = detector.hears(&ctx.config.timing, ctx.now.time);
        let reached = 1 + heard.iter().filter(|node| **node != ctx.me && ctx.state.is_member(**node)).count();
        if reached < ctx.state.quorum() {
            self.arm(ctx);
            return;
        }
        let round = self.next_attempt;
        self.next_attempt += 1;
        self.leader = None;
        let stage = CandidateStage::Polling { round, yes: BTreeSet::new() };
        self.role = Role::Candidate(Candidacy { since: ctx.now.time, said: ctx.now.time, stage });
        let nodes = ctx.state.nodes();
        ctx.out.send(&nodes, Message::Log(LogMessage::AskPromise { round }));
    }

    pub(super) fn on_would_promise(&mut self, ctx: &mut Context<'_>, from: NodeId, attempt: u64) {
        let Role::Candidate(Candidacy { stage: CandidateStage::Polling { round, yes }, .. }) = &mut self.role else {
            return;
        };
        if *round != attempt || !ctx.state.is_member(from) {
            return;
        }
        yes.insert(from);
        if yes.len() >= ctx.state.quorum() {
            self.prepare(ctx, false);
        }
    }

    /// Begins phase 1 (phase 1a) under a ballot above all that were seen; to `stop` the epoch, or to lead it.
    ///
    /// The questions leave once this node's own promise, and the state that they name, are durable. Otherwise, after a restart, promises
    /// for the state applied before it could pass for promises for the restored state, under the same ballot.
    pub(super) fn prepare(&mut self, ctx: &mut Context<'_>, stop: bool) {
        self.round_seen += 1;
        let ballot = Ballot { round: self.round_seen, node: ctx.me };
        let applied = ctx.state.applied;
        let stage = CandidateStage::Preparing { ballot, applied, stop, promises: BTreeMap::new() };
        self.role = Role::Candidate(Candidacy { since: ctx.now.time, said: ctx.now.time, stage });
        self.acceptor.prepare(ballot, ctx).expect("above all that were seen");
        let nodes = ctx.state.nodes();
        ctx.out.send_after(&nodes, Message::Log(LogMessage::Prepare { ballot, applied, stop }));
    }

    /// Takes a promise as candidate (phase 1b). A state that came with the promise was adopted before.
    pub(super) fn on_promise(
        &mut self,
        ctx: &mut Context<'_>,
        (from, doubt): (NodeId, Epoch),
        promised: Ballot,
        accepted: Accepted,
    ) {
        let Role::Candidate(Candidacy { stage: CandidateStage::Preparing { ballot, stop, promises, .. }, .. }) =
            &mut self.role
        else {
            return;
        };
        if *ballot != promised || !ctx.state.is_member(from) {
            return;
        }
        promises.insert(from, (accepted, doubt));
        // The node's own promise came once it was durable. Before that it proposes nothing, because after a restart it might use the ballot
        // for another entry (hazard 5).
        let answer = |node| promises.get(&node).map(|(_, doubt)| *doubt);
        let is_known = decides(&ctx.state.nodes(), ctx.state.epoch, ctx.config.defects, answer);
        if !is_known || !promises.contains_key(&ctx.me) {
            return;
        }
        let (ballot, stop, promises) = (*ballot, *stop, core::mem::take(promises));
        let mut adopted: BTreeMap<LogSlot, (Ballot, Entry)> = BTreeMap::new();
        for (slot, under, entry) in promises.into_values().flat_map(|(accepted, _)| accepted) {
            if slot > ctx.state.applied
                && slot.0 - ctx.state.applied.0 <= AHEAD_MAX
                && adopted.get(&slot).is_none_or(|(known, _)| *known < under)
            {
                adopted.insert(slot, (under, entry));
            }
        }
        let leadership = Leadership::begin(ctx, ballot, adopted, stop);
        self.leader = Some((ballot, ctx.now.time));
        self.role = Role::Leader(leadership);
    }
}
