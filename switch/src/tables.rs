//! Tables that a controller sets: the partitions, and the replicas that answer for them.

use std::collections::BTreeMap;

use crate::dirty::{Mark, Region};

/// Replica that may answer: a member of a group, by a number. The caller of the pipeline maps the number to an address.
pub type Replica = u32;

/// Partition, as a controller sets it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Partition {
    /// Index of its register: no two partitions in the table have the same.
    pub index: u32,
    /// The partition's part of the dirty set: no two partitions have a slot in common.
    pub region: Region,
    /// Term of the partition's primary.
    pub term: u64,
    /// Id under which this switch numbers the partition's writes; 0 if it must not number them. An id that was replaced (also by
    /// 0), or that was removed with its partition, must not come back: numbers would begin anew under it. A partition that rests
    /// keeps its id and is not active.
    pub switch: u32,
    /// Single replicas may answer reads: the group has granted it.
    pub active: bool,
    /// Replica that answers everything else.
    pub primary: Replica,
    /// Replicas that may answer reads of clean objects, each with a weight: their shares are proportional to the weights.
    pub replicas: Vec<(Replica, u8)>,
}

impl Partition {
    pub(crate) fn mark(&self, partition: u32) -> Mark {
        Mark { partition, switch: self.switch }
    }

    /// Returns one of the replicas that may answer reads, by chance; `None` if there is none.
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

/// Reason for which a partition is refused; nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartitionError {
    /// The partition's register does not exist, or belongs to another partition.
    #[error("register {0} is taken, or is none")]
    Index(u32),
    /// The partition's slots do not exist, overlap another partition's, or are not a power of two.
    #[error("slots {} to {} are taken, or are none", .0.first, u64::from(.0.first) + u64::from(.0.slots))]
    Region(Region),
    /// The partition has another register or other slots than before, under the same id.
    #[error("it has other registers or slots under id {0} already: it moves only under another id")]
    Moves(u32),
}

/// All partitions, by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tables {
    partitions: BTreeMap<u32, Partition>,
}

impl Tables {
    /// Returns the partition with this number.
    pub fn get(&self, number: u32) -> Option<&Partition> {
        self.partitions.get(&number)
    }

    /// Sets a partition, for a switch with `registers` registers and `slots` slots in each stage. Replaces the partition with
    /// this number.
    ///
    /// A partition must not move under the id that it has. The check is possible here because the former setting is known. A
    /// switch in hardware takes any setting, and no switch remembers ids that were left before: both are up to the controller.
    ///
    /// # Errors
    /// [`PartitionError`]; nothing has changed then.
    pub fn set(
        &mut self,
        number: u32,
        partition: Partition,
        registers: usize,
        slots: usize,
    ) -> Result<(), PartitionError> {
        let others = || self.partitions.iter().filter(|(other, _)| **other != number).map(|(_, other)| other);
        if partition.index as usize >= registers || others().any(|other| other.index == partition.index) {
            return Err(PartitionError::Index(partition.index));
        }
        let (region, (_, end)) = (partition.region, partition.region.ends());
        if !region.slots.is_power_of_two() || end > slots as u64 || others().any(|other| other.region.meets(region)) {
            return Err(PartitionError::Region(partition.region));
        }
        // At other places the open writes under this id would not be found: objects would pass for clean while they are written.
        let place = |partition: &Partition| (partition.index, partition.region);
        let goes_on = |before: &&Partition| before.switch == partition.switch && before.switch > 0;
        if self.partitions.get(&number).filter(goes_on).is_some_and(|before| place(before) != place(&partition)) {
            return Err(PartitionError::Moves(partition.switch));
        }
        self.partitions.insert(number, partition);
        Ok(())
    }

    /// Removes a partition and returns it; its packets are dropped from then on.
    pub fn remove(&mut self, number: u32) -> Option<Partition> {
        self.partitions.remove(&number)
    }
}
