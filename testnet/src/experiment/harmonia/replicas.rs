//! Throughput of a group by the number of its replicas (`Harmonia` figure 9).
//!
//! Beside the figure itself there are the results for three other cases:
//!
//! - if the wire always took the same time, so that no read overtakes the messages to its member and has to wait for them;
//! - if packets that come back from the switch took time of the primary, beyond the cost of a write;
//! - and if each vote and each report of the executed numbers did, too, one by one.

use std::time::Duration;

use super::measured::{Done, SwitchMeasured};
use super::setting::{Costs, SwitchSetting};
use super::{MODEL, RunLength, one, parameters};
use crate::experiment::options::{ExperimentOptions, Say};
use crate::experiment::registry::Experiment;
use crate::experiment::table::{Comparison, ExperimentOutcome, Table, Verdict};
use crate::parallel::in_parallel;
use crate::picture::{Chart, Line};

/// The figure.
pub const EXPERIMENT: Experiment = Experiment {
    name: "harmonia-replicas",
    paper: "Harmonia Fig. 9",
    about: "Operations a second of a group by its replicas, with reads spread by the switch and without",
    run: figure,
};

/// As many replicas as in the paper, but for two, with which a group may not lose a member.
const REPLICAS: std::ops::RangeInclusive<usize> = 3..=10;
const WRITES: [f64; 4] = [0.0, 0.05, 0.1, 0.2];
/// Cost of a packet or a message, in the cases with such costs.
const PACKET: Duration = Duration::from_micros(2);

/// Results of the same load on a group of one size, in several cases.
#[derive(Clone, Debug)]
pub struct ReplicasRow {
    /// Number of members.
    pub replicas: usize,
    /// Share of writes, from 0 to 1.
    pub writes: f64,
    /// Operations a second of a lone member.
    pub alone: f64,
    /// Operations a second with all of them sent to the primary.
    pub direct: f64,
    /// Results with the switch.
    pub spread: SwitchMeasured,
    /// Operations a second if the wire always takes the same time.
    pub steady: f64,
    /// Operations a second if passes cost time.
    pub passes: f64,
    /// Operations a second if votes and reports do, too.
    pub messages: f64,
}

/// Measures one row.
pub fn row(replicas: usize, writes: f64, run: RunLength) -> ReplicasRow {
    let with = |costs| one(&SwitchSetting { costs, ..run.of(replicas, true, writes) }).ops_per_s();
    ReplicasRow {
        replicas,
        writes,
        alone: one(&run.of(1, false, writes)).ops_per_s(),
        direct: one(&run.of(replicas, false, writes)).ops_per_s(),
        spread: one(&run.of(replicas, true, writes)),
        steady: one(&SwitchSetting { jitter: Duration::ZERO, ..run.of(replicas, true, writes) }).ops_per_s(),
        passes: with(Costs { pass: PACKET, ..Costs::PAPER }),
        messages: with(Costs { pass: PACKET, message: PACKET, ..Costs::PAPER }),
    }
}

impl ReplicasRow {
    /// Returns two shares of the reads: those left to the primary because a member had not heard in time which numbers are
    /// executed, and those that went to the primary because the object was dirty.
    fn shares(&self) -> [f64; 2] {
        let reads = self.spread.count(Done::Read) + self.spread.count(Done::DirtyRead);
        [self.spread.left, self.spread.count(Done::DirtyRead)].map(|count| count as f64 / reads.max(1) as f64)
    }

    /// Returns the busy share of the primary, and of the other members.
    fn busy(&self) -> [f64; 2] {
        let others = 1..self.replicas;
        [self.spread.busy(0), others.map(|machine| self.spread.busy(machine)).sum::<f64>() / (self.replicas - 1) as f64]
    }

    /// Returns how often a write passed the switch, on average.
    fn passed(&self) -> f64 {
        let work = &self.spread.machines[0];
        work.count(Done::WritePass) as f64 / work.count(Done::Write).max(1) as f64
    }
}

/// The columns of the table.
const COLUMNS: [&str; 15] = [
    "writes_percent",
    "replicas",
    "alone_ops_per_s",
    "direct_ops_per_s",
    "spread_ops_per_s",
    "times_one_read",
    "steady_ops_per_s",
    "passes_ops_per_s",
    "messages_ops_per_s",
    "left_percent",
    "dirty_percent",
    "primary_busy",
    "others_busy",
    "passed_per_write",
    "paper",
];

/// Returns the paper's statement for reads alone and ten replicas; `None` elsewhere.
fn paper(row: &ReplicasRow) -> Option<&'static str> {
    (row.writes == 0.0 && row.replicas == *REPLICAS.end()).then_some("10 times one replica")
}

fn cells(row: &ReplicasRow, reads: f64) -> Vec<String> {
    let (spread, [left, dirty], [primary, others]) = (row.spread.ops_per_s(), row.shares(), row.busy());
    let mut cells = vec![format!("{:.0}", row.writes * 100.0), row.replicas.to_string()];
    cells.extend([row.alone, row.direct, spread].map(|ops| format!("{ops:.0}")));
    cells.push(format!("{:.2}", spread / reads));
    cells.extend([row.steady, row.passes, row.messages].map(|ops| format!("{ops:.0}")));
    cells.extend([left, dirty].map(|share| format!("{:.3}", share * 100.0)));
    cells.extend([primary, others, row.passed()].map(|share| format!("{share:.2}")));
    cells.push(paper(row).unwrap_or_default().into());
    cells
}

/// Measures the figure.
fn figure(options: &ExperimentOptions, _: Say<'_>) -> Result<ExperimentOutcome, String> {
    let run = RunLength::new(options, Duration::from_millis(200));
    let reads = one(&run.of(1, false, 0.0)).ops_per_s();
    let settings: Vec<(f64, usize)> =
        WRITES.into_iter().flat_map(|writes| REPLICAS.map(move |replicas| (writes, replicas))).collect();
    let rows = in_parallel(options.jobs, &settings, |(writes, replicas)| row(*replicas, *writes, run));
    let mut table = Table::new(&COLUMNS);
    rows.iter().for_each(|row| table.push(cells(row, reads)));
    Ok(ExperimentOutcome {
        parameters: parameters(run.lasts),
        models: vec![MODEL.into()],
        table,
        curves: None,
        charts: WRITES.map(|writes| chart(&rows, writes)).into(),
        verdict: verdict(&rows, reads),
    })
}

fn chart(rows: &[ReplicasRow], writes: f64) -> Chart {
    let rows: Vec<&ReplicasRow> = rows.iter().filter(|row| row.writes == writes).collect();
    let line = |name: &str, dashed, of: fn(&ReplicasRow) -> f64| {
        let begin = rows.first().map(|row| (1.0, row.alone));
        let points = begin.into_iter().chain(rows.iter().map(|row| (row.replicas as f64, of(row)))).collect();
        Line { name: name.into(), points, dashed }
    };
    Chart {
        title: format!("{} % writes", writes * 100.0),
        across: "replicas".into(),
        up: "operations a second".into(),
        dots: true,
        lines: vec![
            line("reads spread by the switch", false, |row| row.spread.ops_per_s()),
            line("all asked of the primary", false, |row| row.direct),
            line("spread, a wire without jitter", true, |row| row.steady),
            line("spread, passes cost 2 µs", true, |row| row.passes),
            line("spread, all messages cost 2 µs", true, |row| row.messages),
        ],
        ..Chart::default()
    }
}

fn verdict(rows: &[ReplicasRow], reads: f64) -> Verdict {
    let times =
        rows.iter().filter(|row| paper(row).is_some()).map(|row| row.spread.ops_per_s() / reads).fold(0.0, f64::max);
    let comparison = if times >= 9.5 { Comparison::Reproduced } else { Comparison::Worse };
    Verdict::new(comparison, format!("ten replicas serve {times:.1} times the reads of one (paper: 10 times)"))
}
