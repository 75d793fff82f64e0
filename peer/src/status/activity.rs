//! Activity of a peer: traffic with other peers, use of its limits, load and events.

use overlay::PeerName;
use serde::{Deserialize, Serialize};

/// Body of `GET /v1/peers`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Peers {
    /// Id of the reporting peer.
    pub peer_id: String,
    /// Traffic with other peers, in no order.
    pub peers: Vec<PeerTraffic>,
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

/// Use of one limited resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Amount in use, as far as it is known.
    pub used: Option<u64>,
    /// Limit; `None` is no limit.
    pub given: Option<u64>,
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
