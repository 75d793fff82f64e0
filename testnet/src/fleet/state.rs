//! State of a network on the machine that controls it: what was started, so that later commands find it.
//!
//! The directory of a network holds `net.json`, written whole and renamed into place, a lock for commands that change the network,
//! and the peers of hosts on this machine.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::FleetError;
use super::inventory::Inventory;

/// Variable that names the directory of all states.
const STATE_VARIABLE: &str = "SCATTER_TESTNET_STATE";

/// A peer of a network, as it was started last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerRecord {
    /// Name of its host.
    pub host: String,
    /// Place on the host, from 0: its ports.
    pub place: u16,
    /// Number of the peers that this place has had, itself counted.
    pub generation: u32,
    /// Its peer id, once it has served.
    pub peer_id: Option<String>,
}

impl PeerRecord {
    /// Returns its name: that of its host, its place, and its generation from the second on.
    pub fn name(&self) -> String {
        match self.generation {
            0 | 1 => format!("{}-{}", self.host, self.place),
            generation => format!("{}-{}.{generation}", self.host, self.place),
        }
    }
}

/// What is known of a network between two commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetState {
    /// Name of the Scatter network: the inventory's, and a random part. A network that was wiped never meets its successor.
    pub network: String,
    /// The inventory as it was when the network was brought up.
    pub inventory: Inventory,
    /// Whether the first peer was told to found the network.
    pub founded: bool,
    /// Peers by name.
    pub peers: BTreeMap<String, PeerRecord>,
}

/// Directory of a network's state, locked against other commands that change the network.
#[derive(Debug)]
pub(super) struct StateDir {
    path: PathBuf,
    lock: Option<File>,
}

impl Drop for StateDir {
    /// Leaves no directory of a network that was refused, or that is down and wiped.
    fn drop(&mut self) {
        if self.lock.is_some() && !self.path.join("net.json").exists() {
            let _ = std::fs::remove_file(self.path.join("lock"));
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}

/// Returns the directory of all states.
fn root() -> Result<PathBuf, FleetError> {
    let named = |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(root) = named(STATE_VARIABLE) {
        return Ok(root);
    }
    let base = named("XDG_STATE_HOME").or_else(|| Some(named("HOME")?.join(".local/state")));
    let none =
        || FleetError::Refused(format!("neither {STATE_VARIABLE} nor HOME is set: there is no place for the state"));
    Ok(base.ok_or_else(none)?.join("scatter-testnet"))
}

impl StateDir {
    /// Opens the directory of a network, for a command that changes the network or for one that only looks.
    ///
    /// # Errors
    /// It cannot be made, or another command changes the network now.
    pub(super) fn open(name: &str, changes: bool) -> Result<StateDir, FleetError> {
        let path = root()?.join(name);
        let failed = |error: std::io::Error| FleetError::Failed(format!("{}: {error}", path.display()));
        if !changes {
            return Ok(StateDir { path, lock: None });
        }
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(failed)?;
        let lock =
            OpenOptions::new().create(true).truncate(false).write(true).open(path.join("lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(StateDir { path, lock: Some(lock) }),
            Err(std::fs::TryLockError::WouldBlock) => Err(FleetError::Refused(format!(
                "another command changes the network {name} now: wait for it, or end it"
            ))),
            Err(std::fs::TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// Returns the directory.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the state, if the network was ever brought up.
    ///
    /// # Errors
    /// There is a state that cannot be read.
    pub(super) fn load(&self) -> Result<Option<NetState>, FleetError> {
        let path = self.path.join("net.json");
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|error| FleetError::Failed(format!("{}: {error}", path.display()))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(FleetError::Failed(format!("{}: {error}", path.display()))),
        }
    }

    /// Writes the state.
    ///
    /// # Errors
    /// The file cannot be written; the state before it stays.
    pub(super) fn store(&self, state: &NetState) -> Result<(), FleetError> {
        let (new, path) = (self.path.join("net.json.new"), self.path.join("net.json"));
        let write = || {
            let mut file = File::create(&new)?;
            file.write_all(&serde_json::to_vec_pretty(state).map_err(std::io::Error::other)?)?;
            file.sync_all()?;
            std::fs::rename(&new, &path)
        };
        write().map_err(|error| FleetError::Failed(format!("{}: {error}", path.display())))
    }

    /// Removes the state and all below it.
    ///
    /// # Errors
    /// Something cannot be removed.
    pub(super) fn remove(self) -> Result<(), FleetError> {
        std::fs::remove_dir_all(&self.path)
            .map_err(|error| FleetError::Failed(format!("{}: {error}", self.path.display())))
    }
}

/// Returns the states of all networks that this machine controls, apart from one.
///
/// # Errors
/// There is no place for states. States that cannot be read are left out: their own commands tell why.
pub(super) fn others(name: &str) -> Result<Vec<NetState>, FleetError> {
    let Ok(entries) = std::fs::read_dir(root()?) else { return Ok(Vec::new()) };
    let states = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name() != name)
        .filter_map(|entry| StateDir { path: entry.path(), lock: None }.load().ok().flatten());
    Ok(states.collect())
}
