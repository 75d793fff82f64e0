//! The network: frames between peers over libp2p, by TCP, Noise and Yamux, or by QUIC where TCP is not possible.
//!
//! Between two peers runs one long-lived stream per direction and [`Class`](node::Class). A stream begins with a hello and
//! its answer (`hello`). Then it carries length-prefixed frames one way (`frame`) and, the other way, the amount of them
//! that was consumed (`stream`). Each side writes only on the streams that it opened. There is no request and no answer at
//! this level: a frame may be lost, repeated or reordered, and the protocols above allow for it.
//!
//! The loop that drives a node is a plain thread. It hands frames to bounded queues ([`Transport::send_batch`]) and drains
//! arrived frames ([`Transport::drain`]); none of its calls ever waits for the network. A peer with several lanes has a
//! loop for each lane, and a frame names its lane.
//!
//! # Tasks and their waits
//! - A **writer** (a task per stream) takes the content of its queue, at most 256 frames, writes them and flushes once.
//! - A **reader** (a task per stream) waits where the loop is behind: it stops reading and confirming, and the sender's
//!   window closes. Each class has its own budget, so bulk never holds up a heartbeat.
//! - The **swarm task** never waits for anything but the network: no store, no lock that is held for long, no full channel.
//!   While it is not polled, every stream of every connection stalls.
//!
//! # Bulk beside heartbeats
//! All classes of a peer share one connection, and a window per class bounds the bytes in flight. It is 256 KiB for bulk,
//! so a heartbeat finds at most that much before it in the sockets. A second connection for bulk would keep them apart as
//! well, but costs another handshake, another 54 KiB and another hole in the NAT per peer.
//!
//! # TCP and QUIC
//! TCP is dialled first. QUIC is dialled as soon as TCP has failed, or after a second without success: a filter that
//! swallows packets costs no more than that (`redial`). The results of both are used. Streams are opened on the first
//! established connection, and move to a TCP connection as soon as a hello was accepted there, at an end of a frame
//! (`behaviour`, `stream`). While a peer is connected by QUIC alone, TCP is tried again after a minute, and then less and
//! less often. So a moment without TCP has no lasting effect. A connection that streams have left is not written to again,
//! so two unstable connections cannot make streams move back and forth. When the other connection breaks, it is closed as
//! well, and dialling begins anew.
//!
//! On QUIC a dead peer is detected by its silence, after two and a half seconds at most ([`Timing::quic_idle`]). On TCP its
//! death is detected at once where the process dies and its system reports it. A frozen process, or a machine that is gone,
//! is detected only by missing heartbeats, which the group watches, and much later by pings.
//!
//! # Workarounds for libp2p
//! | libp2p alone would | so here |
//! | --- | --- |
//! | lose dials and streams where streams are opened by peer (libp2p-stream) | a behaviour of our own opens them by connection, after it is established (`behaviour`, `handler`) |
//! | lose some of many streams opened at once, silently | a stream counts only after its hello was answered (`hello`) |
//! | never forget a peer it once saw (libp2p-stream, connection-limits) | our own tables, cleaned when the last connection closes (`behaviour`, `limits`) |
//! | fail both of two simultaneous dials that reuse the listening port | every dial takes a new port (`redial`); two connections are fine |
//! | stall all streams of a connection while seven events of it are unread | frames never pass through the swarm (`handler`) |
//! | close a connection whose streams are silent after 10 s, on the side that does not hold them | both sides hold theirs (`handler`) |
//! | reset a connection that it closes while data is under way to it, with its own last frames | a side that closes reads until the other has closed too (`linger`) |
//! | count a refused connection as established | counts are kept in `on_swarm_event` only (`limits`, `behaviour`) |
//! | dial all addresses of a peer at once and take the first | TCP has a start (`redial`) |
//!
//! The differences to libp2p's QUIC are in [`quic`].
//!
//! # Examples
//!
//! ```
//! use net::{Identity, NetConfig, NetworkKey, complaint, peer_id_of};
//! use node::Class;
//!
//! // Entry into a closed network through one known peer: no other process is accepted at its address.
//! let known = Identity::random();
//! let entry = format!("/ip4/192.0.2.1/tcp/7400/p2p/{}", peer_id_of(&known.peer()));
//! assert_eq!(complaint(&entry, true), None);
//! let config = NetConfig {
//!     listen: vec!["/ip4/0.0.0.0/tcp/7400".parse()?, "/ip4/0.0.0.0/udp/7400/quic-v1".parse()?],
//!     join: vec![entry.parse()?],
//!     network_key: Some(NetworkKey::from_passphrase(b"a long secret of all peers")),
//!     ..NetConfig::new("example")
//! };
//!
//! // A heartbeat that waited for four intervals is dropped; bulk may wait longer.
//! assert!(config.class(Class::Control).patience < config.class(Class::Bulk).patience);
//! assert!(complaint("/dns4/example.org/tcp/7400", true).is_some_and(|text| text.contains("IP address")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod behaviour;
mod config;
mod dial;
mod driver;
mod event;
#[doc(hidden)]
pub mod fuzz;
#[cfg(test)]
mod golden_test;
mod handler;
mod identity;
mod limits;
mod linger;
mod network_key;
#[doc(hidden)]
pub mod quic;
mod shared;
mod start;
mod stats;
mod stream;

pub use config::{ClassLimits, NetConfig, Timing};
pub use dial::addresses::complaint;
pub use dial::tried::{DialOutcome, Tried, hopeless, told};
pub use event::{NetEvent, Outgoing, RefusedBy, SendError, Transport, Via};
pub use identity::{Identity, IdentityError, peer_id_of, peer_key_of};
pub use libp2p::{Multiaddr, PeerId};
pub use network_key::{NetworkKey, NetworkKeyError};
pub use start::{Net, NetError, NetHandle, NetPort};
pub use stats::{ClassStats, NetStats, PeerStats};
pub use stream::frame::FRAME_BYTES_MAX;
pub use stream::hello::{Refusal, Refused};
pub use stream::inbox::Wake;
