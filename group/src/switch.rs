//! What a group's log says about a switch that spreads its reads (`Harmonia §5.3`), and when one may.

use serde::{Deserialize, Serialize};

use crate::state::GroupState;

/// The switch that spreads a group's reads over its members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Switch {
    /// The id under which it numbers, or the last one did. It only goes up; 0: there was none.
    pub id: u32,
    /// It is to be used.
    pub on: bool,
}

impl Switch {
    /// None, after this one.
    pub fn off(id: u32) -> Switch {
        Switch { id, on: false }
    }

    /// The id under which one is to be used.
    pub fn wanted(self) -> Option<u32> {
        self.on.then_some(self.id)
    }

    /// Is this an id that one may have?
    pub fn is_id(id: u32) -> bool {
        id > 0 && id < u32::MAX
    }
}

/// Why no switch may spread a group's reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Writes are not settled in the order of their numbers (PITFALLS 54).
    #[error("the network was founded without --coarse: its members do not settle writes in order")]
    NotCoarse,
    /// There are no leases, of which grants are parts.
    #[error("the network was founded without --leases: its primaries have nothing to grant")]
    NoLeases,
    /// They stand in several places, or nobody said where.
    #[error("its members do not all have the same --cluster label")]
    Scattered,
}

impl GroupState {
    /// Whether a switch may spread the group's reads, as long as nothing changes: the policy (§10 of the design).
    pub fn fits_switch(&self) -> Result<(), Unfit> {
        let mut clusters = self.members.iter().map(|member| &member.cluster);
        let label = clusters.next().filter(|label| !label.is_empty());
        match () {
            () if !self.settings.coarse => Err(Unfit::NotCoarse),
            () if !self.settings.leases => Err(Unfit::NoLeases),
            () if label.is_none_or(|label| clusters.any(|other| other != label)) => Err(Unfit::Scattered),
            () => Ok(()),
        }
    }

    /// May members answer reads that a switch sends them? Not while they change, or what they own does.
    pub fn may_offload(&self) -> bool {
        let is_calm = self.recovery.is_empty() && self.learners.is_empty() && self.ended.is_none();
        is_calm && self.dealings.is_calm() && self.fits_switch().is_ok()
    }
}
