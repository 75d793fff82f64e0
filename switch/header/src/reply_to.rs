//! Where an answer goes.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Where the answer to a packet goes, and an answer is going.
///
/// A switch in software speaks from an address of its own, so a replica cannot see in a datagram who asked; a client says it
/// here, and a replica repeats it in its answer. In hardware it is what the client's datagram comes from anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplyTo {
    /// An address of IPv6, or one of IPv4 as IPv6 has it (`::ffff:192.0.2.1`).
    pub ip: Ipv6Addr,
    /// A UDP port; 0: there is to be no answer, and it goes nowhere.
    pub port: u16,
}

impl ReplyTo {
    /// There is to be no answer.
    pub const NOWHERE: ReplyTo = ReplyTo { ip: Ipv6Addr::UNSPECIFIED, port: 0 };

    /// The socket that an answer goes to; `None` where there is to be none.
    pub fn address(self) -> Option<SocketAddr> {
        (self.port != 0).then(|| SocketAddr::new(self.ip.to_canonical(), self.port))
    }
}

impl From<SocketAddr> for ReplyTo {
    /// Without what an address of IPv6 has beside (a zone, a flow): those mean something on one machine only.
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
