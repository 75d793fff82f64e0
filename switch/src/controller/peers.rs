//! Last reports of peers, and the rule for which of them count.
//!
//! A peer's state of a group counts only if it names that peer as a member: peers are not asked about other groups, and such
//! states are ignored. A member is trusted, as its group trusts it. Of several states of a group the furthest counts, by the
//! epoch first: a member that has left still reports the time before.

use std::collections::BTreeMap;
use std::net::{SocketAddr, SocketAddrV4};
use std::time::Duration;

use super::reports::{Group, Known, Peer, PeerReport};

/// Time after which a silent peer counts as unable to answer reads.
pub const SILENT: Duration = Duration::from_secs(3);
/// Upper limit of log slots by which a member may lag behind another one and still count as able to answer reads. The member
/// itself knows which reads it may answer.
const LAG: u64 = 1000;

/// Source of reports.
#[derive(Debug, Default)]
pub struct Source {
    /// The last report, with the groups that the peer is a member of, and its time.
    pub report: Option<(PeerReport, Duration)>,
    /// State of the source, for operators.
    pub state: Option<String>,
}

/// Furthest known state of a group.
#[derive(Debug)]
pub struct Best {
    /// The state.
    pub known: Known,
    /// Time of the last report that had the group.
    pub listed: Duration,
}

/// Effect of a report on the furthest known state of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing changed for the tables.
    Same,
    /// A change that the tables must follow.
    Changed,
}

impl Source {
    /// Takes a report without the groups of which the peer is not a member. Returns the number of these groups.
    pub fn hear(&mut self, mut report: PeerReport, now: Duration) -> usize {
        let all = report.groups.len();
        report.groups.retain(|_, known| known.members.contains(&report.peer));
        let refused = all - report.groups.len();
        let refusal = match refused {
            0 => String::new(),
            some => format!(", and its report about {some} groups that it is not a member of is ignored"),
        };
        self.state = Some(format!("answers as {}{refusal}", report.peer));
        self.report = Some((report, now));
        refused
    }

    /// Returns whether the peer is a member of this group, by its own report.
    pub fn speaks_of(&self, group: Group) -> bool {
        self.report.as_ref().is_some_and(|(report, _)| report.groups.contains_key(&group))
    }
}

/// Takes a member's state of its group.
pub fn see(groups: &mut BTreeMap<Group, Best>, group: Group, known: &Known, now: Duration) -> Seen {
    let Some(best) = groups.get_mut(&group) else {
        groups.insert(group, Best { known: known.clone(), listed: now });
        return Seen::Same;
    };
    best.listed = now;
    if (known.epoch, known.slot) < (best.known.epoch, best.known.slot) {
        return Seen::Same;
    }
    let is_same = (&best.known.parts, best.known.id) == (&known.parts, known.id);
    if best.known != *known {
        best.known = known.clone();
    }
    if is_same { Seen::Same } else { Seen::Changed }
}

/// All peers with their last reports.
pub struct Peers<'a> {
    /// Sources, by index.
    pub sources: &'a [Source],
    /// Current time.
    pub now: Duration,
}

impl Peers<'_> {
    fn said(&self, peer: &Peer) -> Option<&(PeerReport, Duration)> {
        let words = self.sources.iter().filter_map(|source| source.report.as_ref());
        words.filter(|(report, _)| report.peer == *peer).max_by_key(|(_, at)| *at)
    }

    /// Returns the address at which a peer takes a lane's packets, if a switch can send to it.
    pub fn endpoint(&self, peer: &Peer, lane: u32) -> Option<SocketAddrV4> {
        match self.said(peer)?.0.endpoints.get(&lane)? {
            SocketAddr::V4(address) => Some(*address),
            SocketAddr::V6(_) => None,
        }
    }

    /// Returns whether a peer reports, and is near the furthest state of its group.
    pub fn keeps_up(&self, peer: &Peer, group: Group, best: &Known) -> bool {
        let Some((report, at)) = self.said(peer) else { return false };
        let is_near = |own: &Known| own.epoch == best.epoch && own.slot.saturating_add(LAG) >= best.slot;
        self.now < *at + SILENT && report.groups.get(&group).is_some_and(is_near)
    }
}
