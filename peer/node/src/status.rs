//! What a node knows, for a person to see.

use alloc::string::String;
use alloc::vec::Vec;

use group::ballot::{Slot, Term};
use group::committee::CatchUpStatus;
use group::nonsense::Dropped;
use group::time::WallMillis;
use overlay::{Epoch, GroupId, KeyRange, NodeId, RingId};

/// One member or learner of the node's group.
#[derive(Clone, Debug)]
pub struct MemberStatus {
    /// Who.
    pub node: NodeId,
    /// Where it stands.
    pub cluster: String,
    /// When it came, in group time.
    pub joined: WallMillis,
    /// It votes.
    pub votes: bool,
    /// This node has heard of it of late.
    pub alive: bool,
    /// Where it can be reached.
    pub addresses: Vec<String>,
}

/// One sub-range and its primary.
#[derive(Clone, Copy, Debug)]
pub struct PrimaryStatus {
    /// The sub-range.
    pub range: KeyRange,
    /// Its primary.
    pub node: NodeId,
    /// The primary's term.
    pub term: Term,
    /// Serves here and now; only known of this node's own.
    pub serving: bool,
}

/// The group that a node is in.
#[derive(Clone, Debug)]
pub struct GroupStatus {
    /// The ring.
    pub ring: RingId,
    /// Which.
    pub id: GroupId,
    /// Its epoch.
    pub epoch: Epoch,
    /// The last applied slot of its log.
    pub applied: Slot,
    /// The arc it owns.
    pub range: KeyRange,
    /// Members, then learners.
    pub members: Vec<MemberStatus>,
    /// Who leads, as far as is known.
    pub leader: Option<NodeId>,
    /// Who is primary of what.
    pub primaries: Vec<PrimaryStatus>,
    /// A quorum of this epoch holds everything.
    pub established: bool,
    /// Records in memory, tombstones included; all of them if `whole`.
    pub records: usize,
    /// What they take, in bytes.
    pub bytes: usize,
    /// All records are in memory.
    pub whole: bool,
    /// What this node is catching up with.
    pub catching_up: Vec<CatchUpStatus>,
    /// What members said and was dropped as nonsense, or for want of room.
    pub dropped: Dropped,
}

/// What a node knows.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    /// This node.
    pub node: NodeId,
    /// A client operation sent now would be answered.
    pub ready: bool,
    /// Its group, once it is in one.
    pub group: Option<GroupStatus>,
    /// Client operations under way.
    pub operations: usize,
    /// Frames that made no sense, or came from another ring.
    pub frames_dropped: u64,
    /// Operations answered since the start.
    pub answered: u64,
}
