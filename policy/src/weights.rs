//! The part of a group's range of which each member should be primary, relative to the rest (Harmony §7.6).

use alloc::vec::Vec;
use core::time::Duration;

use overlay::NodeId;

/// Capacity of a member relative to a typical member, in steps of a quarter, from a quarter to 16 times as much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Capacity(u16);

impl Capacity {
    /// The capacity of a typical member, and of one whose capacity is not known.
    pub const TYPICAL: Capacity = Capacity(4);
    /// The least capacity: a quarter of a typical member's.
    pub const MIN: Capacity = Capacity(1);
    /// The greatest capacity: 16 times a typical member's.
    pub const MAX: Capacity = Capacity(64);

    /// Returns the capacity of so many quarters of a typical member's, clamped to the range from [`Capacity::MIN`] to [`Capacity::MAX`].
    pub fn of_quarters(quarters: u16) -> Capacity {
        Capacity(quarters).clamp(Capacity::MIN, Capacity::MAX)
    }

    /// Returns the capacity in quarters of a typical member's, from 1 to 64.
    pub fn quarters(self) -> u16 {
        self.0
    }

    /// Rounds a capacity relative to a typical member's to the nearest step, and clamps it to the range from [`Capacity::MIN`] to
    /// [`Capacity::MAX`]. Not a number counts as typical.
    pub fn of(relative: f64) -> Capacity {
        match relative.is_nan() {
            true => Capacity::TYPICAL,
            false => Capacity(libm::rint((relative * 4.0).clamp(1.0, 64.0)) as u16),
        }
    }
}

/// A member that can be primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Able {
    /// The member's id.
    pub node: NodeId,
    /// The time for which it has lived as a member.
    pub age: Duration,
    /// The time for which it has been a member with a copy of all records, at most its age.
    pub settled: Duration,
    /// Its median residual life ([`crate::lifetimes::Lifetimes::residual`]); `None` where lifetimes are not known.
    pub residual: Option<Duration>,
    /// Its capacity relative to a typical member.
    pub capacity: Capacity,
    /// The time for which it waits for the answers of a majority; `None` where that is not known.
    pub agreement: Option<Duration>,
}

impl Able {
    /// Creates a member of this age of which nothing else is known.
    pub fn new(node: NodeId, age: Duration) -> Able {
        Able { node, age, settled: age, residual: None, capacity: Capacity::TYPICAL, agreement: None }
    }
}

/// A member of this age is no newcomer in any group.
const OLD: Duration = Duration::from_secs(3_600);
/// Members whose ages differ by less came together: none of them is a newcomer beside the other.
const TOGETHER: Duration = Duration::from_secs(60);
/// A newcomer has no sub-range for this time, which is as long as a division rests (`Timing::rested` of the group). Clients pay for two
/// changes, when the newcomer takes a sub-range and when it dies, and many newcomers die at once.
const EMPTY_FOR: Duration = Duration::from_secs(30);
/// The weight of a typical member that is no newcomer.
const FULL: u64 = 4;

/// The weights of members, and which members are still to grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Weights {
    /// The weight of each member; 0 for a newcomer that should have no sub-range. Not all are 0.
    pub(crate) all: Vec<u64>,
    /// Whether each member is, or was recently, a newcomer: it may have less than its weight says, as that has grown.
    pub(crate) young: Vec<bool>,
}

impl Weights {
    /// Weighs members by their capacities, and newcomers by steps of 0, 1/4, 1/2 and 1 (Harmony §7.6: a newcomer's part starts empty).
    ///
    /// A member that has not been settled for [`EMPTY_FOR`] has weight 0. Afterwards it has a quarter or a half as long as its residual
    /// life is below a quarter or a half of the median member's. Where lifetimes are not known, ages stand for residual lives. Under
    /// exponential lifetimes all residual lives are equal: there a newcomer has its full weight after the first step. A member of at least
    /// [`OLD`] has its full weight, and so has one that came together with the median member.
    pub(crate) fn of(able: &[Able]) -> Weights {
        let median_age = median(able.iter().map(|able| able.age.min(OLD)));
        let lives = lives(able);
        let median_life = median(lives.iter().copied());
        let step = |(able, life): (&Able, &Duration)| match life.as_millis() {
            _ if able.age >= OLD || able.age + TOGETHER >= median_age => FULL,
            _ if able.settled < EMPTY_FOR => 0,
            life if life * 4 < median_life.as_millis() => 1,
            life if life * 2 < median_life.as_millis() => 2,
            _ => FULL,
        };
        let steps: Vec<u64> = able.iter().zip(&lives).map(step).collect();
        let weight = |(step, able): (&u64, &Able)| step * u64::from(able.capacity.0);
        let all: Vec<u64> = steps.iter().zip(able).map(weight).collect();
        let uncapped = median(able.iter().map(|able| able.age));
        let is_young = |able: &Able| able.age < 2 * OLD && able.age + TOGETHER < uncapped;
        Weights { all: reduced(all), young: able.iter().map(is_young).collect() }
    }
}

/// A member is far where its wait for a majority exceeds this multiple of the median member's, in halves: five as a primary, and three as a
/// member without a sub-range. So such a member does not get one back at once when it comes a little nearer.
const FAR: (u32, u32) = (5, 3);
/// A far member also waits at least so much longer: clients do not notice less.
const FAR_MIN: Duration = Duration::from_millis(100);

/// Returns the members that are not far from the rest (Scatter §6.2). Each operation of a far primary takes much longer than that of
/// another, and so does each step of its takeover, which holds up all changes of members until the epoch is established. `is_primary` tells
/// whether a member is primary of some sub-range now. At least half of the members are not far, and a member with an unknown distance is
/// not far.
pub(crate) fn near(able: &[Able], is_primary: impl Fn(NodeId) -> bool) -> Vec<Able> {
    let mut known: Vec<Duration> = able.iter().filter_map(|able| able.agreement).collect();
    known.sort_unstable();
    let Some(median) = known.get(known.len().saturating_sub(1) / 2).copied() else { return able.to_vec() };
    let is_far = |able: &Able| {
        let halves = if is_primary(able.node) { FAR.0 } else { FAR.1 };
        able.agreement.is_some_and(|time| time > (median * halves / 2).max(median + FAR_MIN))
    };
    able.iter().filter(|able| !is_far(able)).copied().collect()
}

/// Returns the time for which each member is expected to live on, in one unit for all: residual lives where all are known, or else ages.
/// Ages from [`OLD`] on are equal, and a small difference in age never counts for much.
fn lives(able: &[Able]) -> Vec<Duration> {
    let residuals: Option<Vec<Duration>> = able.iter().map(|able| able.residual).collect();
    residuals.unwrap_or_else(|| able.iter().map(|able| able.age.min(OLD) + TOGETHER).collect())
}

/// Returns the median, the greater of two; zero of none.
fn median(all: impl Iterator<Item = Duration>) -> Duration {
    let mut all: Vec<Duration> = all.collect();
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or_default()
}

/// Divides the weights by their greatest common divisor.
fn reduced(all: Vec<u64>) -> Vec<u64> {
    fn common(one: u64, other: u64) -> u64 {
        if other == 0 { one } else { common(other, one % other) }
    }
    let divisor = all.iter().copied().fold(0, common).max(1);
    all.into_iter().map(|weight| weight / divisor).collect()
}

#[cfg(test)]
mod tests {
    use overlay::{Incarnation, PeerKey};
    use proptest::prelude::*;

    use super::*;
    use crate::lifetimes::Lifetimes;

    fn member(age_s: u64) -> Able {
        let node = NodeId { peer: PeerKey([7; 32]), incarnation: Incarnation(age_s) };
        Able::new(node, Duration::from_secs(age_s))
    }

    fn weights(ages: &[u64], lifetimes: Option<Lifetimes>) -> Vec<u64> {
        let with_lives = |able: Able| Able { residual: lifetimes.map(|lives| lives.residual(able.age)), ..able };
        Weights::of(&ages.iter().map(|age| with_lives(member(*age))).collect::<Vec<_>>()).all
    }

    #[test]
    fn steps_follow_ages_where_lifetimes_are_not_known() {
        let of = |age| weights(&[9_000, 9_000, age], None);
        assert_eq!((of(0), of(29), of(30)), (Vec::from([1, 1, 0]), Vec::from([1, 1, 0]), Vec::from([4, 4, 1])));
        assert_eq!((of(900), of(1_800), of(90_000)), (Vec::from([2, 2, 1]), Vec::from([1; 3]), Vec::from([1; 3])));
        assert_eq!(weights(&[30, 20, 0], None), [1; 3], "all came together");
    }

    #[test]
    fn steps_follow_residual_lives_where_they_are_known() {
        let exponential = Lifetimes::Exponential { mean: Duration::from_secs(500) };
        let pareto = Lifetimes::Pareto { shape: 1.1, min: Duration::from_secs(45) };
        let of = |lives, age| weights(&[1_000, 1_000, age], Some(lives));
        assert_eq!(
            (of(exponential, 29), of(exponential, 30)),
            (Vec::from([1, 1, 0]), Vec::from([1; 3])),
            "age tells nothing"
        );
        assert_eq!((of(pareto, 45), of(pareto, 249)), (Vec::from([4, 4, 1]), Vec::from([4, 4, 1])));
        assert_eq!((of(pareto, 251), of(pareto, 501)), (Vec::from([2, 2, 1]), Vec::from([1; 3])));
    }

    /// A peer that has just come back is as old as it was, and a member that copied for an hour is older than it is settled.
    #[test]
    fn a_member_that_has_just_settled_has_nothing_yet() {
        let mut able = [member(2_000), member(2_000), member(500)];
        able[2].settled = Duration::from_secs(10);
        assert_eq!(Weights::of(&able).all, [1, 1, 0]);
    }

    #[test]
    fn capacities_are_clamped() {
        let all = [f64::NAN, f64::NEG_INFINITY, 0.3, 1.0, 1.6, f64::INFINITY].map(Capacity::of);
        assert_eq!(
            all,
            [Capacity::TYPICAL, Capacity::MIN, Capacity::MIN, Capacity::TYPICAL, Capacity(6), Capacity::MAX]
        );
    }

    proptest! {
        /// A member with more capacity never has a smaller part of the sum of all weights.
        #[test]
        fn more_capacity_is_never_less_weight(
            quarters in proptest::collection::vec(0u16..80, 1..12), chosen: prop::sample::Index, more in 0u16..80,
        ) {
            let chosen = chosen.index(quarters.len());
            let weights = |quarters: &[u16]| {
                let able = quarters.iter().map(|quarters| Able { capacity: Capacity::of_quarters(*quarters), ..member(9_000) });
                Weights::of(&able.collect::<Vec<_>>()).all
            };
            let mut richer = quarters.clone();
            richer[chosen] += more;
            let (before, after) = (weights(&quarters), weights(&richer));
            let sum = |all: &[u64]| all.iter().sum::<u64>();
            prop_assert!(after[chosen] * sum(&before) >= before[chosen] * sum(&after), "{before:?}, then {after:?}");
        }

        /// At least half of the members have their full weight, and no member's step shrinks while all grow older.
        #[test]
        fn steps_only_rise(
            ages in proptest::collection::vec(0u64..20_000, 1..12), passes in 0u64..5_000, model in 0..3,
            (shape, min) in (0.3f64..5.0, 1u64..100),
        ) {
            let lifetimes = match model {
                0 => None,
                1 => Some(Lifetimes::Exponential { mean: Duration::from_secs(min) }),
                _ => Some(Lifetimes::Pareto { shape, min: Duration::from_secs(min) }),
            };
            let older: Vec<u64> = ages.iter().map(|age| age + passes).collect();
            let (before, after) = (weights(&ages, lifetimes), weights(&older, lifetimes));
            let most = |all: &[u64]| *all.iter().max().expect("some");
            let full = before.iter().filter(|weight| **weight == most(&before)).count();
            prop_assert!(most(&before) > 0 && 2 * full >= ages.len(), "{before:?}");
            let rises = |(before_one, after_one): (&u64, &u64)| after_one * most(&before) >= before_one * most(&after);
            prop_assert!(before.iter().zip(&after).all(rises), "{before:?}, then {after:?}");
        }
    }
}
