//! Starting a network, and what the rest of the process holds of it.

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

use super::addresses::via;
use super::config::NetConfig;
use super::driver::{Behaviour, Driver, FAREWELL};
use super::event::{NetEvent, Outgoing, SendError, Transport};
use super::hello::NETWORK_BYTES_MAX;
use super::identity::{Identity, peer_id_of};
use super::inbox::Wake;
use super::linger::{Linger, PARTING};
use super::link::{CLASSES, Link};
use super::quic;
use super::shared::Shared;
use super::stats::{NetStats, count};
use super::tried::Tried;

/// Streams of one connection at most, of both sides: three classes each way, and libp2p's own. What a hostile peer can
/// make us hold for streams that it never finishes goes up with it, at 256 KiB each.
const STREAMS_MAX: usize = 32;
/// Streams that the other side of a QUIC connection may have at one time: three classes, libp2p's own, and what parts.
const QUIC_STREAMS_MAX: u32 = 16;
/// What one class has on its way beyond its window, and what libp2p has of its own.
const QUIC_BYTES_MORE: usize = 64 * 1024;
const NOT_SPOKEN: &str = "it is neither /ip…/…/tcp/PORT nor /ip…/…/udp/PORT/quic-v1";
/// Streams of one connection whose hello is under way at most.
const GREETINGS_MAX: usize = 16;

/// Why a network did not start.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// Nobody could connect under this address.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// As configured.
        address: Multiaddr,
        /// What the system said.
        reason: String,
    },
    /// Empty, or longer than 64 bytes.
    #[error("a network's name has 1 to {NETWORK_BYTES_MAX} bytes")]
    NetworkName,
    /// The transport could not be set up.
    #[error("transport: {0}")]
    Transport(#[from] io::Error),
}

/// The network as its owner holds it: there is one of it. It ends when this is dropped.
pub struct Net {
    handle: NetHandle,
    stopped: mpsc::Receiver<()>,
}

/// The network as anybody may hold it.
#[derive(Clone)]
pub struct NetHandle {
    shared: Arc<Shared>,
}

/// The network as the loop of one lane holds it.
pub struct NetPort {
    handle: NetHandle,
    lane: u8,
}

impl Net {
    /// Listens, and goes on in tasks of `runtime`, which needs its I/O and time drivers.
    ///
    /// There are as many lanes as `wakes`, at least one. Each is called, from any thread, when something comes to wait that
    /// is to be [drained](Transport::drain) by that lane and nothing did before. It must not wait; unparking the loop's
    /// thread is what it is for.
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
        let shared = Arc::new(Shared::new(identity.peer(), config, wakes));
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

        let (stopped_tx, stopped) = mpsc::channel();
        let driver = Driver::new(shared.clone(), swarm, listeners);
        runtime.spawn(async move {
            driver.run().await;
            // Whoever waits learns it; nobody may.
            let _ = stopped_tx.send(());
        });
        Ok(Net { handle: NetHandle { shared }, stopped })
    }

    /// What other threads may hold.
    pub fn handle(&self) -> &NetHandle {
        &self.handle
    }

    /// What the loop of a lane holds.
    pub fn port(&self, lane: u8) -> NetPort {
        NetPort { handle: self.handle.clone(), lane }
    }

    /// Stops: what is queued for connected peers is written, connections are closed, for two seconds at most. Waits for
    /// that, so not to be called from a task of the runtime.
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
    /// Our own name.
    pub fn peer(&self) -> PeerKey {
        self.shared.me
    }

    /// Our own name as libp2p writes it, for `/p2p/…`.
    pub fn peer_id(&self) -> PeerId {
        peer_id_of(&self.shared.me)
    }

    /// Queues a frame: a look into a table and a push, and a wake-up where the writer sleeps. For many frames at once
    /// [`NetHandle::send_batch`] is cheaper.
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

    /// See [`Transport::send_batch`].
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
            // What finds no room is counted by the queue.
            if let Ok(true) = link.queue(class).push(frame, now) {
                sleeping.push((link.clone(), class));
            }
        }
        for (link, class) in sleeping {
            link.queue(class).wake();
        }
    }

    /// See [`Transport::dial`]. Beyond [`NetConfig::peers_max`] nobody is remembered.
    pub fn dial(&self, peer: PeerKey, addresses: &[String]) {
        if peer == self.shared.me {
            return;
        }
        // From now on frames for it are queued.
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

    /// See [`Transport::set_ring`].
    pub fn set_ring(&self, ring: RingId) {
        if self.shared.set_ring(ring) {
            self.shared.orders.give(|orders| orders.check = true);
        }
    }

    /// What is dialled while no peer is connected, and what came of it, as of the last second; empty where one is connected.
    pub fn tried(&self) -> Vec<Tried> {
        self.shared.tried()
    }

    /// Whether this peer is connected and its hello was accepted.
    pub fn is_up(&self, peer: &PeerKey) -> bool {
        self.shared.links.get(peer).is_some_and(|link| link.is_up())
    }

    /// What was counted so far.
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

/// TCP as libp2p's builder sets it up, but one that [lingers](Linger), and QUIC.
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
    let quic = quic::Transport::new(key, &quic_settings(config))?
        .map(|(peer, connection), _| (peer, StreamMuxerBox::new(connection)));
    Ok(tcp.or_transport(quic).map(|either, _| either.into_inner()).boxed())
}

/// What of QUIC follows from our limits. Windows are QUIC's own only so far as they bound what a peer can make us hold
/// that does not keep to ours.
fn quic_settings(config: &NetConfig) -> quic::Settings {
    let bytes = |windows: usize| u32::try_from(windows + QUIC_BYTES_MORE).unwrap_or(u32::MAX);
    let windows = CLASSES.map(|class| config.class(class).window_bytes);
    quic::Settings {
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
