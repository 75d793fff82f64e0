//! An epoch of a group has one set of members (I2).

use std::collections::BTreeMap;

use overlay::{Epoch, GroupId, NodeId};

/// Observations so far.
#[derive(Debug, Default)]
pub struct OneConfiguration {
    members: BTreeMap<(GroupId, Epoch), Vec<NodeId>>,
}

impl OneConfiguration {
    /// Checks a configuration that a node knows to be chosen.
    pub fn on_config(&mut self, group: GroupId, epoch: Epoch, members: &[NodeId]) -> Result<(), String> {
        let first = self.members.entry((group, epoch)).or_insert_with(|| members.to_vec());
        if first != members {
            return Err(format!("{group:?} has in {epoch:?} two configurations: {first:?} and {members:?}"));
        }
        Ok(())
    }
}
