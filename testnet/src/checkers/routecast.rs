//! What routecast promises of deliveries (RECODE §III-A): a message is delivered at most once (PTO2), never by a partition
//! once a newer one has covered its key (PTO4), and those for one key in one order over all partitions (PTO5).
//!
//! A delivery is seen in the record that it made: that names the operations it answered, its place in the key's history (the
//! version) and the right it was made under (the number: a primary's term and a count). A record may be proposed again under
//! a later right, which delivers nothing anew.

use std::collections::BTreeMap;

use group::op::Version;
use overlay::{Epoch, Key, KeyRange};

use super::observation::Ballot;

/// A primary's right, and its count of writes: what orders the chosen states of a key.
type Number = (u64, u64);

/// What was seen so far.
#[derive(Debug, Default)]
pub struct Routecast {
    /// What each operation was answered.
    answers: BTreeMap<(Key, u64), u64>,
    /// The first and the last number under which each version was chosen.
    order: BTreeMap<(Key, Version), (Number, Number)>,
    /// The rights under which primaries served.
    rights: BTreeMap<(u64, Epoch), Vec<KeyRange>>,
}

impl Routecast {
    /// A chosen record names an operation and its answer, both as hashes.
    pub fn on_delivered(&mut self, key: &Key, operation: u64, answer: u64) -> Result<(), String> {
        let first = *self.answers.entry((key.clone(), operation)).or_insert(answer);
        if first != answer {
            return Err(format!("{key:?}: {operation:016x} was delivered twice: {first:016x} and {answer:016x}"));
        }
        Ok(())
    }

    /// A key's chosen state.
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

    /// A primary serves. Where two epochs have served the same places, the rights of the newer one are the higher.
    pub fn on_serving(&mut self, range: KeyRange, ballot: Ballot) -> Result<(), String> {
        let ranges = self.rights.entry((ballot.term, ballot.epoch)).or_default();
        if ranges.contains(&range) {
            return Ok(());
        }
        ranges.push(range);
        let is_turned = |other: &(u64, Epoch)| {
            let ((term, epoch), now) = (other, &ballot);
            (*epoch < now.epoch && *term >= now.term) || (*epoch > now.epoch && *term <= now.term)
        };
        let mut rights = self.rights.iter().filter(|(right, _)| is_turned(right));
        match rights.find(|(_, ranges)| ranges.iter().any(|other| other.overlaps(range))) {
            Some(((term, epoch), _)) => {
                Err(format!("{ballot:?} delivers for {range:?}, where term {term} of {epoch:?} has done so"))
            }
            None => Ok(()),
        }
    }
}
