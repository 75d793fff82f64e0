//! `scatter status`: prints the status of a peer and its groups.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use peer::config::Format;
use peer::exit::{Exit, fail};
use peer::names::Names;
use peer::status::{GroupStatus, IdentityStatus, InDoubtStatus, MemberStatus, PoliciesStatus, Status};

use super::groups::doubt;
use super::{leave, print};
use crate::http_client;

/// Arguments of `scatter status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// A peer's HTTP address
    #[arg(long, value_name = "HOST:PORT", env = "SCATTER_HTTP", value_parser = super::address::status, default_value = "127.0.0.1:6480")]
    http: String,
    /// How to print the status
    #[arg(long, env = "SCATTER_OUTPUT", default_value_t = Format::Text)]
    output: Format,
}

/// Runs `scatter status`: exit code 1 where the peer does not serve clients.
pub fn status(args: &StatusArgs) -> ExitCode {
    let asked = http_client::get(&args.http, "/v1/status")
        .and_then(|status| Ok((status, http_client::get(&args.http, "/readyz")?)));
    let ((code, body), (ready, _)) = match asked {
        Ok(answers) => answers,
        Err(error) => {
            return fail(Exit::Unreachable, &format!("cannot reach a peer at {}: {error}", args.http));
        }
    };
    if code != 200 {
        return fail(Exit::Refused, &format!("{} answered {code}", args.http));
    }
    let ready = ready == 200;
    let exit = if ready { Exit::Done } else { Exit::No };
    match args.output {
        Format::Json => print(&[&body[..], b"\n"].concat(), exit),
        Format::Text => match serde_json::from_slice::<Status>(&body) {
            Ok(status) => print(describe(&status, ready).as_bytes(), exit),
            Err(error) => fail(Exit::Refused, &format!("{} is not a peer of a supported version: {error}", args.http)),
        },
    }
}

/// Formats the status for display. Writing to a string does not fail.
fn describe(status: &Status, ready: bool) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "peer       {}", status.peer_id);
    if let Some(name) = &status.name {
        let _ = writeln!(text, "name       {name}");
    }
    let _ = writeln!(text, "network    {}", status.network);
    // A peer of an earlier version reports no commit.
    let commit = if status.commit.is_empty() { String::new() } else { format!(" (commit {})", status.commit) };
    let _ = writeln!(text, "version    {}{commit}, up {} s", status.version, status.uptime_s);
    let _ = writeln!(text, "durability {}", status.durability);
    let _ = writeln!(text, "ready      {}", if ready { "yes" } else { "no" });
    if let Some(leaving) = &status.leaving {
        let _ = writeln!(text, "leaving    {}", leave::describe(leaving));
    }
    let names = Names::of_groups(&status.groups);
    for IdentityStatus { peer_id, what } in &status.identity {
        let _ = writeln!(text, "identity   {}: {what}", names.whole(peer_id));
    }
    if let Some(policies) = status.groups.iter().map(|group| &group.policies).max_by_key(|known| known.version) {
        let PoliciesStatus { version, min_group, max_group, .. } = policies;
        let _ = writeln!(text, "policies   version {version}: {}", policies.flag());
        let _ = writeln!(text, "           groups of {min_group} to {max_group} members");
    }
    for group in &status.groups {
        describe_group(group, &mut text);
    }
    text
}

fn describe_group(group: &GroupStatus, text: &mut String) {
    let names = Names::of_groups([group]);
    let lane = group.lane.map_or(String::new(), |lane| format!(", lane {lane}"));
    let _ = writeln!(text, "\ngroup {}, epoch {}, term {}{lane}", group.id, group.epoch, group.term);
    let _ = writeln!(text, "  range      {} to {}", group.range.start, group.range.end);
    let _ = writeln!(
        text,
        "  holds      {} keys, {} bytes; {:.1} operations a second",
        group.keys, group.bytes, group.ops_per_s
    );
    let leader = group.leader.as_deref().map_or("none".into(), |leader| names.whole(leader));
    let _ = writeln!(text, "  leader     {leader}{}", doubt(group));
    let _ = writeln!(text, "  complete   {} of {} parts here", group.complete, group.primaries.len());
    for transfer in &group.transfers {
        let _ = writeln!(
            text,
            "  copies     {} from {}: {} records, {} bytes, {} pieces left, {} % of this one",
            transfer.what,
            names.whole(&transfer.from),
            transfer.records,
            transfer.bytes,
            transfer.pieces,
            transfer.done_percent
        );
    }
    if let Some(in_doubt) = &group.in_doubt {
        describe_doubt(in_doubt, &group.id, &names, text);
    }
    if group.waiting_to_join > 0 {
        let _ = writeln!(text, "  waiting    {} to be let in", group.waiting_to_join);
    }
    for (name, neighbour, quorum) in [
        ("before it", &group.predecessor, &group.predecessor_quorum),
        ("behind it", &group.successor, &group.successor_quorum),
    ] {
        if let Some(neighbour) = neighbour {
            let lost = quorum.as_ref().filter(|quorum| !quorum.held);
            let lost = lost.map_or(String::new(), |quorum| format!(", NO MAJORITY: {}", quorum.words()));
            let _ = writeln!(text, "  {name}  {neighbour}{lost}");
        }
    }
    for member in &group.members {
        describe_member(member, group.leader.as_ref() == Some(&member.peer_id), &names, text);
    }
    for primary in &group.primaries {
        let _ =
            writeln!(text, "  primary    {} from {} to {}", names.whole(&primary.peer_id), primary.start, primary.end);
    }
}

fn describe_doubt(in_doubt: &InDoubtStatus, group: &str, names: &Names<'_>, text: &mut String) {
    let InDoubtStatus { members, waiting_for } = in_doubt;
    let _ = writeln!(text, "  in doubt   may have lost the last acknowledged write: {}", names.whole_list(members));
    if !waiting_for.is_empty() {
        let _ = writeln!(
            text,
            "             so this group serves nothing until these members are back: {}. If they are lost for good: \
             scatter group accept-loss {group}",
            names.whole_list(waiting_for)
        );
    }
}

fn describe_member(member: &MemberStatus, leads: bool, names: &Names<'_>, text: &mut String) {
    let leads = if leads { " (leads)" } else { "" };
    let place = if member.cluster.is_empty() { String::new() } else { format!(" in {}", member.cluster) };
    let _ = writeln!(
        text,
        "  member     {}{leads}{place}, {}, for {} s{}{}",
        names.whole(&member.peer_id),
        member.role,
        member.lifetime_s,
        member.capacity_words(),
        member.sessions_words()
    );
    for address in &member.addresses {
        let _ = writeln!(text, "             {address}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_members_can_do_is_shown() {
        let weak =
            MemberStatus { capacity_ops_per_s: Some(240), capacity_percent: Some(25), ..MemberStatus::default() };
        let groups = vec![GroupStatus { members: vec![weak, MemberStatus::default()], ..GroupStatus::default() }];
        let text = describe(&Status { groups, ..Status::default() }, true);
        assert!(text.contains(", for 0 s, can do 240 operations/s (25 % of a typical member)\n"), "{text}");
        assert!(text.contains(", for 0 s\n"), "{text}");
    }

    #[test]
    fn the_commit_and_contradicting_processes_are_shown() {
        let oak =
            MemberStatus { peer_id: "12D3KooWaaaaaa".into(), name: "oak".parse().ok(), ..MemberStatus::default() };
        let status = Status {
            version: "0.1.0".into(),
            commit: "0123456789ab".into(),
            identity: vec![IdentityStatus { peer_id: oak.peer_id.clone(), what: "runs twice".into() }],
            groups: vec![GroupStatus { members: vec![oak], ..GroupStatus::default() }],
            ..Status::default()
        };
        let text = describe(&status, true);
        assert!(text.contains("\nversion    0.1.0 (commit 0123456789ab), up 0 s\n"), "{text}");
        assert!(text.contains("\nidentity   oak (12D3KooWaaaaaa): runs twice\n"), "{text}");
        let older = describe(&Status { commit: String::new(), identity: Vec::new(), ..status }, true);
        assert!(older.contains("\nversion    0.1.0, up 0 s\n") && !older.contains("identity"), "{older}");
    }
}
