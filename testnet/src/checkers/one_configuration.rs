//! An epoch has one set of members (I2).

use std::collections::BTreeMap;

use overlay::{Epoch, NodeId};

/// What was seen so far.
#[derive(Debug, Default)]
pub struct OneConfiguration {
    members: BTreeMap<Epoch, Vec<NodeId>>,
}

impl OneConfiguration {
    /// A configuration that somebody knows to be chosen.
    pub fn on_config(&mut self, epoch: Epoch, members: &[NodeId]) -> Result<(), String> {
        let first = self.members.entry(epoch).or_insert_with(|| members.to_vec());
        if first != members {
            return Err(format!("{epoch:?} has two configurations: {first:?} and {members:?}"));
        }
        Ok(())
    }
}
