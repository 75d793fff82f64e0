//! `get`, `set`, `del`, `cas`, `incr`, `append`: one operation each.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;

use clap::{ArgGroup, Args};
use peer::config::Format;
use peer::exit::Exit;
use serde_json::{Map, Value as Json, json};

use super::client::{Failure, RespValue, ask};
use super::{ClientArgs, json};

/// Arguments of `scatter get`.
#[derive(Debug, Args)]
pub struct GetArgs {
    /// The key
    pub key: OsString,
    /// Read from any member of the key's group (relaxed read): faster, possibly stale
    #[arg(long)]
    relaxed: bool,
    #[command(flatten)]
    reach: ClientArgs,
}

/// Arguments of `scatter set`.
#[derive(Debug, Args)]
pub struct SetArgs {
    /// The key
    key: OsString,
    /// Its new value
    value: OsString,
    #[command(flatten)]
    reach: ClientArgs,
}

/// Arguments of `scatter del`.
#[derive(Debug, Args)]
pub struct DelArgs {
    /// The keys; several keys are not deleted atomically
    #[arg(required = true)]
    keys: Vec<OsString>,
    #[command(flatten)]
    reach: ClientArgs,
}

/// Arguments of `scatter cas`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("condition").required(true).args(["old", "absent"]))]
pub struct CasArgs {
    /// The key
    key: OsString,
    /// Its new value
    value: OsString,
    /// Set the key only if this is its current value
    #[arg(long, value_name = "V", allow_hyphen_values = true)]
    old: Option<OsString>,
    /// Set the key only if it is absent
    #[arg(long)]
    absent: bool,
    #[command(flatten)]
    reach: ClientArgs,
}

/// Arguments of `scatter incr`.
#[derive(Debug, Args)]
pub struct IncrArgs {
    /// The key
    key: OsString,
    /// Number to add; write `--` before a negative one
    #[arg(value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    pub by: i64,
    #[command(flatten)]
    reach: ClientArgs,
}

/// Arguments of `scatter append`.
#[derive(Debug, Args)]
pub struct AppendArgs {
    /// The key
    key: OsString,
    /// Bytes to append
    value: OsString,
    #[command(flatten)]
    reach: ClientArgs,
}

/// Result of a command: exit code, answer as fields, and answer as text (without an end of line).
struct CommandResult {
    exit: Exit,
    fields: Map<String, Json>,
    text: Vec<u8>,
}

/// Runs `scatter get`.
pub fn get(args: GetArgs) -> ExitCode {
    let command: &[u8] = if args.relaxed { b"SCATTER.RGET" } else { b"GET" };
    let key = args.key.as_bytes();
    finish(&args.reach, ask(&args.reach, &[command, key], false), |value| {
        let mut fields = with_key(key);
        match value {
            RespValue::Bulk(bytes) => {
                json::put(&mut fields, "value", &bytes);
                Some(CommandResult { exit: Exit::Done, fields, text: bytes })
            }
            RespValue::Nil => {
                fields.insert("value".into(), Json::Null);
                Some(CommandResult { exit: Exit::No, fields, text: Vec::new() })
            }
            _ => None,
        }
    })
}

/// Runs `scatter set`.
pub fn set(args: SetArgs) -> ExitCode {
    let key = args.key.as_bytes();
    finish(&args.reach, ask(&args.reach, &[b"SET", key, args.value.as_bytes()], true), |value| {
        condition_met(key, &value)
    })
}

/// Runs `scatter cas`.
pub fn cas(args: CasArgs) -> ExitCode {
    let (key, value) = (args.key.as_bytes(), args.value.as_bytes());
    let answer = match &args.old {
        Some(old) => ask(&args.reach, &[b"SET", key, value, b"IFEQ", old.as_bytes()], true),
        None => ask(&args.reach, &[b"SET", key, value, b"NX"], true),
    };
    finish(&args.reach, answer, |value| condition_met(key, &value))
}

/// Runs `scatter del`.
pub fn del(args: DelArgs) -> ExitCode {
    let mut words: Vec<&[u8]> = vec![b"DEL"];
    words.extend(args.keys.iter().map(|key| key.as_bytes()));
    finish(&args.reach, ask(&args.reach, &words, true), |value| {
        number("deleted", Map::new(), &value)
            .map(|(deleted, found)| CommandResult { exit: if deleted > 0 { Exit::Done } else { Exit::No }, ..found })
    })
}

/// Runs `scatter incr`.
pub fn incr(args: IncrArgs) -> ExitCode {
    let key = args.key.as_bytes();
    let answer = ask(&args.reach, &[b"INCRBY", key, args.by.to_string().as_bytes()], true);
    finish(&args.reach, answer, |value| number("value", with_key(key), &value).map(|(_, found)| found))
}

/// Runs `scatter append`.
pub fn append(args: AppendArgs) -> ExitCode {
    let key = args.key.as_bytes();
    let answer = ask(&args.reach, &[b"APPEND", key, args.value.as_bytes()], true);
    finish(&args.reach, answer, |value| number("length", with_key(key), &value).map(|(_, found)| found))
}

fn with_key(key: &[u8]) -> Map<String, Json> {
    let mut fields = Map::new();
    json::put(&mut fields, "key", key);
    fields
}

/// Returns the result of `OK`, or of nil where the condition was not met.
fn condition_met(key: &[u8], value: &RespValue) -> Option<CommandResult> {
    let done = match value {
        RespValue::Simple(_) => true,
        RespValue::Nil => false,
        _ => return None,
    };
    let mut fields = with_key(key);
    fields.insert("done".into(), done.into());
    let (exit, text): (_, &[u8]) = if done { (Exit::Done, b"OK") } else { (Exit::No, b"") };
    Some(CommandResult { exit, fields, text: text.to_vec() })
}

fn number(name: &str, mut fields: Map<String, Json>, value: &RespValue) -> Option<(i64, CommandResult)> {
    let RespValue::Integer(number) = *value else {
        return None;
    };
    fields.insert(name.into(), number.into());
    Some((number, CommandResult { exit: Exit::Done, fields, text: number.to_string().into_bytes() }))
}

/// Prints the result, or the reason for its absence, and returns the exit code.
fn finish(
    reach: &ClientArgs,
    answer: Result<RespValue, Failure>,
    found: impl FnOnce(RespValue) -> Option<CommandResult>,
) -> ExitCode {
    let result = answer.and_then(|value| {
        let shown = format!("{value:?}");
        found(value)
            .ok_or_else(|| Failure { exit: Exit::Refused, why: format!("unexpected answer from the peer: {shown}") })
    });
    let (exit, line) = match (result, reach.output) {
        (Ok(found), Format::Json) => (found.exit, Json::Object(found.fields).to_string().into_bytes()),
        // Nothing to print where the answer is no: an absent key is not an empty one.
        (Ok(CommandResult { exit: Exit::No, text, .. }), Format::Text) if text.is_empty() => {
            return peer::exit::fail(Exit::No, "no (the key is absent, or the condition was not met)");
        }
        (Ok(found), Format::Text) => (found.exit, found.text),
        (Err(failure), Format::Json) => {
            (failure.exit, json!({ "error": failure.why, "exit": failure.exit as u8 }).to_string().into_bytes())
        }
        (Err(failure), Format::Text) => return peer::exit::fail(failure.exit, &failure.why),
    };
    super::print(&[&line[..], b"\n"].concat(), exit)
}
