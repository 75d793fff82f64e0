//! Status of a peer for a switch's controller: `GET /v1/offload` (`Harmonia §5`).
//!
//! The names are a contract with `scatter-switch control`: fields may be added, none may be removed.

use serde::{Deserialize, Serialize};

/// Report of a peer about its switch, and its groups' readiness for one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offload {
    /// Id of this peer.
    pub peer_id: String,
    /// Addresses at which the peer takes packets, for each lane; empty where no switch is named.
    pub endpoints: Vec<PacketEndpoint>,
    /// Groups that the peer is a member of.
    pub groups: Vec<OffloadGroup>,
}

/// Address at which a lane of a peer takes packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketEndpoint {
    /// Lane, from 0.
    pub lane: u8,
    /// `IP:PORT` of the peer, for the switch.
    pub packets: String,
    /// `IP:PORT` of the switch.
    pub switch: String,
    /// Results of reads that went through the switch, since the start.
    pub reads: SpreadReads,
    /// Packets that did not come from the switch, or were malformed.
    pub dropped: u64,
}

/// Results of reads that went through a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpreadReads {
    /// Reads that clients of this peer sent through the switch.
    pub sent: u64,
    /// Of these, the reads that were answered, perhaps late.
    pub answered: u64,
    /// Of these, the reads that took too long, and were also sent directly.
    pub missed: u64,
    /// Reads of other peers' clients that this peer answered by itself.
    pub alone: u64,
    /// Reads of other peers' clients that were left to the primary, which may be this peer.
    pub left: u64,
}

/// A group, as a member knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffloadGroup {
    /// Id of the group: 32 hex digits.
    pub id: String,
    /// Lane of the group.
    pub lane: u8,
    /// Epoch of the group.
    pub epoch: u64,
    /// Slot up to which the group's log is applied: among several members' reports, the one with the highest slot is the
    /// newest.
    pub slot: u64,
    /// Switch that the group's log names.
    pub switch: NamedSwitch,
    /// Whether a switch may spread the group's reads: all members have one cluster label, and settle writes in order,
    /// with leases.
    pub fit: bool,
    /// Reason for which it may not, for display.
    pub why: Option<String>,
    /// Whether nothing is changing: members may answer reads, once they hold a grant.
    pub calm: bool,
    /// Switch id under which members answer reads of this peer's own parts, where they do so in all of them.
    pub granted: Option<u32>,
    /// Voting members: peer ids.
    pub members: Vec<String>,
    /// Parts of the group's range, each with a primary.
    pub parts: Vec<OffloadPart>,
}

/// Switch that a group's log names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedSwitch {
    /// Last switch id; 0: there was none.
    pub id: u32,
    /// Whether the switch is to be used.
    pub on: bool,
    /// Whether an administrator has turned the switch off by hand: no other one is to be named.
    #[serde(default)]
    pub barred: bool,
}

/// Part of one primary, in this term.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffloadPart {
    /// Number of the part in the switch.
    pub partition: u32,
    /// Term that distinguishes the part from others with that number: 16 hex digits.
    pub term: String,
    /// Peer id of the primary.
    pub primary: String,
}
