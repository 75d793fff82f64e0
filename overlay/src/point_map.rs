//! A map in ring order with a search of a few steps, for any number of entries.
//!
//! Points of the ring are hashes: they are spread evenly, and the first 64 bits of two nearly always differ. So a map is a
//! row of *shelves*, each with some dozens of entries in order. A search compares these prefixes alone: in the row, which
//! is small, then in one shelf. A search in a balanced tree of the same entries takes three times as many steps. Each of
//! these goes to another place in memory, and that is the cost of a search.

use alloc::vec::Vec;
use core::ops::Bound;

use crate::point::Key;

/// A key with a place in ring order.
///
/// # Invariants
/// - Of two keys with different prefixes, the one with the lesser prefix is the lesser.
pub trait Placed: Ord {
    /// Returns the first 64 bits of the key's place.
    fn prefix(&self) -> u64;
}

impl Placed for Key {
    fn prefix(&self) -> u64 {
        (self.point().0 >> 64) as u64
    }
}

/// Upper limit of entries on a shelf: with one more, the shelf is divided.
const SHELF_MAX: usize = 48;
/// A shelf with at most this many entries is joined with a neighbour, if both together have at most [`SHELF_JOINED_MAX`]
/// entries.
const SHELF_MIN: usize = SHELF_MAX / 8;
const SHELF_JOINED_MAX: usize = SHELF_MAX / 2;

/// A contiguous row of entries, in order.
#[derive(Clone, Debug)]
struct Shelf<K, V> {
    /// The prefix of each entry.
    prefixes: Vec<u64>,
    entries: Vec<(K, V)>,
}

/// A map from keys to values, in ring order.
#[derive(Clone, Debug)]
pub struct PointMap<K, V> {
    /// The first prefix that belongs on each shelf: rising, and 0 for the first. Entries with the same prefix are never
    /// parted.
    firsts: Vec<u64>,
    shelves: Vec<Shelf<K, V>>,
    len: usize,
}

/// The position of an entry, or the position for its insertion.
#[derive(Clone, Copy)]
struct Place {
    shelf: usize,
    index: usize,
}

impl<K: Placed, V> Default for PointMap<K, V> {
    fn default() -> PointMap<K, V> {
        PointMap::new()
    }
}

impl<K: Placed, V> PointMap<K, V> {
    /// Creates an empty map.
    pub fn new() -> PointMap<K, V> {
        PointMap { firsts: alloc::vec![0], shelves: alloc::vec![Shelf::with_room(0)], len: 0 }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the map has no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        let place = self.find(key).ok()?;
        Some(&self.shelves[place.shelf].entries[place.index].1)
    }

    /// Returns the value of a key, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let place = self.find(key).ok()?;
        Some(&mut self.shelves[place.shelf].entries[place.index].1)
    }

    /// Returns whether the key has a value.
    pub fn contains_key(&self, key: &K) -> bool {
        self.find(key).is_ok()
    }

    /// Sets the value of a key; returns the value before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(&key) {
            Ok(place) => Some(core::mem::replace(&mut self.shelves[place.shelf].entries[place.index].1, value)),
            Err(place) => {
                let shelf = &mut self.shelves[place.shelf];
                shelf.prefixes.insert(place.index, key.prefix());
                shelf.entries.insert(place.index, (key, value));
                self.len += 1;
                if shelf.entries.len() > SHELF_MAX {
                    self.divide(place.shelf);
                }
                None
            }
        }
    }

    /// Removes a key; returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let place = self.find(key).ok()?;
        let shelf = &mut self.shelves[place.shelf];
        shelf.prefixes.remove(place.index);
        let (_, value) = shelf.entries.remove(place.index);
        self.len -= 1;
        if shelf.entries.len() <= SHELF_MIN {
            self.join(place.shelf);
        }
        Some(value)
    }

    /// Removes and returns all entries from this key on. It moves whole shelves but for one, for any number of entries.
    pub fn split_off(&mut self, from: &K) -> PointMap<K, V> {
        let Place { shelf, index } = self.find(from).unwrap_or_else(|place| place);
        let mut behind =
            PointMap { firsts: self.firsts.split_off(shelf + 1), shelves: self.shelves.split_off(shelf + 1), len: 0 };
        let cut = &mut self.shelves[shelf];
        let first = Shelf { prefixes: cut.prefixes.split_off(index), entries: cut.entries.split_off(index) };
        behind.firsts.insert(0, 0);
        behind.shelves.insert(0, first);
        behind.len = behind.shelves.iter().map(Shelf::len).sum();
        self.len -= behind.len;
        self.tidy(shelf);
        behind.tidy(0);
        behind
    }

    /// Appends entries that belong behind all entries of this map.
    ///
    /// # Panics
    /// If one of them belongs before an entry of this map.
    pub fn append(&mut self, mut behind: PointMap<K, V>) {
        let last = self.shelves.iter().rev().find_map(|shelf| shelf.entries.last());
        let next = behind.shelves.iter().position(|shelf| shelf.len() > 0);
        let Some(next) = next else { return };
        let Some((last, _)) = last else { return *self = behind };
        assert!(*last < behind.shelves[next].entries[0].0, "what is put behind others belongs there");
        let (end, joint) = (last.prefix(), self.shelves.len() - 1);
        // Entries with the same prefix are never parted.
        let first = &mut behind.shelves[next];
        let same = first.prefixes.iter().take_while(|prefix| **prefix == end).count();
        let moved: Vec<(K, V)> = first.entries.drain(..same).collect();
        first.prefixes.drain(..same);
        behind.len -= same;
        moved.into_iter().for_each(|(key, value)| drop(self.insert(key, value)));
        let Some(next) = behind.shelves.iter().position(|shelf| shelf.len() > 0) else { return };
        behind.firsts[next] = behind.shelves[next].prefixes[0];
        self.firsts.extend(behind.firsts.drain(next..));
        self.shelves.extend(behind.shelves.drain(next..));
        self.len += behind.len;
        self.tidy(joint);
    }

    /// Drops the last shelves, until at least `count` entries are gone or none is left: to drop all entries at once takes
    /// a while.
    pub fn shed(&mut self, count: usize) {
        let wanted = self.len.saturating_sub(count);
        while self.len > wanted {
            let shelf = self.shelves.pop().expect("what has entries has shelves");
            self.firsts.pop();
            self.len -= shelf.len();
        }
        if self.shelves.is_empty() {
            *self = PointMap::new();
        }
    }

    /// Returns this map with the entries of `behind` appended.
    ///
    /// # Panics
    /// As [`PointMap::append`].
    pub fn then(mut self, behind: PointMap<K, V>) -> PointMap<K, V> {
        self.append(behind);
        self
    }

    /// Joins a shelf that has lost entries, and the shelf behind it, with their neighbours where these shelves are small.
    fn tidy(&mut self, index: usize) {
        for at in [index + 1, index] {
            if self.shelves.get(at).is_some_and(|shelf| shelf.len() <= SHELF_MIN) {
                self.join(at);
            }
        }
    }

    /// Returns all entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.shelves.iter().flat_map(|shelf| shelf.entries.iter().map(|(key, value)| (key, value)))
    }

    /// Returns the entries from a bound on, in order.
    pub fn range_from<'a>(&'a self, from: Bound<&K>) -> impl Iterator<Item = (&'a K, &'a V)> + use<'a, K, V> {
        let Place { shelf, index } = self.place_from(from);
        let (first, rest) = self.shelves[shelf..].split_first().expect("a place is on a shelf");
        let behind = rest.iter().flat_map(|shelf| shelf.entries.iter());
        first.entries[index..].iter().chain(behind).map(|(key, value)| (key, value))
    }

    /// Returns the first entry from a bound on, its value to be changed.
    pub fn first_mut_from(&mut self, from: Bound<&K>) -> Option<(&K, &mut V)> {
        let Place { shelf, index } = self.place_from(from);
        let (first, rest) = self.shelves[shelf..].split_first_mut().expect("a place is on a shelf");
        // A shelf between two full shelves may be empty.
        let mut behind = rest.iter_mut().flat_map(|shelf| shelf.entries.iter_mut());
        first.entries.get_mut(index).or_else(|| behind.next()).map(|(key, value)| (&*key, value))
    }

    fn place_from(&self, from: Bound<&K>) -> Place {
        match from {
            Bound::Unbounded => Place { shelf: 0, index: 0 },
            Bound::Included(key) => self.find(key).unwrap_or_else(|place| place),
            Bound::Excluded(key) => match self.find(key) {
                Ok(Place { shelf, index }) => Place { shelf, index: index + 1 },
                Err(place) => place,
            },
        }
    }

    fn find(&self, key: &K) -> Result<Place, Place> {
        let prefix = key.prefix();
        let shelf = self.firsts.partition_point(|first| *first <= prefix) - 1;
        let Shelf { prefixes, entries } = &self.shelves[shelf];
        let begin = prefixes.partition_point(|known| *known < prefix);
        let same = prefixes[begin..].iter().take_while(|known| **known == prefix).count();
        match entries[begin..begin + same].binary_search_by(|(known, _)| known.cmp(key)) {
            Ok(index) => Ok(Place { shelf, index: begin + index }),
            Err(index) => Err(Place { shelf, index: begin + index }),
        }
    }

    /// Divides a shelf in the middle, or as near to the middle as entries with the same prefix allow.
    fn divide(&mut self, index: usize) {
        let shelf = &mut self.shelves[index];
        let middle = shelf.prefixes[shelf.prefixes.len() / 2];
        let cut = match shelf.prefixes.partition_point(|prefix| *prefix < middle) {
            0 => shelf.prefixes.partition_point(|prefix| *prefix <= middle),
            cut => cut,
        };
        let Some(first) = shelf.prefixes.get(cut).copied() else { return };
        let mut behind = Shelf::with_room(SHELF_MAX + 1);
        behind.prefixes.extend(shelf.prefixes.drain(cut..));
        behind.entries.extend(shelf.entries.drain(cut..));
        self.firsts.insert(index + 1, first);
        self.shelves.insert(index + 1, behind);
    }

    /// Joins a shelf with the next one, or with the one before, where there is room for the entries of both.
    fn join(&mut self, index: usize) {
        let left = |at: usize| self.shelves.get(at).zip(self.shelves.get(at + 1)).map(|(a, b)| a.len() + b.len());
        let fits = |at: &usize| left(*at).is_some_and(|len| len <= SHELF_JOINED_MAX);
        let Some(at) = [Some(index), index.checked_sub(1)].into_iter().flatten().find(fits) else { return };
        let mut behind = self.shelves.remove(at + 1);
        self.firsts.remove(at + 1);
        let shelf = &mut self.shelves[at];
        shelf.prefixes.append(&mut behind.prefixes);
        shelf.entries.append(&mut behind.entries);
        // The joined shelf may be small too, and lie beside a small one.
        if shelf.len() <= SHELF_MIN {
            self.join(at);
        }
    }
}

impl<K, V> Shelf<K, V> {
    fn with_room(entries: usize) -> Shelf<K, V> {
        Shelf { prefixes: Vec::with_capacity(entries), entries: Vec::with_capacity(entries) }
    }

    fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// A key whose place is its first number; the second number tells keys at the same place apart.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Numbered(u64, u8);

    impl Placed for Numbered {
        fn prefix(&self) -> u64 {
            self.0
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Insert(Numbered, u32),
        Remove(Numbered),
        /// Removes so many entries, the first ones from this key on.
        RemoveFrom(Numbered, usize),
        /// Drops at least so many of the last entries.
        Shed(usize),
        Look(Numbered),
        /// Splits the map there; then keeps the part before, keeps the part behind, or joins both again.
        Part(Numbered, u8),
    }

    fn key(spread: u64) -> impl Strategy<Value = Numbered> {
        // Few places with many keys each, and many places.
        (0..spread, 0..4u8, any::<bool>())
            .prop_map(move |(n, extra, far)| Numbered(if far { u64::MAX - n * (u64::MAX / spread) } else { n }, extra))
    }

    fn step(spread: u64) -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (key(spread), any::<u32>()).prop_map(|(key, value)| Step::Insert(key, value)),
            2 => key(spread).prop_map(Step::Remove),
            1 => (key(spread), 0..60usize).prop_map(|(key, count)| Step::RemoveFrom(key, count)),
            1 => (0..100usize).prop_map(Step::Shed),
            1 => key(spread).prop_map(Step::Look),
            1 => (key(spread), 0..8u8).prop_map(|(key, then)| Step::Part(key, then)),
        ]
    }

    fn check_form(map: &PointMap<Numbered, u32>) {
        assert_eq!((map.firsts[0], map.firsts.len()), (0, map.shelves.len()));
        assert_eq!(map.shelves.iter().map(Shelf::len).sum::<usize>(), map.len());
        for (index, shelf) in map.shelves.iter().enumerate() {
            assert!(shelf.prefixes.iter().copied().eq(shelf.entries.iter().map(|(key, _)| key.prefix())));
            assert!(shelf.prefixes.first().is_none_or(|first| *first >= map.firsts[index]));
            let next = map.firsts.get(index + 1);
            assert!(next.is_none_or(|next| shelf.prefixes.last().is_none_or(|last| last < next)));
            assert!(shelf.len() <= SHELF_MAX || shelf.prefixes.iter().all(|prefix| *prefix == shelf.prefixes[0]));
        }
        let small = |shelf: &Shelf<Numbered, u32>| shelf.len() <= SHELF_MIN;
        assert!(
            !map.shelves.windows(2).any(|pair| small(&pair[0]) && small(&pair[1])),
            "they may as well lie together"
        );
    }

    /// The entries behind a shelf are found when that shelf is empty, and its neighbours have no room to be joined with
    /// it.
    #[test]
    fn what_lies_behind_an_empty_shelf_is_found() {
        let mut map = PointMap::new();
        for n in 0..400 {
            map.insert(Numbered(n, 0), 0_u32);
        }
        let middle = map.shelves.len() / 2;
        for side in [middle - 1, middle + 1] {
            let first = map.shelves[side].prefixes[0];
            for extra in 1..=SHELF_MIN {
                map.insert(Numbered(first, extra as u8), 0);
            }
        }
        let emptied: Vec<Numbered> = map.shelves[middle].entries.iter().map(|(key, _)| *key).collect();
        for key in &emptied {
            map.remove(key);
        }
        assert!(map.shelves[middle].entries.is_empty(), "there is a shelf without anything");
        let last = emptied[emptied.len() - 1];
        let behind = map.range_from(Bound::Excluded(&last)).next().map(|(key, value)| (*key, *value));
        let mut find = |from| map.first_mut_from(from).map(|(key, value)| (*key, *value));
        assert!(behind.is_some());
        assert_eq!(find(Bound::Excluded(&last)), behind);
        assert_eq!(find(Bound::Included(&emptied[0])), behind);
    }

    /// A shelf that is joined with an empty one may still be as small as the one before it.
    #[test]
    fn small_shelves_do_not_stay_beside_each_other() {
        let mut map = PointMap::new();
        let (mut shelves, mut firsts, mut next) = (Vec::new(), Vec::new(), 0);
        for len in [SHELF_MIN, SHELF_MIN + 1, 0, SHELF_JOINED_MAX] {
            firsts.push(next);
            let keys = || next..next + len as u64;
            let entries = keys().map(|n| (Numbered(n, 0), 0)).collect();
            shelves.push(Shelf { prefixes: keys().collect(), entries });
            (next, map.len) = (next + len as u64 + 1, map.len + len);
        }
        (map.shelves, map.firsts) = (shelves, firsts);
        check_form(&map);
        map.remove(&Numbered(SHELF_MIN as u64 + 1, 0));
        check_form(&map);
    }

    proptest! {
        #[test]
        fn behaves_as_a_map(
            steps in prop_oneof![
                proptest::collection::vec(step(8), 0..300),
                proptest::collection::vec(step(2000), 0..1500),
            ],
        ) {
            let (mut map, mut model) = (PointMap::new(), BTreeMap::new());
            for step in steps {
                match step {
                    Step::Insert(key, value) => prop_assert_eq!(map.insert(key, value), model.insert(key, value)),
                    Step::Remove(key) => prop_assert_eq!(map.remove(&key), model.remove(&key)),
                    Step::RemoveFrom(key, count) => {
                        let keys: Vec<_> = model.range(key..).take(count).map(|(key, _)| *key).collect();
                        for key in keys {
                            prop_assert_eq!(map.remove(&key), model.remove(&key));
                        }
                    }
                    Step::Shed(count) => {
                        let wanted = model.len().saturating_sub(count);
                        map.shed(count);
                        prop_assert!(map.len() <= wanted && map.len() + SHELF_MAX + 8 > wanted, "{} of {wanted}", map.len());
                        while model.len() > map.len() {
                            model.pop_last();
                        }
                    }
                    Step::Part(key, then) => {
                        let (behind, model_behind) = (map.split_off(&key), model.split_off(&key));
                        check_form(&map);
                        check_form(&behind);
                        prop_assert!(map.iter().eq(model.iter()) && behind.iter().eq(model_behind.iter()));
                        match then {
                            0 => {}
                            1 => (map, model) = (behind, model_behind),
                            _ => {
                                map.append(behind);
                                model.extend(model_behind);
                            }
                        }
                    }
                    Step::Look(key) => {
                        prop_assert_eq!(map.get(&key), model.get(&key));
                        prop_assert_eq!(map.get_mut(&key), model.get_mut(&key));
                        let behind = (Bound::Excluded(key), Bound::Unbounded);
                        prop_assert!(map.range_from(Bound::Included(&key)).eq(model.range(key..)));
                        prop_assert!(map.range_from(Bound::Excluded(&key)).eq(model.range(behind)));
                        let first = map.first_mut_from(Bound::Excluded(&key)).map(|(key, value)| (*key, *value));
                        prop_assert_eq!(first, model.range(behind).next().map(|(key, value)| (*key, *value)));
                    }
                }
                check_form(&map);
            }
            prop_assert!(map.iter().eq(model.iter()));
            prop_assert_eq!(map.len(), model.len());
        }
    }
}
