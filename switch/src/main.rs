//! The `scatter-switch` program.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use switch::soft::cli::{self, SoftArgs};

/// What spreads linearizable reads over all replicas of a group.
#[derive(Debug, Parser)]
#[command(name = "scatter-switch", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 done; 1 it cannot start; 2 usage.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a switch in software: one core, and not line rate
    ///
    /// Clients send their packets (UDP) to it and replicas their answers. Its tables are set by a controller through P4Runtime, or
    /// by --ports and --partition for trials without one. It stops at SIGTERM and SIGINT; at a second one, at once.
    Soft(Box<SoftArgs>),
}

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(Cli { command: Command::Soft(args) }) => cli::run(&args),
        Err(error) => {
            // What was typed is in it, and goes to a terminal. Help and version are no errors.
            let text = cli::shown(&error.to_string());
            if error.use_stderr() {
                eprint!("{text}");
                return ExitCode::from(2);
            }
            print!("{text}");
            ExitCode::SUCCESS
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn definition_holds() {
        Cli::command().debug_assert();
    }
}
