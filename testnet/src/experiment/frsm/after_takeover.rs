//! Operations that need a round of their own after a takeover (fRSM §4.5, Fig. 15 and 16).
//!
//! In the paper a new leader needs another phase for each key that another leader wrote last. Here a takeover settles a whole sub-range,
//! and only a primary that lacks records asks a quorum for a key's record before it operates on the key. Two measurements: how many
//! operations of a network under churn need that, and the throughput of a primary while a share of its operations does.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use group::data::Primary;
use group::message::{CommitteeMessage, Message};
use group::op::{Condition, Expiry, Op, Read};
use node::Node;
use node::wire::{self, Frame};
use overlay::Key;
use overlay::time::Time;

use super::returning::{HOSTS, ReturnSetting, fill, group_of_three, key, until};
use crate::churn::Lives;
use crate::experiment::options::{ExperimentOptions, Say};
use crate::experiment::registry::Experiment;
use crate::experiment::scatter::writes::{AskedMachine, Writes};
use crate::experiment::table::{Comparison, ExperimentOutcome, Table, Verdict};
use crate::parallel::in_parallel;
use crate::picture::{Chart, Line};
use crate::rng::Rng;
use crate::sim::{Fate, World};
use crate::study::{Places, Study};

/// Figures 15 and 16.
pub const EXPERIMENT: Experiment = Experiment {
    name: "after-takeover",
    paper: "fRSM Fig. 15, 16",
    about: "Operations under churn that ask a quorum for a record first, and throughput while a share of all operations does",
    run: |options, say| experiment(&TakeoverSetting::new(options), options, say),
};

/// The primary that returns without recent records.
const RETURNS: usize = HOSTS - 1;
/// Copies of the returned member, in bytes a second: it lacks records for the whole run.
const TRANSFER: u64 = 1 << 10;
/// Time that a peer takes for each input.
const SERVICE: Duration = Duration::from_micros(100);
/// Operations under way, and their share of reads.
const IN_FLIGHT: usize = 48;
const READS_PER_MILLE: u32 = 430;
/// Keys whose records the primary has asked for before.
const KNOWN: usize = 100;
/// Shares of operations on keys with records that it has not asked for, in percent.
const SHARES: [u32; 5] = [0, 25, 50, 75, 100];
/// The paper's limit, in percent of operations, and the share of snapshots that stay below it.
const PAPER_PERCENT: f64 = 1.0;
const PAPER_SNAPSHOTS: f64 = 0.9;
/// The length of a snapshot, and from a death until the new peer starts.
const SNAPSHOT: Duration = Duration::from_secs(5);
const REPLACED_AFTER: Duration = Duration::from_millis(200);

/// The parameters of the experiment.
struct TakeoverSetting {
    peers: usize,
    mean_life: Duration,
    rate: f64,
    time: Duration,
    settle: Duration,
    /// Keys of the group of three.
    keys: u64,
    measured: Duration,
    seed: u64,
}

impl TakeoverSetting {
    fn new(options: &ExperimentOptions) -> TakeoverSetting {
        let seconds = |quick, default, full| Duration::from_secs(options.size.pick(quick, default, full));
        TakeoverSetting {
            peers: options.size.pick(30, 60, 200),
            mean_life: Duration::from_secs(500),
            rate: options.size.pick(100.0, 200.0, 1_000.0),
            time: seconds(100, 600, 3_600),
            settle: seconds(60, 100, 200),
            keys: options.size.pick(12_000, 30_000, 100_000),
            measured: Duration::from_millis(options.size.pick(1_000, 2_000, 5_000)),
            seed: options.seed,
        }
    }
}

/// Requests for records that were seen on their way, each once.
type SeenRequests = Rc<RefCell<BTreeSet<(Key, u64, u64)>>>;

/// Notes requests for records from now on.
fn watch_requests(world: &mut World<Node>) -> SeenRequests {
    let seen = SeenRequests::default();
    let noted = Rc::clone(&seen);
    world.tap(move |flight| {
        if let Ok((_, Frame::Group { message, .. })) = wire::decode(&flight.frame, None)
            && let Message::Committee(CommitteeMessage::AskRecord { key, attempt, ballot }) = message
        {
            noted.borrow_mut().insert((key, attempt, ballot.epoch.0 << 8 | flight.from as u64));
        }
        Fate::Goes
    });
    seen
}

/// Returns the share of operations that asked a quorum for a record first, of each snapshot of a network under churn, in percent; and the
/// number of deaths.
fn under_churn(setting: &TakeoverSetting, say: Say<'_>) -> Result<(Vec<f64>, u64), String> {
    let study = Study { places: Places::Cluster, ..Study::new(setting.seed, setting.peers, None) };
    let mut world = World::<Node>::new(study.scenario());
    world.run_for(setting.settle);
    let lives = Lives::Exponential(setting.mean_life);
    let mut rng = Rng::new(setting.seed, "lives");
    let begin = world.now();
    let mut ends: Vec<Time> = (0..setting.peers).map(|_| begin + lives.draw(&mut rng)).collect();
    let mut writes = Writes::new(&world, setting.rate, setting.keys, setting.seed);
    let seen = watch_requests(&mut world);
    let (mut shares, mut deaths) = (Vec::new(), 0);
    while world.now() < begin + setting.time {
        writes.run(&mut world, SNAPSHOT, AskedMachine::Any)?;
        let accesses = writes.take(&world).0.len().max(1) as f64;
        shares.push(100.0 * std::mem::take(&mut *seen.borrow_mut()).len() as f64 / accesses);
        let now = world.now();
        for (host, dies) in ends.iter_mut().enumerate().filter(|(_, dies)| **dies <= now) {
            world.replace(host, REPLACED_AFTER);
            *dies = now + REPLACED_AFTER + lives.draw(&mut rng);
            deaths += 1;
        }
    }
    say(&format!("{} snapshots, {deaths} deaths", shares.len()));
    shares.sort_by(f64::total_cmp);
    Ok((shares, deaths))
}

/// The throughput of a primary while a share of its operations asks a quorum first.
struct SharePoint {
    order: &'static str,
    percent: u32,
    ops_per_s: f64,
    asked_percent: f64,
}

/// Operations on keys of one primary.
struct PrimaryClients {
    open: Vec<(usize, Key)>,
    fresh: Vec<Key>,
    known: Vec<Key>,
    percent: u32,
    rng: Rng,
    done: u64,
}

impl PrimaryClients {
    /// Keeps operations under way for this time, or until there is no fresh key left. Returns the time that it took.
    fn run(&mut self, world: &mut World<Node>, time: Duration) -> Result<Duration, String> {
        let begin = world.now();
        let end = begin + time;
        let value = Bytes::from(vec![b'w'; 512]);
        while world.now() < end {
            let (over, open): (Vec<_>, Vec<_>) =
                std::mem::take(&mut self.open).into_iter().partition(|(index, _)| world.outcome(*index).is_some());
            self.open = open;
            self.done += over.len() as u64;
            self.known.extend(over.into_iter().map(|(_, key)| key).take(KNOWN.saturating_sub(self.known.len())));
            if self.fresh.len() < IN_FLIGHT {
                break;
            }
            while self.open.len() < IN_FLIGHT {
                let is_fresh = self.known.len() < KNOWN || self.rng.per_mille(10 * self.percent);
                let fresh = if is_fresh { self.fresh.pop() } else { None };
                let key = fresh.unwrap_or_else(|| self.rng.pick(&self.known).clone());
                let op = match self.rng.per_mille(READS_PER_MILLE) {
                    true => Op::Read(Read::Value),
                    false => {
                        let value = value.clone();
                        Op::Set { value, condition: Condition::Always, expiry: Expiry::Clear, get: false }
                    }
                };
                self.open.push((world.ask_key(RETURNS, key.clone(), op), key));
            }
            world.run_for(Duration::from_micros(500));
        }
        world.failure().map_or(Ok(world.now().since(begin)), |failure| Err(failure.to_string()))
    }
}

/// Measures a primary that lacks records, while this share of its operations is on keys that it has not asked for.
fn with_share(setting: &TakeoverSetting, percent: u32, coarse: bool) -> Result<SharePoint, String> {
    let group = ReturnSetting {
        value_bytes: 512,
        transfer_bytes_per_s: TRANSFER,
        service: SERVICE,
        coarse,
        seed: setting.seed,
    };
    let mut world = group_of_three(&group)?;
    fill(&mut world, &group, &mut (0..setting.keys))?;
    let away = world.kill(RETURNS, true);
    world.run_for(Duration::from_secs(5));
    fill(&mut world, &group, &mut (0..setting.keys))?;
    let since = world.now();
    world.undo(away);
    let ranges = |world: &World<Node>| -> Vec<overlay::KeyRange> {
        let primaries = world.host(RETURNS).and_then(Node::group).into_iter().flat_map(group::Group::primaries);
        primaries.filter(|primary| primary.is_serving()).map(Primary::range).collect()
    };
    until(&mut world, since, Duration::from_millis(10), |world| !ranges(world).is_empty())?;
    let ranges = ranges(&world);
    let is_here = |key: &Key| ranges.iter().any(|range| range.contains(key.point()));
    let fresh: Vec<Key> = (0..setting.keys).filter_map(key).filter(is_here).collect();
    let rng = Rng::new(setting.seed, "takeover clients");
    let mut clients = PrimaryClients { open: Vec::new(), fresh, known: Vec::new(), percent, rng, done: 0 };
    clients.run(&mut world, Duration::from_millis(50))?;
    let seen = watch_requests(&mut world);
    clients.done = 0;
    let took = clients.run(&mut world, setting.measured)?;
    let asked = seen.borrow().len() as f64;
    Ok(SharePoint {
        order: if coarse { "coarse" } else { "fine" },
        percent,
        ops_per_s: clients.done as f64 / took.as_secs_f64().max(1e-9),
        asked_percent: 100.0 * asked / clients.done.max(1) as f64,
    })
}

fn experiment(
    setting: &TakeoverSetting,
    options: &ExperimentOptions,
    say: Say<'_>,
) -> Result<ExperimentOutcome, String> {
    let (shares, deaths) = under_churn(setting, say)?;
    let all: Vec<(u32, bool)> = SHARES.map(|percent| (percent, false)).into_iter().chain([(0, true)]).collect();
    let points = in_parallel(options.jobs, &all, |(percent, coarse)| with_share(setting, *percent, *coarse));
    let points: Vec<SharePoint> = points.into_iter().collect::<Result<_, String>>()?;
    let mut table = Table::new(&["measurement", "order", "share_percent", "asked_percent", "ops_per_s", "paper"]);
    for share in [0.5, 0.9, 0.99, 1.0] {
        let name = format!("churn, p{:.0} of snapshots", 100.0 * share);
        let paper = if share == 0.9 { "below 1 %" } else { "" };
        table.push(vec![
            name,
            "fine".into(),
            String::new(),
            format!("{:.2}", quantile(&shares, share)),
            String::new(),
            paper.into(),
        ]);
    }
    for point in &points {
        let mut row = vec!["throughput".to_owned(), point.order.into(), point.percent.to_string()];
        row.extend([format!("{:.1}", point.asked_percent), format!("{:.0}", point.ops_per_s)]);
        row.push(if point.percent == 100 { "above coarse" } else { "" }.into());
        table.push(row);
    }
    Ok(ExperimentOutcome {
        parameters: vec![
            ("peers under churn", format!("{}, {deaths} of which died in {:?}", setting.peers, setting.time)),
            ("mean life", format!("{:?}", setting.mean_life)),
            ("snapshots", format!("{} of {SNAPSHOT:?}", shares.len())),
            ("operations under churn", format!("{} a second", setting.rate)),
            ("operations of the primary", format!("{IN_FLIGHT} under way, 43 % reads, values of 512 bytes")),
        ],
        models: vec![format!(
            "a peer of the group of three takes {SERVICE:?} for each input, and messages 0.15 ms one way"
        )],
        table,
        curves: None,
        charts: vec![chart(&points)],
        verdict: verdict(&shares, &points),
    })
}

/// Returns the value below which this share of `all` lies.
fn quantile(all: &[f64], share: f64) -> f64 {
    let last = all.len().saturating_sub(1);
    all.get((share * last as f64).round() as usize).copied().unwrap_or(0.0)
}

fn chart(points: &[SharePoint]) -> Chart {
    let coarse = points.iter().find(|point| point.order == "coarse").map_or(0.0, |point| point.ops_per_s);
    let fine = || points.iter().filter(|point| point.order == "fine");
    let line = |name: &str, dashed: bool, points: Vec<(f64, f64)>| Line { name: name.into(), points, dashed };
    Chart {
        title: "a primary that lacks records".into(),
        across: "operations that ask a quorum first, percent".into(),
        up: "operations a second".into(),
        dots: true,
        lines: vec![
            line("fine", false, fine().map(|point| (f64::from(point.percent), point.ops_per_s)).collect()),
            line("coarse, none asks", true, fine().map(|point| (f64::from(point.percent), coarse)).collect()),
        ],
        ..Chart::default()
    }
}

/// Compares the snapshots below the paper's limit, and the throughput where all operations ask with coarse's.
fn verdict(shares: &[f64], points: &[SharePoint]) -> Verdict {
    let below = shares.iter().filter(|share| **share < PAPER_PERCENT).count() as f64 / shares.len().max(1) as f64;
    let find = |order: &str, percent: u32| {
        let is_meant = |point: &&SharePoint| (point.order, point.percent) == (order, percent);
        points.iter().find(is_meant).map_or(0.0, |point| point.ops_per_s)
    };
    let (none, all, coarse) = (find("fine", 0), find("fine", 100), find("coarse", 0));
    let is_rare = below >= PAPER_SNAPSHOTS;
    let comparison = match (is_rare, all > coarse) {
        (true, true) => Comparison::Reproduced,
        _ => Comparison::Worse,
    };
    let why = format!(
        "in {:.0} % of the snapshots under churn below {PAPER_PERCENT} % of the operations ask a quorum first (paper: over 90 %); a primary \
         whose operations all ask does {:.0} % of its throughput, {:.2} times that of a coarse one of which none asks (paper: above coarse; \
         there coarse does a fifth of fine, and here operations are equally dear and no batch waits, so that it does {:.2} of fine)",
        100.0 * below,
        100.0 * all / none.max(1e-9),
        all / coarse.max(1e-9),
        coarse / none.max(1e-9),
    );
    Verdict::new(comparison, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::options::Scale;

    #[test]
    fn a_primary_that_lacks_records_asks_for_them() {
        let options = ExperimentOptions { size: Scale::Quick, seed: 1, jobs: 2, out: None };
        let setting =
            TakeoverSetting { keys: 2_000, measured: Duration::from_millis(30), ..TakeoverSetting::new(&options) };
        let [none, all] = [0, 100].map(|percent| with_share(&setting, percent, false).expect("no invariant is broken"));
        assert!(none.asked_percent < 20.0 && all.asked_percent > 50.0, "{} {}", none.asked_percent, all.asked_percent);
        assert!(all.ops_per_s < none.ops_per_s, "{} {}", none.ops_per_s, all.ops_per_s);
    }

    #[test]
    fn shares_under_churn_are_counted() {
        let options = ExperimentOptions { size: Scale::Quick, seed: 1, jobs: 1, out: None };
        let setting = TakeoverSetting {
            peers: 10,
            mean_life: Duration::from_secs(100),
            settle: Duration::from_secs(20),
            time: Duration::from_secs(20),
            rate: 20.0,
            ..TakeoverSetting::new(&options)
        };
        let (shares, _) = under_churn(&setting, &|_| {}).expect("no invariant is broken");
        assert_eq!(shares.len(), 4);
        assert!(shares.iter().all(|share| (0.0..200.0).contains(share)), "{shares:?}");
    }
}
