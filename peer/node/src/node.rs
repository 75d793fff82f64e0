//! The node itself.

use alloc::collections::BTreeMap;
use alloc::string::String;
use core::time::Duration;

use bytes::Bytes;
use group::time::Now;
use overlay::PeerKey;

use crate::api::{Input, Output};

/// What an acknowledgement rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// On disk at a quorum.
    Sync,
    /// In the memory of a quorum; every start is a new incarnation (Scatter §5, diskless Paxos). A node of this kind
    /// hands out no `Persist`, `Load` or `Scan`, apart from a `Persist` of the few entries that say which ring it is in.
    Memory,
}

/// How long things take. All members of a group should have the same.
#[derive(Clone, Debug)]
pub struct Timing {
    /// Between two heartbeats. Default 500 ms.
    pub heartbeat: Duration,
    /// So many missed heartbeats make a suspect. Default 4.
    pub missed_max: u32,
    /// A lease's length. Default 1 s.
    pub lease: Duration,
    /// How far two clocks may drift apart, as a fraction in 1/1000. Default 10 (1 %).
    pub drift_per_mille: u32,
}

impl Default for Timing {
    fn default() -> Self {
        Timing { heartbeat: Duration::from_millis(500), missed_max: 4, lease: Duration::from_secs(1), drift_per_mille: 10 }
    }
}

/// What a node is told at its start and never again.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// This peer.
    pub me: PeerKey,
    /// The network's name; frames of others are dropped.
    pub network: String,
    /// Found a network where the store knows of none (`--new`).
    pub found: bool,
    /// What acknowledgements rest on.
    pub durability: Durability,
    /// Leased instead of confirmed reads.
    pub leases: bool,
    /// Where this peer stands, for diversity.
    pub cluster: String,
    /// Records held in memory, in bytes. Under [`Durability::Memory`] also the limit of what is stored.
    pub memory_bytes_max: usize,
    /// The longest value, in bytes; network-wide. Default 64 KiB.
    pub value_bytes_max: usize,
    /// How long things take.
    pub timing: Timing,
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
}

/// What the store gave back at start.
#[derive(Clone, Debug)]
pub struct Restored {
    /// All small entries.
    pub meta: BTreeMap<Bytes, Bytes>,
    /// How it was left.
    pub tail: Tail,
}

/// One peer.
pub struct Node {}

impl Node {
    /// A node at its start. `seed` feeds its only source of chance.
    pub fn new(config: NodeConfig, seed: u64, now: Now, restored: Restored) -> Node {
        let _ = (config, seed, now, restored);
        Node {}
    }

    /// Takes one input; `now` never goes backwards. Outputs queue for [`Node::poll_output`]: hand in all that waits,
    /// then pull, so that one drained batch becomes one frame a peer and one sync.
    pub fn handle(&mut self, now: Now, input: Input) {
        let _ = (now, input);
    }

    /// The next thing to do, until `None`.
    pub fn poll_output(&mut self) -> Option<Output> {
        None
    }
}
