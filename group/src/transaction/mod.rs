//! Transactions between groups: nested consensus (Scatter §4, Harmony §4.2).
//!
//! Two-phase commit in which each party is a group, and nothing is said before it is chosen in the log of the group that says
//! it. The coordinator's *begin* is an entry of its log, and its slot names the transaction; a participant's vote is what
//! applying the question came to; the coordinator's *outcome* decides, and nothing else does.
//!
//! - [`birth`]: what comes of groups that end with a transaction.
//! - [`plan`]: what an operation does to which groups, as a pure function of what they are now.
//! - [`dealings`]: what a group's log says of its transactions: links to its neighbours, locks, votes, decisions.
//! - [`dealer`]: what a leader does about them: whom it asks, tells and answers, and what it has chosen next.
//!
//! # Invariants
//! - Of one transaction all groups learn the same outcome, and it is *commit* only if each participant voted for it.
//! - A group that is touched by a transaction, which is to say that it is another one afterwards, ends its log with the
//!   outcome. What follows is a function of the final states of all that are touched, so nobody need be asked for it.
//! - Locks are of boundaries between two groups, held by both of them; they are tried and never waited for, and hinder
//!   nothing but other transactions.

pub mod birth;
#[cfg(test)]
mod birth_test;
pub mod dealer;
pub mod dealings;
pub mod plan;

use overlay::{Epoch, GroupId};
use serde::{Deserialize, Serialize};

use crate::ballot::Slot;

/// One attempt at one transaction: never used again, by nobody (hazard 30).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TransactionId {
    /// Who coordinates it.
    pub group: GroupId,
    /// The coordinator's epoch when it began.
    pub epoch: Epoch,
    /// The slot of *begin* in the coordinator's log.
    pub slot: Slot,
}

impl TransactionId {
    /// The id of the `index`th group that comes of it. Random, as far as others can tell, and the same to all.
    pub fn child(self, index: u8) -> GroupId {
        let mut name = [0; 33];
        name[..16].copy_from_slice(&self.group.0.to_be_bytes());
        name[16..24].copy_from_slice(&self.epoch.0.to_be_bytes());
        name[24..32].copy_from_slice(&self.slot.0.to_be_bytes());
        name[32] = index;
        GroupId(overlay::Point::of(&name).0)
    }
}
