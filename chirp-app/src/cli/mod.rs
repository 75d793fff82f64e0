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

/// A small Twitter on any Scatter peer.
#[derive(Debug, Parser)]
#[command(name = "chirp", version = VERSION, propagate_version = true, arg_required_else_help = true)]
#[command(
    after_help = "Names are trusted: whoever says to be somebody can post as them, unless they sign (--key). Exit codes: \
    0 done; 1 the answer is no (no such user, name taken); 2 usage, or a text or name that cannot be; 3 cannot reach a peer; \
    4 refused; 5 outcome unknown; 6 nothing was done, try again; 74 the answer could not be printed."
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
    /// A peer's address for clients; several, repeated or with commas: where one does not answer, the next is asked
    #[arg(
        long,
        global = true,
        value_name = "HOST:PORT",
        env = "SCATTER_ADDR",
        value_delimiter = ',',
        default_value = "127.0.0.1:6479"
    )]
    pub(crate) addr: Vec<String>,

    /// Who you are
    #[arg(long, global = true, value_name = "NAME", env = "CHIRP_USER")]
    pub(crate) user: Option<UserName>,

    /// A file with your key: `signup` makes it where it is not there, `post` signs with it
    #[arg(long, global = true, value_name = "FILE", env = "CHIRP_KEY")]
    pub(crate) key: Option<PathBuf>,

    /// A file with the password, where the peer wants one
    #[arg(long, global = true, value_name = "FILE", env = "SCATTER_PASSWORD_FILE")]
    pub(crate) password_file: Option<PathBuf>,

    /// How lists are appended to: by the store in one operation, or as in the paper, reading and writing
    #[arg(long, global = true, value_name = "HOW", default_value = "atomic")]
    pub(crate) append: Append,

    /// How to print what there is to be said
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
    /// Take a name
    Signup {
        /// 1 to 32 of the letters a to z, digits, _ and -
        name: String,
    },
    /// Post a chirp of at most 140 characters
    Post {
        /// What to say
        text: String,
    },
    /// Have somebody's chirps in your timeline from now on
    Follow {
        /// Whom
        name: String,
    },
    /// Not any more
    Unfollow {
        /// Whom
        name: String,
    },
    /// Whom you follow
    Following,
    /// What those whom you follow and you have posted, newest first
    ///
    /// Where you follow many, lines appear as they come to be known: those of the first 0.7 s newest first, then those of each
    /// 0.7 s more that are among the newest N so far; so there can be more than N in all. With --watch the newest is the last, and new ones follow as they are posted.
    Timeline {
        /// How many of the newest
        #[arg(short, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        n: u32,
        /// Go on until interrupted
        #[arg(long)]
        watch: bool,
    },
    /// Chirp on the whole terminal
    #[command(
        after_help = "Exit codes: 0 you left; 2 usage, or no terminal; 74 the picture of --once could not be printed; 129 the terminal \
        has gone, or SIGHUP came; 130 SIGINT; 143 SIGTERM. With --once also those of `chirp --help`."
    )]
    Ui {
        /// Print one picture of it, and end
        #[arg(long)]
        once: bool,
        /// How large the picture is; by default as the terminal, or 80x24
        #[arg(long, value_name = "COLUMNSxROWS", requires = "once", value_parser = size)]
        size: Option<(u16, u16)>,
    },
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Who somebody is, and what they posted last
    Profile {
        /// Who
        name: String,
        /// How many chirps, at most
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
