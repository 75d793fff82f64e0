//! All committees of an acceptor, and whether any of them may have changed: most inputs concern none of them, and there may be many.

use alloc::collections::BTreeMap;
use core::ops::{Deref, DerefMut};

use crate::ballot::TermBallot;
use crate::data::acceptor::window::Committee;

/// The committees by ballot. Mutable access to them counts as a change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Committees {
    map: BTreeMap<TermBallot, Committee>,
    /// Whether a committee may have changed since the last flush.
    unflushed: bool,
    /// Whether a committee may have changed since the last question whether any became complete.
    unasked: bool,
}

impl Committees {
    /// Returns the committees for a flush, where there may be a change to flush.
    pub(crate) fn take_unflushed(&mut self) -> Option<&mut BTreeMap<TermBallot, Committee>> {
        core::mem::take(&mut self.unflushed).then_some(&mut self.map)
    }

    /// Returns the same as [`Committees::take_completeness_changed`], and leaves the flag set.
    pub(crate) fn completeness_changed(&self) -> bool {
        self.unasked && self.map.values().any(Committee::completeness_changed)
    }

    /// Returns whether a committee may have become complete, or incomplete, since the last call.
    pub(crate) fn take_completeness_changed(&mut self) -> bool {
        let mut changed = false;
        if core::mem::take(&mut self.unasked) {
            for committee in self.map.values_mut() {
                changed |= committee.take_completeness_changed();
            }
        }
        changed
    }
}

impl Deref for Committees {
    type Target = BTreeMap<TermBallot, Committee>;

    fn deref(&self) -> &Self::Target {
        &self.map
    }
}

impl DerefMut for Committees {
    fn deref_mut(&mut self) -> &mut Self::Target {
        (self.unflushed, self.unasked) = (true, true);
        &mut self.map
    }
}

impl FromIterator<(TermBallot, Committee)> for Committees {
    fn from_iter<I: IntoIterator<Item = (TermBallot, Committee)>>(committees: I) -> Committees {
        Committees { map: committees.into_iter().collect(), unflushed: true, unasked: true }
    }
}
