//! The load of a group, as measured in equal pieces of its range, and where a split divides it.

use alloc::vec::Vec;

use overlay::{KeyRange, Point};

/// Load below this counts as none, in operations a minute: so few operations are not counted well enough.
pub const LOAD_MIN: u64 = 20 * 60;

/// The load of a group in each of some equal pieces of its range, in operations a minute, and the group's capacity.
#[derive(Clone, Copy, Debug)]
pub struct Density<'a> {
    /// The range.
    pub range: KeyRange,
    /// The load of each piece; empty where there is no load at all.
    pub cells: &'a [u32],
    /// The group's capacity, in one unit for the groups that are compared: the operations a second of its living members, or the number of
    /// these. 0 counts as 1.
    pub capacity: u32,
}

impl Density<'_> {
    /// Returns the load of the whole range.
    pub fn total(&self) -> u64 {
        self.cells.iter().map(|cell| u64::from(*cell)).sum()
    }

    /// Returns the points where the range can be cut, in order, with the load before each. All of them lie between pieces: the load of one
    /// piece may all be for one key, and then no cut divides it.
    pub fn cuts(&self) -> impl DoubleEndedIterator<Item = (Point, u64)> + '_ {
        cuts(self.range, self.cells).map(|(at, before)| (at, before as u64))
    }
}

/// Returns the points between equal pieces of a range, in order, with the sum over the pieces before each.
fn cuts<T: Copy + Into<u128>>(range: KeyRange, cells: &[T]) -> impl DoubleEndedIterator<Item = (Point, u128)> + '_ {
    let count = cells.len() as u32;
    let before = |cell: u32| cells[..cell as usize].iter().map(|cell| (*cell).into()).sum();
    let cuts = (1..count).map(move |cell| (range.cut_at(cell, count), before(cell)));
    cuts.filter(move |(at, _)| *at != range.start())
}

/// Returns whether two loads are so equal that no boundary between them moves: by a factor of 1.6 at most (Scatter §6.3).
pub(crate) fn is_even(one: u128, other: u128) -> bool {
    one.max(other) * 5 <= one.min(other) * 8
}

/// Fewer bytes of records than this do not count: they are copied in an eighth of a second.
pub const BYTES_MIN: u128 = 1 << 20;

/// The load and the bytes of a group, in each of some equal pieces of its range.
#[derive(Clone, Copy, Debug)]
pub struct Contents<'a> {
    /// The range.
    pub range: KeyRange,
    /// The load of each piece, in operations a minute; empty where there is none.
    pub load: &'a [u32],
    /// The bytes of each piece's records; empty where they are not known.
    pub bytes: &'a [u64],
}

impl Contents<'_> {
    /// Returns the point at which a split divides load and bytes most evenly. Each counts as a part of its sum, so both count as much.
    /// Scatter §6.3 divides by load; the bytes are the records that members keep, and copy to newcomers. The split divides the load alone
    /// where there are fewer bytes than [`BYTES_MIN`], the bytes alone where there is less load than [`LOAD_MIN`], and the range where both
    /// are so.
    ///
    /// Where some cut leaves the loads so equal that no boundary is moved for them, such a cut is taken. Of equal cuts it is the one
    /// nearest to the middle of the range. The middle is also taken where all lies in one piece: that may all be one key.
    pub fn middle(&self) -> Point {
        let middle = self.range.cut_at(1, 2);
        let (weights, load) = self.weights();
        let (total, load_total): (u128, u128) = (weights.iter().sum(), load.iter().sum());
        let far = |at: Point| {
            let ahead = at.0.wrapping_sub(middle.0);
            ahead.min(ahead.wrapping_neg())
        };
        let loads = cuts(self.range, &load).map(|(_, before)| before).chain(core::iter::repeat(0));
        let key = |((at, before), load): &((Point, u128), u128)| {
            (!is_even(*load, load_total - load), (*before).max(total - before), far(*at))
        };
        match cuts(self.range, &weights).zip(loads).min_by_key(key) {
            Some(((at, before), _)) if before.max(total - before) < total => at,
            _ => middle,
        }
    }

    /// Returns the weight of each piece, and its load where the load counts.
    fn weights(&self) -> (Vec<u128>, Vec<u128>) {
        let load: Vec<u128> = self.load.iter().map(|load| u128::from(*load)).collect();
        let bytes: Vec<u128> = self.bytes.iter().map(|bytes| u128::from(*bytes)).collect();
        let (load_sum, bytes_sum): (u128, u128) = (load.iter().sum(), bytes.iter().sum());
        match (load_sum >= u128::from(LOAD_MIN), bytes_sum >= BYTES_MIN) {
            (true, true) if load.len() == bytes.len() => {
                let both = load.iter().zip(&bytes).map(|(load, bytes)| load * bytes_sum + bytes * load_sum);
                (both.collect(), load)
            }
            (true, _) => (load.clone(), load),
            (false, true) => (bytes, Vec::new()),
            (false, false) => (Vec::new(), Vec::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(load: &[u32], bytes: &[u64]) -> u128 {
        Contents { range: KeyRange::new(Point(0), Point(8)), load, bytes }.middle().0
    }

    fn middle(cells: &[u32]) -> u128 {
        split(cells, &[])
    }

    #[test]
    fn the_middle_divides_the_load() {
        assert_eq!(middle(&[]), 4);
        assert_eq!(middle(&[1_000; 8]), 4);
        assert_eq!(middle(&[9_000, 9_000, 0, 0, 0, 0, 0, 0]), 1);
        assert_eq!(middle(&[0, 0, 0, 0, 0, 1_000, 1_000, 2_000]), 7);
        assert_eq!(middle(&[9_000, 0, 0, 0, 0, 0, 0, 9_000]), 4, "of equal cuts the one in the middle");
        assert_eq!(middle(&[9_000, 0, 0, 0, 0, 0, 0, 0]), 4, "one key is not divided");
        assert_eq!(middle(&[100, 100, 0, 0, 0, 0, 0, 0]), 4, "next to no load");
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn bytes_are_divided_beside_the_load() {
        let early = [9 * MIB, 9 * MIB, MIB, MIB, MIB, MIB, MIB, MIB];
        assert_eq!((split(&[], &early), split(&[100; 8], &early)), (1, 1), "no load: the middle by bytes");
        assert_eq!(split(&[1_000; 8], &early), 4, "the loads of 2 and of 3 would be moved again");
        assert_eq!(split(&[1_000, 1_000, 1_000, 1_000, 800, 800, 800, 800], &early), 3);
        assert_eq!(split(&[1_000; 8], &early.map(|bytes| bytes >> 10)), 4, "few bytes");
        assert_eq!(split(&[], &early.map(|bytes| bytes >> 10)), 4, "neither: the middle of the range");
        assert_eq!(split(&[], &[0, 0, 0, 0, 0, 0, MIB, 0]), 4, "one piece is not divided");
        assert_eq!(split(&[9_000, 9_000, 0, 0, 0, 0, 0, 0], &[MIB; 8]), 1, "a cut at 2 leaves one side without load");
        assert_eq!(split(&[9_000, 0, 0, 0, 0, 0, 0, 0], &[MIB; 8]), 1, "one side has the load, the other most bytes");
        assert_eq!(split(&[1_000; 4], &early), 4, "pieces that do not fit each other: the load");
    }

    proptest! {
        /// Load and bytes of the worse side are at most those at any other cut that leaves the loads as even; and no cut of even loads is
        /// passed over for one of uneven loads.
        #[test]
        fn no_cut_is_better(load in proptest::collection::vec(0u32..20_000, 8), bytes in proptest::collection::vec(0u64..9 * MIB, 8)) {
            let range = KeyRange::new(Point(0), Point(8));
            let at = Contents { range, load: &load, bytes: &bytes }.middle().0 as usize;
            let load: Vec<f64> = load.into_iter().map(f64::from).collect();
            let bytes: Vec<f64> = bytes.into_iter().map(|bytes| bytes as f64).collect();
            let parts = |all: &[f64], at: usize| {
                let (before, sum) = (all[..at].iter().sum::<f64>(), all.iter().sum::<f64>());
                if sum > 0.0 { before / sum } else { 0.5 }
            };
            let counts = |all: &[f64], least: f64| all.iter().sum::<f64>() >= least;
            prop_assume!(counts(&load, LOAD_MIN as f64) && counts(&bytes, BYTES_MIN as f64));
            let is_even = |at| { let part = parts(&load, at); part.max(1.0 - part) * 5.0 <= part.min(1.0 - part) * 8.0 + 1e-9 };
            let worse = |at| { let sum = parts(&load, at) + parts(&bytes, at); sum.max(2.0 - sum) };
            for other in 1..8 {
                prop_assert!(is_even(at) || !is_even(other), "{at} and {other}");
                prop_assert!(is_even(at) != is_even(other) || worse(at) <= worse(other) + 1e-9, "{at} and {other}");
            }
        }
    }
}
