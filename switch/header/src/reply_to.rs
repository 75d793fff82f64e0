//! Address for an answer.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Address for the answer to a packet; in an answer, its destination.
///
/// A switch in software sends from an address of its own, so a replica cannot see the client's address in a datagram. The client
/// states its address here, and a replica repeats it in its answer. With a switch in hardware it is the source of the client's
/// datagram anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplyTo {
    /// IPv6 address, or an IPv4 address in its IPv6 form (`::ffff:192.0.2.1`).
    pub ip: Ipv6Addr,
    /// UDP port; 0 if no answer is wanted.
    pub port: u16,
}

impl ReplyTo {
    /// No address: no answer is wanted.
    pub const NOWHERE: ReplyTo = ReplyTo { ip: Ipv6Addr::UNSPECIFIED, port: 0 };

    /// Returns the socket address for an answer; `None` if no answer is wanted.
    pub fn address(self) -> Option<SocketAddr> {
        (self.port != 0).then(|| SocketAddr::new(self.ip.to_canonical(), self.port))
    }
}

impl From<SocketAddr> for ReplyTo {
    /// Drops the zone and the flow of an IPv6 address: they have a meaning on one machine only.
    fn from(address: SocketAddr) -> ReplyTo {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        ReplyTo { ip, port: address.port() }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::*;

    #[test]
    fn an_address_there_and_back() {
        for text in ["192.0.2.1:7", "[2001:db8::1]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(ReplyTo::from(address).address(), Some(address));
        }
        let mapped: SocketAddr = "[::ffff:192.0.2.1]:7".parse().unwrap();
        assert_eq!(ReplyTo::from(mapped).address().unwrap().to_string(), "192.0.2.1:7", "one address has one form");
        let nowhere: SocketAddr = "192.0.2.1:0".parse().unwrap();
        assert_eq!((ReplyTo::from(nowhere).address(), ReplyTo::NOWHERE.address()), (None, None));
    }
}
