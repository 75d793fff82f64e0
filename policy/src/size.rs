//! Changes of a group's size: it splits, merges with its successor, or trades members with it (Scatter §6.1, Harmony §7.3).

use crate::nines::{MEMBERS_MIN, Prospects};

/// The sizes of a group and of its successor, in members that live and vote.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes<'a> {
    /// The group's living members, with learners that are about to vote.
    pub own: usize,
    /// The successor's living members; `None` where the group is alone on the ring.
    pub successor: Option<usize>,
    /// The least members that a group should have.
    pub min: usize,
    /// The most members that a group should have.
    pub max: usize,
    /// How likely the members of both groups are to die; `None` where members saw too few deaths for an estimate.
    pub prospects: Option<Prospects<'a>>,
}

/// A change of a group's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resize {
    /// The group splits into two.
    Split,
    /// The group merges with its successor.
    Merge,
    /// This number of the group's members move to its successor.
    Give(usize),
    /// This number of the successor's members move to the group.
    Take(usize),
}

impl Sizes<'_> {
    /// Returns whether the change should begin at once. Other changes of a group's size wait: a member that has just gone may be back soon,
    /// or a newcomer may be on the way.
    ///
    /// A split is urgent where the group has half as many members again as the maximum. Where many peers join at one time, groups grow
    /// faster than they split otherwise, and each write goes to all of their members. A merge or a trade is urgent where one of the groups
    /// has fewer than three members, or is likelier to fail than a group should be. Where that probability is not known, it is urgent where
    /// one of the groups has fewer than two thirds of the minimum.
    pub fn is_urgent(&self, wanted: Resize) -> bool {
        let Sizes { own, successor, min, max, prospects } = *self;
        if wanted == Resize::Split {
            return 2 * own >= 3 * max;
        }
        let fewest = successor.map_or(own, |successor| own.min(successor));
        fewest < MEMBERS_MIN || prospects.map_or(3 * fewest < 2 * min, |prospects| prospects.is_endangered())
    }
}

/// Decides about a group's size.
pub trait Sizing: Sync {
    /// Returns the change that should follow; `None` where the sizes are right. Quiet on its own output, unless [`can_flap`].
    fn propose(&self, sizes: &Sizes<'_>) -> Option<Resize>;
}

/// Leaves groups as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Never;

impl Sizing for Never {
    fn propose(&self, _: &Sizes<'_>) -> Option<Resize> {
        None
    }
}

/// Returns whether groups of these limits would split and merge again and again: the halves of a group that is too large must not be too
/// small.
pub fn can_flap(min: usize, max: usize) -> bool {
    max + 1 < 2 * min
}

/// Splits a group with more members than the maximum. Where one of two neighbours has fewer members than the minimum, both merge, or, where
/// the merged group would be too large, trade members until they have equal sizes.
///
/// Each group looks only at its successor, so every pair of neighbours is looked at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Thresholds;

impl Sizing for Thresholds {
    fn propose(&self, sizes: &Sizes<'_>) -> Option<Resize> {
        let Sizes { own, successor, min, max, .. } = *sizes;
        if own > max {
            return Some(Resize::Split);
        }
        let successor = successor.filter(|other| own < min || *other < min)?;
        if own + successor <= max {
            return Some(Resize::Merge);
        }
        trade(own, successor)
    }
}

/// Returns the trade that makes two neighbours equally large; `None` where they are.
pub(crate) fn trade(own: usize, successor: usize) -> Option<Resize> {
    match (own.abs_diff(successor) / 2, own < successor) {
        (0, _) => None,
        (count, true) => Some(Resize::Take(count)),
        (count, false) => Some(Resize::Give(count)),
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    fn propose(own: usize, successor: Option<usize>) -> Option<Resize> {
        Thresholds.propose(&Sizes { own, successor, min: 5, max: 12, prospects: None })
    }

    #[test]
    fn by_the_thresholds() {
        assert_eq!(propose(12, None), None);
        assert_eq!(propose(13, Some(1)), Some(Resize::Split));
        assert_eq!(propose(1, None), None, "there is nobody to merge with");
        assert_eq!(propose(5, Some(5)), None);
        assert_eq!(propose(4, Some(8)), Some(Resize::Merge));
        assert_eq!(propose(8, Some(4)), Some(Resize::Merge));
        assert_eq!(propose(4, Some(9)), Some(Resize::Take(2)));
        assert_eq!(propose(12, Some(3)), Some(Resize::Give(4)));
        // Nine members of which four are dead, where six are wanted; and thirteen of which six are dead.
        let of = |own, successor| {
            Thresholds.propose(&Sizes { own, successor: Some(successor), min: 6, max: 12, prospects: None })
        };
        assert_eq!((of(5, 12), of(5, 7), of(7, 7)), (Some(Resize::Take(3)), Some(Resize::Merge), None));
        assert_eq!(Never.propose(&Sizes { own: 99, successor: Some(1), min: 5, max: 12, prospects: None }), None);
    }

    #[test]
    fn danger_does_not_wait() {
        let sizes = |own, successor| Sizes { own, successor: Some(successor), min: 7, max: 15, prospects: None };
        let urgent = |own, successor| sizes(own, successor).is_urgent(Resize::Take(1));
        assert_eq!(
            [(6, 9), (5, 9), (4, 9), (9, 4), (9, 5)].map(|(own, other)| urgent(own, other)),
            [false, false, true, true, false]
        );
        let smallest = Sizes { min: 1, ..sizes(2, 9) };
        assert!(smallest.is_urgent(Resize::Merge) && !Sizes { own: 3, ..smallest }.is_urgent(Resize::Merge));
        assert_eq!(
            [22, 23].map(|own| sizes(own, 4).is_urgent(Resize::Split)),
            [false, true],
            "a split helps no small group"
        );
        // Six members that are likely to die soon, and six that are not.
        let of = |dies: &[f64]| {
            let prospects = Some(Prospects { window: Duration::from_secs(4), own: dies, successor: None });
            Sizes { prospects, ..sizes(6, 9) }.is_urgent(Resize::Merge)
        };
        assert_eq!([of(&[0.02; 6]), of(&[0.000_01; 6])], [true, false]);
    }

    /// The policy proposes nothing for the sizes that its own proposal leads to, from any sizes.
    #[test]
    fn quiet_on_its_own_output() {
        for (min, max) in [(5, 12), (3, 5), (2, 3), (1, 1), (6, 11)] {
            assert!(!can_flap(min, max));
            let next = |own, successor| Thresholds.propose(&Sizes { own, successor, min, max, prospects: None });
            for own in 1..=2 * max {
                for successor in 1..=max {
                    let after = match next(own, Some(successor)) {
                        None => continue,
                        Some(Resize::Split) => (own.div_ceil(2), Some(own / 2)),
                        Some(Resize::Merge) => (own + successor, None),
                        Some(Resize::Give(count)) => (own - count, Some(successor + count)),
                        Some(Resize::Take(count)) => (own + count, Some(successor - count)),
                    };
                    assert_eq!(
                        next(after.0, after.1),
                        None,
                        "{own} and {successor} become {after:?}, of {min} to {max}"
                    );
                }
            }
        }
        assert!(can_flap(8, 12), "the papers' own");
    }
}
