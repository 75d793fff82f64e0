//! QUIC endpoints: one for each listening address, and one for dials of each address family without a listener.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use libp2p::core::transport::{DialOpts, ListenerId, TransportError, TransportEvent};
use libp2p::futures::future::BoxFuture;
use libp2p::futures::stream::SelectAll;
use libp2p::futures::{FutureExt, StreamExt};
use libp2p::identity::Keypair;
use libp2p::{Multiaddr, PeerId};
use quinn::{Endpoint, TokioRuntime};

use super::connection::QuicConnection;
use super::listener::{Handshake, Listener};
use super::settings::{Configs, QuicSettings};
use super::socket::{self, socket_address};
use super::tls::NAME;

/// The QUIC transport; see the module.
pub struct QuicTransport {
    configs: Configs,
    listeners: SelectAll<Listener>,
    /// For IPv4 and IPv6, made when first needed.
    dialers: [Option<Endpoint>; 2],
    waker: Option<Waker>,
}

impl QuicTransport {
    /// Creates a transport, which needs a tokio runtime around it.
    ///
    /// # Errors
    /// The settings or the key are invalid; the error names the fault.
    pub fn new(keypair: &Keypair, settings: &QuicSettings) -> io::Result<QuicTransport> {
        let configs = Configs::new(keypair, settings)?;
        Ok(QuicTransport { configs, listeners: SelectAll::new(), dialers: [None, None], waker: None })
    }

    fn listen(&mut self, id: ListenerId, address: SocketAddr) -> io::Result<()> {
        let socket = socket::open(address)?;
        let (config, server) = (self.configs.endpoint.clone(), Some(self.configs.server.clone()));
        let endpoint = Endpoint::new(config, server, socket, Arc::new(TokioRuntime))?;
        self.listeners.push(Listener::new(id, endpoint)?);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
        Ok(())
    }

    /// Returns the endpoint from which to dial this address.
    fn dialer(&mut self, to: IpAddr) -> io::Result<Endpoint> {
        if let Some(endpoint) = self.listeners.iter().find_map(|listener| listener.dials(to)) {
            return Ok(endpoint.clone());
        }
        let (dialer, any) = match to {
            IpAddr::V4(_) => (&mut self.dialers[0], IpAddr::from(Ipv4Addr::UNSPECIFIED)),
            IpAddr::V6(_) => (&mut self.dialers[1], IpAddr::from(Ipv6Addr::UNSPECIFIED)),
        };
        if dialer.is_none() {
            let socket = socket::open(SocketAddr::new(any, 0))?;
            let endpoint = Endpoint::new(self.configs.endpoint.clone(), None, socket, Arc::new(TokioRuntime))?;
            *dialer = Some(endpoint);
        }
        dialer.clone().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl libp2p::Transport for QuicTransport {
    type Output = (PeerId, QuicConnection);
    type Error = io::Error;
    type ListenerUpgrade = Handshake;
    type Dial = BoxFuture<'static, io::Result<(PeerId, QuicConnection)>>;

    fn listen_on(&mut self, id: ListenerId, address: Multiaddr) -> Result<(), TransportError<io::Error>> {
        let at = socket_address(&address).ok_or(TransportError::MultiaddrNotSupported(address))?;
        self.listen(id, at).map_err(TransportError::Other)
    }

    fn remove_listener(&mut self, id: ListenerId) -> bool {
        let listener = self.listeners.iter_mut().find(|listener| listener.id() == id);
        listener.map(Listener::close).is_some()
    }

    /// A request for a port of its own is ignored: two sides that dial each other from their listening ports do not
    /// conflict here.
    fn dial(&mut self, address: Multiaddr, _: DialOpts) -> Result<Self::Dial, TransportError<io::Error>> {
        let to = socket_address(&address).filter(|to| to.port() != 0 && !to.ip().is_unspecified());
        let to = to.ok_or(TransportError::MultiaddrNotSupported(address))?;
        let endpoint = self.dialer(to.ip()).map_err(TransportError::Other)?;
        let client = self.configs.client.clone();
        // No packet is sent before it is polled.
        Ok(async move {
            let connecting = endpoint.connect_with(client, to, NAME).map_err(io::Error::other)?;
            QuicConnection::of(connecting.await?)
        }
        .boxed())
    }

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<TransportEvent<Handshake, io::Error>> {
        if let Poll::Ready(Some(event)) = self.listeners.poll_next_unpin(cx) {
            return Poll::Ready(event);
        }
        self.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}
