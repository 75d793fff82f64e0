//! The task that polls the swarm: it dials, closes, and reports. It waits for nothing but the network.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use libp2p::core::transport::ListenerId;
use libp2p::futures::StreamExt;
use libp2p::swarm::behaviour::toggle::Toggle;
use libp2p::swarm::dial_opts::{DialOpts, PeerCondition};
use libp2p::swarm::{NetworkBehaviour, SwarmEvent};
use libp2p::{PeerId, Swarm, identify, mdns, ping};
use tokio::time::{MissedTickBehavior, sleep_until, timeout};

use crate::behaviour::{Streams, StreamsEvent};
use crate::dial::addresses::{Ours, dialable, is_dialable, split, via_of_connection};
use crate::dial::redial::{ADDRESSES_MAX, Attempt, Due, Redial, Target, Until};
use crate::dial::tried::DialOutcome;
use crate::event::{NetEvent, Via};
use crate::identity::{peer_id_of, peer_key_of};
use crate::limits::ConnectionLimits;
use crate::shared::{PendingOrders, SharedNet};

/// Interval of the work that has no event of its own.
const TICK: Duration = Duration::from_secs(1);
/// Pause after the last new address before the addresses are reported: addresses that come up together are reported
/// together.
const SETTLE: Duration = Duration::from_millis(20);
/// Longest wait at the start for an address of each listener: a listener may have none.
const SILENT_MAX: Duration = Duration::from_secs(1);
/// Time at the end for the queued frames, and again for connections to close.
pub(crate) const FAREWELL: Duration = Duration::from_secs(1);

/// The behaviours that libp2p runs on each connection. `limits` first: no other behaviour hears of a denied connection.
#[derive(NetworkBehaviour)]
pub(crate) struct Behaviour {
    limits: ConnectionLimits,
    streams: Streams,
    identify: identify::Behaviour,
    ping: ping::Behaviour,
    mdns: Toggle<mdns::tokio::Behaviour>,
}

/// The state of the task; see the module.
pub(crate) struct Driver {
    shared: Arc<SharedNet>,
    swarm: Swarm<Behaviour>,
    redial: Redial,
    ours: Ours,
    told: Vec<String>,
    /// When to check for new addresses to report.
    tell_at: Option<Instant>,
    /// The listeners that have not reported an address yet; after this time they are ignored.
    silent: (HashSet<ListenerId>, Instant),
}

impl Behaviour {
    pub(crate) fn new(shared: &Arc<SharedNet>, key: libp2p::identity::PublicKey) -> Behaviour {
        let timing = &shared.config.timing;
        let me = key.to_peer_id();
        let mdns = shared.config.mdns.then(|| mdns::tokio::Behaviour::new(mdns::Config::default(), me));
        let mdns = mdns.and_then(|mdns| {
            mdns.inspect_err(|error| tracing::warn!(%error, "no discovery on the local network")).ok()
        });
        let identify = identify::Config::new(crate::stream::hello::PROTOCOL.into(), key)
            .with_agent_version(concat!("scatter/", env!("CARGO_PKG_VERSION")).into())
            // This peer takes addresses from peers that vouch for them, not from any peer that connects.
            .with_cache_size(0);
        let ping = ping::Config::new().with_interval(timing.ping_interval).with_timeout(timing.ping_timeout);
        Behaviour {
            limits: ConnectionLimits::new(shared.clone()),
            streams: Streams::new(shared.clone()),
            identify: identify::Behaviour::new(identify),
            ping: ping::Behaviour::new(ping),
            mdns: mdns.into(),
        }
    }
}

impl Driver {
    pub(crate) fn new(shared: Arc<SharedNet>, swarm: Swarm<Behaviour>, listeners: HashSet<ListenerId>) -> Driver {
        let mut redial = Redial::new(shared.config.timing.clone());
        let now = Instant::now();
        for address in &shared.config.join {
            let Some((at, peer)) = split(address.clone()) else {
                tracing::warn!(%address, "this address names no peer of this program");
                continue;
            };
            if peer == Some(shared.me) {
                continue;
            }
            if !is_dialable(&at, true) {
                tracing::warn!(%address, "neither /ip…/…/tcp/… nor /ip…/…/udp/…/quic-v1: this address cannot be dialled");
                continue;
            }
            let target = peer.map_or(Target::Door(at.clone()), Target::Peer);
            redial.add(target, at, Until::Forever, None, now);
        }
        let silent = (listeners, now + SILENT_MAX);
        Driver { shared, swarm, redial, ours: Ours::default(), told: Vec::new(), tell_at: None, silent }
    }

    /// Runs until it is told to stop.
    pub(crate) async fn run(mut self) {
        let shared = self.shared.clone();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.dial_due();
            let dial_at = self.redial.next();
            let dial_due = sleep_until(dial_at.unwrap_or_else(Instant::now).into());
            let tell_due = sleep_until(self.tell_at.unwrap_or_else(Instant::now).into());
            tokio::select! {
                event = self.swarm.select_next_some() => self.on_event(event),
                orders = shared.orders.take() => {
                    if self.carry_out(orders) {
                        break;
                    }
                }
                _ = tick.tick() => self.tick(),
                () = dial_due, if dial_at.is_some() => {}
                () = tell_due, if self.tell_at.is_some() => self.tell_addresses(),
            }
        }
        self.farewell().await;
        shared.inbox.close();
    }

    fn on_event(&mut self, event: SwarmEvent<BehaviourEvent>) {
        let now = Instant::now();
        match event {
            SwarmEvent::Behaviour(BehaviourEvent::Streams(event)) => match event {
                StreamsEvent::Accepted(peer) => {
                    self.redial.note_peer(peer, None);
                    self.redial.accepted(peer, now);
                }
                StreamsEvent::Refused(peer, words) => {
                    self.redial.note_peer(peer, Some(DialOutcome { words, lasting: true }));
                    self.redial.refused(peer, now);
                }
                StreamsEvent::Broken(peer, words) => {
                    self.redial.note_peer(peer, Some(DialOutcome { words, lasting: false }))
                }
                StreamsEvent::TcpGone(peer) => self.redial.tcp_gone(peer, now),
                StreamsEvent::Gone(peer) => self.redial.gone(peer, now),
            },
            SwarmEvent::Behaviour(BehaviourEvent::Ping(event)) => self.on_ping(event),
            SwarmEvent::Behaviour(BehaviourEvent::Identify(identify::Event::Received { peer_id, info, .. })) => {
                self.ours.observed(&info.observed_addr, peer_id);
                self.addresses_changed(now);
            }
            SwarmEvent::Behaviour(BehaviourEvent::Mdns(event)) => self.on_mdns(event, now),
            SwarmEvent::ConnectionEstablished { peer_id, connection_id, endpoint, .. } => {
                if let Some(peer) = peer_key_of(&peer_id) {
                    let via = via_of_connection(endpoint.get_remote_address());
                    self.redial.connected(peer, connection_id, via, now);
                }
            }
            SwarmEvent::ConnectionClosed { peer_id, cause, .. } => {
                tracing::debug!(peer = %peer_id, ?cause, "a connection closed");
            }
            SwarmEvent::OutgoingConnectionError { connection_id, peer_id, error } => {
                tracing::debug!(?peer_id, %error, "a dial failed");
                self.redial.note_dial(connection_id, &error);
                self.redial.failed(connection_id, now);
            }
            SwarmEvent::IncomingConnectionError { error, .. } => {
                tracing::debug!(%error, "a handshake failed")
            }
            SwarmEvent::NewListenAddr { address, listener_id } => {
                self.ours.listening(address);
                self.silent.0.remove(&listener_id);
                self.addresses_changed(now);
            }
            SwarmEvent::ExpiredListenAddr { address, .. } => {
                self.ours.expired(&address);
                self.addresses_changed(now);
            }
            SwarmEvent::ListenerClosed { addresses, reason, listener_id } => {
                tracing::error!(?addresses, ?reason, "no longer listening");
                addresses.iter().for_each(|address| self.ours.expired(address));
                self.silent.0.remove(&listener_id);
                self.addresses_changed(now);
            }
            SwarmEvent::ListenerError { error, .. } => {
                tracing::warn!(%error, "could not accept a connection")
            }
            _ => {}
        }
    }

    fn on_ping(&mut self, ping::Event { peer, connection, result }: ping::Event) {
        match result {
            Ok(rtt) => {
                let link = peer_key_of(&peer).and_then(|peer| self.shared.links.get(&peer));
                if let Some(link) = link {
                    link.set_rtt(rtt);
                }
            }
            Err(ping::Failure::Unsupported) => {}
            // libp2p does not report the first failure in a row: this is the second.
            Err(_) => self.swarm.behaviour_mut().streams.close(peer, connection),
        }
    }

    fn on_mdns(&mut self, event: mdns::Event, now: Instant) {
        let mdns::Event::Discovered(found) = event else {
            return;
        };
        for (peer_id, address) in found {
            let Some((address, _)) = split(address) else {
                continue;
            };
            if let Some(peer) = peer_key_of(&peer_id).filter(|_| is_dialable(&address, true)) {
                let connected = self.via(&peer_id);
                self.redial.add(Target::Peer(peer), address, Until::Found, connected, now);
            }
        }
    }

    /// Carries out the orders, and returns whether they told the task to stop.
    fn carry_out(&mut self, orders: PendingOrders) -> bool {
        let now = Instant::now();
        for (peer, texts) in orders.dial {
            let addresses = dialable(&peer, &texts, self.shared.config.dial_private, ADDRESSES_MAX);
            let connected = self.via(&peer_id_of(&peer));
            let until = Until::Wanted(now + self.shared.config.timing.wanted);
            self.redial.want(Target::Peer(peer), addresses, until, connected, now);
            if let Some(link) = self.shared.links.get(&peer) {
                link.asked.store(false, Ordering::Relaxed);
            }
        }
        for (peer_id, connection) in orders.close {
            self.swarm.behaviour_mut().streams.close(peer_id, connection);
        }
        if orders.check {
            self.swarm.behaviour_mut().streams.check();
        }
        orders.stop
    }

    fn dial_due(&mut self) {
        let now = Instant::now();
        for due in self.redial.due(now) {
            // Every dial takes a port of its own: two dials that leave from their listening ports towards each other
            // can both fail. Both may succeed then, and two connections are fine.
            let dial = match (&due.target, due.addresses.first()) {
                (Target::Peer(peer), _) => DialOpts::peer_id(peer_id_of(peer))
                    .addresses(due.addresses.clone())
                    .condition(condition(&due))
                    .allocate_new_port()
                    .build(),
                (Target::Door(_), Some(address)) => {
                    DialOpts::unknown_peer_id().address(address.clone()).allocate_new_port().build()
                }
                (Target::Door(_), None) => continue,
            };
            let id = dial.connection_id();
            self.redial.dialing(&due, id, now);
            if let Err(error) = self.swarm.dial(dial) {
                tracing::debug!(target = ?due.target, %error, "a dial could not be started");
                self.redial.note_dial(id, &error);
                self.redial.failed(id, now);
            }
        }
    }

    fn via(&self, peer: &PeerId) -> Option<Via> {
        self.swarm.behaviour().streams.via(peer)
    }

    fn tick(&mut self) {
        let now = Instant::now();
        let streams = &mut self.swarm.behaviour_mut().streams;
        streams.tick(now);
        let redial = &self.redial;
        self.shared.links.retain(|link| {
            let is_wanted = redial.is_wanted(&link.peer);
            let is_asked = link.asked.load(Ordering::Relaxed);
            link.wanted.store(is_wanted || is_asked, Ordering::Relaxed);
            if !link.is_up() {
                link.expire(now);
            }
            is_wanted || link.is_up() || streams.is_connected(&peer_id_of(&link.peer))
        });
        // No caller asks for the dials while a peer is connected.
        let is_alone = !self.shared.links.all().iter().any(|link| link.is_up());
        self.shared.set_tried(if is_alone { self.redial.tried() } else { Vec::new() });
    }

    fn addresses_changed(&mut self, now: Instant) {
        let (silent, until) = &self.silent;
        let settled = now + SETTLE;
        self.tell_at = Some(if silent.is_empty() { settled } else { settled.max(*until) });
    }

    fn tell_addresses(&mut self) {
        self.tell_at = None;
        let told = self.ours.told();
        if told != self.told {
            self.told.clone_from(&told);
            self.shared.inbox.tell(NetEvent::Addresses(told));
        }
    }

    /// Lets writers finish and connections close, for a moment.
    async fn farewell(mut self) {
        let deadline = Instant::now() + FAREWELL;
        while Instant::now() < deadline && self.shared.links.all().iter().any(|link| link.is_up() && !link.is_drained())
        {
            let _ = timeout(Duration::from_millis(5), self.swarm.select_next_some()).await;
        }
        let peers: Vec<PeerId> = self.swarm.connected_peers().copied().collect();
        for peer in peers {
            let _ = self.swarm.disconnect_peer_id(peer);
        }
        let deadline = Instant::now() + FAREWELL;
        while Instant::now() < deadline && self.swarm.network_info().num_peers() > 0 {
            let _ = timeout(Duration::from_millis(50), self.swarm.select_next_some()).await;
        }
    }
}

/// Returns the condition of a dial: a peer without a connection or dial is dialled once; other attempts run beside
/// those.
fn condition(due: &Due) -> PeerCondition {
    match due.attempt {
        Attempt::First => PeerCondition::DisconnectedAndNotDialing,
        Attempt::Second | Attempt::Better => PeerCondition::Always,
    }
}
