//! `scatter-switch soft`: its arguments, its start and its end.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{Args, ValueEnum};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use super::Switch;
use crate::device::Device;
use crate::dirty::{Region, Shape};
use crate::monitoring::serve;
use crate::pipeline::REGISTERS;
use crate::tables::{Partition, Replica};

/// Number of a switch in software among its controller's devices.
pub const DEVICE: u64 = 1;

/// Arguments of `scatter-switch soft`.
#[derive(Debug, Args)]
pub struct SoftArgs {
    /// Address for the packets of clients and replicas (UDP)
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    listen: SocketAddr,

    /// Address for controllers (P4Runtime), or `off`
    #[arg(long, value_name = "HOST:PORT", value_parser = address_or_off, default_value = "off")]
    p4runtime: Endpoint,

    /// Address of /metrics and /healthz (HTTP), or `off`
    #[arg(long, value_name = "HOST:PORT", value_parser = address_or_off, default_value = "off")]
    metrics: Endpoint,

    /// Addresses of replicas, by their numbers: for trials without a controller
    #[arg(long, value_name = "REPLICA=HOST:PORT,…", value_delimiter = ',', value_parser = port)]
    ports: Vec<(Replica, SocketAddr)>,

    /// A partition, for trials without a controller; repeat it for more, and they share the dirty set evenly
    ///
    /// As NUMBER,primary=REPLICA and, where wanted, ,replicas=REPLICA+REPLICA*WEIGHT+… ,term=TERM ,switch=ID. Single reads go to
    /// `replicas`, or all to the primary where there are none; a weight is 1 to 255, 1 by default, as are term and id.
    #[arg(long, value_name = "PARTITION", value_parser = partition)]
    partition: Vec<Given>,

    /// Format of messages
    #[arg(long, value_name = "FORMAT", env = "SCATTER_OUTPUT", default_value = "text")]
    output: Output,
}

/// An endpoint, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint {
    Off,
    At(SocketAddr),
}

/// Format of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people
    Text,
    /// A JSON object on each line
    Json,
}

/// Partition from the command line, without the places that are derived later.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Given {
    number: u32,
    term: u64,
    switch: u32,
    primary: Replica,
    replicas: Vec<(Replica, u8)>,
}

/// Parses `HOST:PORT`.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    // A name is resolved once, at the start.
    let mut found = text.to_socket_addrs().map_err(|_| "not HOST:PORT, or an unknown host name".to_owned())?;
    found.next().ok_or_else(|| "a name without an address".to_owned())
}

fn address_or_off(text: &str) -> Result<Endpoint, String> {
    if text == "off" { Ok(Endpoint::Off) } else { address(text).map(Endpoint::At) }
}

fn port(text: &str) -> Result<(Replica, SocketAddr), String> {
    let (replica, at) = text.split_once('=').ok_or_else(|| "a port must be REPLICA=HOST:PORT".to_owned())?;
    let replica = replica.parse().map_err(|_| "a replica must be a number".to_owned())?;
    match address(at)? {
        at if at.port() == 0 => Err("port 0 is not a usable port".to_owned()),
        at => Ok((replica, at)),
    }
}

fn partition(text: &str) -> Result<Given, String> {
    let mut words = text.split(',');
    let number = words.next().and_then(|word| word.parse().ok());
    let number = number.ok_or_else(|| "a partition must begin with its number".to_owned())?;
    let mut given = Given { number, term: 1, switch: 1, primary: 0, replicas: Vec::new() };
    let mut primary = None;
    for word in words {
        let (name, value) =
            word.split_once('=').ok_or_else(|| "after a partition's number come settings NAME=VALUE".to_owned())?;
        let wrong = || format!("the value of {name} is invalid");
        match name {
            "term" => given.term = value.parse().map_err(|_| wrong())?,
            "switch" => given.switch = value.parse().map_err(|_| wrong())?,
            "primary" => primary = Some(value.parse().map_err(|_| wrong())?),
            "replicas" => {
                given.replicas = value.split('+').map(weighed).collect::<Option<_>>().ok_or_else(wrong)?;
            }
            _ => return Err("a partition's settings are primary, replicas, term and switch".to_owned()),
        }
    }
    given.primary = primary.ok_or_else(|| "a partition needs a primary".to_owned())?;
    Ok(given)
}

/// Parses `7` or `7*2`.
fn weighed(text: &str) -> Option<(Replica, u8)> {
    let (replica, weight) = text.split_once('*').unwrap_or((text, "1"));
    Some((replica.parse().ok()?, weight.parse().ok().filter(|weight| *weight > 0)?))
}

/// Reason for which the switch does not run.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error("{0}")]
    Usage(String),
    #[error("cannot listen on {0}: {1}")]
    Address(SocketAddr, io::Error),
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
}

/// Returns the exit code of a command that printed an answer: 74 if that failed (`EX_IOERR` of sysexits.h), as in the commands of
/// `scatter`.
pub fn printed(written: io::Result<()>) -> ExitCode {
    const UNPRINTED: u8 = 74;
    let Err(error) = written else { return ExitCode::SUCCESS };
    // A reader that closes the pipe wants no message.
    if error.kind() != io::ErrorKind::BrokenPipe {
        let _ = writeln!(io::stderr(), "scatter-switch: cannot print the answer: {error}");
    }
    ExitCode::from(UNPRINTED)
}

/// Runs the switch to its end.
pub fn run(args: &SoftArgs) -> ExitCode {
    match start(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => {
            let (why, exit) =
                (environment::shown(&stop.to_string()), if matches!(stop, Stop::Usage(_)) { 2 } else { 1 });
            let _ = writeln!(io::stderr(), "scatter-switch: {why}");
            ExitCode::from(exit)
        }
    }
}

fn start(args: &SoftArgs) -> Result<(), Stop> {
    let device = Arc::new(Device::new(Shape::DEFAULT, REGISTERS));
    set_tables(args, &device).map_err(Stop::Usage)?;
    let stop = stop_at_signals()?;
    let switch = Switch::bind(args.listen, device.clone()).map_err(|error| Stop::Address(args.listen, error))?;
    let metrics = match args.metrics {
        Endpoint::Off => None,
        Endpoint::At(at) => {
            let listener = TcpListener::bind(at).map_err(|error| Stop::Address(at, error))?;
            let address = listener.local_addr()?;
            serve(listener, switch.metrics()?)?;
            Some(address)
        }
    };
    // Held until the end: the service stops when it is dropped.
    let controllers = serve_controllers(args.p4runtime, &device)?;
    let p4runtime = controllers.as_ref().map(Controllers::address);
    let line = ready(args.output, switch.socket().local_addr()?, p4runtime, metrics);
    // A closed stdout is not an error.
    let _ = writeln!(io::stdout(), "{line}");
    switch.run(&stop);
    Ok(())
}

#[cfg(feature = "p4runtime")]
use crate::p4rt::server::Running as Controllers;

/// This build has no service for controllers.
#[cfg(not(feature = "p4runtime"))]
enum Controllers {}

#[cfg(not(feature = "p4runtime"))]
impl Controllers {
    fn address(&self) -> SocketAddr {
        match *self {}
    }
}

/// Answers controllers, in a thread of its own.
fn serve_controllers(endpoint: Endpoint, device: &Arc<Device>) -> Result<Option<Controllers>, Stop> {
    match endpoint {
        Endpoint::Off => Ok(None),
        #[cfg(feature = "p4runtime")]
        Endpoint::At(at) => {
            let target = Arc::new(crate::p4rt::device::Controlled::new(device.clone()));
            let running = crate::p4rt::server::spawn(at, DEVICE, target).map_err(|error| Stop::Address(at, error))?;
            Ok(Some(running))
        }
        #[cfg(not(feature = "p4runtime"))]
        Endpoint::At(_) => {
            let _ = device;
            Err(Stop::Usage("this build does not include P4Runtime: --p4runtime must be off".into()))
        }
    }
}

/// The first signal asks for the end; a second one ends the process at once. A SIGHUP does not count as second: where a terminal
/// closes, both the kernel and the shell send one.
fn stop_at_signals() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        flag::register_conditional_shutdown(signal, 128 + signal, stop.clone())?;
        flag::register(signal, stop.clone())?;
    }
    if !environment::is_hangup_ignored() {
        flag::register(SIGHUP, stop.clone())?;
    }
    Ok(stop)
}

fn set_tables(args: &SoftArgs, device: &Device) -> Result<(), String> {
    if args.p4runtime == Endpoint::Off && args.partition.is_empty() {
        return Err("no controller could set the switch's tables: give --p4runtime, or --ports and --partition".into());
    }
    let mut state = device.lock();
    for (replica, at) in &args.ports {
        if state.ports.get(*replica).is_some() {
            return Err(format!("two ports of replica {replica}"));
        }
        state.ports.set(*replica, *at).map_err(|error| error.to_string())?;
    }
    // Each partition takes an equal part of every stage.
    let slots = Shape::DEFAULT.slots / args.partition.len().max(1).next_power_of_two();
    for (index, given) in args.partition.iter().enumerate() {
        let Given { number, term, switch, primary, replicas } = given.clone();
        if state.pipeline().partition(number).is_some() {
            return Err(format!("two partitions of number {number}"));
        }
        let (index, slots) = (index as u32, slots as u32);
        let region = Region { first: index * slots, slots };
        let active = !replicas.is_empty();
        let partition = Partition { index, region, term, switch, active, primary, replicas };
        state.set_partition(number, partition).map_err(|error| format!("partition {number}: {error}"))?;
    }
    Ok(())
}

/// Returns the line that announces that packets are taken from now on. Addresses need no escaping in JSON.
fn ready(output: Output, listen: SocketAddr, p4runtime: Option<SocketAddr>, metrics: Option<SocketAddr>) -> String {
    let or = |address: Option<SocketAddr>, none: &str, quote: &str| match address {
        Some(address) => format!("{quote}{address}{quote}"),
        None => none.to_owned(),
    };
    match output {
        Output::Text => {
            let (p4runtime, metrics) = (or(p4runtime, "off", ""), or(metrics, "off", ""));
            format!("ready listen={listen} p4runtime={p4runtime} metrics={metrics}")
        }
        Output::Json => {
            let (p4runtime, metrics) = (or(p4runtime, "null", "\""), or(metrics, "null", "\""));
            format!(r#"{{"event":"ready","listen":"{listen}","p4runtime":{p4runtime},"metrics":{metrics}}}"#)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_as_they_are_written() {
        let all = partition("7,primary=1,replicas=1+2*3,term=5,switch=9").unwrap();
        assert_eq!(all, Given { number: 7, term: 5, switch: 9, primary: 1, replicas: vec![(1, 1), (2, 3)] });
        let least = partition("7,primary=1").unwrap();
        assert_eq!(least, Given { number: 7, term: 1, switch: 1, primary: 1, replicas: Vec::new() });
        for wrong in
            ["", "x,primary=1", "7", "7,primary=x", "7,primary=1,replicas=", "7,primary=1,replicas=1*0", "7,a=b", "7,a"]
        {
            assert!(partition(wrong).is_err(), "{wrong}");
        }
        assert_eq!(port("3=127.0.0.1:9"), Ok((3, "127.0.0.1:9".parse().unwrap())));
        for wrong in ["", "3", "x=127.0.0.1:9", "3=127.0.0.1", "3=127.0.0.1:0"] {
            assert!(port(wrong).is_err(), "{wrong}");
        }
        assert_eq!(address_or_off("off"), Ok(Endpoint::Off));
    }
}
