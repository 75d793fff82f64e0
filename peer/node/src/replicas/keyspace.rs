//! Generations of the keyspace: the places of a node's records in its store.
//!
//! Records of a range that this node no longer owns are dropped, and that takes time. If the node comes to hold that range
//! again meanwhile, it must not find the old records: they would look like its present ones. So records lie in *generations*, and new
//! records go into a generation without leftovers in that range.
//!
//! # Invariants
//! - A range that a group here has is in a generation without leftovers there.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Bound;

use bytes::Bytes;
use overlay::{IntervalMap, Key, KeyRange, Point};
use serde::{Deserialize, Serialize};

use crate::replicas::storage::Space;

/// Generation of the records of each part of the ring, and the leftovers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyspaceGenerations {
    at: IntervalMap<u8>,
    leftovers: Vec<(u8, KeyRange)>,
    /// Leftovers that are not to be dropped yet. After a crash this list is empty.
    #[serde(skip)]
    lent: Vec<(u8, KeyRange)>,
}

impl Default for KeyspaceGenerations {
    fn default() -> KeyspaceGenerations {
        KeyspaceGenerations { at: IntervalMap::new(0), leftovers: Vec::new(), lent: Vec::new() }
    }
}

impl KeyspaceGenerations {
    /// Returns the generation of a point.
    pub fn of(&self, point: Point) -> u8 {
        *self.at.get(point)
    }

    /// Marks all records in this range as left over.
    pub fn leave(&mut self, range: KeyRange) {
        for (piece, generation) in self.at.pieces(range) {
            self.leftovers.push((generation, piece));
        }
    }

    /// Takes a generation without leftovers for new records in this range. Returns false if there is none: then nothing has changed.
    #[must_use]
    pub fn enter(&mut self, range: KeyRange) -> bool {
        let used = |generation: u8| self.leftovers.iter().any(|(of, piece)| *of == generation && piece.overlaps(range));
        let free = (0..=u8::MAX).find(|generation| !used(*generation));
        if let Some(generation) = free {
            self.at.set(range, generation);
        }
        free.is_some()
    }

    /// Returns a generation for copied records in this range, which no group here has: after a crash they are left over. `None` if
    /// each generation has records or leftovers in this range.
    #[must_use]
    pub fn lend(&mut self, range: KeyRange) -> Option<u8> {
        let here = self.at.pieces(range);
        let used = |generation: u8| {
            let is_left = self.leftovers.iter().any(|(of, piece)| *of == generation && piece.overlaps(range));
            is_left || here.iter().any(|(_, at)| *at == generation)
        };
        let free = (0..=u8::MAX).find(|generation| !used(*generation))?;
        self.leftovers.push((free, range));
        self.lent.push((free, range));
        Some(free)
    }

    /// Lends these ranges, none of which overlap, when no group here has a part of the ring any more; the rest is left over.
    /// Returns each lent part, in one generation and on one side of point zero.
    #[must_use]
    pub fn lend_former(&mut self, ranges: &[KeyRange]) -> Vec<(u8, KeyRange)> {
        let lent: Vec<(u8, KeyRange)> = ranges
            .iter()
            .flat_map(|range| self.at.pieces(*range))
            .map(|(piece, generation)| (generation, piece))
            .collect();
        let rest = KeyRange::FULL.without(lent.iter().map(|(_, piece)| *piece));
        rest.into_iter().for_each(|piece| self.leave(piece));
        self.leftovers.extend(&lent);
        self.lent.extend(&lent);
        lent
    }

    /// Returns the number of parts that are left over, or lent.
    pub fn left(&self) -> usize {
        self.leftovers.len()
    }

    /// Ends a loan: its records are left over.
    pub fn give_back(&mut self, lent: (u8, KeyRange)) {
        self.lent.retain(|known| *known != lent);
    }

    /// Moves these parts of a loan into a group's range; the rest is left over.
    pub fn claim(&mut self, lent: (u8, KeyRange), parts: &[KeyRange]) {
        self.give_back(lent);
        self.leftovers.retain(|known| *known != lent);
        let (generation, range) = lent;
        self.leftovers.extend(range.without(parts.iter().copied()).into_iter().map(|piece| (generation, piece)));
        parts.iter().for_each(|part| self.at.set(*part, generation));
    }

    /// Returns the next part to drop.
    pub fn leftover(&self) -> Option<(u8, KeyRange)> {
        self.leftovers.iter().find(|leftover| !self.lent.contains(leftover)).copied()
    }

    /// Notes that this part has been dropped.
    pub fn swept(&mut self, leftover: (u8, KeyRange)) {
        self.leftovers.retain(|known| *known != leftover);
    }

    /// Returns the parts of a range in the order in which they are scanned, that of the points.
    pub fn parts(&self, range: KeyRange) -> VecDeque<(u8, KeyRange)> {
        let mut parts: Vec<(u8, KeyRange)> =
            self.at.pieces(range).into_iter().map(|(piece, generation)| (generation, piece)).collect();
        parts.sort_by_key(|(_, piece)| piece.start());
        parts.into()
    }
}

/// A scan of several parts, one after the other, as if they were one.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    parts: VecDeque<(u8, KeyRange)>,
    from: Bound<Key>,
    pub(crate) bytes_max: usize,
}

impl Walk {
    /// Creates a scan of these parts from that key on.
    pub(crate) fn new(mut parts: VecDeque<(u8, KeyRange)>, from: Bound<Key>, bytes_max: usize) -> Walk {
        if let Bound::Included(key) | Bound::Excluded(key) = &from {
            // Parts that end before the scan begins.
            let is_over = |piece: KeyRange| piece.end() != Point(0) && piece.end() <= key.point();
            while parts.front().is_some_and(|(_, piece)| is_over(*piece)) {
                parts.pop_front();
            }
        }
        Walk { parts, from, bytes_max }
    }

    /// Returns the key at which the store is to be read next; `None` if all is read.
    pub(crate) fn next(&self, space: Space) -> Option<Bytes> {
        let (generation, piece) = self.parts.front()?;
        let first = Key::first_at(piece.start());
        let from = match &self.from {
            Bound::Included(key) if *key >= first => Bound::Included(key),
            Bound::Excluded(key) if *key >= first => Bound::Excluded(key),
            _ => Bound::Included(&first),
        };
        Some(space.scan_start(*generation, from))
    }

    /// Takes a page of the store, and whether no record follows it there. Returns its records that belong to the scan, and
    /// whether the scan is complete; `None` if the walk must go on first.
    pub(crate) fn page(
        &mut self,
        space: Space,
        records: Vec<(Bytes, Bytes)>,
        done: bool,
    ) -> Option<(Vec<(Key, Bytes)>, bool)> {
        let Some((generation, piece)) = self.parts.front().copied() else { return Some((Vec::new(), true)) };
        let total = records.len();
        let here = |(key, value): (Bytes, Bytes)| {
            let (of, key) = space.key_of(&key)?;
            (of == generation && piece.contains(key.point())).then_some((key, value))
        };
        let kept: Vec<(Key, Bytes)> = records.into_iter().map_while(here).collect();
        if done || kept.len() < total {
            self.parts.pop_front();
        }
        match kept.is_empty() && !self.parts.is_empty() && (done || total > 0) {
            true => None,
            false => Some((kept, self.parts.is_empty())),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use super::*;

    const SPACE: Space = Space(Some(3));

    fn range(start: u128, end: u128) -> KeyRange {
        KeyRange::new(Point(start << 120), Point(end << 120))
    }

    /// Returns a store with these keys in each of these generations, and in other lanes.
    fn store(keyspace: &[u8], keys: &[Key]) -> BTreeMap<Bytes, Bytes> {
        let each = |space: Space| {
            let all = keyspace.iter().flat_map(move |generation| keys.iter().map(move |key| (*generation, key)));
            all.map(move |(generation, key)| (space.record_key(generation, key), Bytes::copy_from_slice(&[generation])))
        };
        [Space(Some(2)), SPACE, Space(Some(4))].into_iter().flat_map(each).collect()
    }

    fn walk(
        store: &BTreeMap<Bytes, Bytes>,
        keyspace: &KeyspaceGenerations,
        of: KeyRange,
        page: usize,
    ) -> Vec<(Key, Bytes)> {
        let (mut found, mut from) = (Vec::new(), Bound::Unbounded);
        loop {
            let mut walk = Walk::new(keyspace.parts(of), from, 1);
            let (kept, done) = loop {
                let Some(at) = walk.next(SPACE) else { return found };
                let mut behind = store.range(at..);
                let records: Vec<_> = behind.by_ref().take(page).map(|(k, v)| (k.clone(), v.clone())).collect();
                if let Some(page) = walk.page(SPACE, records, behind.next().is_none()) {
                    break page;
                }
            };
            let Some((last, _)) = kept.last() else {
                assert!(done, "nothing is known of what follows an empty page");
                return found;
            };
            from = Bound::Excluded(last.clone());
            found.extend(kept);
            if done {
                return found;
            }
        }
    }

    #[test]
    fn a_walk_finds_what_lies_in_each_place_and_nothing_else() {
        let keys: Vec<Key> = (0..200).map(|n| Key::new(alloc::format!("key {n}").as_bytes()).unwrap()).collect();
        let store = store(&[0, 1, 2], &keys);
        let mut keyspace = KeyspaceGenerations::default();
        keyspace.leave(range(10, 120));
        assert!(keyspace.enter(range(30, 60)));
        keyspace.leave(range(40, 50));
        assert!(keyspace.enter(range(45, 70)) && keyspace.enter(range(100, 0)));
        for of in [KeyRange::FULL, range(20, 65), range(200, 33), range(44, 46), range(7, 7)] {
            let expected = |key: &&Key| of.contains(key.point());
            let mut expected: Vec<(Key, Bytes)> = keys
                .iter()
                .filter(expected)
                .map(|k| (k.clone(), Bytes::copy_from_slice(&[keyspace.of(k.point())])))
                .collect();
            expected.sort();
            for page in [1, 2, 7, 1000] {
                assert_eq!(walk(&store, &keyspace, of, page), expected, "{of:?}, pages of {page}");
            }
        }
    }

    /// A lent part has no owner yet: it is left over as soon as its loan ends, or after a crash.
    #[test]
    fn what_is_lent_is_claimed_or_left_over() {
        let mut keyspace = KeyspaceGenerations::default();
        assert!(keyspace.enter(range(0, 10)));
        keyspace.leave(range(20, 30));
        let [one, other] = [range(10, 40), range(40, 50)].map(|piece| (keyspace.lend(piece).unwrap(), piece));
        assert_eq!((one.0, other.0), (1, 1), "where nothing lies, be it left over or not");
        assert_eq!(keyspace.leftover(), Some((0, range(20, 30))), "what is lent is not dropped");
        keyspace.swept((0, range(20, 30)));
        assert_eq!(keyspace.leftover(), None);
        let after_crash: KeyspaceGenerations =
            postcard::from_bytes(&postcard::to_allocvec(&keyspace).unwrap()).unwrap();
        assert_eq!(after_crash.leftover(), Some(one));
        assert!(keyspace.enter(range(35, 45)), "another group comes to be there");
        assert_eq!(keyspace.of(range(36, 37).start()), 0);
        keyspace.claim(one, &[range(15, 20), range(30, 40)]);
        assert_eq!([12, 16, 25, 35].map(|at| keyspace.of(range(at, 0).start())), [0, 1, 0, 1]);
        let mut left = Vec::new();
        while let Some(leftover) = keyspace.leftover() {
            left.push(leftover);
            keyspace.swept(leftover);
        }
        assert_eq!(left, [(1, range(10, 15)), (1, range(20, 30))]);
        keyspace.give_back(other);
        assert_eq!(keyspace.leftover(), Some(other));
    }

    #[test]
    fn what_comes_anew_lies_where_nothing_is_left_over() {
        let mut keyspace = KeyspaceGenerations::default();
        assert!(keyspace.enter(range(0, 10)));
        assert_eq!(keyspace.of(range(5, 6).start()), 0);
        keyspace.leave(range(0, 10));
        assert!(keyspace.enter(range(8, 20)));
        assert_eq!((keyspace.of(range(9, 10).start()), keyspace.of(range(15, 16).start())), (1, 1));
        keyspace.leave(range(8, 20));
        assert!(keyspace.enter(range(8, 9)));
        assert_eq!(keyspace.of(range(8, 9).start()), 2);
        while let Some(leftover) = keyspace.leftover() {
            keyspace.swept(leftover);
        }
        assert!(keyspace.enter(range(0, 20)));
        assert_eq!(keyspace.of(range(8, 9).start()), 0);
        // The generations are limited.
        for _ in 0..255 {
            keyspace.leave(range(0, 20));
            assert!(keyspace.enter(range(0, 20)));
        }
        keyspace.leave(range(0, 20));
        let before = keyspace.clone();
        assert!(!keyspace.enter(range(19, 21)));
        assert_eq!(keyspace, before);
    }
}
