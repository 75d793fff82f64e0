//! The listener for incoming QUIC connections: its addresses, and the proof of a dialler's address.
//!
//! A packet can claim any source address, and an answer costs a signature. So the listener computes nothing for a new
//! connection before the swarm has reported room, and then only in the connection's own task. Where many handshakes are
//! under way already, a dialler has to prove that it receives packets at its claimed address. It is told to send its
//! first packet again with a token, and the listener keeps no state for it. So packets with forged addresses take only
//! a part of the room.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use if_watch::IfEvent;
use if_watch::tokio::IfWatcher;
use libp2p::PeerId;
use libp2p::core::transport::{ListenerId, TransportEvent};
use libp2p::futures::future::BoxFuture;
use libp2p::futures::{FutureExt, Stream};
use quinn::{Endpoint, Incoming};

use super::connection::QuicConnection;
use super::socket::multiaddress;

/// Handshakes under way beyond which an address must be proven. Below the limit of one address (`net::limits`), which
/// an attacker could claim.
const UNPROVEN_MAX: usize = 32;
/// New connections that are handled before other tasks have a turn.
const LOOKS_MAX: usize = 64;

/// A handshake with a dialler.
pub type Handshake = BoxFuture<'static, io::Result<(PeerId, QuicConnection)>>;
pub(super) type ListenerEvent = TransportEvent<Handshake, io::Error>;

/// A listener on one address; see the module.
pub(super) struct Listener {
    id: ListenerId,
    endpoint: Endpoint,
    address: SocketAddr,
    /// Watcher of the interfaces, where it listens on all of them.
    interfaces: Option<IfWatcher>,
    incoming: BoxFuture<'static, Option<Incoming>>,
    events: VecDeque<ListenerEvent>,
    under_way: Arc<AtomicUsize>,
    is_over: bool,
    waker: Option<Waker>,
}

impl Listener {
    pub(super) fn new(id: ListenerId, endpoint: Endpoint) -> io::Result<Listener> {
        let address = endpoint.local_addr()?;
        let mut listener = Listener {
            id,
            incoming: next(&endpoint),
            endpoint,
            address,
            interfaces: None,
            events: VecDeque::new(),
            under_way: Arc::default(),
            is_over: false,
            waker: None,
        };
        match address.ip().is_unspecified() {
            true => listener.interfaces = Some(IfWatcher::new()?),
            false => listener.tell_address(address.ip(), true),
        }
        Ok(listener)
    }

    pub(super) fn id(&self) -> ListenerId {
        self.id
    }

    /// Returns the endpoint, if it can dial this address: so both directions need one hole in a firewall.
    pub(super) fn dials(&self, to: IpAddr) -> Option<&Endpoint> {
        let from = self.address.ip();
        let fits = from.is_ipv4() == to.is_ipv4() && (from.is_unspecified() || from.is_loopback() == to.is_loopback());
        Some(&self.endpoint).filter(|_| fits && !self.is_over)
    }

    pub(super) fn close(&mut self) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.events.push_back(ListenerEvent::ListenerClosed { listener_id: self.id, reason: Ok(()) });
            self.waker.take().into_iter().for_each(Waker::wake);
        }
    }

    fn tell_address(&mut self, ip: IpAddr, is_up: bool) {
        let (listener_id, listen_addr) = (self.id, multiaddress(SocketAddr::new(ip, self.address.port())));
        self.events.push_back(match is_up {
            true => ListenerEvent::NewAddress { listener_id, listen_addr },
            false => ListenerEvent::AddressExpired { listener_id, listen_addr },
        });
    }

    fn poll_interfaces(&mut self, cx: &mut Context<'_>) {
        while let Some(watcher) = &mut self.interfaces
            && let Poll::Ready(event) = watcher.poll_if_event(cx)
        {
            let (ip, is_up) = match event {
                Ok(IfEvent::Up(net)) => (net.addr(), true),
                Ok(IfEvent::Down(net)) => (net.addr(), false),
                Err(error) => {
                    // Known addresses stay; a watcher that failed once would fail for ever.
                    self.interfaces = None;
                    self.events.push_back(ListenerEvent::ListenerError { listener_id: self.id, error });
                    return;
                }
            };
            if ip.is_ipv4() == self.address.is_ipv4() {
                self.tell_address(ip, is_up);
            }
        }
    }

    fn poll_incoming(&mut self, cx: &mut Context<'_>) {
        for _ in 0..LOOKS_MAX {
            let Poll::Ready(incoming) = self.incoming.poll_unpin(cx) else {
                return;
            };
            let Some(incoming) = incoming else {
                return self.close();
            };
            self.incoming = next(&self.endpoint);
            if !incoming.remote_address_validated() && self.under_way.load(Ordering::Relaxed) >= UNPROVEN_MAX {
                // An error would mean that the address is proven.
                let _ = incoming.retry();
                continue;
            }
            self.events.push_back(ListenerEvent::Incoming {
                listener_id: self.id,
                local_addr: multiaddress(self.address),
                send_back_addr: multiaddress(incoming.remote_address()),
                upgrade: shake_hands(incoming, Turn::new(&self.under_way)).boxed(),
            });
        }
        cx.waker().wake_by_ref();
    }
}

impl Stream for Listener {
    type Item = ListenerEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ListenerEvent>> {
        let this = &mut *self;
        if this.events.is_empty() && !this.is_over {
            this.poll_interfaces(cx);
            this.poll_incoming(cx);
        }
        match this.events.pop_front() {
            Some(event) => Poll::Ready(Some(event)),
            None if this.is_over => Poll::Ready(None),
            None => {
                this.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

fn next(endpoint: &Endpoint) -> BoxFuture<'static, Option<Incoming>> {
    let endpoint = endpoint.clone();
    async move { endpoint.accept().await }.boxed()
}

/// Does nothing before it is polled: a denied connection costs one packet. When dropped, it tells the other side.
async fn shake_hands(incoming: Incoming, turn: Turn) -> io::Result<(PeerId, QuicConnection)> {
    let connection = incoming.accept()?.await?;
    drop(turn);
    QuicConnection::of(connection)
}

/// A handshake under way.
struct Turn(Arc<AtomicUsize>);

impl Turn {
    fn new(under_way: &Arc<AtomicUsize>) -> Turn {
        under_way.fetch_add(1, Ordering::Relaxed);
        Turn(under_way.clone())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
