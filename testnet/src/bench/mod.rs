//! This store beside other stores: the same load on each, one after the other, in the same run.
//!
//! In each round every store is started, filled, put under each load, and stopped. Results are medians over the rounds, as machines
//! are noisy. All stores make every write durable at a majority before they acknowledge it, unless the name tells otherwise.

mod awake;
mod chart;
mod etcd;
mod systems;
mod tools;
mod zookeeper;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use load::{Distribution, Pace, Plan, cpu_time, resident_bytes};
use serde::Serialize;

pub use systems::{Reads, RunningStore, StoreKind};
pub use tools::Tools;

/// A load.
#[derive(Clone, Copy, Debug)]
pub struct BenchLoad {
    /// Name of the load.
    pub name: &'static str,
    /// Share of writes, from 0 to 1.
    pub writes: f64,
    /// Kind of reads.
    pub reads: Reads,
    /// Number of connections, and of requests under way on each.
    pub in_flight: (usize, usize),
    /// Whether keys follow Zipf's law, with the exponent 0.99, instead of a uniform distribution.
    pub skewed: bool,
}

/// Measured loads.
pub const WORKLOADS: [BenchLoad; 8] = [
    BenchLoad { name: "writes, 256 under way", writes: 1.0, reads: Reads::Current, in_flight: (16, 16), skewed: false },
    BenchLoad { name: "reads, 256 under way", writes: 0.0, reads: Reads::Current, in_flight: (16, 16), skewed: false },
    BenchLoad {
        name: "5 % writes, 256 under way",
        writes: 0.05,
        reads: Reads::Current,
        in_flight: (16, 16),
        skewed: false,
    },
    BenchLoad { name: "old reads, 256 under way", writes: 0.0, reads: Reads::Old, in_flight: (16, 16), skewed: false },
    BenchLoad { name: "writes, one under way", writes: 1.0, reads: Reads::Current, in_flight: (1, 1), skewed: false },
    BenchLoad { name: "reads, one under way", writes: 0.0, reads: Reads::Current, in_flight: (1, 1), skewed: false },
    BenchLoad {
        name: "57 % writes, 256 under way",
        writes: 0.57,
        reads: Reads::Current,
        in_flight: (16, 16),
        skewed: false,
    },
    BenchLoad { name: "57 % writes, skewed", writes: 0.57, reads: Reads::Current, in_flight: (16, 16), skewed: true },
];

/// Parameters of a comparison.
#[derive(Clone, Debug)]
pub struct BenchParameters {
    /// Compared stores.
    pub kinds: Vec<StoreKind>,
    /// Number of rounds.
    pub rounds: usize,
    /// Duration of each load.
    pub seconds: Duration,
    /// Number of keys.
    pub keys: u64,
    /// Size of a value, in bytes.
    pub value_bytes: usize,
    /// Directory of the stores' data, on the disk to be measured.
    pub work: PathBuf,
}

/// Figures of one store under one load in one round.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StoreFigures {
    /// Operations a second.
    pub ops_per_s: f64,
    /// Median waiting time, in seconds.
    pub p50_s: f64,
    /// Upper limit of the waiting time for 99 of 100 operations, in seconds.
    pub p99_s: f64,
    /// Time of cores for each operation, of all servers together, in seconds.
    pub cpu_s_per_op: f64,
    /// Memory that the largest of its processes held afterwards, in bytes.
    pub resident_bytes: u64,
    /// Number of refused operations.
    pub refused: u64,
}

/// Results of a comparison.
#[derive(Debug, Default)]
pub struct BenchResults {
    figures: BTreeMap<(usize, StoreKind), Vec<StoreFigures>>,
}

/// Runs a comparison. `say` receives its progress, and the stores that are left out with the reason.
pub fn compare(comparison: &BenchParameters, tools: &Tools, mut say: impl FnMut(&str)) -> BenchResults {
    let mut results = BenchResults::default();
    let mut left_out = Vec::new();
    for round in 0..comparison.rounds {
        for kind in &comparison.kinds {
            if left_out.contains(kind) {
                continue;
            }
            say(&format!("round {} of {}: {}", round + 1, comparison.rounds, kind.name()));
            if let Err(why) = measure(comparison, *kind, tools, round, &mut results) {
                say(&format!("{} is left out: {why}", kind.name()));
                left_out.push(*kind);
            }
        }
    }
    results
}

fn measure(
    comparison: &BenchParameters,
    kind: StoreKind,
    tools: &Tools,
    round: usize,
    results: &mut BenchResults,
) -> Result<(), String> {
    let system = RunningStore::start(kind, tools, &comparison.work)?;
    system.fill(comparison.keys, comparison.value_bytes)?;
    for (number, workload) in WORKLOADS.iter().enumerate() {
        if workload.reads == Reads::Old && kind == StoreKind::Redis {
            continue;
        }
        // A sleeping core takes time to wake: with one request under way that time would dominate the result.
        let _awake = (workload.in_flight == (1, 1)).then(awake::keep_awake);
        let figures = under_load(comparison, &system, workload, round)?;
        results.figures.entry((number, kind)).or_default().push(figures);
    }
    Ok(())
}

fn under_load(
    comparison: &BenchParameters,
    system: &RunningStore,
    workload: &BenchLoad,
    round: usize,
) -> Result<StoreFigures, String> {
    let mut targets = system.targets.clone();
    // With one connection, each round uses another server.
    let servers = targets.len();
    targets.rotate_left(round % servers);
    let (kind, (connections, in_flight)) = (system.kind, workload.in_flight);
    let distribution = if workload.skewed { Distribution::Zipf { exponent: 0.99 } } else { Distribution::Uniform };
    let plan = Plan {
        connections,
        pace: Pace::Closed { in_flight },
        keys: comparison.keys,
        value_bytes: comparison.value_bytes,
        writes: workload.writes,
        distribution,
        warm_up: kind.warm_up().max(comparison.seconds / 4),
        duration: comparison.seconds,
        seed: round as u64,
        ..Plan::new(targets)
    };
    let mut edges = Vec::new();
    let used = || system.pids.iter().filter_map(|pid| cpu_time(*pid)).map(|time| time.total()).sum::<Duration>();
    let report = load::run(&plan, || kind.protocol(workload.reads), || edges.push(used()));
    let report = report.map_err(|failed| failed.to_string())?;
    if report.done() == 0 {
        return Err(format!("{}: nothing was done: {report}", workload.name));
    }
    let tally = if report.reads.done > report.writes.done { &report.reads } else { &report.writes };
    let cpu = edges.last().copied().unwrap_or_default().saturating_sub(edges.first().copied().unwrap_or_default());
    Ok(StoreFigures {
        ops_per_s: report.rate(),
        p50_s: tally.quantile(0.5).as_secs_f64(),
        p99_s: tally.quantile(0.99).as_secs_f64(),
        cpu_s_per_op: cpu.as_secs_f64() / report.done() as f64,
        resident_bytes: system.pids.iter().filter_map(|pid| resident_bytes(*pid)).max().unwrap_or(0),
        refused: report.writes.refused() + report.reads.refused(),
    })
}

impl BenchResults {
    /// Returns the medians of each figure over the rounds.
    pub fn median(&self, workload: usize, kind: StoreKind) -> Option<StoreFigures> {
        let rounds = self.figures.get(&(workload, kind))?;
        let median = |figure: fn(&StoreFigures) -> f64| {
            let mut all = rounds.iter().map(figure).collect::<Vec<_>>();
            all.sort_unstable_by(f64::total_cmp);
            all[all.len() / 2]
        };
        Some(StoreFigures {
            ops_per_s: median(|figures| figures.ops_per_s),
            p50_s: median(|figures| figures.p50_s),
            p99_s: median(|figures| figures.p99_s),
            cpu_s_per_op: median(|figures| figures.cpu_s_per_op),
            resident_bytes: median(|figures| figures.resident_bytes as f64) as u64,
            refused: median(|figures| figures.refused as f64) as u64,
        })
    }

    /// Writes `bench.json`, with every round, and `bench.svg`.
    ///
    /// # Errors
    /// A file cannot be written; earlier files of the same call stay.
    pub fn write(&self, directory: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(directory)?;
        let all = self.figures.iter().map(|((workload, kind), rounds)| {
            serde_json::json!({ "load": WORKLOADS[*workload].name, "store": kind.name(), "rounds": rounds })
        });
        let json = serde_json::to_vec_pretty(&all.collect::<Vec<_>>())?;
        std::fs::write(directory.join("bench.json"), json)?;
        std::fs::write(directory.join("bench.svg"), chart::draw(self))
    }

    /// Returns each store with its medians under one load.
    fn under(&self, workload: usize) -> Vec<(StoreKind, StoreFigures)> {
        let kinds = self.figures.keys().filter(|(number, _)| *number == workload).map(|(_, kind)| *kind);
        kinds.filter_map(|kind| Some((kind, self.median(workload, kind)?))).collect()
    }
}

/// A table for each load.
impl fmt::Display for BenchResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, workload) in WORKLOADS.iter().enumerate() {
            let rows = self.under(number);
            if rows.is_empty() {
                continue;
            }
            writeln!(
                f,
                "{:<28}{:>10}{:>10}{:>10}{:>12}{:>10}",
                workload.name, "ops/s", "p50 ms", "p99 ms", "CPU us/op", "MiB"
            )?;
            for (kind, figures) in rows {
                write!(f, "  {:<26}{:>10.0}", kind.name(), figures.ops_per_s)?;
                write!(f, "{:>10.3}{:>10.3}", figures.p50_s * 1e3, figures.p99_s * 1e3)?;
                write!(f, "{:>12.1}{:>10}", figures.cpu_s_per_op * 1e6, figures.resident_bytes >> 20)?;
                let refused = figures.refused;
                writeln!(f, "{}", if refused > 0 { format!("   {refused} refused") } else { String::new() })?;
            }
        }
        Ok(())
    }
}
