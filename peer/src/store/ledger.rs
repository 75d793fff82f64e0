//! The table with its books: for every range of records their [`Sum`], changed in the same atomic batch as the records.
//!
//! A damaged sled may open without complaint and answer "absent" for a record that was there, or give back an older one.
//! To read the whole table at every start would catch that, and take minutes for a large store. So the books are kept
//! for ranges of about a thousand records, and a range that was there at the start is read and compared *once, before
//! the first answer from it*: a few milliseconds at the first touch, nothing at the start. A thread in the background
//! goes through the rest ([`Ledger::verify_next`]). The ranges' sums add up to a total, the total is bound to a count
//! of what was written and, at a checkpoint, to the manifest; so a lost or outdated book is found at the start.
//!
//! Keys in the table: `m` the total, `g<first key>` a range's sum, `r<key>` a record.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;

use super::codec::Reader;
use super::error::StoreError;
use super::pending::lock;
use super::precedence::Precedence;
use super::sum::Sum;
use super::table::{Table, TableError, seal, unseal};

const TOTAL: &[u8] = b"m";
const RANGES: u8 = b'g';
const RECORDS: u8 = b'r';
/// Bytes read from the table at once.
const PAGE: usize = 1 << 20;

/// When a range is divided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RangeLimits {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

/// The table with its books.
pub(crate) struct Ledger {
    table: Box<dyn Table>,
    limits: RangeLimits,
    books: Mutex<Books>,
    precedence: Precedence,
    trust: Mutex<Trust>,
    /// Every range was read and compared: nothing more to ask.
    all_trusted: AtomicBool,
}

struct Books {
    /// They are in the table, and not just those of an empty one.
    stored: bool,
    /// So many portions were written.
    portions: u64,
    /// Nothing in the table is from a later frame of the journal.
    seq: u64,
    total: Sum,
    /// By the first key of each range; a range ends where the next begins.
    ranges: BTreeMap<Bytes, Sum>,
}

/// The ranges as they were at the start, and whether each was read and compared since.
type Trust = BTreeMap<Bytes, bool>;

impl Ledger {
    /// Reads the books of a table and compares them with each other. `checkpoint` is what the manifest knows.
    pub(crate) fn open(
        table: Box<dyn Table>,
        limits: RangeLimits,
        checkpoint: (u64, Sum),
    ) -> Result<Ledger, StoreError> {
        let (books, trusted) = Books::read(&*table)?;
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

    /// How many portions were written, and the sum of all records.
    pub(crate) fn stands(&self) -> (u64, Sum) {
        let books = self.books();
        (books.portions, books.total)
    }

    /// Nothing in the table is from a later frame of the journal.
    pub(crate) fn newest(&self) -> u64 {
        self.books().seq
    }

    /// Waits while ranges are compared in order to answer somebody: not for long, since each range is compared once.
    pub(crate) fn give_way(&self) {
        self.precedence.give_way();
    }

    /// Writes a portion of records, in the order of their keys and none twice. None of them is from a frame after `seq`.
    /// Not durable before [`Ledger::flush`].
    pub(crate) fn apply(&self, seq: u64, changes: &[(Bytes, Option<Bytes>)]) -> Result<(), StoreError> {
        let mut books = self.books();
        let mut batch = Vec::with_capacity(changes.len() + 16);
        let mut touched = BTreeSet::new();
        for (key, value) in changes {
            let stored = record_key(key);
            let old = self.read(&stored)?;
            if old.as_ref() == value.as_ref() {
                continue;
            }
            let first = books.range_of(key);
            if let Some(old) = &old {
                books.change(&first, |sum| sum.remove(Sum::of(key, old)));
            }
            if let Some(new) = value {
                books.change(&first, |sum| sum.add(Sum::of(key, new)));
            }
            touched.insert(first);
            batch.push((stored.clone(), value.as_ref().map(|value| seal(&stored, value))));
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
                // Empty: the range before it covers its keys from now on. Not before all is verified: until then ranges
                // are still looked up as they were at the start.
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

    /// Makes everything applied so far durable.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        self.table.flush().map_err(|error| match error {
            // What the system could not write it may show as written from now on: this table is not to be trusted again.
            TableError::Io(error) if !is_full(&error) => StoreError::damaged(format!("flushing the table: {error}")),
            other => other.doing("flushing the table"),
        })
    }

    /// One record.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.trust_range_of(key)?;
        self.read(&record_key(key))
    }

    /// Records from `from` on, in order, until they have about `bytes_max` bytes; and whether these are all.
    pub(crate) fn scan(&self, from: &[u8], bytes_max: usize) -> Result<(Vec<(Bytes, Bytes)>, bool), StoreError> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        let mut from = record_key(from);
        loop {
            // One verified range at a time, until all are.
            let end = self.trust_range_of(&from[1..])?;
            let to = end.as_ref().map_or(Bytes::from_static(&[RECORDS + 1]), |end| record_key(end));
            let page = self.page(&from, &to, bytes_max.saturating_sub(bytes).max(1))?;
            bytes += page.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
            let exhausted = page.is_empty();
            if let Some((last, _)) = page.last() {
                from = record_key(&[last, &[0][..]].concat());
            }
            found.extend(page);
            if exhausted {
                match end {
                    Some(end) => from = record_key(&end),
                    None => return Ok((found, true)),
                }
            }
            if bytes >= bytes_max && !found.is_empty() {
                return Ok((found, false));
            }
        }
    }

    /// Reads and compares one more range of those there were at the start; `false` when none is left.
    pub(crate) fn verify_next(&self) -> Result<bool, StoreError> {
        // From the end: whoever reads everything begins at the beginning.
        let next = self.trust().iter().rev().find(|(_, trusted)| !**trusted).map(|(first, _)| first.clone());
        match next {
            Some(first) => self.trust_range(&first, false).map(|_| true),
            None => {
                self.all_trusted.store(true, Ordering::Release);
                Ok(false)
            }
        }
    }

    /// Bytes on disk.
    pub(crate) fn disk_bytes(&self) -> Result<u64, StoreError> {
        self.table.disk_bytes().map_err(|error| error.doing("measuring the table"))
    }

    /// Sees to it that the range of `key` was compared with its books before somebody is answered from it, and says where
    /// it ends (as it was at the start).
    fn trust_range_of(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.trust_range(key, true)
    }

    fn trust_range(&self, key: &[u8], is_urgent: bool) -> Result<Option<Bytes>, StoreError> {
        if self.all_trusted.load(Ordering::Acquire) {
            return Ok(None);
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
            self.trust().insert(first, true);
        }
        Ok(end)
    }

    /// Compares the records from `first` up to `end` with their books. No record changes meanwhile.
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

    /// Divides a range into several. Reading all of it anyway, compares it with its book.
    fn divide(&self, books: &mut Books, first: Bytes) -> Result<(), StoreError> {
        let (whole, end) = (books.ranges[&first], books.end_of(&first));
        let (records_max, bytes_max) = (self.limits.records / 2, self.limits.bytes / 2);
        let mut parts = vec![(first.clone(), Sum::default())];
        let mut found = Sum::default();
        self.walk(&first, end.as_ref(), |key, value| {
            let one = Sum::of(key, value);
            found.add(one);
            let (_, part) = parts.last_mut().expect("never empty");
            if part.records > 0 && (part.records >= records_max || part.bytes >= bytes_max) {
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
        let to = end.map_or(Bytes::from_static(&[RECORDS + 1]), |end| record_key(end));
        loop {
            let page = self.page(&from, &to, PAGE)?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            from = record_key(&[last, &[0][..]].concat());
            page.iter().for_each(|(key, value)| each(key, value));
        }
    }

    /// A page of records, their checksums tested.
    fn page(&self, from: &[u8], to: &[u8], bytes_max: usize) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let page = self.table.scan(from, to, bytes_max).map_err(|error| error.doing("reading the table"))?;
        page.into_iter().map(|(stored, value)| Ok((stored.slice(1..), unseal(&stored, &value)?))).collect()
    }

    fn read(&self, stored: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let value = self.table.get(stored).map_err(|error| error.doing("reading the table"))?;
        value.map(|value| unseal(stored, &value)).transpose()
    }

    fn is_oversized(&self, sum: Sum) -> bool {
        sum.records > 1 && (sum.records > self.limits.records || sum.bytes > self.limits.bytes)
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // After a panic in between the books may be half changed; then they no longer fit the table, which is found.
        lock(&self.books)
    }

    fn trust(&self) -> MutexGuard<'_, Trust> {
        lock(&self.trust)
    }
}

impl Books {
    /// The books of a table, and whether they can be trusted already: those of an empty one.
    fn read(table: &dyn Table) -> Result<(Books, bool), StoreError> {
        let failed = |error: TableError| error.doing("reading the table's books");
        let Some(total) = table.get(TOTAL).map_err(failed)? else {
            if !table.scan(&[], &[0xff], 1).map_err(failed)?.is_empty() {
                return Err(StoreError::damaged("the table has lost its total"));
            }
            let ranges = BTreeMap::from([(Bytes::new(), Sum::default())]);
            return Ok((Books { stored: false, portions: 0, seq: 0, total: Sum::default(), ranges }, true));
        };
        let nonsense = || StoreError::damaged("the table's books are unreadable");
        let total = unseal(TOTAL, &total)?;
        let mut reader = Reader::new(&total);
        let mut number = || reader.u64().ok_or_else(nonsense);
        let (portions, seq, count) = (number()?, number()?, number()?);
        let total = Sum::read(&mut reader).ok_or_else(nonsense)?;
        let (mut ranges, mut found) = (BTreeMap::new(), Sum::default());
        let (mut from, to) = (Bytes::from_static(&[RANGES]), [RANGES + 1]);
        loop {
            let page = table.scan(&from, &to, PAGE).map_err(failed)?;
            let Some((last, _)) = page.last() else { break };
            from = [last, &[0][..]].concat().into();
            for (stored, value) in page {
                let sum = Sum::read(&mut Reader::new(&unseal(&stored, &value)?)).ok_or_else(nonsense)?;
                found.add(sum);
                ranges.insert(stored.slice(1..), sum);
            }
        }
        if ranges.len() as u64 != count || found != total || !ranges.contains_key(&[][..]) {
            return Err(StoreError::damaged("the table's books do not add up"));
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
        let mut out = Vec::new();
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

fn range_key(first: &[u8]) -> Bytes {
    prefixed(RANGES, first)
}

fn prefixed(prefix: u8, key: &[u8]) -> Bytes {
    let mut stored = Vec::with_capacity(1 + key.len());
    stored.push(prefix);
    stored.extend_from_slice(key);
    stored.into()
}
