//! Lineage: from which starts a start descends.
//!
//! Counters alone do not tell an older copy of a data directory from its original: the copy counts on with each of its own starts,
//! also with those that were refused, and passes the original's. So a store keeps the runs of its last starts, and a peer tells
//! them. A member takes a higher start only where it descends from the start that the member knows.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::starts::Start;

/// Runs of a lineage at most. A start that is so far from the known one is taken for its descendant.
pub(crate) const RUNS_MAX: usize = 64;

/// A start, and the starts of the same store before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineage {
    /// The start.
    pub start: Start,
    /// [`Start::run`] of the starts before it, the latest first; at most 64 of them.
    pub before: Vec<u64>,
}

impl Lineage {
    /// Returns the lineage of the next start of this store.
    pub(crate) fn next(mut self, run: u64) -> Lineage {
        if self.start.counter > 0 {
            self.before.insert(0, self.start.run);
            self.before.truncate(RUNS_MAX);
        }
        Lineage { start: Start { counter: self.start.counter.saturating_add(1), run }, before: self.before }
    }

    /// Returns whether this start comes after `former` in the same store, or so long after it that the lineage does not tell.
    pub(crate) fn descends_from(&self, former: Start) -> bool {
        let Some(apart) = self.start.counter.checked_sub(former.counter).filter(|apart| *apart > 0) else {
            return false;
        };
        let place = usize::try_from(apart - 1).unwrap_or(usize::MAX);
        match self.before.get(place) {
            Some(run) => *run == former.run,
            None => self.before.len() >= RUNS_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_descends_from_those_of_its_own_store() {
        let first = Lineage::default().next(7);
        assert_eq!(first, Lineage { start: Start { counter: 1, run: 7 }, before: Vec::new() });
        let second = first.clone().next(8);
        assert!(second.descends_from(first.start));
        assert!(!second.descends_from(second.start) && !first.descends_from(second.start));
        let copy = first.clone().next(9).next(10);
        assert!(copy.descends_from(first.start) && !copy.descends_from(second.start));
        let claims = Lineage { start: Start { counter: 5, run: 1 }, before: Vec::new() };
        assert!(!claims.descends_from(first.start), "it does not say so");
    }

    #[test]
    fn a_lineage_is_bounded() {
        let first = Lineage::default().next(1);
        let late = (2..=2 * RUNS_MAX as u64).fold(first.clone(), Lineage::next);
        assert_eq!(late.before.len(), RUNS_MAX);
        assert!(late.descends_from(first.start), "too long ago to tell");
        let recent = Start { counter: late.start.counter - 3, run: late.start.counter - 3 };
        assert!(late.descends_from(recent) && !late.descends_from(Start { run: 1, ..recent }));
    }
}
