//! Rules of routers, for `nft`: which source a packet gets on its way out, and which packets are let in.
//!
//! A packet that nobody inside asked for is *dropped*, never accepted or rejected. The kernel's connection tracking remembers a packet
//! that is accepted or rejected, the entry takes the port, and the next packet from inside gets another port: two hosts that send to
//! each other at the same time then miss each other.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use super::plan::NatKind;

/// Device of a router towards the path or the carrier.
pub(super) const OUTSIDE: &str = "wire";
/// Device of a router towards its hosts.
pub(super) const INSIDE: &str = "lan";

/// Returns the rules of a router of this kind, as input for `nft -f`. `owner` is the host that has the whole address of a router of
/// the kind `endpoint-independent`; other kinds do not use it.
pub(super) fn rules(kind: NatKind, owner: Ipv4Addr) -> String {
    let source = match kind {
        NatKind::Symmetric => "masquerade fully-random",
        _ => "masquerade",
    };
    let mut rules = format!(
        "table ip nat {{\n\
         chain out {{ type nat hook postrouting priority srcnat; policy accept; oifname \"{OUTSIDE}\" {source}; }}\n"
    );
    if kind == NatKind::EndpointIndependent {
        let _ = writeln!(
            rules,
            "chain in {{ type nat hook prerouting priority dstnat; policy accept; iifname \"{OUTSIDE}\" dnat to {owner}; }}"
        );
    }
    let blocked = match kind {
        NatKind::UdpBlocked => "meta l4proto udp drop;",
        NatKind::TcpBlocked => "meta l4proto tcp drop;",
        _ => "",
    };
    let unsolicited = match kind {
        NatKind::EndpointIndependent => "accept",
        _ => "drop",
    };
    // Neighbour discovery of IPv6 goes to the router itself.
    let _ = write!(
        rules,
        "}}\n\
         table inet filter {{\n\
         chain to_router {{ type filter hook input priority filter; policy drop; iifname \"{INSIDE}\" accept; \
         meta l4proto ipv6-icmp accept; ct state established,related accept; }}\n\
         chain through {{ type filter hook forward priority filter; policy drop; {blocked} ct state invalid drop; \
         iifname \"{INSIDE}\" accept; ct state established,related accept; {unsolicited}; }}\n\
         }}\n"
    );
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_rule() {
        let of = |kind| rules(kind, Ipv4Addr::new(192, 168, 7, 2));
        assert!(of(NatKind::Symmetric).contains("masquerade fully-random;"));
        assert!(of(NatKind::EndpointIndependent).contains("dnat to 192.168.7.2;"));
        assert!(of(NatKind::EndpointIndependent).contains("related accept; accept;"));
        assert!(of(NatKind::AddressAndPortFiltered).contains("related accept; drop;"));
        assert!(!of(NatKind::AddressAndPortFiltered).contains("dnat"));
        assert!(of(NatKind::UdpBlocked).contains("udp drop") && of(NatKind::TcpBlocked).contains("tcp drop"));
        assert!(!of(NatKind::Double).contains("l4proto udp"));
    }
}
