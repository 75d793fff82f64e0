//! The `scatter-switch` program.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
#[cfg(feature = "control")]
use switch::controller::cli::{ControlArgs, control};
use switch::soft::cli::{self, SoftArgs};
#[cfg(feature = "p4runtime")]
use switch::trace::cli::{ReplayArgs, replay};

/// Version and commit, as `--version` prints them behind the name of the program.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("SCATTER_BUILD_COMMIT"), ")");

/// Spreads linearizable reads over all replicas of a group.
#[derive(Debug, Parser)]
#[command(name = "scatter-switch", version = VERSION, propagate_version = true, arg_required_else_help = true)]
#[command(
    after_help = "Exit codes: 0 done; 1 the program cannot start, or a switch does not do what a story requires; 2 \
        usage; 74 the answer could not be printed."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a switch in software: one core, and not line rate
    ///
    /// Clients send their packets (UDP) to it, and replicas their answers. A controller sets its tables through P4Runtime; for
    /// trials without one, --ports and --partition do. It stops at SIGTERM, SIGINT and SIGHUP; at a second SIGTERM or SIGINT, at
    /// once.
    Soft(Box<SoftArgs>),

    /// Maintain a switch's tables for the groups that use the switch
    ///
    /// The controller asks peers about their groups, sets the switch's tables through P4Runtime, and has groups choose ids for
    /// it. Changes are reported on stderr. SIGTERM, SIGINT and SIGHUP end it, and the tables stay as they are. They also stay
    /// when it is killed; the next controller continues with them.
    #[cfg(feature = "control")]
    Control(ControlArgs),

    /// Play a story on a switch: set its tables, send it packets, and compare their treatment with the story
    ///
    /// No other client may use the switch meanwhile. On BMv2 the routes to this machine have to be set beforehand.
    #[cfg(feature = "p4runtime")]
    Replay(ReplayArgs),

    /// Print completions for a shell
    Completions {
        /// Name of the shell
        shell: clap_complete::Shell,
    },
}

fn main() -> ExitCode {
    let typed: Vec<OsString> = std::env::args_os().collect();
    match parse(&typed) {
        Ok(Cli { command: Command::Soft(args) }) => cli::run(&args),
        #[cfg(feature = "control")]
        Ok(Cli { command: Command::Control(args) }) => control(&args),
        #[cfg(feature = "p4runtime")]
        Ok(Cli { command: Command::Replay(args) }) => replay(&args),
        Ok(Cli { command: Command::Completions { shell } }) => print(&completions(shell)),
        Err(error) => {
            // Help and version are not errors.
            if !error.use_stderr() {
                return print(error.to_string().as_bytes());
            }
            let text = environment::refusal(&error, &Cli::command(), &typed, &environment::of_process);
            let _ = io::stderr().write_all(text.as_bytes());
            ExitCode::from(2)
        }
    }
}

/// Prints an answer; the exit code tells whether that worked.
fn print(text: &[u8]) -> ExitCode {
    let mut out = io::stdout().lock();
    cli::printed(out.write_all(text).and_then(|()| out.flush()))
}

/// Returns a script that completes the command line in this shell.
fn completions(shell: clap_complete::Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "scatter-switch", &mut script);
    script
}

fn parse(typed: &[OsString]) -> Result<Cli, clap::Error> {
    let matches =
        environment::without_unused(Cli::command(), typed, &environment::of_process).try_get_matches_from(typed)?;
    Cli::from_arg_matches(&matches)
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
