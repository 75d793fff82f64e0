//! Observations: parts of a node's state, for checks of state.

use group::op::Version;
use group::transaction::TransactionId;
use overlay::time::Time;
use overlay::{Epoch, GroupId, Key, KeyRange, NodeId, Point};

use super::ring::Place;
use super::transactions::TransactionStep;

/// A primary's ballot (`docs/design/primaries.md`). Field order is comparison order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ballot {
    /// Epoch of the group.
    pub epoch: Epoch,
    /// Slot of the division that named the primary.
    pub term: u64,
    /// The primary.
    pub node: NodeId,
}

/// Extent of a node's observations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Changes since the last observation; more does no harm.
    Changed,
    /// The whole state.
    All,
}

/// One fact about a node's state. Hashes are of any encoding, as long as equal values have equal hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// A key's state here, known to be chosen.
    Chosen {
        /// The key.
        key: Key,
        /// Ballot under which the state was accepted.
        ballot: Ballot,
        /// Number of the write among the committee's writes.
        number: u64,
        /// Version of the key.
        version: Version,
        /// Hash of value, tombstone and deadline.
        value_hash: u64,
    },
    /// A key's state here, accepted; perhaps never chosen.
    Accepted {
        /// The key.
        key: Key,
        /// Ballot under which the state was accepted.
        ballot: Ballot,
        /// Number of the write among the committee's writes.
        number: u64,
        /// Version of the key.
        version: Version,
        /// Hash of value, tombstone and deadline.
        value_hash: u64,
    },
    /// No ballot below this one is accepted here.
    Promised {
        /// Range of the promise.
        range: KeyRange,
        /// The ballot.
        ballot: Ballot,
    },
    /// The group's log: the largest ballot promised, as `(round, node)`.
    ControlPromised {
        /// The group.
        group: GroupId,
        /// Epoch of the promise.
        epoch: Epoch,
        /// Round of the ballot.
        round: u64,
        /// Leader of the ballot.
        node: NodeId,
    },
    /// The group's log: its state up to some slot.
    ControlChosen {
        /// The group.
        group: GroupId,
        /// Epoch in which the group began in its present form.
        born: Epoch,
        /// The slot.
        slot: u64,
        /// Hash of the resulting state.
        hash: u64,
    },
    /// The group's log, or state, has a step of a transaction.
    Transaction {
        /// The group.
        group: GroupId,
        /// The transaction.
        id: TransactionId,
        /// The step.
        step: TransactionStep,
    },
    /// Boundaries that a group has locked, each with its transaction.
    Locks(Vec<(Point, TransactionId)>),
    /// A group's identity, and its place in the ring.
    Place(Place),
    /// A chosen record names an operation and its answer, both as hashes.
    Delivered {
        /// The key.
        key: Key,
        /// Hash of the operation.
        operation: u64,
        /// Hash of the operation's answer.
        answer: u64,
    },
    /// A configuration that this node knows to be chosen.
    Config {
        /// The group.
        group: GroupId,
        /// Epoch of the configuration.
        epoch: Epoch,
        /// Members of the configuration, in order.
        members: Vec<NodeId>,
    },
    /// The node's present identity, and its epoch.
    Member {
        /// Present identity of the node.
        node: NodeId,
        /// Group of the node.
        group: GroupId,
        /// Newest epoch that the node is in.
        epoch: Epoch,
    },
    /// This node is a member of a group, or a learner.
    Holds {
        /// Range of the group.
        range: KeyRange,
    },
    /// This node answers clients for the range as its primary.
    Serving {
        /// Served range.
        range: KeyRange,
        /// Ballot of the primary.
        ballot: Ballot,
    },
    /// This node may answer reads alone.
    LeaseHeld {
        /// Range of the lease.
        range: KeyRange,
        /// Ballot of the lease.
        ballot: Ballot,
        /// End of the lease, by the node's own steady clock.
        until: Time,
    },
    /// Grants of this node, as a primary, to a switch.
    Granted {
        /// Ballot of the primary.
        ballot: Ballot,
        /// Id of the switch that the primary's writes pass, while they do.
        switch: Option<u32>,
        /// End of the other members' right to answer reads, by the node's own steady clock.
        until: Time,
    },
    /// This node has just answered a read alone that a switch sent to it.
    Alone {
        /// The key.
        key: Key,
        /// Ballot of the grant.
        ballot: Ballot,
        /// Id of the switch.
        switch: u32,
    },
    /// A quantity that must not grow without end.
    Queue {
        /// Name of the quantity.
        name: &'static str,
        /// Present size.
        size: usize,
        /// Upper limit of the size.
        limit: usize,
    },
    /// Writes that a primary of a coarse group takes for chosen.
    Overtaken {
        /// Gaps in the numbers of its chosen writes: there must be none.
        gaps: usize,
    },
    /// A rare branch was taken.
    Mark(&'static str),
}
