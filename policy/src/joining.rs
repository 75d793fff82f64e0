//! Which group a newcomer asks (Scatter §6.1, Harmony §7.3).

use alloc::vec::Vec;
use core::time::Duration;

/// A group that was sampled, as the newcomer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// Members that it has and hears: the dead are no help.
    pub members: usize,
    /// Members of the group at the newcomer's site.
    pub close: usize,
    /// Members of the group in the network of the newcomer's provider.
    pub near: usize,
    /// How long the newcomer would wait for a majority there; `None` where that was not measured, or too many are silent.
    pub agreement: Option<Duration>,
}

/// Decides where to join.
pub trait Joining: Sync {
    /// Which of them, by its place; `None` only where there is none. `chance` is a number drawn for this.
    fn choose(&self, sampled: &[Sampled], chance: u64) -> Option<usize>;

    /// Those, by their places, between which only [`Sampled::agreement`] decides: it is worth measuring there. None where
    /// nothing depends on it.
    fn undecided(&self, _: &[Sampled]) -> Vec<usize> {
        Vec::new()
    }
}

/// Any of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anywhere;

impl Joining for Anywhere {
    fn choose(&self, sampled: &[Sampled], chance: u64) -> Option<usize> {
        usize::try_from(chance.checked_rem(sampled.len() as u64)?).ok()
    }
}

/// The group that one more member helps most: the one with the fewest members; of several such groups the one with the fewest members at
/// the newcomer's site, then with its provider; of groups that are equal in all of this the one that agrees fastest with the newcomer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resilience;

/// Returns how little the group needs the newcomer: the least needs it most.
fn needs(group: &Sampled) -> (usize, usize, usize) {
    (group.members, group.close, group.near)
}

impl Joining for Resilience {
    fn choose(&self, sampled: &[Sampled], _: u64) -> Option<usize> {
        let slowness = |group: &Sampled| group.agreement.unwrap_or(Duration::MAX);
        let best = sampled.iter().enumerate().min_by_key(|(_, group)| (needs(group), slowness(group)));
        best.map(|(index, _)| index)
    }

    fn undecided(&self, sampled: &[Sampled]) -> Vec<usize> {
        let least = sampled.iter().map(needs).min();
        let best: Vec<usize> = (0..sampled.len()).filter(|index| Some(needs(&sampled[*index])) == least).collect();
        if best.len() > 1 { best } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewest_members_then_diversity() {
        let of = |members, near| Sampled { members, close: near / 2, near, agreement: None };
        assert_eq!(Resilience.choose(&[], 0), None);
        assert_eq!(Resilience.choose(&[of(5, 0), of(4, 4), of(4, 1), of(4, 2)], 0), Some(2));
    }

    #[test]
    fn the_quickest_among_equals() {
        let of = |members, alike, ms: u64| Sampled {
            members,
            close: 0,
            near: alike,
            agreement: (ms > 0).then(|| Duration::from_millis(ms)),
        };
        let sampled = [of(4, 1, 0), of(5, 0, 1), of(4, 1, 30), of(4, 1, 20), of(4, 2, 5)];
        assert_eq!(Resilience.choose(&sampled, 0), Some(3));
        assert_eq!(Resilience.undecided(&sampled), [0, 2, 3]);
        assert_eq!(Resilience.undecided(&sampled[..2]), [], "nothing depends on it");
        assert_eq!(Anywhere.undecided(&sampled), []);
    }

    #[test]
    fn anywhere_is_any_of_them() {
        let of = |members| Sampled { members, close: 0, near: 0, agreement: None };
        assert_eq!(Anywhere.choose(&[], 7), None);
        assert_eq!(
            [0, 1, 5].map(|chance| Anywhere.choose(&[of(3), of(9), of(9)], chance)),
            [Some(0), Some(1), Some(2)]
        );
    }
}
