//! A soak: churn, faults, transactions by hand, load and checks together, in rounds, all drawn from one seed.
//!
//! In each round peers die and are replaced, processes freeze, paths break where the hosts stand in a laboratory, and groups split, merge and move
//! boundaries; clients write and read meanwhile. All faults of a round end before it does. Then every key is read once more, and the history is
//! checked.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::churn::{DeathSchedule, Replacement, churn};
use super::fault::{PathFault, ProcessFault};
use super::host_view::PeerState;
use super::load::{LoadOptions, LoadReport};
use super::remote::{Feed, OPERATION_MAX};
use super::worker::LoadKind;
use super::{Fleet, FleetError, Note};
use crate::checkers::{Circumstances, check_history};
use crate::churn::Lives;
use crate::rng::Rng;

/// Duration of a round's load at most.
const ROUND: Duration = Duration::from_secs(60);
/// Share of a round in which faults begin and end.
const FAULTY: f64 = 0.7;
/// Time within which all peers must serve again after a round.
const RECOVERY_MAX: Duration = Duration::from_secs(60);
/// Wait between two actions of the fault thread.
const ACT_EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(6));
/// Transactions that an administrator may ask for.
const TRANSACTIONS: [&str; 3] = ["split", "merge", "repartition"];

/// Settings of [`soak`].
#[derive(Clone, Debug)]
pub struct SoakOptions {
    /// Duration.
    pub time: Duration,
    /// Mean lifetime of a peer, exponential.
    pub lifetime: Duration,
    /// Seed of all choices.
    pub seed: u64,
    /// Number of clients on each host.
    pub clients: u64,
    /// This program, which the hosts get.
    pub tool: PathBuf,
}

/// Result of [`soak`].
#[derive(Clone, Debug, Default)]
pub struct SoakVerdict {
    /// Rounds that ended.
    pub rounds: usize,
    /// Peers that were killed.
    pub deaths: usize,
    /// Faults and transactions that were caused.
    pub actions: usize,
    /// Operations, and those without an answer.
    pub operations: (usize, usize),
    /// What was wrong, with the round and the seed that repeat it; `None` if all was well.
    pub wrong: Option<String>,
}

/// An action of the fault thread.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    Freeze { peer: String, time: Duration },
    Part { fault: PathFault, time: Duration },
    Transaction { peer: String, word: &'static str },
}

/// Lets a network that is up live through rounds of disturbance until the time is over, something is wrong, or `stop`.
///
/// # Errors
/// The network is not up, or its hosts fail.
pub fn soak(
    fleet: &Fleet,
    options: &SoakOptions,
    stop: &AtomicBool,
    note: Note<'_>,
) -> Result<SoakVerdict, FleetError> {
    let (begun, mut verdict) = (Instant::now(), SoakVerdict::default());
    while begun.elapsed() < options.time && verdict.wrong.is_none() && !stop.load(Ordering::Relaxed) {
        let time = ROUND.min(options.time.saturating_sub(begun.elapsed())).max(Duration::from_secs(10));
        let report = round(fleet, options, (verdict.rounds as u64, time), &mut verdict, stop, note)?;
        verdict.rounds += 1;
        if stop.load(Ordering::Relaxed) {
            break; // The clients were interrupted, and did not read all keys.
        }
        verdict.wrong = judged(&report)
            .or_else(|| recovered(fleet, stop))
            .map(|why| format!("round {} of seed {}: {why}", verdict.rounds - 1, options.seed));
        note(&format!(
            "{:>6.0} s: {} rounds, {} deaths, {} faults and transactions, {} operations, {} without an answer",
            begun.elapsed().as_secs_f64(),
            verdict.rounds,
            verdict.deaths,
            verdict.actions,
            verdict.operations.0,
            verdict.operations.1
        ));
    }
    Ok(verdict)
}

/// Runs one round, the number of which chooses its load.
fn round(
    fleet: &Fleet,
    options: &SoakOptions,
    (number, time): (u64, Duration),
    verdict: &mut SoakVerdict,
    stop: &AtomicBool,
    note: Note<'_>,
) -> Result<LoadReport, FleetError> {
    let seed = options.seed.wrapping_mul(1_000_003).wrapping_add(number);
    let load = LoadOptions {
        kind: if number % 2 == 0 { LoadKind::Kv } else { LoadKind::Chirp },
        time,
        clients: options.clients,
        pause: Duration::from_millis(20),
        users: 100,
        seed,
        tool: options.tool.clone(),
    };
    let schedule =
        DeathSchedule::draw(fleet.inventory(), Lives::Exponential(options.lifetime), time.mul_f64(FAULTY), seed);
    std::thread::scope(|scope| {
        let deaths = scope.spawn(|| churn(fleet, &schedule, Replacement::New, time.mul_f64(FAULTY), seed, stop, note));
        let actions = scope.spawn(|| disturb(fleet, time.mul_f64(FAULTY), seed, stop, note));
        let report = fleet.load(&load, stop, note);
        let ended = || FleetError::Failed("a part of the soak ended early".into());
        verdict.deaths += deaths.join().map_err(|_| ended())??.deaths;
        verdict.actions += actions.join().map_err(|_| ended())??;
        let report = report?;
        let all = report.history.operations.len();
        verdict.operations.0 += all;
        verdict.operations.1 += all - report.history.answered();
        Ok(report)
    })
}

/// Causes faults and transactions, each drawn from the seed, and ends all faults within this time. Returns their number.
fn disturb(fleet: &Fleet, time: Duration, seed: u64, stop: &AtomicBool, note: Note<'_>) -> Result<usize, FleetError> {
    let (begun, mut rng, mut count) = (Instant::now(), Rng::new(seed, "disturbance"), 0);
    loop {
        let next = begun.elapsed() + rng.duration(ACT_EVERY.0, ACT_EVERY.1);
        let action = draw(fleet, &mut rng)?;
        if next + action.time() >= time {
            return Ok(count);
        }
        while begun.elapsed() < next {
            if stop.load(Ordering::Relaxed) {
                return Ok(count);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        count += 1;
        // A peer may have died since, and a group may not be able to do what is asked of it.
        if let Err(error) = action.run(fleet) {
            note(&format!("{action:?}: {error}"));
        }
    }
}

fn draw(fleet: &Fleet, rng: &mut Rng) -> Result<Action, FleetError> {
    let state = fleet.state()?;
    let peers: Vec<&String> = state.peers.keys().collect();
    let peer = (*rng.pick(&peers)).clone();
    let hosts: Vec<&str> = fleet.inventory().hosts.iter().map(|host| host.name.as_str()).collect();
    let time = rng.duration(Duration::from_millis(500), Duration::from_secs(6));
    let kinds = if fleet.inventory().lab.is_some() && hosts.len() > 1 { 3 } else { 2 };
    Ok(match rng.below(kinds) {
        0 => Action::Freeze { peer, time },
        1 => Action::Transaction { peer, word: TRANSACTIONS[rng.below(TRANSACTIONS.len() as u64) as usize] },
        _ => {
            let one = rng.below(hosts.len() as u64) as usize;
            let other = (one + 1 + rng.below(hosts.len() as u64 - 1) as usize) % hosts.len();
            let (a, b) = (hosts[one].to_owned(), hosts[other].to_owned());
            let fault = match rng.below(4) {
                0 => PathFault::CutOneWay(a, b),
                1 => PathFault::Slow(a, b, rng.between(50, 500) as u32),
                2 => PathFault::Lossy(a, b, rng.between(10, 300) as u32),
                _ => PathFault::Cut(a, "*".to_owned()),
            };
            Action::Part { fault, time }
        }
    })
}

impl Action {
    /// Returns how long the action takes until its fault has ended.
    fn time(&self) -> Duration {
        match self {
            Action::Freeze { time, .. } | Action::Part { time, .. } => *time,
            Action::Transaction { .. } => Duration::ZERO,
        }
    }

    fn run(&self, fleet: &Fleet) -> Result<(), FleetError> {
        match self {
            Action::Freeze { peer, time } => {
                fleet.fault(&ProcessFault::Pause, peer)?;
                std::thread::sleep(*time);
                fleet.fault(&ProcessFault::Resume, peer).map(drop)
            }
            Action::Part { fault, time } => {
                fleet.path_fault(fault)?;
                std::thread::sleep(*time);
                fleet.path_fault(&PathFault::Heal)
            }
            Action::Transaction { peer, word } => {
                let remote = fleet.remote_of(peer)?;
                let state = fleet.state()?;
                let Some(record) = state.peers.get(peer) else { return Ok(()) };
                let http = remote.entry.ports_of(record.place).http;
                let command = format!("bin/scatter group {word} --http 127.0.0.1:{http} 2>&1 || true");
                remote.call("run", &[command], Feed::Nothing, OPERATION_MAX).map(drop).map_err(FleetError::from)
            }
        }
    }
}

/// Returns what is wrong with what the clients saw.
fn judged(report: &LoadReport) -> Option<String> {
    if let Some(error) = report.failed.first() {
        return Some(error.to_string());
    }
    if let Some(key) = report.unread.first() {
        return Some(format!("{} keys cannot be read any more, such as {key}", report.unread.len()));
    }
    let broken = check_history(&report.history, &Circumstances::of_daemons()).err();
    broken.map(|(property, detail)| format!("{property} does not hold: {detail}"))
}

/// Waits until all peers serve; returns who does not.
fn recovered(fleet: &Fleet, stop: &AtomicBool) -> Option<String> {
    let until = Instant::now() + RECOVERY_MAX;
    loop {
        let view = fleet.look();
        let late = view.peers.values().find(|peer| peer.state != PeerState::Serves)?;
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        if Instant::now() > until {
            return Some(format!("{} does not serve {} s after all faults", late.name, RECOVERY_MAX.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}
