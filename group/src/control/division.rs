//! Division of a group's range among primaries: which members can be primary, and when the leader divides anew (Harmony §7.6).

use alloc::vec::Vec;

use overlay::{NodeId, Point};

use crate::ballot::Term;
use crate::config::{AbleMember, Defect, DivisionView};
use crate::context::Facts;
use crate::control::leader::LeaderState;
use crate::control::liveness::Liveness;
use crate::control::load::Workload;
use crate::control::recovery::Recovery;
use crate::control::room::Room;
use crate::control::state::Entry;
use crate::data::operations::Primaries;
use crate::message::Parting;

/// Parts of a member that know which members can be primary.
pub(crate) struct Candidates<'a> {
    pub(crate) facts: Facts<'a>,
    pub(crate) liveness: &'a Liveness,
    pub(crate) recovery: &'a Recovery,
    pub(crate) room: &'a Room,
    pub(crate) primaries: &'a Primaries,
}

impl Candidates<'_> {
    /// Returns the members that can be primary, in order. A member without room for records serves only while no member has room, and a
    /// member that leaves for good only while no other member can.
    fn able(&self) -> Vec<NodeId> {
        let (facts, liveness) = (self.facts, self.liveness);
        let stays = |parting| parting == Parting::Stays;
        let is_here = |parting| !matches!(parting, Parting::Stops { .. });
        let doubts = self.recovery.doubts(facts.state.epoch);
        let able = |here: fn(Parting) -> bool| -> Vec<NodeId> {
            facts.state.nodes().into_iter().filter(|node| liveness.is_able(facts, doubts, *node, here)).collect()
        };
        let staying = able(stays);
        let has_room = |node: &NodeId| !self.room.is_out_of_room(facts, liveness, *node);
        let roomy: Vec<NodeId> = staying.iter().copied().filter(has_room).collect();
        match (roomy.is_empty(), staying.is_empty()) {
            (false, _) => roomy,
            (true, false) => staying,
            (true, true) => able(is_here),
        }
    }

    /// Returns whether this primary does not know, or does not want, its term, although it knows the division.
    fn is_stale(&self, node: NodeId, term: Term) -> bool {
        if node == self.facts.me {
            return !self.primaries.has_term(term);
        }
        self.liveness
            .recent_heartbeat(self.facts, node)
            .is_some_and(|heartbeat| heartbeat.applied >= term.slot() && !heartbeat.terms.contains(&term))
    }
}

impl LeaderState {
    /// Divides the range anew: at once where a primary is suspected, restarted or leaving, and by the policy when all is calm.
    pub(crate) fn divide(&self, candidates: &Candidates<'_>, workload: &Workload) -> Option<Entry> {
        let (facts, liveness) = (candidates.facts, candidates.liveness);
        if candidates.recovery.doubts(facts.state.epoch) {
            return None; // The epoch is to end, and a member in doubt would serve nothing.
        }
        let able = candidates.able();
        let division = &facts.state.division;
        let current: Vec<(Point, NodeId)> = division.iter().map(|part| (part.start, part.node)).collect();
        let stays = division.iter().filter(|part| !candidates.is_stale(part.node, part.term));
        let kept: Vec<Term> = stays.map(|part| part.term).collect();
        let unchanged = self.unchanged_for(facts.now);
        let (calm, rested) = (unchanged >= facts.config.timing.calm, unchanged >= facts.config.timing.rested);
        let able: Vec<AbleMember> =
            able.into_iter().map(|node| self.able_member(facts, liveness, workload, node)).collect();
        let load = if calm { workload.load(facts, liveness) } else { None };
        let (range, load) = (facts.state.range, load.as_deref());
        let policies = &facts.state.settings.policies;
        let view = DivisionView { range, current: &current, able: &able, policies, load, calm, rested };
        let proposed = (facts.config.divide)(&view);
        if kept.len() == current.len() && proposed.is_none() {
            return None;
        }
        let parts = proposed.unwrap_or(current);
        let kept = if facts.config.defects.has(Defect::BallotReuse) {
            division.iter().map(|part| part.term).collect()
        } else {
            kept
        };
        Some(Entry::Division { parts, kept })
    }

    /// Returns a member that can be primary, as the policy sees it.
    fn able_member(&self, facts: Facts<'_>, liveness: &Liveness, workload: &Workload, node: NodeId) -> AbleMember {
        let age = liveness.age_of(facts, node);
        let voted = self.voted_for(node, facts.now);
        let settled = voted.map_or(age, |voted| voted.min(age));
        let (residual, agreement) = (self.expected_life(node), self.agreement_of(node));
        AbleMember { node, age, settled, residual, capacity: workload.capacities.believed(node), agreement }
    }
}
