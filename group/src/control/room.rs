//! Room for more records at one member: a member without room takes no clients' writes that need some, and the leader moves its sub-ranges
//! to a member with room.

use overlay::NodeId;

use crate::context::Facts;
use crate::control::liveness::Liveness;
use crate::control::recovery::Recovery;
use crate::data::table::Table;
use crate::message::Parting;
use crate::op::Limit;

/// Whether this member has room for more records.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    /// Limit that the store of this node has reached, if there is one.
    pub(crate) store_full: Option<Limit>,
    /// Whether the heartbeats report that this node has no room.
    told: bool,
    /// Whether another member has room: the leader moves this node's sub-ranges there.
    relieved: bool,
}

impl Room {
    /// Returns the limit because of which this member takes no writes, if there is one.
    pub(crate) fn limit(&self, table: &Table) -> Option<Limit> {
        if table.is_full() { Some(Limit::Memory) } else { self.store_full }
    }

    /// Returns whether the heartbeats report that this node has no room.
    pub(crate) fn is_told(&self) -> bool {
        self.told
    }

    /// Returns whether another member has room and takes over.
    pub(crate) fn is_relieved(&self) -> bool {
        self.relieved
    }

    /// Checks whether this node has room, and tells the other members at once where that has changed.
    pub(crate) fn watch(&mut self, facts: Facts<'_>, table: &Table, liveness: &mut Liveness, recovery: &Recovery) {
        let full = self.store_full.is_some() || if self.told { table.is_nearly_full() } else { table.is_full() };
        if core::mem::replace(&mut self.told, full) != full {
            liveness.hurry_heartbeat(facts.now);
        }
        self.relieved = full && self.has_relief(facts, liveness, recovery);
    }

    /// Returns whether another member has room, and can take over the sub-ranges of a primary that has none.
    fn has_relief(&self, facts: Facts<'_>, liveness: &Liveness, recovery: &Recovery) -> bool {
        let stays = |parting| parting == Parting::Stays;
        let doubts = recovery.doubts(facts.state.epoch);
        let nodes = facts.state.nodes().into_iter().filter(|node| *node != facts.me);
        nodes
            .into_iter()
            .any(|node| liveness.is_able(facts, doubts, node, stays) && !self.is_out_of_room(facts, liveness, node))
    }

    /// Returns whether this node has no room for more records, as it last reported.
    pub(crate) fn is_out_of_room(&self, facts: Facts<'_>, liveness: &Liveness, node: NodeId) -> bool {
        if node == facts.me {
            return self.told;
        }
        liveness.recent_heartbeat(facts, node).is_some_and(|heartbeat| heartbeat.full)
    }
}
