//! Chains: the history of terms at a piece of the ring, with the mark that each term reached.

use alloc::vec::Vec;

use overlay::{IntervalMap, KeyRange, Point};

use crate::ballot::{Term, TermBallot};
use crate::data::acceptor::bases::CLOSED_MAX;
use crate::message::{Base, Chain, CommitteeReport};

/// Upper limit of the terms in a chain. A member that has been away for more terms has to begin as a new member.
pub const CHAIN_LENGTH_MAX: usize = 256;
/// Least length to which a chain is cut, however many pieces there are.
const CHAIN_LENGTH_MIN: usize = 8;
/// Number of the youngest terms of a chain that are named even where nothing was written under them. A member that was complete in one of
/// them needs only the writes since then, and its sources have those in the committees that they keep.
const NAMED: usize = CLOSED_MAX;
/// Upper limit of terms in all chains of a base together: the whole base goes with every promise, and must fit a message many times.
const ENTRIES_MAX: usize = 1024;
/// End of a chain that does not go back to the beginning. It is no possible term: a group's own first entry is at slot 1.
const CUT: Term = Term(0);

/// Fate of an older term's writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainFate {
    /// Exactly the writes up to this number were chosen.
    UpTo(u64),
    /// The term never got a base that another base was built on: none of its writes stands.
    Void,
    /// The term lies further back than the chain goes.
    Unknown,
}

/// Returns the fate of a term that is older than the chain's owner.
pub fn fate(chain: &Chain, term: Term) -> ChainFate {
    if let Some((_, mark)) = chain.iter().find(|(known, _)| *known == term) {
        return ChainFate::UpTo(*mark);
    }
    match chain.split_last() {
        Some(((CUT, _), rest)) if rest.last().is_none_or(|(oldest, _)| term < *oldest) => ChainFate::Unknown,
        _ => ChainFate::Void,
    }
}

/// Returns the pieces of a new base. For each piece: the newest base that any node of a quorum accepted, closed at the highest mark that
/// any of them knows, and the chain that this base stood on.
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
            longer.extend_from_slice(chain);
            pieces.push((part, longer));
        }
    }
    bounded(pieces)
}

/// Removes older terms under which nothing was chosen: a term that a chain does not name is void as well. After many changes of members
/// with few writes, each base would name hundreds of terms. The youngest terms stay, because members that missed a few terms continue from
/// them. The oldest term of a cut chain stays, because it shows how far the chain goes back.
fn leave_out_unused(chain: &mut Chain) {
    let is_cut = matches!(chain.last(), Some((CUT, _)));
    let oldest = if is_cut { chain.len().saturating_sub(2) } else { chain.len() };
    let mut place = 0;
    chain.retain(|(_, mark)| {
        let stays = place < NAMED || place >= oldest || *mark > 0;
        place += 1;
        stays
    });
}

/// Cuts chains, and joins neighbouring pieces that have the same history: otherwise every boundary that a division ever had would stay for
/// ever.
fn bounded(pieces: Vec<(KeyRange, Chain)>) -> Vec<(KeyRange, Chain)> {
    let length = (ENTRIES_MAX / pieces.len().max(1)).clamp(CHAIN_LENGTH_MIN, CHAIN_LENGTH_MAX);
    let mut joined: Vec<(KeyRange, Chain)> = Vec::with_capacity(pieces.len());
    for (piece, mut chain) in pieces {
        leave_out_unused(&mut chain);
        if chain.len() > length {
            chain.truncate(length - 1);
            chain.push((CUT, 0));
        }
        match joined.last_mut() {
            // Never across point zero: records are read in ring order from there.
            Some((before, known)) if *known == chain && before.end() == piece.start() && piece.start() != Point(0) => {
                *before = KeyRange::new(before.start(), piece.end());
            }
            _ => joined.push((piece, chain)),
        }
    }
    joined
}

/// Returns the pieces of a base within a piece of the ring.
pub(crate) fn parts_of(base: &Base, piece: KeyRange) -> Vec<(KeyRange, &Chain)> {
    let parts = base
        .pieces
        .iter()
        .flat_map(|(range, chain)| range.intersection(piece).into_iter().flatten().map(move |part| (part, chain)));
    parts.collect()
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;

    use overlay::{Epoch, Incarnation, NodeId, PeerKey};

    use super::*;

    fn ballot(term: u64) -> TermBallot {
        let node = NodeId { peer: PeerKey([1; 32]), incarnation: Incarnation(1) };
        TermBallot { epoch: Epoch(1), term: Term(term), node }
    }

    fn report(term: u64, range: KeyRange, chain: &[(u64, u64)], chosen: Option<u64>) -> CommitteeReport {
        let chain = chain.iter().map(|(term, mark)| (Term(*term), *mark)).collect();
        let base = Base { range, pieces: alloc::vec![(range, chain)], reproposed: 0 };
        CommitteeReport { ballot: ballot(term), base: Some(Arc::new(base)), chosen }
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
        assert_eq!(fate(&expected_left, Term(3)), ChainFate::UpTo(10));
        assert_eq!(fate(&expected_left, Term(4)), ChainFate::Void, "nobody built on it");
    }

    #[test]
    fn what_is_cut_off_is_unknown_and_not_void() {
        let mut chain: Vec<(u64, u64)> = (0..300).map(|age| (1000 - age, 7)).collect();
        for newest in 1001..1010 {
            let bases = pieces(KeyRange::FULL, &[report(newest, KeyRange::FULL, &chain, Some(9))]);
            let [(KeyRange::FULL, longer)] = &bases[..] else { panic!("{bases:?}") };
            assert_eq!(longer.len(), CHAIN_LENGTH_MAX);
            assert_eq!(fate(longer, Term(newest)), ChainFate::UpTo(9));
            assert_eq!(fate(longer, Term(newest - 253)), ChainFate::UpTo(7));
            assert_eq!(fate(longer, Term(newest - 260)), ChainFate::Unknown);
            chain = longer.iter().map(|(term, mark)| (term.0, *mark)).collect();
        }
    }

    #[test]
    fn terms_without_writes_are_left_out_and_remain_void() {
        let told = |chain: &[(u64, u64)]| {
            let mut bases = pieces(KeyRange::FULL, &[report(1001, KeyRange::FULL, chain, Some(0))]);
            assert_eq!(bases.len(), 1);
            bases.remove(0).1
        };
        // A write under every hundredth term.
        let written = |term: u64| u64::from(term.is_multiple_of(100)) * 7;
        let all: Vec<(u64, u64)> = (700..=1000).rev().map(|term| (term, written(term))).collect();
        let short = told(&all);
        let named: Vec<u64> = short.iter().map(|(term, _)| term.0).collect();
        assert!(named.into_iter().eq((986..=1001).rev().chain([900, 800, 700])), "{short:?}");
        for term in 600..=1001 {
            let expected = if short.iter().any(|(known, _)| known.0 == term) {
                ChainFate::UpTo(written(term))
            } else {
                ChainFate::Void
            };
            assert_eq!(fate(&short, Term(term)), expected, "{term}");
        }
        // A chain that is cut tells as much as before: younger terms are void, and older ones are unknown.
        let cut: Vec<(u64, u64)> = all.iter().copied().take_while(|(term, _)| *term >= 750).chain([(0, 0)]).collect();
        let short = told(&cut);
        assert_eq!(short.len(), NAMED + 2 + 2);
        assert_eq!((fate(&short, Term(760)), fate(&short, Term(750))), (ChainFate::Void, ChainFate::UpTo(0)));
        assert_eq!((fate(&short, Term(749)), fate(&short, Term(800))), (ChainFate::Unknown, ChainFate::UpTo(7)));
    }

    #[test]
    fn equal_histories_are_one_piece() {
        let cut = |part: u128| Point(part << 100);
        let many: Vec<KeyRange> = (0..200).map(|part| KeyRange::new(cut(part), cut(part + 1))).collect();
        let whole = KeyRange::new(cut(0), cut(200));
        let alike = |chain: &Chain| many.iter().map(|piece| (*piece, chain.clone())).collect::<Vec<_>>();
        assert_eq!(bounded(alike(&alloc::vec![(Term(3), 1)])), [(whole, alloc::vec![(Term(3), 1)])]);
        // Different histories stay apart, and short.
        let apart: Vec<_> = (0..)
            .zip(alike(&alloc::vec![(Term(2), 1); 100]))
            .map(|(n, (piece, mut chain))| {
                chain[0] = (Term(9), n);
                (piece, chain)
            })
            .collect();
        let bounded = bounded(apart);
        assert_eq!(bounded.len(), 200);
        assert!(
            bounded
                .iter()
                .all(|(_, chain)| chain.len() == CHAIN_LENGTH_MIN && fate(chain, Term(1)) == ChainFate::Unknown)
        );
    }
}
