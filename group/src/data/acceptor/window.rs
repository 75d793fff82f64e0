//! State of one committee at an acceptor: numbers received, unsettled writes, recent writes.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use overlay::{Key, KeyRange};

use crate::ballot::TermBallot;
use crate::contradiction::Contradicts;
use crate::data::acceptor::numbered::Numbered;
use crate::data::table::Table;
use crate::message::{Base, Write};
use crate::number_set::NumberSet;
use crate::outbox::{CommitteeHead, Durable, Outbox};
use overlay::time::Time;

/// Upper limit of recent writes that are kept for other members, regardless of their size.
const WINDOW_LENGTH_MAX: usize = 1 << 16;

/// Upper limit of gaps in the numbers received. Each lost message leaves a gap, until catch-up fills it; and all gaps are stored with every
/// batch.
const GAPS_MAX: usize = 1 << 12;
/// Upper limit of keys with a record that came ahead of the known chosen mark. Beyond it, the member takes no page of records until the
/// primary has told how far its writes are chosen.
const AHEAD_KEYS_MAX: usize = 1 << 16;

#[derive(Clone, Debug)]
struct Kept {
    write: Write,
    /// Whether the write is chosen and in the table.
    settled: bool,
}

/// One committee at one acceptor.
#[derive(Clone, Debug)]
pub struct Committee {
    head: CommitteeHead,
    received: NumberSet,
    /// Number up to which all writes are chosen; `None` until the base is known to be chosen.
    chosen: Option<u64>,
    /// Unsettled writes, and recent settled ones.
    kept: Numbered<Kept>,
    kept_bytes: usize,
    /// Numbers of the unsettled writes.
    unsettled: Numbered<()>,
    /// Unsettled writes by key: from the first record of a page that may overtake some, until the unsettled writes change otherwise.
    unsettled_by_key: Option<BTreeSet<(Key, u64)>>,
    /// Highest number that was received, or made up for, and is not kept.
    gone: u64,
    /// Keys with a record of this term that came by catch-up and is not known here to be chosen, with the numbers.
    ahead: BTreeMap<Key, u64>,
    /// Whether a higher ballot was promised somewhere in the sub-range.
    superseded: bool,
    progress_changed: bool,
    /// First mark from a heartbeat since the last write came, and its time, where this committee lacks writes up to that mark.
    told: Option<(u64, Time)>,
    /// Whether the completeness that this member reports may have changed.
    completeness_changed: bool,
}

impl Committee {
    /// Returns a committee that begins now.
    pub fn new(ballot: TermBallot, range: KeyRange) -> Committee {
        Committee::restored(
            CommitteeHead { ballot, range, base: None, missing: Vec::new() },
            NumberSet::default(),
            None,
            Vec::new(),
        )
    }

    /// Returns a committee as it was stored, with its unsettled writes.
    pub fn restored(head: CommitteeHead, received: NumberSet, chosen: Option<u64>, unsettled: Vec<Write>) -> Committee {
        let mut committee = Committee {
            head,
            received,
            chosen,
            kept: Numbered::default(),
            kept_bytes: 0,
            unsettled: Numbered::default(),
            unsettled_by_key: None,
            gone: 0,
            ahead: BTreeMap::new(),
            superseded: false,
            progress_changed: false,
            told: None,
            completeness_changed: true,
        };
        for write in unsettled {
            committee.keep(write);
        }
        committee.gone = committee.last_not_kept(committee.received.last());
        committee
    }

    /// Returns the ballot of the primary.
    pub fn ballot(&self) -> TermBallot {
        self.head.ballot
    }

    /// Returns the sub-range.
    pub fn range(&self) -> KeyRange {
        self.head.range
    }

    /// Returns the accepted base.
    pub fn base(&self) -> Option<&Arc<Base>> {
        self.head.base.as_ref()
    }

    /// Returns the number up to which all writes are chosen; `None` until the base is known to be chosen.
    pub fn chosen(&self) -> Option<u64> {
        self.chosen
    }

    /// Returns the numbers that were received, or that catch-up made up for.
    pub fn received(&self) -> &NumberSet {
        &self.received
    }

    /// Returns the pieces in which a record chosen before the base is missing.
    pub fn missing(&self) -> &[KeyRange] {
        &self.head.missing
    }

    /// Returns whether a higher ballot was promised.
    pub fn is_superseded(&self) -> bool {
        self.superseded
    }

    /// Notes that a higher ballot was promised.
    pub fn supersede(&mut self) {
        self.superseded = true;
    }

    /// Returns the mark to settle up to, where a heartbeat says that everything up to `mark` is chosen. Heartbeats overtake writes: the
    /// writes that this member lacks may wait on their way here, and would be refused. They count as lost once a heartbeat says so again at
    /// least `patience` later, by this member's clock, and no write came in between: then the mark of the first of these heartbeats is
    /// returned.
    pub(crate) fn heed(&mut self, mark: u64, patience: Duration, now: Time) -> Option<u64> {
        if self.received.mark() >= mark {
            return Some(mark);
        }
        let (first, since) = *self.told.get_or_insert((mark, now));
        (now.since(since) >= patience).then(|| {
            self.told = Some((mark, now));
            first
        })
    }

    /// Returns whether the committee holds everything chosen before its base.
    pub fn is_complete(&self) -> bool {
        self.head.base.is_some() && self.chosen.is_some() && self.head.missing.is_empty()
    }

    /// Returns whether the committee holds everything chosen in this piece up to its own chosen mark.
    pub fn is_complete_in(&self, piece: KeyRange) -> bool {
        self.chosen.is_some_and(|chosen| self.received.mark() >= chosen) && self.lacks_nothing_before(piece)
    }

    /// Returns whether the committee holds everything chosen in this piece before its base.
    pub fn lacks_nothing_before(&self, piece: KeyRange) -> bool {
        self.head.base.is_some() && !self.head.missing.iter().any(|missing| missing.overlaps(piece))
    }

    /// Returns whether the receipt of this number can be remembered. There is always room for a number in order, and for one that fills a
    /// gap. There is also always room before the base: only a takeover's re-proposals, and a few batches behind them, come then.
    pub fn has_room_for(&self, n: u64) -> bool {
        self.head.base.is_none() || n <= self.received.last() + 1 || self.received.gaps() < GAPS_MAX
    }

    /// Returns whether so many records are ahead of the known chosen mark that no more can be noted.
    pub fn is_ahead_enough(&self) -> bool {
        self.ahead.len() >= AHEAD_KEYS_MAX
    }

    /// Returns whether the number of this write stands for another write already (hazard 5), and whether that write is chosen.
    pub(crate) fn contradicted(&self, write: &Write) -> Option<Contradicts> {
        let kept = self.kept.get(write.record.number.n).filter(|kept| kept.write != *write)?;
        Some(if kept.settled { Contradicts::Chosen } else { Contradicts::Accepted })
    }

    /// Returns whether the accepted base differs from this one, and whether the accepted one is chosen.
    pub(crate) fn contradicted_base(&self, base: &Base) -> Option<Contradicts> {
        self.base().filter(|known| known.as_ref() != base)?;
        Some(if self.chosen.is_some() { Contradicts::Chosen } else { Contradicts::Accepted })
    }

    /// Accepts a write of this committee. Keeps it if it is new and not known to be chosen already.
    ///
    /// A late write that is known to be chosen is left to catch-up, which can tell whether the write was overtaken. Returns whether the
    /// write is held now, or was before. The caller has asked `Committee::contradicted`.
    ///
    /// # Panics
    /// If the write is of another term; no message brings such a write here.
    pub fn accept(&mut self, write: Write, out: &mut Outbox) -> bool {
        let number = write.record.number;
        assert_eq!(number.term, self.head.ballot.term, "a write of another term");
        if self.received.contains(number.n) {
            return true;
        }
        if self.chosen.is_some_and(|chosen| number.n <= chosen) {
            return false;
        }
        self.received.insert(number.n);
        self.told = None;
        self.progress_changed = true;
        self.completeness_changed |= self.head.base.as_ref().is_some_and(|base| number.n <= base.reproposed);
        if self.ahead.get(&write.key).is_some_and(|n| *n >= number.n) {
            self.gone = self.gone.max(number.n); // Held already, or a later write of the key is.
            return true;
        }
        out.accept(&write);
        self.keep(write);
        true
    }

    /// Accepts the base.
    pub fn set_base(&mut self, base: Arc<Base>, missing: Vec<KeyRange>, out: &mut Outbox) {
        self.head.base = Some(base);
        self.head.missing = missing;
        self.completeness_changed = true;
        out.persist(Durable::Committee(self.head.clone()));
    }

    /// Persists that the committee exists.
    pub fn persist_head(&self, out: &mut Outbox) {
        out.persist(Durable::Committee(self.head.clone()));
    }

    /// Adds pieces that this member lacks.
    pub(crate) fn lack(&mut self, pieces: Vec<KeyRange>) {
        self.head.missing.extend(pieces);
    }

    /// Notes that everything before the base is held in this piece now.
    pub fn fill(&mut self, piece: KeyRange, out: &mut Outbox) {
        let before = self.head.missing.len();
        self.head.missing.retain(|missing| !piece.contains_range(*missing));
        if self.head.missing.len() < before {
            self.completeness_changed = true;
            out.persist(Durable::Committee(self.head.clone()));
        }
    }

    /// Marks all pieces as missing: no record before the base can be relied on any more, as no window reached back far enough.
    pub fn unfill(&mut self, out: &mut Outbox) {
        let pieces = self.head.base.iter().flat_map(|base| base.pieces.iter().map(|(piece, _)| *piece));
        self.head.missing = pieces.collect();
        self.completeness_changed = true;
        out.persist(Durable::Committee(self.head.clone()));
    }

    /// Notes that catch-up made up for these numbers.
    pub fn make_up(&mut self, first: u64, last: u64) {
        self.received.insert_range(first, last);
        let mark = self.received.mark();
        self.ahead.retain(|_, n| *n > mark); // No write that they overtake is still to come.
        self.gone = self.gone.max(self.last_not_kept(last));
        self.progress_changed = true;
        self.completeness_changed = true;
    }

    /// Settles the held writes up to `mark`: everything up to there is chosen.
    pub(crate) fn settle_up_to(&mut self, mark: u64, table: &mut Table, out: &mut Outbox) {
        if self.head.base.is_none() || self.chosen.is_some_and(|chosen| chosen >= mark) {
            return;
        }
        self.completeness_changed |= self.chosen.is_none();
        self.chosen = Some(mark);
        self.progress_changed = true;
        self.ahead.retain(|_, n| *n > mark);
        let Some(first) = self.unsettled.first().map(|(n, ())| n).filter(|n| *n <= mark) else { return };
        let settled: Vec<u64> = self.unsettled.between(first, mark).map(|(n, ())| n).collect();
        for n in settled {
            self.settle(n, table);
        }
        out.persist(Durable::Settle(self.head.ballot.term, first, mark));
    }

    /// Settles the unsettled writes of a piece up to `mark`, and those that the table has: a record in the table is known to be chosen.
    pub fn settle_in(&mut self, piece: KeyRange, mark: u64, table: &mut Table, out: &mut Outbox) {
        for n in self.unsettled_in(piece) {
            let write = self.unsettled_write(n);
            let known = table.peek(&write.key).flatten().is_some_and(|known| known.number == write.record.number);
            if n <= mark || known {
                self.settle(n, table);
                out.persist(Durable::Settle(self.head.ballot.term, n, n));
            }
        }
    }

    /// Closes this term in a piece, because a younger term's base is chosen: settles writes up to `mark`, and voids the writes beyond.
    pub fn close_in(&mut self, piece: KeyRange, mark: u64, table: &mut Table, out: &mut Outbox) {
        self.settle_in(piece, mark, table, out);
        for n in self.unsettled_in(piece) {
            self.void(n, out);
        }
    }

    /// Voids the older unsettled writes of a key: a chosen record of the key came another way.
    pub fn overtake(&mut self, write: &Write, out: &mut Outbox) {
        let number = write.record.number;
        let follows = self.chosen.is_none_or(|chosen| chosen < number.n) && !self.superseded;
        let here = self.head.range.contains(write.key.point());
        if number.term == self.head.ballot.term && follows && here {
            // Writes that the record overtakes may still come.
            let ahead = self.ahead.entry(write.key.clone()).or_default();
            *ahead = (*ahead).max(number.n);
        }
        if number.term < self.head.ballot.term || !self.has_unsettled() {
            return;
        }
        let before = if number.term > self.head.ballot.term { u64::MAX } else { number.n };
        // A page has thousands of records, and thousands of writes may be unsettled.
        if self.unsettled_by_key.is_none() {
            let by_key = self.unsettled_numbers().map(|n| (self.unsettled_write(n).key.clone(), n));
            self.unsettled_by_key = Some(by_key.collect());
        }
        let by_key = self
            .unsettled_by_key
            .iter()
            .flat_map(|by_key| by_key.range((write.key.clone(), 0)..(write.key.clone(), before)));
        let older: Vec<u64> = by_key.map(|(_, n)| *n).collect();
        for n in older {
            self.void(n, out);
        }
    }

    fn unsettled_in(&self, piece: KeyRange) -> Vec<u64> {
        self.unsettled_numbers().filter(|n| piece.contains(self.unsettled_write(*n).key.point())).collect()
    }

    /// Returns the numbers of unsettled writes, in order.
    pub(crate) fn unsettled_numbers(&self) -> impl Iterator<Item = u64> {
        self.unsettled.between(0, u64::MAX).map(|(n, ())| n)
    }

    /// Leaves this unsettled write to another group, which decides its fate from now on. The write's number counts as before.
    pub(crate) fn give_away(&mut self, n: u64) {
        self.unsettled.remove(n);
        self.unsettled_by_key = None;
        self.kept.get_mut(n).expect("an unsettled write is kept").settled = true;
    }

    pub(crate) fn unsettled_write(&self, n: u64) -> &Write {
        &self.kept.get(n).expect("an unsettled write is kept").write
    }

    fn settle(&mut self, n: u64, table: &mut Table) {
        self.unsettled.remove(n);
        self.unsettled_by_key = None;
        let kept = self.kept.get_mut(n).expect("an unsettled write is kept");
        kept.settled = true;
        table.put_stored(&kept.write.key, kept.write.record.clone());
    }

    fn void(&mut self, n: u64, out: &mut Outbox) {
        self.unsettled.remove(n);
        self.gone = self.gone.max(n);
        let kept = self.kept.remove(n).expect("an unsettled write is kept");
        self.kept_bytes -= kept.write.record.bytes();
        if let Some(by_key) = &mut self.unsettled_by_key {
            by_key.remove(&(kept.write.key.clone(), n));
        }
        out.persist(Durable::Void(kept.write));
    }

    /// Returns writes that are accepted and not known to be chosen, in order, within a range.
    pub fn unsettled(&self, range: KeyRange) -> impl Iterator<Item = &Write> {
        let writes = self.unsettled_numbers().map(|n| self.unsettled_write(n));
        writes.filter(move |write| range.contains(write.key.point()))
    }

    /// Returns whether there are unsettled writes.
    pub fn has_unsettled(&self) -> bool {
        self.unsettled.len() > 0
    }

    /// Returns whether there are unsettled writes in this piece.
    pub fn has_unsettled_in(&self, piece: KeyRange) -> bool {
        self.unsettled(piece).next().is_some()
    }

    /// Returns settled writes after `n`, up to `last`, in a piece, in order. `None` where not all of those numbers are kept: some came
    /// another way, or were dropped.
    pub fn since(&self, n: u64, last: u64, piece: KeyRange) -> Option<impl Iterator<Item = &Write>> {
        let wanted = last.saturating_sub(n);
        let behind = move || self.kept.between(n.saturating_add(1), last);
        let whole = behind().count() as u64 == wanted && behind().all(|(_, kept)| kept.settled);
        if !whole || (wanted > 0 && n < self.gone) {
            return None;
        }
        Some(behind().map(|(_, kept)| &kept.write).filter(move |write| piece.contains(write.key.point())))
    }

    /// Returns the same as [`Committee::take_completeness_changed`], and leaves the flag set.
    pub(crate) fn completeness_changed(&self) -> bool {
        self.completeness_changed
    }

    /// Returns whether the committee may hold, or lack, more than at the last call.
    pub fn take_completeness_changed(&mut self) -> bool {
        core::mem::take(&mut self.completeness_changed)
    }

    /// Persists changed progress; at most once for each batch.
    pub fn flush(&mut self, out: &mut Outbox) {
        if core::mem::take(&mut self.progress_changed) {
            out.persist(Durable::CommitteeProgress(self.head.ballot, self.received.clone(), self.chosen));
        }
    }

    /// Drops the oldest settled writes until the rest takes at most `bytes_max` bytes.
    pub fn trim(&mut self, bytes_max: usize) {
        while self.kept_bytes > bytes_max || self.kept.len() > WINDOW_LENGTH_MAX {
            let Some((first, bytes)) =
                self.kept.first().filter(|(_, kept)| kept.settled).map(|(n, kept)| (n, kept.write.record.bytes()))
            else {
                return;
            };
            self.gone = self.gone.max(first);
            self.kept_bytes -= bytes;
            self.kept.remove(first);
        }
    }

    /// Returns the size of the recent writes, in bytes.
    pub fn window_bytes(&self) -> usize {
        self.kept_bytes
    }

    fn last_not_kept(&self, last: u64) -> u64 {
        self.kept.last_absent(last)
    }

    fn keep(&mut self, write: Write) {
        let n = write.record.number.n;
        self.kept_bytes += write.record.bytes();
        self.unsettled.insert(n, ());
        self.unsettled_by_key = None;
        self.kept.insert(n, Kept { write, settled: false });
    }
}
