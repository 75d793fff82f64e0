//! Settings of the daemon: flags over environment over a file over a profile over defaults, each with where it is from.

mod layer;
mod resolve;
mod units;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use overlay::PeerName;

pub use layer::{Durability, Format, Layer, Profile};
pub use resolve::{Sources, network_key_is_long, parse, resolve};
pub use units::{Bytes, Endpoint, Multiaddr, Policy, Switch};

/// Settings that do not fit; the text is for the person who wrote them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// How this peer gets into a network, where its store does not know of one already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// It founds one.
    New,
    /// Through these peers.
    Join(Vec<Multiaddr>),
    /// Through whomever it finds on the local network.
    Discover,
    /// Nothing was said: it has to be in one already.
    Known,
}

/// Where a setting is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The command line.
    Flag,
    /// The environment.
    Environment(String),
    /// A file.
    File(PathBuf),
    /// A profile.
    Profile(Profile),
    /// What this peer remembers of its network.
    Network,
    /// What this peer remembers of itself.
    DataDir,
    /// Built in.
    Default,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Flag => f.write_str("flag"),
            Origin::Environment(name) => write!(f, "environment {name}"),
            Origin::File(path) => write!(f, "file {}", path.display()),
            Origin::Profile(profile) => write!(f, "profile {profile}"),
            Origin::Network => f.write_str("network"),
            Origin::DataDir => f.write_str("data directory"),
            Origin::Default => f.write_str("default"),
        }
    }
}

/// One setting as `--print-config` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// As in the file.
    pub name: &'static str,
    /// As it could be written there.
    pub value: String,
    /// Who said so.
    pub origin: Origin,
}

/// All settings of `scatter run`, valid as far as that can be told without the network and the store.
#[derive(Clone, Debug)]
pub struct Config {
    /// Identity and store.
    pub data_dir: PathBuf,
    /// Where other peers reach this one.
    pub listen: Vec<Multiaddr>,
    /// How it gets into a network.
    pub entry: Entry,
    /// The network's name.
    pub network: String,
    /// The key of a closed network, as the file has it without white space around it.
    pub network_key: Option<Vec<u8>>,
    /// Where clients connect.
    pub resp: Option<SocketAddr>,
    /// Where status is served.
    pub http: Option<SocketAddr>,
    /// The password of clients.
    pub resp_password: Option<Vec<u8>>,
    /// The token of administrators.
    pub admin_token: Option<Vec<u8>>,
    /// Leased instead of confirmed reads.
    pub leases: bool,
    /// Writes of a sub-range are answered in order; only a founder's word counts.
    pub coarse: bool,
    /// Into how many lanes keys are divided; the same in the whole network.
    pub lanes: u8,
    /// How long the group waits for this peer after a clean stop.
    pub away: Duration,
    /// How long a member may be silent before this peer, as leader of its group, removes it.
    pub exclude_after: Duration,
    /// What an acknowledgement rests on.
    pub durability: Durability,
    /// What people call this peer.
    pub name: Option<PeerName>,
    /// Where this peer stands.
    pub cluster: String,
    /// The switch that spreads reads.
    pub switch: Option<SocketAddr>,
    /// A smaller group merges.
    pub min_group: u32,
    /// A larger group splits.
    pub max_group: u32,
    /// How this peer decides what it may decide.
    pub policies: node::Policies,
    /// The longest value, in bytes.
    pub max_value: usize,
    /// Find peers on the local network.
    pub mdns: bool,
    /// Get through home routers.
    pub nat: bool,
    /// Connect to private addresses.
    pub dial_private: bool,
    /// Bytes on disk.
    pub max_disk: u64,
    /// Bytes of memory.
    pub max_memory: u64,
    /// Bytes a second; `None` is no limit.
    pub max_bandwidth: Option<u64>,
    /// Connections with other peers.
    pub max_connections: u32,
    /// Of the line that says that this peer serves.
    pub output: Format,
    /// Of the log.
    pub log_format: Format,
    /// What somebody said and the network had agreed on otherwise, in words; the network's word counts.
    pub overruled: Vec<String>,
    /// Everything above with its origin, in the order of the names.
    pub shown: Vec<Shown>,
}

impl Config {
    /// Where the setting of this name is from.
    pub fn origin(&self, name: &str) -> Option<&Origin> {
        self.shown.iter().find(|shown| shown.name == name).map(|shown| &shown.origin)
    }
}
