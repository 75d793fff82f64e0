//! `scatter network` and `scatter network set policy`: the agreed settings of all groups of a network.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use peer::config::{Format, Policy};
use peer::exit::Exit;
use peer::status::{PoliciesStatus, Ring, Status};
use serde_json::{Value, json};

use super::{group, print};
use crate::http_client;

/// Peer to ask, and form of the answer.
#[derive(Debug, Args)]
pub(super) struct Where {
    /// A peer's HTTP address
    #[arg(long, value_name = "HOST:PORT", env = "SCATTER_HTTP", value_parser = super::address::status, default_value = "127.0.0.1:6480")]
    http: String,
    /// How to print the answer
    #[arg(long, env = "SCATTER_OUTPUT", default_value_t = Format::Text)]
    output: Format,
}

/// Arguments of `scatter network set policy`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true).args(["policies", "min_group", "max_group"]))]
pub(super) struct SetPolicyArgs {
    /// A decision and the name of its policy, such as size=nines (several, or separated by commas)
    #[arg(value_name = "DECISION=NAME", value_delimiter = ',')]
    policies: Vec<Policy>,
    /// Minimum size of a group: a smaller one merges with a neighbour, or takes members from it
    #[arg(long, value_name = "N")]
    min_group: Option<u32>,
    /// Maximum size of a group: a larger one splits
    #[arg(long, value_name = "N")]
    max_group: Option<u32>,
    /// Change even if the last change has not reached all groups: one of the two may be lost
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    at: Where,
    /// A file with the administrators' token, if the peer requires one
    #[arg(long, value_name = "FILE", env = "SCATTER_ADMIN_TOKEN_FILE")]
    admin_token_file: Option<PathBuf>,
}

/// Runs `scatter network`.
pub(super) fn show(at: &Where) -> ExitCode {
    match agreed(at) {
        Ok(agreed) => match at.output {
            Format::Json => print(format!("{}\n", agreed.json()).as_bytes(), Exit::Done),
            Format::Text => print(agreed.text().as_bytes(), Exit::Done),
        },
        Err((exit, why)) => group::failed(at.output, exit, &why),
    }
}

/// Runs `scatter network set policy`.
pub(super) fn set(args: &SetPolicyArgs) -> ExitCode {
    match change(args) {
        Ok(agreed) => match args.at.output {
            Format::Json => print(format!("{}\n", agreed.json()).as_bytes(), Exit::Done),
            Format::Text => {
                let text = format!(
                    "{}neighbours adopt them within seconds each: `scatter network` counts the groups that have them\n",
                    agreed.text()
                );
                print(text.as_bytes(), Exit::Done)
            }
        },
        Err((exit, why)) => group::failed(args.at.output, exit, &why),
    }
}

fn change(args: &SetPolicyArgs) -> Result<AgreedPolicies, (Exit, String)> {
    let SetPolicyArgs { policies, min_group, max_group, force, at, admin_token_file } = args;
    let mut names = serde_json::Map::new();
    for Policy(decision, name) in policies {
        if names.insert(decision.clone(), Value::from(name.as_str())).is_some() {
            return Err((Exit::Usage, format!("two policies are given for {decision}: give only one")));
        }
    }
    let body = json!({ "names": names, "min_group": min_group, "max_group": max_group });
    let known = agreed(at)?;
    if !force && known.with_last < known.groups {
        let AgreedPolicies { policies: PoliciesStatus { version, .. }, groups, with_last, .. } = known;
        let why = "of two concurrent changes, one is lost";
        return Err((
            Exit::TryAgain,
            format!(
                "the last change, version {version}, is in {with_last} of {groups} groups, and {why}: wait until all \
                groups have it, or use --force"
            ),
        ));
    }
    // Each lane is a ring of its own.
    let groups = group::groups(&at.http)?;
    let own: Vec<&str> = groups.iter().filter(|group| group.part == "member").map(|group| group.id.as_str()).collect();
    if own.is_empty() {
        return Err((Exit::Refused, format!("the peer at {} is a member of no group: ask another one", at.http)));
    }
    for group in own {
        group::post(&at.http, admin_token_file.as_ref(), group, "policies", &body)?;
    }
    agreed(at)
}

/// Agreed settings of a network, and the number of groups that have them.
struct AgreedPolicies {
    network: String,
    /// Policies of the group whose version is the highest.
    policies: PoliciesStatus,
    /// Groups of the ring that answered, and those among them with the highest version.
    groups: usize,
    with_last: usize,
}

fn agreed(at: &Where) -> Result<AgreedPolicies, (Exit, String)> {
    let get = |path: &str| -> Result<Vec<u8>, (Exit, String)> {
        let (code, body) = http_client::get(&at.http, path)
            .map_err(|error| (Exit::Unreachable, format!("cannot reach a peer at {}: {error}", at.http)))?;
        match code {
            200 => Ok(body),
            _ => Err((Exit::Refused, format!("{} answered {code}", at.http))),
        }
    };
    let unknown = |error| (Exit::Refused, format!("{} is not a peer of a supported version: {error}", at.http));
    let status: Status = serde_json::from_slice(&get("/v1/status")?).map_err(unknown)?;
    let ring: Ring = serde_json::from_slice(&get("/v1/ring")?).map_err(unknown)?;
    let policies = status.groups.iter().map(|group| &group.policies).max_by_key(|policies| policies.version);
    let Some(policies) = policies.cloned() else {
        return Err((Exit::Refused, format!("the peer at {} is in no group yet: ask another one", at.http)));
    };
    let has_last = |version: Option<u64>| version.is_some_and(|version| version >= policies.version);
    let with_last = ring.groups.iter().filter(|group| has_last(group.policies_version)).count();
    Ok(AgreedPolicies { network: status.network, policies, groups: ring.groups.len(), with_last })
}

impl AgreedPolicies {
    fn text(&self) -> String {
        let PoliciesStatus { version, min_group, max_group, names } = &self.policies;
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = writeln!(text, "network        {}", self.network);
        let _ = writeln!(text, "policies       version {version}, in {} of {} groups", self.with_last, self.groups);
        for (decision, name) in names {
            let _ = writeln!(text, "  {decision:<13}{name}");
        }
        let _ = writeln!(text, "  min-group    {min_group}\n  max-group    {max_group}");
        text
    }

    fn json(&self) -> Value {
        json!({
            "network": self.network,
            "policies": self.policies,
            "groups": self.groups,
            "groups_with_last_version": self.with_last,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_shown_with_how_far_they_have_spread() {
        let names = [("size".to_owned(), "nines".to_owned())].into();
        let policies = PoliciesStatus { version: 3, min_group: 5, max_group: 12, names };
        let agreed = AgreedPolicies { network: "attic".into(), policies, groups: 4, with_last: 3 };
        let text = agreed.text();
        for line in ["network        attic", "version 3, in 3 of 4 groups", "  size         nines", "  max-group    12"]
        {
            assert!(text.contains(line), "{text}");
        }
        assert_eq!(agreed.json()["policies"]["names"]["size"], "nines");
    }
}
