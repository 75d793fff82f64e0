//! How a newcomer finds out which of several groups would be the quickest with it: in each it acts as if it were a primary,
//! without anything to say (Scatter §6.2).
//!
//! All members of each group are sent a word that calls for nothing but an answer, and it counts how long a majority takes.
//! Nothing is changed by it anywhere.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use group::time::Time;
use overlay::{Contact, PeerKey, RingId};

use crate::api::Class;
use crate::node::Node;
use crate::seeking::Sampled;
use crate::wire::Frame;

/// Whoever has not answered is asked again after this: the first word may only have called for a connection.
const ASK_AGAIN: Duration = Duration::from_millis(150);
/// So often it is asked. Who is silent counts as slow.
const TURNS: usize = 5;

/// A newcomer's probes.
#[derive(Debug)]
pub(crate) struct Probing {
    /// What was sampled, and the places of those that are probed.
    pub(crate) sampled: Vec<Sampled>,
    probed: Vec<usize>,
    /// The name of the first turn; those that follow have the next ones.
    number: u64,
    /// When each turn began.
    turns: Vec<Time>,
    /// How long each peer took.
    answers: BTreeMap<PeerKey, Duration>,
}

impl Probing {
    pub(crate) fn new(sampled: Vec<Sampled>, probed: Vec<usize>, number: u64) -> Probing {
        // All names of turns are to fit behind it.
        Probing { sampled, probed, number: number >> 1, turns: Vec::new(), answers: BTreeMap::new() }
    }

    /// Whoever has not answered yet.
    fn silent(&self) -> Vec<(RingId, Contact)> {
        let groups = self.probed.iter().filter_map(|index| self.sampled.get(*index));
        let contacts = groups.flat_map(|sampled| sampled.group.members.iter().map(|contact| (sampled.ring, contact)));
        let silent = contacts.filter(|(_, contact)| !self.answers.contains_key(&contact.node.peer));
        silent.map(|(ring, contact)| (ring, contact.clone())).collect()
    }

    /// How long the newcomer would wait for a majority in this group, itself counted; `None` where that is not known.
    pub(crate) fn agreement(&self, index: usize) -> Option<Duration> {
        let members = &self.sampled.get(index)?.group.members;
        let ways = members.iter().filter_map(|contact| self.answers.get(&contact.node.peer));
        let mut ways: Vec<Duration> = ways.copied().collect();
        ways.sort_unstable();
        // Of one more than there are.
        ways.get(members.len().div_ceil(2).checked_sub(1)?).copied()
    }
}

impl Node {
    /// Asks those who have not answered, again; false where that has been done often enough, or all have.
    pub(crate) fn go_on_probing(&mut self) -> bool {
        let now = self.now.time;
        let Some(probing) = &mut self.seeking.probing else { return false };
        let silent = probing.silent();
        if silent.is_empty() || probing.turns.len() >= TURNS {
            return false;
        }
        let number = probing.number + probing.turns.len() as u64;
        probing.turns.push(now);
        self.join_due = now + ASK_AGAIN;
        for (ring, contact) in silent {
            self.reach(&contact);
            self.post(contact.node.peer, Class::Control, &Frame::Probe { ring, number });
        }
        true
    }

    /// A newcomer wants to know how far away this node is.
    pub(crate) fn on_probe(&mut self, from: PeerKey, ring: RingId, number: u64) {
        if self.hosts.is_empty() || self.ring != Some(ring) {
            self.frames_dropped += 1;
            return;
        }
        self.post(from, Class::Control, &Frame::Probed { ring, number });
    }

    /// An answer; late ones are of no use.
    pub(crate) fn on_probed(&mut self, from: PeerKey, number: u64) {
        let now = self.now.time;
        let Some(probing) = &mut self.seeking.probing else { return };
        let turn = number.checked_sub(probing.number).and_then(|turn| usize::try_from(turn).ok());
        let Some(began) = turn.and_then(|turn| probing.turns.get(turn).copied()) else { return };
        if !probing.silent().iter().any(|(_, contact)| contact.node.peer == from) {
            return;
        }
        probing.answers.insert(from, now.since(began));
        if probing.silent().is_empty() {
            self.end_probing();
        }
    }
}
