//! What a member has on disk: all that it handed out, and of that what is durable.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use group::Stored;
use group::ballot::{Ballot, Number, Slot, Term, TermBallot};
use group::message::Write;
use group::number_set::NumberSet;
use group::outbox::{CommitteeHead, Durable};
use group::record::Record;
use group::state::{Entry, GroupState};
use overlay::{Epoch, IntervalMap, Key};

/// Everything that was written.
#[derive(Clone, Debug, Default)]
struct Content {
    state: Option<GroupState>,
    log_promised: Option<(Epoch, Ballot)>,
    log_accepted: BTreeMap<Slot, (Ballot, Entry)>,
    promises: Option<IntervalMap<Option<TermBallot>>>,
    heads: BTreeMap<TermBallot, CommitteeHead>,
    progress: BTreeMap<TermBallot, (NumberSet, Option<u64>)>,
    unsettled: BTreeMap<(Number, Key), Write>,
    records: BTreeMap<Key, Arc<Record>>,
}

impl Content {
    fn change(&mut self, change: Durable) {
        match change {
            Durable::State(state) => self.state = Some(*state),
            Durable::LogPromised(epoch, ballot) => self.log_promised = ballot.map(|ballot| (epoch, ballot)),
            Durable::LogAccepted(slot, ballot, entry) => {
                self.log_accepted.insert(slot, (ballot, entry));
            }
            Durable::LogForget(None) => self.log_accepted.clear(),
            Durable::LogForget(Some(slot)) => self.log_accepted.retain(|accepted, _| *accepted > slot),
            Durable::Promises(promises) => self.promises = Some(promises),
            Durable::Committee(head) => {
                self.heads.insert(head.ballot, head);
            }
            Durable::CommitteeProgress(ballot, received, chosen) => {
                self.progress.insert(ballot, (received, chosen));
            }
            Durable::CommitteeForget(ballot) => {
                self.heads.remove(&ballot);
                self.progress.remove(&ballot);
            }
            Durable::Accepted(write) => {
                self.unsettled.insert((write.record.number, write.key.clone()), write);
            }
            Durable::Settle(term, first, last) => {
                let of_it = |number: &Number| number.term == term && (first..=last).contains(&number.n);
                let settled: Vec<_> = self.unsettled.keys().filter(|(number, _)| of_it(number)).cloned().collect();
                for name in settled {
                    let write = self.unsettled.remove(&name).expect("just seen");
                    self.put(write);
                }
            }
            Durable::Void(write) => {
                self.unsettled.remove(&(write.record.number, write.key));
            }
            Durable::Record(write) => self.put(write),
            Durable::Purge(key) => {
                self.records.remove(&key);
            }
        }
    }

    fn put(&mut self, write: Write) {
        if self.records.get(&write.key).is_none_or(|record| record.number < write.record.number) {
            self.records.insert(write.key, write.record);
        }
    }
}

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
        let content = &self.durable;
        let mut unsettled: BTreeMap<Term, Vec<Write>> = BTreeMap::new();
        for ((number, _), write) in &content.unsettled {
            unsettled.entry(number.term).or_default().push(write.clone());
        }
        let committees = content.heads.iter().map(|(ballot, head)| {
            let (received, chosen) = content.progress.get(ballot).cloned().unwrap_or_default();
            (head.clone(), received, chosen)
        });
        Stored {
            state: content.state.clone().expect("the first thing written"),
            log_promised: content.log_promised,
            log_accepted: content.log_accepted.clone(),
            promises: content.promises.clone(),
            committees: committees.collect(),
            unsettled,
            empty: content.records.is_empty(),
            sealed,
        }
    }
}
