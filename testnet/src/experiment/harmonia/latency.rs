//! Waiting times of writes with the switch and without it.
//!
//! The paper's clients write through the switch, which lies on their way: that costs no time. Here the primary passes each write to
//! the switch and back before it proposes it. That takes the time of one more message: half of it there and half of it back.

use std::time::Duration;

use super::setting::{LoadModel, SwitchSetting};
use super::{MODEL, RunLength, one, parameters};
use crate::experiment::options::{ExperimentOptions, Say};
use crate::experiment::registry::Experiment;
use crate::experiment::table::{Comparison, ExperimentOutcome, Table, Verdict};
use crate::parallel::in_parallel;
use crate::picture::{Chart, Line};

/// The figure.
pub const EXPERIMENT: Experiment = Experiment {
    name: "harmonia-latency",
    paper: "Harmonia §10",
    about: "What a pass through the switch costs a write, by load: three replicas, 5 % writes",
    run: figure,
};

const LOADS: [f64; 5] = [10e3, 30e3, 50e3, 70e3, 90e3];
/// Syncs: in memory, and with disks as quick as good ones are.
const SYNCS: [(&str, Duration); 2] = [("in memory", Duration::ZERO), ("on disks", Duration::from_micros(100))];

/// Returns upper limits of the waiting time of half of the writes, and of 99 of 100.
pub fn write_waits(per_s: f64, sync: Duration, has_switch: bool, run: RunLength) -> [Duration; 2] {
    let measured = one(&SwitchSetting { load: LoadModel::Open { per_s }, sync, ..run.of(3, has_switch, 0.05) });
    [0.5, 0.99].map(|share| measured.write_wait(share))
}

/// Writes at one load.
struct LatencyRow {
    store: &'static str,
    per_s: f64,
    direct: [Duration; 2],
    switch: [Duration; 2],
}

impl LatencyRow {
    fn ratio(&self, share: usize) -> f64 {
        self.switch[share].as_secs_f64() / self.direct[share].as_secs_f64().max(1e-9)
    }

    fn cells(&self) -> Vec<String> {
        let us = |wait: Duration| format!("{:.0}", wait.as_secs_f64() * 1e6);
        let mut cells = vec![self.store.to_owned(), format!("{:.0}", self.per_s)];
        for share in [0, 1] {
            cells.extend([us(self.direct[share]), us(self.switch[share]), format!("{:.2}", self.ratio(share))]);
        }
        cells.push(String::new());
        cells
    }
}

/// Measures writes by load, at three replicas.
fn figure(options: &ExperimentOptions, _: Say<'_>) -> Result<ExperimentOutcome, String> {
    let run = RunLength::new(options, Duration::from_secs(2));
    let settings: Vec<_> = SYNCS.into_iter().flat_map(|sync| LOADS.map(move |load| (sync, load))).collect();
    let rows = in_parallel(options.jobs, &settings, |((store, sync), per_s)| {
        let [direct, switch] = [false, true].map(|has_switch| write_waits(*per_s, *sync, has_switch, run));
        LatencyRow { store, per_s: *per_s, direct, switch }
    });
    let mut table = Table::new(&[
        "store",
        "ops_per_s",
        "direct_p50_us",
        "switch_p50_us",
        "ratio_p50",
        "direct_p99_us",
        "switch_p99_us",
        "ratio_p99",
        "paper",
    ]);
    rows.iter().for_each(|row| table.push(row.cells()));
    let worst = rows.iter().map(|row| row.ratio(0)).fold(0.0, f64::max);
    let comparison = if worst <= 1.05 { Comparison::Reproduced } else { Comparison::Worse };
    let why = format!(
        "at the median a write takes at most {worst:.2} times as long with the switch; the paper's writes lie on its way and pay nothing"
    );
    Ok(ExperimentOutcome {
        parameters: parameters(run.lasts),
        models: vec![MODEL.into()],
        table,
        curves: None,
        charts: SYNCS.map(|(store, _)| chart(&rows, store)).into(),
        verdict: Verdict::new(comparison, why),
    })
}

fn chart(rows: &[LatencyRow], store: &str) -> Chart {
    let line = |name: &str, share: usize, has_switch: bool| {
        let of = |row: &LatencyRow| if has_switch { row.switch[share] } else { row.direct[share] };
        let points = rows.iter().filter(|row| row.store == store);
        let points = points.map(|row| (row.per_s, of(row).as_secs_f64() * 1e6));
        Line { name: name.into(), points: points.collect(), dashed: share > 0 }
    };
    Chart {
        title: format!("writes, {store}"),
        across: "operations a second, 5 % of them writes".into(),
        up: "microseconds".into(),
        dots: true,
        lines: vec![
            line("passed through the switch, p50", 0, true),
            line("without a switch, p50", 0, false),
            line("passed through the switch, p99", 1, true),
            line("without a switch, p99", 1, false),
        ],
        ..Chart::default()
    }
}
