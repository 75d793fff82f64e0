//! Dirty set: objects with writes that are not complete, in a hash table that a switch can have (`Harmonia §7.1`).
//!
//! The table has a few stages; each is an array of slots. An object has one place in each stage. It is put into the first stage
//! where its place is free. A packet passes each stage once and changes at most one slot there, as in hardware.
//!
//! # Places
//! Three words of 32 bits are made of a CRC of the object; their lowest bits are its places. So a place is some bits of the CRC,
//! or sums of two of them. The places of different stages are as independent as 32 bits can be. With 2^k slots in each stage:
//!
//! - two stages have min(2k, 32) independent bits, and three have min(3k, 32). Of objects that collide in one stage, the share
//!   that collides in another is that of chance, one in 2^k;
//! - with 64K slots or more, different objects that collide in one stage collide in no other.
//!
//! A CRC of the object and the stage's number would not do: it is linear, so objects that collide in one stage would collide in
//! all. A client that chooses keys can make objects collide, as with any known hash: the set is full earlier then, and there is
//! no worse effect.
//!
//! A controller never clears a slot. A slot's content counts only for a partition and switch with the same *mark*, and only with
//! a number above the point up to which writes are complete. So a new switch id makes all content void at once. The content that
//! a lost completion left behind is void when a later completion has come (`Harmonia §6.2`).
//!
//! # Invariants
//! - An object that was inserted with a number is found dirty until everything up to that number is complete.
//! - A place without content that counts is free.
//! - The hint beside a slot with content is that of its object, or is unknown. A lookup reads a slot only if its hint is that of
//!   the sought object, or is unknown. So most lookups of absent objects need the hints alone, which are few bytes and stay in
//!   near memory. A switch in hardware does not need hints.

/// Upper limit of stages that are independent of each other: places are made of 32 bits.
pub const STAGES_MAX: usize = 3;

/// Number of stages, and of slots in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of stages, from 1 to [`STAGES_MAX`].
    pub stages: usize,
    /// Slots in each stage: a power of two.
    pub slots: usize,
}

impl Shape {
    /// Shape of the paper: 3 stages of 64K slots.
    pub const DEFAULT: Shape = Shape { stages: 3, slots: 64 << 10 };
}

/// Part of each stage that belongs to one partition alone: `slots` of them from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// First slot.
    pub first: u32,
    /// Number of slots: a power of two.
    pub slots: u32,
}

impl Region {
    /// Returns the first slot and the one after the last.
    pub fn ends(self) -> (u64, u64) {
        (u64::from(self.first), u64::from(self.first) + u64::from(self.slots))
    }

    /// Returns whether two regions have a slot in common.
    pub fn meets(self, other: Region) -> bool {
        let ((first, end), (other_first, other_end)) = (self.ends(), other.ends());
        first < other_end && other_first < end
    }
}

/// Owner of a slot's content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mark {
    /// Partition number, assigned once.
    pub partition: u32,
    /// Switch id; 0 in slots without any content so far.
    pub switch: u32,
}

/// Slot: a place for an object, in one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slot {
    /// Owner of the content.
    pub mark: Mark,
    /// Object.
    pub object: u32,
    /// Number of the object's last write.
    pub sequence: u64,
}

impl Slot {
    /// Returns whether the content has this mark and a number above the point `committed`.
    fn counts(&self, mark: Mark, committed: u64) -> bool {
        self.mark == mark && self.sequence > committed
    }
}

/// The hash table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DirtySet {
    stages: Vec<Box<[Slot]>>,
    /// One hint for each slot: [`EMPTY`], [`UNKNOWN`], or that of the object in it.
    hints: Vec<Box<[u8]>>,
}

/// Hint of a slot without any content so far.
const EMPTY: u8 = 0;
/// Hint of a slot whose content did not come from a packet.
const UNKNOWN: u8 = 1;

/// Place of an object in a stage.
#[derive(Clone, Copy)]
struct ObjectSlot {
    slot: usize,
    /// Neither [`EMPTY`] nor [`UNKNOWN`]. Another object of the same slot has the same hint with a probability of about 1 : 254.
    hint: u8,
}

/// Returns the words of which an object's places are made, one for each stage. Each word holds all bits of the object. No two
/// words have the lowest sixteen bits in common: see the module's documentation.
fn words(object: u32) -> [u32; STAGES_MAX] {
    let hash = crc32fast::hash(&object.to_be_bytes());
    let (high, low) = ((hash >> 16) as u16, hash as u16);
    // The rotation matters where there are few slots: the lowest bits of this word then come from bits that are not the lowest of
    // the other words.
    let both = low.rotate_right(11) ^ high.rotate_right(5);
    [hash, hash.rotate_left(16), u32::from(low) << 16 | u32::from(both)]
}

/// Returns an object's places, one in each stage.
fn places(region: Region, object: u32) -> impl Iterator<Item = ObjectSlot> {
    words(object).into_iter().map(move |word| ObjectSlot {
        slot: (region.first + (word & (region.slots - 1))) as usize,
        // The highest bits: with at most 2^24 slots, the hint is independent of the slot.
        hint: ((word >> 24) as u8).max(UNKNOWN + 1),
    })
}

impl DirtySet {
    /// Returns an empty set of this shape.
    ///
    /// # Panics
    /// If the shape is not valid: see [`Shape`].
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

    /// Returns the number of slots in each stage.
    pub fn slots(&self) -> usize {
        self.stages[0].len()
    }

    /// Returns all slots, by stages.
    pub fn stages(&self) -> &[Box<[Slot]>] {
        &self.stages
    }

    /// Returns the slots of a stage for changes; `None` if there is no such stage.
    pub fn stage_mut(&mut self, stage: usize) -> Option<&mut [Slot]> {
        self.hints.get_mut(stage)?.fill(UNKNOWN);
        self.stages.get_mut(stage).map(|stage| &mut stage[..])
    }

    /// Inserts an object that is written under this number. Returns `false` if there is no room: then nothing has changed, and
    /// the write must not be forwarded.
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

    /// Returns whether an object has writes that are not complete.
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
