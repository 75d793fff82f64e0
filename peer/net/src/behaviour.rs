//! The connections to each peer: the one that this peer writes on, and those that have to be closed.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use libp2p::core::Endpoint;
use libp2p::core::transport::PortUse;
use libp2p::swarm::{
    CloseConnection, ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, NotifyHandler, THandler,
    THandlerInEvent, THandlerOutEvent, ToSwarm,
};
use libp2p::{Multiaddr, PeerId};
use overlay::PeerKey;

use crate::dial::addresses::via_of_connection;
use crate::event::{NetEvent, RefusedBy, Via};
use crate::handler::{Attached, ConnectionReport, Handler, Order};
use crate::identity::peer_key_of;
use crate::shared::SharedNet;
use crate::stream::hello::Refused;
use crate::stream::link::Link;

/// Time that a refused peer may take to close the connection itself, after it has read the reason.
const REFUSED_LINGER: Duration = Duration::from_secs(2);

/// Events of the behaviour for the driver.
#[derive(Debug)]
pub(crate) enum StreamsEvent {
    /// A hello between the local peer and this one was accepted, by either side.
    Accepted(PeerKey),
    /// One side refused the other: the peer, and the reason for administrators.
    Refused(PeerKey, String),
    /// A connection is of no use, and closed: the peer, and the reason for administrators.
    Broken(PeerKey, String),
    /// No TCP connection is left, but a QUIC connection is.
    TcpGone(PeerKey),
    /// The last connection is gone.
    Gone(PeerKey),
}

/// The behaviour that opens streams by connection; see the module.
pub(crate) struct Streams {
    shared: Arc<SharedNet>,
    // Filled in `on_swarm_event` only: a connection that a handler was made for may still be denied.
    peers: HashMap<PeerId, ConnectedPeer>,
    actions: VecDeque<ToSwarm<StreamsEvent, Order>>,
    waker: Option<Waker>,
}

struct ConnectedPeer {
    link: Arc<Link>,
    connections: Vec<PeerConnection>,
    /// The connection that the local peer writes on.
    writing: ConnectionId,
}

struct PeerConnection {
    id: ConnectionId,
    via: Via,
    accepted: bool,
    /// The local peer's streams have moved from it to another connection, for good.
    left: bool,
    /// When it is closed without an accepted hello, or, after a refusal, in any case.
    until: Instant,
    refused: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("its key is not an ed25519 key")]
struct ForeignKey;

impl ConnectedPeer {
    /// Returns whether a connection by `via` would be better than the one that the local peer writes on.
    fn would_be_better(&self, via: Via) -> bool {
        let writing = self.connections.iter().find(|connection| connection.id == self.writing);
        writing.is_some_and(|writing| via < writing.via)
    }

    /// Notes that a hello was accepted on this connection. If it is better than the connection that the local peer writes
    /// on, moves there, and returns the connection that was left.
    fn accepted(&mut self, id: ConnectionId) -> Option<ConnectionId> {
        let connection = self.connections.iter_mut().find(|other| other.id == id)?;
        connection.accepted = true;
        let via = connection.via;
        if connection.refused || !self.would_be_better(via) {
            return None;
        }
        self.link.set_via(Some(via));
        let left = std::mem::replace(&mut self.writing, id);
        self.connections.iter_mut().filter(|other| other.id == left).for_each(|other| other.left = true);
        Some(left)
    }

    /// Returns the connection to write on after the present one is gone.
    fn next(&self) -> Option<(ConnectionId, Via)> {
        let usable = self.connections.iter().filter(|connection| !connection.left && !connection.refused);
        usable.min_by_key(|connection| connection.via).map(|connection| (connection.id, connection.via))
    }
}

impl Streams {
    pub(crate) fn new(shared: Arc<SharedNet>) -> Streams {
        Streams { shared, peers: HashMap::new(), actions: VecDeque::new(), waker: None }
    }

    /// Closes connections without a result. Cheap; called about every second.
    pub(crate) fn tick(&mut self, now: Instant) {
        let due = |peer: (&PeerId, &ConnectedPeer)| -> Vec<(PeerId, ConnectionId)> {
            let due = peer.1.connections.iter().filter(|c| (c.refused || !c.accepted) && c.until <= now);
            due.map(|connection| (*peer.0, connection.id)).collect()
        };
        let due: Vec<_> = self.peers.iter().flat_map(due).collect();
        for (peer_id, connection) in due {
            self.close(peer_id, connection);
        }
    }

    /// Closes a connection, if it still exists.
    pub(crate) fn close(&mut self, peer_id: PeerId, connection: ConnectionId) {
        self.act(ToSwarm::CloseConnection { peer_id, connection: CloseConnection::One(connection) });
    }

    /// Sends the hello once more to every peer, so that peers of another ring are detected.
    pub(crate) fn check(&mut self) {
        let connections: Vec<_> = self.peers.iter().map(|(peer_id, peer)| (*peer_id, peer.writing)).collect();
        for (peer_id, connection) in connections {
            self.order(peer_id, connection, Order::Check);
        }
    }

    /// Returns whether there is a connection to this peer, accepted or not.
    pub(crate) fn is_connected(&self, peer: &PeerId) -> bool {
        self.peers.contains_key(peer)
    }

    /// Returns how this peer is connected, if it is: by TCP, where by both.
    pub(crate) fn via(&self, peer: &PeerId) -> Option<Via> {
        self.peers.get(peer)?.connections.iter().map(|connection| connection.via).min()
    }

    fn established(&mut self, peer_id: PeerId, connection: ConnectionId, via: Via) {
        let Some(key) = peer_key_of(&peer_id) else {
            return;
        };
        // Half as long again as a hello may take: streams are opened one after the other.
        let until = Instant::now() + self.shared.config.timing.hello * 3 / 2;
        let shared = &self.shared;
        let peer = self.peers.entry(peer_id).or_insert_with(|| ConnectedPeer {
            link: shared.links.get_or_add(key),
            connections: Vec::new(),
            writing: connection,
        });
        if !peer.connections.iter().any(|other| other.id == peer.writing) {
            // All other connections are refused, or being closed.
            peer.writing = connection;
        }
        peer.connections.push(PeerConnection {
            id: connection,
            via,
            accepted: false,
            left: false,
            until,
            refused: false,
        });
        let (link, is_first, is_better) = (peer.link.clone(), peer.writing == connection, peer.would_be_better(via));
        if is_first {
            link.set_via(Some(via));
        }
        // Streams are opened only now, after the connection is established: before that they might never come about.
        self.order(peer_id, connection, Order::Attach(Attached(link)));
        if is_first {
            self.order(peer_id, connection, Order::Open);
        } else if is_better {
            // Streams move only to a connection that carried a hello.
            self.order(peer_id, connection, Order::Check);
        }
    }

    fn accepted(&mut self, peer_id: PeerId, connection: ConnectionId) {
        let Some(peer) = self.peers.get_mut(&peer_id) else {
            return;
        };
        let (key, left) = (peer.link.peer, peer.accepted(connection));
        if let Some(left) = left {
            tracing::debug!(peer = %peer_id, "from QUIC to TCP");
            self.order(peer_id, connection, Order::Open);
            self.order(peer_id, left, Order::Leave);
        }
        self.act(ToSwarm::GenerateEvent(StreamsEvent::Accepted(key)));
    }

    fn closed(&mut self, peer_id: PeerId, connection: ConnectionId) {
        let Some(peer) = self.peers.get_mut(&peer_id) else {
            return;
        };
        let was_tcp = peer.connections.iter().any(|other| other.id == connection && other.via == Via::Tcp);
        peer.connections.retain(|other| other.id != connection);
        peer.link.closed(connection, &self.shared.inbox);
        let only_quic = !peer.connections.is_empty() && peer.connections.iter().all(|other| other.via == Via::Quic);
        let tcp_gone = Some(peer.link.peer).filter(|_| was_tcp && only_quic);
        // Of simultaneous dials two connections remain: the peer is gone with the last of them.
        if peer.connections.is_empty() {
            let key = peer.link.peer;
            peer.link.set_via(None);
            self.peers.remove(&peer_id);
            self.act(ToSwarm::GenerateEvent(StreamsEvent::Gone(key)));
        } else if peer.writing == connection {
            match peer.next() {
                Some((next, via)) => {
                    peer.writing = next;
                    peer.link.set_via(Some(via));
                    self.order(peer_id, next, Order::Open);
                }
                // A connection that was left is not taken up again: dialling begins anew.
                None => {
                    let left = peer.connections.iter().filter(|connection| connection.left);
                    let left: Vec<_> = left.map(|connection| connection.id).collect();
                    left.into_iter().for_each(|connection| self.close(peer_id, connection));
                }
            }
        }
        if let Some(key) = tcp_gone {
            self.act(ToSwarm::GenerateEvent(StreamsEvent::TcpGone(key)));
        }
    }

    fn refused(&mut self, peer_id: PeerId, connection: ConnectionId, refused: &Refused, by: RefusedBy) {
        let Some(peer) = self.peers.get_mut(&peer_id) else {
            return;
        };
        let key = peer.link.peer;
        let Some(connection) = peer.connections.iter_mut().find(|other| other.id == connection) else {
            return;
        };
        if std::mem::replace(&mut connection.refused, true) {
            return; // Its other streams are refused too.
        }
        connection.until = Instant::now() + REFUSED_LINGER;
        let id = connection.id;
        if by == RefusedBy::Them {
            self.close(peer_id, id);
        }
        // A peer that keeps coming back does not fill the log.
        let reason = refused.reason;
        if self.shared.counters.refused(reason).is_power_of_two() {
            match by {
                RefusedBy::Us => tracing::warn!(peer = %peer_id, reason = %refused, "refused a peer"),
                RefusedBy::Them => tracing::warn!(peer = %peer_id, reason = %refused, "a peer refused this peer"),
            }
        }
        self.shared.inbox.tell(NetEvent::Refused { peer: key, reason, by });
        let words = match by {
            RefusedBy::Us => format!("refused {peer_id}: {refused}"),
            RefusedBy::Them => format!("refused by {peer_id}: {refused}"),
        };
        self.act(ToSwarm::GenerateEvent(StreamsEvent::Refused(key, words)));
    }

    fn order(&mut self, peer_id: PeerId, connection: ConnectionId, event: Order) {
        self.act(ToSwarm::NotifyHandler { peer_id, handler: NotifyHandler::One(connection), event });
    }

    fn act(&mut self, action: ToSwarm<StreamsEvent, Order>) {
        self.actions.push_back(action);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn handler(&self, peer: PeerId, connection: ConnectionId) -> Result<Handler, ConnectionDenied> {
        let key = peer_key_of(&peer).ok_or_else(|| ConnectionDenied::new(ForeignKey))?;
        Ok(Handler::new(self.shared.clone(), key, peer, connection))
    }
}

impl NetworkBehaviour for Streams {
    type ConnectionHandler = Handler;
    type ToSwarm = StreamsEvent;

    fn handle_established_inbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: PeerId,
        _: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.handler(peer, connection)
    }

    fn handle_established_outbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.handler(peer, connection)
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match event {
            FromSwarm::ConnectionEstablished(event) => {
                let via = via_of_connection(event.endpoint.get_remote_address());
                self.established(event.peer_id, event.connection_id, via);
            }
            FromSwarm::ConnectionClosed(event) => self.closed(event.peer_id, event.connection_id),
            _ => {}
        }
    }

    fn on_connection_handler_event(&mut self, peer_id: PeerId, id: ConnectionId, report: THandlerOutEvent<Self>) {
        match report {
            ConnectionReport::Accepted => self.accepted(peer_id, id),
            ConnectionReport::Refused(refused, by) => self.refused(peer_id, id, &refused, by),
            ConnectionReport::Broken(why) => {
                tracing::debug!(peer = %peer_id, %why, "closing a connection");
                if let Some(key) = peer_key_of(&peer_id) {
                    self.act(ToSwarm::GenerateEvent(StreamsEvent::Broken(
                        key,
                        format!("connected, then failed: {why}"),
                    )));
                }
                self.close(peer_id, id);
            }
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ToSwarm<StreamsEvent, THandlerInEvent<Self>>> {
        if let Some(action) = self.actions.pop_front() {
            return Poll::Ready(action);
        }
        self.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}
