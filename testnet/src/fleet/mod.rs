//! Networks of real daemons on any hosts: brought up, watched, disturbed, put under load and taken down by one tool.
//!
//! An [`Inventory`] names the hosts. A [`Fleet`] runs the same script on each of them, by a shell here, in a network namespace or
//! over `ssh`; it ends only what it started. `scatter-testnet net` is its command.
//!
//! # Invariants
//! - A process counts as a peer of the fleet only while its process id and start time are those that it recorded itself before it
//!   became the peer.
//! - Everything that can be wrong with a host is found before anything is started on any of them.

mod churn;
mod collect;
mod down;
mod events;
mod fault;
mod host_view;
pub mod inventory;
mod load;
pub mod merge;
mod observer;
mod remote;
mod report;
mod soak;
mod state;
mod up;
pub mod worker;

use std::path::PathBuf;

pub use churn::{ChurnFigures, Death, DeathSchedule, Replacement, churn};
pub use collect::{CollectReport, collect};
pub use down::{DownReport, down, forget};
pub use events::{FleetEvent, FleetEventKind};
pub use fault::{PathFault, ProcessFault};
pub use host_view::{FleetView, PeerState, PeerView};
pub use inventory::{HostEntry, HostKind, Inventory};
pub use load::{LoadOptions, LoadReport};
pub use observer::{ObservedGroup, Sample};
pub use remote::HostError;
pub use report::{FleetPage, report};
pub use soak::{SoakOptions, SoakVerdict, soak};
pub use state::{NetState, PeerRecord};
pub use up::{UpOptions, UpReport};

use crate::lab::LabPlan;
use remote::Remote;
use state::StateDir;

/// Reason of a command that ends without success, for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FleetError {
    /// The command cannot be carried out as it was given; nothing was changed.
    #[error("{0}")]
    Refused(String),
    /// The command failed on the way.
    #[error("{0}")]
    Failed(String),
}

impl From<HostError> for FleetError {
    fn from(error: HostError) -> FleetError {
        FleetError::Failed(error.to_string())
    }
}

/// Receiver of the lines about a command's progress.
pub type Note<'a> = &'a (dyn Fn(&str) + Sync);

/// A network of real daemons.
#[derive(Debug)]
pub struct Fleet {
    inventory: Inventory,
    directory: StateDir,
    remotes: Vec<Remote>,
}

impl Fleet {
    /// Returns the fleet of an inventory, for a command that changes it or for one that only looks.
    ///
    /// # Errors
    /// There is no place for its state, or another command changes it now.
    pub fn open(inventory: Inventory, changes: bool) -> Result<Fleet, FleetError> {
        let directory = StateDir::open(&inventory.name, changes)?;
        let remotes = inventory
            .hosts
            .iter()
            .map(|entry| Remote { entry: entry.clone(), directory: directory_of(&inventory, entry, &directory) });
        Ok(Fleet { remotes: remotes.collect(), inventory, directory })
    }

    /// Returns the inventory.
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    fn remote(&self, host: &str) -> Option<&Remote> {
        self.remotes.iter().find(|remote| remote.name() == host)
    }

    /// Returns a line for each peer with its addresses for clients and administrators on its host.
    pub fn endpoints(&self) -> Vec<String> {
        let places = self.inventory.hosts.iter().flat_map(|host| (0..host.peers).map(move |place| (host, place)));
        let line = |(host, place): (&HostEntry, u16)| {
            let ports = host.ports_of(place);
            format!("{}-{place}: resp 127.0.0.1:{}, http 127.0.0.1:{}", host.name, ports.resp, ports.http)
        };
        places.map(line).collect()
    }

    /// Returns the name of the Scatter network.
    ///
    /// # Errors
    /// It was never brought up.
    pub fn network(&self) -> Result<String, FleetError> {
        Ok(self.state()?.network)
    }

    /// Returns the plan of the laboratory, if the inventory names one.
    fn lab_plan(&self) -> Result<Option<LabPlan>, FleetError> {
        self.inventory.lab.as_deref().map(LabPlan::read).transpose().map_err(FleetError::Refused)
    }

    /// Returns the state of the network.
    ///
    /// # Errors
    /// It was never brought up, or its state cannot be read.
    fn state(&self) -> Result<NetState, FleetError> {
        let name = &self.inventory.name;
        let never =
            || FleetError::Refused(format!("the network {name} is not up: scatter-testnet net up brings it up"));
        self.directory.load()?.ok_or_else(never)
    }
}

/// Returns the directory of a host's programs, data and logs.
fn directory_of(inventory: &Inventory, entry: &HostEntry, state: &StateDir) -> PathBuf {
    match (&entry.directory, entry.kind) {
        (Some(directory), HostKind::Local | HostKind::Netns) => {
            let named = directory.join(&inventory.name).join(&entry.name);
            std::path::absolute(&named).unwrap_or(named)
        }
        (Some(directory), HostKind::Ssh) => directory.join(&inventory.name).join(&entry.name),
        (None, HostKind::Local | HostKind::Netns) => state.path().join("hosts").join(&entry.name),
        (None, HostKind::Ssh) => PathBuf::from(".scatter-testnet").join(&inventory.name).join(&entry.name),
    }
}
