//! `scatter leave`: asks a peer to leave its network for good, and follows it until it has.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use overlay::{Called, PeerName};
use peer::config::Format;
use peer::exit::{Exit, fail, note};
use peer::status::{LeavingStatus, Status};
use serde_json::{Value, json};

use super::{print, token, write};
use crate::http_client::{self, NoAnswer};

/// Interval of the requests for its progress. A peer that has left reports that for longer than this.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Time after which a peer that was seen leaving, and does not answer or does not report its leave, is not waited for. Its
/// process may have died, and a supervisor would have restarted it within this time.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Arguments of `scatter leave`.
#[derive(Debug, Args)]
pub struct LeaveArgs {
    /// Leave even if fewer than three members remain. Of two members, either one that is down stops all operations; one
    /// member has the only copy of the data on its disk
    #[arg(long)]
    force: bool,
    /// HTTP address of the peer that leaves
    #[arg(long, value_name = "HOST:PORT", env = "SCATTER_HTTP", value_parser = super::address::status, default_value = "127.0.0.1:6480")]
    http: String,
    /// A file with the administrators' token, if the peer requires one
    #[arg(long, value_name = "FILE", env = "SCATTER_ADMIN_TOKEN_FILE")]
    admin_token_file: Option<PathBuf>,
    /// How to print the steps
    #[arg(long, env = "SCATTER_OUTPUT", default_value_t = Format::Text)]
    output: Format,
}

/// Peer that leaves.
struct Leaver {
    peer_id: String,
    name: Option<PeerName>,
}

impl Leaver {
    /// Returns the peer's displayed name, with its whole id.
    fn called(&self) -> Called<'_, &str> {
        Called { name: self.name.as_ref(), id: self.peer_id.as_str() }
    }
}

/// Failed end of the command.
struct LeaveFailure {
    exit: Exit,
    why: String,
    /// Reason that the peer gave beside it.
    reason: Option<Value>,
}

impl LeaveFailure {
    fn new(exit: Exit, why: impl Into<String>) -> LeaveFailure {
        LeaveFailure { exit, why: why.into(), reason: None }
    }
}

/// Runs `scatter leave`.
pub fn leave(args: &LeaveArgs) -> ExitCode {
    match begin(args).and_then(|(leaver, first)| follow(args, &leaver, first)) {
        Ok(printed) => peer::exit::printed(Exit::Done, printed),
        Err(LeaveFailure { exit, why, reason }) => match args.output {
            Format::Text => fail(exit, &why),
            Format::Json => {
                let mut line = json!({ "error": why, "exit": exit as u8 });
                if let Some(reason) = reason {
                    line["reason"] = reason;
                }
                print(format!("{line}\n").as_bytes(), exit)
            }
        },
    }
}

/// Sends the request. Returns the peer that leaves, and its first step.
fn begin(args: &LeaveArgs) -> Result<(Leaver, LeavingStatus), LeaveFailure> {
    let http = &args.http;
    let token = token(args.admin_token_file.as_ref()).map_err(|why| LeaveFailure::new(Exit::Usage, why))?;
    let body = json!({ "force": args.force }).to_string();
    let answer = http_client::post(http, "/v1/leave", token.as_deref(), body.as_bytes());
    let answer = answer.map_err(|why| match why {
        NoAnswer::Unreachable(error) => {
            LeaveFailure::new(Exit::Unreachable, format!("cannot reach a peer at {http}: {error}"))
        }
        NoAnswer::Lost(error) => LeaveFailure::new(
            Exit::Unknown,
            format!("{http} did not answer ({error}): the peer may be leaving. Check with `scatter status`"),
        ),
    })?;
    let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    match (answer.code, said["peer_id"].as_str(), serde_json::from_value(said["leaving"].clone())) {
        (202, Some(peer_id), Ok(leaving)) => {
            let name = said["name"].as_str().and_then(|name| name.parse().ok());
            Ok((Leaver { peer_id: peer_id.to_owned(), name }, leaving))
        }
        (202, ..) => Err(LeaveFailure::new(Exit::Refused, format!("{http} is not a peer of a supported version"))),
        (code, ..) => {
            let mut why = match said["error"].as_str() {
                Some(error) => error.to_owned(),
                None => format!("{http} answered {code}"),
            };
            if code == 401 {
                why.push_str(" (here: --admin-token-file FILE)");
            }
            Err(LeaveFailure { exit: Exit::Refused, why, reason: said.get("reason").cloned() })
        }
    }
}

/// Follows the peer until it has left, and prints each step once. Returns whether all steps could be printed: a failure
/// to print ends nothing.
fn follow(args: &LeaveArgs, leaver: &Leaver, first: LeavingStatus) -> Result<io::Result<()>, LeaveFailure> {
    let mut printed = Ok(());
    if args.output == Format::Text {
        let called = leaver.called();
        note(&format!("scatter: {called} is leaving; the leave continues even if this command is interrupted"));
    }
    let (mut told, mut leaving, mut seen) = (Vec::new(), first, Instant::now());
    loop {
        if !told.contains(&leaving.step) {
            printed = printed.and(tell(args.output, leaver, &leaving));
            told.push(leaving.step.clone());
        }
        if leaving.is_over() {
            return Ok(printed);
        }
        let trouble = loop {
            std::thread::sleep(LOOK_EVERY);
            let trouble = match look(&args.http, &leaver.peer_id) {
                Ok(next) => {
                    leaving = next;
                    break None;
                }
                Err(trouble) => trouble,
            };
            if seen.elapsed() >= SILENCE_MAX {
                break Some(trouble);
            }
        };
        if let Some(trouble) = trouble {
            let why = format!(
                "{trouble}. The peer was last seen {}, and has not confirmed that it has left: its process may have \
                died. Restart it (scatter run): it continues to leave, or confirms that it has left",
                leaving.step,
            );
            return Err(LeaveFailure::new(Exit::Unknown, why));
        }
        seen = Instant::now();
    }
}

/// Returns the peer's progress, or the reason for which it is unknown.
fn look(http: &str, peer_id: &str) -> Result<LeavingStatus, String> {
    let (code, body) =
        http_client::get(http, "/v1/status").map_err(|error| format!("the peer at {http} is gone ({error})"))?;
    if code != 200 {
        return Err(format!("{http} answered {code}"));
    }
    match serde_json::from_slice::<Status>(&body) {
        Ok(Status { leaving: Some(leaving), peer_id: who, .. }) if who == peer_id => Ok(leaving),
        Ok(Status { peer_id: who, name, .. }) if who != peer_id => {
            let called = Called { name: name.as_ref(), id: who };
            Err(format!("another peer answers at {http} now, {called}"))
        }
        Ok(_) => Err(format!("the peer at {http} no longer reports a leave")),
        Err(error) => Err(format!("{http} is not a peer of a supported version: {error}")),
    }
}

fn tell(output: Format, leaver: &Leaver, leaving: &LeavingStatus) -> io::Result<()> {
    write(line(output, leaver, leaving).as_bytes())
}

/// Formats a step as a line.
fn line(output: Format, Leaver { peer_id, name }: &Leaver, leaving: &LeavingStatus) -> String {
    match output {
        Format::Text if leaving.is_over() => {
            let name = name.as_ref().map_or(String::new(), |name| format!(" name={name}"));
            format!("left peer={peer_id}{name}\n")
        }
        Format::Text => format!("{}\n", describe(leaving)),
        Format::Json => {
            let event = if leaving.is_over() { "left" } else { "leaving" };
            let mut line = json!({ "event": event, "peer_id": peer_id });
            if let Some(name) = name {
                line["name"] = json!(name);
            }
            if !leaving.is_over() {
                line["leaving"] = json!(leaving);
            }
            format!("{line}\n")
        }
    }
}

/// Formats a step for display, with its details.
pub fn describe(leaving: &LeavingStatus) -> String {
    let LeavingStatus { step, remain, primaries, force } = leaving;
    match step.as_str() {
        "waiting for others to join" if !force => {
            format!("{step}: {remain} would remain, and that is too few without --force")
        }
        "waiting for others to join" => format!("{step}: it is the last member"),
        "handing over primaries" => format!("{step}: {primaries} to go"),
        _ => step.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_beside_the_id() {
        let left = LeavingStatus { step: LeavingStatus::LEFT.into(), ..LeavingStatus::default() };
        let of = |name: &str| Leaver { peer_id: "12D3KooWaaaaaa".into(), name: name.parse().ok() };
        assert_eq!(of("oak").called().to_string(), "oak (12D3KooWaaaaaa)");
        assert_eq!(line(Format::Text, &of("oak"), &left), "left peer=12D3KooWaaaaaa name=oak\n");
        assert_eq!(line(Format::Text, &of(""), &left), "left peer=12D3KooWaaaaaa\n");
        let json: Value = serde_json::from_str(&line(Format::Json, &of("oak"), &left)).unwrap();
        assert_eq!(json, json!({ "event": "left", "peer_id": "12D3KooWaaaaaa", "name": "oak" }));
        assert!(!line(Format::Json, &of(""), &left).contains("name"));
    }

    #[test]
    fn steps_say_what_they_are_about() {
        let step = |step: &str, force| describe(&LeavingStatus { step: step.into(), force, remain: 2, primaries: 3 });
        assert!(step("waiting for others to join", false).contains("2 would remain"));
        assert_eq!(step("handing over primaries", false), "handing over primaries: 3 to go");
        assert_eq!(step("waiting for the next epoch", true), "waiting for the next epoch");
    }
}
