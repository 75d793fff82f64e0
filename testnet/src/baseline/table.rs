//! The routing table: for each prefix of a peer's own id, and each next base-16 digit, one peer with such an id.

use std::collections::BTreeMap;

use overlay::{PeerKey, Point};

use super::leaves::apart;
use super::message::{Contact, id_of};

/// Bits of a digit.
const DIGIT_BITS: u32 = 4;
/// Digits of an id.
const DIGITS: u32 = u128::BITS / DIGIT_BITS;
/// Values of a digit.
const BASE: u8 = 1 << DIGIT_BITS;

/// Returns the number of leading base-16 digits that two points have in common.
pub fn shared_digits(one: Point, other: Point) -> u32 {
    (one.0 ^ other.0).leading_zeros() / DIGIT_BITS
}

/// Returns a digit of a point; the first is digit 0.
fn digit(point: Point, place: u32) -> u8 {
    (point.0 >> (DIGIT_BITS * (DIGITS - 1 - place)) & u128::from(BASE - 1)) as u8
}

/// The routing table of one peer.
#[derive(Clone, Debug)]
pub struct RoutingTable {
    me: Point,
    /// By the number of digits in common with this peer, and the next digit.
    cells: BTreeMap<(u32, u8), Contact>,
}

impl RoutingTable {
    /// Returns the empty table of a peer with this id.
    pub fn new(me: Point) -> RoutingTable {
        RoutingTable { me, cells: BTreeMap::new() }
    }

    /// Returns all peers of the table.
    pub fn contacts(&self) -> impl Iterator<Item = &Contact> {
        self.cells.values()
    }

    fn cell(&self, point: Point) -> Option<(u32, u8)> {
        let row = shared_digits(self.me, point);
        (row < DIGITS).then(|| (row, digit(point, row)))
    }

    /// Notes a peer. A peer that already stands in its cell stays, unless `is_heard`: the new peer was just heard.
    pub fn learn(&mut self, contact: &Contact, is_heard: bool) {
        let Some(cell) = self.cell(contact.id()) else { return };
        if is_heard || !self.cells.contains_key(&cell) {
            self.cells.insert(cell, contact.clone());
        }
    }

    /// Forgets a peer.
    pub fn forget(&mut self, peer: PeerKey) {
        if let Some(cell) =
            self.cell(id_of(peer)).filter(|cell| self.cells.get(cell).is_some_and(|known| known.peer == peer))
        {
            self.cells.remove(&cell);
        }
    }

    /// Returns a peer on the way to a point: one with more digits in common with the point than this peer; where there is none, one
    /// with as many that is nearer to the point.
    pub fn next(&self, point: Point) -> Option<&Contact> {
        let cell = self.cell(point)?;
        self.cells.get(&cell).or_else(|| {
            let is_nearer = |contact: &&Contact| {
                shared_digits(contact.id(), point) >= cell.0 && apart(contact.id(), point) < apart(self.me, point)
            };
            self.contacts().filter(is_nearer).min_by_key(|contact| apart(contact.id(), point))
        })
    }

    /// Returns a point of the cell that has number `count` among those of the first `rows` rows, in turn; `chance` sets the digits behind
    /// the cell's.
    pub fn point_of_cell(&self, count: u64, rows: u32, chance: u128) -> Point {
        let cells = u64::from(rows.max(1)) * u64::from(BASE);
        let (row, value) = ((count % cells / u64::from(BASE)) as u32, (count % u64::from(BASE)) as u128);
        let behind = DIGIT_BITS * (DIGITS - 1 - row);
        let first = self.me.0.checked_shr(behind + DIGIT_BITS).unwrap_or(0);
        let rest = chance.checked_shr(DIGIT_BITS * (row + 1)).unwrap_or(0);
        Point((first << DIGIT_BITS | value).checked_shl(behind).unwrap_or(0) | rest)
    }

    /// Returns the number of rows with an entry.
    pub fn rows(&self) -> u32 {
        self.cells.keys().next_back().map_or(0, |(row, _)| row + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contact(number: u64) -> Contact {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&number.to_be_bytes());
        Contact { peer: PeerKey(key), address: String::new() }
    }

    #[test]
    fn a_step_has_more_digits_in_common_or_is_nearer() {
        let mut table = RoutingTable::new(contact(0).id());
        (1..200).for_each(|number| table.learn(&contact(number), false));
        for number in 200..400 {
            let point = contact(number).id();
            let Some(next) = table.next(point) else { continue };
            let (before, after) = (shared_digits(table.me, point), shared_digits(next.id(), point));
            assert!(after > before || (after == before && apart(next.id(), point) < apart(table.me, point)));
        }
        let known: Vec<Contact> = table.contacts().cloned().collect();
        known.iter().for_each(|contact| table.forget(contact.peer));
        assert_eq!((table.contacts().count(), table.rows()), (0, 0));
    }

    #[test]
    fn points_of_cells_lie_in_them() {
        let table = RoutingTable::new(contact(7).id());
        for count in 0..64 {
            let point = table.point_of_cell(count, 4, u128::MAX / 3);
            let (row, value) = ((count / 16) as u32, (count % 16) as u8);
            assert!(shared_digits(table.me, point) >= row && digit(point, row) == value, "{count}: {point}");
        }
        assert_eq!((digit(Point(0xab << 120), 0), digit(Point(0xab << 120), 1)), (0xa, 0xb));
    }
}
