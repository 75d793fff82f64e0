//! Policies of a node: one for each decision that is left to it, chosen by name (`docs/design/policies.md`).
//!
//! All groups of a network agree on the names ([`AgreedPolicies`]). A node's own settings count when it founds a network, and for a
//! decision on which nothing was agreed.

pub(crate) mod capacity;
#[cfg(test)]
mod capacity_test;
#[cfg(test)]
mod division_test;
#[cfg(test)]
mod history_test;
pub mod lifetimes;
pub(crate) mod networks;
pub(crate) mod risk;
pub(crate) mod views;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use group::Group;
use group::config::{AbleMember, DividePolicy, DivisionView};
use group::control::agreed::AgreedPolicies;
use overlay::{NodeId, Point};
use policy::diversity::Diverse;
use policy::division::{ByLoad, Divided, Dividing, Even};
use policy::halves::{Alike, Arbitrary, Halving};
use policy::joining::{Anywhere, Fastest, Joining, MostLoaded, Resilience};
use policy::leading::{Anybody, Leading, LowestAgreement, Oldest, Random};
use policy::nines::Nines;
use policy::p2p::{MultiCluster, P2p};
use policy::repartition::{Fixed, Proportional, Repartitioning};
use policy::size::{Never, Sizing, Thresholds};
use policy::weights::{Able, Capacity};

/// Policies for one decision, by their names; the first is the default.
type PolicyNames<T> = &'static [(&'static str, T)];

const DIVIDE: PolicyNames<DividePolicy> = &[("load", divide::<ByLoad>), ("even", divide::<Even>)];
const JOIN: PolicyNames<&dyn Joining> = &[
    ("resilience", &Resilience),
    ("latency", &Fastest),
    ("load", &MostLoaded),
    ("multi-cluster", &Diverse),
    ("random", &Anywhere),
];
const LEAD: PolicyNames<&dyn Leading> =
    &[("agreement", &LowestAgreement), ("oldest", &Oldest), ("random", &Random), ("anybody", &Anybody)];
const REPARTITION: PolicyNames<&dyn Repartitioning> = &[("proportional", &Proportional), ("off", &Fixed)];
const SIZE: PolicyNames<&dyn Sizing> = &[("thresholds", &Thresholds), ("nines", &Nines), ("off", &Never)];
const SPLIT: PolicyNames<&dyn Halving> =
    &[("alike", &Alike), ("p2p", &P2p), ("multi-cluster", &MultiCluster), ("random", &Arbitrary)];

/// The policies of a node, with their names.
#[derive(Clone, Copy)]
pub struct Policies {
    /// Division of a group's range among primaries.
    pub divide: (&'static str, DividePolicy),
    /// Choice of the group that a newcomer asks.
    pub join: (&'static str, &'static dyn Joining),
    /// Choice of a group's leader.
    pub lead: (&'static str, &'static dyn Leading),
    /// Moves of the boundary between two groups.
    pub repartition: (&'static str, &'static dyn Repartitioning),
    /// Splits, merges and trades of members.
    pub size: (&'static str, &'static dyn Sizing),
    /// Choice of the members for each side then.
    pub split: (&'static str, &'static dyn Halving),
}

/// Unknown policy or decision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownPolicy {
    /// No decision has this name.
    #[error("no policy decides `{0}`: the decisions are divide, join, lead, repartition, size and split")]
    Decision(String),
    /// No policy for this decision has this name.
    #[error("there is no policy `{name}` for {decision}: choose one of {}", known.join(", "))]
    Name {
        /// The decision.
        decision: String,
        /// The name that was given.
        name: String,
        /// The known names.
        known: Vec<&'static str>,
    },
}

impl Policies {
    /// Takes another policy for a decision, both by name.
    ///
    /// # Errors
    /// The decision or the policy is unknown; then no policy has changed.
    pub fn choose(&mut self, decision: &str, name: &str) -> Result<(), UnknownPolicy> {
        match decision {
            "divide" => self.divide = find(DIVIDE, decision, name)?,
            "join" => self.join = find(JOIN, decision, name)?,
            "lead" => self.lead = find(LEAD, decision, name)?,
            "repartition" => self.repartition = find(REPARTITION, decision, name)?,
            "size" => self.size = find(SIZE, decision, name)?,
            "split" => self.split = find(SPLIT, decision, name)?,
            _ => return Err(UnknownPolicy::Decision(decision.into())),
        }
        Ok(())
    }

    /// Returns the policies of a group: those that it agreed on. For a name that this program does not know, the node's own.
    #[must_use]
    pub fn of(self, group: &Group) -> Policies {
        self.with(&group.state().settings.policies)
    }

    /// Returns the same for policies that another group reported.
    #[must_use]
    pub fn with(mut self, agreed: &AgreedPolicies) -> Policies {
        for (decision, name) in &agreed.names {
            if !self.names().contains(&(decision, name)) {
                let _ = self.choose(decision, name);
            }
        }
        self
    }

    /// Returns the agreed policies of a network that is founded with these policies, and these sizes of groups.
    pub fn agreed_on(&self, members_min: u32, members_max: u32) -> AgreedPolicies {
        let mut agreed = AgreedPolicies { members_min, members_max, ..AgreedPolicies::default() };
        self.names().into_iter().for_each(|(decision, name)| agreed.set(decision, name));
        agreed
    }

    /// Returns each decision with the name of its policy.
    pub fn names(&self) -> [(&'static str, &'static str); 6] {
        [
            ("divide", self.divide.0),
            ("join", self.join.0),
            ("lead", self.lead.0),
            ("repartition", self.repartition.0),
            ("size", self.size.0),
            ("split", self.split.0),
        ]
    }
}

fn find<T: Copy>(known: PolicyNames<T>, decision: &str, name: &str) -> Result<(&'static str, T), UnknownPolicy> {
    known.iter().find(|(other, _)| *other == name).copied().ok_or_else(|| UnknownPolicy::Name {
        decision: decision.into(),
        name: name.into(),
        known: known.iter().map(|(name, _)| *name).collect(),
    })
}

impl Default for Policies {
    fn default() -> Policies {
        Policies {
            divide: DIVIDE[0],
            join: JOIN[0],
            lead: LEAD[0],
            repartition: REPARTITION[0],
            size: SIZE[0],
            split: SPLIT[0],
        }
    }
}

impl fmt::Debug for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.names()).finish()
    }
}

/// Divides by the agreed policy; the function that groups call.
pub(crate) fn divide_as_agreed(view: &DivisionView<'_>) -> Option<Vec<(Point, NodeId)>> {
    let agreed = view.policies.name_of("divide").and_then(|name| find(DIVIDE, "divide", name).ok());
    agreed.unwrap_or(DIVIDE[0]).1(view)
}

/// Divides by one policy, in the form that groups call.
fn divide<P: Dividing + Default>(view: &DivisionView<'_>) -> Option<Vec<(Point, NodeId)>> {
    let DivisionView { range, current, load, calm, rested, .. } = *view;
    let able = |member: &AbleMember| {
        let AbleMember { node, age, settled, residual, capacity, agreement } = *member;
        let capacity = capacity.map_or(Capacity::TYPICAL, |capacity| Capacity::of_quarters(capacity.quarters));
        Able { settled, residual, capacity, agreement, ..Able::new(node, age) }
    };
    let able: Vec<Able> = view.able.iter().map(able).collect();
    P::default().divide(&Divided { range, current, able: &able, load, calm, rested })
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn policies_have_names() {
        let mut policies = Policies::default();
        assert_eq!(
            policies.names().map(|(_, name)| name),
            ["load", "resilience", "agreement", "proportional", "thresholds", "alike"]
        );
        for (decision, name) in [
            ("divide", "even"),
            ("join", "random"),
            ("lead", "oldest"),
            ("repartition", "off"),
            ("size", "off"),
            ("split", "random"),
        ] {
            assert_eq!(policies.choose(decision, name), Ok(()));
            assert!(policies.names().contains(&(decision, name)));
        }
        let why = policies.choose("lead", "youngest").unwrap_err().to_string();
        assert_eq!(why, "there is no policy `youngest` for lead: choose one of agreement, oldest, random, anybody");
        assert!(policies.choose("rule", "off").unwrap_err().to_string().contains("repartition"));
    }
}
