//! Settings from the environment, for all programs of the project. An empty variable counts as unset. A flag on the command line wins at
//! any place. An error about the value of a variable names the variable, not a flag that was not typed.
//!
//! Small facts and means of a process have their home here, too: the identity of the program, the wall clock, locks, the
//! priority of threads, and a limit of log lines.
//!
//! # Examples
//!
//! ```
//! use std::ffi::OsString;
//!
//! use clap::{Arg, Command};
//!
//! let command = || Command::new("scatter").arg(Arg::new("join").long("join").env("SCATTER_JOIN"));
//! let typed = [OsString::from("scatter")];
//! // An empty variable counts as unset.
//! let matches = environment::without_unused(command(), &typed, &|_| Some(OsString::new())).try_get_matches_from(&typed);
//! assert_eq!(matches?.get_one::<String>("join"), None);
//! assert_eq!(environment::shown("a\x1b[31m"), "a\\u{1b}[31m");
//! # Ok::<(), clap::Error>(())
//! ```
#![forbid(unsafe_code)]

mod clock;
mod hangup;
mod host;
mod lock;
mod priority;
mod seldom;
pub mod version;

use std::ffi::{OsStr, OsString};

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command};

pub use clock::{unix_ms, unix_time};
pub use hangup::is_hangup_ignored;
pub use host::names_this_machine;
pub use lock::lock;
pub use priority::step_back;
pub use seldom::Seldom;

/// Function that returns the value of a variable of the environment.
pub type Lookup<'a> = &'a dyn Fn(&OsStr) -> Option<OsString>;

/// Returns the value of a variable in the environment of this process.
pub fn of_process(name: &OsStr) -> Option<OsString> {
    std::env::var_os(name)
}

/// Returns the command without the variables that are empty or have their flags in `typed`, here and in all subcommands. A global
/// flag needs the second rule: clap prefers the variable where the flag stands before the subcommand.
pub fn without_unused(command: Command, typed: &[OsString], lookup: Lookup<'_>) -> Command {
    let is_empty = |arg: &Arg| arg.get_env().and_then(lookup).is_some_and(|value| value.is_empty());
    let is_typed = |arg: &Arg| arg.get_long().is_some_and(|long| is_typed(long, typed));
    let command =
        command.mut_args(|arg| if is_empty(&arg) || is_typed(&arg) { arg.env(Resettable::Reset) } else { arg });
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    let inside = |sub| without_unused(sub, typed, lookup);
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, inside))
}

/// Returns the text for stderr about a refused command line: the error, and the environment variable of the wrong value, if any.
/// Its quotations of the command line are escaped, so a terminal only shows them.
pub fn refusal(error: &clap::Error, command: &Command, typed: &[OsString], lookup: Lookup<'_>) -> String {
    let mut text = shown(&error.to_string());
    if let Some(name) = culprit(error, command, typed, lookup) {
        text.push_str(&format!("\nThis value is from the environment variable {name}.\n"));
    }
    text
}

/// Escapes a text from outside, so that a terminal only shows it: characters that could steer the terminal are escaped as in
/// Rust.
pub fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            ' '..='~' | '\n' | '…' => shown.push(char),
            _ => shown.extend(char.escape_debug()),
        }
    }
    shown
}

/// Returns the variable that an error is about; `None` where its flag is in `typed`, or the error is about no variable.
fn culprit(error: &clap::Error, command: &Command, typed: &[OsString], lookup: Lookup<'_>) -> Option<String> {
    let Some(ContextValue::String(shown)) = error.get(ContextKind::InvalidArg) else { return None };
    let long = shown.split([' ', '=', '[']).next()?.strip_prefix("--").filter(|long| !is_typed(long, typed))?;
    let variable = variable_of(command, long, lookup)?;
    Some(variable.to_string_lossy().into_owned())
}

/// Returns the variable behind a flag, where the variable is set.
fn variable_of(command: &Command, long: &str, lookup: Lookup<'_>) -> Option<OsString> {
    let own = command.get_arguments().filter(|arg| arg.get_long() == Some(long)).filter_map(Arg::get_env);
    let set = own.filter(|name| lookup(name).is_some()).map(OsStr::to_owned).next();
    set.or_else(|| command.get_subcommands().find_map(|sub| variable_of(sub, long, lookup)))
}

/// Returns whether this flag is on the command line. There are no flags behind `--`.
fn is_typed(long: &str, typed: &[OsString]) -> bool {
    let is_flag = |word: &OsString| {
        let word = word.to_string_lossy();
        let rest = word.strip_prefix("--").and_then(|word| word.strip_prefix(long));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    };
    typed.iter().take_while(|word| *word != "--").any(is_flag)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VARIABLE: &str = "SCATTER_TEST_UNUSED";

    fn command() -> Command {
        let join = Arg::new("join").long("join").env(VARIABLE).value_parser(clap::value_parser!(u8));
        Command::new("scatter").subcommand(Command::new("run").arg(join))
    }

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn an_empty_variable_is_unset_and_a_flag_wins() {
        let of = |value: &'static str, typed: &[&str]| {
            let command = without_unused(command(), &words(typed), &|_| Some(OsString::from(value)));
            let run = command.find_subcommand("run").unwrap();
            let variable = run.get_arguments().find(|arg| arg.get_id() == "join").unwrap().get_env();
            variable.is_some_and(|name| name == VARIABLE)
        };
        assert!(!of("", &["scatter", "run"]));
        assert!(of("7", &["scatter", "run"]));
        assert!(!of("7", &["scatter", "run", "--join", "8"]));
        assert!(!of("7", &["scatter", "run", "--join=8"]));
        assert!(of("7", &["scatter", "run", "--joined", "--", "--join"]));
    }

    #[test]
    fn nothing_steers_a_terminal() {
        assert_eq!(shown("a\x1b[31m\u{202e}\u{9b}…\n"), "a\\u{1b}[31m\\u{202e}\\u{9b}…\n");
        let typed = words(&["scatter", "run", "--join=\x1b[31m\u{202e}x"]);
        let error = command().try_get_matches_from(&typed).unwrap_err();
        let text = refusal(&error, &command(), &typed, &|_| None);
        assert!(text.contains("\\u{202e}x") && !text.contains(['\x1b', '\u{202e}']), "{text}");
    }

    #[test]
    fn an_error_names_the_variable_unless_the_flag_was_typed() {
        let set = |_: &OsStr| Some(OsString::from("x"));
        let typed = words(&["scatter", "run", "--join=x"]);
        let error = command().try_get_matches_from(&typed).unwrap_err();
        assert_eq!(culprit(&error, &command(), &typed, &set), None);
        let untyped = words(&["scatter", "run"]);
        assert_eq!(culprit(&error, &command(), &untyped, &set), Some(VARIABLE.into()));
        assert_eq!(culprit(&error, &command(), &untyped, &|_| None), None);
    }
}
