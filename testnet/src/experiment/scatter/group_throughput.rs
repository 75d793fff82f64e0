//! Writes a second of one group, by its size and by the number of its primaries (Scatter §7.1.2, Fig. 11; Harmony Fig. 6).
//!
//! Up to 20 clients have up to 100 writes under way each, of random keys: at three sites more of them than at one. The cost of a message is chosen so that nine members that are all
//! primaries do as many writes as the paper's: all other figures follow from the protocol.

use std::time::Duration;

use crate::experiment::group_testbed::{GroupSetting, run};
use crate::experiment::options::{ExperimentOptions, Say};
use crate::experiment::registry::Experiment;
use crate::experiment::table::{Comparison, ExperimentOutcome, Table, Verdict};
use crate::parallel::in_parallel;
use crate::picture::{Chart, Line};
use crate::sim::Latency;

/// Figure 11.
pub const EXPERIMENT: Experiment = Experiment {
    name: "group-throughput",
    paper: "Scatter Fig. 11, Harmony Fig. 6",
    about: "Writes a second of one group at one site and at three, by its size and the number of its primaries",
    run: |options, _: Say<'_>| Ok(experiment(&ThroughputSetting::new(options), options)),
};

/// Processor time of a member for each message of an operation: it makes [`CALIBRATED`] true.
pub const MESSAGE_COST: Duration = Duration::from_nanos(20_000);
/// The sentence about this model.
pub const COST: &str = "each message that a member sends or receives for an operation takes its processor 20 µs, which gives nine members \
                        that are all primaries the paper's 13,000 writes a second; heartbeats and the group's log cost nothing";
/// Members that are all primaries, and the paper's writes a second.
const CALIBRATED: (usize, f64) = (9, 13_000.0);
/// Sizes of the group.
const SIZES: [usize; 6] = [3, 5, 7, 9, 11, 13];
const SIZES_QUICK: [usize; 4] = [3, 5, 9, 13];
/// Writes under way for each primary, at one site and at three, and their limit: 20 clients with 100 each.
const IN_FLIGHT: [usize; 2] = [100, 700];
const IN_FLIGHT_MAX: usize = 2_000;
/// The two settings.
const SETTINGS: [&str; 2] = ["one cluster", "three sites"];

/// The parameters of the experiment.
struct ThroughputSetting {
    sizes: Vec<usize>,
    lasts: Duration,
    seed: u64,
}

impl ThroughputSetting {
    fn new(options: &ExperimentOptions) -> ThroughputSetting {
        let sizes = options.size.pick(SIZES_QUICK.to_vec(), SIZES.to_vec(), SIZES.to_vec());
        ThroughputSetting { sizes, lasts: options.lasts(Duration::from_secs(3)), seed: options.seed }
    }
}

/// The numbers of primaries of a group of `members` members: one, two, half and all.
fn primaries(members: usize) -> Vec<usize> {
    let mut all = vec![1, 2, members / 2, members];
    all.sort_unstable();
    all.dedup();
    all
}

/// The throughput of one group.
struct ThroughputPoint {
    setting: &'static str,
    members: usize,
    primaries: usize,
    writes_per_s: f64,
    messages: f64,
}

fn measure(setting: &ThroughputSetting, at: &'static str, members: usize, primaries: usize) -> ThroughputPoint {
    let is_far = at == SETTINGS[1];
    let base = GroupSetting::of(members, setting.seed);
    let measured = run(&GroupSetting {
        primaries,
        latency: if is_far { Latency::PaperSites } else { base.latency.clone() },
        message_cost: MESSAGE_COST,
        in_flight: (IN_FLIGHT[usize::from(is_far)] * primaries).min(IN_FLIGHT_MAX),
        warm_up: Duration::from_millis(if is_far { 1_000 } else { 200 }),
        lasts: setting.lasts,
        ..base
    });
    let writes_per_s = measured.ops_per_s();
    ThroughputPoint { setting: at, members, primaries, writes_per_s, messages: measured.messages_per_op() }
}

fn experiment(setting: &ThroughputSetting, options: &ExperimentOptions) -> ExperimentOutcome {
    let sizes = || setting.sizes.iter().flat_map(|size| primaries(*size).into_iter().map(move |of| (*size, of)));
    let all: Vec<(&'static str, usize, usize)> =
        SETTINGS.into_iter().flat_map(|at| sizes().map(move |(size, primaries)| (at, size, primaries))).collect();
    let points = in_parallel(options.jobs, &all, |(at, size, primaries)| measure(setting, at, *size, *primaries));
    let mut table = Table::new(&["setting", "members", "primaries", "writes_per_s", "messages_per_write", "paper"]);
    for point in &points {
        let mut row = vec![point.setting.to_owned(), point.members.to_string(), point.primaries.to_string()];
        row.extend([format!("{:.0}", point.writes_per_s), format!("{:.1}", point.messages), paper(point).into()]);
        table.push(row);
    }
    ExperimentOutcome {
        parameters: vec![
            ("one way at one site", "0.15 ms".into()),
            ("round trips between sites", "82, 79 and 38 ms".into()),
            (
                "writes under way",
                format!("{} and {} for each primary, at most {IN_FLIGHT_MAX}", IN_FLIGHT[0], IN_FLIGHT[1]),
            ),
            ("measured", format!("{:?}", setting.lasts)),
        ],
        models: vec![COST.into()],
        table,
        curves: None,
        charts: SETTINGS.map(|at| chart(&points, at)).into(),
        verdict: verdict(&points),
    }
}

fn paper(point: &ThroughputPoint) -> &'static str {
    let is_near = point.setting == SETTINGS[0];
    match (is_near, point.primaries) {
        (true, all) if (point.members, all) == (CALIBRATED.0, CALIBRATED.0) => "13000 (calibrated)",
        (_, 1) => "degrades quickly with members",
        (true, all) if all == point.members => "decreases only slightly with members",
        (false, all) if all == point.members => "within 30 % of one cluster",
        _ => "",
    }
}

fn chart(points: &[ThroughputPoint], at: &str) -> Chart {
    let line = |name: &str, is_meant: fn(&ThroughputPoint) -> bool| Line {
        name: name.into(),
        points: points
            .iter()
            .filter(|point| point.setting == at && is_meant(point))
            .map(|point| (point.members as f64, point.writes_per_s))
            .collect(),
        dashed: false,
    };
    Chart {
        title: at.into(),
        across: "members".into(),
        up: "writes a second".into(),
        dots: true,
        lines: vec![
            line("all are primaries", |point| point.primaries == point.members),
            line("half", |point| point.primaries == point.members / 2),
            line("two", |point| point.primaries == 2),
            line("one", |point| point.primaries == 1),
        ],
        ..Chart::default()
    }
}

/// Compares the fall of a lone primary with that of all, and the three sites with one cluster.
fn verdict(points: &[ThroughputPoint]) -> Verdict {
    let sizes = points.iter().map(|point| point.members);
    let (Some(least), Some(most)) = (sizes.clone().min(), sizes.max()) else {
        return Verdict::new(Comparison::NotComparable, "nothing was measured".into());
    };
    let find = |at: &str, members: usize, primaries: usize| {
        let is_meant =
            |point: &&ThroughputPoint| (point.setting, point.members, point.primaries) == (at, members, primaries);
        points.iter().find(is_meant).map_or(0.0, |point| point.writes_per_s)
    };
    let kept = |one: bool| {
        let of = |members: usize| find(SETTINGS[0], members, if one { 1 } else { members });
        of(most) / of(least).max(1e-9)
    };
    let far = |members: usize| find(SETTINGS[1], members, members) / find(SETTINGS[0], members, members).max(1e-9);
    let (lone, all, far_least, far_most) = (kept(true), kept(false), far(least), far(most));
    let is_same = all > 0.7 && lone < 0.5 && far_least >= 0.7 && far_most >= 0.7;
    let comparison = if is_same { Comparison::Reproduced } else { Comparison::Worse };
    let why = format!(
        "from {least} to {most} members a lone primary keeps {:.0} % of its writes a second (paper: degrades quickly) and {:.0} % where \
         all are primaries (paper: decreases only slightly), and three sites have {:.0} % to {:.0} % of one cluster's (paper: within 30 %); \
         {} members with all as primaries do {:.0} writes a second by calibration",
        100.0 * lone,
        100.0 * all,
        100.0 * far_least.min(far_most),
        100.0 * far_least.max(far_most),
        CALIBRATED.0,
        find(SETTINGS[0], CALIBRATED.0, CALIBRATED.0),
    );
    Verdict::new(comparison, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::options::Scale;

    #[test]
    fn a_lone_primary_is_a_bottleneck() {
        let options = ExperimentOptions { size: Scale::Quick, seed: 1, jobs: 2, out: None };
        let setting = ThroughputSetting { sizes: vec![3, 9], lasts: Duration::from_millis(100), seed: 1 };
        let outcome = experiment(&setting, &options);
        let value = |row, column| outcome.table.value(row, column).and_then(|value| value.parse::<f64>().ok()).unwrap();
        // Three members: one, two and three primaries; nine: one, two, four and nine.
        assert_eq!(outcome.table.rows.len(), 14);
        assert!(value(3, "writes_per_s") < 0.5 * value(0, "writes_per_s"), "{}", outcome.table);
        let calibrated = value(6, "writes_per_s");
        assert!((calibrated / CALIBRATED.1 - 1.0).abs() < 0.1, "{}", outcome.table);
        assert_eq!(primaries(3), [1, 2, 3]);
    }
}
