//! Read of the store's records into memory, page by page, when a member begins.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

use overlay::Key;

use crate::data::table::Table;
use crate::outbox::{GroupOutput, Outbox, ScanToken};
use crate::record::Record;

/// Token of the scan that fills the table at start.
pub(crate) const PRELOAD: ScanToken = ScanToken(0);
/// Size of a page of that scan, in bytes.
const PRELOAD_BYTES: usize = 1 << 20;

/// Whether the records of the store are still read into the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Preload {
    goes_on: bool,
}

impl Preload {
    /// Returns the read for a table that does not hold all records of the store yet, if it does not.
    pub(crate) fn new(lacks_some: bool) -> Preload {
        Preload { goes_on: lacks_some }
    }

    /// Asks for the first page.
    pub(crate) fn begin(self, out: &mut Outbox) {
        if self.goes_on {
            out.push(GroupOutput::Scan(PRELOAD, Bound::Unbounded, PRELOAD_BYTES));
        }
    }

    /// Takes a page, and asks for the next one while there is room for it.
    pub(crate) fn on_page(
        &mut self,
        table: &mut Table,
        out: &mut Outbox,
        records: Vec<(Key, Arc<Record>)>,
        done: bool,
    ) {
        if !self.goes_on {
            return;
        }
        let last = records.last().map(|(key, _)| key.clone());
        let room = table.preload(records);
        if room && done {
            table.set_whole();
        }
        self.goes_on = room && !done && last.is_some();
        if let Some(last) = last.filter(|_| self.goes_on) {
            out.push(GroupOutput::Scan(PRELOAD, Bound::Excluded(last), PRELOAD_BYTES));
        }
    }

    /// Ends the read: a page that was read before may be older than an evicted record.
    pub(crate) fn on_evicted(&mut self) {
        self.goes_on = false;
    }
}
