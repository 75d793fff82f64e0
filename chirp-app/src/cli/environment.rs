//! Settings from the environment, as `scatter` takes them: an empty variable counts as unset, and an error about the value of
//! one names it, not a flag that nobody typed.

use std::env::var_os;
use std::ffi::{OsStr, OsString};

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command};

/// The command without its variables that are empty, or whose flags were typed: clap reads them also where a flag stands before
/// the subcommand. All of them belong to flags of the program as a whole.
pub(crate) fn without_unused(command: Command, typed: &[OsString]) -> Command {
    let is_empty = |arg: &Arg| arg.get_env().and_then(var_os).is_some_and(|value| value.is_empty());
    let is_typed = |arg: &Arg| arg.get_long().is_some_and(|long| is_typed(long, typed));
    command.mut_args(|arg| if is_empty(&arg) || is_typed(&arg) { arg.env(Resettable::Reset) } else { arg })
}

/// The variable that an error is about, where its flag was not typed.
pub(crate) fn culprit(error: &clap::Error, command: &Command, typed: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(shown)) = error.get(ContextKind::InvalidArg) else { return None };
    let long = shown.split([' ', '=', '[']).next()?.strip_prefix("--").filter(|long| !is_typed(long, typed))?;
    let variable = command.get_arguments().find(|arg| arg.get_long() == Some(long)).and_then(Arg::get_env);
    variable.filter(|name| var_os(name).is_some()).map(OsStr::to_string_lossy).map(Into::into)
}

/// Whether this flag is on the command line: behind `--` there are none.
fn is_typed(long: &str, typed: &[OsString]) -> bool {
    let is_flag = |word: &OsString| {
        let word = word.to_string_lossy();
        let rest = word.strip_prefix("--").and_then(|word| word.strip_prefix(long));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    };
    typed.iter().take_while(|word| *word != "--").any(is_flag)
}
