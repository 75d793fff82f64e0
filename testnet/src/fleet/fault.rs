//! Faults of peers and hosts, by hand.

use super::events::{FleetEvent, FleetEventKind};
use super::host_view::PeerState;
use super::inventory::HostKind;
use super::remote::{Feed, OPERATION_MAX};
use super::{Fleet, FleetError};

/// A fault that [`Fleet::fault`] causes, or ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessFault {
    /// The processes freeze.
    Pause,
    /// They go on.
    Resume,
    /// They die at once.
    Kill,
}

impl ProcessFault {
    fn signal(&self) -> &'static str {
        match self {
            ProcessFault::Pause => "STOP",
            ProcessFault::Resume => "CONT",
            ProcessFault::Kill => "KILL",
        }
    }
}

impl Fleet {
    /// Returns the peers that a name means: one peer, or all of a host.
    fn named(&self, name: &str) -> Result<Vec<String>, FleetError> {
        let state = self.state()?;
        let peers: Vec<String> = state
            .peers
            .iter()
            .filter(|(peer, record)| *peer == name || record.host == name)
            .map(|(peer, _)| peer.clone())
            .collect();
        match peers.is_empty() {
            false => Ok(peers),
            true => {
                Err(FleetError::Refused(format!("there is no peer and no host {name}: `net status` shows the peers")))
            }
        }
    }

    /// Causes or ends a fault of a peer, or of all peers of a host. Returns the peers that it met.
    ///
    /// # Errors
    /// There is no such peer or host; the host does not answer.
    pub fn fault(&self, fault: &ProcessFault, name: &str) -> Result<Vec<String>, FleetError> {
        let peers = self.named(name)?;
        self.note_events(&[FleetEvent::now(FleetEventKind::Fault, format!("{} {name}", fault.signal()))])?;
        let remote = self.remote_of(&peers[0])?;
        let mut arguments = vec![fault.signal().to_owned()];
        arguments.extend(peers);
        let text = remote.call("signal", &arguments, Feed::Nothing, OPERATION_MAX)?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Checks that a fault of the network between hosts can be made here.
    ///
    /// # Errors
    /// The kinds of hosts that do not permit it.
    pub fn check_paths(&self) -> Result<(), FleetError> {
        match self.inventory().hosts.iter().find(|host| host.kind != HostKind::Netns) {
            None => Ok(()),
            Some(host) => Err(FleetError::Refused(format!(
                "host {} is of kind {:?}: paths between hosts can be cut, slowed and made lossy only where all hosts are network \
                 namespaces of one laboratory (`scatter-testnet lab`)",
                host.name, host.kind
            ))),
        }
    }

    /// Returns the number of peers that serve.
    pub fn serving(&self) -> usize {
        self.look().count(PeerState::Serves)
    }
}
