//! Requests for other policies, on which all groups of the network agree.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use group::Group;
use group::control::agreed::{AgreedPolicies, DECISIONS_MAX, MEMBERS_MAX, NAME_BYTES_MAX};
use group::control::state::Entry;
use group::transaction::member::BeginRefusal;
use policy::size::can_flap;
use serde::{Deserialize, Serialize};

use super::{AdminOutcome, Taken};
use crate::policies::Policies;

/// Change of the policies that a network agrees on. Policies that it does not name stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyChange {
    /// Decisions, each with the name of its policy.
    pub names: Vec<(String, String)>,
    /// Lower limit of a group's members.
    pub members_min: Option<u32>,
    /// Upper limit of a group's members.
    pub members_max: Option<u32>,
}

impl PolicyChange {
    /// Returns the policies after this change: of the next version, or the same ones where nothing changes.
    ///
    /// # Errors
    /// A decision or a policy has no such name, or groups of the new sizes would split and merge without end. The text is for the
    /// administrator.
    pub fn applied_to(&self, agreed: &AgreedPolicies) -> Result<AgreedPolicies, String> {
        let is_short = |name: &String| name.len() <= NAME_BYTES_MAX;
        if self.names.len() > DECISIONS_MAX || !self.names.iter().all(|(one, other)| is_short(one) && is_short(other)) {
            return Err("the request has too many decisions, or a name that is too long".to_string());
        }
        let mut next = agreed.clone();
        for (decision, name) in &self.names {
            Policies::default().choose(decision, name).map_err(|why| why.to_string())?;
            next.set(decision, name);
        }
        next.members_min = self.members_min.unwrap_or(next.members_min);
        next.members_max = self.members_max.unwrap_or(next.members_max);
        if next.has_other_sizes(agreed) {
            are_good_sizes(next.members_min, next.members_max)?;
        }
        if next != *agreed {
            next.version += 1;
        }
        match next.is_sound() {
            true => Ok(next),
            false => {
                Err("the network's policies would become invalid: see `scatter network` for the present ones"
                    .to_string())
            }
        }
    }
}

/// # Errors
/// Groups of these sizes are impossible; the text names the possible sizes.
fn are_good_sizes(min: u32, max: u32) -> Result<(), String> {
    if min == 0 || max > MEMBERS_MAX {
        return Err(alloc::format!("a group has from 1 to {MEMBERS_MAX} members"));
    }
    if min > max || can_flap(min as usize, max as usize) {
        return Err(alloc::format!(
            "with min-group {min} and max-group {max}, the halves of a group above max-group would be below min-group: \
            raise max-group, or lower min-group"
        ));
    }
    Ok(())
}

impl Taken {
    /// Proposes the changed policies in the group's log; returns `None` until they are chosen.
    pub(super) fn change_policies(&mut self, group: &mut Group, change: &PolicyChange) -> Option<AdminOutcome> {
        let (known, leads) = (&group.state().settings.policies, group.log().leads());
        let next = match change.applied_to(known) {
            Ok(next) => next,
            Err(why) => return Some(AdminOutcome::Refused(why)),
        };
        match () {
            () if next == *known => Some(AdminOutcome::Done(alloc::vec![group.state().id])),
            // The proposal of this node may still be chosen.
            () if !leads && self.proposed.is_some() => Some(AdminOutcome::Unknown),
            () if !leads => Some(BeginRefusal::NotLeader(None).into()),
            // Afterwards the change is there, or a neighbour's greater policies are: then the change is proposed on top of those.
            () if group.log().is_busy() => None,
            () => {
                group.propose(Entry::Policies(next));
                self.proposed = group.log().leads_under().map(|ballot| (group.state().epoch, ballot));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_makes_the_next_version() {
        let founded = Policies::default().agreed_on(5, 12);
        assert_eq!((founded.version, founded.name_of("size")), (0, Some("thresholds")));
        assert_eq!(PolicyChange::default().applied_to(&founded), Ok(founded.clone()));
        let names = alloc::vec![("size".into(), "nines".into())];
        let change = PolicyChange { names, members_max: Some(15), ..PolicyChange::default() };
        let next = change.applied_to(&founded).unwrap();
        assert_eq!((next.version, next.members_min, next.members_max, next.name_of("size")), (1, 5, 15, Some("nines")));
        assert_eq!(change.applied_to(&next), Ok(next), "once");
    }

    #[test]
    fn bad_changes_say_what_there_is() {
        let founded = Policies::default().agreed_on(5, 12);
        let named = |decision: &str, name: &str| PolicyChange {
            names: alloc::vec![(decision.into(), name.into())],
            ..PolicyChange::default()
        };
        let sized = |min, max| PolicyChange { members_min: min, members_max: max, ..PolicyChange::default() };
        for (bad, said) in [
            (named("size", "huge"), "thresholds, nines"),
            (named("sizes", "nines"), "repartition, size and split"),
            (named("size", &"x".repeat(33)), "a name that is too long"),
            (sized(Some(8), None), "max-group 12"),
            (sized(Some(0), None), "from 1 to"),
            (sized(None, Some(4)), "min-group 5"),
            (sized(None, Some(u32::MAX)), "from 1 to"),
        ] {
            let why = bad.applied_to(&founded).unwrap_err();
            assert!(why.contains(said), "{why}");
        }
    }
}
