//! The table with its books: one [`Sum`] for every range of records, changed in the same atomic batch as the records.
//!
//! A damaged sled may open without an error and answer "absent" for a record that existed, or return an older record. Reading
//! the whole table at every start would detect that, but would take minutes for a large store. So the books are kept for ranges
//! of about a thousand records. A range that existed at the start is read and compared *once, before the first answer from it*.
//! This takes a few milliseconds at the first access, and nothing at the start. A background thread goes through the rest
//! ([`Ledger::verify_next`]). The ranges' sums add up to a total. The total is bound to the number of portions written and, at
//! a checkpoint, to the manifest. So a lost or outdated book is found at the start.
//!
//! Keys in the table: `m` the total, `g<first key>` a range's sum, `r<first key>` a block of records ([`blocks`]), `x…` a piece
//! of a long block ([`pieces`](crate::table::pieces)). A block lies in one range; the sum of a range covers its blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;
use environment::lock;

use crate::codec::Reader;
use crate::error::StoreError;
use crate::format::{CONTAINER_VERSION, StoreFormat};
use crate::precedence::Precedence;
use crate::table::blocks::{self, BlockEntry};
use crate::table::pieces::Pieces;
use crate::table::sum::Sum;
use crate::table::{Table, TableError, seal, unseal};

const TOTAL: &[u8] = b"m";
const RANGES: u8 = b'g';
const RECORDS: u8 = b'r';
/// Bytes that are read from the table at once.
const PAGE: usize = 1 << 20;

/// Limits beyond which a range, a block or a value is divided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DivisionLimits {
    /// Upper limits of a range: blocks, and bytes.
    pub(crate) range_blocks: u64,
    pub(crate) range_bytes: u64,
    pub(crate) block_bytes: usize,
    /// Longest value of an entry, in bytes.
    pub(crate) piece_bytes: usize,
}

/// The table with its books.
pub(crate) struct Ledger {
    table: Pieces,
    limits: DivisionLimits,
    books: Mutex<Books>,
    precedence: Precedence,
    trust: Mutex<Trust>,
    /// Every range was read and compared: no range needs verification any more.
    all_trusted: AtomicBool,
}

struct Books {
    /// Whether the books are in the table. The books of an empty table are not.
    stored: bool,
    /// Number of portions that were written.
    portions: u64,
    /// Upper bound of the journal frames from which the table's content comes.
    seq: u64,
    total: Sum,
    /// By the first key of each range; a range ends where the next range begins.
    ranges: BTreeMap<Bytes, Sum>,
}

/// A record: its key and its value.
type Record = (Bytes, Bytes);

/// A block: its key and its encoded records.
type Block = (Bytes, Bytes);

/// The ranges as of the start, and whether each of them was read and compared since.
type Trust = BTreeMap<Bytes, bool>;

impl Ledger {
    /// Reads the books of a table and compares them with each other. `checkpoint` is the manifest's count and sum.
    pub(crate) fn open(
        table: Box<dyn Table>,
        limits: DivisionLimits,
        checkpoint: (u64, Sum),
    ) -> Result<Ledger, StoreError> {
        let table = Pieces::new(table, limits.piece_bytes).map_err(|error| error.doing("opening the table"))?;
        let (books, trusted) = Books::read(&table)?;
        let (portions, sum) = checkpoint;
        if books.portions < portions || (books.portions == portions && books.total != sum) {
            let (has, total) = (books.portions, books.total);
            let what = format!("the table has {has} portions, {total:?}; the checkpoint {portions}, {sum:?}");
            return Err(StoreError::damaged(what));
        }
        let trust = books.ranges.keys().map(|first| (first.clone(), trusted)).collect();
        Ok(Ledger {
            table,
            limits,
            books: Mutex::new(books),
            precedence: Precedence::default(),
            trust: Mutex::new(trust),
            all_trusted: AtomicBool::new(trusted),
        })
    }

    /// Returns the limits beyond which ranges and blocks are divided.
    pub(crate) fn limits(&self) -> DivisionLimits {
        self.limits
    }

    /// Returns the number of portions that were written, and the sum of all records.
    pub(crate) fn stands(&self) -> (u64, Sum) {
        let books = self.books();
        (books.portions, books.total)
    }

    /// Returns the upper bound of the journal frames from which the table's content comes.
    pub(crate) fn newest(&self) -> u64 {
        self.books().seq
    }

    /// Waits while ranges are compared for a pending request: not for long, since each range is compared once.
    pub(crate) fn give_way(&self) {
        self.precedence.give_way();
    }

    /// Writes a portion of records, in the order of their keys and without duplicates. No record is from a frame after `seq`.
    /// Not durable before [`Ledger::flush`].
    pub(crate) fn apply(&self, seq: u64, changes: &[BlockEntry]) -> Result<(), StoreError> {
        let mut books = self.books();
        let mut batch = Vec::new();
        let mut touched = BTreeSet::new();
        let mut rest = changes;
        while let Some((key, _)) = rest.first() {
            let range = books.range_of(key);
            let (block, end) = self.block_of(&range, books.end_of(&range), key)?;
            let here = rest.partition_point(|(key, _)| end.as_ref().is_none_or(|end| key < end));
            let (changes, later) = rest.split_at(here);
            rest = later;
            if self.rewrite(&mut books, &range, block, changes, &mut batch)? {
                touched.insert(range);
            }
        }
        books.seq = seq;
        books.portions += 1;
        if !std::mem::replace(&mut books.stored, true) {
            touched.insert(Bytes::new());
        }
        let oversized =
            touched.iter().filter(|first| self.is_oversized(books.ranges[*first])).cloned().collect::<Vec<_>>();
        let tidy = self.all_trusted.load(Ordering::Acquire);
        for first in touched {
            let stored = range_key(&first);
            if tidy && books.ranges[&first] == Sum::default() && !first.is_empty() {
                // An empty range: the range before it covers its keys from now on. Not before all ranges are verified: until
                // then, lookups use the ranges as of the start.
                books.ranges.remove(&first);
                batch.push((stored, None));
            } else {
                batch.push((stored.clone(), Some(seal(&stored, &books.ranges[&first].encode()))));
            }
        }
        batch.push((Bytes::from_static(TOTAL), Some(seal(TOTAL, &books.encode_total()))));
        self.table.apply(&batch).map_err(|error| error.doing("writing to the table"))?;
        oversized.into_iter().try_for_each(|first| self.divide(&mut books, first))
    }

    /// Returns the block of a range that contains a key, if there is one, and the end of that block.
    fn block_of(
        &self,
        range: &Bytes,
        range_end: Option<Bytes>,
        key: &[u8],
    ) -> Result<(Option<Block>, Option<Bytes>), StoreError> {
        let (from, to) = (record_key(range), end_key(range_end.as_ref()));
        let block = self.last(&from, key)?;
        let next =
            self.table.scan(&record_key(&behind(key)), &to, 1).map_err(|error| error.doing("reading the table"))?;
        Ok((block, next.first().map(|(stored, _)| stored.slice(1..)).or(range_end)))
    }

    /// Changes one block, or makes the first block of a range; books the change, and adds the writes to the batch. Returns
    /// `false` where nothing changes.
    fn rewrite(
        &self,
        books: &mut Books,
        range: &Bytes,
        block: Option<Block>,
        changes: &[BlockEntry],
        batch: &mut Vec<BlockEntry>,
    ) -> Result<bool, StoreError> {
        let old = block.as_ref().map_or(Ok(Vec::new()), |(_, block)| blocks::records(block))?;
        let Some(records) = blocks::merge(old, changes) else { return Ok(false) };
        let begin = block.as_ref().map_or(range, |(first, _)| first).clone();
        let parts = blocks::divide(&records, self.limits.block_bytes);
        let firsts = std::iter::once(begin).chain(parts.iter().skip(1).map(|part| part[0].0.clone()));
        let mut new: Vec<_> = firsts.zip(&parts).map(|(first, part)| (first, blocks::encode(part))).collect();
        match block {
            // The added records may all lie behind the old block.
            Some(old) if new.first() == Some(&old) => drop(new.remove(0)),
            Some((first, old)) => {
                books.change(range, |sum| sum.remove(Sum::of(&first, &old)));
                if new.is_empty() {
                    batch.push((record_key(&first), None));
                }
            }
            None => {}
        }
        for (first, block) in new {
            books.change(range, |sum| sum.add(Sum::of(&first, &block)));
            let stored = record_key(&first);
            let sealed = seal(&stored, &block);
            batch.push((stored, Some(sealed)));
        }
        Ok(true)
    }

    /// Makes everything applied so far durable.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        self.table.flush().map_err(|error| match error {
            // The system may show data as written that it could not write: this table is not to be trusted again.
            TableError::Io(error) if !is_full(&error) => StoreError::damaged(format!("flushing the table: {error}")),
            other => other.doing("flushing the table"),
        })
    }

    /// Returns one record.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let (first, _) = self.trust_range(key, true)?;
        match self.last(&record_key(&first), key)? {
            Some((_, block)) => blocks::find(&block, key),
            None => Ok(None),
        }
    }

    /// Returns records from `from` on, in order, up to about `bytes_max` bytes; and whether no record follows.
    pub(crate) fn scan(&self, from: &[u8], bytes_max: usize) -> Result<(Vec<(Bytes, Bytes)>, bool), StoreError> {
        self.read(from, None, bytes_max, true)
    }

    /// Returns some records from `from` on, for a copy of the whole table, and the key at which the copy goes on (`None` at the
    /// end). Each range is compared with its book once more before it is copied: otherwise a lost record would be lost for
    /// good. Only the writer calls it.
    pub(crate) fn copy(&self, from: &Bytes, bytes_max: usize) -> Result<(Vec<Record>, Option<Bytes>), StoreError> {
        let (first, end) = {
            let books = self.books();
            let first = books.range_of(from);
            let end = books.end_of(&first);
            (first, end)
        };
        if first == *from {
            self.verify(&first, end.as_ref())?;
        }
        let (records, done) = self.read(from, end.as_ref(), bytes_max, false)?;
        let next = if done { end } else { records.last().map(|(key, _)| behind(key)) };
        Ok((records, next))
    }

    /// Returns records from `from` on and before `upto`.
    fn read(
        &self,
        from: &[u8],
        upto: Option<&Bytes>,
        bytes_max: usize,
        is_urgent: bool,
    ) -> Result<(Vec<(Bytes, Bytes)>, bool), StoreError> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        let mut from = Bytes::copy_from_slice(from);
        loop {
            // One verified range at a time, until all ranges are verified.
            let (first, end) = self.trust_range(&from, is_urgent)?;
            let end = end.iter().chain(upto).min().cloned();
            // The block that contains `from` may begin before it.
            let begun = self.last(&record_key(&first), &from)?;
            let mut at = record_key(begun.as_ref().map_or(&from, |(first, _)| first));
            loop {
                let page = self.page(&at, &end_key(end.as_ref()), bytes_max.saturating_sub(bytes).max(1))?;
                let Some((last, _)) = page.last() else { break };
                at = record_key(&behind(last));
                for (_, block) in &page {
                    for (key, value) in blocks::records(block)? {
                        // A block may be divided between two reads.
                        if key >= from {
                            bytes += key.len() + value.len();
                            from = behind(&key);
                            found.push((key, value));
                        }
                    }
                }
                if bytes >= bytes_max && !found.is_empty() {
                    return Ok((found, false));
                }
            }
            match end {
                Some(end) if Some(&end) != upto => from = end,
                _ => return Ok((found, true)),
            }
        }
    }

    /// Reads and compares one more of the ranges that existed at the start; `false` when none is left.
    pub(crate) fn verify_next(&self) -> Result<bool, StoreError> {
        // From the end: a reader of the whole table begins at the beginning.
        let next = self.trust().iter().rev().find(|(_, trusted)| !**trusted).map(|(first, _)| first.clone());
        match next {
            Some(first) => self.trust_range(&first, false).map(|_| true),
            None => {
                self.all_trusted.store(true, Ordering::Release);
                Ok(false)
            }
        }
    }

    /// Returns the bytes that the table takes on disk.
    pub(crate) fn disk_bytes(&self) -> Result<u64, StoreError> {
        self.table.disk_bytes().map_err(|error| error.doing("measuring the table"))
    }

    /// Ensures that the range of `key` was compared with its books before a request is answered from it. Returns the begin and
    /// the end of the range as of the start; once all ranges are trusted, they count as one.
    fn trust_range(&self, key: &[u8], is_urgent: bool) -> Result<(Bytes, Option<Bytes>), StoreError> {
        if self.all_trusted.load(Ordering::Acquire) {
            return Ok((Bytes::new(), None));
        }
        let trust = self.trust();
        let upto = (Bound::Unbounded, Bound::Included(key));
        let first = trust.range::<[u8], _>(upto).next_back().map(|(first, trusted)| (first.clone(), *trusted));
        let after = (Bound::Excluded(key), Bound::Unbounded);
        let end = trust.range::<[u8], _>(after).next().map(|(end, _)| end.clone());
        drop(trust);
        let (first, trusted) = first.expect("the first range begins with the empty key");
        if !trusted {
            let _asking = is_urgent.then(|| self.precedence.ask());
            self.verify(&first, end.as_ref())?;
            self.trust().insert(first.clone(), true);
        }
        Ok((first, end))
    }

    /// Compares the blocks from `first` up to `end` with their books. No block changes meanwhile.
    fn verify(&self, first: &Bytes, end: Option<&Bytes>) -> Result<(), StoreError> {
        let books = self.books();
        let upto = end.map_or(Bound::Unbounded, |end| Bound::Excluded(end.clone()));
        let mut parts = books.ranges.range((Bound::Included(first.clone()), upto)).peekable();
        while let Some((first, sum)) = parts.next() {
            let part_end = parts.peek().map(|(next, _)| *next).or(end);
            let mut found = Sum::default();
            self.walk(first, part_end, |key, value| found.add(Sum::of(key, value)))?;
            compare(first, *sum, found)?;
        }
        Ok(())
    }

    /// Divides a range into several. It reads the whole range anyway, so it also compares the range with its book.
    fn divide(&self, books: &mut Books, first: Bytes) -> Result<(), StoreError> {
        let (whole, end) = (books.ranges[&first], books.end_of(&first));
        let (blocks_max, bytes_max) = (self.limits.range_blocks / 2, self.limits.range_bytes / 2);
        let mut parts = vec![(first.clone(), Sum::default())];
        let mut found = Sum::default();
        self.walk(&first, end.as_ref(), |key, value| {
            let one = Sum::of(key, value);
            found.add(one);
            let (_, part) = parts.last_mut().expect("never empty");
            if part.entries > 0 && (part.entries >= blocks_max || part.bytes >= bytes_max) {
                parts.push((key.clone(), one));
            } else {
                part.add(one);
            }
        })?;
        compare(&first, whole, found)?;
        for (first, sum) in &parts {
            books.ranges.insert(first.clone(), *sum);
        }
        let stored = |(first, sum): &(Bytes, Sum)| {
            let key = range_key(first);
            (key.clone(), Some(seal(&key, &sum.encode())))
        };
        let mut batch = parts.iter().map(stored).collect::<Vec<_>>();
        batch.push((Bytes::from_static(TOTAL), Some(seal(TOTAL, &books.encode_total()))));
        self.table.apply(&batch).map_err(|error| error.doing("writing to the table"))
    }

    fn walk(&self, first: &Bytes, end: Option<&Bytes>, mut each: impl FnMut(&Bytes, &Bytes)) -> Result<(), StoreError> {
        let mut from = record_key(first);
        let to = end_key(end);
        loop {
            let page = self.page(&from, &to, PAGE)?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            from = record_key(&behind(last));
            page.iter().for_each(|(key, value)| each(key, value));
        }
    }

    /// Returns a page of blocks with their keys, after a check of their checksums.
    fn page(&self, from: &[u8], to: &[u8], bytes_max: usize) -> Result<Vec<Block>, StoreError> {
        let page = self.table.scan(from, to, bytes_max).map_err(|error| error.doing("reading the table"))?;
        page.into_iter().map(|(stored, value)| Ok((stored.slice(1..), unseal(&stored, &value)?))).collect()
    }

    /// Returns the last block that begins at `upto` or before, among entries from `from` on.
    fn last(&self, from: &[u8], upto: &[u8]) -> Result<Option<Block>, StoreError> {
        let last = self.table.last(from, &record_key(upto)).map_err(|error| error.doing("reading the table"))?;
        last.map(|(stored, block)| Ok((stored.slice(1..), unseal(&stored, &block)?))).transpose()
    }

    fn is_oversized(&self, sum: Sum) -> bool {
        sum.entries > 1 && (sum.entries > self.limits.range_blocks || sum.bytes > self.limits.range_bytes)
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // After a panic the books may be half changed; then they do not fit the table, and verification finds that.
        lock(&self.books)
    }

    fn trust(&self) -> MutexGuard<'_, Trust> {
        lock(&self.trust)
    }
}

impl Books {
    /// Reads the books of a table, and returns whether they are trusted already: the books of an empty table are.
    fn read(table: &Pieces) -> Result<(Books, bool), StoreError> {
        let failed = |error: TableError| error.doing("reading the table's ledger");
        let Some(total) = table.get(TOTAL).map_err(failed)? else {
            if !table.scan(&[], &[0xff], 1).map_err(failed)?.is_empty() {
                return Err(StoreError::damaged("the table has lost its total"));
            }
            let ranges = BTreeMap::from([(Bytes::new(), Sum::default())]);
            return Ok((Books { stored: false, portions: 0, seq: 0, total: Sum::default(), ranges }, true));
        };
        let nonsense = || StoreError::damaged("the table's ledger is unreadable");
        let total = unseal(TOTAL, &total)?;
        let mut reader = Reader::new(&total);
        // The manifest is in our format, so this table came from elsewhere, for example out of a copy.
        let container = reader.u32().ok_or_else(nonsense)?;
        if container != CONTAINER_VERSION {
            return Err(StoreError::Version { found: StoreFormat { container, ..StoreFormat::OURS }, by: None });
        }
        let mut number = || reader.u64().ok_or_else(nonsense);
        let (portions, seq, count) = (number()?, number()?, number()?);
        let total = Sum::read(&mut reader).ok_or_else(nonsense)?;
        let (mut ranges, mut found) = (BTreeMap::new(), Sum::default());
        let (mut from, to) = (Bytes::from_static(&[RANGES]), [RANGES + 1]);
        loop {
            let page = table.scan(&from, &to, PAGE).map_err(failed)?;
            let Some((last, _)) = page.last() else { break };
            from = behind(last);
            for (stored, value) in page {
                let sum = Sum::read(&mut Reader::new(&unseal(&stored, &value)?)).ok_or_else(nonsense)?;
                found.add(sum);
                ranges.insert(stored.slice(1..), sum);
            }
        }
        if ranges.len() as u64 != count || found != total || !ranges.contains_key(&[][..]) {
            return Err(StoreError::damaged("the table's ledger has a wrong total"));
        }
        Ok((Books { stored: true, portions, seq, total, ranges }, false))
    }

    fn range_of(&self, key: &[u8]) -> Bytes {
        let upto = (Bound::Unbounded, Bound::Included(key));
        let range = self.ranges.range::<[u8], _>(upto).next_back();
        range.map(|(first, _)| first.clone()).expect("the first range begins with the empty key")
    }

    fn end_of(&self, first: &Bytes) -> Option<Bytes> {
        let after = (Bound::Excluded(first.clone()), Bound::Unbounded);
        self.ranges.range(after).next().map(|(end, _)| end.clone())
    }

    fn change(&mut self, first: &Bytes, change: impl Fn(&mut Sum)) {
        change(&mut self.total);
        change(self.ranges.get_mut(first).expect("a range that was just found"));
    }

    fn encode_total(&self) -> Vec<u8> {
        let mut out = CONTAINER_VERSION.to_le_bytes().to_vec();
        out.extend_from_slice(&self.portions.to_le_bytes());
        out.extend_from_slice(&self.seq.to_le_bytes());
        out.extend_from_slice(&(self.ranges.len() as u64).to_le_bytes());
        self.total.put(&mut out);
        out
    }
}

impl Sum {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.put(&mut out);
        out
    }
}

fn compare(first: &Bytes, booked: Sum, found: Sum) -> Result<(), StoreError> {
    if booked == found {
        return Ok(());
    }
    let first = first.escape_ascii();
    Err(StoreError::damaged(format!("the table's range from '{first}' should have {booked:?} and has {found:?}")))
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

fn record_key(key: &[u8]) -> Bytes {
    prefixed(RECORDS, key)
}

/// Returns the key behind the blocks that begin before `end`; behind all blocks if `end` is `None`.
fn end_key(end: Option<&Bytes>) -> Bytes {
    end.map_or(Bytes::from_static(&[RECORDS + 1]), |end| record_key(end))
}

/// Returns the first key behind `key`.
pub(crate) fn behind(key: &[u8]) -> Bytes {
    [key, &[0]].concat().into()
}

fn range_key(first: &[u8]) -> Bytes {
    prefixed(RANGES, first)
}

fn prefixed(prefix: u8, key: &[u8]) -> Bytes {
    let mut stored = Vec::with_capacity(1 + key.len());
    stored.push(prefix);
    stored.extend_from_slice(key);
    stored.into()
}

#[cfg(test)]
#[path = "ledger_golden.rs"]
pub(crate) mod golden;
