//! Settings of the daemon: flags over environment over a file over a profile over defaults, each with its origin.

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

/// Settings that do not fit; the text is for the user who wrote them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// Way into a network, where this peer's store does not know of one already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The peer founds a network.
    New,
    /// The peer joins through these peers.
    Join(Vec<Multiaddr>),
    /// The peer joins through any peers that it finds on the local network.
    Discover,
    /// No way was given: the store has to know a network already.
    Known,
}

/// Origin of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Flag of the command line.
    Flag,
    /// Variable of the environment.
    Environment(String),
    /// Settings file.
    File(PathBuf),
    /// Profile.
    Profile(Profile),
    /// Setting that this peer remembers of its network.
    Network,
    /// Setting that this peer remembers of itself.
    DataDir,
    /// Built-in default.
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
    /// Name as in the file.
    pub name: &'static str,
    /// Value as it could be written in the file.
    pub value: String,
    /// Origin of the value.
    pub origin: Origin,
}

/// All settings of `scatter run`, validated as far as that is possible without the network and the store.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of identity and store.
    pub data_dir: PathBuf,
    /// Addresses at which other peers reach this one.
    pub listen: Vec<Multiaddr>,
    /// Way into a network.
    pub entry: Entry,
    /// Name of the network.
    pub network: String,
    /// Key of a closed network: the content of the file without white space around it.
    pub network_key: Option<Vec<u8>>,
    /// Address for clients.
    pub resp: Option<SocketAddr>,
    /// Address of the HTTP endpoint.
    pub http: Option<SocketAddr>,
    /// Password of clients.
    pub resp_password: Option<Vec<u8>>,
    /// Token of administrators.
    pub admin_token: Option<Vec<u8>>,
    /// Leased instead of confirmed reads.
    pub leases: bool,
    /// Whether writes of a sub-range are answered in order; only the founder's setting counts.
    pub coarse: bool,
    /// Number of lanes among which keys are divided; the same in the whole network.
    pub lanes: u8,
    /// Time for which the group waits for this peer after a clean stop.
    pub away: Duration,
    /// Time for which a member may be silent before this peer, as leader of its group, removes it.
    pub exclude_after: Duration,
    /// Basis of an acknowledgement.
    pub durability: Durability,
    /// Name of this peer.
    pub name: Option<PeerName>,
    /// Cluster of this peer.
    pub cluster: String,
    /// Switch that spreads reads.
    pub switch: Option<SocketAddr>,
    /// Lower limit of members; a smaller group merges.
    pub min_group: u32,
    /// Upper limit of members; a larger group splits.
    pub max_group: u32,
    /// Policies of the decisions that this peer makes.
    pub policies: node::Policies,
    /// Upper limit of a value, in bytes.
    pub max_value: usize,
    /// Whether to find peers on the local network.
    pub mdns: bool,
    /// Whether to get through home routers.
    pub nat: bool,
    /// Whether to connect to private addresses.
    pub dial_private: bool,
    /// Upper limit of bytes on disk.
    pub max_disk: u64,
    /// Upper limit of bytes in memory.
    pub max_memory: u64,
    /// Upper limit of bytes per second; `None` is no limit.
    pub max_bandwidth: Option<u64>,
    /// Upper limit of connections with other peers.
    pub max_connections: u32,
    /// Form of the ready line.
    pub output: Format,
    /// Form of the log.
    pub log_format: Format,
    /// Settings of the user that differ from the network's agreed ones, as text; the network's settings count.
    pub overruled: Vec<String>,
    /// All settings above with their origins, in the order of the names.
    pub shown: Vec<Shown>,
}

impl Config {
    /// Returns the origin of the setting of this name.
    pub fn origin(&self, name: &str) -> Option<&Origin> {
        self.shown.iter().find(|shown| shown.name == name).map(|shown| &shown.origin)
    }
}
