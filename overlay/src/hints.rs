//! The knowledge of a peer about groups elsewhere on the ring, and the next hop for a key of another group (Scatter §3.2, §7.2).
//!
//! All of this knowledge is hints. A wrong hint costs a hop: the peer that was asked in error answers with its own, better
//! knowledge, and newer knowledge of a part of the ring replaces all older knowledge. So a lookup ends: each hop is nearer to
//! the key, or knows more.
//!
//! A peer should know the owners of a set of *places*. Some are the cells of a table: a row for each digit of the peer's own
//! place, and a column for each base-16 digit. So a lookup finds a group that shares one digit more with its key. The other
//! places lie next to the peer's own group, some groups far: within the last digits there are so few groups that chance would
//! decide which cells are filled. As far as there is room, each cell has a second place, and the peer remembers the owners that
//! were asked recently.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::Bound;

use crate::packing::{pack, unpack};
use crate::reference::Nearness;
use crate::{Epoch, GroupId, GroupRef, KeyRange, Point};

/// Upper limit of the memory of all hints together, in bytes.
pub const HINTS_BYTES_MAX: usize = 40 << 10;
/// Number of members that a hint keeps, at most.
pub const HINT_MEMBERS: usize = 3;
/// Number of groups next to its own that a peer knows, in each direction. Near its end, chance decides which groups share the
/// next digit with the key; with these groups a lookup is one hop from its end there.
const BESIDE: usize = 12;
/// Base-16 digits of a point.
const DIGITS: u32 = 32;

/// The part of a [`GroupRef`] that is kept: there are many, and each is seldom looked at.
#[derive(Clone, Debug)]
struct Hint {
    id: GroupId,
    epoch: Epoch,
    /// The end of its range; the hint's key in the map is the start.
    end: Point,
    /// Its members, packed: a fifth of their size otherwise.
    members: Box<[u8]>,
    /// The count of uses at its last use.
    used: u64,
}

impl Hint {
    fn new(reference: &GroupRef, used: u64) -> Hint {
        let GroupRef { id, epoch, range, .. } = *reference;
        let members = &reference.members[..reference.members.len().min(HINT_MEMBERS)];
        Hint { id, epoch, end: range.end(), members: pack(members), used }
    }

    fn range(&self, start: Point) -> KeyRange {
        KeyRange::new(start, self.end)
    }

    fn reference(&self, start: Point) -> GroupRef {
        GroupRef { id: self.id, epoch: self.epoch, range: self.range(start), members: unpack(&self.members) }
    }

    /// Returns its size in memory, including its place, in bytes.
    fn bytes(&self) -> usize {
        size_of::<Point>() + size_of::<Hint>() + self.members.len()
    }
}

/// A place whose owner should be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// The place.
    pub point: Point,
    /// Whether an owner that should be known is not known, of this place or of another one, and there is room for its hint.
    pub is_lacking: bool,
}

/// Places with owners that a peer should know.
#[derive(Debug, Default)]
struct Places {
    /// Places that a peer should know in any case.
    first: Vec<Point>,
    /// Places that a peer should know as far as there is room.
    second: Vec<Point>,
}

/// Direction of a lookup around the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Way {
    /// The shorter way from each hop.
    #[default]
    Either,
    /// In ring order: a silent group lies in the other direction.
    Up,
    /// Against ring order: a silent group lies in the other direction.
    Down,
}

impl Way {
    /// Returns the distance of a group's range from a point in this direction: the lesser the nearer.
    pub fn distance(self, range: KeyRange, point: Point) -> Reverse<Nearness> {
        Reverse(match self {
            Way::Either => Nearness::of(range, point),
            Way::Up => Nearness::up(range, point),
            Way::Down => Nearness::down(range, point),
        })
    }
}

/// Returns the next hop of a lookup from a group that does not own the point: of its hints and its neighbours on the ring, the
/// group nearest to the point, if that is nearer than the group itself.
///
/// Returns `None` only where a group has no neighbours in that direction, or where its knowledge of them is wrong: on a ring one
/// of two neighbours is always nearer.
pub fn next_hop(
    point: Point,
    own: &GroupRef,
    neighbours: impl IntoIterator<Item = GroupRef>,
    hints: &mut Hints,
    way: Way,
) -> Option<GroupRef> {
    let others = neighbours.into_iter().chain(hints.nearest(point, way)).filter(|other| other.id != own.id);
    let nearest = others.min_by_key(|other| way.distance(other.range, point))?;
    (way.distance(nearest.range, point) < way.distance(own.range, point)).then_some(nearest)
}

/// The hints of a peer about other groups, by the starts of their ranges; no two of them overlap.
#[derive(Clone, Debug)]
pub struct Hints {
    /// The range of the peer's own group.
    here: KeyRange,
    bytes_max: usize,
    bytes: usize,
    by_start: BTreeMap<Point, Hint>,
    uses: u64,
}

impl Hints {
    /// Creates an empty set of hints for a peer of the group that owns `here`: at most `bytes_max` bytes, or a single hint.
    pub fn new(here: KeyRange, bytes_max: usize) -> Hints {
        Hints { here, bytes_max, bytes: 0, by_start: BTreeMap::new(), uses: 0 }
    }

    /// Sets the range of the peer's own group. Returns whether the range has changed.
    pub fn set_here(&mut self, here: KeyRange) -> bool {
        core::mem::replace(&mut self.here, here) != here
    }

    /// Returns the number of hints, one for each known group.
    pub fn len(&self) -> usize {
        self.by_start.len()
    }

    /// Returns whether there are no hints.
    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// Returns the size of all hints, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns all hints as references, in ring order from point zero.
    pub fn iter(&self) -> impl Iterator<Item = GroupRef> {
        self.by_start.iter().map(|(start, hint)| hint.reference(*start))
    }

    /// Adds a reported reference. It replaces the older hints about this group and about any part of its range. Nothing changes
    /// if one of these hints has a higher epoch, or if the reference has no members.
    ///
    /// Epochs of different groups compare where one owns a range that the other owned: each step from one to the other raised
    /// the epoch.
    pub fn learn(&mut self, reference: &GroupRef) {
        if reference.members.is_empty() {
            return;
        }
        let mut contradicted = self.contradicted(reference.range);
        contradicted.extend(self.start_of(reference.id));
        let is_newer = |start: &Point| self.by_start[start].epoch > reference.epoch;
        if contradicted.iter().any(is_newer) {
            return;
        }
        for start in contradicted {
            self.remove(start);
        }
        self.uses += 1;
        let hint = Hint::new(reference, self.uses);
        self.bytes += hint.bytes();
        self.by_start.insert(reference.range.start(), hint);
        while self.bytes > self.bytes_max && self.by_start.len() > 1 {
            self.let_go();
        }
    }

    /// Forgets a group that is gone or does not answer. A hint with a higher epoch than the reference stays: it is newer
    /// knowledge.
    pub fn forget(&mut self, gone: &GroupRef) {
        if let Some(start) = self.start_of(gone.id).filter(|start| self.by_start[start].epoch <= gone.epoch) {
            self.remove(start);
        }
    }

    /// Returns the group that is nearest to a point in this direction, of all hints.
    pub fn nearest(&mut self, point: Point, way: Way) -> Option<GroupRef> {
        self.uses += 1;
        let uses = self.uses;
        let before = self.by_start.range(..=point).next_back().or_else(|| self.by_start.last_key_value());
        let behind = (Bound::Excluded(point), Bound::Unbounded);
        let behind = self.by_start.range(behind).next().or_else(|| self.by_start.first_key_value());
        let both = before.into_iter().chain(behind);
        let start =
            both.min_by_key(|(start, hint)| way.distance(hint.range(**start), point)).map(|(start, _)| *start)?;
        let hint = self.by_start.get_mut(&start)?;
        hint.used = uses;
        Some(hint.reference(start))
    }

    /// Returns the reference to this group, if there is a hint about it.
    pub fn find(&self, id: GroupId) -> Option<GroupRef> {
        self.start_of(id).map(|start| self.by_start[&start].reference(start))
    }

    /// Returns all groups that own a part of this range, according to the hints.
    pub fn overlapping(&self, range: KeyRange) -> Vec<GroupRef> {
        let all = self.by_start.iter().filter(|(start, hint)| hint.range(**start).overlaps(range));
        all.map(|(start, hint)| hint.reference(*start)).collect()
    }

    /// Returns the `n`th place to look up, of an endless sequence. Three of four have unknown owners, where there are such
    /// places and room for their hints. The rest have owners that are known, and this knowledge may be old.
    ///
    /// Returns `None` where there are only the peer's own group and the groups beside it, which tell each other about their
    /// changes.
    pub fn to_look_at(&self, n: u64) -> Option<Look> {
        let Places { first, second } = self.places();
        let missing = |among: &[Point]| among.iter().copied().filter(|at| !self.knows(*at)).collect::<Vec<_>>();
        // The places that are needed most never take all room: see `let_go`.
        let may_grow = self.has_room() || self.spare(&first).1 > self.spare_max();
        let mut lacking = if may_grow { missing(&first) } else { Vec::new() };
        if lacking.is_empty() && self.has_room() {
            lacking = missing(&second);
        }
        let linked = [self.here.end(), before(self.here.start())].map(|at| self.owner(at));
        let is_far = |at: &Point| self.owner(*at).is_some_and(|start| !linked.contains(&Some(start)));
        let known: Vec<Point> = first.iter().chain(&second).copied().filter(is_far).collect();
        let (from, index) = match (lacking.is_empty(), known.is_empty()) {
            (true, _) => (&known, n),
            (false, false) if n % 4 == 3 => (&known, n / 4),
            // A stride of its own: of four missing owners that cannot be found, the last would never be looked up otherwise.
            _ => (&lacking, n - n / 4),
        };
        let point = from.get((index % from.len().max(1) as u64) as usize).copied();
        point.map(|point| Look { point, is_lacking: !lacking.is_empty() })
    }

    /// Returns the owner of this point, if it is known.
    pub fn at(&self, point: Point) -> Option<GroupRef> {
        self.owner(point).map(|start| self.by_start[&start].reference(start))
    }

    /// Returns the start of the range of this point's owner, if it is known.
    fn owner(&self, point: Point) -> Option<Point> {
        let before = self.by_start.range(..=point).next_back().or_else(|| self.by_start.last_key_value());
        before.filter(|(start, hint)| hint.range(**start).contains(point)).map(|(start, _)| *start)
    }

    fn knows(&self, point: Point) -> bool {
        self.here.contains(point) || self.owner(point).is_some()
    }

    /// Returns the places that should be known: those next to the own group, then one for each cell of the table, and a second
    /// one in the cell's other half. A place differs from the own place in the digit of its cell only. So all peers together
    /// have hints about all parts of the ring alike. Rows end where all groups that a row could point to are known.
    fn places(&self) -> Places {
        let mut places = Places::default();
        // The arc around the own group in which all groups are known.
        let (mut first, mut end) = (self.here.start(), self.here.end());
        for _ in 0..BESIDE {
            if first == end {
                break;
            }
            places.first.push(end);
            let Some(range) = self.owner(end).map(|start| self.by_start[&start].range(start)) else { break };
            end = if range.overlaps(self.here) { first } else { range.end() };
        }
        for _ in 0..BESIDE {
            if first == end {
                break;
            }
            places.first.push(before(first));
            let Some(start) = self.owner(before(first)) else { break };
            first = if self.by_start[&start].range(start).overlaps(self.here) { end } else { start };
        }
        let around = KeyRange::new(first, end);
        let here = self.here.start().0;
        for row in 0..DIGITS {
            let below = (DIGITS - 1 - row) * 4;
            let alike = u128::MAX >> (row * 4);
            let subtree = KeyRange::new(Point(here & !alike), Point((here | alike).wrapping_add(1)));
            if around.contains_range(subtree) {
                break;
            }
            for other in 1..16_u128 {
                let place = here ^ other << below;
                places.first.push(Point(place));
                if let Some(half) = below.checked_sub(1) {
                    places.second.push(Point(place ^ 1 << half));
                }
            }
        }
        places
    }

    /// Returns the starts of all hints that none of these places needs, and their size in bytes.
    fn spare(&self, first: &[Point]) -> (BTreeSet<Point>, usize) {
        let needed: BTreeSet<Point> = first.iter().filter_map(|at| self.owner(*at)).collect();
        let spare = self.by_start.iter().filter(|(start, _)| !needed.contains(start));
        spare.fold((BTreeSet::new(), 0), |(mut all, bytes), (start, hint)| {
            all.insert(*start);
            (all, bytes + hint.bytes())
        })
    }

    /// Size of the hints for other than the most needed places that is kept at least, in bytes.
    fn spare_max(&self) -> usize {
        self.bytes_max / 4
    }

    /// Returns whether there is room for one more hint of average size.
    fn has_room(&self) -> bool {
        self.bytes + self.bytes / self.by_start.len().max(1) <= self.bytes_max
    }

    fn start_of(&self, id: GroupId) -> Option<Point> {
        self.by_start.iter().find(|(_, hint)| hint.id == id).map(|(start, _)| *start)
    }

    fn contradicted(&self, range: KeyRange) -> Vec<Point> {
        let first = self.by_start.range(..=range.start()).next_back().or_else(|| self.by_start.last_key_value());
        let from = first.map(|(start, _)| *start).unwrap_or_default();
        // From there clockwise, up to the first that begins behind the range.
        let (tail, head) = (self.by_start.range(from..), self.by_start.range(..from));
        let near = tail.chain(head).take_while(|(start, _)| **start == from || range.contains(**start));
        let overlapping = near.filter(|(start, hint)| hint.range(**start).overlaps(range));
        overlapping.map(|(start, _)| *start).collect()
    }

    fn remove(&mut self, start: Point) {
        if let Some(hint) = self.by_start.remove(&start) {
            self.bytes -= hint.bytes();
        }
    }

    /// Drops the hint that was not used for longest, preferably one that the most needed places do not need. Where hints for
    /// these places alone would fill all room, a quarter is left for owners that were asked recently.
    fn let_go(&mut self) {
        let (spare, bytes) = self.spare(&self.places().first);
        let from_spare = bytes > self.spare_max() || spare.len() == self.by_start.len();
        let among = self.by_start.iter().filter(|(start, _)| spare.contains(start) == from_spare);
        if let Some(start) = among.min_by_key(|(_, hint)| hint.used).map(|(start, _)| *start) {
            self.remove(start);
        }
    }
}

/// Returns the point before this one.
fn before(point: Point) -> Point {
    Point(point.0.wrapping_sub(1))
}
