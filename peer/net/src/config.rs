//! The settings of a network at its start.

use std::time::Duration;

use libp2p::Multiaddr;
use node::Class;
use overlay::RingId;

use crate::network_key::NetworkKey;
use crate::stream::frame::FRAME_BYTES_MAX;

/// Settings of this peer's part in a network.
#[derive(Clone, Debug)]
pub struct NetConfig {
    /// Addresses to listen on, by TCP and QUIC. An address that cannot be bound is an error.
    pub listen: Vec<Multiaddr>,
    /// Peers to enter through, redialled for ever while not connected. With `/p2p/…` only that peer is accepted.
    pub join: Vec<Multiaddr>,
    /// Name of the network: only peers with the same name talk to each other. At most 64 bytes.
    pub network: String,
    /// Key of the network: only peers with the same key talk to each other. `None` is an open network.
    pub network_key: Option<NetworkKey>,
    /// Whether this peer's acknowledgements rest on disks, not only on memory: the same in the whole network.
    pub durable: bool,
    /// The ring that this peer already belongs to, from its store. `None` until it founds or joins one.
    pub ring: Option<RingId>,
    /// Whether to find peers on the local network by mDNS.
    pub mdns: bool,
    /// Whether to dial private and loopback addresses. If off, no peer can make a public server probe its hoster's inner
    /// network.
    pub dial_private: bool,
    /// Upper limit of established connections, in both directions. A quarter is kept from peers that this peer did not
    /// ask for, so strangers cannot shut it off from members.
    pub connections_max: usize,
    /// Upper limit of the peers that [`dial`](crate::Transport::dial) remembers.
    pub peers_max: usize,
    /// Limits of the control class: frames are few and small, and the newest frame counts.
    pub control: ClassLimits,
    /// Limits of the data class.
    pub data: ClassLimits,
    /// Limits of the bulk class.
    pub bulk: ClassLimits,
    /// Upper limit of bytes in all outgoing queues of all peers together.
    pub queued_bytes_max: usize,
    /// Time limits and intervals.
    pub timing: Timing,
}

/// Limits of one class; per peer unless stated otherwise.
#[derive(Clone, Debug)]
pub struct ClassLimits {
    /// Upper limit of waiting frames.
    pub frames_max: usize,
    /// Upper limit of waiting bytes.
    pub bytes_max: usize,
    /// Longest wait of a frame; after it the frame is dropped, because its sender has given up by then.
    pub patience: Duration,
    /// Upper limit of bytes in flight: sent, but not consumed by the other side's loop. It bounds the bytes that a later
    /// frame of another class finds before it in the sockets, and the cost of a stalled peer.
    pub window_bytes: usize,
    /// Upper limit of bytes of *all* peers that wait for this peer's loop; beyond it readers stop reading.
    pub inbound_bytes_max: usize,
}

/// Time limits and intervals. Tests shorten them.
#[derive(Clone, Debug)]
pub struct Timing {
    /// Time from a stream's opening to the answer of its hello. A connection without any accepted hello lives half as
    /// long again.
    pub hello: Duration,
    /// Time without progress of a write or a confirmation that ends the connection: the peer is stopped or gone.
    pub stall: Duration,
    /// Interval between two pings. Their round trip is shown in the statistics.
    pub ping_interval: Duration,
    /// Time without an answer to a ping that ends the connection, if it happens twice.
    pub ping_timeout: Duration,
    /// Time after which a connection without a stream is closed: the spare one of two simultaneous dials.
    pub idle: Duration,
    /// Silence on QUIC that ends the connection; the shorter value of both sides counts. A dead peer is detected after
    /// this time and [`Timing::quic_keep_alive`].
    pub quic_idle: Duration,
    /// Longest interval between two packets on QUIC. Several fit into [`Timing::quic_idle`], because packets may be lost.
    pub quic_keep_alive: Duration,
    /// Head start of TCP before QUIC: long enough for TCP's handshakes between continents.
    pub tcp_start: Duration,
    /// First pause before TCP is tried again while a peer is reached by QUIC; doubles up to `tcp_retry_max`, jittered.
    pub tcp_retry_min: Duration,
    /// Longest pause before TCP is tried again.
    pub tcp_retry_max: Duration,
    /// First pause before a peer is dialled again; doubles up to `redial_max`, jittered.
    pub redial_min: Duration,
    /// Longest pause before a peer is dialled again.
    pub redial_max: Duration,
    /// First pause after a refusal; doubles up to `refused_max`. Long, because a refusal ends only if an administrator
    /// acts.
    pub refused_min: Duration,
    /// Longest pause after refusals.
    pub refused_max: Duration,
    /// Time without a connection after which a peer that was asked for is forgotten, until it is asked for again.
    pub wanted: Duration,
}

impl NetConfig {
    /// Creates settings for a network of this name, with the usual limits: no peer to join, and no address to listen on.
    pub fn new(network: impl Into<String>) -> NetConfig {
        NetConfig {
            listen: Vec::new(),
            join: Vec::new(),
            network: network.into(),
            network_key: None,
            durable: true,
            ring: None,
            mdns: false,
            dial_private: true,
            connections_max: 256,
            peers_max: 4096,
            control: ClassLimits {
                frames_max: 1024,
                bytes_max: 2 * FRAME_BYTES_MAX,
                // Four missed heartbeats: by then newer heartbeats replace it.
                patience: Duration::from_secs(2),
                window_bytes: FRAME_BYTES_MAX,
                inbound_bytes_max: 4 * FRAME_BYTES_MAX,
            },
            data: ClassLimits {
                frames_max: 16 * 1024,
                bytes_max: 8 * FRAME_BYTES_MAX,
                // The longest wait of a client.
                patience: Duration::from_secs(3),
                window_bytes: FRAME_BYTES_MAX,
                inbound_bytes_max: 16 * FRAME_BYTES_MAX,
            },
            bulk: ClassLimits {
                frames_max: 256,
                bytes_max: 4 * FRAME_BYTES_MAX,
                patience: Duration::from_secs(30),
                window_bytes: FRAME_BYTES_MAX / 4,
                inbound_bytes_max: 4 * FRAME_BYTES_MAX,
            },
            queued_bytes_max: 64 * FRAME_BYTES_MAX,
            timing: Timing::default(),
        }
    }

    /// Returns the limits of a class.
    pub fn class(&self, class: Class) -> &ClassLimits {
        match class {
            Class::Control => &self.control,
            Class::Data => &self.data,
            Class::Bulk => &self.bulk,
        }
    }
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            hello: Duration::from_secs(10),
            stall: Duration::from_secs(10),
            ping_interval: Duration::from_secs(5),
            ping_timeout: Duration::from_secs(10),
            idle: Duration::from_secs(10),
            quic_idle: Duration::from_secs(2),
            quic_keep_alive: Duration::from_millis(500),
            tcp_start: Duration::from_secs(1),
            tcp_retry_min: Duration::from_secs(60),
            tcp_retry_max: Duration::from_secs(600),
            redial_min: Duration::from_millis(100),
            redial_max: Duration::from_secs(5),
            refused_min: Duration::from_secs(60),
            refused_max: Duration::from_secs(600),
            wanted: Duration::from_secs(600),
        }
    }
}
