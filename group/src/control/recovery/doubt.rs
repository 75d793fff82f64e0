//! Doubt: the state of a member whose journal ends with a torn frame. Such a member may have acknowledged more than its store shows,
//! because no node can tell whether the torn frame was ever durable.
//!
//! # Scope
//! A member knows everything that it sent in epochs that began after its restart. Doubt therefore covers *epochs*: all up to
//! [`Doubt::up_to`], a bound that the other members supply ([`crate::control::recovery::crash_recovery`]). In these epochs the member sends
//! nothing in committees, is primary of no sub-range, and ends the epoch. In later epochs it is an ordinary member that was away: it knows
//! which records it holds and which it lacks.
//!
//! # Counting votes
//! One function, [`decides`], counts every majority; [`meets_majorities`] counts the half that a former configuration is asked for, by the
//! same rule. The vote of a member in doubt counts only where *all* members of the configuration have answered. Let a ballot `b` ask a set
//! of members for the values that lower ballots may have chosen, and let a lower ballot have chosen `v`: a majority accepted `v` before it
//! promised `b`. If a majority of the answers is sure, one of them comes from a member that accepted `v` and still knows it. If all members
//! have answered, every member that accepted `v` has answered, and one of them still knows `v`, unless each member of that majority lost an
//! acknowledgement.
//!
//! A member of which the other members know a later *start* than its store does ([`Doubt::older`]) may have lost any number of
//! acknowledgements. Such members take part only where fewer than a majority of each configuration are so: then one member of every
//! majority that accepted a value lacks at most the end of its store.
//!
//! The same rule counts accepts. A member that forgot its promise to `c`, above `b`, must not help to choose a value under `b` that `c` has
//! not seen. If its accept counts, all members have accepted the value, the proposer of `c` included; that proposer has promised `c` to
//! itself, and a proposer that forgets its promise has also lost the process that would have used `c`.
//!
//! # Why epochs and not terms
//! A primary that forgets its term, or a leader that forgets its ballot, would use it for a second value. A forgotten promise may be higher
//! than the next one. Other members rely on answers of the run that forgot. Sealing the epoch ends all three at once, and any member can
//! seal an epoch.

use alloc::string::ToString as _;
use alloc::vec::Vec;
use core::time::Duration;

use overlay::{Epoch, NodeId};
use serde::{Deserialize, Serialize};

use crate::ballot::{LogSlot, Number};
use crate::config::{Defect, Defects};
use crate::context::{Context, Facts};
use crate::control::liveness::Liveness;
use crate::control::log::Log;
use crate::control::recovery::Recovery;
use crate::control::recovery::crash_recovery::CrashRecovery;
use crate::control::state::{EpochConfig, GroupState};
use crate::data::Acceptor;
use crate::outbox::{Durable, GroupOutput};
use overlay::time::Time;

/// How long a member waits in doubt while a sure majority serves without it. Then it enters again as a new incarnation.
const PATIENCE: Duration = Duration::from_secs(30);
/// Reason for which an incarnation ends that lost acknowledged data.
pub(crate) const LACKS: &str = "its store lacks a write or promise that it had acknowledged";
/// Pause between two log lines that name the members waited for.
const SAID_EVERY: Duration = Duration::from_secs(60);
/// Gap between the highest known round and the first round that a leader in doubt uses: it may have used rounds that no
/// other member has seen.
const ROUNDS_APART: u64 = 1 << 20;

/// The acknowledgements that a member may have forgotten. Kept in the store until the doubt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// The last epoch in doubt; [`Doubt::UNKNOWN`] until all other members have reported which epochs may have begun.
    pub up_to: Epoch,
    /// An administrator accepted the loss (`scatter group accept-loss`).
    pub accepted: bool,
    /// Starts of the process since the torn frame was found, the present one included.
    pub runs: u32,
    /// The store lacks more than its end: other members know a later start of this process.
    pub older: bool,
}

impl Doubt {
    /// Value of [`Doubt::up_to`] before the other members have answered.
    pub const UNKNOWN: Epoch = Epoch(u64::MAX);

    /// Doubt about everything that the previous run acknowledged.
    pub const fn new() -> Doubt {
        Doubt { up_to: Doubt::UNKNOWN, accepted: false, runs: 1, older: false }
    }

    /// Returns the doubt after one more start.
    #[must_use]
    pub const fn again(self) -> Doubt {
        Doubt { runs: self.runs.saturating_add(1), ..self }
    }

    /// Returns the doubt after one more start that found a torn frame again.
    #[must_use]
    pub const fn anew(self) -> Doubt {
        Doubt { runs: self.runs.saturating_add(1), older: self.older, ..Doubt::new() }
    }

    /// Returns whether acknowledgements of `epoch` may be forgotten, whether or not the loss was accepted.
    pub(crate) fn covers(doubt: Option<Doubt>, epoch: Epoch) -> bool {
        doubt.is_some_and(|doubt| epoch <= doubt.up_to)
    }

    /// The last epoch in doubt as votes carry it: [`SURE`] once the loss was accepted.
    pub(crate) fn told(doubt: Option<Doubt>) -> Epoch {
        doubt.filter(|doubt| !doubt.accepted).map_or(SURE, |doubt| doubt.up_to)
    }
}

impl Default for Doubt {
    fn default() -> Doubt {
        Doubt::new()
    }
}

/// The epoch that votes without doubt carry: it lies before all epochs.
pub(crate) const SURE: Epoch = Epoch(0);

/// Returns whether the answers decide for a configuration of `epoch`: a majority of its members without doubt has answered, or all
/// members have.
///
/// `answer` maps a member to the last epoch in doubt that its answer carried; `None`: no answer.
pub(crate) fn decides(
    members: &[NodeId],
    epoch: Epoch,
    defects: Defects,
    answer: impl Fn(NodeId) -> Option<Epoch>,
) -> bool {
    let answers: Vec<Epoch> = members.iter().filter_map(|node| answer(*node)).collect();
    let sure = answers.iter().filter(|doubt| is_sure(**doubt, epoch, defects)).count();
    sure > members.len() / 2 || (!members.is_empty() && answers.len() == members.len())
}

/// Returns whether each majority of these members has one among those that have answered without doubt: half of them have, or all members
/// have answered. At least one of the answers then has each value that a majority accepted.
///
/// `answer` maps a member to the last epoch in doubt that its answer carried; `None`: no answer.
pub(crate) fn meets_majorities(
    members: &[NodeId],
    epoch: Epoch,
    defects: Defects,
    answer: impl Fn(NodeId) -> Option<Epoch>,
) -> bool {
    let missing = usize::from(members.len() % 2 == 1 && defects.has(Defect::LessThanHalf));
    let sure = members.iter().filter_map(|node| answer(*node)).filter(|doubt| is_sure(*doubt, epoch, defects));
    !members.is_empty()
        && (sure.count() * 2 + missing >= members.len() || members.iter().all(|node| answer(*node).is_some()))
}

fn is_sure(doubt: Epoch, epoch: Epoch, defects: Defects) -> bool {
    doubt < epoch || defects.has(Defect::DoubtCounts)
}

/// The members that a group waits for because of a doubt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InDoubt {
    /// Members in doubt.
    pub members: Vec<NodeId>,
    /// Members without which the group cannot go on; empty where the rest suffices.
    pub waiting_for: Vec<NodeId>,
}

/// Doubt of this node as a member of one group, during the present run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Doubting {
    pub(super) doubt: Option<Doubt>,
    /// The last slot applied before the start. The member may have forgotten its consent to later entries.
    restored: LogSlot,
    /// The epoch of the store at the start that found the torn frame; no earlier epoch lost anything. `None` in later runs and in
    /// successors of the group: the store has promises by then that hide the forgotten ones. `None` also where the store lacks more.
    left_in: Option<Epoch>,
    /// The last slot that this member had applied when it began to take part: at once, or when the other members had answered about it.
    compared: LogSlot,
    since: Time,
    /// When this member next tries to end the epoch.
    due: Time,
    said: Option<Time>,
    /// The member was in doubt at some time in this run, so its record of other members may lack entries, too.
    pub(super) was: bool,
}

impl Doubting {
    pub(crate) fn new(doubt: Option<Doubt>, (epoch, restored): (Epoch, LogSlot), now: Time) -> Doubting {
        let left_in = doubt.filter(|doubt| doubt.runs <= 1).map(|_| epoch);
        let (compared, was) = (restored, doubt.is_some());
        Doubting { doubt, restored, left_in, compared, since: now, due: now, said: None, was }
    }

    /// Notes that the other members have answered about this member, which has applied all slots up to this one.
    pub(crate) fn on_compared(&mut self, applied: LogSlot) {
        self.compared = applied;
    }

    /// Returns the doubt that a successor of this group inherits. The bound is unknown again: the successor's members supply it.
    pub(crate) fn heir(&self, restored: LogSlot, now: Time) -> Doubting {
        let doubt = self.doubt.map(|doubt| Doubt { up_to: Doubt::UNKNOWN, ..doubt });
        Doubting { was: self.was, left_in: None, ..Doubting::new(doubt, (SURE, restored), now) }
    }

    /// Returns the epoch of the store at the start that found the torn frame, in that run only.
    pub(crate) fn left_in(&self) -> Option<Epoch> {
        self.left_in
    }
}

/// Step of a member in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DoubtStep {
    /// Nothing is to be done.
    Rests,
    /// The other members continue without this incarnation, which is to end for this reason.
    GivesUp(&'static str),
    /// The present epoch is to be ended.
    EndsEpoch,
}

impl Recovery {
    /// Returns the doubt as heartbeats carry it. A member that still waits for answers can serve in no epoch, and its heartbeat reports
    /// that.
    pub(crate) fn doubt_to_tell(&self) -> Option<Doubt> {
        let up_to = |doubt: Doubt| if self.is_asking() { Doubt::UNKNOWN } else { doubt.up_to };
        self.doubting.doubt.map(|doubt| Doubt { up_to: up_to(doubt), ..doubt })
    }

    /// Notes that the store lacks more than its torn end, as other members know: it may be older by any number of epochs. Their answers so
    /// far were compared with a store that only lacks its end, so they are asked again. Returns the new doubt, which is to be durable
    /// before this member sends anything under a later start.
    pub(crate) fn on_store_older(&mut self, ctx: &mut Context<'_>) -> Option<Doubt> {
        let doubt = self.doubting.doubt.as_mut()?;
        doubt.older = true;
        let doubt = *doubt;
        self.doubting.left_in = None;
        if self.crash.is_some() {
            self.crash = Some(CrashRecovery::new(ctx.now.time));
        }
        ctx.out.persist(Durable::Doubt(Some(doubt)));
        Some(doubt)
    }

    /// Returns the members whose stores are older, as far as their answers show, where they are a majority of a configuration that recovery
    /// asks. It may be that no member holds the data that they acknowledged then.
    pub(crate) fn older_majority(&self, facts: Facts<'_>) -> Vec<NodeId> {
        let is_older = |node: NodeId| match &self.crash {
            _ if node == facts.me => self.doubting.doubt.is_some_and(|doubt| doubt.older),
            Some(recovery) => recovery.is_older(node),
            None => false,
        };
        let mut majorities = Vec::new();
        for config in facts.state.configs(facts.state.range) {
            let older = config.members.iter().copied().filter(|node| is_older(*node));
            if older.clone().count() > config.members.len() / 2 {
                majorities.extend(older);
            }
        }
        majorities
    }

    /// Takes over the doubt of `other`, a predecessor of this new group on the same node. Returns the doubt if this member was not in
    /// doubt before.
    pub(crate) fn inherit_doubt(&mut self, facts: Facts<'_>, other: &Recovery) -> Option<Doubt> {
        let inherited = other.doubting.heir(facts.state.applied, facts.now);
        let doubt = inherited.doubt.filter(|_| self.doubting.doubt.is_none())?;
        self.doubting = inherited;
        self.crash = Some(CrashRecovery::new(facts.now));
        Some(doubt)
    }

    /// Sets the bound of the doubt from the answers of the other members: the last epoch that may have begun, and the highest round
    /// of the log's ballots.
    pub(crate) fn bound_doubt(
        &mut self,
        ctx: &mut Context<'_>,
        log: &mut Log,
        acceptor: &Acceptor,
        last: Epoch,
        round: u64,
    ) {
        let Some(doubt) = &mut self.doubting.doubt else { return };
        let sealed = u64::from(acceptor.has_sealed(ctx.state.epoch));
        let before = if doubt.up_to == Doubt::UNKNOWN { SURE } else { doubt.up_to };
        doubt.up_to = last.max(before).max(Epoch(ctx.state.epoch.0 + sealed));
        log.begin_above(round, ROUNDS_APART);
        let doubt = *doubt;
        ctx.out.persist(Durable::Doubt(Some(doubt)));
        self.doubting.due = ctx.now.time;
    }

    /// Ends the doubt, durably.
    pub(crate) fn end_doubt(&mut self, ctx: &mut Context<'_>) {
        if self.doubting.doubt.take().is_some() {
            ctx.out.persist(Durable::Doubt(None));
            ctx.out.push(GroupOutput::Note("is sure again that its store has everything that it acknowledged".into()));
        }
    }

    /// Ends the doubt once no configuration that recovery asks is in doubt. To be called only once
    /// [`Recovery::lacks_what_was_purged`] has found no loss in the present state.
    pub(crate) fn review(&mut self, ctx: &mut Context<'_>) {
        let Some(doubt) = self.doubting.doubt else { return };
        // It held the purged data then. The evidence for that may be dropped from now on.
        self.doubting.restored = self.doubting.restored.max(ctx.state.applied);
        let configs = ctx.state.configs(ctx.state.range);
        let asks = |config: &EpochConfig| config.epoch <= doubt.up_to && config.members.contains(&ctx.me);
        if doubt.up_to < ctx.state.epoch && !configs.iter().any(asks) {
            self.end_doubt(ctx);
        }
    }

    /// Returns the doubt with which this process must start again, where other members know a start of it that its store does not. The
    /// process was in doubt before in this run, and was compared with the other members' knowledge of that time. But the unknown start may
    /// be that of a copy of its store, which they have learned of since. So from now on the store may lack any acknowledgement of any
    /// epoch, until all members have answered again. `None` where the store was whole when this process started, or where tombstones were
    /// purged since the comparison: a copy may have reported in its place that it holds them, and no other member does any more.
    pub(crate) fn doubt_as_older(&self, facts: Facts<'_>) -> Option<Doubt> {
        let known = self.doubting.doubt.unwrap_or_default();
        let is_purged = !facts.state.purged_behind(facts.state.range, self.doubting.compared).is_empty();
        let is_usable = self.doubting.was && !is_purged;
        is_usable.then(|| Doubt { older: true, up_to: Doubt::UNKNOWN, accepted: false, ..known.again() })
    }

    /// Returns whether this member is in doubt, and lacks records that it must have held for the purges of `known`, a later state of its
    /// group or of one born of it.
    ///
    /// Tombstones are purged only after every member has reported that it holds all writes up to a number. For purges in epochs that this
    /// member does not know of it was not asked.
    pub(crate) fn lacks_what_was_purged(&self, facts: Facts<'_>, acceptor: &Acceptor, known: &GroupState) -> bool {
        let Some(doubt) = self.doubting.doubt else { return false };
        let Some(me) = facts.state.members.iter().find(|member| member.node == facts.me) else { return false };
        let (slot, epoch) = (self.doubting.restored.max(me.since), doubt.up_to.min(facts.state.epoch));
        let common = facts.state.range.intersection(known.range).into_iter().flatten();
        let purged = common.flat_map(|piece| known.purged.bounds.pieces(piece));
        let purged = purged.filter_map(|(piece, purge)| Some((piece, purge?)));
        let mut forgotten = purged.filter(|(_, purge)| purge.slot > slot && purge.epoch <= epoch);
        forgotten.any(|(piece, purge)| {
            let Number { term, n } = purge.up_to;
            !acceptor.holds_up_to(piece, term, n)
        })
    }

    /// Logs the members waited for; decides whether this incarnation ends after [`PATIENCE`], and whether the present epoch is to end
    /// because it is in doubt. `is_sealed`: whether this member has sealed the epoch.
    pub(crate) fn tick_doubt(
        &mut self,
        ctx: &mut Context<'_>,
        log: &Log,
        liveness: &Liveness,
        is_sealed: bool,
    ) -> DoubtStep {
        let facts = ctx.facts();
        let Some(doubt) = self.doubting.doubt else { return DoubtStep::Rests };
        let known = self.in_doubt(facts, liveness);
        let waits = !known.waiting_for.is_empty() && !doubt.accepted;
        let is_due = |at: Time| facts.now.since(at) >= SAID_EVERY;
        if waits && self.doubting.said.map_or(facts.now.since(self.doubting.since) >= PATIENCE / 6, is_due) {
            self.doubting.said = Some(facts.now);
            let waiting_for = known.waiting_for.iter().map(|node| facts.state.called(*node).to_string());
            let note = alloc::format!(
                "the end of this peer's journal is damaged, so this peer may have lost its last acknowledged write; \
                the group waits for {}. If these members are lost for good, `scatter group accept-loss {}` lets the \
                group continue with the data that is left",
                waiting_for.collect::<Vec<_>>().join(", "),
                facts.state.id
            );
            ctx.out.push(GroupOutput::Note(note.into()));
        }
        if self.is_asking() {
            let is_over = facts.now.since(self.doubting.since) >= PATIENCE
                && self.others_suffice(facts, liveness)
                && !doubt.accepted;
            let why = "it may have lost its last acknowledged write, and the other members continue without it";
            return if is_over { DoubtStep::GivesUp(why) } else { DoubtStep::Rests };
        }
        if self.ends_doubted_epoch(facts, is_sealed) && facts.now >= self.end_due(facts, log) {
            let patience = facts.config.timing.seal_patience;
            self.doubting.due = facts.now + patience + ctx.rng.duration_below(patience);
            let (members, heard) = (facts.state.nodes(), |node| self.heard_doubt(facts, liveness, node));
            let is_sure = decides(&members, facts.state.epoch, facts.config.defects, heard);
            if is_sure && facts.state.is_member(facts.me) {
                return DoubtStep::EndsEpoch;
            }
        }
        DoubtStep::Rests
    }

    /// Returns whether this member has to end the present epoch because of its doubt. Where the epoch is sealed, every member
    /// sees to its end anyway.
    fn ends_doubted_epoch(&self, facts: Facts<'_>, is_sealed: bool) -> bool {
        self.doubts(facts.state.epoch) && facts.state.ended.is_none() && !is_sealed
    }

    /// Returns when [`Recovery::tick_doubt`] is due next.
    pub(crate) fn doubt_due(&self, facts: Facts<'_>, log: &Log, is_sealed: bool) -> Time {
        let is_due = !self.is_asking() && self.ends_doubted_epoch(facts, is_sealed);
        if is_due { self.end_due(facts, log) } else { Time::NEVER }
    }

    /// Returns when this member next tries to end the epoch, unless it tries already.
    fn end_due(&self, facts: Facts<'_>, log: &Log) -> Time {
        log.ending_until(&facts.config.timing).map_or(self.doubting.due, |until| until.max(self.doubting.due))
    }

    /// Returns the last epoch in doubt of a member, as its heartbeats carry it; `None` where it is not heard.
    fn heard_doubt(&self, facts: Facts<'_>, liveness: &Liveness, node: NodeId) -> Option<Epoch> {
        if node == facts.me {
            return Some(Doubt::told(self.doubting.doubt));
        }
        let heartbeat = liveness.recent_heartbeat(facts, node)?;
        (!liveness.suspects(facts, node)).then_some(Doubt::told(heartbeat.doubt))
    }

    fn others_suffice(&self, facts: Facts<'_>, liveness: &Liveness) -> bool {
        let configs = facts.state.configs(facts.state.range);
        let heard = |node| if node == facts.me { None } else { self.heard_doubt(facts, liveness, node) };
        configs.iter().all(|config| decides(&config.members, config.epoch, facts.config.defects, heard))
    }

    /// Returns the members in doubt, and the members that the group waits for because of them.
    pub(crate) fn in_doubt(&self, facts: Facts<'_>, liveness: &Liveness) -> InDoubt {
        let mut known = InDoubt::default();
        for config in facts.state.configs(facts.state.range) {
            let InDoubt { members, waiting_for } = self.in_doubt_of(facts, liveness, &config);
            known.members.extend(members);
            known.waiting_for.extend(waiting_for);
        }
        known.waiting_for.extend(self.older_majority(facts));
        for nodes in [&mut known.members, &mut known.waiting_for] {
            nodes.sort_unstable();
            nodes.dedup();
        }
        known
    }

    /// Returns the members of one configuration in doubt about its epoch, and those of its members that the group waits for because of
    /// them.
    pub(crate) fn in_doubt_of(&self, facts: Facts<'_>, liveness: &Liveness, config: &EpochConfig) -> InDoubt {
        let heard = |node| self.heard_doubt(facts, liveness, node);
        let of = |node: &&NodeId| heard(**node).is_some_and(|doubt| doubt >= config.epoch);
        let members: Vec<NodeId> = config.members.iter().filter(of).copied().collect();
        let is_needed = |node: &&NodeId| {
            let is_asked = self.crash.as_ref().is_some_and(|recovery| !recovery.has(**node));
            heard(**node).is_none() || is_asked && **node != facts.me && members.contains(&facts.me)
        };
        let waits = !members.is_empty() && !self.has_sure_majority(facts, liveness, config);
        let waiting_for = config.members.iter().filter(|_| waits).filter(is_needed).copied().collect();
        InDoubt { members, waiting_for }
    }

    /// Returns whether a majority of the configuration is heard and sure. Half of a former one would do for recovery, but a member in doubt
    /// waits for all other members, and an operator can accept a loss only of members that the status names.
    fn has_sure_majority(&self, facts: Facts<'_>, liveness: &Liveness, config: &EpochConfig) -> bool {
        let sure = config
            .members
            .iter()
            .filter(|node| self.heard_doubt(facts, liveness, **node).is_some_and(|doubt| doubt < config.epoch));
        sure.count() > config.members.len() / 2
    }

    /// Accepts the loss of the members waited for: a member in doubt continues with the contents of its store. Returns whether this member
    /// was in doubt.
    pub(crate) fn accept_loss(&mut self, ctx: &mut Context<'_>) -> bool {
        let Some(doubt) = self.doubting.doubt.as_mut().filter(|doubt| !doubt.accepted) else { return false };
        doubt.accepted = true;
        let doubt = *doubt;
        ctx.out.persist(Durable::Doubt(Some(doubt)));
        ctx.out.push(GroupOutput::Note(
            "continues with the contents of its store: an administrator accepted the possible loss".into(),
        ));
        true
    }
}

#[cfg(test)]
mod tests {
    use overlay::{Incarnation, PeerKey};

    use super::*;

    fn node(peer: u8) -> NodeId {
        NodeId { peer: PeerKey([peer; 32]), incarnation: Incarnation(1) }
    }

    #[test]
    fn a_member_in_doubt_counts_where_all_have_answered() {
        let members: Vec<NodeId> = (0..5).map(node).collect();
        let sure_of = |answers: &[(u8, u64)], epoch| {
            let answer =
                |asked: NodeId| answers.iter().find(|(n, _)| node(*n) == asked).map(|(_, doubt)| Epoch(*doubt));
            decides(&members, Epoch(epoch), Defects::NONE, answer)
        };
        assert!(sure_of(&[(0, 0), (1, 0), (2, 0)], 7), "an ordinary majority");
        assert!(!sure_of(&[(0, 0), (1, 0)], 7));
        assert!(!sure_of(&[(0, 0), (1, 0), (2, 7), (3, 7)], 7), "two are in doubt, and one is silent");
        assert!(sure_of(&[(0, 0), (1, 0), (2, 7), (3, 7)], 8), "of a later epoch they know everything");
        assert!(sure_of(&[(0, 9), (1, 9), (2, 9), (3, 9), (4, 9)], 7), "all have answered");
        assert!(sure_of(&[(0, 0), (1, 0), (2, 0), (3, 9)], 7), "nobody needs the one");
        assert!(!decides(&[], Epoch(1), Defects::NONE, |_| Some(SURE)));
        assert!(!meets_majorities(&[], Epoch(1), Defects::NONE, |_| Some(SURE)));
    }
    #[test]
    fn half_of_the_members_meet_each_majority() {
        for length in 1..=7_usize {
            let members: Vec<NodeId> = (0..length as u8).map(node).collect();
            let of = |set: u32| (0..length).filter(move |index| set >> index & 1 == 1);
            for set in 0..1_u32 << length {
                let answer = |asked: NodeId| of(set).any(|index| members[index] == asked).then_some(SURE);
                let mut majorities = (0..1_u32 << length).filter(|other| of(*other).count() > length / 2);
                let expected = majorities.all(|majority| majority & set != 0);
                assert_eq!(
                    meets_majorities(&members, Epoch(1), Defects::NONE, answer),
                    expected,
                    "{set:b} of {length}"
                );
            }
        }
    }
}
