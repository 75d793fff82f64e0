//! The probability that a group loses its majority before it can replace dead members (Scatter §6.1, Fig. 7), from lifetimes
//! ([`crate::policies::lifetimes`]) and the time that a replacement takes.

use alloc::string::String;
use alloc::vec::Vec;
use core::iter::repeat_n;
use core::time::Duration;

use group::Group;
use group::control::health::LivingMember;
use group::control::state::Member;
use group::message::Parting;
use overlay::NodeId;
use policy::history;
use policy::lifetimes::Lifetimes;
use policy::nines::Prospects;
use policy::risk::{Exposure, after_a_death, cannot_go_on, nines, per_hour};

use crate::config::NodeConfig;
use crate::policies::lifetimes::LifeWatch;
use crate::policies::networks::sites;
use crate::policies::views::age;

/// Time that a change of members takes, as assumed where this node has seen none.
const RECONFIGURATION: Duration = Duration::from_millis(300);

/// The lifetimes of peers in a network, as one node estimates them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LifetimesStatus {
    /// The model that fits best; `None` before enough deaths were seen.
    pub model: Option<Lifetimes>,
    /// The deaths that were observed, as far as they have not faded.
    pub deaths: f64,
}

/// The risk of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RiskStatus {
    /// Time from a death until the group is as safe as before: detection, removal, and copying all of the group's records.
    pub window: Duration,
    /// Probability, from 0 to 1, that the group loses its majority within the window.
    pub in_window: f64,
    /// The same within an hour, if the group stays as it is.
    pub in_hour: f64,
    /// Number of nines that this leaves: 3 for a probability of 0.001 an hour. From 0 to 16.
    pub nines: f64,
}

/// Probabilities of death of the members of a group and of its successor.
#[derive(Clone, Debug)]
pub(crate) struct Dangers {
    window: Duration,
    own: Vec<f64>,
    successor: Option<Vec<f64>>,
}

impl Dangers {
    /// Returns them in the form for policies.
    pub(crate) fn prospects(&self) -> Prospects<'_> {
        Prospects { window: self.window, own: &self.own, successor: self.successor.as_deref() }
    }
}

impl LifeWatch {
    /// Returns this node's estimate of lifetimes.
    pub(crate) fn status(&self) -> LifetimesStatus {
        LifetimesStatus { model: self.model(), deaths: self.deaths() }
    }

    /// Returns the risk of a group; `None` before enough deaths were seen, or where this node is no member.
    pub(crate) fn risk_of(&self, config: &NodeConfig, group: &Group) -> Option<RiskStatus> {
        self.risk_with(config, group, |members| members)
    }

    /// Returns the risk that the group would have if one more of its members died now; `None` as for [`LifeWatch::risk_of`]. The next member may
    /// well die before the next newcomer comes, so this risk tells whether a group needs a newcomer.
    pub(crate) fn risk_after_a_death(&self, config: &NodeConfig, group: &Group) -> Option<RiskStatus> {
        self.risk_with(config, group, after_a_death)
    }

    /// Returns the risk of a group with other exposures of its members, which keep their order.
    fn risk_with(
        &self,
        config: &NodeConfig,
        group: &Group,
        change: impl FnOnce(Vec<Exposure>) -> Vec<Exposure>,
    ) -> Option<RiskStatus> {
        let lifetimes = self.model()?;
        let state = group.state();
        if !state.is_member(group.me()) {
            return None;
        }
        let window = self.risk_window(config, group);
        let current = change(self.exposures(config, group, &lifetimes, window));
        let former = state.recovery.iter().map(|config| {
            let of = |node: &NodeId| match state.members.iter().position(|member| member.node == *node) {
                Some(index) => current[index],
                // The node went to another group, or was removed.
                None if self.is_seen_dead(*node) => Exposure { dies: 1.0, site: None },
                None => Exposure { dies: lifetimes.dies_within(Duration::ZERO, window), site: None },
            };
            config.members.iter().map(of).collect()
        });
        let former: Vec<Vec<Exposure>> = former.collect();
        let in_window = cannot_go_on(&current, former.iter().map(Vec::as_slice));
        let in_hour = per_hour(in_window, window);
        Some(RiskStatus { window, in_window, in_hour, nines: nines(in_hour) })
    }

    /// Returns the probabilities of death of the members of a group and of its successor, each by its age; `None` if lifetimes are not
    /// known. A learner that is about to vote counts as a new member. For a neighbour's members only the ages are known, not the histories.
    pub(crate) fn dangers_of(&self, config: &NodeConfig, group: &Group) -> Option<Dangers> {
        let lifetimes = self.model()?;
        let window = self.risk_window(config, group);
        let learners = group.strength().saturating_sub(group.living().len());
        let newcomer = history::dies_within(&lifetimes, Duration::ZERO, window, None);
        let own = self.exposures(config, group, &lifetimes, window).into_iter().map(|member| member.dies);
        let now = group.group_time();
        let theirs = |member: &LivingMember| match member.is_heard {
            true => history::dies_within(&lifetimes, age(member, now), window, None),
            false => 1.0,
        };
        Some(Dangers {
            window,
            own: own.chain(repeat_n(newcomer, learners)).collect(),
            successor: group.successor_health().map(|(_, health)| health.living.iter().map(theirs).collect()),
        })
    }

    fn risk_window(&self, config: &NodeConfig, group: &Group) -> Duration {
        let copying = group.table().bytes() as f64 / config.transfer_bytes_per_s.max(1) as f64;
        let copying = Duration::try_from_secs_f64(copying).unwrap_or(Duration::MAX);
        let change = self.reconfiguration().unwrap_or(RECONFIGURATION);
        config.timing.exclude_after.saturating_add(change).saturating_add(copying)
    }

    /// Returns each member's exposure, in the order of the members.
    fn exposures(&self, config: &NodeConfig, group: &Group, lifetimes: &Lifetimes, window: Duration) -> Vec<Exposure> {
        let (members, hears) = (&group.state().members, group.hears());
        let places: Vec<(&str, &[String])> =
            members.iter().map(|member| (member.cluster.as_str(), member.addresses.as_slice())).collect();
        let stops = |node| matches!(group.last_parting(node), Parting::Stops { .. });
        let is_here = |node: NodeId| node == group.me() || (hears.contains(&node) && !stops(node));
        let exposure = |(member, site): (&Member, Option<u32>)| Exposure {
            dies: match is_here(member.node) {
                true => self.dies_within(config, group, member.node, lifetimes, window),
                false => 1.0,
            },
            site,
        };
        members.iter().zip(sites(&places)).map(exposure).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NodeConfig;
    use crate::tests::small_net::Net;

    /// Of five members two die, one after the other: while one is silent and still a member, the group is in more danger.
    #[test]
    fn a_silent_member_endangers_its_group() {
        let mut net = Net::with(5, |config| NodeConfig { members_min: 1, members_max: 100, ..config });
        // After this time no member counts as a stranger.
        net.run_for(Duration::from_secs(15));
        let risk =
            |net: &Net| net.nodes[0].group().and_then(|group| net.nodes[0].lives.risk_of(&net.nodes[0].config, group));
        let after = |net: &Net| {
            net.nodes[0].group().and_then(|group| net.nodes[0].lives.risk_after_a_death(&net.nodes[0].config, group))
        };
        assert_eq!((risk(&net), after(&net)), (None, None), "no death was seen");
        net.nodes[0].lives.assume(Lifetimes::Exponential { mean: Duration::from_secs(100) });
        let known = risk(&net).expect("known");
        // The risk of three of five deaths within 3 s or a little more, each with 0.03.
        assert!((2.0e-4..4.5e-4).contains(&known.in_window), "{known:?}");
        assert!((0.1..0.5).contains(&known.in_hour) && known.nines < 1.0, "{known:?}");
        let expected = after(&net).expect("known");
        net.cut[4] = true;
        net.run_for(Duration::from_millis(2_600));
        let worse = risk(&net).expect("known");
        assert!(worse.in_window > 10.0 * known.in_window && worse.in_window < 0.1, "{worse:?}");
        assert!((0.9..1.1).contains(&(expected.in_hour / worse.in_hour)), "a newcomer was told: {expected:?}");
        let members = |net: &Net| net.nodes[0].group().map_or(0, |group| group.state().members.len());
        net.run_until(|net| members(net) == 4);
        net.run_for(Duration::from_secs(1));
        let after = risk(&net).expect("known");
        // Four members need as many as five of which one is dead.
        assert!(after.in_window < 1.1 * worse.in_window && after.in_window > 0.9 * worse.in_window, "{after:?}");
    }
}
