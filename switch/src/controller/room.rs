//! Allocation of a switch's registers and slots to partitions.
//!
//! A partition keeps its place for as long as it is in the tables, so a further partition causes no new allocation. The first
//! partitions get a 64th of each stage. When most of a stage is taken, later ones get less and less, down to [`SLOTS_MIN`].

use std::collections::BTreeMap;

use crate::dirty::Region;

/// Divisor of all slots: a partition gets at most this share of them.
const SHARES: u32 = 64;
/// Divisor of the free slots: a partition gets at most this share of them, and the rest is left for later ones.
const RESERVE: u32 = 16;
/// Lower limit of slots of a partition: 3 stages of 16 slots take some twenty writes at once, if they are of different objects.
pub const SLOTS_MIN: u32 = 16;

/// Place of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Register of the partition.
    pub index: u32,
    /// Slots of the partition.
    pub region: Region,
}

/// Registers and slots, and the partitions that have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    registers: u32,
    slots: u32,
    /// Taken slots, by registers.
    taken: BTreeMap<u32, Region>,
}

impl Room {
    /// Returns an allocator in which everything is free.
    pub fn new(registers: u32, slots: u32) -> Room {
        Room { registers, slots, taken: BTreeMap::new() }
    }

    /// Takes exactly this place; returns `false` if a part of it is taken or does not exist.
    pub fn take_exactly(&mut self, place: Place) -> bool {
        let Place { index, region } = place;
        let is_there = index < self.registers && region.slots.is_power_of_two();
        let is_free = is_there && region.ends().1 <= u64::from(self.slots) && self.is_free(region);
        if !is_free || self.taken.contains_key(&index) {
            return false;
        }
        self.taken.insert(index, region);
        true
    }

    /// Takes a free place; returns `None` if there is no room.
    pub fn take(&mut self) -> Option<Place> {
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
                return Some(Place { index, region });
            }
            slots /= 2;
        }
        None
    }

    /// Frees a place.
    pub fn give(&mut self, place: Place) {
        self.taken.remove(&place.index);
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
        let mut room = Room::new(256, 64 << 10);
        let mut places: Vec<Place> = Vec::new();
        while let Some(place) = room.take() {
            assert!(places.iter().all(|other| other.index != place.index && !other.region.meets(place.region)));
            assert!(place.region.ends().1 <= 64 << 10);
            places.push(place);
        }
        let slots: Vec<u32> = places.iter().map(|place| place.region.slots).collect();
        assert!(slots.is_sorted_by(|one, next| one >= next), "{slots:?}");
        assert_eq!((slots[0], slots[slots.len() - 1]), (1024, SLOTS_MIN));
        assert!(slots.len() > 128, "{}", slots.len());
        // A place that is given back can be taken again.
        room.give(places[3]);
        assert!(!room.take_exactly(places[4]) && room.take_exactly(places[3]) && room.take().is_none());
    }

    #[test]
    fn what_is_not_there_is_not_taken() {
        let mut room = Room::new(2, 64);
        let place = |index, first, slots| Place { index, region: Region { first, slots } };
        for wrong in [place(2, 0, 8), place(0, 60, 8), place(0, 0, 3), place(0, u32::MAX, 8)] {
            assert!(!room.take_exactly(wrong), "{wrong:?}");
        }
        assert!(room.take_exactly(place(0, 0, 8)));
        assert!(!room.take_exactly(place(0, 16, 8)) && !room.take_exactly(place(1, 4, 8)));
        // Registers can run out before slots do.
        assert!(room.take().is_some() && room.take().is_none());
    }
}
