//! A node that notes the times of its group's changes while it leads.

use std::collections::BTreeMap;
use std::time::Duration;

use group::control::state::GroupState;
use node::{Event, Input, Node, NodeConfig, Output, Restored};
use overlay::time::{Now, Time};
use overlay::{Epoch, GroupId, NodeId};

use crate::checkers::{Observation, Scope};
use crate::sim::Host;

/// A change of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::experiment) enum Change {
    /// Members are removed.
    Failure,
    /// A newcomer becomes a learner, and later a member: both decisions together, without the time that the newcomer copies.
    Join,
    /// One group becomes two.
    Split,
    /// Two groups become one.
    Merge,
    /// The boundary between two groups moves.
    Repartition,
}

impl Change {
    /// The changes of the paper's table, in its order.
    pub const ALL: [Change; 4] = [Change::Failure, Change::Join, Change::Split, Change::Merge];

    /// Returns the word for it.
    pub fn name(self) -> &'static str {
        match self {
            Change::Failure => "failure",
            Change::Join => "join",
            Change::Split => "split",
            Change::Merge => "merge",
            Change::Repartition => "repartition",
        }
    }
}

/// A proposal of the leader that is not decided yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proposal {
    Learners,
    Next,
    Transaction(Change),
}

/// The words with which a leader notes a proposal (`Display` of `group::control::state::Entry`).
const PROPOSES: &str = "leads the group, and proposes ";
const PROPOSALS: [(&str, Proposal); 5] = [
    ("to take in ", Proposal::Learners),
    ("these members from now on:", Proposal::Next),
    ("to split", Proposal::Transaction(Change::Split)),
    ("to merge", Proposal::Transaction(Change::Merge)),
    ("to repartition", Proposal::Transaction(Change::Repartition)),
];

/// The parts of a group's state by which a decided change shows.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownState {
    id: GroupId,
    born: Epoch,
    epoch: Epoch,
    members: Vec<NodeId>,
    learners: Vec<NodeId>,
    is_calm: bool,
    has_ended: bool,
}

impl KnownState {
    fn of(state: &GroupState) -> KnownState {
        KnownState {
            id: state.id,
            born: state.born,
            epoch: state.epoch,
            members: state.nodes(),
            learners: state.learners.iter().map(|learner| learner.node).collect(),
            is_calm: state.transactions.is_calm(),
            has_ended: state.ended.is_some(),
        }
    }

    /// Returns whether nothing has changed of this.
    fn is_of(&self, state: &GroupState) -> bool {
        (self.id, self.born, self.epoch) == (state.id, state.born, state.epoch)
            && self.learners.iter().eq(state.learners.iter().map(|learner| &learner.node))
            && (self.is_calm, self.has_ended) == (state.transactions.is_calm(), state.ended.is_some())
    }
}

/// A node, and the changes that it saw as the leader.
pub(in crate::experiment) struct Timed {
    node: Node,
    now: Time,
    known: Option<KnownState>,
    begun: Option<(Proposal, Time)>,
    /// Times that it took to decide that these nodes learn.
    learners: BTreeMap<NodeId, Duration>,
    changes: Vec<(Change, Duration)>,
}

impl Timed {
    /// Returns the node.
    pub(in crate::experiment) fn node(&self) -> &Node {
        &self.node
    }

    /// Returns the changes, each with the time from its proposal until the leader knew that it was decided.
    pub(in crate::experiment) fn changes(&self) -> &[(Change, Duration)] {
        &self.changes
    }

    /// Returns the time of the open proposal by which this leader begins a change.
    pub(in crate::experiment) fn begun(&self) -> Option<Time> {
        self.begun.map(|(_, since)| since)
    }

    /// Compares the node's group with its former state. A leader of an epoch need not lead the next one.
    fn look(&mut self) {
        let group = self.node.group();
        let leads = group.is_some_and(|group| group.log().leads());
        let state = group.map(group::Group::state);
        if state.is_some_and(|state| self.known.as_ref().is_some_and(|known| known.is_of(state))) {
            self.begun = self.begun.filter(|_| leads);
            return;
        }
        // Between two groups a node is in none.
        let Some(after) = state.map(KnownState::of) else { return };
        if let (Some(before), Some((proposal, since))) = (self.known.take(), self.begun) {
            self.compare(proposal, &before, &after, self.now.since(since));
        }
        self.known = Some(after);
    }

    fn compare(&mut self, proposal: Proposal, before: &KnownState, after: &KnownState, took: Duration) {
        match proposal {
            Proposal::Learners | Proposal::Next => self.decided(proposal, before, after, took),
            // The coordinator's group has ended, or become another.
            Proposal::Transaction(change) if after.has_ended || (after.id, after.born) != (before.id, before.born) => {
                self.changes.push((change, took));
                self.begun = None;
            }
            Proposal::Transaction(_) if !before.is_calm && after.is_calm => self.begun = None,
            Proposal::Transaction(_) => {}
        }
    }

    fn decided(&mut self, proposal: Proposal, before: &KnownState, after: &KnownState, took: Duration) {
        if proposal == Proposal::Learners && after.learners != before.learners {
            let new = after.learners.iter().filter(|learner| !before.learners.contains(learner));
            self.learners.extend(new.map(|learner| (*learner, took)));
            self.begun = None;
        }
        if proposal == Proposal::Next && after.epoch > before.epoch {
            let joined: Vec<&NodeId> = after.members.iter().filter(|member| !before.members.contains(member)).collect();
            let joins = joined.iter().filter_map(|member| self.learners.remove(member));
            self.changes.extend(joins.map(|learned| (Change::Join, learned + took)));
            if joined.is_empty() {
                self.changes.push((Change::Failure, took));
            }
            self.begun = None;
        }
    }
}

impl Host for Timed {
    fn start(config: NodeConfig, seed: u64, now: Now, restored: Restored) -> Timed {
        let node = Node::new(config, seed, now, restored);
        let (learners, changes) = Default::default();
        Timed { node, now: now.time, known: None, begun: None, learners, changes }
    }

    fn handle(&mut self, now: Now, input: Input) {
        self.now = now.time;
        self.node.handle(now, input);
        self.look();
    }

    fn poll_output(&mut self) -> Option<Output> {
        let output = self.node.poll_output();
        if let Some(Output::Event(Event::Note(text))) = &output
            && let Some((_, entry)) = text.split_once(PROPOSES)
            && let Some((_, proposal)) = PROPOSALS.iter().find(|(words, _)| entry.starts_with(words))
        {
            self.begun = Some((*proposal, self.now));
        }
        output
    }

    fn observe(&mut self, scope: Scope, show: &mut dyn FnMut(Observation)) {
        Host::observe(&mut self.node, scope, show);
    }

    fn describe(&self) -> String {
        Host::describe(&self.node)
    }

    fn holds(&self, record_key: &[u8]) -> bool {
        Host::holds(&self.node, record_key)
    }

    fn is_whole(&self) -> bool {
        Host::is_whole(&self.node)
    }

    fn node(&self) -> Option<NodeId> {
        Host::node(&self.node)
    }
}
