//! A list in a store of small values, with concurrent appends by any number of clients (`Scatter §7.2.1`).
//!
//! The items stand one behind the other, each with a line end, in *blocks*: the values of `K`, `K/1`, `K/2` and so on,
//! of [`BLOCK_BYTES`] at most. The first block, the *head*, begins with a line that names the last block, and the
//! number of items in the blocks before it. So a reader finds the tail with two reads, or with one where it has been
//! there before.
//!
//! Appending is one operation of the store, as long as there is room. A client that finds no room
//! 1. fills the rest of the block with line ends, so that no further item fits, not even a short one: the block is
//!    *sealed*;
//! 2. names the next block as the last in the head; and then appends there.
//!
//! # Invariants
//! - A sealed block never changes, but for the first line of the head. A block that is not sealed is the last one.
//! - The number of the last block goes up by one at a time, and only past a sealed block.
//! - No item is ever in a block that the head does not name. So there are no orphans to sweep: a client that dies
//!   between the two steps leaves a sealed block, or a last block that is not there yet, and the next client goes on
//!   from there. (The paper writes the new block first and links it then.)
//! - Items that one client appends one after the other are in this order.

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};

use crate::error::Error;
use crate::patience::Pauses;
use crate::store::Store;

/// Size of a block, in bytes (`Scatter §7.2.1`).
pub const BLOCK_BYTES: usize = 8192;
/// Upper limit of an item, in bytes: the longest item fits into a head.
pub const ITEM_BYTES_MAX: usize = BLOCK_BYTES - HEADER_BYTES - 2;
/// Upper limit of concurrent reads of one list's blocks.
const BLOCKS_AT_ONCE: usize = 32;

/// First word of a head. Behind it stand the last block in [`LAST_DIGITS`], the number of items before it in
/// [`BEFORE_DIGITS`], with blanks between, and a line end.
const MAGIC: &str = "chirp1";
const LAST_DIGITS: usize = 8;
const BEFORE_DIGITS: usize = 10;
const HEADER_BYTES: usize = MAGIC.len() + 1 + LAST_DIGITS + 1 + BEFORE_DIGITS + 1;
/// Highest block that may have a successor; the block behind it is the last one that a head can name.
const BLOCKS_MAX: u32 = 99_999_998;
const BEFORE_MAX: u64 = 9_999_999_999;
/// Upper limit of attempts to write an item while other clients write first each time.
const TRIES_MAX: usize = 100;

/// The way in which an item is appended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AppendMode {
    /// The store appends, in one operation.
    #[default]
    Atomic,
    /// As in the paper: the client reads and writes the block, which takes two operations. Unlike there, it writes only
    /// if no other client has written meanwhile, and otherwise reads again.
    ReadModifyWrite,
}

/// A list in a store.
#[derive(Debug)]
pub struct List<'a, S> {
    store: &'a S,
    key: String,
    mode: AppendMode,
    #[cfg(test)]
    pub(crate) defect: Defect,
}

/// An error that a list makes on purpose, so that tests show that they would find it.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Defect {
    #[default]
    None,
    /// Goes past a block without sealing it.
    NoSeal,
    /// Writes the changed block over concurrent writes of other clients: the paper's way.
    Blind,
    /// Appends to a block before the head names it.
    NotNamed,
}

/// A place in a list: all items before it have been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Number of the block.
    pub block: u32,
    /// Bytes of the block before the place.
    pub bytes: usize,
}

/// The end of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// The last items, oldest first.
    pub items: Vec<Vec<u8>>,
    /// Number of all items.
    pub count: u64,
    /// Place behind the last item.
    pub place: Place,
}

/// The first line of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    /// Number of the last block.
    last: u32,
    /// Number of items in the blocks before it.
    before: u64,
}

impl Header {
    /// Returns the line as it is stored. Its numbers are within [`BLOCKS_MAX`] and [`BEFORE_MAX`], as [`Header::of`]
    /// and [`Header::next`] give them.
    fn line(self) -> String {
        format!("{MAGIC} {:0LAST_DIGITS$} {:0BEFORE_DIGITS$}\n", self.last, self.before)
    }

    /// Parses a head; `None` where the bytes are no head.
    fn of(head: &[u8]) -> Option<Header> {
        let line = std::str::from_utf8(head.get(..HEADER_BYTES)?).ok()?;
        let mut words = line.strip_suffix('\n')?.split(' ');
        let magic = words.next()?;
        let header = Header {
            last: number(words.next()?, LAST_DIGITS)?.try_into().ok()?,
            before: number(words.next()?, BEFORE_DIGITS)?,
        };
        (magic == MAGIC && words.next().is_none()).then_some(header)
    }

    /// Returns the header after so many more items, with the next block as the last; `None` where no head can name that
    /// block.
    fn next(self, items: u64) -> Option<Header> {
        let before = self.before.checked_add(items)?;
        (self.last <= BLOCKS_MAX && before <= BEFORE_MAX).then(|| Header { last: self.last + 1, before })
    }
}

/// Parses a number of exactly so many digits.
fn number(word: &str, digits: usize) -> Option<u64> {
    let fits = word.len() == digits && word.bytes().all(|byte| byte.is_ascii_digit());
    fits.then(|| word.parse().ok())?
}

/// Turns "unknown" into "not done": the item itself was not written, whatever the outcome of the steps before it.
fn nothing_done(error: Error) -> Error {
    if let Error::Unknown(why) = error { Error::TryAgain(why) } else { error }
}

/// Returns the items in these bytes of a block; the filling of a block has none.
fn items(bytes: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    bytes.split(|byte| *byte == b'\n').filter(|item| !item.is_empty())
}

/// Returns the part of a block that holds items.
fn body(index: u32, block: &[u8]) -> &[u8] {
    if index == 0 { block.get(HEADER_BYTES..).unwrap_or_default() } else { block }
}

impl<'a, S: Store> List<'a, S> {
    /// Returns the list under this key; it need not exist.
    pub fn new(store: &'a S, key: impl Into<String>, mode: AppendMode) -> List<'a, S> {
        List {
            store,
            key: key.into(),
            mode,
            #[cfg(test)]
            defect: Defect::None,
        }
    }

    /// Returns the key of the head.
    pub fn key(&self) -> &str {
        &self.key
    }

    fn block(&self, index: u32) -> String {
        if index == 0 { self.key.clone() } else { format!("{}/{index}", self.key) }
    }

    /// Returns the bytes of a block; a block that does not exist yet is empty.
    async fn read(&self, index: u32) -> Result<Vec<u8>, Error> {
        let block = self.store.get(&self.block(index)).await?.unwrap_or_default();
        if block.len() > BLOCK_BYTES {
            return Err(self.foreign());
        }
        if index == 0 && !block.is_empty() {
            self.header(&block)?;
        }
        Ok(block)
    }

    fn foreign(&self) -> Error {
        Error::Foreign(self.key.clone())
    }

    fn header(&self, head: &[u8]) -> Result<Header, Error> {
        Header::of(head).ok_or_else(|| self.foreign())
    }

    /// Appends an item, which must not be empty or have a line end in it. `tail` is the last known block, and is
    /// updated to the one that is found: a caller that keeps it for the next time saves reading the head.
    ///
    /// # Errors
    /// [`Error::Unknown`] where the item may be there, or come to be there; with any other it is not.
    ///
    /// # Panics
    /// Where the item is empty, has a line end, or is longer than [`ITEM_BYTES_MAX`].
    pub async fn append(&self, item: &[u8], tail: &mut Option<u32>) -> Result<(), Error> {
        let fits = !item.is_empty() && item.len() <= ITEM_BYTES_MAX && !item.contains(&b'\n');
        assert!(fits, "an item of {} bytes", item.len());
        // The item begins a line, whatever bytes another client has left there.
        let line = [b"\n", item, b"\n"].concat();
        loop {
            let last = match *tail {
                Some(last) => last,
                None => self.last_or_begin().await.map_err(nothing_done)?,
            };
            *tail = Some(last);
            if self.put(last, &line).await? {
                return Ok(());
            }
            #[cfg(test)]
            if self.defect == Defect::NotNamed && self.put(last + 1, &line).await? {
                *tail = Some(self.go_past(last).await?);
                return Ok(());
            }
            *tail = Some(self.go_past(last).await.map_err(nothing_done)?);
        }
    }

    /// Returns the number of the last block; begins a list that does not exist.
    async fn last_or_begin(&self) -> Result<u32, Error> {
        let head = self.read(0).await?;
        if !head.is_empty() {
            return Ok(self.header(&head)?.last);
        }
        if self.store.create(&self.key, Header { last: 0, before: 0 }.line().as_bytes()).await? {
            return Ok(0);
        }
        // Another client was first.
        self.header(&self.read(0).await?).map(|header| header.last)
    }

    /// Appends a line to a block; returns false where it does not fit.
    async fn put(&self, index: u32, line: &[u8]) -> Result<bool, Error> {
        let key = self.block(index);
        if self.mode == AppendMode::Atomic {
            let length = self.store.append(&key, BLOCK_BYTES, line).await?;
            // Another client has removed the head since it was read.
            let is_headless = index == 0 && length.is_some_and(|length| length < HEADER_BYTES + line.len());
            return if is_headless { Err(self.foreign()) } else { Ok(length.is_some()) };
        }
        let mut pauses = Pauses::default();
        for _ in 0..TRIES_MAX {
            let (block, seen) = self.store.versioned(&key).await?;
            let mut block = block.unwrap_or_default();
            if block.len() + line.len() > BLOCK_BYTES {
                return Ok(false);
            }
            block.extend_from_slice(line);
            #[cfg(test)]
            let seen = if self.defect == Defect::Blind { self.store.versioned(&key).await?.1 } else { seen };
            if self.store.replace(&key, &seen, &block).await? {
                return Ok(true);
            }
            self.store.pause(&mut pauses).await;
        }
        Err(Error::TryAgain("others write there all the time".into()))
    }

    /// Names the block behind this full one as the last, unless the head names a later one; returns the last block.
    async fn go_past(&self, full: u32) -> Result<u32, Error> {
        let (mut pauses, mut tried) = (Pauses::default(), false);
        if !self.seal(full).await? {
            // Another client sealed it, and is about to name the next block in the head.
            self.store.pause(&mut pauses).await;
        }
        loop {
            let (head, seen) = self.store.versioned(&self.key).await?;
            let mut head = head.ok_or_else(|| self.foreign())?;
            let header = self.header(&head)?;
            if header.last > full {
                return Ok(header.last);
            }
            let sealed = if full == 0 { head.clone() } else { self.read(full).await? };
            let more = items(body(full, &sealed)).count() as u64;
            let next = header.next(more).filter(|_| header.last == full).ok_or_else(|| self.foreign())?;
            head[..HEADER_BYTES].copy_from_slice(next.line().as_bytes());
            if std::mem::replace(&mut tried, true) {
                // The write was not done, or another client appended to the head, which is sealed: that is over soon.
                self.store.pause(&mut pauses).await;
            }
            self.store.try_replace(&self.key, &seen, &head).await?;
        }
    }

    /// Fills the rest of a block; returns whether there was any.
    async fn seal(&self, index: u32) -> Result<bool, Error> {
        let key = self.block(index);
        #[cfg(test)]
        if self.defect == Defect::NoSeal {
            return Ok(true);
        }
        loop {
            let left = BLOCK_BYTES.saturating_sub(self.store.length(&key).await?);
            if left == 0 {
                return Ok(false);
            }
            // The filling does not fit where another client appended meanwhile.
            if self.store.append(&key, BLOCK_BYTES, &b"\n".repeat(left)).await?.is_some() {
                return Ok(true);
            }
        }
    }

    /// Returns at least the last `wanted` items: all of the last block, and of as many blocks before it as needed.
    ///
    /// # Errors
    /// [`Error::Foreign`] where the keys hold no list; those of the store.
    pub async fn tail(&self, wanted: usize) -> Result<Tail, Error> {
        let head = self.read(0).await?;
        if head.is_empty() {
            return Ok(Tail::default());
        }
        let Header { last, before } = self.header(&head)?;
        let newest = if last == 0 { head.clone() } else { self.read(last).await? };
        let mut found: Vec<Vec<u8>> = items(body(last, &newest)).rev().map(<[u8]>::to_vec).collect();
        let count = before + found.len() as u64;
        let mut older = stream::iter((0..last).rev().map(|index| {
            let head = &head;
            async move {
                let block = if index == 0 { head.clone() } else { self.read(index).await? };
                // A head may name any number of blocks; blocks that do not exist are not read one by one.
                let is_sealed = block.len() >= BLOCK_BYTES;
                if is_sealed { Ok((index, block)) } else { Err(self.foreign()) }
            }
        }))
        .buffered(BLOCKS_AT_ONCE.min(1 + wanted / 32));
        while found.len() < wanted
            && let Some((index, block)) = older.try_next().await?
        {
            found.extend(items(body(index, &block)).rev().map(<[u8]>::to_vec));
        }
        found.reverse();
        Ok(Tail { items: found, count, place: Place { block: last, bytes: newest.len() } })
    }

    /// Returns the items behind a place, oldest first, and moves the place behind them. Where there are none, this
    /// takes one operation that carries next to nothing.
    ///
    /// # Errors
    /// The place is unchanged: the next call finds the same items again.
    pub async fn since(&self, place: &mut Place) -> Result<Vec<Vec<u8>>, Error> {
        let (mut found, mut at) = (Vec::new(), *place);
        loop {
            // A block exists only if the head names it, and the head names it once the block before is full.
            let next = if at.bytes < BLOCK_BYTES { at } else { Place { block: at.block.saturating_add(1), bytes: 0 } };
            let read = if next.block == 0 { next.bytes.max(HEADER_BYTES) } else { next.bytes };
            let length = self.store.length(&self.block(next.block)).await?;
            if length < next.bytes || length > BLOCK_BYTES {
                return Err(self.foreign());
            }
            if length <= read {
                *place = at;
                return Ok(found);
            }
            let block = self.read(next.block).await?;
            found.extend(items(block.get(read..).unwrap_or_default()).map(<[u8]>::to_vec));
            at = Place { block: next.block, bytes: block.len() };
        }
    }
}

#[cfg(test)]
#[path = "list_test.rs"]
mod tests;
