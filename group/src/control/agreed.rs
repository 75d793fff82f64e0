//! Policies that all groups of a network agree on, and the spread of a change over the ring.
//!
//! A change is chosen in one group's log, on an administrator's request. That group's leader tells its neighbours. Their leaders have it
//! chosen in their logs, and so on around the ring. Policies have a total order, so all groups end with the same ones in any order of
//! changes: a group takes the greater ones, and so does a group born of other groups.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::config::Defect;
use crate::context::Facts;
use crate::control::state::Entry;
use crate::transaction::member::Transactions;

/// Upper limit of named decisions.
pub const DECISIONS_MAX: usize = 16;
/// Upper limit of a decision's name and of a policy's name, in bytes.
pub const NAME_BYTES_MAX: usize = 32;
/// A group follows a neighbour only if its policies were changed at most this many times more: one wrong message must not use up all
/// versions.
const VERSIONS_AHEAD_MAX: u64 = 1 << 20;
/// Upper limit of the sizes of groups, in members.
pub const MEMBERS_MAX: u32 = 1 << 16;

/// Policies and sizes of groups that one network agrees on, ordered by their fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AgreedPolicies {
    /// Number of changes since the network was founded.
    pub version: u64,
    /// Size below which a group is too small, in members.
    pub members_min: u32,
    /// Size above which a group is too large, in members.
    pub members_max: u32,
    /// Each decision with the name of its policy, ordered by decision.
    pub names: Vec<(String, String)>,
}

impl AgreedPolicies {
    /// Returns the name of the policy for a decision; `None` where nothing was agreed on.
    pub fn name_of(&self, decision: &str) -> Option<&str> {
        self.names.iter().find(|(known, _)| known == decision).map(|(_, name)| name.as_str())
    }

    /// Sets the policy for a decision, by name. Leaves the version as it is.
    pub fn set(&mut self, decision: &str, name: &str) {
        match self.names.binary_search_by(|(known, _)| known.as_str().cmp(decision)) {
            Ok(index) => self.names[index].1 = name.into(),
            Err(index) => self.names.insert(index, (decision.into(), name.into())),
        }
    }

    /// Returns the greater ones of both.
    #[must_use]
    pub fn then(&self, other: &AgreedPolicies) -> AgreedPolicies {
        self.max(other).clone()
    }

    /// Returns whether an honest group can have these.
    pub fn is_sound(&self) -> bool {
        let is_name = |name: &str| {
            let letters = name.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
            (1..=NAME_BYTES_MAX).contains(&name.len()) && letters
        };
        self.version < u64::MAX / 2
            && (1..=self.members_max).contains(&self.members_min)
            && self.members_max <= MEMBERS_MAX
            && self.names.len() <= DECISIONS_MAX
            && self.names.is_sorted_by(|one, other| one.0 < other.0)
            && self.names.iter().all(|(decision, name)| is_name(decision) && is_name(name))
    }

    /// Returns whether a group with these should take the `other` ones, which a neighbour has.
    pub fn gives_way_to(&self, other: &AgreedPolicies) -> bool {
        self < other && other.version - self.version <= VERSIONS_AHEAD_MAX
    }

    /// Returns whether the `other` ones have other sizes of groups.
    pub fn has_other_sizes(&self, other: &AgreedPolicies) -> bool {
        (self.members_min, self.members_max) != (other.members_min, other.members_max)
    }
}

impl Transactions {
    /// Returns the entry that takes over a neighbour's policies, where these are greater.
    pub(crate) fn follow_policies(&self, facts: Facts<'_>) -> Option<Entry> {
        if facts.config.defects.has(Defect::PoliciesNotTold) {
            return None;
        }
        let own = &facts.state.settings.policies;
        self.heard_policies(own).map(|heard| Entry::Policies(heard.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed(version: u64, names: &[(&str, &str)]) -> AgreedPolicies {
        let mut agreed = AgreedPolicies { version, members_min: 5, members_max: 12, names: Vec::new() };
        names.iter().for_each(|(decision, name)| agreed.set(decision, name));
        agreed
    }

    #[test]
    fn one_of_two_changes_wins_at_all_groups() {
        let founded = agreed(0, &[("size", "thresholds"), ("lead", "oldest")]);
        assert_eq!(founded.names[0].0, "lead", "ordered by decision");
        let mut one = founded.clone();
        one.set("size", "nines");
        one.version = 1;
        let mut other = AgreedPolicies { version: 1, members_max: 15, ..founded.clone() };
        assert_eq!(one.then(&other), other.then(&one));
        assert_eq!(one.then(&founded), one);
        assert!(founded.gives_way_to(&one) && !one.gives_way_to(&founded) && !one.gives_way_to(&one));
        assert!(one.has_other_sizes(&other) && !one.has_other_sizes(&founded));
        assert_eq!((one.name_of("size"), one.name_of("join")), (Some("nines"), None));
        other.version = 2 << 20;
        assert!(!founded.gives_way_to(&other), "no honest neighbour is so far ahead");
    }

    #[test]
    fn nonsense_is_refused() {
        let good = agreed(3, &[("size", "nines")]);
        assert!(good.is_sound());
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for bad in [
            AgreedPolicies { members_min: 0, ..good.clone() },
            AgreedPolicies { members_min: 13, ..good.clone() },
            AgreedPolicies { members_max: MEMBERS_MAX + 1, ..good.clone() },
            AgreedPolicies { version: u64::MAX, ..good.clone() },
            AgreedPolicies { names: alloc::vec![("b".into(), "x".into()), ("a".into(), "x".into())], ..good.clone() },
            AgreedPolicies { names: alloc::vec![("a".into(), "x".into()); 2], ..good.clone() },
            agreed(3, &[("size", "")]),
            agreed(3, &[("size", "a\nb")]),
            agreed(3, &[("size", &long)]),
        ] {
            assert!(!bad.is_sound(), "{bad:?}");
        }
    }
}
