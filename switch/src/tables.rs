//! What a controller sets: which partitions there are, and who answers for them.

use std::collections::BTreeMap;

use crate::dirty::{Mark, Region};

/// Who may answer: a member of a group, by a number that the surroundings give a meaning.
pub type Replica = u32;

/// A partition, as a controller has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Partition {
    /// Its registers: no two partitions that are in the table have the same.
    pub index: u32,
    /// Its part of the dirty set: no two have a slot in common.
    pub region: Region,
    /// The term that it is of.
    pub term: u64,
    /// The id under which this switch numbers its writes; 0: it is not to. An id that it was told to leave, be it for 0, or that was
    /// taken out with its partition, must not come back: numbers would begin anew under it. To rest under an id is not to be active.
    pub switch: u32,
    /// Single replicas may answer reads: the group has granted it.
    pub active: bool,
    /// Who answers everything else.
    pub primary: Replica,
    /// Who may answer reads of clean objects, and how often: in proportion to these weights.
    pub replicas: Vec<(Replica, u8)>,
}

impl Partition {
    pub(crate) fn mark(&self, partition: u32) -> Mark {
        Mark { partition, switch: self.switch }
    }

    /// One of those who may answer, by chance; `None` where nobody may.
    pub(crate) fn replica(&self, chance: u32) -> Option<Replica> {
        let all: u32 = self.replicas.iter().map(|(_, weight)| u32::from(*weight)).sum();
        let mut left = chance.checked_rem(all)?;
        for (replica, weight) in &self.replicas {
            match left.checked_sub(u32::from(*weight)) {
                None => return Some(*replica),
                Some(more) => left = more,
            }
        }
        None
    }
}

/// Why a partition is not taken; nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Its registers are not there, or another's.
    #[error("register {0} is taken, or is none")]
    Index(u32),
    /// Its slots are not there, or some are another's, or they are no power of two.
    #[error("slots {} to {} are taken, or are none", .0.first, u64::from(.0.first) + u64::from(.0.slots))]
    Region(Region),
    /// It has other registers or slots than before, and the same id.
    #[error("it has other registers or slots under id {0} already: it moves only under another id")]
    Moves(u32),
}

/// All partitions, by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tables {
    partitions: BTreeMap<u32, Partition>,
}

impl Tables {
    /// The one with this number.
    pub fn get(&self, number: u32) -> Option<&Partition> {
        self.partitions.get(&number)
    }

    /// Sets one, in place of that with this number, for a switch with so many registers and slots in each stage.
    ///
    /// It does not move under the id that it has. This can be told here, where what was there before is at hand; a switch in hardware
    /// takes whatever it is told, and no switch remembers ids that were left before: both is up to whoever controls it.
    pub fn set(&mut self, number: u32, partition: Partition, registers: usize, slots: usize) -> Result<(), Unfit> {
        let others = || self.partitions.iter().filter(|(other, _)| **other != number).map(|(_, other)| other);
        if partition.index as usize >= registers || others().any(|other| other.index == partition.index) {
            return Err(Unfit::Index(partition.index));
        }
        let (region, (_, end)) = (partition.region, partition.region.ends());
        if !region.slots.is_power_of_two() || end > slots as u64 || others().any(|other| other.region.meets(region)) {
            return Err(Unfit::Region(partition.region));
        }
        // Elsewhere nobody would know any more what this id gave numbers to: objects would pass for clean while they are written.
        let place = |partition: &Partition| (partition.index, partition.region);
        let goes_on = |before: &&Partition| before.switch == partition.switch && before.switch > 0;
        if self.partitions.get(&number).filter(goes_on).is_some_and(|before| place(before) != place(&partition)) {
            return Err(Unfit::Moves(partition.switch));
        }
        self.partitions.insert(number, partition);
        Ok(())
    }

    /// Takes one out; its packets are dropped from then on.
    pub fn remove(&mut self, number: u32) -> Option<Partition> {
        self.partitions.remove(&number)
    }
}
