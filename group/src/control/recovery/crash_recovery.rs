//! Check at each start on a store, sealed or not: whether the store still has everything that this node acknowledged. A sealed store may be
//! an older copy. The other members are asked before this node votes again (`docs/design/durability.md`; hazards 1-3).
//!
//! Where the end of its store is in [`crate::control::recovery::doubt`], *all* other members must answer. The doubt ends only where both
//! conditions hold:
//!
//! - All of them have followed the run that may have lost some data from its first message on, and the store lacks nothing that they know
//!   of. Then no acknowledgement to them is lost.
//! - The store also lacks nothing that they themselves have accepted, in an epoch that none of them knows to be over. A primary or leader
//!   acknowledges to itself too, which no other member knows; but other members accepted the same values.
//!
//! Otherwise the doubt continues. It also continues for a member that has started once more since, or was born in a new group since: its
//! present promises do not show what it had promised then.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::time::Duration;

use overlay::{Epoch, KeyRange, NodeId, PeerKey};

use crate::ballot::{Ballot, LogSlot, TermBallot};
use crate::config::Defect;
use crate::context::{Context, Facts};
use crate::control::log::{AHEAD_MAX, Log};
use crate::control::recovery::Recovery;
use crate::control::recovery::doubt::SURE;
use crate::data::Acceptor;
use crate::message::{CommitteeMessage, LogMessage, Message, Progress, Vouch, VouchedCommittee};
use crate::number_set::NumberSet;
use overlay::time::Time;

/// Time to wait for further answers once a quorum's answers have arrived: the member that this node acknowledged to may be slow.
const LINGER: Duration = Duration::from_millis(700);
/// Upper limit of remembered committees of each node.
const COMMITTEES_MAX: usize = 32;

/// Upper limits of remembered slots of each node, and of gaps in the numbers of each committee.
const SLOTS_MAX: usize = 64;
const GAPS_MAX: usize = 64;

/// Upper limit of remembered nodes that receive no messages any more. Those that have been gone for longest are forgotten first.
const GONE_MAX: usize = 16;
/// Upper limit of peers with counted runs.
const FOLLOWED_MAX: usize = 1024;

/// Questions to the other members, and their answers.
#[derive(Clone, Debug)]
pub struct CrashRecovery {
    since: Time,
    asked: Option<Time>,
    answered: BTreeMap<NodeId, Answered>,
}

/// Part of an answer that matters later.
#[derive(Clone, Copy, Debug)]
struct Answered {
    applied: LogSlot,
    followed: u32,
    last: Epoch,
    round: u64,
    /// Last slot in which the other member has accepted an entry.
    slot: LogSlot,
    /// Whether this node's store shows all that the other member knows of its progress, and has accepted itself.
    is_shown: bool,
    /// [`Vouch::older`].
    older: bool,
}

impl CrashRecovery {
    /// Begins to ask.
    pub fn new(now: Time) -> CrashRecovery {
        CrashRecovery { since: now, asked: None, answered: BTreeMap::new() }
    }

    /// Returns whether this node has answered that its store is older.
    pub(crate) fn is_older(&self, node: NodeId) -> bool {
        self.answered.get(&node).is_some_and(|answered| answered.older)
    }

    /// Forgets the answers of this peer.
    pub(crate) fn forget(&mut self, peer: PeerKey) {
        self.answered.retain(|node, _| node.peer != peer);
    }

    /// Returns whether this node has answered.
    pub(crate) fn has(&self, node: NodeId) -> bool {
        self.answered.contains_key(&node)
    }
}

/// Acknowledgements of other nodes to this one, in this run of it.
#[derive(Clone, Debug, Default)]
pub struct Acknowledgements {
    by_node: BTreeMap<NodeId, Acknowledged>,
    /// Nodes among them that receive no messages any more, the longest gone first.
    gone: VecDeque<NodeId>,
    /// Number of runs of each peer that were followed from their first message on, up to the present one, with everything about them
    /// remembered.
    followed: BTreeMap<PeerKey, Followed>,
}

/// Runs of a peer that were followed.
#[derive(Clone, Copy, Debug, Default)]
struct Followed {
    runs: u32,
    /// The present run.
    last: u64,
}

#[derive(Clone, Debug, Default)]
struct Acknowledged {
    epoch: Epoch,
    promised: Option<Ballot>,
    accepted: BTreeMap<LogSlot, Ballot>,
    committees: BTreeMap<TermBallot, VouchedCommittee>,
    progress: Option<Progress>,
}

impl Acknowledgements {
    /// Takes a message of the log.
    pub fn on_log(&mut self, from: NodeId, epoch: Epoch, message: &LogMessage) {
        let (ballot, slots) = match message {
            LogMessage::Promise { ballot, .. } => (*ballot, &[][..]),
            LogMessage::Accepted { ballot, slots, .. } => (*ballot, &slots[..]),
            _ => return,
        };
        let known = self.by_node.entry(from).or_default();
        if known.epoch != epoch {
            (known.epoch, known.promised, known.accepted) = (epoch, None, BTreeMap::new());
        }
        known.promised = known.promised.max(Some(ballot));
        for slot in slots {
            let under = known.accepted.entry(*slot).or_insert(ballot);
            *under = ballot.max(*under);
        }
        while known.accepted.len() > SLOTS_MAX {
            known.accepted.pop_first();
            self.followed.remove(&from.peer);
        }
    }

    /// Takes the durable progress of a node: its accepted entries up to there matter no more.
    pub fn on_progress(&mut self, from: NodeId, progress: &Progress) {
        let known = self.by_node.entry(from).or_default();
        known.accepted = known.accepted.split_off(&progress.applied.next());
        known.progress = Some(progress.clone());
    }

    /// Notes that a run of this peer has begun, with its first message to this run of this node.
    pub fn on_new_run(&mut self, peer: PeerKey, run: u64) {
        if self.followed.len() >= FOLLOWED_MAX && !self.followed.contains_key(&peer) {
            // Peers without remembered acknowledgements. A peer that is forgotten does not count as followed.
            let known: BTreeSet<PeerKey> = self.by_node.keys().map(|node| node.peer).collect();
            self.followed.retain(|peer, _| known.contains(peer));
        }
        let followed = self.followed.entry(peer).or_default();
        if followed.last != run {
            *followed = Followed { runs: followed.runs.saturating_add(1), last: run };
        }
    }

    /// Returns the run of this peer that began last, as far as this node was told.
    pub(crate) fn newest_run(&self, peer: PeerKey) -> Option<u64> {
        Some(self.followed.get(&peer)?.last)
    }

    /// Takes a message to a primary of this node.
    ///
    /// Beyond the limit the oldest ballot that is no longer `granted` is forgotten: a term may be kept for long, and is then the oldest of
    /// all.
    pub fn on_committee(
        &mut self,
        from: NodeId,
        range: Option<KeyRange>,
        message: &CommitteeMessage,
        granted: impl Fn(TermBallot) -> bool,
    ) {
        let numbers = match message {
            CommitteeMessage::Promise { .. } | CommitteeMessage::BaseAccepted { .. } => &[][..],
            CommitteeMessage::Accepted { numbers, .. } => &numbers[..],
            _ => return,
        };
        let Some(range) = range else { return };
        let known = self.by_node.entry(from).or_default();
        let ballot = message.ballot();
        let silent = || VouchedCommittee { ballot, range, based: false, accepted: NumberSet::default() };
        let entry = known.committees.entry(ballot).or_insert_with(silent);
        numbers.iter().for_each(|(first, last)| entry.accepted.insert_range(*first, *last));
        if entry.accepted.gaps() > GAPS_MAX {
            // The newest numbers tell most.
            let newest = entry.accepted.ranges_above().pop();
            entry.accepted = NumberSet::default();
            newest.into_iter().for_each(|(first, last)| entry.accepted.insert_range(first, last));
            self.followed.remove(&from.peer);
        }
        entry.based |= matches!(message, CommitteeMessage::BaseAccepted { .. });
        if known.committees.len() > COMMITTEES_MAX {
            let over = known.committees.keys().find(|ballot| !granted(**ballot)).copied();
            if over.and_then(|ballot| known.committees.remove(&ballot)).is_some() {
                self.followed.remove(&from.peer);
            }
        }
    }

    /// Returns the acknowledgements of the wanted nodes.
    pub fn of(&self, is_wanted: impl Fn(NodeId) -> bool) -> Acknowledgements {
        let wanted = self.by_node.iter().filter(|(node, _)| is_wanted(**node));
        let by_node = wanted.map(|(node, known)| (*node, known.clone())).collect();
        let left_out = |peer: PeerKey| self.by_node.keys().any(|node| node.peer == peer && !is_wanted(*node));
        let followed = self.followed.iter().filter(|(peer, _)| !left_out(**peer));
        let followed = followed.map(|(peer, runs)| (*peer, *runs)).collect();
        Acknowledgements {
            by_node,
            gone: self.gone.iter().copied().filter(|node| is_wanted(*node)).collect(),
            followed,
        }
    }

    /// Forgets nodes outside of `audience`, beyond some that may still ask: a node that has just left is not told so, and asks in the epoch
    /// that was its last.
    pub fn keep(&mut self, audience: &[NodeId]) {
        let Acknowledgements { by_node, gone, .. } = self;
        gone.retain(|node| by_node.contains_key(node) && !audience.contains(node));
        let leaving = by_node.keys().copied().filter(|node| !audience.contains(node) && !gone.contains(node));
        gone.extend(leaving.collect::<Vec<_>>());
        for node in gone.drain(..gone.len().saturating_sub(GONE_MAX)) {
            by_node.remove(&node);
            // The acknowledgements of a later incarnation of the peer are still remembered.
            let is_later = |other: &NodeId| other.peer == node.peer && *other > node;
            if !by_node.keys().chain(audience).any(is_later) {
                self.followed.remove(&node.peer);
            }
        }
    }

    fn vouch(&self, node: NodeId, applied: LogSlot, epoch: Epoch) -> Vouch {
        match self.by_node.get(&node) {
            None => Vouch::silent(applied, epoch),
            Some(known) => Vouch {
                epoch: known.epoch,
                promised: known.promised,
                accepted: known.accepted.iter().map(|(slot, ballot)| (*slot, *ballot)).collect(),
                committees: known.committees.values().cloned().collect(),
                progress: known.progress.clone(),
                ..Vouch::silent(applied, epoch)
            },
        }
    }

    fn followed(&self, node: NodeId) -> u32 {
        self.followed.get(&node.peer).map_or(0, |followed| followed.runs)
    }
}

/// What an answer shows about this node's store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VouchOutcome {
    /// Nothing: this node has not asked, or has not asked that node.
    Nothing,
    /// The store may still have everything.
    Whole,
    /// The store lacks an acknowledged write or promise: this incarnation is over.
    Lacking,
}

/// Step of the check of this node's store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecoveryStep {
    /// More answers are needed.
    Waits,
    /// The other members have vouched for this node: it can take part.
    Vouched,
    /// The other members have bounded this node's doubt: it can take part once the doubt was reviewed.
    Bounded,
}

impl Recovery {
    /// Returns the answer to a node that asks which of its acknowledgements this one knows.
    pub(crate) fn vouch(&self, facts: Facts<'_>, log: &Log, acceptor: &Acceptor, from: NodeId) -> Vouch {
        let known = self.acknowledgements.vouch(from, facts.state.applied, facts.state.epoch);
        let begins_next = acceptor.has_sealed(facts.state.epoch) || facts.state.ended.is_some();
        Vouch {
            // A member that was in doubt may have forgotten that it knew an earlier run.
            followed: if self.doubting.was { 0 } else { self.acknowledgements.followed(from) },
            last: Epoch(facts.state.epoch.0 + u64::from(begins_next)),
            round: log.round_seen(),
            slot: log.last_accepted().unwrap_or(LogSlot(0)).max(facts.state.applied),
            held: acceptor.held(from),
            older: self.doubting.doubt.is_some_and(|doubt| doubt.older),
            ..known
        }
    }

    /// Takes an answer of another member, and compares this node's store with it.
    pub(crate) fn on_vouch(
        &mut self,
        facts: Facts<'_>,
        log: &Log,
        acceptor: &Acceptor,
        from: NodeId,
        vouch: &Vouch,
    ) -> VouchOutcome {
        let Some(crash) = &mut self.crash else { return VouchOutcome::Nothing };
        if !facts.state.is_in_audience(from) {
            return VouchOutcome::Nothing;
        }
        // Another run of this process may have served under a term that this store does not know of.
        if vouch.applied.0 <= facts.state.applied.0.saturating_add(AHEAD_MAX)
            && !facts.config.defects.has(Defect::BallotReuse)
        {
            self.granted_before = self.granted_before.max(vouch.applied);
        }
        let holds = holds_in_log(facts, log, vouch) && holds_in_committees(facts, acceptor, vouch);
        let is_alike = |epoch: Epoch| {
            let mut later = vouch.held.iter().filter(|held| held.ballot.epoch >= epoch);
            later.all(|held| acceptor.holds_alike(held))
        };
        let shows = |told: &Progress| told.applied <= facts.state.applied && acceptor.shows(told);
        let is_shown =
            holds && self.doubting.left_in().is_some_and(is_alike) && vouch.progress.as_ref().is_none_or(shows);
        let Vouch { applied, followed, last, round, slot, older, .. } = *vouch;
        crash.answered.insert(from, Answered { applied, followed, last, round, slot, is_shown, older });
        // A member in doubt counts as if it had lost something anyway, and its group may have no majority without it.
        let is_over = !holds && self.doubting.doubt.is_none();
        if is_over && !facts.config.defects.has(Defect::Amnesia) {
            self.crash = None;
            return VouchOutcome::Lacking;
        }
        VouchOutcome::Whole
    }

    /// Asks the members that have not answered, and decides whether the answers suffice for this node to take part.
    pub(crate) fn tick(&mut self, ctx: &mut Context<'_>, log: &mut Log, acceptor: &Acceptor) -> RecoveryStep {
        let facts = ctx.facts();
        let Some(crash) = &self.crash else { return RecoveryStep::Waits };
        // This node may have acknowledged to any member that recovery asks, even to one that is a member no longer.
        let mut others: Vec<NodeId> =
            facts.state.configs(facts.state.range).into_iter().flat_map(|c| c.members).collect();
        let is_asked = others.contains(&facts.me);
        others.retain(|node| *node != facts.me);
        others.sort_unstable();
        others.dedup();
        let all = others.iter().all(|node| crash.answered.contains_key(node));
        let lingered = facts.now.since(crash.since) >= LINGER;
        let answered = &crash.answered;
        let accepted = match self.doubting.doubt.filter(|_| !facts.config.defects.has(Defect::DoubtCounts)) {
            None => all || (lingered && has_quorums(facts, |node| answered.contains_key(&node))) || !is_asked,
            // The set of other members may be known only from the state that they have applied.
            Some(doubt) => {
                let is_known = |answer: &Answered| answer.applied <= facts.state.applied;
                doubt.accepted || all && answered.values().all(is_known) && self.older_majority(facts).is_empty()
            }
        };
        if accepted {
            return self.settle_doubt(ctx, log, acceptor, all, &others);
        }
        let Some(crash) = &mut self.crash else { return RecoveryStep::Waits };
        if crash.asked.is_none_or(|asked| facts.now.since(asked) >= facts.config.timing.resend) {
            crash.asked = Some(facts.now);
            let ask: Vec<NodeId> = others.into_iter().filter(|node| !crash.has(*node)).collect();
            ctx.out.send(&ask, Message::AskVouch);
        }
        RecoveryStep::Waits
    }

    /// Decides from the answers of the other members whether anything is still in doubt, and for which epochs.
    fn settle_doubt(
        &mut self,
        ctx: &mut Context<'_>,
        log: &mut Log,
        acceptor: &Acceptor,
        all: bool,
        others: &[NodeId],
    ) -> RecoveryStep {
        let state = ctx.state;
        let (Some(crash), Some(doubt)) = (&self.crash, self.doubting.doubt) else { return RecoveryStep::Vouched };
        let answers: Vec<Answered> = crash.answered.values().copied().collect();
        // The run that may have forgotten something, and all since: the present one is the last.
        let has_followed = |answer: &&Answered| answer.followed > doubt.runs && answer.is_shown;
        let is_level = |answer: &Answered| answer.slot <= state.applied && answer.last <= state.epoch;
        let of_others = others.iter().filter_map(|node| crash.answered.get(node));
        let round = answers.iter().map(|answer| answer.round).max().unwrap_or(0);
        let followed = all && !others.is_empty() && of_others.filter(has_followed).count() == others.len();
        if followed && answers.iter().all(is_level) && !doubt.accepted {
            log.begin_above(round, 0);
            self.end_doubt(ctx);
            return RecoveryStep::Vouched;
        }
        let last = answers.iter().map(|answer| answer.last).max().unwrap_or(SURE);
        self.bound_doubt(ctx, log, acceptor, last, round);
        // Terms that were granted up to then may have been used.
        let newest = answers.iter().map(|answer| answer.applied).max().unwrap_or(LogSlot(0));
        self.granted_before = self.granted_before.max(newest).max(state.applied);
        RecoveryStep::Bounded
    }
}

/// Returns whether the log of this node holds all that another member knows it to have acknowledged there.
fn holds_in_log(facts: Facts<'_>, log: &Log, vouch: &Vouch) -> bool {
    match vouch.epoch.cmp(&facts.state.epoch) {
        // That epoch is over, so promises in it matter no more.
        Ordering::Less => true,
        Ordering::Equal => {
            let held = |(slot, ballot): &(LogSlot, Ballot)| {
                *slot <= facts.state.applied || log.accepted_under(*slot) >= Some(*ballot)
            };
            vouch.promised <= log.promised() && vouch.accepted.iter().all(held)
        }
        // An epoch is made durable before anything is acknowledged in it: this store has lost all of it.
        Ordering::Greater => vouch.promised.is_none() && vouch.accepted.is_empty(),
    }
}

/// Returns whether the acceptor of this node holds all that another member knows it to have acknowledged in committees.
///
/// Acknowledgements in epochs about which no recovery asks this member decide nothing. This store may have lost some of them: a
/// doubt ends with those epochs, and the store stays as it is.
fn holds_in_committees(facts: Facts<'_>, acceptor: &Acceptor, vouch: &Vouch) -> bool {
    let is_asked = |known: &VouchedCommittee| {
        let configs = facts.state.configs(known.range);
        configs.iter().any(|config| config.epoch <= known.ballot.epoch && config.members.contains(&facts.me))
    };
    vouch.committees.iter().filter(|known| is_asked(known)).all(|it| acceptor.holds(it))
}

/// Returns whether enough nodes have answered for this one to vote: in every configuration that asks this node, enough to make a
/// majority with it.
fn has_quorums(facts: Facts<'_>, answered: impl Fn(NodeId) -> bool) -> bool {
    let asks = |members: &Vec<NodeId>| members.contains(&facts.me);
    let configs = facts.state.configs(facts.state.range).into_iter().map(|config| config.members);
    configs.filter(asks).all(|members| {
        let held = members.iter().filter(|node| **node == facts.me || answered(**node)).count();
        held > members.len() / 2
    })
}

#[cfg(test)]
mod tests {
    use overlay::{Incarnation, PeerKey};

    use super::*;
    use crate::ballot::Term;

    /// A member that has forgotten a part of a run is no witness of that run, or of any before.
    #[test]
    fn a_run_of_which_something_is_forgotten_does_not_count() {
        let node = NodeId { peer: PeerKey([1; 32]), incarnation: Incarnation(1) };
        let followed = |granted: bool| {
            let mut known = Acknowledgements::default();
            (1..4).for_each(|run| known.on_new_run(node.peer, run));
            for slot in 1..=COMMITTEES_MAX as u64 + 1 {
                let ballot = TermBallot { epoch: Epoch(1), term: Term::new(LogSlot(slot), 0), node };
                let accepted = CommitteeMessage::Accepted { ballot, numbers: alloc::vec![(1, 1)] };
                known.on_committee(node, Some(KeyRange::FULL), &accepted, |_| granted);
            }
            let forgot = known.followed(node);
            known.on_new_run(node.peer, 4);
            (forgot, known.followed(node))
        };
        assert_eq!((followed(true), followed(false)), ((3, 4), (0, 1)));
    }

    /// Lets a node promise a ballot.
    fn promise(known: &mut Acknowledgements, node: NodeId) {
        let ballot = Ballot { round: 7, node };
        let promise = LogMessage::Promise { ballot, state: None, accepted: Vec::new(), doubt: SURE };
        known.on_log(node, Epoch(1), &promise);
    }

    fn remembers(known: &Acknowledgements, node: NodeId) -> bool {
        known.vouch(node, LogSlot(1), Epoch(1)).promised.is_some()
    }

    /// Holds for any keys of the nodes.
    #[test]
    fn the_last_to_go_are_remembered() {
        let node = |n: u8| NodeId { peer: PeerKey([n.wrapping_mul(89); 32]), incarnation: Incarnation(1) };
        let mut known = Acknowledgements::default();
        for n in 0..200 {
            promise(&mut known, node(n));
            known.keep(&[node(n)]);
            known.keep(&[]);
            let remembered = (0..=n).filter(|other| remembers(&known, node(*other)));
            let last = n.saturating_sub(GONE_MAX as u8 - 1);
            assert!(remembered.eq(last..=n), "after {n} have left");
        }
        // A node that gets messages again is gone no more, and leaves anew.
        known.keep(&[node(190)]);
        (200..215).for_each(|n| promise(&mut known, node(n)));
        known.keep(&[]);
        assert_eq!((190..200).filter(|n| remembers(&known, node(*n))).collect::<Vec<_>>(), [190]);
    }

    /// A forgotten older incarnation of a peer does not affect the runs of its present one; a forgotten later one does.
    #[test]
    fn a_present_life_stays_followed() {
        let node = |peer, incarnation| NodeId { peer: PeerKey([peer; 32]), incarnation: Incarnation(incarnation) };
        let followed = |first: u64, second: u64| {
            let mut known = Acknowledgements::default();
            for (run, incarnation) in [(1, first), (2, second)] {
                known.on_new_run(node(1, 1).peer, run);
                promise(&mut known, node(1, incarnation));
                known.keep(&[node(1, second)]);
            }
            (2..2 + GONE_MAX as u8).for_each(|peer| promise(&mut known, node(peer, 1)));
            known.keep(&[node(1, second)]);
            assert_eq!([first, second].map(|life| remembers(&known, node(1, life))), [false, true]);
            known.followed(node(1, second))
        };
        assert_eq!((followed(1, 2), followed(2, 1)), (2, 0));
    }

    #[test]
    fn what_is_known_of_nodes_that_are_gone_is_bounded() {
        let node = |incarnation| NodeId { peer: PeerKey([1; 32]), incarnation: Incarnation(incarnation) };
        let mut known = Acknowledgements::default();
        (0..1000).for_each(|incarnation| promise(&mut known, node(incarnation)));
        known.keep(&[node(3), node(999)]);
        assert_eq!(known.by_node.len(), GONE_MAX + 2);
        assert!(remembers(&known, node(3)), "it is still told everything");
        assert!(remembers(&known, node(998)), "the last to go");
        assert!(!remembers(&known, node(4)));
    }
}
