//! Suggestions for mistyped subcommands.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Error};

use super::Cli;

/// More mistakes than this are no slip of the fingers: nothing is suggested for them.
const MISTAKES_MAX: usize = 2;

/// Has the error suggest the subcommand that is the fewest slips away.
///
/// clap compares by Jaro's measure, which does not see exchanged letters in short words: it suggests `ring` for `rnu`.
pub fn improve(mut error: Error) -> Error {
    let typed = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(typed)) if error.kind() == ErrorKind::InvalidSubcommand => typed.clone(),
        _ => return error,
    };
    error.remove(ContextKind::SuggestedSubcommand);
    if let Some(name) = nearest(&typed) {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![name]));
    }
    error
}

fn nearest(typed: &str) -> Option<String> {
    let command = Cli::command();
    let names = command.get_subcommands().map(|command| command.get_name().to_owned());
    let slips = names.map(|name| (strsim::damerau_levenshtein(typed, &name), name));
    slips.filter(|(count, name)| *count <= MISTAKES_MAX && *count < name.len()).min().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_subcommand_is_suggested() {
        for (typed, meant) in [
            ("rnu", Some("run")),
            ("gte", Some("get")),
            ("stauts", Some("status")),
            ("rign", Some("ring")),
            ("frobnicate", None),
        ] {
            assert_eq!(nearest(typed).as_deref(), meant, "{typed}");
        }
        let error = Cli::command().try_get_matches_from(["scatter", "rnu"]).map_err(improve).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("'run'") && !text.contains("'ring'"), "{text}");
    }
}
