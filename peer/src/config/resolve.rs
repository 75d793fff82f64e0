//! Merges the sources by precedence and validates the result.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use group::config::VALUE_BYTES_MAX;
use node::wire::LANES_MAX;

use super::{
    Config, ConfigError, Durability, Endpoint, Entry, Format, Layer, Multiaddr, Origin, Policy, Shown, Switch,
};

/// Upper limit of the time for which a group waits for a member, in seconds: a week.
const AWAY_MAX: u64 = 7 * 86_400;
/// Lower limit of the exclusion delay, in seconds: a suspicion takes as long.
const EXCLUDE_AFTER_MIN: u64 = 2;

/// Sources of settings.
#[derive(Debug, Default)]
pub struct Sources {
    /// Command line, with the environment behind it.
    pub flags: Layer,
    /// Names of settings that `flags` has from the environment.
    pub from_environment: Vec<String>,
    /// Settings file to read, if there is one.
    pub file: Option<PathBuf>,
    /// `$XDG_DATA_HOME`.
    pub xdg_data_home: Option<PathBuf>,
    /// `$HOME`.
    pub home: Option<PathBuf>,
}

/// Setting with its final value.
struct Settled<T> {
    value: T,
    origin: Origin,
}

/// Collects settings from the layers, highest precedence first.
struct Picker {
    layers: Vec<(Origin, Layer)>,
    from_environment: Vec<String>,
    shown: Vec<Shown>,
}

impl Picker {
    fn find<T>(&self, name: &str, get: impl Fn(&Layer) -> Option<T>) -> Option<Settled<T>> {
        self.layers.iter().find_map(|(origin, layer)| {
            let origin = match origin {
                Origin::Flag if self.from_environment.iter().any(|from| from == name) => {
                    Origin::Environment(format!("SCATTER_{}", name.to_ascii_uppercase().replace('-', "_")))
                }
                other => other.clone(),
            };
            get(layer).map(|value| Settled { value, origin })
        })
    }

    /// Picks a setting that always has a value.
    fn pick<T>(
        &mut self,
        name: &'static str,
        get: impl Fn(&Layer) -> Option<T>,
        default: T,
        show: impl Fn(&T) -> String,
    ) -> T {
        let settled = self.find(name, get).unwrap_or(Settled { value: default, origin: Origin::Default });
        self.shown.push(Shown { name, value: show(&settled.value), origin: settled.origin });
        settled.value
    }

    /// Picks a setting that may be absent.
    fn pick_option<T>(
        &mut self,
        name: &'static str,
        get: impl Fn(&Layer) -> Option<T>,
        show: impl Fn(&T) -> String,
    ) -> Option<T> {
        self.pick(name, |layer| get(layer).map(Some), None, |value| value.as_ref().map(&show).unwrap_or_default())
    }

    /// Takes all settings that were picked, in the order of their names.
    fn take_shown(&mut self) -> Vec<Shown> {
        let mut shown = std::mem::take(&mut self.shown);
        shown.sort_by_key(|shown| shown.name);
        shown
    }

    fn origin(&self, name: &str) -> String {
        self.shown.iter().find(|shown| shown.name == name).map(|shown| shown.origin.to_string()).unwrap_or_default()
    }
}

/// Makes a [`Config`] of all sources.
///
/// # Errors
///
/// Names the setting that is wrong, and its origin unless that is the command line.
pub fn resolve(sources: Sources) -> Result<Config, ConfigError> {
    let Sources { flags, from_environment, file, xdg_data_home, home } = sources;
    let mut layers = vec![(Origin::Flag, flags)];
    if let Some(path) = file {
        let layer = parse(&path, &read(&path)?)?;
        layers.push((Origin::File(path), layer));
    }
    let mut picker = Picker { layers, from_environment, shown: Vec::new() };
    settle(&mut picker, xdg_data_home, home).map_err(|error| blame(error, &picker.shown))
}

/// Adds to an error the origins of the settings that it names, where the user did not type them.
fn blame(ConfigError(mut text): ConfigError, shown: &[Shown]) -> ConfigError {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    let named = |name: &str| text.split(|letter| !is_name(letter)).any(|word| word.strip_prefix("--") == Some(name));
    let is_typed = |origin: &Origin| matches!(origin, Origin::Flag | Origin::Default);
    let origins: Vec<String> = shown
        .iter()
        .filter(|shown| !is_typed(&shown.origin) && named(shown.name))
        .filter(|shown| !text.contains(&format!("from {}", shown.origin)))
        .map(|shown| format!("--{} is from {}", shown.name, shown.origin))
        .collect();
    if !origins.is_empty() {
        text.push_str(&format!(" ({})", origins.join(", ")));
    }
    ConfigError(text)
}

fn settle(p: &mut Picker, xdg_data_home: Option<PathBuf>, home: Option<PathBuf>) -> Result<Config, ConfigError> {
    let profile = p.pick_option("profile", |layer| layer.profile, ToString::to_string);
    if let Some(profile) = profile {
        p.layers.push((Origin::Profile(profile), Layer::of_profile(profile)));
    }

    let data_dir = pick_data_dir(p, xdg_data_home, home)?;
    let everywhere = ["/ip4/0.0.0.0/tcp/6478", "/ip4/0.0.0.0/udp/6478/quic-v1"].map(|text| Multiaddr(text.into()));
    let listen = p.pick("listen", |l| l.listen.clone(), everywhere.to_vec(), shown_list);
    let join = p.pick("join", |l| l.join.clone(), Vec::new(), shown_list);
    reachable("--listen", &listen, false)?;
    reachable("--join", &join, true)?;
    let new = p.pick("new", |l| l.new, false, ToString::to_string);
    let mdns = pick_switch(p, "mdns", |l| l.mdns, false);
    let entry = entry(p, new, join, mdns)?;

    let (network, network_key) = pick_network(p)?;
    let resp = pick_endpoint(p, "resp", |l| l.resp, 6479);
    let http = pick_endpoint(p, "http", |l| l.http, 6480);
    let resp_password = pick_secret(p, "resp-password-file", |l| l.resp_password_file.clone())?;
    let admin_token = pick_secret(p, "admin-token-file", |l| l.admin_token_file.clone())?;
    needs_secret("--resp", resp, "--resp-password-file", resp_password.is_some())?;
    needs_secret("--http", http, "--admin-token-file", admin_token.is_some())?;

    let leases = pick_switch(p, "leases", |l| l.leases, false);
    let coarse = pick_switch(p, "coarse", |l| l.coarse, false);
    let lanes = pick_lanes(p)?;
    let (away, exclude_after) = pick_waits(p)?;
    let cluster = p.pick("cluster", |l| l.cluster.clone(), String::new(), Clone::clone);
    let switch = p.pick("switch", |l| l.switch, Endpoint(None), ToString::to_string).0;
    can_have_switch(switch, &entry, coarse && leases, &cluster)?;
    let min_group = p.pick("min-group", |l| l.min_group, 5, ToString::to_string);
    let max_group = p.pick("max-group", |l| l.max_group, 12, ToString::to_string);
    group_sizes(min_group, max_group)?;
    Ok(Config {
        data_dir,
        listen,
        entry,
        network,
        network_key,
        resp,
        http,
        resp_password,
        admin_token,
        leases,
        coarse,
        lanes,
        away,
        exclude_after,
        durability: p.pick("durability", |l| l.durability, Durability::Sync, ToString::to_string),
        name: p.pick_option("name", |l| l.name.clone(), ToString::to_string),
        cluster,
        switch,
        min_group,
        max_group,
        policies: policies(p)?,
        max_value: pick_max_value(p)?,
        mdns,
        nat: pick_switch(p, "nat", |l| l.nat, true),
        dial_private: pick_switch(p, "dial-private", |l| l.dial_private, true),
        max_disk: pick_room(p, "max-disk", |l| l.max_disk, 10 << 30, 1 << 20)?,
        max_memory: pick_room(p, "max-memory", |l| l.max_memory, 1 << 30, 64 << 20)?,
        max_bandwidth: pick_max_bandwidth(p),
        max_connections: pick_max_connections(p)?,
        output: p.pick("output", |l| l.output, Format::Text, ToString::to_string),
        log_format: p.pick("log-format", |l| l.log_format, Format::Text, ToString::to_string),
        overruled: Vec::new(),
        shown: p.take_shown(),
    })
}

/// Returns a list of addresses as it could be written in the file.
#[allow(clippy::ptr_arg, reason = "the type of the setting")]
fn shown_list(list: &Vec<Multiaddr>) -> String {
    list.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn pick_data_dir(
    p: &mut Picker,
    xdg_data_home: Option<PathBuf>,
    home: Option<PathBuf>,
) -> Result<PathBuf, ConfigError> {
    let data_home = xdg_data_home.filter(|dir| dir.is_absolute());
    let default_dir = data_home.or(home.map(|home| home.join(".local/share"))).map(|dir| dir.join("scatter"));
    let data_dir = p.pick_option("data-dir", |l| l.data_dir.clone(), |dir| dir.display().to_string());
    match (data_dir, default_dir) {
        (Some(dir), _) => Ok(dir),
        (None, Some(dir)) => {
            if let Some(shown) = p.shown.last_mut() {
                shown.value = dir.display().to_string();
            }
            Ok(dir)
        }
        (None, None) => Err(ConfigError("there is no home directory for the data: set --data-dir DIR".into())),
    }
}

/// Picks the network's name and key.
fn pick_network(p: &mut Picker) -> Result<(String, Option<Vec<u8>>), ConfigError> {
    let network = p.pick("network", |l| l.network.clone(), "scatter".to_owned(), Clone::clone);
    if network.is_empty() || network.len() > 64 || network.chars().any(char::is_control) {
        return Err(ConfigError("a network's name has 1 to 64 characters, all of them printable".into()));
    }
    let network_key = pick_secret(p, "network-key", |l| l.network_key.clone())?;
    if let Some(key) = &network_key {
        network_key_is_long(key)
            .map_err(|why| ConfigError(format!("--network-key ({}): {why}", p.origin("network-key"))))?;
    }
    Ok((network, network_key))
}

fn pick_lanes(p: &mut Picker) -> Result<u8, ConfigError> {
    let lanes = p.pick("lanes", |l| l.lanes, 1, ToString::to_string);
    if !(1..=LANES_MAX).contains(&lanes) {
        return Err(ConfigError(format!("--lanes {lanes} is not between 1 and {LANES_MAX}")));
    }
    Ok(lanes)
}

/// Picks the times for which a group waits for a member: after a clean stop, and without one.
fn pick_waits(p: &mut Picker) -> Result<(Duration, Duration), ConfigError> {
    let away = p.pick("away", |l| l.away, 60, ToString::to_string);
    if away > AWAY_MAX {
        return Err(ConfigError(format!(
            "--away {away} is longer than a week ({AWAY_MAX} seconds), the longest absence that a group waits for; to \
            leave permanently, use `scatter leave`"
        )));
    }
    let exclude_after = p.pick("exclude-after", |l| l.exclude_after, 3, ToString::to_string);
    if !(EXCLUDE_AFTER_MIN..=AWAY_MAX).contains(&exclude_after) {
        return Err(ConfigError(format!(
            "--exclude-after {exclude_after} is not between {EXCLUDE_AFTER_MIN} and {AWAY_MAX} seconds: a silence of \
             {EXCLUDE_AFTER_MIN} seconds is four missed heartbeats"
        )));
    }
    Ok((Duration::from_secs(away), Duration::from_secs(exclude_after)))
}

fn pick_max_value(p: &mut Picker) -> Result<usize, ConfigError> {
    let max_value = p.pick("max-value", |l| l.max_value, super::Bytes(64 << 10), ToString::to_string).0;
    if !(1024..=VALUE_BYTES_MAX as u64).contains(&max_value) {
        let (given, most) = (super::Bytes(max_value), super::Bytes(VALUE_BYTES_MAX as u64));
        return Err(ConfigError(format!("--max-value {given} is not between 1KiB and {most}")));
    }
    Ok(usize::try_from(max_value).unwrap_or(usize::MAX))
}

/// Picks a limit of bytes that is at least `least`.
fn pick_room(
    p: &mut Picker,
    name: &'static str,
    get: impl Fn(&Layer) -> Option<super::Bytes>,
    default: u64,
    least: u64,
) -> Result<u64, ConfigError> {
    let given = p.pick(name, get, super::Bytes(default), ToString::to_string);
    if given.0 < least {
        let least = super::Bytes(least);
        return Err(ConfigError(format!("--{name} {given} is too small: set at least {least}")));
    }
    Ok(given.0)
}

/// Picks the limit of traffic, in bytes a second; `None` is no limit.
fn pick_max_bandwidth(p: &mut Picker) -> Option<u64> {
    let given = p.pick("max-bandwidth", |l| l.max_bandwidth, super::Bytes(0), ToString::to_string).0;
    Some(given).filter(|&bytes| bytes > 0)
}

fn pick_max_connections(p: &mut Picker) -> Result<u32, ConfigError> {
    let max_connections = p.pick("max-connections", |l| l.max_connections, 256, ToString::to_string);
    if max_connections < 8 {
        return Err(ConfigError(format!(
            "--max-connections {max_connections} is too small for a group: set at least 8"
        )));
    }
    Ok(max_connections)
}

fn read(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path)
        .map_err(|error| ConfigError(format!("cannot read the configuration {}: {error}", path.display())))
}

/// Parses a file of settings.
///
/// # Errors
///
/// Names the file and the line.
pub fn parse(path: &Path, text: &str) -> Result<Layer, ConfigError> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        ConfigError(format!("{}:{line}: {}", path.display(), error.message()))
    })
}

fn pick_switch(picker: &mut Picker, name: &'static str, get: impl Fn(&Layer) -> Option<Switch>, default: bool) -> bool {
    picker.pick(name, get, Switch(default), ToString::to_string).0
}

fn pick_endpoint(
    picker: &mut Picker,
    name: &'static str,
    get: impl Fn(&Layer) -> Option<Endpoint>,
    port: u16,
) -> Option<SocketAddr> {
    let default = Endpoint(Some(SocketAddr::from(([127, 0, 0, 1], port))));
    picker.pick(name, get, default, ToString::to_string).0
}

/// Reads a secret from the file that is named, so that the secret is in no list of processes.
fn pick_secret(
    picker: &mut Picker,
    name: &'static str,
    get: impl Fn(&Layer) -> Option<PathBuf>,
) -> Result<Option<Vec<u8>>, ConfigError> {
    let Some(path) = picker.pick_option(name, get, |path| path.display().to_string()) else {
        return Ok(None);
    };
    let text = std::fs::read(&path)
        .map_err(|error| ConfigError(format!("cannot read --{name} {}: {error}", path.display())))?;
    let secret = text.trim_ascii();
    if secret.is_empty() {
        return Err(ConfigError(format!("--{name} {}: the file is empty", path.display())));
    }
    Ok(Some(secret.to_vec()))
}

/// Lower limit of a network's key, in bytes.
const NETWORK_KEY_BYTES_MIN: usize = 16;

/// Checks that a network's key is long enough: any peer that connects can test guesses against it.
///
/// # Errors
/// The reason, and advice on making a key. The text does not contain the key.
pub fn network_key_is_long(key: &[u8]) -> Result<(), String> {
    if key.len() >= NETWORK_KEY_BYTES_MIN {
        return Ok(());
    }
    Err(format!(
        "the key has {} bytes and needs at least {NETWORK_KEY_BYTES_MIN}: a short one can be guessed. Make one with \
         `head -c 32 /dev/urandom | base64`",
        key.len()
    ))
}

fn needs_secret(
    flag: &str,
    endpoint: Option<SocketAddr>,
    secret_flag: &str,
    has_secret: bool,
) -> Result<(), ConfigError> {
    match endpoint {
        Some(address) if !address.ip().to_canonical().is_loopback() && !has_secret => Err(ConfigError(format!(
            "{flag} {address} is reachable from other machines, so it needs {secret_flag} FILE; or listen on 127.0.0.1"
        ))),
        _ => Ok(()),
    }
}

/// Checks addresses to listen on, or to join through, before anything is started or written.
fn reachable(flag: &str, addresses: &[Multiaddr], is_entry: bool) -> Result<(), ConfigError> {
    let complaint = |address: &Multiaddr| Some((address.clone(), net::complaint(&address.0, is_entry)?));
    match addresses.iter().find_map(complaint) {
        Some((address, why)) => Err(ConfigError(format!("{flag} {address}: {why}"))),
        None => Ok(()),
    }
}

/// Requires exactly one way into a network, so that no second network starts by accident.
fn entry(picker: &Picker, new: bool, join: Vec<Multiaddr>, mdns: bool) -> Result<Entry, ConfigError> {
    if new && !join.is_empty() {
        return Err(ConfigError(format!(
            "--new (from {}) starts a network and --join (from {}) enters an existing one: set only one of them",
            picker.origin("new"),
            picker.origin("join"),
        )));
    }
    Ok(match (new, join.is_empty(), mdns) {
        (true, ..) => Entry::New,
        (_, false, _) => Entry::Join(join),
        (_, _, true) => Entry::Discover,
        _ => Entry::Known,
    })
}

/// Collects the policies: each decision is named once, and all of them are shown.
fn policies(picker: &mut Picker) -> Result<node::Policies, ConfigError> {
    let join = |list: &Vec<Policy>| list.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let chosen = picker.pick("policy", |layer| layer.policy.clone(), Vec::new(), join);
    let mut policies = node::Policies::default();
    for (index, Policy(decision, name)) in chosen.iter().enumerate() {
        if chosen[..index].iter().any(|before| before.0 == *decision) {
            return Err(ConfigError(format!("--policy names two policies for {decision}: name only one")));
        }
        policies.choose(decision, name).map_err(|unknown| ConfigError(unknown.to_string()))?;
    }
    if let Some(shown) = picker.shown.last_mut() {
        shown.value = join(&policies.names().map(|(decision, name)| Policy(decision.into(), name.into())).to_vec());
    }
    Ok(policies)
}

/// Checks that packets can be sent to the switch, and that it can be of use.
fn can_have_switch(
    switch: Option<SocketAddr>,
    entry: &Entry,
    is_ordered: bool,
    cluster: &str,
) -> Result<(), ConfigError> {
    let Some(switch) = switch else { return Ok(()) };
    if switch.ip().is_unspecified() || switch.ip().is_multicast() || switch.port() == 0 {
        return Err(ConfigError(format!(
            "--switch {switch} is not a usable address: write the switch's IP address and port, such as 192.0.2.9:6477"
        )));
    }
    if cluster.is_empty() {
        return Err(ConfigError(
            "--switch needs --cluster LABEL: a switch spreads the reads of groups whose members all have the same label".into(),
        ));
    }
    if *entry == Entry::New && !is_ordered {
        return Err(ConfigError(
            "--switch needs --coarse on and --leases on where the network is founded: without them no group can use a \
            switch"
                .into(),
        ));
    }
    Ok(())
}

/// Checks that a group that splits does not leave halves that are about to merge again.
fn group_sizes(min: u32, max: u32) -> Result<(), ConfigError> {
    if min == 0 {
        return Err(ConfigError("--min-group is at least 1".into()));
    }
    if node::can_flap(min as usize, max as usize) {
        return Err(ConfigError(format!(
            "--min-group {min} with --max-group {max} makes groups flap: a group of {} splits into halves of which one \
            has {} members, and that half merges again; set --max-group to at least {}",
            u64::from(max) + 1,
            u64::from(max).div_ceil(2),
            2 * u64::from(min) - 1,
        )));
    }
    let most = group::control::agreed::MEMBERS_MAX;
    if max > most {
        return Err(ConfigError(format!("--max-group {max} is too large: a group has at most {most} members")));
    }
    Ok(())
}

#[cfg(test)]
#[path = "resolve_test.rs"]
mod tests;
