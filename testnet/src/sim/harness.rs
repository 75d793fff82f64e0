//! Runs of seeds: judged, repeated, cut down.

use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use group::config::{Defect, Defects};
use node::Node;

use crate::checkers::Failure;
use crate::history::History;
use crate::live::is_long;
use crate::marks::Marks;
use crate::sim::fault::Fault;
use crate::sim::host::Host;
use crate::sim::scenario::Scenario;
use crate::sim::world::World;

/// Result of one run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Violated property, or the panic.
    pub failure: Option<Failure>,
    /// Number of events.
    pub events: u64,
    /// Hash of the trace: equal runs have equal ones.
    pub hash: u64,
    /// Lines of the trace, where they were asked for.
    pub trace: String,
    /// Rare events that the run reached.
    pub marks: Marks,
    /// Requests and answers that clients saw.
    pub history: History,
}

/// Runs a scenario to its end. A panic inside a node counts as a failure.
pub fn run<H: Host>(scenario: &Scenario, with_lines: bool) -> Report {
    let mut world = World::<H>::traced(scenario.clone(), with_lines);
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
    let failure = match outcome {
        Ok(result) => result.err(),
        Err(panic) => Some(Failure { property: "panic", detail: panic_text(&*panic), at: world.now() }),
    };
    Report {
        failure,
        events: world.events(),
        hash: world.trace.hash(),
        trace: world.trace.lines().to_owned(),
        marks: world.marks.clone(),
        history: world.history().clone(),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without words".into())
}

/// Leaves faults out of a failing scenario as long as it fails with the same property, in at most `runs_max` runs.
pub fn shrink<H: Host>(scenario: &Scenario, property: &str, runs_max: u32) -> Scenario {
    let mut smallest = scenario.clone();
    let mut runs = 0;
    let mut chunk = smallest.faults.len();
    while chunk > 0 {
        let mut from = 0;
        while from < smallest.faults.len() {
            if runs == runs_max {
                return smallest;
            }
            runs += 1;
            let mut faults: Vec<Fault> = smallest.faults.clone();
            faults.drain(from..(from + chunk).min(faults.len()));
            let candidate = smallest.with_faults(faults);
            match run::<H>(&candidate, false).failure {
                Some(failure) if failure.property == property => smallest = candidate,
                _ => from += chunk,
            }
        }
        chunk /= 2;
    }
    smallest
}

/// Runs `scenario` for many seeds, or for `SCATTER_SEED` alone, and prints how to repeat the first one that fails.
///
/// `SCATTER_SEEDS` sets the number of seeds, from `SCATTER_FIRST_SEED` (0) on; `SCATTER_LONG` makes it five times as many.
pub fn for_each_seed(test: &str, count: u64, scenario: impl Fn(u64)) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seeds = match number("SCATTER_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("SCATTER_FIRST_SEED").unwrap_or(0);
            first..first + number("SCATTER_SEEDS").unwrap_or(if is_long() { 5 * count } else { count })
        }
    };
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| scenario(seed))) {
            eprintln!("repeat with: SCATTER_SEED={seed} cargo test -p testnet {test}");
            resume_unwind(panic);
        }
    }
}

/// Runs scenarios of real nodes with the defect until one fails, by one of these properties. The same scenario without the defect
/// must not fail.
///
/// # Panics
/// If no run within `seeds` seeds shows the defect, if it shows by another property, or if the run without it fails.
pub fn is_found(defect: Defect, properties: &[&str], seeds: u64, scenario: impl Fn(u64) -> Scenario) {
    is_found_from(0, defect, properties, seeds, scenario);
}

/// Searches like [`is_found`], where few seeds show the defect: the search begins with `first`, the seed that showed it last.
///
/// # Panics
/// As [`is_found`].
pub fn is_found_from(first: u64, defect: Defect, properties: &[&str], seeds: u64, scenario: impl Fn(u64) -> Scenario) {
    let break_it = |sound: &Scenario| Scenario { defects: Defects::NONE.with(defect), ..sound.clone() };
    is_found_among(defect, properties, first..first + seeds, scenario, break_it);
}

/// Searches like [`is_found`] at these seeds, for any kind of defect: `break_it` puts the defect into a scenario.
///
/// # Panics
/// As [`is_found`].
pub fn is_found_among(
    defect: impl fmt::Debug,
    properties: &[&str],
    seeds: Range<u64>,
    scenario: impl Fn(u64) -> Scenario,
    break_it: impl Fn(&Scenario) -> Scenario,
) {
    for seed in seeds.clone() {
        let sound = scenario(seed);
        let broken = break_it(&sound);
        if let Some(failure) = run::<Node>(&broken, false).failure {
            println!("{defect:?} is found at seed {seed}: {failure}");
            assert!(properties.contains(&failure.property), "found, but as {}", failure.property);
            let failure = run::<Node>(&sound, false).failure;
            assert!(failure.is_none(), "seed {seed} fails without {defect:?}: {}", failure.expect("just seen"));
            return;
        }
    }
    panic!("{defect:?} is not found at any of the seeds {seeds:?}");
}

/// Runs a scenario. If the run fails, cuts the scenario down, and panics with all that is needed to repeat and read it.
pub fn expect_well<H: Host>(scenario: &Scenario) -> Report {
    let report = run::<H>(scenario, false);
    if let Some(failure) = &report.failure {
        panic!("{}", explain::<H>(scenario, failure));
    }
    report
}

/// Describes a failure for a person: the smallest scenario found that still fails by this property, and the end of its trace.
pub fn explain<H: Host>(scenario: &Scenario, failure: &Failure) -> String {
    let smallest = shrink::<H>(scenario, failure.property, 60);
    let again = run::<H>(&smallest, true);
    let lines: Vec<&str> = again.trace.lines().collect();
    let tail = lines[lines.len().saturating_sub(120)..].join("\n");
    let shrunk = again.failure.as_ref().map_or_else(|| "gone when run again".into(), Failure::to_string);
    format!("{failure}\n\n{scenario}\nwith fewer faults: {shrunk}\n{smallest}\n{tail}")
}

/// Result of many seeds in one go.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Number of runs.
    pub runs: u64,
    /// Number of events in all.
    pub events: u64,
    /// Number of events of repeated runs beside those: they took time, too.
    pub repeated: u64,
    /// Number of operations in all.
    pub operations: u64,
    /// Duration of the batch.
    pub took: Duration,
    /// All marks that the runs reached.
    pub marks: Marks,
    /// Scenarios of the failed runs, with their failures.
    pub failures: Vec<(Scenario, Failure)>,
}

impl Batch {
    /// Runs scenarios one after another until there is no more, or the time is over, or `failures_max` have failed. Every hundredth
    /// one is run twice, and its traces are compared.
    pub fn run<H: Host>(
        scenarios: impl Iterator<Item = Scenario>,
        time: Option<Duration>,
        failures_max: usize,
    ) -> Batch {
        let start = Instant::now();
        let mut batch = Batch::default();
        for scenario in scenarios {
            if time.is_some_and(|time| start.elapsed() > time) || batch.failures.len() >= failures_max {
                break;
            }
            let report = run::<H>(&scenario, false);
            if batch.runs.is_multiple_of(100) {
                let again = run::<H>(&scenario, false);
                batch.repeated += again.events;
                if again.hash != report.hash {
                    let detail = "two runs of one scenario differ".into();
                    let failure = Failure { property: "repeatable", detail, at: Default::default() };
                    batch.failures.push((scenario.clone(), failure));
                }
            }
            batch.runs += 1;
            batch.events += report.events;
            batch.operations += report.history.operations.len() as u64;
            batch.marks.merge(&report.marks);
            batch.failures.extend(report.failure.map(|failure| (scenario, failure)));
        }
        batch.took = start.elapsed();
        batch
    }

    /// Runs scenarios as [`Batch::run`] does, on several cores: each core takes each `jobs`-th scenario. Runs are independent.
    pub fn run_on<H: Host>(
        jobs: usize,
        scenarios: impl Iterator<Item = Scenario> + Clone + Send,
        time: Option<Duration>,
        failures_max: usize,
    ) -> Batch {
        let start = Instant::now();
        let mut all = Batch::default();
        std::thread::scope(|scope| {
            let one = |job| {
                let mine = scenarios.clone().skip(job).step_by(jobs);
                scope.spawn(move || Batch::run::<H>(mine, time, failures_max))
            };
            let workers: Vec<_> = (0..jobs).map(one).collect();
            for worker in workers {
                let batch = worker.join().unwrap_or_else(|panic| resume_unwind(panic));
                all.runs += batch.runs;
                all.events += batch.events;
                all.repeated += batch.repeated;
                all.operations += batch.operations;
                all.marks.merge(&batch.marks);
                all.failures.extend(batch.failures);
            }
        });
        all.failures.sort_by_key(|(scenario, _)| scenario.seed);
        all.took = start.elapsed();
        all
    }

    /// Returns the events in a second of this machine, with those of repeated runs.
    pub fn rate(&self) -> f64 {
        (self.events + self.repeated) as f64 / self.took.as_secs_f64().max(1e-9)
    }
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} runs, {} events, {} more to repeat some, {} operations in {:.1?}: {:.0} events/s",
            self.runs,
            self.events,
            self.repeated,
            self.operations,
            self.took,
            self.rate()
        )?;
        write!(f, "{}", self.marks)
    }
}
