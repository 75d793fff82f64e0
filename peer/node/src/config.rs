//! Configuration of a node at its start.

use alloc::collections::BTreeMap;
use alloc::string::String;
use core::time::Duration;

use bytes::Bytes;
use group::config::{Defects, GroupConfig};
use group::control::history::History;
use header::ReplyTo;
use overlay::{Incarnation, PeerKey, PeerName, RingId};

use crate::policies::{Policies, divide_as_agreed};

/// Place of data at the time of its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Data is on disk at a quorum.
    Sync,
    /// Data is in the memory of a quorum; every start is a new incarnation (Scatter §5, diskless Paxos). A node of this kind
    /// hands out no `Persist`, `Load` or `Scan`.
    Memory,
}

/// Intervals and timeouts. All members of a group should have the same.
#[derive(Clone, Debug)]
pub struct Timing {
    /// Time between two heartbeats. Default 500 ms.
    pub heartbeat: Duration,
    /// Number of missed heartbeats after which a member is suspected. Default 4.
    pub missed_max: u32,
    /// Length of a lease; network-wide. Default 1 s.
    pub lease: Duration,
    /// Limit of the drift between two clocks, in 1/1000; network-wide. Default 10 (1 %).
    pub drift_per_mille: u32,
    /// Silence after which a member is removed, unless it announced an absence. Default 3 s.
    pub exclude_after: Duration,
    /// Time for which a group has the wrong size before it becomes another. Default 10 s.
    pub resize_after: Duration,
    /// Interval of the purge of tombstones that no member needs. Default 5 minutes.
    pub purge_every: Duration,
    /// Interval at which the horizon of operation ids is raised; ids live at least so long; network-wide. Default 60 s.
    pub horizon: Duration,
    /// Interval at which a peer looks up a point of the ring whose owner it should know and does not. It looks up known owners
    /// a sixteenth as often. Default 2 s.
    pub look_around: Duration,
    /// Silence after which a copying member is not waited for. Before a merge, a repartition or a migration, members copy the
    /// data of their future range that they lack. A member that got nothing for this time is not waited for; with zero no
    /// member is, and all members copy afterwards. Default 3 s.
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

/// A switch, and this peer's address for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// Address to which packets are sent to pass the switch. Packets from any other address are not believed.
    pub at: ReplyTo,
    /// Address at which this peer gets packets.
    pub here: ReplyTo,
}

/// Configuration of a node, which never changes after its start.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// This peer.
    pub me: PeerKey,
    /// Incarnation to take where the store holds none that may go on: never used before by this peer.
    pub incarnation: Incarnation,
    /// Incarnation of this peer that ended because its group went on without it ([`Event::Reincarnate`]). Where the store
    /// holds that one, its chosen records are kept, as a copy to catch up from, and the rest is dropped.
    ///
    /// [`Event::Reincarnate`]: crate::Event::Reincarnate
    pub former: Option<Incarnation>,
    /// Number of this node's lane, where the peer has several: stored keys and frames then name the lane.
    pub lane: Option<u8>,
    /// Ring that this peer belongs to, if it has been in one.
    pub ring: Option<RingId>,
    /// Whether to found a network where the peer belongs to none (`--new`).
    pub found: bool,
    /// Place of data at the time of its acknowledgement.
    pub durability: Durability,
    /// Whether writes of a sub-range take effect in the order of their numbers, instead of each by itself. Only a founder's
    /// setting counts.
    pub coarse: bool,
    /// Whether reads are leased instead of confirmed. Only a founder's setting counts.
    pub leases: bool,
    /// Lower limit of members. A smaller group merges with a neighbour, or takes some of its members. Only a founder's setting
    /// counts. Default 5.
    pub members_min: u32,
    /// Upper limit of members; a larger group splits. Only a founder's setting counts. Default 12. The limit must not be so
    /// low that the halves of a group that is too large are too small ([`policy::size::can_flap`]).
    pub members_max: u32,
    /// Policies of the decisions that are left to the node.
    pub policies: Policies,
    /// Switch that reads of its groups may pass, if there is one.
    pub switch: Option<SwitchConfig>,
    /// Random number that no other peer knows. The node uses it to tell packets that come back from a switch from packets of
    /// strangers.
    pub secret: u64,
    /// Name that the operator gave this peer. Default: no name.
    pub name: Option<PeerName>,
    /// The sessions that this peer remembers, without the present one. Default: `None`, the present session is its first.
    pub history: Option<History>,
    /// Cluster of this peer, for diversity.
    pub cluster: String,
    /// Limit of records in memory, in bytes. Under [`Durability::Memory`] also the limit of stored data.
    pub memory_bytes_max: usize,
    /// Upper limit of a value, in bytes; network-wide. Default 64 KiB.
    pub value_bytes_max: usize,
    /// Limit of the rate at which this peer copies from other members when it joins or comes back, in bytes a second. Default
    /// 8 MiB/s.
    pub transfer_bytes_per_s: u64,
    /// Upper limit of a message between members, in bytes; bulk is cut to it. Default 256 KiB.
    pub message_bytes_max: usize,
    /// Time for which the group waits for this peer after a clean stop. Default 60 s.
    pub away: Duration,
    /// Intervals and timeouts.
    pub timing: Timing,
    /// Whether a peer that contradicts an entry that this node accepted stops the program. For simulation and tests, whose
    /// peers are honest. Default: off.
    pub fatal_contradictions: bool,
    /// Rules that are left out on purpose, for tests of the checkers. None in production.
    pub defects: Defects,
}

/// Multiple of the silence that led to a removal, after which the removal is confirmed.
const CONFIRM_FACTOR: u32 = 10;

impl NodeConfig {
    /// Default limit of the rate at which a peer copies, in bytes a second: about the rate of a home line, and so low that
    /// clients of a group on two cores hardly notice it.
    pub const TRANSFER_BYTES_PER_S: u64 = 8 << 20;

    /// Returns the defaults for a peer, in this incarnation if the store does not hold another.
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

    /// Returns the configuration of the groups that the node has a part in.
    pub(crate) fn group_config(&self) -> GroupConfig {
        let timing = group::config::Timing {
            heartbeat: self.timing.heartbeat,
            missed_max: self.timing.missed_max,
            broken_grace: self.timing.heartbeat / 2,
            exclude_after: self.timing.exclude_after,
            confirm_after: self.timing.exclude_after * CONFIRM_FACTOR,
            purge_every: self.timing.purge_every,
            ..group::config::Timing::default()
        };
        GroupConfig {
            name: self.name.clone(),
            timing,
            durable: self.durability == Durability::Sync,
            memory_bytes_max: self.memory_bytes_max,
            window_bytes_max: (self.memory_bytes_max / 8).clamp(1 << 20, 64 << 20),
            in_flight_max: 4096,
            waiting_max: 1 << 16,
            transfer_bytes_per_s: self.transfer_bytes_per_s,
            message_bytes_max: self.message_bytes_max,
            divide: divide_as_agreed,
            fatal_contradictions: self.fatal_contradictions,
            defects: self.defects,
        }
    }
}

/// State of the store at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// There was no store: a first start, or the old store was moved aside.
    Empty,
    /// Sealed by a clean stop: no data is missing, unless the store is an older copy.
    Sealed,
    /// Intact as far as it can be read, but its end may be missing.
    Unsealed,
    /// As `Unsealed`, and there is a trace of more data, which may have been acknowledged.
    Doubtful,
}

/// Content of the store at start.
#[derive(Clone, Debug)]
pub struct Restored {
    /// All small entries.
    pub meta: BTreeMap<Bytes, Bytes>,
    /// State of the store.
    pub tail: Tail,
}

impl Restored {
    /// Returns the content of an empty store.
    pub fn empty() -> Restored {
        Restored { meta: BTreeMap::new(), tail: Tail::Empty }
    }
}
