//! Chirp under high load: latency, and the balance of load between machines (Scatter §7.2.4, Fig. 15).
//!
//! All updates are posted first; then followers fetch them, in random order.

use std::time::Duration;

use super::{BASELINE, BOTH, MeasuredSystem, PLANET, ms};
use crate::churn::{Lives, quantiles};
use crate::experiment::options::{ExperimentOptions, Say};
use crate::experiment::registry::Experiment;
use crate::experiment::table::{Comparison, ExperimentOutcome, Table, Verdict};
use crate::parallel::in_parallel;
use crate::picture::{Chart, Line};
use crate::study::{Demand, Figures, Study, mean};

/// Figure 15.
pub const EXPERIMENT: Experiment = Experiment {
    name: "load",
    paper: "Scatter Fig. 15",
    about: "Chirp under high load and Pareto churn: latency of fetches, and fetches of each machine divided by the mean",
    run: |options, say| experiment(&LoadSetting::new(options), options, say),
};

/// The mean life of peers, which have died for so many of them before.
const MEAN: Duration = Duration::from_secs(500);
/// Time that a peer takes for each message.
const SERVICE: Duration = Duration::from_micros(100);
/// The wanted ratio of the load of the 99th percentile of machines and the mean.
const WANTED: f64 = 2.5;

/// The parameters of the experiment.
struct LoadSetting {
    study: Study,
    fetches_per_s: f64,
}

impl LoadSetting {
    fn new(options: &ExperimentOptions) -> LoadSetting {
        let peers = options.size.pick(50, 100, 840);
        let seconds = |quick, default, full| Duration::from_secs(options.size.pick(quick, default, full));
        let mut study = Study {
            lives: Some(Lives::pareto(MEAN)),
            aged: MEAN * Lives::WARM,
            settle: seconds(80, 120, 200),
            warm_up: seconds(60, 120, 250),
            time: seconds(20, 60, 100),
            rate: options.size.pick(100.0, 300.0, 4_000.0),
            keys: options.size.pick(2_000, 10_000, 100_000),
            is_chirp: true,
            members: (6, 13),
            service_time: SERVICE,
            ..Study::new(options.seed, peers, None)
        };
        // As many fetches for each peer as in the paper: 10,000 a second for 840.
        let fetches_per_s = 10_000.0 / 840.0 * peers as f64;
        study.demand = Demand::Apart { fetches_per_s };
        LoadSetting { study, fetches_per_s }
    }
}

/// The figures of one system.
struct LoadPoint {
    system: MeasuredSystem,
    figures: Figures,
    /// The fetches of each machine divided by the mean, the smallest first.
    loads: Vec<f64>,
}

impl LoadPoint {
    fn new(system: MeasuredSystem, figures: Figures) -> LoadPoint {
        let mean = figures.executed.iter().sum::<u64>() as f64 / figures.executed.len().max(1) as f64;
        let mut loads: Vec<f64> = figures.executed.iter().map(|count| *count as f64 / mean.max(1e-9)).collect();
        loads.sort_by(f64::total_cmp);
        LoadPoint { system, figures, loads }
    }

    /// Returns the load of this percentile of machines.
    fn load(&self, percentile: f64) -> f64 {
        let last = self.loads.len().saturating_sub(1);
        self.loads.get((percentile / 100.0 * last as f64).round() as usize).copied().unwrap_or(0.0)
    }

    fn cells(&self) -> Vec<String> {
        let load = &self.figures.load;
        let [median, p99] = quantiles(&load.fetch_times, [0.5, 0.99]);
        let mut cells = vec![self.system.name().to_owned(), load.fetches.to_string()];
        cells.extend([ms(mean(&load.fetch_times)), ms(median), ms(p99)]);
        cells.extend([format!("{:.3}", load.failed_fetches_percent()), load.inconsistent.to_string()]);
        cells.extend([0.0, 50.0, 99.0, 100.0].map(|percentile| format!("{:.2}", self.load(percentile))));
        cells.push(match self.system {
            MeasuredSystem::Scatter => "slightly faster, more even".into(),
            MeasuredSystem::Dht => "more skewed".into(),
        });
        cells
    }
}

fn experiment(setting: &LoadSetting, options: &ExperimentOptions, say: Say<'_>) -> Result<ExperimentOutcome, String> {
    let mut study = setting.study.clone();
    study.policies.choose("join", "load").map_err(|why| why.to_string())?;
    let points = in_parallel(options.jobs, &BOTH, |system| Ok(LoadPoint::new(*system, system.run(&study, say)?)));
    let points: Vec<LoadPoint> = points.into_iter().collect::<Result<_, String>>()?;
    let mut table = Table::new(&COLUMNS);
    points.iter().for_each(|point| table.push(point.cells()));
    let mut curves = Table::new(&["system", "machine", "load"]);
    for point in &points {
        for (machine, load) in point.loads.iter().enumerate() {
            curves.push(vec![point.system.name().to_owned(), machine.to_string(), format!("{load:.3}")]);
        }
    }
    Ok(ExperimentOutcome {
        parameters: vec![
            ("peers", study.peers.to_string()),
            ("lives", format!("Pareto {} s, {} mean lives after a cold start", MEAN.as_secs(), Lives::WARM)),
            ("updates", format!("{} a second for {} s", study.rate, study.warm_up.as_secs())),
            ("fetches", format!("{:.0} a second for {} s", setting.fetches_per_s, study.time.as_secs())),
            ("users", study.keys.to_string()),
            ("policies", format!("{:?}", study.policies)),
        ],
        models: vec![
            PLANET.into(),
            BASELINE.into(),
            super::churn::CHIRP.into(),
            format!("a peer takes {} µs for each message", SERVICE.as_micros()),
            "a machine's peers, one after the other, count as one".into(),
        ],
        table,
        curves: Some(curves),
        charts: vec![chart(&points)],
        verdict: verdict(&points),
    })
}

const COLUMNS: [&str; 12] = [
    "system",
    "fetches",
    "fetch_mean_ms",
    "fetch_p50_ms",
    "fetch_p99_ms",
    "failed_percent",
    "inconsistent",
    "load_least",
    "load_p50",
    "load_p99",
    "load_most",
    "paper",
];

fn chart(points: &[LoadPoint]) -> Chart {
    let line = |point: &LoadPoint| {
        let machines = point.loads.len().max(1) as f64;
        let place = |(machine, load): (usize, &f64)| (100.0 * (machine as f64 + 0.5) / machines, *load);
        Line {
            name: point.system.name().into(),
            points: point.loads.iter().enumerate().map(place).collect(),
            dashed: point.system == MeasuredSystem::Dht,
        }
    };
    Chart {
        title: "(b) load of machines".into(),
        across: "machines in order of load, percent".into(),
        up: "fetches ÷ mean".into(),
        lines: points.iter().map(line).collect(),
        ..Chart::default()
    }
}

fn verdict(points: &[LoadPoint]) -> Verdict {
    let (Some(ours), Some(theirs)) = (points.first(), points.last()) else {
        return Verdict::new(Comparison::NotComparable, "nothing was measured".into());
    };
    let [even, skewed] = [ours, theirs].map(|point| point.load(99.0));
    let [fetch, fetch_there] = [ours, theirs].map(|point| mean(&point.figures.load.fetch_times));
    let is_even = even <= WANTED && even < skewed;
    let comparison = match (is_even, fetch <= fetch_there) {
        (true, true) => Comparison::Reproduced,
        _ => Comparison::Worse,
    };
    let why = format!(
        "the 99th percentile of machines has {even:.1} times the mean load, and {skewed:.1} times in the DHT model (paper: more even than \
         OpenDHT); a fetch takes {} ms on average, and {} ms in the model (paper: slightly less than OpenDHT)",
        ms(fetch),
        ms(fetch_there)
    );
    Verdict::new(comparison, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::options::Scale;
    use crate::study::Places;

    #[test]
    fn loads_of_all_machines_add_up() {
        let options = ExperimentOptions { size: Scale::Quick, seed: 1, jobs: 2, out: None };
        let mut setting = LoadSetting::new(&options);
        setting.study = Study {
            peers: 10,
            places: Places::Cluster,
            settle: Duration::from_secs(20),
            warm_up: Duration::from_secs(10),
            time: Duration::from_secs(5),
            rate: 20.0,
            keys: 100,
            demand: Demand::Apart { fetches_per_s: 60.0 },
            ..setting.study
        };
        let outcome = experiment(&setting, &options, &|_| {}).expect("no invariant is broken");
        let value = |row, column| outcome.table.value(row, column).and_then(|value| value.parse::<f64>().ok()).unwrap();
        for row in 0..2 {
            assert!(value(row, "fetches") > 150.0 && value(row, "load_most") >= 1.0, "{}", outcome.table);
            assert!(value(row, "load_least") <= 1.0, "{}", outcome.table);
        }
        assert_eq!(value(0, "inconsistent"), 0.0);
        assert_eq!(outcome.curves.map(|curves| curves.rows.len()), Some(20));
    }
}
