//! `scatter-testnet`: experiments and checks from the command line.

mod command;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use command::experiment::ExperimentArgs;
use command::lab::LabArgs;
use command::net::NetArgs;
use command::parse_time;
use command::soak::{LocalArgs, SoakArgs, SshArgs};
use command::study::StudyArgs;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum as _};
use node::Node;
use testnet::bench::{BenchParameters, StoreKind, Tools, compare};
use testnet::checkers::{Circumstances, Limits, check_history};
use testnet::churn::Lives;
use testnet::sim::harness::{Batch, explain, run};
use testnet::sim::{Scenario, hash_bytes};

/// Prints a line to stderr, if that can be written.
macro_rules! note {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

macro_rules! say {
    ($($text:tt)*) => { put(format_args!($($text)*)) };
}

macro_rules! sayln {
    ($($text:tt)*) => { put(format_args!("{}\n", format_args!($($text)*))) };
}

/// Version and commit, as `--version` prints them behind the name of the program.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("SCATTER_BUILD_COMMIT"), ")");

/// Experiments with whole Scatter networks, and checks of their results.
#[derive(Parser)]
#[command(name = "scatter-testnet", version = VERSION)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs simulated networks: injects the faults of a seed, heals them all, and checks that the network recovers
    Sim(Sim),
    /// Checks a recorded history of client operations
    Check(Check),
    /// Benchmarks Scatter against etcd, ZooKeeper and Redis on this machine
    ///
    /// In each round every store is started, filled, put under each load and stopped; medians are printed. etcd is
    /// built with Go and ZooKeeper fetched with Maven, once; a store that cannot be obtained is left out, with the
    /// reason.
    Bench(Bench),
    /// Runs an experiment of the papers, and prints its figures beside those of the paper
    Experiment(ExperimentArgs),
    /// Runs real daemons on this machine that are killed and replaced by new ones, while clients write and read
    ///
    /// Each peer lives for a random time, is killed with SIGKILL and replaced at once by a new peer with an empty store. Ends with 1 if
    /// a read was wrong, a key was lost, or more operations failed than allowed.
    Churn(ChurnArgs),
    /// Runs a network of real daemons on the hosts of an inventory: this machine, network namespaces, others by ssh
    Net(NetArgs),
    /// Runs peers on this machine until an interrupt, and removes them then
    Local(LocalArgs),
    /// Runs peers on other machines by ssh until an interrupt, and removes them then
    Ssh(SshArgs),
    /// Lets a network of real daemons live through churn, faults, transactions and load, checks all operations, and prints a verdict
    ///
    /// Brings the network up, and takes it down at the end. Ends with 1 if something was wrong; the logs are kept then.
    Soak(SoakArgs),
    /// The clients on one host of a network; `net load` runs it
    #[command(hide = true)]
    Worker {
        /// What to do, as JSON
        order: String,
    },
    /// Builds networks of namespaces on this machine, with wide-area delays and NATs, and runs commands in their hosts
    Lab(LabArgs),
}

#[derive(clap::Args)]
struct ChurnArgs {
    /// Number of peers on this machine
    #[arg(long, value_name = "PEERS", default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..=1000))]
    local: u16,
    /// Mean lifetime of a peer: 100, 100s, 5m, 2h
    #[arg(long, value_name = "TIME", default_value = "180s", value_parser = parse_time)]
    lifetime: Duration,
    /// Draw lifetimes from a Pareto distribution (shape 1.1) instead of an exponential one
    #[arg(long)]
    pareto: bool,
    /// Duration of the churn
    #[arg(long, default_value_t = 5.0)]
    minutes: f64,
    /// Time from the start of the last initial peer until clients begin
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = parse_time)]
    warm_up: Duration,
    /// Number of keys
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    keys: u32,
    /// Operations per second, half of them writes
    #[arg(long, default_value_t = 40.0)]
    rate: f64,
    /// Seed of the lifetimes, contacts and operations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Upper limit of failed operations, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 100.0)]
    failed_max: f64,
    /// Durability of the daemons: records on disk or in memory
    #[arg(long, default_value = "memory", value_parser = ["memory", "sync"])]
    durability: String,
    /// Directory in which churn.csv is written
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Directory of the daemons' data [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// Path of the daemon's program [default: `scatter` beside this program]
    #[arg(long, value_name = "FILE", env = "SCATTER_BIN")]
    program: Option<PathBuf>,
    /// Further flags for the daemons, after `--`
    #[arg(last = true)]
    flags: Vec<String>,
}

#[derive(clap::Args)]
struct Sim {
    /// Number of machines, instead of the seed's
    #[arg(long)]
    nodes: Option<usize>,
    /// First seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Derive the first seed from a text, such as a commit hash: always new, always repeatable
    #[arg(long, conflicts_with = "seed")]
    seed_from: Option<String>,
    /// Number of cores to use
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Number of seeds [default: 1, or as many as fit in the minutes]
    #[arg(long)]
    seeds: Option<u64>,
    /// Stop after this number of minutes
    #[arg(long)]
    minutes: Option<f64>,
    /// Hours of simulated time for which each network runs, instead of the seed's
    #[arg(long)]
    hours: Option<f64>,
    /// Small runs, of seconds instead of minutes: many more seeds in the same time
    #[arg(long, conflicts_with = "hours")]
    small: bool,
    /// Small runs in which members join and leave all the time
    #[arg(long, conflicts_with_all = ["hours", "small", "nodes"])]
    members: bool,
    /// Small runs in which groups split, merge and move their boundaries all the time
    #[arg(long, conflicts_with_all = ["hours", "small", "members"])]
    ring: bool,
    /// Small runs of all these kinds, with switches that spread reads over members
    #[arg(long, conflicts_with_all = ["hours", "small", "members", "ring", "nodes"])]
    switch: bool,
    /// Small runs of all these kinds, in which ends of journals are torn, and go bad
    #[arg(long, conflicts_with_all = ["hours", "small", "members", "ring", "nodes", "switch"])]
    torn: bool,
    /// Print a trace of all events
    #[arg(long)]
    trace: bool,
    /// Write the client history of the first seed to this file, for `check`
    #[arg(long)]
    history: Option<PathBuf>,
    /// Continue after this number of failures
    #[arg(long, default_value_t = 1)]
    failures: usize,
    #[command(flatten)]
    study: StudyArgs,
}

#[derive(clap::Args)]
struct Check {
    /// File with the history: JSON lines, one for each operation
    history: PathBuf,
    /// Assume that no request was delayed for long: an operation that was observed as not done must stay undone
    #[arg(long)]
    settled: bool,
    /// Upper limit of the error of the group's clock, in seconds
    #[arg(long, default_value_t = 10.0)]
    clock_slack: f64,
}

#[derive(clap::Args)]
struct Bench {
    /// Stores to measure
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = StoreKind::value_variants().to_vec())]
    stores: Vec<StoreKind>,
    /// Number of rounds for each store
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Duration of each load in seconds, after a warm-up of a quarter of it, or of ten seconds for ZooKeeper
    #[arg(long, default_value_t = 6.0)]
    seconds: f64,
    /// Number of keys
    #[arg(long, default_value_t = 100_000)]
    keys: u64,
    /// Size of a value in bytes
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,
    /// Directory in which bench.json, with every round, and bench.svg are written
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Directory of the stores' data, on the disk to be measured [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// Directory of the other stores' programs [default: ~/.cache/scatter-testnet]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Path of the daemon's program [default: `scatter` beside this program]
    #[arg(long, value_name = "FILE", env = "SCATTER_BIN")]
    program: Option<PathBuf>,
}

fn main() -> ExitCode {
    let typed: Vec<OsString> = std::env::args_os().collect();
    let command = match parse(&typed) {
        Ok(arguments) => arguments.command,
        Err(error) if error.use_stderr() => {
            let text = environment::refusal(&error, &Arguments::command(), &typed, &environment::of_process);
            let _ = io::stderr().write_all(text.as_bytes());
            return ExitCode::from(2);
        }
        Err(help) => {
            put(format_args!("{help}"));
            return ExitCode::SUCCESS;
        }
    };
    match command {
        Command::Sim(sim) => simulate(&sim),
        Command::Check(check) => check_file(&check),
        Command::Bench(bench) => compare_stores(bench),
        Command::Experiment(arguments) => run_experiment(&arguments),
        Command::Churn(churn) => run_churn(churn),
        Command::Net(net) => run_fleet(|say, note| net.run(&STOPPED, say, note)),
        Command::Local(local) => run_fleet(|say, note| local.run(&STOPPED, say, note)),
        Command::Ssh(ssh) => run_fleet(|say, note| ssh.run(&STOPPED, say, note)),
        Command::Soak(soak) => run_fleet(|say, note| soak.run(&STOPPED, say, note)),
        Command::Worker { order } => run_worker(&order),
        Command::Lab(arguments) => exit_code(arguments.run(&|line| sayln!("{line}"))),
    }
}

fn parse(typed: &[OsString]) -> Result<Arguments, clap::Error> {
    let command = environment::without_unused(Arguments::command(), typed, &environment::of_process);
    Arguments::from_arg_matches(&command.try_get_matches_from(typed)?)
}

/// Exit code of a command whose results could not be printed (`EX_IOERR` of sysexits.h), as with `scatter`.
const UNPRINTED: i32 = 74;

/// Prints, or ends the program: results that cannot be printed are no success.
fn put(text: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_fmt(text).and_then(|()| out.flush()) {
        // A reader that closes a pipe has seen enough of it.
        if error.kind() != std::io::ErrorKind::BrokenPipe {
            note!("cannot print: {error}");
        }
        std::process::exit(UNPRINTED);
    }
}

fn run_experiment(arguments: &ExperimentArgs) -> ExitCode {
    exit_code(arguments.run(&|line| sayln!("{line}"), &|line| note!("{line}")))
}

/// Runs a command of a network of real daemons, which an interrupt ends in good order.
fn run_fleet(
    command: impl FnOnce(command::Print<'_>, testnet::fleet::Note<'_>) -> Result<(), command::Error>,
) -> ExitCode {
    stop_on_signals();
    exit_code(command(&|line| sayln!("{line}"), &|line| note!("{line}")))
}

fn run_worker(order: &str) -> ExitCode {
    use testnet::fleet::worker::{stop_with_input, work};
    let order = match serde_json::from_str(order) {
        Ok(order) => order,
        Err(error) => return fail(format!("the order is not understood: {error}")),
    };
    stop_on_signals();
    stop_with_input(&STOPPED);
    let print = |line: serde_json::Result<String>| match line {
        Ok(line) => sayln!("{line}"),
        Err(error) => note!("{error}"),
    };
    match work(&order, &STOPPED, |clock| print(serde_json::to_string(clock))) {
        Ok(summary) => {
            print(serde_json::to_string(&summary));
            ExitCode::SUCCESS
        }
        Err(why) => {
            note!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the exit code of a command, and prints why it failed.
fn exit_code(result: Result<(), command::Error>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(command::Error::Refused(why)) => fail(why),
        Err(command::Error::Failed(why)) => {
            note!("{why}");
            ExitCode::FAILURE
        }
    }
}

impl Sim {
    /// Returns the scenario of a seed.
    fn scenario(&self, seed: u64) -> Scenario {
        match self.nodes {
            nodes if self.small => Scenario::small(seed, nodes),
            _ if self.members => Scenario::churn(seed),
            Some(nodes) if self.ring => Scenario::wide_ring(seed, nodes),
            None if self.ring => Scenario::ring(seed),
            _ if self.switch => Scenario::switched(seed),
            _ if self.torn => Scenario::torn(seed),
            nodes => {
                let mut scenario = Scenario::from_seed_with(seed, nodes);
                if let Some(hours) = self.hours {
                    scenario.stretch(Duration::from_secs_f64(hours * 3600.0));
                }
                scenario
            }
        }
    }

    /// Returns the flags that choose the kind of scenario, for a command that repeats a run.
    fn flags(&self) -> String {
        let nodes = self.nodes.map_or(String::new(), |nodes| format!(" --nodes {nodes}"));
        let kinds = [
            (self.small, " --small"),
            (self.members, " --members"),
            (self.ring, " --ring"),
            (self.switch, " --switch"),
            (self.torn, " --torn"),
        ];
        let kind = kinds.into_iter().find(|(chosen, _)| *chosen).map_or("", |(_, name)| name);
        format!("{nodes}{kind}")
    }
}

fn simulate(sim: &Sim) -> ExitCode {
    let first = match &sim.seed_from {
        Some(text) => hash_bytes(text.as_bytes()) >> 16,
        None => sim.seed,
    };
    if sim.study.is_wanted() {
        return run_study(sim, first);
    }
    if sim.trace || sim.history.is_some() {
        let report = run::<Node>(&sim.scenario(first), sim.trace);
        say!("{}", report.trace);
        if let Some(file) = &sim.history
            && let Err(error) = testnet::file::write(file, &report.history)
        {
            note!("{}: {error}", file.display());
            return ExitCode::from(2);
        }
    }
    let minutes = sim.minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0));
    let seeds = sim.seeds.unwrap_or(if minutes.is_some() { u64::MAX - first } else { 1 });
    sayln!("seeds from {first}");
    let scenarios = (first..first.saturating_add(seeds)).map(|seed| sim.scenario(seed));
    let batch = Batch::run_on::<Node>(sim.jobs.max(1), scenarios, minutes, sim.failures);
    say!("{batch}");
    for (scenario, failure) in &batch.failures {
        sayln!("\n{}", explain::<Node>(scenario, failure));
        sayln!("repeat with: scatter-testnet sim --seed {}{} --trace", scenario.seed, sim.flags());
    }
    if batch.failures.is_empty() {
        sayln!("all is well");
        return ExitCode::SUCCESS;
    }
    ExitCode::from(1)
}

/// Default number of peers of a churn study, and its default duration.
const STUDY_PEERS: usize = 840;
const STUDY_TIME: Duration = Duration::from_secs(600);

fn run_study(sim: &Sim, first: u64) -> ExitCode {
    let asked = match (sim.hours, sim.minutes) {
        (Some(_), Some(_)) => return fail("--hours and --minutes exclude each other".into()),
        (Some(hours), None) => Some(hours * 3600.0),
        (None, minutes) => minutes.map(|minutes| minutes * 60.0),
    };
    let time = asked.map_or(Ok(STUDY_TIME), Duration::try_from_secs_f64);
    let Some(time) = time.ok().filter(|time| !time.is_zero()) else {
        return fail("--hours and --minutes must be above zero".into());
    };
    let peers = sim.nodes.unwrap_or(STUDY_PEERS);
    if !(1..=100_000).contains(&peers) {
        return fail(format!("--nodes {peers} is outside of 1 to 100000"));
    }
    let seeds = first..first.saturating_add(sim.seeds.unwrap_or(1));
    let studies: Result<Vec<_>, String> = seeds.map(|seed| sim.study.study(seed, peers, time)).collect();
    let studies = match studies {
        Ok(studies) => studies,
        Err(why) => return fail(why),
    };
    match sim.study.run(&studies, sim.jobs, &|line| sayln!("{line}")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            note!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn check_file(check: &Check) -> ExitCode {
    let history = match testnet::file::read(&check.history) {
        Ok(history) => history,
        Err(error) => {
            note!("{}: {error}", check.history.display());
            return ExitCode::from(2);
        }
    };
    let circumstances = Circumstances {
        stalls: check.settled.then(Vec::new),
        clock_slack: Some(Duration::from_secs_f64(check.clock_slack)),
        value_bytes_max: Limits::default().value_bytes_max,
    };
    let (operations, keys) = (history.operations.len(), history.by_key().len());
    match check_history(&history, &circumstances) {
        Ok(()) => {
            sayln!("{operations} operations on {keys} keys: all is well");
            ExitCode::SUCCESS
        }
        Err((property, detail)) => {
            sayln!("{operations} operations on {keys} keys: {property} does not hold: {detail}");
            ExitCode::from(1)
        }
    }
}

/// Ends a command that cannot be run as it was typed.
fn fail(why: String) -> ExitCode {
    note!("{why}");
    ExitCode::from(2)
}

/// Returns the daemon: the one that was named, or the one beside this program.
fn daemon_program(named: Option<PathBuf>) -> Result<PathBuf, String> {
    if let Some(missing) = named.as_ref().filter(|program| !program.exists()) {
        let missing = missing.display();
        return Err(format!("there is no program {missing}: name the daemon with --program or SCATTER_BIN"));
    }
    let beside = || Some(std::env::current_exe().ok()?.with_file_name("scatter"));
    named.or_else(beside).filter(|program| program.exists()).ok_or_else(|| {
        "there is no scatter beside this program: build it (cargo build --release), or name it with --program".into()
    })
}

/// Set by SIGINT and SIGTERM: a run ends early and cleans up.
static STOPPED: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_: libc::c_int) {
    STOPPED.store(true, Ordering::Relaxed);
}

/// Lets SIGINT and SIGTERM set [`STOPPED`].
fn stop_on_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler only stores to an atomic.
        unsafe { libc::signal(signal, on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    }
}

fn run_churn(churn: ChurnArgs) -> ExitCode {
    let program = match daemon_program(churn.program) {
        Ok(program) => program,
        Err(why) => return fail(why),
    };
    let Some(time) = Duration::try_from_secs_f64(churn.minutes * 60.0).ok().filter(|time| *time > Duration::ZERO)
    else {
        return fail(format!("--minutes {} is not a valid duration", churn.minutes));
    };
    if !(churn.rate > 0.0 && churn.rate <= 10_000.0) {
        return fail(format!("--rate {} is not above 0 and at most 10000", churn.rate));
    }
    let lives = if churn.pareto { Lives::pareto(churn.lifetime) } else { Lives::Exponential(churn.lifetime) };
    let mut flags = vec!["--durability".into(), churn.durability];
    flags.extend(churn.flags);
    let parameters = testnet::churn::ChurnParameters {
        program,
        peers: usize::from(churn.local),
        lives,
        time,
        warm_up: churn.warm_up,
        keys: churn.keys as usize,
        rate: churn.rate,
        seed: churn.seed,
        work: churn.work.unwrap_or_else(std::env::temp_dir).join(format!("scatter-churn-{}", std::process::id())),
        flags,
    };
    stop_on_signals();
    sayln!("{} peers, {lives:?}, seed {}", churn.local, churn.seed);
    let report = match testnet::churn::run(&parameters, &STOPPED, &mut |line| sayln!("{line}")) {
        Ok(report) => report,
        Err(error) => {
            note!("{error}");
            return ExitCode::FAILURE;
        }
    };
    sayln!("{report}");
    if let Some(directory) = churn.out
        && let Err(why) = testnet::file::write_text(&directory, "churn.csv", &report.csv())
    {
        return fail(why);
    }
    if report.failed_percent() > churn.failed_max {
        note!("more than {} % of the operations failed", churn.failed_max);
        return ExitCode::FAILURE;
    }
    if report.is_right() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn compare_stores(bench: Bench) -> ExitCode {
    let program = match daemon_program(bench.program) {
        Ok(program) => program,
        Err(why) => return fail(why),
    };
    let Ok(seconds) = Duration::try_from_secs_f64(bench.seconds) else {
        return fail(format!("--seconds {} is not a valid duration", bench.seconds));
    };
    let home = std::env::var_os("HOME").map_or_else(std::env::temp_dir, PathBuf::from);
    let cache = bench.cache.unwrap_or_else(|| home.join(".cache/scatter-testnet"));
    let work = bench.work.unwrap_or_else(std::env::temp_dir).join(format!("scatter-compare-{}", std::process::id()));
    let wanted = |kind| bench.stores.contains(&kind);
    let tools = Tools::prepare(program, &cache, wanted(StoreKind::Etcd), wanted(StoreKind::Zookeeper));
    let comparison = BenchParameters {
        kinds: bench.stores,
        rounds: bench.rounds.max(1),
        seconds,
        keys: bench.keys,
        value_bytes: bench.value_bytes,
        work,
    };
    let results = compare(&comparison, &tools, |text| note!("{text}"));
    // Only empty directories are left of it.
    let _ = std::fs::remove_dir_all(&comparison.work);
    say!("{results}");
    match bench.out.map(|directory| (results.write(&directory), directory)) {
        Some((Err(error), directory)) => fail(format!("{}: {error}", directory.display())),
        _ => ExitCode::SUCCESS,
    }
}
