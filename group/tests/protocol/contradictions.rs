//! A peer that contradicts itself stops no other peer (hazard 5). The first accepted proposal stays; the peer's ballot is ignored from then
//! on. Where the peer contradicts a chosen value, the member that sees it stops serving.

use std::sync::Arc;

use group::ballot::{Ballot, LogSlot, Number, Term, TermBallot};
use group::control::state::Entry;
use group::message::{AttemptOutcome, Base, CommitteeMessage, Compared, LogMessage, Message, Write};
use group::op::{Op, Read};
use group::validate::Violation;
use overlay::{Epoch, KeyRange};

use crate::bench::{Bench, Whole, ballot, base, key, node, nothing_newer, operate, operation, write};

/// Returns a bench like a daemon: it survives contradictions.
fn bench() -> Bench {
    let mut bench = Bench::new(node(1), 3);
    bench.config.fatal_contradictions = false;
    bench
}

fn whole() -> Whole {
    Whole::new(&bench())
}

fn propose(whole: &mut Whole, ballot: TermBallot, chosen: Option<u64>, writes: Vec<Write>) {
    whole.hear(2, Message::Committee(CommitteeMessage::Accept { ballot, chosen, writes }));
}

fn lay(whole: &mut Whole, ballot: TermBallot, base: Arc<Base>, chosen: Option<u64>) {
    whole.hear(2, Message::Committee(CommitteeMessage::Base { ballot, base, chosen }));
}

/// Member 2 promises to itself, and lays its base here.
fn taken_over() -> (Whole, TermBallot) {
    let (mut whole, theirs) = (whole(), ballot(5, 2));
    whole.hear(2, Message::Committee(CommitteeMessage::Prepare { ballot: theirs, range: KeyRange::FULL }));
    lay(&mut whole, theirs, base(&[], 0), None);
    assert_eq!(whole.group.dropped().total(), 0);
    (whole, theirs)
}

/// Returns the acceptances that member 2 was told of since the last call.
fn accepted(whole: &mut Whole) -> Vec<Vec<(u64, u64)>> {
    let of_it = |(_, message)| match message {
        Message::Committee(CommitteeMessage::Accepted { numbers, .. }) => Some(numbers),
        _ => None,
    };
    std::mem::take(&mut whole.said).into_iter().filter_map(of_it).collect()
}

/// Returns the value that is chosen for "k", as this member knows.
fn chosen(whole: &Whole) -> Option<bytes::Bytes> {
    let mut records = whole.group.table().iter();
    records.find(|(name, _)| **name == key("k")).and_then(|(_, record)| record.value.clone())
}

fn assert_ignored(whole: &mut Whole, times: u64) {
    assert_eq!(whole.group.dropped().of(Violation::Contradiction), times);
    assert!(whole.group.halted().is_none(), "nothing chosen was contradicted");
}

/// Before: "two bases under ballot".
#[test]
fn a_second_base_under_a_ballot_is_refused() {
    let (mut whole, theirs) = taken_over();
    lay(&mut whole, theirs, base(&[(Term::new(LogSlot(1), 0), 3)], 0), None);
    assert_ignored(&mut whole, 1);
    assert_eq!(whole.group.acceptor().committee(theirs).unwrap().base(), Some(&base(&[], 0)), "the first stays");
    // Nothing of that ballot counts any more, and another ballot does.
    let stored = whole.stored.len();
    propose(&mut whole, theirs, Some(0), vec![write(theirs, 1, "k", "v")]);
    lay(&mut whole, theirs, base(&[], 0), Some(0));
    assert_ignored(&mut whole, 3);
    assert_eq!(whole.stored.len(), stored);
    let next = ballot(6, 2);
    whole.hear(2, Message::Committee(CommitteeMessage::Prepare { ballot: next, range: KeyRange::FULL }));
    assert!(whole.group.acceptor().committee(next).is_some());
}

/// Before: "two values under ballot".
#[test]
fn a_second_write_under_a_number_is_refused_with_all_that_comes_along() {
    let (mut whole, theirs) = taken_over();
    propose(&mut whole, theirs, Some(0), vec![write(theirs, 1, "k", "one")]);
    accepted(&mut whole);
    let stored = whole.stored.len();
    propose(&mut whole, theirs, Some(0), vec![write(theirs, 2, "j", "new"), write(theirs, 1, "k", "two")]);
    assert_ignored(&mut whole, 1);
    assert_eq!(accepted(&mut whole), Vec::<Vec<(u64, u64)>>::new());
    assert_eq!(whole.stored.len(), stored, "refused before any state changes");
    let committee = whole.group.acceptor().committee(theirs).unwrap();
    let held: Vec<_> = committee.unsettled(KeyRange::FULL).map(|write| write.record.value.clone()).collect();
    assert_eq!(held, [Some("one".into())]);
    // Its mark is no longer believed either.
    propose(&mut whole, theirs, Some(1), vec![]);
    assert_eq!(chosen(&whole), None);
}

/// Before: "two values under ballot … in slot".
#[test]
fn a_second_entry_in_a_slot_is_refused() {
    let mut whole = whole();
    let theirs = Ballot { round: 3, node: node(2) };
    let accept = |entry| LogMessage::Accept { ballot: theirs, entries: vec![(LogSlot(2), entry)], chosen: LogSlot(1) };
    whole.hear(2, Message::Log(accept(Entry::Horizon(5))));
    let stored = whole.stored.len();
    whole.hear(2, Message::Log(accept(Entry::Horizon(6))));
    assert_ignored(&mut whole, 1);
    assert_eq!(whole.group.log().undecided(LogSlot(1)), [Entry::Horizon(5)]);
    // The leader of that ballot is followed no more.
    whole.hear(2, Message::Log(LogMessage::Accept { ballot: theirs, entries: vec![], chosen: LogSlot(2) }));
    assert_eq!(whole.group.state().applied, LogSlot(1));
    assert_eq!(whole.stored.len(), stored);
    let next = Ballot { round: 4, node: node(3) };
    let entries = vec![(LogSlot(2), Entry::Horizon(6))];
    whole.hear(3, Message::Log(LogMessage::Accept { ballot: next, entries, chosen: LogSlot(2) }));
    assert_eq!((whole.group.state().applied, whole.group.state().horizon), (LogSlot(2), 6), "another leads");
}

/// Checks that a member stops serving: it gives the reason, answers with no value, and sends no more messages in the group.
fn assert_halted(mut whole: Whole, own: TermBallot) {
    let why = whole.group.halted().expect("it noticed").to_owned();
    assert!(why.contains(&node(2).to_string()), "{why}");
    assert_eq!(whole.halted, [why], "a person is told, once");
    assert!(whole.group.primaries().next().is_none(), "it is primary of nothing");
    whole.said.clear();
    whole.hear(3, operate(operation(own, 77, "k", Op::Read(Read::Value))));
    whole.hear(3, Message::AskState);
    whole.wait(10_000);
    assert_eq!(whole.said, []);
    whole.group.operate(node(1), operation(own, 78, "k", Op::Read(Read::Value)));
    whole.pull();
    assert_eq!(whole.outcomes.last(), Some(&(78, AttemptOutcome::NotPrimary)));
}

#[test]
fn a_second_write_under_a_chosen_number_halts_the_group_here() {
    let (mut whole, theirs) = taken_over();
    let own = TermBallot { epoch: Epoch(1), ..whole.group.state().parts().next().unwrap().1 };
    propose(&mut whole, theirs, Some(0), vec![write(theirs, 1, "k", "one")]);
    propose(&mut whole, theirs, Some(1), vec![]);
    assert_eq!(chosen(&whole), Some("one".into()));
    propose(&mut whole, theirs, Some(1), vec![write(theirs, 1, "k", "two")]);
    assert_eq!(chosen(&whole), Some("one".into()));
    assert_halted(whole, own);
}

#[test]
fn a_second_base_where_the_first_is_chosen_halts_the_group_here() {
    let (mut whole, theirs) = taken_over();
    lay(&mut whole, theirs, base(&[], 0), Some(0));
    lay(&mut whole, theirs, base(&[], 1), Some(0));
    assert_halted(whole, ballot(1, 1));
}

#[test]
fn another_state_after_the_same_slot_halts_the_group_here() {
    let mut whole = whole();
    let mut state = whole.group.state().clone();
    state.horizon += 1;
    whole.hear(9, Message::State(Box::new(state.clone())));
    assert!(whole.group.halted().is_none(), "a stranger is not believed");
    whole.hear(2, Message::State(Box::new(whole.group.state().clone())));
    assert!(whole.group.halted().is_none(), "the same state");
    whole.hear(2, Message::State(Box::new(state)));
    assert_halted(whole, ballot(1, 1));
}

/// A source's chosen record of a number must equal this member's record of it.
#[test]
fn another_record_of_a_chosen_number_halts_the_group_here() {
    let mut bench = bench();
    let (one, two) = (ballot(5, 2), ballot(6, 3));
    bench.serve(one, &[]);
    bench.accept(one, Some(0), vec![write(one, 1, "k", "one")]);
    bench.accept(one, Some(1), vec![]);
    // Behind the state that another primary says was chosen of that term: it lacks a write, and asks.
    bench.serve(two, &[(one.term, 3)]);
    bench.tick();
    let (from, _, since) = bench.asked_since();
    assert_eq!(since, Number { term: one.term, n: 1 });
    let answer = group::message::Since {
        ballot: two,
        piece: KeyRange::FULL,
        since,
        attempt: 0,
        writes: vec![write(one, 1, "k", "two")],
        up_to: Some(Number { term: two.term, n: 0 }),
        done: true,
    };
    bench.since(from, answer);
    assert_eq!(bench.dropped.of(Violation::Contradiction), 1);
    assert_eq!(bench.halted.len(), 1);
    assert_eq!(bench.knows(&key("k")).unwrap().value, Some("one".into()));
}

/// Where peers are honest, a contradiction is a defect of the program.
#[test]
#[should_panic(expected = "lays another base")]
fn in_tests_it_is_fatal() {
    let mut bench = Bench::new(node(1), 3);
    let theirs = ballot(5, 2);
    bench.serve(theirs, &[]);
    bench.hear(2, CommitteeMessage::Base { ballot: theirs, base: base(&[], 1), chosen: Some(0) });
}

/// A source counts more records than there can be: before, the sum of two pages overflowed.
#[test]
fn a_source_may_count_as_many_records_as_it_likes() {
    let mut bench = bench();
    let theirs = ballot(5, 2);
    bench.serve(theirs, &[(Term::new(LogSlot(2), 0), 3)]);
    bench.tick();
    for after in [None, Some(key("a"))] {
        let (from, ask) = bench.asked_compare();
        assert_eq!(ask.after, after);
        let up_to =
            Some(if after.is_none() { key("a") } else { key("b") }).filter(|up_to| after.as_ref() < Some(up_to));
        bench.compared(from, Compared { looked: u64::MAX, after, up_to, ..nothing_newer(theirs, KeyRange::FULL) });
        bench.tick();
    }
}
