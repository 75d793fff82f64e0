//! Events of a member for checks, beside its state.

use alloc::sync::Arc;
use alloc::vec::Vec;

use overlay::{Epoch, Key};

use crate::ballot::LogSlot;
use crate::control::state::{Entry, GroupState};
use crate::harmonia::read_scheduler::SpreadRead;
use crate::message::Write;
use crate::record::Record;

/// Events since the last request for them.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// Records that this member learned to be chosen.
    pub chosen: Vec<(Key, Arc<Record>)>,
    /// Writes that its acceptor accepted.
    pub accepted: Vec<Write>,
    /// Entries of the log that were applied, in order. Where a whole state was taken over, the entries that led to it are missing.
    pub applied: Vec<Applied>,
    /// Reads that a switch sent to this member, and that it answered by itself.
    pub alone: Vec<SpreadRead>,
    /// Whether the group's state has changed since the last request at which everything was durable.
    pub moved: bool,
}

/// Entry of the log with its effect.
#[derive(Clone, Debug)]
pub struct Applied {
    /// State before the entry.
    pub before: GroupState,
    /// The entry.
    pub entry: Entry,
    /// State after the entry.
    pub after: GroupState,
}

/// Events of the log at one member, for checks.
#[derive(Clone, Debug, Default)]
pub(crate) struct AppliedEvents {
    /// Entries since the last request for them; `None` before the first.
    entries: Option<Vec<Applied>>,
    /// Birth and last slot of the state at the last request at which everything was durable.
    seen: Option<(Epoch, LogSlot)>,
}

impl AppliedEvents {
    /// Notes an entry that was applied.
    pub(crate) fn note(&mut self, before: &GroupState, entry: Entry, after: &GroupState) {
        if let Some(entries) = &mut self.entries {
            entries.push(Applied { before: before.clone(), entry, after: after.clone() });
        }
    }

    /// Takes the entries that were applied since the last call.
    pub(crate) fn take(&mut self) -> Vec<Applied> {
        self.entries.replace(Vec::new()).unwrap_or_default()
    }

    /// Returns whether the state is another one than at the last call.
    pub(crate) fn has_moved(&mut self, state: &GroupState) -> bool {
        let now = (state.born, state.applied);
        self.seen.replace(now) != Some(now)
    }
}
