//! Fine against coarse: one state machine for each key, or one for each sub-range (fRSM §4.3, figures 8 to 13).
//!
//! The paper's load: 43 % reads, values of 512 bytes, keys by Zipf's law (0.99) or uniform; one of a hundred operations is slow.
//! Its setting: three machines, twelve shards or a single one, one to twelve cores. Coarse is measured in steps: only the order of
//! operations; then batches that wait for each other; then a log for each shard, as in the paper. So each step's part of the ratio shows.

use std::time::Duration;

use load::Distribution;

use super::cores::{CoresMeasured, CoresSetting, PARTS, WriteOrder, run};
use crate::experiment::options::{ExperimentOptions, Say};
use crate::experiment::registry::Experiment;
use crate::experiment::table::{Comparison, ExperimentOutcome, Table, Verdict};
use crate::parallel::in_parallel;
use crate::picture::{Chart, Line as Curve};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "fine-coarse",
    paper: "fRSM Fig. 8-13",
    about: "A state machine for each key against one for each sub-range in three kinds, by cores and on a single shard",
    run: |options, _: Say<'_>| Ok(fine_coarse(options)),
};

/// Cores of a machine, as in figure 10, and the paper's ratio of fine's throughput to that on one core.
const CORES: [(usize, f64); 5] = [(1, 1.0), (2, 1.9), (4, 4.1), (6, 6.1), (12, 11.0)];
/// Operations under way for each core, where the highest throughput is measured.
const CLIENTS: usize = 128;
/// The paper's ratio of the throughputs of fine and coarse at twelve cores, skewed and uniform.
const PAPER: [f64; 2] = [5.6, 2.3];
/// Part of the paper's ratio within which a ratio counts as the same.
const CLOSE: f64 = 0.15;
/// Names of the orders, finest first.
const ORDERS: [(&str, WriteOrder); 6] = [
    ("fine", WriteOrder::Fine),
    ("ordered", WriteOrder::Ordered),
    ("batches of 128, one log", WriteOrder::Batches { most: 128, own_logs: false }),
    ("batches of 128", WriteOrder::Batches { most: 128, own_logs: true }),
    ("batches of 64", WriteOrder::Batches { most: 64, own_logs: true }),
    ("batches of 1", WriteOrder::Batches { most: 1, own_logs: true }),
];
/// The order that is the paper's coarse store, at its best.
const PAPERS_COARSE: &str = ORDERS[3].0;

/// A load on machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FineCoarseLoad {
    /// Whether keys follow Zipf's law, instead of a uniform distribution.
    skewed: bool,
    parts: usize,
    cores: usize,
    clients: usize,
}

/// The result of one order under one load.
#[derive(Clone, Copy, Debug)]
struct FineCoarsePoint {
    load: FineCoarseLoad,
    order: &'static str,
    measured: CoresMeasured,
}

fn measure(load: FineCoarseLoad, order: WriteOrder, lasts: Duration, seed: u64) -> CoresMeasured {
    run(CoresSetting {
        order,
        parts: load.parts,
        cores: load.cores,
        keys: if load.skewed { Distribution::Zipf { exponent: 0.99 } } else { Distribution::Uniform },
        key_count: 100_000,
        clients: load.clients,
        value_bytes: 512,
        reads: 0.43,
        slow: 0.01,
        lasts,
        seed,
    })
}

/// Returns the loads: the most at each number of cores, fewer clients at twelve cores, and a single shard.
fn loads() -> Vec<FineCoarseLoad> {
    let of = |skewed: bool| {
        let most = CORES.into_iter().map(|(cores, _)| (PARTS, cores, CLIENTS * cores));
        let fewer = [(PARTS, 12, 24), (PARTS, 12, 384), (1, 12, 384)];
        most.chain(fewer).map(move |(parts, cores, clients)| FineCoarseLoad { skewed, parts, cores, clients })
    };
    of(true).chain(of(false)).collect()
}

/// Measures the orders under all loads.
fn fine_coarse(options: &ExperimentOptions) -> ExperimentOutcome {
    let lasts = options.lasts(Duration::from_millis(250));
    experiment(&loads(), lasts, options)
}

fn experiment(loads: &[FineCoarseLoad], lasts: Duration, options: &ExperimentOptions) -> ExperimentOutcome {
    let all: Vec<(FineCoarseLoad, (&'static str, WriteOrder))> =
        loads.iter().flat_map(|load| ORDERS.map(|order| (*load, order))).collect();
    let points = in_parallel(options.jobs, &all, |(load, (name, order))| {
        let measured = measure(*load, *order, lasts, options.seed);
        FineCoarsePoint { load: *load, order: name, measured }
    });
    let mut table = Table::new(&[
        "keys",
        "shards",
        "cores",
        "clients",
        "order",
        "ops_per_s",
        "p50_ms",
        "p99_ms",
        "fine_times_this",
        "times_one_core",
        "paper",
    ]);
    points.iter().for_each(|point| table.push(row(&points, point)));
    ExperimentOutcome {
        parameters: vec![
            ("measured", format!("{lasts:?}")),
            ("keys", "100000 of 512 bytes".into()),
            ("reads", "43 %".into()),
        ],
        models: vec![
            "cores, disks and wires in virtual time take fixed times; the group is real, and a gate before it makes batches".into(),
            "a core takes any key here, as in the paper; a real peer of this program binds a key to one loop".into(),
        ],
        table,
        curves: None,
        charts: [true, false].map(|skewed| chart(&points, skewed)).into(),
        verdict: verdict(&points),
    }
}

/// Returns the throughput under this load and order.
fn ops(points: &[FineCoarsePoint], load: FineCoarseLoad, order: &str) -> Option<f64> {
    points.iter().find(|point| point.load == load && point.order == order).map(|point| point.measured.ops_per_s)
}

fn row(points: &[FineCoarsePoint], point: &FineCoarsePoint) -> Vec<String> {
    let FineCoarsePoint { load, order, measured } = point;
    let ms = |time: Duration| format!("{:.2}", time.as_secs_f64() * 1e3);
    let mut row = vec![if load.skewed { "zipf" } else { "uniform" }.to_owned()];
    row.extend([load.parts, load.cores, load.clients].map(|count| count.to_string()));
    row.extend([(*order).to_owned(), format!("{:.0}", measured.ops_per_s), ms(measured.p50), ms(measured.p99)]);
    let fine = ops(points, *load, ORDERS[0].0).map(|fine| fine / measured.ops_per_s);
    let one = FineCoarseLoad { cores: 1, clients: CLIENTS, ..*load };
    let one = ops(points, one, order).filter(|_| load.clients == CLIENTS * load.cores && load.parts == PARTS);
    let ratio = |ratio: Option<f64>| ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
    row.extend([ratio(fine), ratio(one.map(|one| measured.ops_per_s / one)), paper(point)]);
    row
}

/// Returns the paper's figure for a point.
fn paper(point: &FineCoarsePoint) -> String {
    let FineCoarseLoad { skewed, parts, cores, clients } = point.load;
    let is_most = parts == PARTS && clients == CLIENTS * cores;
    let one_core = CORES.iter().find(|(of, _)| *of == cores).map_or(1.0, |(_, paper)| *paper);
    match point.order {
        PAPERS_COARSE if is_most && cores == 12 => format!("fine: {:.1} times this", PAPER[usize::from(!skewed)]),
        "fine" if is_most && skewed => format!("{one_core:.1} times one core"),
        "batches of 64" if is_most && skewed && cores > 2 => "no more than with 2 cores".into(),
        PAPERS_COARSE if parts == 1 => "fine is better on a single shard".into(),
        _ => String::new(),
    }
}

fn chart(points: &[FineCoarsePoint], skewed: bool) -> Chart {
    let curve = |(order, _): (&str, WriteOrder)| {
        let is_meant = |point: &&FineCoarsePoint| {
            let load = point.load;
            point.order == order && load.skewed == skewed && load.parts == PARTS && load.clients == CLIENTS * load.cores
        };
        let points = points.iter().filter(is_meant);
        Curve {
            name: order.into(),
            points: points.map(|point| (point.load.cores as f64, point.measured.ops_per_s)).collect(),
            dashed: false,
        }
    };
    Chart {
        title: if skewed { "keys by Zipf's law" } else { "uniform keys" }.into(),
        across: "cores".into(),
        up: "operations a second".into(),
        dots: true,
        lines: ORDERS.map(curve).into(),
        ..Chart::default()
    }
}

/// Compares the ratios at twelve cores with the paper's, and says which step of coarse makes which part of them.
fn verdict(points: &[FineCoarsePoint]) -> Verdict {
    let ratio = |skewed: bool, clients: usize, step: usize| {
        let load = FineCoarseLoad { skewed, parts: PARTS, cores: 12, clients };
        let fine = ops(points, load, ORDERS[0].0).unwrap_or(0.0);
        fine / ops(points, load, ORDERS[step].0).unwrap_or(f64::INFINITY)
    };
    let ratios = |skewed: bool| [1, 2, 3].map(|step| ratio(skewed, CLIENTS * 12, step));
    let [skewed, uniform] = [true, false].map(ratios);
    let close = |ours: f64, paper: f64| (ours / paper - 1.0).abs() <= CLOSE;
    let comparison = match (skewed[2], uniform[2]) {
        (skewed, uniform) if close(skewed, PAPER[0]) && close(uniform, PAPER[1]) => Comparison::Reproduced,
        (skewed, uniform) if skewed >= PAPER[0] && uniform >= PAPER[1] => Comparison::Better,
        _ => Comparison::Worse,
    };
    let steps = |[ordered, batches, logs]: [f64; 3]| {
        format!(
            "{ordered:.1} times the throughput of a coarse store that only keeps the order, {batches:.1} times where batches wait for each \
             other, and {logs:.1} times with a log for each shard, too"
        )
    };
    let why = format!(
        "at twelve cores fine has, with skewed keys, {} (paper: {}), and with uniform keys {} (paper: {}); with a quarter of the clients the \
         last ratios are {:.1} and {:.1}, as fewer wait for each batch",
        steps(skewed),
        PAPER[0],
        steps(uniform),
        PAPER[1],
        ratio(true, CLIENTS * 3, 3),
        ratio(false, CLIENTS * 3, 3),
    );
    Verdict::new(comparison, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::options::Scale;

    /// A slow operation delays later ones in its sub-range, and the fullest sub-range has at most one core. Each step of coarse is slower.
    #[test]
    fn fine_does_more_with_twelve_cores() {
        let options = ExperimentOptions { size: Scale::Quick, seed: 1, jobs: 2, out: None };
        let loads = [true, false].map(|skewed| FineCoarseLoad { skewed, parts: PARTS, cores: 12, clients: 384 });
        let table = experiment(&loads, Duration::from_millis(60), &options).table;
        let value = |row, column| table.value(row, column).and_then(|value| value.parse::<f64>().ok()).unwrap();
        let ratio = |row| value(row, "fine_times_this");
        assert!(ratio(1) > ratio(7) && ratio(7) > 1.0, "{table}");
        assert!(ratio(3) >= ratio(1) && ratio(5) > ratio(3), "{table}");
        assert!(value(0, "p99_ms") < value(1, "p99_ms"), "{table}");
    }
}
