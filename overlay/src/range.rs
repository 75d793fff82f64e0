//! Arcs of the ring.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::Point;

/// A half-open arc `[start, end)`, clockwise and wrapping; `start == end` is the whole ring. There is no empty range.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KeyRange {
    start: Point,
    end: Point,
}

impl KeyRange {
    /// Returns the arc of this point alone.
    pub fn at(point: Point) -> KeyRange {
        KeyRange::new(point, Point(point.0.wrapping_add(1)))
    }

    /// The whole ring, cut at point zero.
    pub const FULL: KeyRange = KeyRange { start: Point(0), end: Point(0) };

    /// Returns the arc from `start` up to, but without, `end`; the whole ring where they are equal.
    pub const fn new(start: Point, end: Point) -> KeyRange {
        KeyRange { start, end }
    }

    /// Returns the first point of the arc.
    pub fn start(self) -> Point {
        self.start
    }

    /// Returns the first point behind the arc.
    pub fn end(self) -> Point {
        self.end
    }

    /// Returns whether the arc is the whole ring.
    pub fn is_full(self) -> bool {
        self.start == self.end
    }

    /// Returns whether the arc holds this point.
    pub fn contains(self, point: Point) -> bool {
        self.is_full() || self.start.distance_to(point) < self.start.distance_to(self.end)
    }

    /// Returns whether the arc holds every point of `other`.
    pub fn contains_range(self, other: KeyRange) -> bool {
        if self.is_full() {
            return true;
        }
        if other.is_full() {
            return false;
        }
        let length = self.start.distance_to(self.end);
        let first = self.start.distance_to(other.start);
        first < length && other.start.distance_to(other.end) <= length - first
    }

    /// Returns whether the two arcs share a point.
    pub fn overlaps(self, other: KeyRange) -> bool {
        self.contains(other.start) || other.contains(self.start)
    }

    /// Returns the number of points in the arc; `None` for the whole ring, whose 2^128 points are too many for the
    /// type.
    pub fn length(self) -> Option<u128> {
        (!self.is_full()).then(|| self.start.distance_to(self.end))
    }

    /// Returns the points that two arcs share: no, one or (where the arcs overlap at both ends) two arcs.
    pub fn intersection(self, other: KeyRange) -> [Option<KeyRange>; 2] {
        let (a, b) = (self.segments(), other.segments());
        let mut shared = [None, None];
        let mut count = 0;
        // Each arc has at most two segments. The parts of an arc that runs across zero are rejoined below.
        let mut parts: [Option<(u128, u128)>; 4] = [None; 4];
        let mut parts_count = 0;
        for (a_first, a_last) in a.into_iter().flatten() {
            for (b_first, b_last) in b.into_iter().flatten() {
                let (first, last) = (a_first.max(b_first), a_last.min(b_last));
                if first <= last {
                    parts[parts_count] = Some((first, last));
                    parts_count += 1;
                }
            }
        }
        parts[..parts_count].sort_unstable();
        let mut parts = parts[..parts_count].iter().flatten().copied().collect::<alloc::vec::Vec<_>>();
        if parts.len() >= 2 && parts[0].0 == 0 && parts[parts.len() - 1].1 == u128::MAX {
            // An arc that runs across zero was cut there: rejoin its two parts.
            let last = parts.len() - 1;
            parts[0].0 = parts[last].0;
            parts.remove(last);
        }
        for (first, last) in parts {
            debug_assert!(count < 2, "two arcs share at most two arcs");
            shared[count] = Some(KeyRange { start: Point(first), end: Point(last.wrapping_add(1)) });
            count += 1;
        }
        if self.is_full() && other.is_full() {
            // The result begins where `self` does.
            return [Some(self), None];
        }
        shared
    }

    /// Returns the arc as at most two closed intervals of plain numbers, cut at zero.
    pub(crate) fn segments(self) -> [Option<(u128, u128)>; 2] {
        if self.is_full() {
            [Some((0, u128::MAX)), None]
        } else if self.end.0 == 0 || self.start < self.end {
            [Some((self.start.0, self.end.0.wrapping_sub(1))), None]
        } else {
            [Some((0, self.end.0 - 1)), Some((self.start.0, u128::MAX))]
        }
    }

    /// Returns the point that lies `part / of` of the way along the arc.
    ///
    /// # Panics
    /// If `part` is not less than `of`.
    pub fn cut_at(self, part: u32, of: u32) -> Point {
        assert!(part < of, "part {part} of {of}");
        // In units of 1/of: exact enough, and never past the end. The whole ring counts as 2^128 - 1.
        let length = self.length().unwrap_or(u128::MAX);
        let step = length / u128::from(of);
        let rest = length % u128::from(of);
        let offset = step * u128::from(part) + rest * u128::from(part) / u128::from(of);
        Point(self.start.0.wrapping_add(offset))
    }
}

impl fmt::Debug for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{:?}, {:?})", self.start, self.end)
    }
}
