//! A daemon's view of its group.

use serde::Deserialize;

/// A daemon's report of its group in `/v1/status`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct GroupView {
    /// Epoch of the group.
    pub epoch: u64,
    /// Slot of the newest of the primaries' terms.
    pub term: u64,
    /// Whether a majority of the members holds all data.
    pub established: bool,
    /// Leader of the group, where it is known.
    pub leader: Option<String>,
    /// Members, and learners.
    pub members: Vec<MemberView>,
    /// Primaries, in the order of their parts of the range.
    pub primaries: Vec<PrimaryView>,
}

/// A member as a daemon sees it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct MemberView {
    /// Peer id of the member.
    pub peer_id: String,
    /// `leader`, `member`, `learner`, or `suspect`, which may be any of them.
    pub role: String,
    /// Addresses at which peers reach the member.
    pub addresses: Vec<String>,
}

/// A primary as a daemon sees it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PrimaryView {
    /// Peer id of the primary.
    pub peer_id: String,
}

impl GroupView {
    /// Returns the peer ids of the voting members that are well.
    pub fn voters(&self) -> impl Iterator<Item = &str> {
        let votes = |member: &&MemberView| matches!(member.role.as_str(), "leader" | "member");
        self.members.iter().filter(votes).map(|member| member.peer_id.as_str())
    }

    /// Returns the upper limit of the voting members: all that are not known to be learners.
    pub fn voters_max(&self) -> usize {
        self.members.iter().filter(|member| member.role != "learner").count()
    }
}
