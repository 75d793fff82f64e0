//! What every part of a group may look at and write to while it handles one input.

use overlay::{Epoch, NodeId};

use crate::config::GroupConfig;
use crate::nonsense::Dropped;
use crate::outbox::Outbox;
use crate::rng::Rng;
use crate::state::GroupState;
use crate::time::Now;

/// Handed down by [`crate::Group`].
pub struct Context<'a> {
    /// This node.
    pub me: NodeId,
    /// The time.
    pub now: Now,
    /// The group's agreed state.
    pub state: &'a GroupState,
    /// This node's choices.
    pub config: &'a GroupConfig,
    /// Where outputs go.
    pub out: &'a mut Outbox,
    /// Chance.
    pub rng: &'a mut Rng,
    /// This node's word is in doubt about epochs up to this one; [`Epoch`] 0: about none.
    pub doubt: Epoch,
    /// What was dropped is counted here.
    pub dropped: &'a mut Dropped,
}

impl Context<'_> {
    /// All members but this node.
    pub fn others(&self) -> alloc::vec::Vec<NodeId> {
        self.state.members.iter().map(|member| member.node).filter(|node| *node != self.me).collect()
    }
}
