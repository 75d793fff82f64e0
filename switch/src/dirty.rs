//! The dirty set: objects with writes that are not complete, in a hash table that a switch can have (`Harmonia §7.1`).
//!
//! Some stages, each an array of slots. An object has one place in each stage; it is put into the first stage where that is free. A
//! packet passes each stage once and changes one slot there at most, as it does in hardware.
//!
//! Nothing is ever cleared by a controller: what is in a slot counts only if it bears the *mark* of whoever looks at it (its
//! partition and switch), and a number beyond what is complete. So a new switch id makes everything void at once, and what a lost
//! completion left behind is void when a later one has come (`Harmonia §6.2`).
//!
//! # Invariants
//! - An object that was put in with a number is found dirty until everything up to that number is complete.
//! - A place where nothing counts is free.
//! - What is in a slot has left its hint beside it, or nothing is known of it: a slot is looked at only where one of these is so.
//!   Most objects that are not there are found so in little memory, which is near. A switch in hardware has no need of it.

/// How many stages there are, and how many slots in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// At least one.
    pub stages: usize,
    /// A power of two.
    pub slots: usize,
}

impl Shape {
    /// As in the paper: 3 stages of 64K slots.
    pub const DEFAULT: Shape = Shape { stages: 3, slots: 64 << 10 };
}

/// A part of each stage that belongs to one partition alone: `slots` of them from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// Where it begins.
    pub first: u32,
    /// How many slots it has: a power of two.
    pub slots: u32,
}

impl Region {
    /// Where it begins, and where it has ended.
    pub fn ends(self) -> (u64, u64) {
        (u64::from(self.first), u64::from(self.first) + u64::from(self.slots))
    }

    /// Whether two have a slot in common.
    pub fn meets(self, other: Region) -> bool {
        let ((first, end), (other_first, other_end)) = (self.ends(), other.ends());
        first < other_end && other_first < end
    }
}

/// Whose what is in a slot is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mark {
    /// The partition, given out once.
    pub partition: u32,
    /// The switch's id; 0 in slots that nothing was ever put into.
    pub switch: u32,
}

/// A place for an object, in one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slot {
    /// Whose it is.
    pub mark: Mark,
    /// The object.
    pub object: u32,
    /// The number of its last write.
    pub sequence: u64,
}

impl Slot {
    /// There is something in it for whoever has this mark, beyond what is complete.
    fn counts(&self, mark: Mark, committed: u64) -> bool {
        self.mark == mark && self.sequence > committed
    }
}

/// The table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DirtySet {
    stages: Vec<Box<[Slot]>>,
    /// One for each slot: [`EMPTY`], [`UNKNOWN`], or that of the object in it.
    hints: Vec<Box<[u8]>>,
}

/// Nothing was ever put into a slot.
const EMPTY: u8 = 0;
/// What is in a slot was not put there by a packet.
const UNKNOWN: u8 = 1;

/// Where an object is in a stage, if it is there.
#[derive(Clone, Copy)]
struct Place {
    slot: usize,
    /// Neither [`EMPTY`] nor [`UNKNOWN`]. Others of the same slot have the same with a chance of about 1 : 254.
    hint: u8,
}

impl DirtySet {
    /// Empty, of this shape.
    ///
    /// # Panics
    /// Where the shape is none: see [`Shape`].
    pub fn new(shape: Shape) -> DirtySet {
        let Shape { stages, slots } = shape;
        assert!(stages > 0 && slots.is_power_of_two() && u32::try_from(slots).is_ok(), "{shape:?}");
        DirtySet {
            stages: vec![vec![Slot::default(); slots].into(); stages],
            hints: vec![vec![EMPTY; slots].into(); stages],
        }
    }

    /// So many slots in each stage.
    pub fn slots(&self) -> usize {
        self.stages[0].len()
    }

    /// All slots, by stages.
    pub fn stages(&self) -> &[Box<[Slot]>] {
        &self.stages
    }

    /// The slots of a stage, to be changed; `None` where there is no such stage.
    pub fn stage_mut(&mut self, stage: usize) -> Option<&mut [Slot]> {
        self.hints.get_mut(stage)?.fill(UNKNOWN);
        self.stages.get_mut(stage).map(|stage| &mut stage[..])
    }

    /// An object's places, one in each stage. Two objects that meet in one stage meet in all of them: a CRC is linear, and what is
    /// hashed differs by the stage alone.
    fn places(&self, region: Region, object: u32) -> impl Iterator<Item = Place> + use<> {
        (0..self.stages.len() as u8).map(move |stage| {
            // As a switch does it: a CRC of the object and the stage's number.
            let mut bytes = [0; 5];
            bytes[..4].copy_from_slice(&object.to_be_bytes());
            bytes[4] = stage;
            let hash = crc32fast::hash(&bytes);
            Place {
                slot: (region.first + (hash & (region.slots - 1))) as usize,
                hint: ((hash >> 24) as u8).max(UNKNOWN + 1),
            }
        })
    }

    /// An object is written under this number. False where there is no room: then nothing has changed, and the write must not
    /// go on.
    pub fn insert(&mut self, region: Region, mark: Mark, object: u32, sequence: u64, committed: u64) -> bool {
        let places = self.places(region, object);
        let stages = self.stages.iter_mut().zip(&mut self.hints);
        for (place, (slots, hints)) in places.zip(stages) {
            let slot = &mut slots[place.slot];
            if !slot.counts(mark, committed) || slot.object == object {
                *slot = Slot { mark, object, sequence };
                hints[place.slot] = place.hint;
                return true;
            }
        }
        false
    }

    /// Whether an object has writes that are not complete.
    pub fn contains(&self, region: Region, mark: Mark, object: u32, committed: u64) -> bool {
        let stages = self.stages.iter().zip(&self.hints);
        self.places(region, object).zip(stages).any(|(place, (slots, hints))| {
            let is_there = |slot: &Slot| slot.object == object && slot.counts(mark, committed);
            (hints[place.slot] == place.hint || hints[place.slot] == UNKNOWN) && is_there(&slots[place.slot])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_by_hand_is_found() {
        let (region, mark) = (Region { first: 0, slots: 8 }, Mark { partition: 1, switch: 1 });
        let mut set = DirtySet::new(Shape { stages: 2, slots: 8 });
        assert!(set.insert(region, mark, 7, 1, 0));
        let was = set.clone();
        let stages: Vec<Box<[Slot]>> = was.stages().to_vec();
        let mut other = DirtySet::new(Shape { stages: 2, slots: 8 });
        assert!(!other.contains(region, mark, 7, 0) && other.stage_mut(2).is_none());
        for (stage, slots) in stages.iter().enumerate() {
            other.stage_mut(stage).unwrap().copy_from_slice(slots);
        }
        assert!(other.contains(region, mark, 7, 0) && !other.contains(region, mark, 7, 1));
        assert!(!other.contains(region, mark, 8, 0));
    }
}
