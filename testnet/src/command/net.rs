//! `scatter-testnet net`: networks of real daemons on the hosts of an inventory.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use testnet::checkers::{Circumstances, check_history};
use testnet::churn::Lives;
use testnet::fleet::worker::LoadKind;
use testnet::fleet::{
    self, ChurnFigures, DeathSchedule, Fleet, FleetError, Inventory, LoadOptions, LoadReport, Note, PathFault,
    PeerState, ProcessFault, Replacement, UpOptions,
};

use super::{Error, Print, parse_time};

/// Arguments of `net`.
#[derive(Clone, Debug, clap::Args)]
pub struct NetArgs {
    #[command(subcommand)]
    command: NetCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum NetCommand {
    /// Starts all peers that do not run, and waits until they serve
    ///
    /// Checks all hosts first: whether they can be reached, have room, and have their ports free. Copies the programs where they
    /// differ. May be repeated: peers that run stay as they are.
    Up {
        /// Inventory: a TOML file with the hosts
        inventory: PathBuf,
        /// Path of the daemon's program [default: the inventory's, or `scatter` beside this program]
        #[arg(long, value_name = "FILE", env = "SCATTER_BIN")]
        program: Option<PathBuf>,
        /// Leave out the hosts that fail the checks
        #[arg(long)]
        leave_out: bool,
        /// Say what would be done, and do nothing
        #[arg(long)]
        dry_run: bool,
        /// Seed of the peers through which newcomers join
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Shows which peers run, and the groups of the ring
    Status {
        /// Inventory
        inventory: PathBuf,
    },
    /// Shows the end of a peer's log
    Logs {
        /// Inventory
        inventory: PathBuf,
        /// Name of the peer, as `net status` shows it
        peer: String,
        /// Number of lines
        #[arg(short = 'n', long, default_value_t = 40)]
        lines: usize,
    },
    /// Runs a command on all hosts at once, and prints its output by host
    Run {
        /// Inventory
        inventory: PathBuf,
        /// The command, after `--`
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Kills peers as their lifetimes end, and starts a successor for each at once
    Churn {
        /// Inventory
        inventory: PathBuf,
        /// Mean lifetime of a peer: 100, 100s, 5m, 2h
        #[arg(long, value_name = "TIME", default_value = "180s", value_parser = parse_time)]
        lifetime: Duration,
        /// Distribution of the lifetimes
        #[arg(long, value_enum, default_value_t = Distribution::Poisson)]
        distribution: Distribution,
        /// Shape of the Pareto distribution
        #[arg(long, default_value_t = Lives::SHAPE, value_parser = shape)]
        alpha: f64,
        /// Successor of a dead peer: a new one, or the same one with its store
        #[arg(long, value_enum, default_value_t = Successor::New)]
        replace: Successor,
        /// Duration
        #[arg(long, default_value_t = 10.0, value_parser = minutes)]
        minutes: f64,
        /// Seed of the lifetimes and contacts
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Write the schedule to this file
        #[arg(long, value_name = "FILE")]
        save: Option<PathBuf>,
        /// Kill peers as a saved schedule says
        #[arg(long, value_name = "FILE", conflicts_with_all = ["lifetime", "distribution", "alpha", "save"])]
        replay: Option<PathBuf>,
        /// Say what would be done, and do nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Causes a fault of peers or of the paths between hosts, or ends it
    Fault {
        /// Inventory
        inventory: PathBuf,
        #[command(subcommand)]
        fault: FaultCommand,
    },
    /// Puts load on the network from all hosts, records all operations, and checks them
    ///
    /// Ends with 1 if the history is not linearizable, or if a key cannot be read at the end.
    Load {
        /// Load
        #[arg(value_enum)]
        kind: LoadName,
        /// Inventory
        inventory: PathBuf,
        /// Duration
        #[arg(long, default_value_t = 1.0, value_parser = minutes)]
        minutes: f64,
        /// Number of clients on each host
        #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1_000))]
        clients: u64,
        /// Wait of a client between an answer and its next request, in milliseconds
        #[arg(long, value_name = "MS", default_value_t = 20)]
        pause: u64,
        /// Number of users of Chirp on each host
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        users: u32,
        /// Seed of the operations
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// File for the history, as `check` reads it
        #[arg(long, value_name = "FILE")]
        history: Option<PathBuf>,
    },
    /// Brings logs, observations and histories of all hosts to a directory
    Collect {
        /// Inventory
        inventory: PathBuf,
        /// Directory
        out: PathBuf,
    },
    /// Makes plots and a page of what `net collect` brought to a directory
    Report {
        /// Directory
        out: PathBuf,
    },
    /// Ends all peers
    Down {
        /// Inventory
        inventory: PathBuf,
        /// Remove programs, data and logs as well, and forget the network
        #[arg(long)]
        wipe: bool,
        /// Say what would be done, and do nothing
        #[arg(long)]
        dry_run: bool,
    },
}

/// Distribution of lifetimes.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Distribution {
    /// Exponential, which the papers call Poisson
    Poisson,
    /// Pareto: most peers die young
    Pareto,
}

impl Distribution {
    fn lives(self, mean: Duration, shape: f64) -> Lives {
        match self {
            Distribution::Poisson => Lives::Exponential(mean),
            Distribution::Pareto => Lives::Pareto { mean, shape },
        }
    }
}

/// Successor of a dead peer.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Successor {
    /// A new peer, without data
    New,
    /// The same peer, with its store
    Same,
}

impl From<Successor> for Replacement {
    fn from(successor: Successor) -> Replacement {
        match successor {
            Successor::New => Replacement::New,
            Successor::Same => Replacement::Same,
        }
    }
}

#[derive(Clone, Debug, Subcommand)]
enum FaultCommand {
    /// The processes of a peer, or of all peers of a host, freeze
    Pause {
        /// Name of a peer or a host
        name: String,
    },
    /// Frozen processes go on
    Resume {
        /// Name of a peer or a host
        name: String,
    },
    /// The processes die
    Kill {
        /// Name of a peer or a host
        name: String,
    },
    /// No packet passes between two hosts. In a laboratory; @SITE means all hosts of a site, and * all hosts
    Cut {
        /// A host
        a: String,
        /// Another host
        b: String,
        /// Only packets from A to B are lost
        #[arg(long)]
        one_way: bool,
    },
    /// Packets between two hosts take longer, each way
    Slow {
        /// A host
        a: String,
        /// Another host
        b: String,
        /// One-way delay in milliseconds
        ms: u32,
    },
    /// Packets between two hosts are lost, each way
    Lossy {
        /// A host
        a: String,
        /// Another host
        b: String,
        /// Lost packets of 1,000
        #[arg(value_parser = clap::value_parser!(u32).range(..=1000))]
        per_mille: u32,
    },
    /// All paths between hosts are as planned again
    Heal,
    /// Clocks cannot be changed: said, and nothing is done
    #[command(hide = true)]
    Clock {
        /// Anything
        words: Vec<String>,
    },
}

impl FaultCommand {
    fn run(self, fleet: &Fleet, say: Print<'_>) -> Result<(), Error> {
        let processes = |fault: ProcessFault, name: &str| {
            let met = fleet.fault(&fault, name)?;
            say(&format!("{} peers: {}", met.len(), met.join(" ")));
            Ok(())
        };
        let paths = |fault: PathFault| Ok(fleet.path_fault(&fault)?);
        match self {
            FaultCommand::Pause { name } => processes(ProcessFault::Pause, &name),
            FaultCommand::Resume { name } => processes(ProcessFault::Resume, &name),
            FaultCommand::Kill { name } => processes(ProcessFault::Kill, &name),
            FaultCommand::Cut { a, b, one_way: true } => paths(PathFault::CutOneWay(a, b)),
            FaultCommand::Cut { a, b, one_way: false } => paths(PathFault::Cut(a, b)),
            FaultCommand::Slow { a, b, ms } => paths(PathFault::Slow(a, b, ms)),
            FaultCommand::Lossy { a, b, per_mille } => paths(PathFault::Lossy(a, b, per_mille)),
            FaultCommand::Heal => paths(PathFault::Heal),
            FaultCommand::Clock { .. } => Err(Error::Refused(
                "clocks cannot be changed on any kind of host: all processes of a machine share its clock. The simulator has faults of clocks \
                 (`scatter-testnet sim`)"
                    .into(),
            )),
        }
    }
}

/// Load on a network.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum LoadName {
    /// Posts and fetches of a small Twitter
    Chirp,
    /// Registers, lists, counters and leases
    Kv,
}

impl From<LoadName> for LoadKind {
    fn from(load: LoadName) -> LoadKind {
        match load {
            LoadName::Chirp => LoadKind::Chirp,
            LoadName::Kv => LoadKind::Kv,
        }
    }
}

fn minutes(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|minutes| (0.001..=100_000.0).contains(minutes)).ok_or("from 0.001 to 100000".into())
}

fn shape(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|shape| *shape > 1.0 && *shape <= 100.0).ok_or("a number above 1 and at most 100".into())
}

impl From<FleetError> for Error {
    fn from(error: FleetError) -> Error {
        match error {
            FleetError::Refused(why) => Error::Refused(why),
            FleetError::Failed(why) => Error::Failed(why),
        }
    }
}

impl NetArgs {
    /// Runs the command. `say` gets the results, `note` the progress, a line each; `stop` is set by an interrupt.
    ///
    /// # Errors
    /// An inventory or a host that is refused; a command that failed on the way.
    pub fn run(self, stop: &AtomicBool, say: Print<'_>, note: Note<'_>) -> Result<(), Error> {
        match self.command {
            NetCommand::Up { inventory, program, leave_out, dry_run, seed } => {
                let inventory = Inventory::read(&inventory)?;
                let program =
                    crate::daemon_program(program.or_else(|| inventory.program.clone())).map_err(Error::Refused)?;
                if dry_run {
                    plan(&inventory, say);
                    return Ok(());
                }
                let options = UpOptions { program, leaves_out: leave_out, seed };
                up(&Fleet::open(inventory, true)?, &options, stop, say, note)
            }
            NetCommand::Status { inventory } => status(&open(&inventory)?, say),
            NetCommand::Logs { inventory, peer, lines } => {
                say(open(&inventory)?.log(&peer, lines)?.trim_end());
                Ok(())
            }
            NetCommand::Run { inventory, command } => run_everywhere(&open(&inventory)?, &command, say),
            NetCommand::Churn {
                inventory,
                lifetime,
                distribution,
                alpha,
                replace,
                minutes,
                seed,
                save,
                replay,
                dry_run,
            } => {
                let time = Duration::from_secs_f64(minutes * 60.0);
                let inventory = Inventory::read(&inventory)?;
                let schedule = match &replay {
                    Some(file) => DeathSchedule::read(file, &inventory)?,
                    None => DeathSchedule::draw(&inventory, distribution.lives(lifetime, alpha), time, seed),
                };
                save.iter().try_for_each(|file| schedule.write(file))?;
                say(&format!("{} deaths in {minutes} minutes, seed {seed}", schedule.0.len()));
                if dry_run {
                    return Ok(());
                }
                let fleet = Fleet::open(inventory, true)?;
                told_churn(&watched_churn(&fleet, &schedule, (replace.into(), time, seed), stop, note)?, say)
            }
            NetCommand::Collect { inventory, out } => collect(&open(&inventory)?, &out, say),
            NetCommand::Report { out } => report(&out, say),
            NetCommand::Fault { inventory, fault } => fault.run(&open(&inventory)?, say),
            NetCommand::Load { kind, inventory, minutes, clients, pause, users, seed, history } => {
                let options = LoadOptions {
                    kind: kind.into(),
                    time: Duration::from_secs_f64(minutes * 60.0),
                    clients,
                    pause: Duration::from_millis(pause),
                    users: users as usize,
                    seed,
                    tool: this_program()?,
                };
                judge(&open(&inventory)?.load(&options, stop, note)?, history, say, note)
            }
            NetCommand::Down { inventory, wipe, dry_run } => {
                let inventory = Inventory::read(&inventory)?;
                if dry_run {
                    plan_down(&inventory, wipe, say);
                    return Ok(());
                }
                down(Fleet::open(inventory, true)?, wipe, say, note)
            }
        }
    }
}

/// Opens the network of an inventory for a command that starts and ends no peer.
fn open(inventory: &Path) -> Result<Fleet, Error> {
    Ok(Fleet::open(Inventory::read(inventory)?, false)?)
}

/// Runs a churn, and observes all peers until it is over.
fn watched_churn(
    fleet: &Fleet,
    schedule: &DeathSchedule,
    (replacement, time, seed): (Replacement, Duration, u64),
    stop: &AtomicBool,
    note: Note<'_>,
) -> Result<ChurnFigures, Error> {
    let (tool, over) = (this_program()?, AtomicBool::new(false));
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| fleet.watch(tool, time, &over, note));
        let figures = fleet::churn(fleet, schedule, replacement, time, seed, stop, note);
        over.store(true, Ordering::Relaxed);
        watch.join().unwrap_or_else(|_| Err(FleetError::Failed("the observers ended early".into())))?;
        Ok(figures?)
    })
}

fn this_program() -> Result<PathBuf, Error> {
    std::env::current_exe().map_err(|error| Error::Failed(format!("this program has no path: {error}")))
}

fn told_churn(figures: &ChurnFigures, say: Print<'_>) -> Result<(), Error> {
    let [median, worst] = figures.join_times().map(|time| time.as_secs_f64());
    say(&format!(
        "{} deaths; {} successors served, after {:.1} s at the median and {:.1} s at worst; {} did not",
        figures.deaths,
        figures.joins.len(),
        median,
        worst,
        figures.never_served
    ));
    match figures.failed.first() {
        None => Ok(()),
        Some(first) => Err(Error::Failed(format!("{} hosts failed and were left out: {first}", figures.failed.len()))),
    }
}

/// Checks what the clients saw.
fn judge(report: &LoadReport, file: Option<PathBuf>, say: Print<'_>, note: Note<'_>) -> Result<(), Error> {
    if let Some(file) = file {
        let written = testnet::file::write(&file, &report.history);
        written.map_err(|error| Error::Failed(format!("{}: {error}", file.display())))?;
    }
    report.failed.iter().for_each(|error| note(&error.to_string()));
    report.unread.iter().take(20).for_each(|key| note(&format!("{key} cannot be read any more")));
    let all = report.history.operations.len();
    let failed = 100.0 * (all - report.history.answered()) as f64 / all.max(1) as f64;
    say(&format!("{all} operations on {} keys, {failed:.2} % without an answer", report.history.by_key().len()));
    match check_history(&report.history, &Circumstances::of_daemons()) {
        Err((property, detail)) => Err(Error::Failed(format!("{property} does not hold: {detail}"))),
        Ok(()) if !report.unread.is_empty() => Err(Error::Failed(format!("{} keys are lost", report.unread.len()))),
        Ok(()) => {
            say("linearizable, and no acknowledged write is missing");
            match report.failed.len() {
                0 => Ok(()),
                failed => Err(Error::Failed(format!("the clients of {failed} hosts failed"))),
            }
        }
    }
}

/// Says what `up` would do.
fn plan(inventory: &Inventory, say: Print<'_>) {
    for host in &inventory.hosts {
        say(&format!("would check host {}, copy the program if it differs, and start {} peers", host.name, host.peers));
    }
    say(&format!(
        "{} peers in all; the first peer of host {} founds the network",
        inventory.peers(),
        inventory.hosts[0].name
    ));
}

fn up(fleet: &Fleet, options: &UpOptions, stop: &AtomicBool, say: Print<'_>, note: Note<'_>) -> Result<(), Error> {
    let report = fleet.up(options, stop, note)?;
    report.failed.iter().for_each(|line| note(line));
    say(&format!("{} peers serve, {} of them started now", report.serving, report.started));
    match report.failed.len() {
        0 => Ok(()),
        failed => Err(Error::Failed(format!("{failed} peers do not serve"))),
    }
}

fn status(fleet: &Fleet, say: Print<'_>) -> Result<(), Error> {
    say(&format!("network {}", fleet.network()?));
    let view = fleet.look();
    for peer in view.peers.values() {
        let state = match peer.state {
            PeerState::Serves => "serves",
            PeerState::Starts => "starts",
            PeerState::Ended => "ended",
        };
        let pid = peer.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        say(&format!("{:<24} {state:<7} {pid:>8}  {}", peer.name, peer.peer_id.as_deref().unwrap_or("-")));
    }
    let count = |state| view.count(state);
    say(&format!(
        "{} serve, {} start, {} ended",
        count(PeerState::Serves),
        count(PeerState::Starts),
        count(PeerState::Ended)
    ));
    if let Some(ring) = fleet.ring(&view) {
        say(ring.trim_end());
    }
    match view.silent.first() {
        None => Ok(()),
        Some(first) => Err(Error::Failed(format!("{} hosts do not answer: {first}", view.silent.len()))),
    }
}

fn run_everywhere(fleet: &Fleet, command: &[String], say: Print<'_>) -> Result<(), Error> {
    let mut failed = 0;
    for (host, result) in fleet.run_everywhere(command) {
        match result {
            Ok(text) => text.lines().for_each(|line| say(&format!("{host}: {line}"))),
            Err(error) => {
                failed += 1;
                say(&error.to_string());
            }
        }
    }
    match failed {
        0 => Ok(()),
        _ => Err(Error::Failed(format!("the command failed on {failed} hosts"))),
    }
}

fn down(fleet: Fleet, wipe: bool, say: Print<'_>, note: Note<'_>) -> Result<(), Error> {
    let report = fleet::down(&fleet, wipe, note)?;
    if let Some(first) = report.failed.first() {
        report.failed.iter().for_each(|error| note(&error.to_string()));
        return Err(Error::Failed(format!(
            "{} hosts are not done, such as {first}; repeat the command",
            report.failed.len()
        )));
    }
    if wipe {
        fleet::forget(fleet)?;
        say("nothing is left");
    }
    Ok(())
}

/// Says which peers `net down` would end.
fn plan_down(inventory: &Inventory, wipe: bool, say: Print<'_>) {
    let what = if wipe { ", and remove their programs, data and logs" } else { "" };
    say(&format!("would end {} peers on {} hosts{what}", inventory.peers(), inventory.hosts.len()));
}

fn collect(fleet: &Fleet, out: &Path, say: Print<'_>) -> Result<(), Error> {
    let report = fleet::collect(fleet, out)?;
    say(&format!("the files of {} hosts are in {}", report.hosts, out.display()));
    match report.failed.first() {
        None => Ok(()),
        Some(first) => Err(Error::Failed(format!("{} hosts failed: {first}", report.failed.len()))),
    }
}

fn report(out: &Path, say: Print<'_>) -> Result<(), Error> {
    let report = fleet::report(out)?;
    report.lines.iter().for_each(|line| say(line));
    report.files.iter().for_each(|file| say(&file.display().to_string()));
    Ok(())
}
