//! The session history that a peer reports, beside the time for which members have seen it.
//!
//! Members cannot check a history. So it counts only against a peer: a peer that often failed is expected to fail again, and a reported
//! long life changes nothing. A peer that members have seen for less time than the shortest tenth of all lives is expected to live for no
//! longer than that, with a history or without.

use core::time::Duration;

use crate::lifetimes::Lifetimes;

/// The sessions that a peer remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// Number of sessions that ended without warning.
    pub failures: u32,
    /// Total length of all sessions, the present one included.
    pub lived: Duration,
}

impl Told {
    /// Returns the lifetimes of a peer of this age by its own report: exponential, with the mean time between its failures. The peer has
    /// lived at least as long as members saw, with any report. `None` where it reports no failure.
    fn lifetimes(self, age: Duration) -> Option<Lifetimes> {
        (self.failures > 0).then(|| Lifetimes::Exponential { mean: self.lived.max(age) / self.failures })
    }
}

/// Returns the lifetimes of a peer that members have hardly seen yet; `None` for a peer of a greater age.
fn of_stranger(all: &Lifetimes, age: Duration) -> Option<Lifetimes> {
    let mean = all.shortest_tenth();
    (age < mean).then_some(Lifetimes::Exponential { mean })
}

/// Returns the probability, from 0 to 1, that a peer of this age dies within `window`. `all` are the lifetimes of the network's peers, as
/// members saw them. The result is never less than by these lifetimes, and never less than for a peer without a history.
pub fn dies_within(all: &Lifetimes, age: Duration, window: Duration, told: Option<Told>) -> f64 {
    let others = [of_stranger(all, age), told.and_then(|told| told.lifetimes(age))];
    let others = others.into_iter().flatten().map(|lifetimes| lifetimes.dies_within(age, window));
    others.fold(all.dies_within(age, window), f64::max)
}

/// Returns the time for which a peer of this age is expected to live on, as [`Lifetimes::residual`] does: never longer than by the
/// lifetimes of the network's peers. Here a peer that members have hardly seen counts as any other peer: a division gives it nothing at
/// first, at any expected life.
pub fn residual(all: &Lifetimes, age: Duration, told: Option<Told>) -> Duration {
    let seen = all.residual(age);
    told.and_then(|told| told.lifetimes(age)).map_or(seen, |own| seen.min(own.residual(age)))
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
        assert!(dies(told(64, 0)) > 0.9, "about a second each: {}", dies(told(64, 0)));
        let old = dies_within(&ALL, Duration::from_secs(1 << 30), WINDOW, told(64, 0));
        assert_eq!(old, usual, "it was seen to live for longer");
        let lives_on = |told| residual(&ALL, Duration::from_secs(60), told);
        assert_eq!(
            [lives_on(None), lives_on(told(0, 5)), lives_on(told(1, 1 << 40))],
            [ALL.residual(Duration::ZERO); 3]
        );
        assert!(lives_on(told(4, 80)) < Duration::from_secs(14));
    }

    /// Until members have seen it live for longer than a tenth of all peers do, with any report.
    #[test]
    fn of_a_stranger_the_worst_is_expected() {
        for told in [None, told(0, 0), told(0, 1 << 40)] {
            let dies = |age_s| dies_within(&ALL, Duration::from_secs(age_s), WINDOW, told);
            assert!((0.19..0.21).contains(&dies(0)), "2.3 s of 10.5: {}", dies(0));
            assert_eq!(dies(10), dies(0));
            assert_eq!(dies(11), ALL.dies_within(Duration::ZERO, WINDOW));
        }
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
        /// With any report, a peer is never expected to live longer than other peers of its age. More failures in as much time never help
        /// it, nor does a shorter time.
        #[test]
        fn no_history_raises_a_peer(all in any_lives(), told in any_told(), age_s in 0u64..1 << 30, window_s in 0.0f64..1e6) {
            let (age, window) = (Duration::from_secs(age_s), Duration::from_secs_f64(window_s));
            let (dies, lives_on) = (dies_within(&all, age, window, told), residual(&all, age, told));
            prop_assert!((0.0..=1.0).contains(&dies));
            prop_assert!(dies >= all.dies_within(age, window) && lives_on <= all.residual(age));
            prop_assert!(dies >= dies_within(&all, age, window, None) && lives_on <= residual(&all, age, None));
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
