//! Who goes where when a group splits, and who when members move (Harmony §7.2).

use alloc::vec::Vec;

use overlay::NodeId;

/// A member, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView<'a> {
    /// Who.
    pub node: NodeId,
    /// Where it stands.
    pub cluster: &'a str,
    /// When it came, in group time.
    pub joined_ms: u64,
    /// It is heard of.
    pub able: bool,
}

/// Decides how a group's members are divided.
pub trait Halving: Sync {
    /// Who belongs to the first of two halves; the rest to the second. Neither is empty where there are two members.
    fn first_half(&self, members: &[MemberView<'_>]) -> Vec<NodeId>;

    /// So many who should move to another group; never all of them.
    fn movers(&self, members: &[MemberView<'_>], count: usize) -> Vec<NodeId>;
}

/// Halves as alike as can be: those who are heard of, those of each cluster, and old and young ones, are dealt to both in turn.
/// Whoever came last moves first: it has the least to lose.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alike;

impl Halving for Alike {
    fn first_half(&self, members: &[MemberView<'_>]) -> Vec<NodeId> {
        let mut order: Vec<&MemberView<'_>> = members.iter().collect();
        order.sort_by_key(|member| (!member.able, member.cluster, member.joined_ms, member.node));
        order.iter().step_by(2).map(|member| member.node).collect()
    }

    fn movers(&self, members: &[MemberView<'_>], count: usize) -> Vec<NodeId> {
        let mut order: Vec<&MemberView<'_>> = members.iter().filter(|member| member.able).collect();
        order.sort_by_key(|member| (core::cmp::Reverse(member.joined_ms), member.node));
        order.iter().take(count.min(members.len().saturating_sub(1))).map(|member| member.node).collect()
    }
}

/// Anybody, as their keys have it, which are chosen by chance: for comparison.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arbitrary;

impl Halving for Arbitrary {
    fn first_half(&self, members: &[MemberView<'_>]) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = members.iter().map(|member| member.node).collect();
        nodes.sort_unstable();
        nodes.truncate(members.len().div_ceil(2));
        nodes
    }

    fn movers(&self, members: &[MemberView<'_>], count: usize) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = members.iter().filter(|member| member.able).map(|member| member.node).collect();
        nodes.sort_unstable();
        nodes.truncate(count.min(members.len().saturating_sub(1)));
        nodes
    }
}

#[cfg(test)]
mod tests {
    use overlay::{Incarnation, PeerKey};

    use super::*;

    fn member(peer: u8, cluster: &str, joined_ms: u64, able: bool) -> MemberView<'_> {
        let node = NodeId { peer: PeerKey([peer; 32]), incarnation: Incarnation(1) };
        MemberView { node, cluster, joined_ms, able }
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
        let count = |is: &dyn Fn(&MemberView<'_>) -> bool| {
            members.iter().filter(|member| is(member) && first.contains(&member.node)).count()
        };
        assert_eq!((first.len(), count(&|m| m.able), count(&|m| m.able && m.cluster == "a")), (3, 2, 1));
        assert_eq!(Alike.first_half(&members[..2]).len(), 1);
    }

    #[test]
    fn anybody_goes_and_not_all() {
        let members = [member(3, "", 5, true), member(2, "", 9, false), member(1, "", 7, true)];
        assert_eq!(Arbitrary.first_half(&members), [members[2].node, members[1].node]);
        assert_eq!(Arbitrary.movers(&members, 9), [members[2].node, members[0].node]);
        assert_eq!(Arbitrary.movers(&members[..1], 1), []);
    }

    #[test]
    fn the_last_who_came_move() {
        let members = [member(1, "", 5, true), member(2, "", 9, false), member(3, "", 7, true)];
        assert_eq!(Alike.movers(&members, 1), [members[2].node]);
        assert_eq!(Alike.movers(&members, 9), [members[2].node, members[0].node]);
        assert_eq!(Alike.movers(&members[..1], 1), []);
    }
}
