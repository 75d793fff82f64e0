//! Context that every part of a group may read and write while it handles one input, and the facts that questions rest on.

use overlay::{Epoch, NodeId};

use crate::config::GroupConfig;
use crate::control::state::GroupState;
use crate::outbox::Outbox;
use crate::validate::Dropped;
use overlay::rng::Rng;
use overlay::time::{Now, Time};

/// State of the group and its outputs, handed down by [`crate::Group`].
pub struct Context<'a> {
    /// This node.
    pub me: NodeId,
    /// The time.
    pub now: Now,
    /// The group's agreed state.
    pub state: &'a GroupState,
    /// Configuration of this node.
    pub config: &'a GroupConfig,
    /// Receives the outputs.
    pub out: &'a mut Outbox,
    /// Source of random numbers.
    pub rng: &'a mut Rng,
    /// Last epoch in which this node may have forgotten acknowledgements; [`Epoch`] 0: none.
    pub doubt: Epoch,
    /// Counts dropped messages.
    pub dropped: &'a mut Dropped,
}

/// Facts that questions to the parts of a group rest on. The answers change nothing.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'a> {
    /// This node.
    pub(crate) me: NodeId,
    /// The time.
    pub(crate) now: Time,
    /// The group's agreed state.
    pub(crate) state: &'a GroupState,
    /// Configuration of this node.
    pub(crate) config: &'a GroupConfig,
}

impl<'a> Context<'a> {
    /// Returns the facts for questions.
    pub(crate) fn facts(&self) -> Facts<'a> {
        Facts { me: self.me, now: self.now.time, state: self.state, config: self.config }
    }

    /// Returns all members but this node.
    pub fn others(&self) -> alloc::vec::Vec<NodeId> {
        self.state.members.iter().map(|member| member.node).filter(|node| *node != self.me).collect()
    }
}
