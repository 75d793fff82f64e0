//! A leader hands over to a member that is better placed, as the policy decides (Scatter §6.2).

use group::Group;
use group::time::Time;
use overlay::{Epoch, GroupId, NodeId};
use policy::leading::Candidate;

use crate::node::Node;
use core::time::Duration;

/// Between two looks, about.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What a leader notes about who should be it.
#[derive(Debug, Default)]
pub(crate) struct LeadWatch {
    /// The epoch that it leads, of which group.
    leads: Option<(GroupId, Epoch)>,
    /// Who should, and since when.
    wanted: Option<(NodeId, Time)>,
    due: Time,
}

impl Node {
    /// Looks from time to time whether another member should lead the group that this node leads, and has it when that has
    /// been so for long enough.
    pub(crate) fn watch_lead(&mut self) {
        if self.now.time < self.lead_watch.due {
            return;
        }
        self.lead_watch.due = self.now.time + LOOK_EVERY / 2 + self.rng.duration_below(LOOK_EVERY);
        let leads = self.hosts.home().filter(|group| group.log().leads());
        let Some((group, better)) = leads.map(|group| (group, self.better_leader(group))) else {
            self.lead_watch.leads = None;
            return;
        };
        let epoch = (group.state().id, group.state().epoch);
        let watch = &mut self.lead_watch;
        if watch.leads != Some(epoch) {
            (watch.leads, watch.wanted) = (Some(epoch), None);
        }
        let since =
            watch.wanted.filter(|(before, _)| Some(*before) == better).map_or(self.now.time, |(_, since)| since);
        watch.wanted = better.map(|better| (better, since));
        if let Some(better) = better
            && self.now.time.since(since) >= self.config.timing.resize_after
            && self.hosts.home_mut().is_some_and(|group| group.pass_lead(better))
        {
            self.lead_watch.wanted = None;
        }
    }

    /// When it looks next.
    pub(crate) fn lead_due(&self) -> Time {
        self.lead_watch.due
    }

    fn better_leader(&self, group: &Group) -> Option<NodeId> {
        let nodes = group.state().nodes();
        let candidates: alloc::vec::Vec<Candidate> = nodes
            .iter()
            .map(|node| Candidate { agreement: group.agreement_of(*node), age: group.age_of(*node) })
            .collect();
        let leads = nodes.iter().position(|node| *node == self.me)?;
        let better = self.config.policies.lead.1.choose(&candidates, leads)?;
        nodes.get(better).copied()
    }
}
