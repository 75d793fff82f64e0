//! Takeover of a sub-range by a new primary; see the text of [`crate::data`].

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use overlay::{Epoch, Key, KeyRange, NodeId};

use crate::ballot::{Number, TermBallot};
use crate::config::Defect;
use crate::context::Context;
use crate::control::recovery::doubt::SURE;
use crate::data::acceptor::chain;
use crate::data::acceptor::leases::granters_length;
use crate::data::catch_up::covers_quorums;
use crate::data::primary::{Local, Phase, Primary, renumbered};
use crate::message::{Base, Chain, CommitteeMessage, CommitteeReport, Message, Write};
use crate::transaction::successor::handover::{Handover, covers};
use crate::validate::Violation;
use overlay::time::Time;

/// Promise of one acceptor, as far as its parts have arrived.
#[derive(Clone, Debug, Default)]
struct PromiseParts {
    seen: BTreeSet<u32>,
    parts: u32,
    total: u64,
    committees: Vec<CommitteeReport>,
    unsettled: Vec<Write>,
}

/// Takeover in progress.
#[derive(Clone, Debug)]
pub(crate) struct Takeover {
    promises: BTreeMap<NodeId, PromiseParts>,
    /// Nodes that have promised completely, each with the last epoch about which its statements are in doubt.
    promised: BTreeMap<NodeId, Epoch>,
    /// Leases of older primaries by the granting member, with the latest time at which they are over. A later statement of a member
    /// replaces its earlier one: since its promise the member has granted nothing that matters here.
    leases: BTreeMap<NodeId, Vec<(TermBallot, Time)>>,
    /// For each older primary, the end of its grants to members that answer reads, as that primary states it.
    delegated: BTreeMap<TermBallot, Time>,
    sent: Time,
    /// Handovers of the last primaries of the sub-range.
    handed: Vec<Handover>,
}

impl Takeover {
    pub(crate) fn new(now: Time, handed: Vec<Handover>) -> Takeover {
        Takeover {
            promises: BTreeMap::new(),
            promised: BTreeMap::new(),
            leases: BTreeMap::new(),
            delegated: BTreeMap::new(),
            sent: now,
            handed,
        }
    }

    /// Returns the number of older leases that this takeover knows of.
    pub(crate) fn leases_held(&self) -> usize {
        self.leases.values().map(Vec::len).sum()
    }

    /// Returns when the last older lease is over. A holder that promised, or handed over, has given its lease up, except for its grants to
    /// other members.
    pub(crate) fn leases_over(&self) -> Time {
        let handed = |ballot: &TermBallot| self.handed.iter().any(|handover| handover.ballot == *ballot);
        let gave_up = |ballot: &TermBallot| self.promised.contains_key(&ballot.node) || handed(ballot);
        let held = self.leases.values().flatten().filter(|(ballot, _)| !gave_up(ballot));
        held.map(|(_, until)| *until).chain(self.delegated.values().copied()).max().unwrap_or(Time(0))
    }
}

impl Primary {
    pub(crate) fn send_prepare(&mut self, ctx: &mut Context<'_>) {
        let Phase::TakingOver(takeover) = &mut self.phase else { return };
        takeover.sent = ctx.now.time;
        let nodes: BTreeSet<NodeId> =
            ctx.state.configs(self.range).into_iter().flat_map(|config| config.members).collect();
        // A member that was in doubt may be sure by now.
        let (is_laid, promised) = (self.base.is_some(), &takeover.promised);
        let is_asked = |node: &NodeId| promised.get(node).is_none_or(|doubt| *doubt > SURE && !is_laid);
        let to: Vec<NodeId> = nodes.into_iter().filter(is_asked).collect();
        let message = CommitteeMessage::Prepare { ballot: self.ballot, range: self.range };
        ctx.out.send(&to, Message::Committee(message));
    }

    /// Notes the older leases that a promise reports, and the sender's own grants to other members.
    pub(crate) fn note_leases(
        &mut self,
        ctx: &Context<'_>,
        from: NodeId,
        part: u32,
        leases: Vec<(TermBallot, u64)>,
        delegated: Vec<(TermBallot, u64)>,
    ) {
        let Phase::TakingOver(takeover) = &mut self.phase else { return };
        if part > 0 || ctx.config.defects.has(Defect::LeaseFromReply) {
            return;
        }
        // The rest of a lease by the granter's clock may take a little longer by this one.
        let drift = u64::from(ctx.state.settings.drift_per_mille);
        let longest = granters_length(&ctx.state.settings).as_millis() as u64 + 1;
        let until = |left_ms: u64| ctx.now.time + Duration::from_micros(left_ms.min(longest) * (1000 + drift));
        let leases = leases.into_iter().map(|(ballot, left)| (ballot, until(left))).collect();
        takeover.leases.insert(from, leases);
        for (ballot, left) in delegated.into_iter().filter(|(ballot, _)| ballot.node == from) {
            takeover.delegated.insert(ballot, until(left));
        }
    }

    pub(crate) fn on_promise(
        &mut self,
        ctx: &mut Context<'_>,
        local: &mut Local<'_>,
        (from, doubt): (NodeId, Epoch),
        (part, parts, total): (u32, u32, u64),
        committees: Vec<CommitteeReport>,
        unsettled: Vec<Write>,
    ) {
        let Phase::TakingOver(takeover) = &mut self.phase else { return };
        if unsettled.iter().any(|write| !self.range.contains(write.key.point())) {
            return ctx.dropped.note(Violation::Misplaced);
        }
        if let Some(known) = takeover.promised.get_mut(&from) {
            if doubt < *known {
                *known = doubt;
                self.go_on(ctx, local);
            }
            return;
        }
        let promise = takeover.promises.entry(from).or_default();
        if (promise.parts, promise.total) != (parts, total) {
            // After its promise, a node's unsettled writes only become fewer: a later answer may replace an earlier one.
            *promise = PromiseParts { parts, total, ..PromiseParts::default() };
        }
        if promise.seen.insert(part) {
            promise.committees.extend(committees);
            promise.unsettled.extend(unsettled);
        }
        if promise.seen.len() < parts as usize {
            return;
        }
        takeover.promised.insert(from, doubt);
        self.go_on(ctx, local);
    }

    /// Takes a handover of a part of this sub-range.
    pub fn on_handover(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>, handover: Handover) {
        let Phase::TakingOver(takeover) = &mut self.phase else { return };
        // The sender of a handover has given up its lease, too: this primary then need not wait for it.
        takeover.handed.push(handover);
        self.go_on(ctx, local);
    }

    /// Lays the base once all writes that may have been chosen are known: from promises of quorums, or from the handovers of all last
    /// primaries. Otherwise tries to serve.
    fn go_on(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>) {
        let Phase::TakingOver(takeover) = &self.phase else { return };
        // This node counts when it has promised itself, durably, like every other node.
        let promised = takeover.promised.contains_key(&ctx.me);
        let trusts = ctx.config.defects.has(Defect::NobodyAsked) && self.ballot.term.slot() == ctx.state.born_at;
        let is_handed = || trusts || covers(&takeover.handed, self.range);
        let is_known = || is_handed() || covers_quorums(ctx, self.range, &takeover.promised);
        if self.base.is_none() && promised && is_known() {
            self.lay_base(ctx);
        } else {
            self.try_serve(ctx, local);
        }
    }

    /// Continues with all keys that wait.
    fn run_all(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>) {
        let keys: Vec<Key> = self.keys.keys().cloned().collect();
        for key in keys {
            self.run(ctx, local, &key);
        }
    }

    /// Proposes again the writes that may have been chosen, and the base: phase 1 is done, or not needed.
    fn lay_base(&mut self, ctx: &mut Context<'_>) {
        let Phase::TakingOver(takeover) = &mut self.phase else { return };
        let promises = core::mem::take(&mut takeover.promises);
        let (reports, unsettled) = match covers(&takeover.handed, self.range) {
            true => handed_over(&takeover.handed, self.range),
            false => reported(promises, &takeover.promised),
        };
        let pieces = chain::pieces(self.range, &reports);
        let mut newest: BTreeMap<&Key, &Write> = BTreeMap::new();
        let passes_for_chosen = |write: &Write| {
            let same = |other: &&Write| other.key == write.key && other.record.version == write.record.version;
            let mut same = unsettled.iter().filter(same);
            ctx.config.defects.has(Defect::VoidComesBack)
                || ctx.config.defects.has(Defect::SameTimestampSameValue)
                    && same.any(|other| may_be_chosen(&pieces, other))
        };
        for write in &unsettled {
            if may_be_chosen(&pieces, write) || passes_for_chosen(write) {
                let known = newest.entry(&write.key).or_insert(write);
                if newer(ctx, write, known) {
                    *known = write;
                }
            }
        }
        let reproposed = newest.len() as u64;
        let writes: Vec<Write> = newest
            .into_values()
            .zip(1..)
            .map(|(write, n)| {
                let number = Number { term: self.ballot.term, n };
                Write { key: write.key.clone(), record: renumbered(&write.record, number) }
            })
            .collect();
        self.next_n = reproposed + 1;
        self.base = Some(Arc::new(Base { range: self.range, pieces, reproposed }));
        for write in writes {
            self.put_in_flight(ctx, write, Vec::new());
        }
        self.flush_writes(ctx);
        let to = self.audience(ctx);
        self.send_base(ctx, &to);
    }

    pub(crate) fn on_base_accepted(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>, from: NodeId) {
        self.base_accepted.insert(from);
        if from == ctx.me && !self.is_serving() && !self.is_ended() {
            // Proposals from now on travel together with the base. A member that lacks a re-proposal may accept them before the base. But
            // no write is chosen, and no answer leaves, before the base is chosen.
            self.takes_operations = true;
            self.run_all(ctx, local);
        }
        self.try_serve(ctx, local);
    }

    /// Serves, once a quorum has the base and older leases are over.
    fn try_serve(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>) {
        let Phase::TakingOver(takeover) = &self.phase else { return };
        let Some(base) = &self.base else { return };
        let votes = self.base_accepted.iter().filter(|node| ctx.state.is_member(**node)).count();
        if votes < ctx.state.quorum() || ctx.now.time < takeover.leases_over() {
            return;
        }
        let reproposed = base.reproposed;
        self.phase = Phase::Serving;
        self.takes_operations = true;
        // Each node that accepted the base has all its re-proposals: a quorum has them, so all of them are chosen.
        self.chosen.insert_range(1, reproposed);
        for n in 1..=reproposed {
            if let Some(in_flight) = self.in_flight.remove(&n) {
                self.on_chosen(ctx, local, in_flight);
            }
        }
        self.release_early(ctx);
        self.choose_voted(ctx, local);
        self.announce(ctx);
        self.run_all(ctx, local);
        self.begin_answers(ctx);
        self.renew_lease(ctx);
    }

    pub(crate) fn tick_takeover(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>) {
        let Phase::TakingOver(takeover) = &self.phase else { return };
        if ctx.now.time.since(takeover.sent) >= ctx.config.timing.resend {
            self.send_prepare(ctx);
            if self.base.is_some() {
                self.resend_writes(ctx);
                let to: Vec<NodeId> =
                    self.audience(ctx).into_iter().filter(|node| !self.base_accepted.contains(node)).collect();
                self.send_base(ctx, &to);
            }
        }
        self.try_serve(ctx, local);
    }

    /// Returns when the last older lease is over, if the primary waits for nothing but leases.
    pub(crate) fn lease_wait_over(&self, ctx: &Context<'_>) -> Time {
        match &self.phase {
            Phase::TakingOver(takeover) if self.base.is_some() => {
                Some(takeover.leases_over()).filter(|over| *over > ctx.now.time).unwrap_or(Time::NEVER)
            }
            _ => Time::NEVER,
        }
    }
}

/// Collects the reports of committees, and the unsettled writes, from the nodes that have promised.
fn reported(
    promises: BTreeMap<NodeId, PromiseParts>,
    promised: &BTreeMap<NodeId, Epoch>,
) -> (Vec<CommitteeReport>, Vec<Write>) {
    let (mut reports, mut unsettled) = (Vec::new(), Vec::new());
    for (_, promise) in promises.into_iter().filter(|(node, _)| promised.contains_key(node)) {
        reports.extend(promise.committees);
        unsettled.extend(promise.unsettled);
    }
    (reports, unsettled)
}

/// Collects the same from handovers.
fn handed_over(handed: &[Handover], range: KeyRange) -> (Vec<CommitteeReport>, Vec<Write>) {
    let report = |handover: &Handover| CommitteeReport {
        ballot: handover.ballot,
        base: Some(handover.base.clone()),
        chosen: Some(handover.chosen),
    };
    let here = |write: &&Write| range.contains(write.key.point());
    let unsettled = handed.iter().flat_map(|handover| &handover.unsettled).filter(here).cloned().collect();
    (handed.iter().map(report).collect(), unsettled)
}

/// Returns whether this unsettled write may have been chosen. A write of a term that a newer base has closed may not: it is chosen for
/// certain, and a quorum that settled it holds it, or it is void for certain.
fn may_be_chosen(pieces: &[(KeyRange, Chain)], write: &Write) -> bool {
    let point = write.key.point();
    let number = write.record.number;
    pieces.iter().find(|(piece, _)| piece.contains(point)).is_some_and(|(_, chain)| match chain.first() {
        None => true,
        Some((newest, mark)) => number.term > *newest || (number.term == *newest && number.n > *mark),
    })
}

fn newer(ctx: &Context<'_>, one: &Write, other: &Write) -> bool {
    if ctx.config.defects.has(Defect::SameTimestampSameValue) {
        return one.record.version > other.record.version;
    }
    one.record.number > other.record.number
}
