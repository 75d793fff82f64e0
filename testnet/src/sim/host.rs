//! What a simulated machine runs.

use group::agreed::AgreedPolicies;
use group::time::Now;
use node::{GroupStatus, Input, Node, NodeConfig, Output, Restored, Wish};
use overlay::{Epoch, GroupId, KeyRange, NodeId};

use crate::checkers::{Broken, Observation, Scope};

/// A group as one of its members knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// Which.
    pub id: GroupId,
    /// Its epoch.
    pub epoch: Epoch,
    /// What it owns.
    pub range: KeyRange,
    /// Whose range ends where this one starts.
    pub before: GroupId,
    /// Whose range starts where this one ends.
    pub behind: GroupId,
    /// The policies on which it agrees.
    pub policies: AgreedPolicies,
}

/// A node, or something that pretends to be one so that the harness itself can be tested.
pub trait Host: Sized {
    /// As [`Node::new`].
    fn start(config: NodeConfig, seed: u64, now: Now, restored: Restored) -> Self;

    /// As [`Node::handle`].
    fn handle(&mut self, now: Now, input: Input);

    /// As [`Node::poll_output`].
    fn poll_output(&mut self) -> Option<Output>;

    /// Shows its inside. The order of what is shown must not depend on anything but the state.
    fn observe(&mut self, scope: Scope, show: &mut dyn FnMut(Observation)) {
        let _ = (scope, show);
    }

    /// Whether it leads a group.
    fn leads(&self) -> bool {
        false
    }

    /// Ends its group's epoch, whoever leads.
    fn stop_epoch(&mut self) {}

    /// Has its group become another by a transaction, if it leads; says whether that has begun.
    fn reform(&mut self, chance: u64) -> bool {
        let _ = chance;
        false
    }

    /// What has its group take over all that lies before it, which is declared lost.
    fn repair(&self) -> Option<Input> {
        None
    }

    /// What it is a member of; an error says what is not at rest.
    fn owned(&self) -> Result<Vec<Owned>, Broken> {
        Ok(Vec::new())
    }

    /// An administrator's wish for other policies; `None` where it is in no group.
    fn set_policies(&self, chance: u64) -> Option<Input> {
        let _ = chance;
        None
    }

    /// What it is, in a few lines for a person who looks into a failure.
    fn describe(&self) -> String {
        String::new()
    }

    /// Whether a record of its store is one that it holds, and not left over.
    fn holds(&self, record_key: &[u8]) -> bool {
        let _ = record_key;
        true
    }

    /// Whether the group survives losing another node now: this one takes part and holds all that it must.
    fn is_whole(&self) -> bool {
        true
    }

    /// Whether a group that this one is in, or one that may follow it, would be without a quorum for ever if the other node
    /// lost what it holds, where no others live than these.
    fn depends_on(&self, other: &Self, alive: &[NodeId]) -> bool {
        let _ = (other, alive);
        false
    }

    /// Whether it may have forgotten something that it acknowledged.
    fn is_in_doubt(&self) -> bool {
        false
    }

    /// Whether nothing is lost if another node forgets what it acknowledged last, where these hold what they acknowledged.
    fn survives_doubt(&self, other: NodeId, held: &[NodeId]) -> bool {
        let _ = (other, held);
        true
    }

    /// What has its groups go on where all that are waited for because of a doubt are gone for good.
    fn accept_loss(&self, alive: &[NodeId]) -> Vec<Input> {
        let _ = alive;
        Vec::new()
    }

    /// What it tells of the group that it is in to whoever sets a switch's tables.
    fn group(&self) -> Option<GroupStatus> {
        None
    }

    /// Who runs, in this life.
    fn node(&self) -> Option<NodeId> {
        None
    }
}

impl Host for Node {
    fn start(config: NodeConfig, seed: u64, now: Now, restored: Restored) -> Node {
        Node::new(config, seed, now, restored)
    }

    fn handle(&mut self, now: Now, input: Input) {
        Node::handle(self, now, input);
    }

    fn poll_output(&mut self) -> Option<Output> {
        Node::poll_output(self)
    }

    fn observe(&mut self, scope: Scope, show: &mut dyn FnMut(Observation)) {
        super::observe::observe(self, scope, show);
    }

    fn leads(&self) -> bool {
        self.groups().any(|group| group.log().leads())
    }

    fn stop_epoch(&mut self) {
        Node::stop_epoch(self);
    }

    fn reform(&mut self, chance: u64) -> bool {
        super::observe::reform(self, chance)
    }

    fn repair(&self) -> Option<Input> {
        let state = self.group()?.state();
        let lost = vec![state.dealings.predecessor()?.id];
        Some(Input::Wish { number: 0, group: state.id, wish: Wish::Repair { from: None, lost } })
    }

    fn owned(&self) -> Result<Vec<Owned>, Broken> {
        super::observe::owned(self)
    }

    fn set_policies(&self, chance: u64) -> Option<Input> {
        super::observe::set_policies(self, chance)
    }

    fn describe(&self) -> String {
        super::observe::describe(self)
    }

    fn holds(&self, record_key: &[u8]) -> bool {
        Node::holds(self, record_key)
    }

    fn is_whole(&self) -> bool {
        super::observe::is_whole(self)
    }

    fn depends_on(&self, other: &Node, alive: &[NodeId]) -> bool {
        super::observe::depends_on(self, other.id(), alive)
    }

    fn is_in_doubt(&self) -> bool {
        self.groups().any(|group| group.doubt().is_some())
    }

    fn survives_doubt(&self, other: NodeId, held: &[NodeId]) -> bool {
        super::observe::survives_doubt(self, other, held)
    }

    fn accept_loss(&self, alive: &[NodeId]) -> Vec<Input> {
        let is_gone = |node: &NodeId| !alive.contains(node);
        let waits = |group: &&group::Group| {
            let waiting = group.in_doubt().waiting_for;
            !waiting.is_empty() && waiting.iter().all(is_gone)
        };
        let ask = |group: &group::Group| Input::Wish { number: 0, group: group.state().id, wish: Wish::AcceptLoss };
        self.groups().filter(waits).map(ask).collect()
    }

    fn group(&self) -> Option<GroupStatus> {
        self.status().group
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.id())
    }
}
