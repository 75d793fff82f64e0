//! The layout of a laboratory: namespaces, wires and addresses, as a pure function of the plan.
//!
//! Public addresses look like routable ones, since a daemon treats private ranges in another way; they exist within the namespaces
//! alone. Each wire has networks of its own, so that peers on two wires do not count as neighbours in one network:
//!
//! | address | owner |
//! | --- | --- |
//! | `5.0.K.1`, `2a00:5ca7:K::1` | host or router on wire K |
//! | `192.168.K.2`, `2a00:5ca7:K:1::2` and following | hosts behind the router of wire K |
//! | `100.64.K.2`, `2a00:5ca7:K:2::2` | inner router behind the carrier's router of wire K |

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use super::plan::{LabHost, LabPlan, LinkKind, NatKind};

/// A device on the path: the wire of a host, or of a router.
#[derive(Clone, Debug, PartialEq)]
pub struct PathWire {
    /// Name of the host or router.
    pub name: String,
    /// Namespace of the device.
    pub namespace: String,
    /// Label of the site.
    pub site: String,
    /// Bandwidth in each direction, in Mbit/s; `None` if unlimited.
    pub bandwidth_mbit: Option<f64>,
}

/// A host with its place and addresses.
#[derive(Clone, Debug, PartialEq)]
pub struct HostPlace {
    /// Name of the host.
    pub name: String,
    /// Namespace of the host.
    pub namespace: String,
    /// Label of the site.
    pub site: String,
    /// Kind of the router in front of it.
    pub nat: NatKind,
    /// Index of the wire that carries its packets.
    pub wire: usize,
    /// Addresses that the host's own device has.
    pub local: Vec<IpAddr>,
    /// Addresses at which other sites see the host. Behind a router with IPv4, it is the router's.
    pub public: Vec<IpAddr>,
}

/// A router between hosts and the path.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LabRouter {
    /// Namespace of the router next to the hosts.
    pub(super) namespace: String,
    /// Namespace of the carrier's router, for the kind `double`.
    pub(super) carrier: Option<String>,
    pub(super) nat: NatKind,
    pub(super) wire: usize,
    /// Indices of the hosts behind it.
    pub(super) hosts: Vec<usize>,
    /// Seconds for which a mapping of UDP is kept without packets; the kernel's default if `None`.
    pub(super) mapping_s: Option<u32>,
    /// Families that its hosts need.
    pub(super) families: LinkKind,
}

/// All places of a laboratory.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// The devices on the path; the index is the wire's number less 1.
    pub wires: Vec<PathWire>,
    /// The hosts, in the plan's order.
    pub hosts: Vec<HostPlace>,
    pub(super) routers: Vec<LabRouter>,
}

/// Returns the number of a wire in its addresses.
pub(super) fn number(wire: usize) -> u8 {
    u8::try_from(wire + 1).expect("a plan has at most 250 hosts")
}

/// Returns the public IPv4 address of a wire.
pub(super) fn public_v4(wire: usize) -> Ipv4Addr {
    Ipv4Addr::new(5, 0, number(wire), 1)
}

/// Returns an IPv6 address of a wire: `net` 0 is public, 1 behind the router, 2 behind the carrier's router.
pub(super) fn address_v6(wire: usize, net: u16, host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2a00, 0x5ca7, number(wire).into(), net, 0, 0, 0, host)
}

/// Returns the address of a host behind a router, or of the router itself for 1.
pub(super) fn behind_v4(wire: usize, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, number(wire), host)
}

/// Returns the address of a router behind the carrier's router, or of the latter for 1.
pub(super) fn carrier_v4(wire: usize, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(100, 64, number(wire), host)
}

/// Returns the wire to which an address belongs; `None` outside of the laboratory's networks.
pub(super) fn wire_of(address: IpAddr) -> Option<usize> {
    let number = match address {
        IpAddr::V4(v4) => match v4.octets() {
            [5, 0, number, 1] => usize::from(number),
            _ => return None,
        },
        IpAddr::V6(v6) => match v6.segments() {
            [0x2a00, 0x5ca7, number, ..] => usize::from(number),
            _ => return None,
        },
    };
    number.checked_sub(1)
}

impl Layout {
    /// Lays out a valid plan.
    pub fn new(plan: &LabPlan) -> Layout {
        let mut layout = Layout { wires: Vec::new(), hosts: Vec::new(), routers: Vec::new() };
        let namespace = |of: &str| format!("scatter-{}-{of}", plan.name);
        let mut shared: BTreeMap<&str, usize> = BTreeMap::new();
        for (index, host) in plan.hosts.iter().enumerate() {
            let mut wire = layout.wires.len();
            let known = host.behind.as_deref().and_then(|router| shared.get(router).copied());
            if let Some(router) = known {
                wire = layout.routers[router].wire;
                layout.routers[router].add(index, host.families());
            } else {
                let owner = host.behind.as_deref().unwrap_or(&host.name);
                let mut on_path = namespace(owner);
                if host.nat.has_router() {
                    let router = LabRouter::new(&on_path, wire, index, host);
                    on_path = router.carrier.as_ref().unwrap_or(&router.namespace).clone();
                    shared.extend(host.behind.as_deref().map(|name| (name, layout.routers.len())));
                    layout.routers.push(router);
                }
                layout.wires.push(PathWire {
                    name: owner.into(),
                    namespace: on_path,
                    site: host.site.clone(),
                    bandwidth_mbit: host.bandwidth_mbit,
                });
            }
            let router = layout.routers.iter().find(|router| router.wire == wire);
            let place = place(host, namespace(&host.name), wire, router);
            layout.hosts.push(place);
        }
        layout
    }

    /// Returns the names of all namespaces, in the order in which they are made.
    pub fn namespaces(&self) -> Vec<&str> {
        let hosts = self.hosts.iter().map(|host| host.namespace.as_str());
        let routers = self
            .routers
            .iter()
            .flat_map(|router| std::iter::once(router.namespace.as_str()).chain(router.carrier.as_deref()));
        hosts.chain(routers).collect()
    }

    /// Returns a host by its name.
    pub fn host(&self, name: &str) -> Option<&HostPlace> {
        self.hosts.iter().find(|host| host.name == name)
    }

    /// Returns the wires that each word of a command means: a host or a router by its name, all of a site as `@SITE`, and all as `*`.
    pub(super) fn names(&self) -> BTreeMap<String, Vec<usize>> {
        let mut names: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, wire) in self.wires.iter().enumerate() {
            names.insert(wire.name.clone(), vec![index]);
            names.entry(format!("@{}", wire.site)).or_default().push(index);
            names.entry("*".into()).or_default().push(index);
        }
        names.extend(self.hosts.iter().map(|host| (host.name.clone(), vec![host.wire])));
        names
    }

    /// Returns the planned one-way delays between wires, a row for each sender.
    pub fn delays(&self, plan: &LabPlan) -> Vec<Vec<Duration>> {
        let places: Vec<&str> = self.wires.iter().map(|wire| wire.site.as_str()).collect();
        plan.latency.one_way(&places, &plan.sites(), plan.seed)
    }
}

impl LabRouter {
    /// Returns the router in front of a first host. `owner` is the namespace of its name.
    fn new(owner: &str, wire: usize, first: usize, host: &LabHost) -> LabRouter {
        LabRouter {
            // No name of a host has a dot.
            namespace: format!("{owner}.nat"),
            carrier: (host.nat == NatKind::Double).then(|| format!("{owner}.cgn")),
            nat: host.nat,
            wire,
            hosts: vec![first],
            mapping_s: host.mapping_s,
            families: host.families(),
        }
    }

    fn add(&mut self, host: usize, families: LinkKind) {
        self.hosts.push(host);
        if self.families != families {
            self.families = LinkKind::Both;
        }
    }
}

/// Returns the place of a host. `router` is its router, which lists the host as its last one.
fn place(host: &LabHost, namespace: String, wire: usize, router: Option<&LabRouter>) -> HostPlace {
    let (v4, v6) = (host.families().has_v4(), host.families().has_v6());
    let among = |v4_address: Ipv4Addr, v6_address: Ipv6Addr| {
        let v4 = v4.then_some(IpAddr::V4(v4_address));
        v4.into_iter().chain(v6.then_some(IpAddr::V6(v6_address))).collect::<Vec<_>>()
    };
    let (local, public) = match router {
        None => {
            let own = among(public_v4(wire), address_v6(wire, 0, 1));
            (own.clone(), own)
        }
        Some(router) => {
            let last = u8::try_from(router.hosts.len() + 1).expect("a plan has at most 200 hosts behind a router");
            let own_v6 = address_v6(wire, 1, last.into());
            (among(behind_v4(wire, last), own_v6), among(public_v4(wire), own_v6))
        }
    };
    HostPlace { name: host.name.clone(), namespace, site: host.site.clone(), nat: host.nat, wire, local, public }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(hosts: &str) -> Layout {
        let text = format!("name = 'x'\nlatency = {{ model = 'constant', one_way_ms = 1 }}\nhosts = [{hosts}]");
        Layout::new(&LabPlan::parse(&text).expect("a valid plan"))
    }

    #[test]
    fn hosts_behind_one_router_share_a_wire() {
        let layout = layout(
            "{ name = 'a' }, { name = 'b', nat = 'symmetric', behind = 'home', link = 'both' }, \
             { name = 'c', nat = 'double' }, { name = 'd', nat = 'symmetric', behind = 'home' }",
        );
        let wires: Vec<usize> = layout.hosts.iter().map(|host| host.wire).collect();
        assert_eq!(wires, [0, 1, 2, 1]);
        assert_eq!(layout.hosts[3].local, ["192.168.2.3".parse::<IpAddr>().expect("an address")]);
        assert_eq!(layout.hosts[3].public, ["5.0.2.1".parse::<IpAddr>().expect("an address")]);
        assert_eq!(layout.hosts[1].public[1].to_string(), "2a00:5ca7:2:1::2");
        assert_eq!(layout.wires[2].namespace, "scatter-x-c.cgn");
        assert_eq!(layout.namespaces().len(), 7);
        let names = layout.names();
        assert_eq!((&names["home"], &names["d"], &names["*"]), (&vec![1], &vec![1], &vec![0, 1, 2]));
        for (index, wire) in layout.hosts.iter().map(|host| host.wire).enumerate() {
            assert!(layout.hosts[index].public.iter().all(|address| wire_of(*address) == Some(wire)));
        }
    }

    #[test]
    fn addresses_outside_of_the_laboratory_have_no_wire() {
        for address in ["5.0.0.1", "5.0.1.2", "192.168.1.2", "2a00:5ca7:0::1", "ff02::1"] {
            assert_eq!(wire_of(address.parse().expect("an address")), None, "{address}");
        }
    }
}
