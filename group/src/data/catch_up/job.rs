//! Catch-up of one committee at one member: its pieces left, its stage, the records that came. See [`crate::data::catch_up`].

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use overlay::{Epoch, Key, KeyRange, NodeId};

use crate::ballot::{Number, TermBallot};
use crate::context::Context;
use crate::data::catch_up::{Asks, covers_quorums};
use crate::message::{Compared, Write};
use crate::outbox::GroupOutput;
use overlay::time::Time;

/// Lane: some of the pieces of a sub-range that a member lacks, which it asks for one at a time; named by the ballot and a number.
pub(crate) type Lane = (TermBallot, u8);

/// Stage of the current piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CatchUpStage {
    /// Reads the source's window; everything up to this number is held.
    Window(Number),
    /// Compares clocks; done up to and with this key.
    Compare(Option<Key>),
}

/// One comparison of a piece, from its beginning.
#[derive(Clone, Debug, Default)]
pub(crate) struct ComparisonPass {
    /// Number of records that the sources hold, as they reported page by page.
    looked: u64,
    /// Number of records that came.
    came: u64,
    /// Number of records that this node holds, as it listed them.
    listed: u64,
    /// In a second pass, the number of records that the first pass saw: this node must not list fewer now.
    expected: Option<u64>,
}

/// Result of a finished pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Everything is here.
    Whole,
    /// Records came: another pass lists them from the store, and counts.
    Unproven,
    /// Fewer records are here than the sources were seen to hold.
    TooFew {
        /// Number of records here.
        listed: u64,
        /// Number of records that the sources were seen to hold.
        expected: u64,
    },
}

impl ComparisonPass {
    pub(crate) fn page(&mut self, page: &Compared, listed: u64) {
        self.looked = self.looked.saturating_add(page.looked);
        self.came += page.writes.len() as u64;
        self.listed += listed;
    }

    /// Ends the pass at the end of the piece, and begins the pass that follows, if one does.
    pub(crate) fn finish(&mut self) -> Found {
        let found = match self.expected {
            None if self.came == 0 => Found::Whole,
            None => Found::Unproven,
            Some(expected) if self.listed < expected => Found::TooFew { listed: self.listed, expected },
            Some(_) => Found::Whole,
        };
        *self =
            ComparisonPass { expected: (found == Found::Unproven).then_some(self.looked), ..ComparisonPass::default() };
        found
    }

    /// Begins again, with nothing seen; a second pass remains a second pass.
    pub(crate) fn restart(&mut self) {
        *self = ComparisonPass { expected: self.expected, ..ComparisonPass::default() };
    }

    /// Begins with another source: the records of the last source say nothing about this one's.
    pub(crate) fn forget(&mut self) {
        *self = ComparisonPass::default();
    }
}

/// Catch-up of one committee at one member, in one lane.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Name of this job, used for no other: answers to other names are not for it (hazard 25).
    pub(crate) attempt: u64,
    /// Pieces left to do, the current one last.
    pub(crate) pieces: Vec<KeyRange>,
    pub(crate) stage: CatchUpStage,
    /// Whether the pieces are the whole sub-range.
    pub(crate) covers_all: bool,
    /// Whether the job makes up for numbers of the term itself, and not for earlier records.
    pub(crate) gap: bool,
    /// Lowest mark of the sources that answered for a piece, or a part of one.
    pub(crate) mark: Option<u64>,
    /// Number of times that each source was left for another: it was silent, or lacked records itself.
    pub(crate) left: BTreeMap<NodeId, u32>,
    /// Sources with windows that do not reach back to the state that this node holds of the current piece.
    pub(crate) too_short: BTreeSet<NodeId>,
    /// Sources that were compared with to the end of the current piece and were not complete, each with its doubt.
    pub(crate) compared: BTreeMap<NodeId, Epoch>,
    /// Configurations with majorities that together would hold everything, as they were when the comparison began.
    pub(crate) asks: Asks,
    /// Sources that answered since the comparison of the piece began, and whether all of them were complete.
    pub(crate) answered: BTreeSet<NodeId>,
    pub(crate) all_complete: bool,
    pub(crate) pass: ComparisonPass,
    pub(crate) source: NodeId,
    pub(crate) asked: Time,
    /// Number of sources in a row that were silent since a page came.
    pub(crate) silent: u32,
    pub(crate) waiting_for_scan: bool,
    /// Whether the job has had its share of the bandwidth for now.
    pub(crate) held_back: bool,
    /// Keys that the last comparison listed, in order.
    pub(crate) listed: Vec<Key>,
    /// Writes of the last page that wait for their key's own record, and the job's next step after the page.
    pub(crate) deferred: Vec<Write>,
    pub(crate) then: Option<Then>,
    /// Number of records that came, and their size in bytes.
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

impl Job {
    pub(crate) fn new(attempt: u64, pieces: Vec<KeyRange>, covers_all: bool, gap: bool, source: NodeId) -> Job {
        Job {
            attempt,
            pieces,
            stage: CatchUpStage::Compare(None),
            covers_all,
            gap,
            mark: None,
            left: BTreeMap::new(),
            too_short: BTreeSet::new(),
            compared: BTreeMap::new(),
            asks: Asks::new(),
            answered: BTreeSet::new(),
            all_complete: true,
            pass: ComparisonPass::default(),
            source,
            asked: Time(0),
            silent: 0,
            waiting_for_scan: false,
            held_back: false,
            listed: Vec::new(),
            deferred: Vec::new(),
            then: None,
            records: 0,
            bytes: 0,
        }
    }

    /// Returns the nodes that the job may ask for the current piece.
    pub(crate) fn sources(&self, ctx: &Context<'_>, may: impl Fn(NodeId) -> bool) -> Vec<NodeId> {
        let piece = *self.pieces.last().expect("a job has a piece");
        let members = ctx.state.configs(piece).into_iter().flat_map(|config| config.members);
        members.filter(|node| *node != ctx.me && may(*node)).collect()
    }

    /// Lowers the mark: a source's answer contains everything of the term up to this number.
    pub(crate) fn reached(&mut self, mark: u64) {
        self.mark = Some(self.mark.unwrap_or(u64::MAX).min(mark));
    }

    /// Ends a pass with the last answer of a source. Returns what comes next, and whether another source is to be asked then.
    pub(crate) fn end_pass(&mut self, ctx: &mut Context<'_>, from: NodeId, answer: &Compared) -> (Then, bool) {
        let again = Then::Continue(CatchUpStage::Compare(None));
        if !self.all_complete {
            self.compared.insert(from, answer.doubt);
        }
        let enough = self.all_complete || covers_quorums(ctx, answer.piece, &self.compared);
        match if self.all_complete { self.pass.finish() } else { Found::Whole } {
            _ if !enough => (again, true),
            Found::Whole => (Then::PieceDone, false),
            Found::Unproven => (again, false),
            Found::TooFew { listed, expected } => {
                let note = alloc::format!("holds {listed} of {expected} records that were copied: copies again");
                ctx.out.push(GroupOutput::Note(note.into()));
                (again, false)
            }
        }
    }

    /// Returns whether a page is in flight.
    pub(crate) fn awaits_page(&self) -> bool {
        self.asked > Time(0) && !self.held_back && self.then.is_none()
    }

    /// Takes the writes of a page; returns their size in bytes.
    pub(crate) fn came(&mut self, writes: Vec<Write>, then: Then) -> u64 {
        let bytes = writes.iter().map(|write| (write.record.bytes() + write.key.encoded().len()) as u64).sum();
        self.records += writes.len() as u64;
        self.bytes += bytes;
        (self.deferred, self.then) = (writes, Some(then));
        bytes
    }

    /// Returns how many of the keys listed last lie in the part that the answer covers.
    pub(crate) fn listed_up_to(&self, up_to: Option<&Key>) -> u64 {
        up_to.map_or(self.listed.len(), |up_to| self.listed.partition_point(|key| key <= up_to)) as u64
    }

    pub(crate) fn status(&self, ballot: TermBallot, range: KeyRange) -> CatchUpStatus {
        let done = match (&self.stage, self.pieces.last()) {
            (CatchUpStage::Compare(Some(key)), Some(piece)) => {
                let length = piece.length().unwrap_or(u128::MAX);
                (piece.start().distance_to(key.point()) / (length / 1000).max(1)) as u32
            }
            _ => 0,
        };
        CatchUpStatus {
            ballot,
            range,
            pieces: self.pieces.len(),
            scan: matches!(self.stage, CatchUpStage::Compare(_)),
            records: self.records,
            bytes: self.bytes,
            done_per_mille: done.min(1000),
            source: self.source,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Then {
    Continue(CatchUpStage),
    PieceDone,
}

/// Progress of catch-up, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatchUpStatus {
    /// Ballot of the sub-range.
    pub ballot: TermBallot,
    /// The sub-range.
    pub range: KeyRange,
    /// Number of pieces left.
    pub pieces: usize,
    /// Whether a scan of clocks is in progress, and not a read of the window.
    pub scan: bool,
    /// Number of records that came.
    pub records: u64,
    /// Size of these records, in bytes.
    pub bytes: u64,
    /// Progress of the scan of the current piece, in 1/1000 of the piece.
    pub done_per_mille: u32,
    /// Source that is asked.
    pub source: NodeId,
}

impl CatchUpStatus {
    /// Adds another part of the same sub-range.
    pub(crate) fn add(&mut self, other: CatchUpStatus) {
        self.pieces += other.pieces;
        self.scan |= other.scan;
        self.records += other.records;
        self.bytes += other.bytes;
        self.done_per_mille = self.done_per_mille.min(other.done_per_mille);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_that_brought_something_is_followed_by_one_that_counts() {
        let page = |looked, came: usize| {
            let node = NodeId { peer: overlay::PeerKey([1; 32]), incarnation: overlay::Incarnation(1) };
            let ballot = TermBallot { epoch: overlay::Epoch(1), term: crate::ballot::Term(1), node };
            let record = crate::record::Record {
                number: Number { term: ballot.term, n: 1 },
                version: crate::op::Version { generation: 1, timestamp: 1 },
                value: None,
                kind: crate::op::Kind::Value,
                deadline: None,
                horizon: 0,
                done: Vec::new(),
                completions: Default::default(),
            };
            let write = Write { key: Key::new(b"k").unwrap(), record: alloc::sync::Arc::new(record) };
            Compared {
                ballot,
                piece: KeyRange::FULL,
                after: None,
                attempt: 1,
                writes: alloc::vec![write; came],
                looked,
                digest: 0,
                up_to: None,
                mark: 0,
                complete: true,
                doubt: Epoch(0),
            }
        };
        let mut pass = ComparisonPass::default();
        pass.page(&page(7, 0), 7);
        assert_eq!(pass.finish(), Found::Whole, "nothing was lacking");
        pass.page(&page(7, 3), 4);
        assert_eq!(pass.finish(), Found::Unproven);
        pass.page(&page(7, 0), 6);
        assert_eq!(pass.finish(), Found::TooFew { listed: 6, expected: 7 });
        pass.page(&page(7, 1), 6);
        assert_eq!(pass.finish(), Found::Unproven, "from the beginning");
        pass.page(&page(8, 1), 7);
        assert_eq!(pass.finish(), Found::Whole);
    }
}
