//! Faults of peers and hosts, by hand.

use super::events::{FleetEvent, FleetEventKind};
use super::remote::{Feed, OPERATION_MAX};
use super::{Fleet, FleetError};
use crate::lab::Lab;

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

/// A fault of the paths between hosts of a laboratory. Names are those of hosts; `@SITE` means all of a site, and `*` all hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathFault {
    /// No packet of either of the two reaches the other.
    Cut(String, String),
    /// No packet of the first reaches the second.
    CutOneWay(String, String),
    /// Packets between the two take this much longer each way, in milliseconds.
    Slow(String, String, u32),
    /// Of 1,000 packets between the two, each way, this many are lost.
    Lossy(String, String, u32),
    /// All paths are as planned again.
    Heal,
}

impl PathFault {
    /// Returns the commands for the path.
    fn commands(&self) -> Vec<String> {
        let both = |word: &str, a: &str, b: &str, value: &str| {
            [(a, b), (b, a)].map(|(from, to)| format!("{word} {from} {to} {value}").trim_end().to_owned()).to_vec()
        };
        match self {
            PathFault::Cut(a, b) => both("cut", a, b, ""),
            PathFault::CutOneWay(a, b) => vec![format!("cut {a} {b}")],
            PathFault::Slow(a, b, more) => both("delay", a, b, &more.to_string()),
            PathFault::Lossy(a, b, rate) => both("loss", a, b, &rate.to_string()),
            PathFault::Heal => vec!["heal".to_owned()],
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

    /// Causes or ends a fault of the paths between hosts.
    ///
    /// # Errors
    /// The hosts do not stand in a laboratory; one of the names is unknown to it.
    pub fn path_fault(&self, fault: &PathFault) -> Result<(), FleetError> {
        let Some(plan) = self.lab_plan()? else {
            let kinds =
                self.inventory().hosts.iter().map(|host| format!("{} is {:?}", host.name, host.kind).to_lowercase());
            return Err(FleetError::Refused(format!(
                "paths between hosts can be cut, slowed and made lossy only in a laboratory, which the inventory names with `lab = \"PLAN\"`; \
                 here {}",
                kinds.take(4).collect::<Vec<_>>().join(", ")
            )));
        };
        let lab = Lab::open(&plan.name).map_err(FleetError::Refused)?;
        self.note_events(&[FleetEvent::now(FleetEventKind::Fault, format!("{fault:?}"))])?;
        fault.commands().iter().try_for_each(|command| lab.tell(command).map(drop).map_err(FleetError::Refused))
    }
}
