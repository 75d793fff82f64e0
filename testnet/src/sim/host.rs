//! What a simulated machine runs.

use group::time::Now;
use node::{Input, Node, NodeConfig, Output, Restored};

use crate::checkers::{Observation, Scope};

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

    /// Whether the group survives losing another node now: this one takes part and holds all that it must.
    fn is_whole(&self) -> bool {
        true
    }

    /// Whether the group that this one is in, or the one that may follow it, would be without a quorum for ever if the
    /// other node lost what it holds.
    fn depends_on(&self, other: &Self) -> bool {
        let _ = other;
        false
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
        self.group().is_some_and(|group| group.log().leads())
    }

    fn stop_epoch(&mut self) {
        Node::stop_epoch(self);
    }

    fn is_whole(&self) -> bool {
        super::observe::is_whole(self)
    }

    fn depends_on(&self, other: &Node) -> bool {
        super::observe::depends_on(self, other.id())
    }
}
