//! Choice of the peer that the demo kills: one whose group keeps a majority, as long as there is one.

use std::collections::BTreeMap;

use peer::status::{GroupStatus, Status, short_group, short_peer};

/// Running peer: its index, its name, and its status, where it answered.
pub struct Running {
    /// Index among the demo's peers.
    pub index: usize,
    /// Name of the peer.
    pub name: String,
    /// Status of the peer, where it answered.
    pub status: Option<Status>,
}

/// Peer that may be killed, and the consequence for its group.
#[derive(Clone, Debug, PartialEq)]
pub struct Victim {
    /// Index among the demo's peers.
    pub index: usize,
    /// `peer-3 (MMjh9m)`; the name alone where the peer did not tell its id.
    pub name: String,
    /// Group of the peer; `None` where it votes in none.
    pub group: Option<Left>,
    /// Whether the group has a majority without the peer. False also where the peer did not tell its group.
    pub keeps: bool,
}

/// Group without one of its members.
#[derive(Clone, Debug, PartialEq)]
pub struct Left {
    /// Short id of the group.
    pub group: String,
    /// Members that run then.
    pub left: usize,
    /// Total number of members.
    pub members: usize,
    /// Share of the ring that the group owns, from 0 to 1.
    pub share: f64,
}

impl Victim {
    /// Returns the question whether a majority may be taken; in 80 columns.
    pub fn question(&self) -> String {
        match &self.group {
            Some(Left { group, left, members, share }) => format!(
                "K again kills {}: group {group} stops ({left} of {members} left), {:.0} % of keys",
                self.name,
                share * 100.0
            ),
            None => format!("K again kills {}, which does not tell its group", self.name),
        }
    }

    /// Returns the report that the peer was killed; in 80 columns.
    pub fn killed(&self) -> String {
        match &self.group {
            Some(Left { group, left, members, .. }) if self.keeps => {
                format!("{} of group {group} was killed: {left} of {members} left, it goes on", self.name)
            }
            Some(Left { group, left, members, .. }) => {
                format!("{} was killed: group {group}: NO MAJORITY ({left} of {members}); S starts it", self.name)
            }
            None => format!("{} was killed", self.name),
        }
    }
}

/// Returns the consequence of killing each of these peers.
pub fn victims(running: &[Running]) -> Vec<Victim> {
    let told = || running.iter().filter_map(|peer| peer.status.as_ref());
    let mut groups: BTreeMap<&str, &GroupStatus> = BTreeMap::new();
    for group in told().flat_map(|status| &status.groups) {
        // Members learn of a new epoch one after the other.
        let newest = groups.entry(&group.id).or_insert(group);
        if newest.epoch < group.epoch {
            *newest = group;
        }
    }
    // A peer that does not answer runs, but its id is unknown: its group does not count on it.
    let runs = |peer: &str| told().any(|status| status.peer_id == peer);
    running.iter().map(|peer| victim(peer, &groups, runs)).collect()
}

fn victim(peer: &Running, groups: &BTreeMap<&str, &GroupStatus>, runs: impl Fn(&str) -> bool) -> Victim {
    let Some(status) = &peer.status else {
        return Victim { index: peer.index, name: peer.name.clone(), group: None, keeps: false };
    };
    let name = format!("{} ({})", peer.name, short_peer(&status.peer_id));
    let voters = |group: &GroupStatus| -> Vec<String> {
        group.members.iter().filter(|member| member.role != "learner").map(|member| member.peer_id.clone()).collect()
    };
    let own = groups.values().map(|group| (group, voters(group))).find(|(_, voters)| voters.contains(&status.peer_id));
    let Some((group, voters)) = own else {
        return Victim { index: peer.index, name, group: None, keeps: true };
    };
    let left = voters.iter().filter(|voter| **voter != status.peer_id && runs(voter)).count();
    let left = Left { group: short_group(&group.id).into(), left, members: voters.len(), share: group.range.share() };
    let keeps = left.left > left.members / 2;
    Victim { index: peer.index, name, group: Some(left), keeps }
}

#[cfg(test)]
mod tests {
    use peer::status::MemberStatus;

    use super::*;

    fn group(id: &str, epoch: u64, members: &[&str]) -> GroupStatus {
        let member = |peer_id: &&str| MemberStatus { peer_id: (*peer_id).into(), ..MemberStatus::default() };
        let members = members.iter().map(member).collect();
        GroupStatus { id: id.into(), epoch, members, ..GroupStatus::default() }
    }

    fn running(index: usize, peer: &str, group: GroupStatus) -> Running {
        let status = Status { peer_id: peer.into(), groups: vec![group], ..Status::default() };
        Running { index, name: format!("peer-{index}"), status: Some(status) }
    }

    #[test]
    fn no_group_loses_its_majority_unasked() {
        // Two groups of four; one member of the first was killed already.
        let (first, second) = (group("one", 3, &["a", "b", "c", "d"]), group("two", 5, &["e", "f", "g", "h"]));
        let old = group("two", 4, &["e", "f", "g"]);
        let peers = [
            running(1, "a", first.clone()),
            running(2, "b", first.clone()),
            running(3, "c", first),
            running(5, "e", old),
            running(6, "f", second.clone()),
            running(7, "g", second.clone()),
            running(8, "h", second),
        ];
        let keeps: Vec<bool> = victims(&peers).iter().map(|victim| victim.keeps).collect();
        assert_eq!(keeps, [false, false, false, true, true, true, true]);
        let all = victims(&peers);
        assert_eq!(all[0].question(), "K again kills peer-1 (a): group one stops (2 of 4 left), 0 % of keys");
        assert_eq!(all[3].killed(), "peer-5 (e) of group two was killed: 3 of 4 left, it goes on");
        assert!(all[0].killed().contains("NO MAJORITY"));
    }

    #[test]
    fn a_peer_that_is_not_known_to_vote_is_asked_for_or_harmless() {
        let mut peers = vec![running(0, "a", group("one", 1, &["b", "c"]))];
        peers.push(Running { index: 1, name: "peer-2".into(), status: None });
        let all = victims(&peers);
        assert_eq!((all[0].keeps, all[1].keeps), (true, false));
        assert!(all[1].question().ends_with("which does not tell its group"));
    }
}
