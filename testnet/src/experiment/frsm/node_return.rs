//! Return of a member after a crash: the time until it votes, until it serves, and until it holds everything (fRSM appendix B.4,
//! Fig. 24 to 29).
//!
//! One of three members dies and returns with its store. Either nothing was written while it was away, or every key was. A member *votes*
//! once it is in the group again, *serves* once it is the primary of a sub-range, and is *complete* once it holds all data of every
//! sub-range: then reads need no other member (the paper's leader-only mode, which begins after a scan).

use std::time::Duration;

use group::Group;
use group::data::Primary;
use node::Node;

use super::returning::{HOSTS, ReturnSetting, fill, group_of_three, until};
use crate::experiment::options::{ExperimentOptions, Say};
use crate::experiment::registry::Experiment;
use crate::experiment::table::{Comparison, ExperimentOutcome, Table, Verdict};
use crate::parallel::in_parallel;
use crate::picture::{Chart, Line};
use crate::sim::World;

/// Figures 24 to 29.
pub const EXPERIMENT: Experiment = Experiment {
    name: "node-return",
    paper: "fRSM Fig. 24-29",
    about: "Time until a member that returns votes, serves and holds everything, with no key and with all keys to repair",
    run: |options, say| experiment(&NodeReturnSetting::new(options), options, say),
};

/// Size of a value, as in the paper.
const VALUE_BYTES: usize = 8 << 10;
/// Upper limit of a member's copies, in bytes a second.
const TRANSFER: u64 = 64 << 20;
/// Time for which the member is away, at least.
const AWAY: Duration = Duration::from_secs(5);
/// Resolution of the measurement.
const STEP: Duration = Duration::from_millis(1);
/// The member that goes and returns.
const RETURNS: usize = HOSTS - 1;
/// The paper's ratio of a scan with all values to repair to one with none, and its times until a node serves again.
const PAPER_RATIO: f64 = 6.0;
const PAPER_VOTES: Duration = Duration::from_secs(30);
/// Part of the paper's ratio within which a ratio counts as the same.
const CLOSE: f64 = 0.5;

/// The parameters of the experiment.
struct NodeReturnSetting {
    keys: Vec<u64>,
    /// Runs of each point, of which the medians are taken.
    runs: u64,
    seed: u64,
}

impl NodeReturnSetting {
    fn new(options: &ExperimentOptions) -> NodeReturnSetting {
        let keys = options.size.pick(vec![1_000, 4_000], vec![1_000, 4_000, 16_000], vec![10_000, 50_000, 100_000]);
        NodeReturnSetting { keys, runs: 3, seed: options.seed }
    }
}

/// Times of one return.
struct ReturnPoint {
    keys: u64,
    missed_percent: u64,
    votes: Duration,
    serves: Duration,
    complete: Duration,
}

fn own(world: &World<Node>) -> Option<&Group> {
    world.host(RETURNS)?.group()
}

fn is_complete(world: &World<Node>) -> bool {
    let status = world.host(RETURNS).and_then(|node| node.status().group);
    status.is_some_and(|group| !group.primaries.is_empty() && group.complete == group.primaries.len())
}

/// Returns the medians of several runs.
fn measure(setting: &NodeReturnSetting, keys: u64, missed_percent: u64) -> Result<ReturnPoint, String> {
    let runs = (0..setting.runs.max(1)).map(|run| measure_once(setting.seed + run, keys, missed_percent));
    let runs: Vec<ReturnPoint> = runs.collect::<Result<_, String>>()?;
    let median = |of: fn(&ReturnPoint) -> Duration| {
        let mut all: Vec<Duration> = runs.iter().map(of).collect();
        all.sort_unstable();
        all[all.len() / 2]
    };
    Ok(ReturnPoint {
        keys,
        missed_percent,
        votes: median(|point| point.votes),
        serves: median(|point| point.serves),
        complete: median(|point| point.complete),
    })
}

fn measure_once(seed: u64, keys: u64, missed_percent: u64) -> Result<ReturnPoint, String> {
    let group = ReturnSetting {
        value_bytes: VALUE_BYTES,
        transfer_bytes_per_s: TRANSFER,
        service: Duration::ZERO,
        coarse: false,
        seed,
    };
    let mut world = group_of_three(&group)?;
    fill(&mut world, &group, &mut (0..keys))?;
    world.run_for(Duration::from_secs(1));
    let away = world.kill(RETURNS, true);
    // Before writes the group must have noticed: its ranges have other primaries then.
    world.run_for(AWAY);
    fill(&mut world, &group, &mut (0..keys * missed_percent / 100))?;
    let since = world.now();
    world.undo(away);
    let votes = until(&mut world, since, STEP, |world| {
        own(world).is_some_and(|group| group.state().is_member(group.me())) && world.is_ready(RETURNS)
    })?;
    let serves = until(&mut world, since, STEP, |world| {
        own(world).is_some_and(|group| group.primaries().any(Primary::is_serving))
    });
    let complete = until(&mut world, since, STEP, is_complete)?;
    Ok(ReturnPoint { keys, missed_percent, votes, serves: serves?, complete })
}

fn experiment(
    setting: &NodeReturnSetting,
    options: &ExperimentOptions,
    say: Say<'_>,
) -> Result<ExperimentOutcome, String> {
    let all: Vec<(u64, u64)> = setting.keys.iter().flat_map(|keys| [0, 100].map(|missed| (*keys, missed))).collect();
    let points = in_parallel(options.jobs, &all, |(keys, missed)| {
        let point = measure(setting, *keys, *missed)?;
        say(&format!("{keys} keys, {missed} % missed: complete after {:?}", point.complete));
        Ok(point)
    });
    let points: Vec<ReturnPoint> = points.into_iter().collect::<Result<_, String>>()?;
    let mut table = Table::new(&["keys", "mib", "to_repair_percent", "votes_s", "serves_s", "complete_s", "paper"]);
    for point in &points {
        let mib = point.keys as f64 * VALUE_BYTES as f64 / f64::from(1 << 20);
        let mut row = vec![point.keys.to_string(), format!("{mib:.0}"), point.missed_percent.to_string()];
        row.extend([point.votes, point.serves, point.complete].map(|time| format!("{:.3}", time.as_secs_f64())));
        row.push(match point.missed_percent {
            0 => "votes within 30 s; scans six times faster than with all to repair".into(),
            _ => "votes within 30 s, whatever it missed".into(),
        });
        table.push(row);
    }
    Ok(ExperimentOutcome {
        parameters: vec![
            ("members", HOSTS.to_string()),
            ("bytes of a value", VALUE_BYTES.to_string()),
            ("limit of copies", format!("{} MiB a second", TRANSFER >> 20)),
            ("away", format!("{AWAY:?} and the time of the writes")),
            ("runs", format!("{} of each point, medians", setting.runs)),
        ],
        models: vec![
            "messages take 0.15 ms one way, a sync 0.3 to 0.9 ms and a look-up 0.02 to 0.2 ms; processors take no time"
                .into(),
        ],
        table,
        curves: None,
        charts: vec![chart(&points)],
        verdict: verdict(&points),
    })
}

fn chart(points: &[ReturnPoint]) -> Chart {
    let line = |name: &str, missed: u64, of: fn(&ReturnPoint) -> Duration| Line {
        name: name.into(),
        points: points
            .iter()
            .filter(|point| point.missed_percent == missed)
            .map(|point| (point.keys as f64, of(point).as_secs_f64()))
            .collect(),
        dashed: missed == 0,
    };
    Chart {
        title: "after the return of a member".into(),
        across: "keys of 8 KiB".into(),
        up: "seconds".into(),
        dots: true,
        lines: vec![
            line("complete, all to repair", 100, |point| point.complete),
            line("votes, all to repair", 100, |point| point.votes),
            line("complete, none to repair", 0, |point| point.complete),
            line("votes, none to repair", 0, |point| point.votes),
        ],
        ..Chart::default()
    }
}

/// Compares the time to vote with the paper's, and completeness with and without repair.
fn verdict(points: &[ReturnPoint]) -> Verdict {
    let of = |missed: u64| points.iter().filter(|point| point.missed_percent == missed).max_by_key(|point| point.keys);
    let (Some(none), Some(all)) = (of(0), of(100)) else {
        return Verdict::new(Comparison::NotComparable, "nothing was measured".into());
    };
    let most = points.iter().map(|point| point.votes).max().unwrap_or_default();
    let ratio = all.complete.as_secs_f64() / none.complete.as_secs_f64().max(1e-9);
    let comparison = match most <= PAPER_VOTES {
        true if (ratio / PAPER_RATIO - 1.0).abs() <= CLOSE => Comparison::Reproduced,
        // There is no scan here whose times could be compared.
        true => Comparison::NotComparable,
        false => Comparison::Worse,
    };
    let why = format!(
        "a member votes {:.0} ms after its return at most (paper: 30 s), and with {} keys it holds everything after {:.2} s with none to \
         repair and {:.2} s with all, {ratio:.1} times as long (paper: {PAPER_RATIO} times); the paper scans its whole range in both cases, \
         and here a member copies the keys that it missed, at {} MiB a second at most; half a second is the interval of heartbeats",
        most.as_secs_f64() * 1e3,
        all.keys,
        none.complete.as_secs_f64(),
        all.complete.as_secs_f64(),
        TRANSFER >> 20,
    );
    Verdict::new(comparison, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::options::Scale;

    #[test]
    fn a_member_is_complete_after_it_votes() {
        let options = ExperimentOptions { size: Scale::Quick, seed: 1, jobs: 2, out: None };
        let outcome = experiment(&NodeReturnSetting { keys: vec![40], runs: 1, seed: 1 }, &options, &|_| {})
            .expect("no invariant is broken");
        let value = |row, column| outcome.table.value(row, column).and_then(|value| value.parse::<f64>().ok()).unwrap();
        for row in 0..2 {
            assert!(value(row, "votes_s") <= value(row, "serves_s"), "{}", outcome.table);
            assert!(value(row, "votes_s") <= value(row, "complete_s"), "{}", outcome.table);
        }
        assert!(value(1, "complete_s") < 60.0, "{}", outcome.table);
    }
}
