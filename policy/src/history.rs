//! What a peer tells of its earlier sessions, beside what others have seen of it.
//!
//! Others cannot check it. So it counts only against the peer: one that often ended without warning is expected to do so again, and a long life
//! that is only told changes nothing. Of a peer without a history the worst is expected for as long as others have seen little of
//! it: that it lives as long as the shortest tenth of all lives.

use core::time::Duration;

use crate::lifetimes::Lifetimes;

/// The sessions that a peer remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// How many ended without warning.
    pub failures: u32,
    /// How long all lasted, the present one included.
    pub lived: Duration,
}

impl Told {
    /// Returns the peer's own lifetimes: exponential, with the mean time between its failures. `None` where it tells no failure.
    fn lifetimes(self) -> Option<Lifetimes> {
        (self.failures > 0).then(|| Lifetimes::Exponential { mean: self.lived / self.failures })
    }
}

/// Returns the lifetimes to expect of a peer of this age beside those of all: its own as it tells them, or, without a history, the shortest tenth
/// of all while it is no older.
fn own(all: &Lifetimes, age: Duration, told: Option<Told>) -> Option<Lifetimes> {
    match told {
        Some(told) => told.lifetimes(),
        None => {
            Some(all.shortest_tenth()).filter(|shortest| age < *shortest).map(|mean| Lifetimes::Exponential { mean })
        }
    }
}

/// Returns the probability, from 0 to 1, that a peer of this age dies within `window`. `all` are the lifetimes of the network's peers, as members
/// saw them. Never less than they tell.
pub fn dies_within(all: &Lifetimes, age: Duration, window: Duration, told: Option<Told>) -> f64 {
    let seen = all.dies_within(age, window);
    own(all, age, told).map_or(seen, |own| seen.max(own.dies_within(age, window)))
}

/// Returns how long a peer of this age is expected to live on, as [`Lifetimes::residual`] does. Never longer than the lifetimes of the network's
/// peers tell. A peer without a history counts as all others: one that stays a minute has been settled for long enough to show it.
pub fn residual(all: &Lifetimes, age: Duration, told: Option<Told>) -> Duration {
    let seen = all.residual(age);
    told.and_then(Told::lifetimes).map_or(seen, |own| seen.min(own.residual(age)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WINDOW: Duration = Duration::from_millis(2_300);
    const ALL: Lifetimes = Lifetimes::Exponential { mean: Duration::from_secs(100) };

    fn told(failures: u32, lived_s: u64) -> Option<Told> {
        Some(Told { failures, lived: Duration::from_secs(lived_s) })
    }

    #[test]
    fn who_often_failed_is_expected_to_fail() {
        let dies = |told| dies_within(&ALL, Duration::from_secs(60), WINDOW, told);
        let usual = ALL.dies_within(Duration::ZERO, WINDOW);
        assert_eq!([dies(told(0, 0)), dies(told(0, 1 << 40)), dies(told(1, 1 << 40)), dies(None)], [usual; 4]);
        let often = dies(told(4, 80));
        assert!((0.10..0.12).contains(&often), "2.3 s of 20: {often}");
        assert!(dies(told(64, 0)) > 0.99);
        let lives_on = |told| residual(&ALL, Duration::from_secs(60), told);
        assert_eq!(
            [lives_on(None), lives_on(told(0, 5)), lives_on(told(1, 1 << 40))],
            [ALL.residual(Duration::ZERO); 3]
        );
        assert!(lives_on(told(4, 80)) < Duration::from_secs(14));
    }

    /// Until others have seen it live for as long as a tenth of all do not.
    #[test]
    fn of_a_stranger_the_worst_is_expected() {
        let dies = |age_s| dies_within(&ALL, Duration::from_secs(age_s), WINDOW, None);
        assert!((0.19..0.21).contains(&dies(0)), "2.3 s of 10.5: {}", dies(0));
        assert_eq!(dies(10), dies(0));
        assert_eq!(dies(11), ALL.dies_within(Duration::ZERO, WINDOW));
    }

    fn any_told() -> impl Strategy<Value = Option<Told>> {
        prop::option::of(
            (0u32..65, 0u64..1 << 32)
                .prop_map(|(failures, lived_s)| Told { failures, lived: Duration::from_secs(lived_s) }),
        )
    }

    fn any_lives() -> impl Strategy<Value = Lifetimes> {
        let secs = |range| prop::strategy::Strategy::prop_map(range, Duration::from_secs_f64);
        prop_oneof![
            secs(0.1..1e8).prop_map(|mean| Lifetimes::Exponential { mean }),
            (0.01f64..10.0, secs(0.1..1e6)).prop_map(|(shape, min)| Lifetimes::Pareto { shape, min }),
        ]
    }

    proptest! {
        /// Whatever a peer tells, it is never expected to live longer than others of its age; more failures in as much time never help it, nor
        /// does a shorter time.
        #[test]
        fn no_history_raises_a_peer(all in any_lives(), told in any_told(), age_s in 0u64..1 << 30, window_s in 0.0f64..1e6) {
            let (age, window) = (Duration::from_secs(age_s), Duration::from_secs_f64(window_s));
            let (dies, lives_on) = (dies_within(&all, age, window, told), residual(&all, age, told));
            prop_assert!((0.0..=1.0).contains(&dies));
            prop_assert!(dies >= all.dies_within(age, window) && lives_on <= all.residual(age));
            if let Some(known) = told {
                let worse = [
                    Some(Told { failures: known.failures + 1, ..known }),
                    Some(Told { lived: known.lived / 2, ..known }),
                ];
                for worse in worse {
                    prop_assert!(dies_within(&all, age, window, worse) >= dies);
                    prop_assert!(residual(&all, age, worse) <= lives_on);
                }
            }
        }
    }
}
