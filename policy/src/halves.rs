//! Division of the members when a group splits, and choice of members that move to another group (Harmony §7.4-7.5).

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

use overlay::NodeId;

/// A member, as its leader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// The member's id.
    pub node: NodeId,
    /// The cluster or network that it stands in; members of one cluster may fail together.
    pub cluster: String,
    /// When it became a member, in group time.
    pub joined_ms: u64,
    /// Whether the leader hears it.
    pub able: bool,
    /// The time for which it is expected to live on: its median residual life where lifetimes are known, or else its age, since old members
    /// live longer in most networks (Harmony §7.4).
    pub lifetime: Duration,
    /// The round trips to the members of the same slice, in their order; `None` where the leader does not know one, and for all members
    /// beyond the end.
    pub round_trips: Vec<Option<Duration>>,
}

/// Decides how a group's members are divided.
pub trait Halving: Sync {
    /// Returns the members of the first half; the rest form the second. Neither half is empty where there are two members.
    fn first_half(&self, members: &[MemberView]) -> Vec<NodeId>;

    /// Returns up to `count` members that should move to another group. Only members that are heard move, and never all of them.
    fn movers(&self, members: &[MemberView], count: usize) -> Vec<NodeId>;
}

/// Makes both halves, and a group that gives members away, span as many clusters as they can.
///
/// Members that are heard, the members of each cluster, and old and young members are dealt to both halves in turn. So each cluster
/// of two or more is in both halves, and the clusters of one are shared out evenly, as in Harmony §7.5. The paper divides each cluster by
/// distance where this policy deals by age: that is [`crate::p2p::MultiCluster`]. From the largest cluster the youngest member moves first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alike;

/// Counts the members of each cluster, those that are heard apart from those that are not.
fn sizes(members: &[MemberView]) -> BTreeMap<(bool, &str), usize> {
    let mut sizes = BTreeMap::new();
    members.iter().for_each(|member| *sizes.entry((member.able, member.cluster.as_str())).or_default() += 1);
    sizes
}

impl Halving for Alike {
    fn first_half(&self, members: &[MemberView]) -> Vec<NodeId> {
        let sizes = sizes(members);
        let is_single = |member: &MemberView| sizes[&(member.able, member.cluster.as_str())] == 1;
        let mut order: Vec<&MemberView> = members.iter().collect();
        // The clusters of one are dealt as if they were one cluster.
        order.sort_by_key(|member| {
            let single = is_single(member);
            (!member.able, single, if single { "" } else { member.cluster.as_str() }, member.joined_ms, member.node)
        });
        order.iter().step_by(2).map(|member| member.node).collect()
    }

    fn movers(&self, members: &[MemberView], count: usize) -> Vec<NodeId> {
        movers(members, count, |staying, index| {
            (Reverse(cluster_size(members, staying, index)), Reverse(members[index].joined_ms), members[index].node)
        })
    }
}

/// Takes up to `count` of the members that are heard, never all of them: each time the first member in an order that may depend on the
/// members that stay. Members are given by their places.
pub(crate) fn movers<K: Ord>(
    members: &[MemberView],
    count: usize,
    order: impl Fn(&[usize], usize) -> K,
) -> Vec<NodeId> {
    let mut staying: Vec<usize> = (0..members.len()).filter(|index| members[*index].able).collect();
    let mut movers = Vec::new();
    for _ in 0..count.min(staying.len().saturating_sub(1)) {
        let next = (0..staying.len()).min_by_key(|place| order(&staying, staying[*place]));
        movers.extend(next.map(|place| members[staying.remove(place)].node));
    }
    movers
}

/// Counts the staying members in the cluster of a member.
pub(crate) fn cluster_size(members: &[MemberView], staying: &[usize], index: usize) -> usize {
    staying.iter().filter(|other| members[**other].cluster == members[index].cluster).count()
}

/// Divides members by their keys, which are random: a baseline to compare with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arbitrary;

impl Halving for Arbitrary {
    fn first_half(&self, members: &[MemberView]) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = members.iter().map(|member| member.node).collect();
        nodes.sort_unstable();
        nodes.truncate(members.len().div_ceil(2));
        nodes
    }

    fn movers(&self, members: &[MemberView], count: usize) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = members.iter().filter(|member| member.able).map(|member| member.node).collect();
        nodes.sort_unstable();
        nodes.truncate(count.min(nodes.len().saturating_sub(1)));
        nodes
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use overlay::{Incarnation, PeerKey};
    use proptest::prelude::*;

    use super::*;

    fn member(peer: u8, cluster: &str, joined_ms: u64, able: bool) -> MemberView {
        let node = NodeId { peer: PeerKey([peer; 32]), incarnation: Incarnation(1) };
        MemberView { node, cluster: cluster.into(), joined_ms, able, lifetime: Duration::ZERO, round_trips: Vec::new() }
    }

    #[test]
    fn halves_are_alike() {
        let members = [
            member(1, "a", 1, true),
            member(2, "a", 2, true),
            member(3, "b", 3, true),
            member(4, "b", 4, true),
            member(5, "a", 0, false),
            member(6, "b", 0, false),
        ];
        let first = Alike.first_half(&members);
        let count = |is: &dyn Fn(&MemberView) -> bool| {
            members.iter().filter(|member| is(member) && first.contains(&member.node)).count()
        };
        assert_eq!((first.len(), count(&|m| m.able), count(&|m| m.able && m.cluster == "a")), (3, 2, 1));
        assert_eq!(Alike.first_half(&members[..2]).len(), 1);
    }

    #[test]
    fn anybody_goes_and_not_all() {
        let members = [member(3, "", 5, true), member(2, "", 9, false), member(1, "", 7, true)];
        assert_eq!(Arbitrary.first_half(&members), [members[2].node, members[1].node]);
        assert_eq!(Arbitrary.movers(&members, 9), [members[2].node]);
        assert_eq!(Arbitrary.movers(&members[..1], 1), []);
    }

    #[test]
    fn the_last_who_came_move() {
        let members = [member(1, "", 5, true), member(2, "", 9, false), member(3, "", 7, true)];
        assert_eq!(Alike.movers(&members, 1), [members[2].node]);
        assert_eq!(Alike.movers(&members, 9), [members[2].node]);
        assert_eq!(Alike.movers(&members[..1], 1), []);
    }

    const CLUSTERS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

    fn span<'a>(members: impl Iterator<Item = &'a MemberView>) -> usize {
        members.map(|member| member.cluster.as_str()).collect::<BTreeSet<_>>().len()
    }

    /// Harmony §7.5: clusters of one, three and one member give two halves that span two clusters each.
    #[test]
    fn clusters_of_one_are_shared_out() {
        let clusters = ["a", "b", "b", "b", "c"];
        let members: Vec<_> = (0..5).map(|peer| member(peer, clusters[usize::from(peer)], 1, true)).collect();
        let first = Alike.first_half(&members);
        let (one, other): (Vec<_>, Vec<_>) = members.iter().partition(|member| first.contains(&member.node));
        assert_eq!((one.len(), span(one.into_iter()), span(other.into_iter())), (3, 2, 2));
    }

    #[test]
    fn movers_leave_a_member_of_each_cluster() {
        let clusters = ["a", "b", "b", "b", "c"];
        let members: Vec<_> = (0..5).map(|peer| member(peer, clusters[usize::from(peer)], peer.into(), true)).collect();
        assert_eq!(Alike.movers(&members, 2), [members[3].node, members[2].node]);
    }

    proptest! {
        /// The halves are of equal size, each cluster with two or more heard members is in both, and movers cost no cluster needlessly.
        #[test]
        fn halves_span_what_they_can(places in proptest::collection::vec((0..6_usize, 0..50_u64, any::<bool>()), 2..14)) {
            let members: Vec<_> = places.iter().zip(0..).map(|(place, peer)| {
                member(peer, CLUSTERS[place.0], place.1, place.2)
            }).collect();
            let first = Alike.first_half(&members);
            prop_assert_eq!(first.len(), members.len().div_ceil(2));
            let able = |is_first: bool| {
                members.iter().filter(move |member| member.able && first.contains(&member.node) == is_first)
            };
            let (one, other) = (able.clone()(true).count(), able.clone()(false).count());
            prop_assert!(one.abs_diff(other) <= 1);
            let sizes = sizes(&members);
            let of = |size: fn(usize) -> bool| sizes.iter().filter(|((able, _), count)| *able && size(**count)).count();
            let (large, single) = (of(|count| count > 1), of(|count| count == 1));
            prop_assert!(span(able.clone()(true)) >= large + single / 2 && span(able(false)) >= large + single / 2);
            for count in 0..members.len() {
                let movers = Alike.movers(&members, count);
                let staying = members.iter().filter(|member| member.able && !movers.contains(&member.node));
                prop_assert_eq!(span(staying.clone()), (large + single).min(staying.count()));
            }
        }
    }
}
