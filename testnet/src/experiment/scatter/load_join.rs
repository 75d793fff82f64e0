//! Balance of load between groups, by the policy with which peers join (Harmony §8.3, Fig. 9).

use std::time::Duration;

use node::{Node, Policies};

use super::writes::{AskedMachine, Writes, groups};
use crate::experiment::options::{ExperimentOptions, Say};
use crate::experiment::registry::Experiment;
use crate::experiment::table::{Comparison, ExperimentOutcome, Table, Verdict};
use crate::parallel::in_parallel;
use crate::picture::{Chart, Line};
use crate::sim::World;
use crate::study::{Places, Study};

/// Figure 9.
pub const EXPERIMENT: Experiment = Experiment {
    name: "load-join",
    paper: "Harmony Fig. 9",
    about: "Writes of each group divided by the mean, where peers joined at random and by load",
    run: |options, say| experiment(&LoadJoinSetting::new(options), options, say),
};

const POLICIES: [&str; 2] = ["random", "load"];
/// Number of keys that are written.
const KEYS: u64 = 1_000_000;
/// Interval at which single peers start, while clients write.
const START_EVERY: Duration = Duration::from_millis(1_000);
/// Time from the last start until writes are counted.
const CALM: Duration = Duration::from_secs(60);

/// The parameters of the experiment.
struct LoadJoinSetting {
    study: Study,
    rate: f64,
    time: Duration,
}

impl LoadJoinSetting {
    fn new(options: &ExperimentOptions) -> LoadJoinSetting {
        let peers = options.size.pick(80, 150, 150);
        let study = Study { places: Places::Cluster, members: (5, 11), ..Study::new(options.seed, peers, None) };
        let time = Duration::from_secs(options.size.pick(20, 60, 600));
        LoadJoinSetting { study, rate: options.size.pick(100.0, 200.0, 1_000.0), time }
    }
}

/// The load of the groups under one policy, each divided by the mean, the smallest first.
struct LoadJoinPoint {
    policy: &'static str,
    loads: Vec<f64>,
    writes: usize,
}

impl LoadJoinPoint {
    /// Returns the deviation from the mean, which is 1.
    fn deviation(&self) -> f64 {
        let squares: f64 = self.loads.iter().map(|load| (load - 1.0) * (load - 1.0)).sum();
        (squares / self.loads.len().max(1) as f64).sqrt()
    }

    fn most(&self) -> f64 {
        self.loads.last().copied().unwrap_or(0.0)
    }
}

fn experiment(
    setting: &LoadJoinSetting,
    options: &ExperimentOptions,
    say: Say<'_>,
) -> Result<ExperimentOutcome, String> {
    let points = in_parallel(options.jobs, &POLICIES, |policy| measure(setting, policy, say));
    let points: Vec<LoadJoinPoint> = points.into_iter().collect::<Result<_, String>>()?;
    let mut table = Table::new(&["join", "groups", "writes", "least", "median", "most", "deviation", "paper"]);
    let mut curves = Table::new(&["join", "group", "load"]);
    for point in &points {
        let of = |place: usize| point.loads.get(place).copied().unwrap_or(0.0);
        let mut row = vec![point.policy.to_owned(), point.loads.len().to_string(), point.writes.to_string()];
        row.extend(
            [of(0), of(point.loads.len() / 2), point.most(), point.deviation()].map(|load| format!("{load:.2}")),
        );
        row.push(if point.policy == "load" { "far more even" } else { "" }.into());
        table.push(row);
        for (group, load) in point.loads.iter().enumerate() {
            curves.push(vec![point.policy.to_owned(), group.to_string(), format!("{load:.3}")]);
        }
    }
    Ok(ExperimentOutcome {
        parameters: vec![
            ("peers", setting.study.peers.to_string()),
            ("samples of a newcomer", "4 (paper: 3)".into()),
            ("starts", format!("one every {START_EVERY:?}, while clients write")),
            ("writes a second", setting.rate.to_string()),
            ("repartition", "off".into()),
        ],
        models: vec!["one cluster: 0.2 to 0.3 ms one way, and nothing else takes time".into()],
        table,
        curves: Some(curves),
        charts: vec![chart(&points)],
        verdict: verdict(&points),
    })
}

fn measure(setting: &LoadJoinSetting, policy: &'static str, say: Say<'_>) -> Result<LoadJoinPoint, String> {
    let mut policies = Policies::default();
    for (decision, name) in [("join", policy), ("repartition", "off")] {
        policies.choose(decision, name).map_err(|why| why.to_string())?;
    }
    let mut scenario = Study { policies, ..setting.study.clone() }.scenario();
    scenario.start_within = START_EVERY * setting.study.peers as u32;
    let starts = scenario.start_within;
    let mut world = World::<Node>::new(scenario);
    world.run_for(Duration::from_secs(5));
    let mut writes = Writes::new(&world, setting.rate, KEYS, setting.study.seed);
    writes.run(&mut world, starts + CALM, AskedMachine::Any)?;
    say(&format!("{policy}: {} groups", groups(&world).len()));
    writes.take(&world);
    writes.run(&mut world, setting.time, AskedMachine::Any)?;
    let (points, _) = writes.take(&world);
    let counts: Vec<usize> =
        groups(&world).iter().map(|(range, _)| points.iter().filter(|point| range.contains(**point)).count()).collect();
    let mean = counts.iter().sum::<usize>() as f64 / counts.len().max(1) as f64;
    let mut loads: Vec<f64> = counts.iter().map(|count| *count as f64 / mean.max(1e-9)).collect();
    loads.sort_by(f64::total_cmp);
    Ok(LoadJoinPoint { policy, loads, writes: points.len() })
}

fn chart(points: &[LoadJoinPoint]) -> Chart {
    let line = |point: &LoadJoinPoint| {
        let groups = point.loads.len().max(1) as f64;
        let place = |(group, load): (usize, &f64)| (100.0 * (group as f64 + 0.5) / groups, *load);
        Line {
            name: format!("{} join", point.policy),
            points: point.loads.iter().enumerate().map(place).collect(),
            dashed: false,
        }
    };
    Chart {
        title: "load of groups".into(),
        across: "groups in order of load, percent".into(),
        up: "writes ÷ mean".into(),
        dots: true,
        lines: points.iter().map(line).collect(),
        ..Chart::default()
    }
}

fn verdict(points: &[LoadJoinPoint]) -> Verdict {
    let [random, load] = [points.first(), points.last()].map(|point| point.map_or(0.0, LoadJoinPoint::deviation));
    let [most, most_load] = [points.first(), points.last()].map(|point| point.map_or(0.0, LoadJoinPoint::most));
    let comparison = if load < 0.8 * random { Comparison::Reproduced } else { Comparison::Worse };
    let why = format!(
        "the deviation of normalised load is {random:.2} with random joins and {load:.2} with joins by load, and the most loaded group has \
         {most:.1} and {most_load:.1} times the mean (paper: far more even by load, without numbers)"
    );
    Verdict::new(comparison, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::options::Scale;

    #[test]
    fn loads_of_all_groups_add_up() {
        let options = ExperimentOptions { size: Scale::Quick, seed: 1, jobs: 2, out: None };
        let mut setting = LoadJoinSetting::new(&options);
        setting.study = Study { peers: 10, members: (2, 4), ..setting.study };
        (setting.rate, setting.time) = (20.0, Duration::from_secs(10));
        let outcome = experiment(&setting, &options, &|_| {}).expect("no invariant is broken");
        let value = |row, column| outcome.table.value(row, column).and_then(|value| value.parse::<f64>().ok()).unwrap();
        for row in 0..2 {
            assert!(value(row, "groups") >= 2.0 && value(row, "writes") > 100.0, "{}", outcome.table);
            assert!(value(row, "least") <= 1.0 && value(row, "most") >= 1.0, "{}", outcome.table);
        }
    }
}
