//! Effects of faults that can be undone, and the faults that last.

use std::collections::BTreeMap;

use crate::sim::machine::Return;

/// Effect of a fault that can be undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::sim) enum Undo {
    /// Blocked directions.
    Unblock(Vec<(usize, usize)>),
    Thaw {
        host: usize,
        asleep: bool,
    },
    Restart(Vec<usize>, Return),
    /// The process was asked to stop, in this life. Whether it has stopped or not, it starts again.
    Stopped(usize, u32),
    Quiet,
    Lossless(usize),
    Quick,
    RightClock(usize),
    DiskFree(usize),
    SwitchReplaced,
    SwitchMended(usize),
    Attended,
}

/// The faults that last at this moment.
#[derive(Debug, Default)]
pub struct ActiveFaults {
    undo: BTreeMap<usize, Undo>,
    next: usize,
}

impl ActiveFaults {
    /// Keeps a fault's effect until it is undone, and returns its number.
    pub(super) fn keep(&mut self, undo: Undo) -> usize {
        self.next += 1;
        self.undo.insert(self.next, undo);
        self.next
    }

    /// Takes the effect of a fault, if it still lasts.
    pub(super) fn take(&mut self, id: usize) -> Option<Undo> {
        self.undo.remove(&id)
    }

    /// Takes the effects of all faults, in the order in which they began.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Undo> + use<> {
        std::mem::take(&mut self.undo).into_values()
    }
}
