//! Networks of peers, as their addresses show: members of one network fail together (Scatter §6.1).

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One network, at two widths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Network {
    is_v6: bool,
    /// The prefix of one provider, roughly: 16 bits of IPv4, 32 of IPv6.
    wide: u32,
    /// The prefix of one site: 24 bits of IPv4, 48 of IPv6.
    narrow: u64,
}

impl Network {
    /// Returns the network of a multiaddress. `None` for an address that is not global, since private networks all look the same; for
    /// the address of a relay, which says nothing of the peer behind it; and for names.
    pub(crate) fn of(address: &str) -> Option<Network> {
        let mut parts = address.strip_prefix('/')?.split('/');
        let (kind, text) = (parts.next()?, parts.next()?);
        if parts.any(|part| part == "p2p-circuit") {
            return None;
        }
        let ip = match kind {
            "ip4" => IpAddr::V4(text.parse().ok()?),
            "ip6" => IpAddr::V6(text.parse().ok()?),
            _ => return None,
        };
        match ip {
            IpAddr::V4(ip) => Network::of_v4(ip),
            IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
                Some(ip) => Network::of_v4(ip),
                None => Network::of_v6(ip),
            },
        }
    }

    fn of_v4(ip: Ipv4Addr) -> Option<Network> {
        let bits = u32::from(ip);
        is_global_v4(ip).then_some(Network { is_v6: false, wide: bits >> 16, narrow: u64::from(bits >> 8) })
    }

    fn of_v6(ip: Ipv6Addr) -> Option<Network> {
        let bits = u128::from(ip);
        // Both fit: 32 and 48 bits.
        is_global_v6(ip).then_some(Network { is_v6: true, wide: (bits >> 96) as u32, narrow: (bits >> 80) as u64 })
    }

    /// Returns whether both are of one provider.
    pub(crate) fn is_near(&self, other: &Network) -> bool {
        (self.is_v6, self.wide) == (other.is_v6, other.wide)
    }

    fn wide_name(&self) -> String {
        format!("{}/{:x}", if self.is_v6 { "ip6" } else { "ip4" }, self.wide)
    }

    fn narrow_name(&self) -> String {
        format!("{}/{:x}", if self.is_v6 { "ip6" } else { "ip4" }, self.narrow)
    }
}

/// Returns the networks of a peer with these addresses, in their order, without repetition.
pub(crate) fn networks(addresses: &[String]) -> Vec<Network> {
    let mut found = Vec::new();
    for network in addresses.iter().filter_map(|address| Network::of(address)) {
        if !found.contains(&network) {
            found.push(network);
        }
    }
    found
}

/// Returns the place of each member, given its cluster and its addresses: the cluster if one is named, or else the network of the first
/// global address; empty if neither is known. Networks are told apart by site if all members are of one provider.
pub(crate) fn places(members: &[(&str, &[String])]) -> Vec<String> {
    let first = |addresses: &[String]| networks(addresses).first().copied();
    let known: Vec<Option<Network>> =
        members.iter().map(|(cluster, addresses)| if cluster.is_empty() { first(addresses) } else { None }).collect();
    let mut found = known.iter().flatten();
    let one = found.next();
    let is_one_provider = one.is_some_and(|one| found.all(|other| one.is_near(other)));
    let name = |network: &Network| if is_one_provider { network.narrow_name() } else { network.wide_name() };
    let places = members.iter().zip(&known).map(|((cluster, _), network)| match network {
        Some(network) => name(network),
        None => String::from(*cluster),
    });
    places.collect()
}

/// Returns the site of each member, given its cluster and its addresses: members with equal numbers fail together. The site is the cluster
/// where one is named, or else the narrow network of the first global address; `None` where neither is known.
pub(crate) fn sites(members: &[(&str, &[String])]) -> Vec<Option<u32>> {
    let mut names: Vec<String> = Vec::new();
    let mut site = |name: String| match names.iter().position(|known| *known == name) {
        Some(index) => index as u32,
        None => {
            names.push(name);
            names.len() as u32 - 1
        }
    };
    let name = |(cluster, addresses): &(&str, &[String])| match cluster.is_empty() {
        true => networks(addresses).first().map(|network| format!("network {}", network.narrow_name())),
        false => Some(format!("cluster {cluster}")),
    };
    members.iter().map(|member| name(member).map(&mut site)).collect()
}

/// Returns whether an address can be reached from the whole of the internet: `Ipv4Addr::is_global` is not stable.
fn is_global_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    let is_shared = a == 100 && b & 0xc0 == 64;
    let is_benchmark = a == 198 && b & 0xfe == 18;
    let is_protocol = (a, b, c) == (192, 0, 0);
    !(a == 0
        || a >= 224
        || ip.is_loopback()
        || ip.is_private()
        || ip.is_link_local()
        || ip.is_documentation()
        || is_shared
        || is_benchmark
        || is_protocol)
}

/// Returns whether an address is global unicast (`2000::/3`), and neither for documentation nor of Teredo or 6to4, whose prefixes belong
/// to other networks.
fn is_global_v6(ip: Ipv6Addr) -> bool {
    let [first, second, ..] = ip.segments();
    first & 0xe000 == 0x2000 && !(first == 0x2001 && (second == 0xdb8 || second == 0)) && first != 0x2002
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn networks_of_addresses() {
        let of = |address: &str| Network::of(address);
        let near = |one: &str, other: &str| of(one).unwrap().is_near(&of(other).unwrap());
        assert!(near("/ip4/8.7.0.1/tcp/1", "/ip4/8.7.200.1/udp/1/quic-v1"));
        assert_ne!(of("/ip4/8.7.0.1/tcp/1"), of("/ip4/8.7.200.1/tcp/1"));
        assert_eq!(of("/ip4/8.7.0.1/tcp/1"), of("/ip4/8.7.0.99/tcp/1"));
        assert_eq!(of("/ip6/::ffff:8.7.0.1/tcp/1"), of("/ip4/8.7.0.1/tcp/1"));
        assert!(!near("/ip4/8.7.0.1/tcp/1", "/ip4/8.8.0.1/tcp/1"));
        assert!(near("/ip6/2600:1::1/tcp/1", "/ip6/2600:1:7::1/tcp/1"));
        assert_ne!(of("/ip6/2600:1::1/tcp/1"), of("/ip6/2600:1:7::1/tcp/1"));
        assert_eq!(of("/ip6/2600:1:7::1/tcp/1"), of("/ip6/2600:1:7:9::1/tcp/1"));
    }

    #[test]
    fn addresses_that_say_nothing() {
        let v4 = [
            "10.1.2.3",
            "192.168.1.1",
            "172.16.0.1",
            "127.0.0.1",
            "169.254.1.1",
            "100.64.0.1",
            "100.127.255.1",
            "0.1.2.3",
        ];
        let more = ["224.0.0.1", "255.255.255.255", "198.18.0.1", "192.0.2.1", "192.0.0.8"];
        v4.iter().chain(&more).for_each(|ip| assert_eq!(Network::of(&format!("/ip4/{ip}/tcp/1")), None, "{ip}"));
        for ip in ["::1", "fe80::1", "fd00::1", "ff02::1", "2001:db8::1", "2001:0:1::1", "2002:1::1", "::ffff:10.0.0.1"]
        {
            assert_eq!(Network::of(&format!("/ip6/{ip}/tcp/1")), None, "{ip}");
        }
        let relayed = "/ip4/8.7.0.1/tcp/1/p2p/12D3KooW/p2p-circuit";
        for text in ["", "ip4/8.2.3.4", "/ip4", "/ip4/8.2.3/tcp/1", "/dns/peer.example/tcp/1", relayed] {
            assert_eq!(Network::of(text), None, "{text}");
        }
        assert!(Network::of("/ip4/100.63.0.1/tcp/1").is_some() && Network::of("/ip4/100.128.0.1/tcp/1").is_some());
    }

    #[test]
    fn places_of_members() {
        let at = |ip: &str| vec![format!("/ip4/192.168.0.7/tcp/1"), format!("/ip4/{ip}/tcp/1")];
        let (one, near, far) = (at("8.7.1.1"), at("8.7.2.1"), at("8.9.1.1"));
        let one_provider = places(&[("", &one), ("", &near), ("", &one[..1])]);
        assert_ne!(one_provider[0], one_provider[1]);
        assert_eq!(one_provider[2], "");
        let two = places(&[("", &one), ("", &near), ("", &far), ("attic", &far)]);
        assert_eq!(two[0], two[1]);
        assert_ne!(two[0], two[2]);
        assert_eq!(two[3], "attic");
    }
}
