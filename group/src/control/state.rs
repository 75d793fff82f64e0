//! State of a group that its log determines: members, division, recovery, purges, losses and transactions.
//!
//! # Invariants
//! - A pure function of the log: equal slots, equal states.
//! - `division` covers the range exactly, and every term in it is used nowhere else in the group's history.
//! - `recovery` holds the configurations, oldest first, that may still be the only holders of something chosen.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use overlay::{
    Called, Contact, Epoch, GroupId, GroupRef, IntervalMap, Key, KeyRange, NodeId, PeerKey, PeerName, Point, RingId,
};
use serde::{Deserialize, Serialize};

use crate::ballot::{LogSlot, Number, Term, TermBallot};
use crate::config::{Defects, VALUE_BYTES_MAX};
use crate::control::agreed::AgreedPolicies;
use crate::harmonia::switch::Switch;
use crate::record::Record;
use crate::transaction::plan::LOST_MAX;
use crate::transaction::state::{TransactionEntry, TransactionState};
use crate::transaction::{Outcome, TransactionId};
use overlay::time::WallMillis;

/// Upper limit of the configurations that recovery asks beside the current one.
pub const RECOVERY_MAX: usize = 8;
/// The same limit for a group just born of two groups: it inherits the recovery lists of both, and both configurations.
const RECOVERY_INHERITED_MAX: usize = 2 * (RECOVERY_MAX + 1);

/// One member, or learner, of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Member {
    /// Node that votes, or copies the data.
    pub node: NodeId,
    /// Addresses of the node: multiaddresses as text, best first.
    pub addresses: Vec<String>,
    /// Name that its operator gave it.
    pub name: Option<PeerName>,
    /// Label of the peers that may fail together with it, for diversity.
    pub cluster: String,
    /// Time when it joined, in group time.
    pub joined: WallMillis,
    /// Slot of the entry that made it a member or a learner. The value in a proposal is ignored.
    pub since: LogSlot,
}

impl Member {
    /// Returns its node, addresses and name, as other members and groups should know them.
    pub fn contact(&self) -> Contact {
        Contact { node: self.node, addresses: self.addresses.clone(), name: self.name.clone() }
    }

    /// Returns its node with its name, for output to people.
    pub fn called(&self) -> Called<'_, NodeId> {
        Called { name: self.name.as_ref(), id: self.node }
    }
}

/// Primary of one sub-range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Assignment {
    /// Start of the sub-range, which ends at the start of the next one.
    pub start: Point,
    /// Primary of the sub-range.
    pub node: NodeId,
    /// Term under which the primary serves the sub-range.
    pub term: Term,
}

/// Settings that all members of a network share, fixed when the network is founded, except for the policies.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Settings {
    /// Whether writes of a sub-range are acknowledged, chosen and answered in the order of their numbers, as in one log, instead of each by
    /// itself.
    pub coarse: bool,
    /// Whether primaries answer reads alone while they hold a lease.
    pub leases: bool,
    /// Length of a lease, in milliseconds: at most 86,400,000.
    pub lease_ms: u64,
    /// Upper limit of the drift between clocks, in 1/1000: at most 900.
    pub drift_per_mille: u32,
    /// Upper limit of a value, in bytes: at most [`VALUE_BYTES_MAX`].
    pub value_bytes_max: u32,
    /// Policies, and the sizes of groups.
    pub policies: AgreedPolicies,
    /// Interval at which the horizon of operations is raised, in milliseconds, above 0. Operation ids live at least this long.
    pub horizon_ms: u64,
}

/// Configuration of a former epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EpochConfig {
    /// Epoch of the configuration.
    pub epoch: Epoch,
    /// Members that voted in it.
    pub members: Vec<NodeId>,
    /// Ranges in which it may be the only holder of something chosen.
    pub open: Vec<KeyRange>,
}

impl EpochConfig {
    /// Returns whether it may be the only holder of something chosen in this range.
    pub(crate) fn matters_in(&self, range: KeyRange) -> bool {
        self.open.iter().any(|open| open.overlaps(range))
    }
}

/// Last purge of tombstones in a piece of the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Purge {
    /// Slot of the [`Entry::Purge`].
    pub slot: LogSlot,
    /// The epoch of that slot.
    pub epoch: Epoch,
    /// Every member of that epoch held all that was chosen up to this number.
    pub up_to: Number,
}

/// Tombstones that are dropped: all members have them, so none is needed any more (hazard 14).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Purged {
    /// Last purge of each piece of the range.
    pub bounds: IntervalMap<Option<Purge>>,
    /// Horizon at the last purge. Operations of horizons two below it are refused, so no record must remember them for a deleted key.
    pub horizon: u64,
    /// A key without a record is created with a generation above this one, and so above that of every purged tombstone.
    pub floor: u32,
}

impl Purged {
    /// Returns the state before any purge.
    pub fn nothing() -> Purged {
        Purged { bounds: IntervalMap::new(None), horizon: 0, floor: 0 }
    }

    /// Returns whether this record may be dropped.
    pub fn covers(&self, key: &Key, record: &Record) -> bool {
        record.value.is_none()
            && self.bounds.get(key.point()).is_some_and(|purge| record.number <= purge.up_to)
            && record.horizon < self.horizon
            && record.done.iter().all(|done| done.horizon + 1 < self.horizon)
            && record.completions.are_below(self.horizon.saturating_sub(1))
    }
}

/// Upper limit of remembered losses; beyond it the oldest are forgotten.
pub const LOSSES_MAX: usize = 64;

/// Range that was declared lost: all that was chosen there before is void, even where a node still holds it (hazard 40).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Loss {
    /// Groups that owned the range.
    pub groups: Vec<GroupId>,
    /// The range.
    pub range: KeyRange,
    /// First epoch in which other groups owned the range.
    pub epoch: Epoch,
    /// Time of the declaration, in group time.
    pub declared: WallMillis,
}

impl Loss {
    /// Returns whether the group owned a part of the lost range in this state, which is of an epoch before the loss.
    pub fn concerns(&self, group: &GroupState) -> bool {
        group.epoch < self.epoch && group.range.overlaps(self.range)
    }

    /// Returns the same for a group's reference, as the group states it.
    pub fn is_of(&self, group: &GroupRef) -> bool {
        group.epoch < self.epoch && group.range.overlaps(self.range)
    }
}

/// State of a group after a slot of its log.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GroupState {
    /// Network of the group.
    pub ring: RingId,
    /// Id of the group.
    pub id: GroupId,
    /// Last slot with its entry in this state.
    pub applied: LogSlot,
    /// The current epoch.
    pub epoch: Epoch,
    /// Epoch in which the group began with its present id and range. The same id with another range is another group.
    pub born: Epoch,
    /// Slot of the group's first state with its present id and range. Its first members have this slot as [`Member::since`].
    pub born_at: LogSlot,
    /// Arc of the ring that the group owns.
    pub range: KeyRange,
    /// Members, which vote, ordered by node.
    pub members: Vec<Member>,
    /// Learners, which get all messages and will vote once they have caught up.
    pub learners: Vec<Member>,
    /// Primaries of all sub-ranges, in ring order from the range's start.
    pub division: Vec<Assignment>,
    /// Former configurations that recovery must still ask in some ranges; empty once the epoch is established.
    pub recovery: Vec<EpochConfig>,
    /// Operations of horizons two below this one are refused.
    pub horizon: u64,
    /// Tombstones that are dropped.
    pub purged: Purged,
    /// Losses that were declared in this group or in its ancestors.
    pub losses: Vec<Loss>,
    /// Settings of the network.
    pub settings: Settings,
    /// Switch that spreads reads over the members.
    pub switch: Switch,
    /// Neighbours of the group, and its transactions with other groups.
    pub transactions: TransactionState,
    /// Transaction with which the group ended: no entry follows this state. Other groups own its range now, or will as soon as they learn
    /// of the end.
    pub ended: Option<TransactionId>,
}

/// Log entry: one decision about the group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// Fills a slot and changes nothing.
    Noop,
    /// Divides the range anew: starts, in ring order from the range's start, with their primaries. A sub-range keeps its term if it keeps
    /// both bounds and its primary, and `kept` lists the term.
    Division {
        /// Start and primary of each sub-range.
        parts: Vec<(Point, NodeId)>,
        /// Terms that stay valid where their sub-range is unchanged.
        kept: Vec<Term>,
    },
    /// Admits newcomers as learners.
    Learners(Vec<Member>),
    /// Releases a learner.
    DropLearner(NodeId),
    /// Ends the epoch and names the members of the next one. Entries that are chosen in later slots of the ended epoch are void.
    Next(Vec<Member>),
    /// States that in each of these ranges a quorum of this epoch's members holds all that was chosen before the epoch.
    Established(Epoch, Vec<KeyRange>),
    /// Raises the horizon to this one.
    Horizon(u64),
    /// Drops tombstones. Void in another epoch, while the group has learners, and while the epoch is not established.
    Purge {
        /// Epoch of the members that hold the tombstones.
        epoch: Epoch,
        /// Each piece with the number up to which all these members hold everything that was chosen, durably.
        bounds: Vec<(KeyRange, Number)>,
        /// Highest generation among the dropped tombstones.
        floor: u32,
    },
    /// Sets the group's switch, or none. Void if its id is lower than an earlier one, or if it turns an earlier id on again. A bar is never
    /// void, and no id is turned on while a bar holds ([`Switch::then`]).
    Switch(Switch),
    /// Sets the policies. Void where the group has greater ones.
    Policies(AgreedPolicies),
    /// Changes the addresses or the name of a member or learner.
    Contact(Contact),
    /// Concerns a transaction with other groups, or a neighbour.
    Transaction(TransactionEntry),
}

impl Entry {
    /// Returns whether the entry may be the last of its epoch. A commit may be: the coordinator ends with it if the transaction touches the
    /// coordinator.
    pub fn ends_epoch(&self) -> bool {
        matches!(
            self,
            Entry::Next(_)
                | Entry::Transaction(TransactionEntry::Outcome(_, Outcome::Commit) | TransactionEntry::Ending(_))
        )
    }
}

/// Describes the entry for a person who reads the log of a leader.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::Noop => f.write_str("nothing"),
            Entry::Division { parts, .. } => {
                f.write_str("to divide the range among")?;
                parts.iter().try_for_each(|(start, node)| write!(f, " {node} (from {start:?})"))
            }
            Entry::Learners(members) => {
                f.write_str("to take in")?;
                members.iter().try_for_each(|member| write!(f, " {}", member.called()))
            }
            Entry::DropLearner(node) => write!(f, "to wait no longer for {node}"),
            Entry::Next(members) => {
                f.write_str("these members from now on:")?;
                members.iter().try_for_each(|member| write!(f, " {}", member.called()))
            }
            Entry::Established(epoch, ranges) => {
                write!(f, "that all is there in epoch {}, in", epoch.0)?;
                ranges.iter().try_for_each(|range| write!(f, " {range:?}"))
            }
            Entry::Horizon(horizon) => write!(f, "the horizon {horizon}"),
            Entry::Purge { floor, .. } => write!(f, "to let go of tombstones of generations up to {floor}"),
            Entry::Switch(switch) if switch.is_on() => write!(f, "to use the switch {}", switch.id),
            Entry::Switch(switch) if switch.is_barred() => f.write_str("to use no switch until somebody says so"),
            Entry::Switch(_) => f.write_str("to use no switch"),
            Entry::Policies(policies) => write!(f, "version {} of the network's policies", policies.version),
            Entry::Contact(contact) => write!(f, "to reach {} at {}", contact.called(), contact.addresses.join(", ")),
            Entry::Transaction(entry) => entry.fmt(f),
        }
    }
}

impl GroupState {
    /// Returns the first state of a network's first group: one member that owns the whole ring.
    pub fn founded(ring: RingId, id: GroupId, founder: Member, settings: Settings) -> GroupState {
        let applied = LogSlot(1);
        let division =
            alloc::vec![Assignment { start: KeyRange::FULL.start(), node: founder.node, term: Term::new(applied, 0) }];
        GroupState {
            ring,
            id,
            applied,
            epoch: Epoch(1),
            born: Epoch(1),
            born_at: applied,
            range: KeyRange::FULL,
            members: alloc::vec![founder],
            learners: Vec::new(),
            division,
            recovery: Vec::new(),
            horizon: 1,
            purged: Purged::nothing(),
            losses: Vec::new(),
            settings,
            switch: Switch::default(),
            transactions: TransactionState::default(),
            ended: None,
        }
    }

    /// Returns whether a group could have reached this state. States from other nodes are checked with it before use.
    pub fn is_sound(&self) -> bool {
        let start = self.range.start();
        let members = self.members.windows(2).all(|pair| pair[0].node.peer < pair[1].node.peer);
        let division =
            self.division.windows(2).all(|pair| start.distance_to(pair[0].start) < start.distance_to(pair[1].start));
        let settings = &self.settings;
        self.applied < LogSlot::MAX
            && !self.members.is_empty()
            && members
            && self.division.first().is_some_and(|first| first.start == start)
            && self.division.len() <= Term::PARTS_MAX
            && division
            && self.division.iter().all(|part| self.range.contains(part.start) && part.term.slot() <= self.applied)
            && self.recovery.len() <= RECOVERY_INHERITED_MAX
            && self.recovery.iter().all(|config| config.open.len() <= 4 * Term::PARTS_MAX && !config.members.is_empty())
            && self.epoch.0 < u64::MAX / 2
            && self.born <= self.epoch
            && self.born_at <= self.applied
            && crate::validate::is_horizon(self.horizon)
            && self.members.iter().all(|member| member.since <= self.applied)
            && self.purged.bounds.len() <= 4 * Term::PARTS_MAX
            && self.purged.floor < u32::MAX / 2
            && self.losses.len() <= LOSSES_MAX
            && self.losses.iter().all(|loss| loss.epoch <= self.epoch && loss.groups.len() <= LOST_MAX)
            && settings.drift_per_mille <= 900
            && settings.lease_ms <= 86_400_000
            // With 0 the leader would raise the horizon without end.
            && settings.horizon_ms > 0
            && settings.value_bytes_max as usize <= VALUE_BYTES_MAX
            && settings.policies.is_sound()
            && self.members.iter().chain(&self.learners).all(Member::is_sound)
            && self.transactions.is_sound()
    }

    /// Returns the number of members in a quorum: a majority.
    pub fn quorum(&self) -> usize {
        self.members.len() / 2 + 1
    }

    /// Returns whether this node votes.
    pub fn is_member(&self, node: NodeId) -> bool {
        self.members.iter().any(|member| member.node == node)
    }

    /// Returns whether this node is a learner: it gets all messages and does not vote.
    pub fn is_learner(&self, node: NodeId) -> bool {
        self.learners.iter().any(|member| member.node == node)
    }

    /// Returns whether the group released this node and admitted it again between an earlier state and this one. It did not where recovery
    /// still asks the node. A learner that is a member now has reported, before that, that it knew itself to be a learner.
    pub fn released_since(&self, before: &GroupState, node: NodeId) -> bool {
        if self.recovery.iter().any(|config| config.members.contains(&node)) {
            return false;
        }
        let since = |all: &[Member]| all.iter().find(|member| member.node == node).map(|member| member.since);
        let (member, learner) = (since(&self.members), since(&self.learners));
        match (since(&before.members), since(&before.learners)) {
            (Some(then), _) => learner.is_some() || member.is_some_and(|now| now != then),
            (None, Some(then)) => learner.is_some_and(|now| now != then),
            (None, None) => learner.is_some() || member.is_some(),
        }
    }

    /// Returns the latest incarnation of a peer among the members and learners.
    pub fn last_life(&self, peer: PeerKey) -> Option<NodeId> {
        let all = self.members.iter().chain(&self.learners).map(|member| member.node);
        all.filter(|node| node.peer == peer).max()
    }

    /// Returns a node for output to people, with the name of the member or learner, if it has one.
    pub fn called(&self, node: NodeId) -> Called<'_, NodeId> {
        let known = self.members.iter().chain(&self.learners).find(|member| member.node == node);
        Called { name: known.and_then(|member| member.name.as_ref()), id: node }
    }

    /// Returns the members' nodes, in order.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.members.iter().map(|member| member.node).collect()
    }

    /// Returns the sub-range of the `index`th assignment.
    pub fn part(&self, index: usize) -> KeyRange {
        let start = self.division[index].start;
        let end = self.division.get(index + 1).map_or(self.range.end(), |next| next.start);
        KeyRange::new(start, end)
    }

    /// Returns all sub-ranges with their primaries' ballots.
    pub fn parts(&self) -> impl Iterator<Item = (KeyRange, TermBallot)> + '_ {
        self.division
            .iter()
            .enumerate()
            .map(|(index, part)| (self.part(index), TermBallot { epoch: self.epoch, term: part.term, node: part.node }))
    }

    /// Returns the assignment of a point; `None` outside of the range.
    pub fn assignment(&self, point: Point) -> Option<&Assignment> {
        if !self.range.contains(point) {
            return None;
        }
        let offset = self.range.start().distance_to(point);
        self.division.iter().rev().find(|part| self.range.start().distance_to(part.start) <= offset)
    }

    /// Returns the configurations whose quorums recovery asks in a range: the current one, and former ones that may be the only holders of
    /// something chosen.
    pub fn configs(&self, range: KeyRange) -> Vec<EpochConfig> {
        let mut configs: Vec<EpochConfig> =
            self.recovery.iter().filter(|config| config.matters_in(range)).cloned().collect();
        configs.push(EpochConfig { epoch: self.epoch, members: self.nodes(), open: alloc::vec![self.range] });
        configs
    }

    /// Returns how many members of a configuration the group needs: a majority of the current one, and half of a former one, for more than
    /// half of that accepted everything chosen.
    pub fn needed_of(&self, config: &EpochConfig) -> usize {
        if config.epoch == self.epoch { self.quorum() } else { config.members.len().div_ceil(2) }
    }

    /// Returns whether a part of this range is not established.
    pub fn is_open(&self, range: KeyRange) -> bool {
        self.recovery.iter().any(|config| config.matters_in(range))
    }

    /// Returns all nodes that get writes: members, learners, and members of configurations that recovery asks.
    pub fn audience(&self) -> Vec<NodeId> {
        let mut nodes = self.nodes();
        nodes.extend(self.learners.iter().map(|learner| learner.node));
        nodes.extend(self.recovery.iter().flat_map(|config| config.members.iter().copied()));
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Returns whether [`GroupState::audience`] holds this node. Called for each message.
    pub fn is_in_audience(&self, node: NodeId) -> bool {
        let asked = || self.recovery.iter().any(|config| config.members.contains(&node));
        self.is_member(node) || self.is_learner(node) || asked()
    }

    /// Returns the reason why this membership may not follow the current one; `None` if it may.
    ///
    /// An epoch that is not established may only be followed by one with at most as many members, and most members must stay. So a group
    /// can always heal and remove its dead, but never leaves its data behind (`docs/design/epochs.md`). Recovery asks all configurations in
    /// between, so fewer members lose nothing. The same members may always follow.
    pub fn refuses_next(&self, members: &[Member]) -> Option<&'static str> {
        if members.is_empty() {
            return Some("a group needs a member");
        }
        if self.recovery.len() >= RECOVERY_MAX && !self.is_asked_already() && !self.are_same(members) {
            return Some("too many epochs in a row were not established");
        }
        if !members.windows(2).all(|pair| pair[0].node.peer < pair[1].node.peer) {
            return Some("members must be ordered, one life of each peer");
        }
        let stays = |member: &&Member| members.iter().any(|next| next.node.peer == member.node.peer);
        let healed = members.len() <= self.members.len() && self.members.iter().filter(stays).count() >= self.quorum();
        if !self.recovery.is_empty() && !healed {
            return Some("the current epoch is not established yet");
        }
        None
    }

    /// Returns whether recovery already asks exactly these members on behalf of an earlier epoch.
    fn is_asked_already(&self) -> bool {
        self.recovery.iter().any(|config| config.members == self.nodes())
    }

    fn are_same(&self, members: &[Member]) -> bool {
        self.members.iter().map(|member| member.node).eq(members.iter().map(|member| member.node))
    }

    /// Applies the entry of the next slot.
    ///
    /// # Panics
    /// If the slot is not the next one, or the group has ended.
    pub fn apply(&mut self, slot: LogSlot, entry: &Entry) {
        self.apply_without(slot, entry, Defects::NONE);
    }

    /// Applies an entry without these rules, for tests of the checks.
    pub(crate) fn apply_without(&mut self, slot: LogSlot, entry: &Entry, defects: Defects) {
        assert_eq!(slot, self.applied.next(), "entries apply in order of their slots");
        assert!(self.ended.is_none(), "slot {slot:?} lies behind the end of {:?}", self.id);
        self.applied = slot;
        match entry {
            Entry::Noop => {}
            Entry::Division { parts, kept } => self.apply_division(slot, parts, kept),
            Entry::Learners(learners) => learners.iter().for_each(|learner| self.apply_learner(slot, learner)),
            Entry::DropLearner(node) => self.learners.retain(|learner| learner.node != *node),
            Entry::Next(members) => self.apply_next(slot, members),
            Entry::Established(epoch, ranges) => self.apply_established(*epoch, ranges),
            Entry::Horizon(horizon) => self.horizon = self.horizon.max(*horizon),
            Entry::Switch(switch) => {
                self.switch = self.switch.then(*switch);
            }
            Entry::Policies(policies) => self.settings.policies = self.settings.policies.then(policies),
            Entry::Purge { epoch, bounds, floor } => self.apply_purge(slot, *epoch, bounds, *floor),
            Entry::Contact(contact) => {
                let all = self.members.iter_mut().chain(&mut self.learners);
                if let Some(member) = all.into_iter().find(|member| member.node == contact.node) {
                    member.addresses.clone_from(&contact.addresses);
                    member.name.clone_from(&contact.name);
                }
            }
            Entry::Transaction(entry) => self.apply_transaction(slot, entry, defects),
        }
    }

    fn apply_division(&mut self, slot: LogSlot, parts: &[(Point, NodeId)], kept: &[Term]) {
        let start = self.range.start();
        let ordered = parts.windows(2).all(|pair| start.distance_to(pair[0].0) < start.distance_to(pair[1].0));
        let fits = parts.first().is_some_and(|first| first.0 == start)
            && parts.iter().all(|(point, _)| self.range.contains(*point))
            && parts.len() <= Term::PARTS_MAX;
        if !ordered || !fits {
            return; // A malformed division from a leader in error: every member ignores it alike.
        }
        let old: Vec<_> = self.parts().collect();
        let redrawn = parts.iter().enumerate().map(|(index, (start, node))| {
            let end = parts.get(index + 1).map_or(self.range.end(), |next| next.0);
            let same = old.iter().find(|(range, ballot)| {
                *range == KeyRange::new(*start, end) && ballot.node == *node && kept.contains(&ballot.term)
            });
            let term = same.map_or_else(|| Term::new(slot, index), |(_, ballot)| ballot.term);
            Assignment { start: *start, node: *node, term }
        });
        self.division = redrawn.collect();
    }

    fn apply_established(&mut self, epoch: Epoch, ranges: &[KeyRange]) {
        if epoch != self.epoch {
            return;
        }
        for config in &mut self.recovery {
            let mut open = IntervalMap::new(false);
            config.open.iter().for_each(|range| open.set(*range, true));
            ranges.iter().for_each(|range| open.set(*range, false));
            config.open =
                open.pieces(KeyRange::FULL).into_iter().filter(|(_, open)| *open).map(|(piece, _)| piece).collect();
        }
        self.recovery.retain(|config| !config.open.is_empty());
    }

    fn apply_purge(&mut self, slot: LogSlot, epoch: Epoch, bounds: &[(KeyRange, Number)], floor: u32) {
        if epoch != self.epoch || !self.is_settled() {
            return;
        }
        for (piece, up_to) in bounds {
            self.purged.bounds.set(*piece, Some(Purge { slot, epoch, up_to: *up_to }));
        }
        self.purged.horizon = self.horizon;
        self.purged.floor = self.purged.floor.max(floor);
    }

    /// Returns whether no node copies the data: there are no learners, and the epoch is established. Members may still fetch writes that
    /// they missed.
    pub fn is_settled(&self) -> bool {
        self.learners.is_empty() && self.recovery.is_empty()
    }

    /// Returns the number up to which this member holds all that was chosen at a point, by a purge since it joined. Older records of keys
    /// that it does not hold are of deleted keys.
    pub fn held_since_purge(&self, node: NodeId, point: Point) -> Option<Number> {
        let since = self.members.iter().find(|member| member.node == node)?.since;
        self.purged.bounds.get(point).filter(|purge| purge.slot > since).map(|purge| purge.up_to)
    }

    /// Returns the pieces in which a purge dropped tombstones in an epoch after this one. A node that knows of no later epoch was not asked
    /// for that purge, so all other members held everything. The node's records there are not needed, and may have been deleted since.
    pub fn purged_after(&self, epoch: Epoch) -> Vec<KeyRange> {
        let pieces = self.purged.bounds.pieces(self.range).into_iter();
        let later = pieces.filter(|(_, purge)| purge.is_some_and(|purge| purge.epoch > epoch));
        later.map(|(piece, _)| piece).collect()
    }

    /// Returns the pieces of this range in which a purge in a slot after this one dropped tombstones. Records there may be of deleted keys
    /// if this node copied them as of the slot, before it had a part in the range.
    pub fn purged_behind(&self, range: KeyRange, slot: LogSlot) -> Vec<KeyRange> {
        let pieces = self.purged.bounds.pieces(range).into_iter();
        let later = pieces.filter(|(_, purge)| purge.is_some_and(|purge| purge.slot > slot));
        later.map(|(piece, _)| piece).collect()
    }

    fn apply_learner(&mut self, slot: LogSlot, learner: &Member) {
        if self.is_member(learner.node) || self.is_learner(learner.node) {
            return;
        }
        self.learners.retain(|known| known.node.peer != learner.node.peer);
        self.learners.push(Member { since: slot, ..learner.clone() });
        self.learners.sort_by_key(|learner| learner.node);
    }

    fn apply_next(&mut self, slot: LogSlot, members: &[Member]) {
        if self.refuses_next(members).is_some() {
            return;
        }
        let nodes = self.nodes();
        let open = alloc::vec![self.range];
        match self.recovery.iter().position(|config| config.members == nodes) {
            Some(known) => self.recovery[known].open = open,
            // The same members continue: a question to them in the next epoch covers this one too.
            None if self.recovery.len() >= RECOVERY_MAX => debug_assert!(self.are_same(members)),
            None => self.recovery.push(EpochConfig { epoch: self.epoch, members: nodes, open }),
        }
        self.epoch = Epoch(self.epoch.0 + 1);
        self.transactions.on_epoch();
        let since = |node: NodeId| self.members.iter().find(|known| known.node == node).map(|known| known.since);
        let next = members.iter().map(|member| Member { since: since(member.node).unwrap_or(slot), ..member.clone() });
        self.members = next.collect();
        self.learners.retain(|learner| !members.iter().any(|member| member.node.peer == learner.node.peer));
        for (index, part) in self.division.iter_mut().enumerate() {
            part.term = Term::new(slot, index);
        }
    }
}

#[cfg(test)]
mod tests {
    use overlay::Incarnation;

    use super::*;

    fn member(peer: u8, incarnation: u64) -> Member {
        let node = NodeId { peer: PeerKey([peer; 32]), incarnation: Incarnation(incarnation) };
        Member {
            node,
            addresses: Vec::new(),
            name: None,
            cluster: String::new(),
            joined: WallMillis(0),
            since: LogSlot(0),
        }
    }

    fn founded() -> GroupState {
        let settings = Settings {
            coarse: false,
            leases: false,
            lease_ms: 1000,
            drift_per_mille: 10,
            value_bytes_max: 100,
            policies: AgreedPolicies { members_min: 5, members_max: 12, ..AgreedPolicies::default() },
            horizon_ms: 1000,
        };
        GroupState::founded(RingId(1), GroupId(2), member(1, 1), settings)
    }

    /// Harmony §3.3.2: the first state of an epoch is the last of the one before; the division goes on under new terms.
    #[test]
    fn next_begins_an_epoch_with_new_terms() {
        let mut state = founded();
        let before = state.division[0];
        state.apply(LogSlot(2), &Entry::Learners(alloc::vec![member(2, 1)]));
        assert!(state.is_learner(member(2, 1).node));
        state.apply(LogSlot(3), &Entry::Next(alloc::vec![member(1, 1), member(2, 1)]));
        assert_eq!((state.epoch, state.members.len(), state.learners.len()), (Epoch(2), 2, 0));
        let former =
            EpochConfig { epoch: Epoch(1), members: alloc::vec![member(1, 1).node], open: alloc::vec![KeyRange::FULL] };
        assert_eq!(state.recovery, [former]);
        assert!(state.division[0].term > before.term);
        state.apply(LogSlot(4), &Entry::Established(Epoch(1), alloc::vec![KeyRange::FULL]));
        assert_eq!(state.recovery.len(), 1, "that was another epoch's");
        let (left, right) = (KeyRange::new(Point(0), Point(9)), KeyRange::new(Point(9), Point(0)));
        state.apply(LogSlot(5), &Entry::Established(Epoch(2), alloc::vec![left]));
        assert!(!state.is_open(left) && state.is_open(right) && !state.is_settled());
        assert_eq!((state.configs(left).len(), state.configs(right).len()), (1, 2));
        state.apply(LogSlot(6), &Entry::Established(Epoch(2), alloc::vec![right]));
        assert_eq!(state.recovery.len(), 0);
    }

    #[test]
    fn an_epoch_that_is_not_established_only_replaces_lives() {
        let mut state = founded();
        state.apply(LogSlot(2), &Entry::Next(alloc::vec![member(1, 1), member(2, 1)]));
        assert!(state.refuses_next(&[member(1, 1), member(2, 1), member(3, 1)]).is_some());
        assert!(state.refuses_next(&[member(1, 1), member(2, 2)]).is_none());
        assert!(state.refuses_next(&[member(1, 1), member(3, 1)]).is_some(), "that is no majority of the two");
        assert!(state.refuses_next(&[member(2, 2), member(1, 1)]).is_some(), "out of order");
        assert!(state.refuses_next(&[]).is_some());
        let five: Vec<Member> = (1..=5).map(|peer| member(peer, 1)).collect();
        state.apply(LogSlot(3), &Entry::Established(Epoch(2), alloc::vec![KeyRange::FULL]));
        state.apply(LogSlot(4), &Entry::Next(five.clone()));
        assert!(state.refuses_next(&five[..3]).is_none(), "the dead leave also then");
        assert!(state.refuses_next(&five[..2]).is_some(), "most stay");
        state.apply(LogSlot(5), &Entry::Next(five[..3].to_vec()));
        let asked: Vec<usize> = state.configs(KeyRange::FULL).iter().map(|config| config.members.len()).collect();
        assert_eq!(asked, [2, 5, 3], "recovery asks all in between");
    }

    /// An epoch that some members have sealed must end even where recovery may ask no further configuration.
    #[test]
    fn the_same_members_always_may_go_on() {
        let mut state = founded();
        let of = |life| alloc::vec![member(1, 1), member(2, 1), member(3, life)];
        state.apply(LogSlot(2), &Entry::Next(of(1)));
        state.apply(LogSlot(3), &Entry::Established(Epoch(2), alloc::vec![KeyRange::FULL]));
        for life in 2..20 {
            state.apply(state.applied.next(), &Entry::Next(of(life)));
        }
        assert_eq!(state.recovery.len(), RECOVERY_MAX);
        let (epoch, members, recovery) = (state.epoch, state.members.clone(), state.recovery.clone());
        assert!(state.refuses_next(&of(20)).is_some());
        state.apply(state.applied.next(), &Entry::Next(members.clone()));
        assert_eq!((state.epoch, &state.members), (Epoch(epoch.0 + 1), &members), "it goes on");
        assert_eq!(state.recovery, recovery);
        assert!(state.is_sound());
    }

    /// Hazard 5: a redrawn sub-range or another primary never gets the old term.
    #[test]
    fn only_an_unchanged_part_keeps_its_term() {
        let mut state = founded();
        let (a, b) = (member(1, 1), member(2, 1));
        state.apply(LogSlot(2), &Entry::Next(alloc::vec![a.clone(), b.clone()]));
        let half = Point(1 << 127);
        state.apply(
            LogSlot(3),
            &Entry::Division { parts: alloc::vec![(Point(0), a.node), (half, b.node)], kept: Vec::new() },
        );
        let terms: Vec<_> = state.division.iter().map(|part| part.term).collect();
        assert_eq!(terms, [Term::new(LogSlot(3), 0), Term::new(LogSlot(3), 1)]);
        let quarter = Point(1 << 126);
        let parts = alloc::vec![(Point(0), a.node), (quarter, a.node), (half, b.node)];
        state.apply(LogSlot(4), &Entry::Division { parts, kept: terms.clone() });
        let redrawn: Vec<_> = state.division.iter().map(|part| part.term).collect();
        assert_eq!(redrawn, [Term::new(LogSlot(4), 0), Term::new(LogSlot(4), 1), terms[1]]);
        assert_eq!(state.assignment(Point(5)).unwrap().term, redrawn[0]);
        assert_eq!(state.assignment(quarter).unwrap().term, redrawn[1]);
        assert_eq!(state.assignment(Point(u128::MAX)).unwrap().node, b.node);
        state.apply(LogSlot(5), &Entry::Division { parts: alloc::vec![(half, b.node)], kept: Vec::new() });
        assert_eq!(state.division.len(), 3, "a division that does not cover the range is void");
    }
}
