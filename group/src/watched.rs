//! Events of a member for checks, beside its state.

use alloc::sync::Arc;
use alloc::vec::Vec;

use overlay::Key;

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
