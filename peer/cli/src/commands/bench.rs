//! `scatter bench`: puts load on peers, and prints the results.

use std::fmt::Write as _;
use std::net::ToSocketAddrs as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use load::{CpuTime, Distribution, Failed, Pace, Plan, Report, Resp, cpu_time, resident_bytes};
use peer::config::Format;
use peer::exit::{Exit, fail};
use serde_json::{Value as Json, json};

use super::client::{Failure, password};
use super::print;

/// Upper limit of a connection's open requests in an open loop.
const OPEN_IN_FLIGHT_MAX: usize = 1024;

/// Arguments of `scatter bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Addresses for clients; connections are spread over them
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "SCATTER_ADDR",
        value_parser = super::address::client,
        value_delimiter = ',',
        default_value = "127.0.0.1:6479"
    )]
    addr: Vec<String>,
    /// A file with the password, if the peers require one
    #[arg(long, value_name = "FILE", env = "SCATTER_PASSWORD_FILE")]
    password_file: Option<PathBuf>,
    /// Total number of connections
    #[arg(long, value_name = "N", default_value_t = 16)]
    connections: usize,
    /// Requests under way on each connection, all the time (a closed loop)
    #[arg(long, value_name = "N", default_value_t = 16, conflicts_with = "rate")]
    in_flight: usize,
    /// Requests per second, independent of the answers (an open loop): waiting counts from the time at which a
    /// request was due
    #[arg(long, value_name = "REQUESTS/S")]
    rate: Option<f64>,
    /// Number of different keys, called key:000000000000 and so on
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    keys: u64,
    /// Ask for some keys much more often than for the rest: key n in proportion to 1 / n^EXPONENT
    #[arg(long, value_name = "EXPONENT", num_args = 0..=1, default_missing_value = "0.99")]
    zipf: Option<f64>,
    /// Share of writes among the requests, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 100.0)]
    writes: f64,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    value_bytes: usize,
    /// Read from any replica (relaxed reads): faster, possibly stale
    #[arg(long)]
    relaxed: bool,
    /// Write every key once before the measurement; not counted
    #[arg(long)]
    fill: bool,
    /// Warm-up before the measurement; not counted
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    warm_up: f64,
    /// Measured time; counted
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    duration: f64,
    /// Threads that generate the load
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// Seed that alone determines the requested keys
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Process ids of servers on this machine whose CPU and memory use is printed
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pid: Vec<u32>,
    /// How to print the results
    #[arg(long, env = "SCATTER_OUTPUT", default_value_t = Format::Text)]
    output: Format,
}

/// Runs `scatter bench`: exit code 1 where nothing was done.
pub fn bench(args: &BenchArgs) -> ExitCode {
    let (plan, password) = match prepare(args) {
        Ok(prepared) => prepared,
        Err(failure) => return fail(failure.exit, &failure.why),
    };
    let protocol = || if args.relaxed { Resp::relaxed(password.clone()) } else { Resp::new(password.clone()) };
    if args.fill {
        match load::run(&plan.filling(), protocol, || ()) {
            Ok(report) if report.writes.refused() == 0 => (),
            Ok(report) => return fail(Exit::TryAgain, &format!("not every key could be written:\n{report}")),
            Err(failed) => return give_up(&failed),
        }
    }
    let mut edges = Vec::new();
    let ran = load::run(&plan, protocol, || edges.push(args.pid.iter().map(|pid| cpu_time(*pid)).collect()));
    let report = match ran {
        Ok(report) => report,
        Err(failed) => return give_up(&failed),
    };
    let servers = servers(&args.pid, &edges);
    let exit = if report.done() > 0 { Exit::Done } else { Exit::No };
    match args.output {
        Format::Text => print(text(args, &report, &servers).as_bytes(), exit),
        Format::Json => print(format!("{}\n", as_json(args, &report, &servers)).as_bytes(), exit),
    }
}

fn prepare(args: &BenchArgs) -> Result<(Plan, Option<Vec<u8>>), Failure> {
    let usage = |why: String| Failure { exit: Exit::Usage, why };
    let unreachable = |why: String| Failure { exit: Exit::Unreachable, why };
    let mut targets = Vec::new();
    for address in &args.addr {
        let found = address.to_socket_addrs().map(|mut found| found.next());
        let found = found.map_err(|error| unreachable(format!("{address}: {error}")))?;
        targets.push(found.ok_or_else(|| unreachable(format!("{address}: no such host")))?);
    }
    let password = password(args.password_file.as_deref())?;
    let seconds = |name: &str, given: f64| {
        Duration::try_from_secs_f64(given).map_err(|_| usage(format!("--{name} {given} is not a number of seconds")))
    };
    if let Some(pid) = args.pid.iter().find(|pid| cpu_time(**pid).is_none()) {
        return Err(usage(format!("--pid {pid}: there is no such process, or its resource use cannot be read here")));
    }
    let plan = Plan {
        targets,
        connections: args.connections,
        threads: args.threads,
        pace: match args.rate {
            Some(rate) => Pace::Open { rate, in_flight_max: OPEN_IN_FLIGHT_MAX },
            None => Pace::Closed { in_flight: args.in_flight },
        },
        keys: args.keys,
        distribution: args.zipf.map_or(Distribution::Uniform, |exponent| Distribution::Zipf { exponent }),
        writes: args.writes / 100.0,
        value_bytes: args.value_bytes,
        warm_up: seconds("warm-up", args.warm_up)?,
        duration: seconds("duration", args.duration)?,
        seed: args.seed,
        ..Plan::new(Vec::new())
    };
    Ok((plan, password))
}

fn give_up(failed: &Failed) -> ExitCode {
    match failed {
        Failed::Plan(_) => fail(Exit::Usage, &failed.to_string()),
        Failed::Server { .. } => fail(Exit::Unreachable, &format!("cannot reach a peer at {failed}")),
        Failed::Generator(_) => fail(Exit::Refused, &failed.to_string()),
    }
}

/// Resources that a server used during the counted time.
struct Server {
    pid: u32,
    /// `None` for a server that is gone.
    cpu: Option<CpuTime>,
    resident_bytes: Option<u64>,
}

fn servers(pids: &[u32], edges: &[Vec<Option<CpuTime>>]) -> Vec<Server> {
    let at = |edge: usize, place: usize| edges.get(edge).and_then(|times| times.get(place).copied().flatten());
    let server = |(place, pid): (usize, &u32)| Server {
        pid: *pid,
        cpu: at(0, place).zip(at(1, place)).map(|(before, after)| after.since(&before)),
        resident_bytes: resident_bytes(*pid),
    };
    pids.iter().enumerate().map(server).collect()
}

fn us_each(time: Duration, report: &Report) -> f64 {
    time.as_secs_f64() * 1e6 / report.done().max(1) as f64
}

/// Formats the results as text. Writing to a string does not fail.
fn text(args: &BenchArgs, report: &Report, servers: &[Server]) -> String {
    let pace = match args.rate {
        Some(rate) => format!("{rate} requests a second"),
        None => format!("{} requests under way on each", args.in_flight),
    };
    let spread = args.zipf.map_or("uniform".into(), |exponent| format!("Zipf {exponent}"));
    let mut text = format!(
        "{} connections to {}, {pace}; {} keys, {spread}; {}-byte values, {} % writes; {} s\n{report}\n",
        args.connections,
        args.addr.join(" "),
        args.keys,
        args.value_bytes,
        args.writes,
        args.duration
    );
    let known = servers.iter().filter_map(|server| server.cpu).collect::<Vec<_>>();
    if !known.is_empty() {
        let user = known.iter().map(|time| us_each(time.user, report)).sum::<f64>();
        let system = known.iter().map(|time| us_each(time.system, report)).sum::<f64>();
        let _ = writeln!(
            text,
            "CPU {:.1} us per operation: {user:.1} in the programs, {system:.1} in the kernel",
            user + system
        );
    }
    for server in servers {
        let cpu = server.cpu.map_or("is gone".into(), |time| format!("{:.1} us", us_each(time.total(), report)));
        let resident = server.resident_bytes.map(|bytes| format!(", {} MiB resident", bytes >> 20));
        let _ = writeln!(text, "  pid {}: {cpu}{}", server.pid, resident.unwrap_or_default());
    }
    text
}

fn as_json(args: &BenchArgs, report: &Report, servers: &[Server]) -> Json {
    let servers = servers.iter().map(|server| {
        json!({
            "pid": server.pid,
            "cpu_user_s": server.cpu.map(|time| time.user.as_secs_f64()),
            "cpu_system_s": server.cpu.map(|time| time.system.as_secs_f64()),
            "cpu_us_per_op": server.cpu.map(|time| us_each(time.total(), report)),
            "resident_bytes": server.resident_bytes,
        })
    });
    json!({
        "addr": args.addr,
        "connections": args.connections,
        "in_flight": args.rate.is_none().then_some(args.in_flight),
        "rate": args.rate,
        "keys": args.keys,
        "zipf": args.zipf,
        "writes_percent": args.writes,
        "value_bytes": args.value_bytes,
        "relaxed": args.relaxed,
        "seed": args.seed,
        "report": report,
        "servers": servers.collect::<Vec<_>>(),
    })
}
