//! How far each term got: the history of terms at a piece of the ring.

use alloc::vec::Vec;

use overlay::{IntervalMap, KeyRange};

use crate::ballot::{Term, TermBallot};
use crate::message::{Base, Chain, CommitteeReport};

/// The most terms that a chain goes back. Who has been away for more has to start anew.
pub const CHAIN_LENGTH_MAX: usize = 256;

/// What became of an older term's writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Exactly those up to this number were chosen.
    UpTo(u64),
    /// It never got a base that anybody built on: nothing of it stands.
    Void,
    /// It lies further back than the chain goes.
    Unknown,
}

/// What a chain says of a term that is older than the chain's owner.
pub fn fate(chain: &Chain, term: Term) -> Fate {
    if let Some((_, mark)) = chain.iter().find(|(known, _)| *known == term) {
        return Fate::UpTo(*mark);
    }
    match chain.last() {
        Some((oldest, _)) if chain.len() >= CHAIN_LENGTH_MAX && term < *oldest => Fate::Unknown,
        _ => Fate::Void,
    }
}

/// The pieces of a new base: for each the newest base that any of a quorum accepted, closed at the highest mark that any
/// of them knows, and what that one stood on.
pub fn pieces(range: KeyRange, reports: &[CommitteeReport]) -> Vec<(KeyRange, Chain)> {
    let mut newest: IntervalMap<Option<TermBallot>> = IntervalMap::new(None);
    for report in reports {
        if let Some(base) = &report.base {
            newest.update(base.range, |known| (*known).max(Some(report.ballot)));
        }
    }
    let mut pieces = Vec::new();
    for (piece, ballot) in newest.pieces(range) {
        let Some(ballot) = ballot else {
            pieces.push((piece, Chain::new()));
            continue;
        };
        let of_it = || reports.iter().filter(|report| report.ballot == ballot);
        let base = of_it().find_map(|report| report.base.as_ref()).expect("the newest base was reported");
        let mark = of_it().filter_map(|report| report.chosen).max().unwrap_or(0);
        for (part, chain) in parts_of(base, piece) {
            let mut longer = Chain::with_capacity(chain.len() + 1);
            longer.push((ballot.term, mark));
            longer.extend(chain.iter().copied().take(CHAIN_LENGTH_MAX - 1));
            pieces.push((part, longer));
        }
    }
    pieces
}

/// The pieces of a base within a piece of the ring.
fn parts_of(base: &Base, piece: KeyRange) -> Vec<(KeyRange, &Chain)> {
    let parts = base
        .pieces
        .iter()
        .flat_map(|(range, chain)| range.intersection(piece).into_iter().flatten().map(move |part| (part, chain)));
    parts.collect()
}

#[cfg(test)]
mod tests {
    use overlay::{Epoch, Incarnation, NodeId, PeerKey, Point};

    use super::*;

    fn ballot(term: u64) -> TermBallot {
        let node = NodeId { peer: PeerKey([1; 32]), incarnation: Incarnation(1) };
        TermBallot { epoch: Epoch(1), term: Term(term), node }
    }

    fn report(term: u64, range: KeyRange, chain: &[(u64, u64)], chosen: Option<u64>) -> CommitteeReport {
        let chain = chain.iter().map(|(term, mark)| (Term(*term), *mark)).collect();
        let base = Base { range, pieces: alloc::vec![(range, chain)], reproposed: 0 };
        CommitteeReport { ballot: ballot(term), base: Some(base), chosen }
    }

    #[test]
    fn the_newest_base_of_each_point_is_closed_at_the_highest_mark() {
        let left = KeyRange::new(Point(0), Point(100));
        let right = KeyRange::new(Point(100), Point(0));
        let reports = [
            report(3, KeyRange::FULL, &[(1, 7)], Some(9)),
            report(3, KeyRange::FULL, &[(1, 7)], Some(12)),
            report(5, left, &[(3, 10), (1, 7)], None),
        ];
        let pieces = pieces(KeyRange::FULL, &reports);
        let expected_left = alloc::vec![(Term(5), 0), (Term(3), 10), (Term(1), 7)];
        let expected_right = alloc::vec![(Term(3), 12), (Term(1), 7)];
        assert_eq!(pieces, [(left, expected_left.clone()), (right, expected_right)]);
        assert_eq!(fate(&expected_left, Term(3)), Fate::UpTo(10));
        assert_eq!(fate(&expected_left, Term(4)), Fate::Void, "nobody built on it");
    }
}
