//! What a peer remembers of groups elsewhere on the ring, and where it sends on whatever is not its own group's (Scatter
//! §3.2, §7.2).
//!
//! All of it is hints. A wrong one costs a hop, for whoever was asked in error says what it knows better, and the newer word
//! of a part of the ring replaces all older ones. So a lookup ends: each hop is nearer to the key, or knows more.
//!
//! A table with a row for each digit of the peer's own place and a column for each base-16 digit has a group in each of its
//! cells, where there is one: whoever looks for a key finds a group that shares one digit more with it. What was asked of
//! late is remembered beside that, as far as there is room.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound;

use crate::{GroupId, GroupRef, Point};

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

    /// The middle of the places that belong to it.
    fn middle(self, here: Point) -> Point {
        let below = (DIGITS - 1 - u32::from(self.row)) * 4;
        let kept = if self.row == 0 { 0 } else { here.0 & (u128::MAX << (below + 4)) };
        let half = if below == 0 { 0 } else { 1 << (below - 1) };
        Point(kept | u128::from(self.column) << below | half)
    }
}

fn digit(place: Point, row: u32) -> u8 {
    (place.0 >> ((DIGITS - 1 - row) * 4)) as u8 & 0xf
}

#[derive(Clone, Debug)]
struct Hint {
    reference: GroupRef,
    /// When it was last of use, counted in uses.
    used: u64,
}

/// Where a lookup goes next from a group that does not own the point: to whatever of its hints and of its neighbours on the
/// ring is nearest to it, and nearer than the group itself. `None` only where a group has no neighbours, or they are not what
/// they are said to be: on a ring one of two neighbours is always nearer.
pub fn next_hop<'a>(
    point: Point,
    own: &GroupRef,
    neighbours: impl IntoIterator<Item = &'a GroupRef>,
    hints: &'a mut Hints,
) -> Option<&'a GroupRef> {
    let others = neighbours.into_iter().chain(hints.nearest(point)).filter(|other| other.id != own.id);
    let nearest = others.min_by_key(|other| other.range.gap(point))?;
    (nearest.range.gap(point) < own.range.gap(point)).then_some(nearest)
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
    pub fn iter(&self) -> impl Iterator<Item = &GroupRef> {
        self.by_start.values().map(|hint| &hint.reference)
    }

    /// Somebody said this: it replaces what is older, of this group and of any part of its range, unless something newer is
    /// known.
    ///
    /// Epochs of different groups compare where one owns what the other owned: each step from one to the other raised it.
    pub fn learn(&mut self, reference: &GroupRef) {
        if reference.members.is_empty() {
            return;
        }
        let mut contradicted = self.overlapping(reference);
        contradicted.extend(self.find(reference.id).map(|known| known.range.start()));
        let is_newer = |start: &Point| self.by_start[start].reference.epoch > reference.epoch;
        if contradicted.iter().any(is_newer) {
            return;
        }
        for start in contradicted {
            self.remove(start);
        }
        self.uses += 1;
        let hint = Hint { reference: reference.with_members(HINT_MEMBERS), used: self.uses };
        self.bytes += size_of::<Point>() + size_of::<u64>() + hint.reference.bytes();
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
        let same = |hint: &Hint| hint.reference.id == gone.id && hint.reference.epoch <= gone.epoch;
        if self.by_start.get(&start).is_some_and(same) {
            self.remove(start);
        }
    }

    /// The group that is known to be nearest to a point.
    pub fn nearest(&mut self, point: Point) -> Option<&GroupRef> {
        self.uses += 1;
        let uses = self.uses;
        let before = self.by_start.range(..=point).next_back().or_else(|| self.by_start.last_key_value());
        let behind = (Bound::Excluded(point), Bound::Unbounded);
        let behind = self.by_start.range(behind).next().or_else(|| self.by_start.first_key_value());
        let nearest = before.into_iter().chain(behind).min_by_key(|(_, hint)| hint.reference.range.gap(point));
        let start = nearest.map(|(start, _)| *start)?;
        let hint = self.by_start.get_mut(&start)?;
        hint.used = uses;
        Some(&hint.reference)
    }

    /// The reference of this group, if it is known.
    pub fn find(&self, id: GroupId) -> Option<&GroupRef> {
        self.iter().find(|reference| reference.id == id)
    }

    /// A place of which something should be found out: the `n`th, whatever `n` is, of the cells that a ring with as many
    /// groups as this one seems to have would fill, and are empty; one of the others where there is none.
    pub fn to_refresh(&self, n: u64) -> Point {
        let rows = self.cells.keys().map(|cell| cell.row).max().map_or(1, |deepest| deepest + 1);
        let all = (0..rows).flat_map(|row| (0..16).map(move |column| Cell { row, column }));
        let others = all.filter(|cell| digit(self.here, u32::from(cell.row)) != cell.column);
        let (empty, full): (Vec<Cell>, Vec<Cell>) = others.partition(|cell| !self.cells.contains_key(cell));
        let from = if empty.is_empty() || n % 4 == 3 && !full.is_empty() { &full } else { &empty };
        from.get((n / 4) as usize % from.len().max(1)).map_or(self.here, |cell| cell.middle(self.here))
    }

    fn overlapping(&self, reference: &GroupRef) -> Vec<Point> {
        let range = reference.range;
        let first = self.by_start.range(..=range.start()).next_back().or_else(|| self.by_start.last_key_value());
        let from = first.map(|(start, _)| *start).unwrap_or_default();
        // From there clockwise, until one begins behind the range.
        let (tail, head) = (self.by_start.range(from..), self.by_start.range(..from));
        let near = tail.chain(head).take_while(|(start, _)| **start == from || range.contains(**start));
        let overlapping = near.filter(|(_, hint)| hint.reference.range.overlaps(range));
        overlapping.map(|(start, _)| *start).collect()
    }

    fn remove(&mut self, start: Point) {
        let Some(hint) = self.by_start.remove(&start) else { return };
        self.bytes -= size_of::<Point>() + size_of::<u64>() + hint.reference.bytes();
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
