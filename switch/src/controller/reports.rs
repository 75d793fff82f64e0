//! Report of a peer about its groups: `GET /v1/offload`.
//!
//! All known fields are validated strictly, and unknown fields are ignored: a newer peer may report more.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;

use serde::Deserialize;

/// Upper limit of groups in a report. A report of more than a mebibyte, with all fields of its groups, does not count at all.
const GROUPS_MAX: usize = 1024;
/// Upper limit of members of a group: as many as may share a partition's reads.
const MEMBERS_MAX: usize = 100;
/// Upper limit of a group's primaries of sub-ranges: as many as a switch has room for partitions.
const PARTS_MAX: usize = 256;
/// Upper limit of a peer's lanes.
const LANES_MAX: usize = 256;
/// Upper limit of a peer's name, in characters.
const PEER_CHARS_MAX: usize = 128;

/// Peer, by its name among peers.
pub type Peer = String;

/// Group, by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group(pub u128);

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Report of one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerReport {
    /// Name of the peer.
    pub peer: Peer,
    /// Addresses at which the peer takes packets, by lanes.
    pub endpoints: BTreeMap<u32, SocketAddr>,
    /// State of each group that the peer has a part in.
    pub groups: BTreeMap<Group, Known>,
}

/// State of a group, as a member knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Lane of the group.
    pub lane: u32,
    /// Epoch of the group's configuration.
    pub epoch: u64,
    /// Slot up to which the member has applied the group's log.
    pub slot: u64,
    /// Highest id that the group's log has named; 0 for none.
    pub id: u32,
    /// The id is to be used.
    pub on: bool,
    /// An administrator has turned the use of switches off: the group takes no id.
    pub barred: bool,
    /// The policy lets a switch spread the group's reads.
    pub fit: bool,
    /// Reason for which it does not, for operators.
    pub why: String,
    /// No change is going on, so members may answer reads.
    pub calm: bool,
    /// Members of the group.
    pub members: BTreeSet<Peer>,
    /// Sub-ranges, each of one primary in one term, by their partition numbers in the switch.
    pub parts: BTreeMap<u32, Part>,
}

/// Sub-range with its primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Term of the primary.
    pub term: u64,
    /// The primary.
    pub primary: Peer,
}

#[derive(Deserialize)]
struct RawReport {
    peer_id: String,
    #[serde(default)]
    endpoints: Vec<RawEndpoint>,
    groups: Vec<RawGroup>,
}

#[derive(Deserialize)]
struct RawEndpoint {
    lane: u32,
    packets: SocketAddr,
}

#[derive(Deserialize)]
struct RawGroup {
    id: String,
    #[serde(default)]
    lane: u32,
    epoch: u64,
    slot: u64,
    switch: Option<RawSwitch>,
    fit: bool,
    why: Option<String>,
    calm: bool,
    members: Vec<String>,
    parts: Vec<RawPart>,
}

#[derive(Deserialize)]
struct RawSwitch {
    id: u32,
    on: bool,
    #[serde(default)]
    barred: bool,
}

#[derive(Deserialize)]
struct RawPart {
    partition: u32,
    term: String,
    primary: String,
}

impl PeerReport {
    /// Decodes a report.
    ///
    /// # Errors
    /// The reason for which the report is invalid: then no part of it counts.
    pub fn read(json: &[u8]) -> Result<PeerReport, String> {
        let raw: RawReport = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        limit("groups", raw.groups.len(), GROUPS_MAX)?;
        limit("endpoints", raw.endpoints.len(), LANES_MAX)?;
        let mut endpoints = BTreeMap::new();
        for RawEndpoint { lane, packets } in raw.endpoints {
            if packets.port() == 0 || packets.ip().is_unspecified() {
                return Err(format!("{packets} is not a usable address for packets"));
            }
            if endpoints.insert(lane, packets).is_some() {
                return Err(format!("two endpoints on lane {lane}"));
            }
        }
        let mut groups = BTreeMap::new();
        for group in raw.groups {
            let (id, known) = known(group)?;
            if groups.insert(id, known).is_some() {
                return Err(format!("group {id} is listed twice"));
            }
        }
        Ok(PeerReport { peer: peer(raw.peer_id)?, endpoints, groups })
    }
}

fn known(raw: RawGroup) -> Result<(Group, Known), String> {
    let id = Group(hex(&raw.id, 32).ok_or("a group's id is 32 hex digits")?);
    limit("members", raw.members.len(), MEMBERS_MAX)?;
    limit("parts", raw.parts.len(), PARTS_MAX)?;
    let mut parts = BTreeMap::new();
    for RawPart { partition, term, primary } in raw.parts {
        let term = hex(&term, 16).ok_or("a term is 16 hex digits")? as u64;
        if parts.insert(partition, Part { term, primary: peer(primary)? }).is_some() {
            return Err(format!("partition {partition} is listed twice"));
        }
    }
    let RawSwitch { id: switch, on, barred } = raw.switch.unwrap_or(RawSwitch { id: 0, on: false, barred: false });
    if switch == u32::MAX || (on && (switch == 0 || barred)) {
        return Err(format!("{switch} is not a switch id"));
    }
    let known = Known {
        lane: raw.lane,
        epoch: raw.epoch,
        slot: raw.slot,
        id: switch,
        on,
        barred,
        fit: raw.fit,
        why: raw.why.unwrap_or_default().chars().take(200).collect(),
        calm: raw.calm,
        members: raw.members.into_iter().map(peer).collect::<Result<_, _>>()?,
        parts,
    };
    Ok((id, known))
}

fn limit(what: &str, count: usize, max: usize) -> Result<(), String> {
    if count > max { Err(format!("{count} {what}, above the limit of {max}")) } else { Ok(()) }
}

fn peer(name: String) -> Result<Peer, String> {
    let is_name = (1..=PEER_CHARS_MAX).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_name { Ok(name) } else { Err("a peer's id must consist of letters and digits".to_owned()) }
}

/// Parses a hexadecimal number of exactly `digits` digits.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_hex = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report in the agreed format, with newer fields.
    const REPORT: &str = r#"{"peer_id":"12D3KooA","newer":[1],
        "endpoints":[{"lane":0,"packets":"127.0.0.1:4711","switch":"127.0.0.1:9000"}],
        "groups":[{"id":"000102030405060708090a0b0c0d0e0f","lane":0,"epoch":3,"slot":17,"newer":{},
            "switch":{"id":5,"on":true},"fit":true,"why":null,"calm":true,"members":["12D3KooA","12D3KooB"],
            "parts":[{"partition":123456,"term":"00000000000000ff","primary":"12D3KooB"}]}]}"#;

    #[test]
    fn an_answer() {
        let report = PeerReport::read(REPORT.as_bytes()).unwrap();
        let group = &report.groups[&Group(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f)];
        assert_eq!(report.endpoints, [(0, "127.0.0.1:4711".parse().unwrap())].into());
        assert_eq!((group.lane, group.epoch, group.slot, group.id, group.on), (0, 3, 17, 5, true));
        assert_eq!(group.parts, [(123_456, Part { term: 255, primary: "12D3KooB".into() })].into());
        let barred = REPORT.replace(r#""on":true"#, r#""on":false,"barred":true"#);
        assert!(
            PeerReport::read(barred.as_bytes()).unwrap().groups.into_values().next().unwrap().barred && !group.barred
        );
        let none = REPORT.replace(r#"{"id":5,"on":true}"#, "null");
        let group = PeerReport::read(none.as_bytes()).unwrap().groups.into_values().next().unwrap();
        assert_eq!((group.id, group.on), (0, false));
    }

    #[test]
    fn nonsense() {
        let part = r#"{"partition":123456,"term":"00000000000000ff","primary":"12D3KooB"}"#;
        for (was, is) in [
            ("000102030405060708090a0b0c0d0e0f", "0102030405060708090a0b0c0d0e0f"),
            ("000102030405060708090a0b0c0d0e0f", "+00102030405060708090a0b0c0d0e0f"),
            ("00000000000000ff", "ff"),
            ("127.0.0.1:4711", "127.0.0.1:0"),
            ("127.0.0.1:4711", "0.0.0.0:4711"),
            ("12D3KooA\",\"newer", "\\u001b[31m\",\"newer"),
            (r#"{"id":5,"on":true}"#, r#"{"id":0,"on":true}"#),
            (r#"{"id":5,"on":true}"#, r#"{"id":4294967295,"on":true}"#),
            (r#"{"id":5,"on":true}"#, r#"{"id":-1,"on":true}"#),
            (r#"{"id":5,"on":true}"#, r#"{"id":5,"on":true,"barred":true}"#),
            (part, &format!("{part},{part}")),
            ("\"calm\":true,", ""),
            ("]}]}", "]}]"),
        ] {
            let wrong = REPORT.replace(was, is);
            assert!(wrong != REPORT && PeerReport::read(wrong.as_bytes()).is_err(), "{is}");
        }
        let group = REPORT.split_once("\"groups\":[").unwrap().1.strip_suffix("]}").unwrap();
        assert!(PeerReport::read(REPORT.replace(group, &format!("{group},{group}")).as_bytes()).is_err(), "twice");
        let members = format!("[{}]", vec!["\"x\""; MEMBERS_MAX + 1].join(","));
        assert!(PeerReport::read(REPORT.replace(r#"["12D3KooA","12D3KooB"]"#, &members).as_bytes()).is_err());
    }
}
