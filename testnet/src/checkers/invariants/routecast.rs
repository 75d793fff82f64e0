//! Guarantees of routecast for deliveries (RECODE §III-A). A message is delivered at most once (PTO2), and never by a partition
//! once a newer one has covered its key (PTO4). Messages for one key are delivered in one order over all partitions (PTO5).
//!
//! A delivery is seen in the record that it made: the record names the operations it answered, its place in the key's history (the
//! version) and the right it was made under (the number: a primary's term and a count). A record may be proposed again under a
//! later right, which delivers nothing anew.

use std::collections::{BTreeMap, BTreeSet};

use group::op::Version;
use overlay::{Epoch, Key, KeyRange, Point};

use super::observation::Ballot;

/// A primary's right, and its count of writes: the order of a key's chosen states.
type Number = (u64, u64);

/// Observations so far.
#[derive(Debug)]
pub struct Routecast {
    /// Answer of each operation.
    answers: BTreeMap<(Key, u64), u64>,
    /// The first and the last number under which each version was chosen.
    order: BTreeMap<(Key, Version), (Number, Number)>,
    /// Rights under which primaries served, by piece of the ring: each range stands in all pieces that it overlaps. Most rights are
    /// of other groups, and are not examined.
    rights: [BTreeSet<Right>; PIECES],
}

/// Range that a primary served, with its term and epoch.
type Right = (Point, Point, u64, Epoch);

/// Number of equal pieces of the ring.
const PIECES: usize = 256;

/// Returns the pieces that a range overlaps.
fn pieces(range: KeyRange) -> impl Iterator<Item = usize> {
    let piece = |at: u128| (at >> (128 - PIECES.ilog2())) as usize;
    let first = piece(range.start().0);
    let last = range.length().map(|length| piece(range.start().0.wrapping_add(length - 1)));
    let is_most = range.length().is_none_or(|length| length > u128::MAX / 2);
    let count = last.filter(|_| !is_most).map_or(PIECES, |last| (last + PIECES - first) % PIECES + 1);
    (first..first + count).map(|piece| piece % PIECES)
}

impl Default for Routecast {
    fn default() -> Routecast {
        Routecast {
            answers: BTreeMap::new(),
            order: BTreeMap::new(),
            rights: core::array::from_fn(|_| BTreeSet::new()),
        }
    }
}

impl Routecast {
    /// Checks that an operation has one answer in all chosen records; both are hashes.
    pub fn on_delivered(&mut self, key: &Key, operation: u64, answer: u64) -> Result<(), String> {
        let first = *self.answers.entry((key.clone(), operation)).or_insert(answer);
        if first != answer {
            return Err(format!("{key:?}: {operation:016x} was delivered twice: {first:016x} and {answer:016x}"));
        }
        Ok(())
    }

    /// Checks a key's chosen state.
    pub fn on_chosen(&mut self, key: &Key, version: Version, number: Number) -> Result<(), String> {
        let place = (key.clone(), version);
        let (first, last) = self.order.entry(place.clone()).or_insert((number, number));
        if *first <= number && number <= *last && first != last {
            return Ok(());
        }
        (*first, *last) = ((*first).min(number), (*last).max(number));
        let (first, last) = (*first, *last);
        let of_key = |other: &(Key, Version)| other.0 == *key;
        let before = self.order.range(..&place).next_back().filter(|(other, _)| of_key(other));
        if let Some(((_, earlier), (_, until))) = before
            && *until > first
        {
            return Err(format!("{key:?}: {earlier:?} is of {until:?}, but {version:?} of {first:?}"));
        }
        let after = (core::ops::Bound::Excluded(&place), core::ops::Bound::Unbounded);
        let behind = self.order.range::<(Key, Version), _>(after).next().filter(|(other, _)| of_key(other));
        if let Some(((_, later), (from, _))) = behind
            && *from < last
        {
            return Err(format!("{key:?}: {later:?} is of {from:?}, but {version:?} of {last:?}"));
        }
        Ok(())
    }

    /// Checks that a primary may serve. Where two epochs have served the same places, the rights of the newer one are the higher.
    pub fn on_serving(&mut self, range: KeyRange, ballot: Ballot) -> Result<(), String> {
        let right = (range.start(), range.end(), ballot.term, ballot.epoch);
        let is_turned = |(start, end, term, epoch): &&Right| {
            let is_turned =
                (*epoch < ballot.epoch && *term >= ballot.term) || (*epoch > ballot.epoch && *term <= ballot.term);
            is_turned && KeyRange::new(*start, *end).overlaps(range)
        };
        for piece in pieces(range) {
            let rights = &mut self.rights[piece];
            if !rights.insert(right) {
                return Ok(());
            }
            if let Some((_, _, term, epoch)) = rights.iter().find(is_turned) {
                return Err(format!("{ballot:?} delivers for {range:?}, where term {term} of {epoch:?} has done so"));
            }
        }
        Ok(())
    }
}
