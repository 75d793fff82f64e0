//! At most one value is ever chosen for a key's version and for a slot of the log, and a ballot names one value (I1).

use std::collections::BTreeMap;

use group::op::Version;
use overlay::{Epoch, GroupId, Key};

use super::observation::Ballot;

/// Observations so far.
#[derive(Debug, Default)]
pub struct OneValue {
    chosen: BTreeMap<(Key, Version), u64>,
    proposed: BTreeMap<(Key, Ballot, u64), (Version, u64)>,
    slots: BTreeMap<(GroupId, Epoch, u64), u64>,
}

impl OneValue {
    /// Checks a key's chosen state.
    pub fn on_chosen(&mut self, key: &Key, version: Version, hash: u64) -> Result<(), String> {
        let first = *self.chosen.entry((key.clone(), version)).or_insert(hash);
        if first != hash {
            return Err(format!("{key:?} has two chosen states of {version:?}: {first:016x} and {hash:016x}"));
        }
        Ok(())
    }

    /// Checks a state under a ballot, chosen or not.
    pub fn on_accepted(&mut self, key: &Key, ballot: Ballot, number: u64, state: (Version, u64)) -> Result<(), String> {
        let first = *self.proposed.entry((key.clone(), ballot, number)).or_insert(state);
        if first != state {
            return Err(format!(
                "{key:?} has two states under {ballot:?} and number {number}: {first:?} and {state:?}"
            ));
        }
        Ok(())
    }

    /// Checks the state, after a slot, of the log of a group that was born in this epoch.
    pub fn on_slot(&mut self, group: GroupId, born: Epoch, slot: u64, hash: u64) -> Result<(), String> {
        let first = *self.slots.entry((group, born, slot)).or_insert(hash);
        if first != hash {
            return Err(format!("{group:?} has two states at slot {slot}: {first:016x} and {hash:016x}"));
        }
        Ok(())
    }
}
