//! Allocation of a switch's registers and slots to partitions.
//!
//! A partition keeps its allocation for as long as it is in the tables, so a further partition moves no other one. The first
//! partitions get a 64th of each stage. When most of a stage is taken, later ones get less and less, down to [`SLOTS_MIN`].

use std::collections::BTreeMap;

use crate::dirty::Region;

/// Divisor of all slots: a partition gets at most this share of them.
const SHARES: u32 = 64;
/// Divisor of the free slots: a partition gets at most this share of them, and the rest is left for later ones.
const RESERVE: u32 = 16;
/// Lower limit of slots of a partition: 3 stages of 16 slots take some twenty writes at once, if they are of different objects.
pub const SLOTS_MIN: u32 = 16;

/// Registers and slots of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Register of the partition.
    pub index: u32,
    /// Slots of the partition.
    pub region: Region,
}

/// Registers and slots, and the partitions that have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocator {
    registers: u32,
    slots: u32,
    /// Taken slots, by registers.
    taken: BTreeMap<u32, Region>,
}

impl Allocator {
    /// Returns an allocator in which everything is free.
    pub fn new(registers: u32, slots: u32) -> Allocator {
        Allocator { registers, slots, taken: BTreeMap::new() }
    }

    /// Reserves exactly this allocation; returns `false` if a part of it is taken or does not exist.
    pub fn reserve(&mut self, allocation: Allocation) -> bool {
        let Allocation { index, region } = allocation;
        let is_there = index < self.registers && region.slots.is_power_of_two();
        let is_free = is_there && region.ends().1 <= u64::from(self.slots) && self.is_free(region);
        if !is_free || self.taken.contains_key(&index) {
            return false;
        }
        self.taken.insert(index, region);
        true
    }

    /// Allocates free registers and slots; returns `None` if there is no room.
    pub fn allocate(&mut self) -> Option<Allocation> {
        let index = (0..self.registers).find(|index| !self.taken.contains_key(index))?;
        let used: u32 = self.taken.values().map(|region| region.slots).sum();
        let share = ((self.slots - used) / RESERVE).clamp(1, self.slots / SHARES);
        // The largest power of two in the share, or less if no free region has that size.
        let mut slots = 1 << share.ilog2();
        slots = slots.max(SLOTS_MIN);
        while slots >= SLOTS_MIN {
            let mut starts = (0..self.slots / slots).map(|place| Region { first: place * slots, slots });
            if let Some(region) = starts.find(|region| self.is_free(*region)) {
                self.taken.insert(index, region);
                return Some(Allocation { index, region });
            }
            slots /= 2;
        }
        None
    }

    /// Frees an allocation.
    pub fn free(&mut self, allocation: Allocation) {
        self.taken.remove(&allocation.index);
    }

    fn is_free(&self, region: Region) -> bool {
        !self.taken.values().any(|taken| taken.meets(region))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_late_gets_less() {
        let mut allocator = Allocator::new(256, 64 << 10);
        let mut places: Vec<Allocation> = Vec::new();
        while let Some(place) = allocator.allocate() {
            assert!(places.iter().all(|other| other.index != place.index && !other.region.meets(place.region)));
            assert!(place.region.ends().1 <= 64 << 10);
            places.push(place);
        }
        let slots: Vec<u32> = places.iter().map(|place| place.region.slots).collect();
        assert!(slots.is_sorted_by(|one, next| one >= next), "{slots:?}");
        assert_eq!((slots[0], slots[slots.len() - 1]), (1024, SLOTS_MIN));
        assert!(slots.len() > 128, "{}", slots.len());
        // A freed allocation can be reserved again.
        allocator.free(places[3]);
        assert!(!allocator.reserve(places[4]) && allocator.reserve(places[3]) && allocator.allocate().is_none());
    }

    #[test]
    fn what_is_not_there_is_not_taken() {
        let mut allocator = Allocator::new(2, 64);
        let place = |index, first, slots| Allocation { index, region: Region { first, slots } };
        for wrong in [place(2, 0, 8), place(0, 60, 8), place(0, 0, 3), place(0, u32::MAX, 8)] {
            assert!(!allocator.reserve(wrong), "{wrong:?}");
        }
        assert!(allocator.reserve(place(0, 0, 8)));
        assert!(!allocator.reserve(place(0, 16, 8)) && !allocator.reserve(place(1, 4, 8)));
        // Registers can run out before slots do.
        assert!(allocator.allocate().is_some() && allocator.allocate().is_none());
    }
}
