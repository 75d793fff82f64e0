//! The uses of addresses: those of the local peer to report, and those of other peers to dial.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::{IpAddr, Ipv6Addr};

use libp2p::multiaddr::Protocol;
use libp2p::{Multiaddr, PeerId};
use overlay::PeerKey;

use crate::event::Via;
use crate::identity::peer_key_of;

/// Number of peers that must have seen the local peer under an address before it is reported.
const WITNESSES: usize = 2;
/// Upper limit of observed addresses that are kept, and of the peers remembered for each.
const OBSERVED_MAX: usize = 8;

/// The reach of an address, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum AddressReach {
    Global,
    Private,
    Loopback,
}

/// The local peer's addresses: those that it listens at, and the public ones under which several peers have seen it.
#[derive(Default)]
pub(crate) struct Ours {
    listen: BTreeSet<Multiaddr>,
    observed: BTreeMap<IpAddr, HashSet<PeerId>>,
}

impl Ours {
    pub(crate) fn listening(&mut self, address: Multiaddr) {
        self.listen.insert(address);
    }

    pub(crate) fn expired(&mut self, address: &Multiaddr) {
        self.listen.remove(address);
    }

    /// Notes that `by` saw the local peer under this address. Its port is that of a single dial and means nothing.
    /// Where the address is public and not the local peer's own, a router may forward the listening port under it.
    pub(crate) fn observed(&mut self, address: &Multiaddr, by: PeerId) {
        let Some(ip) = ip_of(address).filter(|ip| reach(*ip) == AddressReach::Global) else {
            return;
        };
        if self.observed.len() >= OBSERVED_MAX && !self.observed.contains_key(&ip) {
            self.observed.retain(|_, by| by.len() >= WITNESSES);
            if self.observed.len() >= OBSERVED_MAX {
                return;
            }
        }
        let witnesses = self.observed.entry(ip).or_default();
        if witnesses.len() < OBSERVED_MAX {
            witnesses.insert(by);
        }
    }

    /// Returns the addresses to report, best first. Loopback only where there is no other: on another machine it is
    /// another peer.
    pub(crate) fn told(&self) -> Vec<String> {
        let mut told: Vec<(AddressReach, Multiaddr)> =
            self.listen.iter().filter_map(|address| Some((reach(ip_of(address)?), address.clone()))).collect();
        for (ip, by) in &self.observed {
            if by.len() >= WITNESSES && !told.iter().any(|(_, address)| ip_of(address) == Some(*ip)) {
                let behind: BTreeSet<Multiaddr> = self.listen.iter().map(|address| moved(address, *ip)).collect();
                told.extend(behind.into_iter().map(|address| (AddressReach::Global, address)));
            }
        }
        told.sort();
        if told.first().is_some_and(|(best, _)| *best < AddressReach::Loopback) {
            told.retain(|(reach, _)| *reach < AddressReach::Loopback);
        }
        told.into_iter().map(|(_, address)| address.to_string()).collect()
    }
}

/// Splits `/p2p/…` off: the address alone, and the peer that it names. `None` where it names a peer without an ed25519
/// key.
pub(crate) fn split(mut address: Multiaddr) -> Option<(Multiaddr, Option<PeerKey>)> {
    match address.iter().last() {
        Some(Protocol::P2p(peer)) => {
            address.pop();
            Some((address, Some(peer_key_of(&peer)?)))
        }
        _ => Some((address, None)),
    }
}

/// Returns the addresses in `texts` that can be dialled to reach `peer`: other peers' reports may be wrong.
pub(crate) fn dialable(peer: &PeerKey, texts: &[String], private: bool, max: usize) -> Vec<Multiaddr> {
    let parsed = texts.iter().filter_map(|text| split(text.parse().ok()?));
    let ours = parsed.filter(|(_, named)| named.is_none_or(|named| named == *peer));
    let mut addresses: Vec<Multiaddr> = Vec::new();
    for (address, _) in ours {
        if addresses.len() < max && is_dialable(&address, private) && !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

/// Returns whether this build supports the address, and may dial it.
pub(crate) fn is_dialable(address: &Multiaddr, private: bool) -> bool {
    let is_allowed = |ip: IpAddr| !ip.is_unspecified() && (private || reach(ip) == AddressReach::Global);
    via(address).is_some() && ip_of(address).is_some_and(is_allowed)
}

/// Returns the transport of `/ip…/…/tcp/…` and `/ip…/…/udp/…/quic-v1`; `None` for all other addresses.
pub(crate) fn via(address: &Multiaddr) -> Option<Via> {
    let mut parts = address.iter();
    let (Protocol::Ip4(_) | Protocol::Ip6(_)) = parts.next()? else { return None };
    match (parts.next()?, parts.next(), parts.next()) {
        (Protocol::Tcp(_), None, None) => Some(Via::Tcp),
        (Protocol::Udp(_), Some(Protocol::QuicV1), None) => Some(Via::Quic),
        _ => None,
    }
}

/// Returns the transport of a connection, for any further parts in its address.
pub(crate) fn via_of_connection(remote: &Multiaddr) -> Via {
    let is_quic = remote.iter().any(|part| part == Protocol::QuicV1);
    if is_quic { Via::Quic } else { Via::Tcp }
}

/// Returns the fault of an address to listen on, or to join through, for the administrator who wrote it.
pub fn complaint(text: &str, is_entry: bool) -> Option<String> {
    let address: Multiaddr = match text.parse() {
        Ok(address) => address,
        Err(error) => return Some(format!("it is not a multiaddress: {error}")),
    };
    if matches!(
        address.iter().next(),
        Some(Protocol::Dns(_) | Protocol::Dns4(_) | Protocol::Dns6(_) | Protocol::Dnsaddr(_))
    ) {
        return Some("host names are not resolved: write the IP address".into());
    }
    let Some((at, named)) = split(address) else {
        return Some("the peer id after /p2p/ is not one of this program: peer ids begin with 12D3KooW".into());
    };
    let shape = "/ip4/… or /ip6/… is followed by /tcp/PORT or by /udp/PORT/quic-v1";
    match (via(&at), is_entry) {
        (None, true) => Some(format!("{shape}, and then by /p2p/PEERID")),
        (None, false) => Some(shape.into()),
        (Some(_), false) if named.is_some() => {
            Some("a peer cannot choose its own peer id: leave out /p2p/…".into())
        }
        (Some(_), true) if named.is_none() => {
            Some("append /p2p/PEERID: that peer prints the whole address when it starts, behind join= or as `listen` in JSON".into())
        }
        (Some(_), true) if ip_of(&at).is_some_and(|ip| ip.is_unspecified()) => {
            Some("this address means all addresses of this machine: write the address of another machine".into())
        }
        (Some(_), true) if port_of(&at) == Some(0) => Some("port 0 is not a usable port".into()),
        (Some(_), _) => None,
    }
}

pub(crate) fn ip_of(address: &Multiaddr) -> Option<IpAddr> {
    match address.iter().next()? {
        Protocol::Ip4(ip) => Some(IpAddr::V4(ip)),
        Protocol::Ip6(ip) => Some(IpAddr::V6(ip)),
        _ => None,
    }
}

fn port_of(address: &Multiaddr) -> Option<u16> {
    address.iter().find_map(|part| match part {
        Protocol::Tcp(port) | Protocol::Udp(port) => Some(port),
        _ => None,
    })
}

/// Returns the same port of another IP address.
fn moved(address: &Multiaddr, ip: IpAddr) -> Multiaddr {
    address.iter().skip(1).fold(Multiaddr::from(ip), |moved, part| moved.with(part))
}

fn reach(ip: IpAddr) -> AddressReach {
    match ip {
        IpAddr::V4(ip) if ip.is_loopback() => AddressReach::Loopback,
        // Providers share out 100.64.0.0/10 behind their own NAT.
        IpAddr::V4(ip) if ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64 => AddressReach::Private,
        IpAddr::V4(ip) if ip.is_private() || ip.is_link_local() || ip.is_unspecified() => AddressReach::Private,
        IpAddr::V4(_) => AddressReach::Global,
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(ip) => reach(IpAddr::V4(ip)),
            None if ip == Ipv6Addr::LOCALHOST => AddressReach::Loopback,
            None if ip.is_unique_local() || ip.is_unicast_link_local() || ip.is_unspecified() => AddressReach::Private,
            None => AddressReach::Global,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Multiaddr {
        text.parse().unwrap()
    }

    #[test]
    fn loopback_is_told_only_where_there_is_nothing_else() {
        let mut ours = Ours::default();
        ours.listening(address("/ip4/127.0.0.1/tcp/6478"));
        assert_eq!(ours.told(), ["/ip4/127.0.0.1/tcp/6478"]);
        ours.listening(address("/ip4/192.168.1.2/tcp/6478"));
        ours.listening(address("/ip4/9.9.9.9/tcp/6478"));
        assert_eq!(ours.told(), ["/ip4/9.9.9.9/tcp/6478", "/ip4/192.168.1.2/tcp/6478"]);
        ours.expired(&address("/ip4/9.9.9.9/tcp/6478"));
        assert_eq!(ours.told(), ["/ip4/192.168.1.2/tcp/6478"]);
    }

    #[test]
    fn a_public_address_needs_two_witnesses() {
        let mut ours = Ours::default();
        ours.listening(address("/ip4/192.168.1.2/tcp/6478"));
        let witness = PeerId::random();
        ours.observed(&address("/ip4/9.9.9.9/tcp/50000"), witness);
        ours.observed(&address("/ip4/9.9.9.9/tcp/50001"), witness);
        ours.observed(&address("/ip4/10.0.0.1/tcp/1"), PeerId::random());
        ours.observed(&address("/ip4/10.0.0.1/tcp/1"), PeerId::random());
        assert_eq!(ours.told().len(), 1);
        ours.observed(&address("/ip4/9.9.9.9/tcp/50002"), PeerId::random());
        assert_eq!(ours.told(), ["/ip4/9.9.9.9/tcp/6478", "/ip4/192.168.1.2/tcp/6478"]);
    }

    #[test]
    fn a_public_address_is_told_for_each_way_in() {
        let mut ours = Ours::default();
        ours.listening(address("/ip4/192.168.1.2/udp/6478/quic-v1"));
        ours.listening(address("/ip4/192.168.1.2/tcp/6478"));
        for _ in 0..WITNESSES {
            ours.observed(&address("/ip4/9.9.9.9/udp/50000/quic-v1"), PeerId::random());
        }
        let told =
            ["9.9.9.9", "192.168.1.2"].map(|ip| [format!("/ip4/{ip}/tcp/6478"), format!("/ip4/{ip}/udp/6478/quic-v1")]);
        assert_eq!(ours.told(), told.concat(), "TCP first");
    }

    #[test]
    fn bad_addresses_are_complained_of() {
        let peer = crate::Identity::random().peer_id();
        for good in ["/ip4/0.0.0.0/tcp/0", "/ip6/::/udp/6478/quic-v1"] {
            assert_eq!(complaint(good, false), None, "{good}");
        }
        for good in ["/ip4/192.0.2.1/tcp/1", "/ip6/2001:db8::1/udp/6478/quic-v1"] {
            assert_eq!(complaint(&format!("{good}/p2p/{peer}"), true), None, "{good}");
            assert!(complaint(good, true).unwrap().contains("/p2p/PEERID"));
            assert!(complaint(&format!("{good}/p2p/{peer}"), false).unwrap().contains("leave out"));
        }
        for (bad, why) in [
            ("/dns/a.example/tcp/1", "not resolved"),
            ("/ip4/192.0.2.1/udp/1", "quic-v1"),
            ("/ip4/192.0.2.1/tcp/1/ws", "/tcp/PORT"),
            ("/ip4/192.0.2.1/tcp/1/p2p/QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N", "12D3KooW"),
            ("/ip4/192.0.2.1/tcp/1/p2p/nobody", "multiaddress"),
        ] {
            for is_entry in [true, false] {
                let said = complaint(bad, is_entry).unwrap();
                assert!(said.contains(why), "{bad}: {said}");
            }
        }
        for (bad, why) in [("/ip4/0.0.0.0/tcp/1", "all addresses of this machine"), ("/ip4/192.0.2.1/tcp/0", "port 0")]
        {
            assert!(complaint(&format!("{bad}/p2p/{peer}"), true).unwrap().contains(why), "{bad}");
        }
    }

    #[test]
    fn witnesses_are_bounded() {
        let mut ours = Ours::default();
        for i in 0..200u8 {
            for _ in 0..20 {
                ours.observed(&address(&format!("/ip4/9.9.9.{i}/tcp/1")), PeerId::random());
            }
        }
        assert!(ours.observed.len() <= OBSERVED_MAX);
        assert!(ours.observed.values().all(|by| by.len() <= OBSERVED_MAX));
    }

    #[test]
    fn only_what_leads_to_the_peer_is_dialled() {
        let us = crate::Identity::random();
        let other = crate::Identity::random();
        let texts = [
            "/ip4/10.0.0.1/tcp/1".to_string(),
            format!("/ip4/9.9.9.9/tcp/2/p2p/{}", us.peer_id()),
            format!("/ip4/9.9.9.9/tcp/3/p2p/{}", other.peer_id()),
            "/ip4/9.9.9.9/udp/4/quic-v1".into(),
            "/ip4/9.9.9.9/udp/4".into(),
            "/ip4/9.9.9.9/udp/4/quic-v1/webtransport".into(),
            "/ip4/9.9.9.9/tcp/5/ws".into(),
            "/ip4/0.0.0.0/tcp/6".into(),
            "nonsense".into(),
            "/ip4/9.9.9.9/tcp/2".into(),
        ];
        let public = dialable(&us.peer(), &texts, false, 8);
        assert_eq!(public, [address("/ip4/9.9.9.9/tcp/2"), address("/ip4/9.9.9.9/udp/4/quic-v1")]);
        assert_eq!(dialable(&us.peer(), &texts, true, 8).len(), 3);
        assert_eq!(dialable(&us.peer(), &texts, true, 1).len(), 1);
    }
}
