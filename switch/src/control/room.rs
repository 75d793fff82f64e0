//! Which registers and slots of a switch are whose.
//!
//! A partition keeps what it has for as long as it is in the tables, so room is not shared anew when another one comes: the first
//! ones get a 64th of each stage, and when most of it is taken, later ones get less and less, down to [`SLOTS_MIN`].

use std::collections::BTreeMap;

use crate::dirty::Region;

/// Of all slots, the most that one partition gets is one part of so many.
const SHARES: u32 = 64;
/// What is left is divided into so many parts for those who are still to come.
const RESERVE: u32 = 16;
/// No partition gets less: 3 stages of 16 slots take some twenty writes at once, if they are of different objects.
pub const SLOTS_MIN: u32 = 16;

/// A partition's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its registers.
    pub index: u32,
    /// Its slots.
    pub region: Region,
}

/// Who has what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    registers: u32,
    slots: u32,
    /// By registers.
    taken: BTreeMap<u32, Region>,
}

impl Room {
    /// All of it is free.
    pub fn new(registers: u32, slots: u32) -> Room {
        Room { registers, slots, taken: BTreeMap::new() }
    }

    /// Takes exactly this; `false` where some of it is another's, or not there.
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

    /// Takes some that are free; `None` where there is no room.
    pub fn take(&mut self) -> Option<Place> {
        let index = (0..self.registers).find(|index| !self.taken.contains_key(index))?;
        let used: u32 = self.taken.values().map(|region| region.slots).sum();
        let share = ((self.slots - used) / RESERVE).clamp(1, self.slots / SHARES);
        // The largest power of two in it; and where that much does not lie together, less.
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

    /// Gives back what somebody had.
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
        // What is given back is there again, at the same place.
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
