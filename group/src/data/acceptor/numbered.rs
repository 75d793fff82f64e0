//! Map from nearly dense numbers to values, in rows of 64 with one allocation each. Copies share their rows until one of them changes a
//! value there: two groups that are born of one group begin with the same values, and these may be many.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

const ROW: u64 = u64::BITS as u64;

/// Values of 64 consecutive numbers, the first of which is a multiple of 64.
#[derive(Clone, Debug)]
struct Row<T> {
    /// Bits of the places that are taken.
    there: u64,
    things: [Option<T>; ROW as usize],
}

impl<T> Row<T> {
    fn new() -> Row<T> {
        Row { there: 0, things: [const { None }; ROW as usize] }
    }

    /// Returns the places that are taken from `from` up to `to`, both below 64.
    fn places(&self, from: u64, to: u64) -> impl Iterator<Item = u64> + use<T> {
        let mut left = self.there & (u64::MAX << from) & (u64::MAX >> (ROW - 1 - to));
        core::iter::from_fn(move || {
            let place = (left != 0).then(|| u64::from(left.trailing_zeros()))?;
            left &= left - 1;
            Some(place)
        })
    }
}

/// Map like a [`BTreeMap`] of numbers, for numbers that are nearly dense.
#[derive(Clone, Debug)]
pub struct Numbered<T> {
    rows: BTreeMap<u64, Arc<Row<T>>>,
    len: usize,
}

impl<T> Default for Numbered<T> {
    fn default() -> Numbered<T> {
        Numbered { rows: BTreeMap::new(), len: 0 }
    }
}

impl<T: Clone> Numbered<T> {
    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the value with this number.
    pub fn get(&self, n: u64) -> Option<&T> {
        self.rows.get(&(n / ROW))?.things[(n % ROW) as usize].as_ref()
    }

    /// Returns the value with this number, for a change.
    pub fn get_mut(&mut self, n: u64) -> Option<&mut T> {
        self.row_of(n)?.things[(n % ROW) as usize].as_mut()
    }

    /// Inserts a value; returns the value that had its number before.
    pub fn insert(&mut self, n: u64, thing: T) -> Option<T> {
        let row = Arc::make_mut(self.rows.entry(n / ROW).or_insert_with(|| Arc::new(Row::new())));
        row.there |= 1 << (n % ROW);
        let before = row.things[(n % ROW) as usize].replace(thing);
        self.len += usize::from(before.is_none());
        before
    }

    /// Removes the value with this number.
    pub fn remove(&mut self, n: u64) -> Option<T> {
        let row = self.row_of(n)?;
        let thing = row.things[(n % ROW) as usize].take()?;
        row.there &= !(1 << (n % ROW));
        if row.there == 0 {
            self.rows.remove(&(n / ROW));
        }
        self.len -= 1;
        Some(thing)
    }

    /// Returns the row of a taken number, owned by this copy alone. A number that is not taken divides no row.
    fn row_of(&mut self, n: u64) -> Option<&mut Row<T>> {
        let row = self.rows.get_mut(&(n / ROW)).filter(|row| row.there >> (n % ROW) & 1 == 1)?;
        Some(Arc::make_mut(row))
    }

    /// Returns the value with the lowest number, and the number.
    pub fn first(&self) -> Option<(u64, &T)> {
        self.between(0, u64::MAX).next()
    }

    /// Returns the values from `from` up to `to`, in order.
    pub fn between(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, &T)> {
        let last = if from <= to { to } else { from };
        let rows = self.rows.range(from / ROW..=last / ROW).filter(move |_| from <= to);
        rows.flat_map(move |(number, row)| {
            let first = number * ROW;
            let places = row.places(from.saturating_sub(first), (to - first).min(ROW - 1));
            places.filter_map(move |place| Some((first + place, row.things[place as usize].as_ref()?)))
        })
    }

    /// Returns the highest number from 1 up to `last` that is not taken; zero if all are.
    pub fn last_absent(&self, last: u64) -> u64 {
        let mut n = last;
        while n > 0 {
            let there = self.rows.get(&(n / ROW)).map_or(0, |row| row.there);
            let absent = !there & (u64::MAX >> (ROW - 1 - n % ROW));
            if absent != 0 {
                return n / ROW * ROW + (ROW - 1 - u64::from(absent.leading_zeros()));
            }
            n = (n / ROW * ROW).saturating_sub(1);
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// Few numbers, around the ends of rows and of all numbers.
    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![4 => 0..200_u64, 1 => 63..=65_u64, 1 => (u64::MAX - 70)..=u64::MAX]
    }

    proptest! {
        #[test]
        fn does_what_a_tree_does(steps in proptest::collection::vec((0..5_u8, number(), number()), 0..300)) {
            let (mut rows, mut tree) = (Numbered::default(), BTreeMap::new());
            let mut copy = (rows.clone(), tree.clone());
            for (step, (what, n, m)) in steps.into_iter().enumerate() {
                match what {
                    0 | 1 => prop_assert_eq!(rows.insert(n, step), tree.insert(n, step)),
                    2 => prop_assert_eq!(rows.remove(n), tree.remove(&n)),
                    3 => copy = (rows.clone(), tree.clone()),
                    _ => {
                        if let Some(thing) = rows.get_mut(n) {
                            *thing += 1000;
                        }
                        tree.entry(n).and_modify(|thing| *thing += 1000);
                    }
                }
                prop_assert!(copy.0.between(0, u64::MAX).map(|(n, thing)| (n, *thing)).eq(copy.1.clone()));
                prop_assert_eq!(rows.len(), tree.len());
                prop_assert_eq!(rows.get(m), tree.get(&m));
                prop_assert_eq!(rows.first(), tree.first_key_value().map(|(n, thing)| (*n, thing)));
                let between: Vec<_> = rows.between(n, m).collect();
                let wanted: Vec<_> = tree.iter().filter(|(k, _)| (n..=m).contains(*k)).map(|(k, v)| (*k, v)).collect();
                prop_assert_eq!(between, wanted);
                let last = n.min(300);
                let absent = (1..=last).rev().find(|n| !tree.contains_key(n)).unwrap_or(0);
                prop_assert_eq!(rows.last_absent(last), absent);
            }
        }
    }
}
