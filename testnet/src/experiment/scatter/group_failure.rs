//! The probability that a group loses its majority, by the number of its members (Scatter §6.1, Fig. 7).
//!
//! Computed by the formula of `policy::risk`, and by a simulation of members alone: each lives for a drawn time, and is replaced by
//! a new member after the time that detection and a change of members take.

use std::time::Duration;

use policy::risk::{nines, per_hour};

use super::reconfiguration::repair_times;
use crate::churn::Lives;
use crate::experiment::options::{ExperimentOptions, Say};
use crate::experiment::registry::Experiment;
use crate::experiment::table::{Comparison, ExperimentOutcome, Table, Verdict};
use crate::parallel::in_parallel;
use crate::picture::{Chart, Line};
use crate::rng::Rng;
use crate::study::{DETECTION, SAFE, StandingMembers, fails, rate};

/// Figure 7.
pub const EXPERIMENT: Experiment = Experiment {
    name: "group-failure",
    paper: "Scatter Fig. 7",
    about: "How likely a majority of a group dies before repair, by the number of its members, for each window and each hour",
    run: |options, say| experiment(&GroupFailureSetting::new(options)?, options, say),
};

/// The paper's lives, and exponential ones to compare with.
const LIVES: [Lives; 3] = [
    Lives::pareto(Duration::from_secs(100)),
    Lives::pareto(Duration::from_secs(500)),
    Lives::Exponential(Duration::from_secs(100)),
];
/// Members of a group.
const SIZES: std::ops::RangeInclusive<usize> = 1..=15;
/// The paper's group at a mean life of 100 s, and its nines.
const PAPER: (usize, f64) = (9, 7.0);
/// Time that is simulated at once.
const HOUR: Duration = Duration::from_secs(3_600);

/// The parameters of the experiment.
struct GroupFailureSetting {
    /// Times of repair, in equal shares.
    repairs: Vec<Duration>,
    /// Source of these times.
    source: String,
    /// Number of windows that are simulated for each size.
    windows: u32,
    /// Number of hours that are simulated for each size.
    hours: u32,
}

impl GroupFailureSetting {
    fn new(options: &ExperimentOptions) -> Result<GroupFailureSetting, String> {
        let (changes, source) = repair_times(options)?;
        Ok(GroupFailureSetting {
            repairs: changes.into_iter().map(|change| DETECTION + change).collect(),
            source,
            windows: options.size.pick(300_000, 3_000_000, 30_000_000),
            hours: options.size.pick(100, 1_000, 10_000),
        })
    }
}

/// Groups of one size, with members of one kind.
struct GroupFailurePoint {
    lives: Lives,
    size: usize,
    /// Probability within a window, by the formula.
    window: f64,
    /// Probability within a window, simulated.
    window_simulated: f64,
    /// Probability within an hour of disjoint windows, by the formula.
    hour: f64,
    /// Probability within an hour, by the rate at which majorities are lost.
    hour_rate: f64,
    /// Probability within an hour, simulated.
    hour_simulated: f64,
}

fn experiment(
    setting: &GroupFailureSetting,
    options: &ExperimentOptions,
    _: Say<'_>,
) -> Result<ExperimentOutcome, String> {
    let points: Vec<GroupFailurePoint> = LIVES
        .into_iter()
        .flat_map(|lives| {
            let standing = StandingMembers::draw(lives, options.seed);
            // The mean over all times of repair; few of them, as each costs a sum over all members.
            let sizes: Vec<usize> = SIZES.collect();
            let dies: Vec<f64> = setting.repairs.iter().map(|window| standing.dies_within(lives, *window)).collect();
            in_parallel(options.jobs, &sizes, |size| point(setting, lives, *size, &standing, &dies, options.seed))
        })
        .collect();
    let mut table = Table::new(&COLUMNS);
    points.iter().for_each(|point| table.push(point.cells()));
    Ok(ExperimentOutcome {
        parameters: parameters(setting),
        models: vec![
            "all of this is one: members that die independently and are replaced, without a network".into(),
            "an hour is counted as disjoint windows, as peers do, and by the rate at which majorities are lost, which is higher".into(),
        ],
        table,
        curves: None,
        charts: vec![chart(&points)],
        verdict: verdict(&points),
    })
}

fn parameters(setting: &GroupFailureSetting) -> Vec<(&'static str, String)> {
    let mean = setting.repairs.iter().sum::<Duration>().as_secs_f64() / setting.repairs.len().max(1) as f64;
    let (detection, source) = (DETECTION.as_secs(), &setting.source);
    vec![
        ("window", format!("{mean:.2} s on average: {detection} s of detection and {source}")),
        ("population", format!("has renewed itself for {} mean lives", Lives::WARM)),
        ("windows simulated", setting.windows.to_string()),
        ("hours simulated", setting.hours.to_string()),
    ]
}

fn point(
    setting: &GroupFailureSetting,
    lives: Lives,
    size: usize,
    standing: &StandingMembers,
    dies: &[f64],
    seed: u64,
) -> GroupFailurePoint {
    let mean = |of: &dyn Fn(f64, Duration) -> f64| {
        let all = dies.iter().zip(&setting.repairs).map(|(dies, window)| of(*dies, *window));
        all.sum::<f64>() / dies.len().max(1) as f64
    };
    let mut rng = Rng::new(seed ^ size as u64, "group failure");
    GroupFailurePoint {
        lives,
        size,
        window: mean(&|dies, _| fails(size, dies)),
        window_simulated: simulate_windows(setting, size, standing, &mut rng),
        hour: mean(&|dies, window| per_hour(fails(size, dies), window)),
        hour_rate: mean(&|dies, window| -(-HOUR.as_secs_f64() * rate(size, fails(size, dies), window)).exp_m1()),
        hour_simulated: simulate_hours(setting, lives, size, standing, &mut rng),
    }
}

/// Returns the share of windows in which a majority of a group dies.
fn simulate_windows(setting: &GroupFailureSetting, size: usize, standing: &StandingMembers, rng: &mut Rng) -> f64 {
    let lost = (0..setting.windows).filter(|_| {
        let window = *rng.pick(&setting.repairs);
        let dead = (0..size).filter(|_| standing.pick(rng) < window).count();
        size - dead <= size / 2
    });
    lost.count() as f64 / f64::from(setting.windows)
}

/// Returns the share of hours in which a group has no majority at some moment.
fn simulate_hours(
    setting: &GroupFailureSetting,
    lives: Lives,
    size: usize,
    standing: &StandingMembers,
    rng: &mut Rng,
) -> f64 {
    let lost = (0..setting.hours).filter(|_| loses_within_an_hour(setting, lives, size, standing, rng)).count();
    lost as f64 / f64::from(setting.hours)
}

fn loses_within_an_hour(
    setting: &GroupFailureSetting,
    lives: Lives,
    size: usize,
    standing: &StandingMembers,
    rng: &mut Rng,
) -> bool {
    // For each place in the group: whether a member lives there, and the end of that period.
    let mut places: Vec<(bool, Duration)> = (0..size).map(|_| (true, standing.pick(rng))).collect();
    let mut dead = 0;
    loop {
        let Some((lives_there, until)) = places.iter_mut().min_by_key(|(_, until)| *until) else { return true };
        if *until >= HOUR {
            return false;
        }
        match *lives_there {
            true => (dead, *until) = (dead + 1, *until + *rng.pick(&setting.repairs)),
            false => (dead, *until) = (dead - 1, *until + lives.draw(rng)),
        }
        *lives_there = !*lives_there;
        if size - dead <= size / 2 {
            return true;
        }
    }
}

const COLUMNS: [&str; 9] = [
    "lives",
    "members",
    "window_formula",
    "window_simulated",
    "window_nines",
    "hour_windows",
    "hour_rate",
    "hour_simulated",
    "paper",
];

impl GroupFailurePoint {
    fn cells(&self) -> Vec<String> {
        let mut cells = vec![self.lives.to_string(), self.size.to_string()];
        cells.extend([self.window, self.window_simulated].map(|chance| format!("{chance:.1e}")));
        cells.push(format!("{:.1}", nines(self.window)));
        cells.extend([self.hour, self.hour_rate, self.hour_simulated].map(|chance| format!("{chance:.4}")));
        let is_papers = self.size == PAPER.0 && self.lives == LIVES[0];
        cells.push(if is_papers { format!("{:.0} nines; 8-12 members suffice", PAPER.1) } else { String::new() });
        cells
    }
}

fn chart(points: &[GroupFailurePoint]) -> Chart {
    let line = |lives: &Lives| Line {
        name: lives.to_string(),
        points: points
            .iter()
            .filter(|point| point.lives == *lives)
            .map(|point| (point.size as f64, nines(point.window)))
            .collect(),
        dashed: matches!(lives, Lives::Exponential(_)),
    };
    Chart {
        title: "a majority survives until repair".into(),
        across: "members".into(),
        up: "nines, for each window".into(),
        dots: true,
        lines: LIVES.iter().map(line).collect(),
        ..Chart::default()
    }
}

fn verdict(points: &[GroupFailurePoint]) -> Verdict {
    let papers = points.iter().find(|point| point.size == PAPER.0 && point.lives == LIVES[0]);
    let found = papers.map_or(0.0, |point| nines(point.window));
    let safe = |lives: Lives| points.iter().find(|point| point.lives == lives && point.window <= SAFE);
    let safe = LIVES.map(|lives| {
        let size = safe(lives).map_or_else(|| format!("more than {}", SIZES.end()), |point| point.size.to_string());
        format!("{size} ({lives})")
    });
    let comparison = if found >= PAPER.1 { Comparison::Reproduced } else { Comparison::Worse };
    let why = format!(
        "nine members at a Pareto life of 100 s have {found:.1} nines for each window (paper: seven), and seven nines take {} members; the \
         paper does not say how old its members are, and here they are ten mean lives after a cold start, when more than twice as \
         many die as later on",
        safe.join(", ")
    );
    Verdict::new(comparison, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formula and simulation agree where losses are frequent, and an even size is worse than the odd one below it.
    #[test]
    fn formula_and_simulation_agree() {
        let setting = GroupFailureSetting {
            repairs: vec![Duration::from_secs(8), Duration::from_secs(12)],
            source: "as given".into(),
            windows: 30_000,
            hours: 200,
        };
        let options = ExperimentOptions { size: crate::experiment::options::Scale::Quick, seed: 1, jobs: 2, out: None };
        let outcome = experiment(&setting, &options, &|_| {}).expect("nothing can fail");
        let rows = LIVES.len() * SIZES.count();
        assert_eq!(outcome.table.rows.len(), rows);
        let value =
            |row: usize, column: &str| outcome.table.value(row, column).and_then(|value| value.parse::<f64>().ok());
        for row in (0..rows).filter(|row| row % SIZES.count() < 8) {
            let (formula, simulated) = (value(row, "window_formula").unwrap(), value(row, "window_simulated").unwrap());
            let error = (formula / 30_000.0).sqrt();
            assert!((formula - simulated).abs() < 5.0 * error + 1e-4, "row {row}: {formula} and {simulated}");
        }
        // Three and four members at 100 s: an even size is worse.
        assert!(value(3, "window_formula") > value(2, "window_formula"));
        // Seven members that live for 500 s: losses within an hour are as frequent as by the rate, and more frequent than by windows.
        let [windows, rate, simulated] =
            ["hour_windows", "hour_rate", "hour_simulated"].map(|of| value(21, of).unwrap());
        assert!((rate - simulated).abs() < 0.12 && windows < rate / 2.0, "{windows}, {rate} and {simulated}");
    }
}
