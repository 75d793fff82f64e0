//! Commands about the server: `COMMAND`, `INFO`, `CONFIG GET`.

use std::fmt::Write as _;

use bytes::Bytes;

use crate::resp::arguments::Arguments;
use crate::resp::call::{Call, Handled, reply};
use crate::resp::errors;
use crate::resp::reply::{Protocol, Reply};
use crate::resp::shared::Shared;
use crate::resp::table::{self, Command};

/// Version of Redis whose commands and answers these are. Clients choose the commands that they send by it.
pub const REDIS_VERSION: &str = "7.4.0";

/// `COMMAND [COUNT | DOCS | INFO | LIST | HELP]`
pub fn command(call: &mut Call<'_>) -> Handled {
    let protocol = call.session.protocol;
    if call.arguments.len() == 1 {
        return reply(Reply::Array(table::COMMANDS.iter().map(describe).collect()));
    }
    let names = call.arguments.from(2);
    match call.arguments.at(1).to_ascii_uppercase().as_slice() {
        b"COUNT" if names.is_empty() => reply(Reply::Integer(i64::try_from(table::COMMANDS.len()).unwrap_or(i64::MAX))),
        b"COUNT" => Err(errors::arity("command|count")),
        b"LIST" if names.is_empty() => {
            reply(Reply::Set(table::COMMANDS.iter().map(|command| Reply::text(command.name)).collect()))
        }
        b"LIST" => Err(Reply::error(errors::SYNTAX)),
        b"INFO" if names.is_empty() => reply(Reply::Array(table::COMMANDS.iter().map(describe).collect())),
        b"INFO" => reply(Reply::Array(
            names.iter().map(|name| table::find(name).map_or(Reply::Nil, |(_, command)| describe(command))).collect(),
        )),
        b"DOCS" => reply(Reply::Map(
            asked_for(names).map(|command| (Reply::text(command.name), docs(command, protocol))).collect(),
        )),
        b"HELP" => reply(Reply::Array(
            [
                "COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "COUNT",
                "DOCS [<command-name> ...]",
                "INFO [<command-name> ...]",
                "LIST",
                "HELP",
            ]
            .map(Reply::Simple)
            .to_vec(),
        )),
        _ => Err(errors::unknown_subcommand("COMMAND", call.arguments.at(1))),
    }
}

/// `ROLE`: a master without replicas in Redis's words, because every peer takes reads and writes for every key.
pub fn role(_: &mut Call<'_>) -> Handled {
    reply(Reply::Array(vec![Reply::text("master"), Reply::Integer(0), Reply::Array(Vec::new())]))
}

/// Returns the named commands, or all.
fn asked_for(names: Arguments<'_>) -> impl Iterator<Item = &'static Command> {
    let all = names.is_empty();
    table::COMMANDS
        .iter()
        .filter(move |command| all || names.iter().any(|name| name.eq_ignore_ascii_case(command.name.as_bytes())))
}

/// Returns a row as `COMMAND` gives it: name, arity, flags, first key, last key, step, and four lists that are empty
/// here.
fn describe(command: &Command) -> Reply {
    Reply::Array(vec![
        Reply::text(command.name),
        Reply::Integer(command.arity.into()),
        Reply::Set(command.flags().map(Reply::Simple).collect()),
        Reply::Integer(command.keys.first.into()),
        Reply::Integer(command.keys.last.into()),
        Reply::Integer(command.keys.step.into()),
        Reply::Set(Vec::new()),
        Reply::Array(Vec::new()),
        Reply::Array(Vec::new()),
        Reply::Array(Vec::new()),
    ])
}

fn docs(command: &Command, _protocol: Protocol) -> Reply {
    Reply::Map(vec![
        (Reply::text("summary"), Reply::text(command.summary)),
        (Reply::text("since"), Reply::text("1.0.0")),
        (Reply::text("group"), Reply::text(command.group())),
        (Reply::text("arguments"), Reply::Array(Vec::new())),
    ])
}

/// `INFO [section …]`
pub(crate) fn info(call: &mut Call<'_>) -> Handled {
    let wanted = |section: &str| {
        call.arguments.len() == 1
            || call.arguments.from(1).iter().any(|name| {
                [section.as_bytes(), b"default", b"all", b"everything"]
                    .iter()
                    .any(|word| name.eq_ignore_ascii_case(word))
            })
    };
    let mut text = String::new();
    for (name, fields) in sections(call.shared) {
        if !wanted(name) {
            continue;
        }
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let (first, rest) = name.split_at(1);
        // Writing to a string does not fail.
        let _ = write!(text, "# {}{rest}\r\n", first.to_ascii_uppercase());
        for (name, value) in fields {
            let _ = write!(text, "{name}:{value}\r\n");
        }
    }
    reply(Reply::Verbatim(text))
}

type Section = (&'static str, Vec<(&'static str, String)>);

fn sections(shared: &Shared) -> Vec<Section> {
    let uptime = shared.started.elapsed().as_secs();
    let status = shared.status.status();
    let (keys, bytes) = status.groups.iter().fold((0, 0), |(k, b), group| (k + group.keys, b + group.bytes));
    let counts = &shared.metrics;
    vec![
        (
            "server",
            vec![
                ("redis_version", REDIS_VERSION.into()),
                ("redis_mode", "standalone".into()),
                ("scatter_version", env!("CARGO_PKG_VERSION").into()),
                ("os", format!("{} {}", std::env::consts::OS, std::env::consts::ARCH)),
                ("arch_bits", usize::BITS.to_string()),
                ("process_id", std::process::id().to_string()),
                ("run_id", status.peer_id.clone()),
                ("uptime_in_seconds", uptime.to_string()),
                ("uptime_in_days", (uptime / 86_400).to_string()),
            ],
        ),
        (
            "clients",
            vec![
                ("connected_clients", counts.clients.get().to_string()),
                ("maxclients", shared.settings.clients_max.to_string()),
                ("blocked_clients", "0".into()),
            ],
        ),
        ("memory", vec![("used_memory", bytes.to_string()), ("maxmemory_policy", "noeviction".into())]),
        // Clients wait for `loading:0` before they send anything.
        ("persistence", vec![("loading", "0".into()), ("async_loading", "0".into())]),
        (
            "stats",
            vec![
                ("total_connections_received", counts.clients_total.get().to_string()),
                ("total_commands_processed", counts.commands_total().to_string()),
                ("rejected_connections", counts.clients_refused.get().to_string()),
                ("total_error_replies", counts.errors_total().to_string()),
            ],
        ),
        ("replication", vec![("role", "master".into()), ("connected_slaves", "0".into())]),
        ("cluster", vec![("cluster_enabled", "0".into())]),
        ("keyspace", if keys > 0 { vec![("db0", format!("keys={keys},expires=0,avg_ttl=0"))] } else { Vec::new() }),
        (
            "scatter",
            vec![
                ("peer_id", status.peer_id),
                ("network", status.network),
                ("durability", status.durability),
                ("groups", status.groups.len().to_string()),
            ],
        ),
    ]
}

/// `CONFIG GET pattern [pattern …]`
pub fn config(call: &mut Call<'_>) -> Handled {
    match call.arguments.at(1).to_ascii_uppercase().as_slice() {
        b"GET" if call.arguments.len() > 2 => {
            let patterns = call.arguments.from(2);
            let parameters = [
                (
                    "appendonly",
                    if call.shared.status.status().durability == "memory" { "no" } else { "yes" }.to_string(),
                ),
                ("databases", "1".to_string()),
                ("maxclients", call.shared.settings.clients_max.to_string()),
                ("maxmemory", "0".to_string()),
                ("maxmemory-policy", "noeviction".to_string()),
                ("save", String::new()),
                ("timeout", "0".to_string()),
            ];
            reply(Reply::Map(
                parameters
                    .into_iter()
                    .filter_map(|(name, value)| Some((asked_as(patterns, name)?, Reply::text(value))))
                    .collect(),
            ))
        }
        b"GET" => Err(errors::arity("config|get")),
        b"SET" if call.arguments.len() < 4 => Err(errors::arity("config|set")),
        b"RESETSTAT" if call.arguments.len() > 2 => Err(errors::arity("config|resetstat")),
        b"REWRITE" if call.arguments.len() > 2 => Err(errors::arity("config|rewrite")),
        b"SET" | b"RESETSTAT" | b"REWRITE" => {
            Err(Reply::error("ERR only CONFIG GET is supported: settings are those that the peer was started with"))
        }
        _ => Err(errors::unknown_subcommand("CONFIG", call.arguments.at(1))),
    }
}

/// Returns a parameter's name if a pattern asks for it: a client that writes the name out gets it as written.
fn asked_as(patterns: Arguments<'_>, name: &'static str) -> Option<Reply> {
    let written = |pattern: &[u8]| pattern.eq_ignore_ascii_case(name.as_bytes());
    // As in Redis, only these make a pattern of a name.
    let is_pattern = |word: &[u8]| word.iter().any(|byte| b"*?[".contains(byte));
    let asks = |word: &&[u8]| written(word) || is_pattern(word) && matches_glob(word, name.as_bytes());
    let pattern = patterns.iter().find(asks)?;
    let written = written(pattern);
    Some(if written { Reply::Bulk(Bytes::copy_from_slice(pattern)) } else { Reply::text(name) })
}

/// Matches `*`, `?`, `[a-z]`, `[^a]` and `\`, without regard to case. It steps back to the last star only, so the
/// time is bounded by pattern times text.
fn matches_glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, t));
            p += 1;
        } else if let Some(length) = matches_byte(&pattern[p..], text[t]) {
            p += length;
            t += 1;
        } else if let Some((at, taken)) = star {
            p = at + 1;
            t = taken + 1;
            star = Some((at, taken + 1));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// Matches the front of a pattern, which is no star, against this byte. Returns the length of the matching front.
fn matches_byte(pattern: &[u8], byte: u8) -> Option<usize> {
    let same = |other: &u8| byte.eq_ignore_ascii_case(other);
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => same(escaped).then_some(2),
        [b'[', class @ ..] => {
            let negated = class.first() == Some(&b'^');
            let mut rest = if negated { &class[1..] } else { class };
            let mut found = false;
            loop {
                rest = match rest {
                    // A class that is not closed ends with the pattern.
                    [] => break,
                    [b']', behind @ ..] => {
                        rest = behind;
                        break;
                    }
                    [b'\\', escaped, behind @ ..] => {
                        found |= same(escaped);
                        behind
                    }
                    [first, b'-', last, behind @ ..] => {
                        let [first, last, byte] = [first, last, &byte].map(u8::to_ascii_lowercase);
                        found |= (first.min(last)..=first.max(last)).contains(&byte);
                        behind
                    }
                    [other, behind @ ..] => {
                        found |= same(other);
                        behind
                    }
                };
            }
            (found != negated).then_some(pattern.len() - rest.len())
        }
        [other, ..] => same(other).then_some(1),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::matches_glob;

    #[test]
    fn globs() {
        for (pattern, text, expected) in [
            ("save", "save", true),
            ("SAVE", "save", true),
            ("*", "", true),
            ("*", "save", true),
            ("max*", "maxclients", true),
            ("*m*y", "maxmemory", true),
            ("s?ve", "save", true),
            ("sav", "save", false),
            ("save?", "save", false),
            ("", "save", false),
            ("*x", "save", false),
            ("s[a-c]ve", "save", true),
            ("s[C-A]ve", "save", true),
            ("s[b-z]ve", "save", false),
            ("[^a]ave", "save", true),
            ("[^s]ave", "save", false),
            ("*[aeiou]", "save", true),
            (r"s[\]a]ve", "save", true),
            (r"\s\a\v\e", "save", true),
            (r"sav\?", "save", false),
            ("sav[e", "save", true),
            ("sav[", "save", false),
            ("save[", "save", false),
        ] {
            assert_eq!(matches_glob(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }
}
