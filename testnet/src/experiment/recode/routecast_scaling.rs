//! Routecast by the number of groups: latency and speed-up, for fixed and for random keys (RECODE §V-C, Fig. 4).
//!
//! Groups of three stand beside each other, and a client has one message in flight. Clients with fixed keys are five for each group, which
//! all send the same key; clients with random keys ask all groups. No client asks the primary itself. The time of a message at a peer is
//! chosen such that one group with five clients of one key does as many operations as the paper's.

use std::time::Duration;

use node::{Durability, Node};
use overlay::{Key, KeyRange};

use super::ring::{RingSetting, ring_of};
use crate::churn::quantiles;
use crate::experiment::options::{ExperimentOptions, Say};
use crate::experiment::registry::Experiment;
use crate::experiment::scatter::closed_loop::{ClientPlace, ClosedLoop, name_of};
use crate::experiment::scatter::writes::groups as ranges;
use crate::experiment::table::{Comparison, ExperimentOutcome, Table, Verdict};
use crate::parallel::in_parallel;
use crate::picture::{Chart, Line};
use crate::rng::Rng;

/// Figure 4.
pub const EXPERIMENT: Experiment = Experiment {
    name: "routecast-scaling",
    paper: "RECODE Fig. 4",
    about: "Latency and speed-up of routecast with 1 to 16 groups of three, for fixed and for random keys",
    run: |options, say| experiment(&RoutecastSetting::new(options), options, say),
};

/// Members of a group, and clients for each group.
const MEMBERS: usize = 3;
const CLIENTS: usize = 5;
/// Number of keys.
const KEYS: u64 = 100_000;
/// Time that a peer takes for each input: five clients of one group with one key each do about 1,000 operations a second then.
const SERVICE: Duration = Duration::from_micros(350);
/// Interval at which clients look for answers.
const POLL: Duration = Duration::from_micros(150);
/// Speed-up for each group that counts as linear.
const LINEAR: f64 = 0.8;
/// The two workloads.
const WORKLOADS: [&str; 2] = ["fixed", "random"];

/// The parameters of the experiment.
struct RoutecastSetting {
    groups: Vec<usize>,
    warm_up: Duration,
    measured: Duration,
    seed: u64,
}

impl RoutecastSetting {
    fn new(options: &ExperimentOptions) -> RoutecastSetting {
        RoutecastSetting {
            groups: options.size.pick(vec![1, 2, 4, 8], vec![1, 2, 4, 8, 16], vec![1, 2, 4, 8, 16]),
            warm_up: Duration::from_secs(2),
            measured: Duration::from_secs(options.size.pick(4, 20, 60)),
            seed: options.seed,
        }
    }
}

/// The figures of one workload on this number of groups.
struct RoutecastPoint {
    workload: &'static str,
    groups: usize,
    ops_per_s: f64,
    took: Vec<Duration>,
}

fn measure(setting: &RoutecastSetting, workload: &'static str, groups: usize) -> Result<RoutecastPoint, String> {
    let mut world = ring_of::<Node>(&RingSetting {
        groups,
        members: MEMBERS,
        spare: 0,
        service: SERVICE,
        durability: Durability::Memory,
        seed: setting.seed,
    })?;
    let mut clients = ClosedLoop::new(CLIENTS * groups, ClientPlace::Away, POLL, setting.seed);
    let ranges: Vec<KeyRange> = ranges(&world).into_iter().map(|(range, _)| range).collect();
    let is_in = |range: &KeyRange, number: &u64| {
        Key::new(name_of(*number).as_bytes()).is_ok_and(|key| range.contains(key.point()))
    };
    let fixed: Vec<u64> = ranges.iter().filter_map(|range| (0..KEYS).find(|number| is_in(range, number))).collect();
    let mut draw = |rng: &mut Rng, client: usize| match workload == WORKLOADS[0] {
        true => fixed[client % fixed.len()],
        false => rng.below(KEYS),
    };
    clients.run(&mut world, setting.warm_up, &mut draw)?;
    clients.take();
    clients.run(&mut world, setting.measured, &mut draw)?;
    let took: Vec<Duration> = clients.take().0.iter().map(|write| write.took).collect();
    let ops_per_s = took.len() as f64 / setting.measured.as_secs_f64();
    Ok(RoutecastPoint { workload, groups, ops_per_s, took })
}

fn experiment(
    setting: &RoutecastSetting,
    options: &ExperimentOptions,
    say: Say<'_>,
) -> Result<ExperimentOutcome, String> {
    let groups = || setting.groups.iter().rev();
    let all: Vec<(usize, &'static str)> = groups().flat_map(|groups| WORKLOADS.map(|work| (*groups, work))).collect();
    let points = in_parallel(options.jobs, &all, |(groups, workload)| {
        let point = measure(setting, workload, *groups)?;
        say(&format!("{workload}, {groups} groups: {:.0} operations a second", point.ops_per_s));
        Ok(point)
    });
    let mut points: Vec<RoutecastPoint> = points.into_iter().collect::<Result<_, String>>()?;
    points.sort_by_key(|point| (point.workload, point.groups));
    let mut table = Table::new(&["keys", "groups", "ops_per_s", "speed_up", "p50_ms", "p95_ms", "p99_ms", "paper"]);
    for point in &points {
        let mut row = vec![point.workload.to_owned(), point.groups.to_string(), format!("{:.0}", point.ops_per_s)];
        row.push(format!("{:.2}", speed_up(&points, point)));
        row.extend(quantiles(&point.took, [0.5, 0.95, 0.99]).map(|time| format!("{:.2}", time.as_secs_f64() * 1e3)));
        row.push(match (point.groups, point.workload) {
            (1, _) => "about 1000 a second".into(),
            (_, "fixed") => "linear, stable latency".into(),
            _ => "sub-linear, latency varies more".into(),
        });
        table.push(row);
    }
    Ok(ExperimentOutcome {
        parameters: vec![
            ("members of a group", MEMBERS.to_string()),
            ("clients", format!("{CLIENTS} a group, one message in flight each, at a peer that is not the primary")),
            ("one way", "0.15 ms".into()),
            ("keys", KEYS.to_string()),
            ("measured", format!("{:?}", setting.measured)),
        ],
        models: vec![format!(
            "a peer takes {SERVICE:?} for each message that it gets: one group does about 1,000 operations a second on one key"
        )],
        table,
        curves: None,
        charts: charts(&points),
        verdict: verdict(&points),
    })
}

/// Returns the throughput divided by that of one group under the same workload.
fn speed_up(points: &[RoutecastPoint], point: &RoutecastPoint) -> f64 {
    let one = points.iter().find(|one| one.workload == point.workload && one.groups == 1);
    one.map_or(0.0, |one| point.ops_per_s / one.ops_per_s.max(1e-9))
}

fn charts(points: &[RoutecastPoint]) -> Vec<Chart> {
    let line = |name: String, workload: &str, dashed: bool, of: &dyn Fn(&RoutecastPoint) -> f64| Line {
        name,
        points: points
            .iter()
            .filter(|point| point.workload == workload)
            .map(|point| (point.groups as f64, of(point)))
            .collect(),
        dashed,
    };
    let chart = |title: &str, up: &str, lines: Vec<Line>| Chart {
        title: title.into(),
        across: "groups".into(),
        up: up.into(),
        doubling: true,
        dots: true,
        lines,
        ..Chart::default()
    };
    let speed = |workload: &str| line(format!("{workload} keys"), workload, false, &|point| speed_up(points, point));
    let ideal = line("linear".into(), WORKLOADS[0], true, &|point| point.groups as f64);
    let late = |workload: &str, share: f64| {
        let of = |point: &RoutecastPoint| quantiles(&point.took, [share])[0].as_secs_f64() * 1e3;
        line(format!("{workload} keys, p{:.0}", 100.0 * share), workload, share > 0.9, &of)
    };
    vec![
        chart("speed-up", "throughput ÷ that of one group", vec![speed(WORKLOADS[0]), speed(WORKLOADS[1]), ideal]),
        chart(
            "latency",
            "milliseconds",
            WORKLOADS.into_iter().flat_map(|workload| [late(workload, 0.5), late(workload, 0.99)]).collect(),
        ),
    ]
}

/// Compares the speed-up with the most groups, for fixed and random keys.
fn verdict(points: &[RoutecastPoint]) -> Verdict {
    let last =
        |workload: &str| points.iter().filter(|point| point.workload == workload).max_by_key(|point| point.groups);
    let (Some(fixed), Some(random)) = (last(WORKLOADS[0]), last(WORKLOADS[1])) else {
        return Verdict::new(Comparison::NotComparable, "nothing was measured".into());
    };
    let [fixed_up, random_up] = [fixed, random].map(|point| speed_up(points, point));
    let spread = |point: &RoutecastPoint| {
        let [median, late] = quantiles(&point.took, [0.5, 0.99]).map(|time| time.as_secs_f64());
        late / median.max(1e-9)
    };
    let groups = fixed.groups as f64;
    let comparison = match (fixed_up >= LINEAR * groups, random_up < fixed_up) {
        (true, true) => Comparison::Reproduced,
        (true, false) => Comparison::Better,
        _ => Comparison::Worse,
    };
    let why = format!(
        "{groups} groups do {fixed_up:.1} times the operations of one with fixed keys (paper: linear at first) and {random_up:.1} times with \
         random keys (paper: sub-linear); the 99th percentile of latency is {:.1} and {:.1} times the median; one group \
         needs no routing, which the speed-up counts from; with random keys a group here has a primary on each of its members, where the \
         paper's has one queue that does one at a time",
        spread(fixed),
        spread(random),
    );
    Verdict::new(comparison, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::options::Scale;

    #[test]
    fn two_groups_do_more_than_one() {
        let options = ExperimentOptions { size: Scale::Quick, seed: 1, jobs: 2, out: None };
        let setting = RoutecastSetting {
            groups: vec![1, 2],
            warm_up: Duration::from_millis(500),
            measured: Duration::from_millis(500),
            seed: 1,
        };
        let outcome = experiment(&setting, &options, &|_| {}).expect("no invariant is broken");
        let value = |row, column| outcome.table.value(row, column).and_then(|value| value.parse::<f64>().ok()).unwrap();
        for row in [1, 3] {
            assert!((1.2..2.6).contains(&value(row, "speed_up")), "{}", outcome.table);
            assert!(value(row, "p50_ms") <= value(row, "p99_ms"), "{}", outcome.table);
        }
    }
}
