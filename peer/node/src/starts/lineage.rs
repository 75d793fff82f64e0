//! Lineage: the starts from which a start descends.
//!
//! Counters alone do not tell an older copy of a data directory from its original. The copy counts on with each of its own starts,
//! also with refused ones, and passes the original's counter. So a store keeps the runs of its last starts, and a peer tells them. A
//! member takes a higher start only if it descends from the start that the member knows.
//!
//! A store with a torn end may have lost the entry of its last start, though other members heard that start. Its peer knows of the
//! loss ([`group::Group::doubt`]), so it may go on: its next start says that the runs of some starts before it are lost.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::starts::Start;

/// Upper limit of runs in a lineage.
pub(crate) const RUNS_MAX: usize = 64;
/// Mark in the place of a run: the store lost the entry of that start.
const LOST: u64 = 0;

/// A start, and the starts of the same store before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineage {
    /// The start.
    pub start: Start,
    /// [`Start::run`] of the starts before it, the latest first; at most 64 of them; 0 for one that the store lost.
    pub before: Vec<u64>,
}

/// Relation of a lineage to a start with a lower counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Descent {
    /// It was a start of the same store.
    Yes,
    /// It was a start of another store.
    No,
    /// It may have been a start of the same store: it is older than all runs of the lineage, or the store lost the entry in its
    /// place.
    Maybe,
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

    /// Returns the lineage of the next start of this store, which lost the entry of its start `known`. Other members may know other
    /// lost starts: from the first one that may be lost, none is named.
    pub(crate) fn next_after_loss(&self, known: Start, run: u64) -> Lineage {
        let last = self.start.counter.max(known.counter);
        let first_lost = self.start.counter.min(known.counter);
        let kept = usize::try_from(self.start.counter - first_lost).unwrap_or(usize::MAX);
        let lost = usize::try_from(last - first_lost).unwrap_or(usize::MAX).saturating_add(1).min(RUNS_MAX);
        let mut before = alloc::vec![LOST; lost];
        before.extend(self.before.iter().skip(kept));
        before.truncate(RUNS_MAX);
        Lineage { start: Start { counter: last.saturating_add(1), run }, before }
    }

    /// Returns whether `former` is an earlier start of the same store.
    pub(crate) fn descent_from(&self, former: Start) -> Descent {
        let Some(apart) = self.start.counter.checked_sub(former.counter).filter(|apart| *apart > 0) else {
            return Descent::No;
        };
        let place = usize::try_from(apart - 1).unwrap_or(usize::MAX);
        match self.before.get(place) {
            Some(run) if *run == former.run => Descent::Yes,
            Some(&LOST) => Descent::Maybe,
            None if self.before.len() >= RUNS_MAX => Descent::Maybe,
            _ => Descent::No,
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
        assert_eq!(second.descent_from(first.start), Descent::Yes);
        assert_eq!(second.descent_from(second.start), Descent::No);
        assert_eq!(first.descent_from(second.start), Descent::No);
        let copy = first.clone().next(9).next(10);
        assert_eq!(copy.descent_from(first.start), Descent::Yes);
        assert_eq!(copy.descent_from(second.start), Descent::No);
        let claims = Lineage { start: Start { counter: 5, run: 1 }, before: Vec::new() };
        assert_eq!(claims.descent_from(first.start), Descent::No, "it does not say so");
    }

    #[test]
    fn a_lineage_is_bounded() {
        let first = Lineage::default().next(1);
        let late = (2..=2 * RUNS_MAX as u64).fold(first.clone(), Lineage::next);
        assert_eq!(late.before.len(), RUNS_MAX);
        assert_eq!(late.descent_from(first.start), Descent::Maybe);
        let recent = Start { counter: late.start.counter - 3, run: late.start.counter - 3 };
        assert_eq!(late.descent_from(recent), Descent::Yes);
        assert_eq!(late.descent_from(Start { run: 1, ..recent }), Descent::No);
    }

    /// The next start descends from each start that may be lost, whichever of them a member knows, but not from other starts before
    /// those.
    #[test]
    fn a_store_that_lost_starts_goes_on_from_all_of_them() {
        let third = (11..14).fold(Lineage::default(), Lineage::next);
        for counter in [1, 2, 3, 4, 7, 200, u64::MAX] {
            let known = Start { counter, run: 99 };
            let next = third.next_after_loss(known, 50);
            assert_eq!(next.start, Start { counter: counter.max(3).saturating_add(1), run: 50 });
            assert!(next.before.len() <= RUNS_MAX);
            let (maybe, no) = (|start| next.descent_from(start) == Descent::Maybe, Start { counter: 1, run: 98 });
            assert!(maybe(known) || counter == u64::MAX, "{counter}");
            assert!(maybe(third.start), "{counter}");
            assert!(counter == 1 || counter > 60 || !maybe(no), "{counter}");
        }
    }
}
