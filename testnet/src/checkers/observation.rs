//! What a node shows of its inside, for checks of state.

use group::op::Version;
use group::time::Time;
use group::transaction::TransactionId;
use overlay::{Epoch, GroupId, Key, KeyRange, NodeId, Point};

use super::ring::Place;
use super::transactions::Step;

/// A primary's ballot (`docs/design/primaries.md`). Field order is comparison order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ballot {
    /// Of the group.
    pub epoch: Epoch,
    /// The slot of the division that named the primary.
    pub term: u64,
    /// The primary.
    pub node: NodeId,
}

/// How much a node shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// What has changed since it was last asked; more does no harm.
    Changed,
    /// Everything.
    All,
}

/// One thing that is so in a node. Hashes are of whatever the node has, as long as equal things have equal ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// A key's state here, known to be chosen.
    Chosen {
        /// Whose.
        key: Key,
        /// Under which ballot it was accepted.
        ballot: Ballot,
        /// Its number among the committee's writes.
        number: u64,
        /// Its version.
        version: Version,
        /// Of value, tombstone and deadline.
        value_hash: u64,
    },
    /// A key's state here, accepted; perhaps never chosen.
    Accepted {
        /// Whose.
        key: Key,
        /// Under which ballot.
        ballot: Ballot,
        /// Its number among the committee's writes.
        number: u64,
        /// Its version.
        version: Version,
        /// Of value, tombstone and deadline.
        value_hash: u64,
    },
    /// No ballot below this one is accepted here.
    Promised {
        /// Where.
        range: KeyRange,
        /// The ballot.
        ballot: Ballot,
    },
    /// The group's log: the largest ballot promised, as `(round, node)`.
    ControlPromised {
        /// Whose.
        group: GroupId,
        /// Of which epoch.
        epoch: Epoch,
        /// The round.
        round: u64,
        /// Who leads it.
        node: NodeId,
    },
    /// The group's log: what it says up to some slot.
    ControlChosen {
        /// Whose.
        group: GroupId,
        /// The epoch in which it began as what it is.
        born: Epoch,
        /// Where.
        slot: u64,
        /// Of the state that results.
        hash: u64,
    },
    /// The group's log, or state, says something of a transaction.
    Transaction {
        /// Whose.
        group: GroupId,
        /// Which.
        id: TransactionId,
        /// What.
        step: Step,
    },
    /// Which boundaries a group has locked, and for what.
    Locks(Vec<(Point, TransactionId)>),
    /// What a group is, and where in the ring.
    Place(Place),
    /// A chosen record names an operation and its answer, both as hashes.
    Delivered {
        /// Whose.
        key: Key,
        /// Which operation.
        operation: u64,
        /// What it was answered.
        answer: u64,
    },
    /// A configuration that this node knows to be chosen.
    Config {
        /// Whose.
        group: GroupId,
        /// Its epoch.
        epoch: Epoch,
        /// Its members, in order.
        members: Vec<NodeId>,
    },
    /// This node is what it is, and in this epoch.
    Member {
        /// Who it is now.
        node: NodeId,
        /// Its group.
        group: GroupId,
        /// The newest epoch it is in.
        epoch: Epoch,
    },
    /// This node is a member here, or a learner.
    Holds {
        /// What its group owns.
        range: KeyRange,
    },
    /// This node answers clients for the range as its primary.
    Serving {
        /// Where.
        range: KeyRange,
        /// Under which ballot.
        ballot: Ballot,
    },
    /// This node may answer reads alone.
    LeaseHeld {
        /// Where.
        range: KeyRange,
        /// Under which ballot.
        ballot: Ballot,
        /// Until its own steady clock shows this.
        until: Time,
    },
    /// What this node, as a primary, has to do with a switch.
    Granted {
        /// Under which ballot.
        ballot: Ballot,
        /// The id of the switch that its writes pass, while they do.
        switch: Option<u32>,
        /// Others may answer reads until its own steady clock shows this.
        until: Time,
    },
    /// This node has just answered a read by itself that a switch sent it.
    Alone {
        /// Of which key.
        key: Key,
        /// Under which ballot.
        ballot: Ballot,
        /// The switch's id.
        switch: u32,
    },
    /// Something that must not grow without end.
    Queue {
        /// What.
        name: &'static str,
        /// How much of it there is.
        size: usize,
        /// How much there may be.
        limit: usize,
    },
    /// What a primary of a coarse group holds for chosen.
    Overtaken {
        /// Gaps in the numbers of its chosen writes: there must be none.
        gaps: usize,
    },
    /// A rare branch was taken.
    Mark(&'static str),
}
