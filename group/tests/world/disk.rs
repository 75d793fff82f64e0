//! What a member has on disk: all that it handed out, and of that what is durable.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use group::Stored;
use group::outbox::Durable;
use group::record::Record;
use overlay::Key;

use super::content::Content;

/// One member's disk.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// What reads see.
    view: Content,
    durable: Content,
    waiting: VecDeque<(u64, Vec<Durable>)>,
}

impl Disk {
    /// A batch to be written.
    pub fn write(&mut self, token: u64, changes: Vec<Durable>) {
        changes.iter().for_each(|change| self.view.change(change.clone()));
        self.waiting.push_back((token, changes));
    }

    /// How many batches wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The oldest batch that waits is durable now: its token.
    pub fn sync(&mut self) -> Option<u64> {
        let (token, changes) = self.waiting.pop_front()?;
        changes.into_iter().for_each(|change| self.durable.change(change));
        Some(token)
    }

    /// What was not durable is gone.
    pub fn crash(&mut self) {
        self.waiting.clear();
        self.view = self.durable.clone();
    }

    /// Is there anything at all?
    pub fn is_empty(&self) -> bool {
        self.durable.state.is_none()
    }

    /// A record as the store has it.
    pub fn load(&self, key: &Key) -> Option<Arc<Record>> {
        self.view.records.get(key).cloned()
    }

    /// A page of records, of about so many bytes; and whether that is all.
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

    /// What a member is given back when it starts again.
    pub fn stored(&self, sealed: bool) -> Stored {
        self.durable.stored(sealed)
    }
}
