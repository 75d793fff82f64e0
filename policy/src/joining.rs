//! Choice of the group that a newcomer asks (Scatter §6.1, Harmony §7.3).

use alloc::vec::Vec;
use core::time::Duration;

use crate::diversity::Diversity;
use crate::risk::{NINES_TARGET, nines};

/// A sampled group, as the newcomer sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sampled {
    /// Number of members that the group has and hears: dead members are no help.
    pub members: usize,
    /// Number of members of the group at the newcomer's site.
    pub close: usize,
    /// Number of members of the group in the network of the newcomer's provider.
    pub near: usize,
    /// The probability that the group loses its majority within an hour if one more of its members dies now; `None` where members saw too
    /// few deaths for an estimate. The next death may come before the newcomer does: so a group needs a newcomer before it is in danger.
    pub risk: Option<f64>,
    /// Operations a minute for each living member; `None` where the group does not know yet.
    pub load: Option<f64>,
    /// Operations a second that each living member can execute, on average; `None` where the group does not know yet.
    pub capacity: Option<f64>,
    /// The time for which the newcomer would wait for a majority there; `None` where that was not measured, or too many members are silent.
    pub agreement: Option<Duration>,
    /// The clusters that the group spans.
    pub diversity: Diversity,
}

impl Sampled {
    /// Returns how little the group needs the newcomer: the group with the least result needs it most.
    fn needs(&self) -> (usize, usize, usize) {
        (self.members, self.close, self.near)
    }

    /// Returns whether the group is unlikely to lose its majority: it has [`NINES_TARGET`] nines an hour, after the next death too, or its
    /// risk is not known.
    fn is_safe(&self) -> bool {
        self.risk.is_none_or(|risk| nines(risk) >= NINES_TARGET)
    }

    fn slowness(&self) -> Duration {
        self.agreement.unwrap_or(Duration::MAX)
    }
}

/// Decides which group a newcomer joins.
pub trait Joining: Sync {
    /// Returns the chosen group, by its place; `None` only where there is none. `chance` is a number drawn for this choice.
    fn choose(&self, sampled: &[Sampled], chance: u64) -> Option<usize>;

    /// Returns the groups, by their places, between which only [`Sampled::agreement`] decides: a measurement is worth its cost there. Empty
    /// where nothing depends on it.
    fn undecided(&self, _: &[Sampled]) -> Vec<usize> {
        Vec::new()
    }
}

/// Chooses any group.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anywhere;

impl Joining for Anywhere {
    fn choose(&self, sampled: &[Sampled], chance: u64) -> Option<usize> {
        usize::try_from(chance.checked_rem(sampled.len() as u64)?).ok()
    }
}

/// Chooses the group that one more member helps most.
///
/// If one of the groups would have fewer than [`NINES_TARGET`] nines after its next death, that is the group that is most likely to lose
/// its majority. If all would have as many, it is the group that agrees fastest with the newcomer. Where the risk of a group is not known,
/// it is the group with the fewest members; of several such groups the one with the fewest members at the newcomer's site, then with its
/// provider, then the fastest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resilience;

impl Resilience {
    /// Returns the groups between which only agreement decides.
    fn best(sampled: &[Sampled]) -> Vec<usize> {
        let all = 0..sampled.len();
        let risks: Option<Vec<f64>> = sampled.iter().map(|group| group.risk).collect();
        let Some(risks) = risks else {
            let least = sampled.iter().map(Sampled::needs).min();
            return all.filter(|index| Some(sampled[*index].needs()) == least).collect();
        };
        let worst = risks.iter().copied().fold(0.0, f64::max);
        match nines(worst) < NINES_TARGET {
            true => all.filter(|index| risks[*index] >= worst).collect(),
            false => all.collect(),
        }
    }
}

impl Joining for Resilience {
    fn choose(&self, sampled: &[Sampled], _: u64) -> Option<usize> {
        Resilience::best(sampled).into_iter().min_by_key(|index| (sampled[*index].slowness(), sampled[*index].needs()))
    }

    fn undecided(&self, sampled: &[Sampled]) -> Vec<usize> {
        let best = Resilience::best(sampled);
        if best.len() > 1 { best } else { Vec::new() }
    }
}

/// Chooses the group that agrees fastest with the newcomer; of groups that were not measured the one with the fewest members.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fastest;

impl Joining for Fastest {
    fn choose(&self, sampled: &[Sampled], _: u64) -> Option<usize> {
        (0..sampled.len()).min_by_key(|index| (sampled[*index].slowness(), sampled[*index].needs()))
    }

    fn undecided(&self, sampled: &[Sampled]) -> Vec<usize> {
        if sampled.len() > 1 { (0..sampled.len()).collect() } else { Vec::new() }
    }
}

/// Chooses, of the groups that are unlikely to lose their majorities, the one with the most load relative to its capacity (Scatter §6.3).
///
/// Where one of these groups does not know its capacity, it chooses the group with the most load for each member. Where one does not know
/// its load, where no group has any, or where no group is safe, it chooses as [`Resilience`].
#[derive(Clone, Copy, Debug, Default)]
pub struct MostLoaded;

impl MostLoaded {
    /// Returns the load of each of these groups relative to its capacity; `None` unless all of them know their loads, and one has some.
    fn strains(groups: &[&Sampled]) -> Option<Vec<f64>> {
        let loads: Vec<f64> = groups.iter().map(|group| group.load).collect::<Option<_>>()?;
        let capacities: Option<Vec<f64>> = groups.iter().map(|group| group.capacity).collect();
        let is_loaded = loads.iter().any(|load| *load > 0.0);
        is_loaded.then(|| match capacities {
            Some(capacities) => loads.iter().zip(capacities).map(|(load, capacity)| load / capacity.max(1.0)).collect(),
            None => loads,
        })
    }
}

impl Joining for MostLoaded {
    fn choose(&self, sampled: &[Sampled], chance: u64) -> Option<usize> {
        let safe: Vec<usize> = (0..sampled.len()).filter(|index| sampled[*index].is_safe()).collect();
        let groups: Vec<&Sampled> = safe.iter().map(|index| &sampled[*index]).collect();
        let Some(strains) = MostLoaded::strains(&groups) else {
            return Resilience.choose(sampled, chance);
        };
        // Of equals the group that needs the newcomer most.
        let more = |one: usize, other: usize| strains[one].total_cmp(&strains[other]);
        let needs = |index: usize| core::cmp::Reverse(groups[index].needs());
        let all = 0..groups.len();
        let most = all.max_by(|one, other| more(*one, *other).then_with(|| needs(*one).cmp(&needs(*other))))?;
        safe.get(most).copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(members: usize) -> Sampled {
        Sampled { members, ..Sampled::default() }
    }

    fn after(ms: u64) -> Option<Duration> {
        Some(Duration::from_millis(ms))
    }

    #[test]
    fn fewest_members_then_diversity() {
        let of = |members, near| Sampled { near, close: near / 2, ..of(members) };
        assert_eq!(Resilience.choose(&[], 0), None);
        assert_eq!(Resilience.choose(&[of(5, 0), of(4, 4), of(4, 1), of(4, 2)], 0), Some(2));
    }

    #[test]
    fn the_fastest_among_equals() {
        let of = |members, near, ms: u64| Sampled { near, agreement: after(ms).filter(|_| ms > 0), ..of(members) };
        let sampled = [of(4, 1, 0), of(5, 0, 1), of(4, 1, 30), of(4, 1, 20), of(4, 2, 5)];
        assert_eq!(Resilience.choose(&sampled, 0), Some(3));
        assert_eq!(Resilience.undecided(&sampled), [0, 2, 3]);
        assert_eq!(Resilience.undecided(&sampled[..2]), [], "nothing depends on it");
        assert_eq!(Anywhere.undecided(&sampled), []);
        assert_eq!((Fastest.choose(&sampled, 0), Fastest.undecided(&sampled).len()), (Some(1), 5));
        assert_eq!(
            (Fastest.choose(&[of(5, 0, 0), of(4, 0, 0)], 0), Fastest.undecided(&sampled[..1])),
            (Some(1), Vec::new())
        );
    }

    /// A large group of peers that die soon needs a newcomer more than a small group of peers that live long.
    #[test]
    fn the_group_in_the_greatest_danger_first() {
        let of = |members, risk, ms| Sampled { risk: Some(risk), agreement: after(ms), ..of(members) };
        assert_eq!(Resilience.choose(&[of(5, 1e-5, 1), of(9, 1e-2, 50), of(9, 2e-3, 2)], 0), Some(1));
        assert_eq!(Resilience.undecided(&[of(5, 1e-5, 1), of(9, 1e-2, 50)]), []);
        // All are safe enough: the fastest.
        let safe = [of(5, 1e-5, 30), of(9, 9e-4, 50), of(9, 1e-9, 20)];
        assert_eq!((Resilience.choose(&safe, 0), Resilience.undecided(&safe)), (Some(2), alloc::vec![0, 1, 2]));
        // One does not know: by the number of members.
        let unknown = [of(9, 1e-1, 1), Sampled { risk: None, ..of(5, 0.0, 1) }];
        assert_eq!(Resilience.choose(&unknown, 0), Some(1));
    }

    #[test]
    fn the_most_loaded_member_is_relieved() {
        let of = |members, load| Sampled { load: Some(load), ..of(members) };
        assert_eq!(MostLoaded.choose(&[of(9, 10.0), of(5, 40.0), of(7, 40.0), of(3, 0.0)], 0), Some(1));
        assert_eq!(MostLoaded.choose(&[of(9, 0.0), of(5, 0.0)], 0), Some(1), "nothing is asked: as resilience");
        assert_eq!(MostLoaded.choose(&[of(9, 50.0), Sampled { load: None, ..of(5, 0.0) }], 0), Some(1));
        assert_eq!(MostLoaded.choose(&[], 0), None);
    }

    /// A group of weak members needs help sooner than a group of strong members with more load.
    #[test]
    fn load_counts_beside_capacity() {
        let of = |load, capacity| Sampled { load: Some(load), capacity, ..of(5) };
        assert_eq!(MostLoaded.choose(&[of(90.0, Some(1_000.0)), of(60.0, Some(100.0))], 0), Some(1));
        assert_eq!(MostLoaded.choose(&[of(90.0, None), of(60.0, Some(100.0))], 0), Some(0), "one is not known");
        assert_eq!(MostLoaded.choose(&[of(90.0, Some(0.0)), of(60.0, Some(0.0))], 0), Some(0));
    }

    /// Scatter §6.3: first groups with a low probability of failure are selected, and then the load decides.
    #[test]
    fn load_decides_among_safe_groups() {
        let of = |load, risk| Sampled { load: Some(load), risk, ..of(5) };
        assert_eq!(MostLoaded.choose(&[of(90.0, Some(0.1)), of(60.0, Some(1e-6)), of(50.0, Some(1e-9))], 0), Some(1));
        assert_eq!(MostLoaded.choose(&[of(90.0, None), of(60.0, Some(1e-6))], 0), Some(0), "no deaths were seen");
        assert_eq!(MostLoaded.choose(&[of(90.0, Some(0.1)), of(60.0, Some(0.2))], 0), Some(1), "the most endangered");
        assert_eq!(MostLoaded.choose(&[of(90.0, Some(0.1)), of(0.0, Some(1e-6))], 0), Some(0), "the safe one is idle");
    }

    #[test]
    fn anywhere_is_any_of_them() {
        assert_eq!(Anywhere.choose(&[], 7), None);
        assert_eq!(
            [0, 1, 5].map(|chance| Anywhere.choose(&[of(3), of(9), of(9)], chance)),
            [Some(0), Some(1), Some(2)]
        );
    }

    proptest! {
        /// Each policy chooses one of the groups, and one of the undecided ones where there are some.
        #[test]
        fn one_of_them_is_chosen(
            all in proptest::collection::vec((1usize..20, proptest::option::of(0.0f64..=1.0), proptest::option::of(0.0f64..1e6), any::<Option<u16>>(), proptest::option::of(0.0f64..1e6)), 1..6),
            chance in any::<u64>(),
        ) {
            let view = |(members, risk, load, ms, capacity): (usize, Option<f64>, Option<f64>, Option<u16>, Option<f64>)| {
                let agreement = ms.map(|ms| Duration::from_millis(ms.into()));
                let (close, near, diversity) = (members / 3, members / 2, Diversity::default());
                Sampled { members, close, near, risk, load, capacity, agreement, diversity }
            };
            let all: Vec<Sampled> = all.into_iter().map(view).collect();
            let policies: [&dyn Joining; 4] = [&Anywhere, &Resilience, &Fastest, &MostLoaded];
            for policy in policies {
                let (chosen, undecided) = (policy.choose(&all, chance).expect("there are some"), policy.undecided(&all));
                prop_assert!(chosen < all.len() && (undecided.is_empty() || undecided.contains(&chosen)));
            }
        }

        /// A group with more capacity is joined less for its load; and no group in danger is, while a safe one has load.
        #[test]
        fn the_strained_and_safe_group_is_joined(
            all in proptest::collection::vec((1.0f64..1e6, 1.0f64..1e6, 0.0f64..=0.01), 2..6), more in 1.0f64..1e6,
        ) {
            let view = |(load, capacity, risk): &(f64, f64, f64)| Sampled {
                load: Some(*load), capacity: Some(*capacity), risk: Some(*risk), ..of(7)
            };
            let mut all: Vec<Sampled> = all.iter().map(view).collect();
            let chosen = MostLoaded.choose(&all, 0).expect("there are some");
            prop_assert!(all[chosen].is_safe() || !all.iter().any(Sampled::is_safe));
            let other = (chosen + 1) % all.len();
            all[other].capacity = all[other].capacity.map(|capacity| capacity + more);
            prop_assert_eq!(MostLoaded.choose(&all, 0), Some(chosen));
        }

        /// One more dead member never makes a group less likely to be joined.
        #[test]
        fn danger_attracts(risks in proptest::collection::vec(0.0f64..=1.0, 2..6), more in 0.0f64..=1.0) {
            let view = |risk: &f64| Sampled { risk: Some(*risk), agreement: after(1), ..of(7) };
            let mut all: Vec<Sampled> = risks.iter().map(view).collect();
            let chosen = Resilience.choose(&all, 0).expect("there are some");
            all[chosen].risk = all[chosen].risk.map(|risk| (risk + more).min(1.0));
            prop_assert_eq!(Resilience.choose(&all, 0), Some(chosen));
        }
    }
}
