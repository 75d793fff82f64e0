//! A switch stops, and is started again (`Harmonia` figure 15).
//!
//! In the paper all operations go through the switch, and none is served without it. Here the packets that must pass it are lost,
//! and the rest goes on: clients ask the primary, and the primary does without the switch once all grants are over.

use std::time::Duration;

use super::measured::SwitchMeasured;
use super::setting::{Happening, LoadModel, SwitchSetting};
use super::{MODEL, one, parameters};
use crate::experiment::options::{ExperimentOptions, Say};
use crate::experiment::registry::Experiment;
use crate::experiment::table::{Comparison, ExperimentOutcome, Table, Verdict};
use crate::parallel::in_parallel;
use crate::picture::{Chart, Line};

/// The figure.
pub const EXPERIMENT: Experiment = Experiment {
    name: "harmonia-failure",
    paper: "Harmonia Fig. 15",
    about: "A switch stops and is started again: reads and writes a second meanwhile",
    run: figure,
};

/// Times at which the switch stops, is there again, and gets an id from its controller: just before clients try it, which they do
/// ever more seldom, or just after. Then the duration of the run.
const STOPS: Duration = Duration::from_secs(2);
const STARTS: Duration = Duration::from_secs(5);
pub(super) const IS_SET: [Duration; 2] = [Duration::from_millis(5500), Duration::from_secs(6)];
const LASTS: Duration = Duration::from_secs(11);
const WINDOW: Duration = Duration::from_millis(50);

/// Times at which lost throughput is there again.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Operations a second of each kind before the stop.
    pub before: [f64; 2],
    /// Time from the stop until writes go on, half as many as before.
    pub writes: Option<Duration>,
    /// The fewest reads a second meanwhile.
    pub reads_least: f64,
    /// Time from the new id until nine tenths of the former operations are done.
    pub all: Option<Duration>,
}

/// Measures three replicas with these readers and writers; the switch has its new id at `is_set`.
pub fn measure(readers: usize, writers: usize, is_set: Duration, seed: u64) -> SwitchMeasured {
    let at = [(STOPS, Happening::SwitchStops), (STARTS, Happening::SwitchStarts), (is_set, Happening::NextSwitch)];
    one(&SwitchSetting {
        load: LoadModel::Apart { readers, writers, pause: Duration::from_millis(2) },
        patience: Some(Duration::from_millis(10)),
        happenings: at.into(),
        lasts: LASTS,
        window: WINDOW,
        seed,
        ..SwitchSetting::of(3, true, 0.05)
    })
}

/// Returns the start of each window, with its reads and writes a second.
fn timeline(measured: &SwitchMeasured) -> impl Iterator<Item = (Duration, [f64; 2])> + Clone {
    let rates = |counts: &[u64; 2]| counts.map(|count| count as f64 / WINDOW.as_secs_f64());
    measured.windows.iter().enumerate().map(move |(window, counts)| (WINDOW * window as u32, rates(counts)))
}

/// Returns the times that can be read from a run.
pub fn times(measured: &SwitchMeasured, is_set: Duration) -> Times {
    let timeline = timeline(measured);
    let before: Vec<[f64; 2]> =
        timeline.clone().filter(|(at, _)| *at < STOPS - WINDOW).map(|(_, rates)| rates).collect();
    let before = [0, 1].map(|kind| before.iter().map(|rates| rates[kind]).sum::<f64>() / before.len() as f64);
    let sum = |rates: [f64; 2]| rates[0] + rates[1];
    // The window with the stop contains operations from before.
    let writes = timeline.clone().find(|(at, rates)| *at > STOPS && rates[1] >= before[1] / 2.0);
    let all = timeline.clone().find(|(at, rates)| *at >= is_set && sum(*rates) >= sum(before) * 0.9);
    let least = timeline.filter(|(at, _)| *at > STOPS && *at < is_set).map(|(_, rates)| rates[0]);
    Times {
        before,
        writes: writes.map(|(at, _)| at - STOPS),
        reads_least: least.fold(f64::MAX, f64::min),
        all: all.map(|(at, _)| at - is_set),
    }
}

/// Readers and writers: readers that saturate the group, and writers that make a part of the load; fewer in a quick run.
const CLIENTS: (usize, usize) = (300, 150);
const CLIENTS_QUICK: (usize, usize) = (100, 50);

/// Measures throughput over time.
fn figure(options: &ExperimentOptions, _: Say<'_>) -> Result<ExperimentOutcome, String> {
    let (readers, writers) = options.size.pick(CLIENTS_QUICK, CLIENTS, CLIENTS);
    let runs = in_parallel(options.jobs, &IS_SET, |is_set| (*is_set, measure(readers, writers, *is_set, options.seed)));
    let mut table = Table::new(&[
        "new_id_at_s",
        "reads_per_s_before",
        "writes_per_s_before",
        "writes_again_after_s",
        "reads_per_s_least",
        "all_again_after_s",
        "paper",
    ]);
    let mut curves = Table::new(&["new_id_at_s", "seconds", "reads_per_s", "writes_per_s"]);
    for (is_set, measured) in &runs {
        table.push(cells(*is_set, &times(measured, *is_set)));
        for (at, rates) in timeline(measured) {
            let at = [is_set.as_secs_f64(), at.as_secs_f64()].map(|at| format!("{at:.2}"));
            curves.push(at.into_iter().chain(rates.map(|rate| format!("{rate:.0}"))).collect());
        }
    }
    let mut parameters = parameters(LASTS);
    parameters.extend([("readers", readers.to_string()), ("writers", writers.to_string())]);
    Ok(ExperimentOutcome {
        parameters,
        models: vec![MODEL.into()],
        table,
        curves: Some(curves),
        charts: runs.iter().map(|(is_set, measured)| chart(*is_set, measured)).collect(),
        verdict: verdict(&runs),
    })
}

fn said(time: Option<Duration>) -> String {
    time.map_or("never".into(), |time| format!("{:.2}", time.as_secs_f64()))
}

fn cells(is_set: Duration, times: &Times) -> Vec<String> {
    vec![
        format!("{:.1}", is_set.as_secs_f64()),
        format!("{:.0}", times.before[0]),
        format!("{:.0}", times.before[1]),
        said(times.writes),
        format!("{:.0}", times.reads_least),
        said(times.all),
        "nothing while it is gone; full again within seconds".into(),
    ]
}

fn chart(is_set: Duration, measured: &SwitchMeasured) -> Chart {
    let line = |name: &str, of: fn([f64; 2]) -> f64| Line {
        name: name.into(),
        points: timeline(measured).map(|(at, rates)| (at.as_secs_f64(), of(rates))).collect(),
        dashed: false,
    };
    let moment = |at: Duration, name: &str| (at.as_secs_f64(), name.to_owned());
    Chart {
        title: format!("a new id after {:.1} s", (is_set - STOPS).as_secs_f64()),
        across: "seconds".into(),
        up: "operations a second".into(),
        moments: vec![moment(STOPS, "stops"), moment(STARTS, "is back"), moment(is_set, "has its new id")],
        lines: vec![line("reads", |rates| rates[0]), line("writes", |rates| rates[1])],
        ..Chart::default()
    }
}

fn verdict(runs: &[(Duration, SwitchMeasured)]) -> Verdict {
    let all: Vec<Times> = runs.iter().map(|(is_set, measured)| times(measured, *is_set)).collect();
    let least = all.iter().map(|times| times.reads_least).fold(f64::MAX, f64::min);
    let is_back = all.iter().all(|times| times.all.is_some());
    let comparison = if is_back && least > 0.0 { Comparison::Better } else { Comparison::Worse };
    let why = format!(
        "at least {least:.0} reads a second are served while the switch is gone (paper: none), and all goes on {} s after the new id",
        all.iter().map(|times| said(times.all)).collect::<Vec<_>>().join(" or ")
    );
    Verdict::new(comparison, why)
}
