//! A map from every point of the ring to a value, with as few intervals as possible.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::{KeyRange, Point};

/// A map that gives every point of the ring a value; neighbouring points of equal value share one entry.
///
/// # Invariants
/// - `starts` holds point zero, and no two neighbouring entries have equal values.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Entries<V>", bound(deserialize = "V: Deserialize<'de> + PartialEq"))]
pub struct IntervalMap<V> {
    starts: BTreeMap<Point, V>,
}

/// A map as it is encoded; the conversion to [`IntervalMap`] checks its invariant.
#[derive(Deserialize)]
struct Entries<V> {
    starts: BTreeMap<Point, V>,
}

impl<V: PartialEq> TryFrom<Entries<V>> for IntervalMap<V> {
    type Error = &'static str;

    fn try_from(Entries { starts }: Entries<V>) -> Result<Self, Self::Error> {
        let joined = starts.values().zip(starts.values().skip(1)).all(|(one, next)| one != next);
        match starts.contains_key(&Point(0)) && joined {
            true => Ok(IntervalMap { starts }),
            false => Err("not a map of the whole ring"),
        }
    }
}

impl<V: Clone + PartialEq> IntervalMap<V> {
    /// Creates a map with the same value at every point.
    pub fn new(value: V) -> Self {
        IntervalMap { starts: BTreeMap::from([(Point(0), value)]) }
    }

    /// Returns the value at a point.
    pub fn get(&self, point: Point) -> &V {
        let (_, value) = self.starts.range(..=point).next_back().expect("point zero always has an entry");
        value
    }

    /// Returns the number of intervals.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Returns `false`: every point has a value.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Sets the value of every point of the range.
    pub fn set(&mut self, range: KeyRange, value: V) {
        self.update(range, |_| value.clone());
    }

    /// Replaces the value of every point of the range by `change` of that value.
    pub fn update(&mut self, range: KeyRange, mut change: impl FnMut(&V) -> V) {
        for (first, last) in range.segments().into_iter().flatten() {
            self.split_at(Point(first));
            if let Some(next) = last.checked_add(1) {
                self.split_at(Point(next));
            }
            for (_, value) in self.starts.range_mut(Point(first)..=Point(last)) {
                *value = change(value);
            }
            self.join_around(first, last);
        }
    }

    /// Returns the pieces of `range` with their values, in ring order from its start; a piece never runs across point
    /// zero.
    pub fn pieces(&self, range: KeyRange) -> Vec<(KeyRange, V)> {
        let mut pieces = Vec::new();
        let mut segments = range.segments();
        if segments[1].is_some() {
            segments.swap(0, 1);
        } else if range.is_full() && range.start() != Point(0) {
            let start = range.start().0;
            segments = [Some((start, u128::MAX)), Some((0, start - 1))];
        }
        for (first, last) in segments.into_iter().flatten() {
            let mut from = first;
            let mut value = self.get(Point(first)).clone();
            for (next, next_value) in self.starts.range(Point(first)..=Point(last)) {
                if next.0 > from {
                    pieces.push((KeyRange::new(Point(from), *next), value));
                }
                from = next.0;
                value = next_value.clone();
            }
            pieces.push((KeyRange::new(Point(from), Point(last.wrapping_add(1))), value));
        }
        pieces
    }

    fn split_at(&mut self, at: Point) {
        if !self.starts.contains_key(&at) {
            let value = self.get(at).clone();
            self.starts.insert(at, value);
        }
    }

    fn join_around(&mut self, first: u128, last: u128) {
        let end = last.checked_add(1).map(Point);
        let mut starts: Vec<Point> = self.starts.range(Point(first)..=Point(last)).map(|(p, _)| *p).collect();
        starts.extend(end.filter(|end| self.starts.contains_key(end)));
        for start in starts {
            if start.0 == 0 {
                continue;
            }
            let before = self.get(Point(start.0 - 1));
            if *before == self.starts[&start] {
                self.starts.remove(&start);
            }
        }
    }
}

impl KeyRange {
    /// Returns the parts of this arc that lie in none of `others`, in ring order from its start; no part runs across
    /// point zero.
    pub fn without(self, others: impl IntoIterator<Item = KeyRange>) -> Vec<KeyRange> {
        let mut left = IntervalMap::new(true);
        others.into_iter().for_each(|other| left.set(other, false));
        left.pieces(self).into_iter().filter(|(_, left)| *left).map(|(piece, _)| piece).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A group that owns the whole ring may begin anywhere.
    #[test]
    fn pieces_begin_where_their_range_does() {
        let mut map = IntervalMap::new('a');
        map.set(KeyRange::new(Point(10), Point(20)), 'b');
        let piece = |start, end, value| (KeyRange::new(Point(start), Point(end)), value);
        let whole = [piece(15, 20, 'b'), piece(20, 0, 'a'), piece(0, 10, 'a'), piece(10, 15, 'b')];
        assert_eq!(map.pieces(KeyRange::new(Point(15), Point(15))), whole);
        assert_eq!(map.pieces(KeyRange::FULL), [piece(0, 10, 'a'), piece(10, 20, 'b'), piece(20, 0, 'a')]);
        assert_eq!(map.pieces(KeyRange::new(Point(15), Point(5))), [whole[0], whole[1], piece(0, 5, 'a')]);
    }
}
