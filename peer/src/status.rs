//! Status of a peer: the shape of `GET /v1/status`.
//!
//! Names and nesting are a contract with scripts: fields may be added, none may be removed.

use std::collections::BTreeMap;

use overlay::{Key, KeyRange, PeerName, Point};
use serde::{Deserialize, Serialize};

use crate::offload::Offload;

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

/// Peer whose processes contradict each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentityStatus {
    /// Id of the peer; perhaps this one.
    pub peer_id: String,
    /// Description of the contradiction and its consequence.
    pub what: String,
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

/// Body of `GET /v1/groups`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Groups {
    /// All groups that the peer has a part in, in no order.
    pub groups: Vec<GroupStatus>,
    /// Id of the reporting peer.
    #[serde(default)]
    pub peer_id: String,
}

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

impl From<KeyRange> for RangeStatus {
    fn from(range: KeyRange) -> RangeStatus {
        RangeStatus { start: range.start().to_string(), end: range.end().to_string() }
    }
}

/// Arc of the ring. `start == end` is the whole ring.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeStatus {
    /// First point of the arc: 32 hex digits.
    pub start: String,
    /// First point behind the arc.
    pub end: String,
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

/// Sessions that a peer remembers. Other peers count them against that peer, never for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionsStatus {
    /// Number of failed sessions: the process was killed, or could not go on.
    pub failures: u32,
    /// Total duration of all sessions in seconds, the present one included.
    pub lived_s: u64,
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

/// Traffic with one other peer: `GET /v1/peers`. Counts are since this peer started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PeerTraffic {
    /// Id of the other peer.
    pub peer_id: String,
    /// Name of the other peer, where it has one and is a member of a group that this peer knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<PeerName>,
    /// Whether the peers are connected.
    pub up: bool,
    /// Transport that frames are sent over while connected: `tcp` or `quic`.
    pub via: Option<String>,
    /// Round trip of the last ping, in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Frames sent to the other peer.
    pub sent_frames: u64,
    /// Bytes of the frames sent.
    pub sent_bytes: u64,
    /// Frames received from the other peer.
    pub received_frames: u64,
    /// Bytes of the frames received.
    pub received_bytes: u64,
    /// Bytes that wait to be sent.
    pub queued_bytes: u64,
    /// Frames for the other peer that were dropped, because they waited too long or there was no room.
    pub dropped_frames: u64,
}

/// Body of `GET /v1/peers`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Peers {
    /// Id of the reporting peer.
    pub peer_id: String,
    /// Traffic with other peers, in no order.
    pub peers: Vec<PeerTraffic>,
}

/// Use of one limited resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Amount in use, as far as it is known.
    pub used: Option<u64>,
    /// Limit; `None` is no limit.
    pub given: Option<u64>,
}

/// Limits of a peer and its use of them: `GET /v1/budgets`. In the units of the flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budgets {
    /// Bytes of the store, of `--max-disk`.
    pub disk: Budget,
    /// Bytes of the process that are in memory, of `--max-memory`.
    pub memory: Budget,
    /// Bytes of frames per second, sent and received together, in the last seconds; of `--max-bandwidth`.
    pub bandwidth: Budget,
    /// Connections with peers, of `--max-connections`.
    pub connections: Budget,
}

/// Event of a peer: one of `GET /v1/events`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Id of the event. An event that recurs and is told anew keeps its id, and replaces its former entry.
    pub id: u64,
    /// Number of the entry; each event raises it, also one that is told anew.
    pub seq: u64,
    /// Time of the last occurrence, in milliseconds of Unix time.
    pub unix_ms: u64,
    /// Time of the first occurrence, in milliseconds of Unix time.
    pub since_unix_ms: u64,
    /// Number of occurrences.
    pub count: u64,
    /// Kind of the event: `joined`, `learning`, `left`, `excluded`, `suspected`, `heard_again`, `led`, `split`, `merged`, `repartitioned`,
    /// `migrated`, `repaired`, `moved`, `quorum_lost`, `quorum_back`, `ready`, `not_ready`, `leaving`; later versions may add kinds.
    pub kind: String,
    /// Group that the event happened to, by id.
    pub group: Option<String>,
    /// Peer that the event happened to, or that caused it.
    pub peer: Option<String>,
    /// Text of the event for display.
    pub text: String,
}

/// Body of `GET /v1/events?after=SEQ`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    /// Id of the reporting peer.
    pub peer_id: String,
    /// Last `seq` that was given: the `after` of the next request. It is lower than the requested one where the peer was restarted and has
    /// not reached that number again; `uptime_s` of `/v1/status` shows a restart, too.
    pub last: u64,
    /// Events behind the requested number that are kept, in the order of `seq`.
    pub events: Vec<Told>,
}

/// One second of `GET /v1/load`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadSample {
    /// End of the second, in seconds of Unix time.
    pub unix_s: u64,
    /// Client operations that were answered here, per second.
    pub ops_per_s: f64,
    /// Median latency in milliseconds; `None` where there were no operations.
    pub p50_ms: Option<f64>,
    /// 99th percentile of the latency in milliseconds.
    pub p99_ms: Option<f64>,
    /// Bytes of frames sent to other peers, per second.
    pub sent_bytes_per_s: f64,
    /// Bytes of frames received from other peers, per second.
    pub received_bytes_per_s: f64,
}

/// Body of `GET /v1/load?after=UNIX_S`: the last five minutes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Id of the reporting peer.
    pub peer_id: String,
    /// Last `unix_s` that is kept. It is lower than the requested one where the clock was set back: then ask for all samples.
    #[serde(default)]
    pub last: Option<u64>,
    /// Samples, oldest first, no two with the same `unix_s`.
    pub samples: Vec<LoadSample>,
}

/// Returns the short form of a peer's id for display: its end, because all ids begin alike.
pub fn short_peer(peer_id: &str) -> &str {
    peer_id.char_indices().rev().nth(5).map_or(peer_id, |(at, _)| &peer_id[at..])
}

/// Returns the short form of a group's id for display: its beginning.
pub fn short_group(id: &str) -> &str {
    id.char_indices().nth(8).map_or(id, |(at, _)| &id[..at])
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

impl PrimaryStatus {
    /// Returns the arc; `None` where the text describes none.
    pub fn arc(&self) -> Option<KeyRange> {
        arc(&self.start, &self.end)
    }
}

/// Returns the share of the ring that an arc covers, from 0 to 1.
pub fn part_of_ring(arc: KeyRange) -> f64 {
    arc.length().map_or(1.0, |length| length as f64 / 2f64.powi(128))
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

fn arc(start: &str, end: &str) -> Option<KeyRange> {
    let is_hex = |text: &&str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let point = |text: &str| u128::from_str_radix(Some(text).filter(is_hex)?, 16).ok().map(Point);
    Some(KeyRange::new(point(start)?, point(end)?))
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
