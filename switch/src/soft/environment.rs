//! Settings from the environment, as `scatter` takes them: an empty variable counts as unset, and an error about the value of
//! one names it, not a flag that nobody typed.

use std::env::var_os;
use std::ffi::{OsStr, OsString};

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command};

/// The command without its subcommands' variables that are empty.
pub fn without_empty(command: Command) -> Command {
    let is_empty = |arg: &Arg| arg.get_env().and_then(var_os).is_some_and(|value| value.is_empty());
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| {
        let reset = |arg: Arg| if is_empty(&arg) { arg.env(Resettable::Reset) } else { arg };
        command.mut_subcommand(name, |sub| sub.mut_args(reset))
    })
}

/// The variable that an error is about, where its flag was not typed.
pub fn culprit(error: &clap::Error, command: &Command, typed: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(shown)) = error.get(ContextKind::InvalidArg) else { return None };
    let flag = shown.split([' ', '=', '[']).next().filter(|flag| flag.starts_with("--"))?;
    let is_flag = |word: &OsString| {
        let word = word.to_string_lossy();
        word == flag || word.strip_prefix(flag).is_some_and(|rest| rest.starts_with('='))
    };
    if typed.iter().any(is_flag) {
        return None;
    }
    let long = flag.trim_start_matches("--");
    let mut args = command.get_subcommands().flat_map(Command::get_arguments);
    let variable = args.find(|arg| arg.get_long() == Some(long) && arg.get_env().and_then(var_os).is_some())?;
    variable.get_env().map(OsStr::to_string_lossy).map(Into::into)
}
