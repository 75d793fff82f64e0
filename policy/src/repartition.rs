//! Moves of the boundary between two groups (Scatter §6.3).

use overlay::Point;

use crate::density::{Density, LOAD_MIN, is_even};

/// Decides where a group ends and its successor begins.
pub trait Repartitioning: Sync {
    /// Returns the point at which the successor should begin instead; `None` where the boundary should stay. Each group looks only at its
    /// successor, so one group looks at each boundary. Quiet on its own output, if the loads are then measured as expected.
    fn propose(&self, own: &Density<'_>, successor: &Density<'_>) -> Option<Point>;
}

/// Leaves boundaries where they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fixed;

impl Repartitioning for Fixed {
    fn propose(&self, _: &Density<'_>, _: &Density<'_>) -> Option<Point> {
        None
    }
}

/// Moves the boundary between two groups where the load per capacity of one exceeds 1.6 times that of the other (Scatter §6.3), such that
/// the loads per capacity of both become as equal as possible.
///
/// The boundary goes between two measured pieces, not into one. The move must relieve the busier group of an eighth of its load at least.
/// So the noise of measurement moves nothing back and forth, and a single hot key is not passed on from group to group.
#[derive(Clone, Copy, Debug, Default)]
pub struct Proportional;

impl Repartitioning for Proportional {
    fn propose(&self, own: &Density<'_>, successor: &Density<'_>) -> Option<Point> {
        let (here, there) = (own.total(), successor.total());
        let all = here + there;
        // Loads per capacity, both multiplied by both capacities.
        let of = |here: u64, there: u64| {
            let [own, other] = [own, successor].map(|density| u128::from(density.capacity.max(1)));
            (u128::from(here) * other, u128::from(there) * own)
        };
        let (mine, theirs) = of(here, there);
        let more = mine.max(theirs);
        if here.max(there) < LOAD_MIN || is_even(mine, theirs) {
            return None;
        }
        let larger = |here: u64| {
            let (mine, theirs) = of(here, all - here);
            mine.max(theirs)
        };
        let best = if mine > theirs {
            // The cut with the smallest part to move, of equal ones.
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

    /// Keys with the load of each.
    type Keys = Vec<(Point, u32)>;

    fn cells(range: KeyRange, keys: &Keys) -> Vec<u32> {
        let asked = |cell: u32| {
            let end = if cell + 1 < CELLS { range.cut_at(cell + 1, CELLS) } else { range.end() };
            let piece = KeyRange::new(range.cut_at(cell, CELLS), end);
            keys.iter().filter(|(at, _)| piece.contains(*at)).map(|(_, load)| load).sum()
        };
        (0..CELLS).map(asked).collect()
    }

    fn propose(ranges: [KeyRange; 2], keys: &Keys, capacities: [u32; 2]) -> (Option<Point>, u64, u64) {
        let cells = ranges.map(|range| cells(range, keys));
        let [own, successor] = [0, 1].map(|n| Density { range: ranges[n], cells: &cells[n], capacity: capacities[n] });
        (Proportional.propose(&own, &successor), own.total(), successor.total())
    }

    fn ranges(start: u128, at: Point, end: u128) -> [KeyRange; 2] {
        [KeyRange::new(Point(start), at), KeyRange::new(at, Point(end))]
    }

    fn of(own: &[u32], successor: &[u32]) -> Option<Point> {
        between((own, 5), (successor, 5))
    }

    fn between((own, capacity): (&[u32], u32), (successor, other): (&[u32], u32)) -> Option<Point> {
        let [range, behind] = ranges(0, Point(1 << 64), 1 << 65);
        let successor = Density { range: behind, cells: successor, capacity: other };
        Proportional.propose(&Density { range, cells: own, capacity }, &successor)
    }

    /// A group of five and one of twelve carry loads of five to twelve.
    #[test]
    fn load_is_compared_per_capacity() {
        assert_eq!(between((&[500; 8], 5), (&[1_200; 8], 12)), None);
        assert_eq!(
            between((&[1_000; 8], 5), (&[1_000; 8], 12)),
            Some(Point(5 << 61)),
            "10,000 and 22,000 per 5 and 12"
        );
        assert_eq!(between((&[1_000; 8], 0), (&[1_000; 8], 0)), None, "a capacity that is not known");
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
                &Density { range: KeyRange::FULL, cells: &[9_000; 8], capacity: 1 },
                &Density { range: KeyRange::FULL, cells: &[], capacity: 1 }
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
        /// Hazard 49. With any loads, each move is worth it, and after a few moves there is none.
        #[test]
        fn it_comes_to_rest(
            start: u128,
            at in 1u128..u128::MAX / 2,
            length in u128::MAX / 2..u128::MAX,
            keys in proptest::collection::vec((any::<u128>(), 1u32..60, 0u32..7), 1..300),
            capacities in [1u32..13, 1u32..13],
        ) {
            // A few of them are asked for much more often than the rest.
            let keys: Keys = keys.into_iter().map(|(point, load, times)| (Point(point), load * times.pow(4))).collect();
            let end = start.wrapping_add(length);
            let mut boundary = Point(start.wrapping_add(at));
            let mut moves = 0;
            while let (Some(at), here, there) = propose(ranges(start, boundary, end), &keys, capacities) {
                moves += 1;
                prop_assert!(moves <= 5, "{} and {}", here, there);
                prop_assert!(KeyRange::new(Point(start), Point(end)).contains(at) && at != Point(start));
                let (_, left, right) = propose(ranges(start, at, end), &keys, capacities);
                prop_assert_eq!(left + right, here + there);
                let busiest = |own: u64, other: u64| {
                    (own * u64::from(capacities[1])).max(other * u64::from(capacities[0]))
                };
                prop_assert!(busiest(left, right) * 8 <= busiest(here, there) * 7);
                boundary = at;
            }
        }

        /// Where the load is high everywhere, one move is enough, though measurements differ each time by some percent.
        #[test]
        fn one_move_does_it(at in 1u32..64, load in 60u32..5_000, noise in proptest::collection::vec(95u32..105, 64)) {
            let (start, end) = (0, 1 << 120);
            let keys = |noise: &[u32]| -> Keys {
                (0..4_096u32).map(|n| (Point(u128::from(n) << 108), load * noise[n as usize % 64] / 100)).collect()
            };
            let boundary = KeyRange::new(Point(start), Point(end)).cut_at(at, 64);
            if let (Some(at), ..) = propose(ranges(start, boundary, end), &keys(&[100; 64]), [5; 2]) {
                prop_assert_eq!(propose(ranges(start, at, end), &keys(&noise), [5; 2]).0, None);
            }
        }
    }
}
