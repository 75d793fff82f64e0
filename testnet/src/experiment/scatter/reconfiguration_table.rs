//! Mean times that groups take to change, at one site and at three (Scatter §7.1.3, Table 2).
//!
//! The same runs as in [`super::reconfiguration`], in other networks: a change counts from its proposal by the leader until the leader
//! knows that it is decided, without the copies of data.

use std::time::Duration;

use super::reconfiguration::{ReconfigurationSetting, run};
use super::timed::Change;
use crate::experiment::options::{ExperimentOptions, Say};
use crate::experiment::registry::Experiment;
use crate::experiment::table::{Comparison, ExperimentOutcome, Table, Verdict};
use crate::parallel::in_parallel;
use crate::picture::{Chart, Line};
use crate::study::{Places, Study};

/// Table 2.
pub const EXPERIMENT: Experiment = Experiment {
    name: "reconfiguration",
    paper: "Scatter Table 2",
    about: "How long groups take to change at one site, and at three with any leader and with leaders chosen by latency",
    run: |options, say| experiment(&setting(options), options, say),
};

/// A column of the paper's table: its name, the network, the policy of leaders, and the paper's mean and deviation of each change, in
/// milliseconds.
struct PaperColumn {
    name: &'static str,
    places: Places,
    lead: &'static str,
    paper: [(f64, f64); 4],
}

const COLUMNS: [PaperColumn; 3] = [
    PaperColumn {
        name: "one cluster",
        places: Places::Cluster,
        lead: "anybody",
        paper: [(2.04, 0.44), (3.32, 0.54), (4.01, 0.73), (4.79, 1.01)],
    },
    PaperColumn {
        name: "three sites",
        places: Places::Sites,
        lead: "anybody",
        paper: [(90.9, 31.8), (208.8, 48.8), (246.5, 45.4), (307.6, 69.8)],
    },
    PaperColumn {
        name: "three sites, best leader",
        places: Places::Sites,
        lead: "agreement",
        paper: [(55.6, 7.6), (135.8, 15.2), (178.5, 15.1), (200.7, 24.4)],
    },
];
/// Part of the paper's mean within which a mean counts as the same.
const CLOSE: f64 = 0.15;

fn setting(options: &ExperimentOptions) -> ReconfigurationSetting {
    let peers = options.size.pick(36, 60, 150);
    let settle = Duration::from_secs(options.size.pick(60, 100, 150));
    ReconfigurationSetting {
        study: Study { settle, members: (2, 13), ..Study::new(options.seed, peers, None) },
        wanted: options.size.pick(40, 500, 3_000),
        time_max: Duration::from_secs(options.size.pick(80, 900, 7_200)),
    }
}

/// The times of one change in one network.
struct TablePoint {
    column: &'static PaperColumn,
    change: Change,
    paper: (f64, f64),
    /// In milliseconds.
    times: Vec<f64>,
}

impl TablePoint {
    fn mean(&self) -> f64 {
        self.times.iter().sum::<f64>() / self.times.len().max(1) as f64
    }

    fn median(&self) -> f64 {
        let mut all = self.times.clone();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(0.0)
    }

    fn deviation(&self) -> f64 {
        let mean = self.mean();
        let squares: f64 = self.times.iter().map(|time| (time - mean) * (time - mean)).sum();
        (squares / self.times.len().max(1) as f64).sqrt()
    }

    /// Returns the ratio of our mean and the paper's.
    fn ratio(&self) -> f64 {
        self.mean() / self.paper.0
    }
}

fn experiment(
    setting: &ReconfigurationSetting,
    options: &ExperimentOptions,
    say: Say<'_>,
) -> Result<ExperimentOutcome, String> {
    let runs = in_parallel(options.jobs, &COLUMNS.each_ref(), |column| {
        let study = Study { places: column.places, ..setting.study.clone() };
        let setting = ReconfigurationSetting { study, ..setting.clone() };
        run(&setting, "random", column.lead, &|line| say(&format!("{}: {line}", column.name)))
    });
    let mut points = Vec::new();
    for (column, changes) in COLUMNS.iter().zip(runs) {
        let changes = changes?;
        for (change, paper) in Change::ALL.into_iter().zip(column.paper) {
            let of = changes.iter().filter(|(seen, _)| *seen == change);
            let times = of.map(|(_, took)| took.as_secs_f64() * 1e3).collect();
            points.push(TablePoint { column, change, paper, times });
        }
    }
    let mut table = Table::new(&["network", "change", "count", "p50_ms", "mean_ms", "sd_ms", "paper"]);
    for point in &points {
        let head = [point.column.name.to_owned(), point.change.name().to_owned(), point.times.len().to_string()];
        let times = [point.median(), point.mean(), point.deviation()].map(|ms| format!("{ms:.2}"));
        let paper = format!("{} ± {} ms", point.paper.0, point.paper.1);
        table.push(head.into_iter().chain(times).chain([paper]).collect());
    }
    let mut parameters = setting.parameters();
    parameters.push(("round trips between sites", "82, 79 and 38 ms".into()));
    Ok(ExperimentOutcome {
        parameters,
        models: vec!["messages take 0.2 to 0.3 ms one way at one site, and nothing else takes time".into()],
        table,
        curves: None,
        charts: vec![chart(&points)],
        verdict: verdict(&points),
    })
}

fn chart(points: &[TablePoint]) -> Chart {
    let line = |change: Change, name: String, dashed: bool, of: fn(&TablePoint) -> f64| {
        let sites = points.iter().filter(|point| point.change == change && point.column.places == Places::Sites);
        Line { name, points: sites.enumerate().map(|(place, point)| (place as f64 + 1.0, of(point))).collect(), dashed }
    };
    let both = |change: Change| {
        [
            line(change, change.name().into(), false, TablePoint::mean),
            line(change, format!("{}, paper", change.name()), true, |point| point.paper.0),
        ]
    };
    Chart {
        title: "three sites: any leader (1), best leader (2)".into(),
        across: "policy of leaders".into(),
        up: "milliseconds".into(),
        dots: true,
        lines: Change::ALL.into_iter().flat_map(both).collect(),
        ..Chart::default()
    }
}

/// Compares each mean with the paper's, and what the policy of leaders gains.
fn verdict(points: &[TablePoint]) -> Verdict {
    let of = |column: usize| points.iter().filter(move |point| point.column.name == COLUMNS[column].name);
    let slower = points.iter().filter(|point| point.ratio() > 1.0 + CLOSE).count();
    let faster = points.iter().filter(|point| point.ratio() < 1.0 - CLOSE).count();
    let is_gained = of(1).zip(of(2)).all(|(any, best)| best.mean() < any.mean());
    let comparison = match (slower, faster, is_gained) {
        (0, 0, true) => Comparison::Reproduced,
        (0, _, true) => Comparison::Better,
        _ => Comparison::Worse,
    };
    let means = |column: usize| {
        let of = of(column).map(|point| format!("{:.1}", point.mean()));
        of.collect::<Vec<String>>().join(", ")
    };
    let papers = |column: usize| COLUMNS[column].paper.map(|(mean, _)| mean.to_string()).join(", ");
    let all: Vec<String> = (0..3)
        .map(|column| format!("{} {} ms (paper: {})", COLUMNS[column].name, means(column), papers(column)))
        .collect();
    let why = format!(
        "failure, join, split and merge take on average: {}; of the twelve means {faster} are lower and {slower} higher than the paper's, \
         and only messages take time here; groups split here from seven members on and merge up to thirteen together",
        all.join("; ")
    );
    Verdict::new(comparison, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::options::Scale;

    /// Few peers: each change is timed in each network, and three sites take longer than one.
    #[test]
    fn all_changes_have_a_mean() {
        let options = ExperimentOptions { size: Scale::Quick, seed: 1, jobs: 2, out: None };
        let mut setting = setting(&options);
        (setting.wanted, setting.time_max) = (3, Duration::from_secs(100));
        setting.study = Study { peers: 16, settle: Duration::from_secs(25), members: (2, 6), ..setting.study };
        let outcome = experiment(&setting, &options, &|_| {}).expect("no invariant is broken");
        let value = |row, column| outcome.table.value(row, column).and_then(|value| value.parse::<f64>().ok()).unwrap();
        assert_eq!(outcome.table.rows.len(), 12);
        for row in 0..4 {
            assert!(value(row, "count") >= 1.0, "{}", outcome.table);
            assert!(value(row, "mean_ms") < value(row + 4, "mean_ms"), "{}", outcome.table);
        }
    }
}
