//! Time for which a primary waits for a majority, by the policy with which peers join (Scatter §7.1.1, Fig. 10).

use std::time::Duration;

use node::{Node, Policies};

use super::writes::{AskedMachine, Writes, groups};
use super::{PLANET, ms};
use crate::churn::quantiles;
use crate::experiment::options::{ExperimentOptions, Say};
use crate::experiment::registry::Experiment;
use crate::experiment::table::{Comparison, ExperimentOutcome, Table, Verdict};
use crate::parallel::in_parallel;
use crate::picture::{Chart, Line};
use crate::sim::World;
use crate::study::{Study, mean};

/// Figure 10.
pub const EXPERIMENT: Experiment = Experiment {
    name: "join-policy",
    paper: "Scatter Fig. 10, Harmony Fig. 5",
    about: "How long writes of random keys take at their primaries, where peers joined at random and by latency",
    run: |options, say| experiment(&JoinPolicySetting::new(options), options, say),
};

/// The policies, and the paper's medians, in milliseconds.
const POLICIES: [(&str, u64); 2] = [("random", 124), ("latency", 68)];
/// Time from a death until the new peer starts, and between two deaths.
const REPLACED_AFTER: Duration = Duration::from_millis(200);
const REPLACE_EVERY: Duration = Duration::from_secs(1);
/// Time without events before writes are timed.
const CALM: Duration = Duration::from_secs(60);
/// Number of keys that are written.
const KEYS: u64 = 1_000_000;
/// Number of points of a curve.
const POINTS: u32 = 50;

/// The parameters of the experiment.
struct JoinPolicySetting {
    study: Study,
    /// Number of times that each machine's peer is replaced by one that chooses among the groups of a whole network.
    rounds: usize,
    /// Number of writes in all, and a second.
    writes: f64,
    rate: f64,
}

impl JoinPolicySetting {
    fn new(options: &ExperimentOptions) -> JoinPolicySetting {
        let peers = options.size.pick(90, 150, 840);
        let settle = Duration::from_secs(options.size.pick(80, 120, 200));
        JoinPolicySetting {
            study: Study { settle, members: (6, 13), ..Study::new(options.seed, peers, None) },
            rounds: 1,
            writes: options.size.pick(10_000.0, 100_000.0, 1_000_000.0),
            rate: options.size.pick(500.0, 2_000.0, 5_000.0),
        }
    }
}

/// The writes under one policy.
struct JoinPolicyPoint {
    policy: &'static str,
    paper: u64,
    groups: usize,
    members: f64,
    took: Vec<Duration>,
}

fn experiment(
    setting: &JoinPolicySetting,
    options: &ExperimentOptions,
    say: Say<'_>,
) -> Result<ExperimentOutcome, String> {
    let points = in_parallel(options.jobs, &POLICIES, |(policy, paper)| measure(setting, policy, *paper, say));
    let points: Vec<JoinPolicyPoint> = points.into_iter().collect::<Result<_, String>>()?;
    let mut table =
        Table::new(&["join", "groups", "members_mean", "writes", "p10_ms", "p50_ms", "p90_ms", "mean_ms", "paper"]);
    let mut curves = Table::new(&["join", "share", "ms"]);
    for point in &points {
        let times = quantiles(&point.took, [0.1, 0.5, 0.9]).map(ms);
        let mut row = vec![point.policy.to_owned(), point.groups.to_string(), format!("{:.1}", point.members)];
        row.push(point.took.len().to_string());
        row.extend(times);
        row.extend([ms(mean(&point.took)), format!("p50 {} ms", point.paper)]);
        table.push(row);
        for (share, took) in curve(&point.took) {
            curves.push(vec![point.policy.to_owned(), format!("{share:.2}"), ms(took)]);
        }
    }
    let study = &setting.study;
    Ok(ExperimentOutcome {
        parameters: vec![
            ("peers", study.peers.to_string()),
            ("samples of a newcomer", "4 (paper: 3)".into()),
            ("joins", format!("each peer is replaced {} times before writes are timed", setting.rounds)),
            ("keys", KEYS.to_string()),
            ("writes a second", setting.rate.to_string()),
        ],
        models: vec![PLANET.into()],
        table,
        curves: Some(curves),
        charts: vec![chart(&points)],
        verdict: verdict(&points),
    })
}

fn measure(
    setting: &JoinPolicySetting,
    policy: &'static str,
    paper: u64,
    say: Say<'_>,
) -> Result<JoinPolicyPoint, String> {
    let mut policies = Policies::default();
    policies.choose("join", policy).map_err(|why| why.to_string())?;
    let mut world = World::<Node>::new(Study { policies, ..setting.study.clone() }.scenario());
    world.run_for(setting.study.settle);
    for _ in 0..setting.rounds {
        for host in 0..world.hosts() {
            world.replace(host, REPLACED_AFTER);
            world.run_for(REPLACE_EVERY);
        }
    }
    world.run_for(CALM);
    let all = groups(&world);
    say(&format!("{policy}: {} groups at {:.0} s", all.len(), world.now().since(overlay::time::Time(0)).as_secs_f64()));
    let mut writes = Writes::new(&world, setting.rate, KEYS, setting.study.seed);
    writes.run(&mut world, Duration::from_secs_f64(setting.writes / setting.rate), AskedMachine::Primary)?;
    world.run_for(Duration::from_secs(4));
    let (_, took) = writes.take(&world);
    let members = all.iter().map(|(_, members)| *members).sum::<usize>() as f64 / all.len().max(1) as f64;
    Ok(JoinPolicyPoint { policy, paper, groups: all.len(), members, took })
}

fn curve(took: &[Duration]) -> Vec<(f64, Duration)> {
    let share = |point: u32| f64::from(point) / f64::from(POINTS);
    (0..=POINTS).map(|point| (share(point), quantiles(took, [share(point)])[0])).collect()
}

fn chart(points: &[JoinPolicyPoint]) -> Chart {
    let line = |point: &JoinPolicyPoint| Line {
        name: format!("{} join", point.policy),
        points: curve(&point.took)
            .into_iter()
            .filter(|(share, _)| *share < 1.0)
            .map(|(share, took)| (took.as_secs_f64() * 1e3, share))
            .collect(),
        dashed: false,
    };
    Chart {
        title: "writes at their primaries".into(),
        across: "milliseconds".into(),
        up: "share of writes".into(),
        lines: points.iter().map(line).collect(),
        ..Chart::default()
    }
}

fn verdict(points: &[JoinPolicyPoint]) -> Verdict {
    let median = |point: &JoinPolicyPoint| quantiles(&point.took, [0.5])[0].as_secs_f64() * 1e3;
    let (Some(random), Some(latency)) = (points.first(), points.last()) else {
        return Verdict::new(Comparison::NotComparable, "nothing was measured".into());
    };
    let (before, after) = (median(random), median(latency));
    let gain = |before: f64, after: f64| 100.0 * (before - after) / before.max(1e-9);
    let papers = gain(random.paper as f64, latency.paper as f64);
    let comparison = match (after <= latency.paper as f64, after < before) {
        (true, true) => Comparison::Reproduced,
        _ => Comparison::Worse,
    };
    let why = format!(
        "the median write falls from {before:.0} to {after:.0} ms, by {:.0} % (paper: from {} to {} ms, by {papers:.0} %)",
        gain(before, after),
        random.paper,
        latency.paper
    );
    Verdict::new(comparison, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::options::Scale;

    /// A few groups: writes are timed at their primaries under both policies.
    #[test]
    fn writes_are_timed_at_primaries() {
        let options = ExperimentOptions { size: Scale::Quick, seed: 1, jobs: 2, out: None };
        let mut setting = JoinPolicySetting::new(&options);
        setting.study = Study { peers: 12, settle: Duration::from_secs(40), members: (2, 5), ..setting.study };
        (setting.rounds, setting.writes, setting.rate) = (0, 200.0, 50.0);
        let outcome = experiment(&setting, &options, &|_| {}).expect("no invariant is broken");
        let value = |row, column| outcome.table.value(row, column).and_then(|value| value.parse::<f64>().ok()).unwrap();
        for row in 0..2 {
            assert!(value(row, "writes") > 100.0 && value(row, "groups") >= 2.0, "{}", outcome.table);
            assert!((1.0..3_000.0).contains(&value(row, "p50_ms")), "{}", outcome.table);
        }
        assert_eq!(outcome.curves.map(|curves| curves.rows.len()), Some(2 * (POINTS as usize + 1)));
    }
}
