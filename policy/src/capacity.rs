//! Capacities of a group's members in operations a second, as the leader believes them (Scatter §6.3).
//!
//! Members measure their capacities and report them. A member that reports too much would get a larger part of the group's range. So a
//! capacity above the median is believed only as far as other members saw that member serve operations.

use alloc::vec::Vec;

use crate::weights::Capacity;

/// Before a believed capacity changes, the reported one must differ from it by this factor, in quarters. Measurements of one machine differ
/// by less, so noise changes neither divisions nor boundaries.
const CHANGE_MIN_QUARTERS: u64 = 6;

/// The capacity of one member: its own report, and the observation of other members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// Operations a second that the member reports as its capacity; `None` before it has measured that.
    pub told: Option<u32>,
    /// The most operations a second that the deciding member saw the member execute.
    pub seen: u32,
}

/// Returns the median of the reported capacities, the lower of two; `None` unless more than half of the members have reported one. So a
/// minority that lies cannot move the median above the greatest report of an honest member.
fn typical(claims: &[Claim]) -> Option<u32> {
    let told: Vec<u32> = claims.iter().filter_map(|claim| claim.told).collect();
    (2 * told.len() > claims.len()).then(|| lower_median(told)).flatten()
}

/// Returns the median, the lower of two; `None` if there are no numbers.
fn lower_median(mut all: Vec<u32>) -> Option<u32> {
    all.sort_unstable();
    all.get(all.len().checked_sub(1)? / 2).copied()
}

/// Returns the operations a second that each member can execute, in the order of `claims`, each at least 1. `None` unless more than half of
/// the members have reported their capacities.
///
/// A member that has reported none counts as the median member. No capacity exceeds the median and the number of operations that the member
/// was seen to execute, whichever is more.
pub fn believed(claims: &[Claim]) -> Option<Vec<u32>> {
    let typical = typical(claims)?;
    let of = |claim: &Claim| claim.told.unwrap_or(typical).min(typical.max(claim.seen)).max(1);
    Some(claims.iter().map(of).collect())
}

/// Returns the capacity for decisions, in operations a second: `before`, the one of earlier decisions, unless `now` is less or more by a
/// factor of 1.5.
pub fn settled(before: Option<u32>, now: u32) -> u32 {
    let differs = |before: u32| {
        let (less, more) = (u64::from(before.min(now)), u64::from(before.max(now)));
        more * 4 >= less * CHANGE_MIN_QUARTERS
    };
    before.filter(|before| !differs(*before)).unwrap_or(now)
}

/// Returns each capacity relative to that of the median member, in the order of `all`.
pub fn relative(all: &[u32]) -> Vec<Capacity> {
    let median = lower_median(all.to_vec()).map_or(1, |median| median.max(1));
    all.iter().map(|one| Capacity::of(f64::from(*one) / f64::from(median))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn told(told: u32) -> Claim {
        Claim { told: Some(told), seen: 0 }
    }

    #[test]
    fn most_members_must_tell() {
        let unknown = Claim::default();
        assert_eq!(believed(&[]), None);
        assert_eq!(believed(&[told(9), told(9), unknown, unknown]), None);
        assert_eq!(believed(&[told(8), told(2), told(9), unknown, unknown]), Some(Vec::from([8, 2, 8, 8, 8])));
    }

    #[test]
    fn a_claim_alone_raises_nothing() {
        let honest = [told(1_000), told(1_000), told(900)];
        let with = |claim| believed(&[honest.as_slice(), &[claim]].concat()).map(|all| all[3]);
        assert_eq!(with(told(u32::MAX)), Some(1_000));
        assert_eq!(with(Claim { seen: 3_000, ..told(u32::MAX) }), Some(3_000), "it was seen to execute them");
        assert_eq!(with(Claim { seen: 3_000, ..told(200) }), Some(200), "it may say that it can do less");
    }

    #[test]
    fn noise_changes_nothing() {
        assert_eq!((settled(None, 7), settled(Some(100), 149), settled(Some(100), 67)), (7, 100, 100));
        assert_eq!((settled(Some(100), 150), settled(Some(100), 66)), (150, 66));
    }

    #[test]
    fn capacities_are_relative_to_the_median() {
        let all = [1_000, 1_000, 250, 4_000, 1].map(|one| one * 10);
        let expected = [1.0, 1.0, 0.25, 4.0, 0.0].map(Capacity::of);
        assert_eq!(relative(&all), expected);
        assert_eq!(relative(&[0, 0]), [Capacity::MIN; 2], "nothing is divided by zero");
    }

    fn claims() -> impl Strategy<Value = Vec<Claim>> {
        let claim = (proptest::option::weighted(0.8, 1u32..1 << 24), 0u32..1 << 24);
        proptest::collection::vec(claim.prop_map(|(told, seen)| Claim { told, seen }), 1..13)
    }

    proptest! {
        /// A member that reports more, or is seen to execute more, never counts for less.
        #[test]
        fn more_is_never_less(claims in claims(), chosen: prop::sample::Index, more in 0u32..1 << 24, seen in 0u32..1 << 24) {
            let chosen = chosen.index(claims.len());
            let mut richer = claims.clone();
            richer[chosen].told = richer[chosen].told.map(|told| told + more);
            richer[chosen].seen += seen;
            let (Some(before), Some(after)) = (believed(&claims), believed(&richer)) else { return Ok(()) };
            prop_assert!(after[chosen] >= before[chosen], "{before:?}, then {after:?}");
        }

        /// Fewer than half of the members lie, and none was seen to execute anything: all capacities stay within the reports of honest
        /// members.
        #[test]
        fn liars_stay_within_what_honest_members_tell(
            honest in proptest::collection::vec(1u32..1 << 24, 2..9),
            lies in proptest::collection::vec(1u32..=u32::MAX, 1..9),
        ) {
            let lies = &lies[..lies.len().min(honest.len() - 1)];
            let claims: Vec<Claim> = honest.iter().chain(lies).map(|one| told(*one)).collect();
            let all = believed(&claims).expect("all have told");
            let most = *honest.iter().max().expect("some");
            prop_assert!(all.iter().all(|one| *one <= most), "{all:?} of {claims:?}");
        }

        /// The capacity for decisions stays, while reports differ by a fifth.
        #[test]
        fn it_is_quiet_on_its_own_output(now in 100u32..1 << 24, noise in proptest::collection::vec(80u64..=120, 1..20)) {
            let first = settled(None, now);
            for percent in noise {
                let told = (u64::from(now) * percent / 100) as u32;
                prop_assert_eq!(settled(Some(first), told), first);
            }
        }
    }
}
