//! Names of peers beside their ids: the one form in which people are shown a peer.

use std::collections::BTreeMap;

use overlay::{Called, PeerName};

use crate::status::{GroupStatus, Located, PeerTraffic, Ring, SilentRange, short_peer};

/// Names of the peers that some answers mention, by peer id. Peers without a name are left out.
#[derive(Clone, Debug, Default)]
pub struct Names<'a>(BTreeMap<&'a str, &'a PeerName>);

impl<'a> Names<'a> {
    /// Returns the names of members of these groups; of a peer with several names the last one counts.
    pub fn of_groups(groups: impl IntoIterator<Item = &'a GroupStatus>) -> Names<'a> {
        let members = groups.into_iter().flat_map(|group| &group.members);
        Names(members.filter_map(|member| Some((member.peer_id.as_str(), member.name.as_ref()?))).collect())
    }

    /// Returns the names of members of a group as its owner reports them.
    pub fn of_located(located: &'a Located) -> Names<'a> {
        let mut names = Names::default();
        names.add(&located.names);
        names
    }

    /// Returns the names of members of a group that does not answer.
    pub fn of_silent(silent: &'a SilentRange) -> Names<'a> {
        let mut names = Names::default();
        names.add(&silent.names);
        names
    }

    /// Adds names of members of all groups on a ring; names that are known already stay.
    pub fn add_ring(&mut self, ring: &'a Ring) {
        ring.groups.iter().for_each(|located| self.add(&located.names));
        ring.silent.iter().for_each(|silent| self.add(&silent.names));
    }

    /// Adds names of other peers; names that are known already stay.
    pub fn add_peers(&mut self, peers: &'a [PeerTraffic]) {
        for peer in peers {
            if let Some(name) = &peer.name {
                self.0.entry(&peer.peer_id).or_insert(name);
            }
        }
    }

    fn add(&mut self, more: &'a BTreeMap<String, PeerName>) {
        more.iter().for_each(|(peer, name)| {
            self.0.entry(peer).or_insert(name);
        });
    }

    /// Returns a peer's name, where it is known.
    pub fn get(&self, peer_id: &str) -> Option<&'a PeerName> {
        self.0.get(peer_id).copied()
    }

    /// Returns a peer in its displayed form: `oak (MMjh9m)`, or the short id alone.
    pub fn label(&self, peer_id: &str) -> String {
        label(self.get(peer_id), peer_id)
    }

    /// Returns peers in their displayed form with the whole ids, with commas between them.
    pub fn whole_list(&self, peer_ids: &[String]) -> String {
        peer_ids.iter().map(|peer| self.whole(peer)).collect::<Vec<_>>().join(", ")
    }

    /// Returns a peer in its displayed form with the whole id, for commands that need it.
    pub fn whole(&self, peer_id: &str) -> String {
        Called { name: self.get(peer_id), id: peer_id }.to_string()
    }
}

/// Returns the displayed form of a peer with this name and id: `oak (MMjh9m)`, or the short id alone.
pub fn label(name: Option<&PeerName>, peer_id: &str) -> String {
    Called { name, id: short_peer(peer_id) }.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::MemberStatus;

    #[test]
    fn a_name_stands_beside_the_id() {
        let member = |peer_id: &str, name: &str| MemberStatus {
            peer_id: peer_id.into(),
            name: name.parse().ok(),
            ..MemberStatus::default()
        };
        let group = GroupStatus {
            members: vec![member("12D3KooWaaaaaa", "oak"), member("12D3KooWbbbbbb", "")],
            ..GroupStatus::default()
        };
        let mut names = Names::of_groups([&group]);
        assert_eq!(names.label("12D3KooWaaaaaa"), "oak (aaaaaa)");
        assert_eq!(names.label("12D3KooWbbbbbb"), "bbbbbb");
        assert_eq!(names.whole("12D3KooWaaaaaa"), "oak (12D3KooWaaaaaa)");
        assert_eq!(names.whole("12D3KooWcccccc"), "12D3KooWcccccc");
        let located = Located {
            names: [("12D3KooWaaaaaa", "elm"), ("12D3KooWcccccc", "oak")]
                .map(|(peer, name)| (peer.to_owned(), name.parse().unwrap()))
                .into(),
            ..Located::default()
        };
        let ring = Ring { groups: vec![located], ..Ring::default() };
        names.add_ring(&ring);
        assert_eq!(names.label("12D3KooWaaaaaa"), "oak (aaaaaa)", "the peer's own group knows better");
        assert_eq!(names.label("12D3KooWcccccc"), "oak (cccccc)", "two peers may have one name");
    }
}
