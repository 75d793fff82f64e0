//! Models of how long peers live, fitted to the sessions that members have seen (Scatter §6.1, Harmony §7.3).

use core::time::Duration;

/// With fewer deaths seen there is no estimate.
pub const DEATHS_MIN: u32 = 10;
/// The largest shape of a Pareto model: lives that are measured have shapes from 0.5 to 3.
const SHAPE_MAX: f64 = 10.0;
/// Sessions that are shorter count as this long: clocks and heartbeats tell no more.
const LIVED_MIN: Duration = Duration::from_millis(100);

/// A distribution of session lengths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lifetimes {
    /// Exponential: a peer's age says nothing about its future. The papers call churn of this kind Poisson.
    Exponential {
        /// The mean session.
        mean: Duration,
    },
    /// Pareto: the longer a peer has lived, the longer it will live.
    Pareto {
        /// The exponent of the tail, above 0. Below 1 the mean is infinite.
        shape: f64,
        /// The shortest session.
        min: Duration,
    },
}

impl Lifetimes {
    /// Returns the probability, from 0 to 1, that a peer of this age dies within `window`.
    pub fn dies_within(&self, age: Duration, window: Duration) -> f64 {
        let window = window.as_secs_f64();
        match *self {
            Lifetimes::Exponential { mean } => -libm::expm1(-window / mean.max(LIVED_MIN).as_secs_f64()),
            Lifetimes::Pareto { shape, min } => {
                let age = age.max(min).max(LIVED_MIN).as_secs_f64();
                -libm::expm1(shape * libm::log(age / (age + window)))
            }
        }
    }

    /// Returns the logarithm of how likely these sessions are, up to a constant.
    fn likelihood(&self, sessions: impl Iterator<Item = Session>) -> f64 {
        let of_one = |session: Session| {
            let lived = session.seconds();
            let (density, survival) = match *self {
                Lifetimes::Exponential { mean } => {
                    let mean = mean.as_secs_f64();
                    (-libm::log(mean) - lived / mean, -lived / mean)
                }
                Lifetimes::Pareto { shape, min } => {
                    let min = min.as_secs_f64();
                    let tail = -shape * libm::log(lived.max(min) / min);
                    (libm::log(shape) - libm::log(lived.max(min)) + tail, tail)
                }
            };
            f64::from(session.count) * if session.is_over { density } else { survival }
        };
        sessions.map(of_one).sum()
    }
}

/// Some sessions of about the same length, as members have seen them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// How long they lasted, or have lasted so far. Time in which a peer was cleanly stopped does not count.
    pub lived: Duration,
    /// Whether they have ended.
    pub is_over: bool,
    /// How many.
    pub count: u32,
}

impl Session {
    fn seconds(&self) -> f64 {
        self.lived.max(LIVED_MIN).as_secs_f64()
    }
}

/// A model, and the number of deaths that it rests on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The model.
    pub lifetimes: Lifetimes,
    /// The deaths seen.
    pub deaths: u32,
}

/// Returns the model under which the sessions are most likely; `None` below [`DEATHS_MIN`] deaths.
///
/// Sessions that have not ended count as well, or a network that has just begun would look as if all peers died young. A Pareto model
/// must be better by one unit of likelihood, for its second parameter (Akaike's criterion).
pub fn fit(sessions: &[Session]) -> Option<Estimate> {
    let over = || sessions.iter().filter(|session| session.is_over && session.count > 0);
    let deaths = over().map(|session| session.count).fold(0, u32::saturating_add);
    if deaths < DEATHS_MIN {
        return None;
    }
    let (all, deaths_f) = (|| sessions.iter().copied(), f64::from(deaths));
    let total: f64 = all().map(|session| f64::from(session.count) * session.seconds()).sum();
    let exponential = Lifetimes::Exponential { mean: Duration::try_from_secs_f64(total / deaths_f).ok()? };
    let min = over().map(|session| session.lived.max(LIVED_MIN)).min()?;
    let beyond =
        |session: Session| f64::from(session.count) * libm::log((session.seconds() / min.as_secs_f64()).max(1.0));
    let shape = deaths_f / all().map(beyond).sum::<f64>();
    let pareto = Lifetimes::Pareto { shape: shape.min(SHAPE_MAX), min };
    let is_better = pareto.likelihood(all()) > exponential.likelihood(all()) + 1.0;
    Some(Estimate { lifetimes: if is_better { pareto } else { exponential }, deaths })
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// Quantiles of a distribution, which end after at most `seen` seconds of watching.
    fn sessions(quantile: impl Fn(f64) -> f64, seen: f64) -> Vec<Session> {
        let lived = (0..1000).map(|index| quantile((f64::from(index) + 0.5) / 1000.0));
        let session =
            |lived: f64| Session { lived: Duration::from_secs_f64(lived.min(seen)), is_over: lived <= seen, count: 1 };
        lived.map(session).collect()
    }

    fn exponential(at: f64) -> f64 {
        -100.0 * libm::log(1.0 - at)
    }

    fn pareto(at: f64) -> f64 {
        9.0 * libm::pow(1.0 - at, -1.0 / 1.1)
    }

    #[test]
    fn models_are_told_apart() {
        // Also where most sessions have not ended yet.
        for seen in [1e9, 60.0] {
            let Some(Estimate { lifetimes: Lifetimes::Exponential { mean }, .. }) = fit(&sessions(exponential, seen))
            else {
                panic!("exponential, seen for {seen} s")
            };
            assert!((95..105).contains(&mean.as_secs()), "{mean:?} after {seen} s");
            let Some(Estimate { lifetimes: Lifetimes::Pareto { shape, min }, .. }) = fit(&sessions(pareto, seen))
            else {
                panic!("Pareto, seen for {seen} s")
            };
            assert!((1.0..1.2).contains(&shape) && min.as_secs() == 9, "{shape} and {min:?} after {seen} s");
        }
    }

    #[test]
    fn few_deaths_tell_nothing() {
        let session = |is_over, count| Session { lived: Duration::from_secs(60), is_over, count };
        assert_eq!(fit(&[]), None);
        assert_eq!(fit(&[session(false, 1000), session(true, DEATHS_MIN - 1)]), None);
        let known = fit(&[session(false, 990), session(true, 10)]).expect("enough");
        assert_eq!(known.deaths, 10);
        // All of one length: whichever model, most live on.
        assert!(known.lifetimes.dies_within(Duration::ZERO, Duration::from_secs(1)) < 0.2);
    }

    fn any_model() -> impl Strategy<Value = Lifetimes> {
        let mean = (1u64..1_000_000).prop_map(|ms| Lifetimes::Exponential { mean: Duration::from_millis(ms) });
        let pareto = (0.1f64..50.0, 1u64..1_000_000)
            .prop_map(|(shape, ms)| Lifetimes::Pareto { shape, min: Duration::from_millis(ms) });
        prop_oneof![mean, pareto]
    }

    proptest! {
        #[test]
        fn a_longer_window_is_never_safer(model in any_model(), age in 0u64..1_000_000, window in 0u64..1_000_000, more in 0u64..1_000_000) {
            let [age, window, longer] = [age, window, window + more].map(Duration::from_millis);
            let (short, long) = (model.dies_within(age, window), model.dies_within(age, longer));
            prop_assert!((0.0..=1.0).contains(&short) && short <= long && long <= 1.0, "{short} and {long}");
        }

        #[test]
        fn an_older_peer_is_never_in_more_danger(model in any_model(), age in 0u64..1_000_000, more in 0u64..1_000_000) {
            let [young, old] = [age, age + more].map(Duration::from_millis);
            let window = Duration::from_secs(3);
            prop_assert!(model.dies_within(old, window) <= model.dies_within(young, window) + 1e-12);
        }

        #[test]
        fn any_sessions_can_be_fitted(all in proptest::collection::vec((0u64..u64::MAX / 2, any::<bool>(), any::<u32>()), 0..30)) {
            let session = |(ms, is_over, count)| Session { lived: Duration::from_millis(ms), is_over, count };
            let sessions: Vec<Session> = all.into_iter().map(session).collect();
            if let Some(known) = fit(&sessions) {
                let p = known.lifetimes.dies_within(Duration::ZERO, Duration::from_secs(1));
                prop_assert!((0.0..=1.0).contains(&p), "{known:?}: {p}");
            }
        }
    }
}
