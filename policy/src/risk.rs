//! The probability that a group loses a majority of its members before it can replace the dead ones (Scatter §6.1, Fig. 7).

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

/// The nines that a group should have: less than one chance in a thousand to lose its majority within an hour.
pub const NINES_TARGET: f64 = 3.0;
/// The largest size that [`size_for`] finds, in members: each write goes to all members.
pub const MEMBERS_MAX: usize = 31;

/// The exposure of a member to its death.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exposure {
    /// The probability, from 0 to 1, that the member dies within the window; 1 for a member that is suspected or away.
    pub dies: f64,
    /// The network or site whose members fail together; `None` for a member that fails alone.
    pub site: Option<u32>,
}

/// Returns the probability that at most half of these members live at the end of the window: the group has no majority then. `1` for no
/// members at all.
///
/// Members of one site fail together, the most exposed first. So the site loses a member with the probability of its most exposed one, and
/// all of its members with that of its least exposed one. Sites fail independently of each other.
pub fn loses_majority(members: &[Exposure]) -> f64 {
    leaves_fewer(members, members.len() / 2 + 1)
}

/// Returns the probability that fewer than `needed` of these members live at the end of the window.
fn leaves_fewer(members: &[Exposure], needed: usize) -> f64 {
    // The probability of each number of dead members.
    let mut dead = vec![1.0];
    for site in sites(members) {
        let mut next = vec![0.0; dead.len() + site.len()];
        for (more, probability) in exactly(&site).into_iter().enumerate() {
            for (before, known) in dead.iter().enumerate() {
                next[before + more] += known * probability;
            }
        }
        dead = next;
    }
    let lost = members.len() + 1 - needed;
    dead.iter().skip(lost).sum::<f64>().clamp(0.0, 1.0)
}

/// Returns the probability that a group with these members cannot go on at the end of the window: that of the configuration in the greatest
/// danger. Of each former configuration that recovery asks, half must live, since a majority of it has accepted everything.
pub fn cannot_go_on<'a>(members: &[Exposure], former: impl IntoIterator<Item = &'a [Exposure]>) -> f64 {
    let of_former = former.into_iter().map(|members| leaves_fewer(members, members.len().div_ceil(2)));
    of_former.fold(loses_majority(members), f64::max)
}

/// Returns these members after the death of the member in the least danger: this death leaves the rest worst off.
pub fn after_a_death(mut members: Vec<Exposure>) -> Vec<Exposure> {
    let safest = members.iter_mut().min_by(|one, other| one.dies.total_cmp(&other.dies));
    safest.into_iter().for_each(|member| member.dies = 1.0);
    members
}

/// Returns the probability within an hour of an event with this probability in each window. Windows below a millisecond count as one.
pub fn per_hour(probability: f64, window: Duration) -> f64 {
    let windows = 3600.0 / window.as_secs_f64().max(0.001);
    match probability >= 1.0 {
        true => 1.0,
        false => -libm::expm1(windows * libm::log1p(-probability.max(0.0))),
    }
}

/// Returns the number of nines that this probability of failure leaves: 3 for 0.001. At most 16, the limit of the arithmetic.
pub fn nines(probability: f64) -> f64 {
    // Certain failure must not give a negative zero.
    (0.0 - libm::log10(probability.max(1e-16))).clamp(0.0, 16.0)
}

/// Returns the least odd number of members, from 3 to [`MEMBERS_MAX`], that has the wanted nines an hour, where each member dies within the
/// window with probability `dies`; [`MEMBERS_MAX`] if none has. An even number is worse than the odd one below it.
pub fn size_for(dies: f64, window: Duration, wanted: f64) -> usize {
    let has_them = |members: &usize| {
        let members = vec![Exposure { dies, site: None }; *members];
        nines(per_hour(loses_majority(&members), window)) >= wanted
    };
    (3..MEMBERS_MAX).step_by(2).find(has_them).unwrap_or(MEMBERS_MAX)
}

/// Returns for each site the probabilities that its members die, the greatest first.
fn sites(members: &[Exposure]) -> Vec<Vec<f64>> {
    let mut sites: Vec<(Option<u32>, Vec<f64>)> = Vec::new();
    for member in members {
        let dies = member.dies.clamp(0.0, 1.0);
        match sites.iter_mut().find(|(site, _)| site.is_some() && *site == member.site) {
            Some((_, all)) => all.push(dies),
            None => sites.push((member.site, vec![dies])),
        }
    }
    sites.iter_mut().for_each(|(_, all)| all.sort_by(|one, other| other.total_cmp(one)));
    sites.into_iter().map(|(_, all)| all).collect()
}

/// Returns the probability that exactly 0, 1, … members of a site die.
fn exactly(site: &[f64]) -> Vec<f64> {
    let at_least = |count: usize| if count == 0 { 1.0 } else { site.get(count - 1).copied().unwrap_or(0.0) };
    (0..=site.len()).map(|count| at_least(count) - at_least(count + 1)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::lifetimes::Lifetimes;

    fn alone(dies: f64) -> Exposure {
        Exposure { dies, site: None }
    }

    fn group(members: usize, window: f64) -> f64 {
        let lifetimes = Lifetimes::Exponential { mean: Duration::from_secs(100) };
        let dies = lifetimes.dies_within(Duration::ZERO, Duration::from_secs_f64(window));
        loses_majority(&vec![alone(dies); members])
    }

    /// At a mean life of 100 s, and 2.3 s or 11 s until a dead member is replaced.
    #[test]
    fn known_groups_have_known_risks() {
        for (members, window, known) in
            [(7, 2.3, 9.1e-6), (8, 2.3, 1.7e-5), (9, 2.3, 7.1e-7), (11, 2.3, 5.7e-8), (9, 11.0, 1.1e-3)]
        {
            let found = group(members, window);
            assert!((found / known - 1.0).abs() < 0.05, "{members} members, {window} s: {found:e}, not {known:e}");
        }
        assert!(group(8, 2.3) > group(7, 2.3), "an even size is worse than the odd one below it");
        assert!((per_hour(group(9, 11.0), Duration::from_secs(11)) - 0.3).abs() < 0.02);
        assert_eq!((nines(0.001).round(), nines(1.0), nines(0.0)), (3.0, 0.0, 16.0));
        assert!(nines(1.0).is_sign_positive());
    }

    #[test]
    fn no_majority_is_lost_without_members_or_gone_with_the_dead() {
        assert_eq!(loses_majority(&[]), 1.0);
        assert_eq!(loses_majority(&[alone(0.25)]), 0.25);
        assert_eq!(loses_majority(&[alone(1.0), alone(1.0), alone(0.0)]), 1.0);
        assert_eq!(loses_majority(&[alone(1.0), alone(0.0), alone(0.0)]), 0.0);
        let whole = [alone(0.0); 3];
        let former = [alone(1.0), alone(0.5), alone(0.0)];
        assert_eq!(cannot_go_on(&whole, [&former[..]]), 0.5, "recovery needs the former members, too");
        assert_eq!(cannot_go_on(&whole, [&[alone(1.0), alone(0.0)][..]]), 0.0, "and half of an even number");
        assert_eq!(cannot_go_on(&former, []), 0.5);
    }

    #[test]
    fn sizes_follow_lifetimes() {
        let size = |mean_s: u64, wanted: f64| {
            let lifetimes = Lifetimes::Exponential { mean: Duration::from_secs(mean_s) };
            let window = Duration::from_millis(2_300);
            size_for(lifetimes.dies_within(Duration::ZERO, window), window, wanted)
        };
        assert_eq!([100, 500, 1_000, 36_000].map(|mean_s| size(mean_s, 3.0)), [11, 7, 5, 3]);
        assert_eq!((size(100, 1.0), size(100, 5.0), size(1, 3.0)), (7, 13, MEMBERS_MAX));
    }

    #[test]
    fn members_of_one_site_fail_together() {
        let at = |site, dies| Exposure { dies, site: Some(site) };
        assert_eq!(loses_majority(&[at(1, 0.1); 5]), 0.1, "one event takes all");
        let spread = loses_majority(&[at(1, 0.1), at(2, 0.1), at(3, 0.1), at(4, 0.1), at(5, 0.1)]);
        assert!((spread - loses_majority(&[alone(0.1); 5])).abs() < 1e-12 && spread < 0.01);
        // Three of five at one site: as safe as that site.
        assert!(loses_majority(&[at(1, 0.1), at(1, 0.1), at(1, 0.1), alone(0.0), alone(0.0)]) >= 0.1 - 1e-12);
        assert_eq!(loses_majority(&[at(1, 0.3), at(1, 0.1), alone(0.0)]), 0.1, "two die when the safer one does");
    }

    fn exposure() -> impl Strategy<Value = Exposure> {
        (0.0f64..=1.0, proptest::option::of(0u32..3)).prop_map(|(dies, site)| Exposure { dies, site })
    }

    proptest! {
        /// One more dead member never makes a group look healthier.
        #[test]
        fn death_is_never_good(members in proptest::collection::vec(exposure(), 1..14), which in any::<usize>()) {
            let before = loses_majority(&members);
            let mut worse = members.clone();
            worse[which % members.len()].dies = 1.0;
            prop_assert!((0.0..=1.0).contains(&before) && loses_majority(&worse) >= before - 1e-12);
            prop_assert!(loses_majority(&after_a_death(members)) >= before - 1e-12);
        }

        /// No other death leaves a group of members that fail alone in greater danger.
        #[test]
        fn the_next_death_is_the_worst(dies in proptest::collection::vec(0.0f64..=1.0, 1..14), which in any::<usize>()) {
            let members: Vec<Exposure> = dies.iter().map(|dies| alone(*dies)).collect();
            let worst = loses_majority(&after_a_death(members.clone()));
            let mut other = members;
            let which = which % other.len();
            other[which].dies = 1.0;
            prop_assert!(worst >= loses_majority(&other) - 1e-12);
        }

        /// The sum over all outcomes agrees, where each member fails alone.
        #[test]
        fn the_sum_over_all_outcomes_agrees(dies in proptest::collection::vec(0.0f64..=1.0, 1..10)) {
            let members: Vec<Exposure> = dies.iter().map(|dies| alone(*dies)).collect();
            let mut sum = 0.0;
            for outcome in 0u32..1 << dies.len() {
                let is_dead = |index: usize| outcome >> index & 1 == 1;
                if 2 * outcome.count_ones() as usize >= dies.len() {
                    sum += (0..dies.len()).map(|index| if is_dead(index) { dies[index] } else { 1.0 - dies[index] }).product::<f64>();
                }
            }
            prop_assert!((loses_majority(&members) - sum).abs() < 1e-9, "{} and {sum}", loses_majority(&members));
        }
    }
}
