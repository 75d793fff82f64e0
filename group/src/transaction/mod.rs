//! Transactions between groups: nested consensus (Scatter §4, Harmony §4.2).
//!
//! Two-phase commit in which each party is a group. No message leaves before its content is chosen in the log of the sending group. The
//! coordinator's *begin* is an entry of its log, and the slot of that entry names the transaction. A participant's vote is decided when the
//! question is applied. The coordinator's *outcome* alone decides the transaction.
//!
//! - [`successor`]: the groups that succeed groups that end with a transaction, and how a member begins in them.
//! - [`member`]: the link between transactions and one member: envelopes in and out, and the end of its group.
//! - [`plan`]: the effect of a transaction on groups, as a pure function of their present states.
//! - [`state`]: the state of a group's transactions in its log: links to its neighbours, locks, votes, decisions.
//! - [`driver`]: the leader's part: the groups that it asks, tells and answers, and the entry that it proposes next.
//!
//! # Invariants
//! - All groups learn the same outcome of a transaction. It is *commit* only if each participant voted for it.
//! - A group that a transaction touches, so that it is another group afterwards, ends its log with the outcome. The following groups are a
//!   function of the final states of all touched groups, so no group need be asked for them.
//! - Locks are on boundaries between two groups, and both groups hold them. Locks are tried and never waited for, and hinder only other
//!   transactions.

pub mod driver;
pub mod member;
pub mod plan;
pub mod state;
pub mod successor;

use core::fmt;

use overlay::{Epoch, GroupId};
use serde::{Deserialize, Serialize};

use crate::ballot::LogSlot;

/// One attempt at one transaction. No group ever uses the id again (hazard 30).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TransactionId {
    /// Group that coordinates the transaction.
    pub group: GroupId,
    /// Epoch of the coordinator when the transaction began.
    pub epoch: Epoch,
    /// Slot of *begin* in the coordinator's log.
    pub slot: LogSlot,
}

impl TransactionId {
    /// Returns the id of the `index`th group that is born of the transaction. It is random, as far as other groups can tell, and the same
    /// for all.
    pub fn child(self, index: u8) -> GroupId {
        let mut name = [0; 33];
        name[..16].copy_from_slice(&self.group.0.to_be_bytes());
        name[16..24].copy_from_slice(&self.epoch.0.to_be_bytes());
        name[24..32].copy_from_slice(&self.slot.0.to_be_bytes());
        name[32] = index;
        GroupId(overlay::Point::of(&name).0)
    }
}

/// Vote of a participant about a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Vote {
    /// The participant refuses: the transaction is aborted.
    No,
    /// The participant agrees, and has locked its boundaries.
    Yes,
}

/// Outcome of a transaction, which its coordinator alone decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Outcome {
    /// Nothing changes.
    Abort,
    /// Each touched group ends, and its successors begin.
    Commit,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::Abort => "abort",
            Outcome::Commit => "commit",
        })
    }
}
