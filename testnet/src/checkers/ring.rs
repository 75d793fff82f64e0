//! No place belongs to two groups (I3; RECODE P1), and groups side by side name each other (I11), but where a transaction is
//! open.
//!
//! Of each group the newest state counts that anybody showed. Gaps are no harm while something is to be born; that there are
//! none in the end is looked at when a run ends.

use std::collections::{BTreeMap, BTreeSet};

use group::ballot::Slot;
use overlay::{Epoch, GroupId, KeyRange};

/// What a group is, as its state says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which.
    pub group: GroupId,
    /// The epoch in which it began as what it is.
    pub born: Epoch,
    /// The last slot in this state.
    pub applied: Slot,
    /// What it owns.
    pub range: KeyRange,
    /// It ended with this.
    pub ended: bool,
    /// A transaction is open here, or not all who must know of it do.
    pub open: bool,
    /// Whose range ends where its own starts.
    pub before: GroupId,
    /// Whose range starts where its own ends.
    pub behind: GroupId,
    /// Groups that it came from, or answers for, and their last epochs.
    pub retired: Vec<(GroupId, Epoch)>,
    /// Groups that somebody declared lost: whoever comes back with them may think that they are there, until it learns that.
    pub lost: Vec<GroupId>,
    /// The same once what is open here is committed.
    pub at_stake: Vec<GroupId>,
}

/// What was seen so far.
#[derive(Debug, Default)]
pub struct Ring {
    newest: BTreeMap<GroupId, Place>,
    lost: BTreeSet<GroupId>,
}

/// Which property does not hold, and what was seen.
type Flaw = (&'static str, String);

impl Ring {
    /// Somebody's state of a group.
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
    fn age(&self) -> (Epoch, Slot) {
        (self.born, self.applied)
    }
}
