//! What a group's log says about a switch that spreads its reads (`Harmonia §6.3`), and when one may.

use serde::{Deserialize, Serialize};

use crate::state::GroupState;

/// The switch that spreads a group's reads over its members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Switch {
    /// The id under which it numbers, or the last one did. It only goes up; 0: there was none.
    pub id: u32,
    /// Whether it is to be used.
    pub used: Use,
}

/// Whether a group is to use a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Use {
    /// Not under this id; whoever controls one may name another.
    #[default]
    No,
    /// It is.
    Yes,
    /// Not before a person says so: no id is taken.
    Barred,
}

impl Switch {
    /// This one.
    pub fn on(id: u32) -> Switch {
        Switch { id, used: Use::Yes }
    }

    /// None, after this one.
    pub fn off(id: u32) -> Switch {
        Switch { id, used: Use::No }
    }

    /// None any more, after this one.
    pub fn barred(id: u32) -> Switch {
        Switch { id, used: Use::Barred }
    }

    /// One is to be used.
    pub fn is_on(self) -> bool {
        self.used == Use::Yes
    }

    /// None is, before a person says so.
    pub fn is_barred(self) -> bool {
        self.used == Use::Barred
    }

    /// The id under which one is to be used.
    pub fn wanted(self) -> Option<u32> {
        self.is_on().then_some(self.id)
    }

    /// What the log says after this was applied to it: ids only go up, what is turned off stays so under the same one, and a bar
    /// holds against whatever is named until it is lifted, which is to turn off what is barred.
    #[must_use]
    pub fn then(self, next: Switch) -> Switch {
        match next.used {
            Use::Barred => Switch::barred(self.id.max(next.id)),
            Use::No if next.id >= self.id => next,
            Use::Yes if next.id > self.id && !self.is_barred() => next,
            Use::No | Use::Yes => self,
        }
    }

    /// Of all groups that become one or others: the last id counts, and so does one bar.
    pub fn inherited(all: impl Iterator<Item = Switch> + Clone) -> Switch {
        let id = all.clone().map(|switch| switch.id).max().unwrap_or(0);
        let is_barred = all.into_iter().any(Switch::is_barred);
        if is_barred { Switch::barred(id) } else { Switch::off(id) }
    }

    /// Is this an id that one may have?
    pub fn is_id(id: u32) -> bool {
        id > 0 && id < u32::MAX
    }
}

/// Why no switch may spread a group's reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Writes are not settled in the order of their numbers (hazard 54).
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
    /// Whether a switch may spread the group's reads, as long as nothing changes: the policy (`docs/design/switch.md`).
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
