//! Content that a member has written, for tests that simulate its disk; tests of `testnet` use it too.

use std::collections::BTreeMap;
use std::sync::Arc;

use group::ballot::{Ballot, LogSlot, Number, Term, TermBallot};
use group::control::state::{Entry, GroupState};
use group::message::Write;
use group::number_set::NumberSet;
use group::outbox::{CommitteeHead, Durable};
use group::record::Record;
use group::{Doubt, Stored};
use overlay::{Epoch, IntervalMap, Key};

/// All written data, by name.
#[derive(Clone, Debug, Default)]
pub struct Content {
    /// State of the group.
    pub state: Option<GroupState>,
    log_promised: Option<(Epoch, Ballot)>,
    /// Entries of the log.
    pub log_accepted: BTreeMap<LogSlot, (Ballot, Entry)>,
    /// Promises to primaries.
    pub promises: Option<IntervalMap<Option<TermBallot>>>,
    heads: BTreeMap<TermBallot, CommitteeHead>,
    progress: BTreeMap<TermBallot, (NumberSet, Option<u64>)>,
    unsettled: BTreeMap<(Number, Key), Write>,
    /// Chosen records.
    pub records: BTreeMap<Key, Arc<Record>>,
    doubt: Option<Doubt>,
}

impl Content {
    /// Makes a change.
    pub fn change(&mut self, change: Durable) {
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
            Durable::Doubt(doubt) => self.doubt = doubt,
        }
    }

    fn put(&mut self, write: Write) {
        if self.records.get(&write.key).is_none_or(|record| record.number < write.record.number) {
            self.records.insert(write.key, write.record);
        }
    }

    /// Returns the data that a member gets back when it starts again. `sealed`: no data can be missing.
    pub fn stored(&self, sealed: bool) -> Stored {
        let mut unsettled: BTreeMap<Term, Vec<Write>> = BTreeMap::new();
        for ((number, _), write) in &self.unsettled {
            unsettled.entry(number.term).or_default().push(write.clone());
        }
        let committees = self.heads.iter().map(|(ballot, head)| {
            let (received, chosen) = self.progress.get(ballot).cloned().unwrap_or_default();
            (head.clone(), received, chosen)
        });
        Stored {
            state: self.state.clone().expect("the first thing written"),
            log_promised: self.log_promised,
            log_accepted: self.log_accepted.clone(),
            promises: self.promises.clone(),
            committees: committees.collect(),
            unsettled,
            empty: self.records.is_empty(),
            sealed,
            doubt: self.doubt,
        }
    }
}
