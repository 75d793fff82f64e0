//! Skew between shards that comes from random arrivals alone (fRSM §2.3, Fig. 3).
//!
//! A model without a protocol: requests arrive as a Poisson process, each at a shard drawn at random, and each shard serves one after
//! another. At each arrival, the most outstanding requests of a shard are divided by the mean of all shards.

use std::collections::VecDeque;
use std::time::Duration;

use crate::experiment::options::{ExperimentOptions, Say};
use crate::experiment::registry::Experiment;
use crate::experiment::table::{Comparison, ExperimentOutcome, Table, Verdict};
use crate::picture::{Chart, Line};
use crate::rng::Rng;

/// Figure 3.
pub const EXPERIMENT: Experiment = Experiment {
    name: "shard-skew",
    paper: "fRSM Fig. 3",
    about: "Most outstanding requests of a shard divided by the mean, with random arrivals at 2, 4 and 6 shards",
    run: |options, _: Say<'_>| Ok(experiment(options.size.pick(200_000, 2_000_000, 20_000_000), options)),
};

/// Numbers of shards.
const SHARDS: [usize; 3] = [2, 4, 6];
/// Time that a shard takes for a request, and the share of its time that it is busy.
const SERVICE: Duration = Duration::from_micros(100);
const BUSY: f64 = 0.8;
/// Number of points of a curve.
const POINTS: usize = 50;

/// Returns the skews at the arrivals at which some request is outstanding, the smallest first.
fn skews(shards: usize, arrivals: usize, seed: u64) -> Vec<f64> {
    let mut rng = Rng::new(seed, "shard skew");
    let service = SERVICE.as_secs_f64();
    let rate = BUSY * shards as f64 / service;
    // By shard: the times at which outstanding requests will be done.
    let mut outstanding: Vec<VecDeque<f64>> = vec![VecDeque::new(); shards];
    let (mut now, mut all) = (0.0, Vec::new());
    for _ in 0..arrivals {
        now -= rng.positive_fraction().ln() / rate;
        for shard in &mut outstanding {
            while shard.front().is_some_and(|done| *done <= now) {
                shard.pop_front();
            }
        }
        let sum: usize = outstanding.iter().map(VecDeque::len).sum();
        if sum > 0 {
            let most = outstanding.iter().map(VecDeque::len).max().unwrap_or(0);
            all.push(most as f64 * shards as f64 / sum as f64);
        }
        let shard = &mut outstanding[rng.below(shards as u64) as usize];
        let begins = shard.back().copied().unwrap_or(now);
        shard.push_back(begins + service);
    }
    all.sort_by(f64::total_cmp);
    all
}

/// Returns the skew below which this share of `all` lies.
fn quantile(all: &[f64], share: f64) -> f64 {
    let last = all.len().saturating_sub(1);
    all.get((share * last as f64).round() as usize).copied().unwrap_or(0.0)
}

fn experiment(arrivals: usize, options: &ExperimentOptions) -> ExperimentOutcome {
    let all = SHARDS.map(|shards| (shards, skews(shards, arrivals, options.seed)));
    let mut table = Table::new(&["shards", "p50", "p90", "p99", "mean", "paper"]);
    for (shards, skews) in &all {
        let mut row = vec![shards.to_string()];
        row.extend([0.5, 0.9, 0.99].map(|share| format!("{:.2}", quantile(skews, share))));
        row.push(format!("{:.2}", mean(skews)));
        row.push("grows with the shards".into());
        table.push(row);
    }
    let line = |(shards, skews): &(usize, Vec<f64>)| {
        let share = |point: usize| point as f64 / POINTS as f64;
        let points = (0..=POINTS).map(|point| (quantile(skews, share(point)), share(point))).collect();
        Line { name: format!("{shards} shards"), points, dashed: false }
    };
    ExperimentOutcome {
        parameters: vec![
            ("arrivals", arrivals.to_string()),
            ("time of a request", format!("{SERVICE:?}")),
            ("busy", format!("{:.0} %", 100.0 * BUSY)),
        ],
        models: vec!["all of this is one: queues that random requests join, without a protocol; the paper does not give its load".into()],
        table,
        curves: None,
        charts: vec![Chart {
            title: "skew at the arrivals".into(),
            across: "most ÷ mean".into(),
            up: "share of arrivals".into(),
            lines: all.iter().map(line).collect(),
            ..Chart::default()
        }],
        verdict: verdict(&all),
    }
}

fn mean(all: &[f64]) -> f64 {
    all.iter().sum::<f64>() / all.len().max(1) as f64
}

fn verdict(all: &[(usize, Vec<f64>)]) -> Verdict {
    let medians: Vec<f64> = all.iter().map(|(_, skews)| quantile(skews, 0.5)).collect();
    let grows = medians.windows(2).all(|pair| pair[0] < pair[1]);
    let comparison = if grows { Comparison::Reproduced } else { Comparison::Worse };
    let said: Vec<String> =
        all.iter().zip(&medians).map(|((shards, _), median)| format!("{median:.2} with {shards} shards")).collect();
    let why = format!(
        "at the median the fullest shard has this many times the mean of outstanding requests: {} (paper: grows with the shards, shown \
         without numbers)",
        said.join(", ")
    );
    Verdict::new(comparison, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::options::Scale;

    #[test]
    fn the_skew_grows_with_the_shards() {
        let options = ExperimentOptions { size: Scale::Quick, seed: 1, jobs: 1, out: None };
        let outcome = experiment(20_000, &options);
        let value = |row| outcome.table.value(row, "p50").and_then(|value| value.parse::<f64>().ok()).unwrap();
        assert!(value(0) < value(1) && value(1) < value(2), "{}", outcome.table);
        assert!(
            skews(2, 1_000, 1).iter().all(|skew| (1.0..=2.0).contains(skew)),
            "two shards have at most twice the mean"
        );
    }
}
