//! What a peer remembers of groups elsewhere on the ring, and where it sends on whatever is not its own group's (Scatter
//! §3.2, §7.2).
//!
//! All of it is hints. A wrong one costs a hop, for whoever was asked in error says what it knows better, and the newer word
//! of a part of the ring replaces all older ones. So a lookup ends: each hop is nearer to the key, or knows more.
//!
//! What a peer should know is a set of *places*, each of them with an owner. Those of the table: a row for each digit of the
//! peer's own place, a column for each base-16 digit, so that whoever looks for a key finds a group that shares one digit
//! more with it. And those next to the peer's own group, some groups far: within the last digits there are so few groups
//! that cells would be filled by chance. As far as there is room each cell has a second place, and what was asked of late is
//! remembered.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::Bound;

use crate::packing::{pack, unpack};
use crate::reference::Nearness;
use crate::{Epoch, GroupId, GroupRef, KeyRange, Point};

/// What all hints may take together, in bytes.
pub const HINTS_BYTES_MAX: usize = 40 << 10;
/// Of how many members a hint knows.
pub const HINT_MEMBERS: usize = 3;
/// So many groups next to its own a peer knows, each way: with them a lookup that has come so near that chance decides who
/// shares the next digit is one hop from its end.
const BESIDE: usize = 12;
/// Base-16 digits of a point.
const DIGITS: u32 = 32;

/// What is kept of a [`GroupRef`]: many of them, and each seldom looked at.
#[derive(Clone, Debug)]
struct Hint {
    id: GroupId,
    epoch: Epoch,
    /// Where its range ends: it lies at the start.
    end: Point,
    /// Its members, packed: a fifth of what they take otherwise.
    members: Box<[u8]>,
    /// When it was last of use, counted in uses.
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

    /// What it takes in memory, with its place, in bytes.
    fn bytes(&self) -> usize {
        size_of::<Point>() + size_of::<Hint>() + self.members.len()
    }
}

/// A place of which something should be found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Where.
    pub point: Point,
    /// Some owner is not known that should be, of this place or of another one.
    pub is_lacking: bool,
}

/// Places whose owners a peer should know.
#[derive(Debug, Default)]
struct Places {
    /// In any case.
    first: Vec<Point>,
    /// As far as there is room.
    second: Vec<Point>,
}

/// Which way round the ring a lookup goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Way {
    /// The shorter one, wherever it is at the moment.
    #[default]
    Either,
    /// In ring order: something silent lies in the other way.
    Up,
    /// Against it.
    Down,
}

impl Way {
    /// How far a group is from a point, in this way: what is less is nearer.
    pub fn distance(self, range: KeyRange, point: Point) -> Reverse<Nearness> {
        Reverse(match self {
            Way::Either => Nearness::of(range, point),
            Way::Up => Nearness::up(range, point),
            Way::Down => Nearness::down(range, point),
        })
    }
}

/// Where a lookup goes next from a group that does not own the point: to whatever of its hints and of its neighbours on the
/// ring is nearest to it, and nearer than the group itself. `None` only where a group has no neighbours in that way, or they are
/// not what they are said to be: on a ring one of two neighbours is always nearer.
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

/// What a peer remembers of other groups. By their ranges' starts; no two of them overlap.
#[derive(Clone, Debug)]
pub struct Hints {
    /// What the peer's own group owns.
    here: KeyRange,
    bytes_max: usize,
    bytes: usize,
    by_start: BTreeMap<Point, Hint>,
    uses: u64,
}

impl Hints {
    /// Nothing yet, seen from the peer's own group.
    pub fn new(here: KeyRange, bytes_max: usize) -> Hints {
        Hints { here, bytes_max, bytes: 0, by_start: BTreeMap::new(), uses: 0 }
    }

    /// This is what the peer's group owns now. True if it was something else.
    pub fn set_here(&mut self, here: KeyRange) -> bool {
        core::mem::replace(&mut self.here, here) != here
    }

    /// How many groups it knows.
    pub fn len(&self) -> usize {
        self.by_start.len()
    }

    /// Does it know nobody?
    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// What it takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// All that is known, in ring order from point zero.
    pub fn iter(&self) -> impl Iterator<Item = GroupRef> {
        self.by_start.iter().map(|(start, hint)| hint.reference(*start))
    }

    /// Somebody said this: it replaces what is older, of this group and of any part of its range, unless something newer is
    /// known.
    ///
    /// Epochs of different groups compare where one owns what the other owned: each step from one to the other raised it.
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

    /// This group is not there, or does not answer. Of a higher epoch something else is known by now.
    pub fn forget(&mut self, gone: &GroupRef) {
        if let Some(start) = self.start_of(gone.id).filter(|start| self.by_start[start].epoch <= gone.epoch) {
            self.remove(start);
        }
    }

    /// The group that is known to be nearest to a point in this way.
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

    /// The reference of this group, if it is known.
    pub fn find(&self, id: GroupId) -> Option<GroupRef> {
        self.start_of(id).map(|start| self.by_start[&start].reference(start))
    }

    /// All that is known to own something of this range.
    pub fn overlapping(&self, range: KeyRange) -> Vec<GroupRef> {
        let all = self.by_start.iter().filter(|(start, hint)| hint.range(**start).overlaps(range));
        all.map(|(start, hint)| hint.reference(*start)).collect()
    }

    /// A place of which something should be found out, the `n`th of a row without end. Three of four are such whose owner is
    /// not known, where there are some and room for them, and the others those where what is known may be old. None where
    /// there are only the peer's own group and those beside it, which tell each other what becomes of them.
    pub fn to_look_at(&self, n: u64) -> Option<Look> {
        let Places { first, second } = self.places();
        let missing = |among: &[Point]| among.iter().copied().filter(|at| !self.knows(*at)).collect::<Vec<_>>();
        // What is needed most never takes all the room there is: see `let_go`.
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
            // Not in step with those: of four that are missing, and cannot be had, the last would never be looked at.
            _ => (&lacking, n - n / 4),
        };
        let point = from.get((index % from.len().max(1) as u64) as usize).copied();
        point.map(|point| Look { point, is_lacking: !lacking.is_empty() })
    }

    /// Who is known to own this point.
    pub fn at(&self, point: Point) -> Option<GroupRef> {
        self.owner(point).map(|start| self.by_start[&start].reference(start))
    }

    /// Where the group lies that is known to own this point.
    fn owner(&self, point: Point) -> Option<Point> {
        let before = self.by_start.range(..=point).next_back().or_else(|| self.by_start.last_key_value());
        before.filter(|(start, hint)| hint.range(**start).contains(point)).map(|(start, _)| *start)
    }

    fn knows(&self, point: Point) -> bool {
        self.here.contains(point) || self.owner(point).is_some()
    }

    /// What should be known: what lies next to the own group, and then a place for each cell of the table, and another one in
    /// the other half of it: those that differ from the own place in that digit only. So all peers together lead everywhere
    /// alike. Rows end where all that they could tell of is known.
    fn places(&self) -> Places {
        let mut places = Places::default();
        // The arc around the own group in which everybody is known.
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

    /// All that is not needed for any of these places, and how many bytes that takes.
    fn spare(&self, first: &[Point]) -> (BTreeSet<Point>, usize) {
        let needed: BTreeSet<Point> = first.iter().filter_map(|at| self.owner(*at)).collect();
        let spare = self.by_start.iter().filter(|(start, _)| !needed.contains(start));
        spare.fold((BTreeSet::new(), 0), |(mut all, bytes), (start, hint)| {
            all.insert(*start);
            (all, bytes + hint.bytes())
        })
    }

    /// So much of what is not needed most is kept at least.
    fn spare_max(&self) -> usize {
        self.bytes_max / 4
    }

    /// Is there room for one more like those there are?
    fn has_room(&self) -> bool {
        self.bytes + self.bytes / self.by_start.len().max(1) <= self.bytes_max
    }

    fn start_of(&self, id: GroupId) -> Option<Point> {
        self.by_start.iter().find(|(_, hint)| hint.id == id).map(|(start, _)| *start)
    }

    fn contradicted(&self, range: KeyRange) -> Vec<Point> {
        let first = self.by_start.range(..=range.start()).next_back().or_else(|| self.by_start.last_key_value());
        let from = first.map(|(start, _)| *start).unwrap_or_default();
        // From there clockwise, until one begins behind the range.
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

    /// Lets go of what was of no use for longest, but rather not of what is needed most. Where that alone would fill
    /// everything, a quarter is left for what was asked of late.
    fn let_go(&mut self) {
        let (spare, bytes) = self.spare(&self.places().first);
        let from_spare = bytes > self.spare_max() || spare.len() == self.by_start.len();
        let among = self.by_start.iter().filter(|(start, _)| spare.contains(start) == from_spare);
        if let Some(start) = among.min_by_key(|(_, hint)| hint.used).map(|(start, _)| *start) {
            self.remove(start);
        }
    }
}

/// The point before this one.
fn before(point: Point) -> Point {
    Point(point.0.wrapping_sub(1))
}
