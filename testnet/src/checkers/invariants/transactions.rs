//! All groups learn one outcome of a transaction. The outcome is *commit* only if all participants agreed, and no participant takes
//! its vote back (I9; RECODE P2). No boundary is locked by two transactions (I10).

use std::collections::{BTreeMap, BTreeSet};

use group::transaction::TransactionId;
use overlay::{GroupId, Point};

/// Step of a transaction, by an entry of a group's log, or by its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransactionStep {
    /// The group was asked and agreed.
    Agreed,
    /// The group was asked and refused, or knew of the end before it was asked.
    Refused,
    /// The group knows the transaction to be committed; `asked` were asked.
    Committed {
        /// All participants; not the coordinator.
        asked: Vec<GroupId>,
    },
    /// The group knows the transaction to be aborted.
    Aborted,
}

#[derive(Debug, Default)]
struct KnownTransaction {
    agreed: BTreeSet<GroupId>,
    refused: BTreeSet<GroupId>,
    /// Whether it was committed, and the first group that showed it.
    outcome: Option<(bool, GroupId)>,
}

/// Observations so far.
#[derive(Debug, Default)]
pub struct Transactions {
    known: BTreeMap<TransactionId, KnownTransaction>,
}

impl Transactions {
    /// Checks a step of a transaction in a group's log, or state.
    pub fn on_step(&mut self, group: GroupId, id: TransactionId, step: &TransactionStep) -> Result<(), String> {
        let known = self.known.entry(id).or_default();
        match step {
            TransactionStep::Agreed => {
                known.agreed.insert(group);
                if known.refused.contains(&group) {
                    return Err(format!("{group:?} agreed to {id:?}, which it had refused"));
                }
            }
            TransactionStep::Refused => {
                known.refused.insert(group);
                if known.agreed.contains(&group) {
                    return Err(format!("{group:?} refused {id:?}, to which it had agreed"));
                }
            }
            TransactionStep::Committed { asked } => {
                if let Some(missing) = asked.iter().find(|asked| !known.agreed.contains(asked)) {
                    return Err(format!("{group:?} knows {id:?} to be committed, to which {missing:?} has not agreed"));
                }
                known.ends(group, id, true)?;
            }
            TransactionStep::Aborted => known.ends(group, id, false)?,
        }
        Ok(())
    }

    /// Returns the number of transactions that were seen to be committed.
    pub fn committed(&self) -> usize {
        self.known.values().filter(|known| known.outcome.is_some_and(|(commit, _)| commit)).count()
    }
}

impl KnownTransaction {
    fn ends(&mut self, group: GroupId, id: TransactionId, commit: bool) -> Result<(), String> {
        let (first, by) = *self.outcome.get_or_insert((commit, group));
        if first != commit {
            let word = |commit| if commit { "committed" } else { "aborted" };
            return Err(format!("{id:?} is {} for {by:?} and {} for {group:?}", word(first), word(commit)));
        }
        Ok(())
    }
}

/// Checks the boundaries that one group has locked, each with its transaction.
pub fn check_locks(locks: &[(Point, TransactionId)]) -> Result<(), String> {
    for (index, (boundary, id)) in locks.iter().enumerate() {
        if let Some((_, other)) = locks[..index].iter().find(|(at, holder)| at == boundary && holder != id) {
            return Err(format!("{boundary:?} is locked for {other:?} and for {id:?}"));
        }
    }
    Ok(())
}
