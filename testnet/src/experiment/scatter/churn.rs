//! Chirp under churn: latency, availability and consistency of fetches by the lifetimes of peers (Scatter §7.2.2, §7.2.3, Fig. 13
//! and 14).

use std::time::Duration;

use super::{BASELINE, BOTH, MeasuredSystem, PLANET, chart_of_both, ms};
use crate::churn::{Lives, quantiles};
use crate::experiment::options::{ExperimentOptions, Say};
use crate::experiment::registry::Experiment;
use crate::experiment::table::{Comparison, ExperimentOutcome, Table, Verdict};
use crate::parallel::in_parallel;
use crate::picture::Chart;
use crate::study::{Demand, Figures, Study, losses, mean, safe_sizes};

/// Figure 13.
pub const POISSON: Experiment = Experiment {
    name: "churn-poisson",
    paper: "Scatter Fig. 13",
    about: "Chirp while peers live for exponential times: fetches that take long, fail or are inconsistent, and lost groups",
    run: |options, say| experiment(&ChurnSetting::poisson(options), options, say),
};
/// Figure 14.
pub const PARETO: Experiment = Experiment {
    name: "churn-pareto",
    paper: "Scatter Fig. 14",
    about: "The same while peers live for Pareto times (shape 1.1), with groups that are sized and joined by lifetimes",
    run: |options, say| experiment(&ChurnSetting::pareto(options), options, say),
};

/// The mean lives of the paper's figures, in seconds.
const MEANS_S: [u64; 6] = [100, 180, 300, 500, 700, 1_000];
/// Mean lives of a quick run, in seconds.
const MEANS_QUICK_S: [u64; 3] = [100, 180, 500];
/// The paper's mean fetch at a mean life of 180 s.
const PAPER_AT: u64 = 180;
const PAPER_MEAN: Duration = Duration::from_millis(1_300);
/// Least and greatest number of members of a group of peers with exponential lives: nine on average at a mean life of 100 s.
const MEMBERS: (u32, u32) = (6, 11);

/// The parameters of the experiment.
struct ChurnSetting {
    peers: usize,
    means_s: Vec<u64>,
    lives: fn(Duration) -> Lives,
    /// Study of one mean life, without these.
    study: Study,
    /// Number of mean lives for which peers have died before a run begins, in a model without a network.
    aged: u32,
}

impl ChurnSetting {
    fn of(options: &ExperimentOptions, lives: fn(Duration) -> Lives) -> ChurnSetting {
        let peers = options.size.pick(60, 100, 840);
        let seconds = |quick, default, full| Duration::from_secs(options.size.pick(quick, default, full));
        let study = Study {
            settle: seconds(80, 120, 200),
            warm_up: seconds(20, 60, 60),
            time: seconds(100, 240, 3_600),
            rate: options.size.pick(20.0, 50.0, 280.0),
            keys: options.size.pick(2_000, 10_000, 100_000),
            is_chirp: true,
            demand: Demand::Fetched { fetches: 1 },
            members: MEMBERS,
            ..Study::new(options.seed, peers, None)
        };
        let means_s = options.size.pick(MEANS_QUICK_S.to_vec(), MEANS_S.to_vec(), MEANS_S.to_vec());
        ChurnSetting { peers, means_s, lives, study, aged: 0 }
    }

    fn poisson(options: &ExperimentOptions) -> ChurnSetting {
        ChurnSetting::of(options, Lives::Exponential)
    }

    fn pareto(options: &ExperimentOptions) -> ChurnSetting {
        ChurnSetting { aged: Lives::WARM, ..ChurnSetting::of(options, Lives::pareto) }
    }

    /// Returns the study of a mean life.
    fn study(&self, mean_s: u64) -> Study {
        let mean = Duration::from_secs(mean_s);
        let lives = (self.lives)(mean);
        let members = match lives {
            Lives::Exponential(_) => self.study.members,
            Lives::Pareto { .. } => safe_sizes(lives, self.study.exclude_after, self.study.seed),
        };
        Study { lives: Some(lives), aged: mean * self.aged, members, ..self.study.clone() }
    }
}

/// The figures of one system at one mean life.
struct ChurnPoint {
    system: MeasuredSystem,
    mean_s: u64,
    figures: Figures,
}

fn experiment(setting: &ChurnSetting, options: &ExperimentOptions, say: Say<'_>) -> Result<ExperimentOutcome, String> {
    let points = points(setting, options.jobs, say)?;
    let mut table = Table::new(&COLUMNS);
    points.iter().for_each(|point| table.push(point.cells()));
    let study = &setting.study;
    let mut parameters = vec![
        ("peers", setting.peers.to_string()),
        ("measured", format!("{} s", study.time.as_secs())),
        ("updates", format!("{} a second, each followed by a fetch", study.rate)),
        ("users", study.keys.to_string()),
        ("policies", format!("{:?}", study.policies)),
    ];
    if setting.aged > 0 {
        parameters.push(("lives before the run", format!("{} mean lives, in a model without a network", setting.aged)));
    }
    Ok(ExperimentOutcome {
        parameters,
        models: vec![PLANET.into(), BASELINE.into(), CHIRP.into()],
        table,
        curves: None,
        charts: charts(&points),
        verdict: verdict(&points),
    })
}

/// The sentence about the model of Chirp's load.
pub(super) const CHIRP: &str = "followers are synthetic (exponent 1.28), posting rates rise with their root, and a list is known by \
                                its last entry";

fn points(setting: &ChurnSetting, jobs: usize, say: Say<'_>) -> Result<Vec<ChurnPoint>, String> {
    let all: Vec<(MeasuredSystem, u64)> =
        BOTH.into_iter().flat_map(|system| setting.means_s.iter().map(move |mean_s| (system, *mean_s))).collect();
    let one = |(system, mean_s): &(MeasuredSystem, u64)| {
        let figures = system.run(&setting.study(*mean_s), say)?;
        Ok(ChurnPoint { system: *system, mean_s: *mean_s, figures })
    };
    in_parallel(jobs, &all, one).into_iter().collect()
}

const COLUMNS: [&str; 16] = [
    "system",
    "mean_life_s",
    "deaths_per_s",
    "fetches",
    "fetch_mean_ms",
    "fetch_p99_ms",
    "failed_percent",
    "inconsistent",
    "inconsistent_percent",
    "groups",
    "members_mean",
    "repair_s",
    "groups_lost",
    "lost_expected",
    "lost_bound_95",
    "paper",
];

impl ChurnPoint {
    fn cells(&self) -> Vec<String> {
        let (figures, load) = (&self.figures, &self.figures.load);
        let [p99] = quantiles(&load.fetch_times, [0.99]);
        let mut cells = vec![self.system.name().to_owned(), self.mean_s.to_string()];
        cells.push(format!("{:.3}", figures.deaths_per_s()));
        cells.extend([load.fetches.to_string(), ms(mean(&load.fetch_times)), ms(p99)]);
        cells.push(format!("{:.3}", load.failed_fetches_percent()));
        cells.extend([load.inconsistent.to_string(), format!("{:.3}", load.inconsistent_percent())]);
        cells.extend(self.cells_of_groups());
        cells.push(self.paper());
        cells
    }

    /// The DHT has no groups.
    fn cells_of_groups(&self) -> Vec<String> {
        let figures = &self.figures;
        if self.system == MeasuredSystem::Dht {
            return vec![String::new(); 6];
        }
        let losses = losses(figures);
        vec![
            format!("{:.1}", figures.groups),
            format!("{:.1}", figures.members),
            format!("{:.2}", figures.repair_s()),
            figures.lost.to_string(),
            format!("{:.4}", losses.expected),
            losses.bound.to_string(),
        ]
    }

    fn paper(&self) -> String {
        match self.system {
            MeasuredSystem::Scatter if self.mean_s == PAPER_AT => "1300 ms, 0 inconsistent".into(),
            MeasuredSystem::Scatter => "0 inconsistent".into(),
            MeasuredSystem::Dht => "over 5 % inconsistent, slightly faster".into(),
        }
    }
}

fn charts(points: &[ChurnPoint]) -> Vec<Chart> {
    let chart = |title: &str, up: &str, of: fn(&Figures) -> f64| {
        chart_of_both(title, "mean life, seconds", up, |system| {
            let of_system = points.iter().filter(|point| point.system == system);
            of_system.map(|point| (point.mean_s as f64, of(&point.figures))).collect()
        })
    };
    vec![
        chart("(a) latency", "mean fetch, milliseconds", |figures| mean(&figures.load.fetch_times).as_secs_f64() * 1e3),
        chart("(b) availability", "failed fetches, percent", |figures| figures.load.failed_fetches_percent()),
        chart("(c) consistency", "inconsistent fetches, percent", |figures| figures.load.inconsistent_percent()),
    ]
}

/// Compares: no inconsistent fetch, no more lost groups than by the formula, and a faster fetch than the paper's at 180 s.
fn verdict(points: &[ChurnPoint]) -> Verdict {
    let of = |system: MeasuredSystem| points.iter().filter(move |point| point.system == system);
    let fetches: u64 = of(MeasuredSystem::Scatter).map(|point| point.figures.load.fetches).sum();
    let inconsistent: usize = of(MeasuredSystem::Scatter).map(|point| point.figures.load.wrong.len()).sum();
    let (lost, bound) = of(MeasuredSystem::Scatter)
        .fold((0, 0), |(lost, bound), point| (lost + point.figures.lost, bound + losses(&point.figures).bound));
    let fetch = of(MeasuredSystem::Scatter).find(|point| point.mean_s == PAPER_AT);
    let fetch = fetch.map_or(Duration::ZERO, |point| mean(&point.figures.load.fetch_times));
    let failed: f64 =
        of(MeasuredSystem::Scatter).map(|point| point.figures.load.failed_fetches_percent()).fold(0.0, f64::max);
    let worst = of(MeasuredSystem::Dht).map(|point| point.figures.load.inconsistent_percent()).fold(0.0, f64::max);
    let comparison = match (inconsistent == 0 && lost as u64 <= bound, fetch < PAPER_MEAN) {
        (true, true) => Comparison::Better,
        (true, false) => Comparison::Reproduced,
        (false, _) => Comparison::Worse,
    };
    let why = format!(
        "{inconsistent} of {fetches} fetches are inconsistent (paper: none), {lost} groups are lost, at most {failed:.2} % of fetches fail, \
         and a fetch takes {} ms at a mean life of {PAPER_AT} s (paper: {} ms); of the DHT model's fetches up to {worst:.2} % are inconsistent \
         (paper: over 5 %)",
        ms(fetch),
        ms(PAPER_MEAN)
    );
    Verdict::new(comparison, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::options::Scale;

    /// A few peers in a short run: each system at each mean life has its row, and ours is consistent.
    #[test]
    fn both_systems_meet_the_same_churn() {
        let options = ExperimentOptions { size: Scale::Quick, seed: 1, jobs: 2, out: None };
        let mut setting = ChurnSetting::pareto(&options);
        (setting.peers, setting.means_s) = (12, vec![100]);
        setting.study = Study {
            peers: 12,
            places: crate::study::Places::Cluster,
            settle: Duration::from_secs(20),
            warm_up: Duration::from_secs(2),
            time: Duration::from_secs(15),
            keys: 50,
            ..setting.study
        };
        let outcome = experiment(&setting, &options, &|_| {}).expect("no invariant is broken");
        assert_eq!(outcome.table.rows.len(), 2);
        assert_eq!(
            (outcome.table.value(0, "system"), outcome.table.value(1, "system")),
            (Some("Scatter"), Some("DHT model"))
        );
        assert_eq!(
            (outcome.table.value(0, "inconsistent"), outcome.table.value(0, "groups_lost")),
            (Some("0"), Some("0"))
        );
        assert_eq!(outcome.table.value(0, "deaths_per_s"), outcome.table.value(1, "deaths_per_s"), "the same lives");
        assert_ne!(outcome.table.value(0, "deaths_per_s"), Some("0.000"));
        assert_eq!(outcome.charts.len(), 3);
    }
}
