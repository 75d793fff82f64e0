//! Status of one group, as one of its members knows it: a part of `GET /v1/status` and `GET /v1/groups`.

use std::collections::BTreeMap;

use overlay::{KeyRange, PeerName};
use serde::{Deserialize, Serialize};

use super::ring::{RangeStatus, arc};

/// Body of `GET /v1/groups`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Groups {
    /// All groups that the peer has a part in, in no order.
    pub groups: Vec<GroupStatus>,
    /// Id of the reporting peer.
    #[serde(default)]
    pub peer_id: String,
}

/// Status of one group, as one of its members knows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Lane of the group, where the peer has several lanes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<u8>,
    /// Id of the group: 32 hex digits.
    pub id: String,
    /// Epoch of the group; each reconfiguration raises it.
    pub epoch: u64,
    /// Highest log slot of the primaries' terms; each new division raises it.
    pub term: u64,
    /// Range of the ring that the group owns.
    pub range: RangeStatus,
    /// Members of the group.
    pub members: Vec<MemberStatus>,
    /// Policies that the group has agreed on.
    #[serde(default)]
    pub policies: PoliciesStatus,
    /// Distribution of peers' lifetimes, as this peer has seen and was told.
    #[serde(default)]
    pub lifetimes: LifetimesStatus,
    /// Risk that the group loses its majority; `null` before enough deaths were seen, and where this peer is no member.
    #[serde(default)]
    pub risk: Option<RiskStatus>,
    /// Whether a quorum of this epoch's members holds everything, and this peer hears a quorum: any minority of them may be lost.
    #[serde(default)]
    pub established: bool,
    /// Number of parts of the range of which this peer holds everything: the whole range where it equals the number of `primaries`.
    #[serde(default)]
    pub complete: u64,
    /// Transfers to this peer from other members, because this peer is new or was away.
    #[serde(default)]
    pub transfers: Vec<TransferStatus>,
    /// Newcomers that wait to be admitted, where this peer leads.
    #[serde(default)]
    pub waiting_to_join: u64,
    /// Deleted keys whose tombstones this peer has removed since it started.
    #[serde(default)]
    pub purged: u64,
    /// Leader of the group; `null` where it was not heard within the failure detection interval, or where no majority is heard.
    pub leader: Option<String>,
    /// Whether this peer hears a majority of the members; `null` where it is not a member, and from earlier versions.
    #[serde(default)]
    pub quorum: Option<QuorumStatus>,
    /// Primary of each part of the range.
    pub primaries: Vec<PrimaryStatus>,
    /// Role of this peer in the group: `member`, `learner`, or `former` where it only holds data that the group still needs.
    #[serde(default)]
    pub part: String,
    /// Transactions with other groups that are open, or whose outcome some participant does not know.
    #[serde(default)]
    pub transactions: Vec<TransactionStatus>,
    /// Whether both neighbours know the group's present state; only the leader can tell.
    #[serde(default)]
    pub links_fresh: Option<bool>,
    /// Predecessor of the group on the ring, by id.
    pub predecessor: Option<String>,
    /// Range of the predecessor when this peer last heard of it.
    #[serde(default)]
    pub predecessor_range: Option<RangeStatus>,
    /// Quorum of the predecessor, as one of its members reported in the last seconds; `null` before the first query.
    #[serde(default)]
    pub predecessor_quorum: Option<QuorumStatus>,
    /// Successor of the group on the ring, by id.
    pub successor: Option<String>,
    /// Range of the successor when this peer last heard of it.
    #[serde(default)]
    pub successor_range: Option<RangeStatus>,
    /// Quorum of the successor, as in `predecessor_quorum`.
    #[serde(default)]
    pub successor_quorum: Option<QuorumStatus>,
    /// Ranges that were declared lost, in this group or in groups that it descends from.
    #[serde(default)]
    pub losses: Vec<LossStatus>,
    /// Approximate number of keys held.
    pub keys: u64,
    /// Approximate bytes of keys and values held.
    pub bytes: u64,
    /// Recent rate of client operations, per second.
    pub ops_per_s: f64,
    /// Operations per second that all primaries of the group execute, averaged over some seconds; only the leader can tell.
    #[serde(default)]
    pub load_ops_per_s: Option<f64>,
    /// Messages of members that were dropped since the start, by reason.
    #[serde(default)]
    pub dropped: BTreeMap<String, u64>,
    /// Reason for which this peer no longer serves the group: a member contradicted a chosen decision. Normally `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halted: Option<String>,
    /// Members whose stores have a damaged end, where there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_doubt: Option<InDoubtStatus>,
}

/// One member of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Id of the member.
    pub peer_id: String,
    /// Name of the member, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<PeerName>,
    /// Cluster of the member, for diversity.
    pub cluster: String,
    /// Time at which the member joined the group, in seconds of Unix time.
    pub joined_unix_s: u64,
    /// Time in the group so far, in seconds.
    pub lifetime_s: u64,
    /// Role of the member: `leader`, `member`, `learner`, or `suspect` where it has not been heard of lately.
    pub role: String,
    /// Addresses at which peers reach the member, by TCP and by QUIC, best first.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Operations per second that the member can execute, by this peer's estimate, which it would divide the range by as the leader; `null`
    /// unless most members have measured theirs.
    #[serde(default)]
    pub capacity_ops_per_s: Option<u32>,
    /// Capacity in percent of the median member's, in steps of 25: 100 for a typical member.
    #[serde(default)]
    pub capacity_percent: Option<u32>,
    /// Earlier sessions that the member tells of; `null` where it has no history.
    #[serde(default)]
    pub sessions: Option<SessionsStatus>,
}

impl MemberStatus {
    /// Formats the failed sessions for the end of a line: sessions that ended without warning. Empty where none did, or where the member
    /// has no history.
    pub fn sessions_words(&self) -> String {
        match self.sessions {
            Some(SessionsStatus { failures, lived_s }) if failures > 0 => {
                let times = if failures == 1 { "once" } else { &format!("{failures} times") };
                format!(", failed {times} in {lived_s} s")
            }
            _ => String::new(),
        }
    }

    /// Formats the capacity for the end of a line; empty where it is unknown.
    pub fn capacity_words(&self) -> String {
        match (self.capacity_ops_per_s, self.capacity_percent) {
            (Some(ops), Some(percent)) => format!(", can do {ops} operations/s ({percent} % of a typical member)"),
            _ => String::new(),
        }
    }
}

/// Sessions that a peer remembers. Other peers count them against that peer, never for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionsStatus {
    /// Number of failed sessions: the process was killed, or could not go on.
    pub failures: u32,
    /// Total duration of all sessions in seconds, the present one included.
    pub lived_s: u64,
}

/// One primary and its part of the range.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrimaryStatus {
    /// First point of the part.
    pub start: String,
    /// First point behind the part.
    pub end: String,
    /// Id of the primary.
    pub peer_id: String,
}

impl PrimaryStatus {
    /// Returns the arc; `None` where the text describes none.
    pub fn arc(&self) -> Option<KeyRange> {
        arc(&self.start, &self.end)
    }
}

/// Transfer of one part of the range to this peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferStatus {
    /// First point of the part.
    pub start: String,
    /// First point behind the part.
    pub end: String,
    /// Source of the records: a member.
    pub from: String,
    /// Kind of the transfer: `recent writes`, or `all records` where recent writes do not reach back far enough.
    pub what: String,
    /// Number of records copied.
    pub records: u64,
    /// Bytes copied.
    pub bytes: u64,
    /// Number of pieces of the part that are left.
    pub pieces: u64,
    /// Progress of the current piece, in percent.
    pub done_percent: u64,
}

/// Transaction between groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransactionStatus {
    /// Kind of the transaction: `split`, `merge`, `repartition` or `migrate`.
    pub operation: String,
    /// Coordinator of the transaction: a group's id.
    pub coordinator: String,
    /// Slot of the coordinator's log in which the transaction began.
    pub slot: u64,
    /// Participants beside the coordinator: ids of groups.
    pub participants: Vec<String>,
    /// Step of the transaction: `waits for votes`, `waits for the outcome`, `is committed`.
    pub step: String,
    /// Boundaries that the transaction locks in this group: nothing else changes there until its outcome is decided.
    pub locks: Vec<String>,
}

/// Whether one member of a group hears enough members for the group to decide anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuorumStatus {
    /// Whether `heard` is at least `needed`; otherwise no client operation on the group's range is answered.
    pub held: bool,
    /// Members heard within the failure detection interval, the reporting one included; 0 where none of them answers.
    pub heard: u64,
    /// Members that are needed: a majority, or half of a former membership.
    pub needed: u64,
    /// Total number of members.
    pub members: u64,
    /// Epoch of the former membership that is counted here, where that one lacks more members or is closer to lacking some. Its members may
    /// store writes that the group's members have not copied yet. Until half of it has told the group's members, no operation is answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former_epoch: Option<u64>,
}

impl QuorumStatus {
    /// Formats the quorum for display: `1 of 3 members heard`, with the epoch of an earlier membership, or that no member answers.
    pub fn words(&self) -> String {
        match self.heard {
            0 => "no member of it answers".into(),
            heard => match self.former_epoch {
                None => format!("{heard} of {} members heard", self.members),
                Some(epoch) => {
                    format!(
                        "{heard} of {} members of epoch {epoch} heard, which may store writes that no member has",
                        self.members
                    )
                }
            },
        }
    }
}

/// Policies on which all groups of a network agree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoliciesStatus {
    /// Number of changes since the network was founded. Groups with other policies take over the highest version.
    pub version: u64,
    /// Lower limit of members: a group of fewer members is too small.
    pub min_group: u32,
    /// Upper limit of members: a group of more members is too large.
    pub max_group: u32,
    /// Name of the policy for each decision.
    pub names: BTreeMap<String, String>,
}

impl PoliciesStatus {
    /// Returns the policies as the command line takes them: `divide=load,join=random`.
    pub fn flag(&self) -> String {
        self.names.iter().map(|(decision, name)| format!("{decision}={name}")).collect::<Vec<_>>().join(",")
    }
}

impl From<&group::control::agreed::AgreedPolicies> for PoliciesStatus {
    fn from(agreed: &group::control::agreed::AgreedPolicies) -> PoliciesStatus {
        PoliciesStatus {
            version: agreed.version,
            min_group: agreed.members_min,
            max_group: agreed.members_max,
            names: agreed.names.iter().cloned().collect(),
        }
    }
}

/// Distribution of peers' lifetimes: a model that is fitted to the deaths seen in this group and told by members of other groups.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LifetimesStatus {
    /// Name of the model: `exponential`, `pareto`, or `unknown` before enough deaths were seen.
    pub model: String,
    /// Mean lifetime in seconds, where the model is `exponential`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_s: Option<f64>,
    /// Exponent of the tail, where the model is `pareto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<f64>,
    /// Shortest lifetime in seconds, where the model is `pareto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_s: Option<f64>,
    /// Number of deaths behind the model; older ones count for less.
    pub deaths: f64,
}

impl LifetimesStatus {
    /// Formats the model for display, with its number of deaths.
    pub fn words(&self) -> String {
        let deaths = self.deaths.round();
        match (self.mean_s, self.shape, self.min_s) {
            (Some(mean), _, _) => format!("exponential, mean {mean:.0} s ({deaths} deaths seen)"),
            (_, Some(shape), Some(min)) => format!("Pareto, shape {shape:.2}, from {min:.1} s ({deaths} deaths seen)"),
            _ => format!("not known yet ({deaths} deaths seen)"),
        }
    }
}

/// Risk that a group loses its majority before it can replace dead members.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RiskStatus {
    /// Seconds from a death until the group is as safe as before: detection, removal, and the copy of all its data.
    pub window_s: f64,
    /// Probability, from 0 to 1, that the group loses its majority within the window.
    pub in_window: f64,
    /// Probability of the same within an hour, if the group stays as it is.
    pub in_hour: f64,
    /// Number of nines that remain: 3 for a probability of 0.001 an hour. From 0 to 16.
    pub nines: f64,
    /// Whether the group has fewer nines than it should have.
    pub is_low: bool,
}

impl RiskStatus {
    /// Formats the risk for display: the nines and their meaning.
    pub fn words(&self) -> String {
        let low = if self.is_low { "LOW: " } else { "" };
        let RiskStatus { window_s, in_window, in_hour, nines, .. } = self;
        format!(
            "{low}{nines:.1} nines: loses its majority with probability {in_hour:.1e} an hour, {in_window:.1e} in {window_s:.1} s"
        )
    }
}

/// Members that may have forgotten their last acknowledgement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InDoubtStatus {
    /// Peer ids of these members.
    pub members: Vec<String>,
    /// Peers without which the group cannot go on because of the doubt; empty where the other members suffice.
    pub waiting_for: Vec<String>,
}

/// Range that an administrator declared lost (`scatter group repair`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossStatus {
    /// Range of the ring that was lost.
    pub range: RangeStatus,
    /// Groups that had owned the range, by id.
    pub groups: Vec<String>,
    /// Time of the declaration, in seconds of Unix time.
    pub declared_unix_s: u64,
}
