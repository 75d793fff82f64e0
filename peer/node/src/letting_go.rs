//! How a node lets go of its parts in groups that are over: of a place as soon as others own it, of the whole once nothing is left
//! of it.
//!
//! # Invariants
//! - What came of a place is in the store before it is gone from where it came from: a crash may come between the two.
//! - What lies in a place that no group here has any more is left over from then on ([`crate::bays`]).

use alloc::vec::Vec;

use group::Group;
use group::state::GroupState;
use overlay::{Epoch, KeyRange};

use crate::api::{Change, Event};
use crate::config::Durability;
use crate::hosting::Hosted;
use crate::node::Node;
use crate::storage::Over;

impl Node {
    /// The last words of a group that is over.
    pub(crate) fn silence(&mut self, index: usize) {
        self.hosts.all[index].group.give_way();
        self.hear_out(index);
    }

    /// Carries all that a group wants done.
    fn hear_out(&mut self, index: usize) {
        let serial = self.hosts.all[index].serial;
        while let Some(output) = self.hosts.all[index].group.poll_output() {
            self.carry(serial, output);
        }
    }

    /// The same for all.
    pub(crate) fn hear_all(&mut self) {
        (0..self.hosts.all.len()).for_each(|index| self.hear_out(index));
    }

    /// Others own this range since that epoch, and need nothing of this node.
    pub(crate) fn give_up(&mut self, range: KeyRange, epoch: Epoch) {
        for hosted in &mut self.hosts.all {
            let state = hosted.group.state();
            if state.epoch < epoch && state.range.overlaps(range) && hosted.over.is_none() {
                hosted.over = Some(alloc::vec![state.range]);
                hosted.group.give_way();
            }
        }
        self.settle_ranges(&[range]);
    }

    /// Of groups whose ranges overlap, or that have one name, the later is there. Who has nothing left is let go of; `elsewhere` others are
    /// known to own.
    pub(crate) fn settle_ranges(&mut self, elsewhere: &[KeyRange]) {
        let mut given = Vec::new();
        for index in 0..self.hosts.all.len() {
            let state = self.hosts.all[index].group.state();
            let mut rest = self.hosts.rest(state.range, state.epoch);
            if let Some(known) = &self.hosts.all[index].over {
                rest = rest.into_iter().flat_map(|piece| meet(piece, known)).collect();
            }
            for range in elsewhere.iter().filter(|_| self.hosts.all[index].over.is_some()) {
                rest = rest.into_iter().flat_map(|piece| piece.without([*range])).collect();
            }
            let later = |group: &Group| group.state().epoch > state.epoch && is_alike(group.state(), state);
            if self.hosts.all[index].over.is_some() || self.hosts.living().any(later) {
                if self.hosts.all[index].over.is_none() {
                    self.hosts.all[index].group.give_way();
                }
                let place = self.hosts.all[index].place();
                given.extend(place.into_iter().flat_map(|piece| piece.without(rest.iter().copied())));
                self.hosts.all[index].over = Some(rest);
            }
        }
        if !given.is_empty() {
            self.leave_places(&given);
        }
        self.let_go_hosted(|hosted| hosted.over.as_ref().is_some_and(Vec::is_empty));
    }

    /// Parts of groups here have no place there any more: what nobody else here has is left over, now and not when the last of
    /// such a part is, for this node may come to own the place again before that.
    fn leave_places(&mut self, given: &[KeyRange]) {
        if self.config.durability != Durability::Sync {
            return;
        }
        // What has the place now must be in the store before that.
        self.hear_all();
        let held: Vec<KeyRange> = self.hosts.all.iter().flat_map(Hosted::place).collect();
        let left = given.iter().flat_map(|piece| piece.without(held.iter().copied()));
        left.for_each(|piece| self.hosts.bays.leave(piece));
        let changes = self.places();
        self.persist_own(changes);
    }

    /// Where records lie, and what groups that are over have left.
    pub(crate) fn places(&self) -> Vec<Change> {
        let over = self.hosts.all.iter().filter_map(|hosted| {
            let state = hosted.group.state();
            Some(Over { drawer: hosted.drawer, group: state.id, epoch: state.epoch, place: hosted.over.clone()? })
        });
        alloc::vec![self.space().bays(&self.hosts.bays), self.space().over(&over.collect::<Vec<_>>())]
    }

    /// What was over when the process ended is so still.
    pub(crate) fn restore_over(&mut self, all: Vec<Over>) {
        for Over { drawer, group, epoch, place } in all {
            let is_it = |hosted: &&mut Hosted| {
                let state = hosted.group.state();
                (hosted.drawer, state.id, state.epoch) == (drawer, group, epoch)
            };
            if let Some(hosted) = self.hosts.all.iter_mut().find(is_it) {
                hosted.over = Some(place);
                hosted.group.give_way();
            }
        }
    }

    pub(crate) fn let_go(&mut self, is_over: impl Fn(&Group) -> bool) {
        self.let_go_hosted(|hosted| is_over(&hosted.group));
    }

    /// Drops all that this node has of some groups, but for what others here own.
    fn let_go_hosted(&mut self, is_over: impl Fn(&Hosted) -> bool) {
        let mut changes = Vec::new();
        if self.hosts.all.iter().any(&is_over) {
            // What came of it must be in the store before it is gone from there: a crash may come between the two.
            self.hear_all();
        }
        while let Some(index) = self.hosts.all.iter().position(&is_over) {
            self.silence(index);
            let gone = self.hosts.all.remove(index);
            self.voted = self.voted.max(gone.group.state().epoch);
            // What it granted there since others came of it may be alive yet.
            self.hosts.all.iter_mut().for_each(|hosted| hosted.group.inherit_grants(&gone.group));
            if gone.over.is_none() && gone.group.state().ended.is_none() {
                self.whereabouts.note_parts(gone.group.state(), self.now.time);
            }
            if self.config.durability == Durability::Sync {
                // What others here own, or did and still hold, is theirs.
                let held: Vec<KeyRange> = self.hosts.all.iter().flat_map(Hosted::place).collect();
                for piece in gone.place().into_iter().flat_map(|piece| piece.without(held.iter().copied())) {
                    self.hosts.bays.leave(piece);
                }
            }
            changes.push(self.space().drawer(gone.drawer).clear());
            self.sweep.remains.push(gone.group.into_table());
        }
        if changes.is_empty() {
            return;
        }
        changes.extend(self.places());
        changes.extend(self.ring.map(|ring| self.space().life(&self.life(ring))));
        self.persist_own(changes);
        self.share_memory();
        if self.hosts.is_empty() && !self.over {
            // Whoever has voted somewhere, and remembers nothing of it, enters another group as somebody else.
            self.part_from(self.reincarnates("no group here needs it any more"));
        }
    }

    /// A group says that it needs this node no more, or that the node's part in it has come to an end.
    pub(crate) fn depart(&mut self, serial: u64, why: Option<Event>) {
        let Some(hosted) = self.hosts.all.iter().find(|hosted| hosted.serial == serial) else { return };
        let is_needed = hosted.group.state().audience().contains(&self.me);
        let others = self.hosts.all.len() > 1;
        if others && !is_needed {
            return self.let_go_hosted(|hosted| hosted.serial == serial);
        }
        match why {
            None => self.left(),
            Some(why) => self.part_from(why),
        }
    }

    /// A life that is over has nothing more to give; the wish to leave outlives it.
    fn part_from(&mut self, why: Event) {
        match self.leaving {
            Some(_) => self.left(),
            None => self.end_life(why),
        }
    }
}

/// Do two groups have a place or a name in common, so that the later of them is there instead of the other? What goes on under
/// its name may come to own nothing of what it owned once.
pub(crate) fn is_alike(one: &GroupState, other: &GroupState) -> bool {
    one.id == other.id || one.range.overlaps(other.range)
}

/// What of a range lies in these.
pub(crate) fn meet(range: KeyRange, these: &[KeyRange]) -> Vec<KeyRange> {
    these.iter().flat_map(|other| range.intersection(*other)).flatten().collect()
}
