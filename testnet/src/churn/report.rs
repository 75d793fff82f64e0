//! The report of a run.

use std::fmt;
use std::time::Duration;

use super::clients::ChurnCounts;
use super::population::Population;

/// The figures of a run.
#[derive(Clone, Debug)]
pub struct ChurnReport {
    counts: ChurnCounts,
    deaths: u64,
    joins: Vec<Duration>,
    lasted: Duration,
    lost: Vec<String>,
    keys: usize,
}

impl ChurnReport {
    pub(super) fn new(
        counts: ChurnCounts,
        population: &Population<'_>,
        lasted: Duration,
        lost: Vec<String>,
        keys: usize,
    ) -> ChurnReport {
        ChurnReport { counts, deaths: population.deaths, joins: population.joins.clone(), lasted, lost, keys }
    }

    /// Returns the share of operations that failed, in percent.
    pub fn failed_percent(&self) -> f64 {
        percent(self.counts.failed(), self.counts.all())
    }

    /// Returns whether every read was right, and every key has its value at the end.
    pub fn is_right(&self) -> bool {
        self.counts.wrong.is_empty() && self.counts.strange.is_empty() && self.lost.is_empty()
    }

    /// Returns the figures as CSV: a line of names and a line of values. Times in seconds.
    pub fn csv(&self) -> String {
        let [median, p99] = quantiles(&self.counts.latencies, [0.5, 0.99]);
        let [join, join_worst] = quantiles(&self.joins, [0.5, 1.0]);
        format!(
            "seconds,deaths,writes,reads,try_again,uncertain,unanswered,failed_reads,errors,failed_percent,wrong,keys,keys_lost,\
             latency_median,latency_p99,joins,join_median,join_worst\n\
             {:.1},{},{},{},{},{},{},{},{},{:.4},{},{},{},{:.4},{:.4},{},{:.2},{:.2}\n",
            self.lasted.as_secs_f64(),
            self.deaths,
            self.counts.writes,
            self.counts.reads,
            self.counts.try_again,
            self.counts.uncertain,
            self.counts.unanswered,
            self.counts.failed_reads,
            self.counts.errors,
            self.failed_percent(),
            self.counts.wrong.len(),
            self.keys,
            self.lost.len(),
            median.as_secs_f64(),
            p99.as_secs_f64(),
            self.joins.len(),
            join.as_secs_f64(),
            join_worst.as_secs_f64(),
        )
    }
}

impl fmt::Display for ChurnReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = &self.counts;
        for (what, lines) in [("wrong", &counts.wrong), ("error", &counts.strange), ("lost", &self.lost)] {
            for line in lines.iter().take(20) {
                writeln!(out, "{what}: {line}")?;
            }
        }
        let [join, join_worst] = quantiles(&self.joins, [0.5, 1.0]);
        writeln!(
            out,
            "{} deaths in {:.0} s; {} newcomers served, after {:.1} s at the median and {:.1} s at worst",
            self.deaths,
            self.lasted.as_secs_f64(),
            self.joins.len(),
            join.as_secs_f64(),
            join_worst.as_secs_f64(),
        )?;
        write!(
            out,
            "{} operations: {:.2} % failed ({} told to try again, {} uncertain, {} unanswered, {} reads, {} errors), {} wrong; \
             {} of {} keys lost",
            counts.all(),
            self.failed_percent(),
            counts.try_again,
            counts.uncertain,
            counts.unanswered,
            counts.failed_reads,
            counts.errors,
            counts.wrong.len(),
            self.lost.len(),
            self.keys,
        )
    }
}

/// Returns a share in percent; 0 of nothing.
pub(super) fn percent(part: u64, all: u64) -> f64 {
    100.0 * part as f64 / all.max(1) as f64
}

/// Returns quantiles, each from 0 to 1; zero of nothing.
pub(crate) fn quantiles<const N: usize>(all: &[Duration], at: [f64; N]) -> [Duration; N] {
    let mut sorted = all.to_vec();
    sorted.sort_unstable();
    let last = sorted.len().saturating_sub(1);
    at.map(|at| sorted.get((at * last as f64).round() as usize).copied().unwrap_or_default())
}
