//! What a member shows of itself to checks, beside its state.

use alloc::sync::Arc;
use alloc::vec::Vec;

use overlay::Key;

use crate::message::Write;
use crate::record::Record;
use crate::spread::SpreadRead;
use crate::state::{Entry, GroupState};

/// What has happened since it was last asked for.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// Records that this member came to know as chosen.
    pub chosen: Vec<(Key, Arc<Record>)>,
    /// What its acceptor accepted.
    pub accepted: Vec<Write>,
    /// Entries of the log that were applied, in order. Where a whole state was taken over, what led to it is not among them.
    pub applied: Vec<Applied>,
    /// Reads that a switch sent to this member, and that it answered by itself.
    pub alone: Vec<SpreadRead>,
    /// The group's state is another one than when it was last durable and asked for.
    pub moved: bool,
}

/// One entry of the log, and what it did.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The state that it was applied to.
    pub before: GroupState,
    /// The entry.
    pub entry: Entry,
    /// The state after it.
    pub after: GroupState,
}
