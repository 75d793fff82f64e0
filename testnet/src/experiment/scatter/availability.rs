//! Availability and consistency by the lifetimes of peers (Harmony §8.4, Fig. 11 and 12).
//!
//! Harmony's routing was changed to fail an operation during a change of its group. Here random points of the ring are observed
//! from outside. A point counts as lost where no peer serves it, or while its group changes, though it may serve.

use std::time::Duration;

use super::{BASELINE, BOTH, MeasuredSystem, PLANET, chart_of_both};
use crate::churn::Lives;
use crate::experiment::options::{ExperimentOptions, Say};
use crate::experiment::registry::Experiment;
use crate::experiment::table::{Comparison, ExperimentOutcome, Table, Verdict};
use crate::parallel::in_parallel;
use crate::picture::Chart;
use crate::study::{Demand, Figures, Study};

/// Figures 11 and 12.
pub const EXPERIMENT: Experiment = Experiment {
    name: "availability",
    paper: "Harmony Fig. 11, 12",
    about: "Points of the ring that are not served, groups in the middle of a change, and inconsistent reads, by median life",
    run: |options, say| experiment(&AvailabilitySetting::new(options), options, say),
};

/// Median lives, in seconds.
const MEDIANS_S: [u64; 5] = [100, 200, 300, 500, 1_000];
/// Median lives of a quick run, in seconds.
const MEDIANS_QUICK_S: [u64; 2] = [100, 500];

/// The parameters of the experiment.
struct AvailabilitySetting {
    medians_s: Vec<u64>,
    study: Study,
}

impl AvailabilitySetting {
    fn new(options: &ExperimentOptions) -> AvailabilitySetting {
        let peers = options.size.pick(60, 100, 840);
        let seconds = |quick, default, full| Duration::from_secs(options.size.pick(quick, default, full));
        let study = Study {
            settle: seconds(80, 120, 200),
            warm_up: seconds(20, 60, 60),
            time: seconds(100, 240, 3_600),
            rate: options.size.pick(15.0, 40.0, 280.0),
            keys: options.size.pick(2_000, 10_000, 100_000),
            demand: Demand::Fetched { fetches: 2 },
            ..Study::new(options.seed, peers, None)
        };
        let medians_s = options.size.pick(MEDIANS_QUICK_S.to_vec(), MEDIANS_S.to_vec(), MEDIANS_S.to_vec());
        AvailabilitySetting { medians_s, study }
    }

    fn study(&self, median_s: u64) -> Study {
        let mean = Duration::from_secs_f64(median_s as f64 / std::f64::consts::LN_2);
        Study { lives: Some(Lives::Exponential(mean)), ..self.study.clone() }
    }
}

/// The figures of one system at one median life.
struct AvailabilityPoint {
    system: MeasuredSystem,
    median_s: u64,
    figures: Figures,
}

fn experiment(
    setting: &AvailabilitySetting,
    options: &ExperimentOptions,
    say: Say<'_>,
) -> Result<ExperimentOutcome, String> {
    let medians = || setting.medians_s.iter().copied();
    let all: Vec<(MeasuredSystem, u64)> =
        BOTH.into_iter().flat_map(|system| medians().map(move |of| (system, of))).collect();
    let one = |(system, median_s): &(MeasuredSystem, u64)| {
        let figures = system.run(&setting.study(*median_s), say)?;
        Ok(AvailabilityPoint { system: *system, median_s: *median_s, figures })
    };
    let points: Vec<AvailabilityPoint> =
        in_parallel(options.jobs, &all, one).into_iter().collect::<Result<_, String>>()?;
    let mut table = Table::new(&COLUMNS);
    points.iter().for_each(|point| table.push(point.cells()));
    let study = &setting.study;
    Ok(ExperimentOutcome {
        parameters: vec![
            ("peers", study.peers.to_string()),
            ("measured", format!("{} s", study.time.as_secs())),
            ("writes", format!("{} a second, each read through two other peers", study.rate)),
        ],
        models: vec![PLANET.into(), BASELINE.into()],
        table,
        curves: None,
        charts: charts(&points),
        verdict: verdict(&points),
    })
}

const COLUMNS: [&str; 11] = [
    "system",
    "median_life_s",
    "deaths_per_s",
    "points",
    "changing_percent",
    "unserved_percent",
    "contended_percent",
    "reads",
    "failed_percent",
    "inconsistent_percent",
    "paper",
];

impl AvailabilityPoint {
    fn cells(&self) -> Vec<String> {
        let (figures, owned, load) = (&self.figures, &self.figures.ownership, &self.figures.load);
        let mut cells = vec![self.system.name().to_owned(), self.median_s.to_string()];
        cells.extend([format!("{:.3}", figures.deaths_per_s()), owned.points.to_string()]);
        cells.extend(
            [owned.reconfiguring, owned.unserved, owned.contended].map(|count| format!("{:.2}", owned.percent(count))),
        );
        cells.extend([load.fetches.to_string(), format!("{:.3}", load.failed_percent())]);
        cells.push(format!("{:.3}", load.inconsistent_percent()));
        cells.push(match self.system {
            MeasuredSystem::Scatter => "0 inconsistent, more available than OpenDHT".into(),
            MeasuredSystem::Dht => "some inconsistent at each rate; 5 % of keys owned by several".into(),
        });
        cells
    }
}

fn charts(points: &[AvailabilityPoint]) -> Vec<Chart> {
    let chart = |title: &str, up: &str, of: fn(&Figures) -> f64| {
        chart_of_both(title, "median life, seconds", up, |system| {
            let of_system = points.iter().filter(|point| point.system == system);
            of_system.map(|point| (point.median_s as f64, of(&point.figures))).collect()
        })
    };
    vec![
        chart("availability loss", "points that are not served, percent", |figures| {
            figures.ownership.percent(figures.ownership.unserved)
        }),
        chart("inconsistent reads", "percent of reads", |figures| figures.load.inconsistent_percent()),
    ]
}

fn verdict(points: &[AvailabilityPoint]) -> Verdict {
    let most = |system: MeasuredSystem, of: fn(&Figures) -> f64| {
        points.iter().filter(|point| point.system == system).map(|point| of(&point.figures)).fold(0.0, f64::max)
    };
    let unserved = |figures: &Figures| figures.ownership.percent(figures.ownership.unserved);
    let inconsistent = |figures: &Figures| figures.load.inconsistent_percent();
    let [ours, theirs] = BOTH.map(|system| most(system, unserved));
    let [wrong, wrong_there] = BOTH.map(|system| most(system, inconsistent));
    let contended = most(MeasuredSystem::Dht, |figures| figures.ownership.percent(figures.ownership.contended));
    let comparison = match (wrong == 0.0, ours <= theirs) {
        (true, true) => Comparison::Reproduced,
        _ => Comparison::Worse,
    };
    let why = format!(
        "{wrong:.3} % of our reads are inconsistent (paper: none) and {wrong_there:.3} % of the DHT model's; at most {ours:.2} % of points \
         are not served by ours and {theirs:.2} % by the model, where several peers serve up to {contended:.2} % (paper: about 5 % of keys)"
    );
    Verdict::new(comparison, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::options::Scale;
    use crate::study::Places;

    #[test]
    fn points_are_looked_at_in_both_systems() {
        let options = ExperimentOptions { size: Scale::Quick, seed: 1, jobs: 2, out: None };
        let mut setting = AvailabilitySetting::new(&options);
        setting.medians_s = vec![60];
        setting.study = Study {
            peers: 12,
            places: Places::Cluster,
            settle: Duration::from_secs(20),
            warm_up: Duration::from_secs(2),
            time: Duration::from_secs(15),
            keys: 50,
            ..setting.study
        };
        let outcome = experiment(&setting, &options, &|_| {}).expect("no invariant is broken");
        let value = |row, column| {
            outcome.table.value(row, column).and_then(|value| value.parse::<f64>().ok()).unwrap_or(f64::NAN)
        };
        assert_eq!(outcome.table.rows.len(), 2);
        assert_eq!(value(0, "inconsistent_percent"), 0.0);
        assert!(
            (0..2).all(|row| value(row, "points") >= 200.0 && value(row, "unserved_percent") < 30.0),
            "{}",
            outcome.table
        );
        assert!(value(0, "changing_percent") >= value(0, "unserved_percent"));
    }
}
