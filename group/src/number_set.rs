//! Sets of numbers that are nearly all of `1..=n`.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// Set of numbers from 1 up, kept as ranges: all up to a mark, and numbers behind it that came out of order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberSet {
    mark: u64,
    /// First and last number of each range above `mark + 1`; disjoint and not adjacent.
    above: BTreeMap<u64, u64>,
}

impl NumberSet {
    /// Returns the mark: all of `1..=mark` are in the set, and `mark + 1` is not.
    pub fn mark(&self) -> u64 {
        self.mark
    }

    /// Returns the largest number in the set; 0 if it is empty.
    pub fn last(&self) -> u64 {
        self.above.last_key_value().map_or(self.mark, |(_, last)| *last)
    }

    /// Returns whether it is in the set.
    pub fn contains(&self, n: u64) -> bool {
        n <= self.mark || self.above.range(..=n).next_back().is_some_and(|(_, last)| n <= *last)
    }

    /// Adds one number. Returns whether it was new.
    pub fn insert(&mut self, n: u64) -> bool {
        if n == self.mark + 1 {
            self.mark = n;
            self.absorb();
            return true;
        }
        if self.contains(n) {
            return false;
        }
        self.insert_range(n, n);
        true
    }

    /// Adds `first..=last`.
    pub fn insert_range(&mut self, first: u64, last: u64) {
        if last < first || last <= self.mark {
            return;
        }
        if first <= self.mark + 1 {
            self.mark = last;
            self.absorb();
            return;
        }
        let (mut first, mut last) = (first, last);
        if let Some((before, before_last)) = self.above.range(..=first).next_back().map(|(a, b)| (*a, *b))
            && before_last + 1 >= first
        {
            first = before;
            last = last.max(before_last);
        }
        while let Some((next, next_last)) =
            self.above.range(first..=last.saturating_add(1)).next().map(|(a, b)| (*a, *b))
        {
            self.above.remove(&next);
            last = last.max(next_last);
        }
        self.above.insert(first, last);
    }

    /// Returns how many ranges of the set lie above `mark()`.
    pub fn gaps(&self) -> usize {
        self.above.len()
    }

    /// Returns the ranges of the set that lie above `mark()`, with first and last number.
    pub fn ranges_above(&self) -> Vec<(u64, u64)> {
        self.above.iter().map(|(a, b)| (*a, *b)).collect()
    }

    /// Returns whether all of these are in the set.
    pub fn contains_all(&self, other: &NumberSet) -> bool {
        let begins = other.mark.min(1);
        let ranges = (begins > 0).then_some((1, other.mark)).into_iter().chain(other.ranges_above());
        ranges.into_iter().all(|(first, last)| {
            let covers = |before: Option<(&u64, &u64)>| before.is_some_and(|(_, until)| last <= *until);
            last <= self.mark || covers(self.above.range(..=first).next_back())
        })
    }

    fn absorb(&mut self) {
        while let Some((first, last)) = self.above.first_key_value().map(|(a, b)| (*a, *b)) {
            if first > self.mark + 1 {
                break;
            }
            self.mark = self.mark.max(last);
            self.above.remove(&first);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use proptest::prelude::*;

    use super::NumberSet;

    proptest! {
        #[test]
        fn behaves_as_a_set(ranges in proptest::collection::vec((1u64..40, 0u64..6), 0..40)) {
            let (mut set, mut model) = (NumberSet::default(), BTreeSet::new());
            for (first, length) in ranges {
                if length == 0 {
                    prop_assert_eq!(set.insert(first), model.insert(first));
                } else {
                    set.insert_range(first, first + length - 1);
                    model.extend(first..first + length);
                }
                for n in 1..60 {
                    prop_assert_eq!(set.contains(n), model.contains(&n));
                }
                let mark = (1..).take_while(|n| model.contains(n)).last().unwrap_or(0);
                prop_assert_eq!(set.mark(), mark);
                prop_assert_eq!(set.last(), model.last().copied().unwrap_or(0));
                let mut other = NumberSet::default();
                other.insert_range(first, first + 2);
                prop_assert_eq!(set.contains_all(&other), (first..first + 3).all(|n| model.contains(&n)));
                prop_assert!(set.contains_all(&set.clone()) && set.contains_all(&NumberSet::default()));
                let ranges = set.ranges_above();
                prop_assert!(ranges.windows(2).all(|w| w[0].1 + 1 < w[1].0));
            }
        }
    }
}
