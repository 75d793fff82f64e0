//! Session histories of members, as they report them: how often their processes ended without warning, and in how much time.

use serde::{Deserialize, Serialize};

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
