//! When a node learns that its group has let go of it.
//!
//! A node that is neither a member nor a learner, and that recovery asks no more, drops its part in the group as soon as it sees the
//! state that says so. After that, no member in doubt can ask it for what this member acknowledged to it ([`crate::vouching`]). A
//! member whose store does not show that the node was let go of would wait for its answer for ever.
//!
//! Therefore a node learns it only when a majority of the members hold it durably. Whichever member then forgets the last thing in its
//! store learns it again from another member. Until then the node keeps what it has, and answers. The last state of a group that has
//! ended is sent at once: its end was chosen behind all of that, and what came of it has states of its own.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use overlay::NodeId;

use crate::ballot::Slot;
use crate::config::Defect;
use crate::group::Group;
use crate::message::Message;
use crate::state::GroupState;

/// How many nodes may wait. A node beyond that is told when it sends its next message.
const WAITING_MAX: usize = 64;

/// The nodes that the group has let go of and that do not know it yet.
#[derive(Clone, Debug)]
pub(crate) struct LetGo {
    /// The slot that let go of a node last, or a later one.
    at: Slot,
    waiting: BTreeSet<NodeId>,
}

impl LetGo {
    /// Nobody waits. `applied`: the last slot of the agreed state.
    pub(crate) fn new(applied: Slot) -> LetGo {
        LetGo { at: applied, waiting: BTreeSet::new() }
    }
}

impl Group {
    /// Notes where the state, which came after `before`, has let go of a node. Before this state is sent to any node. Where it is of
    /// several slots later, a node may have come and gone in between.
    pub(crate) fn note_let_go(&mut self, before: &GroupState) {
        let jumps = self.state.applied > before.applied.next();
        if jumps || before.audience().into_iter().any(|node| !self.state.is_in_audience(node)) {
            self.duties.let_go.at = self.state.applied;
            // Mostly the leader tells the node, and waits for the progress of members. Others hear of it with the next heartbeat.
            self.duties.on_awaited();
        }
    }

    /// These nodes are to be told that the group has let go of them, at once or when it is time.
    pub(crate) fn await_let_go(&mut self, nodes: Vec<NodeId>) {
        let waiting = &mut self.duties.let_go.waiting;
        let room = WAITING_MAX.saturating_sub(waiting.len());
        waiting.extend(nodes.into_iter().take(room));
        self.tell_let_go();
    }

    /// Tells the nodes that wait, once a majority of the members, this one included if it is one, hold the state durably; of the end of
    /// the group at once.
    pub(crate) fn tell_let_go(&mut self) {
        let LetGo { at, waiting } = &self.duties.let_go;
        if waiting.is_empty() {
            return;
        }
        let members = self.state.nodes();
        let holds = |node: &&NodeId| **node == self.me || self.duties.knows(**node, *at);
        let is_held = || members.iter().filter(holds).count() > members.len() / 2;
        if self.state.ended.is_none() && !self.config.defects.has(Defect::LetGoEarly) && !is_held() {
            return;
        }
        let mut waiting: Vec<NodeId> = core::mem::take(&mut self.duties.let_go.waiting).into_iter().collect();
        waiting.retain(|node| !self.state.is_in_audience(*node));
        if !waiting.is_empty() {
            self.out.send_after(&waiting, Message::State(self.state.clone().into()));
        }
    }
}
