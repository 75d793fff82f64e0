//! What a switch's controller asks of a peer: `GET /v1/offload` (`Harmonia §5`).
//!
//! The names are a contract with `scatter-switch control`; fields may be added, none may go.

use serde::{Deserialize, Serialize};

/// A peer's word about its switch, and its groups' readiness for one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offload {
    /// This peer.
    pub peer_id: String,
    /// Where it takes packets, for each lane; none where no switch is named.
    pub endpoints: Vec<PacketEndpoint>,
    /// Groups that it is a member of.
    pub groups: Vec<OffloadGroup>,
}

/// Where a lane of a peer takes packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketEndpoint {
    /// The lane, from 0.
    pub lane: u8,
    /// `IP:PORT` of the peer, for the switch.
    pub packets: String,
    /// `IP:PORT` of the switch.
    pub switch: String,
    /// What came of reads that went by way of the switch, since the start.
    pub reads: SpreadReads,
    /// Packets that did not come from the switch, or made no sense.
    pub dropped: u64,
}

/// What came of reads that went by way of a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpreadReads {
    /// Clients of this peer asked so often that way.
    pub sent: u64,
    /// So often they were answered, perhaps late.
    pub answered: u64,
    /// So often that took too long, and was asked the ordinary way, too.
    pub missed: u64,
    /// Others asked, and this peer answered by itself.
    pub alone: u64,
    /// Others asked, and it was left to the primary, which may be this peer.
    pub left: u64,
}

/// A group, as a member knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffloadGroup {
    /// 32 hex digits.
    pub id: String,
    /// Which of the peer's lanes it is of.
    pub lane: u8,
    /// Its epoch.
    pub epoch: u64,
    /// How far its log is applied: of several members' words the one with the highest slot is the newest.
    pub slot: u64,
    /// The switch that its log names.
    pub switch: NamedSwitch,
    /// A switch may spread its reads: all members stand under one cluster label, and settle writes in order, with leases.
    pub fit: bool,
    /// Why not, for a person.
    pub why: Option<String>,
    /// Nothing is changing: members may answer reads, once they are granted that.
    pub calm: bool,
    /// Under which id members answer reads of this peer's own parts, where they do in all of them.
    pub granted: Option<u32>,
    /// Who votes: peer ids.
    pub members: Vec<String>,
    /// Its parts, each with a primary.
    pub parts: Vec<OffloadPart>,
}

/// The switch that a group's log names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedSwitch {
    /// The last id; 0: there was none.
    pub id: u32,
    /// It is to be used.
    pub on: bool,
    /// Somebody has turned it off by hand: no other is to be named.
    #[serde(default)]
    pub barred: bool,
}

/// One primary's part, in this term.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffloadPart {
    /// The switch's name for it.
    pub partition: u32,
    /// What tells it from others of that name: 16 hex digits.
    pub term: String,
    /// Peer id.
    pub primary: String,
}
