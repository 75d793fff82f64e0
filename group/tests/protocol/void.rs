//! Writes that a base calls void may stand all the same, where that base is never chosen.

use group::ballot::TermBallot;
use group::message::{CommitteeMessage, Write};
use overlay::KeyRange;

use crate::bench::{Bench, ballot, base, key, node, write};

/// Prepares and lays a base that is not known to be chosen, after its re-proposals.
fn takes_over(bench: &mut Bench, ballot: TermBallot, chain: &[TermBallot], marks: &[u64], again: Vec<Write>) {
    let from = ballot.node.peer.0[0];
    let chain: Vec<_> = chain.iter().map(|ballot| ballot.term).zip(marks.iter().copied()).collect();
    let base = base(&chain, again.len() as u64);
    bench.hear(from, CommitteeMessage::Prepare { ballot, range: KeyRange::FULL });
    bench.accept(ballot, None, again);
    bench.hear(from, CommitteeMessage::Base { ballot, base, chosen: None });
}

/// Returns the unsettled writes that the member reports to a primary that prepares.
fn told(bench: &mut Bench, ballot: TermBallot) -> Vec<Write> {
    bench.said.clear();
    bench.hear(ballot.node.peer.0[0], CommitteeMessage::Prepare { ballot, range: KeyRange::FULL });
    match &bench.said[..] {
        [(_, CommitteeMessage::Promise { unsettled, .. })] => unsettled.clone(),
        other => panic!("{other:?}"),
    }
}

/// Member 2 accepts a write with member 1: the write is chosen, and only 1 knows. Then 3 takes over with the data of 2. No other member
/// hears of that, and 2 regards the write as void. Then 3 takes over again with the data of 1, and the write stands under its first number.
/// Of 1 and 2, which chose the write, 2 must still have it, because 2 and 3 may be asked next.
#[test]
fn a_base_that_comes_to_nothing_voids_nothing() {
    let mut bench = Bench::new(node(2), 3);
    let (first, second, third) = (ballot(5, 1), ballot(6, 3), ballot(7, 3));
    takes_over(&mut bench, first, &[], &[], vec![write(first, 1, "k", "v")]);
    takes_over(&mut bench, second, &[first], &[0], vec![write(second, 1, "k", "v")]);
    takes_over(&mut bench, third, &[first], &[1], vec![]);
    let known = bench.knows(&key("k")).expect("a chosen write of which this node was a part is gone");
    assert_eq!((known.number.term, known.number.n), (first.term, 1));
    assert_eq!(bench.on_disk(&key("k")), Some(known.number));
    // Once the base is chosen, the writes that it does not mention are void.
    bench.accept(third, Some(0), vec![]);
    assert!(bench.acceptor.committees().all(|committee| !committee.has_unsettled()));
    assert_eq!(bench.knows(&key("k")).unwrap().number, known.number);
}

/// Writes that a newer base has again, or calls void, are not reported to any node, unless that base is never chosen.
#[test]
fn what_waits_to_be_void_is_not_told() {
    let mut bench = Bench::new(node(2), 3);
    let (first, second) = (ballot(5, 1), ballot(6, 3));
    takes_over(&mut bench, first, &[], &[], vec![write(first, 1, "k", "v"), write(first, 2, "l", "v")]);
    let again = write(second, 1, "k", "v");
    takes_over(&mut bench, second, &[first], &[0], vec![again.clone()]);
    assert_eq!(told(&mut bench, ballot(7, 1)), [again]);
}

/// The base is chosen: the writes that it voids go, also from the store.
#[test]
fn a_chosen_base_voids() {
    let mut bench = Bench::new(node(2), 3);
    let (first, second) = (ballot(5, 1), ballot(6, 3));
    takes_over(&mut bench, first, &[], &[], vec![write(first, 1, "k", "v"), write(first, 2, "l", "v")]);
    takes_over(&mut bench, second, &[first], &[0], vec![write(second, 1, "k", "v")]);
    bench.accept(second, Some(1), vec![]);
    assert_eq!(bench.knows(&key("k")).unwrap().number.term, second.term);
    assert_eq!(bench.knows(&key("l")), None);
    assert_eq!(bench.on_disk(&key("l")), None);
    assert!(bench.acceptor.committees().all(|committee| !committee.has_unsettled()));
}
