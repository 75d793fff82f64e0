//! One committee's catching up at one member: what is left, where it stands, what came. See [`super::catch_up`].

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use overlay::{Epoch, Key, KeyRange, NodeId};

use super::catch_up::Asks;
use crate::ballot::{Number, TermBallot};
use crate::context::Context;
use crate::message::{Compared, Write};
use crate::time::Time;

/// Some of the pieces that a member lacks of a sub-range, by the number of the lane: one of them is asked for at a time.
pub(super) type Lane = (TermBallot, u8);

/// Where the current piece stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Reading the source's window; everything up to this number is held.
    Window(Number),
    /// Comparing clocks; done up to and with this key.
    Compare(Option<Key>),
}

/// One comparison of a piece, from its beginning.
#[derive(Clone, Debug, Default)]
pub(super) struct Pass {
    /// Records that the sources hold, as they said page by page.
    looked: u64,
    /// Records that came.
    came: u64,
    /// Records that this node holds, as it listed them.
    listed: u64,
    /// This is the second pass, and the first saw so many records: fewer must not be listed now.
    expected: Option<u64>,
}

/// What a finished pass leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Everything is here.
    Whole,
    /// Records came: another pass lists them from the store, and counts.
    Unproven,
    /// Fewer are here than were seen to be there.
    TooFew {
        /// So many are here.
        listed: u64,
        /// So many were there.
        expected: u64,
    },
}

impl Pass {
    pub(super) fn page(&mut self, page: &Compared, listed: u64) {
        self.looked = self.looked.saturating_add(page.looked);
        self.came += page.writes.len() as u64;
        self.listed += listed;
    }

    /// The end of the piece is reached: begins the pass that follows, if one does.
    pub(super) fn finish(&mut self) -> Found {
        let found = match self.expected {
            None if self.came == 0 => Found::Whole,
            None => Found::Unproven,
            Some(expected) if self.listed < expected => Found::TooFew { listed: self.listed, expected },
            Some(_) => Found::Whole,
        };
        *self = Pass { expected: (found == Found::Unproven).then_some(self.looked), ..Pass::default() };
        found
    }

    /// Begins again, with nothing seen; a second pass stays one.
    pub(super) fn restart(&mut self) {
        *self = Pass { expected: self.expected, ..Pass::default() };
    }

    /// Begins with another source: what the last one held says nothing of this one.
    pub(super) fn forget(&mut self) {
        *self = Pass::default();
    }
}

/// One committee's catching up at one member.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// Its name, used for no other: answers to others are not for it (hazard 25).
    pub(super) attempt: u64,
    /// What is left to do, the current piece last.
    pub(super) pieces: Vec<KeyRange>,
    pub(super) stage: Stage,
    /// The pieces are the whole sub-range.
    pub(super) covers_all: bool,
    /// It makes up for numbers of the term itself, not for what was before.
    pub(super) gap: bool,
    /// The lowest mark that a source had when it answered for a piece, or a part of one.
    pub(super) mark: Option<u64>,
    /// How often each source was left for another: it was silent, or lacked something itself.
    pub(super) left: BTreeMap<NodeId, u32>,
    /// Sources whose windows do not reach back to what this node holds of the current piece.
    pub(super) too_short: BTreeSet<NodeId>,
    /// Sources that were compared with to the end of the current piece and were not complete, each with its doubt.
    pub(super) compared: BTreeMap<NodeId, Epoch>,
    /// Whose majorities, as it was when the comparison began, would hold everything.
    pub(super) asks: Asks,
    /// Who answered since the comparison of the piece began, and whether all of them were complete.
    pub(super) answered: BTreeSet<NodeId>,
    pub(super) all_complete: bool,
    pub(super) pass: Pass,
    pub(super) source: NodeId,
    pub(super) asked: Time,
    /// So many sources in a row were silent since a page came.
    pub(super) silent: u32,
    pub(super) waiting_for_scan: bool,
    /// It has had its share of the bandwidth for now.
    pub(super) held_back: bool,
    /// What the last comparison listed, in order.
    pub(super) listed: Vec<Key>,
    /// Writes of the last page that wait for their key's own record, and what the page leads to.
    pub(super) deferred: Vec<Write>,
    pub(super) then: Option<Then>,
    /// Records that came, and their bytes.
    pub(super) records: u64,
    pub(super) bytes: u64,
}

impl Job {
    pub(super) fn new(attempt: u64, pieces: Vec<KeyRange>, covers_all: bool, gap: bool, source: NodeId) -> Job {
        Job {
            attempt,
            pieces,
            stage: Stage::Compare(None),
            covers_all,
            gap,
            mark: None,
            left: BTreeMap::new(),
            too_short: BTreeSet::new(),
            compared: BTreeMap::new(),
            asks: Asks::new(),
            answered: BTreeSet::new(),
            all_complete: true,
            pass: Pass::default(),
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

    /// Whom it may ask for the current piece.
    pub(super) fn sources(&self, ctx: &Context<'_>, may: impl Fn(NodeId) -> bool) -> Vec<NodeId> {
        let piece = *self.pieces.last().expect("a job has a piece");
        let members = ctx.state.configs(piece).into_iter().flat_map(|config| config.members);
        members.filter(|node| *node != ctx.me && may(*node)).collect()
    }

    /// A source's answer contains everything of the term up to this number.
    pub(super) fn reached(&mut self, mark: u64) {
        self.mark = Some(self.mark.unwrap_or(u64::MAX).min(mark));
    }

    /// Is a page on its way?
    pub(super) fn awaits_page(&self) -> bool {
        self.asked > Time(0) && !self.held_back && self.then.is_none()
    }

    /// Writes came; returns what they take, in bytes.
    pub(super) fn came(&mut self, writes: Vec<Write>, then: Then) -> u64 {
        let bytes = writes.iter().map(|write| (write.record.bytes() + write.key.encoded().len()) as u64).sum();
        self.records += writes.len() as u64;
        self.bytes += bytes;
        (self.deferred, self.then) = (writes, Some(then));
        bytes
    }

    /// How many of the keys listed last lie in the part that the answer speaks of.
    pub(super) fn listed_up_to(&self, up_to: Option<&Key>) -> u64 {
        up_to.map_or(self.listed.len(), |up_to| self.listed.partition_point(|key| key <= up_to)) as u64
    }

    pub(super) fn status(&self, ballot: TermBallot, range: KeyRange) -> CatchUpStatus {
        let done = match (&self.stage, self.pieces.last()) {
            (Stage::Compare(Some(key)), Some(piece)) => {
                let length = piece.length().unwrap_or(u128::MAX);
                (piece.start().distance_to(key.point()) / (length / 1000).max(1)) as u32
            }
            _ => 0,
        };
        CatchUpStatus {
            ballot,
            range,
            pieces: self.pieces.len(),
            scan: matches!(self.stage, Stage::Compare(_)),
            records: self.records,
            bytes: self.bytes,
            done_per_mille: done.min(1000),
            source: self.source,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Then {
    Continue(Stage),
    PieceDone,
}

/// Catching up, for a person to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatchUpStatus {
    /// Whose sub-range.
    pub ballot: TermBallot,
    /// The sub-range.
    pub range: KeyRange,
    /// Pieces left.
    pub pieces: usize,
    /// By a scan of clocks, not from the window.
    pub scan: bool,
    /// Records that came.
    pub records: u64,
    /// What they take, in bytes.
    pub bytes: u64,
    /// How far the scan of the current piece has come, in 1/1000 of the piece.
    pub done_per_mille: u32,
    /// Who is asked.
    pub source: NodeId,
}

impl CatchUpStatus {
    /// Adds another part of the same sub-range.
    pub(super) fn add(&mut self, other: CatchUpStatus) {
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
        let mut pass = Pass::default();
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
