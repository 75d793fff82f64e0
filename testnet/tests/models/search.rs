//! Searches through all schedules of a small world.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model, Path};

/// Result of a search.
pub struct Found<M: Model> {
    /// A schedule that violates the property.
    pub wrong: Option<Path<M::State, M::Action>>,
    /// Names of the properties that were met, in alphabetical order.
    pub met: Vec<&'static str>,
}

/// Searches all schedules of at most `steps_max` steps until one violates `holds`. Also returns the properties that the search
/// met. A search that finds no violation and does not end in time fails the test.
pub fn search<M>(name: &str, model: M, steps_max: usize, holds: &'static str) -> Found<M>
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    const TIME_MAX: Duration = Duration::from_secs(240);
    let start = Instant::now();
    let checker = model
        .checker()
        .threads(1)
        .target_max_depth(steps_max)
        .timeout(TIME_MAX)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    println!(
        "{name}: {} schedules to {} situations within {} steps, in {:.1?}",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth(),
        start.elapsed(),
    );
    let wrong = checker.discovery(holds);
    assert!(wrong.is_some() || start.elapsed() < TIME_MAX, "the search did not end");
    let mut met: Vec<_> = checker.discoveries().into_keys().collect();
    met.sort_unstable();
    println!("  came by: {met:?}");
    Found { wrong, met }
}
