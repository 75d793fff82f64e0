//! The clusters that a group spans, and the join rule that keeps them spanned over splits (Harmony §7.5).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::joining::{Joining, Resilience, Sampled};

/// Number of clusters that each group should span: with three, a group may survive the loss of any one of them.
pub const CLUSTERS_MIN: usize = 3;

/// The clusters that a group spans, as a newcomer sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Diversity {
    /// Number of members of the group.
    pub members: usize,
    /// Number of members at which the group splits.
    pub split_at: usize,
    /// Number of clusters with two members or more in the group.
    pub shared: usize,
    /// Number of clusters with one member in the group.
    pub single: usize,
    /// Number of members of the newcomer's cluster in the group.
    pub own: usize,
}

impl Diversity {
    /// Counts the clusters of a group that splits at `split_at` members, given the cluster of each member and the newcomer's.
    pub fn of(clusters: &[&str], own: &str, split_at: usize) -> Diversity {
        let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
        clusters.iter().for_each(|cluster| *sizes.entry(cluster).or_default() += 1);
        let single = sizes.values().filter(|size| **size == 1).count();
        let own = sizes.get(own).copied().unwrap_or(0);
        Diversity { members: clusters.len(), split_at, shared: sizes.len() - single, single, own }
    }

    /// Returns twice the number of clusters that both halves can still span when the group splits. With `m` shared and `p` single clusters,
    /// that number is `m + (p + split_at - members) / 2`: each member that comes until then may be of a new cluster.
    fn reach(&self) -> usize {
        2 * self.shared + self.single + self.split_at.saturating_sub(self.members)
    }

    /// Returns whether the newcomer is diversity-optimal. It is of a cluster with at most one member in the group then, and so no newcomer
    /// of another cluster would let the halves span more.
    fn is_optimal(&self) -> bool {
        self.own <= 1
    }

    /// Returns how badly the newcomer fits, from 0 to 3. 0: the paper's rule lets it in. Where no group's rule does: 1 is a group in which
    /// it is optimal, 2 a group that still reaches enough clusters with it, and 3 any other group.
    fn misfit(&self) -> u8 {
        match (self.is_optimal(), self.reach()) {
            (true, reach) if reach >= 2 * CLUSTERS_MIN => 0,
            (true, _) => 1,
            (false, reach) if reach > 2 * CLUSTERS_MIN => 2,
            (false, _) => 3,
        }
    }
}

/// Chooses a group that loses no cluster by the newcomer: no later split must leave a half with fewer than [`CLUSTERS_MIN`] clusters
/// (Harmony §7.5). Of several such groups it chooses as [`Resilience`].
///
/// In the paper the leader refuses a newcomer that does not fit; here the newcomer, which knows as much, does not ask. So a newcomer that
/// fits nowhere is not left without a group: it joins where it does the least harm.
#[derive(Clone, Copy, Debug, Default)]
pub struct Diverse;

impl Diverse {
    /// Returns the places of the groups that the newcomer fits best.
    fn best(sampled: &[Sampled]) -> Vec<usize> {
        let misfit = |index: &usize| sampled[*index].diversity.misfit();
        let least = (0..sampled.len()).map(|index| misfit(&index)).min();
        (0..sampled.len()).filter(|index| Some(misfit(index)) == least).collect()
    }

    /// Has [`Resilience`] decide between the groups that the newcomer fits best.
    fn among<T>(sampled: &[Sampled], decide: impl Fn(&[Sampled], &[usize]) -> T) -> T {
        let best = Diverse::best(sampled);
        let fitting: Vec<Sampled> = best.iter().map(|index| sampled[*index]).collect();
        decide(&fitting, &best)
    }
}

impl Joining for Diverse {
    fn choose(&self, sampled: &[Sampled], chance: u64) -> Option<usize> {
        Diverse::among(sampled, |fitting, places| Some(places[Resilience.choose(fitting, chance)?]))
    }

    fn undecided(&self, sampled: &[Sampled]) -> Vec<usize> {
        Diverse::among(sampled, |fitting, places| {
            Resilience.undecided(fitting).into_iter().map(|place| places[place]).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use core::time::Duration;

    use overlay::{Incarnation, NodeId, PeerKey};
    use proptest::prelude::*;

    use super::*;
    use crate::halves::{Halving, MemberView};
    use crate::p2p::MultiCluster;

    const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

    fn sampled(clusters: &[&str], own: &str, split_at: usize) -> Sampled {
        let diversity = Diversity::of(clusters, own, split_at);
        Sampled { members: clusters.len(), close: diversity.own, diversity, ..Sampled::default() }
    }

    /// The paper's example: a group of ten members, of which seven are of one cluster, cannot be split with three clusters in both halves.
    #[test]
    fn the_rule_of_the_paper() {
        let ten = ["a", "a", "a", "a", "a", "a", "a", "b", "c", "d"];
        let of = |clusters: &[&str], own: &str, split_at| Diversity::of(clusters, own, split_at).misfit();
        assert_eq!(of(&ten, "e", 10), 1, "1 + 3 / 2 is less than 3");
        assert_eq!(
            (of(&ten, "e", 11), of(&ten, "a", 11)),
            (0, 3),
            "1 + (3 + 1) / 2 is 3, and only if the next is no `a`"
        );
        assert_eq!((of(&ten, "b", 11), of(&ten, "a", 12)), (0, 2));
        assert_eq!(
            Diversity::of(&["a", "a", "b"], "c", 9),
            Diversity { members: 3, split_at: 9, shared: 1, single: 1, own: 0 }
        );
    }

    /// The smaller group has two members of the newcomer's cluster.
    #[test]
    fn diversity_goes_before_need() {
        let groups = [sampled(&["a", "a", "b"], "a", 9), sampled(&["b", "c", "c", "d"], "a", 9)];
        assert_eq!((Diverse.choose(&groups, 0), Resilience.choose(&groups, 0)), (Some(1), Some(0)));
        assert_eq!(Diverse.choose(&[groups[0], groups[0]], 0), Some(0), "it is not left without a group");
        assert_eq!((Diverse.choose(&[], 0), Diverse.undecided(&groups)), (None, Vec::new()));
        let alike = [groups[1], groups[0], groups[1]];
        assert_eq!(Diverse.undecided(&alike), [0, 2], "the fastest of those that fit");
        // No cluster is known: as resilience.
        let unknown = [sampled(&["", "", "", ""], "", 9), sampled(&["", "", ""], "", 9)];
        assert_eq!(Diverse.choose(&unknown, 0), Some(1));
    }

    /// Returns the number of clusters that the half with fewer of them spans, after a split by cluster.
    fn spanned(clusters: &[&str]) -> usize {
        let member = |(peer, cluster): (usize, &&str)| MemberView {
            node: NodeId { peer: PeerKey([peer as u8; 32]), incarnation: Incarnation(1) },
            cluster: (*cluster).into(),
            joined_ms: 0,
            able: true,
            lifetime: Duration::ZERO,
            round_trips: Vec::new(),
        };
        let members: Vec<MemberView> = clusters.iter().enumerate().map(member).collect();
        let first = MultiCluster.first_half(&members);
        let span = |is_first: bool| {
            let half = members.iter().filter(|member| first.contains(&member.node) == is_first);
            half.map(|member| member.cluster.as_str()).collect::<BTreeSet<_>>().len()
        };
        span(true).min(span(false))
    }

    proptest! {
        /// The theorem of Harmony §7.5: a group that reaches enough clusters and lets in only newcomers that fit has enough of them in
        /// both halves when it splits.
        #[test]
        fn no_split_costs_too_many_clusters(
            founders in proptest::collection::vec(0..NAMES.len(), 3..6),
            coming in proptest::collection::vec(0..NAMES.len(), 0..200),
            split_at in 6..16usize,
        ) {
            let mut clusters: Vec<&str> = founders.into_iter().map(|name| NAMES[name]).collect();
            prop_assume!(Diversity::of(&clusters, "", split_at).reach() >= 2 * CLUSTERS_MIN);
            for own in coming.into_iter().map(|name| NAMES[name]) {
                if clusters.len() < split_at && Diversity::of(&clusters, own, split_at).misfit() == 0 {
                    clusters.push(own);
                }
            }
            if clusters.len() == split_at {
                prop_assert!(spanned(&clusters) >= CLUSTERS_MIN, "{clusters:?}");
            }
        }

        /// Where the rule of some group lets the newcomer in, it joins such a group.
        #[test]
        fn it_fits_where_it_can(
            groups in proptest::collection::vec(proptest::collection::vec(0..NAMES.len(), 1..12), 1..6),
            (own, chance) in (0..NAMES.len(), any::<u64>()),
        ) {
            let of = |clusters: &Vec<usize>| {
                sampled(&clusters.iter().map(|name| NAMES[*name]).collect::<Vec<_>>(), NAMES[own], 12)
            };
            let groups: Vec<Sampled> = groups.iter().map(of).collect();
            let chosen = Diverse.choose(&groups, chance).expect("there are some");
            let fits = |group: &Sampled| group.diversity.misfit() == 0;
            prop_assert!(fits(&groups[chosen]) || !groups.iter().any(fits));
            let undecided = Diverse.undecided(&groups);
            prop_assert!(undecided.is_empty() || undecided.contains(&chosen));
        }
    }
}
