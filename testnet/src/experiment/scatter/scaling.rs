//! Throughput by the number of peers: groups that follow the load, against the same groups with a static partition (Scatter §7.2.5,
//! Fig. 16).
//!
//! A skewed trace has two halves, with other popular keys in each. Under the first half, both networks grow and place their boundaries
//! by load. Then one of them keeps the boundaries between its groups, as many separate instances of ZooKeeper do, and the other one goes
//! on. Inside a group, primaries follow the load in both. The second half is measured.

use std::time::Duration;

use load::{Distribution, Keys};
use node::{AdminRequest, Input, Node, PolicyChange};

use super::closed_loop::{ClientPlace, ClosedLoop, per_second};
use super::writes::groups;
use crate::experiment::options::{ExperimentOptions, Say};
use crate::experiment::registry::Experiment;
use crate::experiment::table::{Comparison, ExperimentOutcome, Table, Verdict};
use crate::parallel::in_parallel;
use crate::picture::{Chart, Line};
use crate::rng::Rng;
use crate::sim::World;
use crate::study::{Places, Study};

/// Figure 16.
pub const EXPERIMENT: Experiment = Experiment {
    name: "scaling",
    paper: "Scatter Fig. 16",
    about: "Writes a second by the number of peers: groups that follow a skewed load, and a static partition",
    run: |options, say| experiment(&ScalingSetting::new(options), options, say),
};

/// Skew of the trace's keys, by Zipf's law, and their number.
const EXPONENT: f64 = 0.7;
const KEYS: u64 = 20_000;
/// Writes under way for each peer.
const IN_FLIGHT: usize = 6;
/// Interval at which clients look for answers.
const POLL: Duration = Duration::from_millis(2);
/// Limits of a group's size: about five members.
const MEMBERS: (u32, u32) = (4, 7);
/// Part of the throughput for each peer of the smallest network that a linear one keeps.
const LINEAR: f64 = 0.8;
/// Ratio of the throughputs of the two systems above which one is ahead.
const AHEAD: f64 = 1.05;
/// The two systems.
const SYSTEMS: [&str; 2] = ["Scatter", "static partition"];

/// The parameters of the experiment.
struct ScalingSetting {
    peers: Vec<usize>,
    /// Time that a peer takes for each input.
    service: Duration,
    /// Time until groups have their sizes.
    settle: Duration,
    /// Time under each half of the trace; of the second one the first part is not measured.
    first: Duration,
    second: Duration,
    measured: Duration,
    seed: u64,
}

impl ScalingSetting {
    fn new(options: &ExperimentOptions) -> ScalingSetting {
        let seconds = |quick, default, full| Duration::from_secs(options.size.pick(quick, default, full));
        ScalingSetting {
            peers: options.size.pick(
                vec![5, 20, 40],
                vec![5, 10, 20, 40, 80],
                vec![5, 10, 20, 40, 60, 80, 100, 120, 150],
            ),
            service: Duration::from_micros(options.size.pick(4_000, 2_000, 1_000)),
            settle: seconds(80, 120, 200),
            first: seconds(15, 60, 300),
            second: seconds(15, 60, 120),
            measured: seconds(10, 40, 120),
            seed: options.seed,
        }
    }
}

/// The throughput of one network.
struct ScalingPoint {
    system: &'static str,
    peers: usize,
    groups: usize,
    mean: f64,
    deviation: f64,
    failed: u64,
}

fn experiment(
    setting: &ScalingSetting,
    options: &ExperimentOptions,
    say: Say<'_>,
) -> Result<ExperimentOutcome, String> {
    // The largest networks take the longest, and begin first.
    let peers = || setting.peers.iter().rev();
    let all: Vec<(usize, &'static str)> = peers().flat_map(|peers| SYSTEMS.map(|system| (*peers, system))).collect();
    let points = in_parallel(options.jobs, &all, |(peers, system)| measure(setting, *peers, system, say));
    let mut points: Vec<ScalingPoint> = points.into_iter().collect::<Result<_, String>>()?;
    points.sort_by_key(|point| (SYSTEMS.iter().position(|system| *system == point.system), point.peers));
    let mut table = Table::new(&["system", "peers", "groups", "writes_per_s", "sd", "per_peer", "failed", "paper"]);
    for point in &points {
        let mut row = vec![point.system.to_owned(), point.peers.to_string(), point.groups.to_string()];
        row.extend([point.mean, point.deviation, point.mean / point.peers as f64].map(|value| format!("{value:.1}")));
        row.push(point.failed.to_string());
        row.push(if point.system == SYSTEMS[0] { "linear" } else { "equal when small, then sub-linear" }.into());
        table.push(row);
    }
    Ok(ExperimentOutcome {
        parameters: vec![
            ("members of a group", format!("{} to {}", MEMBERS.0, MEMBERS.1)),
            ("keys", format!("{KEYS}, by Zipf's law with exponent {EXPONENT}, in another order in each half")),
            ("writes under way", format!("{IN_FLIGHT} for each peer, at the primaries")),
            ("first half", format!("{:?}", setting.first)),
            ("second half", format!("{:?}, then {:?} are measured", setting.second, setting.measured)),
        ],
        models: vec![
            format!("a peer takes {:?} for each message that it gets, and messages 0.2 to 0.3 ms one way", setting.service),
            "the trace is synthetic, and the static partition is the same protocol with boundaries that stay: no ZooKeeper runs".into(),
        ],
        table,
        curves: None,
        charts: vec![chart(&points)],
        verdict: verdict(&points),
    })
}

fn measure(setting: &ScalingSetting, peers: usize, system: &'static str, say: Say<'_>) -> Result<ScalingPoint, String> {
    let study = Study { places: Places::Cluster, members: MEMBERS, ..Study::new(setting.seed, peers, None) };
    let mut world = World::<Node>::new(study.scenario());
    world.run_for(setting.settle);
    // A network whose groups have their sizes; how fast it gets there is no part of this.
    world.scenario.service_time = setting.service;
    let mut clients = ClosedLoop::new(IN_FLIGHT * peers, ClientPlace::Primary, POLL, setting.seed);
    let mut keys = Keys::new(Distribution::Zipf { exponent: EXPONENT }, KEYS, setting.seed, 0, 1)
        .ok_or("the distribution of keys makes no sense")?;
    // Each half gives the ranks to other keys.
    let mut draw = |half: u64| keys.next_key().unwrap_or(0) + half * KEYS;
    clients.run(&mut world, setting.first, &mut |_: &mut Rng, _| draw(0))?;
    if system == SYSTEMS[1] {
        keep_boundaries(&mut world)?;
    }
    clients.run(&mut world, setting.second, &mut |_: &mut Rng, _| draw(1))?;
    clients.take();
    let begin = world.now();
    clients.run(&mut world, setting.measured, &mut |_: &mut Rng, _| draw(1))?;
    let (done, failed) = clients.take();
    let (mean, deviation) = per_second(&done, begin, setting.measured);
    let groups = groups(&world).len();
    say(&format!("{system}, {peers} peers: {groups} groups, {mean:.0} writes a second"));
    Ok(ScalingPoint { system, peers, groups, mean, deviation, failed })
}

/// Has all groups keep their sizes and boundaries from now on.
fn keep_boundaries(world: &mut World<Node>) -> Result<(), String> {
    let leader = |host: &usize| world.host(*host).and_then(Node::group).is_some_and(|group| group.log().leads());
    let host = (0..world.hosts()).find(leader).ok_or("no group has a leader")?;
    let group =
        world.host(host).and_then(Node::group).map(|group| group.state().id).ok_or("the leader has no group")?;
    let names = ["repartition", "size"].map(|decision| (decision.to_owned(), "off".to_owned())).into();
    let request = AdminRequest::SetPolicies(PolicyChange { names, ..PolicyChange::default() });
    world.hand(host, Input::AdminRequest { number: 1, group, request });
    Ok(())
}

fn chart(points: &[ScalingPoint]) -> Chart {
    let line = |system: &str| Line {
        name: system.into(),
        points: points
            .iter()
            .filter(|point| point.system == system)
            .map(|point| (point.peers as f64, point.mean))
            .collect(),
        dashed: system == SYSTEMS[1],
    };
    Chart {
        title: "throughput under the second half of the trace".into(),
        across: "peers".into(),
        up: "writes a second".into(),
        dots: true,
        lines: SYSTEMS.map(line).into(),
        ..Chart::default()
    }
}

/// Compares the throughput for each peer of the largest and the smallest network, for both systems.
fn verdict(points: &[ScalingPoint]) -> Verdict {
    let of = |system: &str| points.iter().filter(|point| point.system == system).collect::<Vec<_>>();
    let kept = |all: &[&ScalingPoint]| match (all.first(), all.last()) {
        (Some(small), Some(large)) => (large.mean / large.peers as f64) / (small.mean / small.peers as f64).max(1e-9),
        _ => 0.0,
    };
    let (ours, theirs) = (of(SYSTEMS[0]), of(SYSTEMS[1]));
    let (linear, fixed) = (kept(&ours), kept(&theirs));
    let ahead = match (ours.last(), theirs.last()) {
        (Some(ours), Some(theirs)) => ours.mean / theirs.mean.max(1e-9),
        _ => 0.0,
    };
    let comparison = match (linear >= LINEAR, fixed >= LINEAR) {
        (true, false) if ahead > AHEAD => Comparison::Reproduced,
        // The load of this trace is even enough for boundaries that stay, which the paper's was not.
        (true, true) => Comparison::NotComparable,
        _ => Comparison::Worse,
    };
    let why = format!(
        "from {} to {} peers Scatter keeps {:.0} % of its writes a second for each peer, and the static partition {:.0} % (paper: linear, \
         and sub-linear); with the most peers Scatter does {ahead:.2} times as many (paper: more, without a \
         number); groups move a boundary where one has 1.6 times the load of its neighbour, and the paper does not say how skewed its trace is",
        ours.first().map_or(0, |point| point.peers),
        ours.last().map_or(0, |point| point.peers),
        100.0 * linear,
        100.0 * fixed,
    );
    Verdict::new(comparison, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::options::Scale;

    #[test]
    fn both_systems_grow_with_their_peers() {
        let options = ExperimentOptions { size: Scale::Quick, seed: 1, jobs: 2, out: None };
        let seconds = Duration::from_secs;
        let setting = ScalingSetting {
            peers: vec![5, 10],
            settle: seconds(30),
            first: seconds(15),
            second: seconds(2),
            measured: seconds(5),
            ..ScalingSetting::new(&options)
        };
        let outcome = experiment(&setting, &options, &|_| {}).expect("no invariant is broken");
        let value = |row, column| outcome.table.value(row, column).and_then(|value| value.parse::<f64>().ok()).unwrap();
        for row in [0, 2] {
            assert!(value(row, "writes_per_s") > 20.0, "{}", outcome.table);
            assert!(value(row + 1, "writes_per_s") > 1.2 * value(row, "writes_per_s"), "{}", outcome.table);
        }
    }
}
