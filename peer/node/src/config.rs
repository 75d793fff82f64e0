//! What a node is told at its start.

use alloc::collections::BTreeMap;
use alloc::string::String;
use core::time::Duration;

use bytes::Bytes;
use group::config::Defects;
use group::history::History;
use header::ReplyTo;
use overlay::{Incarnation, PeerKey, PeerName, RingId};

use crate::policies::Policies;

/// What an acknowledgement rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// On disk at a quorum.
    Sync,
    /// In the memory of a quorum; every start is a new incarnation (Scatter §5, diskless Paxos). A node of this kind
    /// hands out no `Persist`, `Load` or `Scan`.
    Memory,
}

/// How long things take. All members of a group should have the same.
#[derive(Clone, Debug)]
pub struct Timing {
    /// Between two heartbeats. Default 500 ms.
    pub heartbeat: Duration,
    /// So many missed heartbeats make a suspect. Default 4.
    pub missed_max: u32,
    /// A lease's length; network-wide. Default 1 s.
    pub lease: Duration,
    /// How far two clocks may drift apart, in 1/1000; network-wide. Default 10 (1 %).
    pub drift_per_mille: u32,
    /// A member that is silent for so long, and did not announce an absence, is removed. Default 3 s.
    pub exclude_after: Duration,
    /// For so long a group has the wrong size before it becomes another. Default 10 s.
    pub resize_after: Duration,
    /// How often tombstones that nobody needs are let go of. Default 5 minutes.
    pub purge_every: Duration,
    /// How often the horizon of operation ids is raised; ids live at least so long; network-wide. Default 60 s.
    pub horizon: Duration,
    /// How often a peer looks for somebody on the ring whom it should know and does not; what it knows it looks at a
    /// sixteenth as often. Default 2 s.
    pub look_around: Duration,
    /// Before a merge, a repartition or a migration members copy what they do not hold of what they will own. Who has got
    /// nothing for so long is not waited for; with zero nobody is, and all copy afterwards. Default 3 s.
    pub copy_patience: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            heartbeat: Duration::from_millis(500),
            missed_max: 4,
            lease: Duration::from_secs(1),
            drift_per_mille: 10,
            exclude_after: Duration::from_secs(3),
            resize_after: Duration::from_secs(10),
            purge_every: Duration::from_secs(300),
            horizon: Duration::from_secs(60),
            look_around: Duration::from_secs(2),
            copy_patience: Duration::from_secs(3),
        }
    }
}

/// A switch, and where this peer is for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// Where packets are sent to pass it. What comes from elsewhere is not believed.
    pub at: ReplyTo,
    /// Where this peer gets packets.
    pub here: ReplyTo,
}

/// What a node is told at its start and never again.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// This peer.
    pub me: PeerKey,
    /// The incarnation to take where the store does not hold one that may go on: never used before by this peer.
    pub incarnation: Incarnation,
    /// An incarnation of this peer that is over because its group went on without it ([`Event::Reincarnate`]): where the store
    /// holds that one, its chosen records are kept, as a copy to catch up from, and the rest is dropped.
    ///
    /// [`Event::Reincarnate`]: crate::Event::Reincarnate
    pub former: Option<Incarnation>,
    /// Which lane this is, where the peer has several: what is stored and said then names it.
    pub lane: Option<u8>,
    /// The ring that this peer belongs to, where it has been in one.
    pub ring: Option<RingId>,
    /// Found a network where it belongs to none (`--new`).
    pub found: bool,
    /// What acknowledgements rest on.
    pub durability: Durability,
    /// Writes of a sub-range in the order of their numbers, instead of each by itself; only a founder's word counts.
    pub coarse: bool,
    /// Leased instead of confirmed reads; only a founder's word counts.
    pub leases: bool,
    /// A group of fewer members merges with a neighbour, or takes some of its; only a founder's word counts. Default 5.
    pub members_min: u32,
    /// A group of more members splits; only a founder's word counts. Default 12. Not so few that halves of what is too large
    /// are too small ([`policy::size::can_flap`]).
    pub members_max: u32,
    /// How it decides what is left to it.
    pub policies: Policies,
    /// The switch that its groups' reads may pass, where there is one.
    pub switch: Option<SwitchConfig>,
    /// Chance of which nobody else knows anything: what comes back from a switch is told by it from what strangers send.
    pub secret: u64,
    /// What this peer's operator calls it. Default: no name.
    pub name: Option<PeerName>,
    /// The sessions that this peer remembers, without the present one. Default: `None`, this is its first.
    pub history: Option<History>,
    /// Where this peer stands, for diversity.
    pub cluster: String,
    /// Records held in memory, in bytes. Under [`Durability::Memory`] also the limit of what is stored.
    pub memory_bytes_max: usize,
    /// The longest value, in bytes; network-wide. Default 64 KiB.
    pub value_bytes_max: usize,
    /// How much this peer copies from others at most when it joins or comes back, in bytes a second. Default 8 MiB/s.
    pub transfer_bytes_per_s: u64,
    /// The largest message between members, in bytes; bulk is cut to it. Default 256 KiB.
    pub message_bytes_max: usize,
    /// How long this peer is waited for after a clean stop. Default 60 s.
    pub away: Duration,
    /// How long things take.
    pub timing: Timing,
    /// A peer that contradicts what this node accepted stops the program. For simulation and tests, whose peers are
    /// honest. Default: off.
    pub fatal_contradictions: bool,
    /// Rules left out on purpose, for tests of the checkers. None in earnest.
    pub defects: Defects,
}

impl NodeConfig {
    /// How much a peer copies at most where nobody says otherwise: about what a home line takes, and so little that clients
    /// of a group on two cores hardly feel it.
    pub const TRANSFER_BYTES_PER_S: u64 = 8 << 20;

    /// The defaults for a peer, in this life of it if the store does not say otherwise.
    pub fn new(me: PeerKey, incarnation: Incarnation) -> NodeConfig {
        NodeConfig {
            me,
            incarnation,
            former: None,
            lane: None,
            ring: None,
            found: false,
            durability: Durability::Sync,
            coarse: false,
            leases: false,
            members_min: 5,
            members_max: 12,
            policies: Policies::default(),
            switch: None,
            secret: 0,
            name: None,
            history: None,
            cluster: String::new(),
            memory_bytes_max: 512 << 20,
            value_bytes_max: 64 << 10,
            transfer_bytes_per_s: NodeConfig::TRANSFER_BYTES_PER_S,
            message_bytes_max: 256 << 10,
            away: Duration::from_secs(60),
            timing: Timing::default(),
            fatal_contradictions: false,
            defects: Defects::NONE,
        }
    }
}

/// How the store was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// There was none: a first start, or the old one was moved aside.
    Empty,
    /// Sealed by a clean stop: nothing can be missing.
    Sealed,
    /// Intact as far as it reads, but it may lack its end.
    Unsealed,
    /// The same, and there is a trace of more, which may have been acknowledged.
    Doubtful,
}

/// What the store gave back at start.
#[derive(Clone, Debug)]
pub struct Restored {
    /// All small entries.
    pub meta: BTreeMap<Bytes, Bytes>,
    /// How it was left.
    pub tail: Tail,
}

impl Restored {
    /// An empty store.
    pub fn empty() -> Restored {
        Restored { meta: BTreeMap::new(), tail: Tail::Empty }
    }
}
