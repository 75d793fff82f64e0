//! Status of the ring, as the owners of its ranges report it: `GET /v1/ring`; and the owner of a key.

use std::collections::BTreeMap;

use overlay::{KeyRange, PeerName, Point};
use serde::{Deserialize, Serialize};

use super::group::QuorumStatus;

/// The ring, as the owners of its ranges report it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ring {
    /// Whether the owners cover the whole ring: each group begins where the one before it ends.
    pub whole: bool,
    /// Groups of the ring, in ring order.
    pub groups: Vec<Located>,
    /// Ranges whose owners did not answer, in ring order.
    #[serde(default)]
    pub silent: Vec<SilentRange>,
}

impl Ring {
    /// Returns the groups that hear no majority of their members, by their own members' reports.
    pub fn without_majority(&self) -> impl Iterator<Item = (&Located, &QuorumStatus)> {
        self.groups.iter().filter_map(|located| {
            let quorum = located.quorum.as_ref().filter(|quorum| !quorum.held)?;
            Some((located, quorum))
        })
    }

    /// Returns whether the whole ring is covered and each group hears a majority of its members.
    pub fn is_well(&self) -> bool {
        self.whole && self.without_majority().next().is_none()
    }
}

/// Owner of a point.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Located {
    /// The point: 32 hex digits.
    pub point: String,
    /// Group that owns the point.
    pub group: String,
    /// Epoch of this information.
    pub epoch: u64,
    /// Range of that group.
    pub range: RangeStatus,
    /// Members of that group.
    pub members: Vec<String>,
    /// Names of the members that have one, by peer id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<String, PeerName>,
    /// Primary of the point.
    pub primary: String,
    /// Whether the member that answered hears a majority; `null` from earlier versions.
    #[serde(default)]
    pub quorum: Option<QuorumStatus>,
    /// Members that the answering member did not hear within the failure detection interval.
    #[serde(default)]
    pub unheard: Vec<String>,
    /// Version of the network's policies that the group has; `null` from earlier versions.
    #[serde(default)]
    pub policies_version: Option<u64>,
    /// Time at which the reporting peer first found the group without a majority, in milliseconds of Unix time; `null` if the group has
    /// one, or if that was just now.
    #[serde(default)]
    pub unserved_since_ms: Option<u64>,
}

/// Range of the ring for which no member of the owning group answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SilentRange {
    /// The range itself.
    pub range: RangeStatus,
    /// Group that last owned the range, by id; `null` where that is unknown.
    pub group: Option<String>,
    /// Members of that group at that time.
    pub members: Vec<String>,
    /// Names of the members that have one, by peer id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<String, PeerName>,
    /// Time at which the reporting peer first found the range without an answer, in milliseconds of Unix time; `null` if just now.
    #[serde(default)]
    pub since_ms: Option<u64>,
}

/// Owner of a key, as far as this peer knows (`SCATTER.WHERE`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// Point of the key on the ring: 32 hex digits.
    pub point: String,
    /// Group that owns the key.
    pub group: Option<String>,
    /// Epoch of this information.
    pub epoch: Option<u64>,
    /// Primary of the key.
    pub primary: Option<String>,
    /// All members of the group.
    pub members: Vec<String>,
}

/// Arc of the ring. `start == end` is the whole ring.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeStatus {
    /// First point of the arc: 32 hex digits.
    pub start: String,
    /// First point behind the arc.
    pub end: String,
}

impl RangeStatus {
    /// Returns the arc; `None` where the text describes none.
    pub fn arc(&self) -> Option<KeyRange> {
        arc(&self.start, &self.end)
    }

    /// Returns the share of the ring, from 0 to 1; 0 where the text describes no arc.
    pub fn share(&self) -> f64 {
        self.arc().map_or(0.0, part_of_ring)
    }
}

impl From<KeyRange> for RangeStatus {
    fn from(range: KeyRange) -> RangeStatus {
        RangeStatus { start: range.start().to_string(), end: range.end().to_string() }
    }
}

/// Returns the share of the ring that an arc covers, from 0 to 1.
pub fn part_of_ring(arc: KeyRange) -> f64 {
    arc.length().map_or(1.0, |length| length as f64 / 2f64.powi(128))
}

/// Returns the arc between two points in hex digits; `None` where a text is no point.
pub(super) fn arc(start: &str, end: &str) -> Option<KeyRange> {
    let is_hex = |text: &&str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let point = |text: &str| u128::from_str_radix(Some(text).filter(is_hex)?, 16).ok().map(Point);
    Some(KeyRange::new(point(start)?, point(end)?))
}
