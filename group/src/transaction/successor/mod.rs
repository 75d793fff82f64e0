//! Start of a member in a group that is born of its own (Scatter §4).
//!
//! # Invariants
//! - This node's earlier promises, accepted values and grants, and all that it was told before, stand in the group that owns the place now.
//! - Records that may have been deleted, without a trace, while this node was away do not come along.
//! - A node has data of at most one of the groups that another is born of. A node that belongs to two has been released by one of them,
//!   which then needs nothing of it any more. Of the other one it may have copied records: they were chosen, and it knows itself to lack
//!   data that was chosen there.

pub mod birth;
#[cfg(test)]
mod birth_test;
pub mod handover;

use alloc::vec::Vec;

use overlay::{Epoch, KeyRange};

use crate::config::Defect;
use crate::control::state::GroupState;
use crate::data::operations::Primaries;
use crate::data::table::Table;
use crate::group::Group;
use crate::lend::context;
use crate::transaction::successor::handover::{Handovers, Inheritance};
use overlay::time::Now;

impl Group {
    /// Creates this node's part in a group born of `parent`'s group, in which the node has a part as well. Everything in the new group's
    /// range is taken out of the parent. `state`: the new group's first state, or a later one; this node must be in its audience. The new
    /// part brings no records in the [`Group::forgotten`] pieces, nor in those that the parent has `given` to other groups before; only
    /// copied records of it are in the store yet. `copied`: as of [`Group::join_holding`], where the parent had nothing. `inheritance`: the
    /// handovers known so far.
    ///
    /// # Panics
    /// If the new group is not a later one, of the same ring.
    pub fn succeed(
        parent: &mut Group,
        state: GroupState,
        given: &[KeyRange],
        copied: Vec<Table>,
        inheritance: Inheritance,
        now: Now,
        seed: u64,
    ) -> Group {
        assert!(state.epoch > parent.state.epoch, "{:?} comes of {:?}", state.id, parent.state.id);
        assert_eq!(state.ring, parent.state.ring, "no group moves to another ring");
        let sealed = Epoch(state.epoch.0 - 1);
        let range = state.range;
        let mut born = Group::start(parent.config.clone(), parent.me, state, now, seed, None);
        let mut forgotten = parent.forgotten(&born.state);
        forgotten.extend(given);
        born.acceptor = parent.acceptor.heir(range, sealed, &forgotten);
        born.table = parent.table.take(range);
        forgotten.into_iter().for_each(|piece| drop(born.table.take(piece)));
        copied.into_iter().for_each(|table| born.table.add(table));
        if born.config.defects.has(Defect::IdsStayBehind) {
            born.table.forget_operations();
        }
        born.preload = parent.preload;
        born.liveness = parent.liveness.heir(now.time);
        born.leader.inherit(&parent.leader);
        // A node that was in another group meanwhile has dropped its data of this one: it brings nothing, and is asked for nothing.
        let was_here = |node| parent.state.is_member(node) || parent.state.is_learner(node);
        born.recovery = parent.recovery.heir(born.state.applied, was_here, now.time);
        // Earlier primaries may have executed the operations that came for them.
        born.primaries = Primaries::forgotten_up_to(sealed);
        born.room = parent.room;
        born.handovers = Handovers::inheriting(inheritance.of_range(range));
        born.acceptor.persist_all(&mut born.out);
        born.begin();
        born
    }

    /// Takes over the read grants of another group in which this node had a part and may have been a primary.
    pub fn inherit_grants(&mut self, other: &Group) {
        self.acceptor.replicas.inherit(&other.acceptor.replicas, self.now.time);
    }

    /// Returns the pieces in which this node's records are of no use to a group born of its own: tombstones were purged there without it.
    pub fn forgotten(&self, born: &GroupState) -> Vec<KeyRange> {
        if self.config.defects.has(Defect::Undying) {
            return Vec::new();
        }
        // A node that does not vote in an epoch is not asked, though it knows of the epoch.
        let asked = u64::from(!self.state.is_member(self.me));
        born.purged_after(Epoch(self.state.epoch.0.saturating_sub(asked)))
    }

    /// Ends the service of this group, whose range other groups own: answers all waiting operations. Afterwards only [`Group::poll_output`]
    /// still has outputs.
    pub fn give_way(&mut self) {
        self.primaries.end_all(&mut context!(self));
        self.drop_ended();
        self.reads.leave(&mut context!(self));
        self.failed = true;
    }

    /// Returns the records in memory of a group that this node drops: to free many of them takes a while.
    pub fn into_table(self) -> Table {
        self.table
    }
}
