//! Splits of a group by latency and lifetime: P2P-split (Harmony §7.4), and multi-cluster split, which runs it in each cluster
//! (Harmony §7.5).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::RangeInclusive;
use core::time::Duration;

use overlay::NodeId;

use crate::halves::{Halving, MemberView, cluster_size, movers};

/// Puts members that are far apart into different halves, such that both halves live on for about as long (Harmony §7.4).
///
/// Pairs of members are taken in decreasing order of their round trips. Of a pair without halves, the longer-lived member goes to the half
/// with the smaller total lifetime, and the other member to the other half. A member whose partner has a half goes to the other half. As
/// soon as a half has half of all members, the rest goes to the other.
///
/// The paper leaves the order of pairs with equal round trips open. Here round trips within an eighth of each other, or 2 ms, are equal:
/// measured ones never are quite, and chance would divide sites. Of equal pairs, those of which one member has a half come first. A member
/// that is as far from members of both halves goes to the half with the smaller total lifetime. So lifetimes decide alone within one site,
/// and where no round trip is known: an unknown one counts as zero. Members that are not heard are divided by themselves, after the rest;
/// the paper has no such members.
///
/// The members that are farthest from those that stay move first; of equally far members, the one that is expected to die first.
#[derive(Clone, Copy, Debug, Default)]
pub struct P2p;

impl Halving for P2p {
    fn first_half(&self, members: &[MemberView]) -> Vec<NodeId> {
        deal(members, |member| !member.able)
    }

    fn movers(&self, members: &[MemberView], count: usize) -> Vec<NodeId> {
        movers(members, count, |staying, index| leaves_first(members, staying, index))
    }
}

/// Makes both halves span as many clusters as they can, and within that bound divides each cluster by [`P2p`] (Harmony §7.5).
///
/// Each cluster of two or more members is divided, and the clusters of one are divided as if they were one cluster. The parts are put
/// together so that both halves have the same size; where that leaves a choice, so that both live on for about as long.
/// [`crate::halves::Alike`] spans as many clusters, and deals the members of each in order of age, at any round trips.
///
/// Members of the largest cluster move first, and of these in the order of [`P2p`].
#[derive(Clone, Copy, Debug, Default)]
pub struct MultiCluster;

impl Halving for MultiCluster {
    fn first_half(&self, members: &[MemberView]) -> Vec<NodeId> {
        let all: Vec<usize> = (0..members.len()).collect();
        let size = |member: &MemberView| {
            all.iter()
                .filter(|other| members[**other].able == member.able && members[**other].cluster == member.cluster)
                .count()
        };
        deal(members, |member| {
            let cluster = if size(member) > 1 { Some(member.cluster.as_str()) } else { None };
            (!member.able, cluster.is_none(), cluster)
        })
    }

    fn movers(&self, members: &[MemberView], count: usize) -> Vec<NodeId> {
        movers(members, count, |staying, index| {
            let size = cluster_size(members, staying, index);
            (Reverse(size), leaves_first(members, staying, index))
        })
    }
}

/// Returns the key by which members are given away: the least is the farthest from the staying members.
fn leaves_first(members: &[MemberView], staying: &[usize], index: usize) -> (Reverse<Duration>, Duration, NodeId) {
    let distances = staying.iter().map(|other| round_trip(members, index, *other));
    (Reverse(distances.fold(Duration::ZERO, Duration::saturating_add)), members[index].lifetime, members[index].node)
}

/// Returns the round trip between two members, as either of them has it; zero where it is not known.
fn round_trip(members: &[MemberView], one: usize, other: usize) -> Duration {
    let known = |from: usize, to: usize| members[from].round_trips.get(to).copied().flatten();
    known(one, other).or_else(|| known(other, one)).unwrap_or_default()
}

/// Runs P2P-split in each class of members, in the order of the classes, and puts the parts together.
fn deal<'a, K: Ord>(members: &'a [MemberView], class_of: impl Fn(&'a MemberView) -> K) -> Vec<NodeId> {
    let mut classes: BTreeMap<K, Vec<usize>> = BTreeMap::new();
    members.iter().enumerate().for_each(|(index, member)| classes.entry(class_of(member)).or_default().push(index));
    let mut halves = [Half::default(), Half::default()];
    for parts in classes.values().map(|class| p2p_split(members, class)) {
        let [first, second] = &halves;
        let [one, other] = &parts;
        let straight = (first.plus(one), second.plus(other));
        let crossed = (first.plus(other), second.plus(one));
        let uneven = |(one, other): &(Half, Half)| {
            (one.members.len().abs_diff(other.members.len()), one.lifetime.abs_diff(other.lifetime))
        };
        let (first, second) = if uneven(&crossed) < uneven(&straight) { crossed } else { straight };
        halves = [first, second];
    }
    halves[0].members.iter().map(|index| members[*index].node).collect()
}

/// Some of the members, by their places.
#[derive(Clone, Debug, Default)]
struct Half {
    members: Vec<usize>,
    /// The sum of the members' lifetimes.
    lifetime: Duration,
}

impl Half {
    fn add(&mut self, members: &[MemberView], index: usize) {
        self.members.push(index);
        self.lifetime = self.lifetime.saturating_add(members[index].lifetime);
    }

    fn plus(&self, other: &Half) -> Half {
        let members = self.members.iter().chain(&other.members).copied().collect();
        Half { members, lifetime: self.lifetime.saturating_add(other.lifetime) }
    }
}

/// Round trips are equal that differ by less than this part of the longer one (an eighth), or by less than [`EQUAL_MIN`].
const EQUAL_PART: u32 = 8;
/// Round trips are equal that differ by less.
const EQUAL_MIN: Duration = Duration::from_millis(2);

/// Divides a class of members into halves whose sizes differ by one at most (Harmony §7.4).
fn p2p_split(members: &[MemberView], class: &[usize]) -> [Half; 2] {
    let mut split = Split { members, halves: Default::default(), full: class.len().div_ceil(2) };
    let mut rest = class.to_vec();
    rest.sort_by_key(|index| (Reverse(members[*index].lifetime), members[*index].node));
    for far in classes(members, &rest) {
        while let Some((index, half)) = split.next(&far, &rest).filter(|_| !split.is_over()) {
            split.halves[half].add(members, index);
            rest.retain(|other| *other != index);
        }
    }
    let to = usize::from(split.is_full(0));
    rest.into_iter().for_each(|index| split.halves[to].add(members, index));
    split.halves
}

/// The state of a split.
struct Split<'a> {
    members: &'a [MemberView],
    halves: [Half; 2],
    /// The size at which a half takes no more members.
    full: usize,
}

impl Split<'_> {
    fn is_full(&self, half: usize) -> bool {
        self.halves[half].members.len() >= self.full
    }

    fn is_over(&self) -> bool {
        self.is_full(0) || self.is_full(1)
    }

    /// Returns the member that gets a half next, and the half. `far` are the round trips of the pairs in question, and `rest` the members
    /// without a half, the longest-lived first. `None` where each such pair has its halves.
    fn next(&self, far: &RangeInclusive<Duration>, rest: &[usize]) -> Option<(usize, usize)> {
        let poorer = usize::from(self.halves[1].lifetime < self.halves[0].lifetime);
        let is_pair = |one, other| one != other && far.contains(&round_trip(self.members, one, other));
        let is_far_from = |half: usize, index| self.halves[half].members.iter().any(|other| is_pair(index, *other));
        let of_half = |index: &usize| match [is_far_from(0, *index), is_far_from(1, *index)] {
            [false, false] => None,
            [true, false] => Some((*index, 1)),
            [false, true] => Some((*index, 0)),
            [true, true] => Some((*index, poorer)),
        };
        let of_none = |index: &usize| rest.iter().any(|other| is_pair(*index, *other)).then_some((*index, poorer));
        rest.iter().find_map(of_half).or_else(|| rest.iter().find_map(of_none))
    }
}

/// Returns the ranges of round trips that count as equal and that some pair of these members has, the longest first.
fn classes(members: &[MemberView], class: &[usize]) -> Vec<RangeInclusive<Duration>> {
    let pairs =
        class.iter().enumerate().flat_map(|(place, one)| class[place + 1..].iter().map(move |other| (*one, *other)));
    let mut round_trips: Vec<Duration> = pairs.map(|(one, other)| round_trip(members, one, other)).collect();
    round_trips.sort_by_key(|round_trip| Reverse(*round_trip));
    let mut all: Vec<RangeInclusive<Duration>> = Vec::new();
    for most in round_trips {
        if all.last().is_none_or(|range| most < *range.start()) {
            all.push(most.saturating_sub((most / EQUAL_PART).max(EQUAL_MIN))..=most);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::string::ToString;

    use overlay::{Incarnation, PeerKey};
    use proptest::prelude::*;

    use super::*;
    use crate::halves::Alike;

    fn id(peer: usize) -> NodeId {
        NodeId { peer: PeerKey([peer as u8; 32]), incarnation: Incarnation(1) }
    }

    /// Members that are all heard, given their clusters, lifetimes in seconds, and round trips in milliseconds by pair.
    fn members(all: &[(&str, u64)], round_trip: impl Fn(usize, usize) -> Option<u64>) -> Vec<MemberView> {
        let view = |(peer, (cluster, lifetime)): (usize, &(&str, u64))| MemberView {
            node: id(peer),
            cluster: cluster.to_string(),
            joined_ms: peer as u64,
            able: true,
            lifetime: Duration::from_secs(*lifetime),
            round_trips: (0..all.len()).map(|other| round_trip(peer, other).map(Duration::from_millis)).collect(),
        };
        all.iter().enumerate().map(view).collect()
    }

    /// Returns the first half by place, in order.
    fn first(policy: &dyn Halving, members: &[MemberView]) -> Vec<usize> {
        let first = policy.first_half(members);
        (0..members.len()).filter(|index| first.contains(&members[*index].node)).collect()
    }

    /// Three members at each of two sites that are about 80 ms apart: not by the order of measured round trips.
    #[test]
    fn far_members_are_parted() {
        let far = |one: usize, other: usize| Some(if one / 3 == other / 3 { 1 } else { 78 + (one * other % 5) as u64 });
        let members = members(&[("", 9), ("", 2), ("", 5), ("", 7), ("", 3), ("", 8)], far);
        assert_eq!((first(&P2p, &members), first(&Alike, &members)), (Vec::from([0, 1, 2]), Vec::from([0, 2, 4])));
    }

    /// The example of the algorithm by hand: 0 and 1 are 90 ms apart, 2 and 3 are 50 ms apart, all other pairs 10 ms.
    #[test]
    fn total_lifetimes_are_evened_out() {
        let round_trip = |one: usize, other: usize| match (one.min(other), one.max(other)) {
            (0, 1) => Some(90),
            (2, 3) => Some(50),
            _ => Some(10),
        };
        let of = |lifetimes: [u64; 4]| first(&P2p, &members(&lifetimes.map(|lifetime| ("", lifetime)), round_trip));
        assert_eq!(
            of([100, 20, 80, 30]),
            [0, 3],
            "the half of the member that lives for 100 s gets the one that lives for 30 s"
        );
        assert_eq!(of([20, 100, 80, 30]), [1, 3]);
        // No round trips: lifetimes alone.
        let blind = members(&[("", 100), ("", 20), ("", 80), ("", 30)], |_, _| None);
        assert_eq!(first(&P2p, &blind), [0, 1]);
    }

    /// Both clusters are in both halves, and in each cluster the two members that are far from each other are parted. `Alike` parts them by
    /// age.
    #[test]
    fn each_cluster_is_divided_by_distance() {
        let round_trip = |one: usize, other: usize| match (one.min(other), one.max(other)) {
            (0, 2) | (1, 3) | (4, 6) | (5, 7) => Some(9),
            (one, other) if one / 4 == other / 4 => Some(1),
            _ => Some(70),
        };
        let all: Vec<(&str, u64)> = (0..8).map(|index| (if index < 4 { "a" } else { "b" }, 10)).collect();
        let members = members(&all, round_trip);
        for (policy, parted) in [(&MultiCluster as &dyn Halving, true), (&Alike, false)] {
            let first = first(policy, &members);
            assert_eq!(first.iter().filter(|index| **index < 4).count(), 2, "{first:?}");
            let apart =
                [(0, 2), (1, 3), (4, 6), (5, 7)].map(|(one, other)| first.contains(&one) != first.contains(&other));
            assert_eq!(apart, [parted; 4], "{first:?}");
        }
        assert_eq!(first(&P2p, &members), [0, 1, 2, 3], "without regard to clusters");
    }

    #[test]
    fn the_farthest_member_moves() {
        let far = |one: usize, other: usize| Some(if one == 2 || other == 2 { 80 } else { 1 });
        let mut members = members(&[("a", 9), ("a", 5), ("b", 9), ("a", 7)], far);
        assert_eq!(P2p.movers(&members, 2), [id(2), id(1)], "then the one that dies first");
        assert_eq!(MultiCluster.movers(&members, 2), [id(1), id(3)], "the only member of its cluster stays");
        members[2].able = false;
        assert_eq!(P2p.movers(&members, 9).len(), 2, "only such as are heard, and never all");
    }

    prop_compose! {
        fn any_members()(all in proptest::collection::vec(
            (0..4usize, 0..1_000u64, any::<bool>(), proptest::collection::vec(proptest::option::of(0..200u64), 12)), 2..12,
        )) -> Vec<MemberView> {
            let places: Vec<(&str, u64)> = all.iter().map(|(cluster, life, ..)| (["a", "b", "c", "d"][*cluster], *life)).collect();
            let mut members = members(&places, |one, other| all[one.min(other)].3[one.max(other)]);
            members.iter_mut().zip(&all).for_each(|(member, (_, _, able, _))| member.able = *able);
            members
        }
    }

    proptest! {
        /// Halves are of equal size, and as many members are heard in both. The two heard members that are farthest apart are parted.
        #[test]
        fn halves_are_even(members in any_members()) {
            for policy in [&P2p as &dyn Halving, &MultiCluster] {
                let first = first(policy, &members);
                let able = |is_first: bool| {
                    (0..members.len()).filter(|index| members[*index].able && first.contains(index) == is_first).count()
                };
                prop_assert!((2 * first.len()).abs_diff(members.len()) <= 1, "{:?}", first);
                prop_assert!(able(true).abs_diff(able(false)) <= 1);
            }
            let heard: Vec<usize> = (0..members.len()).filter(|index| members[*index].able).collect();
            let pairs = heard.iter().flat_map(|one| heard.iter().map(move |other| (*one, *other)));
            let far = classes(&members, &heard).into_iter().next().unwrap_or(Duration::ZERO..=Duration::ZERO);
            let is_far = |pair: &(usize, usize)| pair.0 < pair.1 && far.contains(&round_trip(&members, pair.0, pair.1));
            let farthest: Vec<(usize, usize)> = pairs.filter(is_far).collect();
            // Of several pairs in a triangle not all can be parted.
            if let [(one, other)] = farthest[..] {
                let first = first(&P2p, &members);
                prop_assert!(first.contains(&one) != first.contains(&other));
            }
        }

        /// Without round trips the total lifetimes of the halves of an even number of members differ by one lifetime at most.
        #[test]
        fn lifetimes_are_even(lives in proptest::collection::vec(0..1_000u64, 1..7)) {
            let all: Vec<(&str, u64)> = lives.iter().flat_map(|life| [("", *life), ("", life / 2)]).collect();
            let members = members(&all, |_, _| None);
            let first = first(&P2p, &members);
            let sum = |is_first: bool| -> u64 {
                (0..all.len()).filter(|index| first.contains(index) == is_first).map(|index| all[index].1).sum()
            };
            prop_assert!(sum(true).abs_diff(sum(false)) <= *lives.iter().max().expect("some"));
        }

        /// Harmony §7.5: each cluster with two or more heard members is in both halves, and the clusters of one are shared out. So the
        /// policy spans as many clusters as `Alike`. Movers cost no cluster needlessly.
        #[test]
        fn clusters_are_spanned(members in any_members(), count in 0..12usize) {
            let span = |policy: &dyn Halving, is_first: bool| {
                let first = first(policy, &members);
                let half = (0..members.len()).filter(|index| members[*index].able && first.contains(index) == is_first);
                half.map(|index| members[index].cluster.as_str()).collect::<BTreeSet<_>>().len()
            };
            let [mine, alike] = [&MultiCluster as &dyn Halving, &Alike].map(|policy| [span(policy, true), span(policy, false)]);
            prop_assert_eq!(mine.iter().min(), alike.iter().min());
            prop_assert_eq!(mine.iter().sum::<usize>(), alike.iter().sum::<usize>());
            let all: BTreeSet<&str> = members.iter().filter(|it| it.able).map(|it| it.cluster.as_str()).collect();
            let movers = MultiCluster.movers(&members, count);
            let staying = members.iter().filter(|it| it.able && !movers.contains(&it.node));
            let spanned: BTreeSet<&str> = staying.clone().map(|it| it.cluster.as_str()).collect();
            prop_assert_eq!(spanned.len(), all.len().min(staying.count()));
        }
    }
}
