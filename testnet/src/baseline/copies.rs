//! Copies of values, and the peers that must hold them.

use std::collections::BTreeMap;

use bytes::Bytes;
use overlay::{Key, PeerKey, Point};
use serde::{Deserialize, Serialize};

use super::leaves::LeafView;

/// Orders the puts of a key: the later by the clock of the peer that was asked, then by peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Version {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// Counts the puts of that peer.
    pub count: u64,
    /// The peer.
    pub by: Point,
}

/// A value of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copy {
    /// The key, as its user names it.
    pub name: Bytes,
    /// The version of the value.
    pub version: Version,
    /// The value.
    pub value: Bytes,
}

/// A stored value.
#[derive(Clone, Debug)]
struct Stored {
    point: Point,
    version: Version,
    value: Bytes,
}

impl Stored {
    fn copy(&self, name: &Bytes) -> Copy {
        Copy { name: name.clone(), version: self.version, value: self.value.clone() }
    }
}

/// The copies that one peer has.
#[derive(Clone, Debug, Default)]
pub struct Copies {
    all: BTreeMap<Bytes, Stored>,
}

impl Copies {
    /// Keeps a copy if it is newer than the one that is kept. Returns whether it was.
    pub fn keep(&mut self, copy: Copy) -> bool {
        if self.version(&copy.name) >= Some(copy.version) {
            return false;
        }
        // A name that is too long was refused before it came here.
        let Ok(key) = Key::new(&copy.name) else { return false };
        self.all.insert(copy.name, Stored { point: key.point(), version: copy.version, value: copy.value });
        true
    }

    /// Returns the value of a key.
    pub fn value(&self, name: &[u8]) -> Option<&Bytes> {
        self.all.get(name).map(|stored| &stored.value)
    }

    /// Returns the version of a key's value.
    pub fn version(&self, name: &[u8]) -> Option<Version> {
        self.all.get(name).map(|stored| stored.version)
    }

    /// Returns the copy of a key.
    pub fn get(&self, name: &[u8]) -> Option<Copy> {
        self.all.get_key_value(name).map(|(name, stored)| stored.copy(name))
    }

    /// Returns the copies that a newcomer must hold.
    pub fn for_newcomer(&self, newcomer: PeerKey, with_it: &LeafView) -> Vec<Copy> {
        let is_meant = |stored: &Stored| with_it.holders(stored.point).1.contains(&newcomer);
        self.all.iter().filter(|(_, stored)| is_meant(stored)).map(|(name, stored)| stored.copy(name)).collect()
    }

    /// Returns the copies to be sent, by receiver, where the leaves of `me` have changed: of each key of which `me` is the root, before or
    /// after, to each peer that must hold it now and need not before.
    pub fn for_change(&self, me: PeerKey, before: &LeafView, after: &LeafView) -> BTreeMap<PeerKey, Vec<Copy>> {
        let mut to: BTreeMap<PeerKey, Vec<Copy>> = BTreeMap::new();
        for (name, stored) in &self.all {
            let ((old_root, old), (root, new)) = (before.holders(stored.point), after.holders(stored.point));
            if root != me && old_root != me {
                continue;
            }
            for peer in new.into_iter().filter(|peer| *peer != me && !old.contains(peer)) {
                to.entry(peer).or_default().push(stored.copy(name));
            }
        }
        to
    }

    /// Returns keys and versions of which `me` is the root and `holder` holds copies.
    pub fn to_compare(&self, me: PeerKey, holder: PeerKey, view: &LeafView) -> Vec<(Bytes, Version)> {
        let is_meant = |point: Point| {
            let (root, holders) = view.holders(point);
            root == me && holders.contains(&holder)
        };
        let all = self.all.iter().filter(|(_, stored)| is_meant(stored.point));
        all.map(|(name, stored)| (name.clone(), stored.version)).collect()
    }

    /// Takes out the copies that `me` need not hold any more, by the root that they belong to.
    pub fn take_surplus(&mut self, me: PeerKey, view: &LeafView) -> BTreeMap<PeerKey, Vec<Copy>> {
        let is_surplus = |stored: &Stored| !view.holders(stored.point).1.contains(&me);
        let surplus = self.all.iter().filter(|(_, stored)| is_surplus(stored));
        let surplus: Vec<(Bytes, Point)> = surplus.map(|(name, stored)| (name.clone(), stored.point)).collect();
        let mut to: BTreeMap<PeerKey, Vec<Copy>> = BTreeMap::new();
        for (name, point) in surplus {
            let copy = self.get(&name);
            self.all.remove(&name);
            to.entry(view.holders(point).0).or_default().extend(copy);
        }
        to
    }
}
