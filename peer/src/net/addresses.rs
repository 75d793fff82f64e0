//! Which addresses are worth what: ours to tell, theirs to dial.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::{IpAddr, Ipv6Addr};

use libp2p::multiaddr::Protocol;
use libp2p::{Multiaddr, PeerId};
use overlay::PeerKey;

use super::identity::peer_key_of;

/// Peers that must have seen us under an address before it is told.
const WITNESSES: usize = 2;
/// Observed addresses kept at most, and peers remembered for each.
const OBSERVED_MAX: usize = 8;

/// How far an address reaches, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    Global,
    Private,
    Loopback,
}

/// Where others can reach us: where we listen, and under what public address several peers have seen us.
#[derive(Default)]
pub(super) struct Ours {
    listen: BTreeSet<Multiaddr>,
    observed: BTreeMap<IpAddr, HashSet<PeerId>>,
}

impl Ours {
    pub(super) fn listening(&mut self, address: Multiaddr) {
        self.listen.insert(address);
    }

    pub(super) fn expired(&mut self, address: &Multiaddr) {
        self.listen.remove(address);
    }

    /// `by` saw us under this address. Its port is that of a single dial and means nothing; where the address is public
    /// and not ours, a router may pass our listening port on under it.
    pub(super) fn observed(&mut self, address: &Multiaddr, by: PeerId) {
        let Some(ip) = ip_of(address).filter(|ip| reach(*ip) == Reach::Global) else {
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

    /// What to tell others, best first. Loopback only where there is nothing else: elsewhere it is somebody else.
    pub(super) fn told(&self) -> Vec<String> {
        let mut told: Vec<(Reach, Multiaddr)> =
            self.listen.iter().filter_map(|address| Some((reach(ip_of(address)?), address.clone()))).collect();
        for (ip, by) in &self.observed {
            if by.len() >= WITNESSES && !told.iter().any(|(_, address)| ip_of(address) == Some(*ip)) {
                let ports: BTreeSet<u16> = self.listen.iter().filter_map(tcp_port).collect();
                let guess = |port| (Reach::Global, Multiaddr::from(*ip).with(Protocol::Tcp(port)));
                told.extend(ports.into_iter().map(guess));
            }
        }
        told.sort();
        if told.first().is_some_and(|(best, _)| *best < Reach::Loopback) {
            told.retain(|(reach, _)| *reach < Reach::Loopback);
        }
        told.into_iter().map(|(_, address)| address.to_string()).collect()
    }
}

/// Splits `/p2p/…` off: the address alone, and whom it names. `None` where it names somebody we cannot know.
pub(super) fn split(mut address: Multiaddr) -> Option<(Multiaddr, Option<PeerKey>)> {
    match address.iter().last() {
        Some(Protocol::P2p(peer)) => {
            address.pop();
            Some((address, Some(peer_key_of(&peer)?)))
        }
        _ => Some((address, None)),
    }
}

/// What of `texts` can be dialled to reach `peer`: what others tell us is theirs to get wrong.
pub(super) fn dialable(peer: &PeerKey, texts: &[String], private: bool, max: usize) -> Vec<Multiaddr> {
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

/// An address that this build speaks, and may.
pub(super) fn is_dialable(address: &Multiaddr, private: bool) -> bool {
    is_tcp(address) && ip_of(address).is_some_and(|ip| !ip.is_unspecified() && (private || reach(ip) == Reach::Global))
}

/// `/ip…/…/tcp/…` and nothing else.
pub(super) fn is_tcp(address: &Multiaddr) -> bool {
    let mut parts = address.iter();
    matches!(parts.next(), Some(Protocol::Ip4(_) | Protocol::Ip6(_)))
        && matches!(parts.next(), Some(Protocol::Tcp(_)))
        && parts.next().is_none()
}

pub(super) fn ip_of(address: &Multiaddr) -> Option<IpAddr> {
    match address.iter().next()? {
        Protocol::Ip4(ip) => Some(IpAddr::V4(ip)),
        Protocol::Ip6(ip) => Some(IpAddr::V6(ip)),
        _ => None,
    }
}

fn tcp_port(address: &Multiaddr) -> Option<u16> {
    address.iter().find_map(|part| if let Protocol::Tcp(port) = part { Some(port) } else { None })
}

fn reach(ip: IpAddr) -> Reach {
    match ip {
        IpAddr::V4(ip) if ip.is_loopback() => Reach::Loopback,
        // 100.64.0.0/10 is what providers share out behind their own NAT.
        IpAddr::V4(ip) if ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64 => Reach::Private,
        IpAddr::V4(ip) if ip.is_private() || ip.is_link_local() || ip.is_unspecified() => Reach::Private,
        IpAddr::V4(_) => Reach::Global,
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(ip) => reach(IpAddr::V4(ip)),
            None if ip == Ipv6Addr::LOCALHOST => Reach::Loopback,
            None if ip.is_unique_local() || ip.is_unicast_link_local() || ip.is_unspecified() => Reach::Private,
            None => Reach::Global,
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
        let us = crate::net::Identity::random();
        let other = crate::net::Identity::random();
        let texts = [
            "/ip4/10.0.0.1/tcp/1".to_string(),
            format!("/ip4/9.9.9.9/tcp/2/p2p/{}", us.peer_id()),
            format!("/ip4/9.9.9.9/tcp/3/p2p/{}", other.peer_id()),
            "/ip4/9.9.9.9/udp/4/quic-v1".into(),
            "/ip4/9.9.9.9/tcp/5/ws".into(),
            "/ip4/0.0.0.0/tcp/6".into(),
            "nonsense".into(),
            "/ip4/9.9.9.9/tcp/2".into(),
        ];
        let public = dialable(&us.peer(), &texts, false, 8);
        assert_eq!(public, [address("/ip4/9.9.9.9/tcp/2")]);
        assert_eq!(dialable(&us.peer(), &texts, true, 8).len(), 2);
        assert_eq!(dialable(&us.peer(), &texts, true, 1).len(), 1);
    }
}
