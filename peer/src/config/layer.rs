//! One source of settings. The command line (with the environment behind it), a file, a profile and the defaults all have this shape;
//! [`super::resolve()`] merges them by precedence.

use std::fmt;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use overlay::PeerName;
use serde::Deserialize;

use super::units::{Bytes, Endpoint, Multiaddr, Policy, Switch, lanes, whole};

/// Basis of an acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// On disk at a quorum.
    #[default]
    Sync,
    /// In the memory of a quorum.
    Memory,
}

/// A set of defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Few connections, modest budgets, finds peers on the LAN; behind a router it needs a forwarded port.
    Home,
    /// On the open internet: no dials to private addresses, no search on the LAN.
    Server,
    /// On one LAN: no search for peers, large budgets.
    Datacenter,
}

/// Form of a printed line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For scripts.
    Json,
}

macro_rules! display_as_value {
    ($($type:ty),*) => {$(
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.to_possible_value().as_ref().map_or("", |value| value.get_name()))
            }
        }
    )*};
}

display_as_value!(Durability, Profile, Format);

/// Settings of `scatter run`, as far as one source gives them.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Layer {
    /// Data directory: identity and store [default: $XDG_DATA_HOME/scatter]
    #[arg(long, value_name = "DIR", env = "SCATTER_DATA_DIR")]
    pub data_dir: Option<PathBuf>,

    /// Addresses at which other peers reach this one; may be repeated [default: TCP and QUIC on all interfaces, port 6478]
    #[arg(long, value_name = "MULTIADDR", env = "SCATTER_LISTEN", value_delimiter = ',')]
    pub listen: Option<Vec<Multiaddr>>,

    /// A peer through which to join the network; may be repeated: /ip4/…/tcp/…/p2p/PEERID
    #[arg(long, value_name = "MULTIADDR", env = "SCATTER_JOIN", value_delimiter = ',')]
    pub join: Option<Vec<Multiaddr>>,

    /// Start a new network; this is its first peer
    #[arg(long, env = "SCATTER_NEW", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_name = "TRUTH", value_parser = clap::builder::BoolishValueParser::new(), hide_possible_values = true)]
    pub new: Option<bool>,

    /// The network's name: only peers of the same name talk to each other [default: scatter]
    #[arg(long, value_name = "NAME", env = "SCATTER_NETWORK")]
    pub network: Option<String>,

    /// A file with the key of a closed network: only peers that hold it are let in
    #[arg(long, value_name = "FILE", env = "SCATTER_NETWORK_KEY")]
    pub network_key: Option<PathBuf>,

    /// Address for clients, or off [default: 127.0.0.1:6479]
    #[arg(long, value_name = "ADDR", env = "SCATTER_RESP")]
    pub resp: Option<Endpoint>,

    /// Address for status and metrics, or off [default: 127.0.0.1:6480]
    #[arg(long, value_name = "ADDR", env = "SCATTER_HTTP")]
    pub http: Option<Endpoint>,

    /// File with the clients' password; needed if --resp is not on loopback
    #[arg(long, value_name = "FILE", env = "SCATTER_RESP_PASSWORD_FILE")]
    pub resp_password_file: Option<PathBuf>,

    /// File with the administrators' token; needed if --http is not on loopback
    #[arg(long, value_name = "FILE", env = "SCATTER_ADMIN_TOKEN_FILE")]
    pub admin_token_file: Option<PathBuf>,

    /// Leased instead of confirmed reads; the same in the whole network [default: off]
    #[arg(long, value_name = "on|off", env = "SCATTER_LEASES")]
    pub leases: Option<Switch>,

    /// Writes of a primary are acknowledged and answered in order, as in one log, for comparison and for switches; the
    /// same in the whole network [default: off]
    #[arg(long, value_name = "on|off", env = "SCATTER_COARSE")]
    pub coarse: Option<Switch>,

    /// Number of lanes among which keys are divided, each with a thread of its own in every peer; the same in the whole network, and for
    /// good [default: 1]
    #[arg(long, value_name = "N", env = "SCATTER_LANES", value_parser = lanes)]
    pub lanes: Option<u8>,

    /// Time for which the group waits for this peer after a clean stop before it is replaced [default: 60; home: 0]
    #[arg(long, value_name = "SECONDS", env = "SCATTER_AWAY", value_parser = whole::<u64>)]
    pub away: Option<u64>,

    /// Time for which a member may be silent before this peer, as leader of its group, removes it [default: 3]
    #[arg(long, value_name = "SECONDS", env = "SCATTER_EXCLUDE_AFTER", value_parser = whole::<u64>)]
    pub exclude_after: Option<u64>,

    /// Basis of an acknowledgement: the disks of a quorum, or its memory [default: sync]
    #[arg(long, env = "SCATTER_DURABILITY", hide_possible_values = false)]
    pub durability: Option<Durability>,

    /// Name of this peer for people, beside its id: 1 to 32 letters, digits, `-`, `_` and `.`; remembered in the data directory [default:
    /// no name]
    #[arg(long, value_name = "NAME", env = "SCATTER_NAME")]
    pub name: Option<PeerName>,

    /// Location label of this peer: groups are spread over clusters
    #[arg(long, value_name = "LABEL", env = "SCATTER_CLUSTER")]
    pub cluster: Option<String>,

    /// The switch that spreads reads of groups whose members all have the same --cluster label: an IP address and a port, or
    /// off; needs --coarse on and --leases on [default: off]
    #[arg(long, value_name = "ADDR", env = "SCATTER_SWITCH")]
    pub switch: Option<Endpoint>,

    /// A smaller group merges with a neighbour; the same in the whole network [default: 5]
    #[arg(long, value_name = "N", env = "SCATTER_MIN_GROUP", value_parser = whole::<u32>)]
    pub min_group: Option<u32>,

    /// A larger group splits; the same in the whole network [default: 12]
    #[arg(long, value_name = "N", env = "SCATTER_MAX_GROUP", value_parser = whole::<u32>)]
    pub max_group: Option<u32>,

    /// Policies of this peer, DECISION=NAME; may be repeated: divide=load|even, join=resilience|latency|load|multi-cluster|random,
    /// lead=agreement|oldest|random|anybody, repartition=proportional|off, size=thresholds|nines|off, split=alike|p2p|multi-cluster|random
    /// [default: the first of each]
    #[arg(long, value_name = "DECISION=NAME", env = "SCATTER_POLICY", value_delimiter = ',')]
    pub policy: Option<Vec<Policy>>,

    /// Upper limit of a value's length; the same in the whole network [default: 64KiB]
    #[arg(long, value_name = "BYTES", env = "SCATTER_MAX_VALUE")]
    pub max_value: Option<Bytes>,

    /// A set of defaults
    #[arg(long, env = "SCATTER_PROFILE")]
    pub profile: Option<Profile>,

    /// Find peers on the local network [default: off]
    #[arg(long, value_name = "on|off", env = "SCATTER_MDNS")]
    pub mdns: Option<Switch>,

    /// Accepted, but without effect in this version, which has no NAT traversal: forward a port, and name it with
    /// --listen [default: on]
    #[arg(long, value_name = "on|off", env = "SCATTER_NAT")]
    pub nat: Option<Switch>,

    /// Connect to peers in private address ranges [default: on]
    #[arg(long, value_name = "on|off", env = "SCATTER_DIAL_PRIVATE")]
    pub dial_private: Option<Switch>,

    /// Disk space that the store may take before other members serve in its place [default: 10GiB]
    #[arg(long, value_name = "BYTES", env = "SCATTER_MAX_DISK")]
    pub max_disk: Option<Bytes>,

    /// Upper limit of the memory of the whole process [default: 1GiB]
    #[arg(long, value_name = "BYTES", env = "SCATTER_MAX_MEMORY")]
    pub max_memory: Option<Bytes>,

    /// Upper limit of traffic with other peers; 0 is no limit [default: 0]
    #[arg(long, value_name = "BYTES/S", env = "SCATTER_MAX_BANDWIDTH")]
    pub max_bandwidth: Option<Bytes>,

    /// Upper limit of connections with other peers [default: 256]
    #[arg(long, value_name = "N", env = "SCATTER_MAX_CONNECTIONS", value_parser = whole::<u32>)]
    pub max_connections: Option<u32>,

    /// Format of the line `ready`, printed once this peer serves [default: text]
    #[arg(long, env = "SCATTER_OUTPUT")]
    pub output: Option<Format>,

    /// Format of the log [default: text]
    #[arg(long, env = "SCATTER_LOG_FORMAT")]
    pub log_format: Option<Format>,
}

impl Layer {
    /// Returns the settings of a profile. Settings that it leaves out keep their defaults.
    pub(crate) fn of_profile(profile: Profile) -> Layer {
        let (on, off) = (Some(Switch(true)), Some(Switch(false)));
        match profile {
            Profile::Home => Layer {
                away: Some(0),
                mdns: on,
                nat: on,
                dial_private: on,
                max_disk: Some(Bytes(5 << 30)),
                max_memory: Some(Bytes(256 << 20)),
                max_bandwidth: Some(Bytes(1 << 20)),
                max_connections: Some(64),
                ..Layer::default()
            },
            Profile::Server => Layer {
                mdns: off,
                nat: off,
                dial_private: off,
                max_disk: Some(Bytes(50 << 30)),
                max_memory: Some(Bytes(1 << 30)),
                max_connections: Some(512),
                ..Layer::default()
            },
            Profile::Datacenter => Layer {
                mdns: off,
                nat: off,
                dial_private: on,
                max_disk: Some(Bytes(100 << 30)),
                max_memory: Some(Bytes(4 << 30)),
                max_connections: Some(1024),
                ..Layer::default()
            },
        }
    }
}
