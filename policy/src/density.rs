//! Where in a range how much is asked, as it was measured.

use overlay::{KeyRange, Point};

/// How much is asked in equal pieces of a range: operations a minute.
#[derive(Clone, Copy, Debug)]
pub struct Density<'a> {
    /// The range.
    pub range: KeyRange,
    /// Of each piece; none where nothing is asked at all.
    pub cells: &'a [u32],
}

impl Density<'_> {
    /// All together.
    pub fn total(&self) -> u64 {
        self.cells.iter().map(|cell| u64::from(*cell)).sum()
    }

    /// The places where the range can be cut, in order, with what is asked before each. Only between pieces: what is asked
    /// within one may all be for one key, and then no cut divides it.
    pub fn cuts(&self) -> impl DoubleEndedIterator<Item = (Point, u64)> + '_ {
        let count = self.cells.len() as u32;
        let before = |cell: u32| self.cells[..cell as usize].iter().map(|cell| u64::from(*cell)).sum();
        let cuts = (1..count).map(move |cell| (self.range.cut_at(cell, count), before(cell)));
        cuts.filter(|(at, _)| *at != self.range.start())
    }
}
