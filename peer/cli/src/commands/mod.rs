//! The command line: names, arguments and exit codes of the subcommands.

mod address;
mod bench;
mod client;
mod data;
mod export;
mod group;
mod groups;
mod json;
mod leave;
mod network;
mod policies;
mod run;
mod status;
mod suggestion;
mod top;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use peer::config::{Format, Layer};
use peer::daemon::Launch;
use peer::exit::{self, Exit};

use crate::demo;

/// A linearizable, self-organizing, peer-to-peer key-value store.
#[derive(Debug, Parser)]
#[command(name = "scatter", version = environment::version::VERSION, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 done; 1 the answer is no (key absent, condition not met, not ready); 2 usage; \
    3 cannot reach a peer; 4 refused (authorisation, limits); 5 outcome unknown; 6 nothing was done, try again; 74 the answer could not be \
    printed.")]
struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Run a peer in the foreground
    #[command(after_help = "Exit codes: 0 the peer was stopped, or has left its network; 1 the peer cannot start or \
            continue; 2 usage; 4 the network refuses the peer permanently; 74 the disk is full or failing: make room, \
            or check the disk, then restart the peer; 75 restart the peer: it rejoins as a new member. The last line \
            of the log gives the reason.")]
    Run(Box<RunArgs>),
    /// Run a small network on this machine, to try things out
    Demo(demo::DemoArgs),
    /// Print the value of a key
    Get(data::GetArgs),
    /// Set a key
    Set(data::SetArgs),
    /// Delete keys
    Del(data::DelArgs),
    /// Set a key if it has the expected value, or is absent (compare-and-set)
    Cas(data::CasArgs),
    /// Increment the number stored at a key
    Incr(data::IncrArgs),
    /// Append to the value of a key
    Append(data::AppendArgs),
    /// Print the status of a peer and its groups
    Status(status::StatusArgs),
    /// Print all groups that a peer is in, with their open transactions and locks
    #[command(
        after_help = "Exit codes: 0 done; 1 the peer is in no group, or one of its groups has no majority; 2 usage; 3 \
        cannot reach the peer."
    )]
    Groups(groups::LookArgs),
    /// Show which group owns each range of the ring, as the groups report it now
    #[command(
        after_help = "Exit codes: 0 the groups cover the ring exactly, each with a majority; 1 a range did not answer, \
            or its group has no majority; 2 usage; 3 cannot reach the peer."
    )]
    Ring(groups::RingArgs),
    /// Find the group and the primary of a key
    #[command(
        after_help = "Exit codes: 0 done; 1 no owner of the key answers, or its group has no majority; 2 usage; 3 \
            cannot reach the peer."
    )]
    Where(groups::WhereArgs),
    /// Show the ring, groups, peers, load and events of a peer, as they change
    ///
    /// All data comes from the peer's HTTP endpoint, which may be on another machine. Press ? for the keys. With --once it
    /// prints one picture instead: without colours where NO_COLOR is set or the output is no terminal.
    #[command(
        after_help = "Exit codes: 0 done; 2 usage, or no terminal; 3 cannot reach a peer; 4 the endpoint is not a \
            peer, or refuses; 74 the picture of --once could not be printed; 129 the terminal has gone, or SIGHUP \
            came; 130 SIGINT; 143 SIGTERM."
    )]
    Top(top::TopArgs),
    /// Make a group split, merge, move its boundary, or exchange members
    ///
    /// Groups do so automatically when their size passes --min-group or --max-group; this command is for administrators
    /// who plan otherwise. Clients notice a short pause at most.
    #[command(
        after_help = "Exit codes: 0 done; 2 usage; 3 cannot reach the peer; 4 refused, with the reason; 5 outcome \
            unknown; 6 nothing was done, try again."
    )]
    Group(group::GroupArgs),
    /// Make a peer leave its network permanently, and wait until it has left
    ///
    /// The other members take over the peer's primary ranges, continue without it, and hold all its data before it
    /// goes. Each step is printed once. Then the peer's daemon exits and belongs to no network: `scatter run` with
    /// --join enters a network again, as a new member.
    ///
    /// A leave cannot be undone: it continues if this command is interrupted, and resumes at the next start if the
    /// daemon is killed. A leave after which fewer than three members would remain needs --force; the last member
    /// cannot leave. To stop a peer for a while only, send it SIGTERM instead (see --away of `scatter run`).
    #[command(after_help = "Exit codes: 0 the peer has left; 2 usage; 3 cannot reach the peer; 4 refused, with the \
        reason; 5 the peer stopped answering before it confirmed that it has left.")]
    Leave(leave::LeaveArgs),
    /// Print the records of a store that no peer serves any more
    ///
    /// For a store whose range was declared lost while its peer was away (`scatter group repair`): the peer keeps that
    /// store as STORE.lost-1 beside its own, and has rejoined as a new member. Possibly no other peer holds these
    /// records.
    #[command(after_help = "Exit codes: 0 done; 2 usage; 4 the directory is not a store, or cannot be read.")]
    Export(export::ExportArgs),
    /// Show the policies that the network agreed on, change them, or change the key that a stopped peer remembers
    ///
    /// Without a subcommand: the policies and the sizes of groups, and how many groups of the ring have their last version.
    #[command(
        after_help = "Exit codes: 0 done; 2 usage; 3 cannot reach a peer; 4 refused, with the reason; 5 outcome \
        unknown; 6 nothing was done, try again."
    )]
    Network(network::NetworkArgs),
    /// Put load on peers, and print the results
    ///
    /// Speaks the Redis protocol, so any server of that protocol can be measured. Keys called key:000000000000 and so on are
    /// written. A closed loop (--in-flight) measures the maximum throughput; an open loop (--rate) measures the latency that
    /// users would see.
    #[command(
        after_help = "Exit codes: 0 done; 1 nothing was done; 2 usage; 3 cannot reach a peer; 4 the load cannot be \
            generated; 6 --fill could not write every key."
    )]
    Bench(bench::BenchArgs),
    /// Print completions for a shell
    Completions {
        /// Name of the shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man,
}

/// Arguments of `scatter run`.
#[derive(Debug, Args)]
struct RunArgs {
    /// Settings file (TOML) with the names of the flags; flags and environment variables take precedence
    #[arg(long, value_name = "FILE", env = "SCATTER_CONFIG")]
    config: Option<PathBuf>,

    #[command(flatten)]
    layer: Layer,

    /// Print all settings with the source of each (see --output), and exit
    #[arg(long)]
    print_config: bool,

    /// Stop when the standard input ends: for a parent process that must not leave peers behind
    #[arg(long, hide = true)]
    stop_with_stdin: bool,
}

/// Address of a peer and form of the answer, for a client command.
#[derive(Clone, Debug, Args)]
struct ClientArgs {
    /// A peer's address for clients
    #[arg(long, value_name = "HOST:PORT", env = "SCATTER_ADDR", value_parser = address::client, default_value = "127.0.0.1:6479")]
    addr: String,

    /// A file with the password, if the peer requires one
    #[arg(long, value_name = "FILE", env = "SCATTER_PASSWORD_FILE")]
    password_file: Option<PathBuf>,

    /// How to print the answer
    #[arg(long, env = "SCATTER_OUTPUT", default_value_t = Format::Text)]
    output: Format,
}

/// Runs the program. `launch` starts the parts of a peer in this process.
pub fn main(launch: Launch) -> ExitCode {
    let typed: Vec<OsString> = std::env::args_os().collect();
    match parse(&typed) {
        Ok((cli, matches)) => dispatch(cli.command, &matches, launch),
        Err(error) => {
            // Help and version are not errors.
            if !error.use_stderr() {
                return print(error.to_string().as_bytes(), Exit::Done);
            }
            let text = environment::refusal(&error, &Cli::command(), &typed, &environment::of_process);
            exit::printed(Exit::Usage, std::io::stderr().write_all(text.as_bytes()))
        }
    }
}

fn parse(args: &[OsString]) -> Result<(Cli, clap::ArgMatches), clap::Error> {
    let command = environment::without_unused(Cli::command(), args, &environment::of_process);
    let matches =
        command.try_get_matches_from(args).map_err(|error| suggestion::improve(error, &Cli::command(), args))?;
    Ok((Cli::from_arg_matches(&matches)?, matches))
}

fn dispatch(command: CliCommand, matches: &clap::ArgMatches, launch: Launch) -> ExitCode {
    match command {
        CliCommand::Run(args) => {
            // Only the matches tell which settings are from the environment.
            let matches = matches.subcommand_matches("run");
            run::run(*args, matches, launch)
        }
        CliCommand::Demo(args) => demo::run(&args),
        CliCommand::Get(args) => data::get(args),
        CliCommand::Set(args) => data::set(args),
        CliCommand::Del(args) => data::del(args),
        CliCommand::Cas(args) => data::cas(args),
        CliCommand::Incr(args) => data::incr(args),
        CliCommand::Append(args) => data::append(args),
        CliCommand::Status(args) => status::status(&args),
        CliCommand::Groups(args) => groups::groups(&args),
        CliCommand::Ring(args) => groups::ring(&args),
        CliCommand::Where(args) => groups::locate(&args),
        CliCommand::Top(args) => top::top(&args),
        CliCommand::Group(args) => group::group(args),
        CliCommand::Leave(args) => leave::leave(&args),
        CliCommand::Export(args) => export::export(&args),
        CliCommand::Network(args) => network::network(&args),
        CliCommand::Bench(args) => bench::bench(&args),
        CliCommand::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "scatter", &mut script);
            print(&script, Exit::Done)
        }
        CliCommand::Man => match manual() {
            Ok(page) => print(&page, Exit::Done),
            Err(error) => exit::fail(Exit::Usage, &format!("cannot make the manual page: {error}")),
        },
    }
}

/// Returns one manual page for the program and all its subcommands.
fn manual() -> std::io::Result<Vec<u8>> {
    let mut command = Cli::command();
    command.build();
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    for subcommand in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        let man = clap_mangen::Man::new(subcommand.clone());
        writeln!(page, ".SH \"SCATTER {}\"", subcommand.get_name().to_uppercase())?;
        man.render_synopsis_section(&mut page)?;
        man.render_description_section(&mut page)?;
        man.render_options_section(&mut page)?;
    }
    Ok(page)
}

/// Returns the administrators' token in this file, if a file is named.
///
/// # Errors
///
/// A text for the user where the file cannot be read.
fn token(file: Option<&PathBuf>) -> Result<Option<Vec<u8>>, String> {
    let Some(path) = file else { return Ok(None) };
    let token = std::fs::read(path).map_err(|error| format!("cannot read the token {}: {error}", path.display()))?;
    Ok(Some(token.trim_ascii().to_vec()))
}

/// Prints to stdout and returns `exit`; where printing fails, see [`exit::printed`].
fn print(bytes: &[u8], exit: Exit) -> ExitCode {
    exit::printed(exit, write(bytes))
}

fn write(bytes: &[u8]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definition_holds() {
        Cli::command().debug_assert();
        assert!(!manual().unwrap().is_empty());
    }

    #[test]
    fn double_dash_ends_flags() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let parsed = |line: &str| parse(&words(line)).map(|(cli, _)| cli.command);
        assert!(matches!(parsed("scatter incr k -- -3"), Ok(CliCommand::Incr(args)) if args.by == -3));
        assert!(matches!(parsed("scatter get -- --k"), Ok(CliCommand::Get(args)) if args.key == "--k"));
        assert!(parsed("scatter cas k --old 1 --absent 2").is_err());
        assert!(parsed("scatter cas k 2").is_err());
        assert!(parsed("scatter nope").is_err());
    }
}
