//! The load of a group, as measured in equal pieces of its range.

use overlay::{KeyRange, Point};

/// Less load than this, in operations a minute, counts as none: so few operations are not counted well enough.
pub const LOAD_MIN: u64 = 20 * 60;

/// The load of a group in each of some equal pieces of its range, in operations a minute, and what the group can do.
#[derive(Clone, Copy, Debug)]
pub struct Density<'a> {
    /// The range.
    pub range: KeyRange,
    /// The load of each piece; empty where there is no load at all.
    pub cells: &'a [u32],
    /// How much the group can do, in the unit of all groups: its living members. At least 1 counts.
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
        let count = self.cells.len() as u32;
        let before = |cell: u32| self.cells[..cell as usize].iter().map(|cell| u64::from(*cell)).sum();
        let cuts = (1..count).map(move |cell| (self.range.cut_at(cell, count), before(cell)));
        cuts.filter(|(at, _)| *at != self.range.start())
    }

    /// Returns the point that divides the load most evenly; of several such points, and where there is next to no load, the one nearest to
    /// the middle of the range.
    pub fn middle(&self) -> Point {
        let (middle, total) = (self.range.cut_at(1, 2), self.total());
        let far = |at: Point| {
            let ahead = at.0.wrapping_sub(middle.0);
            ahead.min(ahead.wrapping_neg())
        };
        let cuts = self.cuts().filter(|_| total >= LOAD_MIN);
        let best = cuts.min_by_key(|(at, before)| ((*before).max(total - before), far(*at)));
        match best {
            Some((at, before)) if before.max(total - before) < total => at,
            _ => middle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn middle(cells: &[u32]) -> u128 {
        Density { range: KeyRange::new(Point(0), Point(8)), cells, capacity: 1 }.middle().0
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
}
