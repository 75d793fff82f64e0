//! What was done to a network, and when: a line of JSON for each event, beside its state.

use std::fs::OpenOptions;
use std::io::Write as _;

use serde::{Deserialize, Serialize};

use super::worker::Clock;
use super::{Fleet, FleetError};

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FleetEventKind {
    /// A peer was killed, and a successor started.
    Death,
    /// A fault was caused or ended by hand.
    Fault,
    /// A load began.
    Load,
}

/// Something that was done to a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FleetEvent {
    /// Time of day, in seconds since 1970.
    at_s: f64,
    kind: FleetEventKind,
    /// The peer, host or load.
    name: String,
}

impl FleetEvent {
    /// Returns an event of now.
    pub(super) fn now(kind: FleetEventKind, name: impl Into<String>) -> FleetEvent {
        FleetEvent { at_s: Clock::now().wall_ns as f64 / 1e9, kind, name: name.into() }
    }

    /// Returns the time of day, in seconds since 1970.
    pub fn at_s(&self) -> f64 {
        self.at_s
    }

    /// Returns whether a peer died.
    pub fn is_death(&self) -> bool {
        self.kind == FleetEventKind::Death
    }
}

impl Fleet {
    /// Adds events to those of the network.
    pub(super) fn note_events(&self, events: &[FleetEvent]) -> Result<(), FleetError> {
        let path = self.directory.path().join("events.jsonl");
        let write = || {
            let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
            for event in events {
                let mut line = serde_json::to_vec(event)?;
                line.push(b'\n');
                file.write_all(&line)?;
            }
            std::io::Result::Ok(())
        };
        write().map_err(|error| FleetError::Failed(format!("{}: {error}", path.display())))
    }
}
