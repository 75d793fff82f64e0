//! Suggestions for mistyped subcommands.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

/// Upper limit of typing errors; nothing is suggested for a word with more.
const MISTAKES_MAX: usize = 2;

/// Makes the error suggest the subcommands of `root` that begin with the typed word, else the one with the fewest typing
/// errors.
///
/// clap compares by Jaro's measure, which does not see exchanged letters in short words: it suggests `ring` for `rnu`.
pub fn improve(mut error: Error, root: &Command, args: &[OsString]) -> Error {
    let typed = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(typed)) if error.kind() == ErrorKind::InvalidSubcommand => typed.clone(),
        _ => return error,
    };
    error.remove(ContextKind::SuggestedSubcommand);
    let names = nearest(&typed, asked(root, &typed, args));
    if !names.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names));
    }
    error
}

/// Returns the command whose subcommand `typed` was meant to be: the last one that is named before it.
fn asked<'a>(root: &'a Command, typed: &str, args: &[OsString]) -> &'a Command {
    let before = args.iter().skip(1).take_while(|arg| *arg != typed);
    before.fold(root, |command, arg| command.find_subcommand(arg).unwrap_or(command))
}

fn nearest(typed: &str, command: &Command) -> Vec<String> {
    let names = || command.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name);
    let longer: Vec<String> = names().filter(|name| name.starts_with(typed)).map(str::to_owned).collect();
    if !typed.is_empty() && !longer.is_empty() {
        return longer;
    }
    let slips = names().map(|name| (strsim::damerau_levenshtein(typed, name), name));
    let closest = slips.filter(|(count, name)| *count <= MISTAKES_MAX && *count < name.len()).min();
    closest.map(|(_, name)| name.to_owned()).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::super::Cli;
    use super::*;

    fn said(args: &[&str]) -> String {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let error = Cli::command().try_get_matches_from(&args).unwrap_err();
        improve(error, &Cli::command(), &args).to_string()
    }

    #[test]
    fn the_nearest_subcommand_is_suggested() {
        for (typed, meant) in [
            ("rnu", &["run"][..]),
            ("gte", &["get"]),
            ("stauts", &["status"]),
            ("rign", &["ring"]),
            ("frobnicate", &[]),
            ("", &[]),
        ] {
            assert_eq!(nearest(typed, &Cli::command()), meant, "{typed}");
        }
        let text = said(&["scatter", "rnu"]);
        assert!(text.contains("'run'") && !text.contains("'ring'"), "{text}");
    }

    #[test]
    fn what_begins_with_the_typed_word_comes_first() {
        for (typed, meant) in
            [("stat", &["status"][..]), ("gr", &["groups", "group"]), ("demo1", &["demo"]), ("leav", &["leave"])]
        {
            assert_eq!(nearest(typed, &Cli::command()), meant, "{typed}");
        }
        let text = said(&["scatter", "stat"]);
        assert!(text.contains("'status'") && !text.contains("'set'"), "{text}");
    }

    #[test]
    fn a_subcommand_of_a_subcommand_is_suggested_there() {
        let text = said(&["scatter", "group", "splt"]);
        assert!(text.contains("'split'") && !text.contains("'set'"), "{text}");
    }
}
