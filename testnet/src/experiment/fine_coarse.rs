//! Fine against coarse: one state machine for each key, or one for each sub-range (fRSM §4.3, figures 8 to 10).
//!
//! The paper's load: 43 % reads, values of 512 bytes, keys by Zipf's law (0.99) or uniform; one of a hundred operations is slow.
//! Its setting: three machines, twelve shards, one to twelve cores. One difference: there a coarse shard commits a batch before it
//! begins the next, here its writes are under way together and only keep their order.

use std::time::Duration;

use load::Distribution;

use super::cores::{CoresMeasured, CoresSetting, run};
use super::options::{ExperimentOptions, Say};
use super::registry::Experiment;
use super::table::{Comparison, ExperimentOutcome, Table, Verdict};
use crate::parallel::in_parallel;
use crate::picture::{Chart, Line as Curve};

/// The experiment.
pub const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "fine-coarse",
    paper: "fRSM Fig. 8-10",
    about: "A state machine for each key against one for each sub-range, by cores",
    run: fine_coarse,
}];

/// Cores of a machine, as in figure 10.
const CORES: [usize; 5] = [1, 2, 4, 6, 12];
/// Operations under way for each core, where the highest throughput is measured.
const CLIENTS: usize = 128;
/// The paper's ratio of the throughputs of fine and coarse at twelve cores, skewed and uniform.
const PAPER: [f64; 2] = [5.6, 2.3];
/// Part of the paper's ratio within which a ratio counts as the same.
const CLOSE: f64 = 0.15;

/// One line: the same load on fine and coarse.
#[derive(Clone, Copy, Debug)]
pub struct FineCoarseRow {
    /// Whether keys follow Zipf's law, instead of a uniform distribution.
    pub skewed: bool,
    /// Cores of each machine.
    pub cores: usize,
    /// Operations under way.
    pub clients: usize,
    /// Results where each key is independent.
    pub fine: CoresMeasured,
    /// Results where writes keep their order.
    pub coarse: CoresMeasured,
}

/// Measures one line.
pub fn line(skewed: bool, cores: usize, clients: usize, lasts: Duration, seed: u64) -> FineCoarseRow {
    let keys = if skewed { Distribution::Zipf { exponent: 0.99 } } else { Distribution::Uniform };
    let measure = |coarse| {
        run(CoresSetting {
            coarse,
            cores,
            keys,
            key_count: 100_000,
            clients,
            value_bytes: 512,
            reads: 0.43,
            slow: 0.01,
            lasts,
            seed,
        })
    };
    FineCoarseRow { skewed, cores, clients, fine: measure(false), coarse: measure(true) }
}

impl FineCoarseRow {
    /// Returns the ratio of the throughputs of fine and coarse.
    pub fn ratio(&self) -> f64 {
        self.fine.ops_per_s / self.coarse.ops_per_s
    }

    /// Returns the paper's ratio where it gives one: twelve cores, as many clients as they can serve.
    fn paper(&self) -> Option<f64> {
        (self.cores == 12 && self.clients == CLIENTS * 12).then_some(PAPER[usize::from(!self.skewed)])
    }

    fn row(&self) -> Vec<String> {
        let ms = |time: Duration| format!("{:.2}", time.as_secs_f64() * 1e3);
        let mut row = vec![if self.skewed { "zipf" } else { "uniform" }.to_owned()];
        row.extend([self.cores.to_string(), self.clients.to_string()]);
        row.extend([self.fine.ops_per_s, self.coarse.ops_per_s].map(|ops| format!("{ops:.0}")));
        row.extend([self.fine.p50, self.coarse.p50, self.fine.p99, self.coarse.p99].map(ms));
        row.push(format!("{:.2}", self.ratio()));
        row.push(self.paper().map_or_else(String::new, |paper| format!("{paper:.1}")));
        row
    }
}

/// Measures the highest throughput at each number of cores, and fewer clients at twelve cores.
fn fine_coarse(options: &ExperimentOptions, _: Say<'_>) -> Result<ExperimentOutcome, String> {
    let lasts = options.lasts(Duration::from_millis(250));
    let loads = CORES.map(|cores| (cores, CLIENTS * cores)).into_iter().chain([(12, 24), (12, 96), (12, 384)]);
    let settings: Vec<(bool, (usize, usize))> =
        [true, false].into_iter().flat_map(|skewed| loads.clone().map(move |load| (skewed, load))).collect();
    let lines = in_parallel(options.jobs, &settings, |(skewed, (cores, clients))| {
        line(*skewed, *cores, *clients, lasts, options.seed)
    });
    let mut table = Table::new(&[
        "keys",
        "cores",
        "clients",
        "fine_ops_per_s",
        "coarse_ops_per_s",
        "fine_p50_ms",
        "coarse_p50_ms",
        "fine_p99_ms",
        "coarse_p99_ms",
        "ratio",
        "paper",
    ]);
    lines.iter().for_each(|line| table.push(line.row()));
    Ok(ExperimentOutcome {
        parameters: vec![
            ("measured", format!("{lasts:?}")),
            ("keys", "100000 of 512 bytes".into()),
            ("reads", "43 %".into()),
        ],
        models: vec!["cores, disks and wires in virtual time take fixed times; the group is real".into()],
        table,
        curves: None,
        charts: [true, false].map(|skewed| chart(&lines, skewed)).into(),
        verdict: verdict(&lines),
    })
}

fn chart(lines: &[FineCoarseRow], skewed: bool) -> Chart {
    let curve = |name: &str, of: fn(&FineCoarseRow) -> f64| {
        let points = lines.iter().filter(|line| line.skewed == skewed && line.clients == CLIENTS * line.cores);
        Curve { name: name.into(), points: points.map(|line| (line.cores as f64, of(line))).collect(), dashed: false }
    };
    Chart {
        title: if skewed { "keys by Zipf's law" } else { "uniform keys" }.into(),
        across: "cores".into(),
        up: "operations a second".into(),
        dots: true,
        lines: vec![curve("fine", |line| line.fine.ops_per_s), curve("coarse", |line| line.coarse.ops_per_s)],
        ..Chart::default()
    }
}

/// Compares the ratios at twelve cores with the paper's. A coarse shard there commits a batch before it begins the next, so the paper's
/// ratios are larger than these can be.
fn verdict(lines: &[FineCoarseRow]) -> Verdict {
    let known: Vec<(f64, f64)> = lines.iter().filter_map(|line| Some((line.ratio(), line.paper()?))).collect();
    let compared: Vec<String> = known.iter().map(|(ours, paper)| format!("{ours:.1} (paper {paper:.1})")).collect();
    let is_close = known.iter().all(|(ours, paper)| *ours >= paper * (1.0 - CLOSE));
    let comparison = if is_close { Comparison::Reproduced } else { Comparison::Worse };
    let why = format!(
        "fine has {} times the throughput of coarse at twelve cores, skewed and uniform; the paper's coarse store waits for each \
         batch, and this one keeps only the order",
        compared.join(" and ")
    );
    Verdict::new(comparison, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slow operation delays later ones in its sub-range, and the fullest sub-range has at most one core.
    #[test]
    fn fine_does_more_with_twelve_cores() {
        let [skewed, uniform] = [true, false].map(|skewed| line(skewed, 12, 384, Duration::from_millis(60), 1));
        assert!(skewed.ratio() > uniform.ratio() && uniform.ratio() > 1.0, "{skewed:?}\n{uniform:?}");
        assert!(skewed.fine.p99 < skewed.coarse.p99, "{skewed:?}");
    }
}
