//! `scatter-testnet sim --churn`: a simulated network whose peers die and are replaced.

use std::path::PathBuf;
use std::time::Duration;

use node::{Node, Policies};
use testnet::churn::Lives;
use testnet::parallel::in_parallel;
use testnet::study::{Figures, HEADING, Places, Study, run, safe_sizes};

/// Arguments of the churn study.
#[derive(Clone, Debug, clap::Args)]
pub struct StudyArgs {
    /// Run a churn study instead of a search for faults: peers live for random times, die for good, and are replaced by
    /// new peers
    #[arg(long, value_enum, conflicts_with_all = ["small", "members", "ring", "switch", "torn", "trace", "history"])]
    churn: Option<LifetimeKind>,
    /// Mean lifetime of a peer: 100, 100s, 5m, 2h
    #[arg(long, value_name = "TIME", default_value = "180s", value_parser = super::parse_time, requires = "churn")]
    lifetime: Duration,
    /// Duration of the churn before the first death, in a model without a network; 0s: all peers are new [default: 0s,
    /// and ten lifetimes with --churn pareto]
    #[arg(long, value_name = "TIME", value_parser = super::parse_time, requires = "churn")]
    aged: Option<Duration>,
    /// Latencies between the peers
    #[arg(long, value_enum, default_value_t = LatencyKind::Planetlab, requires = "churn")]
    latency: LatencyKind,
    /// Time from the first death until operations are counted
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = super::parse_time, requires = "churn")]
    warm_up: Duration,
    /// Updates per second, each followed by a fetch through another peer
    #[arg(long, default_value_t = 50.0, value_parser = rate, requires = "churn")]
    rate: f64,
    /// Number of keys
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000), requires = "churn")]
    keys: u32,
    /// Minimum number of members of a group [default: the least size that keeps its majority with seven nines until
    /// dead members are removed; 7 with --churn none]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100), requires = "churn")]
    min_group: Option<u32>,
    /// Maximum number of members of a group [default: one less than twice the least size; 15 with --churn none]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=200), requires = "churn")]
    max_group: Option<u32>,
    /// Silence after which a member is removed
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = super::parse_time, requires = "churn")]
    exclude_after: Duration,
    /// Policies of the peers, DECISION=NAME; may be repeated, as in `scatter run --policy`
    #[arg(long, value_name = "DECISION=NAME", value_delimiter = ',', requires = "churn")]
    policy: Vec<String>,
    /// Directory in which churn.csv is written, with one line for each seed
    #[arg(long, value_name = "DIR", requires = "churn")]
    out: Option<PathBuf>,
}

/// How long peers live.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum LifetimeKind {
    /// Exponential lifetimes, which the papers call Poisson
    Poisson,
    /// Pareto lifetimes of shape 1.1: most peers die young
    Pareto,
    /// For ever
    None,
}

/// Where the peers stand.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum LatencyKind {
    /// In one cluster
    Cluster,
    /// In three sites, 38 to 82 ms apart
    Sites,
    /// As on PlanetLab: a synthetic model
    Planetlab,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().map_err(|_| "the rate must be a number")?;
    if rate > 0.0 && rate <= 100_000.0 { Ok(rate) } else { Err("the rate must be above 0 and at most 100000".into()) }
}

impl StudyArgs {
    /// Returns whether a study is asked for.
    pub fn is_wanted(&self) -> bool {
        self.churn.is_some()
    }

    /// Returns the study of one seed.
    ///
    /// # Errors
    /// A policy that does not exist, or limits of groups that contradict each other.
    pub fn study(&self, seed: u64, peers: usize, time: Duration) -> Result<Study, String> {
        let mut policies = Policies::default();
        for policy in &self.policy {
            let (decision, name) = policy.split_once('=').ok_or_else(|| format!("--policy {policy}: DECISION=NAME"))?;
            policies.choose(decision, name).map_err(|why| format!("--policy {policy}: {why}"))?;
        }
        let lives = match self.churn {
            Some(LifetimeKind::Poisson) => Some(Lives::Exponential(self.lifetime)),
            Some(LifetimeKind::Pareto) => Some(Lives::pareto(self.lifetime)),
            Some(LifetimeKind::None) | None => None,
        };
        let study = Study::new(seed, peers, lives);
        let (least, greatest) = lives.map_or(study.members, |lives| safe_sizes(lives, self.exclude_after, seed));
        let (least, greatest) = (self.min_group.unwrap_or(least), self.max_group.unwrap_or(greatest));
        if least > greatest || node::can_flap(least as usize, greatest as usize) {
            return Err(format!(
                "--min-group {least} and --max-group {greatest}: the halves of a group above --max-group would be \
                below --min-group"
            ));
        }
        // Many Pareto lives end soon after the shortest one: peers that are all new would die together.
        let aged = self.aged.unwrap_or(match self.churn {
            Some(LifetimeKind::Pareto) => self.lifetime * Lives::WARM,
            _ => Duration::ZERO,
        });
        let places = match self.latency {
            LatencyKind::Cluster => Places::Cluster,
            LatencyKind::Sites => Places::Sites,
            LatencyKind::Planetlab => Places::Planet,
        };
        Ok(Study {
            places,
            warm_up: self.warm_up,
            time,
            aged,
            rate: self.rate,
            keys: self.keys as usize,
            members: (least, greatest),
            exclude_after: self.exclude_after,
            policies,
            ..study
        })
    }

    /// Runs these studies on `jobs` cores, and prints their figures.
    ///
    /// # Errors
    /// A run that breaks an invariant, a file that cannot be written, or an inconsistent fetch.
    pub fn run(&self, studies: &[Study], jobs: usize, say: &(dyn Fn(&str) + Sync)) -> Result<(), String> {
        let say_of = |study: &Study, line: &str| match studies.len() {
            1 => say(line),
            _ => say(&format!("seed {}: {line}", study.seed)),
        };
        let one = |study: &Study| -> Result<Figures, String> {
            let (least, greatest) = study.members;
            say_of(study, &format!("groups have {least} to {greatest} members"));
            let figures = run::<Node>(study, &mut |line| say_of(study, line))
                .map_err(|why| format!("seed {}: {why}", study.seed))?;
            figures.to_string().lines().for_each(|line| say_of(study, line));
            Ok(figures)
        };
        let all: Vec<Figures> = in_parallel(jobs, studies, one).into_iter().collect::<Result<_, _>>()?;
        if let Some(directory) = &self.out {
            let lines: String = all.iter().map(|figures| figures.csv() + "\n").collect();
            testnet::file::write_text(directory, "churn.csv", &format!("{HEADING}\n{lines}"))?;
        }
        match all.iter().any(|figures| !figures.load.wrong.is_empty()) {
            true => Err("a fetch was inconsistent".into()),
            false => Ok(()),
        }
    }
}
