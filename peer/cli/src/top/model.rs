//! Data of the dashboard: plain values, as the HTTP endpoints gave them. None of it is escaped for the terminal
//! yet.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use peer::names::Names;
use peer::status::{
    Budgets, GroupStatus, LoadSample, Located, MemberStatus, PeerTraffic, QuorumStatus, RangeStatus, Ring, SilentRange,
    Status, Told,
};

/// Upper limit of events kept.
const EVENTS_MAX: usize = 1000;
/// Upper limit of an event in bytes. No peer sends a larger one; it is dropped, because a thousand events are
/// kept for days.
const EVENT_BYTES_MAX: usize = 4096;
/// Upper limit of samples kept.
const SAMPLES_MAX: usize = 300;

/// All gathered data: the output of `scatter top --once --output json`.
///
/// `None` marks an answer that the peer does not give, or has not given yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// Endpoint that was asked: host and port.
    pub endpoint: String,
    /// Whether a client operation sent there now will be answered.
    pub ready: Option<bool>,
    /// `/v1/status`.
    pub status: Option<Status>,
    /// `/v1/groups`: also groups that only need data that the peer holds.
    pub groups: Option<Vec<GroupStatus>>,
    /// `/v1/ring` of the lane that is shown.
    pub ring: Option<Ring>,
    /// `/v1/peers`.
    pub peers: Option<Vec<PeerTraffic>>,
    /// `/v1/budgets`.
    pub budgets: Option<Budgets>,
    /// `/v1/events`, oldest first.
    pub events: Option<Vec<Told>>,
    /// `/v1/load`, oldest first.
    pub load: Option<Vec<LoadSample>>,
    /// Endpoints that did not answer, with the error of each, as long as none answers.
    pub troubles: BTreeMap<String, String>,
    /// Notice about the source of this data: that another peer is shown now, and why.
    pub notice: Option<String>,
    /// Age of the answers in seconds; `None` where there was none.
    pub age_s: Option<u64>,
    /// Age of the ring in seconds, which is asked for less often.
    pub ring_age_s: Option<u64>,
}

impl Model {
    /// Adds new events: each replaces the one with its id.
    pub fn add_events(&mut self, mut new: Vec<Told>) {
        new.retain(|told| bytes(told) <= EVENT_BYTES_MAX);
        let events = self.events.get_or_insert_default();
        let ids: BTreeSet<u64> = new.iter().map(|told| told.id).collect();
        events.retain(|known| !ids.contains(&known.id));
        events.extend(new);
        let superfluous = events.len().saturating_sub(EVENTS_MAX);
        events.drain(..superfluous);
    }

    /// Adds new samples behind the existing ones.
    pub fn add_load(&mut self, new: Vec<LoadSample>) {
        let load = self.load.get_or_insert_default();
        let last = load.last().map_or(0, |sample| sample.unix_s);
        // A clock that was set back begins anew.
        if new.first().is_some_and(|first| first.unix_s <= last) {
            load.clear();
        }
        load.extend(new);
        let superfluous = load.len().saturating_sub(SAMPLES_MAX);
        load.drain(..superfluous);
    }

    /// Returns the id of the peer that is shown.
    pub fn me(&self) -> &str {
        self.status.as_ref().map_or("", |status| &status.peer_id)
    }

    /// Returns the groups that the peer belongs to.
    pub fn own_groups(&self) -> &[GroupStatus] {
        self.status.as_ref().map_or(&[], |status| &status.groups)
    }

    /// Returns all groups that the peer has a part in.
    pub fn all_groups(&self) -> &[GroupStatus] {
        self.groups.as_deref().unwrap_or_else(|| self.own_groups())
    }

    /// Returns the peer's knowledge of a group.
    pub fn group(&self, id: &str) -> Option<&GroupStatus> {
        self.all_groups().iter().find(|group| group.id == id)
    }

    /// Returns a member of a group that this peer knows, with that group.
    pub fn member(&self, peer_id: &str) -> Option<(&GroupStatus, &MemberStatus)> {
        self.own_groups().iter().find_map(|group| {
            let member = group.members.iter().find(|member| member.peer_id == peer_id)?;
            Some((group, member))
        })
    }

    /// Returns the names of all peers in the answers, as far as they have names.
    pub fn names(&self) -> Names<'_> {
        let mut names = Names::of_groups(self.all_groups().iter().chain(self.own_groups()));
        self.ring.iter().for_each(|ring| names.add_ring(ring));
        names.add_peers(self.peers.as_deref().unwrap_or_default());
        names
    }

    /// Returns the traffic with a peer.
    pub fn traffic(&self, peer_id: &str) -> Option<&PeerTraffic> {
        self.peers.iter().flatten().find(|peer| peer.peer_id == peer_id)
    }

    /// Returns the groups along the ring, by their first points: as the owners say, or as far as this peer knows
    /// by itself.
    pub fn arcs(&self) -> Vec<Arc> {
        let mut arcs: Vec<Arc> = match &self.ring {
            Some(ring) => {
                let answered = ring.groups.iter().map(|located| self.arc(located));
                answered.chain(ring.silent.iter().map(Arc::of_silent)).collect()
            }
            None => self.own_groups().iter().map(Arc::of_own).collect(),
        };
        arcs.sort_by(|one, other| one.start.total_cmp(&other.start).then_with(|| one.id.cmp(&other.id)));
        arcs.dedup_by(|one, other| one.id == other.id);
        arcs
    }

    fn arc(&self, located: &Located) -> Arc {
        let own = self.own_groups().iter().find(|group| group.id == located.group);
        let (start, share) = place(&located.range);
        Arc {
            id: located.group.clone(),
            start,
            share,
            epoch: located.epoch,
            members: located.members.len(),
            primary: located.primary.clone(),
            mine: own.is_some(),
            quorum: own.and_then(|own| own.quorum.clone()).or_else(|| located.quorum.clone()),
        }
    }
}

/// Part of the ring that one group owns.
#[derive(Clone, Debug, PartialEq)]
pub struct Arc {
    /// Group, by id.
    pub id: String,
    /// Start of the part, as a fraction of the ring from 0 to 1.
    pub start: f64,
    /// Length of the part, as a fraction of the ring.
    pub share: f64,
    /// Epoch of the group.
    pub epoch: u64,
    /// Number of the group's members.
    pub members: usize,
    /// Primary at the start of the part.
    pub primary: String,
    /// Whether the shown peer belongs to the group.
    pub mine: bool,
    /// Whether a member of the group hears a majority; `None` where that is not told.
    pub quorum: Option<QuorumStatus>,
}

impl Arc {
    fn of_own(group: &GroupStatus) -> Arc {
        let (start, share) = place(&group.range);
        Arc {
            id: group.id.clone(),
            start,
            share,
            epoch: group.epoch,
            members: group.members.len(),
            primary: group.primaries.first().map(|primary| primary.peer_id.clone()).unwrap_or_default(),
            mine: true,
            quorum: group.quorum.clone(),
        }
    }

    /// Returns the part of a range whose owners do not answer.
    fn of_silent(silent: &SilentRange) -> Arc {
        let (start, share) = place(&silent.range);
        let members = silent.members.len();
        let quorum =
            QuorumStatus { members: members as u64, needed: members as u64 / 2 + 1, ..QuorumStatus::default() };
        Arc {
            id: silent.group.clone().unwrap_or_else(|| "?".into()),
            start,
            share,
            epoch: 0,
            members,
            primary: String::new(),
            mine: false,
            quorum: Some(quorum),
        }
    }

    /// Returns whether operations on the part are known to get no answer.
    pub fn is_lost(&self) -> bool {
        self.quorum.as_ref().is_some_and(|quorum| !quorum.held)
    }
}

/// Returns the approximate size of an event in bytes.
fn bytes(told: &Told) -> usize {
    let names = [&told.group, &told.peer].into_iter().flatten();
    told.kind.len() + told.text.len() + names.map(String::len).sum::<usize>()
}

/// Returns start and length of a range, as fractions of the ring; zeros where the text describes no arc.
pub fn place(range: &RangeStatus) -> (f64, f64) {
    let start = range.arc().map_or(0.0, |arc| arc.start().0 as f64 / 2f64.powi(128));
    (start, range.share())
}

/// Returns `A` to `Z`, then `AA` and so on: the screen name of the group with this number along the ring.
pub fn letters(mut number: usize) -> String {
    let mut letters = Vec::new();
    loop {
        letters.push(char::from(b'A' + (number % 26) as u8));
        match (number / 26).checked_sub(1) {
            Some(next) => number = next,
            None => break,
        }
    }
    letters.iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_replaces_what_was_told_of_it() {
        let told = |id, seq, count| Told { id, seq, count, ..Told::default() };
        let mut model = Model::default();
        model.add_events(vec![told(1, 1, 1), told(2, 2, 1)]);
        model.add_events(vec![told(1, 3, 2)]);
        let events: Vec<_> = model.events.iter().flatten().map(|told| (told.id, told.count)).collect();
        assert_eq!(events, [(2, 1), (1, 2)]);
        model.add_events(vec![Told { text: "x".repeat(EVENT_BYTES_MAX + 1), ..told(3, 4, 1) }]);
        assert_eq!(model.events.as_ref().map(Vec::len), Some(2), "as long as nothing that a peer tells");
        model.add_events((0..5000).map(|id| told(id, id, 1)).collect());
        assert_eq!(model.events.map(|events| events.len()), Some(EVENTS_MAX));
    }

    #[test]
    fn samples_are_kept_in_order() {
        let samples = |range: std::ops::Range<u64>| range.map(|unix_s| LoadSample { unix_s, ..LoadSample::default() });
        let mut model = Model::default();
        model.add_load(samples(100..350).collect());
        model.add_load(samples(350..450).collect());
        let load = model.load.clone().unwrap();
        assert_eq!((load.len(), load[0].unix_s, load[SAMPLES_MAX - 1].unix_s), (SAMPLES_MAX, 150, 449));
        model.add_load(samples(10..12).collect());
        assert_eq!(model.load.map(|load| load.len()), Some(2), "the clock was set back");
    }

    #[test]
    fn places_on_the_ring() {
        let range = |start: &str, end: &str| RangeStatus { start: start.into(), end: end.into() };
        let half = format!("8{}", "0".repeat(31));
        let zero = "0".repeat(32);
        assert_eq!(place(&range(&zero, &zero)), (0.0, 1.0));
        assert_eq!(place(&range(&half, &zero)), (0.5, 0.5));
        assert_eq!(place(&range("x", &zero)), (0.0, 0.0));
    }

    #[test]
    fn groups_have_letters() {
        let names: Vec<String> = [0, 1, 25, 26, 27, 701, 702].into_iter().map(letters).collect();
        assert_eq!(names, ["A", "B", "Z", "AA", "AB", "ZZ", "AAA"]);
    }
}
