//! Checks of the members' states, and the state that all of them must come to.

use group::Group;
use group::control::state::{Entry, GroupState, Member};
use group::message::{LogMessage, Message};
use overlay::{Epoch, KeyRange, NodeId};

use super::{Packet, World, member};

impl World {
    /// Checks that no place has two values.
    pub(super) fn check(&mut self, index: usize) {
        let Some(group) = &mut self.peers[index].group else { return };
        let state = group.state();
        let known = self.states.entry(state.applied).or_insert_with(|| state.clone());
        if known != state {
            self.wrong.get_or_insert(format!("I1/I2: two states at {:?}: {known:?} and {state:?}", state.applied));
        }
        let watched = group.watch();
        let accepted = watched.accepted.into_iter().map(|write| (write.key, write.record, false));
        let chosen = watched.chosen.into_iter().map(|(key, record)| (key, record, true));
        for (key, record, chosen) in accepted.chain(chosen) {
            let place = (key.clone(), record.number);
            let known = self.numbers.entry(place).or_insert_with(|| record.clone());
            if *known != record {
                self.wrong.get_or_insert(format!("I1: {key:?} is {known:?} and {record:?}"));
            }
            if chosen {
                let value = record.value.as_ref().map(|value| value.to_vec());
                let known = self.versions.entry((key.clone(), record.version)).or_insert_with(|| value.clone());
                if *known != value {
                    let version = record.version;
                    self.wrong.get_or_insert(format!("I1: {key:?} at {version:?} is {known:?} and {value:?}"));
                }
            }
        }
    }

    /// Checks that a node learns of its removal from the group only after the removal was durable at a majority of the members: any one of
    /// them may forget it then.
    ///
    /// A member counts if the state was ever durable there, also if its store is lost since. The sender counts reports, and it may get a
    /// report, or repeat an answer, after the loss. A lost store is the failure of one member, as for an entry of the log.
    pub(super) fn check_released(&mut self, from: NodeId, to: &[NodeId], state: &GroupState) {
        let let_go = |node: &&NodeId| !state.is_in_audience(**node);
        for node in to.iter().filter(let_go).filter(|_| state.is_in_audience(from)) {
            let known = self.states.range(..=state.applied).rev();
            let since = known.take_while(|(_, state)| !state.is_in_audience(*node)).last();
            let since = since.map_or(state.applied, |(slot, _)| *slot);
            let held = |member: &&Member| self.durable.get(&member.node).is_some_and(|durable| *durable >= since);
            let holders = state.members.iter().filter(held).count();
            if holders <= state.members.len() / 2 {
                let why =
                    format!("{node:?} is told that it was let go of at {since:?}, and {holders} members held that");
                self.wrong.get_or_insert(why);
            }
        }
    }

    /// Returns the latest state that any node knows.
    pub fn latest(&self) -> &GroupState {
        self.states.last_key_value().expect("the first").1
    }

    /// Returns whether this peer may lose all its data: a majority of every configuration that may matter must keep its own.
    pub fn can_lose(&self, index: usize) -> bool {
        let ending = |packet: &Packet| {
            matches!(&packet.message, Message::Log(LogMessage::Accept { entries, .. })
                if entries.iter().any(|(_, entry)| entry.ends_epoch()))
        };
        if self.net.iter().any(ending) {
            return false;
        }
        let groups: Vec<&Group> = self.peers.iter().filter_map(|peer| peer.group.as_ref()).collect();
        if groups.iter().any(|group| group.log().last_accepted() > Some(group.state().applied)) {
            return false;
        }
        if self.peers.iter().any(|peer| peer.down) {
            return false; // No node knows the votes of those members.
        }
        let exists = |node: &NodeId| self.index(*node).is_some_and(|at| at != index && !self.peers[at].disk.is_empty());
        let states = groups.iter().map(|group| group.state()).filter(|state| state.epoch >= self.latest().epoch);
        states.into_iter().all(|state| {
            state.configs(KeyRange::FULL).iter().all(|config| {
                let alive = config.members.iter().filter(|node| exists(node)).count();
                alive > config.members.len() / 2
            })
        })
    }

    /// Returns the reason for which the group is not at rest: all members must be in one complete state, and all primaries must serve.
    pub fn unrest(&self) -> Option<String> {
        let latest = self.latest();
        for member in &latest.members {
            // A minority may be gone for good. The group must remove or replace it in the end. This is not waited for here.
            let Some(index) = self.index(member.node) else { continue };
            let Some(group) = &self.peers[index].group else { return Some(format!("{index} is down")) };
            if group.is_recovering() {
                return Some(format!("{index} is vouching"));
            }
            if group.state() != latest {
                return Some(format!("{index} is at {:?}, others at {:?}", group.state().applied, latest.applied));
            }
            if group.acceptor().has_sealed(latest.epoch) {
                return Some(format!("{index} has sealed"));
            }
            if let Some(primary) = group.primaries().find(|primary| !primary.is_serving()) {
                return Some(format!("{index} does not serve as {:?}", primary.ballot()));
            }
        }
        if !latest.recovery.is_empty() {
            return Some(format!("{:?} is not established: {:?}", latest.epoch, latest.recovery));
        }
        let serves = |ballot: &group::ballot::TermBallot| {
            let group = self.index(ballot.node).and_then(|index| self.peers[index].group.as_ref());
            group.is_some_and(|group| group.primaries().any(|primary| primary.ballot() == *ballot))
        };
        latest.parts().find(|(_, ballot)| !serves(ballot)).map(|(_, ballot)| format!("{ballot:?} does not serve"))
    }

    pub fn epoch(&self) -> Epoch {
        self.latest().epoch
    }

    /// Returns a leader that may propose an entry now.
    pub fn free_leader(&self) -> Option<usize> {
        self.living().into_iter().find(|index| self.group(*index).log().leads() && !self.group(*index).log().is_busy())
    }

    /// Returns the entry of the next epoch with these members.
    pub fn next(&self, nodes: &[NodeId]) -> Entry {
        let mut members: Vec<Member> = nodes.iter().map(|node| member(*node)).collect();
        members.sort_by_key(|member| member.node);
        Entry::Next(members)
    }
}
