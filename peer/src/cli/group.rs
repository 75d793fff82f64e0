//! `scatter group`: asks for an operation of a group by hand, and waits until it is decided.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::exit::{Exit, fail};
use super::groups::Groups;
use super::web::{self, NoAnswer};
use super::{print, token};
use crate::config::Format;

/// Arguments of `scatter group`.
#[derive(Debug, Args)]
pub struct GroupArgs {
    #[command(subcommand)]
    operation: Operation,
}

#[derive(Debug, Subcommand)]
enum Operation {
    /// Have a group become two
    ///
    /// Both must have a majority of members that are heard of and hold everything. Without --at the range is divided in the
    /// middle, without --first the members so that both halves are alike.
    Split {
        /// Where the second one begins: 32 hex digits
        #[arg(long, value_name = "POINT")]
        at: Option<String>,
        /// Who goes to the first one (repeatable)
        #[arg(long, value_name = "PEER")]
        first: Vec<String>,
        #[command(flatten)]
        which: Which,
    },
    /// Have a group and the one behind it on the ring become one
    Merge {
        #[command(flatten)]
        which: Which,
    },
    /// Move the boundary between a group and the one behind it on the ring
    Repartition {
        /// Where the one behind it is to begin: 32 hex digits
        #[arg(long, value_name = "POINT")]
        at: String,
        #[command(flatten)]
        which: Which,
    },
    /// Have members of a group go to the one behind it on the ring, or come from there
    Migrate {
        /// Who goes (repeatable)
        #[arg(long, value_name = "PEER", required_unless_present = "from")]
        to: Vec<String>,
        /// Who comes (repeatable)
        #[arg(long, value_name = "PEER")]
        from: Vec<String>,
        #[command(flatten)]
        which: Which,
    },
}

/// Which group, and whom to ask.
#[derive(Debug, Args)]
struct Which {
    /// The group's id, as `scatter groups` has it; else the group that the peer is a member of
    #[arg(value_name = "GROUP")]
    group: Option<String>,
    /// The HTTP address of a peer that has a part in the group
    #[arg(long, value_name = "HOST:PORT", env = "SCATTER_HTTP", default_value = "127.0.0.1:6480")]
    http: String,
    /// A file with the token of administrators, where the peer has one
    #[arg(long, value_name = "FILE", env = "SCATTER_ADMIN_TOKEN_FILE")]
    admin_token_file: Option<PathBuf>,
    /// How to print what came of it
    #[arg(long, env = "SCATTER_OUTPUT", default_value_t = Format::Text)]
    output: Format,
}

/// `scatter group`
pub fn group(args: GroupArgs) -> ExitCode {
    let (name, body, which) = match args.operation {
        Operation::Split { at, first, which } => ("split", json!({ "at": at, "first": first }), which),
        Operation::Merge { which } => ("merge", json!({}), which),
        Operation::Repartition { at, which } => ("repartition", json!({ "at": at }), which),
        Operation::Migrate { to, from, which } => ("migrate", json!({ "to": to, "from": from }), which),
    };
    match ask(&which, name, &body) {
        Ok(answer) => match which.output {
            Format::Json => print(format!("{answer}\n").as_bytes()),
            Format::Text => {
                let born = answer["groups"].as_array().into_iter().flatten().filter_map(Value::as_str);
                print(born.map(|id| format!("{name}: group {id}\n")).collect::<String>().as_bytes())
            }
        },
        Err((exit, why)) => match which.output {
            Format::Text => fail(exit, &why),
            Format::Json => {
                print(format!("{}\n", json!({ "error": why, "exit": exit as u8 })).as_bytes());
                exit.into()
            }
        },
    }
}

fn ask(which: &Which, operation: &str, body: &Value) -> Result<Value, (Exit, String)> {
    let http = &which.http;
    let unreachable = |error| (Exit::Unreachable, format!("cannot reach a peer at {http}: {error}"));
    let group = match &which.group {
        Some(group) => group.clone(),
        None => {
            let (_, body) = web::get(http, "/v1/groups").map_err(unreachable)?;
            let groups: Groups = serde_json::from_slice(&body)
                .map_err(|_| (Exit::Refused, format!("{http} is no peer that this program knows")))?;
            let mut own = groups.groups.iter().filter(|group| group.part == "member");
            match (own.next(), own.next()) {
                (Some(group), None) => group.id.clone(),
                (None, _) => return Err((Exit::Refused, "this peer is a member of no group: say which".into())),
                _ => return Err((Exit::Usage, "this peer has several lanes, with a group each: say which".into())),
            }
        }
    };
    if group.len() != 32 || !group.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err((Exit::Usage, format!("{group} is no group's id: 32 hex digits, as `scatter groups` has it")));
    }
    let token = token(which.admin_token_file.as_ref()).map_err(|why| (Exit::Usage, why))?;
    let path = format!("/v1/groups/{group}/{operation}");
    let answer = web::post_patiently(http, &path, token.as_deref(), body.to_string().as_bytes());
    let answer = answer.map_err(|why| match why {
        NoAnswer::Unreachable(error) => unreachable(error),
        NoAnswer::Lost(error) => {
            (Exit::Unknown, format!("{http} did not answer ({error}): `scatter groups` tells what there is now"))
        }
    })?;
    let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    if answer.code == 200 {
        return Ok(said);
    }
    let why = said["error"].as_str().map_or_else(|| format!("{http} answered {}", answer.code), str::to_owned);
    Err(match (answer.code, said["outcome"].as_str()) {
        (400, _) => (Exit::Usage, why),
        (401, _) => (Exit::Refused, format!("{why} (here: --admin-token-file FILE)")),
        (_, Some("aborted")) => (Exit::TryAgain, why),
        (_, Some("unknown")) => (Exit::Unknown, why),
        _ => (Exit::Refused, why),
    })
}
