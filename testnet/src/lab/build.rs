//! Makes the namespaces, devices, addresses and rules of a layout, with `ip` and `nft`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::layout::{self, HostPlace, LabRouter, Layout, PathWire};
use super::nat::{self, INSIDE, OUTSIDE};
use super::plan::{LabPlan, LinkKind, NatKind};
use super::state::{LabState, StateEntry};
use crate::live::Namespace;

/// Bytes of the largest packet on all wires.
const MTU: u32 = 1_500;
/// Packets that wait in a device for the path.
const DEVICE_PACKETS: u32 = 2_000;

/// Returns the file that stands for a namespace by name.
pub(super) fn file_of(namespace: &str) -> PathBuf {
    PathBuf::from("/run/netns").join(namespace)
}

/// Opens a namespace of a laboratory.
///
/// # Errors
/// There is no such namespace; the error says how to make it anew.
pub(super) fn open(namespace: &str) -> Result<Namespace, String> {
    Namespace::open(&file_of(namespace)).map_err(|error| {
        format!("the namespace {namespace} cannot be opened ({error}): take the laboratory down, and build it anew")
    })
}

/// Makes everything of a layout. Each namespace is entered in the state before it is made; devices end with their namespaces.
///
/// # Errors
/// A namespace with such a name exists, or a program is missing or refuses a step.
pub(super) fn build(plan: &LabPlan, layout: &Layout, state: &mut LabState) -> Result<(), String> {
    if let Some(taken) = layout.namespaces().into_iter().find(|name| file_of(name).exists()) {
        return Err(format!(
            "the namespace {taken} exists, and this laboratory did not make it: remove it with `ip netns del {taken}`, \
             or give the laboratory another name"
        ));
    }
    for name in layout.namespaces() {
        state.enter(&StateEntry::Namespace(name.into()))?;
        run(state.command("ip").args(["netns", "add", name]), "")?;
    }
    let tools = LabTools(state);
    for (place, host) in layout.hosts.iter().zip(&plan.hosts) {
        let namespace = open(&place.namespace)?;
        tools.settings(&namespace, host.families(), false)?;
        if !host.nat.has_router() {
            tools.wire(&namespace, place.wire, host.families())?;
        }
    }
    layout.routers.iter().try_for_each(|router| tools.build_router(router, layout))
}

/// The programs, started for the builder of a laboratory.
struct LabTools<'a>(&'a LabState);

impl LabTools<'_> {
    /// Makes the TUN device of a wire, with its public addresses and routes.
    fn wire(&self, namespace: &Namespace, wire: usize, families: LinkKind) -> Result<(), String> {
        let mut lines =
            format!("tuntap add dev {OUTSIDE} mode tun\nlink set {OUTSIDE} mtu {MTU} txqueuelen {DEVICE_PACKETS} up\n");
        if families.has_v4() {
            let _ = writeln!(
                lines,
                "address add {}/32 dev {OUTSIDE}\nroute add default dev {OUTSIDE}",
                layout::public_v4(wire)
            );
        }
        if families.has_v6() {
            let address = layout::address_v6(wire, 0, 1);
            let _ = writeln!(lines, "address add {address}/128 dev {OUTSIDE} nodad\nroute add ::/0 dev {OUTSIDE}");
        }
        self.ip(namespace, &lines)
    }

    /// Makes a router, the wires of its hosts, and the carrier's router where there is one.
    fn build_router(&self, router: &LabRouter, layout: &Layout) -> Result<(), String> {
        let (namespace, families, at) = (open(&router.namespace)?, router.families, router.wire);
        self.settings(&namespace, families, true)?;
        match &router.carrier {
            None => self.wire(&namespace, at, families)?,
            Some(carrier) => {
                let outer = open(carrier)?;
                self.settings(&outer, families, true)?;
                self.wire(&outer, at, families)?;
                let net = RoutedNet { v4: |host| layout::carrier_v4(at, host), v6: 2, wire: at, families };
                net.bridge(self, &outer)?;
                net.connect(self, &outer, &router.namespace, 2, families)?;
                if families.has_v6() {
                    let (inside, via) = (layout::address_v6(at, 1, 0), layout::address_v6(at, 2, 2));
                    self.ip(&outer, &format!("route add {inside}/64 via {via} dev {INSIDE}\n"))?;
                }
                self.nft(&outer, &nat::rules(NatKind::AddressAndPortFiltered, layout::carrier_v4(at, 2)))?;
            }
        }
        let net = RoutedNet { v4: |host| layout::behind_v4(at, host), v6: 1, wire: at, families };
        net.bridge(self, &namespace)?;
        for (index, host) in router.hosts.iter().map(|host| &layout.hosts[*host]).enumerate() {
            let last = u8::try_from(index + 2).expect("a plan has at most 200 hosts behind a router");
            net.connect(self, &namespace, &host.namespace, last, families_of(host))?;
        }
        self.nft(&namespace, &nat::rules(router.nat, layout::behind_v4(at, 2)))?;
        keep_mappings(&namespace, router.mapping_s)
    }

    /// Sets the switches of the kernel in a new namespace, and takes its loopback up.
    fn settings(&self, namespace: &Namespace, families: LinkKind, is_router: bool) -> Result<(), String> {
        let forward = if is_router { "1" } else { "0" };
        let mut values = vec![("ipv4/conf/all/rp_filter", "0"), ("ipv4/conf/default/rp_filter", "0")];
        values.push(("ipv4/ip_forward", forward));
        if families.has_v6() {
            let v6 = [
                "ipv6/conf/default/accept_dad",
                "ipv6/conf/default/accept_ra",
                "ipv6/conf/default/router_solicitations",
            ];
            values.extend(v6.map(|name| (name, "0")));
            values.push(("ipv6/conf/all/forwarding", forward));
        } else {
            values.extend([("ipv6/conf/all/disable_ipv6", "1"), ("ipv6/conf/default/disable_ipv6", "1")]);
        }
        set(namespace, &values)?;
        self.ip(namespace, "link set lo up\n")
    }

    fn ip(&self, namespace: &Namespace, lines: &str) -> Result<(), String> {
        let mut command = self.0.command("ip");
        command.args(["-batch", "-"]);
        namespace.put(&mut command);
        run(&mut command, lines)
    }

    fn nft(&self, namespace: &Namespace, rules: &str) -> Result<(), String> {
        let mut command = self.0.command("nft");
        command.args(["-f", "-"]);
        namespace.put(&mut command);
        run(&mut command, rules)
    }
}

fn families_of(host: &HostPlace) -> LinkKind {
    match (host.local.iter().any(|address| address.is_ipv4()), host.local.iter().any(|address| address.is_ipv6())) {
        (true, true) => LinkKind::Both,
        (false, true) => LinkKind::Ipv6,
        _ => LinkKind::Ipv4,
    }
}

/// A network behind a router, whose address ends in 1.
struct RoutedNet<V4> {
    /// Returns the IPv4 address with this last byte.
    v4: V4,
    /// Number of the IPv6 network.
    v6: u16,
    wire: usize,
    families: LinkKind,
}

impl<V4: Fn(u8) -> std::net::Ipv4Addr> RoutedNet<V4> {
    /// Makes the bridge in the router.
    fn bridge(&self, tools: &LabTools<'_>, router: &Namespace) -> Result<(), String> {
        let mut lines = format!("link add name {INSIDE} type bridge\nlink set {INSIDE} mtu {MTU} up\n");
        if self.families.has_v4() {
            let _ = writeln!(lines, "address add {}/24 dev {INSIDE}", (self.v4)(1));
        }
        if self.families.has_v6() {
            let _ = writeln!(lines, "address add {}/64 dev {INSIDE} nodad", layout::address_v6(self.wire, self.v6, 1));
        }
        tools.ip(router, &lines)
    }

    /// Connects a namespace to the bridge of the router.
    fn connect(
        &self,
        tools: &LabTools<'_>,
        router: &Namespace,
        host: &str,
        last: u8,
        families: LinkKind,
    ) -> Result<(), String> {
        tools.ip(
            router,
            &format!(
                "link add name port{last} type veth peer name {OUTSIDE} netns {host}\n\
                 link set port{last} master {INSIDE} up\n"
            ),
        )?;
        let mut lines = format!("link set {OUTSIDE} mtu {MTU} up\n");
        if families.has_v4() {
            let (own, via) = ((self.v4)(last), (self.v4)(1));
            let _ = writeln!(lines, "address add {own}/24 dev {OUTSIDE}\nroute add default via {via} dev {OUTSIDE}");
        }
        if families.has_v6() {
            let address = |last| layout::address_v6(self.wire, self.v6, last);
            let (own, via) = (address(last.into()), address(1));
            let _ = writeln!(lines, "address add {own}/64 dev {OUTSIDE} nodad\nroute add ::/0 via {via} dev {OUTSIDE}");
        }
        tools.ip(&open(host)?, &lines)
    }
}

/// Sets switches of the kernel in a namespace. A switch of a protocol that the kernel does not have is left out where it would switch
/// the protocol off.
fn set(namespace: &Namespace, values: &[(&str, &str)]) -> Result<(), String> {
    let set = || {
        values.iter().try_for_each(|(name, value)| {
            let file = PathBuf::from("/proc/sys/net").join(name);
            match std::fs::write(&file, value) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound && name.ends_with("disable_ipv6") => Ok(()),
                set => set.map_err(|error| format!("{}: {error}", file.display())),
            }
        })
    };
    namespace.within(set).map_err(|error| format!("no way into a namespace: {error}"))?
}

/// Sets the time for which a router keeps mappings of UDP. Its rules must be there: the switches come with them.
fn keep_mappings(namespace: &Namespace, seconds: Option<u32>) -> Result<(), String> {
    let Some(seconds) = seconds.map(|seconds| seconds.to_string()) else { return Ok(()) };
    let names = ["netfilter/nf_conntrack_udp_timeout", "netfilter/nf_conntrack_udp_timeout_stream"];
    set(namespace, &names.map(|name| (name, seconds.as_str())))
}

/// Runs a program with an input, to its end.
///
/// # Errors
/// The program is missing, or ends with a failure; the error has its words.
pub(super) fn run(command: &mut Command, input: &str) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            format!("there is no program `{name}`: install {}", if name == "ip" { "iproute2" } else { "nftables" })
        }
        _ => format!("`{name}` cannot be started: {error}"),
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        // It may have ended already; its output tells why.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| format!("`{name}` has no end: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let why = String::from_utf8_lossy(&output.stderr);
            Err(format!("`{name}` refuses {input:?}: {}", why.trim()))
        }
    }
}

/// Returns the reason why this machine cannot have a laboratory of this plan, if there is one: a right or a program that is missing.
pub fn missing(plan: &LabPlan) -> Option<String> {
    if let Err(error) = Namespace::new() {
        return Some(format!("no right to make network namespaces ({error}): run this as root"));
    }
    if !std::path::Path::new("/dev/net/tun").exists() {
        return Some("there is no /dev/net/tun: load the kernel module tun".into());
    }
    let has_routers = plan.hosts.iter().any(|host| host.nat.has_router());
    let programs = [("ip", "-V", true), ("nft", "--version", has_routers)];
    programs
        .into_iter()
        .filter(|(.., needed)| *needed)
        .find_map(|(name, flag, _)| run(Command::new(name).arg(flag), "").err())
}

/// Returns the name of a wire's device and the handle of its namespace, for the path.
pub(super) fn device(wire: &PathWire) -> Result<(Namespace, &'static str), String> {
    Ok((open(&wire.namespace)?, OUTSIDE))
}
