//! What an acceptor holds of one committee: numbers received, unsettled writes, recent ones.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use overlay::{Key, KeyRange};

use super::numbered::Numbered;
use crate::ballot::TermBallot;
use crate::message::{Base, Write};
use crate::number_set::NumberSet;
use crate::outbox::{CommitteeHead, Durable, Outbox};
use crate::table::Table;
use crate::time::Time;
use crate::violation::Contradicts;

/// The most recent writes kept for others, whatever their size.
const WINDOW_LENGTH_MAX: usize = 1 << 16;

/// Gaps in the numbers received. Each lost message leaves one, until catching up fills it; and all of them are stored
/// with every batch.
const GAPS_MAX: usize = 1 << 12;
/// Keys whose records came ahead of what is known to be chosen; with more, no page of records is taken until the
/// primary has said how far its writes are chosen.
const AHEAD_KEYS_MAX: usize = 1 << 16;

#[derive(Clone, Debug)]
struct Kept {
    write: Write,
    /// It is chosen and in the table.
    settled: bool,
}

/// One committee at one acceptor.
#[derive(Clone, Debug)]
pub struct Committee {
    head: CommitteeHead,
    received: NumberSet,
    /// Everything up to here is chosen; `None` until the base is known to be.
    chosen: Option<u64>,
    /// Unsettled writes, and recent settled ones.
    kept: Numbered<Kept>,
    kept_bytes: usize,
    /// The numbers of the unsettled ones.
    unsettled: Numbered<()>,
    /// The same by key, from the first record of a page that may overtake some until what is unsettled changes otherwise.
    unsettled_by_key: Option<BTreeSet<(Key, u64)>>,
    /// Of the numbers up to here some were received, or made up for, and are not kept.
    gone: u64,
    /// Keys whose records catching up brought, of this term and not known here to be chosen, with their numbers.
    ahead: BTreeMap<Key, u64>,
    /// Someone was promised more, somewhere in the sub-range.
    superseded: bool,
    progress_changed: bool,
    /// The first mark told by a heartbeat since the last write came, and when, where this lacks writes up to it.
    told: Option<(u64, Time)>,
    /// What it tells others of being complete may have changed.
    completeness_changed: bool,
}

impl Committee {
    /// A committee that has begun just now.
    pub fn new(ballot: TermBallot, range: KeyRange) -> Committee {
        Committee::restored(
            CommitteeHead { ballot, range, base: None, missing: Vec::new() },
            NumberSet::default(),
            None,
            Vec::new(),
        )
    }

    /// As it was stored, with its unsettled writes.
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

    /// Its primary's ballot.
    pub fn ballot(&self) -> TermBallot {
        self.head.ballot
    }

    /// Its sub-range.
    pub fn range(&self) -> KeyRange {
        self.head.range
    }

    /// The base accepted.
    pub fn base(&self) -> Option<&Arc<Base>> {
        self.head.base.as_ref()
    }

    /// Everything up to here is chosen; `None` until the base is known to be.
    pub fn chosen(&self) -> Option<u64> {
        self.chosen
    }

    /// The numbers that were received, or that catching up made up for.
    pub fn received(&self) -> &NumberSet {
        &self.received
    }

    /// Pieces in which something chosen before the base is not held.
    pub fn missing(&self) -> &[KeyRange] {
        &self.head.missing
    }

    /// Was someone promised more?
    pub fn is_superseded(&self) -> bool {
        self.superseded
    }

    /// Someone was promised more.
    pub fn supersede(&mut self) {
        self.superseded = true;
    }

    /// Returns the mark to heed, where a heartbeat says that everything up to `mark` is chosen. Heartbeats overtake writes: those that this
    /// member lacks may wait on their way here, and would be refused. They are taken for lost where a heartbeat says the same at least
    /// `patience` later, by this member's clock, and no write came in between.
    pub(super) fn heed(&mut self, mark: u64, patience: Duration, now: Time) -> Option<u64> {
        if self.received.mark() >= mark {
            return Some(mark);
        }
        let (first, since) = *self.told.get_or_insert((mark, now));
        (now.since(since) >= patience).then(|| {
            self.told = Some((mark, now));
            first
        })
    }

    /// Does it hold everything chosen before its base?
    pub fn is_complete(&self) -> bool {
        self.head.base.is_some() && self.chosen.is_some() && self.head.missing.is_empty()
    }

    /// Does it hold everything chosen in this piece up to its own chosen mark?
    pub fn is_complete_in(&self, piece: KeyRange) -> bool {
        self.chosen.is_some_and(|chosen| self.received.mark() >= chosen) && self.lacks_nothing_before(piece)
    }

    /// Does it hold everything chosen in this piece before its base?
    pub fn lacks_nothing_before(&self, piece: KeyRange) -> bool {
        self.head.base.is_some() && !self.head.missing.iter().any(|missing| missing.overlaps(piece))
    }

    /// Can it be remembered that this number was received? What is in order always can, and what fills a gap; and a
    /// takeover's re-proposals, and a few batches behind them, are all there is to come before its base.
    pub fn has_room_for(&self, n: u64) -> bool {
        self.head.base.is_none() || n <= self.received.last() + 1 || self.received.gaps() < GAPS_MAX
    }

    /// Are so many records ahead of what is known to be chosen that no more can be noted?
    pub fn is_ahead_enough(&self) -> bool {
        self.ahead.len() >= AHEAD_KEYS_MAX
    }

    /// Was the number of this write used for something else (hazard 5)? Says whether that is chosen.
    pub(super) fn contradicted(&self, write: &Write) -> Option<Contradicts> {
        let kept = self.kept.get(write.record.number.n).filter(|kept| kept.write != *write)?;
        Some(if kept.settled { Contradicts::Chosen } else { Contradicts::Accepted })
    }

    /// Is this another base than the one accepted? Says whether that is chosen.
    pub(super) fn contradicted_base(&self, base: &Base) -> Option<Contradicts> {
        self.base().filter(|known| known.as_ref() != base)?;
        Some(if self.chosen.is_some() { Contradicts::Chosen } else { Contradicts::Accepted })
    }

    /// A write of this committee: kept if it is new and not known to be chosen already.
    ///
    /// A late one that is known to be chosen is left to catching up, which can tell whether it was overtaken. True if the
    /// write is held now, or was before. The caller has asked `Committee::contradicted`.
    ///
    /// # Panics
    /// If it is a write of another term, which no message brings here.
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
            self.gone = self.gone.max(number.n); // Held already, or what followed it.
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

    /// Remembers that it exists.
    pub fn persist_head(&self, out: &mut Outbox) {
        out.persist(Durable::Committee(self.head.clone()));
    }

    /// These pieces are not held here.
    pub(super) fn lack(&mut self, pieces: Vec<KeyRange>) {
        self.head.missing.extend(pieces);
    }

    /// Everything before the base is held in this piece now.
    pub fn fill(&mut self, piece: KeyRange, out: &mut Outbox) {
        let before = self.head.missing.len();
        self.head.missing.retain(|missing| !piece.contains_range(*missing));
        if self.head.missing.len() < before {
            self.completeness_changed = true;
            out.persist(Durable::Committee(self.head.clone()));
        }
    }

    /// Nothing before the base can be relied on any more: the window did not reach.
    pub fn unfill(&mut self, out: &mut Outbox) {
        let pieces = self.head.base.iter().flat_map(|base| base.pieces.iter().map(|(piece, _)| *piece));
        self.head.missing = pieces.collect();
        self.completeness_changed = true;
        out.persist(Durable::Committee(self.head.clone()));
    }

    /// These numbers are made up for.
    pub fn make_up(&mut self, first: u64, last: u64) {
        self.received.insert_range(first, last);
        let mark = self.received.mark();
        self.ahead.retain(|_, n| *n > mark); // Nothing that they overtake is still to come.
        self.gone = self.gone.max(self.last_not_kept(last));
        self.progress_changed = true;
        self.completeness_changed = true;
    }

    /// Everything up to `mark` is chosen: settles what is held of it.
    pub(super) fn settle_up_to(&mut self, mark: u64, table: &mut Table, out: &mut Outbox) {
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

    /// Settles the unsettled writes of a piece up to `mark`, and what the table has: that is known to be chosen.
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

    /// A younger term's base is chosen, and this term's fate in a piece is `mark`: what it wrote beyond is void.
    pub fn close_in(&mut self, piece: KeyRange, mark: u64, table: &mut Table, out: &mut Outbox) {
        self.settle_in(piece, mark, table, out);
        for n in self.unsettled_in(piece) {
            self.void(n, out);
        }
    }

    /// A chosen record came another way: older unsettled writes of its key are overtaken.
    pub fn overtake(&mut self, write: &Write, out: &mut Outbox) {
        let number = write.record.number;
        let follows = self.chosen.is_none_or(|chosen| chosen < number.n) && !self.superseded;
        let here = self.head.range.contains(write.key.point());
        if number.term == self.head.ballot.term && follows && here {
            // What it overtakes may still come.
            let ahead = self.ahead.entry(write.key.clone()).or_default();
            *ahead = (*ahead).max(number.n);
        }
        if number.term < self.head.ballot.term || !self.has_unsettled() {
            return;
        }
        let before = if number.term > self.head.ballot.term { u64::MAX } else { number.n };
        // A page of records brings thousands, and thousands may be unsettled.
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

    /// The numbers of unsettled writes, in order.
    pub(super) fn unsettled_numbers(&self) -> impl Iterator<Item = u64> {
        self.unsettled.between(0, u64::MAX).map(|(n, ())| n)
    }

    /// What becomes of this unsettled write is others' affair from now on. Its number counts as before.
    pub(super) fn give_away(&mut self, n: u64) {
        self.unsettled.remove(n);
        self.unsettled_by_key = None;
        self.kept.get_mut(n).expect("an unsettled write is kept").settled = true;
    }

    pub(super) fn unsettled_write(&self, n: u64) -> &Write {
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

    /// Writes accepted and not known to be chosen, in order, within a range.
    pub fn unsettled(&self, range: KeyRange) -> impl Iterator<Item = &Write> {
        let writes = self.unsettled_numbers().map(|n| self.unsettled_write(n));
        writes.filter(move |write| range.contains(write.key.point()))
    }

    /// Has it unsettled writes?
    pub fn has_unsettled(&self) -> bool {
        self.unsettled.len() > 0
    }

    /// Has it unsettled writes in this piece?
    pub fn has_unsettled_in(&self, piece: KeyRange) -> bool {
        self.unsettled(piece).next().is_some()
    }

    /// Settled writes behind `n`, up to `last`, in a piece, in order; `None` where not all of those numbers are kept:
    /// some came another way, or are let go.
    pub fn since(&self, n: u64, last: u64, piece: KeyRange) -> Option<impl Iterator<Item = &Write>> {
        let wanted = last.saturating_sub(n);
        let behind = move || self.kept.between(n.saturating_add(1), last);
        let whole = behind().count() as u64 == wanted && behind().all(|(_, kept)| kept.settled);
        if !whole || (wanted > 0 && n < self.gone) {
            return None;
        }
        Some(behind().map(|(_, kept)| &kept.write).filter(move |write| piece.contains(write.key.point())))
    }

    /// The same as [`Committee::take_completeness_changed`], which still answers so after this.
    pub(super) fn completeness_changed(&self) -> bool {
        self.completeness_changed
    }

    /// Does it hold, or lack, more than when this was asked last?
    pub fn take_completeness_changed(&mut self) -> bool {
        core::mem::take(&mut self.completeness_changed)
    }

    /// Writes what moved to the store; at most once a batch.
    pub fn flush(&mut self, out: &mut Outbox) {
        if core::mem::take(&mut self.progress_changed) {
            out.persist(Durable::CommitteeProgress(self.head.ballot, self.received.clone(), self.chosen));
        }
    }

    /// Lets go of the oldest settled writes until the rest takes at most so many bytes.
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

    /// What the recent writes take, in bytes.
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
