//! What a peer tells about itself: the shape of `GET /v1/status`.
//!
//! The names and the nesting are a contract with scripts; fields may be added, none may go.

use std::collections::BTreeMap;

use overlay::{Key, KeyRange, PeerName, Point};
use serde::{Deserialize, Serialize};

use crate::offload::Offload;

/// Everything a peer knows of itself and its groups.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// This peer, as in `/p2p/…`.
    pub peer_id: String,
    /// Its name (`--name`), where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<PeerName>,
    /// The network's name.
    pub network: String,
    /// Of the software.
    pub version: String,
    /// The commit that the software is built from: 12 hex digits, or `unknown`.
    #[serde(default)]
    pub commit: String,
    /// Since the process started.
    pub uptime_s: u64,
    /// What an acknowledgement rests on: `sync` or `memory`.
    pub durability: String,
    /// The groups that this peer is a member of.
    pub groups: Vec<GroupStatus>,
    /// What it waits for, where it is leaving for good.
    #[serde(default)]
    pub leaving: Option<LeavingStatus>,
    /// How often this life of the peer was started, this process included.
    #[serde(default)]
    pub start: u64,
    /// Peers whose processes contradict each other: an identity that runs twice, or a directory that is an older copy.
    #[serde(default)]
    pub identity: Vec<IdentityStatus>,
}

/// A peer whose processes contradict each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentityStatus {
    /// Which; perhaps this one.
    pub peer_id: String,
    /// What was seen, and what comes of it.
    pub what: String,
}

/// The policies on which all groups of a network agree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoliciesStatus {
    /// How often they were changed since the network was founded. Groups with other policies take over the highest version.
    pub version: u64,
    /// A group of fewer members is too small.
    pub min_group: u32,
    /// A group of more members is too large.
    pub max_group: u32,
    /// The name of the policy for each decision.
    pub names: BTreeMap<String, String>,
}

impl PoliciesStatus {
    /// Returns the policies as the command line takes them: `divide=load,join=random`.
    pub fn flag(&self) -> String {
        self.names.iter().map(|(decision, name)| format!("{decision}={name}")).collect::<Vec<_>>().join(",")
    }
}

impl From<&group::agreed::AgreedPolicies> for PoliciesStatus {
    fn from(agreed: &group::agreed::AgreedPolicies) -> PoliciesStatus {
        PoliciesStatus {
            version: agreed.version,
            min_group: agreed.members_min,
            max_group: agreed.members_max,
            names: agreed.names.iter().cloned().collect(),
        }
    }
}

/// How far a peer has come with leaving.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeavingStatus {
    /// What it waits for: `waiting for others to join` (too few would remain), `handing over primaries`,
    /// `waiting for the next epoch` (in which it is no member), `waiting until a majority holds everything`; or `left`.
    pub step: String,
    /// Also where fewer than three members remain.
    pub force: bool,
    /// Members beside it.
    pub remain: u64,
    /// Parts of the range that it is primary of.
    pub primaries: u64,
}

impl LeavingStatus {
    /// Its last step.
    pub const LEFT: &str = "left";

    /// Nothing is left to do: the process ends.
    pub fn is_over(&self) -> bool {
        self.step == LeavingStatus::LEFT
    }
}

/// One group, as one of its members knows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Which of the peer's lanes it is of, where it has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<u8>,
    /// 32 hex digits.
    pub id: String,
    /// Goes up with each reconfiguration.
    pub epoch: u64,
    /// Goes up with each change of the leader within an epoch.
    pub term: u64,
    /// Which part of the ring it owns.
    pub range: RangeStatus,
    /// Who belongs to it.
    pub members: Vec<MemberStatus>,
    /// The policies that the group has agreed on.
    #[serde(default)]
    pub policies: PoliciesStatus,
    /// How long peers live, as this peer has seen and was told.
    #[serde(default)]
    pub lifetimes: LifetimesStatus,
    /// The risk that the group loses its majority; `null` before enough deaths were seen, and where this peer is no member.
    #[serde(default)]
    pub risk: Option<RiskStatus>,
    /// A quorum of this epoch's members holds everything, and this peer hears a quorum: any minority of them may be lost.
    #[serde(default)]
    pub established: bool,
    /// Of so many parts of the range this peer holds everything; of all of them where that is the number of `primaries`.
    #[serde(default)]
    pub complete: u64,
    /// What this peer is copying from others, because it is new or was away.
    #[serde(default)]
    pub transfers: Vec<TransferStatus>,
    /// Newcomers that wait to be let in, where this peer leads.
    #[serde(default)]
    pub waiting_to_join: u64,
    /// Deleted keys that this peer has forgotten altogether since it started.
    #[serde(default)]
    pub purged: u64,
    /// The leader; `null` where it was not heard within the failure detection interval, or where no majority is heard.
    pub leader: Option<String>,
    /// Whether this peer hears a majority of the members; `null` where it is none of them, and from earlier versions.
    #[serde(default)]
    pub quorum: Option<QuorumStatus>,
    /// Who is primary for which part of the range.
    pub primaries: Vec<PrimaryStatus>,
    /// What this peer is to it: `member`, `learner`, or `former` where it only holds what others still need.
    #[serde(default)]
    pub part: String,
    /// Transactions with other groups that are open, or not known to all who take part.
    #[serde(default)]
    pub transactions: Vec<TransactionStatus>,
    /// Both neighbours know it as it is: only its leader can tell.
    #[serde(default)]
    pub links_fresh: Option<bool>,
    /// The group before it on the ring, by id.
    pub predecessor: Option<String>,
    /// What that owned when it was heard of last.
    #[serde(default)]
    pub predecessor_range: Option<RangeStatus>,
    /// Its quorum, as a member of it said in the last seconds; `null` before anybody was asked.
    #[serde(default)]
    pub predecessor_quorum: Option<QuorumStatus>,
    /// The group behind it on the ring, by id.
    pub successor: Option<String>,
    /// What that owned when it was heard of last.
    #[serde(default)]
    pub successor_range: Option<RangeStatus>,
    /// As `predecessor_quorum`.
    #[serde(default)]
    pub successor_quorum: Option<QuorumStatus>,
    /// What was declared lost, here or in groups that this one came of.
    #[serde(default)]
    pub losses: Vec<LossStatus>,
    /// Keys held, about.
    pub keys: u64,
    /// Bytes of keys and values held, about.
    pub bytes: u64,
    /// Client operations a second, lately.
    pub ops_per_s: f64,
    /// Operations a second that all of its primaries execute, on the average of some seconds: only its leader can tell.
    #[serde(default)]
    pub load_ops_per_s: Option<f64>,
    /// Messages of members that were dropped since the start, by reason.
    #[serde(default)]
    pub dropped: BTreeMap<String, u64>,
    /// Why this peer does not serve the group any more: a member contradicted what is chosen there. `None` as a rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halted: Option<String>,
    /// Members whose stores ended badly, where there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_doubt: Option<InDoubtStatus>,
}

/// Whether enough members of a group are heard for it to decide anything, as one of them sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuorumStatus {
    /// `heard` is at least `needed`: without, no client operation on the group's range is answered.
    pub held: bool,
    /// Members heard within the failure detection interval, the one that tells it included; 0 where none of them answers.
    pub heard: u64,
    /// Members that are needed: a majority, or half of a former membership.
    pub needed: u64,
    /// Members in all.
    pub members: u64,
    /// The epoch of a former membership, where that is the one counted here, for it lacks more, or is closer to lacking: its members
    /// may store writes that the group's members have not copied yet, and until half of them has told these nothing is answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former_epoch: Option<u64>,
}

impl QuorumStatus {
    /// For a person: `1 of 3 members heard`, of which membership if that is an earlier one, or that none answers.
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

/// How long peers live: a model that is fitted to the deaths seen in this group and told by members of other groups.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LifetimesStatus {
    /// `exponential`, `pareto`, or `unknown` before enough deaths were seen.
    pub model: String,
    /// The mean life in seconds, where the model is `exponential`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_s: Option<f64>,
    /// The exponent of the tail, where the model is `pareto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<f64>,
    /// The shortest life in seconds, where the model is `pareto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_s: Option<f64>,
    /// Deaths that the model rests on; older ones count for less.
    pub deaths: f64,
}

impl LifetimesStatus {
    /// For a person: the model, and the number of deaths that it rests on.
    pub fn words(&self) -> String {
        let deaths = self.deaths.round();
        match (self.mean_s, self.shape, self.min_s) {
            (Some(mean), _, _) => format!("exponential, mean {mean:.0} s ({deaths} deaths seen)"),
            (_, Some(shape), Some(min)) => format!("Pareto, shape {shape:.2}, from {min:.1} s ({deaths} deaths seen)"),
            _ => format!("not known yet ({deaths} deaths seen)"),
        }
    }
}

/// The risk that a group loses its majority before it can replace dead members.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RiskStatus {
    /// Seconds from a death until the group is as safe as before: detection, removal, and copying all that it holds.
    pub window_s: f64,
    /// The probability, from 0 to 1, that it loses its majority within the window.
    pub in_window: f64,
    /// The same within an hour, if the group stays as it is.
    pub in_hour: f64,
    /// How many nines that leaves: 3 for a probability of 0.001 an hour. From 0 to 16.
    pub nines: f64,
    /// Fewer nines than a group should have.
    pub is_low: bool,
}

impl RiskStatus {
    /// For a person: the nines, and what they mean.
    pub fn words(&self) -> String {
        let low = if self.is_low { "LOW: " } else { "" };
        let RiskStatus { window_s, in_window, in_hour, nines, .. } = self;
        format!(
            "{low}{nines:.1} nines: loses its majority with probability {in_hour:.1e} an hour, {in_window:.1e} in {window_s:.1} s"
        )
    }
}

/// Members that may have forgotten the last thing they acknowledged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InDoubtStatus {
    /// Their peer ids.
    pub members: Vec<String>,
    /// The peers without which the group cannot go on because of that; none where the others suffice.
    pub waiting_for: Vec<String>,
}

/// A range that somebody declared lost (`scatter group repair`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossStatus {
    /// Which part of the ring that was.
    pub range: RangeStatus,
    /// The groups that had owned it, by id.
    pub groups: Vec<String>,
    /// When it was declared.
    pub declared_unix_s: u64,
}

/// A transaction between groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransactionStatus {
    /// `split`, `merge`, `repartition` or `migrate`.
    pub operation: String,
    /// Who coordinates it: a group's id.
    pub coordinator: String,
    /// The slot of the coordinator's log in which it began.
    pub slot: u64,
    /// Who takes part beside the coordinator: ids of groups.
    pub participants: Vec<String>,
    /// `waits for votes`, `waits for the outcome`, `is committed`.
    pub step: String,
    /// Boundaries that it locks in this group: nothing else changes there until it is decided.
    pub locks: Vec<String>,
}

/// The body of `GET /v1/groups`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Groups {
    /// All groups that the peer has a part in, in no order.
    pub groups: Vec<GroupStatus>,
    /// The peer that tells it.
    #[serde(default)]
    pub peer_id: String,
}

/// The ring, as its owners say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ring {
    /// All of it is there: each group begins where the one before it ends.
    pub whole: bool,
    /// In ring order.
    pub groups: Vec<Located>,
    /// Ranges whose owners did not answer, in ring order.
    #[serde(default)]
    pub silent: Vec<SilentRange>,
}

/// A range of the ring of which no member of its group answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SilentRange {
    /// The range.
    pub range: RangeStatus,
    /// The group that owned it when it was last heard of, by id; `null` where that is not known.
    pub group: Option<String>,
    /// Its members then.
    pub members: Vec<String>,
    /// Names of those that have one, by peer id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<String, PeerName>,
    /// When the peer that tells it found the range without an answer for the first time, in milliseconds of Unix time; `null` if just now.
    #[serde(default)]
    pub since_ms: Option<u64>,
}

impl Ring {
    /// Groups that hear no majority of their members, as their own members say.
    pub fn without_majority(&self) -> impl Iterator<Item = (&Located, &QuorumStatus)> {
        self.groups.iter().filter_map(|located| {
            let quorum = located.quorum.as_ref().filter(|quorum| !quorum.held)?;
            Some((located, quorum))
        })
    }

    /// All of the ring is there, and each group hears a majority of its members.
    pub fn is_well(&self) -> bool {
        self.whole && self.without_majority().next().is_none()
    }
}

/// Who owns a place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Located {
    /// The place: 32 hex digits.
    pub point: String,
    /// The group that owns it.
    pub group: String,
    /// As of which epoch.
    pub epoch: u64,
    /// What that group owns.
    pub range: RangeStatus,
    /// Its members.
    pub members: Vec<String>,
    /// Names of those that have one, by peer id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<String, PeerName>,
    /// Who is primary of the place.
    pub primary: String,
    /// Whether the member that answered hears a majority; `null` from earlier versions.
    #[serde(default)]
    pub quorum: Option<QuorumStatus>,
    /// Members that it did not hear within the failure detection interval.
    #[serde(default)]
    pub unheard: Vec<String>,
    /// The version of the network's policies that the group has; `null` from earlier versions.
    #[serde(default)]
    pub policies_version: Option<u64>,
    /// When the peer that tells it found the group without a majority for the first time, in milliseconds of Unix time; `null` if it has one, or
    /// if that was just now.
    #[serde(default)]
    pub unserved_since_ms: Option<u64>,
}

impl From<KeyRange> for RangeStatus {
    fn from(range: KeyRange) -> RangeStatus {
        RangeStatus { start: range.start().to_string(), end: range.end().to_string() }
    }
}

/// An arc of the ring. `start == end` is the whole ring.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeStatus {
    /// The first point in it: 32 hex digits.
    pub start: String,
    /// The first point behind it.
    pub end: String,
}

/// One part of the range being copied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferStatus {
    /// The first point in the part.
    pub start: String,
    /// The first point behind it.
    pub end: String,
    /// From whom.
    pub from: String,
    /// `recent writes`, or `all records` where those do not reach back far enough.
    pub what: String,
    /// Records copied.
    pub records: u64,
    /// What they take, in bytes.
    pub bytes: u64,
    /// Pieces of the part that are left.
    pub pieces: u64,
    /// How far the current piece has come, in percent.
    pub done_percent: u64,
}

/// One member of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Who it is.
    pub peer_id: String,
    /// Its name, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<PeerName>,
    /// Where it stands, for diversity.
    pub cluster: String,
    /// When it joined the group.
    pub joined_unix_s: u64,
    /// How long it has been in the group.
    pub lifetime_s: u64,
    /// `leader`, `member`, `learner`, or `suspect` where it has not been heard of lately.
    pub role: String,
    /// Where others reach it, by TCP and by QUIC, best first.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Operations a second that it can execute, as this peer believes and would divide the range by as the leader; `null` unless most members
    /// have measured that.
    #[serde(default)]
    pub capacity_ops_per_s: Option<u32>,
    /// The same in percent of the median member's, in steps of 25: 100 for a typical member.
    #[serde(default)]
    pub capacity_percent: Option<u32>,
    /// What it tells of its earlier sessions; `null` where it has no history.
    #[serde(default)]
    pub sessions: Option<SessionsStatus>,
}

/// The sessions that a peer remembers. Others count them against it, never for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionsStatus {
    /// How many failed: its process was killed, or could not go on.
    pub failures: u32,
    /// How long all lasted, the present one included, in seconds.
    pub lived_s: u64,
}

impl MemberStatus {
    /// For a person, for the end of a line: that its earlier sessions ended without warning; empty where none did, or where it has no history.
    pub fn sessions_words(&self) -> String {
        match self.sessions {
            Some(SessionsStatus { failures, lived_s }) if failures > 0 => {
                let times = if failures == 1 { "once" } else { &format!("{failures} times") };
                format!(", failed {times} in {lived_s} s")
            }
            _ => String::new(),
        }
    }

    /// For a person, for the end of a line: what it can execute; empty where that is not known.
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
    /// The first point in its part.
    pub start: String,
    /// The first point behind it.
    pub end: String,
    /// Who it is.
    pub peer_id: String,
}

/// Whether a client operation sent now will be answered, and what that rests on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    /// All checks hold.
    pub ready: bool,
    /// Each of them.
    pub checks: Vec<Check>,
    /// Why this peer will never be ready as it was started; `None` where it may be.
    #[serde(default)]
    pub hopeless: Option<String>,
}

/// One thing that readiness rests on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What is looked at.
    pub name: String,
    /// Whether it holds.
    pub ok: bool,
    /// What a person may want to know of it.
    pub detail: String,
}

/// Where a key lives, as far as this peer knows (`SCATTER.WHERE`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// Its place on the ring: 32 hex digits.
    pub point: String,
    /// The group that owns it.
    pub group: Option<String>,
    /// As of which epoch.
    pub epoch: Option<u64>,
    /// Its primary.
    pub primary: Option<String>,
    /// All members of the group.
    pub members: Vec<String>,
}

/// One other peer: `GET /v1/peers`. Counts are since this peer started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PeerTraffic {
    /// Who it is.
    pub peer_id: String,
    /// Its name, where it has one and is a member of a group that the peer knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<PeerName>,
    /// Connected.
    pub up: bool,
    /// How it is written to, while it is connected: `tcp` or `quic`.
    pub via: Option<String>,
    /// Round trip of the last ping, in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Frames sent to it.
    pub sent_frames: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames received from it.
    pub received_frames: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Bytes that wait to be sent.
    pub queued_bytes: u64,
    /// Frames for it that were dropped, because they waited too long or there was no room.
    pub dropped_frames: u64,
}

/// The body of `GET /v1/peers`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Peers {
    /// The peer that tells it.
    pub peer_id: String,
    /// In no order.
    pub peers: Vec<PeerTraffic>,
}

/// What is used of something that is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// As far as it is known.
    pub used: Option<u64>,
    /// `None` is no limit.
    pub given: Option<u64>,
}

/// What a peer was given and what it uses of that: `GET /v1/budgets`. In the units of the flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budgets {
    /// Bytes of its store, of `--max-disk`.
    pub disk: Budget,
    /// Bytes of its process that are in memory, of `--max-memory`.
    pub memory: Budget,
    /// Bytes of frames a second, sent and received together, in the last seconds; of `--max-bandwidth`.
    pub bandwidth: Budget,
    /// Connections with peers, of `--max-connections`.
    pub connections: Budget,
}

/// Something that happened: one of `GET /v1/events`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Stays the same where the same happens again and this is told anew: then it replaces what was told before.
    pub id: u64,
    /// Goes up with each that is told, and with each that is told anew.
    pub seq: u64,
    /// When it happened, the last time.
    pub unix_ms: u64,
    /// When it happened first.
    pub since_unix_ms: u64,
    /// How often.
    pub count: u64,
    /// `joined`, `learning`, `left`, `excluded`, `suspected`, `heard_again`, `led`, `split`, `merged`, `repartitioned`,
    /// `migrated`, `repaired`, `moved`, `quorum_lost`, `quorum_back`, `ready`, `not_ready`, `leaving`; there may come to be others.
    pub kind: String,
    /// The group that it happened to, by id.
    pub group: Option<String>,
    /// The peer that it happened to, or that did it.
    pub peer: Option<String>,
    /// The same for a person.
    pub text: String,
}

/// The body of `GET /v1/events?after=SEQ`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    /// The peer that tells it.
    pub peer_id: String,
    /// The last `seq` that was given: what to ask for next. Lower than the one asked for where the peer was started anew and has
    /// not come as far again; whether it was, `uptime_s` of `/v1/status` tells as well.
    pub last: u64,
    /// Those behind the one asked for that are kept, in the order of `seq`.
    pub events: Vec<Told>,
}

/// One second of `GET /v1/load`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadSample {
    /// When it ended.
    pub unix_s: u64,
    /// Client operations that were answered here, a second.
    pub ops_per_s: f64,
    /// Half of them were answered within so many milliseconds; `None` where there were none.
    pub p50_ms: Option<f64>,
    /// 99 of 100 of them.
    pub p99_ms: Option<f64>,
    /// Bytes of frames sent to other peers, a second.
    pub sent_bytes_per_s: f64,
    /// And received from them.
    pub received_bytes_per_s: f64,
}

/// The body of `GET /v1/load?after=UNIX_S`: of the last five minutes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// The peer that tells it.
    pub peer_id: String,
    /// The last `unix_s` that there is. Lower than the one asked for where the clock was set back: then ask for all.
    #[serde(default)]
    pub last: Option<u64>,
    /// Oldest first, no two of the same `unix_s`.
    pub samples: Vec<LoadSample>,
}

/// What a person may tell peers apart by: the end of a name, for all begin alike.
pub fn short_peer(peer_id: &str) -> &str {
    peer_id.char_indices().rev().nth(5).map_or(peer_id, |(at, _)| &peer_id[at..])
}

/// What a person may tell groups apart by: the beginning of an id.
pub fn short_group(id: &str) -> &str {
    id.char_indices().nth(8).map_or(id, |(at, _)| &id[..at])
}

/// Where status comes from. Called for each question from outside, so answer from what lies ready; do not block.
pub trait StatusSource: Send + Sync + 'static {
    /// Everything.
    fn status(&self) -> Status;

    /// Who tells it: [`Status::peer_id`], and nothing else is asked for.
    fn peer_id(&self) -> String {
        self.status().peer_id
    }

    /// All groups that the peer has a part in: also those that only need what it holds.
    fn groups(&self) -> Vec<GroupStatus> {
        self.status().groups
    }

    /// Whether a client operation sent now will be answered.
    fn readiness(&self) -> Readiness;

    /// The other peers that it knows or is connected with.
    fn peers(&self) -> Vec<PeerTraffic> {
        Vec::new()
    }

    /// What it uses of what it was given. Bandwidth is what nobody knows from a picture: `used` of it is left open.
    fn budgets(&self) -> Budgets {
        Budgets::default()
    }

    /// What a switch's controller needs to know.
    fn offload(&self) -> Offload {
        Offload { peer_id: self.peer_id(), ..Offload::default() }
    }

    /// Where a key lives; by default what the groups of [`StatusSource::status`] tell of it.
    fn locate(&self, key: &Key) -> Location {
        self.status().locate(key.point())
    }
}

impl RangeStatus {
    /// The arc that is meant; `None` where the text is none.
    pub fn arc(&self) -> Option<KeyRange> {
        arc(&self.start, &self.end)
    }

    /// How much of the ring that is, from 0 to 1; nothing where the text is none.
    pub fn share(&self) -> f64 {
        self.arc().map_or(0.0, part_of_ring)
    }
}

impl PrimaryStatus {
    /// The arc that is meant; `None` where the text is none.
    pub fn arc(&self) -> Option<KeyRange> {
        arc(&self.start, &self.end)
    }
}

/// How much of the ring an arc is, from 0 to 1.
pub fn part_of_ring(arc: KeyRange) -> f64 {
    arc.length().map_or(1.0, |length| length as f64 / 2f64.powi(128))
}

impl Status {
    /// Where a point lives, as far as the groups here tell.
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
