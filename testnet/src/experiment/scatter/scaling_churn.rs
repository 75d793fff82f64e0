//! Throughput by the number of peers under churn, against one group of five (Harmony §8.3, Fig. 8).

use std::time::Duration;

use node::Node;
use overlay::time::Time;

use super::closed_loop::{ClientPlace, ClosedLoop, per_second};
use super::writes::groups;
use crate::churn::Lives;
use crate::experiment::options::{ExperimentOptions, Say};
use crate::experiment::registry::Experiment;
use crate::experiment::table::{Comparison, ExperimentOutcome, Table, Verdict};
use crate::parallel::in_parallel;
use crate::picture::{Chart, Line};
use crate::rng::Rng;
use crate::sim::World;
use crate::study::{Places, Study};

/// Figure 8.
pub const EXPERIMENT: Experiment = Experiment {
    name: "scaling-churn",
    paper: "Harmony Fig. 8",
    about: "Writes a second by the number of peers, whose median life is an hour, and those of a single group of five",
    run: |options, say| experiment(&ScalingChurnSetting::new(options), options, say),
};

/// The median life of a peer.
const MEDIAN: Duration = Duration::from_secs(3_600);
/// Number of keys, all equally popular.
const KEYS: u64 = 100_000;
/// Writes under way for each peer.
const IN_FLIGHT: usize = 6;
/// Peers of the single group.
const SINGLE: usize = 5;
/// Limits of a group's size: about five members.
const MEMBERS: (u32, u32) = (4, 7);
/// Interval at which clients look for answers, and from a death until the new peer starts.
const POLL: Duration = Duration::from_millis(2);
const REPLACED_AFTER: Duration = Duration::from_millis(200);
/// Part of the throughput for each peer of the smallest network that a linear one keeps.
const LINEAR: f64 = 0.8;

/// The parameters of the experiment.
struct ScalingChurnSetting {
    peers: Vec<usize>,
    /// Time that a peer takes for each input.
    service: Duration,
    settle: Duration,
    measured: Duration,
    seed: u64,
}

impl ScalingChurnSetting {
    fn new(options: &ExperimentOptions) -> ScalingChurnSetting {
        let seconds = |quick, default, full| Duration::from_secs(options.size.pick(quick, default, full));
        ScalingChurnSetting {
            peers: options.size.pick(
                vec![5, 20, 40],
                vec![5, 10, 20, 40, 80, 120],
                vec![5, 10, 20, 40, 60, 80, 100, 120],
            ),
            service: Duration::from_micros(options.size.pick(4_000, 2_000, 1_000)),
            settle: seconds(80, 120, 200),
            measured: seconds(30, 100, 600),
            seed: options.seed,
        }
    }
}

/// The throughput of one network.
struct ScalingChurnPoint {
    peers: usize,
    groups: usize,
    deaths: u64,
    mean: f64,
    deviation: f64,
    failed: u64,
}

fn experiment(
    setting: &ScalingChurnSetting,
    options: &ExperimentOptions,
    say: Say<'_>,
) -> Result<ExperimentOutcome, String> {
    let all: Vec<usize> = setting.peers.iter().rev().copied().collect();
    let points = in_parallel(options.jobs, &all, |peers| measure(setting, *peers, say));
    let mut points: Vec<ScalingChurnPoint> = points.into_iter().collect::<Result<_, String>>()?;
    points.sort_by_key(|point| point.peers);
    let single = points.first().map_or(0.0, |point| point.mean);
    let mut table = Table::new(&[
        "peers",
        "groups",
        "deaths",
        "writes_per_s",
        "sd",
        "per_peer",
        "times_single_group",
        "failed",
        "paper",
    ]);
    for point in &points {
        let mut row: Vec<String> = [point.peers, point.groups].map(|count| count.to_string()).into();
        row.push(point.deaths.to_string());
        row.extend([point.mean, point.deviation, point.mean / point.peers as f64].map(|value| format!("{value:.1}")));
        row.push(format!("{:.1}", point.mean / single.max(1e-9)));
        row.push(point.failed.to_string());
        row.push(if point.peers == SINGLE { "ZooKeeper's five: flat" } else { "linear" }.into());
        table.push(row);
    }
    Ok(ExperimentOutcome {
        parameters: vec![
            ("median life", format!("{} s", MEDIAN.as_secs())),
            ("members of a group", format!("{} to {}", MEMBERS.0, MEMBERS.1)),
            ("keys", format!("{KEYS}, uniform")),
            ("writes under way", format!("{IN_FLIGHT} for each peer, at the primaries")),
            ("measured", format!("{:?}", setting.measured)),
        ],
        models: vec![format!(
            "a peer takes {:?} for each message that it gets, and messages 0.2 to 0.3 ms one way; the single group is one of ours: no \
             ZooKeeper runs",
            setting.service
        )],
        table,
        curves: None,
        charts: vec![chart(&points, single)],
        verdict: verdict(&points),
    })
}

fn measure(setting: &ScalingChurnSetting, peers: usize, say: Say<'_>) -> Result<ScalingChurnPoint, String> {
    let study = Study { places: Places::Cluster, members: MEMBERS, ..Study::new(setting.seed, peers, None) };
    let mut world = World::<Node>::new(study.scenario());
    world.run_for(setting.settle);
    // A network whose groups have their sizes; how fast it gets there is no part of this.
    world.scenario.service_time = setting.service;
    let mut clients = ClosedLoop::new(IN_FLIGHT * peers, ClientPlace::Primary, POLL, setting.seed);
    let mut draw = |rng: &mut Rng, _: usize| rng.below(KEYS);
    // Ranges are divided among primaries by load: under load, for a while.
    clients.run(&mut world, setting.settle / 6, &mut draw)?;
    clients.take();
    let lives = Lives::Exponential(MEDIAN.div_f64(std::f64::consts::LN_2));
    let mut rng = Rng::new(setting.seed, "lives");
    let begin = world.now();
    let mut ends: Vec<Time> = (0..peers).map(|_| begin + lives.draw(&mut rng)).collect();
    let (end, mut deaths) = (begin + setting.measured, 0);
    while world.now() < end {
        let next = ends.iter().copied().min().unwrap_or(Time::NEVER).min(end);
        let time = next.since(world.now());
        clients.run(&mut world, time, &mut draw)?;
        for (host, dies) in ends.iter_mut().enumerate().filter(|(_, dies)| **dies <= next && next < end) {
            world.replace(host, REPLACED_AFTER);
            *dies = next + REPLACED_AFTER + lives.draw(&mut rng);
            deaths += 1;
        }
    }
    let (done, failed) = clients.take();
    let (mean, deviation) = per_second(&done, begin, setting.measured);
    let groups = groups(&world).len();
    say(&format!("{peers} peers: {groups} groups, {deaths} deaths, {mean:.0} writes a second"));
    Ok(ScalingChurnPoint { peers, groups, deaths, mean, deviation, failed })
}

fn chart(points: &[ScalingChurnPoint], single: f64) -> Chart {
    let line = |name: &str, dashed: bool, of: &dyn Fn(&ScalingChurnPoint) -> f64| Line {
        name: name.into(),
        points: points.iter().map(|point| (point.peers as f64, of(point))).collect(),
        dashed,
    };
    Chart {
        title: "throughput, median life of an hour".into(),
        across: "peers".into(),
        up: "writes a second".into(),
        dots: true,
        lines: vec![line("Scatter", false, &|point| point.mean), line("a single group of five", true, &|_| single)],
        ..Chart::default()
    }
}

/// Compares the throughput for each peer of the largest and the smallest network.
fn verdict(points: &[ScalingChurnPoint]) -> Verdict {
    let (Some(small), Some(large)) = (points.first(), points.last()) else {
        return Verdict::new(Comparison::NotComparable, "nothing was measured".into());
    };
    let each = |point: &ScalingChurnPoint| point.mean / point.peers as f64;
    let kept = each(large) / each(small).max(1e-9);
    let comparison = if kept >= LINEAR { Comparison::Reproduced } else { Comparison::Worse };
    let members = large.peers as f64 / large.groups.max(1) as f64;
    let why = format!(
        "{} peers do {:.1} times the writes a second of a single group of {}, {:.0} % of a linear rise (paper: linear), while {} of the peers \
         of all runs die; their groups have {members:.1} members on average, and a write costs each member of its group a message",
        large.peers,
        large.mean / small.mean.max(1e-9),
        small.peers,
        100.0 * kept,
        points.iter().map(|point| point.deaths).sum::<u64>(),
    );
    Verdict::new(comparison, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::options::Scale;

    #[test]
    fn more_peers_do_more() {
        let options = ExperimentOptions { size: Scale::Quick, seed: 1, jobs: 2, out: None };
        let setting = ScalingChurnSetting {
            peers: vec![5, 10],
            settle: Duration::from_secs(25),
            measured: Duration::from_secs(5),
            ..ScalingChurnSetting::new(&options)
        };
        let outcome = experiment(&setting, &options, &|_| {}).expect("no invariant is broken");
        let value = |row, column| outcome.table.value(row, column).and_then(|value| value.parse::<f64>().ok()).unwrap();
        assert!(value(0, "writes_per_s") > 20.0, "{}", outcome.table);
        assert!(value(1, "times_single_group") > 1.2, "{}", outcome.table);
    }
}
