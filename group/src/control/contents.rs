//! Bytes of records in the pieces of a group's range: a split should divide the data that members keep and copy, not only the load.
//!
//! No count is kept at writes. A leader looks at a bounded number of records of each piece when its group splits.

use alloc::vec::Vec;

use overlay::{KeyRange, Point};

use crate::control::load::CELLS;
use crate::data::table::Table;

/// Upper limit of records looked at in each piece. Beyond it the bytes of the piece are estimated from these: points are hashes, so the
/// records of a piece are spread evenly over it.
const LOOKS_MAX: usize = 2_048;

/// Returns the pieces of a range that [`CELLS`] equal cuts make, in order; `None` for a piece without a point.
fn pieces(range: KeyRange) -> impl Iterator<Item = Option<KeyRange>> {
    let end = move |cell: u32| if cell + 1 < CELLS { range.cut_at(cell + 1, CELLS) } else { range.end() };
    (0..CELLS).map(move |cell| {
        let (from, to) = (range.cut_at(cell, CELLS), end(cell));
        (from != to).then(|| KeyRange::new(from, to))
    })
}

/// Cuts an arc at point zero: maps are in order of points on either side of it.
fn cut_at_zero(arc: KeyRange) -> [Option<KeyRange>; 2] {
    match arc.end() == Point(0) || arc.start() < arc.end() {
        true => [Some(arc), None],
        false => [Some(KeyRange::new(arc.start(), Point(0))), Some(KeyRange::new(Point(0), arc.end()))],
    }
}

/// Returns the approximate bytes in a piece, given its records in ring order: the point and the bytes of each.
fn estimate(piece: KeyRange, records: impl Iterator<Item = (Point, u32)>) -> u64 {
    let mut sum = 0;
    for (looks, (at, bytes)) in records.enumerate() {
        if looks == LOOKS_MAX {
            let looked_at = piece.start().distance_to(at).max(1) as f64;
            return (sum as f64 * (piece.length().unwrap_or(u128::MAX) as f64 / looked_at)) as u64;
        }
        sum += u64::from(bytes);
    }
    sum
}

impl Table {
    /// Returns the approximate bytes of the records in each of [`CELLS`] equal pieces of a range. Records that only the store has do not
    /// count: the recently used ones in memory stand for them.
    pub(crate) fn bytes_by_cell(&self, range: KeyRange) -> Vec<u64> {
        let records = |piece| cut_at_zero(piece).into_iter().flatten().flat_map(|arc| self.sizes(arc));
        pieces(range).map(|piece| piece.map_or(0, |piece| estimate(piece, records(piece)))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_range() {
        for range in
            [KeyRange::FULL, KeyRange::new(Point(u128::MAX - 99), Point(100)), KeyRange::new(Point(5), Point(8))]
        {
            let pieces: Vec<KeyRange> = pieces(range).flatten().collect();
            assert_eq!((pieces[0].start(), pieces[pieces.len() - 1].end()), (range.start(), range.end()));
            assert!(pieces.windows(2).all(|pair| pair[0].end() == pair[1].start()));
            assert!(pieces.iter().all(|piece| !piece.is_full() && range.contains_range(*piece)));
        }
    }

    #[test]
    fn an_arc_over_zero_is_two() {
        let arc = |from, to| KeyRange::new(Point(from), Point(to));
        assert_eq!(cut_at_zero(arc(3, 9)), [Some(arc(3, 9)), None]);
        assert_eq!(cut_at_zero(arc(3, 0)), [Some(arc(3, 0)), None]);
        assert_eq!(cut_at_zero(arc(9, 3)), [Some(arc(9, 0)), Some(arc(0, 3))]);
    }

    #[test]
    fn many_records_are_estimated() {
        let piece = KeyRange::new(Point(1_000), Point(1_000 + (1 << 20)));
        let records = |count: u64, each: u32| {
            (0..count).map(move |n| (Point(1_000 + u128::from((n << 20) / count)), each + (n % 3) as u32))
        };
        assert_eq!(estimate(piece, records(0, 9)), 0);
        assert_eq!(estimate(piece, records(2_000, 100)), 2_000 * 100 + 1_999);
        let (found, exact) = (estimate(piece, records(1 << 18, 100)), (1_u64 << 18) * 101);
        assert!(found.abs_diff(exact) < exact / 50, "{found} of {exact}");
        // All records at one point.
        assert!(estimate(piece, (0..5_000).map(|_| (Point(1_000), 1))) > 0);
    }
}
