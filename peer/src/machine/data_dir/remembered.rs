//! The state of a network that a peer remembers, and the treatment of settings that contradict it.
//!
//! Name, key, durability and lanes are the network's: all peers refuse a peer with other values, or such a peer breaks its
//! network's promises. So a contradiction is an error that names both sides. The settings that the network agreed on when
//! it was founded, and may agree on later, win over flags, with a warning. Policies are treated likewise.

use serde::{Deserialize, Serialize};

use super::key_hash::{Cost, KeyHash};
use super::peer_state::PeerState;
use crate::config::{Bytes, Config, Durability, Origin, Policy, Switch};

/// A network, as one of its peers remembers it beside its identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Its name.
    pub name: String,
    /// Hash of its key, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyHash>,
    /// Whether this peer founded it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub founded: bool,
    /// The durability that an acknowledgement rests on: `sync` or `memory`.
    pub durability: String,
    /// Number of lanes among which its keys are divided.
    pub lanes: u8,
    /// The settings that its groups agree on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreed: Option<Agreed>,
    /// The policies that the network agreed on, DECISION=NAME each; before that, those of this peer.
    pub policies: Vec<String>,
}

/// Settings that all groups of a network have in their states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreed {
    /// `--leases`
    pub leases: bool,
    /// `--coarse`
    pub coarse: bool,
    /// `--min-group`
    pub min_group: u32,
    /// `--max-group`
    pub max_group: u32,
    /// `--max-value`, in bytes.
    pub max_value: u32,
}

impl From<&group::control::state::Settings> for Agreed {
    fn from(settings: &group::control::state::Settings) -> Agreed {
        Agreed {
            leases: settings.leases,
            coarse: settings.coarse,
            min_group: settings.policies.members_min,
            max_group: settings.policies.members_max,
            max_value: settings.value_bytes_max,
        }
    }
}

impl Network {
    /// Returns the state to remember of the network that a peer with these settings enters.
    ///
    /// # Errors
    /// The key cannot be hashed.
    pub fn of(config: &Config, cost: Cost) -> Result<Network, String> {
        Ok(Network {
            name: config.network.clone(),
            key: config.network_key.as_deref().map(|key| KeyHash::new(key, cost)).transpose()?,
            founded: false,
            durability: config.durability.to_string(),
            lanes: config.lanes,
            agreed: None,
            policies: policies(config),
        })
    }

    /// Checks that the given key is this network's, where [`recall`] has not checked it already. Takes a while.
    ///
    /// # Errors
    /// A text for the operator, which never shows a key.
    pub(crate) fn check_key(&self, config: &Config) -> Result<(), String> {
        let (Some(known), Some(given)) = (&self.key, &config.network_key) else { return Ok(()) };
        if known.is_of(given)? {
            return Ok(());
        }
        Err(format!(
            "the key in --network-key ({}) is not the key of the network `{}`, which this peer remembers: give the \
            file with that key. {CHANGE}",
            origin(config, "network-key"),
            self.name
        ))
    }

    /// Checks that a key was given where the network has one, and none where it has none.
    fn has_key(&self, config: &Config) -> Result<(), String> {
        let name = &self.name;
        match (&self.key, &config.network_key) {
            (Some(_), None) => Err(format!(
                "the network `{name}` has a key, and this start gives none: set --network-key FILE (or \
                 SCATTER_NETWORK_KEY, or network-key in the configuration) with the file that has it. {CHANGE}"
            )),
            (None, Some(_)) => Err(format!(
                "the network `{name}` has no key, and --network-key ({}) gives one: leave --network-key out. {CHANGE}",
                origin(config, "network-key")
            )),
            _ => Ok(()),
        }
    }
}

/// How to change a key.
const CHANGE: &str = "To change a network's key, stop all of its peers, run `scatter network key --data-dir DIR \
    --network-key FILE` for each, and start them with that file";

fn policies(config: &Config) -> Vec<String> {
    config.policies.names().map(|(decision, name)| Policy(decision.into(), name.into()).to_string()).to_vec()
}

fn origin(config: &Config, name: &str) -> String {
    config.origin(name).map(ToString::to_string).unwrap_or_default()
}

/// Returns whether the administrator gave this setting for this peer: not a profile, and not a default.
fn is_said(config: &Config, name: &str) -> bool {
    !matches!(
        config.origin(name),
        None | Some(Origin::Default | Origin::Profile(_) | Origin::Network | Origin::DataDir)
    )
}

/// Puts the peer's last name into the settings, where this start gives none.
fn recall_name(config: &mut Config, peer_state: &PeerState) {
    let Some(name) = peer_state.name().filter(|_| !is_said(config, "name")) else { return };
    put_from(Origin::DataDir, config, "name", name.to_string(), |config| config.name = Some(name.clone()));
}

/// Puts the remembered state of the network and of the peer into the settings.
///
/// # Errors
/// A contradiction; the text is for the administrator who wrote the settings.
pub fn recall(config: &mut Config, peer_state: &PeerState) -> Result<(), String> {
    recall_name(config, peer_state);
    let Some(network) = peer_state.network().filter(|_| peer_state.ring().is_some()) else { return Ok(()) };
    let Network { name, durability, lanes, .. } = network;
    let dir = config.data_dir.display().to_string();
    let elsewhere = "to join another network, use another --data-dir, or leave this network first (`scatter leave`)";
    if is_said(config, "network") && config.network != *name {
        return Err(format!(
            "the data directory {dir} belongs to the network `{name}`, and --network ({}) is `{}`: leave --network \
            out, or set --network {name}; {elsewhere}",
            origin(config, "network"),
            config.network
        ));
    }
    put(config, "network", name.clone(), |config| config.network.clone_from(name));
    network.has_key(config)?;
    if is_said(config, "durability") && config.durability.to_string() != *durability {
        return Err(format!(
            "the network `{name}` has --durability {durability}, permanently, and --durability ({}) is {}: leave \
             --durability out; {elsewhere}",
            origin(config, "durability"),
            config.durability
        ));
    }
    let kept = if *durability == Durability::Memory.to_string() { Durability::Memory } else { Durability::Sync };
    put(config, "durability", durability.clone(), |config| config.durability = kept);
    if is_said(config, "lanes") && config.lanes != *lanes {
        return Err(format!(
            "the network `{name}` has --lanes {lanes}, permanently, and --lanes ({}) is {}: leave --lanes out; \
            {elsewhere}",
            origin(config, "lanes"),
            config.lanes
        ));
    }
    put(config, "lanes", lanes.to_string(), |config| config.lanes = *lanes);
    if let Some(agreed) = network.agreed {
        config.overruled = overrule(config, agreed, &network.policies);
    }
    if network.agreed.is_some() || !is_said(config, "policy") {
        // A name that this program does not know any more chooses nothing.
        for policy in network.policies.iter().filter_map(|policy| policy.parse::<Policy>().ok()) {
            let _ = config.policies.choose(&policy.0, &policy.1);
        }
        put(config, "policy", policies(config).join(","), |_| {});
    }
    only_stays_apart(config, peer_state, network)
}

/// Refuses `--join` at a founder that no peer has joined: the founder would stay in its own network for ever.
fn only_stays_apart(config: &Config, peer_state: &PeerState, network: &Network) -> Result<(), String> {
    let crate::config::Entry::Join(_) = config.entry else { return Ok(()) };
    if !network.founded || peer_state.peers().next().is_some() {
        return Ok(());
    }
    Err(format!(
        "this peer has founded a network of its own with --new (`{}`), which no other peer has joined, and --join ({}) \
        names another network: a peer stays in its network. To keep its data, start it without --join; to join the \
        other network as a new peer, move the data directory {} away first, or use another with --data-dir",
        network.name,
        origin(config, "join"),
        config.data_dir.display()
    ))
}

/// Puts the agreed settings of a network into `config`; returns a line for each setting that contradicted them.
fn overrule(config: &mut Config, agreed: Agreed, policies: &[String]) -> Vec<String> {
    let said = contradictions(config, agreed, policies);
    put(config, "leases", Switch(agreed.leases).to_string(), |config| config.leases = agreed.leases);
    put(config, "coarse", Switch(agreed.coarse).to_string(), |config| config.coarse = agreed.coarse);
    put(config, "min-group", agreed.min_group.to_string(), |config| config.min_group = agreed.min_group);
    put(config, "max-group", agreed.max_group.to_string(), |config| config.max_group = agreed.max_group);
    let max_value = Bytes(agreed.max_value.into()).to_string();
    put(config, "max-value", max_value, |config| config.max_value = agreed.max_value as usize);
    said
}

/// Returns the settings of this peer that contradict the network's agreed settings, in words.
pub(crate) fn contradictions(config: &Config, agreed: Agreed, policies: &[String]) -> Vec<String> {
    let size = |bytes: u64| Bytes(bytes).to_string();
    let all = [
        ("leases", Switch(config.leases).to_string(), Switch(agreed.leases).to_string()),
        ("coarse", Switch(config.coarse).to_string(), Switch(agreed.coarse).to_string()),
        ("min-group", config.min_group.to_string(), agreed.min_group.to_string()),
        ("max-group", config.max_group.to_string(), agreed.max_group.to_string()),
        ("max-value", size(config.max_value as u64), size(agreed.max_value.into())),
    ];
    let others = all.into_iter().filter(|(name, said, agreed)| said != agreed && is_said(config, name));
    let settings =
        others.map(|(name, said, agreed)| format!("--{name} {agreed} (not {said}, {})", origin(config, name)));
    settings.chain(other_policies(config, policies)).collect()
}

/// Returns the policies named for this peer that contradict the network's agreed policies, in words.
fn other_policies(config: &Config, agreed: &[String]) -> Option<String> {
    let known = policies(config);
    let others: Vec<&str> = agreed.iter().filter(|policy| !known.contains(policy)).map(String::as_str).collect();
    (is_said(config, "policy") && !others.is_empty()).then(|| {
        let (others, origin) = (others.join(","), origin(config, "policy"));
        format!("--policy {others} (not as set, {origin}; `scatter network set policy` changes them for all groups)")
    })
}

/// Returns the policies of a group as they are remembered: DECISION=NAME each.
pub(crate) fn agreed_policies(settings: &group::control::state::Settings) -> Vec<String> {
    settings.policies.names.iter().map(|(decision, name)| Policy(decision.clone(), name.clone()).to_string()).collect()
}

/// Takes a remembered value, and shows its origin. An equal value that was given already keeps its origin.
fn put(config: &mut Config, name: &str, value: String, set: impl FnOnce(&mut Config)) {
    put_from(Origin::Network, config, name, value, set);
}

/// Takes a value that was remembered at another place.
fn put_from(origin: Origin, config: &mut Config, name: &str, value: String, set: impl FnOnce(&mut Config)) {
    set(config);
    let is_said = is_said(config, name);
    if let Some(shown) = config.shown.iter_mut().find(|shown| shown.name == name)
        && (!is_said || shown.value != value)
    {
        shown.value = value;
        shown.origin = origin;
    }
}
