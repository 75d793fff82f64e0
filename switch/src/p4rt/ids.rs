//! Which ids partitions have had: none of them comes back (rule S1: an id is used for one life of one set of registers and slots).
//!
//! A switch does not remember ids. Where a partition is set to other registers or slots, to id 0, or taken out, what is left behind
//! is looked at no more, and may become another's: under the same id once more, numbers would begin anew, and an object that is being
//! written would pass for clean. So whoever sets the tables remembers which *pairs* of a partition and an id are over, and holds
//! back what would revive one: the partition is there, with id 0, and is not active.

use std::collections::{BTreeMap, BTreeSet};

use super::entry::{Key, Setting, Value};
use super::reconcile::Incarnation;

/// So many pairs are remembered: more than come to be in days, and some 100 KiB.
pub const SPENT_MAX: usize = 4096;

/// Pairs of a partition and an id that are over.
///
/// There is room for some. Where there are more, those with the lowest ids are forgotten, and all ids up to the highest of them
/// are over for every partition: that forgets nothing, and costs new ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spent {
    /// By ids, the lowest first.
    pairs: BTreeSet<(u32, u32)>,
    /// Every id up to here is over.
    floor: u32,
    room: usize,
}

impl Spent {
    /// None, with room for so many.
    pub fn new(room: usize) -> Spent {
        Spent { pairs: BTreeSet::new(), floor: 0, room }
    }

    /// This one is over. Id 0 is none.
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

    /// Whether this one is over.
    pub fn has(&self, partition: u32, id: u32) -> bool {
        id <= self.floor || self.pairs.contains(&(id, partition))
    }

    /// Every id up to here is over.
    pub fn floor(&self) -> u32 {
        self.floor
    }
}

/// What is known of ids, in one life of a switch.
#[derive(Debug)]
pub struct Ids {
    life: Option<Incarnation>,
    /// Partitions that have an id, as they were left.
    left: BTreeMap<u32, Setting>,
    spent: Spent,
}

impl Default for Ids {
    fn default() -> Ids {
        Ids { life: None, left: BTreeMap::new(), spent: Spent::new(SPENT_MAX) }
    }
}

impl Ids {
    /// Tables were found like this, and are to be like that: holds back what must not be.
    pub fn hold(&mut self, life: Incarnation, present: &BTreeMap<Key, Value>, wanted: &mut BTreeMap<Key, Value>) {
        if self.life != Some(life) {
            *self = Ids { life: Some(life), ..Ids::default() };
        }
        let found = numbering(present);
        // Whatever somebody else has taken out or moved in the meantime is over, too.
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

    /// All of that was written.
    pub fn done(&mut self, wanted: &BTreeMap<Key, Value>) {
        self.left = numbering(wanted);
    }
}

/// It goes on under the id that it has, where it is.
fn is_same(one: &Setting, other: &Setting) -> bool {
    (one.switch, one.index, one.region) == (other.switch, other.index, other.region)
}

/// Partitions that have an id.
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
