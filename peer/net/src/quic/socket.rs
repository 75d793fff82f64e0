//! UDP sockets, and the addresses that mean one.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use libp2p::Multiaddr;
use libp2p::multiaddr::Protocol;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

/// Size of a socket's buffers in bytes. All connections of an endpoint share a socket, and arriving packets wait here
/// while its task waits for a processor: at 1 GB/s this is 2 ms. The system gives as much of it as it allows, usually a
/// tenth; packets that find no room are sent again.
const BUFFER_BYTES: usize = 2 * 1024 * 1024;

/// Opens a socket at this address. An IPv6 socket is for IPv6 alone, so that both families can have the same port.
pub(super) fn open(address: SocketAddr) -> io::Result<UdpSocket> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    for set in [sockopt::set_socket_recv_buffer_size, sockopt::set_socket_send_buffer_size] {
        if let Err(error) = set(&socket, BUFFER_BYTES) {
            tracing::debug!(%error, "the buffers of a socket stay as they are");
        }
    }
    bind(&socket, &address)?;
    Ok(socket.into())
}

/// Returns the socket address of `/ip…/…/udp/…/quic-v1`, with or without `/p2p/…` behind it; `None` for other addresses.
pub(super) fn socket_address(address: &Multiaddr) -> Option<SocketAddr> {
    let mut parts = address.iter();
    let ip = match parts.next()? {
        Protocol::Ip4(ip) => IpAddr::V4(ip),
        Protocol::Ip6(ip) => IpAddr::V6(ip),
        _ => return None,
    };
    let Protocol::Udp(port) = parts.next()? else { return None };
    let Protocol::QuicV1 = parts.next()? else { return None };
    match (parts.next(), parts.next()) {
        (None | Some(Protocol::P2p(_)), None) => Some(SocketAddr::new(ip, port)),
        _ => None,
    }
}

/// Returns the multiaddress of a socket address.
pub(super) fn multiaddress(address: SocketAddr) -> Multiaddr {
    Multiaddr::from(address.ip()).with(Protocol::Udp(address.port())).with(Protocol::QuicV1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_quic_or_none() {
        let peer = libp2p::PeerId::random();
        for (text, meant) in [
            ("/ip4/127.0.0.1/udp/1/quic-v1".to_string(), Some("127.0.0.1:1")),
            (format!("/ip6/::1/udp/2/quic-v1/p2p/{peer}"), Some("[::1]:2")),
            ("/ip4/127.0.0.1/udp/1".into(), None),
            ("/ip4/127.0.0.1/udp/1/quic".into(), None),
            ("/ip4/127.0.0.1/tcp/1/quic-v1".into(), None),
            ("/dns/a.example/udp/1/quic-v1".into(), None),
            ("/ip4/127.0.0.1/udp/1/quic-v1/webtransport".into(), None),
            (format!("/ip4/127.0.0.1/udp/1/quic-v1/p2p/{peer}/p2p-circuit"), None),
        ] {
            let meant = meant.map(|text: &str| text.parse().unwrap());
            let address: Multiaddr = text.parse().unwrap();
            assert_eq!(socket_address(&address), meant, "{text}");
            if let Some(meant) = meant {
                assert_eq!(socket_address(&multiaddress(meant)), Some(meant));
            }
        }
    }

    #[test]
    fn both_families_have_the_same_port() {
        let Ok(six) = open(SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, 0))) else {
            return eprintln!("SKIPPED: no IPv6 on this machine");
        };
        let port = six.local_addr().unwrap().port();
        open(SocketAddr::from((std::net::Ipv4Addr::UNSPECIFIED, port))).unwrap();
    }
}
