//! Which group a newcomer asks (Scatter §6.1, Harmony §7.3).

/// A group that was sampled, as the newcomer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// Members that it has and hears: the dead are no help.
    pub members: usize,
    /// Those of them who stand where the newcomer stands.
    pub alike: usize,
}

/// Decides where to join.
pub trait Joining: Sync {
    /// Which of them, by its place; `None` only where there is none.
    fn choose(&self, sampled: &[Sampled]) -> Option<usize>;
}

/// Where one more helps most: of the groups with the fewest members that with the fewest from the newcomer's own place.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resilience;

impl Joining for Resilience {
    fn choose(&self, sampled: &[Sampled]) -> Option<usize> {
        let best = sampled.iter().enumerate().min_by_key(|(_, group)| (group.members, group.alike));
        best.map(|(index, _)| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewest_members_then_diversity() {
        let of = |members, alike| Sampled { members, alike };
        assert_eq!(Resilience.choose(&[]), None);
        assert_eq!(Resilience.choose(&[of(5, 0), of(4, 4), of(4, 1), of(4, 2)]), Some(2));
    }
}
