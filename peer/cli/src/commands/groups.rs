//! `scatter groups`, `scatter ring`, `scatter where`: a peer's knowledge of groups, and their owners' reports.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;

use clap::Args;
use peer::config::Format;
use peer::exit::{Exit, fail};
use peer::names::Names;
use peer::status::{GroupStatus, Groups, Located, LossStatus, QuorumStatus, RangeStatus, Ring, SilentRange};
use serde::de::DeserializeOwned;

use super::print;
use crate::http_client;
use crate::top::units;

/// Arguments of commands that show status.
#[derive(Debug, Args)]
pub struct LookArgs {
    /// A peer's HTTP address
    #[arg(long, value_name = "HOST:PORT", env = "SCATTER_HTTP", value_parser = super::address::status, default_value = "127.0.0.1:6480")]
    pub http: String,
    /// How to print the answer
    #[arg(long, env = "SCATTER_OUTPUT", default_value_t = Format::Text)]
    pub output: Format,
}

/// Arguments of `scatter ring`.
#[derive(Debug, Args)]
pub struct RingArgs {
    /// Lane of the ring, where peers have several: each lane has a ring of its own
    #[arg(long, default_value_t = 0)]
    lane: u8,
    #[command(flatten)]
    look: LookArgs,
}

/// Arguments of `scatter where`.
#[derive(Debug, Args)]
pub struct WhereArgs {
    /// The key
    key: OsString,
    #[command(flatten)]
    look: LookArgs,
}

/// Runs `scatter groups`: exit code 1 where the peer has a part in none, or one has no majority.
pub fn groups(args: &LookArgs) -> ExitCode {
    look(args, "/v1/groups", |groups: &Groups| {
        let mut text = String::new();
        groups.groups.iter().for_each(|group| describe(group, &mut text));
        let is_lost = |group: &GroupStatus| group.quorum.as_ref().is_some_and(|quorum| !quorum.held);
        (text, !groups.groups.is_empty() && !groups.groups.iter().any(is_lost))
    })
}

/// Runs `scatter ring`: exit code 1 where some range does not answer or has no majority.
pub fn ring(args: &RingArgs) -> ExitCode {
    look(&args.look, &format!("/v1/ring?lane={}", args.lane), |ring: &Ring| {
        (describe_ring(ring, environment::unix_ms()), ring.is_well())
    })
}

fn describe_ring(ring: &Ring, now_ms: u64) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{:32}  {:32}  {:>7}  {:32}  {:>6}  members", "start", "end", "share", "group", "epoch");
    for located in &ring.groups {
        let Located { group, epoch, range, members, quorum, .. } = located;
        let RangeStatus { start, end } = range;
        let lost = quorum.as_ref().filter(|quorum| !quorum.held);
        let lost = lost.map_or(String::new(), |quorum| match quorum.former_epoch {
            None => format!(", {} heard: NO MAJORITY", quorum.heard),
            Some(former) => format!(", {} of {} of epoch {former} heard: NO MAJORITY", quorum.heard, quorum.members),
        });
        let _ = writeln!(
            text,
            "{start}  {end}  {:>6.2}%  {group}  {epoch:>6}  {}{lost}: {}",
            share(range),
            members.len(),
            listed(members, &Names::of_located(located))
        );
    }
    let mut lost_share = 0.0;
    for (located, quorum) in ring.without_majority() {
        let Located { group, range, unheard, .. } = located;
        let RangeStatus { start, end } = range;
        lost_share += share(range);
        let _ = writeln!(
            text,
            "no majority: {start} to {end}, group {group}: {} ({} needed){}",
            quorum.words(),
            quorum.needed,
            lasting(located.unserved_since_ms, now_ms)
        );
        let names = Names::of_located(located);
        unheard.iter().for_each(|peer| text.push_str(&format!("             not heard: {}\n", names.whole(peer))));
    }
    for silent in &ring.silent {
        let SilentRange { range, group, members, .. } = silent;
        let RangeStatus { start, end } = range;
        lost_share += share(range);
        let group = group.as_ref().map_or("its group is not known".into(), |group| {
            let who = listed(members, &Names::of_silent(silent));
            format!("group {group} with {} members, when it was last heard of: {who}", members.len())
        });
        let _ = writeln!(text, "no answer:   {start} to {end}{}, {group}", lasting(silent.since_ms, now_ms));
    }
    let (count, lost) = (ring.groups.len(), ring.without_majority().count());
    let (groups, cover) = if count == 1 { ("1 group".into(), "covers") } else { (format!("{count} groups"), "cover") };
    let keys = if lost == count { "any key".into() } else { format!("{lost_share:.2}% of the keys") };
    let _ = match (ring.whole, lost) {
        (true, 0) => writeln!(text, "{groups} {cover} the ring exactly"),
        (true, lost) => {
            writeln!(text, "{groups} {cover} the ring, {lost} without a majority: no operation on {keys} is answered")
        }
        (false, _) => writeln!(text, "{groups}; the rest did not answer, or the ring is changing: ask again"),
    };
    text
}

/// Formats the time for which a range has not been served; empty where that was found just now.
fn lasting(since_ms: Option<u64>, now_ms: u64) -> String {
    since_ms.map_or(String::new(), |since| format!(", for {}", units::span(now_ms.saturating_sub(since) / 1000)))
}

/// Lists peers in one line, each in its displayed form.
fn listed(peers: &[String], names: &Names<'_>) -> String {
    peers.iter().map(|peer| names.label(peer)).collect::<Vec<_>>().join(", ")
}

/// Runs `scatter where KEY`.
pub fn locate(args: &WhereArgs) -> ExitCode {
    look(&args.look, &format!("/v1/where?key={}", percent_encoded(args.key.as_bytes())), |located: &Located| {
        let mut text = String::new();
        let _ = writeln!(text, "point      {}", located.point);
        let _ = writeln!(text, "group      {}, epoch {}", located.group, located.epoch);
        let _ = writeln!(text, "range      {} to {}", located.range.start, located.range.end);
        let names = Names::of_located(located);
        let not_heard = |peer: &String| if located.unheard.contains(peer) { ", not heard" } else { "" };
        let primary = &located.primary;
        let _ = writeln!(text, "primary    {}{}", names.whole(primary), not_heard(primary));
        for member in &located.members {
            let _ = writeln!(text, "member     {}{}", names.whole(member), not_heard(member));
        }
        let lost = located.quorum.as_ref().filter(|quorum| !quorum.held);
        if let Some(quorum) = lost {
            let answers = match quorum.former_epoch {
                None => "it answers nothing",
                Some(_) => "it answers nothing, or only for a part of its range",
            };
            let _ = writeln!(text, "NO MAJORITY: {}; {answers}", quorum.words());
        }
        (text, lost.is_none())
    })
}

/// Sends a request, and prints the answer: as JSON, or in the text of `describe`, which also returns whether all is well.
fn look<T: DeserializeOwned>(args: &LookArgs, path: &str, describe: impl Fn(&T) -> (String, bool)) -> ExitCode {
    let (code, body) = match http_client::get(&args.http, path) {
        Ok(answer) => answer,
        Err(error) => return fail(Exit::Unreachable, &format!("cannot reach a peer at {}: {error}", args.http)),
    };
    if code != 200 {
        let said: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let why = said["error"].as_str().map_or_else(|| format!("{} answered {code}", args.http), str::to_owned);
        return fail(if code == 503 { Exit::No } else { Exit::Refused }, &why);
    }
    let Ok(answer) = serde_json::from_slice::<T>(&body) else {
        return fail(Exit::Refused, &format!("{} is not a peer of a supported version", args.http));
    };
    let (text, well) = describe(&answer);
    let exit = if well { Exit::Done } else { Exit::No };
    match args.output {
        Format::Text => print(text.as_bytes(), exit),
        Format::Json => print(&[&body[..], b"\n"].concat(), exit),
    }
}

fn describe(group: &GroupStatus, text: &mut String) {
    let lane = group.lane.map_or(String::new(), |lane| format!(", lane {lane}"));
    let _ = writeln!(text, "group {}, epoch {}, {} here{lane}", group.id, group.epoch, group.part);
    let _ = writeln!(text, "  range       {} to {} ({:.2} %)", group.range.start, group.range.end, share(&group.range));
    let names = Names::of_groups([group]);
    let leader = group.leader.as_deref().map_or("none".into(), |leader| names.whole(leader));
    let _ = writeln!(text, "  members     {}, led by {leader}{}", group.members.len(), doubt(group));
    let members: Vec<String> = group.members.iter().map(|member| member.peer_id.clone()).collect();
    let _ = writeln!(text, "              {}", listed(&members, &names));
    let _ = writeln!(text, "  lifetimes   {}", group.lifetimes.words());
    if let Some(risk) = &group.risk {
        let _ = writeln!(text, "  risk        {}", risk.words());
    }
    let fresh = match group.links_fresh {
        Some(true) => "; both know it as it is",
        Some(false) => "; not both know it as it is yet",
        None => "",
    };
    let known = |id: &Option<String>| id.clone().unwrap_or_else(|| "none".into());
    let _ = writeln!(
        text,
        "  neighbours  {} before it, {} behind it{fresh}",
        known(&group.predecessor),
        known(&group.successor)
    );
    for LossStatus { range, groups, declared_unix_s } in &group.losses {
        let _ = writeln!(
            text,
            "  lost        {} to {}, of {}, declared at {declared_unix_s}",
            range.start,
            range.end,
            groups.join(" and ")
        );
    }
    for open in &group.transactions {
        let _ = writeln!(text, "  {:10}  by {}, slot {}: {}", open.operation, open.coordinator, open.slot, open.step);
        open.locks.iter().for_each(|lock| text.push_str(&format!("              locks {lock}\n")));
    }
}

/// Returns the reason for which a minority of the members must not fail now, for the end of a line; empty where it may.
pub fn doubt(group: &GroupStatus) -> String {
    match &group.quorum {
        Some(quorum @ QuorumStatus { held: false, needed, .. }) => {
            format!("; NO MAJORITY: {} ({needed} needed), and no operation is answered", quorum.words())
        }
        _ if !group.established => "; no majority holds everything yet".into(),
        _ => String::new(),
    }
}

/// Returns the share of the whole ring in percent; 0 where the text describes no arc.
pub fn share(range: &RangeStatus) -> f64 {
    range.share() * 100.0
}

/// Encodes bytes for a URL.
pub fn percent_encoded(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => text.push(char::from(*byte)),
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_the_ring() {
        let range = |start: &str, end: &str| RangeStatus { start: start.repeat(32), end: end.repeat(32) };
        assert_eq!(share(&range("0", "0")), 100.0);
        assert_eq!(share(&RangeStatus { start: "0".into(), end: format!("4{}", "0".repeat(31)) }), 25.0);
        assert_eq!(share(&range("x", "0")), 0.0);
    }

    #[test]
    fn any_key_fits_into_a_url() {
        assert_eq!(percent_encoded(b"a b/\xff"), "a%20b%2F%FF");
    }
}
