//! How a member comes to be in a group that is born of its own (Scatter §4).
//!
//! # Invariants
//! - Whatever this node promised, accepted, granted or was told before stands in the group that owns the place now.
//! - What may have been deleted, without a trace, while this node was away does not come along.
//! - A node has something of one of the groups at most that another is born of: who belongs to two has been let go of by one
//!   of them, which then needs nothing of it any more. Of the other one it may have copied records: they were chosen, and
//!   it knows itself to lack what was chosen there.

use alloc::vec::Vec;

use overlay::{Epoch, KeyRange, NodeId};

use crate::config::Defect;
use crate::group::{Group, context};
use crate::handover::Inheritance;
use crate::message::Outcome;
use crate::operations::Strays;
use crate::state::GroupState;
use crate::table::Table;
use crate::time::Now;
use crate::vouching::Vouching;

impl Group {
    /// This node's part in a group that came of `parent`'s, in which it has a part as well: everything in the new group's
    /// range is taken out of the latter. `state`: the new group's first state, or a later one; this node must be in its
    /// audience. Nothing of it is in the store yet but what was copied, and no record in the [`Group::forgotten`] parts, nor in
    /// those that the parent has `given` to others before. `copied`: as of [`Group::join_holding`], where the parent had nothing.
    /// What is known to be handed over is its `inheritance`.
    ///
    /// # Panics
    /// If that group is not a later one, of the same ring.
    pub fn bear(
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
        born.preloading = parent.preloading;
        born.pulse = parent.pulse.clone();
        born.duties.doors.removals = parent.duties.doors.removals.clone();
        born.doubting = parent.doubting.heir(born.state.applied, now.time);
        born.vouching = (parent.vouching.is_some() || born.doubting.doubt.is_some()).then(|| Vouching::new(now.time));
        // Who was in another group meanwhile has let go of what it had here: it comes with nothing, and is asked for nothing.
        let was_here = |node| parent.state.is_member(node) || parent.state.is_learner(node);
        born.acknowledgements = parent.acknowledgements.of(was_here);
        born.granted_before = parent.granted_before;
        // What came for primaries of before may have been executed by them.
        born.strays = Strays::forgotten_up_to(sealed);
        born.addresses.clone_from(&parent.addresses);
        born.parting = parent.parting;
        (born.full, born.shortage) = (parent.full, parent.shortage);
        born.inheritance = inheritance.of_range(range);
        born.acceptor.persist_all(&mut born.out);
        born.begin();
        born
    }

    /// This node had a part in that group, too, and as a primary it may have granted others to answer reads.
    pub fn inherit_grants(&mut self, other: &Group) {
        self.acceptor.inherit_grants(&other.acceptor, self.now.time);
    }

    /// Where what this node holds is of no use to a group that came of its own: tombstones were let go of there without it.
    pub fn forgotten(&self, born: &GroupState) -> Vec<KeyRange> {
        if self.config.defects.has(Defect::Undying) {
            return Vec::new();
        }
        // Whoever does not vote in an epoch is not asked, though it knows of it.
        let asked = u64::from(!self.state.is_member(self.me));
        born.purged_after(Epoch(self.state.epoch.0.saturating_sub(asked)))
    }

    /// Others own what was this group's: answers whoever waits here. Nothing is done afterwards but what
    /// [`Group::poll_output`] still gives.
    pub fn give_way(&mut self) {
        for primary in self.primaries.values_mut() {
            primary.end(&mut context!(self));
        }
        self.drop_ended();
        self.relaxed.drain().for_each(|(attempt, _)| self.out.outcome(attempt, Outcome::NotPrimary));
        self.leave_spread();
        self.failed = true;
    }

    /// What a group that this node lets go of has in memory: to drop much of that takes a while.
    pub fn into_table(self) -> Table {
        self.table
    }

    /// The nodes whose word this one needs before it votes: in every configuration that asks it, enough others to make a
    /// majority with it.
    pub(crate) fn has_quorums(&self, answered: impl Fn(NodeId) -> bool) -> bool {
        let asks = |members: &Vec<NodeId>| members.contains(&self.me);
        let configs = self.state.configs(self.state.range).into_iter().map(|config| config.members);
        configs.filter(asks).all(|members| {
            let held = members.iter().filter(|node| **node == self.me || answered(**node)).count();
            held > members.len() / 2
        })
    }
}
