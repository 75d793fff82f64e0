//! The groups that a node has a part in: the one it is a member of, and others that came of the same keys and still need what
//! it holds. Each has a drawer in the store, and its own names for batches and scans.
//!
//! # Invariants
//! - The ranges of groups that live here do not overlap: of two, that of the higher epoch owns the place.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use group::Group;
use overlay::{Epoch, GroupId, KeyRange, Point};

use crate::bays::{Bays, Walk};
use crate::storage::DRAWERS;

/// One group, as far as this node has a part in it.
pub(crate) struct Hosted {
    /// Which, for as long as the process lives.
    pub(crate) serial: u64,
    /// Its entries in the store.
    pub(crate) drawer: u8,
    /// The node's part.
    pub(crate) group: Group,
    /// Others own some of its range: it does nothing any more. What of it nobody is known to own is still to be born.
    pub(crate) over: Option<Vec<KeyRange>>,
}

impl Hosted {
    /// What it owns, or did, and nobody is known to own since.
    pub(crate) fn place(&self) -> Vec<KeyRange> {
        self.over.clone().unwrap_or_else(|| alloc::vec![self.group.state().range])
    }
}

/// A page of the store that a group waits for.
pub(crate) struct Scan {
    pub(crate) serial: u64,
    /// The group's own name for it.
    pub(crate) token: u64,
    pub(crate) walk: Walk,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Hosts {
    pub(crate) all: Vec<Hosted>,
    pub(crate) bays: Bays,
    next_serial: u64,
    next_token: u64,
    /// Batches that are not durable yet: the node's token, whose, and its own token.
    batches: VecDeque<(u64, u64, u64)>,
    scans: BTreeMap<u64, Scan>,
}

impl Hosts {
    /// Is the node in no group?
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Is some of the ring owned by groups that live elsewhere?
    pub(crate) fn is_partial(&self) -> bool {
        !self.living().any(|group| group.state().range.is_full())
    }

    /// Groups that live.
    pub(crate) fn living(&self) -> impl Iterator<Item = &Group> {
        self.all.iter().filter(|hosted| hosted.over.is_none()).map(|hosted| &hosted.group)
    }

    /// The same, to change.
    pub(crate) fn living_mut(&mut self) -> impl Iterator<Item = &mut Group> {
        self.all.iter_mut().filter(|hosted| hosted.over.is_none()).map(|hosted| &mut hosted.group)
    }

    /// Returns how often groups of this network raise their horizons at most; for ever where the node is in none.
    pub(crate) fn horizon_period(&self) -> Duration {
        self.living().next().map_or(Duration::MAX, |group| Duration::from_millis(group.state().settings.horizon_ms))
    }

    /// The group that the node is a member or learner of; else one that still needs it.
    pub(crate) fn home(&self) -> Option<&Group> {
        let is_home = |group: &&Group| group.state().is_member(group.me()) || group.state().is_learner(group.me());
        self.living().find(is_home).or_else(|| self.living().next())
    }

    /// The same, to change.
    pub(crate) fn home_mut(&mut self) -> Option<&mut Group> {
        let (id, epoch) = self.home().map(|group| (group.state().id, group.state().epoch))?;
        self.living_mut().find(|group| (group.state().id, group.state().epoch) == (id, epoch))
    }

    /// The living group of this id.
    pub(crate) fn find_mut(&mut self, id: GroupId) -> Option<&mut Group> {
        self.living_mut().find(|group| group.state().id == id)
    }

    /// The living group that owns this place.
    pub(crate) fn at(&self, point: Point) -> Option<&Group> {
        self.living().find(|group| group.state().range.contains(point))
    }

    /// The same, to change.
    pub(crate) fn at_mut(&mut self, point: Point) -> Option<&mut Group> {
        self.living_mut().find(|group| group.state().range.contains(point))
    }

    /// The parts of groups that are over, and own this place still.
    pub(crate) fn over_at(&mut self, point: Point) -> impl Iterator<Item = &mut Group> {
        let over = move |hosted: &&mut Hosted| {
            hosted.over.as_ref().is_some_and(|rest| rest.iter().any(|piece| piece.contains(point)))
        };
        self.all.iter_mut().filter(over).map(|hosted| &mut hosted.group)
    }

    /// Takes one in; tells its serial. `None` where no drawer is free.
    pub(crate) fn add(&mut self, group: Group) -> Option<u64> {
        let free = |drawer: &u8| self.all.iter().all(|hosted| hosted.drawer != *drawer);
        let drawer = (0..DRAWERS).find(free)?;
        self.add_at(drawer, group);
        Some(self.next_serial)
    }

    /// Takes in one whose drawer is known.
    pub(crate) fn add_at(&mut self, drawer: u8, group: Group) {
        self.next_serial += 1;
        self.all.push(Hosted { serial: self.next_serial, drawer, group, over: None });
    }

    /// A new name for a batch of a group; `serial` 0 is the node itself.
    pub(crate) fn name_batch(&mut self, serial: u64, token: u64) -> u64 {
        self.next_token += 1;
        self.batches.push_back((self.next_token, serial, token));
        self.next_token
    }

    /// Everything up to this token is durable: whose, up to which of its own tokens.
    pub(crate) fn on_persisted(&mut self, token: u64) -> Option<u64> {
        let mut own = None;
        while self.batches.front().is_some_and(|(of, ..)| *of <= token) {
            let (_, serial, token) = self.batches.pop_front()?;
            match self.all.iter_mut().find(|hosted| hosted.serial == serial) {
                Some(hosted) => hosted.group.on_persisted(token),
                None if serial == 0 => own = own.max(Some(token)),
                None => {}
            }
        }
        own
    }

    /// A new name for a scan.
    pub(crate) fn name_scan(&mut self, scan: Scan) -> u64 {
        self.next_token += 1;
        self.scans.insert(self.next_token, scan);
        self.next_token
    }

    /// The scan of this name, which is answered.
    pub(crate) fn take_scan(&mut self, token: u64) -> Option<Scan> {
        self.scans.remove(&token)
    }

    /// What of this range no group here owns that is later than `epoch`.
    pub(crate) fn rest(&self, range: KeyRange, epoch: Epoch) -> Vec<KeyRange> {
        let later = self.living().filter(|group| group.state().epoch > epoch);
        range.without(later.map(|group| group.state().range))
    }

    /// Divides the memory for records among those that have some.
    pub(crate) fn share_memory(&mut self, bytes_max: usize) {
        let used: usize = self.all.iter().map(|hosted| hosted.group.table().bytes()).sum();
        let count = self.all.len().max(1);
        let free = bytes_max.saturating_sub(used) / count;
        for hosted in &mut self.all {
            let share = (hosted.group.table().bytes() + free).max(bytes_max / (4 * count));
            hosted.group.set_memory(if count == 1 { bytes_max } else { share });
        }
    }

    /// What came of that group, as far as it lives here.
    pub(crate) fn heirs_of(&self, group: GroupId) -> impl Iterator<Item = &Group> {
        self.living().filter(move |heir| heir.state().dealings.is_heir_of(group))
    }
}
