//! Retirement: the end of a node's parts in groups. It gives up a range as soon as another group owns it, and the whole part once nothing
//! is left of it.
//!
//! # Invariants
//! - The succeeding part is in the store before the old one is dropped: a crash may come between the two.
//! - Records in a range that no group here has any more are left over from then on ([`crate::replicas::keyspace`]).

use alloc::vec::Vec;

use group::Group;
use group::control::state::GroupState;
use overlay::{Epoch, KeyRange};

use crate::api::{Change, Event};
use crate::config::Durability;
use crate::context::context;
use crate::node::Node;
use crate::replicas::storage::{Over, Space};
use crate::replicas::{LocalReplica, LocalReplicas, ReplicaSerial};

impl Node {
    /// Makes a group that is over give way, and carries out its last outputs.
    pub(crate) fn silence(&mut self, index: usize) {
        self.replicas.all[index].group.give_way();
        self.hear_out(index);
    }

    /// Carries out all outputs of a group.
    fn hear_out(&mut self, index: usize) {
        let serial = self.replicas.all[index].serial;
        while let Some(output) = self.replicas.all[index].group.poll_output() {
            self.carry(serial, output);
        }
    }

    /// Carries out all outputs of all groups.
    pub(crate) fn hear_all(&mut self) {
        (0..self.replicas.all.len()).for_each(|index| self.hear_out(index));
    }

    /// Gives up a range that other groups own since that epoch, without need of this node.
    pub(crate) fn give_up(&mut self, range: KeyRange, epoch: Epoch) {
        for replica in &mut self.replicas.all {
            let state = replica.group.state();
            if state.epoch < epoch && state.range.overlaps(range) && replica.over.is_none() {
                replica.over = Some(alloc::vec![state.range]);
                replica.group.give_way();
            }
        }
        self.settle_ranges(&[range]);
    }

    /// Settles overlaps: of two groups with overlapping ranges or with the same id, the later one counts. Parts with nothing left are let
    /// go of. Other groups are known to own `elsewhere`.
    pub(crate) fn settle_ranges(&mut self, elsewhere: &[KeyRange]) {
        let mut given = Vec::new();
        for index in 0..self.replicas.all.len() {
            let state = self.replicas.all[index].group.state();
            let mut rest = self.replicas.rest(state.range, state.epoch);
            if let Some(known) = &self.replicas.all[index].over {
                rest = rest.into_iter().flat_map(|piece| meet(piece, known)).collect();
            }
            for range in elsewhere.iter().filter(|_| self.replicas.all[index].over.is_some()) {
                rest = rest.into_iter().flat_map(|piece| piece.without([*range])).collect();
            }
            let later = |group: &Group| group.state().epoch > state.epoch && is_alike(group.state(), state);
            if self.replicas.all[index].over.is_some() || self.replicas.living().any(later) {
                if self.replicas.all[index].over.is_none() {
                    self.replicas.all[index].group.give_way();
                }
                let place = self.replicas.all[index].place();
                given.extend(place.into_iter().flat_map(|piece| piece.without(rest.iter().copied())));
                self.replicas.all[index].over = Some(rest);
            }
        }
        if !given.is_empty() {
            self.leave_places(&given);
        }
        self.retire_replica(|replica| replica.over.as_ref().is_some_and(Vec::is_empty));
    }

    /// Marks ranges that parts of groups here gave up as left over, if no other part here has them. It does so now, and not with the end of
    /// the part: before that, this node may come to own the range again.
    fn leave_places(&mut self, given: &[KeyRange]) {
        if self.config.durability != Durability::Sync {
            return;
        }
        // The present owner of the range must be in the store before that.
        self.hear_all();
        let held: Vec<KeyRange> = self.replicas.all.iter().flat_map(LocalReplica::place).collect();
        let left = given.iter().flat_map(|piece| piece.without(held.iter().copied()));
        left.for_each(|piece| self.replicas.keyspace.leave(piece));
        let changes = self.replicas.places(self.space());
        self.cx().persist_own(changes);
    }

    pub(crate) fn retire(&mut self, is_over: impl Fn(&Group) -> bool) {
        self.retire_replica(|replica| is_over(&replica.group));
    }

    /// Drops all data that this node has of some groups, without the data that other groups here own.
    fn retire_replica(&mut self, is_over: impl Fn(&LocalReplica) -> bool) {
        let mut changes = Vec::new();
        if self.replicas.all.iter().any(&is_over) {
            // The succeeding parts must be in the store before the old one is dropped: a crash may come between the two.
            self.hear_all();
        }
        while let Some(index) = self.replicas.all.iter().position(&is_over) {
            self.silence(index);
            let gone = self.replicas.all.remove(index);
            self.replicas.voted = self.replicas.voted.max(gone.group.state().epoch);
            // Grants that it gave there, in a group that other groups succeeded, may still be valid.
            self.replicas.all.iter_mut().for_each(|replica| replica.group.inherit_grants(&gone.group));
            if gone.over.is_none() && gone.group.state().ended.is_none() {
                self.routing.table.note_parts(gone.group.state(), self.now.time);
            }
            if self.config.durability == Durability::Sync {
                // A range that another group here owns, or owned and still holds, belongs to that group.
                let held: Vec<KeyRange> = self.replicas.all.iter().flat_map(LocalReplica::place).collect();
                for piece in gone.place().into_iter().flat_map(|piece| piece.without(held.iter().copied())) {
                    self.replicas.keyspace.leave(piece);
                }
            }
            changes.push(self.space().namespace(gone.namespace).clear());
            self.replicas.sweep.remains.push(gone.group.into_table());
        }
        if changes.is_empty() {
            return;
        }
        changes.extend(self.replicas.places(self.space()));
        changes.extend(self.ring.map(|ring| self.space().life(&self.life(ring))));
        self.cx().persist_own(changes);
        self.reconfigure.preparation.copies.share_memory(&mut context!(self));
        if self.replicas.is_empty() && !self.stage.over {
            // A node that has voted in a group, and remembers nothing of its votes, enters another group as a new incarnation.
            self.part_from(self.reincarnates("no group here needs it any more"));
        }
    }

    /// Handles a group's report that it no longer needs this node, or that the node's part in it has ended.
    pub(crate) fn depart(&mut self, serial: ReplicaSerial, why: Option<Event>) {
        let Some(replica) = self.replicas.by_serial(serial) else { return };
        let is_needed = replica.group.state().audience().contains(&self.me);
        let others = self.replicas.all.len() > 1;
        if others && !is_needed {
            return self.retire_replica(|replica| replica.serial == serial);
        }
        match why {
            None => self.left(),
            Some(why) => self.part_from(why),
        }
    }

    /// Ends this incarnation, which is not needed any more; an intention to leave outlives it.
    fn part_from(&mut self, why: Event) {
        match self.reconfigure.leave.mode {
            Some(_) => self.left(),
            None => self.end_life(why),
        }
    }
}

impl LocalReplicas {
    /// Returns the changes that store the generations of records, and the rest of groups that are over.
    pub(crate) fn places(&self, space: Space) -> Vec<Change> {
        let over = self.all.iter().filter_map(|replica| {
            let state = replica.group.state();
            Some(Over {
                namespace: replica.namespace,
                group: state.id,
                epoch: state.epoch,
                place: replica.over.clone()?,
            })
        });
        alloc::vec![space.keyspace(&self.keyspace), space.over(&over.collect::<Vec<_>>())]
    }

    /// Restores the groups that were over when the process ended.
    pub(crate) fn restore_over(&mut self, all: Vec<Over>) {
        for Over { namespace, group, epoch, place } in all {
            let is_it = |replica: &&mut LocalReplica| {
                let state = replica.group.state();
                (replica.namespace, state.id, state.epoch) == (namespace, group, epoch)
            };
            if let Some(replica) = self.all.iter_mut().find(is_it) {
                replica.over = Some(place);
                replica.group.give_way();
            }
        }
    }
}

/// Returns whether two groups overlap or have the same id, so that the later one takes the place of the other. A group that goes on under
/// its id may own nothing of its former range.
pub(crate) fn is_alike(one: &GroupState, other: &GroupState) -> bool {
    one.id == other.id || one.range.overlaps(other.range)
}

/// Returns the pieces of a range that lie in `these`.
pub(crate) fn meet(range: KeyRange, these: &[KeyRange]) -> Vec<KeyRange> {
    these.iter().flat_map(|other| range.intersection(*other)).flatten().collect()
}
