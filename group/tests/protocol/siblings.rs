//! Groups that came of one split number their terms alike. In a group that comes of two of them later, a member's data of its own half's
//! term says nothing about the other half's.

use group::ballot::{Number, Term, TermBallot};
use group::message::{Base, CommitteeMessage};
use overlay::{Epoch, KeyRange, Point};

use crate::bench::{Bench, ballot, key, node, write};

const MIDDLE: Point = Point(1 << 127);
const LEFT: KeyRange = KeyRange::new(Point(0), MIDDLE);
const RIGHT: KeyRange = KeyRange::new(MIDDLE, Point(0));

fn begin(bench: &mut Bench, ballot: TermBallot, range: KeyRange, pieces: Vec<(KeyRange, Vec<(Term, u64)>)>) {
    let from = ballot.node.peer.0[0];
    bench.hear(from, CommitteeMessage::Prepare { ballot, range });
    let base = Base { range, pieces, reproposed: 0 }.into();
    bench.hear(from, CommitteeMessage::Base { ballot, base, chosen: Some(0) });
}

/// Returns some names in a half.
fn names(half: KeyRange) -> Vec<String> {
    (0..100).map(|n| format!("k{n}")).filter(|name| half.contains(key(name).point())).take(5).collect()
}

/// Node 2 was in the left half, and holds five writes of its term 5; the right half's term 5 had three. They are one group now, and term 9
/// has the whole.
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
    let answer = crate::bench::nothing_newer(whole, RIGHT);
    bench.tick();
    let (from, _) = bench.asked_compare();
    bench.compared(from, answer);
    assert_eq!(bench.acceptor.committee(whole).expect("it has begun").missing(), []);
    let mut window = |piece: KeyRange, n: u64| {
        bench.said.clear();
        let since = Number { term: Term::new(group::ballot::LogSlot(5), 0), n };
        bench.hear(4, CommitteeMessage::AskSince { ballot: whole, piece, since, attempt: 0 });
        match &bench.said[..] {
            [(_, CommitteeMessage::Since(answer))] => (answer.writes.len(), answer.done),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(window(LEFT, 2), (3, true));
    assert_eq!(window(RIGHT, 2), (0, false), "its windows do not reach back there");
}

/// State that a member brings into a group that is born: all promises and accepted writes there, and nothing of the rest.
#[test]
fn an_heir_has_what_lies_in_its_range_and_knows_that_it_lacks_the_rest() {
    let mut bench = Bench::new(node(2), 3);
    let old = ballot(5, 1);
    begin(&mut bench, old, KeyRange::FULL, vec![(KeyRange::FULL, vec![])]);
    let all: Vec<String> = names(LEFT).into_iter().chain(names(RIGHT)).collect();
    let writes = all.iter().zip(1..).map(|(name, n)| write(old, n, name, "v")).collect();
    bench.accept(old, Some(0), writes);
    bench.accept(old, Some(2), vec![]);
    let heir = bench.acceptor.heir(RIGHT, Epoch(1), &[]);
    let committee = heir.committee(old).expect("it goes along");
    let here: Vec<_> = committee.unsettled(KeyRange::FULL).map(|write| write.key.clone()).collect();
    assert!(here.len() == 5 && here.iter().all(|key| RIGHT.contains(key.point())), "{here:?}");
    assert_eq!((committee.missing(), committee.is_superseded()), (&[LEFT][..], true));
    assert!(committee.lacks_nothing_before(RIGHT) && !committee.lacks_nothing_before(LEFT));
    assert_eq!((committee.received().mark(), committee.chosen()), (10, Some(2)));
    assert!(heir.has_sealed(Epoch(1)) && heir.base_at(Point(0)).is_none() && heir.base_at(MIDDLE) == Some(old));
    // The table goes the same way.
    for name in &all {
        bench.table.put_stored(&key(name), write(old, 1, name, "v").record);
    }
    let (bytes, taken) = (bench.table.bytes(), bench.table.take(RIGHT));
    assert_eq!((taken.len(), bench.table.len(), taken.bytes() + bench.table.bytes()), (5, 5, bytes));
    assert!(taken.iter().all(|(key, _)| RIGHT.contains(key.point())) && taken.is_whole());
    let around = KeyRange::new(MIDDLE, Point(1 << 126));
    let inside =
        |table: &group::data::table::Table| table.iter().filter(|(key, _)| around.contains(key.point())).count();
    let (expected, before) = (inside(&bench.table), bench.table.len());
    let taken = bench.table.take(around);
    assert_eq!((taken.len(), inside(&taken), bench.table.len()), (expected, expected, before - expected));
    assert_eq!(bench.table.take(KeyRange::new(MIDDLE, MIDDLE)).len(), before - expected);
    assert!(bench.table.is_empty() && bench.table.bytes() == 0);
}
