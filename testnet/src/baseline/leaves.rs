//! The leaf set: the peers next to this one on the ring.

use std::collections::BTreeMap;
use std::time::Duration;

use overlay::time::Time;
use overlay::{PeerKey, Point};

use super::message::{Contact, id_of};

/// Leaves on each side.
pub const SIDE: usize = 8;
/// Leaves on each side of a key's root that hold copies of the key: nine copies with the root's.
pub const COPIES_SIDE: usize = 4;

/// A peer of the leaf set.
#[derive(Clone, Debug)]
struct Leaf {
    contact: Contact,
    heard: Time,
    /// Its connection broke, or it did not acknowledge a hop, and nothing has come from it since.
    suspected: bool,
}

/// The peers next to one peer, at most [`SIDE`] on each side.
#[derive(Clone, Debug)]
pub struct Leaves {
    peer: PeerKey,
    me: Point,
    /// By distance from this peer, clockwise.
    leaves: BTreeMap<u128, Leaf>,
}

impl Leaves {
    /// Returns the empty leaf set of a peer.
    pub fn new(peer: PeerKey) -> Leaves {
        Leaves { peer, me: id_of(peer), leaves: BTreeMap::new() }
    }

    /// Returns all leaves, clockwise.
    pub fn contacts(&self) -> impl Iterator<Item = &Contact> {
        self.leaves.values().map(|leaf| &leaf.contact)
    }

    /// Returns whether this peer is a leaf.
    pub fn contains(&self, peer: PeerKey) -> bool {
        self.leaves.contains_key(&self.place(id_of(peer)))
    }

    /// Returns whether a peer with this id would be a leaf: there is room on a side, or the peer is nearer than a present leaf.
    pub fn fits(&self, id: Point) -> bool {
        let place = self.place(id);
        let nearer = self.leaves.range(..place).count();
        id != self.me && (nearer < SIDE || self.leaves.len() - nearer < SIDE)
    }

    /// Notes that this peer was heard now. Returns whether it is a leaf that was none before.
    pub fn hear(&mut self, contact: &Contact, now: Time) -> bool {
        let place = self.place(contact.id());
        if let Some(leaf) = self.leaves.get_mut(&place) {
            (leaf.heard, leaf.suspected) = (now, false);
            return false;
        }
        if !self.fits(contact.id()) {
            return false;
        }
        self.leaves.insert(place, Leaf { contact: contact.clone(), heard: now, suspected: false });
        self.trim();
        true
    }

    /// Keeps the nearest on each side.
    fn trim(&mut self) {
        while self.leaves.len() > 2 * SIDE {
            let middle = self.leaves.keys().nth(SIDE).copied();
            middle.and_then(|middle| self.leaves.remove(&middle));
        }
    }

    /// Returns the farthest leaf on each side.
    pub fn outermost(&self) -> Vec<Contact> {
        let contacts = || self.leaves.values().map(|leaf| &leaf.contact);
        let right = contacts().take(SIDE).next_back();
        let left = contacts().rev().take(SIDE).next_back();
        right.into_iter().chain(left).cloned().collect()
    }

    /// Notes that this peer may be dead: messages go round it until it is heard again.
    pub fn suspect(&mut self, peer: PeerKey) {
        let place = self.place(id_of(peer));
        self.leaves.entry(place).and_modify(|leaf| leaf.suspected = true);
    }

    /// Removes the leaves that were not heard for `silence`, and returns them.
    pub fn drop_silent(&mut self, now: Time, silence: Duration) -> Vec<Contact> {
        let is_silent = |leaf: &Leaf| now.since(leaf.heard) >= silence;
        let (gone, kept) = std::mem::take(&mut self.leaves).into_iter().partition(|(_, leaf)| is_silent(leaf));
        self.leaves = kept;
        let gone: BTreeMap<u128, Leaf> = gone;
        gone.into_values().map(|leaf| leaf.contact).collect()
    }

    /// Returns whether the root of a point is this peer or one of its leaves, as far as this peer knows.
    pub fn covers(&self, point: Point) -> bool {
        let place = self.place(point);
        let last_right = self.leaves.keys().nth(SIDE - 1);
        let last_left = self.leaves.keys().nth_back(SIDE - 1);
        let is_small = self.leaves.len() < 2 * SIDE;
        is_small || last_right.is_some_and(|last| place <= *last) || last_left.is_some_and(|last| place >= *last)
    }

    /// Returns the leaf that is the root of a point; `None`: this peer is. Suspected leaves are passed over.
    pub fn root(&self, point: Point) -> Option<&Contact> {
        let alive = self.leaves.values().filter(|leaf| !leaf.suspected).map(|leaf| &leaf.contact);
        let nearest = alive.min_by_key(|contact| apart(contact.id(), point));
        nearest.filter(|contact| apart(contact.id(), point) < apart(self.me, point))
    }

    /// Returns the peers in their order now. Suspected leaves are among them: copies are made anew after four missed heartbeats.
    pub fn view(&self) -> LeafView {
        let all: Vec<PeerKey> = self.contacts().map(|contact| contact.peer).collect();
        let (right, left) = all.split_at(all.len().min(SIDE));
        let line = left.iter().chain([&self.peer]).chain(right).map(|peer| (id_of(*peer), *peer)).collect();
        LeafView { line, is_whole: self.leaves.len() < 2 * SIDE }
    }

    fn place(&self, id: Point) -> u128 {
        self.me.distance_to(id)
    }
}

/// A peer and its leaves in ring order, as they were at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafView {
    line: Vec<(Point, PeerKey)>,
    /// These are all peers of the ring: the last one stands beside the first one.
    is_whole: bool,
}

impl LeafView {
    /// Returns the peer nearest to a point, and the peers that hold copies of a key there: that peer and [`COPIES_SIDE`] on each side of
    /// it, as far as they are known.
    pub fn holders(&self, point: Point) -> (PeerKey, Vec<PeerKey>) {
        let root = (0..self.line.len()).min_by_key(|place| apart(self.line[*place].0, point)).unwrap_or(0);
        let steps = |place: usize| {
            let steps = root.abs_diff(place);
            if self.is_whole { steps.min(self.line.len() - steps) } else { steps }
        };
        let places = (0..self.line.len()).filter(|place| steps(*place) <= COPIES_SIDE);
        (self.line[root].1, places.map(|place| self.line[place].1).collect())
    }
}

/// Returns the distance of two points, the shorter way round.
pub fn apart(one: Point, other: Point) -> u128 {
    one.distance_to(other).min(other.distance_to(one))
}
