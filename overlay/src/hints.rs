//! What a peer remembers of groups elsewhere on the ring, and where it sends on whatever is not its own group's (Scatter
//! §3.2, §7.2).
//!
//! All of it is hints. A wrong one costs a hop, for whoever was asked in error says what it knows better, and the newer word
//! of a part of the ring replaces all older ones. So a lookup ends: each hop is nearer to the key, or knows more.
//!
//! A table with a row for each digit of the peer's own place and a column for each base-16 digit has a group in each of its
//! cells, where there is one: whoever looks for a key finds a group that shares one digit more with it. What was asked of
//! late is remembered beside that, as far as there is room.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::Bound;

use crate::reference::Nearness;
use crate::{Contact, Epoch, GroupId, GroupRef, KeyRange, Point};

/// What all hints may take together, in bytes.
pub const HINTS_BYTES_MAX: usize = 40 << 10;
/// Of how many members a hint knows.
pub const HINT_MEMBERS: usize = 3;
/// Base-16 digits of a point.
const DIGITS: u32 = 32;

/// A cell of the table: how many digits a place shares with one's own, and which one is the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cell {
    row: u8,
    column: u8,
}

impl Cell {
    /// The cell of a place, seen from another; `None` for one's own.
    fn of(here: Point, place: Point) -> Option<Cell> {
        let row = (here.0 ^ place.0).leading_zeros() / 4;
        (row < DIGITS).then(|| Cell { row: row as u8, column: digit(place, row) })
    }

    /// One of the places that belong to it; another one for another number.
    fn place(self, here: Point, n: u64) -> Point {
        let below = (DIGITS - 1 - u32::from(self.row)) * 4;
        let rest = (1_u128 << below) - 1;
        let kept = here.0 & !rest & !(0xf << below);
        Point(kept | u128::from(self.column) << below | Point::of(&n.to_be_bytes()).0 & rest)
    }
}

fn digit(place: Point, row: u32) -> u8 {
    (place.0 >> ((DIGITS - 1 - row) * 4)) as u8 & 0xf
}

/// What is kept of a [`GroupRef`]: many of them, and each seldom looked at.
#[derive(Clone, Debug)]
struct Hint {
    id: GroupId,
    epoch: Epoch,
    range: KeyRange,
    /// Its members as [`postcard`] writes them: a third of what they take otherwise.
    members: Box<[u8]>,
    /// When it was last of use, counted in uses.
    used: u64,
}

impl Hint {
    fn new(reference: &GroupRef, used: u64) -> Hint {
        let GroupRef { id, epoch, range, .. } = *reference;
        let members = &reference.members[..reference.members.len().min(HINT_MEMBERS)];
        let members = postcard::to_allocvec(members).expect("members have no maps of unknown length");
        Hint { id, epoch, range, members: members.into_boxed_slice(), used }
    }

    fn reference(&self) -> GroupRef {
        let members: Vec<Contact> = postcard::from_bytes(&self.members).expect("it was written here");
        GroupRef { id: self.id, epoch: self.epoch, range: self.range, members }
    }

    /// What it takes in memory, with its place, in bytes.
    fn bytes(&self) -> usize {
        size_of::<Point>() + size_of::<Hint>() + self.members.len()
    }
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
    fn distance(self, range: KeyRange, point: Point) -> Reverse<Nearness> {
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
    here: Point,
    bytes_max: usize,
    bytes: usize,
    by_start: BTreeMap<Point, Hint>,
    /// How many hints there are for each cell.
    cells: BTreeMap<Cell, u32>,
    uses: u64,
}

impl Hints {
    /// Nothing yet, seen from the start of the peer's own group.
    pub fn new(here: Point, bytes_max: usize) -> Hints {
        Hints { here, bytes_max, bytes: 0, by_start: BTreeMap::new(), cells: BTreeMap::new(), uses: 0 }
    }

    /// The peer's group starts elsewhere now.
    pub fn set_here(&mut self, here: Point) {
        if here != self.here {
            self.here = here;
            self.cells.clear();
            for start in self.by_start.keys() {
                if let Some(cell) = Cell::of(here, *start) {
                    *self.cells.entry(cell).or_default() += 1;
                }
            }
        }
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
        self.by_start.values().map(Hint::reference)
    }

    /// Somebody said this: it replaces what is older, of this group and of any part of its range, unless something newer is
    /// known.
    ///
    /// Epochs of different groups compare where one owns what the other owned: each step from one to the other raised it.
    pub fn learn(&mut self, reference: &GroupRef) {
        if reference.members.is_empty() {
            return;
        }
        let mut contradicted = self.contradicted(reference);
        contradicted.extend(self.by_start.values().find(|hint| hint.id == reference.id).map(|hint| hint.range.start()));
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
        if let Some(cell) = Cell::of(self.here, reference.range.start()) {
            *self.cells.entry(cell).or_default() += 1;
        }
        self.by_start.insert(reference.range.start(), hint);
        while self.bytes > self.bytes_max && self.by_start.len() > 1 {
            self.let_go();
        }
    }

    /// This group is not there, or does not answer. Of a higher epoch something else is known by now.
    pub fn forget(&mut self, gone: &GroupRef) {
        let start = gone.range.start();
        let same = |hint: &Hint| hint.id == gone.id && hint.epoch <= gone.epoch;
        if self.by_start.get(&start).is_some_and(same) {
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
        let nearest = before.into_iter().chain(behind).min_by_key(|(_, hint)| way.distance(hint.range, point));
        let start = nearest.map(|(start, _)| *start)?;
        let hint = self.by_start.get_mut(&start)?;
        hint.used = uses;
        Some(hint.reference())
    }

    /// The reference of this group, if it is known.
    pub fn find(&self, id: GroupId) -> Option<GroupRef> {
        self.by_start.values().find(|hint| hint.id == id).map(Hint::reference)
    }

    /// All that is known to own something of this range.
    pub fn overlapping(&self, range: KeyRange) -> Vec<GroupRef> {
        self.by_start.values().filter(|hint| hint.range.overlaps(range)).map(Hint::reference).collect()
    }

    /// A place of which something should be found out, the `n`th of a row without end: three of four lie in cells that are
    /// empty, though a ring of as many groups as this one seems to have might fill them, and the others where something is
    /// known, and may be old.
    pub fn to_refresh(&self, n: u64) -> Point {
        let rows = self.cells.keys().map(|cell| cell.row).max().map_or(1, |deepest| (deepest + 2).min(DIGITS as u8));
        let all = (0..rows).flat_map(|row| (0..16).map(move |column| Cell { row, column }));
        let others = all.filter(|cell| digit(self.here, u32::from(cell.row)) != cell.column);
        let (empty, full): (Vec<Cell>, Vec<Cell>) = others.partition(|cell| !self.cells.contains_key(cell));
        let (from, index) = match (empty.is_empty(), full.is_empty()) {
            (true, _) => (full, n),
            (false, false) if n % 4 == 3 => (full, n / 4),
            _ => (empty, n - n / 4),
        };
        let cell = from.get((index % from.len().max(1) as u64) as usize);
        cell.map_or(self.here, |cell| cell.place(self.here, n))
    }

    fn contradicted(&self, reference: &GroupRef) -> Vec<Point> {
        let range = reference.range;
        let first = self.by_start.range(..=range.start()).next_back().or_else(|| self.by_start.last_key_value());
        let from = first.map(|(start, _)| *start).unwrap_or_default();
        // From there clockwise, until one begins behind the range.
        let (tail, head) = (self.by_start.range(from..), self.by_start.range(..from));
        let near = tail.chain(head).take_while(|(start, _)| **start == from || range.contains(**start));
        let overlapping = near.filter(|(_, hint)| hint.range.overlaps(range));
        overlapping.map(|(start, _)| *start).collect()
    }

    fn remove(&mut self, start: Point) {
        let Some(hint) = self.by_start.remove(&start) else { return };
        self.bytes -= hint.bytes();
        if let Some(cell) = Cell::of(self.here, start)
            && let Some(count) = self.cells.get_mut(&cell)
        {
            *count -= 1;
            if *count == 0 {
                self.cells.remove(&cell);
            }
        }
    }

    /// Lets go of what was of no use for longest, but rather of what has company in its cell.
    fn let_go(&mut self) {
        let alone = |start: &Point| Cell::of(self.here, *start).is_none_or(|cell| self.cells.get(&cell) == Some(&1));
        let least = self.by_start.iter().min_by_key(|(start, hint)| (alone(start), hint.used)).map(|(start, _)| *start);
        if let Some(start) = least {
            self.remove(start);
        }
    }
}
