//! Contradictions: a peer sends a message that cannot be true together with a value that this member accepted before.
//!
//! No honest peer does so. A peer with a store that went back in time does, and so do two processes with one identity,
//! and liars. A contradiction is found before it changes anything, and the value that was accepted first stays.
//!
//! - It contradicts a value that was *accepted*: this member ignores the sender's ballot from then on. The other
//!   members decide without this member's vote, or the group grants a new term.
//! - It contradicts a value that is *chosen*: two quorums decided differently, so the group has forked. This member
//!   stops serving its group, and reports so ([`GroupOutput::Halted`]).
//!
//! Simulation and tests set [`GroupConfig::fatal_contradictions`](crate::config::GroupConfig::fatal_contradictions):
//! there all peers are honest, so a contradiction is a defect of this program, and panics.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use core::fmt;

use overlay::NodeId;

use crate::context::Context;
use crate::outbox::GroupOutput;
use crate::record::Record;
use crate::validate::Violation;

/// Upper limit of ignored ballots. Beyond it the lowest are forgotten: newer promises stand against them.
const DISOWNED_MAX: usize = 64;

/// Value that a message contradicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contradicts {
    /// A value that this member accepted and does not know to be chosen.
    Accepted,
    /// A value that this member knows to be chosen.
    Chosen,
}

/// Ballots with owners that contradicted themselves.
#[derive(Clone, Debug)]
pub(crate) struct Disowned<B>(BTreeSet<B>);

impl<B> Default for Disowned<B> {
    fn default() -> Disowned<B> {
        Disowned(BTreeSet::new())
    }
}

impl<B: Ord> Disowned<B> {
    /// Returns whether this ballot is ignored.
    pub(crate) fn has(&self, ballot: &B) -> bool {
        !self.0.is_empty() && self.0.contains(ballot)
    }

    /// Ignores this ballot from now on.
    pub(crate) fn add(&mut self, ballot: B) {
        self.0.insert(ballot);
        if self.0.len() > DISOWNED_MAX {
            self.0.pop_first();
        }
    }
}

/// Handles one contradiction by `from`; `what` completes the sentence "this peer …".
///
/// # Panics
/// Where contradictions are fatal.
pub(crate) fn contradiction(ctx: &mut Context<'_>, of: Contradicts, from: NodeId, what: fmt::Arguments<'_>) {
    assert!(!ctx.config.fatal_contradictions, "{from:?} {what}, against what is {of:?}");
    ctx.dropped.note(Violation::Contradiction);
    let who = ctx.state.called(from);
    match of {
        Contradicts::Accepted => {
            let note = alloc::format!(
                "{who} {what}: this peer keeps what it accepted first, and ignores that ballot. Is the store of \
                 {who} an old copy, or does a second process run with its identity?"
            );
            ctx.out.push(GroupOutput::Note(note.into()));
        }
        Contradicts::Chosen => {
            let why: Box<str> = alloc::format!(
                "{who} {what}, but this peer knows another value to be chosen: the group has decided twice. Is the \
                 store of a member an old copy, or does a second process run with a member's identity?"
            )
            .into();
            ctx.out.halt(why);
        }
    }
}

/// Returns whether both are one chosen state of a key. The operations that a record remembers are left out: older ids
/// may be forgotten.
pub(crate) fn is_same_value(one: &Record, other: &Record) -> bool {
    one.version == other.version && one.kind == other.kind && one.deadline == other.deadline && one.value == other.value
}
