//! `scatter-testnet lab`: the laboratory by hand.

use std::convert::Infallible;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::Subcommand;
use testnet::lab::{Lab, LabPlan, MeasuredTrips, PathMode, measure, serve_path};

use super::Error;

/// Arguments of the laboratory.
#[derive(Clone, Debug, clap::Args)]
pub struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum LabCommand {
    /// Builds the laboratory of a plan: a network namespace for each host, routers, and the path between them
    ///
    /// The laboratory stays until `lab down`. Needs root, and the programs ip and nft. docs/design/laboratory.md describes the plan.
    Up {
        /// File with the plan, in TOML or JSON
        #[arg(value_name = "PLAN")]
        plan: PathBuf,
    },
    /// Prints the hosts of a laboratory with their addresses, and the counters of its path
    Status {
        /// Name of the laboratory [default: list all]
        name: Option<String>,
    },
    /// Runs a command in a host; the command ends with the laboratory
    Exec {
        /// Name of the laboratory
        name: String,
        /// Name of the host
        host: String,
        /// Command with its arguments, after `--`
        #[arg(last = true, required = true, value_name = "CMD")]
        words: Vec<OsString>,
    },
    /// Sends a command to the path: cut A B, heal, delay A B MS, loss A B PER_MILLE, stats, stop
    ///
    /// A and B are hosts, routers, all of a site (@SITE), or all hosts (*). Each command is for packets from A to B, one way. Hosts behind
    /// one router share its wire. `heal` makes all links as planned again. After `stop` no packet arrives any more.
    Fault {
        /// Name of the laboratory
        name: String,
        /// Command to the path
        #[arg(required = true, value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Measures the round trips between all ordered pairs of sites, by UDP and by TCP, and prints them beside the planned ones
    Measure {
        /// Name of the laboratory
        name: String,
        /// Number of round trips of each pair and protocol
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        samples: u32,
    },
    /// Removes a laboratory, also one that was not built to the end; does nothing if there is none
    Down {
        /// Name of the laboratory
        name: String,
    },
    /// Carries the packets of a laboratory that is being built; `lab up` starts it
    #[command(hide = true)]
    Path {
        /// Name of the laboratory
        name: String,
    },
}

impl LabArgs {
    /// Runs the command. `say` gets the results, a line each.
    ///
    /// # Errors
    /// The reason for a person, and how to go on.
    pub fn run(&self, say: &dyn Fn(&str)) -> Result<(), Error> {
        self.command.run(say).map_err(Error::Failed)
    }
}

impl LabCommand {
    fn run(&self, say: &dyn Fn(&str)) -> Result<(), String> {
        match self {
            LabCommand::Up { plan } => {
                let program = std::env::current_exe().map_err(|error| format!("this program has no path: {error}"))?;
                let lab = Lab::build(LabPlan::read(plan)?, &PathMode::Process(program))?;
                say(&format!("laboratory {} is up", lab.plan().name));
                Ok(())
            }
            LabCommand::Status { name: None } => {
                Lab::names().iter().for_each(|name| say(name));
                Ok(())
            }
            LabCommand::Status { name: Some(name) } => status(&Lab::open(name)?, say),
            LabCommand::Exec { name, host, words } => {
                Lab::open(name)?.exec(host, words).map(|never: Infallible| match never {})
            }
            LabCommand::Fault { name, words } => {
                say(&Lab::open(name)?.tell(&words.join(" "))?);
                Ok(())
            }
            LabCommand::Measure { name, samples } => {
                let lab = Lab::open(name)?;
                lab.tell("stats")?;
                say(&MeasuredTrips::heading());
                measure(&lab, *samples as usize)?.iter().for_each(|trips| say(&trips.to_string()));
                Ok(())
            }
            LabCommand::Down { name } => Lab::destroy(name),
            LabCommand::Path { name } => serve_path(name),
        }
    }
}

/// Prints a line for each host, and the counters.
fn status(lab: &Lab, say: &dyn Fn(&str)) -> Result<(), String> {
    let heading = ["host", "site", "namespace", "own addresses", "seen from elsewhere as"];
    let mut rows = vec![heading.map(str::to_owned)];
    for host in &lab.layout().hosts {
        let list =
            |addresses: &[std::net::IpAddr]| addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let (own, public) = (list(&host.local), list(&host.public));
        rows.push([host.name.clone(), host.site.clone(), host.namespace.clone(), own, public]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        say(cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    say(&format!("path: {}", lab.tell("stats")?));
    Ok(())
}
