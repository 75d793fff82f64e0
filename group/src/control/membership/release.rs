//! Notice to a node that its group has released it.
//!
//! A node that is neither a member nor a learner, and that recovery asks no more, drops its part in the group as soon as it sees the state
//! with its release. After that, no member in doubt can ask it for the acknowledgements that this member made to it
//! ([`crate::control::recovery::crash_recovery`]). A member with a store that does not show the release would wait for its answer for ever.
//!
//! Therefore a node is told only when a majority of the members hold the release durably. A member that then forgets the last entry in its
//! store learns it again from another member. Until then the node keeps its data, and answers. The last state of a group that has ended is
//! sent at once: its end was chosen behind all of that, and its successors have states of their own.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use overlay::NodeId;

use crate::ballot::LogSlot;
use crate::config::Defect;
use crate::context::Context;
use crate::control::leader::LeaderState;
use crate::control::state::GroupState;
use crate::message::Message;

/// Upper limit of waiting nodes. A node beyond it is told when it sends its next message.
const WAITING_MAX: usize = 64;

/// Nodes that the group has released and that do not know it yet.
#[derive(Clone, Debug)]
pub(crate) struct Releases {
    /// Slot of the last release, or a later one.
    at: LogSlot,
    waiting: BTreeSet<NodeId>,
}

impl Releases {
    /// Creates an empty list. `applied`: the last slot of the agreed state.
    pub(crate) fn new(applied: LogSlot) -> Releases {
        Releases { at: applied, waiting: BTreeSet::new() }
    }
}

impl LeaderState {
    /// Notes the slot of the state, which came after `before`, if the state has released a node. To be called before this state is sent to
    /// any node. If the state is several slots later, a node may have come and gone in between.
    pub(crate) fn note_released(&mut self, before: &GroupState, state: &GroupState) {
        let jumps = state.applied > before.applied.next();
        if jumps || before.audience().into_iter().any(|node| !state.is_in_audience(node)) {
            self.releases.at = state.applied;
            // Usually the leader tells the node, and waits for the progress of members. Other members report it with the next heartbeat.
            self.on_awaited();
        }
    }

    /// Tells newcomers that they are admitted, every node that a new epoch has begun, and released nodes that they are released: none of
    /// them need find out by itself.
    pub(crate) fn tell_change(&mut self, ctx: &mut Context<'_>, before: &GroupState) {
        let (now, then) = (ctx.state.audience(), before.audience());
        // After the group's end no member tells them which entries are chosen.
        let mut told: Vec<NodeId> = if ctx.state.epoch == before.epoch && ctx.state.ended.is_none() {
            now.iter().copied().filter(|node| !then.contains(node)).collect()
        } else {
            now.clone()
        };
        told.extend(then.iter().copied().filter(|node| !now.contains(node)));
        told.retain(|node| *node != ctx.me);
        if !told.is_empty() {
            self.tell_state(ctx, &told);
        }
    }

    /// Sends the state to these nodes; to those that the group released when it is time.
    pub(crate) fn tell_state(&mut self, ctx: &mut Context<'_>, to: &[NodeId]) {
        let (audience, me) = (ctx.state.audience(), ctx.me);
        let is_released = |node: &NodeId| audience.contains(&me) && !audience.contains(node);
        let (released, others): (Vec<NodeId>, Vec<NodeId>) = to.iter().copied().partition(is_released);
        ctx.out.send(&others, Message::State(Box::new(ctx.state.clone())));
        if !released.is_empty() {
            self.await_release(ctx, released);
        }
    }

    /// Takes nodes to be told that the group has released them, at once or when it is time.
    fn await_release(&mut self, ctx: &mut Context<'_>, nodes: Vec<NodeId>) {
        let waiting = &mut self.releases.waiting;
        let room = WAITING_MAX.saturating_sub(waiting.len());
        waiting.extend(nodes.into_iter().take(room));
        self.tell_released(ctx);
    }

    /// Tells the waiting nodes, once a majority of the members, this one included if it is one, hold the state durably; of the end of the
    /// group at once.
    pub(crate) fn tell_released(&mut self, ctx: &mut Context<'_>) {
        let Releases { at, waiting } = &self.releases;
        if waiting.is_empty() {
            return;
        }
        let (members, me) = (ctx.state.nodes(), ctx.me);
        let holds = |node: &&NodeId| **node == me || self.knows(**node, *at);
        let is_held = || members.iter().filter(holds).count() > members.len() / 2;
        if ctx.state.ended.is_none() && !ctx.config.defects.has(Defect::ReleaseEarly) && !is_held() {
            return;
        }
        let mut waiting: Vec<NodeId> = core::mem::take(&mut self.releases.waiting).into_iter().collect();
        waiting.retain(|node| !ctx.state.is_in_audience(*node));
        if !waiting.is_empty() {
            ctx.out.send_after(&waiting, Message::State(ctx.state.clone().into()));
        }
    }
}
