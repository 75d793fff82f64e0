//! Choice of the member that leads a group (Scatter §6.2, Harmony §7.2).

use core::time::Duration;

/// A member, as the leader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The time for which it waits for a majority of the members; `None` where that is not known, or where it cannot lead now.
    pub agreement: Option<Duration>,
    /// The time for which it has been a member.
    pub age: Duration,
    /// A number drawn for it, uniform over all values. All members of the group know the same one, as long as the epoch lasts.
    pub draw: u64,
}

/// Decides which member should lead.
pub trait Leading: Sync {
    /// Returns the member that should lead instead of the one at place `leads`, by its place; `None` where the leader should stay. Quiet
    /// on its own output.
    fn choose(&self, members: &[Candidate], leads: usize) -> Option<usize>;
}

/// Keeps any leader.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anybody;

impl Leading for Anybody {
    fn choose(&self, _: &[Candidate], _: usize) -> Option<usize> {
        None
    }
}

/// Chooses a member at random once an epoch: the member with the least draw of those that can lead (Harmony §7.5, Scatter §7.1.3).
///
/// Draws follow from the group, its epoch and the member, so all members agree on the chosen one without a message. A baseline to
/// compare with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Random;

impl Leading for Random {
    fn choose(&self, members: &[Candidate], leads: usize) -> Option<usize> {
        let can = |index: &usize| *index == leads || members[*index].agreement.is_some();
        let drawn = (0..members.len()).filter(can).min_by_key(|index| (members[*index].draw, *index))?;
        (drawn != leads && leads < members.len()).then_some(drawn)
    }
}

/// Chooses the oldest member: it is expected to stay longest (Harmony §7.4). A leader of about the same age stays.
#[derive(Clone, Copy, Debug, Default)]
pub struct Oldest;

/// Members whose ages differ by less are equally good: they came at about the same time, and clocks differ.
const OLDER_MIN: Duration = Duration::from_secs(60);

impl Leading for Oldest {
    fn choose(&self, members: &[Candidate], leads: usize) -> Option<usize> {
        let now = members.get(leads)?.age;
        let can = members.iter().enumerate().filter(|(_, member)| member.agreement.is_some());
        let (oldest, member) = can.max_by_key(|(index, member)| (member.age, core::cmp::Reverse(*index)))?;
        (member.age >= now + OLDER_MIN).then_some(oldest)
    }
}

/// Less gain is not worth the change of the leader.
const GAIN_MIN: Duration = Duration::from_millis(2);

/// Chooses the member that agrees fastest with a majority. The leader stays, unless it is slower by a fifth of that member's time and
/// two milliseconds: measured times are never quite the same twice.
#[derive(Clone, Copy, Debug, Default)]
pub struct LowestAgreement;

impl Leading for LowestAgreement {
    fn choose(&self, members: &[Candidate], leads: usize) -> Option<usize> {
        let now = members.get(leads)?.agreement?;
        let known = members.iter().enumerate().filter_map(|(index, member)| Some((member.agreement?, index)));
        let (least, best) = known.min()?;
        (now >= least + least / 5 + GAIN_MIN).then_some(best)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn choose(agreements: &[Option<u64>], leads: usize) -> Option<usize> {
        let of =
            |ms: &Option<u64>| Candidate { agreement: ms.map(Duration::from_millis), age: Duration::ZERO, draw: 0 };
        let members: Vec<Candidate> = agreements.iter().map(of).collect();
        let chosen = LowestAgreement.choose(&members, leads);
        if let Some(chosen) = chosen {
            assert_eq!(LowestAgreement.choose(&members, chosen), None, "quiet on its own output");
        }
        chosen
    }

    #[test]
    fn whoever_agrees_fastest_leads() {
        assert_eq!(choose(&[Some(80), Some(40), Some(79)], 0), Some(1));
        assert_eq!(choose(&[Some(80), Some(40), Some(79)], 1), None);
    }

    #[test]
    fn a_small_gain_is_none() {
        assert_eq!(choose(&[Some(48), Some(40)], 0), None, "a fifth");
        assert_eq!(choose(&[Some(2), Some(1)], 0), None, "two milliseconds");
        assert_eq!(choose(&[Some(50), Some(40)], 0), Some(1));
    }

    #[test]
    fn the_oldest_leads() {
        let of = |(able, age): (bool, u64)| Candidate {
            agreement: able.then_some(Duration::ZERO),
            age: Duration::from_secs(age),
            draw: 0,
        };
        let choose = |members: [(bool, u64); 3], leads| Oldest.choose(&members.map(of), leads);
        assert_eq!(choose([(true, 10), (true, 500), (false, 900)], 0), Some(1), "the other cannot");
        assert_eq!(choose([(true, 10), (true, 500), (false, 900)], 1), None);
        assert_eq!(choose([(true, 450), (true, 500), (true, 10)], 0), None, "they came together");
        assert_eq!(choose([(true, 450), (true, 500), (true, 10)], 2), Some(1));
    }

    #[test]
    fn nothing_is_done_about_what_is_not_known() {
        assert_eq!(choose(&[None, Some(1)], 0), None);
        assert_eq!(choose(&[Some(90), None, Some(30)], 0), Some(2));
        assert_eq!(choose(&[], 0), None);
    }

    fn drawn(members: &[(u64, bool)]) -> Vec<Candidate> {
        let of = |(draw, can): &(u64, bool)| Candidate {
            agreement: can.then_some(Duration::ZERO),
            age: Duration::ZERO,
            draw: *draw,
        };
        members.iter().map(of).collect()
    }

    #[test]
    fn the_least_draw_leads() {
        let members = drawn(&[(7, true), (2, false), (3, true)]);
        assert_eq!(Random.choose(&members, 0), Some(2), "the member with the least draw cannot lead");
        assert_eq!(Random.choose(&members, 1), None, "it leads already");
        assert_eq!((Random.choose(&[], 0), Random.choose(&members, 3)), (None, None));
    }

    proptest! {
        /// The same member is chosen with any leader, and so at any member that looks; and the choice is final.
        #[test]
        fn all_draw_the_same(members in proptest::collection::vec((any::<u64>(), any::<bool>()), 1..12)) {
            let members = drawn(&members);
            let can: Vec<usize> = (0..members.len()).filter(|index| members[*index].agreement.is_some()).collect();
            let chosen: Vec<usize> = can.iter().map(|leads| Random.choose(&members, *leads).unwrap_or(*leads)).collect();
            prop_assert!(chosen.windows(2).all(|pair| pair[0] == pair[1]), "{:?}", chosen);
            prop_assert!(chosen.first().is_none_or(|first| Random.choose(&members, *first).is_none()));
        }
    }
}
