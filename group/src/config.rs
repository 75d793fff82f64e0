//! What one member may choose for itself.

use alloc::vec::Vec;
use core::time::Duration;

use overlay::{KeyRange, NodeId, PeerName, Point};

use crate::agreed::AgreedPolicies;
use crate::capacity::Believed;

/// How long things take. Only liveness rests on these; leases' lengths are the group's ([`crate::state::Settings`]).
#[derive(Clone, Debug)]
pub struct Timing {
    /// Between two heartbeats. Default 500 ms (Scatter §7).
    pub heartbeat: Duration,
    /// So many missed heartbeats make a suspect. Default 4.
    pub missed_max: u32,
    /// How long a peer whose connections all broke may take to come back before it is suspected. Default 250 ms: a
    /// process that died is known at once on most transports, a network that hiccups is not punished.
    pub broken_grace: Duration,
    /// Before something unanswered is said again. Default 300 ms.
    pub resend: Duration,
    /// How long the membership must have been calm before the range is divided evenly anew. Default 2 s.
    pub calm: Duration,
    /// How long a division stands before it is drawn anew only since another would be better. Default 30 s.
    pub rested: Duration,
    /// A member that is silent for so long, and did not announce an absence, is removed. Default 3 s: half as long again as a suspicion
    /// takes, so that a member that stalls for a moment loses its sub-ranges and keeps its membership.
    pub exclude_after: Duration,
    /// A removal is confirmed when no later incarnation of the peer is heard of for so long. Default 30 s.
    pub confirm_after: Duration,
    /// How often tombstones are let go of, if there are any. Default 5 minutes.
    pub purge_every: Duration,
    /// How long a member that has sealed its epoch waits for the next one before it sees to it itself. Default 600 ms.
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
    /// Silence for so long makes a suspect.
    pub fn suspicion(&self) -> Duration {
        self.heartbeat * self.missed_max
    }

    /// A member whose process ended is removed after so long, where it cannot return: two heartbeats, in which it would connect again if its
    /// connections had only broken.
    pub fn ended_after(&self) -> Duration {
        self.exclude_after.min(self.heartbeat * 2)
    }
}

/// A member that can be primary, as the division policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbleMember {
    /// The member's name.
    pub node: NodeId,
    /// For how long it has lived as a member: [`crate::Group::age_of`].
    pub age: Duration,
    /// For how long it has voted, as far as this node saw it begin: at most its age. A member votes once it has a copy of all records.
    pub settled: Duration,
    /// How long it is expected to live on: [`crate::Group::expect_lives`].
    pub residual: Option<Duration>,
    /// How much it can execute; `None` where too little is known.
    pub capacity: Option<Believed>,
    /// How long it waits for the answers of a majority of members, while this node leads; `None` where that is not known.
    pub agreement: Option<Duration>,
}

/// What the division policy sees.
#[derive(Clone, Copy, Debug)]
pub struct DivisionView<'a> {
    /// The group's range.
    pub range: KeyRange,
    /// The current division: starts and primaries.
    pub current: &'a [(Point, NodeId)],
    /// Members that can be primary now, ordered by name.
    pub able: &'a [AbleMember],
    /// The policies that the network agrees on.
    pub policies: &'a AgreedPolicies,
    /// What is asked of the range, as in [`crate::Group::load`].
    pub load: Option<&'a [u32]>,
    /// Nothing has changed for a while: time to even things out.
    pub calm: bool,
    /// Nor has it for much longer: what only would be better may be done.
    pub rested: bool,
}

/// Proposes a new division, or `None` where the current one is good enough. Pure.
pub type DividePolicy = fn(&DivisionView<'_>) -> Option<Vec<(Point, NodeId)>>;

/// What one member may choose for itself.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// What this node's operator calls its peer. Default: no name.
    pub name: Option<PeerName>,
    /// How long things take.
    pub timing: Timing,
    /// Acknowledgements wait for the store. Without, the store is not used, and every start is a new incarnation.
    pub durable: bool,
    /// Records kept in memory, in bytes; what is stored at all, where nothing is durable.
    pub memory_bytes_max: usize,
    /// Recent writes kept for members that lag, in bytes. Default 32 MiB.
    pub window_bytes_max: usize,
    /// Writes in flight per primary. Default 4096.
    pub in_flight_max: usize,
    /// Operations waiting per primary. Default 65,536.
    pub waiting_max: usize,
    /// How much this node copies from others at most, in bytes a second. Default 8 MiB/s.
    pub transfer_bytes_per_s: u64,
    /// The largest message, in bytes, before framing. Default 256 KiB: bulk is cut to it.
    pub message_bytes_max: usize,
    /// Decides who is primary of what.
    pub divide: DividePolicy,
    /// A peer that contradicts what this member accepted stops the program. For simulation and tests, whose peers are
    /// honest; a daemon ignores that peer's ballot, or stops serving the group.
    pub fatal_contradictions: bool,
    /// Rules left out on purpose, to see that the checkers notice. Empty in earnest.
    pub defects: Defects,
}

/// The longest value that a network may allow, in bytes. A record holds a value and answers that hold another, and goes
/// into one message with other writes: a frame of the network (1 MiB) must take them all.
pub const VALUE_BYTES_MAX: usize = 128 << 10;

/// Rules that can be left out, each named after the hazard that it invites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Defect {
    /// A restart without its promises keeps its incarnation.
    Amnesia,
    /// A redrawn sub-range keeps its owner's term; a restarted primary serves under its old one.
    BallotReuse,
    /// Accepts are compared with what was accepted, not with what was promised.
    PromiseIgnored,
    /// Of two records with the same timestamp the ballot is not looked at.
    SameTimestampSameValue,
    /// A key's next write does not wait for the one in flight.
    TwoInFlight,
    /// Answers rest on accepted, not on chosen records.
    DirtyRead,
    /// What a base voided is reported all the same.
    VoidComesBack,
    /// Operation ids are not looked at.
    NoIds,
    /// A new primary takes its own copy for complete.
    TrustOwnCopy,
    /// Reads are answered without asking a quorum.
    StaleRead,
    /// A lease counts from when the answers came, and a successor does not wait for it.
    LeaseFromReply,
    /// A lease goes by a clock that stops while the machine sleeps.
    LeaseSleeps,
    /// Any confirmation confirms any read.
    RecycledConfirmation,
    /// Ids are forgotten as soon as the next operation comes.
    ForgetIds,
    /// A leader takes the next configuration for chosen when it proposes it.
    NextUnchosen,
    /// Whoever stops an epoch does not look at what was accepted in it.
    StopTooLow,
    /// The end of an epoch is promised and accepted without sealing it, and what an epoch lacks nobody asks the last one.
    OneReplicaState,
    /// Of a configuration with an odd number of members less than half are asked.
    LessThanHalf,
    /// Dead members are removed once nothing else is to do.
    DealsFirst,
    /// Who has promised to follow a candidate stands for election all the same.
    Dueling,
    /// An epoch is taken for established although its members have not caught up.
    EmptyMembers,
    /// The next change of members does not wait until the last one is established.
    BackToBack,
    /// What comes by catching up replaces what is there, whichever is newer.
    LateChunk,
    /// Catching up leaves out what operations a record remembers.
    WithoutTail,
    /// Tombstones are let go of when their own primary knows them to be chosen.
    PurgeEarly,
    /// Nobody looks at the epoch of a message, or at whether its sender is a member.
    NoFence,
    /// Writes of a coarse group are answered as each is chosen.
    Overtaking,
    /// A group votes for what was planned for something that it was in another epoch.
    AnyGeneration,
    /// Boundaries are not locked.
    NoLocks,
    /// A transaction is committed once one participant has agreed.
    OneVote,
    /// What comes of a group does not tell on what that had committed.
    NotInherited,
    /// Those who would be in what is born need not have said anything since it was planned.
    Unheard,
    /// Whoever was away while tombstones were let go of takes along what it held before.
    Undying,
    /// A leader says what its group votes before the group has chosen that.
    VoteBeforeChosen,
    /// And that its transaction is committed.
    OutcomeBeforeChosen,
    /// Votes for one attempt count for the next.
    AnyAttempt,
    /// Of a neighbour that is known which was heard of last.
    ByArrival,
    /// How a group ended is said once, and nobody asks.
    ToldOnce,
    /// What operations did is not told to what is born.
    IdsStayBehind,
    /// What was copied before a transaction is taken along although tombstones were let go of since.
    StaleCopies,
    /// The first primary of what is born asks nobody what may have been chosen, whoever had its sub-range before.
    NobodyAsked,
    /// A number that a switch gave to a write is taken although the point is beyond it.
    VoidNumberTaken,
    /// A switch is told that writes are complete when it has numbered them.
    EarlyCompletion,
    /// Whoever goes on without a switch, or promises somebody else, does not wait for the grants it gave.
    GrantsForgotten,
    /// A grant counts from when it arrives.
    GrantFromArrival,
    /// A member answers reads alone without a grant.
    GrantUnchecked,
    /// A member answers reads alone that are ahead of what it has executed.
    PointUnchecked,
    /// Nobody looks at which start of a process a frame comes from.
    StartsIgnored,
    /// A start counts by its counter, whatever it descends from.
    LineageIgnored,
    /// What waited for a switch is proposed also after who asked for it has been told that nobody knows.
    LateWrites,
    /// An id leaves its key's record when its completion record is due, before that is chosen.
    MovedTooEarly,
    /// Operations whose ids may have moved to completion records are evaluated without a look at those.
    CompletionsUnread,
    /// A member that may have forgotten what it acknowledged counts like any.
    DoubtCounts,
    /// Nobody remembers that the end of a store is bad.
    DoubtForgotten,
    /// A member accepts from primaries of an epoch of which it may have forgotten what it promised.
    DoubtSpeaks,
    /// A leader removes members while it has no majority of members that it hears and that hear it.
    OneWayRemoval,
    /// A leader removes members while most pairs of the members that are heard do not hear each other.
    LoadRemoves,
    /// Policies count members that are dead.
    DeadCounted,
    /// A leader removes any number of members at once, whether or not earlier removals were refuted.
    RemovalsUncapped,
    /// A node is told that its group has let go of it before a majority of the members hold that durably.
    LetGoEarly,
    /// A learner votes, and keeps its place, without direct connections to a majority of the members.
    Unconnected,
    /// Learners that copy slowly hold up other newcomers.
    SlowHoldUp,
    /// A member without heartbeats of a majority of its group asks no other group for the owner of its range.
    SuccessorsUnsought,
    /// A leader does not take over the policies of a neighbour, though these are greater.
    PoliciesNotTold,
    /// All members count alike, whatever they can execute.
    CapacityIgnored,
    /// A told capacity is believed, whatever the member was seen to execute.
    CapacityUnchecked,
    /// A told session history replaces the lifetimes that members saw, instead of lowering them only.
    HistoryBelieved,
    /// A peer that members have hardly seen is expected to live as long as others.
    UnknownTrusted,
}

/// A set of [`Defect`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Defects(u128);

impl Defects {
    /// All rules hold.
    pub const NONE: Defects = Defects(0);

    /// This rule is left out as well.
    pub const fn with(self, defect: Defect) -> Defects {
        Defects(self.0 | 1 << defect as u128)
    }

    /// Is this rule left out?
    pub const fn has(self, defect: Defect) -> bool {
        self.0 & 1 << defect as u128 != 0
    }
}
