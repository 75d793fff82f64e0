//! `scatter-testnet soak`, `local` and `ssh`: networks of real daemons for one run, which is over with the command.

use std::net::{IpAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use testnet::fleet::{self, Fleet, HostEntry, HostKind, Inventory, Note, SoakOptions, UpOptions};

use super::{Error, Print, parse_time};

/// Arguments of `soak`.
#[derive(Clone, Debug, clap::Args)]
pub struct SoakArgs {
    /// Inventory
    inventory: PathBuf,
    /// Duration in hours
    #[arg(long, default_value_t = 1.0, value_parser = hours)]
    hours: f64,
    /// Mean lifetime of a peer: 100, 100s, 5m, 2h
    #[arg(long, value_name = "TIME", default_value = "300s", value_parser = parse_time)]
    lifetime: Duration,
    /// Seed of deaths, faults, transactions and operations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of clients on each host
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    clients: u64,
    /// Path of the daemon's program [default: the inventory's, or `scatter` beside this program]
    #[arg(long, value_name = "FILE", env = "SCATTER_BIN")]
    program: Option<PathBuf>,
    /// Leave the network up at the end
    #[arg(long)]
    keep: bool,
}

/// Arguments of `local`.
#[derive(Clone, Debug, clap::Args)]
pub struct LocalArgs {
    /// Number of peers on this machine
    #[arg(long, value_name = "PEERS", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    peers: u16,
    /// First port; each peer takes three
    #[arg(long, default_value_t = 24_000, value_parser = clap::value_parser!(u16).range(1024..))]
    ports: u16,
    /// Path of the daemon's program [default: `scatter` beside this program]
    #[arg(long, value_name = "FILE", env = "SCATTER_BIN")]
    program: Option<PathBuf>,
    /// Flags of `scatter run` for all peers, after `--`
    #[arg(last = true)]
    flags: Vec<String>,
}

/// Arguments of `ssh`.
#[derive(Clone, Debug, clap::Args)]
pub struct SshArgs {
    /// File with a line for each host: a destination for ssh, and the number of its peers (1 if left out). `#` begins a comment
    #[arg(long, value_name = "FILE")]
    hosts: PathBuf,
    /// Path of the daemon's program [default: `scatter` beside this program]
    #[arg(long, value_name = "FILE", env = "SCATTER_BIN")]
    program: Option<PathBuf>,
    /// Flags of `scatter run` for all peers, after `--`
    #[arg(last = true)]
    flags: Vec<String>,
}

fn hours(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|hours| (0.001..=10_000.0).contains(hours)).ok_or("from 0.001 to 10000".into())
}

/// Brings a network up for this command alone.
fn up(inventory: Inventory, program: Option<PathBuf>, stop: &AtomicBool, note: Note<'_>) -> Result<Fleet, Error> {
    let program = crate::daemon_program(program.or_else(|| inventory.program.clone())).map_err(Error::Refused)?;
    let fleet = Fleet::open(inventory, true)?;
    let options = UpOptions { program, leaves_out: false, seed: 1 };
    let report = fleet.up(&options, stop, note).map(|report| report.failed);
    let why = match report {
        Ok(failed) => failed.first().cloned(),
        Err(error) => Some(error.to_string()),
    };
    match why.filter(|_| !stop.load(Ordering::Relaxed)) {
        None => Ok(fleet),
        Some(why) => {
            wipe(fleet, note)?;
            Err(Error::Failed(why))
        }
    }
}

fn wipe(fleet: Fleet, note: Note<'_>) -> Result<(), Error> {
    let report = fleet::down(&fleet, true, note)?;
    match report.failed.first() {
        None => Ok(fleet::forget(fleet)?),
        Some(first) => Err(Error::Failed(format!("not everything is removed: {first}"))),
    }
}

/// Waits for an interrupt, and takes the network down then.
fn hold(fleet: Fleet, stop: &AtomicBool, say: Print<'_>, note: Note<'_>) -> Result<(), Error> {
    for line in fleet.endpoints() {
        say(&line);
    }
    say("ready; an interrupt (Ctrl-C) ends and removes all of it");
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
    }
    wipe(fleet, note)
}

impl LocalArgs {
    /// Runs peers on this machine until an interrupt.
    ///
    /// # Errors
    /// The peers cannot be started; nothing is left of them then.
    pub fn run(self, stop: &AtomicBool, say: Print<'_>, note: Note<'_>) -> Result<(), Error> {
        let mut inventory = Inventory::local(&format!("local-{}", self.ports), self.peers);
        inventory.hosts[0].ports = Some(self.ports);
        inventory.flags = self.flags;
        inventory.check().map_err(Error::Refused)?;
        hold(up(inventory, self.program, stop, note)?, stop, say, note)
    }
}

impl SshArgs {
    /// Runs peers on other machines until an interrupt.
    ///
    /// # Errors
    /// The file is not understood, or the peers cannot be started; nothing is left of them then.
    pub fn run(self, stop: &AtomicBool, say: Print<'_>, note: Note<'_>) -> Result<(), Error> {
        let mut inventory = hosts_of(&self.hosts).map_err(Error::Refused)?;
        inventory.flags = self.flags;
        inventory.check().map_err(|why| Error::Refused(format!("{}: {why}", self.hosts.display())))?;
        hold(up(inventory, self.program, stop, note)?, stop, say, note)
    }
}

/// Reads a list of hosts. The address of a host is what its name resolves to here.
fn hosts_of(file: &Path) -> Result<Inventory, String> {
    let named = |why: &str| format!("{}: {why}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| named(&error.to_string()))?;
    let mut hosts = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(destination) = words.next() else { continue };
        let wrong = |why: &str| named(&format!("line {}: {why}", index + 1));
        let peers = words.next().map_or(Ok(1), str::parse).map_err(|_| wrong("the number of peers is no number"))?;
        let name = destination.rsplit('@').next().unwrap_or_default();
        let address = address_of(name)
            .ok_or_else(|| wrong("the name of the host does not resolve; an inventory can say its address"))?;
        let mut host = HostEntry::local(&format!("host-{}", hosts.len() + 1), peers);
        (host.kind, host.ssh, host.address) = (HostKind::Ssh, Some(destination.to_owned()), Some(address));
        hosts.push(host);
    }
    Ok(Inventory { hosts, ..Inventory::local("ssh", 1) })
}

fn address_of(name: &str) -> Option<IpAddr> {
    (name, 22).to_socket_addrs().ok()?.next().map(|address| address.ip())
}

impl SoakArgs {
    /// Brings the network up, lets it live through rounds of disturbance, and takes it down.
    ///
    /// # Errors
    /// The network cannot be brought up; something was wrong.
    pub fn run(self, stop: &AtomicBool, say: Print<'_>, note: Note<'_>) -> Result<(), Error> {
        let inventory = Inventory::read(&self.inventory)?;
        let tool =
            std::env::current_exe().map_err(|error| Error::Failed(format!("this program has no path: {error}")))?;
        let fleet = up(inventory, self.program, stop, note)?;
        let options = SoakOptions {
            time: Duration::from_secs_f64(self.hours * 3600.0),
            lifetime: self.lifetime,
            seed: self.seed,
            clients: self.clients,
            tool,
        };
        say(&format!("seed {}", self.seed));
        let verdict = fleet::soak(&fleet, &options, stop, note);
        let out = std::env::temp_dir().join(format!("scatter-soak-{}", std::process::id()));
        if verdict.as_ref().map_or(true, |verdict| verdict.wrong.is_some()) {
            match fleet::collect(&fleet, &out) {
                Ok(_) => say(&format!("logs and histories are in {}", out.display())),
                Err(error) => note(&error.to_string()),
            }
        }
        if !self.keep {
            wipe(fleet, note)?;
        }
        let verdict = verdict?;
        say(&format!(
            "{} rounds, {} deaths, {} faults and transactions, {} operations, {} of them without an answer",
            verdict.rounds, verdict.deaths, verdict.actions, verdict.operations.0, verdict.operations.1
        ));
        match verdict.wrong {
            None => {
                say("linearizable, no acknowledged write is missing, and all peers served again after each round");
                Ok(())
            }
            Some(why) => Err(Error::Failed(format!(
                "{why}\nrepeat with: scatter-testnet soak {} --hours {} --seed {} --lifetime {}s",
                self.inventory.display(),
                self.hours,
                self.seed,
                self.lifetime.as_secs_f64()
            ))),
        }
    }
}
