//! The limits of connections. First among the behaviours: no other behaviour hears of a denied connection.
//!
//! libp2p's own limits keep an entry for every peer that was ever connected, and do not tell a stranger from a peer that
//! the local peer asked for.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use libp2p::core::Endpoint;
use libp2p::core::transport::PortUse;
use libp2p::swarm::{
    ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, THandler, THandlerInEvent, THandlerOutEvent, ToSwarm,
    dummy,
};
use libp2p::{Multiaddr, PeerId};

use crate::dial::addresses::ip_of;
use crate::identity::peer_key_of;
use crate::shared::SharedNet;
use crate::stats::count;

/// Upper limit of inbound connections with an unfinished handshake; never more than the limit of all connections.
const PENDING_IN_MAX: usize = 256;
/// The same limit for one address: a client that opens connections and sends nothing does not keep other peers out.
const PENDING_IN_PER_IP_MAX: usize = 64;
/// Upper limit of connections to one peer: two of simultaneous dials, and as many dead ones that are not yet detected.
const PER_PEER_MAX: usize = 4;

/// The limits and the connections that they count; see the module.
pub(crate) struct ConnectionLimits {
    shared: Arc<SharedNet>,
    /// Handshakes under way, with their source addresses.
    pending_in: HashMap<ConnectionId, Option<IpAddr>>,
    // Counted in `on_swarm_event` only: a connection that another behaviour denies later is never established, and would
    // never be uncounted.
    established: HashMap<ConnectionId, Established>,
    per_peer: HashMap<PeerId, HashSet<ConnectionId>>,
}

struct Established {
    peer: PeerId,
    /// Whether it came from a peer that the local peer had not asked for.
    stranger: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("limit of connections reached: {0}")]
struct OverLimit(&'static str);

impl ConnectionLimits {
    pub(crate) fn new(shared: Arc<SharedNet>) -> ConnectionLimits {
        ConnectionLimits { shared, pending_in: HashMap::new(), established: HashMap::new(), per_peer: HashMap::new() }
    }

    fn deny<T>(&self, what: &'static str) -> Result<T, ConnectionDenied> {
        count(&self.shared.counters.over_limit);
        Err(ConnectionDenied::new(OverLimit(what)))
    }

    fn is_wanted(&self, peer: &PeerId) -> bool {
        let link = peer_key_of(peer).and_then(|peer| self.shared.links.get(&peer));
        link.is_some_and(|link| link.wanted.load(Ordering::Relaxed))
    }

    fn check(&self, peer: &PeerId, stranger: bool) -> Result<dummy::ConnectionHandler, ConnectionDenied> {
        let max = self.shared.config.connections_max;
        if self.established.len() >= max {
            return self.deny("all");
        }
        let strangers = self.established.values().filter(|connection| connection.stranger).count();
        if stranger && strangers >= max - max / 4 {
            return self.deny("from peers that were not asked for");
        }
        if self.per_peer.get(peer).is_some_and(|connections| connections.len() >= PER_PEER_MAX) {
            return self.deny("with one peer");
        }
        Ok(dummy::ConnectionHandler)
    }
}

impl NetworkBehaviour for ConnectionLimits {
    type ConnectionHandler = dummy::ConnectionHandler;
    type ToSwarm = Infallible;

    fn handle_pending_inbound_connection(
        &mut self,
        connection: ConnectionId,
        _: &Multiaddr,
        from: &Multiaddr,
    ) -> Result<(), ConnectionDenied> {
        let ip = ip_of(from);
        if self.pending_in.len() >= PENDING_IN_MAX.min(self.shared.config.connections_max) {
            return self.deny("handshakes");
        }
        if self.pending_in.values().filter(|other| **other == ip).count() >= PENDING_IN_PER_IP_MAX {
            return self.deny("handshakes from one address");
        }
        self.pending_in.insert(connection, ip);
        Ok(())
    }

    fn handle_established_inbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: PeerId,
        _: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.pending_in.remove(&connection);
        self.check(&peer, !self.is_wanted(&peer))
    }

    fn handle_established_outbound_connection(
        &mut self,
        _: ConnectionId,
        peer: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.check(&peer, false)
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match event {
            FromSwarm::ConnectionEstablished(event) => {
                let stranger = event.endpoint.is_listener() && !self.is_wanted(&event.peer_id);
                self.established.insert(event.connection_id, Established { peer: event.peer_id, stranger });
                self.per_peer.entry(event.peer_id).or_default().insert(event.connection_id);
            }
            FromSwarm::ConnectionClosed(event) => {
                if let Some(connection) = self.established.remove(&event.connection_id)
                    && let Some(connections) = self.per_peer.get_mut(&connection.peer)
                {
                    connections.remove(&event.connection_id);
                    if connections.is_empty() {
                        self.per_peer.remove(&connection.peer);
                    }
                }
            }
            FromSwarm::ListenFailure(event) => drop(self.pending_in.remove(&event.connection_id)),
            _ => {}
        }
        self.shared.counters.connections.store(self.established.len() as u64, Ordering::Relaxed);
    }

    fn on_connection_handler_event(&mut self, _: PeerId, _: ConnectionId, event: THandlerOutEvent<Self>) {
        match event {}
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Infallible, THandlerInEvent<Self>>> {
        Poll::Pending
    }
}
