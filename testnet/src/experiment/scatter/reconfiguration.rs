//! Times that groups take to change, as distributions: members that fail, members that join, splits and merges (Scatter §7.1.3,
//! Fig. 12).
//!
//! Peers die one after the other and are replaced; then leaders are asked to merge their groups and to split them. A change counts from
//! its proposal by the leader until the leader knows that it is decided. The time that members copy is no part of it.

use std::time::Duration;

use node::{AdminRequest, Input, Policies};
use overlay::time::Time;

use super::timed::{Change, Timed};
use super::{PLANET, ms};
use crate::churn::quantiles;
use crate::experiment::options::{ExperimentOptions, Say};
use crate::experiment::registry::Experiment;
use crate::experiment::results::{Results, curves_name};
use crate::experiment::table::{Comparison, ExperimentOutcome, Table, Verdict};
use crate::parallel::in_parallel;
use crate::picture::{Chart, Line};
use crate::rng::Rng;
use crate::sim::World;
use crate::study::{Study, mean};

/// Figure 12.
pub const EXPERIMENT: Experiment = Experiment {
    name: NAME,
    paper: "Scatter Fig. 12, Harmony Fig. 7",
    about: "How long groups take to change: random joins and leaders against joins and leaders chosen by latency",
    run: |options, say| experiment(&ReconfigurationSetting::new(options), options, say),
};

const NAME: &str = "reconfiguration-cdf";

/// The two sets of policies: their name, the policy of joins, and the policy of leaders.
const POLICIES: [(&str, &str, &str); 2] = [("random", "random", "anybody"), ("latency", "latency", "agreement")];
/// The mean life of a peer while peers die.
pub(super) const MEAN_LIFE: Duration = Duration::from_secs(90);
/// Interval between two requests to one peer: a group of nine is asked every other second.
const REQUEST_EVERY: Duration = Duration::from_secs(18);
/// Time from a death until the new peer starts.
const REPLACED_AFTER: Duration = Duration::from_millis(200);
/// Number of points of a curve.
const POINTS: u32 = 20;

/// The parameters of a run.
#[derive(Clone)]
pub(super) struct ReconfigurationSetting {
    pub study: Study,
    /// A phase ends once there are so many of each of its changes,
    pub wanted: usize,
    /// or after so long.
    pub time_max: Duration,
}

impl ReconfigurationSetting {
    fn new(options: &ExperimentOptions) -> ReconfigurationSetting {
        let peers = options.size.pick(60, 60, 840);
        let study = Study {
            settle: Duration::from_secs(options.size.pick(80, 100, 200)),
            members: (4, 13),
            ..Study::new(options.seed, peers, None)
        };
        ReconfigurationSetting {
            study,
            wanted: options.size.pick(80, 1_000, 10_000),
            time_max: Duration::from_secs(options.size.pick(120, 700, 3_600)),
        }
    }
}

impl ReconfigurationSetting {
    /// Returns the parameters as a report prints them.
    pub(super) fn parameters(&self) -> Vec<(&'static str, String)> {
        let (fewest, most) = self.study.members;
        vec![
            ("peers", self.study.peers.to_string()),
            ("members of a group", format!("{fewest} to {most}")),
            ("mean life", format!("{} s", MEAN_LIFE.as_secs())),
            ("wanted of each change", self.wanted.to_string()),
        ]
    }
}

/// The changes that were seen under one set of policies.
struct SeenChanges {
    policies: &'static str,
    changes: Vec<(Change, Duration)>,
}

impl SeenChanges {
    fn of(&self, change: Change) -> Vec<Duration> {
        self.changes.iter().filter(|(seen, _)| *seen == change).map(|(_, took)| *took).collect()
    }
}

fn experiment(
    setting: &ReconfigurationSetting,
    options: &ExperimentOptions,
    say: Say<'_>,
) -> Result<ExperimentOutcome, String> {
    let runs = in_parallel(options.jobs, &POLICIES, |(name, join, lead)| {
        let changes = run(setting, join, lead, &|line| say(&format!("{name}: {line}")))?;
        Ok(SeenChanges { policies: name, changes })
    });
    let runs: Vec<SeenChanges> = runs.into_iter().collect::<Result<_, String>>()?;
    let mut table = Table::new(&["policies", "change", "count", "p10_ms", "p50_ms", "p90_ms", "mean_ms", "paper"]);
    let mut curves = Table::new(&["policies", "change", "share", "ms"]);
    for seen in &runs {
        for change in Change::ALL {
            let all = seen.of(change);
            let head = [seen.policies.to_owned(), change.name().to_owned()];
            let times = quantiles(&all, [0.1, 0.5, 0.9]).map(ms);
            let row = head.clone().into_iter().chain([all.len().to_string()]).chain(times);
            let paper = if seen.policies == "latency" { "to the left of random" } else { "" };
            table.push(row.chain([ms(mean(&all)), paper.into()]).collect());
            for (share, took) in curve(&all) {
                curves.push(head.clone().into_iter().chain([format!("{share:.2}"), ms(took)]).collect());
            }
        }
    }
    Ok(ExperimentOutcome {
        parameters: setting.parameters(),
        models: vec![PLANET.into()],
        table,
        curves: Some(curves),
        charts: runs.iter().map(chart).collect(),
        verdict: verdict(&runs),
    })
}

/// Runs a network under these policies, and returns the changes of its groups.
pub(super) fn run(
    setting: &ReconfigurationSetting,
    join: &str,
    lead: &str,
    say: &dyn Fn(&str),
) -> Result<Vec<(Change, Duration)>, String> {
    let mut policies = Policies::default();
    for (decision, name) in [("join", join), ("lead", lead)] {
        policies.choose(decision, name).map_err(|why| why.to_string())?;
    }
    let world = World::new(Study { policies, ..setting.study.clone() }.scenario());
    let rng = Rng::new(setting.study.seed, "changes");
    let mut run = ReconfigurationRun { world, rng, changes: Vec::new(), requests: 0 };
    run.world.run_for(setting.study.settle);
    for phase in [Phase::Churn, Phase::Requests] {
        run.go_on(phase, setting, say)?;
    }
    Ok(run.all())
}

/// Phases of a run: first peers die, so that all of its peers have joined under its policies; then groups are reformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Churn,
    Requests,
}

impl Phase {
    /// Returns the time between two events in a network of this number of peers.
    fn every(self, peers: usize) -> Duration {
        (if self == Phase::Churn { MEAN_LIFE } else { REQUEST_EVERY }) / peers.max(1) as u32
    }

    /// Returns the changes that the phase causes.
    fn changes(self) -> [Change; 2] {
        if self == Phase::Churn { [Change::Failure, Change::Join] } else { [Change::Split, Change::Merge] }
    }
}

/// A network under way.
struct ReconfigurationRun {
    world: World<Timed>,
    rng: Rng,
    /// Changes that peers saw before they died.
    changes: Vec<(Change, Duration)>,
    requests: u64,
}

impl ReconfigurationRun {
    /// Goes on until the wanted number of changes of the phase is reached, or its time is over.
    fn go_on(&mut self, phase: Phase, setting: &ReconfigurationSetting, say: &dyn Fn(&str)) -> Result<(), String> {
        let (begun, mut said) = (self.world.now(), self.world.now());
        while !self.has_enough(phase, setting.wanted) && self.world.now().since(begun) < setting.time_max {
            self.world.run_for(phase.every(self.world.hosts()));
            if let Some(failure) = self.world.failure() {
                return Err(failure.to_string());
            }
            match phase {
                Phase::Churn => self.replace_one(),
                Phase::Requests => self.request(),
            }
            if self.world.now().since(said) >= Duration::from_secs(60) {
                said = self.world.now();
                say(&self.progress());
            }
        }
        Ok(())
    }

    fn hosts(&self) -> impl Iterator<Item = &Timed> {
        (0..self.world.hosts()).filter_map(|host| self.world.host(host))
    }

    fn all(&self) -> Vec<(Change, Duration)> {
        self.changes.iter().chain(self.hosts().flat_map(Timed::changes)).copied().collect()
    }

    fn has_enough(&self, phase: Phase, wanted: usize) -> bool {
        let all = self.all();
        phase.changes().iter().all(|change| all.iter().filter(|(seen, _)| seen == change).count() >= wanted)
    }

    fn progress(&self) -> String {
        let all = self.all();
        let count = |change: &Change| all.iter().filter(|(seen, _)| seen == change).count();
        let counts: Vec<String> =
            Change::ALL.iter().map(|change| format!("{} {}", count(change), change.name())).collect();
        format!("{:>6.0} s: {}", self.world.now().since(Time(0)).as_secs_f64(), counts.join(", "))
    }

    /// Asks the leader of a group, drawn at random, to merge it with its successor if both together are not too large, else to split it.
    fn request(&mut self) {
        let group = |host: usize| self.world.host(host)?.node().group().filter(|group| group.log().leads());
        let leaders: Vec<usize> = (0..self.world.hosts()).filter(|host| group(*host).is_some()).collect();
        let Some(host) = (!leaders.is_empty()).then(|| *self.rng.pick(&leaders)) else { return };
        let Some(state) = group(host).map(group::Group::state) else { return };
        let (own, most) = (state.members.len(), self.world.scenario.members.1 as usize);
        let successor = state.transactions.successor().map(|other| other.nodes().count());
        let request = match successor.is_some_and(|successor| own + successor <= most) {
            true => AdminRequest::Merge,
            false if own > most / 2 => AdminRequest::Split { at: None, first: Vec::new() },
            false => return,
        };
        self.requests += 1;
        let input = Input::AdminRequest { number: self.requests, group: state.id, request };
        self.world.hand(host, input);
    }

    /// Replaces a peer, drawn at random, if its group can lose it.
    fn replace_one(&mut self) {
        let host = self.rng.below(self.world.hosts() as u64) as usize;
        if self.world.is_ready(host) {
            self.changes.extend(self.world.host(host).map_or(&[][..], Timed::changes));
            self.world.replace(host, REPLACED_AFTER);
        }
    }
}

/// Returns the points of the distribution: shares, and the longest time of each share.
fn curve(all: &[Duration]) -> Vec<(f64, Duration)> {
    let share = |point: u32| f64::from(point) / f64::from(POINTS);
    (0..=POINTS).map(|point| (share(point), quantiles(all, [share(point)])[0])).collect()
}

fn chart(seen: &SeenChanges) -> Chart {
    let line = |change: Change| Line {
        name: change.name().into(),
        points: curve(&seen.of(change)).into_iter().map(|(share, took)| (took.as_secs_f64() * 1e3, share)).collect(),
        dashed: false,
    };
    Chart {
        title: format!("joins and leaders by policy: {}", seen.policies),
        across: "milliseconds".into(),
        up: "share of changes".into(),
        lines: Change::ALL.map(line).into(),
        ..Chart::default()
    }
}

/// Compares the medians: all four should be faster by latency.
fn verdict(runs: &[SeenChanges]) -> Verdict {
    let medians = |change: Change| {
        let all: Vec<f64> = runs.iter().map(|seen| quantiles(&seen.of(change), [0.5])[0].as_secs_f64() * 1e3).collect();
        (all.first().copied().unwrap_or(0.0), all.last().copied().unwrap_or(0.0))
    };
    let all = Change::ALL.map(|change| (change, medians(change)));
    let is_faster = all.iter().all(|(_, (random, latency))| latency < random);
    let comparison = if is_faster { Comparison::Reproduced } else { Comparison::Worse };
    let said = all.map(|(change, (random, latency))| format!("{} {random:.0} → {latency:.0} ms", change.name()));
    Verdict::new(comparison, format!("medians from random to latency: {} (paper: all four faster)", said.join(", ")))
}

/// Times of a change of members after a failure, in equal shares: this experiment by latency, quick, seed 1.
const MEASURED_MS: [u64; 10] = [76, 106, 109, 122, 133, 161, 187, 275, 280, 295];

/// Returns the times that groups took to remove a member, in equal shares, and their source: the results of this experiment in the
/// directory for files, if there are any; otherwise the known ones.
///
/// # Errors
/// If the file makes no sense.
pub(super) fn repair_times(options: &ExperimentOptions) -> Result<(Vec<Duration>, String), String> {
    let file = options.out.as_ref().map(|directory| directory.join(curves_name(NAME)));
    let Some(file) = file.filter(|file| file.exists()) else {
        return Ok((MEASURED_MS.map(Duration::from_millis).into(), format!("an earlier run of {NAME}")));
    };
    let said = |why: String| format!("{}: {why}", file.display());
    let text = std::fs::read_to_string(&file).map_err(|error| said(error.to_string()))?;
    let results = Results::parse(&text).map_err(said)?;
    let is_meant = |row: &usize| {
        let value = |column| results.table.value(*row, column);
        value("policies") == Some("latency") && value("change") == Some(Change::Failure.name())
    };
    let time = |row| results.table.value(row, "ms").and_then(|ms| ms.parse::<u64>().ok()).map(Duration::from_millis);
    let times: Option<Vec<Duration>> = (0..results.table.rows.len()).filter(is_meant).map(time).collect();
    let times = times.filter(|times| !times.is_empty()).ok_or_else(|| said("there are no times of failures".into()))?;
    Ok((times, format!("the {NAME} of seed {}, size {}", results.seed, results.size)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::options::Scale;
    use crate::study::Places;

    /// In one cluster, where all is fast: each change is seen, and takes some delays of messages.
    #[test]
    fn all_changes_are_timed() {
        let options = ExperimentOptions { size: Scale::Quick, seed: 1, jobs: 2, out: None };
        let mut setting = ReconfigurationSetting::new(&options);
        (setting.wanted, setting.time_max) = (3, Duration::from_secs(150));
        setting.study = Study {
            peers: 16,
            places: Places::Cluster,
            settle: Duration::from_secs(25),
            members: (2, 6),
            ..setting.study
        };
        let outcome = experiment(&setting, &options, &|_| {}).expect("no invariant is broken");
        assert_eq!(outcome.table.rows.len(), 8);
        for row in 0..8 {
            let value = |column| outcome.table.value(row, column).and_then(|value| value.parse::<f64>().ok()).unwrap();
            assert!(value("count") >= 3.0 && value("p50_ms") < 50.0, "{}", outcome.table);
        }
        let curves = outcome.curves.expect("there are curves");
        assert_eq!(curves.rows.len(), 8 * (POINTS as usize + 1));
    }

    #[test]
    fn times_of_repair_are_known_or_read() {
        let directory = std::env::temp_dir().join(format!("scatter-repair-{}", std::process::id()));
        let options = ExperimentOptions { size: Scale::Quick, seed: 1, jobs: 1, out: Some(directory.clone()) };
        assert_eq!(repair_times(&options).unwrap().0.len(), MEASURED_MS.len());
        let csv = "# experiment: x\n# seed: 7\n# size: quick\npolicies,change,share,ms\nlatency,failure,0.5,80\nlatency,join,0.5,90\n";
        crate::file::write_text(&directory, &curves_name(NAME), csv).unwrap();
        let (times, source) = repair_times(&options).unwrap();
        assert_eq!(times, [Duration::from_millis(80)]);
        assert!(source.contains("seed 7"), "{source}");
        crate::file::write_text(&directory, &curves_name(NAME), "# experiment: x\na\n1\n").unwrap();
        assert!(repair_times(&options).unwrap_err().contains("no times of failures"));
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
