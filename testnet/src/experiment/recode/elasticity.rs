//! Latency and throughput while a network grows: peers join, groups split, and boundaries move (RECODE §V-D, Fig. 5).
//!
//! Four groups of three serve 74 clients that each have one message in flight. At a fifth of the time twelve peers join the smallest
//! groups. A group of six is asked to split, one group at a time, and then groups move their boundaries by load themselves.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use node::{AdminRequest, Durability, Input, Node, PolicyChange};

use super::ring::{RingSetting, ids, own, ring_of};
use crate::churn::quantiles;
use crate::experiment::options::{ExperimentOptions, Say};
use crate::experiment::registry::Experiment;
use crate::experiment::scatter::closed_loop::{ClientPlace, ClosedLoop};
use crate::experiment::table::{Comparison, ExperimentOutcome, Table, Verdict};
use crate::picture::{Chart, Line};
use crate::rng::Rng;
use crate::sim::{Fate, World};

/// Figure 5.
pub const EXPERIMENT: Experiment = Experiment {
    name: "elasticity",
    paper: "RECODE Fig. 5",
    about: "Latency and throughput over time, while twelve peers join four groups of three, and groups split and rebalance",
    run: |options, say| experiment(&ElasticitySetting::new(options), options, say),
};

/// Peers at first, and peers that join.
const FIRST: usize = 12;
const JOINING: usize = 12;
/// Clients, each with one message in flight, and their number of keys.
const CLIENTS: usize = 74;
const KEYS: u64 = 10_000;
/// Members of a group.
const MEMBERS: usize = 3;
/// Interval at which clients look for answers.
const POLL: Duration = Duration::from_millis(1);
/// Number of points of the timeline.
const POINTS: u32 = 45;

/// The parameters of the experiment.
struct ElasticitySetting {
    /// Time of the timeline; peers join at a fifth of it.
    time: Duration,
    /// Time that a peer takes for each input.
    service: Duration,
    seed: u64,
}

impl ElasticitySetting {
    fn new(options: &ExperimentOptions) -> ElasticitySetting {
        ElasticitySetting {
            time: Duration::from_secs(options.size.pick(180, 900, 900)),
            service: Duration::from_millis(options.size.pick(3, 2, 1)),
            seed: options.seed,
        }
    }
}

/// A part of the timeline.
struct TimelinePoint {
    /// Its end.
    at: Duration,
    groups: usize,
    ops_per_s: f64,
    /// Frames between peers.
    frames: u64,
    took: Vec<Duration>,
}

impl TimelinePoint {
    fn ms(&self, share: f64) -> f64 {
        quantiles(&self.took, [share])[0].as_secs_f64() * 1e3
    }
}

/// Asks a leader for a change of its group.
fn ask(world: &mut World<Node>, host: usize, number: u64, request: AdminRequest) {
    if let Some(group) = own(world, host).map(|group| group.state().id) {
        world.hand(host, Input::AdminRequest { number, group, request });
    }
}

/// Returns the leaders of groups, by their machines.
fn leaders(world: &World<Node>) -> Vec<usize> {
    let leads = |host: &usize| own(world, *host).is_some_and(|group| group.log().leads());
    (0..world.hosts()).filter(leads).collect()
}

/// Lets groups move their boundaries by load from now on.
fn let_repartition(world: &mut World<Node>) {
    let names = vec![("repartition".to_owned(), "proportional".to_owned())];
    if let Some(host) = leaders(world).first() {
        ask(world, *host, 1_000, AdminRequest::SetPolicies(PolicyChange { names, ..PolicyChange::default() }));
    }
}

/// Asks one group that is as large as two to split into halves, once all peers are members.
fn split_one(world: &mut World<Node>, number: u64) {
    let size = |host: &usize| own(world, *host).map_or(0, |group| group.state().members.len());
    if leaders(world).iter().map(size).sum::<usize>() < FIRST + JOINING {
        return;
    }
    let Some(host) = leaders(world).into_iter().find(|host| size(host) >= 2 * MEMBERS) else { return };
    let nodes = own(world, host).map(|group| group.state().nodes()).unwrap_or_default();
    let first = nodes.iter().take(MEMBERS).map(|node| node.peer).collect();
    ask(world, host, 2_000 + number, AdminRequest::Split { at: None, first });
}

fn measure(setting: &ElasticitySetting, say: Say<'_>) -> Result<Vec<TimelinePoint>, String> {
    let mut world = ring_of::<Node>(&RingSetting {
        groups: FIRST / MEMBERS,
        members: MEMBERS,
        spare: JOINING,
        service: setting.service,
        durability: Durability::Memory,
        seed: setting.seed,
    })?;
    let_repartition(&mut world);
    let frames = Rc::new(Cell::new(0_u64));
    let counted = Rc::clone(&frames);
    world.tap(move |_| {
        counted.set(counted.get() + 1);
        Fate::Goes
    });
    let mut clients = ClosedLoop::new(CLIENTS, ClientPlace::Primary, POLL, setting.seed);
    let mut draw = |rng: &mut Rng, _: usize| rng.below(KEYS);
    clients.run(&mut world, setting.time / 10, &mut draw)?;
    clients.take();
    let (begin, every) = (world.now(), setting.time / POINTS);
    let joins = begin + setting.time / 5;
    let mut points = Vec::new();
    let mut has_joined = false;
    for number in 1..=POINTS {
        if !has_joined && world.now() >= joins {
            has_joined = true;
            for host in FIRST..FIRST + JOINING {
                world.replace(host, Duration::from_millis(200) * (host - FIRST) as u32);
            }
        }
        if has_joined {
            split_one(&mut world, u64::from(number));
        }
        frames.set(0);
        let time = (begin + every * number).since(world.now());
        clients.run(&mut world, time, &mut draw)?;
        let took: Vec<Duration> = clients.take().0.iter().map(|write| write.took).collect();
        let ops_per_s = took.len() as f64 / every.as_secs_f64();
        let (at, groups) = (world.now().since(begin), ids(&world).len());
        say(&format!("{:.0} s: {groups} groups, {ops_per_s:.0} operations a second", at.as_secs_f64()));
        points.push(TimelinePoint { at, groups, ops_per_s, frames: frames.get(), took });
    }
    Ok(points)
}

/// The parts of the timeline that are compared.
const PHASES: [&str; 3] = ["before", "while it changes", "afterwards"];

/// Returns the points of each phase: before the joins, until the last change of the number of groups, and the last third.
fn phases<'a>(setting: &ElasticitySetting, points: &'a [TimelinePoint]) -> [&'a [TimelinePoint]; 3] {
    let joins = points.iter().take_while(|point| point.at <= setting.time / 5).count();
    let last = points.len() - points.len() / 3;
    [&points[..joins], &points[joins..last.max(joins)], &points[last.max(joins)..]]
}

/// The figures of one phase.
struct PhaseFigures {
    groups: usize,
    ops_per_s: f64,
    least_ops_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    frames_per_op: f64,
}

fn figures(points: &[TimelinePoint]) -> PhaseFigures {
    let took: Vec<Duration> = points.iter().flat_map(|point| point.took.iter().copied()).collect();
    let [p50, p99] = quantiles(&took, [0.5, 0.99]).map(|time| time.as_secs_f64() * 1e3);
    let rates = points.iter().map(|point| point.ops_per_s);
    PhaseFigures {
        groups: points.last().map_or(0, |point| point.groups),
        ops_per_s: rates.clone().sum::<f64>() / points.len().max(1) as f64,
        least_ops_per_s: rates.fold(f64::INFINITY, f64::min),
        p50_ms: p50,
        p99_ms: p99,
        frames_per_op: points.iter().map(|point| point.frames).sum::<u64>() as f64 / took.len().max(1) as f64,
    }
}

fn experiment(setting: &ElasticitySetting, _: &ExperimentOptions, say: Say<'_>) -> Result<ExperimentOutcome, String> {
    let points = measure(setting, say)?;
    let all = phases(setting, &points).map(figures);
    let mut table = Table::new(&[
        "phase",
        "groups_at_end",
        "ops_per_s",
        "least_ops_per_s",
        "p50_ms",
        "p99_ms",
        "frames_per_op",
        "paper",
    ]);
    let papers =
        ["overloaded, high variance", "a drop, and more variance", "lower latency and variance, more operations"];
    for ((phase, figures), paper) in PHASES.iter().zip(&all).zip(papers) {
        let mut row = vec![(*phase).to_owned(), figures.groups.to_string()];
        row.extend([figures.ops_per_s, figures.least_ops_per_s].map(|value| format!("{value:.0}")));
        row.extend([figures.p50_ms, figures.p99_ms, figures.frames_per_op].map(|value| format!("{value:.1}")));
        row.push(paper.into());
        table.push(row);
    }
    let mut curves = Table::new(&["seconds", "groups", "ops_per_s", "p50_ms", "p99_ms"]);
    for point in &points {
        let mut row = vec![format!("{:.1}", point.at.as_secs_f64()), point.groups.to_string()];
        row.extend([point.ops_per_s, point.ms(0.5), point.ms(0.99)].map(|value| format!("{value:.1}")));
        curves.push(row);
    }
    Ok(ExperimentOutcome {
        parameters: vec![
            ("peers", format!("{FIRST} in four groups, and {JOINING} more after {:?}", setting.time / 5)),
            ("clients", format!("{CLIENTS}, one message in flight each, random keys, at the primaries")),
            ("timeline", format!("{:?} (paper: 900 s)", setting.time)),
            ("members of a group", format!("{MEMBERS}; a group of {} splits", 2 * MEMBERS)),
            ("rebalancing", "by the groups' own policy of boundaries (paper: 8 operations, one a minute)".into()),
        ],
        models: vec![format!(
            "a peer takes {:?} for each message that it gets, and messages 0.15 ms one way",
            setting.service
        )],
        table,
        curves: Some(curves),
        charts: charts(setting, &points),
        verdict: verdict(&all),
    })
}

fn charts(setting: &ElasticitySetting, points: &[TimelinePoint]) -> Vec<Chart> {
    let line = |name: &str, of: &dyn Fn(&TimelinePoint) -> f64| Line {
        name: name.into(),
        points: points.iter().map(|point| (point.at.as_secs_f64(), of(point))).collect(),
        dashed: false,
    };
    let chart = |title: &str, up: &str, lines: Vec<Line>| Chart {
        title: title.into(),
        across: "seconds".into(),
        up: up.into(),
        moments: vec![((setting.time / 5).as_secs_f64(), "12 peers join".into())],
        lines,
        ..Chart::default()
    };
    vec![
        chart("throughput", "operations a second", vec![line("operations", &|point| point.ops_per_s)]),
        chart(
            "latency",
            "milliseconds",
            vec![line("p50", &|point| point.ms(0.5)), line("p99", &|point| point.ms(0.99))],
        ),
    ]
}

/// Compares the phases: a dip, and then more operations with less variance.
fn verdict([before, during, after]: &[PhaseFigures; 3]) -> Verdict {
    let spread = |figures: &PhaseFigures| figures.p99_ms / figures.p50_ms.max(1e-9);
    let is_dip = during.least_ops_per_s < before.ops_per_s;
    let is_better = after.ops_per_s > 1.2 * before.ops_per_s && after.p50_ms < before.p50_ms;
    let is_calmer = after.p99_ms < before.p99_ms;
    let comparison = match (is_better && is_calmer, is_dip) {
        (true, true) => Comparison::Reproduced,
        (true, false) => Comparison::Better,
        _ => Comparison::Worse,
    };
    let why = format!(
        "{} groups do {:.0} operations a second with a median of {:.0} ms and a 99th percentile of {:.0} ms ({:.1} times); while peers join \
         and groups split, the throughput is {:.0} at the least; then {} groups do {:.0} with {:.0} and {:.0} ms ({:.1} times) (paper: a \
         drop, then lower latency, less variance and a higher throughput, without numbers); peers send {:.1} frames for an operation \
         before and {:.1} afterwards, as operations that wait share frames, and a frame costs the same however many it carries here, \
         where the paper's groups do one operation at a time",
        before.groups,
        before.ops_per_s,
        before.p50_ms,
        before.p99_ms,
        spread(before),
        during.least_ops_per_s,
        after.groups,
        after.ops_per_s,
        after.p50_ms,
        after.p99_ms,
        spread(after),
        before.frames_per_op,
        after.frames_per_op,
    );
    Verdict::new(comparison, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::options::Scale;

    #[test]
    fn joining_peers_make_more_groups() {
        let options = ExperimentOptions { size: Scale::Quick, seed: 1, jobs: 1, out: None };
        let setting = ElasticitySetting { time: Duration::from_secs(90), ..ElasticitySetting::new(&options) };
        let outcome = experiment(&setting, &options, &|_| {}).expect("no invariant is broken");
        let value = |row, column| outcome.table.value(row, column).and_then(|value| value.parse::<f64>().ok()).unwrap();
        assert_eq!(value(0, "groups_at_end"), 4.0, "{}", outcome.table);
        assert!(value(2, "groups_at_end") > 4.0, "{}", outcome.table);
        assert!(value(2, "ops_per_s") > 0.5 * value(0, "ops_per_s"), "{}", outcome.table);
    }
}
