//! Capacity of members in operations a second: their own reports, the operations that this member saw each of them execute, and the
//! capacity that its node believes from both (Scatter §6.3: load is balanced by nodes' capacities).

use alloc::collections::BTreeMap;
use core::time::Duration;

use overlay::NodeId;

use crate::ballot::TermBallot;
use crate::context::Facts;
use crate::control::health::LivingMember;
use crate::control::liveness::Liveness;
use crate::control::state::{Assignment, GroupState};
use crate::message::CommitteeMessage;
use overlay::time::Time;

/// Upper limit of a capacity in a heartbeat, in operations a second.
pub const CAPACITY_MAX: u32 = 1 << 24;
/// Minimum window for counting rates: a short burst shows little of a machine's capacity.
const WINDOW: Duration = Duration::from_secs(10);

/// Returns whether an honest member can have reported this capacity.
pub(crate) fn is_sound(capacity: u32) -> bool {
    (1..=CAPACITY_MAX).contains(&capacity)
}

/// Capacity of a member that the node uses for decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Believed {
    /// Operations a second.
    pub ops_per_s: u32,
    /// Ratio to the median member, in quarters: 4 for a typical member.
    pub quarters: u16,
}

/// Operations that one primary was seen to execute.
#[derive(Clone, Copy, Debug)]
struct ObservedWork {
    /// Operations since the window began.
    count: u64,
    since: Time,
    /// Highest rate of any window, in operations a second.
    most: u32,
}

impl ObservedWork {
    fn new(now: Time) -> ObservedWork {
        ObservedWork { count: 0, since: now, most: 0 }
    }

    /// Ends the window if it is long enough.
    fn fold(&mut self, now: Time) {
        let lasts = now.since(self.since);
        if lasts >= WINDOW {
            let rate = u128::from(core::mem::take(&mut self.count)) * 1_000 / lasts.as_millis();
            self.most = self.most.max(u32::try_from(rate).unwrap_or(u32::MAX));
            self.since = now;
        }
    }
}

/// Knowledge of this member about capacities. Each member keeps these notes, since any may come to lead.
#[derive(Clone, Debug, Default)]
pub(crate) struct Capacities {
    /// Capacity of this node, as it reports it.
    pub(crate) own: Option<u32>,
    seen: BTreeMap<NodeId, ObservedWork>,
    /// Highest write number and last confirmation of each ballot: repeated messages do not count.
    marks: BTreeMap<TermBallot, (u64, u64)>,
    /// Capacities that the node uses for decisions; empty where too little is known.
    believed: BTreeMap<NodeId, Believed>,
    /// Operations of other primaries in which this member has taken part since the start.
    assisted: u64,
    /// Operations that this node had executed as a primary at the last count.
    executed: u64,
}

impl Capacities {
    /// Counts the writes of these numbers, if the primary of this ballot had not sent them before.
    fn see_writes(&mut self, ballot: TermBallot, numbers: impl Iterator<Item = u64> + Clone, now: Time) {
        let (highest, _) = self.marks.entry(ballot).or_default();
        let new = numbers.clone().filter(|number| *number > *highest).count() as u64;
        *highest = numbers.fold(*highest, u64::max);
        self.count(ballot.node, new, now);
    }

    /// Counts a confirmation of reads, which stands for one read at least.
    fn see_confirmation(&mut self, ballot: TermBallot, attempt: u64, now: Time) {
        let (_, last) = self.marks.entry(ballot).or_default();
        let is_new = attempt > *last;
        *last = attempt.max(*last);
        self.count(ballot.node, is_new.into(), now);
    }

    fn count(&mut self, primary: NodeId, new: u64, now: Time) {
        self.seen.entry(primary).or_insert(ObservedWork::new(now)).count += new;
        self.assisted += new;
    }

    /// Counts the operations that this node has executed as a primary since the start, and ends windows that are long enough.
    pub(crate) fn fold(&mut self, me: NodeId, executed: u64, now: Time) {
        let new = executed.saturating_sub(core::mem::replace(&mut self.executed, executed));
        self.seen.entry(me).or_insert(ObservedWork::new(now)).count += new;
        self.seen.values_mut().for_each(|seen| seen.fold(now));
    }

    /// Forgets ballots of former divisions.
    pub(crate) fn keep_ballots(&mut self, is_granted: impl Fn(TermBallot) -> bool) {
        self.marks.retain(|ballot, _| is_granted(*ballot));
    }

    /// Forgets all nodes but these.
    pub(crate) fn keep(&mut self, nodes: &[NodeId]) {
        self.seen.retain(|node, _| nodes.contains(node));
        self.believed.retain(|node, _| nodes.contains(node));
    }

    /// Sets how many operations a second this node can execute, for its heartbeats; `None` where unknown. More than [`CAPACITY_MAX`] counts
    /// as that, and 0 as 1.
    pub(crate) fn set_own(&mut self, ops_per_s: Option<u32>) {
        self.own = ops_per_s.map(|capacity| capacity.clamp(1, CAPACITY_MAX));
    }

    /// Returns the operations a second that a member reported it can execute; `None` where its last heartbeat has no such report.
    pub(crate) fn told(&self, me: NodeId, liveness: &Liveness, node: NodeId) -> Option<u32> {
        match node == me {
            true => self.own,
            false => liveness.failure_detector.last_heartbeat(node)?.capacity,
        }
    }

    /// Returns the highest rate, in operations a second on the average of ten seconds, at which this member saw a member execute as a
    /// primary: writes that it was sent, and confirmations of reads, each of which may stand for several.
    pub(crate) fn most_seen(&self, node: NodeId) -> u32 {
        self.seen.get(&node).map_or(0, |seen| seen.most)
    }

    /// Sets the members' capacities for decisions. Replaces earlier ones; empty where too little is known.
    pub(crate) fn expect(&mut self, believed: BTreeMap<NodeId, Believed>) {
        self.believed = believed;
    }

    /// Returns a member's capacity for this node's decisions; `None` where too little is known.
    pub(crate) fn believed(&self, node: NodeId) -> Option<Believed> {
        self.believed.get(&node).copied()
    }

    /// Returns the operations a second that these members can execute together; `None` where the capacity of one of them is not known.
    pub(crate) fn of(&self, living: &[LivingMember]) -> Option<u32> {
        let of = |node| self.believed(node).map(|believed| u64::from(believed.ops_per_s));
        let all = living.iter().map(|member| of(member.node));
        all.sum::<Option<u64>>().map(|sum| u32::try_from(sum).unwrap_or(u32::MAX))
    }

    /// Returns the operations of other primaries in which this member has taken part since its start: writes that it was sent, and reads
    /// that it confirmed.
    pub(crate) fn assisted(&self) -> u64 {
        self.assisted
    }

    /// Counts operations of a primary, if the agreed division has that primary.
    pub(crate) fn see_primary(&mut self, facts: Facts<'_>, message: &CommitteeMessage) {
        let ballot = message.ballot();
        if ballot.node == facts.me || !is_granted(facts.state, ballot) {
            return;
        }
        match message {
            CommitteeMessage::Accept { writes, .. } => {
                let numbers = writes.iter().map(|write| write.record.number.n);
                self.see_writes(ballot, numbers, facts.now);
            }
            CommitteeMessage::Confirm { attempt, .. } => self.see_confirmation(ballot, *attempt, facts.now),
            _ => {}
        }
    }
}

/// Returns whether the agreed division has the primary of this ballot.
pub(crate) fn is_granted(state: &GroupState, ballot: TermBallot) -> bool {
    let is_of = |part: &Assignment| part.term == ballot.term && part.node == ballot.node;
    ballot.epoch == state.epoch && state.division.iter().any(is_of)
}

#[cfg(test)]
mod tests {
    use overlay::{Epoch, Incarnation, PeerKey};

    use super::*;
    use crate::ballot::Term;

    fn node(n: u8) -> NodeId {
        NodeId { peer: PeerKey([n; 32]), incarnation: Incarnation(1) }
    }

    fn ballot(n: u8) -> TermBallot {
        TermBallot { epoch: Epoch(1), term: Term(1), node: node(n) }
    }

    fn at(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    /// Repeated messages show nothing new, and a short burst counts over ten seconds.
    #[test]
    fn each_operation_is_seen_once() {
        let mut known = Capacities::default();
        (0..50).for_each(|_| known.see_writes(ballot(2), 1..101, at(0)));
        [4, 4, 5, 4].into_iter().for_each(|attempt| known.see_confirmation(ballot(2), attempt, at(2)));
        known.fold(node(1), 30, at(9));
        assert_eq!(known.seen[&node(2)].most, 0);
        known.fold(node(1), 230, at(10));
        known.fold(node(1), 230, at(20));
        assert_eq!((known.assisted, known.seen[&node(2)].most, known.seen[&node(1)].most), (102, 10, 20));
        known.fold(node(1), 230, at(40));
        assert_eq!(known.seen[&node(2)].most, 10, "the most is remembered");
        known.keep_ballots(|_| false);
        assert!(known.marks.is_empty());
    }
}
