//! Administrators' requests to a running peer.

use node::{AdminOutcome, AdminRequest, LeaveRefusal, RingWalk};
use overlay::{GroupId, Key, Point};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;

use crate::status::LeavingStatus;

/// Receiver of administrators' requests.
pub trait Admin: Send + Sync + 'static {
    /// Begins to leave the network for good; `force`: also where fewer than three members remain. The answer comes once the
    /// request is on record, so that not even the death of the process undoes it; a peer that has ended drops the sender.
    ///
    /// Must not block.
    fn leave(&self, force: bool) -> oneshot::Receiver<Result<LeavingStatus, LeaveError>>;

    /// Starts an operation of a group: one answer from each lane, of which at most one has the group. The outcome is decided
    /// at most 10 s after the start, for a repair after a minute; members may have to copy for ten minutes before.
    ///
    /// Must not block.
    fn request(&self, group: GroupId, request: AdminRequest) -> UnboundedReceiver<AdminOutcome>;

    /// Finds `count` owners of this lane's ring from a point on (else from this peer's group on), as the owners themselves
    /// report.
    ///
    /// Must not block.
    fn walk_ring(&self, lane: u8, from: Option<Point>, count: usize) -> oneshot::Receiver<RingWalk>;

    /// Finds the owner of a key.
    ///
    /// Must not block.
    fn locate(&self, key: &Key) -> oneshot::Receiver<RingWalk>;
}

/// Reason for which a leave was not begun. The text is for the administrator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaveError {
    /// The leave would fail, or do harm.
    #[error("{}", explain(*.0))]
    Refused(LeaveRefusal),
    /// The leave cannot be recorded, so it was not begun.
    #[error("the leave was not started because it cannot be recorded in the data directory: {0}")]
    Forgotten(String),
}

impl LeaveError {
    /// Returns a short reason for scripts.
    pub fn reason(&self) -> &'static str {
        match self {
            LeaveError::Refused(LeaveRefusal::Stopping) => "stopping",
            LeaveError::Refused(LeaveRefusal::Outside) => "no_network",
            LeaveError::Refused(LeaveRefusal::NotMember) => "not_member",
            LeaveError::Refused(LeaveRefusal::Last) => "last_member",
            LeaveError::Refused(LeaveRefusal::Unheard { .. }) => "members_silent",
            LeaveError::Refused(LeaveRefusal::Few { .. }) => "few_members",
            LeaveError::Forgotten(_) => "not_remembered",
        }
    }
}

fn explain(refusal: LeaveRefusal) -> String {
    match refusal {
        LeaveRefusal::Stopping => "this peer is stopping".into(),
        LeaveRefusal::Outside => {
            "this peer belongs to no network yet, so it cannot leave one: stop it instead (SIGTERM)".into()
        }
        LeaveRefusal::NotMember => {
            "this peer is not a member yet, or is being replaced: ask again in a moment, or stop it (SIGTERM)".into()
        }
        LeaveRefusal::Last => "this peer is the last member of its network: its leave would lose all data. To stop \
            the peer and keep the data, send it SIGTERM"
            .into(),
        LeaveRefusal::Unheard { remain, heard } => format!(
            "of the {remain} members that would remain, only {heard} {} heard: they have no majority without this \
            peer. Restart the silent members, or wait until the group removes them",
            if heard == 1 { "is" } else { "are" },
        ),
        LeaveRefusal::Few { remain } => {
            let risk = match remain {
                1 => "only one member would remain: it would hold the only copy of the data",
                _ => "only two members would remain: all operations would fail while either of them is down",
            };
            format!("{risk}. Let another peer join first, or repeat with --force (over HTTP: {{\"force\": true}})")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_is_risked_and_what_to_do() {
        let said = |refusal| LeaveError::Refused(refusal).to_string();
        assert!(said(LeaveRefusal::Few { remain: 2 }).contains("--force"));
        assert!(said(LeaveRefusal::Few { remain: 1 }).contains("one member would remain"));
        assert!(said(LeaveRefusal::Last).contains("SIGTERM"));
        assert!(said(LeaveRefusal::Unheard { remain: 3, heard: 1 }).contains("only 1 is heard"));
    }
}
