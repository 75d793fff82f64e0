//! When the boundary between two groups moves, and where to (Scatter §6.3).

use overlay::Point;

use crate::density::Density;

/// Decides where a group ends and its successor begins.
pub trait Repartitioning: Sync {
    /// Where the successor should begin instead; `None` where all is well. Each group looks only behind itself, so every
    /// boundary is looked at by one. Quiet on its own output, if that is measured as it was expected.
    fn propose(&self, own: &Density<'_>, successor: &Density<'_>) -> Option<Point>;
}

/// Boundaries stay where they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fixed;

impl Repartitioning for Fixed {
    fn propose(&self, _: &Density<'_>, _: &Density<'_>) -> Option<Point> {
        None
    }
}

/// Of two groups of which much more is asked of one than of the other, that one gives what makes them as equal as can be.
///
/// Only what was measured is believed: the boundary goes between two pieces, not into one. And it is worth it only where the
/// one of which more is asked gets rid of a good part of it: so nothing goes back and forth with what is measured, and a
/// single key that everybody wants is not passed on from group to group.
#[derive(Clone, Copy, Debug, Default)]
pub struct Proportional;

/// Less is no load, in operations a minute: of so few it also is not known well enough how many there are.
const LOAD_MIN: u64 = 20 * 60;

impl Repartitioning for Proportional {
    fn propose(&self, own: &Density<'_>, successor: &Density<'_>) -> Option<Point> {
        let (here, there) = (own.total(), successor.total());
        let (more, less) = (here.max(there), here.min(there));
        // A ratio of 1.6.
        if more < LOAD_MIN || more * 5 <= less * 8 {
            return None;
        }
        let larger = |here: u64| here.max(more + less - here);
        let best = if here > there {
            // What is given is as little as will do.
            own.cuts().rev().min_by_key(|(_, before)| larger(*before))
        } else {
            successor.cuts().map(|(at, before)| (at, here + before)).min_by_key(|(_, before)| larger(*before))
        };
        let (at, before) = best?;
        (larger(before) * 8 <= more * 7).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use overlay::KeyRange;
    use proptest::prelude::*;

    use super::*;

    const CELLS: u32 = 32;

    /// Keys, and how much is asked for each.
    type Keys = Vec<(Point, u32)>;

    fn cells(range: KeyRange, keys: &Keys) -> Vec<u32> {
        let asked = |cell: u32| {
            let end = if cell + 1 < CELLS { range.cut_at(cell + 1, CELLS) } else { range.end() };
            let piece = KeyRange::new(range.cut_at(cell, CELLS), end);
            keys.iter().filter(|(at, _)| piece.contains(*at)).map(|(_, load)| load).sum()
        };
        (0..CELLS).map(asked).collect()
    }

    fn propose(ranges: [KeyRange; 2], keys: &Keys) -> (Option<Point>, u64, u64) {
        let cells = ranges.map(|range| cells(range, keys));
        let [own, successor] = [0, 1].map(|n| Density { range: ranges[n], cells: &cells[n] });
        (Proportional.propose(&own, &successor), own.total(), successor.total())
    }

    fn ranges(start: u128, at: Point, end: u128) -> [KeyRange; 2] {
        [KeyRange::new(Point(start), at), KeyRange::new(at, Point(end))]
    }

    fn of(own: &[u32], successor: &[u32]) -> Option<Point> {
        let [one, other] = ranges(0, Point(1 << 64), 1 << 65);
        Proportional.propose(&Density { range: one, cells: own }, &Density { range: other, cells: successor })
    }

    #[test]
    fn as_equal_as_can_be() {
        let heavy = [1_000; 8];
        let light = [250; 8];
        assert_eq!(of(&heavy, &light), Some(Point(5 << 61)), "5,000 and 5,000");
        assert_eq!(of(&light, &heavy), Some(Point(11 << 61)), "the same");
        assert_eq!(of(&heavy, &[]), Some(Point(4 << 61)));
        assert_eq!(of(&[], &heavy), Some(Point(12 << 61)));
        assert_eq!(of(&[160; 8], &[100; 8]), None, "1.6");
        assert_eq!(of(&[161; 8], &[100; 8]), Some(Point(6 << 61)));
    }

    #[test]
    fn what_is_idle_stays() {
        assert_eq!(of(&[], &[]), None);
        assert_eq!(of(&[149; 8], &[]), None, "twenty a second");
        assert_eq!(of(&[150; 8], &[]), Some(Point(4 << 61)));
        assert_eq!(
            Fixed.propose(
                &Density { range: KeyRange::FULL, cells: &[9_000; 8] },
                &Density { range: KeyRange::FULL, cells: &[] }
            ),
            None
        );
    }

    #[test]
    fn one_key_is_not_passed_on() {
        assert_eq!(of(&[0, 0, 9_000, 0], &[]), None);
        assert_eq!(of(&[500, 500, 9_000, 0], &[]), None, "nor by giving what hardly matters");
        assert_eq!(of(&[0, 9_000, 4_000, 0], &[]), Some(Point(2 << 62)), "what lies beside it goes");
    }

    proptest! {
        /// PITFALLS 49. Whatever is asked for: each move is worth it, and after a few there is none.
        #[test]
        fn it_comes_to_rest(
            start: u128,
            at in 1u128..u128::MAX / 2,
            length in u128::MAX / 2..u128::MAX,
            keys in proptest::collection::vec((any::<u128>(), 1u32..60, 0u32..7), 1..300),
        ) {
            // A few of them are asked for much more often than the rest.
            let keys: Keys = keys.into_iter().map(|(point, load, times)| (Point(point), load * times.pow(4))).collect();
            let end = start.wrapping_add(length);
            let mut boundary = Point(start.wrapping_add(at));
            let mut moves = 0;
            while let (Some(at), here, there) = propose(ranges(start, boundary, end), &keys) {
                moves += 1;
                prop_assert!(moves <= 5, "{} and {}", here, there);
                prop_assert!(KeyRange::new(Point(start), Point(end)).contains(at) && at != Point(start));
                let (_, left, right) = propose(ranges(start, at, end), &keys);
                prop_assert_eq!(left + right, here + there);
                prop_assert!(left.max(right) * 8 <= here.max(there) * 7);
                boundary = at;
            }
        }

        /// Where much is asked for everywhere, one move does it, though what is measured differs each time by some percent.
        #[test]
        fn one_move_does_it(at in 1u32..64, load in 60u32..5_000, noise in proptest::collection::vec(95u32..105, 64)) {
            let (start, end) = (0, 1 << 120);
            let keys = |noise: &[u32]| -> Keys {
                (0..4_096u32).map(|n| (Point(u128::from(n) << 108), load * noise[n as usize % 64] / 100)).collect()
            };
            let boundary = KeyRange::new(Point(start), Point(end)).cut_at(at, 64);
            if let (Some(at), ..) = propose(ranges(start, boundary, end), &keys(&[100; 64])) {
                prop_assert_eq!(propose(ranges(start, at, end), &keys(&noise)).0, None);
            }
        }
    }
}
