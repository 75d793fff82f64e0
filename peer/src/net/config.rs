//! What a network is told at start.

use std::time::Duration;

use libp2p::Multiaddr;
use node::Class;
use overlay::RingId;

use super::frame::FRAME_BYTES_MAX;
use super::network_key::NetworkKey;

/// How this peer takes part in a network.
#[derive(Clone, Debug)]
pub struct NetConfig {
    /// Where to listen, by TCP and QUIC. What cannot be bound is an error.
    pub listen: Vec<Multiaddr>,
    /// Peers to enter through, redialled for ever while not connected. With `/p2p/…` only that peer is accepted.
    pub join: Vec<Multiaddr>,
    /// Only peers of the same name talk to each other. At most 64 bytes.
    pub network: String,
    /// Only peers that hold the same key talk to each other; `None` is an open network.
    pub network_key: Option<NetworkKey>,
    /// What this peer acknowledges is on disks, not only in memory: the same in the whole network.
    pub durable: bool,
    /// The ring this peer already belongs to, from its store. `None` until it founds or joins one.
    pub ring: Option<RingId>,
    /// Find peers on the local network by mDNS.
    pub mdns: bool,
    /// Dial private and loopback addresses. Off, a public server never probes a hoster's inner network for others.
    pub dial_private: bool,
    /// Established connections at most, in both directions. A quarter is kept from peers that we did not ask for, so
    /// strangers cannot shut us off from members.
    pub connections_max: usize,
    /// Peers at most that [`dial`](super::Transport::dial) remembers.
    pub peers_max: usize,
    /// Limits of the control class: few, small, and the newest word counts.
    pub control: ClassLimits,
    /// Limits of the data class.
    pub data: ClassLimits,
    /// Limits of the bulk class.
    pub bulk: ClassLimits,
    /// Bytes at most in all outgoing queues of all peers together.
    pub queued_bytes_max: usize,
    /// How long things take.
    pub timing: Timing,
}

/// Limits of one class; per peer unless it says otherwise.
#[derive(Clone, Debug)]
pub struct ClassLimits {
    /// Frames waiting at most.
    pub frames_max: usize,
    /// Bytes waiting at most.
    pub bytes_max: usize,
    /// A frame that waited longer is dropped: whoever sent it has given up by then.
    pub patience: Duration,
    /// Bytes on their way at most, sent but not consumed by the other side's loop. Bounds what a later frame of another
    /// class finds before it in the sockets, and what a stalled peer costs.
    pub window_bytes: usize,
    /// Bytes of *all* peers that wait for our loop at most; beyond it readers stop reading.
    pub inbound_bytes_max: usize,
}

/// How long things take. Tests shorten them.
#[derive(Clone, Debug)]
pub struct Timing {
    /// From a stream's opening to the answer of its hello; a connection without any accepted hello lives half as long
    /// again.
    pub hello: Duration,
    /// A write or a confirmation that makes no progress for so long ends the connection: the peer is stopped or gone.
    pub stall: Duration,
    /// Between two pings. Their round trip is shown in the statistics.
    pub ping_interval: Duration,
    /// A ping unanswered for so long, twice, ends the connection.
    pub ping_timeout: Duration,
    /// A connection that carries no stream is closed after this time: the spare one of two simultaneous dials.
    pub idle: Duration,
    /// Silence on QUIC for so long ends the connection; the shorter of both sides' counts. The peer is noticed to be dead
    /// after this and [`Timing::quic_keep_alive`].
    pub quic_idle: Duration,
    /// Something is said on QUIC at least so often. Several fit into [`Timing::quic_idle`]: packets are lost.
    pub quic_keep_alive: Duration,
    /// The start that TCP has before QUIC: long enough for its handshakes between continents.
    pub tcp_start: Duration,
    /// First pause before TCP is tried again while a peer is reached by QUIC; doubles up to `tcp_retry_max`, jittered.
    pub tcp_retry_min: Duration,
    /// Longest pause before TCP is tried again.
    pub tcp_retry_max: Duration,
    /// First pause before a peer is dialled again; doubles up to `redial_max`, jittered.
    pub redial_min: Duration,
    /// Longest pause before a peer is dialled again.
    pub redial_max: Duration,
    /// First pause after a refusal; doubles up to `refused_max`. Long: nothing changes unless a person changes it.
    pub refused_min: Duration,
    /// Longest pause after refusals.
    pub refused_max: Duration,
    /// A peer that was asked for and not reached for so long is forgotten until asked for again.
    pub wanted: Duration,
}

impl NetConfig {
    /// A network of this name, with the usual limits: nobody to join, nowhere to listen.
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
                // Four missed heartbeats: by then the next ones say more.
                patience: Duration::from_secs(2),
                window_bytes: FRAME_BYTES_MAX,
                inbound_bytes_max: 4 * FRAME_BYTES_MAX,
            },
            data: ClassLimits {
                frames_max: 16 * 1024,
                bytes_max: 8 * FRAME_BYTES_MAX,
                // The longest that a client waits.
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

    /// The limits of a class.
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
