//! Ids that partitions have had: none of them comes back (rule S1: an id is used for one life of one set of registers and slots).
//!
//! A switch does not remember ids. If a partition is set to another register or other slots or to id 0, or is removed, its former
//! register and slots are not read any more, and another partition may get them. Under the same id once more, numbers would begin
//! anew, and an object with an open write would pass for clean. So the controller remembers which *pairs* of a partition and an
//! id are over. It holds back an entry that would revive one: the partition is there, with id 0, and is not active.

use std::collections::{BTreeMap, BTreeSet};

use super::entry::{Key, Setting, Value};
use super::reconcile::Incarnation;

/// Upper limit of pairs that are remembered: more than arise in days; they take some 100 KiB.
pub const SPENT_MAX: usize = 4096;

/// Pairs of a partition and an id that are over.
///
/// The room is limited. When it is full, the pairs with the lowest ids are dropped, and all ids up to the highest of these are
/// over for every partition. So no pair comes back, at the cost of new ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spent {
    /// Pairs by ids, the lowest first.
    pairs: BTreeSet<(u32, u32)>,
    /// All ids up to this one are over.
    floor: u32,
    room: usize,
}

impl Spent {
    /// Returns an empty set with room for `room` pairs.
    pub fn new(room: usize) -> Spent {
        Spent { pairs: BTreeSet::new(), floor: 0, room }
    }

    /// Records that a pair is over. Id 0 is none.
    pub fn add(&mut self, partition: u32, id: u32) {
        if id <= self.floor {
            return;
        }
        self.pairs.insert((id, partition));
        while self.pairs.len() > self.room {
            self.floor = self.pairs.pop_first().map_or(self.floor, |(id, _)| id);
            self.pairs.retain(|(id, _)| *id > self.floor);
        }
    }

    /// Returns whether a pair is over.
    pub fn has(&self, partition: u32, id: u32) -> bool {
        id <= self.floor || self.pairs.contains(&(id, partition))
    }

    /// Returns the id up to which all ids are over.
    #[cfg(any(feature = "control", test))]
    pub fn floor(&self) -> u32 {
        self.floor
    }
}

/// Ids of one life of a switch.
#[derive(Debug)]
pub struct Ids {
    life: Option<Incarnation>,
    /// Partitions that have an id, as the last write left them.
    left: BTreeMap<u32, Setting>,
    spent: Spent,
}

impl Default for Ids {
    fn default() -> Ids {
        Ids { life: None, left: BTreeMap::new(), spent: Spent::new(SPENT_MAX) }
    }
}

impl Ids {
    /// Compares the tables that were found with the wanted ones, and holds back entries that must not be written.
    pub fn hold(&mut self, life: Incarnation, present: &BTreeMap<Key, Value>, wanted: &mut BTreeMap<Key, Value>) {
        if self.life != Some(life) {
            *self = Ids { life: Some(life), ..Ids::default() };
        }
        let found = numbering(present);
        // An id that another writer has removed or moved in the meantime is over, too.
        for (partition, left) in std::mem::take(&mut self.left) {
            if found.get(&partition).is_none_or(|found| !is_same(found, &left)) {
                self.spent.add(partition, left.switch);
            }
        }
        let asked = numbering(wanted);
        let stays = |partition, found| asked.get(partition).is_some_and(|asked| is_same(asked, found));
        for (partition, found) in found.iter().filter(|(partition, found)| !stays(partition, found)) {
            self.spent.add(*partition, found.switch);
        }
        for (key, value) in wanted {
            let (Key::Partition(partition), Value::Partition(setting)) = (key, value) else { continue };
            if !found.get(partition).is_some_and(|found| is_same(found, setting))
                && self.spent.has(*partition, setting.switch)
            {
                (setting.switch, setting.active) = (0, false);
            }
        }
        self.left = found;
    }

    /// Records that the wanted entries were written.
    pub fn done(&mut self, wanted: &BTreeMap<Key, Value>) {
        self.left = numbering(wanted);
    }
}

/// Returns whether a partition continues under its id, at its place.
fn is_same(one: &Setting, other: &Setting) -> bool {
    (one.switch, one.index, one.region) == (other.switch, other.index, other.region)
}

/// Returns the partitions that have an id.
fn numbering(entries: &BTreeMap<Key, Value>) -> BTreeMap<u32, Setting> {
    let setting = |(key, value): (&Key, &Value)| match (key, value) {
        (Key::Partition(partition), Value::Partition(setting)) if setting.switch > 0 => Some((*partition, *setting)),
        _ => None,
    };
    entries.iter().filter_map(setting).collect()
}

#[cfg(test)]
#[path = "ids_test.rs"]
mod tests;
