//! Runs of the processes of members: each start of a process is one.

use overlay::PeerKey;

use crate::group::Group;

impl Group {
    /// This node follows a run of that peer's process from its first message: what it then knows of that peer's
    /// acknowledgements in this run is all of them.
    pub fn on_new_run(&mut self, peer: PeerKey) {
        let _ = peer;
    }
}
