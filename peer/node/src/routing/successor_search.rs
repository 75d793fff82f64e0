//! The search for the successors of a group that went on without this member.
//!
//! While a member is away its group may remove it, split, merge or trade its range. When the member returns, the former members may all be
//! in groups elsewhere on the ring: they cannot tell the state of a group that they have no part in, and the member would wait for ever. So
//! a member without heartbeats of a majority asks other groups for the owner of its group's range, and the owners for their state, which
//! supersedes its own (`Node::on_foreign_state`).

use alloc::vec::Vec;
use core::time::Duration;

use group::Group;
use group::config::Defect;
use group::message::Message;
use overlay::time::Time;
use overlay::{Epoch, GroupRef, KeyRange};

use crate::context::Context;
use crate::routing::{Locate, RoutingTable, Wanted};
use crate::wire::Frame;

/// Time without heartbeats of a majority after which the search begins: an election or a restart of the whole group takes less.
const BEGINS_AFTER: Duration = Duration::from_secs(4);
/// Time between two questions for the same range.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// The state of the search.
#[derive(Debug, Default)]
pub(crate) struct SuccessorSearch {
    /// Time since which a group of this node lacks heartbeats of a majority.
    since: Option<Time>,
    /// Time of the next check.
    due: Time,
}

impl SuccessorSearch {
    /// Searches for successors of groups without heartbeats of a majority, once a second.
    ///
    /// It sets no timer of its own: heartbeats wake the node more often.
    pub(crate) fn search(&mut self, cx: &mut Context<'_>, routing: &mut RoutingTable) {
        let now = cx.now.time;
        if now < self.due || cx.config.defects.has(Defect::SuccessorsUnsought) {
            return;
        }
        self.due = now + ASK_EVERY;
        let is_alone = |group: &&Group| group.state().ended.is_none() && !group.has_heartbeats_of_majority();
        let own: Vec<GroupRef> = cx.replicas.living().filter(is_alone).map(|group| group.state().reference()).collect();
        if own.is_empty() {
            self.since = None;
            return;
        }
        let since = *self.since.get_or_insert(now);
        if now.since(since) >= BEGINS_AFTER {
            own.iter().for_each(|group| search_successor(cx, routing, group));
        }
    }
}

/// Asks groups that are known to own some of this group's range now for their state, and a group anywhere for the owner of its range.
fn search_successor(cx: &mut Context<'_>, routing: &mut RoutingTable, own: &GroupRef) {
    let later = routing.hints.overlapping(own.range).into_iter().filter(|group| group.epoch > own.epoch);
    for group in later.collect::<Vec<_>>() {
        group.members.iter().for_each(|contact| cx.reach(contact));
        let nodes: Vec<_> = group.nodes().collect();
        cx.send_as(group.id, &nodes, Message::AskState, Epoch(0));
    }
    ask_for_owner(cx, routing, own, own.range);
}

/// Asks a random group, or a former member, for the owner of the start of this range.
fn ask_for_owner(cx: &mut Context<'_>, routing: &mut RoutingTable, own: &GroupRef, range: KeyRange) {
    let Some(ring) = cx.ring else { return };
    let known: Vec<GroupRef> = routing.hints.iter().chain([own.clone()]).collect();
    let chosen = cx.rng.below(known.len() as u64) as usize;
    let Some(contact) = routing.reachable(cx, &known[chosen]) else { return };
    let (point, origin) = (range.start(), cx.contact());
    routing.note_asked(point, cx.now.time);
    cx.tell(&contact, &Frame::Locate(Locate::new(ring, point, origin, Wanted::Owner).into()));
}

#[cfg(test)]
mod tests {
    use group::config::Defects;
    use overlay::PeerKey;

    use super::*;
    use crate::admin::{AdminOutcome, AdminRequest};
    use crate::api::Event;
    use crate::config::NodeConfig;
    use crate::tests::small_net::{Net, key};

    fn members(net: &Net, index: usize) -> Vec<PeerKey> {
        net.nodes[index]
            .group()
            .map_or(Vec::new(), |group| group.state().nodes().iter().map(|node| node.peer).collect())
    }

    /// A member is cut off. Its group removes it and merges; then its former fellows move to the other half of the ring. Returns whether
    /// the member learns within 20 seconds that it has no part in its range any more.
    fn learns_what_became_of_its_group(defects: Defects) -> bool {
        let settle = |config| {
            let mut config = NodeConfig { members_min: 1, members_max: 100, defects, ..config };
            config.policies.choose("size", "off").expect("known");
            config.policies.choose("repartition", "off").expect("known");
            config
        };
        let mut net = Net::with(7, settle);
        let id = |net: &Net, index: usize| net.nodes[index].group().expect("it is in one").state().id;
        let range = |net: &Net, index: usize| net.nodes[index].group().expect("it is in one").state().range;
        let split = AdminRequest::Split { at: None, first: (0..4).map(key).collect() };
        assert!(matches!(net.request(0, id(&net, 0), split), AdminOutcome::Done(_)));
        net.run_until(|net| members(net, 0).len() == 4 && members(net, 6).len() == 3);
        let own = range(&net, 3);
        net.cut[3] = true;
        net.run_until(|net| members(net, 0).len() == 3);
        assert!(matches!(net.request(0, id(&net, 0), AdminRequest::Merge), AdminOutcome::Done(_)));
        net.run_until(|net| [0, 6].iter().all(|index| members(net, *index).len() == 6));
        let split = AdminRequest::Split { at: Some(own.end()), first: (4..7).map(key).collect() };
        assert!(matches!(net.request(0, id(&net, 0), split), AdminOutcome::Done(_)));
        net.run_until(|net| members(net, 0).len() == 3 && members(net, 6).len() == 3);
        assert!(range(&net, 6) == own && !range(&net, 0).overlaps(own));
        net.cut[3] = false;
        net.run_for(Duration::from_secs(20));
        net.events[3].iter().any(|event| matches!(event, Event::Reincarnate { .. }))
    }

    #[test]
    fn a_member_finds_the_successors_of_its_group() {
        assert!(learns_what_became_of_its_group(Defects::NONE));
        assert!(!learns_what_became_of_its_group(Defects::NONE.with(Defect::SuccessorsUnsought)));
    }
}
