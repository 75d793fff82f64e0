//! The groups that a node has a part in: the one that it is a member of, and others that succeeded a former group of the node and
//! still need its data. Each has a namespace in the store, and its own names for batches and scans.
//!
//! # Invariants
//! - The ranges of groups that live here do not overlap: of two groups, the one of the higher epoch owns the common part.

pub(crate) mod births;
pub mod keyspace;
pub(crate) mod retire;
pub mod storage;
pub(crate) mod successors;
pub(crate) mod sweep;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use group::Group;
use group::control::state::GroupState;
use group::outbox::{BatchToken, ScanToken};
use overlay::{Epoch, GroupId, KeyRange, NodeId, PeerKey, Point};

use crate::replicas::keyspace::{KeyspaceGenerations, Walk};
use crate::replicas::retire::is_alike;
use crate::replicas::storage::NAMESPACES;
use crate::replicas::sweep::Sweep;

/// Number of a node's part in a group, unique while the process lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReplicaSerial(u64);

/// A node's part in one group.
pub(crate) struct LocalReplica {
    /// Number of the part.
    pub(crate) serial: ReplicaSerial,
    /// Namespace of its entries in the store.
    pub(crate) namespace: u8,
    /// The replica.
    pub(crate) group: Group,
    /// `Some` once other groups own some of its range and this part is inactive: the pieces of the range for which no later
    /// owner is known yet.
    pub(crate) over: Option<Vec<KeyRange>>,
}

impl LocalReplica {
    /// Returns the pieces of its range for which no later owner is known.
    pub(crate) fn place(&self) -> Vec<KeyRange> {
        self.over.clone().unwrap_or_else(|| alloc::vec![self.group.state().range])
    }
}

/// A page of the store that a group or the node waits for.
pub(crate) struct Scan {
    /// Group that waits, and its own name for the scan; `None` for the node's own sweep.
    pub(crate) of: Option<(ReplicaSerial, ScanToken)>,
    /// Rest of the listing.
    pub(crate) walk: Walk,
}

/// Owner of a batch, with the owner's own name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchOwner {
    /// The node itself. [`LocalReplicas::on_persisted`] gives the name back.
    Node(u64),
    /// A group.
    Group(ReplicaSerial, BatchToken),
}

/// All parts of a node in groups.
#[derive(Default)]
pub(crate) struct LocalReplicas {
    pub(crate) all: Vec<LocalReplica>,
    pub(crate) keyspace: KeyspaceGenerations,
    /// Group whose first batch stores the generations that changed with its birth.
    pub(crate) keyspace_due: Option<ReplicaSerial>,
    pub(crate) sweep: Sweep,
    /// Highest epoch of the groups that this node had a part in and has let go of. It remembers nothing of its votes there.
    pub(crate) voted: Epoch,
    last_serial: ReplicaSerial,
    /// Last token of a batch or scan for the driver.
    last_token: u64,
    /// Batches that are not durable yet, by the token that the driver knows.
    batches: VecDeque<(u64, BatchOwner)>,
    scans: BTreeMap<u64, Scan>,
}

impl LocalReplicas {
    /// Returns whether the node is in no group.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns whether groups elsewhere own some of the ring.
    pub(crate) fn is_partial(&self) -> bool {
        !self.living().any(|group| group.state().range.is_full())
    }

    /// Returns the groups that live.
    pub(crate) fn living(&self) -> impl Iterator<Item = &Group> {
        self.all.iter().filter(|replica| replica.over.is_none()).map(|replica| &replica.group)
    }

    /// Returns the groups that live, mutably.
    pub(crate) fn living_mut(&mut self) -> impl Iterator<Item = &mut Group> {
        self.all.iter_mut().filter(|replica| replica.over.is_none()).map(|replica| &mut replica.group)
    }

    /// Does the same with each group that lives.
    pub(crate) fn each(&mut self, act: impl FnMut(&mut Group)) {
        self.living_mut().for_each(act);
    }

    /// Returns the shortest time between two raises of a horizon in this network; the maximum if the node is in no group.
    pub(crate) fn horizon_period(&self) -> Duration {
        self.living().next().map_or(Duration::MAX, |group| Duration::from_millis(group.state().settings.horizon_ms))
    }

    /// Returns the group that the node is a member or learner of, or else one that still needs it.
    pub(crate) fn home(&self) -> Option<&Group> {
        let is_home = |group: &&Group| group.state().is_member(group.me()) || group.state().is_learner(group.me());
        self.living().find(is_home).or_else(|| self.living().next())
    }

    /// Returns the same group, mutably.
    pub(crate) fn home_mut(&mut self) -> Option<&mut Group> {
        let (id, epoch) = self.home().map(|group| (group.state().id, group.state().epoch))?;
        self.living_mut().find(|group| (group.state().id, group.state().epoch) == (id, epoch))
    }

    /// Returns the living group with this id.
    pub(crate) fn find_mut(&mut self, id: GroupId) -> Option<&mut Group> {
        self.living_mut().find(|group| group.state().id == id)
    }

    /// Returns the living group that owns `point`.
    pub(crate) fn at(&self, point: Point) -> Option<&Group> {
        self.living().find(|group| group.state().range.contains(point))
    }

    /// Returns the same group, mutably.
    pub(crate) fn at_mut(&mut self, point: Point) -> Option<&mut Group> {
        self.living_mut().find(|group| group.state().range.contains(point))
    }

    /// Returns the parts of groups that are over, where no later owner of `point` is known.
    pub(crate) fn over_at(&mut self, point: Point) -> impl Iterator<Item = &mut Group> {
        let over = move |replica: &&mut LocalReplica| {
            replica.over.as_ref().is_some_and(|rest| rest.iter().any(|piece| piece.contains(point)))
        };
        self.all.iter_mut().filter(over).map(|replica| &mut replica.group)
    }

    /// Adds a group; returns its serial, or `None` if no namespace is free.
    pub(crate) fn add(&mut self, group: Group) -> Option<ReplicaSerial> {
        let free = |namespace: &u8| self.all.iter().all(|replica| replica.namespace != *namespace);
        let namespace = (0..NAMESPACES).find(free)?;
        self.add_at(namespace, group);
        Some(self.last_serial)
    }

    /// Adds a group with a known namespace.
    pub(crate) fn add_at(&mut self, namespace: u8, group: Group) {
        self.last_serial.0 += 1;
        self.all.push(LocalReplica { serial: self.last_serial, namespace, group, over: None });
    }

    /// Returns the part with this number.
    pub(crate) fn by_serial(&self, serial: ReplicaSerial) -> Option<&LocalReplica> {
        self.all.iter().find(|replica| replica.serial == serial)
    }

    /// Returns the same part, mutably.
    pub(crate) fn by_serial_mut(&mut self, serial: ReplicaSerial) -> Option<&mut LocalReplica> {
        self.all.iter_mut().find(|replica| replica.serial == serial)
    }

    /// Returns a new token for a batch.
    pub(crate) fn name_batch(&mut self, owner: BatchOwner) -> u64 {
        self.last_token += 1;
        self.batches.push_back((self.last_token, owner));
        self.last_token
    }

    /// Passes the report on to the groups that all batches up to this token are durable. Returns the highest name of the
    /// node's own batches among them.
    pub(crate) fn on_persisted(&mut self, token: u64) -> Option<u64> {
        let mut own = None;
        while self.batches.front().is_some_and(|(of, _)| *of <= token) {
            match self.batches.pop_front()?.1 {
                BatchOwner::Node(name) => own = own.max(Some(name)),
                BatchOwner::Group(serial, token) => {
                    self.by_serial_mut(serial).into_iter().for_each(|replica| replica.group.on_persisted(token));
                }
            }
        }
        own
    }

    /// Returns a new token for a scan.
    pub(crate) fn name_scan(&mut self, scan: Scan) -> u64 {
        self.last_token += 1;
        self.scans.insert(self.last_token, scan);
        self.last_token
    }

    /// Takes out the scan with this token, which is answered.
    pub(crate) fn take_scan(&mut self, token: u64) -> Option<Scan> {
        self.scans.remove(&token)
    }

    /// Returns the pieces of this range that no group here with a later epoch than `epoch` owns.
    pub(crate) fn rest(&self, range: KeyRange, epoch: Epoch) -> Vec<KeyRange> {
        let later = self.living().filter(|group| group.state().epoch > epoch);
        range.without(later.map(|group| group.state().range))
    }

    /// Divides the memory for records among the groups.
    pub(crate) fn share_memory(&mut self, bytes_max: usize) {
        let used: usize = self.all.iter().map(|replica| replica.group.table().bytes()).sum();
        let count = self.all.len().max(1);
        let free = bytes_max.saturating_sub(used) / count;
        for replica in &mut self.all {
            let share = (replica.group.table().bytes() + free).max(bytes_max / (4 * count));
            replica.group.set_memory(if count == 1 { bytes_max } else { share });
        }
    }

    /// Returns the living groups here that succeed that group.
    pub(crate) fn heirs_of(&self, group: GroupId) -> impl Iterator<Item = &Group> {
        self.living().filter(move |heir| heir.state().transactions.is_heir_of(group))
    }

    /// Returns whether one of these new groups shows that this node lost data of a parent group: then this incarnation ends, before any
    /// part in a new group begins.
    pub(crate) fn finds_loss(&mut self, me: NodeId, born: &[GroupState]) -> bool {
        let born = || born.iter().filter(|state| state.audience().contains(&me));
        // A range that it gave to another group before is that group's now, and no loss of its own.
        let is_parent = |replica: &LocalReplica, state: &GroupState| {
            replica.group.state().epoch < state.epoch && replica.place().iter().any(|place| place.overlaps(state.range))
        };
        self.all
            .iter_mut()
            .any(|replica| born().any(|state| is_parent(replica, state) && replica.group.find_loss_for(state)))
    }

    /// Returns whether this group, or its successor, is here already.
    pub(crate) fn knows_later(&self, state: &GroupState) -> bool {
        self.living().any(|group| group.state().epoch >= state.epoch && is_alike(group.state(), state))
    }

    /// Returns whether a migration moved this node to that group, which has no data of the groups here. The group must have been born after
    /// all groups that this node has let go of: the node no longer knows its promises in a group that it voted in. A node that only asked
    /// to join that group became a learner after the group's birth.
    pub(crate) fn has_moved_to(&self, me: NodeId, state: &GroupState) -> bool {
        let mut learners = state.learners.iter();
        let moved = learners.any(|learner| learner.node == me && learner.since == state.born_at);
        (moved || state.is_member(me)) && !self.has_forgotten_votes_of(state)
    }

    /// Returns whether this node may have voted in that group and remember nothing of it: it has let go of a group since that one was born.
    pub(crate) fn has_forgotten_votes_of(&self, state: &GroupState) -> bool {
        state.born <= self.voted
    }

    /// Returns whether this node is in a group here.
    pub(crate) fn is_here(&self, node: NodeId) -> bool {
        self.living().any(|group| group.state().is_in_audience(node))
    }

    /// Returns the peers that are in a group with this node; with `with`, in a group with both.
    pub(crate) fn fellows(&self, me: NodeId, with: Option<NodeId>) -> BTreeSet<PeerKey> {
        let groups = self.living().map(Group::state);
        let groups = groups.filter(|state| with.is_none_or(|node| state.is_in_audience(node)));
        let mut peers: BTreeSet<PeerKey> =
            groups.flat_map(|state| state.audience()).map(|node: NodeId| node.peer).collect();
        peers.remove(&me.peer);
        if let Some(node) = with {
            peers.remove(&node.peer);
        }
        peers
    }

    /// Returns the ranges and epochs of the groups here that a node is in.
    pub(crate) fn groups_with(&self, node: NodeId) -> Vec<(KeyRange, Epoch)> {
        let states = self.living().map(Group::state);
        states.filter(|state| state.is_in_audience(node)).map(|state| (state.range, state.epoch)).collect()
    }
}
