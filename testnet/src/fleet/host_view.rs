//! The peers of a host, as the host shows them.

use std::collections::BTreeMap;

use super::remote::{Feed, OPERATION_MAX, Remote};
use super::{Fleet, FleetError, HostError};
use crate::live::ReadyLine;
use crate::parallel::in_parallel;

/// Upper limit of the hosts that are asked at once.
pub(super) const HOSTS_AT_ONCE: usize = 16;

/// Whether a peer runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// Its process runs, and has printed that it serves.
    Serves,
    /// Its process runs.
    Starts,
    /// Its process has ended.
    Ended,
}

/// A peer, as its host shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerView {
    /// Name of the peer.
    pub name: String,
    /// Whether it runs.
    pub state: PeerState,
    /// Its peer id, once its present process has served.
    pub peer_id: Option<String>,
    /// Process id, if it runs.
    pub pid: Option<u32>,
}

impl PeerView {
    /// Reads a line of the script's `states`.
    fn of_line(line: &str) -> Option<PeerView> {
        let mut words = line.splitn(3, ' ');
        let (name, pid) = (words.next()?.to_owned(), words.next()?.parse().ok());
        let ready = ReadyLine::parse(words.next().unwrap_or_default());
        let state = match (pid, &ready) {
            (None, _) => PeerState::Ended,
            (Some(_), None) => PeerState::Starts,
            (Some(_), Some(_)) => PeerState::Serves,
        };
        Some(PeerView { name, state, peer_id: ready.map(|ready| ready.peer_id), pid })
    }
}

impl Remote {
    /// Returns the peers that this host knows.
    ///
    /// # Errors
    /// As [`Remote::call`].
    pub(super) fn peers(&self) -> Result<Vec<PeerView>, HostError> {
        let text = self.call("states", &[], Feed::Nothing, OPERATION_MAX)?;
        Ok(text.lines().filter_map(PeerView::of_line).collect())
    }
}

/// The peers of all hosts that answered, by name, and the errors of the others.
#[derive(Clone, Debug, Default)]
pub struct FleetView {
    /// Peers by name.
    pub peers: BTreeMap<String, PeerView>,
    /// Hosts that did not answer.
    pub silent: Vec<HostError>,
}

impl FleetView {
    /// Returns the number of peers in this state.
    pub fn count(&self, state: PeerState) -> usize {
        self.peers.values().filter(|peer| peer.state == state).count()
    }
}

impl Fleet {
    /// Asks all hosts for their peers.
    pub fn look(&self) -> FleetView {
        let mut view = FleetView::default();
        for answer in in_parallel(HOSTS_AT_ONCE, &self.remotes, Remote::peers) {
            match answer {
                Ok(peers) => view.peers.extend(peers.into_iter().map(|peer| (peer.name.clone(), peer))),
                Err(error) => view.silent.push(error),
            }
        }
        view
    }

    /// Returns the end of a peer's log.
    ///
    /// # Errors
    /// There is no such peer, or its host does not answer.
    pub fn log(&self, peer: &str, lines: usize) -> Result<String, FleetError> {
        let remote = self.remote_of(peer)?;
        let arguments = [peer.to_owned(), lines.to_string()];
        Ok(remote.call("log", &arguments, Feed::Nothing, OPERATION_MAX)?)
    }

    /// Returns the ring as a peer that serves sees it: its groups, and ranges that nobody serves. `None` where no peer serves, or answers.
    pub fn ring(&self, view: &FleetView) -> Option<String> {
        let state = self.state().ok()?;
        let serving = view.peers.values().find(|peer| peer.state == PeerState::Serves)?;
        let record = state.peers.get(&serving.name)?;
        let remote = self.remote(&record.host)?;
        let http = remote.entry.ports_of(record.place).http;
        let command = format!("bin/scatter ring --http 127.0.0.1:{http}");
        remote.call("run", &[command], Feed::Nothing, OPERATION_MAX).ok()
    }

    /// Runs a command on all hosts at once, and returns its output by host, or the error.
    pub fn run_everywhere(&self, command: &[String]) -> Vec<(String, Result<String, HostError>)> {
        let run =
            |remote: &Remote| (remote.name().to_owned(), remote.call("run", command, Feed::Nothing, OPERATION_MAX));
        in_parallel(HOSTS_AT_ONCE, &self.remotes, run)
    }

    /// Returns the host of a peer.
    pub(super) fn remote_of(&self, peer: &str) -> Result<&Remote, FleetError> {
        let state = self.state()?;
        let known = || state.peers.keys().take(8).map(String::as_str).collect::<Vec<_>>().join(", ");
        let unknown = || FleetError::Refused(format!("there is no peer {peer}; there are {} and so on", known()));
        let record = state.peers.get(peer).ok_or_else(unknown)?;
        self.remote(&record.host).ok_or_else(|| {
            FleetError::Refused(format!("the host {} of {peer} is not in the inventory any more", record.host))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_peers_are_read() {
        let ready = r#"{"event":"ready","peer_id":"P","listen":[],"resp":"127.0.0.1:1","http":"127.0.0.1:2"}"#;
        let state = |line: &str| PeerView::of_line(line).map(|peer| (peer.state, peer.pid, peer.peer_id));
        assert_eq!(state(&format!("a-0 12 {ready}")), Some((PeerState::Serves, Some(12), Some("P".into()))));
        assert_eq!(state("a-0 12 "), Some((PeerState::Starts, Some(12), None)));
        assert_eq!(state("a-0 12 half a li"), Some((PeerState::Starts, Some(12), None)));
        assert_eq!(state(&format!("a-0 - {ready}")), Some((PeerState::Ended, None, Some("P".into()))));
        assert_eq!(state(""), None);
    }
}
