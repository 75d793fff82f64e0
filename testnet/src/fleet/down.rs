//! Taking a network down.

use std::time::Duration;

use super::host_view::HOSTS_AT_ONCE;
use super::remote::{Feed, OPERATION_MAX, Remote};
use super::{Fleet, FleetError, HostError, Note};
use crate::lab::Lab;
use crate::parallel::in_parallel;

/// Time within which a peer stops that was asked to; it is killed then. A daemon stops within 10 s.
const STOP_SECONDS: u64 = 12;

/// Result of [`down`].
#[derive(Clone, Debug, Default)]
pub struct DownReport {
    /// Peers that ran.
    pub ran: usize,
    /// Peers that had to be killed.
    pub killed: usize,
    /// Hosts that could not be reached, or where something is left.
    pub failed: Vec<HostError>,
}

/// Ends all peers, each with a request to stop at first. `wipe`: removes programs, data and logs, and forgets the network. The laboratory of
/// the inventory, if it names one, is taken down, too.
///
/// Does nothing for what is down already. Where a host fails, the state stays, so that the command can be repeated.
///
/// # Errors
/// The state cannot be read or written.
pub fn down(fleet: &Fleet, wipe: bool, note: Note<'_>) -> Result<DownReport, FleetError> {
    let end = |remote: &Remote| -> Result<(usize, usize), HostError> {
        let at_most = OPERATION_MAX + Duration::from_secs(STOP_SECONDS);
        let text = remote.call("end", &[STOP_SECONDS.to_string()], Feed::Nothing, at_most)?;
        let mut numbers = text.split_whitespace().map_while(|word| word.parse().ok());
        let counts = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        if wipe {
            remote.call("wipe", &[], Feed::Nothing, OPERATION_MAX)?;
        }
        Ok(counts)
    };
    let mut report = DownReport::default();
    for answer in in_parallel(HOSTS_AT_ONCE, &fleet.remotes, end) {
        match answer {
            Ok((ran, killed)) => {
                report.ran += ran;
                report.killed += killed;
            }
            Err(error) => report.failed.push(error),
        }
    }
    if report.failed.is_empty()
        && let Some(plan) = fleet.lab_plan()?
    {
        Lab::destroy(&plan.name).map_err(FleetError::Failed)?;
    }
    let killed = if report.killed > 0 { format!(", {} of them killed", report.killed) } else { String::new() };
    note(&format!("{} peers ended{killed}", report.ran));
    Ok(report)
}

/// Forgets a network that was wiped on all hosts.
///
/// # Errors
/// Its state cannot be removed.
pub fn forget(fleet: Fleet) -> Result<(), FleetError> {
    fleet.directory.remove()
}
