//! Disk of a member: all data that the member wrote, and the durable part of it.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use group::ballot::LogSlot;
use group::outbox::{BatchToken, Durable};
use group::record::Record;
use group::{Doubt, Stored};
use overlay::Key;

use super::content::Content;

/// Disk of one member.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// Content that reads see.
    view: Content,
    durable: Content,
    waiting: VecDeque<(BatchToken, Vec<Durable>)>,
    /// Durable content before the last durable batch, where that batch may be lost.
    before: Option<Box<Content>>,
    /// Whether the last durable batch may be lost.
    pub may_tear: bool,
}

impl Disk {
    /// Takes a batch to write.
    pub fn write(&mut self, token: BatchToken, changes: Vec<Durable>) {
        changes.iter().for_each(|change| self.view.change(change.clone()));
        self.waiting.push_back((token, changes));
    }

    /// Makes the oldest waiting batch durable. Returns its token.
    pub fn sync(&mut self) -> Option<BatchToken> {
        let (token, changes) = self.waiting.pop_front()?;
        if self.may_tear {
            self.before = Some(Box::new(self.durable.clone()));
        }
        changes.into_iter().for_each(|change| self.durable.change(change));
        Some(token)
    }

    /// Drops all data that is not durable.
    pub fn crash(&mut self) {
        self.waiting.clear();
        self.view = self.durable.clone();
    }

    /// Begins a process: a doubt has outlasted one more run.
    pub fn open(&mut self) {
        if let Some(doubt) = self.durable.stored(true).doubt {
            self.durable.change(Durable::Doubt(Some(doubt.again())));
            self.view = self.durable.clone();
        }
    }

    /// Drops the last durable batch, too. Returns false where there is none that may be lost.
    pub fn tear(&mut self) -> bool {
        let Some(before) = self.before.take().filter(|before| before.state.is_some()) else { return false };
        self.durable = *before;
        self.crash();
        true
    }

    /// Notes that the end of the disk is known to be bad: durable data may be lost.
    pub fn doubt(&mut self) {
        // The next start counts its own run.
        let runs = self.durable.stored(true).doubt.map_or(0, |doubt| doubt.runs);
        self.durable.change(Durable::Doubt(Some(Doubt { runs, ..Doubt::new() })));
        self.view = self.durable.clone();
    }

    /// Returns the last slot of the durable state; slot 0 where no state is durable.
    pub fn applied(&self) -> LogSlot {
        self.durable.state.as_ref().map_or(LogSlot(0), |state| state.applied)
    }

    /// Returns whether nothing is durable.
    pub fn is_empty(&self) -> bool {
        self.durable.state.is_none()
    }

    /// Returns a record as the store has it.
    pub fn load(&self, key: &Key) -> Option<Arc<Record>> {
        self.view.records.get(key).cloned()
    }

    /// Returns a page of records of about `bytes_max` bytes, and whether it is the last.
    pub fn scan(&self, from: Bound<Key>, bytes_max: usize) -> (Vec<(Key, Arc<Record>)>, bool) {
        let (mut page, mut bytes) = (Vec::new(), 0);
        for (key, record) in self.view.records.range((from, Bound::Unbounded)) {
            if bytes >= bytes_max && !page.is_empty() {
                return (page, false);
            }
            bytes += record.bytes() + key.name().len();
            page.push((key.clone(), record.clone()));
        }
        (page, true)
    }

    /// Returns the data that a member gets back when it starts again.
    pub fn stored(&self, sealed: bool) -> Stored {
        self.durable.stored(sealed)
    }
}
