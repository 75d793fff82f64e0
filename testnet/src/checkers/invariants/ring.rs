//! No place belongs to two groups (I3; RECODE P1), and groups side by side name each other (I11), but where a transaction is open.
//!
//! For each group, the newest state that any node showed counts. Gaps do no harm while a group is about to be born. That there are
//! none in the end is checked when a run ends.

use std::collections::{BTreeMap, BTreeSet};

use group::ballot::LogSlot;
use overlay::{Epoch, GroupId, KeyRange};

/// A group's identity and place, by its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Id of the group.
    pub group: GroupId,
    /// Epoch in which the group began in its present form.
    pub born: Epoch,
    /// Last slot in this state.
    pub applied: LogSlot,
    /// Range that the group owns.
    pub range: KeyRange,
    /// Whether the group ended with this state.
    pub ended: bool,
    /// Whether a transaction is open here, or is not yet known to all its parties.
    pub open: bool,
    /// Group with the range that ends where this one starts.
    pub before: GroupId,
    /// Group with the range that starts where this one ends.
    pub behind: GroupId,
    /// Groups that it came from, or answers for, and their last epochs.
    pub retired: Vec<(GroupId, Epoch)>,
    /// Groups that an administrator declared lost: a member that comes back with one may take it for alive until it learns of the
    /// loss.
    pub lost: Vec<GroupId>,
    /// Groups that are lost once the open transaction is committed.
    pub at_stake: Vec<GroupId>,
}

/// Observations so far.
#[derive(Debug, Default)]
pub struct Ring {
    newest: BTreeMap<GroupId, Place>,
    lost: BTreeSet<GroupId>,
}

/// Violated property, and a description.
type Flaw = (&'static str, String);

impl Ring {
    /// Checks a node's state of a group.
    pub fn on_place(&mut self, place: Place) -> Result<(), Flaw> {
        if self.newest.get(&place.group).is_some_and(|known| known.age() >= place.age()) {
            return Ok(());
        }
        if self.lost.contains(&place.group) {
            return Ok(());
        }
        for group in &place.lost {
            self.lost.insert(*group);
            self.newest.remove(group);
        }
        for (group, last) in &place.retired {
            if let Some(known) = self.newest.get_mut(group)
                && known.born <= *last
                && *group != place.group
            {
                known.ended = true;
            }
        }
        self.newest.insert(place.group, place.clone());
        if place.ended { Ok(()) } else { self.check(&place) }
    }

    fn check(&self, place: &Place) -> Result<(), Flaw> {
        let others = || self.newest.values().filter(|other| !other.ended && other.group != place.group);
        if let Some(other) = others().find(|other| other.range.overlaps(place.range)) {
            return Err(("I3 one owner", format!("{place:?} and {other:?} own the same places")));
        }
        let is_at_stake = |group| self.newest.values().any(|place| place.at_stake.contains(&group));
        for other in others().filter(|other| !other.open && !place.open && !is_at_stake(other.group)) {
            let (from, to) = (other.range, place.range);
            if from.end() == to.start() && (other.behind != place.group || place.before != other.group) {
                return Err(("I11 neighbours agree", format!("behind {other:?} is {place:?}")));
            }
            if to.end() == from.start() && (place.behind != other.group || other.before != place.group) {
                return Err(("I11 neighbours agree", format!("behind {place:?} is {other:?}")));
            }
        }
        Ok(())
    }
}

impl Place {
    fn age(&self) -> (Epoch, LogSlot) {
        (self.born, self.applied)
    }
}
