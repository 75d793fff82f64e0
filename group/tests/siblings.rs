//! Groups that came of one split number their terms alike. In a group that comes of two of them later, what a member holds
//! of its own half's term says nothing of the other half's.

mod bench;

use bench::{Bench, ballot, key, node, write};
use group::ballot::{Number, Term, TermBallot};
use group::message::{Base, CommitteeMessage};
use overlay::{KeyRange, Point};

const MIDDLE: Point = Point(1 << 127);
const LEFT: KeyRange = KeyRange::new(Point(0), MIDDLE);
const RIGHT: KeyRange = KeyRange::new(MIDDLE, Point(0));

fn begin(bench: &mut Bench, ballot: TermBallot, range: KeyRange, pieces: Vec<(KeyRange, Vec<(Term, u64)>)>) {
    let from = ballot.node.peer.0[0];
    bench.hear(from, CommitteeMessage::Prepare { ballot, range });
    bench.hear(from, CommitteeMessage::Base { ballot, base: Base { range, pieces, reproposed: 0 }, chosen: Some(0) });
}

/// Some names in a half.
fn names(half: KeyRange) -> Vec<String> {
    (0..100).map(|n| format!("k{n}")).filter(|name| half.contains(key(name).point())).take(5).collect()
}

/// Node 2 was in the left half, and holds five writes of its term 5; the right half's term 5 had three. They are one group
/// now, and term 9 has the whole.
fn joined() -> (Bench, TermBallot) {
    let mut bench = Bench::new(node(2), 3);
    let left = ballot(5, 1);
    begin(&mut bench, left, LEFT, vec![(LEFT, vec![])]);
    let writes = names(LEFT).iter().zip(1..).map(|(name, n)| write(left, n, name, "v")).collect();
    bench.accept(left, Some(0), writes);
    bench.accept(left, Some(5), vec![]);
    let whole = ballot(9, 3);
    let pieces = vec![(LEFT, vec![(left.term, 5)]), (RIGHT, vec![(left.term, 3)])];
    begin(&mut bench, whole, KeyRange::FULL, pieces);
    (bench, whole)
}

#[test]
fn who_held_one_half_lacks_the_other() {
    let (mut bench, whole) = joined();
    let committee = bench.acceptor.committee(whole).expect("it has begun");
    assert_eq!(committee.missing(), [RIGHT]);
    // Nothing of it is held: all clocks are compared.
    bench.said.clear();
    bench.tick();
    let (_, ask) = bench.asked_compare();
    assert_eq!((ask.piece, ask.after, ask.held.len()), (RIGHT, None, 0));
}

#[test]
fn recent_writes_of_one_half_are_no_answer_for_the_other() {
    let (mut bench, whole) = joined();
    // It has copied the rest meanwhile.
    let answer = bench::nothing_newer(whole, RIGHT);
    bench.tick();
    let (from, _) = bench.asked_compare();
    bench.compared(from, answer);
    assert_eq!(bench.acceptor.committee(whole).expect("it has begun").missing(), []);
    let mut window = |piece: KeyRange, n: u64| {
        bench.said.clear();
        let since = Number { term: Term::new(group::ballot::Slot(5), 0), n };
        bench.hear(4, CommitteeMessage::AskSince { ballot: whole, piece, since, attempt: 0 });
        match &bench.said[..] {
            [(_, CommitteeMessage::Since(answer))] => (answer.writes.len(), answer.done),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(window(LEFT, 2), (3, true));
    assert_eq!(window(RIGHT, 2), (0, false), "its windows do not reach back there");
}
