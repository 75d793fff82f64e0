//! Models of how long peers live, fitted to members' observations of each other (Scatter §6.1, Harmony §7.3).
//!
//! Members keep a [`LifeTable`]: for each class of ages, the time for which they have watched peers of that age, and the deaths that they
//! have seen. The times at which watching began and ended do not bias a table, and tables of different members can be added.

use alloc::vec::Vec;
use core::time::Duration;

/// Number of deaths below which there is no estimate.
pub const DEATHS_MIN: f64 = 10.0;
/// Number of classes of ages: one for all below 1 s, then two for each doubling. The last class has no upper end.
pub const CLASSES: usize = 50;
/// A table with more deaths is halved, so that old observations fade.
pub const DEATHS_MAX: f64 = 64.0;
/// A table with more watched time, of all peers together and in seconds, is halved: ten peers for a year.
const WATCHED_MAX: f64 = 10.0 * 365.0 * 86_400.0;
/// Upper limit of the shape of a Pareto model: measured lives have shapes from 0.5 to 3.
const SHAPE_MAX: f64 = 10.0;
/// Ages below this one, in seconds, count as this one: clocks and heartbeats are no more precise.
const AGE_MIN: f64 = 0.1;
/// The fraction of the shortest lives; a peer of which nothing is known is expected to live as long as these.
const SHORTEST: f64 = 0.1;
/// At most this fraction of all deaths may be younger than the minimum of a Pareto model.
const EARLY_MAX: f64 = 0.1;
/// A table counts at most this many times the median of all tables that are added.
const VOICE_MAX: f64 = 4.0;

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
    /// Returns the time within which half of all peers of this age die: their median residual life. There is no mean residual life in a
    /// Pareto population with a shape of 1 or less.
    ///
    /// For exponential lives the result is the same at each age, for Pareto lives it grows with age; ages below the minimum count as the
    /// minimum. Times beyond [`Duration::MAX`] are returned as that.
    pub fn residual(&self, age: Duration) -> Duration {
        let seconds = match *self {
            Lifetimes::Exponential { mean } => mean.as_secs_f64().max(AGE_MIN) * core::f64::consts::LN_2,
            Lifetimes::Pareto { shape, min } => {
                let age = age.max(min).as_secs_f64().max(AGE_MIN);
                age * (libm::exp2(1.0 / shape.max(f64::MIN_POSITIVE)) - 1.0)
            }
        };
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// Returns the age below which a tenth of all peers die.
    pub fn shortest_tenth(&self) -> Duration {
        let seconds = match *self {
            Lifetimes::Exponential { mean } => -mean.as_secs_f64().max(AGE_MIN) * libm::log1p(-SHORTEST),
            Lifetimes::Pareto { shape, min } => {
                let factor = libm::exp(-libm::log1p(-SHORTEST) / shape.max(f64::MIN_POSITIVE));
                min.as_secs_f64().max(AGE_MIN) * factor
            }
        };
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// Returns the probability, from 0 to 1, that a peer of this age dies within `window`.
    pub fn dies_within(&self, age: Duration, window: Duration) -> f64 {
        let window = window.as_secs_f64();
        match *self {
            Lifetimes::Exponential { mean } => -libm::expm1(-window / mean.as_secs_f64().max(AGE_MIN)),
            Lifetimes::Pareto { shape, min } => {
                let age = age.max(min).as_secs_f64().max(AGE_MIN);
                -libm::expm1(shape * libm::log(age / (age + window)))
            }
        }
    }
}

/// Observations of peers of one class of ages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// The time for which peers of this age were watched, all together, in seconds.
    pub watched: f64,
    /// Deaths at this age. Not a whole number once old deaths have faded.
    pub deaths: f64,
}

/// Observations by class of ages.
#[derive(Clone, Debug, PartialEq)]
pub struct LifeTable([Seen; CLASSES]);

impl Default for LifeTable {
    fn default() -> LifeTable {
        LifeTable([Seen::default(); CLASSES])
    }
}

impl LifeTable {
    /// Records that a peer was watched from one age to another, and lived.
    pub fn live(&mut self, from: Duration, to: Duration) {
        let (mut from, to) = (from.as_secs_f64(), to.as_secs_f64());
        for class in class_of(from)..CLASSES {
            let end = if class + 1 < CLASSES { end_of(class).min(to) } else { to };
            self.0[class].watched += (end - from).max(0.0);
            from = from.max(end);
            if from >= to {
                break;
            }
        }
        self.fade();
    }

    /// Records that a peer of this age died.
    pub fn die(&mut self, age: Duration) {
        self.0[class_of(age.as_secs_f64())].deaths += 1.0;
        self.fade();
    }

    /// Adds observations of one class. Adds nothing if there is no such class, or if the numbers cannot have been observed.
    pub fn add(&mut self, class: usize, seen: Seen) {
        let is_sound = |number: f64| number.is_finite() && number >= 0.0;
        if let Some(known) = self.0.get_mut(class).filter(|_| is_sound(seen.watched) && is_sound(seen.deaths)) {
            known.watched += seen.watched;
            known.deaths += seen.deaths;
        }
    }

    /// Returns the classes with observations, in order of age.
    pub fn classes(&self) -> impl Iterator<Item = (usize, Seen)> {
        self.0.iter().copied().enumerate().filter(|(_, seen)| *seen != Seen::default())
    }

    /// Returns the number of deaths in all classes.
    pub fn deaths(&self) -> f64 {
        self.0.iter().map(|seen| seen.deaths).sum()
    }

    /// Returns the time for which peers were watched, all together, in seconds.
    pub fn watched(&self) -> f64 {
        self.0.iter().map(|seen| seen.watched).sum()
    }

    /// Multiplies the watched time and the deaths of all classes.
    fn scale(&mut self, watched: f64, deaths: f64) {
        for seen in &mut self.0 {
            seen.watched *= watched;
            seen.deaths *= deaths;
        }
    }

    fn fade(&mut self) {
        if self.deaths() > DEATHS_MAX || self.watched() > WATCHED_MAX {
            self.scale(0.5, 0.5);
        }
    }
}

/// Returns the sum of tables of several members, one table a member. No table counts for more than four times the median, in its watched
/// time and in its deaths. So a few members that lie cannot move the sum far.
pub fn sum<'a>(tables: impl IntoIterator<Item = &'a LifeTable>) -> LifeTable {
    let tables: Vec<&LifeTable> = tables.into_iter().collect();
    let cap =
        |of: fn(&LifeTable) -> f64, least: f64| VOICE_MAX * median(tables.iter().map(|table| of(table))).max(least);
    let (watched_max, deaths_max) = (cap(LifeTable::watched, 1.0), cap(LifeTable::deaths, 1.0));
    let mut all = LifeTable::default();
    for table in tables {
        let mut bounded = table.clone();
        let (watched, deaths) = (watched_max / table.watched().max(1e-9), deaths_max / table.deaths().max(1e-9));
        bounded.scale(watched.min(1.0), deaths.min(1.0));
        bounded.classes().for_each(|(class, seen)| all.add(class, seen));
    }
    all
}

fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = numbers.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

fn class_of(age: f64) -> usize {
    if age < 1.0 { 0 } else { (1 + (2.0 * libm::log2(age)) as usize).min(CLASSES - 1) }
}

/// Returns the age, in seconds, at which a class begins.
fn start_of(class: usize) -> f64 {
    if class == 0 { AGE_MIN } else { libm::exp2((class - 1) as f64 / 2.0) }
}

fn end_of(class: usize) -> f64 {
    libm::exp2(class as f64 / 2.0)
}

/// Returns the mean of `1 / age` over the ages of a class.
fn inverse_age(class: usize) -> f64 {
    let (start, end) = (start_of(class), end_of(class));
    libm::log(end / start) / (end - start)
}

/// A model, and the number of deaths that it rests on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The model.
    pub lifetimes: Lifetimes,
    /// The number of deaths.
    pub deaths: f64,
}

/// Returns the model under which the deaths of a table are most likely, given for how long peers of each age were watched; `None` below
/// [`DEATHS_MIN`] deaths.
///
/// A Pareto model must be better by two units of likelihood, for its two further parameters (Akaike's criterion): the minimum, and the rate
/// of the few deaths below it.
pub fn fit(table: &LifeTable) -> Option<Estimate> {
    let deaths = table.deaths();
    if deaths < DEATHS_MIN {
        return None;
    }
    let mean = (table.watched() / deaths).max(AGE_MIN);
    let exponential = Lifetimes::Exponential { mean: Duration::try_from_secs_f64(mean).ok()? };
    let likelihood: f64 = table.classes().map(|(_, seen)| likelihood(seen, seen.watched / mean)).sum();
    let pareto = (0..CLASSES).filter_map(|first| fit_pareto(table, deaths, first));
    let best = pareto.max_by(|(one, _), (other, _)| one.total_cmp(other));
    let lifetimes = best.filter(|(better, _)| *better > likelihood + 2.0).map_or(exponential, |(_, pareto)| pareto);
    Some(Estimate { lifetimes, deaths })
}

/// Returns the logarithm of the likelihood of these deaths where `expected` deaths are expected, up to a constant.
fn likelihood(seen: Seen, expected: f64) -> f64 {
    let deaths = if seen.deaths > 0.0 { seen.deaths * libm::log(expected.max(1e-12)) } else { 0.0 };
    deaths - expected
}

/// Fits a Pareto model whose minimum lies in class `first`, and returns it with its likelihood. The class itself and those below it have
/// rates of their own.
fn fit_pareto(table: &LifeTable, deaths: f64, first: usize) -> Option<(f64, Lifetimes)> {
    let part = |classes: core::ops::Range<usize>| classes.map(|class| table.0[class]);
    let add = |sum: Seen, seen: Seen| Seen { watched: sum.watched + seen.watched, deaths: sum.deaths + seen.deaths };
    let below = part(0..first).fold(Seen::default(), add);
    if below.deaths > EARLY_MAX * deaths {
        return None;
    }
    let above = || table.classes().filter(|(class, _)| *class > first);
    let (weight, tail) = above().fold((0.0, 0.0), |(weight, tail), (class, seen)| {
        (weight + seen.watched * inverse_age(class), tail + seen.deaths)
    });
    if weight <= 0.0 || tail < DEATHS_MIN / 2.0 {
        return None;
    }
    let shape = (tail / weight).clamp(0.01, SHAPE_MAX);
    let own = table.0[first];
    let of_tail: f64 = above().map(|(class, seen)| likelihood(seen, shape * seen.watched * inverse_age(class))).sum();
    let at_rate = |seen: Seen| if seen.watched > 0.0 { likelihood(seen, seen.deaths) } else { 0.0 };
    let early = part(0..first).map(|seen| likelihood(seen, seen.watched * below.deaths / below.watched.max(1e-9)));
    let all = of_tail + at_rate(own) + early.sum::<f64>();
    // The deaths in this class, as a part of the peers that entered it, tell the age from which on peers die.
    let entered = own.watched / (end_of(first) - start_of(first));
    let died = if entered > 0.0 { own.deaths / entered } else { 0.0 };
    let min = (end_of(first) * libm::exp(-died / shape)).max(start_of(first));
    Some((all, Lifetimes::Pareto { shape, min: Duration::try_from_secs_f64(min).ok()? }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Quantiles of a distribution, each watched from an age until it ends, or for at most `seen` seconds.
    fn table(quantile: impl Fn(f64) -> f64, from: f64, seen: f64) -> LifeTable {
        let mut table = LifeTable::default();
        // Each step is added by itself, so nothing fades.
        for lived in (0..1000).map(|index| quantile((f64::from(index) + 0.5) / 1000.0)).filter(|lived| *lived > from) {
            let [from, to] = [from, lived.min(from + seen)].map(Duration::from_secs_f64);
            let mut one = LifeTable::default();
            one.live(from, to);
            if to.as_secs_f64() + 1e-6 >= lived {
                one.die(to);
            }
            one.classes().for_each(|(class, seen)| table.add(class, seen));
        }
        table
    }

    fn exponential(at: f64) -> f64 {
        -100.0 * libm::log(1.0 - at)
    }

    fn pareto(at: f64) -> f64 {
        9.0 * libm::pow(1.0 - at, -1.0 / 1.1)
    }

    #[test]
    fn models_are_told_apart() {
        // Also where watching begins late, and where most peers have not died when it ends.
        for (from, seen) in [(0.0, 1e9), (0.0, 60.0), (20.0, 1e9), (20.0, 60.0)] {
            let Some(Estimate { lifetimes: Lifetimes::Exponential { mean }, .. }) =
                fit(&table(exponential, from, seen))
            else {
                panic!("exponential, seen from {from} s for {seen} s")
            };
            assert!((94..107).contains(&mean.as_secs()), "{mean:?} from {from} s for {seen} s");
            let Some(Estimate { lifetimes: Lifetimes::Pareto { shape, min }, .. }) = fit(&table(pareto, from, seen))
            else {
                panic!("Pareto, seen from {from} s for {seen} s")
            };
            assert!((1.0..1.2).contains(&shape), "{shape} from {from} s for {seen} s");
            assert!(from > 9.0 || (8.0..10.0).contains(&min.as_secs_f64()), "{min:?} from {from} s for {seen} s");
        }
    }

    #[test]
    fn few_deaths_tell_nothing() {
        let mut table = LifeTable::default();
        assert_eq!(fit(&table), None);
        table.live(Duration::ZERO, Duration::from_secs(10_000));
        (0..9).for_each(|_| table.die(Duration::from_secs(60)));
        assert_eq!(fit(&table), None);
        table.die(Duration::from_secs(60));
        let known = fit(&table).expect("enough");
        assert_eq!(known.deaths, 10.0);
        assert!(known.lifetimes.dies_within(Duration::ZERO, Duration::from_secs(1)) < 0.2);
    }

    #[test]
    fn watched_time_goes_to_its_classes() {
        let mut table = LifeTable::default();
        table.live(Duration::from_millis(500), Duration::from_secs(4));
        let found: Vec<(usize, f64)> = table.classes().map(|(class, seen)| (class, seen.watched)).collect();
        let expected = [(0, 0.5), (1, 0.4142), (2, 0.5858), (3, 0.8284), (4, 1.1716)];
        assert_eq!(found.len(), expected.len(), "{found:?}");
        found.iter().zip(expected).for_each(|(one, other)| {
            assert!(one.0 == other.0 && (one.1 - other.1).abs() < 1e-3, "{found:?}");
        });
        table.live(Duration::from_secs(1 << 30), Duration::from_secs((1 << 30) + 5));
        assert_eq!(table.classes().last().map(|(class, _)| class), Some(CLASSES - 1));
    }

    #[test]
    fn old_deaths_fade() {
        let mut table = LifeTable::default();
        for _ in 0..1_000 {
            table.live(Duration::ZERO, Duration::from_secs(1_000));
            table.die(Duration::from_secs(1_000));
        }
        for _ in 0..200 {
            table.live(Duration::ZERO, Duration::from_secs(10));
            table.die(Duration::from_secs(10));
        }
        let mean = table.watched() / table.deaths();
        assert!(table.deaths() <= DEATHS_MAX && mean < 120.0, "{mean}");
    }

    /// One member of nine lies in any way: the estimate stays between two thirds and one and a half times its value.
    #[test]
    fn one_liar_moves_little() {
        let honest = table(exponential, 0.0, 60.0);
        let mean = |tables: &[LifeTable]| match fit(&sum(tables)).expect("enough").lifetimes {
            Lifetimes::Exponential { mean } => mean.as_secs_f64(),
            Lifetimes::Pareto { .. } => panic!("exponential"),
        };
        for (watched, deaths) in [(1e18, 0.0), (0.0, 1e18), (1e18, 1e18), (0.0, 0.0)] {
            let mut liar = LifeTable::default();
            liar.add(20, Seen { watched, deaths });
            let mut all = alloc::vec![honest.clone(); 8];
            let before = mean(&all);
            all.push(liar);
            if let Lifetimes::Exponential { mean } = fit(&sum(&all)).expect("enough").lifetimes {
                let after = mean.as_secs_f64();
                assert!((before * 0.66..before * 1.51).contains(&after), "{before} and {after}");
            }
        }
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

        /// A tenth of all peers die below that age.
        #[test]
        fn a_tenth_dies_young(model in any_model()) {
            let tenth = model.shortest_tenth();
            let first = match model { Lifetimes::Pareto { min, .. } => min, Lifetimes::Exponential { .. } => Duration::ZERO };
            let dead = model.dies_within(Duration::ZERO, tenth.saturating_sub(first));
            prop_assert!((dead - 0.1).abs() < 1e-3 || tenth < Duration::from_secs(1) || tenth == Duration::MAX, "{model:?}: {dead}");
        }

        /// Half of all peers of an age die within their residual life, which never shrinks with age.
        #[test]
        fn half_die_within_the_residual_life(model in any_model(), age in 0u64..1_000_000, more in 0u64..1_000_000) {
            let [young, old] = [age, age + more].map(Duration::from_millis);
            let residual = model.residual(young);
            let exact = (model.dies_within(young, residual) - 0.5).abs() < 1e-6;
            prop_assert!(exact || residual < Duration::from_millis(1) || residual == Duration::MAX, "{model:?}: {residual:?}");
            prop_assert!(residual <= model.residual(old));
        }

        /// With any observations and reports, there is a model with sound numbers, or none.
        #[test]
        fn any_table_can_be_fitted(all in proptest::collection::vec((0..2 * CLASSES, any::<f64>(), any::<f64>()), 0..60)) {
            let mut table = LifeTable::default();
            all.into_iter().for_each(|(class, watched, deaths)| table.add(class, Seen { watched, deaths }));
            let tables = [table.clone(), LifeTable::default(), table];
            if let Some(known) = fit(&sum(&tables)) {
                let p = known.lifetimes.dies_within(Duration::ZERO, Duration::from_secs(1));
                prop_assert!((0.0..=1.0).contains(&p), "{known:?}: {p}");
            }
        }

        /// Ages add up to the time watched.
        #[test]
        fn all_time_is_counted(from in 0u64..10_000_000, lived in 0u64..10_000_000) {
            let mut table = LifeTable::default();
            table.live(Duration::from_millis(from), Duration::from_millis(from + lived));
            prop_assert!((table.watched() - lived as f64 / 1e3).abs() < 1e-3);
        }
    }
}
