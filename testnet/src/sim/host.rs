//! The process of a simulated machine.

use group::control::agreed::AgreedPolicies;
use node::{AdminRequest, GroupStatus, Input, Node, NodeConfig, Output, Restored};
use overlay::time::Now;
use overlay::{Epoch, GroupId, KeyRange, NodeId};

use crate::checkers::{Broken, Observation, Scope};

/// A group as one of its members knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// Id of the group.
    pub id: GroupId,
    /// Epoch of the group.
    pub epoch: Epoch,
    /// Range that the group owns.
    pub range: KeyRange,
    /// Group with the range that ends where this one starts.
    pub before: GroupId,
    /// Group with the range that starts where this one ends.
    pub behind: GroupId,
    /// Policies on which the group agrees.
    pub policies: AgreedPolicies,
}

/// A node, or a stand-in for one with which the harness itself is tested.
pub trait Host: Sized {
    /// Starts a process, as [`Node::new`] does.
    fn start(config: NodeConfig, seed: u64, now: Now, restored: Restored) -> Self;

    /// Handles an input, as [`Node::handle`] does.
    fn handle(&mut self, now: Now, input: Input);

    /// Returns the next output, as [`Node::poll_output`] does.
    fn poll_output(&mut self) -> Option<Output>;

    /// Shows the process's state. The order of observations must depend on nothing but the state.
    fn observe(&mut self, scope: Scope, show: &mut dyn FnMut(Observation)) {
        let _ = (scope, show);
    }

    /// Returns whether the process leads a group.
    fn leads(&self) -> bool {
        false
    }

    /// Ends the epoch of the process's group, whether the process leads or not.
    fn stop_epoch(&mut self) {}

    /// Reforms the process's group by a transaction, if the process leads. Returns whether the transaction has begun.
    fn reform(&mut self, chance: u64) -> bool {
        let _ = chance;
        false
    }

    /// Returns the input that has the process's group take over the range before it, which is declared lost.
    fn repair(&self) -> Option<Input> {
        None
    }

    /// Returns the groups that the process is a member of; an error tells which part is not at rest.
    fn owned(&self) -> Result<Vec<Owned>, Broken> {
        Ok(Vec::new())
    }

    /// Returns an administrator's request for other policies; `None` where the process is in no group.
    fn set_policies(&self, chance: u64) -> Option<Input> {
        let _ = chance;
        None
    }

    /// Describes the state in a few lines, for a person who investigates a failure.
    fn describe(&self) -> String {
        String::new()
    }

    /// Returns whether a record of the process's store is in use, and not left over.
    fn holds(&self, record_key: &[u8]) -> bool {
        let _ = record_key;
        true
    }

    /// Returns whether the group survives the loss of another node now: this process takes part and has complete state.
    fn is_whole(&self) -> bool {
        true
    }

    /// Returns whether a group of this process, or a possible successor of it, would be without a quorum for ever if the other node
    /// lost its state, where no other nodes live than `alive`.
    fn depends_on(&self, other: &Self, alive: &[NodeId]) -> bool {
        let _ = (other, alive);
        false
    }

    /// Returns whether the process may have lost data that it acknowledged.
    fn is_in_doubt(&self) -> bool {
        false
    }

    /// Returns whether the group loses nothing if node `other` loses the data that it acknowledged last, where the nodes `held` keep
    /// all data that they acknowledged.
    fn survives_doubt(&self, other: NodeId, held: &[NodeId]) -> bool {
        let _ = (other, held);
        true
    }

    /// Returns the inputs that let the process's groups go on where all nodes awaited because of a doubt are gone for good.
    fn accept_loss(&self, alive: &[NodeId]) -> Vec<Input> {
        let _ = alive;
        Vec::new()
    }

    /// Returns the status of the process's group, for the controller that sets a switch's tables.
    fn group(&self) -> Option<GroupStatus> {
        None
    }

    /// Returns the node id of the process in this life.
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
        crate::sim::observe::observe(self, scope, show);
    }

    fn leads(&self) -> bool {
        self.groups().any(|group| group.log().leads())
    }

    fn stop_epoch(&mut self) {
        Node::stop_epoch(self);
    }

    fn reform(&mut self, chance: u64) -> bool {
        crate::sim::observe::reform(self, chance)
    }

    fn repair(&self) -> Option<Input> {
        let state = self.group()?.state();
        let lost = vec![state.transactions.predecessor()?.id];
        Some(Input::AdminRequest { number: 0, group: state.id, request: AdminRequest::Repair { from: None, lost } })
    }

    fn owned(&self) -> Result<Vec<Owned>, Broken> {
        crate::sim::observe::owned(self)
    }

    fn set_policies(&self, chance: u64) -> Option<Input> {
        crate::sim::observe::set_policies(self, chance)
    }

    fn describe(&self) -> String {
        crate::sim::observe::describe(self)
    }

    fn holds(&self, record_key: &[u8]) -> bool {
        Node::holds(self, record_key)
    }

    fn is_whole(&self) -> bool {
        crate::sim::observe::is_whole(self)
    }

    fn depends_on(&self, other: &Node, alive: &[NodeId]) -> bool {
        crate::sim::observe::depends_on(self, other.id(), alive)
    }

    fn is_in_doubt(&self) -> bool {
        self.groups().any(|group| group.doubt().is_some())
    }

    fn survives_doubt(&self, other: NodeId, held: &[NodeId]) -> bool {
        crate::sim::observe::survives_doubt(self, other, held)
    }

    fn accept_loss(&self, alive: &[NodeId]) -> Vec<Input> {
        let is_gone = |node: &NodeId| !alive.contains(node);
        let waits = |group: &&group::Group| {
            let waiting = group.in_doubt().waiting_for;
            !waiting.is_empty() && waiting.iter().all(is_gone)
        };
        let ask = |group: &group::Group| Input::AdminRequest {
            number: 0,
            group: group.state().id,
            request: AdminRequest::AcceptLoss,
        };
        self.groups().filter(waits).map(ask).collect()
    }

    fn group(&self) -> Option<GroupStatus> {
        self.status().group
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.id())
    }
}
