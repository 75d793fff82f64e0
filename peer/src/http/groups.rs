//! `/v1/groups`, `/v1/ring`, `/v1/where`, and administrators' requests about groups.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use group::transaction::plan::LOST_MAX;
use net::{peer_id_of, peer_key_of};
use node::{AdminOutcome, AdminRequest, PolicyChange};
use overlay::{Contact, Epoch, GroupId, GroupRef, Key, PeerKey, PeerName, Point};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::authority::admit;
use super::{Served, problem};
use crate::event_log::GROUPS_MAX;
use crate::status::{Groups, Located, QuorumStatus, Ring, SilentRange};

/// Upper limit of a request's body in bytes: a request has a handful of words, and at most the names of
/// members.
const BODY_BYTES_MAX: usize = 16 << 10;

/// `GET /v1/groups`: all groups that this peer has a part in.
pub async fn groups(State(served): State<Served>) -> Response {
    answer(StatusCode::OK, &Groups { groups: served.status.groups(), peer_id: served.status.peer_id() })
}

/// `GET /v1/ring`: the owners of all ranges, as they report now. With `?lane=N`, the ring of that lane.
pub async fn ring(State(served): State<Served>, RawQuery(query): RawQuery) -> Response {
    let Ok(lane) = parameter(query.as_deref(), "lane").unwrap_or("0").parse() else {
        return problem(StatusCode::BAD_REQUEST, "a lane is a number from 0 on");
    };
    match served.admin.walk_ring(lane, None, GROUPS_MAX).await {
        Ok(walk) => {
            let mut ring = Ring::of(&walk);
            served.ring_watch.fill_in(lane, &mut ring);
            answer(StatusCode::OK, &ring)
        }
        Err(_) => problem(StatusCode::SERVICE_UNAVAILABLE, "this peer is stopping, or has no such lane"),
    }
}

/// `GET /v1/where?key=…`: the key is percent-encoded bytes.
pub async fn locate(State(served): State<Served>, RawQuery(query): RawQuery) -> Response {
    // Decoded here: a key need not be UTF-8.
    let Some(raw) = parameter(query.as_deref(), "key") else {
        return problem(StatusCode::BAD_REQUEST, "name the key: /v1/where?key=KEY, percent-encoded");
    };
    let Some(bytes) = percent_decoded(raw) else {
        return problem(
            StatusCode::BAD_REQUEST,
            "the key is not percent-encoded: two hexadecimal digits follow each %",
        );
    };
    let Ok(key) = Key::new(&bytes) else {
        return problem(StatusCode::BAD_REQUEST, "a key has at most 1 KiB");
    };
    match served.admin.locate(&key).await {
        Ok(walk) => match walk.groups.first() {
            Some(located) => answer(StatusCode::OK, &Located::of(located)),
            None => problem(StatusCode::SERVICE_UNAVAILABLE, "no owner of this key answers"),
        },
        Err(_) => problem(StatusCode::SERVICE_UNAVAILABLE, "this peer is stopping"),
    }
}

/// Details of an operation; the operation determines which of them are needed.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Details {
    /// Boundary, or start of a lost range: 32 hex digits.
    at: Option<String>,
    /// Ids of groups that are lost.
    lost: Vec<String>,
    /// Id of a switch.
    id: Option<u32>,
    /// Whether the switch is to be used.
    on: Option<bool>,
    /// Peer ids of the members of the first half.
    first: Vec<String>,
    /// Peer ids of members that go.
    to: Vec<String>,
    /// Peer ids of members that come.
    from: Vec<String>,
    /// Decisions, each with the name of its policy.
    names: BTreeMap<String, String>,
    /// Lower limit of members: a group of fewer is too small.
    min_group: Option<u32>,
    /// Upper limit of members: a group of more is too large.
    max_group: Option<u32>,
}

impl Details {
    /// Returns the names of all details, each with whether it is given.
    fn given(&self) -> [(&'static str, bool); 10] {
        [
            ("at", self.at.is_some()),
            ("first", !self.first.is_empty()),
            ("to", !self.to.is_empty()),
            ("from", !self.from.is_empty()),
            ("lost", !self.lost.is_empty()),
            ("id", self.id.is_some()),
            ("on", self.on.is_some()),
            ("names", !self.names.is_empty()),
            ("min_group", self.min_group.is_some()),
            ("max_group", self.max_group.is_some()),
        ]
    }
}

/// Refuses details that the operation does not take.
fn takes_only(operation: &str, given: &[(&str, bool)], takes: &[&str]) -> Result<(), String> {
    let superfluous = given.iter().find(|(name, given)| *given && !takes.contains(name));
    superfluous.map_or(Ok(()), |(name, _)| Err(format!("{operation} takes no \"{name}\"")))
}

/// `POST /v1/groups/ID/OPERATION`: answered when the outcome is decided.
pub async fn request(
    State(served): State<Served>,
    Path((group, operation)): Path<(String, String)>,
    request: Request<Body>,
) -> Response {
    let body = match admit(&served, request, BODY_BYTES_MAX).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let request = match details(&body).and_then(|details| meant(&operation, details)) {
        Ok(Some(request)) => request,
        Ok(None) => return problem(StatusCode::NOT_FOUND, "no such page"),
        Err(why) => return problem(StatusCode::BAD_REQUEST, &why),
    };
    let Some(group) = hex(&group).map(GroupId) else {
        return problem(StatusCode::BAD_REQUEST, "a group's id has 32 hex digits, as in /v1/groups");
    };
    let mut answers = served.admin.request(group, request);
    let mut outcome = None;
    // One answer from each lane, of which at most one has such a group.
    while let Some(other) = answers.recv().await {
        if outcome.is_none() || outcome == Some(AdminOutcome::NotHere) {
            outcome = Some(other);
        }
    }
    match outcome {
        Some(AdminOutcome::Done(groups)) => {
            let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
            answer(StatusCode::OK, &json!({ "outcome": "done", "groups": groups }))
        }
        Some(other) => {
            let (code, outcome) = match other {
                AdminOutcome::NotHere => (StatusCode::NOT_FOUND, "not_here"),
                AdminOutcome::Unknown => (StatusCode::GATEWAY_TIMEOUT, "unknown"),
                AdminOutcome::Aborted => (StatusCode::CONFLICT, "aborted"),
                AdminOutcome::NotNow(_) => (StatusCode::CONFLICT, "not_now"),
                _ => (StatusCode::CONFLICT, "refused"),
            };
            answer(code, &json!({ "error": other.to_string(), "outcome": outcome }))
        }
        None => problem(StatusCode::CONFLICT, "this peer is stopping"),
    }
}

fn details(body: &[u8]) -> Result<Details, String> {
    if body.trim_ascii().is_empty() {
        return Ok(Details::default());
    }
    let object = serde_json::from_slice::<Map<String, Value>>(body);
    let details = object.and_then(|object| serde_json::from_value(Value::Object(object)));
    details.map_err(|error| format!("the body must be empty, or JSON like {{\"at\": \"8000…\"}}: {error}"))
}

/// Returns the operation of this name; `None` where there is none.
fn meant(operation: &str, details: Details) -> Result<Option<AdminRequest>, String> {
    let given = details.given();
    let only = |takes: &[&str]| takes_only(operation, &given, takes);
    let Details { at, lost, id: switch, on, first, to, from, names, min_group, max_group } = details;
    let at =
        at.map(|at| hex(&at).map(Point).ok_or_else(|| format!("{at} is not a point of the ring: give 32 hex digits")));
    let at = at.transpose()?;
    let (first, to, from) = (peers(first)?, peers(to)?, peers(from)?);
    let id = |id: &String| hex(id).map(GroupId).ok_or_else(|| format!("{id} is not a group id: give 32 hex digits"));
    let lost = lost.iter().map(id).collect::<Result<Vec<GroupId>, String>>()?;
    Ok(Some(match operation {
        "split" => {
            only(&["at", "first"])?;
            AdminRequest::Split { at, first }
        }
        "merge" => {
            only(&[])?;
            AdminRequest::Merge
        }
        "repartition" => {
            only(&["at"])?;
            AdminRequest::Repartition { at: at.ok_or("give the new boundary: {\"at\": \"32 hex digits\"}")? }
        }
        "migrate" => {
            only(&["to", "from"])?;
            if to.is_empty() && from.is_empty() {
                return Err("give the members to move: {\"to\": [PEER_ID…], \"from\": [PEER_ID…]}".into());
            }
            AdminRequest::Migrate { to, from }
        }
        "repair" => {
            only(&["at", "lost"])?;
            if !(1..=LOST_MAX).contains(&lost.len()) {
                return Err(format!("give the ids of the lost groups, {LOST_MAX} at most: {{\"lost\": [GROUP_ID…]}}"));
            }
            AdminRequest::Repair { from: at, lost }
        }
        "accept-loss" => {
            only(&[])?;
            AdminRequest::AcceptLoss
        }
        "policies" => {
            only(&["names", "min_group", "max_group"])?;
            if names.is_empty() && min_group.is_none() && max_group.is_none() {
                let how = "give the settings to change: {\"names\": {\"size\": \"nines\"}}, \"min_group\" or \
                    \"max_group\"";
                return Err(how.into());
            }
            let names = names.into_iter().collect();
            AdminRequest::SetPolicies(PolicyChange { names, members_min: min_group, members_max: max_group })
        }
        "switch" => {
            only(&["id", "on"])?;
            match (switch, on) {
                (Some(id), None) => AdminRequest::Switch { id },
                (None, Some(on)) => AdminRequest::UseSwitch { on },
                _ => {
                    let how = "give a switch id: {\"id\": N}, above all ids used so far; or turn the switch on or off: \
                        {\"on\": false}";
                    return Err(how.into());
                }
            }
        }
        _ => return Ok(None),
    }))
}

fn peers(ids: Vec<String>) -> Result<Vec<PeerKey>, String> {
    let known = |id: &String| id.parse().ok().and_then(|id| peer_key_of(&id)).ok_or(format!("{id} is not a peer id"));
    ids.iter().map(known).collect()
}

/// Parses 32 hex digits.
fn hex(text: &str) -> Option<u128> {
    let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u128::from_str_radix(text, 16).ok().filter(|_| is_hex)
}

/// Returns a parameter of the query, undecoded.
pub(crate) fn parameter<'a>(query: Option<&'a str>, name: &str) -> Option<&'a str> {
    query?.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        bytes.push(match byte {
            b'%' => {
                // `from_str_radix` would also take a sign.
                let digits = rest.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
                rest = &rest[2..];
                u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?
            }
            b'+' => b' ',
            byte => *byte,
        });
    }
    Some(bytes)
}

/// Returns an answer with this code and JSON body.
pub fn answer(code: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(body) => (code, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(_) => problem(StatusCode::INTERNAL_SERVER_ERROR, "the answer cannot be written"),
    }
}

/// Returns the names of those members of a group that have one, by peer id.
fn names(group: &GroupRef) -> BTreeMap<String, PeerName> {
    let named = |contact: &Contact| Some((peer_id_of(&contact.node.peer).to_string(), contact.name.clone()?));
    group.members.iter().filter_map(named).collect()
}

impl Located {
    /// Converts the answer of a node into its JSON shape.
    pub fn of(located: &node::routing::Located) -> Located {
        let name = |peer: &PeerKey| peer_id_of(peer).to_string();
        Located {
            point: located.point.to_string(),
            group: located.group.id.to_string(),
            epoch: located.group.epoch.0,
            range: located.group.range.into(),
            members: located.group.nodes().map(|node| name(&node.peer)).collect(),
            names: names(&located.group),
            primary: name(&located.ballot.node.peer),
            quorum: Some(QuorumStatus::of(located.heard, located.group.epoch)),
            unheard: located.unheard.iter().map(|node| name(&node.peer)).collect(),
            policies_version: Some(located.policies),
            unserved_since_ms: None,
        }
    }
}

impl QuorumStatus {
    /// Converts the quorum of a group in this epoch into its JSON shape.
    pub fn of(heard: node::routing::Heard, epoch: Epoch) -> QuorumStatus {
        QuorumStatus {
            held: heard.is_quorum(),
            heard: heard.members.into(),
            needed: heard.needed.into(),
            members: heard.of.into(),
            former_epoch: (heard.epoch < epoch).then_some(heard.epoch.0),
        }
    }
}

impl Ring {
    /// Returns the ring as a walk found it. A ring of more groups than a walk meets is shown in part.
    pub fn of(walk: &node::RingWalk) -> Ring {
        let groups: Vec<Located> = walk.groups.iter().map(Located::of).collect();
        let whole = walk.whole && groups.len() < GROUPS_MAX;
        Ring { whole, groups, silent: walk.silent.iter().map(SilentRange::of).collect() }
    }
}

impl SilentRange {
    /// Converts a range without an answer into its JSON shape.
    pub fn of(silent: &node::Silent) -> SilentRange {
        let members = silent.group.iter().flat_map(|group| group.nodes());
        SilentRange {
            names: silent.group.as_ref().map(names).unwrap_or_default(),
            range: silent.range.into(),
            group: silent.group.as_ref().map(|group| group.id.to_string()),
            members: members.map(|node| peer_id_of(&node.peer).to_string()).collect(),
            since_ms: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_of_groups() {
        let at = "8".repeat(32);
        let of = |operation, body: &str| details(body.as_bytes()).and_then(|details| meant(operation, details));
        assert_eq!(of("merge", ""), Ok(Some(AdminRequest::Merge)));
        assert_eq!(of("split", "{}"), Ok(Some(AdminRequest::Split { at: None, first: Vec::new() })));
        let point = Point(u128::from_str_radix(&at, 16).unwrap());
        assert_eq!(
            of("repartition", &format!("{{\"at\":\"{at}\"}}")),
            Ok(Some(AdminRequest::Repartition { at: point }))
        );
        let lost = vec![GroupId(point.0)];
        assert_eq!(
            of("repair", &format!("{{\"lost\":[\"{at}\"]}}")),
            Ok(Some(AdminRequest::Repair { from: None, lost }))
        );
        assert_eq!(of("switch", "{\"id\":7}"), Ok(Some(AdminRequest::Switch { id: 7 })));
        assert_eq!(of("accept-loss", ""), Ok(Some(AdminRequest::AcceptLoss)));
        assert_eq!(of("switch", "{\"on\":false}"), Ok(Some(AdminRequest::UseSwitch { on: false })));
        assert_eq!(of("explode", ""), Ok(None));
        for (operation, body) in [
            ("repartition", ""),
            ("repartition", "{\"at\":\"88\"}"),
            ("repartition", "{\"at\":\"+8888888888888888888888888888888\"}"),
            ("merge", "{\"at\":\"88888888888888888888888888888888\"}"),
            ("migrate", "{}"),
            ("migrate", "{\"to\":[\"me\"]}"),
            ("repair", "{}"),
            ("repair", "{\"lost\":[\"88\"]}"),
            ("merge", "{\"lost\":[\"88888888888888888888888888888888\"]}"),
            ("switch", ""),
            ("switch", "{\"id\":-1}"),
            ("switch", "{\"id\":4294967296}"),
            ("switch", "{\"id\":7,\"on\":true}"),
            ("merge", "{\"on\":true}"),
            ("merge", "{\"id\":7}"),
            ("split", "[]"),
            ("split", "{\"where\":1}"),
        ] {
            assert!(of(operation, body).is_err(), "{operation} {body}");
        }
    }

    #[test]
    fn keys_are_bytes() {
        assert_eq!(percent_decoded("a%00%ff+b"), Some(vec![b'a', 0, 0xff, b' ', b'b']));
        for bad in ["%f", "%zz", "%+f", "%-0", "% f", "%é"] {
            assert_eq!(percent_decoded(bad), None, "{bad}");
        }
    }
}
