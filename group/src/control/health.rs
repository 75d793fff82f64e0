//! Health of a group: its living members. Policies count members that live and vote, not names in the log.

use alloc::string::String;
use alloc::vec::Vec;

use overlay::NodeId;
use serde::{Deserialize, Serialize};

use crate::ballot::Term;
use crate::config::Defect;
use crate::context::Facts;
use crate::control::agreed::AgreedPolicies;
use crate::control::leader::LeaderState;
use crate::control::liveness::Liveness;
use crate::control::load::{self, Workload};
use crate::control::membership::{MEMBERS_MIN, MembershipState};
use overlay::time::WallMillis;

/// Living member, as its leader reports it to a neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LivingMember {
    /// Node of the member.
    pub node: NodeId,
    /// Whether the leader hears it; `false` for a member with an announced absence that is not over.
    pub is_heard: bool,
    /// Cluster of the member.
    pub cluster: String,
    /// Time when it became a member, in group time.
    pub joined: WallMillis,
}

/// Report of a leader to its neighbours, beside the group's reference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Operations a minute in each piece of the range, as in [`crate::message::Heartbeat::load`].
    pub load: Option<Vec<u32>>,
    /// Policies and sizes of groups that the group has.
    pub policies: AgreedPolicies,
    /// Members that live, in the order of the log.
    pub living: Vec<LivingMember>,
    /// Operations a second that the living members can execute together, at least 1; `None` where the leader does not know.
    pub capacity: Option<u32>,
}

impl Health {
    /// Returns whether an honest leader can have sent this.
    pub(crate) fn is_sound(&self, members_max: usize, cluster_bytes_max: usize) -> bool {
        self.load.as_deref().is_none_or(load::is_sound)
            && self.policies.is_sound()
            && self.capacity.is_none_or(|capacity| capacity > 0)
            && self.living.len() <= members_max
            && self.living.iter().all(|member| member.cluster.len() <= cluster_bytes_max)
    }
}

impl MembershipState {
    /// Returns the members that live: those that were not silent for [`Timing::exclude_after`], or with an announced absence that is not
    /// over.
    ///
    /// [`Timing::exclude_after`]: crate::config::Timing::exclude_after
    pub(crate) fn living(&self, facts: Facts<'_>, liveness: &Liveness) -> Vec<LivingMember> {
        let now = facts.now;
        let counts_all = facts.config.defects.has(Defect::DeadCounted);
        let lives = |node| node == facts.me || counts_all || self.dead_at(facts, liveness, node) > now;
        let living = facts.state.members.iter().filter(|member| lives(member.node));
        let told = living.map(|member| LivingMember {
            node: member.node,
            is_heard: member.node == facts.me || !liveness.suspects(facts, member.node),
            cluster: member.cluster.clone(),
            joined: member.joined,
        });
        told.collect()
    }

    /// Returns whether the next step of the group's own log removes dead members. A transaction with a neighbour should wait for that.
    pub(crate) fn is_about_to_remove(&self, facts: Facts<'_>, liveness: &Liveness) -> bool {
        let members = facts.state.members.len();
        let (dead, _) = self.dead(facts, liveness);
        members > MEMBERS_MIN
            && !dead.nodes.is_empty()
            && (self.removals.allowance(members, facts.now) > 0
                || dead.nodes.iter().any(|node| self.has_ended(facts, liveness, *node)))
    }
}

impl LeaderState {
    /// Returns the number of living members and of learners that are about to become members: those that are heard and hold all that was
    /// chosen before the current terms. A learner of a peer that has a living member here replaces that member, and does not count.
    pub(crate) fn strength(&self, facts: Facts<'_>, liveness: &Liveness) -> usize {
        let living = self.membership.living(facts, liveness);
        let terms: Vec<Term> = facts.state.division.iter().map(|part| part.term).collect();
        let counts = |node: NodeId| {
            self.is_complete(node, &terms)
                && !liveness.suspects(facts, node)
                && liveness.has_direct_connections(facts, node)
                && !living.iter().any(|member| member.node.peer == node.peer)
        };
        living.len() + facts.state.learners.iter().filter(|learner| counts(learner.node)).count()
    }

    /// Returns the report for neighbours.
    pub(crate) fn health(&self, facts: Facts<'_>, liveness: &Liveness, workload: &Workload) -> Health {
        let (load, living) = (workload.told_load(facts, liveness), self.membership.living(facts, liveness));
        let policies = facts.state.settings.policies.clone();
        Health { load, policies, capacity: workload.capacities.of(&living), living }
    }
}
