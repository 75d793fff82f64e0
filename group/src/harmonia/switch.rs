//! Switch that spreads a group's reads, as the group's log has it (`Harmonia §6.3`), and the conditions for its use.

use serde::{Deserialize, Serialize};

use crate::control::state::GroupState;

/// Switch that spreads a group's reads over its members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Switch {
    /// Id under which it numbers, or the last one did. It only goes up; 0: there was none.
    pub id: u32,
    /// Whether it is to be used.
    pub used: Use,
}

/// Whether a group is to use a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Use {
    /// Not under this id; a switch controller may name another.
    #[default]
    No,
    /// Used.
    Yes,
    /// Not used before an administrator lifts the bar: no id is taken.
    Barred,
}

impl Switch {
    /// Returns the switch of this id, in use.
    pub fn on(id: u32) -> Switch {
        Switch { id, used: Use::Yes }
    }

    /// Returns no switch, after the one of this id.
    pub fn off(id: u32) -> Switch {
        Switch { id, used: Use::No }
    }

    /// Returns no switch and a bar, after the one of this id.
    pub fn barred(id: u32) -> Switch {
        Switch { id, used: Use::Barred }
    }

    /// Returns whether a switch is to be used.
    pub fn is_on(self) -> bool {
        self.used == Use::Yes
    }

    /// Returns whether none is to be used before an administrator lifts the bar.
    pub fn is_barred(self) -> bool {
        self.used == Use::Barred
    }

    /// Returns the id under which a switch is to be used.
    pub fn wanted(self) -> Option<u32> {
        self.is_on().then_some(self.id)
    }

    /// Returns the switch after this entry. Ids only go up, and a switch that is turned off stays so under the same id. A bar holds against
    /// any named switch until it is lifted: by an entry that turns the barred switch off.
    #[must_use]
    pub fn then(self, next: Switch) -> Switch {
        match next.used {
            Use::Barred => Switch::barred(self.id.max(next.id)),
            Use::No if next.id >= self.id => next,
            Use::Yes if next.id > self.id && !self.is_barred() => next,
            Use::No | Use::Yes => self,
        }
    }

    /// Returns the switch of a group born of these groups: the last id counts, and so does one bar.
    pub fn inherited(all: impl Iterator<Item = Switch> + Clone) -> Switch {
        let id = all.clone().map(|switch| switch.id).max().unwrap_or(0);
        let is_barred = all.into_iter().any(Switch::is_barred);
        if is_barred { Switch::barred(id) } else { Switch::off(id) }
    }

    /// Returns whether a switch may have this id.
    pub fn is_id(id: u32) -> bool {
        id > 0 && id < u32::MAX
    }
}

/// Reason why no switch may spread a group's reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SwitchUnfit {
    /// Writes are not settled in the order of their numbers (hazard 54).
    #[error("the network was founded without --coarse: its members do not settle writes in order")]
    NotCoarse,
    /// There are no leases, of which grants are parts.
    #[error("the network was founded without --leases: its primaries have nothing to grant")]
    NoLeases,
    /// The members are in several clusters, or have no label.
    #[error("its members do not all have the same --cluster label")]
    Scattered,
}

impl GroupState {
    /// Checks that a switch may spread the group's reads, as long as nothing changes: the policy (`docs/design/switch.md`).
    ///
    /// # Errors
    /// Returns the reason why none may.
    pub fn fits_switch(&self) -> Result<(), SwitchUnfit> {
        let mut clusters = self.members.iter().map(|member| &member.cluster);
        let label = clusters.next().filter(|label| !label.is_empty());
        match () {
            () if !self.settings.coarse => Err(SwitchUnfit::NotCoarse),
            () if !self.settings.leases => Err(SwitchUnfit::NoLeases),
            () if label.is_none_or(|label| clusters.any(|other| other != label)) => Err(SwitchUnfit::Scattered),
            () => Ok(()),
        }
    }

    /// Returns whether members may answer reads that a switch sends them. They may not while the members or the range change.
    pub fn may_offload(&self) -> bool {
        let is_calm = self.recovery.is_empty() && self.learners.is_empty() && self.ended.is_none();
        is_calm && self.transactions.is_calm() && self.fits_switch().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_go_up_and_a_bar_holds() {
        let (on, off, barred) = (Switch::on, Switch::off, Switch::barred);
        for (before, next, after) in [
            (off(0), on(5), on(5)),
            (on(5), on(5), on(5)),
            (on(5), on(4), on(5)),
            (off(5), on(5), off(5)),
            (on(5), off(5), off(5)),
            (on(5), off(4), on(5)),
            (on(5), barred(4), barred(5)),
            (off(0), barred(1), barred(1)),
            (barred(5), on(6), barred(5)),
            (barred(5), off(5), off(5)),
        ] {
            assert_eq!(before.then(next), after, "{before:?} {next:?}");
        }
        assert_eq!(Switch::inherited([on(5), off(7)].into_iter()), off(7));
        assert_eq!(Switch::inherited([barred(5), on(7)].into_iter()), barred(7));
        assert_eq!(Switch::inherited([off(0)].into_iter()), Switch::default());
    }
}
