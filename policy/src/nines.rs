//! Splits and merges of groups by their probabilities of failure (Scatter §6.1, §7.2.3).

use alloc::vec::Vec;
use core::time::Duration;

use crate::risk::{Exposure, NINES_TARGET, loses_majority, nines, per_hour};
use crate::size::{Resize, Sizes, Sizing, Thresholds, trade};

/// How likely the members of a group and of its successor are to die.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prospects<'a> {
    /// The time from a death until the group is as safe as before.
    pub window: Duration,
    /// For each member, and each learner that is about to vote, the probability from 0 to 1 that it dies within the window; 1 for a member
    /// that is silent or away.
    pub own: &'a [f64],
    /// The same for the successor's members; `None` where the group is alone, or where its successor's leader has not reported it.
    pub successor: Option<&'a [f64]>,
}

impl Prospects<'_> {
    /// Returns whether these members have the nines that a group should have ([`NINES_TARGET`]). Members count as failing independently: no
    /// number of them helps against the loss of a site. Newcomers and splits spread members over sites.
    fn is_safe(&self, dies: &[f64]) -> bool {
        let members: Vec<Exposure> = dies.iter().map(|dies| Exposure { dies: *dies, site: None }).collect();
        nines(per_hour(loses_majority(&members), self.window)) >= NINES_TARGET
    }

    /// Returns whether the group, or its successor, is likelier to fail than a group should be, without its members that are silent or
    /// away. A member that restarts is no danger, as long as the rest are enough.
    pub(crate) fn is_endangered(&self) -> bool {
        let left = |dies: &[f64]| dies.iter().copied().filter(|dies| *dies < 1.0).collect::<Vec<_>>();
        !self.is_safe(&left(self.own)) || self.successor.is_some_and(|theirs| !self.is_safe(&left(theirs)))
    }

    /// Returns whether two groups of these members would both be safe, also after the death of any one of their members. Members are dealt
    /// to both groups in order of their danger, much as a split does, so that one more dead member never makes a half look safer.
    fn halves_are_safe(&self, mut dies: Vec<f64>) -> bool {
        dies.sort_unstable_by(|one, other| other.total_cmp(one));
        let half = |first: usize| -> Vec<f64> { dies.iter().copied().skip(first).step_by(2).collect() };
        [half(0), half(1)].into_iter().all(|mut half| {
            let living = half.iter().filter(|dies| **dies < 1.0).count();
            // The member in the least danger: its death leaves the rest worst off.
            half.last_mut().into_iter().for_each(|safest| *safest = 1.0);
            living > MEMBERS_MIN && self.is_safe(&half)
        })
    }
}

/// A group with fewer living members is in danger, at any lifetimes: no group removes members below that.
pub(crate) const MEMBERS_MIN: usize = 3;
/// A trade of fewer members is not worth its copies, unless one of the groups has fewer than [`MEMBERS_MIN`].
const TRADED_MIN: usize = 2;

/// Merges two neighbours, or has them trade members, where one of them is likelier to fail than a group should be; splits a group where
/// neither half would be. Where lifetimes are not known, it decides as [`Thresholds`].
///
/// The criterion is the probability that a majority of the very members dies before the dead are replaced. Each member counts by its own
/// age, so old members count for more where lives are long-tailed (Scatter §7.2.3). Between a split and a merge there is room for one death
/// in each half.
///
/// Two neighbours that would split again at once do not merge: the smaller one takes members of the larger. Neighbours that would have more
/// members than the network allows do not merge either: there only trades help. A group with twice that maximum, and so no room for
/// newcomers, splits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nines;

impl Sizing for Nines {
    fn propose(&self, sizes: &Sizes<'_>) -> Option<Resize> {
        let Some(prospects) = sizes.prospects else { return Thresholds.propose(sizes) };
        let Sizes { own, successor, max, .. } = *sizes;
        if own >= 2 * max.max(MEMBERS_MIN) || prospects.halves_are_safe(prospects.own.to_vec()) {
            return Some(Resize::Split);
        }
        let (successor, theirs) = (successor?, prospects.successor?);
        let is_endangered = |members: usize, dies: &[f64]| members < MEMBERS_MIN || !prospects.is_safe(dies);
        let endangered = (is_endangered(own, prospects.own), is_endangered(successor, theirs));
        let all: Vec<f64> = prospects.own.iter().chain(theirs).copied().collect();
        match endangered {
            (false, false) => None,
            _ if own + successor <= max && !prospects.halves_are_safe(all) => Some(Resize::Merge),
            (true, _) if own < successor => trade_some(own, successor),
            (_, true) if own > successor => trade_some(own, successor),
            _ => None, // The larger one is in danger: fewer members would not help it.
        }
    }
}

/// Returns the trade that makes two neighbours equally large, where it is worth its copies.
fn trade_some(own: usize, successor: usize) -> Option<Resize> {
    let is_worth = own.abs_diff(successor) / 2 >= TRADED_MIN || own.min(successor) < MEMBERS_MIN;
    trade(own, successor).filter(|_| is_worth)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;
    use crate::lifetimes::Lifetimes;
    use crate::risk::size_for;

    const WINDOW: Duration = Duration::from_millis(3_300);

    /// Upper limit of members of a group in this network.
    const MAX: usize = 24;

    fn sizes<'a>(own: &'a [f64], successor: Option<&'a [f64]>) -> Sizes<'a> {
        let living = |dies: &[f64]| dies.iter().filter(|dies| **dies < 1.0).count();
        let prospects = Some(Prospects { window: WINDOW, own, successor });
        Sizes { own: living(own), successor: successor.map(living), min: 5, max: MAX, prospects }
    }

    fn propose(own: &[f64], successor: &[f64]) -> Option<Resize> {
        Nines.propose(&sizes(own, Some(successor)))
    }

    /// Returns this number of members of an exponential population with this mean life, in seconds.
    fn alike(members: usize, mean_s: u64) -> Vec<f64> {
        vec![Lifetimes::Exponential { mean: Duration::from_secs(mean_s) }.dies_within(Duration::ZERO, WINDOW); members]
    }

    /// Where peers die soon, groups are larger than where peers live long.
    #[test]
    fn sizes_follow_lifetimes() {
        let safe = |mean_s| size_for(alike(1, mean_s)[0], WINDOW, NINES_TARGET);
        let largest = |mean_s| {
            (1..60).find(|members| propose(&alike(*members, mean_s), &alike(15, mean_s)) == Some(Resize::Split))
        };
        assert_eq!(
            [100, 1_000, 100_000].map(|mean_s| (safe(mean_s), largest(mean_s))),
            [(11, Some(26)), (5, Some(14)), (3, Some(10))]
        );
        // A group that is smaller than is safe merges, or takes members of a larger one.
        let of = |own, successor| propose(&alike(own, 1_000), &alike(successor, 1_000));
        assert_eq!((of(4, 6), of(5, 5), of(2, 11)), (Some(Resize::Merge), None, Some(Resize::Merge)));
        let of = |own, successor| propose(&alike(own, 100), &alike(successor, 100));
        assert_eq!((of(9, 9), of(9, 12), of(11, 13)), (Some(Resize::Merge), Some(Resize::Merge), None));
        assert_eq!(
            (of(8, 17), of(17, 8), of(12, 13)),
            (Some(Resize::Take(4)), Some(Resize::Give(4)), None),
            "too many together"
        );
        assert_eq!(Nines.propose(&sizes(&alike(2, 100), None)), None, "it is alone");
        let blind = Sizes { prospects: None, ..sizes(&alike(4, 1_000), Some(&alike(4, 1_000))) };
        assert_eq!(Nines.propose(&blind), Some(Resize::Merge), "by the thresholds");
    }

    /// Two groups of seven, one of old members and one of young members: only the second is in danger where lives are long-tailed.
    #[test]
    fn the_very_members_count() {
        let pareto = Lifetimes::Pareto { shape: 1.1, min: Duration::from_secs(20) };
        let aged = |age_s: u64| vec![pareto.dies_within(Duration::from_secs(age_s), WINDOW); 7];
        assert_eq!(
            (propose(&aged(3_600), &aged(3_600)), propose(&aged(3_600), &aged(60))),
            (None, Some(Resize::Merge))
        );
        let mut silent = aged(3_600);
        silent[..3].fill(1.0);
        assert_eq!(propose(&silent, &aged(3_600)), Some(Resize::Merge), "one more death and it fails");
    }

    /// A merge waits for a restart of one of nine members. It does not wait for one of five, since the other four are too few.
    #[test]
    fn a_restart_is_no_danger() {
        let urgent = |members: usize, away: usize, mean_s| {
            let (mut own, theirs) = (alike(members, mean_s), alike(members, mean_s));
            own[..away].fill(1.0);
            sizes(&own, Some(&theirs)).is_urgent(Resize::Merge)
        };
        assert_eq!(
            [(9, 1, 1_000), (9, 4, 1_000), (5, 1, 1_000), (3, 1, 1_000_000)]
                .map(|(all, away, mean)| urgent(all, away, mean)),
            [false, false, true, true]
        );
        assert!(!urgent(2 + 1, 0, 1_000_000));
    }

    prop_compose! {
        /// Groups of members of these ages, as their probabilities to die under one model of lifetimes.
        fn any_groups(groups: usize)(
            (is_pareto, mean_s, shape) in (any::<bool>(), prop_oneof![50u64..500, 500u64..20_000], 0.8f64..2.5),
            ages in proptest::collection::vec(proptest::collection::vec(0u64..20_000, 1..20), 1..=groups),
        ) -> Vec<Vec<f64>> {
            let model = match is_pareto {
                true => Lifetimes::Pareto { shape, min: Duration::from_secs(mean_s / 11 + 1) },
                false => Lifetimes::Exponential { mean: Duration::from_secs(mean_s) },
            };
            let dies = |age: &u64| model.dies_within(Duration::from_secs(*age), WINDOW);
            ages.iter().map(|ages| ages.iter().map(dies).collect()).collect()
        }
    }

    /// Divides members as a split does: `dealt` in order of danger, or else in the order in which they come.
    fn split(mut members: Vec<f64>, dealt: bool) -> [Vec<f64>; 2] {
        if dealt {
            members.sort_unstable_by(|one, other| other.total_cmp(one));
            return [0, 1].map(|first| members.iter().copied().skip(first).step_by(2).collect());
        }
        let rest = members.split_off(members.len().div_ceil(2));
        [members, rest]
    }

    /// Makes the change that the group at this place of a ring wants; returns `false` where it wants none.
    fn act(ring: &mut Vec<Vec<f64>>, place: usize, dealt: bool) -> bool {
        let next = (place + 1) % ring.len();
        let successor = (next != place).then(|| ring[next].as_slice());
        let Some(wanted) = Nines.propose(&sizes(&ring[place], successor)) else { return false };
        let moves = |ring: &mut Vec<Vec<f64>>, from: usize, to: usize, count: usize| {
            if dealt {
                ring[from].sort_unstable_by(f64::total_cmp); // The youngest goes first.
            }
            let keeps = ring[from].len() - count;
            let moved = ring[from].split_off(keeps);
            ring[to].extend(moved);
        };
        match wanted {
            Resize::Split => {
                let [first, second] = split(ring[place].clone(), dealt);
                ring[place] = first;
                ring.insert(place + 1, second);
            }
            Resize::Merge => {
                let theirs = ring[next].clone();
                ring[place].extend(theirs);
                ring.remove(next);
            }
            Resize::Give(count) => moves(ring, place, next, count),
            Resize::Take(count) => moves(ring, next, place, count),
        }
        true
    }

    proptest! {
        /// After a split the halves do not merge again, also where one member of each has died since; and a merged group does not split.
        /// The same holds where the estimates of lifetimes differ by a tenth each time.
        #[test]
        fn splits_and_merges_do_not_flap(groups in any_groups(2), noise in 0.9f64..1.1) {
            let [own, successor] = [groups[0].clone(), groups[groups.len() - 1].clone()];
            match propose(&own, &successor) {
                Some(Resize::Split) if own.len() < 2 * MAX => {
                    let half = split(own, true).map(|half| half.into_iter().map(|dies| (dies * noise).min(1.0)).collect::<Vec<_>>());
                    prop_assert_ne!(propose(&half[0], &half[1]), Some(Resize::Merge));
                    let mut worse = half.map(|half| half.into_iter().map(|dies| dies / noise).collect::<Vec<_>>());
                    worse.iter_mut().for_each(|half| *half.last_mut().expect("some") = 1.0);
                    prop_assert_eq!(propose(&worse[0], &worse[1]), None);
                }
                Some(Resize::Merge) => {
                    let all: Vec<f64> = own.iter().chain(&successor).copied().collect();
                    prop_assert_ne!(propose(&all, &[0.5]), Some(Resize::Split));
                }
                Some(Resize::Give(_) | Resize::Take(_)) | Some(Resize::Split) | None => {}
            }
        }

        /// A ring of groups comes to rest, with any division of members in a split.
        #[test]
        fn every_ring_comes_to_rest(groups in any_groups(8), dealt: bool) {
            let mut ring = groups;
            let mut steps = 0;
            while (0..ring.len()).any(|place| act(&mut ring, place, dealt)) {
                steps += 1;
                prop_assert!(steps < 200, "{:?}", ring.iter().map(Vec::len).collect::<Vec<_>>());
            }
        }

        /// One more dead member never makes a group look healthier: a group that was to merge still is, and one that was not to split still
        /// is not.
        #[test]
        fn death_is_never_good(groups in any_groups(2), which in any::<usize>()) {
            let of = |groups: &[Vec<f64>]| propose(&groups[0], &groups[groups.len() - 1]);
            let before = of(&groups);
            let mut worse = groups.clone();
            let group = which % worse.len();
            let member = which / 7 % worse[group].len();
            worse[group][member] = 1.0;
            let after = of(&worse);
            prop_assert!(before == Some(Resize::Split) || after != Some(Resize::Split), "{before:?}, then {after:?}");
            prop_assert!(before != Some(Resize::Merge) || after == Some(Resize::Merge), "{before:?}, then {after:?}");
        }
    }
}
