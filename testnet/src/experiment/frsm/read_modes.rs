//! Modes of reads and writes: round trips and messages, and latency and throughput by the size of values (fRSM appendix A.3 and B.3,
//! Table 2, Fig. 21 to 23).
//!
//! The paper's leader-only read is a leased read here, and its quorum read a confirmed one. A primary that lacks records asks a quorum
//! for a record itself: the experiment `after-takeover` has those.

use std::time::Duration;

use crate::experiment::group_testbed::{GroupMeasured, GroupSetting, run};
use crate::experiment::options::{ExperimentOptions, Say};
use crate::experiment::registry::Experiment;
use crate::experiment::table::{Comparison, ExperimentOutcome, Table, Verdict};
use crate::parallel::in_parallel;
use crate::picture::{Chart, Line};

/// Table 2 and figures 21 to 23.
pub const EXPERIMENT: Experiment = Experiment {
    name: "read-modes",
    paper: "fRSM Table 2, Fig. 21-23",
    about: "Leased reads, confirmed reads and writes: round trips, messages, latency and throughput by the size of values",
    run: |options, _: Say<'_>| Ok(experiment(&ModesSetting::new(options), options)),
};

/// Members of the group, as in the paper.
const MEMBERS: usize = 3;
/// Time of one way.
const ONE_WAY: Duration = Duration::from_micros(150);
/// Processor time of a message, and of each KiB of it.
const MESSAGE_COST: Duration = Duration::from_micros(10);
const KIB_COST: Duration = Duration::from_micros(2);
/// Operations under way: for latency, and for throughput.
const IN_FLIGHT: [usize; 2] = [3, 192];
/// Sizes of values, in bytes.
const SIZES: [usize; 5] = [128, 512, 2_048, 8_192, 32_768];
/// Names of the operations, with the paper's round trips and messages for three replicas.
const MODES: [(&str, &str); 3] = [
    ("leased read", "leader-only read: 0 round trips, 0 messages"),
    ("confirmed read", "quorum read: 1 round trip, 6 messages (2n)"),
    ("write", "warm CAS: 1 round trip, 4 messages (2⌈n/2⌉)"),
];

/// The parameters of the experiment.
struct ModesSetting {
    sizes: Vec<usize>,
    lasts: Duration,
    seed: u64,
}

impl ModesSetting {
    fn new(options: &ExperimentOptions) -> ModesSetting {
        ModesSetting { sizes: SIZES.into(), lasts: options.lasts(Duration::from_secs(1)), seed: options.seed }
    }
}

/// The figures of one operation with values of one size.
struct ModePoint {
    mode: usize,
    bytes: usize,
    /// Latency with few operations under way, in milliseconds.
    latency_ms: f64,
    round_trips: f64,
    messages: f64,
    ops_per_s: f64,
    /// Messages of an operation with many under way.
    shared_messages: f64,
}

fn measure(setting: &ModesSetting, mode: usize, bytes: usize) -> ModePoint {
    let base = GroupSetting {
        leases: mode == 0,
        reads: if mode < 2 { 1.0 } else { 0.0 },
        message_cost: MESSAGE_COST,
        kib_cost: KIB_COST,
        value_bytes: bytes,
        lasts: setting.lasts,
        ..GroupSetting::of(MEMBERS, setting.seed)
    };
    let calm = |setting: GroupSetting| run(&GroupSetting { in_flight: IN_FLIGHT[0], ..setting });
    let latency: GroupMeasured = calm(base.clone());
    // One operation at a time, with nearly free messages, counts round trips and messages.
    let bare = run(&GroupSetting {
        in_flight: 1,
        message_cost: Duration::from_nanos(1_000),
        kib_cost: Duration::ZERO,
        lasts: setting.lasts / 4,
        ..base.clone()
    });
    let full = run(&GroupSetting { in_flight: IN_FLIGHT[1], ..base });
    ModePoint {
        mode,
        bytes,
        latency_ms: latency.mean_ms(),
        round_trips: bare.mean_ms() / (2.0 * ONE_WAY.as_secs_f64() * 1e3),
        messages: bare.messages_per_op(),
        ops_per_s: full.ops_per_s(),
        shared_messages: full.messages_per_op(),
    }
}

fn experiment(setting: &ModesSetting, options: &ExperimentOptions) -> ExperimentOutcome {
    let all: Vec<(usize, usize)> =
        (0..MODES.len()).flat_map(|mode| setting.sizes.iter().map(move |bytes| (mode, *bytes))).collect();
    let points = in_parallel(options.jobs, &all, |(mode, bytes)| measure(setting, *mode, *bytes));
    let mut table = Table::new(&[
        "operation",
        "value_bytes",
        "round_trips",
        "messages",
        "latency_ms",
        "ops_per_s",
        "messages_then",
        "paper",
    ]);
    for point in &points {
        let mut row = vec![MODES[point.mode].0.to_owned(), point.bytes.to_string()];
        row.extend([point.round_trips, point.messages].map(|value| format!("{value:.1}")));
        row.extend([format!("{:.3}", point.latency_ms), format!("{:.0}", point.ops_per_s)]);
        row.extend([format!("{:.1}", point.shared_messages), MODES[point.mode].1.into()]);
        table.push(row);
    }
    ExperimentOutcome {
        parameters: vec![
            ("members", format!("{MEMBERS}, all of them primaries")),
            ("one way", format!("{ONE_WAY:?}")),
            ("under way", format!("{} for latency, {} for throughput", IN_FLIGHT[0], IN_FLIGHT[1])),
            ("durability", "memory".into()),
        ],
        models: vec![format!(
            "each message that a member sends or receives takes its processor {MESSAGE_COST:?}, and {KIB_COST:?} for each KiB of values"
        )],
        table,
        curves: None,
        charts: vec![
            chart(&points, "latency", "milliseconds", |point| point.latency_ms),
            chart(&points, "throughput", "operations a second", |point| point.ops_per_s),
        ],
        verdict: verdict(&points),
    }
}

fn chart(points: &[ModePoint], title: &str, up: &str, of: fn(&ModePoint) -> f64) -> Chart {
    let line = |mode: usize| Line {
        name: MODES[mode].0.into(),
        points: points.iter().filter(|point| point.mode == mode).map(|point| (point.bytes as f64, of(point))).collect(),
        dashed: false,
    };
    Chart {
        title: title.into(),
        across: "bytes of a value".into(),
        up: up.into(),
        doubling: true,
        dots: true,
        lines: (0..MODES.len()).map(line).collect(),
        ..Chart::default()
    }
}

/// Compares leased and confirmed reads over all sizes, on average.
fn verdict(points: &[ModePoint]) -> Verdict {
    let mean = |mode: usize, of: fn(&ModePoint) -> f64| {
        let all: Vec<f64> = points.iter().filter(|point| point.mode == mode).map(of).collect();
        all.iter().sum::<f64>() / all.len().max(1) as f64
    };
    let latency = mean(0, |point| point.latency_ms) / mean(1, |point| point.latency_ms).max(1e-9);
    let throughput = mean(0, |point| point.ops_per_s) / mean(1, |point| point.ops_per_s).max(1e-9);
    let trips = [0, 1, 2].map(|mode| mean(mode, |point| point.round_trips));
    let messages = [0, 1, 2].map(|mode| mean(mode, |point| point.messages));
    let is_same_trips = trips.iter().zip([0.0, 1.0, 1.0]).all(|(ours, paper)| (ours - paper).abs() < 0.2);
    let comparison = match (is_same_trips && latency <= 0.5, throughput >= 2.0) {
        (true, true) => Comparison::Reproduced,
        _ => Comparison::Worse,
    };
    let why = format!(
        "over all sizes a leased read takes {latency:.2} times as long as a confirmed one (paper: half) and has {throughput:.1} times the \
         throughput (paper: over 2); leased reads, confirmed reads and writes take {:.0}, {:.0} and {:.0} round trips (paper: 0, 1, 1) \
         and {:.1}, {:.1} and {:.1} messages (paper: 0, 6, 4, where a replica's own count, too); with {} under way, reads that wait share a \
         round, and a confirmed read takes {:.1} messages",
        trips[0],
        trips[1],
        trips[2],
        messages[0],
        messages[1],
        messages[2],
        IN_FLIGHT[1],
        mean(1, |point| point.shared_messages),
    );
    Verdict::new(comparison, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::options::Scale;

    #[test]
    fn leased_reads_need_no_message() {
        let options = ExperimentOptions { size: Scale::Quick, seed: 1, jobs: 2, out: None };
        let setting = ModesSetting { sizes: vec![512], lasts: Duration::from_millis(40), seed: 1 };
        let outcome = experiment(&setting, &options);
        let value = |row, column| outcome.table.value(row, column).and_then(|value| value.parse::<f64>().ok()).unwrap();
        assert!(value(0, "messages") < 0.5 && value(1, "messages") > 1.5, "{}", outcome.table);
        assert!(value(0, "latency_ms") < 0.5 * value(1, "latency_ms"), "{}", outcome.table);
        assert!(value(2, "round_trips") >= 1.0, "{}", outcome.table);
    }
}
