//! Orders of attempts: slots of the group's log, ballots of its leaders, terms and numbers of its primaries.

use core::fmt;

use overlay::{Epoch, NodeId};
use serde::{Deserialize, Serialize};

/// Position in a group's log. Numbers continue through epochs.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LogSlot(pub u64);

impl LogSlot {
    /// Upper limit of honest slots, rounds and numbers: terms have room for them.
    pub const MAX: LogSlot = LogSlot((1 << 48) - 2);

    /// Returns the slot behind this one.
    pub fn next(self) -> LogSlot {
        LogSlot(self.0 + 1)
    }
}

impl fmt::Debug for LogSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// Number of an attempt to lead within an epoch. Field order is comparison order; the node breaks ties, so no two nodes
/// share a ballot, and neither do two incarnations of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ballot {
    /// Round above every one that its owner had seen.
    pub round: u64,
    /// Node that attempts to lead.
    pub node: NodeId,
}

/// Right to be primary of one sub-range: the slot of the division that granted it and the sub-range's place in it.
///
/// Unique in a group for ever, since slots are; a sub-range that is redrawn, or whose primary restarted, gets a new
/// one. A division that is carried into an epoch has the slot of the *Next* that began it: no division can hold that
/// slot.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Term(pub u64);

impl Term {
    /// Upper limit of sub-ranges in one division.
    pub const PARTS_MAX: usize = 1 << 16;

    /// Returns the term of a division's part.
    pub fn new(slot: LogSlot, part: usize) -> Term {
        assert!(part < Term::PARTS_MAX && slot.0 < 1 << 48, "slot {slot:?}, part {part}");
        Term(slot.0 << 16 | part as u64)
    }

    /// Returns the slot of the division that granted it.
    pub fn slot(self) -> LogSlot {
        LogSlot(self.0 >> 16)
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}.{}", self.0 >> 16, self.0 & 0xffff)
    }
}

/// Ballot of a primary (Scatter §5: the committee's chair). Compared per point of the ring, never per peer.
///
/// The term alone orders and names it; epoch and node travel with it so that no receiver needs the log to check a
/// message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TermBallot {
    /// Epoch whose members are the committee.
    pub epoch: Epoch,
    /// Term of the primary.
    pub term: Term,
    /// Node of the primary.
    pub node: NodeId,
}

impl fmt::Debug for TermBallot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{}{:?}@{:?}", self.epoch.0, self.term, self.node)
    }
}

/// Place of a write among all writes of its key's point: its primary's term, and its number there, from 1.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Number {
    /// Term under which the write was proposed.
    pub term: Term,
    /// Count of the primary, without gaps.
    pub n: u64,
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/{}", self.term, self.n)
    }
}
