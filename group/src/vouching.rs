//! Has this node's store everything that it acknowledged? After a stop that did not seal the store, others are asked
//! before it votes again (§8 of the design; PITFALLS 1-3).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::time::Duration;

use overlay::{Epoch, KeyRange, NodeId};

use crate::ballot::{Ballot, Slot, TermBallot};
use crate::config::Defect;
use crate::group::{Group, context};
use crate::log::AHEAD_MAX;
use crate::message::{CommitteeMessage, LogMessage, Message, Vouch, VouchedCommittee};
use crate::outbox::GroupOutput;
use crate::time::Time;

/// With a quorum's answers in, others are waited for so long: the one whom this node acknowledged to may be slow.
const LINGER: Duration = Duration::from_millis(700);
/// Committees remembered of each node.
const COMMITTEES_MAX: usize = 32;

/// Nodes that are no longer told anything, and still remembered. Older lives of a peer go first.
const GONE_MAX: usize = 64;

/// Others being asked.
#[derive(Clone, Debug)]
pub struct Vouching {
    since: Time,
    asked: Option<Time>,
    answered: BTreeSet<NodeId>,
}

impl Vouching {
    /// Begins.
    pub fn new(now: Time) -> Vouching {
        Vouching { since: now, asked: None, answered: BTreeSet::new() }
    }
}

/// What others acknowledged to this node, in this run of it.
#[derive(Clone, Debug, Default)]
pub struct Acknowledgements {
    by_node: BTreeMap<NodeId, Acknowledged>,
}

#[derive(Clone, Debug, Default)]
struct Acknowledged {
    epoch: Epoch,
    promised: Option<Ballot>,
    accepted: Option<Slot>,
    committees: BTreeMap<TermBallot, VouchedCommittee>,
}

impl Acknowledgements {
    /// A message of the log came.
    pub fn on_log(&mut self, from: NodeId, epoch: Epoch, message: &LogMessage) {
        let (ballot, slot) = match message {
            LogMessage::Promise { ballot, .. } => (*ballot, None),
            LogMessage::Accepted { ballot, slots } => (*ballot, slots.iter().max().copied()),
            _ => return,
        };
        let known = self.by_node.entry(from).or_default();
        if known.epoch != epoch {
            (known.epoch, known.promised, known.accepted) = (epoch, None, None);
        }
        known.promised = known.promised.max(Some(ballot));
        known.accepted = known.accepted.max(slot);
    }

    /// A message to a primary of this node came.
    ///
    /// Beyond a limit the oldest is forgotten that is not `granted` any more: a term may be kept for long, and is the
    /// oldest of all then.
    pub fn on_committee(
        &mut self,
        from: NodeId,
        range: Option<KeyRange>,
        message: &CommitteeMessage,
        granted: impl Fn(TermBallot) -> bool,
    ) {
        let last = match message {
            CommitteeMessage::Promise { .. } | CommitteeMessage::BaseAccepted { .. } => 0,
            CommitteeMessage::Accepted { numbers, .. } => numbers.iter().map(|(_, last)| *last).max().unwrap_or(0),
            _ => return,
        };
        let Some(range) = range else { return };
        let known = self.by_node.entry(from).or_default();
        let ballot = message.ballot();
        let silent = VouchedCommittee { ballot, range, based: false, last: 0 };
        let entry = known.committees.entry(ballot).or_insert(silent);
        entry.last = entry.last.max(last);
        entry.based |= matches!(message, CommitteeMessage::BaseAccepted { .. });
        if known.committees.len() > COMMITTEES_MAX {
            let over = known.committees.keys().find(|ballot| !granted(**ballot)).copied();
            over.and_then(|ballot| known.committees.remove(&ballot));
        }
    }

    /// What these have acknowledged.
    pub fn of(&self, is_wanted: impl Fn(NodeId) -> bool) -> Acknowledgements {
        let wanted = self.by_node.iter().filter(|(node, _)| is_wanted(**node));
        Acknowledgements { by_node: wanted.map(|(node, known)| (*node, known.clone())).collect() }
    }

    /// Forgets who is gone, beyond some that may still ask: a node that is told nothing vouches for itself, but only in
    /// an epoch that is over for the others.
    pub fn keep(&mut self, audience: &[NodeId]) {
        let gone: Vec<NodeId> = self.by_node.keys().copied().filter(|node| !audience.contains(node)).collect();
        for node in gone.iter().take(gone.len().saturating_sub(GONE_MAX)) {
            self.by_node.remove(node);
        }
    }

    fn vouch(&self, node: NodeId, applied: Slot, epoch: Epoch) -> Vouch {
        match self.by_node.get(&node) {
            None => Vouch::silent(applied, epoch),
            Some(known) => Vouch {
                applied,
                epoch: known.epoch,
                promised: known.promised,
                accepted: known.accepted,
                committees: known.committees.values().copied().collect(),
            },
        }
    }
}

impl Group {
    pub(crate) fn on_ask_vouch(&mut self, from: NodeId) {
        let vouch = self.acknowledgements.vouch(from, self.state.applied, self.state.epoch);
        self.out.send(&[from], Message::Vouch(vouch));
    }

    pub(crate) fn on_vouch(&mut self, from: NodeId, vouch: &Vouch) {
        let Some(vouching) = &mut self.vouching else { return };
        if !self.state.is_in_audience(from) {
            return;
        }
        vouching.answered.insert(from);
        // Another run of this process may have served under a term that this store does not know of.
        if vouch.applied.0 <= self.state.applied.0.saturating_add(AHEAD_MAX)
            && !self.config.defects.has(Defect::BallotReuse)
        {
            self.granted_before = self.granted_before.max(vouch.applied);
        }
        let log_holds = match vouch.epoch.cmp(&self.state.epoch) {
            // That epoch is over, whatever was promised in it.
            Ordering::Less => true,
            Ordering::Equal => {
                let held = |slot| slot <= self.state.applied || Some(slot) <= self.log.last_accepted();
                vouch.promised <= self.log.promised() && vouch.accepted.is_none_or(held)
            }
            // An epoch is made durable before anything is acknowledged in it: this store has lost all of it.
            Ordering::Greater => vouch.promised.is_none() && vouch.accepted.is_none(),
        };
        let holds = log_holds && self.acceptor.may_vouch(vouch);
        if !holds && !self.config.defects.has(Defect::Amnesia) {
            self.vouching = None;
            self.on_store_failed();
            self.out.push(GroupOutput::Lost("its store lacks something that it had acknowledged"));
            return;
        }
        self.tick_vouching();
    }

    pub(crate) fn tick_vouching(&mut self) {
        let Some(vouching) = &self.vouching else { return };
        // Whom recovery asks it may have acknowledged to, also where they are members no longer.
        let mut others: Vec<NodeId> =
            self.state.configs(self.state.range).into_iter().flat_map(|c| c.members).collect();
        let is_asked = others.contains(&self.me);
        others.retain(|node| *node != self.me);
        others.sort_unstable();
        others.dedup();
        let all = others.iter().all(|node| vouching.answered.contains(node));
        let lingered = self.now.time.since(vouching.since) >= LINGER;
        let answered = &vouching.answered;
        if all || (lingered && self.has_quorums(|node| answered.contains(&node))) || !is_asked {
            self.take_part();
            return;
        }
        let Some(vouching) = &mut self.vouching else { return };
        if vouching.asked.is_none_or(|asked| self.now.time.since(asked) >= self.config.timing.resend) {
            vouching.asked = Some(self.now.time);
            let ask: Vec<NodeId> = others.into_iter().filter(|node| !vouching.answered.contains(node)).collect();
            let ctx = context!(self);
            ctx.out.send(&ask, Message::AskVouch);
        }
    }

    /// This incarnation is over.
    pub(crate) fn failed_with(&mut self, why: &'static str) {
        self.on_store_failed();
        self.out.push(GroupOutput::Over(why));
    }
}

#[cfg(test)]
mod tests {
    use overlay::{Incarnation, PeerKey};

    use super::*;

    #[test]
    fn what_is_known_of_nodes_that_are_gone_is_bounded() {
        let node = |incarnation| NodeId { peer: PeerKey([1; 32]), incarnation: Incarnation(incarnation) };
        let mut known = Acknowledgements::default();
        for incarnation in 0..1000 {
            let ballot = Ballot { round: 7, node: node(incarnation) };
            let promise = LogMessage::Promise { ballot, state: None, accepted: Vec::new() };
            known.on_log(node(incarnation), Epoch(1), &promise);
        }
        known.keep(&[node(3), node(999)]);
        assert_eq!(known.by_node.len(), GONE_MAX + 2);
        assert!(known.vouch(node(3), Slot(1), Epoch(1)).promised.is_some(), "it is still told everything");
        assert!(known.vouch(node(998), Slot(1), Epoch(1)).promised.is_some(), "the last to go");
        assert!(known.vouch(node(4), Slot(1), Epoch(1)).promised.is_none());
    }
}
