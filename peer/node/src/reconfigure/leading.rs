//! Choice of a leader: a leader hands over to a better member, as the policy decides (Scatter §6.2).

use alloc::vec::Vec;
use core::time::Duration;

use group::Group;
use overlay::rng::Rng;
use overlay::time::Time;
use overlay::{Epoch, GroupId, NodeId};
use policy::leading::Candidate;

use crate::config::NodeConfig;
use crate::context::Context;

/// Approximate time between two checks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A leader's notes about the best leader of its group.
#[derive(Debug, Default)]
pub(crate) struct LeadWatch {
    /// The group and epoch that it leads.
    leads: Option<(GroupId, Epoch)>,
    /// The best leader, and the time since which it is.
    wanted: Option<(NodeId, Time)>,
    due: Time,
}

impl LeadWatch {
    /// Checks from time to time whether another member would be a better leader of the group that this node leads. Hands over once that
    /// has been so for long enough.
    pub(crate) fn watch(&mut self, cx: &mut Context<'_>) {
        if cx.now.time < self.due {
            return;
        }
        self.due = cx.now.time + LOOK_EVERY / 2 + cx.rng.duration_below(LOOK_EVERY);
        let leads = cx.replicas.home().filter(|group| group.log().leads());
        let Some((group, better)) = leads.map(|group| (group, better_leader(cx.config, group))) else {
            self.leads = None;
            return;
        };
        let epoch = (group.state().id, group.state().epoch);
        let watch = &mut *self;
        if watch.leads != Some(epoch) {
            (watch.leads, watch.wanted) = (Some(epoch), None);
        }
        let since = watch.wanted.filter(|(before, _)| Some(*before) == better).map_or(cx.now.time, |(_, since)| since);
        watch.wanted = better.map(|better| (better, since));
        if let Some(better) = better
            && cx.now.time.since(since) >= cx.config.timing.resize_after
            && cx.replicas.home_mut().is_some_and(|group| group.pass_lead(better))
        {
            self.wanted = None;
        }
    }

    /// Returns the time of the next check.
    pub(crate) fn due(&self) -> Time {
        self.due
    }
}

/// Returns the member that would be a better leader of this group than this node, if there is one.
fn better_leader(config: &NodeConfig, group: &Group) -> Option<NodeId> {
    let nodes = group.state().nodes();
    let candidate = |node: &NodeId| Candidate {
        agreement: group.agreement_of(*node),
        age: group.age_of(*node),
        draw: draw(group.state().id, group.state().epoch, *node),
    };
    let candidates: Vec<Candidate> = nodes.iter().map(candidate).collect();
    let leads = nodes.iter().position(|node| *node == group.me())?;
    let better = config.policies.of(group).lead.1.choose(&candidates, leads)?;
    nodes.get(better).copied()
}
/// Returns the number that is drawn for a member of a group in this epoch: a hash of all three, so that every member computes the same.
fn draw(group: GroupId, epoch: Epoch, node: NodeId) -> u64 {
    let (peer, _) = node.peer.0.as_chunks::<8>();
    let words = [(group.0 >> 64) as u64, group.0 as u64, epoch.0, node.incarnation.0];
    let all = words.into_iter().chain(peer.iter().map(|word| u64::from_be_bytes(*word)));
    all.fold(0, |state, word| Rng::new(state ^ word).draw())
}

#[cfg(test)]
mod tests {
    use overlay::{Incarnation, PeerKey};

    use super::*;
    use crate::config::NodeConfig;
    use crate::tests::small_net::{Net, key};

    /// Returns the members of the first node's group, by index, that are drawn and that leads now.
    fn drawn_and_leader(net: &Net) -> (usize, Option<usize>) {
        let state = net.nodes[0].group().expect("it is in one").state();
        let of = |index: &usize| draw(state.id, state.epoch, NodeId { peer: key(*index), incarnation: Incarnation(1) });
        let drawn = (0..net.nodes.len()).min_by_key(of).expect("some");
        let leads = |index: &usize| net.nodes[*index].group().is_some_and(|group| group.log().leads());
        (drawn, (0..net.nodes.len()).find(leads))
    }

    /// With `lead=random` the drawn member comes to lead and stays. Another member is drawn for another epoch.
    #[test]
    fn the_drawn_member_leads() {
        let settle = |mut config: NodeConfig| {
            config.policies.choose("lead", "random").expect("a policy of that name");
            NodeConfig { members_min: 1, members_max: 100, ..config }
        };
        let mut net = Net::with(4, settle);
        let mut drawn = alloc::collections::BTreeSet::new();
        for members in 4..9 {
            let leads_drawn = |net: &Net| {
                let (drawn, leads) = drawn_and_leader(net);
                leads == Some(drawn)
            };
            net.run_until(leads_drawn);
            drawn.insert(drawn_and_leader(&net).0);
            net.run_for(Duration::from_secs(3));
            assert!(leads_drawn(&net), "the drawn member of {members} stays leader");
            net.add(settle);
            net.run_until(|net| {
                net.nodes[0].group().is_some_and(|group| {
                    let state = group.state();
                    state.members.len() == members + 1 && state.recovery.is_empty()
                })
            });
        }
        assert!(drawn.len() > 1, "{drawn:?}");
    }

    #[test]
    fn each_member_is_drawn_as_often() {
        let nodes: Vec<NodeId> =
            (0..5).map(|n| NodeId { peer: PeerKey([n; 32]), incarnation: Incarnation(u64::from(n)) }).collect();
        let mut counts = [0; 5];
        for epoch in 0..5_000 {
            let drawn = (0..5).min_by_key(|index| draw(GroupId(7), Epoch(epoch), nodes[*index])).expect("some");
            counts[drawn] += 1;
        }
        assert!(counts.iter().all(|count| (900..1_100).contains(count)), "{counts:?}");
    }
}
