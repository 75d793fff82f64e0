//! Session histories of members, as they report them: how often their processes ended without warning, and in how much time.

use overlay::NodeId;
use serde::{Deserialize, Serialize};

use crate::control::liveness::Liveness;

/// Upper limit of failures in a heartbeat: a peer remembers no more sessions.
pub const FAILURES_MAX: u32 = 64;

/// Sessions that a peer remembers, as it reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// Number of sessions that ended without warning: from 0 to [`FAILURES_MAX`].
    pub failures: u32,
    /// Total length of the sessions, the present one included, in seconds.
    pub lived_s: u32,
}

impl History {
    /// Returns whether an honest peer can have reported this.
    pub(crate) fn is_sound(&self) -> bool {
        self.failures <= FAILURES_MAX
    }
}

impl Liveness {
    /// Sets this peer's own history, for its heartbeats; `None` where it has none. More than [`FAILURES_MAX`] failures count as that
    /// number.
    pub(crate) fn set_history(&mut self, history: Option<History>) {
        self.history = history.map(|known| History { failures: known.failures.min(FAILURES_MAX), ..known });
    }

    /// Returns the history in a member's last heartbeat; `None` where the member has no history, or was not heard yet.
    pub(crate) fn told_history(&self, me: NodeId, node: NodeId) -> Option<History> {
        match node == me {
            true => self.history,
            false => self.failure_detector.last_heartbeat(node)?.history,
        }
    }
}
