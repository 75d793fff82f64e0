//! Settings from the environment: an empty variable counts as unset, and an error about one names it, not a flag that nobody
//! typed.

use std::ffi::{OsStr, OsString};

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command};

/// The value of a variable of the environment.
pub type Lookup<'a> = &'a dyn Fn(&OsStr) -> Option<OsString>;

/// The command without variables that are empty, here and in all subcommands.
pub fn without_empty(command: Command, lookup: Lookup<'_>) -> Command {
    let is_empty = |arg: &Arg| arg.get_env().and_then(lookup).is_some_and(|value| value.is_empty());
    let command = command.mut_args(|arg| if is_empty(&arg) { arg.env(Resettable::Reset) } else { arg });
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, |sub| without_empty(sub, lookup)))
}

/// The variable that an error is about, where its flag was not typed.
pub fn culprit(error: &clap::Error, command: &Command, typed: &[OsString], lookup: Lookup<'_>) -> Option<String> {
    let Some(ContextValue::String(shown)) = error.get(ContextKind::InvalidArg) else { return None };
    let flag = shown.split([' ', '=', '[']).next().filter(|flag| flag.starts_with("--"))?;
    let is_flag = |word: &OsString| {
        let word = word.to_string_lossy();
        word == flag || word.strip_prefix(flag).is_some_and(|rest| rest.starts_with('='))
    };
    if typed.iter().any(is_flag) {
        return None;
    }
    let variable = variable_of(command, flag.trim_start_matches("--"), lookup)?;
    Some(variable.to_string_lossy().into_owned())
}

/// The variable behind a flag, where it is set.
fn variable_of(command: &Command, long: &str, lookup: Lookup<'_>) -> Option<OsString> {
    let own = command.get_arguments().filter(|arg| arg.get_long() == Some(long)).filter_map(Arg::get_env);
    let set = own.filter(|name| lookup(name).is_some()).map(OsStr::to_owned).next();
    set.or_else(|| command.get_subcommands().find_map(|sub| variable_of(sub, long, lookup)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        let join = || Arg::new("join").long("join").env("SCATTER_TEST_UNUSED").value_parser(clap::value_parser!(u8));
        Command::new("scatter").subcommand(Command::new("run").arg(join()))
    }

    #[test]
    fn an_empty_variable_is_unset() {
        let with = |value: &'static str| move |_: &OsStr| Some(OsString::from(value));
        let variable = |command: Command| {
            let run = command.find_subcommand("run").unwrap();
            run.get_arguments().find(|arg| arg.get_id() == "join").unwrap().get_env().map(OsStr::to_owned)
        };
        assert_eq!(variable(without_empty(command(), &with(""))), None);
        assert_eq!(variable(without_empty(command(), &with("7"))), Some("SCATTER_TEST_UNUSED".into()));
        assert_eq!(variable(without_empty(command(), &|_| None)), Some("SCATTER_TEST_UNUSED".into()));
    }

    #[test]
    fn an_error_names_the_variable_unless_the_flag_was_typed() {
        let set = |_: &OsStr| Some(OsString::from("x"));
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let typed = words(&["scatter", "run", "--join=x"]);
        let error = command().try_get_matches_from(&typed).unwrap_err();
        assert_eq!(culprit(&error, &command(), &typed, &set), None);
        let untyped = words(&["scatter", "run"]);
        assert_eq!(culprit(&error, &command(), &untyped, &set), Some("SCATTER_TEST_UNUSED".into()));
        assert_eq!(culprit(&error, &command(), &untyped, &|_| None), None);
    }
}
