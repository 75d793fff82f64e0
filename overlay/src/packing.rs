//! A compact encoding of contacts: a peer remembers hundreds of contacts and looks at few.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::{Contact, NodeId, PeerName};

/// An address, which may be any text. Addresses of the shapes below take a third of their text.
#[derive(Serialize, Deserialize)]
enum Address<'a> {
    Text(&'a str),
    Ip4Tcp([u8; 4], u16),
    Ip4Quic([u8; 4], u16),
    Ip6Tcp([u8; 16], u16),
    Ip6Quic([u8; 16], u16),
}

impl Address<'_> {
    fn of(text: &str) -> Address<'_> {
        // Several texts may mean the same address: only a text that reads back the same is packed.
        Address::shaped(text).filter(|address| address.text() == text).unwrap_or(Address::Text(text))
    }

    fn shaped(text: &str) -> Option<Address<'static>> {
        let mut parts = text.strip_prefix('/')?.split('/');
        let (family, ip, protocol) = (parts.next()?, parts.next()?, parts.next()?);
        let port = parts.next()?.parse().ok()?;
        Some(match (family, protocol, parts.next()) {
            ("ip4", "tcp", None) => Address::Ip4Tcp(ip.parse::<Ipv4Addr>().ok()?.octets(), port),
            ("ip4", "udp", Some("quic-v1")) => Address::Ip4Quic(ip.parse::<Ipv4Addr>().ok()?.octets(), port),
            ("ip6", "tcp", None) => Address::Ip6Tcp(ip.parse::<Ipv6Addr>().ok()?.octets(), port),
            ("ip6", "udp", Some("quic-v1")) => Address::Ip6Quic(ip.parse::<Ipv6Addr>().ok()?.octets(), port),
            _ => return None,
        })
    }

    fn text(&self) -> String {
        match *self {
            Address::Text(text) => text.to_string(),
            Address::Ip4Tcp(ip, port) => format!("/ip4/{}/tcp/{port}", Ipv4Addr::from(ip)),
            Address::Ip4Quic(ip, port) => format!("/ip4/{}/udp/{port}/quic-v1", Ipv4Addr::from(ip)),
            Address::Ip6Tcp(ip, port) => format!("/ip6/{}/tcp/{port}", Ipv6Addr::from(ip)),
            Address::Ip6Quic(ip, port) => format!("/ip6/{}/udp/{port}/quic-v1", Ipv6Addr::from(ip)),
        }
    }
}

/// A contact as it is packed.
#[derive(Serialize, Deserialize)]
struct Packed<'a> {
    node: NodeId,
    #[serde(borrow)]
    addresses: Vec<Address<'a>>,
    name: Option<PeerName>,
}

impl Packed<'_> {
    fn of(contact: &Contact) -> Packed<'_> {
        Packed {
            node: contact.node,
            addresses: contact.addresses.iter().map(|address| Address::of(address)).collect(),
            name: contact.name.clone(),
        }
    }
}

/// Encodes contacts in few bytes.
pub(crate) fn pack(contacts: &[Contact]) -> Box<[u8]> {
    let packed: Vec<Packed<'_>> = contacts.iter().map(Packed::of).collect();
    postcard::to_allocvec(&packed).expect("contacts have no maps of unknown length").into_boxed_slice()
}

/// Decodes the contacts that [`pack`] encoded.
pub(crate) fn unpack(bytes: &[u8]) -> Vec<Contact> {
    let packed: Vec<Packed<'_>> = postcard::from_bytes(bytes).expect("it was written here");
    let contact = |Packed { node, addresses, name }: Packed<'_>| Contact {
        node,
        addresses: addresses.iter().map(Address::text).collect(),
        name,
    };
    packed.into_iter().map(contact).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Incarnation, PeerKey};

    fn packed(addresses: &[String]) -> usize {
        let node = NodeId { peer: PeerKey([7; 32]), incarnation: Incarnation(1 << 40) };
        let contacts = [
            Contact { node, addresses: addresses.to_vec(), name: None },
            Contact { node, addresses: Vec::new(), name: "oak".parse().ok() },
        ];
        let bytes = pack(&contacts);
        assert_eq!(unpack(&bytes), contacts);
        bytes.len()
    }

    #[test]
    fn addresses_read_back_as_they_were_however_they_were_written() {
        let shaped = ["/ip4/203.0.113.77/tcp/6478", "/ip4/203.0.113.77/udp/6478/quic-v1", "/ip6/2001:db8::1/tcp/65535"];
        let shaped: Vec<String> = shaped.map(String::from).to_vec();
        assert!(packed(&shaped) < 2 * 41 + 8 + 8 + 20 + 4);
        for odd in [
            "/ip4/203.0.113.77/tcp/06478",
            "/ip4/203.0.113.077/tcp/6478",
            "/ip4/203.0.113.77/tcp/+1",
            "/ip4/203.0.113.77/tcp/6478/",
            "/ip4/203.0.113.77/tcp/6478/ws",
            "/ip4/203.0.113.77/udp/6478/quic",
            "/ip6/2001:DB8::1/tcp/1",
            "/ip6/::ffff:1.2.3.4/udp/1/quic-v1",
            "/dns4/peer.example/tcp/6478",
            "sim:7",
            "/",
            "",
        ] {
            packed(&[odd.into()]);
        }
    }

    proptest! {
        #[test]
        fn any_text_reads_back(addresses in proptest::collection::vec("(/(ip4|ip6|tcp|udp|[0-9.:a-f]{1,9}|quic-v1)){0,6}", 0..4)) {
            packed(&addresses);
        }
    }
}
