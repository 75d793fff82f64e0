//! The command line: the name, the arguments and the end of each command.

mod print;
mod run;
mod show;
mod timeline;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};

use crate::list::AppendMode;
use crate::name::UserName;

/// Version and commit, as `--version` prints them behind the name of the program.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("SCATTER_BUILD_COMMIT"), ")");

/// A small Twitter-like service on Scatter.
#[derive(Debug, Parser)]
#[command(name = "chirp", version = VERSION, propagate_version = true, arg_required_else_help = true)]
#[command(
    after_help = "User names are not authenticated: anyone can post under any name, unless its user signs (--key). \
    Exit codes: 0 done; 1 the answer is no (no such user, name taken); 2 usage, or an invalid text or name; 3 cannot \
    reach a peer; 4 refused; 5 outcome unknown; 6 nothing was done, try again; 74 the answer could not be printed."
)]
struct Cli {
    #[command(flatten)]
    settings: Settings,
    #[command(subcommand)]
    command: Command,
}

/// What all commands take.
#[derive(Debug, Args)]
pub(crate) struct Settings {
    /// A peer's address for clients; several are repeated or separated by commas: if one does not answer, the next is
    /// asked
    #[arg(
        long,
        global = true,
        value_name = "HOST:PORT",
        env = "SCATTER_ADDR",
        value_delimiter = ',',
        default_value = "127.0.0.1:6479"
    )]
    pub(crate) addr: Vec<String>,

    /// Your user name
    #[arg(long, global = true, value_name = "NAME", env = "CHIRP_USER")]
    pub(crate) user: Option<UserName>,

    /// A file with your signing key: `signup` creates a missing one, `post` signs with it
    #[arg(long, global = true, value_name = "FILE", env = "CHIRP_KEY")]
    pub(crate) key: Option<PathBuf>,

    /// A file with the password, if the peer requires one
    #[arg(long, global = true, value_name = "FILE", env = "SCATTER_PASSWORD_FILE")]
    pub(crate) password_file: Option<PathBuf>,

    /// How lists are appended to: in one operation of the store, or by a read and a write as in the paper
    #[arg(long, global = true, value_name = "HOW", default_value = "atomic")]
    pub(crate) append: Append,

    /// Format of the output
    #[arg(long, global = true, value_name = "FORMAT", env = "SCATTER_OUTPUT", default_value = "text")]
    pub(crate) output: Output,
}

/// The way of appending, as [`AppendMode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Append {
    /// The store appends
    Atomic,
    /// Read, modify, write
    Rmw,
}

impl From<Append> for AppendMode {
    fn from(append: Append) -> AppendMode {
        match append {
            Append::Atomic => AppendMode::Atomic,
            Append::Rmw => AppendMode::ReadModifyWrite,
        }
    }
}

/// The format of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people
    Text,
    /// A JSON object on each line
    Json,
    /// A picture (`ui --once` only)
    Svg,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Sign up under a user name
    Signup {
        /// The name: 1 to 32 of the letters a to z, digits, _ and -
        name: String,
    },
    /// Post a chirp of at most 140 characters
    Post {
        /// Text of the chirp
        text: String,
    },
    /// Follow a user: see that user's chirps in your timeline
    Follow {
        /// Name of the user
        name: String,
    },
    /// Stop following a user
    Unfollow {
        /// Name of the user
        name: String,
    },
    /// List the users that you follow
    Following,
    /// Print the chirps of the users that you follow and your own, newest first
    ///
    /// If you follow many users, chirps are printed as they arrive: those of the first 0.7 s newest first, then every
    /// 0.7 s those that are among the newest N so far; so there can be more than N in all. With --watch the newest
    /// chirp is the last, and new chirps follow as they are posted.
    Timeline {
        /// Number of chirps
        #[arg(short, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        n: u32,
        /// Go on until interrupted
        #[arg(long)]
        watch: bool,
    },
    /// Use Chirp in a full-screen terminal interface
    #[command(
        after_help = "Exit codes: 0 ended by the user; 2 usage, or no terminal; 74 the picture of --once could not be \
        printed; 129 the terminal has gone, or SIGHUP came; 130 SIGINT; 143 SIGTERM. With --once also those of `chirp \
        --help`."
    )]
    Ui {
        /// Print one picture of the screen and exit
        #[arg(long)]
        once: bool,
        /// Size of the picture; by default as the terminal, or 80x24
        #[arg(long, value_name = "COLUMNSxROWS", requires = "once", value_parser = size)]
        size: Option<(u16, u16)>,
    },
    /// Print completions for a shell
    Completions {
        /// Name of the shell
        shell: clap_complete::Shell,
    },
    /// Show a user's profile and latest chirps
    Profile {
        /// Name of the user
        name: String,
        /// Upper limit of the number of chirps
        #[arg(short, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
        n: u32,
    },
}

/// Parses a size: `80x24`.
fn size(text: &str) -> Result<(u16, u16), String> {
    let fits = |(columns, rows): &(u16, u16)| (20..=500).contains(columns) && (6..=200).contains(rows);
    screen::picture::parse_size(text)
        .filter(fits)
        .ok_or_else(|| "a size is COLUMNSxROWS, from 20x6 to 500x200".to_owned())
}

/// Exit code of a command that could not print its answer (`EX_IOERR` of sysexits.h), as those of `scatter`.
pub(crate) const UNPRINTED: u8 = 74;

/// Runs the whole program.
pub fn main() -> ExitCode {
    let typed: Vec<OsString> = std::env::args_os().collect();
    match parse(&typed) {
        Ok(Cli { settings, command }) => run::run(&settings, command),
        Err(error) => refuse(&error, &typed),
    }
}

fn parse(typed: &[OsString]) -> Result<Cli, clap::Error> {
    let matches =
        environment::without_unused(Cli::command(), typed, &environment::of_process).try_get_matches_from(typed)?;
    Cli::from_arg_matches(&matches)
}

/// Returns the script that completes commands in this shell.
pub(crate) fn completions(shell: clap_complete::Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "chirp", &mut script);
    script
}

/// Prints why the command line is refused. Help and version are no errors.
fn refuse(error: &clap::Error, typed: &[OsString]) -> ExitCode {
    if !error.use_stderr() {
        let printed = error.print().and_then(|()| io::stdout().flush());
        return match printed {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => run::unprinted(&error),
        };
    }
    let text = environment::refusal(error, &Cli::command(), typed, &environment::of_process);
    let _ = io::stderr().write_all(text.as_bytes());
    ExitCode::from(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definition_holds() {
        Cli::command().debug_assert();
        let cli = Cli::try_parse_from(["chirp", "--addr", "a:1,b:2", "post", "--user", "ann", "--", "-x"]).unwrap();
        assert_eq!(cli.settings.addr, ["a:1", "b:2"]);
        assert!(matches!(cli.command, Command::Post { text } if text == "-x"));
        for wrong in [&["chirp", "post"][..], &["chirp", "timeline", "-n", "0"], &["chirp", "nope"]] {
            assert!(Cli::try_parse_from(wrong).is_err(), "{wrong:?}");
        }
    }
}
