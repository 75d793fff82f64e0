//! Inventories: the hosts of a network of real daemons, how each host is reached, and how many peers it runs.
//!
//! An inventory is a TOML file:
//!
//! ```toml
//! name = "three-sites"               # names the network, and its directories
//! flags = ["--durability", "memory"] # for all peers
//!
//! [[host]]
//! name = "here"
//! kind = "local"                     # processes on this machine
//! peers = 4
//!
//! [[host]]
//! name = "east"
//! kind = "ssh"
//! ssh = "volunteer@east.example.org" # as the system's ssh understands it, with the user's own configuration
//! address = "203.0.113.7"            # where the other hosts reach it
//! peers = 2
//! labels = { site = "east" }
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::FleetError;
use crate::lab::{LabPlan, Layout};

/// First port of a host that names none.
const FIRST_PORT: u16 = 21_000;
/// Ports of a peer: one for peers, one for clients, one for administrators.
pub(super) const PORTS_PER_PEER: u16 = 3;
/// Upper limit of the peers on one host.
const PEERS_MAX: u16 = 1_000;
/// Upper limit of the length of a name.
const NAME_MAX: usize = 40;

/// A network of real daemons, as its owner describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Inventory {
    /// Name of the network: letters, digits and `-`.
    pub name: String,
    /// The daemon's program on this machine; `scatter` beside this program if `None`.
    #[serde(default)]
    pub program: Option<PathBuf>,
    /// Flags of `scatter run` for all peers.
    #[serde(default)]
    pub flags: Vec<String>,
    /// File with the plan of a laboratory ([`crate::lab`]), relative to the inventory: hosts of kind `netns` that have the names of its hosts
    /// need no more settings.
    #[serde(default)]
    pub lab: Option<PathBuf>,
    /// The hosts.
    #[serde(default, rename = "host")]
    pub hosts: Vec<HostEntry>,
}

/// Means by which commands are run on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostKind {
    /// This machine.
    Local,
    /// A network namespace on this machine, which exists already.
    Netns,
    /// Another machine, by the system's `ssh`.
    Ssh,
}

/// One host of an inventory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HostEntry {
    /// Name of the host: letters, digits and `-`; unique in the inventory.
    pub name: String,
    /// Means by which commands are run there.
    pub kind: HostKind,
    /// Number of peers.
    pub peers: u16,
    /// IP address at which the other hosts reach it. A local host needs none.
    #[serde(default)]
    pub address: Option<IpAddr>,
    /// Destination for `ssh`.
    #[serde(default)]
    pub ssh: Option<String>,
    /// Further options for `ssh`, such as `["-p", "2222"]`.
    #[serde(default)]
    pub ssh_options: Vec<String>,
    /// Name of the network namespace (`ip netns`).
    #[serde(default)]
    pub netns: Option<String>,
    /// Directory on the host for programs, data and logs. Relative to the home directory on an `ssh` host.
    #[serde(default)]
    pub directory: Option<PathBuf>,
    /// First port; each peer takes three.
    #[serde(default)]
    pub ports: Option<u16>,
    /// Further flags of `scatter run` for the peers of this host.
    #[serde(default)]
    pub flags: Vec<String>,
    /// Labels. `site` and `rack` are told to the peers.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

impl HostEntry {
    /// Returns a host on this machine with this number of peers.
    pub fn local(name: &str, peers: u16) -> HostEntry {
        HostEntry {
            name: name.to_owned(),
            kind: HostKind::Local,
            peers,
            address: None,
            ssh: None,
            ssh_options: Vec::new(),
            netns: None,
            directory: None,
            ports: None,
            flags: Vec::new(),
            labels: BTreeMap::new(),
        }
    }

    /// Returns the address at which other hosts reach it.
    pub(super) fn reached_at(&self) -> IpAddr {
        self.address.unwrap_or(IpAddr::from([127, 0, 0, 1]))
    }

    /// Returns the first of its ports.
    pub(super) fn first_port(&self) -> u16 {
        self.ports.unwrap_or(FIRST_PORT)
    }

    fn check(&self) -> Result<(), String> {
        check_name(&self.name)?;
        if !(1..=PEERS_MAX).contains(&self.peers) {
            return Err(format!("peers = {} is outside of 1 to {PEERS_MAX}", self.peers));
        }
        if u32::from(self.first_port()) + u32::from(self.peers) * u32::from(PORTS_PER_PEER) > 65_536
            || self.first_port() < 1024
        {
            return Err(format!(
                "ports = {}: {} peers need {} ports from there, between 1024 and 65535",
                self.first_port(),
                self.peers,
                u32::from(self.peers) * u32::from(PORTS_PER_PEER)
            ));
        }
        if let Some(label) = self.labels.keys().find(|label| check_name(label).is_err()) {
            return Err(format!("the label {label:?} has other characters than letters, digits and -"));
        }
        let needs = |what: &str, is: &str| Err(format!("a host of kind {is} needs {what}"));
        let has_no_use =
            |what: &str| Err(format!("{what} has no use for a host of kind {:?}", self.kind).to_lowercase());
        match self.kind {
            HostKind::Ssh if self.ssh.is_none() => needs("ssh = \"user@host\"", "ssh"),
            HostKind::Ssh if self.ssh.as_ref().is_some_and(|it| it.is_empty() || it.starts_with('-')) => {
                Err("ssh is no destination: it is empty, or begins with -".into())
            }
            HostKind::Ssh if self.address.is_none() => needs("address = \"IP\", where the other hosts reach it", "ssh"),
            HostKind::Netns if self.netns.is_none() => {
                needs("netns = \"NAME\", as `ip netns list` shows it, or a lab with a host of its name", "netns")
            }
            HostKind::Netns if self.address.is_none() => needs("address = \"IP\" of the namespace", "netns"),
            HostKind::Local | HostKind::Netns if self.ssh.is_some() => has_no_use("ssh"),
            HostKind::Local | HostKind::Ssh if self.netns.is_some() => has_no_use("netns"),
            _ => Ok(()),
        }
    }
}

/// Checks a name that becomes a part of paths and commands.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    match name.len() {
        1..=NAME_MAX if name.chars().all(is_plain) && !name.starts_with('-') => Ok(()),
        _ => Err(format!("the name {name:?} is not 1 to {NAME_MAX} letters, digits and -")),
    }
}

impl Inventory {
    /// Reads an inventory.
    ///
    /// # Errors
    /// The file cannot be read, or is no valid inventory: the text tells what to change, and where.
    pub fn read(path: &Path) -> Result<Inventory, FleetError> {
        let refused = |why: String| FleetError::Refused(format!("{}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
        let mut inventory: Inventory = toml::from_str(&text).map_err(|error| refused(error.to_string()))?;
        if let Some(plan) = inventory.lab.take() {
            let plan = path.parent().unwrap_or(Path::new("")).join(plan);
            let plan = std::path::absolute(&plan).unwrap_or(plan);
            inventory.place_in(&LabPlan::read(&plan).map_err(FleetError::Refused)?);
            inventory.lab = Some(plan);
        }
        inventory.check().map_err(refused)?;
        Ok(inventory)
    }

    /// Gives hosts of kind `netns` the namespaces and addresses of the laboratory's hosts with the same names.
    fn place_in(&mut self, plan: &LabPlan) {
        let layout = Layout::new(plan);
        for host in self.hosts.iter_mut().filter(|host| host.kind == HostKind::Netns) {
            let Some(place) = layout.host(&host.name) else { continue };
            host.netns.get_or_insert_with(|| place.namespace.clone());
            host.address = host.address.or_else(|| place.public.first().or(place.local.first()).copied());
            if !place.site.is_empty() {
                host.labels.entry("site".to_owned()).or_insert_with(|| place.site.clone());
            }
        }
    }

    /// Returns the inventory that a text describes.
    ///
    /// # Errors
    /// A description for a person, if it is not valid.
    pub fn parse(text: &str) -> Result<Inventory, String> {
        let inventory: Inventory = toml::from_str(text).map_err(|error| error.to_string())?;
        inventory.check()?;
        Ok(inventory)
    }

    /// Returns an inventory of peers on this machine.
    pub fn local(name: &str, peers: u16) -> Inventory {
        let hosts = vec![HostEntry::local("here", peers)];
        Inventory { name: name.to_owned(), program: None, flags: Vec::new(), lab: None, hosts }
    }

    /// Checks the inventory as a whole.
    ///
    /// # Errors
    /// A description for a person.
    pub fn check(&self) -> Result<(), String> {
        check_name(&self.name)?;
        if self.hosts.is_empty() {
            return Err("there are no hosts: add a [[host]]".into());
        }
        let mut names = BTreeSet::new();
        for host in &self.hosts {
            host.check().map_err(|why| format!("host {:?}: {why}", host.name))?;
            if !names.insert(&host.name) {
                return Err(format!("two hosts have the name {:?}", host.name));
            }
        }
        let is_local = |host: &HostEntry| host.reached_at().is_loopback();
        if let [Some(here), Some(there)] = [true, false].map(|local| self.hosts.iter().find(|h| is_local(h) == local)) {
            return Err(format!(
                "host {:?} is reached at {} alone, where {:?} cannot reach it: give it an address",
                here.name,
                here.reached_at(),
                there.name
            ));
        }
        self.check_ports()
    }

    /// Checks that no two peers share a port.
    fn check_ports(&self) -> Result<(), String> {
        for (index, host) in self.hosts.iter().enumerate() {
            let other = self.hosts[..index].iter().find(|other| shares_ports(host, other));
            if let Some(other) = other {
                return Err(format!(
                    "the hosts {:?} and {:?} share ports at {}: give one of them other `ports`",
                    other.name,
                    host.name,
                    host.reached_at()
                ));
            }
        }
        Ok(())
    }

    /// Returns a port that peers of this inventory share with another inventory's, with its address.
    pub fn shared_port(&self, other: &Inventory) -> Option<(IpAddr, u16)> {
        let pairs = self.hosts.iter().flat_map(|host| other.hosts.iter().map(move |there| (host, there)));
        pairs
            .filter(|(host, there)| shares_ports(host, there))
            .map(|(host, there)| (host.reached_at(), host.first_port().max(there.first_port())))
            .next()
    }

    /// Returns whether the peers keep nothing on disk: a network all of whose peers have ended is gone then.
    pub(super) fn is_in_memory(&self) -> bool {
        let all = self.flags.iter().chain(self.hosts.iter().flat_map(|host| &host.flags));
        let words: Vec<&str> = all.map(String::as_str).collect();
        words.contains(&"--durability=memory") || words.windows(2).any(|pair| pair == ["--durability", "memory"])
    }

    /// Returns the number of peers.
    pub fn peers(&self) -> usize {
        self.hosts.iter().map(|host| usize::from(host.peers)).sum()
    }
}

/// Returns whether peers of two hosts would listen at one port of one address.
fn shares_ports(one: &HostEntry, other: &HostEntry) -> bool {
    let ports = |host: &HostEntry| {
        let first = u32::from(host.first_port());
        first..first + u32::from(host.peers) * u32::from(PORTS_PER_PEER)
    };
    let (here, there) = (ports(one), ports(other));
    one.reached_at() == other.reached_at() && here.start < there.end && there.start < here.end
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "name = \"two\"\n[[host]]\nname = \"a\"\nkind = \"local\"\npeers = 2\n";

    #[test]
    fn an_inventory_is_read() {
        let inventory = Inventory::parse(TWO).expect("it is valid");
        assert_eq!(inventory.hosts, [HostEntry::local("a", 2)]);
        assert_eq!(inventory.peers(), 2);
        assert_eq!(Inventory::local("two", 2).check(), Ok(()));
    }

    #[test]
    fn mistakes_are_named() {
        let host = |more: &str| format!("{TWO}{more}");
        let cases = [
            ("name = \"two\"".to_owned(), "there are no hosts"),
            (TWO.replace("\"two\"", "\"t/wo\""), "\"t/wo\" is not 1 to 40"),
            (host("[[host]]\nname = \"a\"\nkind = \"local\"\npeers = 1\nports = 30000\n"), "two hosts have the name"),
            (host("[[host]]\nname = \"b\"\nkind = \"local\"\npeers = 1\n"), "share ports at 127.0.0.1"),
            (host("ports = 65531"), "2 peers need 6 ports"),
            (host("sh = \"x\""), "unknown field `sh`"),
            (host("ssh = \"x\""), "ssh has no use for a host of kind local"),
            (TWO.replace("\"local\"", "\"ssh\""), "needs ssh ="),
            (TWO.replace("\"local\"", "\"ssh\"\nssh = \"-oX\""), "begins with -"),
            (TWO.replace("\"local\"", "\"ssh\"\nssh = \"x\""), "needs address ="),
            (TWO.replace("\"local\"", "\"netns\""), "needs netns ="),
            (TWO.replace("peers = 2", "peers = 0"), "outside of 1 to 1000"),
            (
                host("[[host]]\nname = \"b\"\nkind = \"ssh\"\nssh = \"x\"\naddress = \"10.0.0.1\"\npeers = 1\n"),
                "give it an address",
            ),
        ];
        for (text, wanted) in cases {
            let why = Inventory::parse(&text).expect_err(wanted);
            assert!(why.contains(wanted), "{why:?} instead of {wanted:?}");
        }
    }

    #[test]
    fn inventories_that_share_ports_are_found() {
        let (one, mut other) = (Inventory::local("one", 3), Inventory::local("other", 3));
        assert_eq!(one.shared_port(&other), Some((IpAddr::from([127, 0, 0, 1]), FIRST_PORT)));
        other.hosts[0].ports = Some(FIRST_PORT + 8);
        assert_eq!(one.shared_port(&other), Some((IpAddr::from([127, 0, 0, 1]), FIRST_PORT + 8)));
        other.hosts[0].ports = Some(FIRST_PORT + 9);
        assert_eq!(one.shared_port(&other), None);
    }
}
