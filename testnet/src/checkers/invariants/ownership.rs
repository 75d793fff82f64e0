//! A term has one primary at each point of the ring (I3). Primaries of two terms may both take themselves for the primary, but only
//! one of them finds a quorum, which I4 checks.

use std::collections::BTreeMap;

use overlay::{Epoch, KeyRange, NodeId};

use super::observation::Ballot;

/// Observations so far.
#[derive(Debug, Default)]
pub struct Ownership {
    serving: BTreeMap<(Epoch, u64), Vec<(KeyRange, NodeId)>>,
}

impl Ownership {
    /// Checks a primary that serves.
    pub fn on_serving(&mut self, range: KeyRange, ballot: Ballot) -> Result<(), String> {
        // One entry, as a rule, and there are millions in a long run.
        let serving = self.serving.entry((ballot.epoch, ballot.term)).or_insert_with(|| Vec::with_capacity(1));
        if serving.contains(&(range, ballot.node)) {
            return Ok(());
        }
        if let Some(other) = serving.iter().find(|(part, node)| *node != ballot.node && part.overlaps(range)) {
            return Err(format!("{other:?} and {:?} both serve in {ballot:?}", (range, ballot.node)));
        }
        serving.push((range, ballot.node));
        Ok(())
    }
}
