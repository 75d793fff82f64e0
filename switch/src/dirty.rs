//! The dirty set: objects with writes that are not complete, in a hash table that a switch can have (`Harmonia §7.1`).
//!
//! Some stages, each an array of slots. An object has one place in each stage; it is put into the first stage where that is free. A
//! packet passes each stage once and changes one slot there at most, as it does in hardware.
//!
//! # Places
//! Three words of 32 bits are made of a CRC of the object, and their lowest bits are its places. So a place is some bits of the CRC,
//! or sums of two of them; those of different stages are as independent as 32 bits can be. Of 2^k slots in each stage:
//!
//! - two stages have min(2k, 32) independent bits, and three have min(3k, 32). Of objects that meet in one stage as many meet in
//!   another as chance has it, one in 2^k;
//! - with 64K slots or more, different objects that meet in one stage meet in no other.
//!
//! A CRC of the object and the stage's number would not do: it is linear, so objects that meet in one stage would meet in all. Who
//! chooses keys can have objects meet, as with any hash that is known: the set is full earlier then, and nothing worse.
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

/// So many stages are independent of each other, and no more: there are 32 bits to make places of.
pub const STAGES_MAX: usize = 3;

/// How many stages there are, and how many slots in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// At least one, and [`STAGES_MAX`] at most.
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

/// What an object's places are made of, one word for each stage. Each has all bits of the object in it, and no two of them have
/// the lowest sixteen in common: see the module's documentation.
fn words(object: u32) -> [u32; STAGES_MAX] {
    let hash = crc32fast::hash(&object.to_be_bytes());
    let (high, low) = ((hash >> 16) as u16, hash as u16);
    // Turned, so that where there are few slots, this one's lowest bits are of those that are not the others' lowest.
    let both = low.rotate_right(11) ^ high.rotate_right(5);
    [hash, hash.rotate_left(16), u32::from(low) << 16 | u32::from(both)]
}

/// An object's places, one in each stage.
fn places(region: Region, object: u32) -> impl Iterator<Item = Place> {
    words(object).into_iter().map(move |word| Place {
        slot: (region.first + (word & (region.slots - 1))) as usize,
        // From the other end: where there are no more than 2^24 slots, this says nothing of the slot.
        hint: ((word >> 24) as u8).max(UNKNOWN + 1),
    })
}

impl DirtySet {
    /// Empty, of this shape.
    ///
    /// # Panics
    /// Where the shape is none: see [`Shape`].
    pub fn new(shape: Shape) -> DirtySet {
        let Shape { stages, slots } = shape;
        assert!(
            (1..=STAGES_MAX).contains(&stages) && slots.is_power_of_two() && u32::try_from(slots).is_ok(),
            "{shape:?}"
        );
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

    /// An object is written under this number. False where there is no room: then nothing has changed, and the write must not
    /// go on.
    pub fn insert(&mut self, region: Region, mark: Mark, object: u32, sequence: u64, committed: u64) -> bool {
        let places = places(region, object);
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
        places(region, object).zip(stages).any(|(place, (slots, hints))| {
            let is_there = |slot: &Slot| slot.object == object && slot.counts(mark, committed);
            (hints[place.slot] == place.hint || hints[place.slot] == UNKNOWN) && is_there(&slots[place.slot])
        })
    }
}

#[cfg(test)]
#[path = "dirty_test.rs"]
mod tests;
