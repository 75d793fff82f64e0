//! `scatter group`: requests an operation of a group, and waits for its outcome.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use peer::config::Format;
use peer::exit::{Exit, fail, note};
use peer::names::Names;
use peer::status::{GroupStatus, Groups, QuorumStatus};
use serde_json::{Value, json};

use super::groups::share;
use super::{print, token};
use crate::http_client::{self, NoAnswer};

/// Arguments of `scatter group`.
#[derive(Debug, Args)]
pub struct GroupArgs {
    #[command(subcommand)]
    operation: Operation,
}

#[derive(Debug, Subcommand)]
enum Operation {
    /// Split a group in two
    ///
    /// Each half needs a majority of members that are heard and hold all data. Without --at, the range is divided in
    /// the middle; without --first, the members are divided so that both halves are alike.
    Split {
        /// First point of the second group: 32 hex digits
        #[arg(long, value_name = "POINT")]
        at: Option<String>,
        /// Member of the first group (repeatable)
        #[arg(long, value_name = "PEER")]
        first: Vec<String>,
        #[command(flatten)]
        which: Which,
    },
    /// Merge a group with its successor on the ring
    Merge {
        #[command(flatten)]
        which: Which,
    },
    /// Move the boundary between a group and its successor on the ring
    Repartition {
        /// New first point of the successor: 32 hex digits
        #[arg(long, value_name = "POINT")]
        at: String,
        #[command(flatten)]
        which: Which,
    },
    /// Make a group take over the range before it, if the owners will not return: all data of that range is lost
    ///
    /// For a group that has lost a majority of its members for good. Its chosen writes become void, even if a member
    /// returns with them: that peer sets its store aside, serves nothing of it, and rejoins as a new member; `scatter
    /// export` reads the store that was set aside. Nothing else undoes this. The group that takes over is the successor
    /// of the lost range. Without --lost, this command prints the possible loss and does nothing.
    Repair {
        /// Id of the lost group; twice if two neighbours are lost
        #[arg(long, value_name = "GROUP")]
        lost: Vec<String>,
        /// First point of the lost range, where it differs from that of the group before this one: 32 hex digits
        #[arg(long, value_name = "POINT")]
        at: Option<String>,
        #[command(flatten)]
        which: Which,
    },
    /// Let a group continue without lost members, though the remaining ones may have lost their last acknowledged
    /// writes
    ///
    /// After a crash the end of a peer's journal may be damaged, and the peer cannot tell whether it acknowledged that
    /// part. Its group then waits for all other members, unless a majority is sure to have all acknowledged writes. If
    /// the awaited members are lost for good, this command lets the remaining members continue with their data: the
    /// last writes may be lost. The asked peer informs all members in doubt that it reaches; run the command at the
    /// other members, too. Without --yes, it prints the awaited members and does nothing.
    AcceptLoss {
        /// Confirm that the awaited members will not come back
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        which: Which,
    },
    /// Move members between a group and its successor on the ring
    Migrate {
        /// Member that moves to the successor (repeatable)
        #[arg(long, value_name = "PEER", required_unless_present = "from")]
        to: Vec<String>,
        /// Member that moves here from the successor (repeatable)
        #[arg(long, value_name = "PEER")]
        from: Vec<String>,
        #[command(flatten)]
        which: Which,
    },
}

/// Group that a command names, and the peer to ask.
#[derive(Debug, Args)]
struct Which {
    /// The group's id, as `scatter groups` prints it; by default the group that the peer is a member of
    #[arg(value_name = "GROUP")]
    group: Option<String>,
    /// HTTP address of a peer in the group
    #[arg(long, value_name = "HOST:PORT", env = "SCATTER_HTTP", value_parser = super::address::status, default_value = "127.0.0.1:6480")]
    http: String,
    /// A file with the administrators' token, if the peer requires one
    #[arg(long, value_name = "FILE", env = "SCATTER_ADMIN_TOKEN_FILE")]
    admin_token_file: Option<PathBuf>,
    /// How to print the outcome
    #[arg(long, env = "SCATTER_OUTPUT", default_value_t = Format::Text)]
    output: Format,
}

/// Runs `scatter group`.
pub fn group(args: GroupArgs) -> ExitCode {
    let mut lacking = None;
    let (name, body, which) = match args.operation {
        Operation::Split { at, first, which } => ("split", json!({ "at": at, "first": first }), which),
        Operation::Merge { which } => ("merge", json!({}), which),
        Operation::Repartition { at, which } => ("repartition", json!({ "at": at }), which),
        Operation::Migrate { to, from, which } => ("migrate", json!({ "to": to, "from": from }), which),
        Operation::Repair { lost, which, .. } if lost.is_empty() => {
            return match tell_loss(&which) {
                Ok(text) => fail(Exit::Usage, &text),
                Err((exit, why)) => fail(exit, &why),
            };
        }
        Operation::AcceptLoss { yes: false, which } => {
            return match tell_doubt(&which) {
                Ok(text) => fail(Exit::Usage, &text),
                Err((exit, why)) => fail(exit, &why),
            };
        }
        Operation::AcceptLoss { which, .. } => {
            // Looked up before the loss is accepted; printed where the acceptance worked.
            lacking = meant(&which).ok().and_then(|group| lacks_majority(&group));
            ("accept-loss", json!({}), which)
        }
        Operation::Repair { lost, at, which } => ("repair", json!({ "lost": lost, "at": at }), which),
    };
    match ask(&which, name, &body) {
        Ok(answer) => match which.output {
            Format::Json => print(format!("{answer}\n").as_bytes(), Exit::Done),
            Format::Text => {
                lacking.iter().for_each(|why| note(&format!("scatter: {why}")));
                let born = answer["groups"].as_array().into_iter().flatten().filter_map(Value::as_str);
                print(born.map(|id| format!("{name}: group {id}\n")).collect::<String>().as_bytes(), Exit::Done)
            }
        },
        Err((exit, why)) => failed(which.output, exit, &why),
    }
}

/// Prints the reason in the requested form, and returns the exit code.
pub(super) fn failed(output: Format, exit: Exit, why: &str) -> ExitCode {
    match output {
        Format::Text => fail(exit, why),
        Format::Json => print(format!("{}\n", json!({ "error": why, "exit": exit as u8 })).as_bytes(), exit),
    }
}

/// Returns the group that is named, as the asked peer knows it.
fn meant(which: &Which) -> Result<GroupStatus, (Exit, String)> {
    let groups = groups(&which.http)?;
    let mut known = groups.into_iter().filter(|group| which.group.as_ref().is_none_or(|id| *id == group.id));
    match (known.next(), known.next()) {
        (Some(group), None) => Ok(group),
        (None, _) => Err((Exit::Refused, "this peer is not in that group: ask one of the group's members".into())),
        _ => Err((Exit::Usage, "this peer is in several groups: name one of them".into())),
    }
}

/// Returns the members that the group waits for, and the possible loss without them.
fn tell_doubt(which: &Which) -> Result<String, (Exit, String)> {
    let group = meant(which)?;
    let names = Names::of_groups([&group]);
    let Some(doubt) = group.in_doubt.as_ref().filter(|doubt| !doubt.waiting_for.is_empty()) else {
        return Err((Exit::Refused, format!("group {} waits for no members: there is no loss to accept", group.id)));
    };
    Ok(format!(
        "group {} waits for {}, because these members may have lost their last acknowledged writes: {}. Continuing \
        without the awaited members may lose the last acknowledged writes for good. If the awaited members are lost \
        for good, repeat with --yes",
        group.id,
        names.whole_list(&doubt.waiting_for),
        names.whole_list(&doubt.members)
    ) + &lacks_majority(&group).map(|why| format!(". {why}")).unwrap_or_default())
}

/// Returns a warning that acceptance alone does not help, where too few members are heard to choose anything.
fn lacks_majority(group: &GroupStatus) -> Option<String> {
    let QuorumStatus { heard, needed, former_epoch, .. } = group.quorum.as_ref().filter(|quorum| !quorum.held)?;
    if let Some(epoch) = former_epoch {
        return Some(format!(
            "Even then, a part of the range or all of it is not served before {needed} members of epoch {epoch} run, \
            and {heard} of them are heard now. Start more of them; if they are lost for good, stop this group's \
            members: its successor on the ring can then take over its range, without the data (`scatter group repair`)"
        ));
    }
    Some(format!(
        "Even then, the group answers only with a majority of its members: {heard} is heard now, {needed} are needed, \
        and a peer that rejoined as a new member does not count. Start more of them; if they are lost for good, the \
        group's successor on the ring can take over its range, without the data (`scatter group repair`)"
    ))
}

/// Returns the loss that a repair would declare, as far as the group behind the range knows.
fn tell_loss(which: &Which) -> Result<String, (Exit, String)> {
    let group = meant(which)?;
    let (Some(lost), Some(range)) = (&group.predecessor, &group.predecessor_range) else {
        return Err((Exit::Refused, "there is only one group: no range lies before it".into()));
    };
    Ok(format!(
        "this would declare the range of group {lost} lost: {} to {}, {:.2} % of the ring, with every key in it. Group \
        {} would own that range, empty. If no member of {lost} will return, repeat with --lost {lost}",
        range.start,
        range.end,
        share(range),
        group.id
    ))
}

/// Returns the groups that this peer has a part in.
///
/// # Errors
///
/// The exit code and a text for the user, where no peer answers.
pub(super) fn groups(http: &str) -> Result<Vec<GroupStatus>, (Exit, String)> {
    let (_, body) = http_client::get(http, "/v1/groups").map_err(|error| unreachable(http, error))?;
    let groups: Groups = serde_json::from_slice(&body)
        .map_err(|_| (Exit::Refused, format!("{http} is not a peer of a supported version")))?;
    Ok(groups.groups)
}

fn unreachable(http: &str, error: impl std::fmt::Display) -> (Exit, String) {
    (Exit::Unreachable, format!("cannot reach a peer at {http}: {error}"))
}

fn ask(which: &Which, operation: &str, body: &Value) -> Result<Value, (Exit, String)> {
    let http = &which.http;
    let group = match &which.group {
        Some(group) => group.clone(),
        None => {
            let groups = groups(http)?;
            let mut own = groups.iter().filter(|group| group.part == "member");
            match (own.next(), own.next()) {
                (Some(group), None) => group.id.clone(),
                (None, _) => return Err((Exit::Refused, "this peer is a member of no group: name the group".into())),
                _ => {
                    return Err((
                        Exit::Usage,
                        "this peer has several lanes, each with its own group: name the group".into(),
                    ));
                }
            }
        }
    };
    if group.len() != 32 || !group.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err((Exit::Usage, format!("{group} is not a group id: give 32 hex digits, as in `scatter groups`")));
    }
    post(http, which.admin_token_file.as_ref(), &group, operation, body)
}

/// Asks the peer for an operation of a group, and returns the answer once the outcome is decided.
///
/// # Errors
///
/// The exit code and a text for the user.
pub(super) fn post(
    http: &str,
    token_file: Option<&PathBuf>,
    group: &str,
    operation: &str,
    body: &Value,
) -> Result<Value, (Exit, String)> {
    let token = token(token_file).map_err(|why| (Exit::Usage, why))?;
    let path = format!("/v1/groups/{group}/{operation}");
    let answer = http_client::post_patiently(http, &path, token.as_deref(), body.to_string().as_bytes());
    let answer = answer.map_err(|why| match why {
        NoAnswer::Unreachable(error) => unreachable(http, error),
        NoAnswer::Lost(error) => {
            (Exit::Unknown, format!("{http} did not answer ({error}): run `scatter groups` to see the current groups"))
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
        (_, Some("aborted" | "not_now")) => (Exit::TryAgain, why),
        (_, Some("unknown")) => (Exit::Unknown, why),
        _ => (Exit::Refused, why),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_accepts_a_loss_is_told_where_that_is_not_enough() {
        let group = |heard, needed| GroupStatus {
            quorum: Some(QuorumStatus { held: heard >= needed, heard, needed, members: 3, former_epoch: None }),
            ..GroupStatus::default()
        };
        assert_eq!(lacks_majority(&group(2, 2)), None);
        assert_eq!(lacks_majority(&GroupStatus::default()), None, "whoever is no member does not know");
        let why = lacks_majority(&group(1, 2)).unwrap();
        assert!(why.contains("1 is heard now, 2 are needed") && why.contains("scatter group repair"), "{why}");
        let mut former = group(1, 2);
        former.quorum.as_mut().expect("set").former_epoch = Some(7);
        let why = lacks_majority(&former).unwrap();
        assert!(why.contains("before 2 members of epoch 7 run, and 1 of them"), "{why}");
    }
}
