//! Latency of writes in a network without churn, ours and the baseline's (Harmony §8.4, Fig. 10).

use std::time::Duration;

use super::{BASELINE, BOTH, MeasuredSystem, PLANET, ms};
use crate::churn::quantiles;
use crate::experiment::options::{ExperimentOptions, Say};
use crate::experiment::registry::Experiment;
use crate::experiment::table::{Comparison, ExperimentOutcome, Table, Verdict};
use crate::parallel::in_parallel;
use crate::picture::{Chart, Line};
use crate::study::{Demand, Study, mean};

/// Figure 10.
pub const EXPERIMENT: Experiment = Experiment {
    name: "write-latency",
    paper: "Harmony Fig. 10",
    about: "How long writes of random keys through random peers take without churn, ours and the DHT's",
    run: |options, say| experiment(&study(options), options, say),
};

/// The paper's medians, in milliseconds: Harmony and OpenDHT.
const PAPER_MS: [f64; 2] = [371.0, 301.0];
/// Part of the paper's median within which a median counts as the same.
const CLOSE: f64 = 0.15;
/// Number of points of a curve.
const POINTS: u32 = 50;

fn study(options: &ExperimentOptions) -> Study {
    let peers = options.size.pick(80, 200, 840);
    let seconds = |quick, default, full| Duration::from_secs(options.size.pick(quick, default, full));
    Study {
        settle: seconds(80, 150, 200),
        warm_up: seconds(10, 30, 60),
        time: seconds(30, 100, 600),
        rate: options.size.pick(50.0, 100.0, 280.0),
        keys: options.size.pick(5_000, 20_000, 100_000),
        demand: Demand::Fetched { fetches: 0 },
        members: (6, 13),
        ..Study::new(options.seed, peers, None)
    }
}

/// The writes of one system.
struct WritePoint {
    system: MeasuredSystem,
    paper_ms: f64,
    failed: u64,
    took: Vec<Duration>,
}

impl WritePoint {
    fn median_ms(&self) -> f64 {
        quantiles(&self.took, [0.5])[0].as_secs_f64() * 1e3
    }
}

fn experiment(study: &Study, options: &ExperimentOptions, say: Say<'_>) -> Result<ExperimentOutcome, String> {
    let systems: Vec<(MeasuredSystem, f64)> = BOTH.into_iter().zip(PAPER_MS).collect();
    let points = in_parallel(options.jobs, &systems, |(system, paper_ms)| {
        let load = system.run(study, say)?.load;
        Ok(WritePoint { system: *system, paper_ms: *paper_ms, failed: load.failed_updates, took: load.update_times })
    });
    let points: Vec<WritePoint> = points.into_iter().collect::<Result<_, String>>()?;
    let mut table =
        Table::new(&["system", "writes", "failed", "p10_ms", "p50_ms", "p90_ms", "p99_ms", "mean_ms", "paper"]);
    let mut curves = Table::new(&["system", "share", "ms"]);
    for point in &points {
        let mut row = vec![point.system.name().to_owned(), point.took.len().to_string(), point.failed.to_string()];
        row.extend(quantiles(&point.took, [0.1, 0.5, 0.9, 0.99]).map(ms));
        row.extend([ms(mean(&point.took)), format!("p50 {} ms", point.paper_ms)]);
        table.push(row);
        for (share, took) in curve(&point.took) {
            curves.push(vec![point.system.name().to_owned(), format!("{share:.2}"), ms(took)]);
        }
    }
    Ok(ExperimentOutcome {
        parameters: vec![
            ("peers", study.peers.to_string()),
            ("members of a group", format!("{} to {}", study.members.0, study.members.1)),
            ("writes", format!("{} a second for {} s, each through a random peer", study.rate, study.time.as_secs())),
            ("keys", study.keys.to_string()),
        ],
        models: vec![PLANET.into(), BASELINE.into()],
        table,
        curves: Some(curves),
        charts: vec![chart(&points)],
        verdict: verdict(&points),
    })
}

fn curve(took: &[Duration]) -> Vec<(f64, Duration)> {
    let share = |point: u32| f64::from(point) / f64::from(POINTS);
    (0..=POINTS).map(|point| (share(point), quantiles(took, [share(point)])[0])).collect()
}

fn chart(points: &[WritePoint]) -> Chart {
    let line = |point: &WritePoint| {
        let shown = curve(&point.took).into_iter().filter(|(share, _)| *share < 1.0);
        Line {
            name: point.system.name().into(),
            points: shown.map(|(share, took)| (took.as_secs_f64() * 1e3, share)).collect(),
            dashed: point.system == MeasuredSystem::Dht,
        }
    };
    Chart {
        title: "writes without churn".into(),
        across: "milliseconds".into(),
        up: "share of writes".into(),
        lines: points.iter().map(line).collect(),
        ..Chart::default()
    }
}

/// Compares the cost of consistency, which is the difference of the medians, and our median with Harmony's.
fn verdict(points: &[WritePoint]) -> Verdict {
    let [Some(ours), Some(theirs)] = [0, 1].map(|place| points.get(place)) else {
        return Verdict::new(Comparison::NotComparable, "nothing was measured".into());
    };
    let (ours, theirs) = (ours.median_ms(), theirs.median_ms());
    let dearer = |ours: f64, theirs: f64| 100.0 * (ours - theirs) / theirs.max(1e-9);
    let (here, paper) = (dearer(ours, theirs), dearer(PAPER_MS[0], PAPER_MS[1]));
    let is_close = |median: f64, paper: f64| (median / paper - 1.0).abs() <= CLOSE;
    let comparison = match () {
        () if is_close(ours, PAPER_MS[0]) && is_close(theirs, PAPER_MS[1]) => Comparison::Reproduced,
        () if ours <= PAPER_MS[0] && here <= paper => Comparison::Better,
        () => Comparison::Worse,
    };
    let why = format!(
        "the median write takes {ours:.0} ms with agreement and {theirs:.0} ms in the DHT model, {here:.0} % more (paper: {} and {} ms, \
         {paper:.0} % more); the model's put waits for its root alone, and copies leave after the answer",
        PAPER_MS[0], PAPER_MS[1]
    );
    Verdict::new(comparison, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::options::Scale;

    #[test]
    fn both_systems_are_timed() {
        let options = ExperimentOptions { size: Scale::Quick, seed: 1, jobs: 2, out: None };
        let small = Study {
            peers: 14,
            settle: Duration::from_secs(40),
            warm_up: Duration::from_secs(2),
            time: Duration::from_secs(10),
            rate: 20.0,
            keys: 200,
            members: (2, 5),
            ..study(&options)
        };
        let outcome = experiment(&small, &options, &|_| {}).expect("no invariant is broken");
        let value = |row, column| outcome.table.value(row, column).and_then(|value| value.parse::<f64>().ok()).unwrap();
        for row in 0..2 {
            assert!(value(row, "writes") > 100.0, "{}", outcome.table);
            assert!((1.0..3_000.0).contains(&value(row, "p50_ms")), "{}", outcome.table);
        }
    }
}
