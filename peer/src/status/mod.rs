//! Status of a peer: the shapes of the answers of its HTTP endpoint.
//!
//! Names and nesting are a contract with scripts: fields may be added, none may be removed.
//!
//! - Here: `GET /v1/status` ([`Status`]), readiness, and the source of all answers ([`StatusSource`]).
//! - `group`: one group, as one of its members knows it.
//! - `ring`: the ring, as the owners of its ranges report it, and the owner of a key.
//! - `activity`: traffic with other peers, use of limits, load and events.

mod activity;
mod group;
mod ring;

use overlay::{Key, PeerName, Point};
use serde::{Deserialize, Serialize};

use crate::offload::Offload;

pub use activity::{Budget, Budgets, Events, Load, LoadSample, PeerTraffic, Peers, Told};
pub use group::{
    GroupStatus, Groups, InDoubtStatus, LifetimesStatus, LossStatus, MemberStatus, PoliciesStatus, PrimaryStatus,
    QuorumStatus, RiskStatus, SessionsStatus, TransactionStatus, TransferStatus,
};
pub use ring::{Located, Location, RangeStatus, Ring, SilentRange, part_of_ring};

/// Status of a peer and its groups.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Id of this peer, as in `/p2p/…`.
    pub peer_id: String,
    /// Name of this peer (`--name`), where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<PeerName>,
    /// Name of the network.
    pub network: String,
    /// Version of the software.
    pub version: String,
    /// Commit that the software is built from: 12 hex digits, or `unknown`.
    #[serde(default)]
    pub commit: String,
    /// Time since the process started, in seconds.
    pub uptime_s: u64,
    /// Basis of an acknowledgement: `sync` (disks of a quorum) or `memory`.
    pub durability: String,
    /// Groups that this peer is a member of.
    pub groups: Vec<GroupStatus>,
    /// Progress of a permanent leave, where the peer is leaving.
    #[serde(default)]
    pub leaving: Option<LeavingStatus>,
    /// Number of starts of this life of the peer, this process included.
    #[serde(default)]
    pub start: u64,
    /// Peers whose processes contradict each other: an identity that runs twice, or a directory that is an older copy.
    #[serde(default)]
    pub identity: Vec<IdentityStatus>,
}

impl Status {
    /// Returns the owner of a point, as far as the groups of this status show.
    pub fn locate(&self, point: Point) -> Location {
        let mut location = Location { point: point.to_string(), ..Location::default() };
        let Some(group) = self.groups.iter().find(|group| group.range.arc().is_some_and(|arc| arc.contains(point)))
        else {
            return location;
        };
        location.group = Some(group.id.clone());
        location.epoch = Some(group.epoch);
        location.primary = group
            .primaries
            .iter()
            .find(|primary| primary.arc().is_some_and(|arc| arc.contains(point)))
            .map(|primary| primary.peer_id.clone());
        location.members = group.members.iter().map(|member| member.peer_id.clone()).collect();
        location
    }
}

/// Peer whose processes contradict each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentityStatus {
    /// Id of the peer; perhaps this one.
    pub peer_id: String,
    /// Description of the contradiction and its consequence.
    pub what: String,
}

/// Progress of a peer that is leaving.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeavingStatus {
    /// Condition that the peer waits for: `waiting for others to join` (too few would remain), `handing over primaries`, `waiting for the
    /// next epoch` (in which it is no member), `waiting until a majority holds everything`; or `left`.
    pub step: String,
    /// Whether the peer leaves even where fewer than three members remain.
    pub force: bool,
    /// Number of other members.
    pub remain: u64,
    /// Number of sub-ranges that the peer is primary of.
    pub primaries: u64,
}

impl LeavingStatus {
    /// Last step of a leave.
    pub const LEFT: &str = "left";

    /// Returns whether no step is left: the process ends.
    pub fn is_over(&self) -> bool {
        self.step == LeavingStatus::LEFT
    }
}

/// Whether a client operation sent now will be answered, and the checks behind that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    /// Whether all checks hold.
    pub ready: bool,
    /// The checks.
    pub checks: Vec<Check>,
    /// Reason for which this peer will never be ready as it was started; `None` where it may be.
    #[serde(default)]
    pub hopeless: Option<String>,
}

/// One condition of readiness.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Name of the condition.
    pub name: String,
    /// Whether the condition holds.
    pub ok: bool,
    /// Details for operators.
    pub detail: String,
}

/// Source of status. Each request from outside calls it, so implementations answer from memory and do not block.
pub trait StatusSource: Send + Sync + 'static {
    /// Returns the whole status.
    fn status(&self) -> Status;

    /// Returns [`Status::peer_id`] without the rest of the status.
    fn peer_id(&self) -> String {
        self.status().peer_id
    }

    /// Returns all groups that the peer has a part in, also groups that only need data that the peer holds.
    fn groups(&self) -> Vec<GroupStatus> {
        self.status().groups
    }

    /// Returns whether a client operation sent now will be answered.
    fn readiness(&self) -> Readiness;

    /// Returns the other peers that this peer knows or is connected with.
    fn peers(&self) -> Vec<PeerTraffic> {
        Vec::new()
    }

    /// Returns the use of the peer's limits. `used` of the bandwidth is left open, because a single status cannot show a rate.
    fn budgets(&self) -> Budgets {
        Budgets::default()
    }

    /// Returns the status that a switch's controller needs.
    fn offload(&self) -> Offload {
        Offload { peer_id: self.peer_id(), ..Offload::default() }
    }

    /// Returns the owner of a key; by default from the groups of [`StatusSource::status`].
    fn locate(&self, key: &Key) -> Location {
        self.status().locate(key.point())
    }
}

/// Returns the short form of a peer's id for display: its end, because all ids begin alike.
pub fn short_peer(peer_id: &str) -> &str {
    peer_id.char_indices().rev().nth(5).map_or(peer_id, |(at, _)| &peer_id[at..])
}

/// Returns the short form of a group's id for display: its beginning.
pub fn short_group(id: &str) -> &str {
    id.char_indices().nth(8).map_or(id, |(at, _)| &id[..at])
}

#[cfg(test)]
mod tests {
    use net::Identity;

    use super::*;

    #[test]
    fn a_peer_has_the_same_short_name_everywhere() {
        for _ in 0..20 {
            let identity = Identity::random();
            assert_eq!(short_peer(&identity.peer_id().to_string()), identity.peer().to_string());
        }
    }
}
