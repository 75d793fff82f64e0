//! Logs, observations and histories of a network, brought to one directory.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::host_view::HOSTS_AT_ONCE;
use super::remote::{Feed, Remote};
use super::{Fleet, FleetError, HostError};
use crate::parallel::in_parallel;

/// Time within which a host must have sent its files.
const COLLECT_MAX: Duration = Duration::from_secs(600);

/// Result of [`collect`].
#[derive(Clone, Debug, Default)]
pub struct CollectReport {
    /// Hosts whose files are there.
    pub hosts: usize,
    /// Hosts that failed.
    pub failed: Vec<HostError>,
}

/// Brings the logs and observations of all hosts, and the events and histories of this machine, to a directory: `HOST/peers/PEER/log`,
/// `HOST/observed-RUN.jsonl`, `events.jsonl`, `history-RUN.jsonl`.
///
/// # Errors
/// The network is not up; the directory cannot be written.
pub fn collect(fleet: &Fleet, out: &Path) -> Result<CollectReport, FleetError> {
    fleet.state()?;
    let take = |remote: &Remote| -> Result<(), HostError> {
        let place = out.join(remote.name());
        std::fs::create_dir_all(&place).map_err(|error| remote.error(format!("{}: {error}", place.display())))?;
        let bytes = remote.call_bytes("pack", &[], Feed::Nothing, COLLECT_MAX)?;
        unpack(&bytes, &place).map_err(|why| remote.error(why))
    };
    let mut report = CollectReport::default();
    for result in in_parallel(HOSTS_AT_ONCE, &fleet.remotes, take) {
        match result {
            Ok(()) => report.hosts += 1,
            Err(error) => report.failed.push(error),
        }
    }
    copy_own(fleet, out).map_err(|error| FleetError::Failed(format!("{}: {error}", out.display())))?;
    Ok(report)
}

/// Copies the files about the network that lie on this machine.
fn copy_own(fleet: &Fleet, out: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(fleet.directory.path())? {
        let path: PathBuf = entry?.path();
        if path.extension().is_some_and(|it| it == "jsonl") {
            std::fs::copy(&path, out.join(path.file_name().unwrap_or_default()))?;
        }
    }
    Ok(())
}

/// Unpacks a tar file into a directory. Names that lead out of it are refused by `tar`.
fn unpack(bytes: &[u8], place: &Path) -> Result<(), String> {
    if bytes.is_empty() {
        return Ok(());
    }
    let mut tar = Command::new("tar");
    tar.args(["-xf", "-", "-C"]).arg(place).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = tar.spawn().map_err(|error| format!("tar: {error}"))?;
    if let Some(mut input) = child.stdin.take() {
        let _ = std::io::Write::write_all(&mut input, bytes);
    }
    let output = child.wait_with_output().map_err(|error| format!("tar: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("tar: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
