//! Settings that one member may choose for itself.

use alloc::vec::Vec;
use core::time::Duration;

use overlay::{KeyRange, NodeId, PeerName, Point};

use crate::control::agreed::AgreedPolicies;
use crate::control::capacity::Believed;

/// Durations of a member. Only liveness depends on them; lengths of leases are the group's ([`crate::control::state::Settings`]).
#[derive(Clone, Debug)]
pub struct Timing {
    /// Interval between two heartbeats. Default 500 ms (Scatter §7).
    pub heartbeat: Duration,
    /// Number of missed heartbeats that make a member suspected. Default 4.
    pub missed_max: u32,
    /// Time in which a peer with only broken connections may come back before it is suspected. Default 250 ms: on most transports a dead
    /// process is known at once, and a short network failure is not punished.
    pub broken_grace: Duration,
    /// Time before an unanswered message is sent again. Default 300 ms.
    pub resend: Duration,
    /// Time without a change of members or division before the range is divided evenly anew. Default 2 s.
    pub calm: Duration,
    /// Time that a division stands before it is redrawn only because another one would be better. Default 30 s.
    pub rested: Duration,
    /// Silence after which a member without an announced absence is removed. Default 3 s, which is 1.5 times the time of a suspicion: a
    /// member that stalls for a moment loses its sub-ranges and keeps its membership.
    pub exclude_after: Duration,
    /// Time without a later incarnation of the peer that confirms a removal. Default 30 s.
    pub confirm_after: Duration,
    /// Interval between two purges of tombstones, if there are any. Default 5 minutes.
    pub purge_every: Duration,
    /// Time that a member which has sealed its epoch waits for the next one before it ends the epoch itself. Default 600 ms.
    pub seal_patience: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            heartbeat: Duration::from_millis(500),
            missed_max: 4,
            broken_grace: Duration::from_millis(250),
            resend: Duration::from_millis(300),
            calm: Duration::from_secs(2),
            rested: Duration::from_secs(30),
            exclude_after: Duration::from_secs(3),
            confirm_after: Duration::from_secs(30),
            purge_every: Duration::from_secs(300),
            seal_patience: Duration::from_millis(600),
        }
    }
}

impl Timing {
    /// Returns the silence that makes a member suspected.
    pub fn suspicion(&self) -> Duration {
        self.heartbeat * self.missed_max
    }

    /// Returns the silence after which a member whose process ended is removed, where the process cannot return: two heartbeats. Within
    /// that time it would connect again if its connections had only broken.
    pub fn ended_after(&self) -> Duration {
        self.exclude_after.min(self.heartbeat * 2)
    }
}

/// Member that can be primary, as the division policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbleMember {
    /// Node of the member.
    pub node: NodeId,
    /// Time that it has lived as a member: [`crate::Group::age_of`].
    pub age: Duration,
    /// Time since it began to vote, as far as this node saw that: at most its age. A member votes once it has a copy of all records.
    pub settled: Duration,
    /// Time that it is expected to live on: [`crate::Group::expect_lives`].
    pub residual: Option<Duration>,
    /// Capacity to execute operations; `None` where too little is known.
    pub capacity: Option<Believed>,
    /// Time that it waits for the answers of a majority of members, while this node leads; `None` where unknown.
    pub agreement: Option<Duration>,
}

/// Input of the division policy.
#[derive(Clone, Copy, Debug)]
pub struct DivisionView<'a> {
    /// The group's range.
    pub range: KeyRange,
    /// Current division: starts and primaries.
    pub current: &'a [(Point, NodeId)],
    /// Members that can be primary now, ordered by name.
    pub able: &'a [AbleMember],
    /// Policies of the network.
    pub policies: &'a AgreedPolicies,
    /// Load of the range, as in [`crate::Group::load`].
    pub load: Option<&'a [u32]>,
    /// Whether members and division have been unchanged for [`Timing::calm`]: time to even the shares out.
    pub calm: bool,
    /// Whether they have been unchanged for [`Timing::rested`]: a change that is only better may be made.
    pub rested: bool,
}

/// Proposes a new division, or `None` where the current one is good enough. A pure function.
pub type DividePolicy = fn(&DivisionView<'_>) -> Option<Vec<(Point, NodeId)>>;

/// Configuration that one member may choose for itself.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// Name that this node's operator gave its peer. Default: no name.
    pub name: Option<PeerName>,
    /// Durations.
    pub timing: Timing,
    /// Whether acknowledgements wait for the store. Without, the store is not used, and every start is a new incarnation.
    pub durable: bool,
    /// Upper limit of records in memory, in bytes; where nothing is durable, of all records.
    pub memory_bytes_max: usize,
    /// Upper limit of recent writes kept for members that lag, in bytes. Default 32 MiB.
    pub window_bytes_max: usize,
    /// Upper limit of writes in flight per primary. Default 4096.
    pub in_flight_max: usize,
    /// Upper limit of waiting operations per primary. Default 65,536.
    pub waiting_max: usize,
    /// Upper limit of the rate at which this node copies from other members, in bytes a second. Default 8 MiB/s.
    pub transfer_bytes_per_s: u64,
    /// Upper limit of a message, in bytes, before framing. Default 256 KiB: bulk data is split to fit.
    pub message_bytes_max: usize,
    /// Policy that assigns sub-ranges to primaries.
    pub divide: DividePolicy,
    /// Whether a peer that contradicts an accepted value stops the program. For simulation and tests, which have honest peers; a daemon
    /// ignores that peer's ballot, or stops serving the group.
    pub fatal_contradictions: bool,
    /// Rules left out on purpose, to test the checkers. Empty in production.
    pub defects: Defects,
}

/// Upper limit of a value that a network may allow, in bytes. A record holds a value and answers with another one, and shares a message
/// with other writes: a frame of the network (1 MiB) must fit them all.
pub const VALUE_BYTES_MAX: usize = 128 << 10;

/// Rule of the protocol that can be left out (a mutant), named after the hazard that this causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Defect {
    /// A restart without its promises keeps its incarnation.
    Amnesia,
    /// A redrawn sub-range keeps its owner's term; a restarted primary serves under its old term.
    BallotReuse,
    /// Acceptors compare accepts with the accepted ballot, not with the promised one.
    PromiseIgnored,
    /// Of two records with the same timestamp the ballot is ignored.
    SameTimestampSameValue,
    /// A key's next write does not wait for the one in flight.
    TwoInFlight,
    /// Answers rest on accepted instead of chosen records.
    DirtyRead,
    /// Acceptors report writes that a base voided.
    VoidComesBack,
    /// Operation ids are ignored.
    NoIds,
    /// A new primary takes its own copy as complete.
    TrustOwnCopy,
    /// Reads are answered without a question to a quorum.
    StaleRead,
    /// A lease counts from the arrival of the answers, and a successor does not wait for its end.
    LeaseFromReply,
    /// Leases use a clock that stops while the machine sleeps.
    LeaseSleeps,
    /// Any confirmation confirms any read.
    RecycledConfirmation,
    /// Ids are forgotten as soon as the next operation arrives.
    ForgetIds,
    /// A leader takes the next configuration as chosen when it proposes it.
    NextUnchosen,
    /// The member that stops an epoch ignores entries that were accepted in it.
    StopTooLow,
    /// Members promise and accept the end of an epoch without sealing it, and ask no former configuration for data that the new epoch
    /// lacks.
    OneReplicaState,
    /// Less than half of a former configuration with an odd number of members is asked.
    LessThanHalf,
    /// The leader removes dead members only when it has nothing else to do.
    TransactionsFirst,
    /// A member that has promised to follow a candidate stands for election all the same.
    Dueling,
    /// An epoch is taken as established although its members have not caught up.
    EmptyMembers,
    /// The next change of members does not wait until the last one is established.
    BackToBack,
    /// Records from catching up replace the present ones, even newer ones.
    LateChunk,
    /// Catching up leaves out the operations that a record remembers.
    WithoutTail,
    /// Tombstones are purged as soon as their own primary knows them to be chosen.
    PurgeEarly,
    /// The epoch of a message and the membership of its sender are ignored.
    NoFence,
    /// Writes of a coarse group are answered as each is chosen.
    Overtaking,
    /// A group votes for a transaction that was planned for its state in another epoch.
    AnyGeneration,
    /// Boundaries are not locked.
    NoLocks,
    /// A transaction is committed once one participant has agreed.
    OneVote,
    /// A group does not pass on the outcomes that its predecessor had committed.
    NotInherited,
    /// A group votes for a transaction, or commits it, although the members of the groups to be born have sent nothing since it was
    /// planned.
    Unheard,
    /// A node that was away while tombstones were purged brings the records that it held before.
    Undying,
    /// A leader sends its group's vote before the group has chosen it.
    VoteBeforeChosen,
    /// A leader sends its transaction's outcome before the group has chosen it.
    OutcomeBeforeChosen,
    /// Votes for one attempt count for the next.
    AnyAttempt,
    /// Of two reports about a neighbour the one that arrived last counts.
    ByArrival,
    /// The end of a group is reported once, and no group asks for it.
    ToldOnce,
    /// The records of a new group lack the operations of its predecessor's records.
    IdsStayBehind,
    /// Records that were copied before a transaction are used although tombstones were purged since.
    StaleCopies,
    /// The first primary of a new group waits neither for promises of other members nor for handovers, even where it was not the
    /// sub-range's last primary.
    NobodyAsked,
    /// A number that a switch gave to a write is used although the switch's point is beyond it.
    VoidNumberTaken,
    /// A switch is told that writes are complete as soon as it has numbered them.
    EarlyCompletion,
    /// A primary that continues without a switch, or that promises another primary's ballot, ignores the grants that it gave.
    GrantsForgotten,
    /// A grant counts from its arrival.
    GrantFromArrival,
    /// A member answers reads alone without a grant.
    GrantUnchecked,
    /// A member answers reads alone that are ahead of the writes that it has executed.
    PointUnchecked,
    /// The start of a process that a frame comes from is ignored.
    StartsIgnored,
    /// A start counts by its counter, without regard to its descent.
    LineageIgnored,
    /// A write that waited for a switch is proposed after its client was told that the outcome is unknown.
    LateWrites,
    /// An id leaves its key's record when its completion record is due, before that record is chosen.
    MovedTooEarly,
    /// Operations with ids that may have moved to completion records are evaluated without a look at these records.
    CompletionsUnread,
    /// The vote of a member that may have forgotten acknowledgements counts like any other.
    DoubtCounts,
    /// The torn end of a store is not remembered.
    DoubtForgotten,
    /// A member accepts from primaries of an epoch in which it may have forgotten promises.
    DoubtSpeaks,
    /// A leader removes members while it lacks a majority of members that it hears and that hear it.
    OneWayRemoval,
    /// A leader removes members while most pairs of the heard members do not hear each other.
    LoadRemoves,
    /// Policies count dead members.
    DeadCounted,
    /// A leader removes any number of members at once, even after removals that were refuted.
    RemovalsUncapped,
    /// A node is told that its group released it before a majority of the members hold that durably.
    ReleaseEarly,
    /// A learner votes, and keeps its place, without direct connections to a majority of the members.
    Unconnected,
    /// Learners that copy slowly hold up other newcomers.
    SlowHoldUp,
    /// A member without heartbeats of a majority of its group does not ask other groups for the owner of its range.
    SuccessorsUnsought,
    /// A leader does not adopt the greater policies of a neighbour.
    PoliciesNotTold,
    /// All members count alike, at any capacity.
    CapacityIgnored,
    /// A reported capacity is believed without a comparison with the operations that the member was seen to execute.
    CapacityUnchecked,
    /// A reported session history replaces the lifetimes that members saw, instead of only lowering them.
    HistoryBelieved,
    /// A peer that members have hardly seen is expected to live as long as any other.
    UnknownTrusted,
}

/// A set of [`Defect`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Defects(u128);

impl Defects {
    /// Empty set: all rules hold.
    pub const NONE: Defects = Defects(0);

    /// Returns the set with this defect added.
    pub const fn with(self, defect: Defect) -> Defects {
        Defects(self.0 | 1 << defect as u128)
    }

    /// Returns whether the set has this defect.
    pub const fn has(self, defect: Defect) -> bool {
        self.0 & 1 << defect as u128 != 0
    }
}
