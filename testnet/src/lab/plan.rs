//! The plan of a laboratory: its hosts, their access to the network, and the paths between them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::latency::{Jitter, LatencyModel, SiteMatrix};

/// Upper limit of the hosts of one laboratory: each wire has a third byte of an address of its own.
pub const HOSTS_MAX: usize = 250;
/// Upper limit of the characters of a name. Names of namespaces are file names, and appear in error messages.
const NAME_CHARS_MAX: usize = 24;
/// Upper limit of the hosts behind one router: each has a last byte of an address of its own.
const BEHIND_MAX: usize = 200;

/// A laboratory as a person writes it, in TOML or JSON.
///
/// # Examples
/// ```
/// let plan = testnet::lab::LabPlan::parse(
///     r#"
///     name = "pair"
///     latency = { model = "constant", one_way_ms = 20.0 }
///     hosts = [{ name = "ann" }, { name = "ben", nat = "symmetric" }]
///     "#,
/// )?;
/// assert_eq!(plan.hosts.len(), 2);
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabPlan {
    /// Name of the laboratory: lower-case letters, digits and `-`, at most 24 characters. It is part of the names of namespaces.
    pub name: String,
    /// Seed of jitter, loss and places: the same seed gives the same draws to the same sequence of packets on a link.
    #[serde(default)]
    pub seed: u64,
    /// One-way delay between each pair of hosts.
    pub latency: LatencyModel,
    /// Delay that is drawn for each packet on top; none by default.
    #[serde(default)]
    pub jitter: Jitter,
    /// Microseconds of one way that the machine itself needs for devices and waking of threads: 0 (default) to 1,000. They are subtracted
    /// from each delay, for round trips below a millisecond. With 0 a path is never faster than planned.
    #[serde(default)]
    pub machine_us: u16,
    /// Packets of 1,000 that are lost, on each link: 0 (default) to 1,000.
    #[serde(default)]
    pub loss_per_mille: u16,
    /// Bytes that wait at a host's line, or are on the way on one link, at most. A packet beyond them is dropped, as a router does.
    #[serde(default)]
    pub queues: QueueLimits,
    /// The hosts, in the order in which addresses are given out.
    pub hosts: Vec<LabHost>,
}

/// Limits of queues, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueLimits {
    /// Bytes on the way from one host to another at one time. Default 16 MiB: 1.6 Gbit/s at 80 ms.
    pub link_bytes: u64,
    /// Bytes that wait for the line of a host with a limited bandwidth, in each direction. Default 256 KiB.
    pub line_bytes: u64,
}

impl Default for QueueLimits {
    fn default() -> QueueLimits {
        QueueLimits { link_bytes: 16 << 20, line_bytes: 256 << 10 }
    }
}

/// A host of a laboratory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabHost {
    /// Name, unique among hosts and routers: lower-case letters, digits and `-`, at most 24 characters.
    pub name: String,
    /// Label of the site where the host stands; `main` by default.
    #[serde(default = "main_site")]
    pub site: String,
    /// Kind of the router between the host and the network.
    #[serde(default)]
    pub nat: NatKind,
    /// Families of addresses that the host has. Default: IPv4, and IPv6 for the kind `ipv6-only`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkKind>,
    /// Name of a router that the host shares with other hosts of the same `behind`. Default: a router of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<String>,
    /// Seconds for which the router keeps the mapping of a UDP port without packets: 1 to 3,600. By default as the kernel does: 30 s,
    /// and 120 s once both sides have sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapping_s: Option<u32>,
    /// Bandwidth of the host's line in each direction, in Mbit/s; unlimited by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_mbit: Option<f64>,
}

fn main_site() -> String {
    "main".into()
}

impl LabHost {
    /// Returns the families of addresses that the host has.
    pub fn families(&self) -> LinkKind {
        match (self.link, self.nat) {
            (Some(link), _) => link,
            (None, NatKind::Ipv6Only) => LinkKind::Ipv6,
            (None, _) => LinkKind::Ipv4,
        }
    }
}

/// Families of addresses of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkKind {
    /// IPv4 alone.
    Ipv4,
    /// IPv6 alone.
    Ipv6,
    /// IPv4 and IPv6.
    Both,
}

impl LinkKind {
    /// Returns whether the host has an IPv4 address.
    pub fn has_v4(self) -> bool {
        self != LinkKind::Ipv6
    }

    /// Returns whether the host has an IPv6 address.
    pub fn has_v6(self) -> bool {
        self != LinkKind::Ipv4
    }
}

/// Kind of the router between a host and the network, by the two axes of RFC 4787: how it maps ports, and which packets it lets in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NatKind {
    /// No router: the host has a public address.
    #[default]
    None,
    /// Endpoint-independent mapping and filtering: the whole public address belongs to the host.
    EndpointIndependent,
    /// Endpoint-independent mapping, address-and-port-dependent filtering: most routers at home.
    AddressAndPortFiltered,
    /// Address-and-port-dependent mapping and filtering: another port for each destination.
    Symmetric,
    /// As `address-and-port-filtered`, and no UDP passes.
    UdpBlocked,
    /// As `address-and-port-filtered`, and no TCP passes.
    TcpBlocked,
    /// Two routers of the kind `address-and-port-filtered` in a row, the outer one of a carrier.
    Double,
    /// No router and no IPv4: the host has a public IPv6 address alone.
    Ipv6Only,
}

impl NatKind {
    /// All kinds.
    pub const ALL: [NatKind; 8] = [
        NatKind::None,
        NatKind::EndpointIndependent,
        NatKind::AddressAndPortFiltered,
        NatKind::Symmetric,
        NatKind::UdpBlocked,
        NatKind::TcpBlocked,
        NatKind::Double,
        NatKind::Ipv6Only,
    ];

    /// Returns whether there is a router between the host and the network.
    pub fn has_router(self) -> bool {
        !matches!(self, NatKind::None | NatKind::Ipv6Only)
    }

    /// Returns whether hosts elsewhere can open a connection to the host.
    pub fn is_open(self) -> bool {
        matches!(self, NatKind::None | NatKind::Ipv6Only | NatKind::EndpointIndependent)
    }
}

impl LabPlan {
    /// Reads a plan from a file. The file of a matrix that it names is read, too, and stands in the plan from then on.
    ///
    /// # Errors
    /// A file that cannot be read, or a plan that is not valid; the error names the file.
    pub fn read(file: &Path) -> Result<LabPlan, String> {
        let named = |why: String| format!("{}: {why}", file.display());
        let text = std::fs::read_to_string(file).map_err(|error| named(error.to_string()))?;
        let mut plan = LabPlan::decode(&text).map_err(named)?;
        if let LatencyModel::Matrix { file: Some(matrix), table: None } = &plan.latency {
            let path = file.parent().unwrap_or(Path::new("")).join(matrix);
            let table = SiteMatrix::read(&path)?;
            plan.latency = LatencyModel::Matrix { file: None, table: Some(table) };
        }
        plan.validate().map_err(named)?;
        Ok(plan)
    }

    /// Reads a plan from TOML or JSON.
    ///
    /// # Errors
    /// A text that is no plan, or a plan that is not valid.
    pub fn parse(text: &str) -> Result<LabPlan, String> {
        let plan = LabPlan::decode(text)?;
        plan.validate()?;
        Ok(plan)
    }

    fn decode(text: &str) -> Result<LabPlan, String> {
        match text.trim_start().starts_with('{') {
            true => serde_json::from_str(text).map_err(|error| format!("the plan is no valid JSON: {error}")),
            false => toml::from_str(text).map_err(|error| format!("the plan is no valid TOML: {error}")),
        }
    }

    /// Checks that the plan can be built.
    ///
    /// # Errors
    /// The first field that is wrong, and the values that it may have.
    pub fn validate(&self) -> Result<(), String> {
        check_name("name", &self.name)?;
        if !(1..=HOSTS_MAX).contains(&self.hosts.len()) {
            return Err(format!("hosts: a laboratory has 1 to {HOSTS_MAX} hosts, and this plan {}", self.hosts.len()));
        }
        if self.loss_per_mille > 1_000 {
            return Err(format!("loss_per_mille = {} is above 1000", self.loss_per_mille));
        }
        if self.machine_us > 1_000 {
            return Err(format!("machine_us = {} is above 1000: measure a round trip within a site", self.machine_us));
        }
        if self.queues.link_bytes < 2_000 || self.queues.line_bytes < 2_000 {
            return Err("queues: a queue holds at least one packet: give 2000 bytes or more".into());
        }
        self.jitter.validate()?;
        let mut names = BTreeSet::new();
        for host in &self.hosts {
            host.validate()?;
            if !names.insert(&host.name) {
                return Err(format!("hosts: two hosts have the name {:?}; give each one of its own", host.name));
            }
        }
        self.validate_routers(&names)?;
        self.latency.validate(&self.sites())
    }

    /// Checks the routers that hosts share.
    fn validate_routers(&self, hosts: &BTreeSet<&String>) -> Result<(), String> {
        let mut routers: BTreeMap<&String, Vec<&LabHost>> = BTreeMap::new();
        for host in &self.hosts {
            if let Some(router) = &host.behind {
                routers.entry(router).or_default().push(host);
            }
        }
        for (router, behind) in routers {
            let first = behind[0];
            if hosts.contains(router) {
                return Err(format!("behind = {router:?} is the name of a host: give the router another one"));
            }
            if let Some(other) = behind.iter().find(|host| host.nat != first.nat || host.site != first.site) {
                let (one, two) = (&first.name, &other.name);
                return Err(format!(
                    "{one:?} and {two:?} are behind router {router:?}: give them one nat and one site"
                ));
            }
            if behind.iter().any(|host| host.bandwidth_mbit != first.bandwidth_mbit) {
                return Err(format!("hosts behind router {router:?} share its line: give them one bandwidth_mbit"));
            }
            if behind.iter().any(|host| host.mapping_s != first.mapping_s) {
                return Err(format!("hosts behind router {router:?} share its rules: give them one mapping_s"));
            }
            if first.nat == NatKind::EndpointIndependent && behind.len() > 1 {
                return Err(format!(
                    "router {router:?}: endpoint-independent gives the whole address to one host; use another kind for several"
                ));
            }
            if behind.len() > BEHIND_MAX {
                return Err(format!("router {router:?} has more than {BEHIND_MAX} hosts behind it"));
            }
        }
        Ok(())
    }

    /// Returns the labels of the sites, in the order of their first hosts.
    pub fn sites(&self) -> Vec<&str> {
        let mut sites: Vec<&str> = Vec::new();
        for host in &self.hosts {
            if !sites.contains(&host.site.as_str()) {
                sites.push(&host.site);
            }
        }
        sites
    }
}

impl LabHost {
    fn validate(&self) -> Result<(), String> {
        check_name("hosts: name", &self.name)?;
        let named = |why: &str| Err(format!("host {:?}: {why}", self.name));
        check_name(&format!("host {:?}: site", self.name), &self.site)?;
        if let Some(router) = &self.behind {
            check_name(&format!("host {:?}: behind", self.name), router)?;
            if !self.nat.has_router() {
                return named("behind names a router, and this nat has none: choose another nat, or leave behind out");
            }
        }
        if self.nat == NatKind::Ipv6Only && self.families() != LinkKind::Ipv6 {
            return named("nat = \"ipv6-only\" has no IPv4: leave link out, or choose another nat");
        }
        match self.mapping_s {
            Some(_) if !self.nat.has_router() => return named("mapping_s is of a router, and this nat has none"),
            Some(seconds) if !(1..=3_600).contains(&seconds) => {
                return named(&format!("mapping_s = {seconds} is outside of 1 to 3600"));
            }
            _ => {}
        }
        match self.bandwidth_mbit {
            Some(mbit) if !(0.01..=100_000.0).contains(&mbit) => {
                named(&format!("bandwidth_mbit = {mbit} is outside of 0.01 to 100000"))
            }
            _ => Ok(()),
        }
    }
}

/// Checks a name that becomes part of the name of a namespace.
pub(super) fn check_name(field: &str, name: &str) -> Result<(), String> {
    let plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    match plain && !name.is_empty() && name.len() <= NAME_CHARS_MAX && !name.starts_with('-') {
        true => Ok(()),
        false => Err(format!(
            "{field} = {name:?} is no name: use 1 to {NAME_CHARS_MAX} lower-case letters, digits and `-`, none of the latter first"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        LabPlan::parse(text).expect_err("the plan is not valid")
    }

    fn plan(hosts: &str) -> String {
        format!("name = 'x'\nlatency = {{ model = 'three-sites' }}\nhosts = [{hosts}]")
    }

    #[test]
    fn a_plan_is_the_same_in_toml_and_json() {
        let text = plan("{ name = 'a', site = 'oslo', nat = 'double' }, { name = 'b', link = 'both' }");
        let toml = LabPlan::parse(&text).expect("a valid plan");
        let json = serde_json::to_string(&toml).expect("JSON");
        assert_eq!(LabPlan::parse(&json).expect("the same plan"), toml);
        assert_eq!(toml.sites(), ["oslo", "main"]);
        assert_eq!((toml.hosts[0].families(), toml.hosts[1].families()), (LinkKind::Ipv4, LinkKind::Both));
    }

    #[test]
    fn a_matrix_is_read_from_the_file_that_the_plan_names() {
        let directory = std::env::temp_dir().join(format!("lab-plan-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let (file, matrix) = (directory.join("plan.toml"), directory.join("matrix.json"));
        let text = "name = 'x'\nlatency = { model = 'matrix', file = 'matrix.json' }\n\
                    hosts = [{ name = 'a', site = 'p' }, { name = 'b', site = 'q' }]";
        std::fs::write(&file, text).expect("a plan");
        let missing = LabPlan::read(&file).expect_err("there is no matrix");
        assert!(missing.contains("matrix.json"), "{missing}");
        let table = r#"{ "sites": ["q", "p"], "within_ms": 0.5, "round_trip_ms": [[0, 30], [30, 0]] }"#;
        std::fs::write(matrix, table).expect("a matrix");
        let plan = LabPlan::read(&file).expect("a valid plan");
        std::fs::remove_dir_all(&directory).expect("no directory");
        let delays = crate::lab::Layout::new(&plan).delays(&plan);
        assert_eq!(delays[0][1], std::time::Duration::from_millis(15));
        assert!(LabPlan::parse(text).expect_err("no file").contains("was not read"));
    }

    #[test]
    fn refusals_name_the_field() {
        for (hosts, named) in [
            ("", "1 to 250 hosts"),
            ("{ name = 'A' }", "lower-case"),
            ("{ name = 'a' }, { name = 'a' }", "two hosts"),
            ("{ name = 'a', nat = 'cone' }", "cone"),
            ("{ name = 'a', nta = 'none' }", "nta"),
            ("{ name = 'a', behind = 'r' }", "behind"),
            ("{ name = 'a', nat = 'ipv6-only', link = 'both' }", "ipv6-only"),
            ("{ name = 'a', bandwidth_mbit = 0 }", "bandwidth_mbit"),
            ("{ name = 'a', mapping_s = 5 }", "mapping_s"),
            ("{ name = 'a', nat = 'double', mapping_s = 0 }", "1 to 3600"),
            ("{ name = 'r' }, { name = 'a', nat = 'double', behind = 'r' }", "name of a host"),
            (
                "{ name = 'a', nat = 'double', behind = 'r' }, { name = 'b', nat = 'symmetric', behind = 'r' }",
                "one nat and one site",
            ),
            (
                "{ name = 'a', nat = 'endpoint-independent', behind = 'r' }, \
                 { name = 'b', nat = 'endpoint-independent', behind = 'r' }",
                "whole address",
            ),
            ("{name='a',site='p'},{name='b',site='q'},{name='c',site='r'},{name='d',site='s'}", "three sites"),
        ] {
            let told = refusal(&plan(hosts));
            assert!(told.contains(named), "{hosts}: {told}");
        }
        let slow = format!("machine_us = 1001\n{}", plan("{ name = 'a' }"));
        assert!(refusal(&slow).contains("machine_us"));
        let lossy = format!("loss_per_mille = 1001\n{}", plan("{ name = 'a' }"));
        assert!(refusal(&lossy).contains("loss_per_mille"));
    }
}
