//! The start of a network, and its handles for the rest of the process.

use std::collections::HashSet;
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use bytes::Bytes;
use libp2p::core::muxing::StreamMuxerBox;
use libp2p::core::transport::{Boxed, TransportError};
use libp2p::core::upgrade::Version;
use libp2p::identity::Keypair;
use libp2p::{Multiaddr, PeerId, SwarmBuilder, Transport as _, noise, tcp, yamux};
use node::Class;
use overlay::{PeerKey, RingId};

use crate::config::NetConfig;
use crate::dial::addresses::via;
use crate::dial::tried::Tried;
use crate::driver::{Behaviour, Driver, FAREWELL};
use crate::event::{NetEvent, Outgoing, SendError, Transport};
use crate::identity::{Identity, peer_id_of};
use crate::linger::{Linger, PARTING};
use crate::quic;
use crate::shared::SharedNet;
use crate::stats::{NetStats, count};
use crate::stream::hello::NETWORK_BYTES_MAX;
use crate::stream::inbox::Wake;
use crate::stream::link::{CLASSES, Link};

/// Upper limit of a TCP connection's streams, of both sides: three classes each way, and libp2p's own. A hostile peer can
/// make this side hold 256 KiB for each stream that it never finishes, so a higher limit costs more memory.
const STREAMS_MAX: usize = 32;
/// Upper limit of the other side's simultaneous streams on a QUIC connection: three classes, libp2p's own, and closing
/// streams.
const QUIC_STREAMS_MAX: u32 = 16;
/// Bytes in flight of one class beyond its window, and libp2p's own bytes.
const QUIC_BYTES_MORE: usize = 64 * 1024;
const NOT_SPOKEN: &str = "the address is neither /ip…/…/tcp/PORT nor /ip…/…/udp/PORT/quic-v1";
/// Upper limit of one connection's streams with a hello under way.
const GREETINGS_MAX: usize = 16;

/// Reason for which a network did not start.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// No peer could connect under this address.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// The configured address.
        address: Multiaddr,
        /// The system's error.
        reason: String,
    },
    /// The name is empty, or longer than 64 bytes.
    #[error("a network's name has 1 to {NETWORK_BYTES_MAX} bytes")]
    NetworkName,
    /// The transport could not be set up.
    #[error("transport: {0}")]
    Transport(#[from] io::Error),
}

/// The network as its single owner holds it. It ends when this is dropped.
pub struct Net {
    handle: NetHandle,
    stopped: mpsc::Receiver<()>,
}

/// A handle to the network for any thread.
#[derive(Clone)]
pub struct NetHandle {
    shared: Arc<SharedNet>,
}

/// The network as the loop of one lane holds it.
pub struct NetPort {
    handle: NetHandle,
    lane: u8,
}

impl Net {
    /// Listens, and goes on in tasks of `runtime`, which needs its I/O and time drivers.
    ///
    /// There are as many lanes as `wakes`, at least one. Any thread calls a lane's wake when an event comes to wait for a
    /// [drain](Transport::drain) by that lane and none waited before. The wake must not wait; its purpose is to unpark the
    /// loop's thread.
    ///
    /// # Errors
    /// The network's name is invalid, an address cannot be bound, or the transport cannot be set up. No network runs then.
    pub fn start(
        config: NetConfig,
        identity: &Identity,
        runtime: &tokio::runtime::Handle,
        wakes: Vec<Wake>,
    ) -> Result<Net, NetError> {
        if config.network.is_empty() || config.network.len() > NETWORK_BYTES_MAX {
            return Err(NetError::NetworkName);
        }
        let _context = runtime.enter();
        let shared = Arc::new(SharedNet::new(identity.peer(), config, wakes));
        let behaviour = Behaviour::new(&shared, identity.keypair().public());
        let mut swarm = SwarmBuilder::with_existing_identity(identity.keypair().clone())
            .with_tokio()
            .with_other_transport(|key| transport(key, &shared.config))
            .map_err(io::Error::other)?
            .with_behaviour(|_| behaviour)
            .unwrap_or_else(|never| match never {})
            .with_swarm_config(|swarm| {
                swarm
                    .with_idle_connection_timeout(shared.config.timing.idle)
                    .with_max_negotiating_inbound_streams(GREETINGS_MAX)
            })
            .with_connection_timeout(shared.config.timing.hello)
            .build();

        let mut listeners = HashSet::new();
        for address in &shared.config.listen {
            if via(address).is_none() {
                return Err(NetError::Listen { address: address.clone(), reason: NOT_SPOKEN.into() });
            }
            let listener = swarm.listen_on(address.clone()).map_err(|error| listen_error(address, error))?;
            listeners.insert(listener);
        }

        let (stopped_tx, stopped) = mpsc::sync_channel(1);
        let driver = Driver::new(shared.clone(), swarm, listeners);
        runtime.spawn(async move {
            driver.run().await;
            // Tells a waiting shutdown; there may be none.
            let _ = stopped_tx.send(());
        });
        Ok(Net { handle: NetHandle { shared }, stopped })
    }

    /// Returns the handle for other threads.
    pub fn handle(&self) -> &NetHandle {
        &self.handle
    }

    /// Returns the port for the loop of a lane.
    pub fn port(&self, lane: u8) -> NetPort {
        NetPort { handle: self.handle.clone(), lane }
    }

    /// Stops the network: writes the queued frames of connected peers and closes connections, for two seconds at most. The
    /// call waits for that, so tasks of the runtime must not call it.
    pub fn shutdown(self) {
        self.handle.stop();
        let _ = self.stopped.recv_timeout(3 * FAREWELL);
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.handle.stop();
    }
}

impl Transport for NetPort {
    fn send_batch(&mut self, batch: &mut Vec<Outgoing>) {
        self.handle.send_batch(batch);
    }

    fn dial(&mut self, peer: PeerKey, addresses: &[String]) {
        self.handle.dial(peer, addresses);
    }

    fn set_ring(&mut self, ring: RingId) {
        self.handle.set_ring(ring);
    }

    fn drain(&mut self, into: &mut Vec<NetEvent>) -> usize {
        self.handle.shared.inbox.drain(self.lane, into)
    }
}

impl NetHandle {
    /// Returns this peer's key.
    pub fn peer(&self) -> PeerKey {
        self.shared.me
    }

    /// Returns this peer's id as libp2p writes it, for `/p2p/…`.
    pub fn peer_id(&self) -> PeerId {
        peer_id_of(&self.shared.me)
    }

    /// Queues a frame: one table lookup and one push, and a wake-up where the writer sleeps. For many frames at once
    /// [`NetHandle::send_batch`] is cheaper.
    ///
    /// # Errors
    /// The frame was not queued, and is counted: the peer is unknown, a queue is full, or the frame is too long.
    pub fn send(&self, peer: &PeerKey, class: Class, frame: Bytes) -> Result<(), SendError> {
        let Some(link) = self.shared.links.get(peer) else {
            count(&self.shared.counters.unknown_peer);
            return Err(SendError::UnknownPeer);
        };
        let queue = link.queue(class);
        if queue.push(frame, Instant::now())? {
            queue.wake();
        }
        Ok(())
    }

    /// Does the same as [`Transport::send_batch`].
    pub fn send_batch(&self, batch: &mut Vec<Outgoing>) {
        let now = Instant::now();
        // Woken at the end, so a writer finds all of its frames and flushes once.
        let mut sleeping: Vec<(Arc<Link>, Class)> = Vec::new();
        let mut link: Option<Arc<Link>> = None;
        for Outgoing { to, class, frame } in batch.drain(..) {
            if link.as_ref().is_none_or(|link| link.peer != to) {
                link = self.shared.links.get(&to);
            }
            let Some(link) = &link else {
                count(&self.shared.counters.unknown_peer);
                continue;
            };
            // The queue counts a frame that finds no room.
            if let Ok(true) = link.queue(class).push(frame, now) {
                sleeping.push((link.clone(), class));
            }
        }
        for (link, class) in sleeping {
            link.queue(class).wake();
        }
    }

    /// Does the same as [`Transport::dial`]. Beyond [`NetConfig::peers_max`] no further peer is remembered.
    pub fn dial(&self, peer: PeerKey, addresses: &[String]) {
        if peer == self.shared.me {
            return;
        }
        // Frames for the peer are queued from now on.
        if !self.shared.links.ask(peer) {
            count(&self.shared.counters.over_limit);
            return;
        }
        self.shared.orders.give(|orders| {
            let waiting = orders.dial.entry(peer).or_default();
            if !addresses.is_empty() {
                addresses.clone_into(waiting);
            }
        });
    }

    /// Does the same as [`Transport::set_ring`].
    pub fn set_ring(&self, ring: RingId) {
        if self.shared.set_ring(ring) {
            self.shared.orders.give(|orders| orders.check = true);
        }
    }

    /// Returns the dials while no peer is connected, with their results, as of the last second; empty where one is
    /// connected.
    pub fn tried(&self) -> Vec<Tried> {
        self.shared.tried()
    }

    /// Returns whether this peer is connected and a hello was accepted.
    pub fn is_up(&self, peer: &PeerKey) -> bool {
        self.shared.links.get(peer).is_some_and(|link| link.is_up())
    }

    /// Returns the counters so far.
    pub fn stats(&self) -> NetStats {
        let counters = &self.shared.counters;
        let mut peers: Vec<_> = self.shared.links.all().iter().map(|link| link.stats()).collect();
        peers.sort_by_key(|stats| stats.peer);
        NetStats {
            peers,
            connections: counters.connections.load(Ordering::Relaxed),
            queued_bytes: self.shared.links.queued_bytes(),
            dropped_unknown_peer: counters.unknown_peer.load(Ordering::Relaxed),
            refused: counters.refused.each_ref().map(|counter| counter.load(Ordering::Relaxed)),
            violations: counters.violations.load(Ordering::Relaxed),
            stalled: counters.stalled.load(Ordering::Relaxed),
            over_limit: counters.over_limit.load(Ordering::Relaxed),
        }
    }

    fn stop(&self) {
        self.shared.orders.give(|orders| orders.stop = true);
    }
}

impl fmt::Debug for NetHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NetHandle({:?})", self.shared.me)
    }
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Net({:?})", self.handle.shared.me)
    }
}

/// Builds TCP as libp2p's builder does, but with a transport that [lingers](Linger), and QUIC.
fn transport(
    key: &Keypair,
    config: &NetConfig,
) -> Result<Boxed<(PeerId, StreamMuxerBox)>, Box<dyn Error + Send + Sync>> {
    let mut yamux = yamux::Config::default();
    yamux.set_max_num_streams(STREAMS_MAX);
    let tcp = tcp::tokio::Transport::new(tcp::Config::new().nodelay(true))
        .map(|stream, _| Linger::new(stream, PARTING))
        .upgrade(Version::V1Lazy)
        .authenticate(noise::Config::new(key)?)
        .multiplex(yamux)
        .map(|(peer, connection), _| (peer, StreamMuxerBox::new(connection)));
    let quic = quic::QuicTransport::new(key, &quic_settings(config))?
        .map(|(peer, connection), _| (peer, StreamMuxerBox::new(connection)));
    Ok(tcp.or_transport(quic).map(|either, _| either.into_inner()).boxed())
}

/// Returns QUIC's settings for this peer's limits. QUIC's own windows only bound the memory that a peer can occupy if it
/// ignores this peer's windows.
fn quic_settings(config: &NetConfig) -> quic::QuicSettings {
    let bytes = |windows: usize| u32::try_from(windows + QUIC_BYTES_MORE).unwrap_or(u32::MAX);
    let windows = CLASSES.map(|class| config.class(class).window_bytes);
    quic::QuicSettings {
        idle: config.timing.quic_idle,
        keep_alive: config.timing.quic_keep_alive,
        streams_max: QUIC_STREAMS_MAX,
        stream_bytes_max: bytes(windows.into_iter().max().unwrap_or(0)),
        connection_bytes_max: bytes(windows.into_iter().map(|window| window + QUIC_BYTES_MORE).sum()),
    }
}

fn listen_error(address: &Multiaddr, error: TransportError<io::Error>) -> NetError {
    let reason = match error {
        TransportError::MultiaddrNotSupported(_) => NOT_SPOKEN.into(),
        TransportError::Other(error) => error.to_string(),
    };
    NetError::Listen { address: address.clone(), reason }
}
