//! What a member has on disk: all that it handed out, and of that what is durable.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use group::ballot::Slot;
use group::outbox::Durable;
use group::record::Record;
use group::{Doubt, Stored};
use overlay::Key;

use super::content::Content;

/// One member's disk.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// What reads see.
    view: Content,
    durable: Content,
    waiting: VecDeque<(u64, Vec<Durable>)>,
    /// What was durable before the last batch was, where that may be lost.
    before: Option<Box<Content>>,
    /// It may be.
    pub may_tear: bool,
}

impl Disk {
    /// A batch to be written.
    pub fn write(&mut self, token: u64, changes: Vec<Durable>) {
        changes.iter().for_each(|change| self.view.change(change.clone()));
        self.waiting.push_back((token, changes));
    }

    /// The oldest batch that waits is durable now: its token.
    pub fn sync(&mut self) -> Option<u64> {
        let (token, changes) = self.waiting.pop_front()?;
        if self.may_tear {
            self.before = Some(Box::new(self.durable.clone()));
        }
        changes.into_iter().for_each(|change| self.durable.change(change));
        Some(token)
    }

    /// What was not durable is gone.
    pub fn crash(&mut self) {
        self.waiting.clear();
        self.view = self.durable.clone();
    }

    /// A process begins with it: what is in doubt has outlasted one more run.
    pub fn open(&mut self) {
        if let Some(doubt) = self.durable.stored(true).doubt {
            self.durable.change(Durable::Doubt(Some(doubt.again())));
            self.view = self.durable.clone();
        }
    }

    /// The last batch that was durable is gone, too; false where there is none that may be.
    pub fn tear(&mut self) -> bool {
        let Some(before) = self.before.take().filter(|before| before.state.is_some()) else { return false };
        self.durable = *before;
        self.crash();
        true
    }

    /// It is known that its end is bad: something durable may be lost.
    pub fn doubt(&mut self) {
        // The next start counts its own run.
        let runs = self.durable.stored(true).doubt.map_or(0, |doubt| doubt.runs);
        self.durable.change(Durable::Doubt(Some(Doubt { runs, ..Doubt::new() })));
        self.view = self.durable.clone();
    }

    /// Returns the last slot of the durable state; slot 0 where no state is durable.
    pub fn applied(&self) -> Slot {
        self.durable.state.as_ref().map_or(Slot(0), |state| state.applied)
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
